/* Saving, finding and loading whole checkpoints, with every kind of damage and of failing I/O. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <sys/resource.h>

#include "base/fault.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "numeric/bf16.h"
#include "unit/faulty_files.h"
#include "unit/scratch_dir.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        const oct_status ok_status_ = (call);                                                      \
        if (ok_status_ != OCT_OK)                                                                  \
            fail_msg("%s", err.msg);                                                               \
    } while (0)

/* --- a small state ------------------------------------------------------------------------- */

enum { ROWS = 7, COLS = 5, EXPERTS = 3 };

/* What a run would save; every number depends on `seed`. */
typedef struct tiny_state {
    float weight[ROWS * COLS];
    float experts[EXPERTS * 2 * COLS];
    float bias[ROWS];
    float step;
    oct_item_list list;
} tiny_state;

static const int64_t weight_shape[2] = {ROWS, COLS}, experts_shape[3] = {EXPERTS, 2, COLS},
                     bias_shape[1] = {ROWS};

static void fill(float *out, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        out[i] = (float)(int32_t)seed * 1e-9f;
    }
}

static void tiny_init(tiny_state *tiny, uint32_t seed)
{
    oct_err err = {0};
    fill(tiny->weight, ROWS * COLS, seed);
    fill(tiny->experts, EXPERTS * 2 * COLS, seed + 1);
    fill(tiny->bias, ROWS, seed + 2);
    tiny->step = (float)seed;
    oct_item_list *list = &tiny->list;
    oct_item_list_init(list);
    OK(oct_item_add_tensor(list, "model.weight", OCT_DTYPE_BF16, 2, weight_shape, tiny->weight,
                           &err));
    OK(oct_item_add_tensor(list, "optimizer.master", OCT_DTYPE_F32, 2, weight_shape, tiny->weight,
                           &err));
    OK(oct_item_add_tensor(list, "model.experts", OCT_DTYPE_F32, 3, experts_shape, tiny->experts,
                           &err));
    OK(oct_item_add_tensor(list, "model.bias", OCT_DTYPE_BF16, 1, bias_shape, tiny->bias, &err));
    OK(oct_item_add_tensor(list, "optimizer.step", OCT_DTYPE_F32, 0, NULL, &tiny->step, &err));
    OK(oct_item_add_int(list, "train_state", "step", seed, &err));
    OK(oct_item_add_int(list, "train_state", "negative", -((int64_t)1 << 40) - seed, &err));
    OK(oct_item_add_float(list, "train_state", "rate", seed * 0.1, &err));
    OK(oct_item_add_bool(list, "train_state", "flag", seed % 2 != 0, &err));
    OK(oct_item_add_string(list, "train_state", "text", "Zeit\xc3\xa9", &err));
    OK(oct_item_add_bytes(list, "train_state", "raw", "\0\xff\1", 3, &err));
    const int64_t ints[4] = {seed, -1, 70000, INT64_MAX};
    OK(oct_item_add_ints(list, "train_state", "counts", ints, 4, &err));
    OK(oct_item_add_int(list, NULL, "top", 3, &err));
}

