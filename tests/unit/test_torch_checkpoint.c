/* Checkpoints that PyTorch 2.6 wrote (fixtures/torch_dcp), to the bit: every element follows a rule
 * that torch_dcp.py knows as well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "checkpoint/torch_keys.h"
#include "numeric/bf16.h"
#include "train_fixture.h"
#include "unit/scratch_dir.h"

#define FIXTURES OCTET_SOURCE_DIR "/tests/unit/fixtures/torch_dcp"
#define OK(call)                                                                                   \
    do {                                                                                           \
        const oct_status ok_status_ = (call);                                                      \
        if (ok_status_ != OCT_OK)                                                                  \
            fail_msg("%s", err.msg);                                                               \
    } while (0)

/* --- the rule ------------------------------------------------------------------------------- */

/* Element i of a tensor: 24 bits as a fraction, minus a half. Exact in FP32. */
static float rule(const char *key, int64_t i)
{
    const uint32_t hash = (uint32_t)crc32(0, (const unsigned char *)key, (uInt)strlen(key));
    return (float)((hash + (uint32_t)i * 2654435761u) >> 8) * 0x1p-24f - 0.5f;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t text_bytes = strlen(text), end_bytes = strlen(end);
    return text_bytes >= end_bytes && strcmp(text + text_bytes - end_bytes, end) == 0;
}

/* The same for a weight, a moment or a step of the model. */
static float filled(const char *key, int64_t i, bool is_bf16)
{
    float value;
    if (ends_with(key, ".step"))
        return 3.0f;
    if (ends_with(key, ".exp_avg"))
        value = rule(key, i) * 0x1p-10f;
    else if (ends_with(key, ".exp_avg_sq"))
        value = (rule(key, i) + 0.5f) * 0x1p-20f;
    else
        value = rule(key, i) * 0x1p-4f;
    return is_bf16 ? oct_bf16_round(value) : value;
}

static void assert_bits(const char *key, int64_t i, float found, float required)
{
    if (memcmp(&found, &required, sizeof found) != 0)
        fail_msg("%s, element %lld: %a is not %a", key, (long long)i, (double)found,
                 (double)required);
}

/* --- reading -------------------------------------------------------------------------------- */

static int warnings;

static void count_warning(void *arg, const char *line)
{
    (void)arg;
    assert_non_null(strstr(line, "no COMMIT.json: a checkpoint of PyTorch"));
    warnings++;
}

static oct_checkpoint *open_fixture(const char *path)
{
    oct_err err = {0};
    oct_checkpoint *cp = NULL;
    warnings = 0;
    OK(oct_checkpoint_open(NULL, path, OCT_VERIFY_CRC, count_warning, NULL, &cp, &err));
    assert_int_equal(warnings, 1);
    return cp;
}

static int64_t numel_of(const oct_checkpoint_entry *entry)
{
    int64_t numel = 1;
    for (int d = 0; d < entry->ndim; d++)
        numel *= entry->shape[d];
    return numel;
}

/* The whole tensor, to be freed, and each of its rows again on its own. */
static float *read_all(const oct_checkpoint *cp, const char *key)
{
    oct_err err = {0};
    const oct_checkpoint_entry *entry = oct_checkpoint_find(cp, key);
    assert_non_null(entry);
    const int64_t numel = numel_of(entry), rows = entry->ndim > 0 ? entry->shape[0] : 1;
    float *whole = malloc((size_t)numel * sizeof *whole + 1);
    float *row = malloc((size_t)numel * sizeof *row + 1);
    assert_true(whole && row);
    OK(oct_checkpoint_read_tensor(cp, key, entry->ndim, entry->shape, whole, &err));
    for (int64_t r = 0; r < rows; r++) {
        const int64_t width = numel / rows;
        OK(oct_checkpoint_read_rows(cp, key, entry->ndim, entry->shape, r, 1, row, &err));
        assert_memory_equal(row, whole + r * width, (size_t)width * sizeof *row);
    }
    free(row);
    return whole;
}

