/* Checkpoints of several ranks, as threads of one process: every cut read on every other number of
 * ranks, failing files and a failing network on each rank, damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/commit.h"
#include "comm/comm.h"
#include "crash_files.h"
#include "numeric/bf16.h"
#include "rank_threads.h"
#include "unit/faulty_files.h"
#include "unit/scratch_dir.h"

enum { MAX_RANKS = 8 };

/* --- a team -------------------------------------------------------------------------------- */

static void run_team(int size, rank_run run, void *arg)
{
    const oct_comm_options options = {.timeout_seconds = 60.0, .piece_bytes = 4096};
    run_ranks(size, &options, run, arg);
}

/* What each rank came to: has to be one and the same. */
typedef struct outcome {
    oct_status status[MAX_RANKS];
    oct_err err[MAX_RANKS];
} outcome;

static void expect_same(const outcome *out, int size)
{
    for (int r = 1; r < size; r++) {
        if (out->status[r] != out->status[0] || out->err[r].rank != out->err[0].rank ||
            (out->status[0] != OCT_OK && strcmp(out->err[r].msg, out->err[0].msg) != 0))
            fail_msg("rank %d: %d from rank %d, %s\nrank 0: %d from rank %d, %s", r, out->status[r],
                     out->err[r].rank, out->err[r].msg, out->status[0], out->err[0].rank,
                     out->err[0].msg);
    }
}

/* --- the state of a run -------------------------------------------------------------------- */

typedef enum cut_kind {
    CUT_NONE,    /* every rank holds it whole */
    CUT_TILES,   /* tiles of 64 rows: uneven, the last one short, some ranks without any */
    CUT_EXPERTS, /* rows r*E/R .. */
} cut_kind;

typedef struct spec {
    const char *key;
    oct_dtype dtype;
    cut_kind cut;
    int ndim;
    int64_t shape[3];
} spec;

/* BIG is only saved where its spreading is the subject. */
enum { BIG = 9, SPEC_COUNT = 10 };

static const spec specs[SPEC_COUNT] = {
    {"model.weight", OCT_DTYPE_BF16, CUT_TILES, 2, {200, 3}},
    {"optimizer.state.model.weight.master", OCT_DTYPE_F32, CUT_TILES, 2, {200, 3}},
    {"model.wide", OCT_DTYPE_F32, CUT_TILES, 2, {700, 2}},
    {"model.experts", OCT_DTYPE_F32, CUT_EXPERTS, 3, {5, 4, 3}},
    {"model.norm", OCT_DTYPE_F32, CUT_TILES, 1, {7}},
    {"model.router", OCT_DTYPE_F32, CUT_NONE, 2, {9, 4}},
    {"model.bias", OCT_DTYPE_BF16, CUT_NONE, 1, {11}},
    {"optimizer.step", OCT_DTYPE_F32, CUT_NONE, 0, {0}},
    {"model.empty", OCT_DTYPE_F32, CUT_TILES, 2, {0, 3}},
    {"model.zbig", OCT_DTYPE_F32, CUT_NONE, 2, {70, 4000}},
};

static void rows_of(const spec *s, int rank, int size, int64_t *begin, int64_t *rows)
{
    const int64_t all = s->ndim > 0 ? s->shape[0] : 1;
    const int64_t unit = s->cut == CUT_TILES ? 64 : 1;
    const int64_t units = (all + unit - 1) / unit;
    *begin = 0;
    *rows = all;
    if (s->cut == CUT_NONE)
        return;
    const int64_t from = units * rank / size * unit, to = units * (rank + 1) / size * unit;
    *begin = from < all ? from : all;
    *rows = (to < all ? to : all) - *begin;
}

static int64_t width_of(const spec *s)
{
    int64_t width = 1;
    for (int d = 1; d < s->ndim; d++)
        width *= s->shape[d];
    return width;
}

static float value_at(int which, int64_t element, uint32_t seed)
{
    uint32_t x = (seed * 131u + (uint32_t)which) * 2654435761u + (uint32_t)element;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return (float)(int32_t)(x ^ x >> 16) * 1e-9f;
}

/* What one rank holds, each tensor in a block of exactly its own rows. */
typedef struct holding {
    oct_item_list list;
    float *data[SPEC_COUNT];
} holding;

static int holding_init(holding *st, oct_comm *comm, int spec_count, uint32_t seed)
{
    int failures = 0;
    oct_err err = {0};
    *st = (holding){0};
    oct_item_list_init(&st->list);
    for (int i = 0; i < spec_count; i++) {
        const spec *s = &specs[i];
        int64_t begin, rows;
        rows_of(s, oct_comm_rank(comm), oct_comm_size(comm), &begin, &rows);
        const int64_t width = width_of(s);
        st->data[i] = malloc((size_t)(rows * width) * sizeof(float) + (rows * width == 0));
        for (int64_t e = 0; e < rows * width; e++)
            st->data[i][e] = value_at(i, begin * width + e, seed);
        if (s->cut == CUT_NONE)
            EXPECT_OK(comm, oct_item_add_tensor(&st->list, s->key, s->dtype, s->ndim, s->shape,
                                                st->data[i], &err));
        else
            EXPECT_OK(comm, oct_item_add_shard(&st->list, s->key, s->dtype, s->ndim, s->shape,
                                               begin, rows, st->data[i], &err));
    }
    EXPECT_OK(comm, oct_item_add_int(&st->list, "train_state", "step", seed, &err));
    EXPECT_OK(comm, oct_item_add_string(&st->list, "train_state", "model", "{}", &err));
    return failures;
}

static void holding_release(holding *st)
{
    oct_item_list_release(&st->list);
    for (int i = 0; i < SPEC_COUNT; i++)
        free(st->data[i]);
}