/* Every value of the checkpoint has to be that of tiny_init(seed), to the bit. */
static void tiny_check(const oct_checkpoint *cp, uint32_t seed)
{
    oct_err err = {0};
    tiny_state tiny;
    tiny_init(&tiny, seed);
    float weight[ROWS * COLS], experts[EXPERTS * 2 * COLS], bias[ROWS], step = 0.0f;
    OK(oct_checkpoint_read_tensor(cp, "optimizer.master", 2, weight_shape, weight, &err));
    assert_memory_equal(weight, tiny.weight, sizeof weight);
    OK(oct_checkpoint_read_tensor(cp, "model.weight", 2, weight_shape, weight, &err));
    for (int i = 0; i < ROWS * COLS; i++)
        assert_int_equal(oct_f32_bits(weight[i]), oct_f32_bits(oct_bf16_round(tiny.weight[i])));
    OK(oct_checkpoint_read_tensor(cp, "model.experts", 3, experts_shape, experts, &err));
    assert_memory_equal(experts, tiny.experts, sizeof experts);
    OK(oct_checkpoint_read_tensor(cp, "model.bias", 1, bias_shape, bias, &err));
    for (int i = 0; i < ROWS; i++)
        assert_int_equal(oct_f32_bits(bias[i]), oct_f32_bits(oct_bf16_round(tiny.bias[i])));
    OK(oct_checkpoint_read_tensor(cp, "optimizer.step", 0, NULL, &step, &err));
    assert_int_equal((int64_t)step, seed);
    int64_t number = 0;
    double real = 0.0;
    bool flag = false;
    OK(oct_checkpoint_read_int(cp, "train_state.step", &number, &err));
    assert_int_equal(number, seed);
    OK(oct_checkpoint_read_int(cp, "train_state.negative", &number, &err));
    assert_int_equal(number, -((int64_t)1 << 40) - seed);
    OK(oct_checkpoint_read_float(cp, "train_state.rate", &real, &err));
    const double wanted = seed * 0.1;
    assert_memory_equal(&real, &wanted, sizeof real);
    OK(oct_checkpoint_read_bool(cp, "train_state.flag", &flag, &err));
    assert_int_equal(flag, seed % 2 != 0);
    oct_arena arena;
    oct_arena_init(&arena, "test");
    const char *text = NULL;
    const void *raw = NULL;
    const int64_t *ints = NULL;
    OK(oct_checkpoint_read_string(cp, "train_state.text", &arena, &text, &err));
    assert_string_equal(text, "Zeit\xc3\xa9");
    OK(oct_checkpoint_read_bytes(cp, "train_state.raw", &arena, &raw, &number, &err));
    assert_int_equal(number, 3);
    assert_memory_equal(raw, "\0\xff\1", 3);
    OK(oct_checkpoint_read_ints(cp, "train_state.counts", &arena, &ints, &number, &err));
    assert_int_equal(number, 4);
    assert_true(ints[0] == seed && ints[1] == -1 && ints[2] == 70000 && ints[3] == INT64_MAX);
    OK(oct_checkpoint_read_int(cp, "top", &number, &err));
    oct_arena_release(&arena);
    oct_item_list_release(&tiny.list);
}

/* --- helpers ------------------------------------------------------------------------------- */

static char warnings[8192];

static void collect_warning(void *arg, const char *line)
{
    (void)arg;
    strncat(warnings, line, sizeof warnings - strlen(warnings) - 2);
    strncat(warnings, "\n", sizeof warnings - strlen(warnings) - 1);
}

static const oct_checkpoint_meta meta = {.config_hash = "00ff", .model_json = "{\"layers\":2}"};

static oct_status save(const oct_file_table *files, int64_t keep, int64_t step, uint32_t seed,
                       oct_err *err)
{
    tiny_state tiny;
    tiny_init(&tiny, seed);
    oct_checkpoint_writer *writer = NULL;
    const oct_checkpoint_options options = {.files = files,
                                            .root = scratch_dir,
                                            .keep_latest_k = keep,
                                            .chunk_bytes = 48,
                                            .warn = collect_warning};
    oct_status status = oct_checkpoint_writer_create(&options, &writer, err);
    if (status == OCT_OK)
        status = oct_checkpoint_save(writer, step, &tiny.list, &meta, err);
    oct_checkpoint_writer_destroy(writer);
    oct_item_list_release(&tiny.list);
    return status;
}

static bool exists(const char *name)
{
    return access(scratch_path(name), F_OK) == 0;
}

static const char *step_name(int64_t step)
{
    static char name[32];
    (void)snprintf(name, sizeof name, "step-%lld", (long long)step);
    return name;
}

/* Names below the root that are no committed step. */
static int count_leftovers(void)
{
    DIR *dir = opendir(scratch_dir);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.' && oct_checkpoint_step_of_name(entry->d_name) < 0;
    (void)closedir(dir);
    return count;
}

static int fresh(void **state)
{
    (void)state;
    warnings[0] = '\0';
    return scratch_clear();
}

/* --- round trips --------------------------------------------------------------------------- */

static void save__all_kinds__bits_come_back(void **state)
{
    (void)state;
    oct_err err = {0};
    OK(save(NULL, 0, 12, 5, &err));
    for (int level = OCT_VERIFY_SIZE; level <= OCT_VERIFY_CRC; level++) {
        oct_checkpoint *cp = NULL;
        OK(oct_checkpoint_open_latest(NULL, scratch_dir, (oct_checkpoint_verify_level)level, NULL,
                                      NULL, &cp, &err));
        tiny_check(cp, 5);
        assert_int_equal(oct_checkpoint_step(cp), 12);
        assert_int_equal(oct_checkpoint_world(cp), 1);
        assert_string_equal(oct_checkpoint_config_hash(cp), "00ff");
        assert_string_equal(oct_checkpoint_model_json(cp), "{\"layers\":2}");
        assert_int_equal(oct_checkpoint_entry_count(cp), 13);
        const oct_checkpoint_entry *entry = oct_checkpoint_find(cp, "model.weight");
        assert_string_equal(entry->dtype, "bfloat16");
        assert_int_equal(entry->bytes, ROWS * COLS * 2);
        assert_int_equal(entry->chunks, 2); /* 4 rows of 10 bytes in 48 */
        assert_string_equal(oct_checkpoint_entry_at(cp, 0)->key, "model.bias");
        assert_null(oct_checkpoint_find(cp, "model.weigh"));
        oct_checkpoint_close(cp);
    }
    assert_int_equal(count_leftovers(), 0);
    OK(oct_checkpoint_verify(NULL, scratch_path("step-12"), NULL, NULL, &err));
}

