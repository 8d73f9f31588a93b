/* Training runs of a tiny model in a folder of their own: a written HF config, text and YAML, a run
 * of oct_train, and a record of what it did. Include cmocka.h before. */
#ifndef OCT_TESTS_TRAIN_FIXTURE_H
#define OCT_TESTS_TRAIN_FIXTURE_H

#include <math.h>
#include <stdarg.h>

#include "base/fault.h"
#include "config/config.h"
#include "trainer/train.h"
#include "unit/temp_dir.h"

enum { FORMATS = 3, MAX_ROWS = 64, MAX_WORDS = 24 };

/* The words that choose a format; the names are those of the checkpoint. */
static const char *const format_names[FORMATS] = {"bfloat16", "mxfp8_e4m3", "hif8"};
static const char *const format_words[FORMATS][3] = {
    {"low_precision.enabled=false", "low_precision.format=mxfp8_e4m3",
     "low_precision.scaling=mx_block"},
    {"low_precision.enabled=true", "low_precision.format=mxfp8_e4m3",
     "low_precision.scaling=mx_block"},
    {"low_precision.enabled=true", "low_precision.format=hif8", "low_precision.scaling=current"},
};

/* --- the files ------------------------------------------------------------------------------ */

/* Every dimension is small; experts are 48 wide, so that the last MX block of a row is short. */
static const char tiny_model[] = "{\n"
                                 "  \"model_type\": \"deepseek_v3\",\n"
                                 "  \"vocab_size\": 257,\n"
                                 "  \"hidden_size\": 64,\n"
                                 "  \"intermediate_size\": 96,\n"
                                 "  \"moe_intermediate_size\": 48,\n"
                                 "  \"num_hidden_layers\": 2,\n"
                                 "  \"first_k_dense_replace\": 1,\n"
                                 "  \"num_attention_heads\": 2,\n"
                                 "  \"num_key_value_heads\": 2,\n"
                                 "  \"n_routed_experts\": 4,\n"
                                 "  \"n_shared_experts\": 1,\n"
                                 "  \"num_experts_per_tok\": 2,\n"
                                 "  \"n_group\": 1,\n"
                                 "  \"topk_group\": 1,\n"
                                 "  \"norm_topk_prob\": true,\n"
                                 "  \"routed_scaling_factor\": 1.0,\n"
                                 "  \"q_lora_rank\": null,\n"
                                 "  \"kv_lora_rank\": 32,\n"
                                 "  \"qk_nope_head_dim\": 16,\n"
                                 "  \"qk_rope_head_dim\": 16,\n"
                                 "  \"v_head_dim\": 16,\n"
                                 "  \"max_position_embeddings\": 256,\n"
                                 "  \"rope_theta\": 10000.0,\n"
                                 "  \"rope_interleave\": true,\n"
                                 "  \"tie_word_embeddings\": false\n"
                                 "}\n";

/* Words of uneven lengths in an order that does not repeat soon: `bytes` of text. */
static inline void write_text(const temp_dir *dir, const char *name, size_t bytes)
{
    static const char *const words[] = {"scale ", "block ", "of ",      "the ", "gradient ",
                                        "shard ", "and ",   "expert\n", "top ", "mantissa, "};
    char *text = malloc(bytes + 16);
    assert_non_null(text);
    size_t used = 0;
    for (uint32_t state = 1; used < bytes;) {
        state = state * 1664525u + 1013904223u;
        const char *word = words[(state >> 16) % 10];
        const size_t length = strlen(word);
        memcpy(text + used, word, length);
        used += length;
    }
    temp_dir_write_bytes(dir, name, text, bytes);
    free(text);
}

/* A folder with model/config.json, text.txt and train.yaml. */
static inline temp_dir train_files_create(void)
{
    const temp_dir dir = temp_dir_create();
    char yaml[2048];
    temp_dir_make(&dir, "model");
    temp_dir_write(&dir, "model/config.json", tiny_model);
    write_text(&dir, "text.txt", 6000);
    (void)snprintf(yaml, sizeof yaml,
                   "base: %s/configs/base.yaml\n"
                   "model:\n"
                   "  config_name_or_path: %s/model\n"
                   "training:\n"
                   "  train_iters: 6\n"
                   "  seq_length: 32\n"
                   "  global_batch_size: 4\n"
                   "  micro_batch_size: 2\n"
                   "  threads: 1\n"
                   "optimizer:\n"
                   "  lr: 1.0e-3\n"
                   "lr_scheduler:\n"
                   "  warmup_steps: 2\n"
                   "dataset:\n"
                   "  path: %s/text.txt\n",
                   OCTET_SOURCE_DIR, dir.path, dir.path);
    temp_dir_write(&dir, "train.yaml", yaml);
    return dir;
}