/* The rows that `rank` of `size` would own, out of a checkpoint of any number of ranks. */
static int check_rows(oct_comm *comm, const oct_checkpoint *cp, int spec_count, int rank, int size,
                      uint32_t seed)
{
    int failures = 0;
    oct_err err = {0};
    for (int i = 0; i < spec_count; i++) {
        const spec *s = &specs[i];
        int64_t begin, rows, wrong = 0;
        rows_of(s, rank, size, &begin, &rows);
        const int64_t width = width_of(s), n = rows * width;
        float *out = malloc((size_t)n * sizeof *out + (n == 0));
        EXPECT_OK(comm,
                  oct_checkpoint_read_rows(cp, s->key, s->ndim, s->shape, begin, rows, out, &err));
        for (int64_t e = 0; e < n; e++) {
            const float v = value_at(i, begin * width + e, seed);
            wrong += oct_f32_bits(out[e]) !=
                     oct_f32_bits(s->dtype == OCT_DTYPE_BF16 ? oct_bf16_round(v) : v);
        }
        EXPECT(comm, wrong == 0);
        free(out);
    }
    int64_t number = -1;
    EXPECT_OK(comm, oct_checkpoint_read_int(cp, "train_state.step", &number, &err));
    EXPECT(comm, number == seed);
    return failures;
}

/* --- saving and restarting ----------------------------------------------------------------- */

static char warnings[8192];

static void collect_warning(void *arg, const char *line)
{
    (void)arg;
    strncat(warnings, line, sizeof warnings - strlen(warnings) - 2);
    strncat(warnings, "\n", sizeof warnings - strlen(warnings) - 1);
}

/* Where all ranks save: the scratch folder, or a file system in memory. */
static const oct_file_table *disk = &oct_file_table_real;

static const char *root(void)
{
    return disk == &oct_file_table_real ? scratch_dir : "/run/checkpoints";
}

static const oct_checkpoint_meta meta = {.config_hash = "00ff", .model_json = "{\"layers\":2}"};

/* One save by all ranks. */
typedef struct save_job {
    int64_t step, keep;
    uint32_t seed;
    int spec_count;
    const oct_file_table *files[MAX_RANKS]; /* NULL: the operating system's */
    outcome out;
    oct_status again[MAX_RANKS]; /* of a save on the same writer after a failed one */
} save_job;

static oct_status create_writer(oct_comm *comm, const oct_file_table *files, int64_t keep,
                                oct_checkpoint_writer **out, oct_err *err)
{
    const oct_checkpoint_options options = {.files = files ? files : disk,
                                            .comm = comm,
                                            .root = root(),
                                            .keep_latest_k = keep,
                                            .chunk_bytes = 600,
                                            .warn = collect_warning};
    return oct_checkpoint_writer_create(&options, out, err);
}

static int save_on_rank(oct_comm *comm, void *arg)
{
    save_job *job = arg;
    const int rank = oct_comm_rank(comm);
    oct_err *err = &job->out.err[rank];
    oct_checkpoint_writer *writer = NULL;
    holding st;
    int failures = holding_init(&st, comm, job->spec_count ? job->spec_count : BIG, job->seed);
    *err = (oct_err){0};
    oct_status status = create_writer(comm, job->files[rank], job->keep, &writer, err);
    if (status == OCT_OK) {
        status = oct_checkpoint_save(writer, job->step, &st.list, &meta, err);
        if (status != OCT_OK && !oct_comm_is_broken(comm)) {
            oct_err unread;
            job->again[rank] =
                oct_checkpoint_save(writer, job->step + 100, &st.list, &meta, &unread);
        }
    }
    job->out.status[rank] = status;
    oct_checkpoint_writer_destroy(writer);
    holding_release(&st);
    return failures;
}

static void save(int ranks, int64_t step, uint32_t seed)
{
    save_job job = {.step = step, .seed = seed};
    run_team(ranks, save_on_rank, &job);
    expect_same(&job.out, ranks);
    if (job.out.status[0] != OCT_OK)
        fail_msg("%s", job.out.err[0].msg);
}