static void read_rows__every_range__same_as_whole(void **state)
{
    (void)state;
    oct_err err = {0};
    OK(save(NULL, 0, 1, 9, &err));
    oct_checkpoint *cp = NULL;
    OK(oct_checkpoint_open_step(NULL, scratch_dir, 1, OCT_VERIFY_SIZE, &cp, &err));
    float whole[ROWS * COLS];
    OK(oct_checkpoint_read_tensor(cp, "optimizer.master", 2, weight_shape, whole, &err));
    for (int64_t from = 0; from <= ROWS; from++)
        for (int64_t rows = 0; from + rows <= ROWS; rows++) {
            float part[ROWS * COLS + 1];
            part[rows * COLS] = 42.0f;
            OK(oct_checkpoint_read_rows(cp, "optimizer.master", 2, weight_shape, from, rows, part,
                                        &err));
            assert_memory_equal(part, whole + from * COLS, (size_t)(rows * COLS) * sizeof *part);
            assert_true(part[rows * COLS] == 42.0f);
        }
    assert_int_equal(
        oct_checkpoint_read_rows(cp, "optimizer.master", 2, weight_shape, 3, ROWS - 2, whole, &err),
        OCT_E_API);
    oct_checkpoint_close(cp);
}

static void read__wrong_key_shape_or_type__named(void **state)
{
    (void)state;
    oct_err err = {0};
    OK(save(NULL, 0, 1, 9, &err));
    oct_checkpoint *cp = NULL;
    OK(oct_checkpoint_open_step(NULL, scratch_dir, 1, OCT_VERIFY_CRC, &cp, &err));
    float out[ROWS * COLS];
    int64_t number = 0;
    bool flag = false;
    const int64_t other[2] = {COLS, ROWS};
    assert_int_equal(oct_checkpoint_read_tensor(cp, "model.gone", 2, weight_shape, out, &err),
                     OCT_E_CORRUPT);
    assert_non_null(strstr(err.msg, "'model.gone'"));
    assert_int_equal(oct_checkpoint_read_tensor(cp, "model.weight", 2, other, out, &err),
                     OCT_E_SHAPE);
    assert_non_null(strstr(err.msg, "[7, 5]"));
    assert_non_null(strstr(err.msg, "[5, 7] is required"));
    assert_int_equal(oct_checkpoint_read_tensor(cp, "top", 0, NULL, out, &err), OCT_E_CORRUPT);
    assert_int_equal(oct_checkpoint_read_int(cp, "model.weight", &number, &err), OCT_E_CORRUPT);
    assert_int_equal(oct_checkpoint_read_bool(cp, "top", &flag, &err), OCT_E_CORRUPT);
    assert_non_null(strstr(err.msg, "a bool is required"));
    oct_checkpoint_close(cp);
}

static void save__key_twice__refused_and_nothing_left(void **state)
{
    (void)state;
    oct_err err = {0};
    oct_item_list list;
    oct_item_list_init(&list);
    OK(oct_item_add_int(&list, NULL, "a", 1, &err));
    OK(oct_item_add_int(&list, NULL, "a", 2, &err));
    oct_checkpoint_writer *writer = NULL;
    const oct_checkpoint_options options = {.root = scratch_dir};
    OK(oct_checkpoint_writer_create(&options, &writer, &err));
    assert_int_equal(oct_checkpoint_save(writer, 1, &list, &meta, &err), OCT_E_CORRUPT);
    assert_non_null(strstr(err.msg, "('a')"));
    assert_int_equal(count_leftovers(), 0);
    assert_false(exists("step-1"));
    oct_checkpoint_writer_destroy(writer);
    oct_item_list_release(&list);
}