/* Every tensor of the model and its state; keys without the prefixes. Returns how many. */
static int check_model(const oct_checkpoint *cp, const char *weights, const char *state)
{
    int count = 0;
    for (int64_t e = 0; e < oct_checkpoint_entry_count(cp); e++) {
        const oct_checkpoint_entry *entry = oct_checkpoint_entry_at(cp, e);
        if (!entry->is_tensor)
            continue;
        const bool is_state = strncmp(entry->key, state, strlen(state)) == 0;
        const char *name = entry->key + strlen(is_state ? state : weights);
        if (strcmp(name, "lm_head.weight") == 0) /* tied */
            name = "model.embed_tokens.weight";
        const bool is_bf16 = strcmp(entry->dtype, "bfloat16") == 0;
        float *found = read_all(cp, entry->key);
        for (int64_t i = 0; i < numel_of(entry); i++)
            assert_bits(entry->key, i, found[i], filled(name, i, is_bf16));
        free(found);
        count++;
    }
    return count;
}

static void read__fp32_model_and_nested_adamw_of_two_ranks__every_bit(void **unused)
{
    (void)unused;
    oct_err err = {0};
    oct_checkpoint *cp = open_fixture(FIXTURES "/adamw");
    assert_int_equal(check_model(cp, "", "optimizer.state."), 17 + 3 * 15);
    assert_int_equal(oct_checkpoint_find(cp, "model.embed_tokens.weight")->chunks, 2);
    double lr = 0.0;
    OK(oct_checkpoint_read_float(cp, "optimizer.param_groups.0.lr", &lr, &err));
    assert_true(lr == 1e-3);
    oct_checkpoint_close(cp);
    OK(oct_checkpoint_verify(NULL, FIXTURES "/adamw", NULL, NULL, &err));
}

static void read__bf16_experts_apart_and_flat_adamw__every_bit(void **unused)
{
    (void)unused;
    oct_err err = {0};
    oct_checkpoint *cp = open_fixture(FIXTURES "/experts");
    assert_int_equal(check_model(cp, "model.", "optimizer.state."), 21 + 3 * 19);
    oct_checkpoint_close(cp);
    OK(oct_checkpoint_verify(NULL, FIXTURES "/experts", NULL, NULL, &err));
}

static void read__odd_layouts__every_bit(void **unused)
{
    (void)unused;
    static const struct {
        const char *key;
        int64_t rows, columns;
        int64_t first, row_step, column_step; /* of the elements within what the rule made */
    } rows[] = {
        {"cut.dim0", 5, 3, 0, 3, 1}, {"cut.view", 8, 4, 0, 6, 1},   {"few.rows", 1, 4, 0, 4, 1},
        {"view", 3, 4, 8, 4, 1},     {"transposed", 5, 3, 0, 1, 5}, {"every.second", 4, 4, 0, 8, 1},
        {"cube", 3, 20, 0, 20, 1},
    };
    oct_checkpoint *cp = open_fixture(FIXTURES "/odd");
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        float *found = read_all(cp, rows[k].key);
        for (int64_t i = 0; i < rows[k].rows * rows[k].columns; i++) {
            const int64_t from = rows[k].first + i / rows[k].columns * rows[k].row_step +
                                 i % rows[k].columns * rows[k].column_step;
            const float value = rule(rows[k].key, from);
            assert_bits(rows[k].key, i, found[i],
                        strcmp(rows[k].key, "cube") == 0 ? oct_bf16_round(value) : value);
        }
        free(found);
    }
    free(read_all(cp, "no.rows"));
    float *scalar = read_all(cp, "scalar");
    assert_true(*scalar == 1.5f);
    free(scalar);
    oct_checkpoint_close(cp);
}