/* Step 1 of seed 11 stays; what came after it goes. */
static void forget_later_steps(void)
{
    static const char *const names[] = {"step-2", "step-102"};
    for (int i = 0; i < 2; i++)
        if (access(scratch_path(names[i]), F_OK) == 0)
            assert_int_equal(oct_file_remove_dir(disk, scratch_path(names[i]), NULL), 0);
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

static int count_leftover(void *arg, const char *name)
{
    *(int *)arg += oct_checkpoint_step_of_name(name) < 0;
    return 0;
}

/* Names below the root that are no committed step. */
static int count_leftovers(void)
{
    int count = 0;
    assert_int_equal(disk->list(disk, root(), count_leftover, &count), 0);
    return count;
}

/* What a load by all ranks found. */
typedef struct load_job {
    int64_t step; /* -1: the newest */
    oct_checkpoint_verify_level level;
    uint32_t seeds[2]; /* seed of step 1 and of all others */
    int spec_count;
    int64_t found, world;
    outcome out;
} load_job;

static int load_on_rank(oct_comm *comm, void *arg)
{
    load_job *job = arg;
    int failures = 0;
    const int rank = oct_comm_rank(comm);
    oct_err *err = &job->out.err[rank];
    oct_checkpoint *cp = NULL;
    *err = (oct_err){0};
    job->out.status[rank] =
        job->step < 0 ? oct_checkpoint_open_latest_together(comm, disk, root(), job->level,
                                                            collect_warning, NULL, &cp, err)
                      : oct_checkpoint_open_step_together(comm, disk, root(), job->step, job->level,
                                                          &cp, err);
    EXPECT(comm, (job->out.status[rank] == OCT_OK) == (cp != NULL));
    if (cp) {
        const int64_t step = oct_checkpoint_step(cp);
        failures += check_rows(comm, cp, job->spec_count ? job->spec_count : BIG, rank,
                               oct_comm_size(comm), job->seeds[step != 1]);
        if (rank == 0) {
            job->found = step;
            job->world = oct_checkpoint_world(cp);
        }
    }
    oct_checkpoint_close(cp);
    return failures;
}

static void load(int ranks, load_job *job)
{
    run_team(ranks, load_on_rank, job);
    expect_same(&job->out, ranks);
}

/* Step 1 of seed 11 or a newer one of seed 22 is there, whole, and nothing half. */
static void check_restart(bool must_be_new)
{
    oct_err err = {0};
    oct_checkpoint_writer *writer = NULL;
    assert_int_equal(create_writer(NULL, NULL, 0, &writer, &err), OCT_OK);
    oct_checkpoint_writer_destroy(writer);
    assert_int_equal(count_leftovers(), 0);
    load_job job = {.step = -1, .level = OCT_VERIFY_CRC, .seeds = {11, 22}};
    load(1, &job);
    assert_int_equal(job.out.status[0], OCT_OK);
    assert_true(job.found != 1 || !must_be_new);
}

static int fresh(void **state)
{
    (void)state;
    warnings[0] = '\0';
    return scratch_clear();
}

/* --- round trips --------------------------------------------------------------------------- */

static void save__every_world__read_on_every_world(void **state)
{
    (void)state;
    static const int worlds[] = {1, 2, 4, 8};
    for (int w = 0; w < 4; w++) {
        save_job saved = {.step = w, .seed = 40u, .spec_count = SPEC_COUNT};
        run_team(worlds[w], save_on_rank, &saved);
        expect_same(&saved.out, worlds[w]);
        if (saved.out.status[0] != OCT_OK)
            fail_msg("%s", saved.out.err[0].msg);
        assert_int_equal(count_leftovers(), 0);
        oct_err err = {0};
        assert_int_equal(oct_checkpoint_verify(NULL, scratch_path(step_name(w)), NULL, NULL, &err),
                         OCT_OK);
        for (int r = 0; r < 4; r++) {
            load_job job = {.step = r % 2 ? -1 : w,
                            .level = r < 2 ? OCT_VERIFY_SIZE : OCT_VERIFY_CRC,
                            .seeds = {40, 40},
                            .spec_count = SPEC_COUNT};
            load(worlds[r], &job);
            assert_int_equal(job.out.status[0], OCT_OK);
            assert_int_equal(job.found, w);
            assert_int_equal(job.world, worlds[w]);
        }
    }
}

static int64_t chunks_of(const oct_checkpoint *cp, int which)
{
    return oct_checkpoint_find(cp, specs[which].key)->chunks;
}

static void save__eight_ranks__each_writes_what_it_owns(void **state)
{
    (void)state;
    save_job job = {.step = 3, .seed = 40u, .spec_count = SPEC_COUNT};
    run_team(8, save_on_rank, &job);
    assert_int_equal(job.out.status[0], OCT_OK);
    oct_err err = {0};
    oct_checkpoint *cp = NULL;
    assert_int_equal(oct_checkpoint_open_step(NULL, scratch_dir, 3, OCT_VERIFY_CRC, &cp, &err),
                     OCT_OK);
    assert_string_equal(oct_checkpoint_config_hash(cp), "00ff");
    /* chunk_bytes 600: 100 rows of model.weight, 50 of the master, no chunk for 0 rows. */
    assert_int_equal(chunks_of(cp, 0), 4);
    assert_int_equal(chunks_of(cp, 1), 3 * 2 + 1);
    assert_int_equal(chunks_of(cp, 3), 5);
    assert_int_equal(chunks_of(cp, 4), 1);
    assert_int_equal(chunks_of(cp, 5), 1); /* replicated: one rank */
    assert_int_equal(chunks_of(cp, 7), 1);
    assert_int_equal(chunks_of(cp, 8), 0); /* the chunk of an empty tensor is not counted */
    assert_int_equal(chunks_of(cp, BIG), 70);
    oct_checkpoint_close(cp);
    /* 70 rows of 16,000 bytes in 5 pages each: an eighth for every rank. */
    for (int r = 0; r < 8; r++) {
        char name[64];
        struct stat info;
        (void)snprintf(name, sizeof name, "step-3/__%d_0.distcp", r);
        assert_int_equal(stat(scratch_path(name), &info), 0);
        assert_in_range(info.st_size, (8 * 5 - 1) * 4096, (9 * 5 + (r == 0 ? 30 : 12)) * 4096);
    }
    assert_false(exists("step-3/__8_0.distcp"));
}

typedef struct async_job {
    outcome out;
    int64_t saved[MAX_RANKS];
} async_job;

static int save_twice(oct_comm *comm, void *arg)
{
    async_job *job = arg;
    const int rank = oct_comm_rank(comm);
    oct_err err = {0};
    oct_checkpoint_writer *writer = NULL;
    holding first, second;
    int failures = holding_init(&first, comm, BIG, 11) + holding_init(&second, comm, BIG, 22);
    int64_t saved = 0;
    EXPECT_OK(comm, create_writer(comm, NULL, 0, &writer, &err));
    EXPECT_OK(comm, oct_checkpoint_wait(writer, &saved, &err));
    EXPECT(comm, saved == -1);
    EXPECT_OK(comm, oct_checkpoint_start(writer, 1, &first.list, &meta, &err));
    EXPECT_OK(comm, oct_comm_barrier(comm, &err)); /* the comm goes on meanwhile */
    EXPECT_OK(comm, oct_checkpoint_start(writer, 2, &second.list, &meta, &err));
    EXPECT_OK(comm, oct_checkpoint_wait(writer, &job->saved[rank], &err));
    EXPECT_OK(comm, oct_checkpoint_save(writer, 2, &second.list, &meta, &err)); /* over it */
    oct_checkpoint_writer_destroy(writer);
    holding_release(&first);
    holding_release(&second);
    return failures;
}

static void start__two_in_a_row__both_whole(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        async_job job = {0};
        assert_int_equal(scratch_clear(), 0);
        run_team(ranks, save_twice, &job);
        for (int r = 0; r < ranks; r++)
            assert_int_equal(job.saved[r], 2);
        for (int64_t step = 1; step <= 2; step++) {
            load_job loaded = {.step = step, .level = OCT_VERIFY_CRC, .seeds = {11, 22}};
            load(2, &loaded);
            assert_int_equal(loaded.out.status[0], OCT_OK);
        }
        assert_int_equal(count_leftovers(), 0);
    }
}