static void save__rows_missing__refused(void **state)
{
    (void)state;
    oct_err err = {0};
    tiny_state tiny;
    tiny_init(&tiny, 1);
    tiny.list.items[0].row_begin = 1; /* a shard whose other part nobody wrote */
    tiny.list.items[0].rows = ROWS - 1;
    oct_checkpoint_writer *writer = NULL;
    const oct_checkpoint_options options = {.root = scratch_dir};
    OK(oct_checkpoint_writer_create(&options, &writer, &err));
    assert_int_equal(oct_checkpoint_save(writer, 1, &tiny.list, &meta, &err), OCT_E_CORRUPT);
    assert_non_null(strstr(err.msg, "rows are missing ('model.weight')"));
    oct_checkpoint_writer_destroy(writer);
    oct_item_list_release(&tiny.list);
}

/* --- asynchronous saves -------------------------------------------------------------------- */

static void start__one_in_flight__errors_reported_by_wait(void **state)
{
    (void)state;
    oct_err err = {0};
    tiny_state tiny;
    tiny_init(&tiny, 3);
    int64_t saved = 0;
    oct_checkpoint_writer *writer = NULL;
    const oct_checkpoint_options options = {.root = scratch_dir};
    OK(oct_checkpoint_writer_create(&options, &writer, &err));
    OK(oct_checkpoint_wait(writer, &saved, &err));
    assert_int_equal(saved, -1);
    OK(oct_checkpoint_start(writer, 1, &tiny.list, &meta, &err));
    OK(oct_checkpoint_start(writer, 2, &tiny.list, &meta, &err));
    OK(oct_checkpoint_wait(writer, &saved, &err));
    assert_int_equal(saved, 2);
    assert_true(exists("step-1") && exists("step-2"));
    OK(oct_fault_arm("checkpoint.publish", 1, OCT_FAULT_FAIL, &err));
    OK(oct_checkpoint_start(writer, 3, &tiny.list, &meta, &err));
    assert_int_equal(oct_checkpoint_start(writer, 4, &tiny.list, &meta, &err), OCT_E_IO);
    assert_non_null(strstr(err.msg, "saving step 3"));
    assert_false(exists("step-3") || exists("step-4"));
    OK(oct_checkpoint_wait(writer, &saved, &err));
    OK(oct_checkpoint_start(writer, 5, &tiny.list, &meta, &err));
    oct_checkpoint_writer_destroy(writer); /* waits */
    assert_true(exists("step-5"));
    assert_int_equal(count_leftovers(), 0);
    oct_item_list_release(&tiny.list);
}

/* --- failing I/O --------------------------------------------------------------------------- */

/* Saves step `step` while the n-th call misbehaves. Returns whether the fault was reached. */
static bool save_with_fault(faulty_mode mode, int64_t n, int64_t step, uint32_t seed,
                            oct_status *status, oct_err *err)
{
    faulty_files files = faulty_files_new(mode, n);
    *status = save(&files.table, 1, step, seed, err);
    if (files.open_files != 0)
        fail_msg("call %lld (%s): %lld files left open", (long long)n, files.failed_operation,
                 (long long)files.open_files);
    return files.failed_operation != NULL;
}

/* The newest checkpoint that a restart finds has to be whole and to be one of the two. */
static void check_restart(int64_t old_step, uint32_t old_seed, int64_t new_step, uint32_t new_seed,
                          bool must_be_new)
{
    oct_err err = {0};
    oct_checkpoint_writer *writer = NULL;
    const oct_checkpoint_options options = {.root = scratch_dir};
    OK(oct_checkpoint_writer_create(&options, &writer, &err));
    oct_checkpoint_writer_destroy(writer);
    assert_int_equal(count_leftovers(), 0);
    oct_checkpoint *cp = NULL;
    OK(oct_checkpoint_open_latest(NULL, scratch_dir, OCT_VERIFY_CRC, NULL, NULL, &cp, &err));
    assert_non_null(cp);
    int64_t seed = 0;
    OK(oct_checkpoint_read_int(cp, "train_state.step", &seed, &err));
    assert_true(seed == new_seed || (!must_be_new && seed == old_seed));
    assert_int_equal(oct_checkpoint_step(cp), seed == new_seed ? new_step : old_step);
    tiny_check(cp, (uint32_t)seed);
    oct_checkpoint_close(cp);
}

static const faulty_mode all_modes[] = {FAULTY_EIO, FAULTY_ENOSPC, FAULTY_EINTR, FAULTY_SHORT,
                                        FAULTY_DEAD};