static void read__odd_objects__values_or_refused_by_name(void **unused)
{
    (void)unused;
    oct_err err = {0};
    oct_arena arena;
    oct_checkpoint *cp = open_fixture(FIXTURES "/odd");
    int64_t integer = 0, count = 0;
    double real = 0.0;
    bool truth = false;
    const char *text = NULL;
    const int64_t *ints = NULL;
    oct_arena_init(&arena, "test");
    OK(oct_checkpoint_read_int(cp, "objects.i", &integer, &err));
    assert_int_equal(integer, -5);
    OK(oct_checkpoint_read_int(cp, "objects.big", &integer, &err));
    assert_int_equal(integer, (int64_t)1 << 40);
    OK(oct_checkpoint_read_float(cp, "objects.f", &real, &err));
    assert_true(real == 0.1);
    OK(oct_checkpoint_read_bool(cp, "objects.t", &truth, &err));
    assert_true(truth);
    OK(oct_checkpoint_read_string(cp, "objects.s", &arena, &text, &err));
    assert_string_equal(text, "scale \xc3\xa9");
    OK(oct_checkpoint_read_ints(cp, "objects.list", &arena, &ints, &count, &err));
    assert_true(count == 3 && ints[0] == 1 && ints[2] == 3);
    static const char *const refused[][2] = {
        {"evil", "global 'posix.system'"},        {"other._extra_state", "global '_io.BytesIO'"},
        {"objects.b", "global '_codecs.encode'"}, {"objects.huge", "more than 64 bits"},
        {"objects.none", "an int is required"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(oct_checkpoint_read_int(cp, refused[i][0], &integer, &err), OCT_E_CORRUPT);
        if (!strstr(err.msg, refused[i][1]))
            fail_msg("'%s' is not in '%s'", refused[i][1], err.msg);
    }
    oct_arena_release(&arena);
    oct_checkpoint_close(cp);
    OK(oct_checkpoint_verify(NULL, FIXTURES "/odd", NULL, NULL, &err));
}

static void read__other_dtypes_and_cuts__listed_and_refused(void **unused)
{
    (void)unused;
    static const char *const rows[][2] = {
        {"half", "float16"},     {"double", "float64"},           {"count", "int64"},
        {"mask", "bool"},        {"e4m3", "float8_e4m3fn"},       {"complex", "complex64"},
        {"cut.dim1", "float32"}, {"layer._extra_state", "uint8"},
    };
    oct_checkpoint *cp = open_fixture(FIXTURES "/odd");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        oct_err err = {0};
        float out[64];
        const oct_checkpoint_entry *entry = oct_checkpoint_find(cp, rows[i][0]);
        assert_non_null(entry);
        assert_string_equal(entry->dtype, rows[i][1]);
        assert_int_equal(
            oct_checkpoint_read_tensor(cp, entry->key, entry->ndim, entry->shape, out, &err),
            OCT_E_UNSUPPORTED);
        assert_non_null(strstr(err.msg, rows[i][0]));
    }
    oct_checkpoint_close(cp);
}

/* --- training ------------------------------------------------------------------------------- */

/* What the first step has to find: the rule in masters and moments. */
typedef struct expectation {
    bool is_bf16, is_apart, with_moments;
} expectation;

/* The key that element i of a slot was made for, and its index there. */
static int64_t source_of(const oct_param *param, bool is_apart, int64_t i, char key[256])
{
    const char *last = strrchr(param->fqn, '.');
    const bool is_gate_up = strcmp(last, ".gate_up_proj") == 0;
    if (!is_apart || param->ndim != 3) {
        (void)snprintf(key, 256, "%s", param->fqn);
        return i;
    }
    const int64_t parts = is_gate_up ? 2 : 1;
    const int64_t numel = param->shape[1] / parts * param->shape[2];
    const char *projection = !is_gate_up ? "down" : i / numel % 2 ? "up" : "gate";
    (void)snprintf(key, 256, "%.*s.%lld.%s_proj.weight", (int)(last - param->fqn), param->fqn,
                   (long long)(i / numel / parts), projection);
    return i % numel;
}