static void save__keep_latest_k__older_ones_go(void **state)
{
    (void)state;
    for (int64_t step = 1; step <= 4; step++) {
        save_job job = {.step = step, .seed = 22, .keep = 2};
        run_team(4, save_on_rank, &job);
        assert_int_equal(job.out.status[0], OCT_OK);
    }
    assert_false(exists("step-1") || exists("step-2"));
    assert_true(exists("step-3") && exists("step-4"));
    assert_int_equal(count_leftovers(), 0);
}

/* --- failing files ------------------------------------------------------------------------- */

/* Every call of one rank fails once: all ranks say so with its message. */
static void fail_each_call(int ranks, int faulty_rank, faulty_mode mode)
{
    bool reached = true;
    int64_t failures = 0, calls = 0;
    assert_int_equal(scratch_clear(), 0);
    save(2, 1, 11);
    for (int64_t n = 1; reached; n++) {
        forget_later_steps();
        faulty_files files = faulty_files_new(mode, n);
        save_job job = {.step = 2, .seed = 22};
        job.files[faulty_rank] = &files.table;
        run_team(ranks, save_on_rank, &job);
        expect_same(&job.out, ranks);
        reached = files.failed_operation != NULL;
        calls += reached;
        if (files.open_files != 0)
            fail_msg("call %lld (%s): %lld files left open", (long long)n, files.failed_operation,
                     (long long)files.open_files);
        const oct_status status = job.out.status[0];
        failures += status != OCT_OK;
        if (status != OCT_OK) {
            assert_int_equal(job.out.err[0].rank, faulty_rank);
            assert_non_null(strstr(job.out.err[0].msg, "'/")); /* a path */
            assert_non_null(strstr(job.out.err[0].msg, "Input/output"));
        }
        if (status != OCT_OK && mode != FAULTY_DEAD) { /* before any sweep */
            assert_true(exists("step-1"));
            assert_false(exists("step-2"));
        }
        if (mode == FAULTY_EIO && reached) {
            /* Only the fault can have left something, and a failed save is no reason to fail the
             * next one on the same writer. */
            assert_true(count_leftovers() == 0 || strstr(warnings, "stay"));
            if (status != OCT_OK && exists("step-102"))
                for (int r = 0; r < ranks; r++)
                    assert_int_equal(job.again[r], OCT_OK);
        }
        check_restart(status == OCT_OK);
        warnings[0] = '\0';
    }
    assert_true(calls >= (faulty_rank == 0 ? 20 : 4));
    assert_true(failures >= (faulty_rank == 0 ? 20 : 4));
}

static void save__each_call_of_rank_0_fails__same_error_on_all(void **state)
{
    (void)state;
    fail_each_call(3, 0, FAULTY_EIO);
    fail_each_call(2, 0, FAULTY_DEAD);
}

static void save__each_call_of_another_rank_fails__same_error_on_all(void **state)
{
    (void)state;
    fail_each_call(2, 1, FAULTY_EIO);
    fail_each_call(4, 3, FAULTY_DEAD);
    fail_each_call(8, 5, FAULTY_EIO);
}

static int64_t slow_pwrite(const oct_file_table *self, int file, const void *data, size_t bytes,
                           uint64_t offset)
{
    (void)self;
    const struct timespec moment = {.tv_nsec = 700000000};
    (void)nanosleep(&moment, NULL);
    return oct_file_table_real.pwrite(&oct_file_table_real, file, data, bytes, offset);
}

/* Rank 1 writes 24 MB in four pieces, longer than the others would wait for a rank that hangs. */
static int save_slowly(oct_comm *comm, void *arg)
{
    int failures = 0;
    const int64_t shape[2] = {2, 6 << 20}, rank = oct_comm_rank(comm);
    float *data = calloc((size_t)shape[1], sizeof *data);
    oct_err err = {0};
    oct_item_list list;
    oct_checkpoint_writer *writer = NULL;
    oct_item_list_init(&list);
    EXPECT_OK(comm, oct_item_add_shard(&list, "w", OCT_DTYPE_F32, 2, shape, rank, 1, data, &err));
    EXPECT_OK(comm, create_writer(comm, rank == 1 ? arg : NULL, 0, &writer, &err));
    EXPECT_OK(comm, oct_checkpoint_save(writer, 1, &list, &meta, &err));
    oct_checkpoint_writer_destroy(writer);
    oct_item_list_release(&list);
    free(data);
    return failures;
}

static void save__a_slow_disk_of_one_rank__others_wait(void **state)
{
    (void)state;
    faulty_files files = faulty_files_new(FAULTY_NONE, 0);
    files.table.pwrite = slow_pwrite;
    const oct_comm_options options = {.timeout_seconds = 1.7, .piece_bytes = 4096};
    run_ranks(2, &options, save_slowly, &files.table);
    assert_true(exists("step-1"));
}

/* Rank 1's files land on another disk. */
static int create_elsewhere(const oct_file_table *self, const char *path)
{
    (void)self;
    (void)path;
    return oct_file_table_real.create(&oct_file_table_real, scratch_path("elsewhere"));
}

static void save__a_rank_on_another_disk__refused_by_file_name(void **state)
{
    (void)state;
    faulty_files files = faulty_files_new(FAULTY_NONE, 0);
    files.table.create = create_elsewhere;
    save_job job = {.step = 2, .seed = 22};
    job.files[1] = &files.table;
    run_team(2, save_on_rank, &job);
    expect_same(&job.out, 2);
    assert_int_equal(job.out.status[0], OCT_E_IO);
    assert_non_null(strstr(job.out.err[0].msg, "__1_0.distcp' as rank 1 wrote it: 0 bytes here"));
    assert_false(exists("step-2"));
}

static int list_fails(const oct_file_table *self, const char *path, oct_file_visitor visit,
                      void *arg)
{
    (void)self;
    (void)path;
    (void)visit;
    (void)arg;
    return -EIO;
}