/* old_step == new_step is a save over an existing checkpoint. */
static void fail_each_call(int64_t old_step, int64_t new_step)
{
    for (size_t m = 0; m < sizeof all_modes / sizeof *all_modes; m++) {
        const faulty_mode mode = all_modes[m];
        int64_t n = 0, failures = 0;
        for (bool reached = true; reached;) {
            oct_err err = {0};
            oct_status status;
            assert_int_equal(scratch_clear(), 0);
            OK(save(NULL, 0, old_step, 11, &err));
            reached = save_with_fault(mode, ++n, new_step, 22, &status, &err);
            failures += status != OCT_OK;
            if (status != OCT_OK) {
                assert_non_null(strstr(err.msg, "'/")); /* a path */
                assert_non_null(strstr(err.msg, mode == FAULTY_ENOSPC  ? "No space"
                                                : mode == FAULTY_EINTR ? "Interrupted"
                                                                       : "Input/output"));
            }
            if (status != OCT_OK && mode != FAULTY_DEAD) { /* before any sweep */
                assert_true(exists(step_name(old_step)));
                assert_int_equal(exists(step_name(new_step)), old_step == new_step);
            }
            check_restart(old_step, 11, new_step, 22, status == OCT_OK);
        }
        assert_true(n > 20);
        assert_true(mode == FAULTY_SHORT ? failures == 0 : mode == FAULTY_EINTR || failures > 20);
    }
}

static void save__each_call_fails__older_stands_or_newer_is_whole(void **state)
{
    (void)state;
    fail_each_call(1, 2);
}

static void save__over_existing_step_each_call_fails__one_of_both_is_whole(void **state)
{
    (void)state;
    fail_each_call(4, 4);
}

/* A real full disk, as far as one process can have it. */
static void save__file_size_limit__error_and_older_stands(void **state)
{
    (void)state;
    oct_err err = {0};
    struct rlimit before, small;
    OK(save(NULL, 0, 1, 11, &err));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 10000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const oct_status status = save(NULL, 0, 2, 22, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, OCT_E_IO);
    assert_non_null(strstr(err.msg, "File too large"));
    assert_non_null(strstr(err.msg, "__0_0.distcp"));
    assert_false(exists("step-2"));
    assert_int_equal(count_leftovers(), 0);
    check_restart(1, 11, 2, 22, false);
}

static int full_free_space(const oct_file_table *self, const char *path, uint64_t *bytes)
{
    (void)self;
    (void)path;
    *bytes = 1000;
    return 0;
}

static void save__too_little_space__refused_before_writing(void **state)
{
    (void)state;
    oct_err err = {0};
    faulty_files files = faulty_files_new(FAULTY_NONE, 0);
    files.table.free_space = full_free_space;
    assert_int_equal(save(&files.table, 0, 2, 22, &err), OCT_E_IO);
    assert_non_null(strstr(err.msg, "1000 bytes are free"));
    assert_int_equal(count_leftovers(), 0);
}

/* --- finding and pruning ------------------------------------------------------------------- */

static void open_latest__steps_9_and_10__numeric_order(void **state)
{
    (void)state;
    oct_err err = {0};
    oct_checkpoint *cp = NULL;
    OK(oct_checkpoint_open_latest(NULL, scratch_path("none"), OCT_VERIFY_CRC, NULL, NULL, &cp,
                                  &err));
    assert_null(cp);
    OK(save(NULL, 0, 9, 9, &err));
    OK(save(NULL, 0, 10, 10, &err));
    OK(save(NULL, 0, 8, 8, &err));
    OK(oct_checkpoint_open_latest(NULL, scratch_dir, OCT_VERIFY_CRC, NULL, NULL, &cp, &err));
    assert_int_equal(oct_checkpoint_step(cp), 10);
    oct_checkpoint_close(cp);
    oct_arena arena;
    oct_arena_init(&arena, "test");
    int64_t *steps = NULL, count = 0;
    OK(oct_checkpoint_list(NULL, scratch_dir, &arena, &steps, &count, &err));
    assert_int_equal(count, 3);
    assert_true(steps[0] == 8 && steps[1] == 9 && steps[2] == 10);
    oct_arena_release(&arena);
}