/* The folder of one test program, and the setup and teardown of its group. */
static temp_dir files;

static inline int make_train_files(void **state)
{
    (void)state;
    files = train_files_create();
    return 0;
}

static inline int remove_train_files(void **state)
{
    (void)state;
    temp_dir_remove(&files);
    return 0;
}

/* --- one run -------------------------------------------------------------------------------- */

/* What a run left behind. */
typedef struct record {
    oct_status status;
    oct_err err;
    oct_train_result result;
    oct_step_metrics rows[MAX_ROWS];
    int row_count;
    uint64_t masters[MAX_ROWS]; /* hash of all masters and moments after each attempt */
    uint64_t moments[MAX_ROWS];
    int attempts;
    int warnings, messages, saves;
    char warning[1200], message[1200]; /* the last ones */
    int64_t saved_step;
    /* Hooks of one test. */
    void (*gradients)(struct record *record, oct_build *build);
    void (*stepped)(struct record *record, oct_build *build);
    void *arg;
} record;

static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * 0x100000001B3u;
    return hash;
}

static const uint64_t hash_start = 0xCBF29CE484222325u;

static inline uint64_t hash_masters(const oct_build *build)
{
    uint64_t hash = hash_start;
    for (int64_t s = 0; s < build->optimizer->slot_count; s++) {
        const oct_optim_slot *slot = &build->optimizer->slots[s];
        hash = hash_bytes(hash, slot->master, (size_t)slot->numel * sizeof(float));
    }
    return hash;
}

static inline uint64_t hash_moments(const oct_build *build)
{
    uint64_t hash = hash_start;
    for (int64_t s = 0; s < build->optimizer->slot_count; s++) {
        const oct_optim_slot *slot = &build->optimizer->slots[s];
        hash = hash_bytes(hash, slot->exp_avg, (size_t)slot->numel * sizeof(float));
        hash = hash_bytes(hash, slot->exp_avg_sq, (size_t)slot->numel * sizeof(float));
    }
    return hash;
}

/* Codes and scales of every low-precision weight. */
static inline uint64_t hash_storage(const oct_build *build)
{
    uint64_t hash = hash_start;
    for (int64_t w = 0; w < build->weights.count; w++) {
        const oct_weight_storage *storage = build->weights.shards[w];
        for (int t = 0; t < storage->tensor_count; t++)
            hash = hash_bytes(hash, storage->tensors[t].tensor.data,
                              oct_tensor_bytes(&storage->tensors[t].tensor));
    }
    return hash;
}

static inline uint64_t hash_gradients(const oct_build *build)
{
    uint64_t hash = hash_start;
    for (int64_t p = 0; p < build->tree.param_count; p++) {
        const oct_param *param = build->tree.params[p];
        hash = hash_bytes(hash, param->grad, (size_t)oct_param_numel(param) * sizeof(float));
    }
    return hash;
}

static inline void record_message(void *arg, const char *line)
{
    record *r = arg;
    r->messages++;
    (void)snprintf(r->message, sizeof r->message, "%s", line);
}

static inline void record_warning(void *arg, const char *line)
{
    record *r = arg;
    r->warnings++;
    (void)snprintf(r->warning, sizeof r->warning, "%s", line);
}

static inline void record_row(void *arg, const oct_step_metrics *row, int64_t last_step)
{
    record *r = arg;
    (void)last_step;
    assert_true(r->row_count < MAX_ROWS);
    r->rows[r->row_count++] = *row;
}

static inline void record_saved(void *arg, int64_t step)
{
    record *r = arg;
    r->saves++;
    r->saved_step = step;
}

static inline void record_gradients(void *arg, oct_build *build, const oct_train_state *state)
{
    record *r = arg;
    (void)state;
    if (r->gradients)
        r->gradients(r, build);
}

static inline void record_step(void *arg, oct_build *build, const oct_train_state *state)
{
    record *r = arg;
    (void)state;
    assert_true(r->attempts < MAX_ROWS);
    r->masters[r->attempts] = hash_masters(build);
    r->moments[r->attempts] = hash_moments(build);
    r->attempts++;
    if (r->stepped)
        r->stepped(r, build);
}