static void writer_create__sweep_of_rank_0_fails__error_on_all(void **state)
{
    (void)state;
    faulty_files files = faulty_files_new(FAULTY_NONE, 0);
    files.table.list = list_fails;
    save_job job = {.step = 2, .seed = 22};
    job.files[0] = &files.table;
    run_team(3, save_on_rank, &job);
    expect_same(&job.out, 3);
    assert_int_equal(job.out.status[0], OCT_E_IO);
    assert_non_null(strstr(job.out.err[0].msg, scratch_dir));
    assert_false(exists("step-2"));
}

static int space_of_100_kb(const oct_file_table *self, const char *path, uint64_t *bytes)
{
    (void)self;
    (void)path;
    *bytes = 100000;
    return 0;
}

static void save__too_little_space_for_all_ranks__refused(void **state)
{
    (void)state;
    faulty_files files = faulty_files_new(FAULTY_NONE, 0);
    files.table.free_space = space_of_100_kb;
    save_job job = {.step = 2, .seed = 22};
    job.files[0] = &files.table;
    run_team(8, save_on_rank, &job);
    expect_same(&job.out, 8);
    assert_int_equal(job.out.status[0], OCT_E_IO);
    assert_non_null(strstr(job.out.err[0].msg, "100000 bytes are free"));
    assert_int_equal(count_leftovers(), 0);
}

/* --- ranks that differ --------------------------------------------------------------------- */

/* 0: another step on rank 1; 1: another list; 2: rows of nobody; 3: rows of both. */
static int save_apart(oct_comm *comm, void *arg)
{
    save_job *job = arg;
    const int rank = oct_comm_rank(comm), way = (int)job->keep;
    holding st;
    int failures = holding_init(&st, comm, BIG, 22);
    oct_err err = {0};
    oct_checkpoint_writer *writer = NULL;
    EXPECT_OK(comm, create_writer(comm, NULL, 0, &writer, &err));
    oct_item *wide = &st.list.items[2];
    const oct_item before = *wide;
    if (rank == 1 && way == 1)
        wide->shape[1]++;
    if (rank == 1 && way == 2)
        wide->rows--;
    if (rank == 0 && way == 3)
        wide->row_begin++;
    job->out.status[rank] = oct_checkpoint_save(writer, way == 0 && rank == 1 ? 8 : 7, &st.list,
                                                &meta, &job->out.err[rank]);
    *wide = before;
    EXPECT_OK(comm, oct_checkpoint_save(writer, 9, &st.list, &meta, &err));
    oct_checkpoint_writer_destroy(writer);
    holding_release(&st);
    return failures;
}

static void save__ranks_that_differ__refused_and_the_next_one_works(void **state)
{
    (void)state;
    static const char *const words[] = {"step 8 on rank 1", "rank 1 lists other keys",
                                        "rows are missing ('model.wide')", "('model.wide')"};
    for (int way = 0; way < 4; way++) {
        save_job job = {.keep = way};
        assert_int_equal(scratch_clear(), 0);
        run_team(2, save_apart, &job);
        expect_same(&job.out, 2);
        assert_int_equal(job.out.status[0], way < 2 ? OCT_E_API : OCT_E_CORRUPT);
        if (!strstr(job.out.err[0].msg, words[way]))
            fail_msg("%s", job.out.err[0].msg);
        assert_true(exists("step-9"));
        assert_false(exists("step-7") || exists("step-8"));
        assert_int_equal(count_leftovers(), 0);
    }
}

/* --- a failing network --------------------------------------------------------------------- */

typedef struct cut_cable {
    int rank;
    int64_t op;
    bool *reached; /* by the one rank */
} cut_cable;

static oct_status fail_once(void *arg, int rank, int64_t op, oct_err *err)
{
    const cut_cable *f = arg;
    if (rank != f->rank || op != f->op)
        return OCT_OK;
    *f->reached = true;
    return OCT_FAIL(err, OCT_E_COMM, "cable of rank %d cut before exchange %lld", rank,
                    (long long)op);
}

static void save__each_exchange_fails__its_error_on_all_and_no_half_checkpoint(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    for (int rank = 0; rank < RANKS; rank++) {
        bool reached = true;
        int64_t failures = 0;
        assert_int_equal(scratch_clear(), 0);
        save(RANKS, 1, 11);
        for (int64_t op = 0; reached; op++) {
            forget_later_steps();
            reached = false;
            cut_cable fault = {.rank = rank, .op = op, .reached = &reached};
            const oct_comm_options options = {.timeout_seconds = 60.0,
                                              .piece_bytes = 4096,
                                              .hook = fail_once,
                                              .hook_arg = &fault};
            save_job job = {.step = 2, .seed = 22};
            run_ranks(RANKS, &options, save_on_rank, &job);
            const bool is_last = job.out.status[0] == OCT_OK; /* in the barrier of the end */
            if (!is_last) {
                expect_same(&job.out, RANKS);
                assert_int_equal(job.out.status[0], OCT_E_COMM);
                assert_int_equal(job.out.err[0].rank, rank);
                failures++;
            }
            check_restart(is_last);
        }
        assert_true(failures >= 8);
    }
}

typedef struct leave_job {
    int leaver;
    bool before_wait;
    outcome out;
} leave_job;

static int one_leaves(oct_comm *comm, void *arg)
{
    leave_job *job = arg;
    const int rank = oct_comm_rank(comm);
    oct_err err = {0};
    oct_checkpoint_writer *writer = NULL;
    holding st;
    int failures = holding_init(&st, comm, BIG, 22);
    int64_t saved = 0;
    EXPECT_OK(comm, create_writer(comm, NULL, 0, &writer, &err));
    if (!job->before_wait && rank == job->leaver) {
        (void)OCT_FAIL(&err, OCT_E_NOMEM, "no memory for layer 3");
        oct_comm_leave(comm, &err);
    }
    oct_status status = oct_checkpoint_start(writer, 2, &st.list, &meta, &err);
    if (job->before_wait && rank == job->leaver) {
        EXPECT(comm, status == OCT_OK);
        (void)OCT_FAIL(&err, OCT_E_NOMEM, "no memory for layer 3");
        oct_comm_leave(comm, &err);
    } else {
        if (status == OCT_OK)
            status = oct_checkpoint_wait(writer, &saved, &err);
        EXPECT(comm, status == OCT_E_NOMEM);
        EXPECT(comm, oct_checkpoint_wait(writer, &saved, &err) == OCT_E_NOMEM);
        EXPECT(comm, oct_checkpoint_start(writer, 3, &st.list, &meta, &err) == OCT_E_NOMEM);
    }
    job->out.status[rank] = err.code;
    job->out.err[rank] = err;
    oct_checkpoint_writer_destroy(writer);
    holding_release(&st);
    return failures;
}