static void step_of_name__odd_names__refused(void **state)
{
    (void)state;
    assert_int_equal(oct_checkpoint_step_of_name("step-0"), 0);
    assert_int_equal(oct_checkpoint_step_of_name("step-120"), 120);
    static const char *const wrong[] = {"step-",   "step-01",    "step--1",
                                        "step-1a", "step-1.tmp", "step-1.tmp-0123abcd",
                                        "step1",   "Step-1",     "step-99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(oct_checkpoint_step_of_name(wrong[i]), -1);
}

static void flip_byte(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    (void)fseek(file, at, SEEK_SET);
    const int c = fgetc(file);
    (void)fseek(file, at, SEEK_SET);
    (void)fputc(c ^ 0x10, file);
    (void)fclose(file);
}

static void open_latest__newest_damaged__named_and_passed_over(void **state)
{
    (void)state;
    oct_err err = {0};
    for (int64_t step = 1; step <= 3; step++)
        OK(save(NULL, 0, step, (uint32_t)step, &err));
    flip_byte(scratch_path("step-3/__0_0.distcp"), 5000);
    assert_int_equal(unlink(scratch_path("step-2/COMMIT.json")), 0);
    oct_checkpoint *cp = NULL;
    OK(oct_checkpoint_open_latest(NULL, scratch_dir, OCT_VERIFY_CRC, collect_warning, NULL, &cp,
                                  &err));
    assert_int_equal(oct_checkpoint_step(cp), 1);
    oct_checkpoint_close(cp);
    assert_non_null(strstr(warnings, "passing over step-3"));
    assert_non_null(strstr(warnings, "step-3/__0_0.distcp"));
    assert_non_null(strstr(warnings, "passing over step-2"));
    assert_int_equal(oct_checkpoint_open_step(NULL, scratch_dir, 3, OCT_VERIFY_CRC, &cp, &err),
                     OCT_E_CORRUPT);
    assert_non_null(strstr(err.msg, "step-3/__0_0.distcp"));
    assert_int_equal(oct_checkpoint_open_step(NULL, scratch_dir, 7, OCT_VERIFY_CRC, &cp, &err),
                     OCT_E_IO);
    flip_byte(scratch_path("step-1/COMMIT.json"), 20);
    assert_int_equal(
        oct_checkpoint_open_latest(NULL, scratch_dir, OCT_VERIFY_CRC, NULL, NULL, &cp, &err),
        OCT_E_CORRUPT);
    assert_null(cp);
}

static void open_step__directory_renamed__refused(void **state)
{
    (void)state;
    oct_err err = {0};
    OK(save(NULL, 0, 1, 1, &err));
    assert_int_equal(rename(scratch_path("step-1"), scratch_path("step-5")), 0);
    oct_checkpoint *cp = NULL;
    assert_int_equal(oct_checkpoint_open_step(NULL, scratch_dir, 5, OCT_VERIFY_SIZE, &cp, &err),
                     OCT_E_CORRUPT);
    assert_non_null(strstr(err.msg, "it is of step 1, 5 is required"));
}

static void save__keep_latest_k__oldest_whole_ones_go(void **state)
{
    (void)state;
    oct_err err = {0};
    OK(save(NULL, 0, 9, 1, &err));
    OK(save(NULL, 0, 10, 2, &err));
    OK(save(NULL, 0, 11, 3, &err));
    assert_int_equal(truncate(scratch_path("step-11/__0_0.distcp"), 100), 0);
    OK(save(NULL, 2, 12, 4, &err));
    assert_false(exists("step-9"));
    assert_true(exists("step-10") && exists("step-11") && exists("step-12"));
    OK(save(NULL, 1, 13, 5, &err));
    assert_true(exists("step-13"));
    assert_false(exists("step-10") || exists("step-11") || exists("step-12"));
    assert_int_equal(count_leftovers(), 0);
}

static void writer_create__leftovers__swept_or_put_back(void **state)
{
    (void)state;
    oct_err err = {0};
    for (int64_t step = 1; step <= 4; step++)
        OK(save(NULL, 0, step, (uint32_t)step, &err));
    assert_int_equal(rename(scratch_path("step-1"), scratch_path("step-1.trash-0123abcd")), 0);
    assert_int_equal(rename(scratch_path("step-2"), scratch_path("step-2.replaced-0123abcd")), 0);
    assert_int_equal(rename(scratch_path("step-3"), scratch_path("step-4.replaced-00000000")), 0);
    assert_int_equal(mkdir(scratch_path("step-9.tmp-89abcdef"), 0777), 0);
    assert_int_equal(mkdir(scratch_path("step-9.tmp-mine"), 0777), 0);
    warnings[0] = '\0';
    OK(save(NULL, 0, 5, 5, &err));
    assert_false(exists("step-1.trash-0123abcd") || exists("step-9.tmp-89abcdef") ||
                 exists("step-1") || exists("step-4.replaced-00000000"));
    assert_true(exists("step-2") && exists("step-4") && exists("step-5"));
    assert_true(exists("step-9.tmp-mine")); /* not a name of ours */
    assert_non_null(strstr(warnings, "step-9.tmp-89abcdef"));
    oct_checkpoint *cp = NULL;
    OK(oct_checkpoint_open_step(NULL, scratch_dir, 4, OCT_VERIFY_CRC, &cp, &err));
    tiny_check(cp, 4);
    oct_checkpoint_close(cp);
}

/* --- damage -------------------------------------------------------------------------------- */

static const char *const files_of_step[] = {"COMMIT.json", ".metadata", "__0_0.distcp"};

static char *read_file(const char *path, size_t *bytes)
{
    oct_err err = {0};
    char *data = NULL;
    OK(oct_file_read_all(&oct_file_table_real, path, 1 << 24, &data, bytes, &err));
    return data;
}

static void write_file(const char *path, const char *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void expect_refused(const char *name, const char *what, size_t at)
{
    oct_err err = {0};
    oct_checkpoint *cp = NULL;
    const oct_status status =
        oct_checkpoint_open_step(NULL, scratch_dir, 1, OCT_VERIFY_CRC, &cp, &err);
    if (status != OCT_E_CORRUPT)
        fail_msg("%s of '%s' at %zu: status %d, %s", what, name, at, status, err.msg);
    if (!strstr(err.msg, name))
        fail_msg("%s of '%s' at %zu: not named in '%s'", what, name, at, err.msg);
}

static void open__bits_flipped__every_one_refused_by_name(void **state)
{
    (void)state;
    oct_err err = {0};
    OK(save(NULL, 0, 1, 1, &err));
    for (size_t f = 0; f < sizeof files_of_step / sizeof *files_of_step; f++) {
        char path[512];
        size_t bytes = 0;
        (void)snprintf(path, sizeof path, "%s/step-1/%s", scratch_dir, files_of_step[f]);
        char *data = read_file(path, &bytes);
        const size_t stride = bytes > 4000 ? 97 : bytes > 1000 ? 5 : 1;
        for (size_t at = 0; at < bytes; at += stride) {
            const char mask = (char)(1 << at % 8);
            data[at] ^= mask;
            write_file(path, data, bytes);
            expect_refused(files_of_step[f], "flip", at);
            data[at] ^= mask;
        }
        for (size_t length = 0; length<bytes; length += bytes> 1000 ? bytes / 50 : 1) {
            write_file(path, data, length);
            expect_refused(files_of_step[f], "truncation", length);
        }
        assert_int_equal(unlink(path), 0);
        expect_refused(files_of_step[f], "loss", 0);
        write_file(path, data, bytes);
        free(data);
    }
    oct_checkpoint *cp = NULL;
    write_file(scratch_path("step-1/__9_0.distcp"), "stale", 5); /* nobody refers to it */
    OK(oct_checkpoint_open_step(NULL, scratch_dir, 1, OCT_VERIFY_CRC, &cp, &err));
    tiny_check(cp, 1);
    oct_checkpoint_close(cp);
}

static void report_problem(void *arg, const char *file, int64_t bytes, const char *problem)
{
    (void)bytes;
    int *count = arg;
    if (problem)
        count[1]++;
    count[0]++;
    assert_non_null(file);
}

static void verify__damaged_file__reported_beside_good_ones(void **state)
{
    (void)state;
    oct_err err = {0};
    OK(save(NULL, 0, 1, 1, &err));
    int count[2] = {0};
    OK(oct_checkpoint_verify(NULL, scratch_path("step-1"), report_problem, count, &err));
    assert_int_equal(count[0], 3);
    assert_int_equal(count[1], 0);
    flip_byte(scratch_path("step-1/__0_0.distcp"), 9000);
    assert_int_equal(
        oct_checkpoint_verify(NULL, scratch_path("step-1"), report_problem, count, &err),
        OCT_E_CORRUPT);
    assert_int_equal(count[0], 6);
    assert_int_equal(count[1], 1);
    assert_non_null(strstr(err.msg, "__0_0.distcp"));
}

/* Reads every tensor and object; what comes out does not matter, only that nothing breaks. */
static oct_status read_everything(const oct_checkpoint *cp, oct_err *err)
{
    oct_arena arena;
    oct_arena_init(&arena, "test");
    oct_status first = OCT_OK;
    for (int64_t i = 0; i < oct_checkpoint_entry_count(cp); i++) {
        const oct_checkpoint_entry *entry = oct_checkpoint_entry_at(cp, i);
        oct_status status = OCT_OK;
        if (entry->is_tensor) {
            float *out = entry->bytes < 1 << 20 ? malloc((size_t)entry->bytes * 2 + 4) : NULL;
            if (out)
                status =
                    oct_checkpoint_read_tensor(cp, entry->key, entry->ndim, entry->shape, out, err);
            free(out);
        } else {
            const int64_t *ints = NULL;
            int64_t count = 0;
            status = oct_checkpoint_read_ints(cp, entry->key, &arena, &ints, &count, err);
            if (status != OCT_OK && strstr(err->msg, "another type"))
                status = OCT_OK;
        }
        if (first == OCT_OK)
            first = status;
    }
    oct_arena_release(&arena);
    return first;
}

/* Without COMMIT.json, as PyTorch writes it, only the archives have CRCs: payload damage is found,
 * damage elsewhere may go unseen but breaks nothing. */
static void open__foreign_directory_mutated__never_breaks(void **state)
{
    (void)state;
    oct_err err = {0};
    OK(save(NULL, 0, 1, 1, &err));
    assert_int_equal(unlink(scratch_path("step-1/COMMIT.json")), 0);
    oct_checkpoint *cp = NULL;
    OK(oct_checkpoint_open(NULL, scratch_path("step-1"), OCT_VERIFY_CRC, collect_warning, NULL, &cp,
                           &err));
    assert_non_null(strstr(warnings, "has no COMMIT.json"));
    assert_int_equal(oct_checkpoint_step(cp), -1);
    tiny_check(cp, 1);
    oct_checkpoint_close(cp);
    uint32_t random = 7;
    int refused = 0;
    for (int round = 0; round < 1500; round++) {
        const char *name = files_of_step[1 + round % 2];
        char path[512];
        size_t bytes = 0;
        (void)snprintf(path, sizeof path, "%s/step-1/%s", scratch_dir, name);
        char *data = read_file(path, &bytes);
        char *mutant = malloc(bytes);
        memcpy(mutant, data, bytes);
        for (int k = 0; k <= round % 4; k++) {
            random = random * 1664525u + 1013904223u;
            const size_t at = (random >> 4) % bytes;
            mutant[at] = (char)(random >> 24);
        }
        write_file(path, mutant, round % 8 == 7 ? (random >> 4) % bytes : bytes);
        cp = NULL;
        oct_status status = oct_checkpoint_open(NULL, scratch_path("step-1"), OCT_VERIFY_CRC, NULL,
                                                NULL, &cp, &err);
        if (status == OCT_OK) {
            status = read_everything(cp, &err);
            oct_checkpoint_close(cp);
        }
        refused += status != OCT_OK;
        write_file(path, data, bytes);
        free(mutant);
        free(data);
    }
    assert_true(refused > 300);
}

static void open__no_checkpoint__refused(void **state)
{
    (void)state;
    oct_err err = {0};
    oct_checkpoint *cp = NULL;
    assert_int_equal(
        oct_checkpoint_open(NULL, scratch_path("nothing"), OCT_VERIFY_CRC, NULL, NULL, &cp, &err),
        OCT_E_IO);
    assert_int_equal(mkdir(scratch_path("empty"), 0777), 0);
    assert_int_equal(
        oct_checkpoint_open(NULL, scratch_path("empty"), OCT_VERIFY_CRC, NULL, NULL, &cp, &err),
        OCT_E_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(save__all_kinds__bits_come_back, fresh),
        cmocka_unit_test_setup(read_rows__every_range__same_as_whole, fresh),
        cmocka_unit_test_setup(read__wrong_key_shape_or_type__named, fresh),
        cmocka_unit_test_setup(save__key_twice__refused_and_nothing_left, fresh),
        cmocka_unit_test_setup(save__rows_missing__refused, fresh),
        cmocka_unit_test_setup(start__one_in_flight__errors_reported_by_wait, fresh),
        cmocka_unit_test_setup(save__each_call_fails__older_stands_or_newer_is_whole, fresh),
        cmocka_unit_test_setup(save__over_existing_step_each_call_fails__one_of_both_is_whole,
                               fresh),
        cmocka_unit_test_setup(save__file_size_limit__error_and_older_stands, fresh),
        cmocka_unit_test_setup(save__too_little_space__refused_before_writing, fresh),
        cmocka_unit_test_setup(open_latest__steps_9_and_10__numeric_order, fresh),
        cmocka_unit_test_setup(step_of_name__odd_names__refused, fresh),
        cmocka_unit_test_setup(open_latest__newest_damaged__named_and_passed_over, fresh),
        cmocka_unit_test_setup(open_step__directory_renamed__refused, fresh),
        cmocka_unit_test_setup(save__keep_latest_k__oldest_whole_ones_go, fresh),
        cmocka_unit_test_setup(writer_create__leftovers__swept_or_put_back, fresh),
        cmocka_unit_test_setup(open__bits_flipped__every_one_refused_by_name, fresh),
        cmocka_unit_test_setup(verify__damaged_file__reported_beside_good_ones, fresh),
        cmocka_unit_test_setup(open__foreign_directory_mutated__never_breaks, fresh),
        cmocka_unit_test_setup(open__no_checkpoint__refused, fresh),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