/* key=value words for a run. */
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* A word made from a format, in one of eight buffers taken in turn. */
static inline const char *word(const char *fmt, ...) OCT_PRINTF(1, 2);
static inline const char *word(const char *fmt, ...)
{
    static char words[8][700];
    static int next;
    char *buffer = words[next++ % 8];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(buffer, sizeof words[0], fmt, args);
    va_end(args);
    return buffer;
}

static inline record *record_create(void)
{
    record *r = calloc(1, sizeof *r);
    assert_non_null(r);
    return r;
}

/* Reads train.yaml with `words` (ended by NULL, may be NULL itself) over the words of a format. */
static inline void load_config_of(const temp_dir *dir, int format, const char *const *words,
                                  int ranks, oct_arena *arena, oct_config *config)
{
    const char *all[MAX_WORDS];
    int count = 0;
    for (; count < 3; count++)
        all[count] = format_words[format][count];
    for (; words && *words; words++) {
        assert_true(count < MAX_WORDS);
        all[count++] = *words;
    }
    const char *const file = temp_dir_name(dir, "train.yaml");
    oct_err err = {0};
    if (oct_config_load(&file, 1, all, count, arena, NULL, NULL, config, &err) != OCT_OK ||
        oct_config_resolve(config, ranks, &err) != OCT_OK)
        fail_msg("%s", err.msg);
}

static inline void load_config(const temp_dir *dir, int format, const char *const *words,
                               oct_arena *arena, oct_config *config)
{
    load_config_of(dir, format, words, 1, arena, config);
}

/* Trains as one rank of `comm` (NULL: the only one) in the folder `path`; r keeps its hooks. */
static inline void train_rank(oct_comm *comm, const char *path, const oct_config *config,
                              const char *resume, record *r)
{
    const oct_train_options options = {.run_dir = path,
                                       .resume = resume,
                                       .comm = comm,
                                       .observer = {.arg = r,
                                                    .message = record_message,
                                                    .warning = record_warning,
                                                    .row = record_row,
                                                    .saved = record_saved,
                                                    .gradients = record_gradients,
                                                    .stepped = record_step}};
    r->saved_step = -1;
    r->row_count = r->attempts = r->warnings = r->messages = r->saves = 0;
    r->err = (oct_err){0};
    r->status = oct_train(config, &options, &r->result, &r->err);
}

/* Trains in `run` below the folder; r keeps its hooks. */
static inline void train(const temp_dir *dir, const char *run, int format, const char *resume,
                         const char *const *words, record *r)
{
    oct_arena arena;
    oct_arena_init(&arena, "test configuration");
    oct_config config;
    load_config(dir, format, words, &arena, &config);
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", dir->path, run);
    train_rank(NULL, path, &config, resume, r);
    oct_arena_release(&arena);
}

static inline void assert_trained(const record *r)
{
    if (r->status != OCT_OK)
        fail_msg("%s", r->err.msg);
}

/* The run failed with this code, and its message holds each of the words (ended by NULL). */
static inline void assert_refused(const record *r, oct_status code, ...)
{
    if (r->status != code)
        fail_msg("found status %s (%s), required %s", oct_status_name(r->status), r->err.msg,
                 oct_status_name(code));
    va_list words;
    va_start(words, code);
    for (const char *word = va_arg(words, const char *); word; word = va_arg(words, const char *))
        if (!strstr(r->err.msg, word))
            fail_msg("the message has no '%s': %s", word, r->err.msg);
    va_end(words);
}

/* The same bits, NaN included. */
static inline void assert_same_double(double a, double b)
{
    if (memcmp(&a, &b, sizeof a) != 0)
        fail_msg("%.17g is not %.17g", a, b);
}

/* Loss, norm, rate and place of two rows are the same bits. */
static inline void assert_same_row(const oct_step_metrics *a, const oct_step_metrics *b)
{
    assert_int_equal(a->validation, b->validation);
    assert_int_equal(a->attempt, b->attempt);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->tokens, b->tokens);
    assert_int_equal(a->expert_load_max, b->expert_load_max);
    assert_same_double(a->loss, b->loss);
    assert_same_double(a->grad_norm, b->grad_norm);
    assert_same_double(a->lr, b->lr);
}

#endif