static void save__a_rank_left__its_error_on_all_and_the_next_start_sweeps(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(scratch_clear(), 0);
        save(3, 1, 11);
        leave_job job = {.leaver = i % 3, .before_wait = i < 3};
        run_team(3, one_leaves, &job);
        expect_same(&job.out, 3);
        assert_string_equal(job.out.err[0].msg, "no memory for layer 3");
        assert_false(exists("step-2"));
        check_restart(false);
    }
}

/* --- a power cut --------------------------------------------------------------------------- */

/* The power of all ranks goes at every call of any of them. */
static void save__power_cut_at_each_call__older_or_newer_is_whole(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    crash_files before;
    crash_files_init(&before);
    disk = &before.table;
    save(RANKS, 1, 11);
    crash_files_reboot(&before, CRASH_LOSE_ALL, 0); /* what was reported saved stays */
    for (int loss = CRASH_LOSE_ALL; loss <= CRASH_LOSE_SOME; loss++) {
        bool reached = true;
        int64_t calls = 0;
        for (; reached; calls++) {
            crash_files fs;
            crash_files_copy(&fs, &before);
            disk = &fs.table;
            crash_files_arm(&fs, CRASH_LOST, calls + 1);
            save_job job = {.step = 2, .seed = 22};
            run_team(RANKS, save_on_rank, &job);
            expect_same(&job.out, RANKS);
            reached = fs.fault[0] != '\0';
            assert_true(reached || job.out.status[0] == OCT_OK);
            crash_files_reboot(&fs, (crash_loss)loss, (uint64_t)calls);
            check_restart(job.out.status[0] == OCT_OK);
            crash_files_release(&fs);
        }
        assert_true(calls > 30);
    }
    crash_files_release(&before);
    disk = &oct_file_table_real;
}

/* --- damage -------------------------------------------------------------------------------- */

static char *read_file(const char *path, size_t *bytes)
{
    oct_err err = {0};
    char *data = NULL;
    assert_int_equal(oct_file_read_all(&oct_file_table_real, path, 1 << 24, &data, bytes, &err),
                     OCT_OK);
    return data;
}

static void write_file(const char *path, const char *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* Every rank refuses step 2 with the file's name; the newest that is whole is step 1. */
static void expect_passed_over(const char *name, const char *what, int ranks)
{
    load_job job = {.step = 2, .level = OCT_VERIFY_CRC, .seeds = {11, 22}};
    load(ranks, &job);
    if (job.out.status[0] != OCT_E_CORRUPT || !strstr(job.out.err[0].msg, name))
        fail_msg("%s of '%s': status %d, %s", what, name, job.out.status[0], job.out.err[0].msg);
    job.step = -1;
    warnings[0] = '\0';
    load(ranks, &job);
    assert_int_equal(job.out.status[0], OCT_OK);
    assert_int_equal(job.found, 1);
    const char *first = strstr(warnings, "passing over step-2");
    assert_non_null(first);
    assert_non_null(strstr(first, name));
    assert_null(strstr(first + 1, "passing over")); /* once, not once per rank */
}

static void open_together__damage_in_each_file__named_once_and_passed_over(void **state)
{
    (void)state;
    static const char *const names[] = {"COMMIT.json",  ".metadata",    "__0_0.distcp",
                                        "__1_0.distcp", "__2_0.distcp", "__3_0.distcp"};
    save(2, 1, 11);
    save(4, 2, 22);
    for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
        char path[512];
        size_t bytes = 0;
        (void)snprintf(path, sizeof path, "%s/step-2/%s", scratch_dir, names[f]);
        char *data = read_file(path, &bytes);
        for (int at = 0; at < 8; at++) {
            const size_t byte = (bytes - 1) * (size_t)at / 7;
            data[byte] ^= (char)(1 << at);
            write_file(path, data, bytes);
            expect_passed_over(names[f], "flip", at % 4 + 1);
            data[byte] ^= (char)(1 << at);
        }
        write_file(path, data, bytes - 1);
        expect_passed_over(names[f], "truncation", 3);
        write_file(path, data, bytes / 2);
        expect_passed_over(names[f], "truncation", 2);
        assert_int_equal(unlink(path), 0);
        expect_passed_over(names[f], "loss", 3);
        write_file(path, data, bytes);
        free(data);
    }
    assert_int_equal(rename(scratch_path("step-1"), scratch_path("step-7")), 0);
    assert_int_equal(unlink(scratch_path("step-2/__3_0.distcp")), 0);
    load_job job = {.step = -1, .level = OCT_VERIFY_SIZE};
    load(3, &job);
    assert_int_equal(job.out.status[0], OCT_E_CORRUPT);
    assert_non_null(strstr(job.out.err[0].msg, "2 checkpoints and none of them is whole"));
}