static void check_restored(record *r, oct_build *build)
{
    const expectation *wanted = r->arg;
    if (r->attempts > 0)
        return;
    assert_int_equal(build->optimizer->step, wanted->with_moments ? 3 : 0);
    for (int64_t s = 0; s < build->optimizer->slot_count; s++) {
        const oct_optim_slot *slot = &build->optimizer->slots[s];
        for (int64_t i = 0; i < slot->numel; i++) {
            char key[256], state[300];
            const int64_t from = source_of(slot->param, wanted->is_apart, i, key);
            assert_bits(key, i, slot->master[i], filled(key, from, wanted->is_bf16));
            const float *const moments[2] = {slot->exp_avg, slot->exp_avg_sq};
            for (int m = 0; m < 2; m++) {
                (void)snprintf(state, sizeof state, "%s.%s", key, m ? "exp_avg_sq" : "exp_avg");
                assert_bits(state, i, moments[m][i],
                            wanted->with_moments ? filled(state, from, wanted->is_bf16) : 0.0f);
            }
        }
    }
    assert_int_equal(build->tree.buffer_count, 1);
    const oct_buffer *bias = build->tree.buffers[0];
    for (int64_t i = 0; i < bias->numel; i++)
        assert_bits(bias->fqn, i, bias->data[i], filled(bias->fqn, i, false));
}

static void train__from_each_in_each_format__starts_at_its_bits(void **unused)
{
    (void)unused;
    for (int k = 0; k < 4 * FORMATS; k++) {
        expectation wanted = {.is_bf16 = k % 2, .is_apart = k % 2, .with_moments = k / 2 % 2 == 0};
        record *r = record_create();
        r->gradients = check_restored;
        r->arg = &wanted;
        train(
            &files, word("run-%d", k), k / 4, NULL,
            WORDS("model.config_name_or_path=" FIXTURES, "training.train_iters=5",
                  word("checkpoint.restore_from=" FIXTURES "/%s", k % 2 ? "experts" : "adamw"),
                  word("checkpoint.restore_optimizer=%s", wanted.with_moments ? "true" : "false")),
            r);
        assert_trained(r);
        assert_int_equal(r->attempts, wanted.with_moments ? 2 : 5);
        assert_int_equal(r->rows[0].step, wanted.with_moments ? 4 : 1);
        assert_int_equal(r->rows[0].attempt, r->rows[0].step);
        free(r);
    }
}

/* What one of several ranks reads: the second expert alone. */
static void read__one_expert_of_a_stack__its_rows(void **unused)
{
    (void)unused;
    oct_err err = {0};
    oct_torch_keys keys;
    char fqn[] = "model.layers.0.mlp.experts.gate_up_proj";
    const oct_param param = {.fqn = fqn, .ndim = 3, .shape = {2, 8, 8}};
    static const char *const names[] = {NULL, "exp_avg", "exp_avg_sq"};
    oct_checkpoint *cp = open_fixture(FIXTURES "/experts");
    OK(oct_torch_keys_find(cp, "model.embed_tokens.weight", &keys, &err));
    assert_true(oct_torch_keys_has(&keys, &param, "exp_avg"));
    assert_false(oct_torch_keys_has(&keys, &param, "master"));
    for (int n = 0; n < 3; n++) {
        float out[64];
        OK(oct_torch_keys_read(&keys, &param, names[n], 1, 1, out, &err));
        for (int64_t i = 0; i < 64; i++) {
            char key[300];
            (void)snprintf(key, sizeof key, "model.layers.0.mlp.experts.1.%s_proj.weight%s%s",
                           i < 32 ? "gate" : "up", n ? "." : "", n ? names[n] : "");
            assert_bits(key, i, out[i], filled(key, i % 32, true));
        }
    }
    oct_checkpoint_close(cp);
}