static void open_together__stale_shard_of_a_larger_world__ignored_or_refused(void **state)
{
    (void)state;
    save(8, 1, 11);
    save(4, 2, 22);
    size_t bytes = 0;
    char *stale = read_file(scratch_path("step-1/__7_0.distcp"), &bytes);
    write_file(scratch_path("step-2/__7_0.distcp"), stale, bytes); /* nobody lists it */
    free(stale);
    load_job job = {.step = 2, .level = OCT_VERIFY_CRC, .seeds = {11, 22}};
    load(4, &job);
    assert_int_equal(job.out.status[0], OCT_OK);

    /* Metadata that refers to a file which COMMIT.json does not list. */
    char *text = read_file(scratch_path("step-2/COMMIT.json"), &bytes);
    oct_arena arena;
    oct_arena_init(&arena, "test");
    oct_commit commit;
    oct_err err = {0};
    assert_int_equal(oct_commit_read(text, bytes, "COMMIT.json", &arena, &commit, &err), OCT_OK);
    assert_int_equal(commit.world, 4);
    assert_int_equal(commit.file_count, 5);
    oct_commit_file files[4];
    int64_t count = 0;
    for (int64_t i = 0; i < commit.file_count; i++)
        if (strcmp(commit.files[i].name, "__3_0.distcp") != 0)
            files[count++] = commit.files[i];
    commit.files = files;
    commit.file_count = count;
    oct_json json;
    oct_json_init(&json);
    assert_int_equal(oct_commit_write(&commit, &json, &err), OCT_OK);
    write_file(scratch_path("step-2/COMMIT.json"), json.text, json.bytes);
    oct_json_release(&json);
    oct_arena_release(&arena);
    free(text);
    load(4, &job);
    assert_int_equal(job.out.status[0], OCT_E_CORRUPT);
    assert_non_null(strstr(job.out.err[0].msg, "__3_0.distcp"));
    assert_non_null(strstr(job.out.err[0].msg, "COMMIT.json does not list"));
}

static int open_two_disks(oct_comm *comm, void *arg)
{
    outcome *out = arg;
    int failures = 0;
    const int rank = oct_comm_rank(comm);
    oct_checkpoint *cp = NULL;
    char root[512];
    (void)snprintf(root, sizeof root, "%s/%s", scratch_dir, rank == 1 ? "other" : ".");
    out->status[rank] = oct_checkpoint_open_step_together(comm, NULL, root, 1, OCT_VERIFY_CRC, &cp,
                                                          &out->err[rank]);
    EXPECT(comm, cp == NULL);
    oct_err err = {0};
    (void)snprintf(root, sizeof root, "%s/%s", scratch_dir, rank == 1 ? "nowhere" : "step-1");
    EXPECT_OK(comm, oct_checkpoint_open_together(comm, NULL, root, OCT_VERIFY_CRC, NULL, NULL, &cp,
                                                 &err)); /* rank 0's */
    failures += check_rows(comm, cp, BIG, 0, 1, 11);
    oct_checkpoint_close(cp);
    oct_checkpoint *none = NULL;
    EXPECT_OK(comm, oct_checkpoint_open_latest_together(comm, NULL, "/nonexistent", OCT_VERIFY_CRC,
                                                        NULL, NULL, &none, &err));
    EXPECT(comm, none == NULL);
    return failures;
}

static void open_together__ranks_on_different_disks__refused(void **state)
{
    (void)state;
    save(2, 1, 22);
    assert_int_equal(mkdir(scratch_path("other"), 0777), 0);
    assert_int_equal(rename(scratch_path("step-1"), scratch_path("other/step-1")), 0);
    save(2, 1, 11);
    outcome out = {0};
    run_team(3, open_two_disks, &out);
    expect_same(&out, 3);
    assert_int_equal(out.status[0], OCT_E_IO);
    assert_non_null(strstr(out.err[0].msg, "the ranks see different ones"));
}

/* --- the optimizer ------------------------------------------------------------------------- */

enum { PARAMS = 4 };

/* One rank's optimizer over a weight in tiles, experts, a replicated weight and a frozen norm. */
typedef struct optimizer_part {
    oct_param params[PARAMS];
    oct_optim_slot slots[PARAMS];
    oct_optimizer optimizer;
} optimizer_part;

static char param_names[PARAMS][8] = {"m.a", "m.b", "m.c", "m.d"};

static void optimizer_part_init(optimizer_part *o, int rank, int size, bool filled)
{
    static const spec shapes[PARAMS] = {{"", OCT_DTYPE_F32, CUT_TILES, 2, {200, 3}},
                                        {"", OCT_DTYPE_F32, CUT_EXPERTS, 3, {5, 4, 3}},
                                        {"", OCT_DTYPE_F32, CUT_NONE, 2, {9, 4}},
                                        {"", OCT_DTYPE_F32, CUT_TILES, 1, {7}}};
    *o = (optimizer_part){0};
    for (int i = 0; i < PARAMS; i++) {
        const spec *s = &shapes[i];
        oct_param *param = &o->params[i];
        oct_optim_slot *slot = &o->slots[i];
        *param = (oct_param){.fqn = param_names[i],
                             .ndim = s->ndim,
                             .requires_grad = i != 3,
                             .replicated = s->cut == CUT_NONE};
        memcpy(param->shape, s->shape, sizeof param->shape);
        *slot = (oct_optim_slot){.param = param};
        rows_of(s, rank, size, &slot->row_begin, &slot->rows);
        slot->numel = slot->rows * width_of(s);
        float **parts[3] = {&slot->master, &slot->exp_avg, &slot->exp_avg_sq};
        for (int p = 0; p < (param->requires_grad ? 3 : 1); p++) {
            *parts[p] = calloc((size_t)slot->numel + 1, sizeof(float));
            for (int64_t e = 0; filled && e < slot->numel; e++)
                (*parts[p])[e] = value_at(3 * i + p, slot->row_begin * width_of(s) + e, 5);
        }
    }
    o->optimizer =
        (oct_optimizer){.slots = o->slots, .slot_count = PARAMS, .step = filled ? 77 : 0};
}

static void optimizer_part_release(optimizer_part *o)
{
    for (int i = 0; i < PARAMS; i++) {
        free(o->slots[i].master);
        free(o->slots[i].exp_avg);
        free(o->slots[i].exp_avg_sq);
    }
}

static int save_optimizer(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err = {0};
    optimizer_part o;
    oct_item_list list;
    oct_checkpoint_writer *writer = NULL;
    optimizer_part_init(&o, oct_comm_rank(comm), oct_comm_size(comm), true);
    oct_item_list_init(&list);
    EXPECT_OK(comm, oct_item_add_optimizer(&list, &o.optimizer, &err));
    EXPECT_OK(comm, create_writer(comm, NULL, 0, &writer, &err));
    EXPECT_OK(comm, oct_checkpoint_save(writer, 1, &list, &meta, &err));
    oct_checkpoint_writer_destroy(writer);
    oct_item_list_release(&list);
    optimizer_part_release(&o);
    return failures;
}

static int restore_optimizer(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err = {0};
    optimizer_part o, wanted;
    oct_checkpoint *cp = NULL;
    const int rank = oct_comm_rank(comm), size = oct_comm_size(comm);
    optimizer_part_init(&wanted, rank, size, true);
    EXPECT_OK(comm, oct_checkpoint_open_latest_together(comm, NULL, scratch_dir, OCT_VERIFY_CRC,
                                                        NULL, NULL, &cp, &err));
    EXPECT(comm, oct_checkpoint_entry_count(cp) == PARAMS * 2 + 3 * 3);
    for (int with_moments = 0; with_moments < 2; with_moments++) {
        optimizer_part_init(&o, rank, size, false);
        EXPECT_OK(comm,
                  oct_checkpoint_restore_optimizer(cp, &o.optimizer, with_moments != 0, &err));
        EXPECT(comm, o.optimizer.step == (with_moments ? 77 : 0));
        for (int i = 0; i < PARAMS; i++) {
            const oct_optim_slot *a = &o.slots[i], *b = &wanted.slots[i];
            const size_t bytes = (size_t)a->numel * sizeof(float);
            EXPECT(comm, memcmp(a->master, b->master, bytes) == 0);
            EXPECT(comm, a->master[a->numel] == 0.0f); /* not one element more */
            if (!with_moments || !a->exp_avg)
                continue;
            EXPECT(comm, memcmp(a->exp_avg, b->exp_avg, bytes) == 0);
            EXPECT(comm, memcmp(a->exp_avg_sq, b->exp_avg_sq, bytes) == 0);
        }
        optimizer_part_release(&o);
    }
    oct_checkpoint_close(cp);
    optimizer_part_release(&wanted);
    return failures;
}

static void restore_optimizer__other_world__own_rows(void **state)
{
    (void)state;
    static const int worlds[] = {1, 2, 3, 8};
    for (int w = 0; w < 4; w++) {
        assert_int_equal(scratch_clear(), 0);
        run_team(worlds[w], save_optimizer, NULL);
        for (int r = 0; r < 4; r++)
            run_team(worlds[r], restore_optimizer, NULL);
    }
}

/* --- Python -------------------------------------------------------------------------------- */

/* What dcp_python.py prints of a step; free() it. NULL if it fails. */
static char *python_reads(int64_t step)
{
    char command[1024];
    (void)snprintf(command, sizeof command, "python3 %s/tests/unit/dcp_python.py read %s",
                   OCTET_SOURCE_DIR, scratch_path(step_name(step)));
    FILE *pipe = popen(command, "r");
    char *out = calloc(1, 1 << 20);
    assert_non_null(pipe);
    assert_non_null(out);
    (void)fread(out, 1, (1 << 20) - 1, pipe);
    if (pclose(pipe) == 0)
        return out;
    free(out);
    return NULL;
}

static void save__python_reads_all_ranks_files__as_those_of_one(void **state)
{
    (void)state;
    if (system("python3 -c 'import zipfile' 2>/dev/null") != 0) {
        print_message("python3 is not here: the comparison is left out\n");
        return;
    }
    save(1, 1, 22);
    save(3, 3, 22);
    save(8, 8, 22);
    char *one = python_reads(1), *three = python_reads(3), *eight = python_reads(8);
    assert_non_null(one);
    assert_non_null(three);
    assert_non_null(eight);
    assert_true(strlen(one) > 10000);
    assert_string_equal(one, three);
    assert_string_equal(one, eight);
    free(one);
    free(three);
    free(eight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(save__every_world__read_on_every_world, fresh),
        cmocka_unit_test_setup(save__eight_ranks__each_writes_what_it_owns, fresh),
        cmocka_unit_test_setup(start__two_in_a_row__both_whole, fresh),
        cmocka_unit_test_setup(save__keep_latest_k__older_ones_go, fresh),
        cmocka_unit_test_setup(save__each_call_of_rank_0_fails__same_error_on_all, fresh),
        cmocka_unit_test_setup(save__each_call_of_another_rank_fails__same_error_on_all, fresh),
        cmocka_unit_test_setup(save__a_slow_disk_of_one_rank__others_wait, fresh),
        cmocka_unit_test_setup(save__a_rank_on_another_disk__refused_by_file_name, fresh),
        cmocka_unit_test_setup(writer_create__sweep_of_rank_0_fails__error_on_all, fresh),
        cmocka_unit_test_setup(save__too_little_space_for_all_ranks__refused, fresh),
        cmocka_unit_test_setup(save__ranks_that_differ__refused_and_the_next_one_works, fresh),
        cmocka_unit_test_setup(save__each_exchange_fails__its_error_on_all_and_no_half_checkpoint,
                               fresh),
        cmocka_unit_test_setup(save__a_rank_left__its_error_on_all_and_the_next_start_sweeps,
                               fresh),
        cmocka_unit_test_setup(save__power_cut_at_each_call__older_or_newer_is_whole, fresh),
        cmocka_unit_test_setup(open_together__damage_in_each_file__named_once_and_passed_over,
                               fresh),
        cmocka_unit_test_setup(open_together__stale_shard_of_a_larger_world__ignored_or_refused,
                               fresh),
        cmocka_unit_test_setup(open_together__ranks_on_different_disks__refused, fresh),
        cmocka_unit_test_setup(restore_optimizer__other_world__own_rows, fresh),
        cmocka_unit_test_setup(save__python_reads_all_ranks_files__as_those_of_one, fresh),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