static void train__checkpoint_without_the_model__refused_by_name(void **unused)
{
    (void)unused;
    record *r = record_create();
    train(&files, "run-odd", 0, NULL,
          WORDS("model.config_name_or_path=" FIXTURES, "checkpoint.restore_from=" FIXTURES "/odd"),
          r);
    assert_refused(r, OCT_E_CHECKPOINT, "model.embed_tokens.weight", "no such key", NULL);
    train(&files, "run-shape", 0, NULL, WORDS("checkpoint.restore_from=" FIXTURES "/adamw"), r);
    assert_refused(r, OCT_E_CHECKPOINT, "model.embed_tokens.weight", "[257, 8]", "[257, 64]", NULL);
    free(r);
}

/* --- keys ----------------------------------------------------------------------------------- */

/* A checkpoint of these 1-D tensors without COMMIT.json: as if PyTorch had written it. */
static oct_checkpoint *foreign(const char *const *keys)
{
    oct_err err = {0};
    const oct_checkpoint_options options = {.root = scratch_dir};
    const oct_checkpoint_meta meta = {0};
    const float ones[2] = {1.0f, 1.0f};
    const int64_t shape[1] = {2};
    oct_item_list list;
    oct_checkpoint_writer *writer = NULL;
    assert_int_equal(scratch_clear(), 0);
    oct_item_list_init(&list);
    for (; *keys; keys++)
        OK(oct_item_add_tensor(&list, *keys, OCT_DTYPE_F32, 1, shape, ones, &err));
    OK(oct_checkpoint_writer_create(&options, &writer, &err));
    OK(oct_checkpoint_save(writer, 1, &list, &meta, &err));
    oct_checkpoint_writer_destroy(writer);
    oct_item_list_release(&list);
    assert_int_equal(unlink(scratch_path("step-1/COMMIT.json")), 0);
    return open_fixture(scratch_path("step-1"));
}

static void find__prefixes__by_the_end_of_the_key(void **unused)
{
    (void)unused;
    static const struct {
        const char *keys[4];
        const char *weights, *state, *problem;
    } rows[] = {
        {{"a.w"}, "", "optimizer.state.", NULL},
        {{"a.w", "app.model.a.w"}, "", "optimizer.state.", NULL},
        {{"model.a.w", "model.aa.w", "model.a.w.x"}, "model.", "optimizer.state.", NULL},
        {{"app.model.a.w", "app.optim.state.a.w.exp_avg"}, "app.model.", "app.optim.state.", NULL},
        {{"a.w", "a.w.exp_avg"}, "", "", NULL},
        {{"ema.a.w", "model.a.w"}, NULL, NULL, "'ema.a.w' and 'model.a.w'"},
        {{"a.w", "o1.a.w.exp_avg", "o2.a.w.exp_avg"}, NULL, NULL, "'o1.a.w.exp_avg' and"},
        {{"xa.w"}, "", "optimizer.state.", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        oct_err err = {0};
        oct_torch_keys keys;
        oct_checkpoint *cp = foreign(rows[i].keys);
        const oct_status status = oct_torch_keys_find(cp, "a.w", &keys, &err);
        if (rows[i].problem) {
            assert_int_equal(status, OCT_E_CORRUPT);
            assert_non_null(strstr(err.msg, rows[i].problem));
        } else {
            assert_int_equal(status, OCT_OK);
            assert_string_equal(keys.weights, rows[i].weights);
            assert_string_equal(keys.state, rows[i].state);
        }
        oct_checkpoint_close(cp);
    }
}

static void read__state_missing_or_by_number__says_what_to_do(void **unused)
{
    (void)unused;
    static const struct {
        const char *keys[3];
        const char *problem;
    } rows[] = {
        {{"a.w"}, "checkpoint.restore_optimizer: false"},
        {{"a.w", "optimizer.state.0.exp_avg"}, "get_optimizer_state_dict"},
    };
    char fqn[] = "a.w";
    const oct_param param = {.fqn = fqn, .ndim = 1, .shape = {2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        oct_err err = {0};
        oct_torch_keys keys;
        float out[2];
        oct_checkpoint *cp = foreign(rows[i].keys);
        OK(oct_torch_keys_find(cp, fqn, &keys, &err));
        OK(oct_torch_keys_read(&keys, &param, NULL, 0, 2, out, &err));
        assert_int_equal(oct_torch_keys_read(&keys, &param, "exp_avg", 0, 2, out, &err),
                         OCT_E_CORRUPT);
        assert_non_null(strstr(err.msg, rows[i].problem));
        oct_checkpoint_close(cp);
    }
}

/* --- damage --------------------------------------------------------------------------------- */

static uint32_t get_le(const unsigned char *from, int bytes)
{
    uint32_t x = 0;
    for (int i = bytes; i-- > 0;)
        x = x << 8 | from[i];
    return x;
}

/* One pickle of a file of archives, and the directory's CRC-32 of it. */
typedef struct pickle_place {
    size_t at, bytes, crc_at;
} pickle_place;

/* The pickle behind `from`: the next local header of a data.pkl and the next directory record. */
static bool find_pickle(const unsigned char *data, size_t bytes, size_t from, pickle_place *out)
{
    static const char name[] = "archive/data.pkl";
    *out = (pickle_place){0};
    for (size_t i = from; i + 64 < bytes; i++) {
        const bool is_local = memcmp(data + i, "PK\3\4", 4) == 0 && !out->at;
        const bool is_central = memcmp(data + i, "PK\1\2", 4) == 0 && out->at;
        if (!(is_local || is_central) ||
            memcmp(data + i + (is_local ? 30 : 46), name, sizeof name - 1) != 0)
            continue;
        if (is_local) {
            out->at = i + 30 + get_le(data + i + 26, 2) + get_le(data + i + 28, 2);
            continue;
        }
        out->bytes = get_le(data + i + 24, 4);
        if (out->bytes == UINT32_MAX) /* zip64: the size is first in the extra field */
            out->bytes = get_le(data + i + 46 + sizeof name - 1 + 4, 4);
        out->crc_at = i + 16;
        return out->at + out->bytes <= bytes;
    }
    return false;
}

/* Whatever the outcome, ASan and UBSan look on. */
static void read_everything(const oct_checkpoint *cp)
{
    for (int64_t e = 0; e < oct_checkpoint_entry_count(cp); e++) {
        const oct_checkpoint_entry *entry = oct_checkpoint_entry_at(cp, e);
        oct_err err = {0};
        float out[256];
        int64_t integer = 0;
        const oct_status status =
            !entry->is_tensor
                ? oct_checkpoint_read_int(cp, entry->key, &integer, &err)
                : oct_checkpoint_read_tensor(cp, entry->key, entry->ndim, entry->shape, out, &err);
        assert_true(status == OCT_OK || err.msg[0]);
    }
}

static void copy_file(const char *name, unsigned char **data, size_t *bytes)
{
    oct_err err = {0};
    char path[512], *text = NULL;
    (void)snprintf(path, sizeof path, FIXTURES "/odd/%s", name);
    OK(oct_file_read_all(&oct_file_table_real, path, 1 << 20, &text, bytes, &err));
    *data = (unsigned char *)text;
}

static void put_file(const char *name, const unsigned char *data, size_t bytes)
{
    FILE *file = fopen(scratch_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* Bytes change, the CRC-32 is that of the changed pickle: what a forger would do. */
static void read__forged_pickles__refused_or_read_within_bounds(void **unused)
{
    (void)unused;
    static const char *const names[] = {".metadata",    "__0_0.distcp", "__0_1.distcp",
                                        "__0_2.distcp", "__1_0.distcp", "__1_1.distcp",
                                        "__1_2.distcp"};
    enum { FILES = sizeof names / sizeof *names };
    unsigned char *data[FILES];
    size_t bytes[FILES];
    uint32_t random = 11;
    int forged = 0;
    assert_int_equal(scratch_clear(), 0);
    for (int f = 0; f < FILES; f++) {
        copy_file(names[f], &data[f], &bytes[f]);
        put_file(names[f], data[f], bytes[f]);
    }
    for (int f = 1; f < FILES; f++) {
        pickle_place place;
        for (size_t from = 0; find_pickle(data[f], bytes[f], from, &place); from = place.crc_at) {
            assert_int_equal(crc32(0, data[f] + place.at, (uInt)place.bytes),
                             get_le(data[f] + place.crc_at, 4));
            for (int round = 0; round < 12; round++, forged++) {
                unsigned char *mutant = malloc(bytes[f]);
                assert_non_null(mutant);
                memcpy(mutant, data[f], bytes[f]);
                random = random * 1664525u + 1013904223u;
                /* The second half holds sizes, offsets and strides. */
                mutant[place.at + place.bytes / 2 +
                       (random >> 8) % (place.bytes - place.bytes / 2)] =
                    (unsigned char)(random >> 4);
                const uint32_t crc = (uint32_t)crc32(0, mutant + place.at, (uInt)place.bytes);
                for (int b = 0; b < 4; b++)
                    mutant[place.crc_at + (size_t)b] = (unsigned char)(crc >> 8 * b);
                put_file(names[f], mutant, bytes[f]);
                oct_checkpoint *cp = open_fixture(scratch_dir);
                read_everything(cp);
                oct_checkpoint_close(cp);
                free(mutant);
            }
        }
        put_file(names[f], data[f], bytes[f]);
    }
    assert_true(forged >= 12 * 25);
    for (int f = 0; f < FILES; f++)
        free(data[f]);
}

/* The rules of base.yaml ask for a dense layer, which the model of the fixtures has not. */
static const char rules[] =
    "plan_overrides:\n"
    "  - match: model.layers.*.self_attn.*_proj\n"
    "    when: low_precision\n"
    "    module_type: torch.nn.Linear\n"
    "    exact_type: true\n"
    "    replace_module:\n"
    "      _target_: hyper_models.components.training.low_precision.modules.linear."
    "replace_low_precision_linear\n"
    "  - match: model.layers.*.mlp.experts\n"
    "    when: low_precision\n"
    "    module_type: transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3Experts\n"
    "    exact_type: true\n"
    "    replace_module:\n"
    "      _target_: hyper_models.components.models.adapters.deepseek_v3.low_precision."
    "replace_deepseek_v3_low_precision_experts\n";

static int make_folders(void **state)
{
    if (make_train_files(state) != 0 || scratch_make(state) != 0)
        return 1;
    FILE *yaml = fopen(temp_dir_name(&files, "train.yaml"), "a");
    return !yaml || fputs(rules, yaml) < 0 || fclose(yaml) != 0;
}

static int remove_folders(void **state)
{
    return remove_train_files(state) != 0 || scratch_remove(state) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read__fp32_model_and_nested_adamw_of_two_ranks__every_bit),
        cmocka_unit_test(read__bf16_experts_apart_and_flat_adamw__every_bit),
        cmocka_unit_test(read__odd_layouts__every_bit),
        cmocka_unit_test(read__odd_objects__values_or_refused_by_name),
        cmocka_unit_test(read__other_dtypes_and_cuts__listed_and_refused),
        cmocka_unit_test(train__from_each_in_each_format__starts_at_its_bits),
        cmocka_unit_test(read__one_expert_of_a_stack__its_rows),
        cmocka_unit_test(train__checkpoint_without_the_model__refused_by_name),
        cmocka_unit_test(find__prefixes__by_the_end_of_the_key),
        cmocka_unit_test(read__state_missing_or_by_number__says_what_to_do),
        cmocka_unit_test(read__forged_pickles__refused_or_read_within_bounds),
    };
    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
