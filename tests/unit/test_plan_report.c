/* The dry run of the frozen 16B: hits, shards, sizes, and no weights; and every figure of a small
 * model on two ranks, from its shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "config/config.h"
#include "trainer/plan_report.h"
#include "unit/small_config.h"
#include "unit/temp_dir.h"

static const char frozen[] =
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 102400, \"hidden_size\": 2048, "
    "\"intermediate_size\": 10944, \"moe_intermediate_size\": 1408, \"num_hidden_layers\": 28, "
    "\"first_k_dense_replace\": 1, \"num_attention_heads\": 16, \"num_key_value_heads\": 16, "
    "\"n_routed_experts\": 64, \"n_shared_experts\": 2, \"q_lora_rank\": null, "
    "\"kv_lora_rank\": 3072, \"qk_nope_head_dim\": 64, \"qk_rope_head_dim\": 64, "
    "\"v_head_dim\": 128, \"num_experts_per_tok\": 6, \"n_group\": 1, \"topk_group\": 1, "
    "\"norm_topk_prob\": true, \"routed_scaling_factor\": 2.5, \"max_position_embeddings\": 4096, "
    "\"use_cache\": false, \"attention_bias\": false}";

typedef struct planned {
    oct_arena arena;
    oct_config config;
    oct_build build;
    oct_plan_report report;
    oct_status status;
    oct_err err;
} planned;

static temp_dir files;

static int make_files(void **state)
{
    (void)state;
    files = temp_dir_create();
    char yaml[1024];
    temp_dir_write(&files, "config.json", frozen);
    (void)snprintf(yaml, sizeof yaml,
                   "base: %s/configs/base.yaml\n"
                   "model:\n  config_name_or_path: %s\n  expect: deepseek_v3_16b\n"
                   "low_precision:\n  enabled: true\n"
                   "training:\n  seq_length: 4096\n",
                   OCTET_SOURCE_DIR, files.path);
    temp_dir_write(&files, "16b.yaml", yaml);
    temp_dir_make(&files, "small");
    temp_dir_write(&files, "small/config.json", small_config);
    (void)snprintf(yaml, sizeof yaml,
                   "base: %s/configs/base.yaml\n"
                   "model:\n  config_name_or_path: %s/small\n"
                   "low_precision:\n  enabled: true\n"
                   "training:\n  seq_length: 64\n  micro_batch_size: 1\n  global_batch_size: 6\n"
                   "  threads: 1\n",
                   OCTET_SOURCE_DIR, files.path);
    temp_dir_write(&files, "small.yaml", yaml);
    (void)snprintf(yaml, sizeof yaml,
                   "base: %s/small.yaml\n"
                   "plan_overrides:\n"
                   "  - match: lm_head\n"
                   "    when: low_precision\n"
                   "    module_type: torch.nn.Linear\n"
                   "    exact_type: true\n"
                   "    replace_module: {_target_: hyper_models.components.training.low_precision."
                   "modules.linear.replace_low_precision_linear}\n",
                   files.path);
    temp_dir_write(&files, "head.yaml", yaml);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    temp_dir_remove(&files);
    return 0;
}

static planned *plan_file(const char *name, int ranks, const char *const *words, int word_count)
{
    static planned p;
    p = (planned){0};
    oct_arena_init(&p.arena, "test configuration");
    const char *const file = temp_dir_name(&files, name);
    if (oct_config_load(&file, 1, words, word_count, &p.arena, NULL, NULL, &p.config, &p.err) !=
            OCT_OK ||
        oct_config_resolve(&p.config, ranks, &p.err) != OCT_OK)
        fail_msg("%s", p.err.msg);
    oct_build_init(&p.build, &p.config, NULL);
    if (oct_build_through(&p.build, OCT_STAGE_PLAN, &p.err) != OCT_OK)
        fail_msg("%s", p.err.msg);
    p.status = oct_plan_report_make(&p.build, ranks, &p.report, &p.err);
    return &p;
}

static planned *plan(int ranks, const char *const *words, int word_count)
{
    return plan_file("16b.yaml", ranks, words, word_count);
}

static void drop(planned *p)
{
    oct_build_release(&p->build);
    oct_arena_release(&p->arena);
}

static int64_t replicated_count(const planned *p)
{
    int64_t count = 0;
    for (int64_t i = 0; i < p->report.shard_count; i++)
        count += p->report.shards[i].replicated;
    return count;
}

static void assert_made(const planned *p)
{
    if (p->status != OCT_OK)
        fail_msg("%s", p->err.msg);
}

static void plan_report__frozen_16b__counts_parameters_and_hits(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        int64_t hits;
    } required[] = {
        {"model.layers.*.self_attn.q_proj", 28},
        {"model.layers.*.self_attn.kv_a_proj_with_mqa", 28},
        {"model.layers.*.self_attn.kv_b_proj", 28},
        {"model.layers.*.self_attn.o_proj", 28},
        {"model.layers.0.mlp.*_proj", 3},
        {"model.layers.*.mlp.shared_experts.*_proj", 81},
        {"model.layers.*.mlp.experts", 27},
    };
    planned *p = plan(1, NULL, 0);
    assert_made(p);
    assert_int_equal(p->report.parameters_total, 16585005056);
    assert_int_equal(p->report.parameters_active, 3037927424);
    assert_int_equal(p->report.parameters_low_precision, 16161832960);
    assert_int_equal(p->report.replaced_linear, 196);
    assert_int_equal(p->report.replaced_experts, 27);
    assert_int_equal(p->report.shard_count, 364);
    assert_true(p->report.flops_per_token_torchtitan == 19787845632.0);
    assert_true(p->report.flops_per_token_megatron == 18356625408.0);
    size_t seen = 0;
    for (int64_t r = 0; r < oct_plan_rule_count(p->build.plan); r++)
        for (int64_t i = 0; i < oct_plan_rule_at(p->build.plan, r)->pattern_count; i++, seen++) {
            assert_true(seen < sizeof required / sizeof required[0]);
            assert_string_equal(oct_plan_rule_at(p->build.plan, r)->patterns[i],
                                required[seen].pattern);
            assert_int_equal(oct_plan_hits(p->build.plan, r, i), required[seen].hits);
        }
    assert_int_equal(seen, sizeof required / sizeof required[0]);
    drop(p);
}

static void plan_report__tile_on_8_ranks__legal_and_complete(void **state)
{
    (void)state;
    planned *p = plan(8, NULL, 0);
    assert_made(p);
    assert_int_equal(replicated_count(p), 0);
    for (int64_t i = 0; i < p->report.shard_count; i++) {
        const oct_plan_shard *shard = &p->report.shards[i];
        int64_t rows = 0;
        for (int64_t r = 0; r < 8; r++)
            rows += shard->rows_per_rank[r];
        assert_int_equal(rows, shard->param->shape[0]);
    }
    drop(p);
}

/* One rank: four bytes of master, eight of moments, four of gradient per parameter; a 16-bit copy
 * of what is not in 8 bits, but for the FP32 router. */
static void plan_report__one_rank__bytes_are_those_of_the_formulas(void **state)
{
    (void)state;
    const int64_t total = 16585005056, low = 16161832960, router = 27 * 64 * 2048;
    planned *p = plan(1, NULL, 0);
    assert_made(p);
    const oct_plan_bytes *bytes = &p->report.bytes;
    assert_int_equal(bytes->master, 4 * total);
    assert_int_equal(bytes->moments, 8 * total);
    assert_int_equal(bytes->gradients, 4 * total);
    assert_int_equal(bytes->high_precision, 2 * (total - low - router));
    /* Both orientations: a byte each, and one scale per 32. Every width here is a multiple of 32.
     */
    assert_int_equal(bytes->low_precision, 2 * low + 2 * low / 32);
    assert_int_equal(bytes->staging, 0);
    assert_int_equal(bytes->unsharded, 0);
    assert_int_equal(bytes->peak, bytes->master + bytes->moments + bytes->gradients +
                                      bytes->high_precision + bytes->low_precision + bytes->panels +
                                      bytes->activations);
    assert_int_equal(p->report.all_gather_bytes, 0);
    assert_int_equal(p->report.reduce_scatter_bytes, 0);
    drop(p);

    static const char *const hif8[] = {"low_precision.format=hif8",
                                       "low_precision.scaling=current"};
    p = plan(1, hif8, 2);
    assert_made(p);
    /* One byte serves both orientations; a scale per dense weight and per expert. */
    assert_int_equal(p->report.bytes.low_precision, low + 4 * (196 + 27 * 2 * 64));
    drop(p);
}

static void plan_report__even_on_8_ranks__names_the_first_illegal_weight(void **state)
{
    (void)state;
    static const char *const even[] = {"fsdp_config.shard=even"};
    planned *p = plan(8, even, 1);
    assert_int_equal(p->status, OCT_E_SHAPE);
    assert_non_null(strstr(p->err.msg, "'model.layers.0.self_attn.kv_a_proj_with_mqa.weight'"));
    assert_non_null(strstr(p->err.msg, "3136 rows over 8 ranks"));
    assert_non_null(strstr(p->err.msg, "64"));
    assert_non_null(strstr(p->err.msg, "fsdp_config.fallback_to_unsharded"));
    drop(p);
}

/* 28 kv_a, gate and up of layer 0, gate and up of 27 shared experts. */
static void plan_report__even_with_fallback__replicates_84_weights(void **state)
{
    (void)state;
    static const char *const words[] = {
        "fsdp_config.shard=even", "fsdp_config.fallback_to_unsharded=true",
        "low_precision.format=hif8", "low_precision.scaling=current"};
    planned *p = plan(8, words, 2);
    assert_made(p);
    assert_int_equal(replicated_count(p), 84);
    for (int64_t i = 0; i < p->report.shard_count; i++)
        if (p->report.shards[i].replicated)
            for (int64_t r = 0; r < 8; r++)
                assert_int_equal(p->report.shards[i].rows_per_rank[r],
                                 p->report.shards[i].param->shape[0]);
    drop(p);
    p = plan(8, words, 4); /* the 64-row rule is that of MXFP8 */
    assert_made(p);
    assert_int_equal(replicated_count(p), 0);
    drop(p);
}

/* The weights would be 66 GB. */
static void plan_report__frozen_16b__takes_no_time_and_no_memory(void **state)
{
    (void)state;
    const clock_t started = clock();
    planned *p = plan(8, NULL, 0);
    oct_json json;
    oct_json_init(&json);
    assert_made(p);
    assert_int_equal(oct_plan_report_json(&p->build, &p->report, NULL, &json, &p->err), OCT_OK);
    assert_true(clock() - started < 2 * CLOCKS_PER_SEC);
    oct_json_release(&json);
    for (int64_t i = 0; i < p->build.tree.param_count; i++) {
        assert_null(p->build.tree.params[i]->init);
        assert_null(p->build.tree.params[i]->value.data);
        assert_null(p->build.tree.params[i]->storage);
    }
    drop(p);
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    assert_true(usage.ru_maxrss < 1024 * 1024);
}

/* --- the small model on two ranks ------------------------------------------------------------- */

enum {
    ATTENTION = (128 + 96 + 128 + 64) * 64,
    NORMS = 3 * 64,
    LOW_0 = ATTENTION + 3 * 128 * 64,
    LOW_1 = ATTENTION + 4 * 128 * 64 + 4 * 64 * 64 + 3 * 64 * 64,
    ROUTER = 4 * 64,
    EMBEDDING = 256 * 64,
    HEAD = 256 * 64 + 64,
    TOTAL = EMBEDDING + LOW_0 + NORMS + LOW_1 + NORMS + ROUTER + HEAD,
    /* Tiles of 64 rows: what is 64 rows or less belongs to rank 1, of kv_a it has the last 32
     * rows; all else is halved. */
    LOW_OF_1 =
        2 * (64 + 32 + 64 + 64) * 64 + (64 + 64 + 2 * 64) * 64 + (2 * 128 + 2 * 64 + 3 * 64) * 64,
    HIGH_OF_1 = EMBEDDING / 2 + 2 * NORMS + 256 / 2 * 64 + 64,
    OF_1 = LOW_OF_1 + HIGH_OF_1 + ROUTER,
    LOW_OF_0 = LOW_0 + LOW_1 - LOW_OF_1,
    /* An MXFP8 weight: two bytes an element, two scales per 32; where rows end in half a pair of
     * blocks, as in 32 and 96 rows of kv_a, one more scale per column. */
    ODD = 64,
    /* kv_a, o and down of layer 0, and the shared experts, have no even cut that MXFP8 allows. */
    REPLICATED_0 = 96 * 64 + 64 * 64 + 64 * 128,
    REPLICATED_1 = 96 * 64 + 64 * 64 + 3 * 64 * 64,
};

static int64_t mx(int64_t numel)
{
    return 2 * numel + 2 * numel / 32;
}

static planned *plan_small(int ranks, const char *const *words)
{
    int count = 0;
    while (words && words[count])
        count++;
    planned *p = plan_file("small.yaml", ranks, words, count);
    assert_made(p);
    return p;
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static int64_t panels_of(int64_t experts, int64_t n, int64_t k)
{
    return experts * (oct_panels_bytes_bound(n, k, OCT_SIDE_RIGHT) +
                      oct_panels_bytes_bound(k, n, OCT_SIDE_RIGHT));
}

static int64_t layer_panels(int layer)
{
    return 2 * panels_of(1, 128, 64) + panels_of(1, 96, 64) + panels_of(1, 64, 64) +
           (layer == 0 ? 2 * panels_of(1, 128, 64) + panels_of(1, 64, 128)
                       : panels_of(4, 128, 64) + panels_of(4, 64, 64) + 3 * panels_of(1, 64, 64));
}

static void plan_report__two_ranks__bytes_of_the_largest(void **state)
{
    (void)state;
    planned *p = plan_small(2, NULL);
    const oct_plan_bytes *bytes = &p->report.bytes;
    assert_int_equal(p->report.parameters_total, TOTAL);
    assert_int_equal(p->report.parameters_low_precision, LOW_0 + LOW_1);
    assert_int_equal(bytes->master, 4 * OF_1);
    assert_int_equal(bytes->moments, 8 * OF_1);
    assert_int_equal(bytes->gradients, 4 * OF_1);
    assert_int_equal(bytes->low_precision, mx(LOW_OF_1) + 2 * ODD);
    assert_int_equal(bytes->high_precision, 2 * HIGH_OF_1);
    /* The router is gathered in FP32. The head stays while the layers take turns. */
    assert_int_equal(bytes->unsharded, mx(LOW_1) + ODD + 2 * NORMS + 4 * ROUTER + 2 * HEAD);
    assert_int_equal(bytes->staging, 4 * (4 * 128 * 64));
    assert_int_equal(bytes->panels, 0); /* what is gathered is packed at use */
    assert_int_equal(bytes->peak, bytes->master + bytes->moments + bytes->gradients +
                                      bytes->low_precision + bytes->high_precision +
                                      bytes->unsharded + bytes->staging + bytes->panels +
                                      bytes->activations);
    drop(p);

    p = plan_small(
        2, WORDS("fsdp_config.reshard_after_forward=false", "training.reduce_dtype=bfloat16"));
    assert_int_equal(bytes->unsharded, 2 * EMBEDDING + mx(LOW_0 + LOW_1) + 2 * ODD + 2 * 2 * NORMS +
                                           4 * ROUTER + 2 * HEAD);
    assert_int_equal(bytes->staging, 2 * (4 * 128 * 64));
    assert_int_equal(bytes->panels, 0);
    assert_int_equal(bytes->gradients, 4 * OF_1);
    drop(p);

    /* With prefetch the layers have two windows (embedding and layer 1 share one). */
    p = plan_small(2, WORDS("fsdp_config.prefetch=true"));
    assert_int_equal(bytes->unsharded,
                     mx(LOW_0 + LOW_1) + 2 * ODD + 2 * 2 * NORMS + 4 * ROUTER + 2 * HEAD);
    drop(p);

    /* Recomputing needs both directions at once, whatever the gather leaves out. */
    p = plan_small(2, WORDS("gradient_checkpointing.activation_checkpoint=full",
                            "fsdp_config.narrow_backward_gather=true"));
    assert_int_equal(bytes->unsharded, mx(LOW_1) + ODD + 2 * NORMS + 4 * ROUTER + 2 * HEAD);
    drop(p);

    /* One direction at a time; that of the columns of kv_a has the odd scales. */
    p = plan_small(2, WORDS("fsdp_config.narrow_backward_gather=true"));
    assert_int_equal(bytes->unsharded, LOW_1 / 32 * 33 + ODD + 2 * NORMS + 4 * ROUTER + 2 * HEAD);
    drop(p);

    p = plan_small(1, NULL);
    assert_int_equal(bytes->unsharded, 0);
    assert_int_equal(bytes->panels, layer_panels(0) + layer_panels(1));
    const int64_t activations = bytes->activations;
    drop(p);

    /* One micro-batch a step: its products pack each weight for themselves, in scratch. */
    p = plan_small(1, WORDS("training.global_batch_size=1"));
    assert_int_equal(bytes->panels, 0);
    assert_true(bytes->activations != activations);
    drop(p);
}

/* The head as the largest unit; with a tied one the embedding is there with every layer. */
static void plan_report__large_vocabulary__units_are_all_looked_at(void **state)
{
    (void)state;
    planned *p = plan_small(2, WORDS("model.config_overrides.vocab_size=8192"));
    const oct_plan_bytes *bytes = &p->report.bytes;
    assert_int_equal(bytes->unsharded, 2 * 8192 * 64 + 2 * (8192 * 64 + 64));
    assert_int_equal(bytes->staging, 4 * 8192 * 64);
    drop(p);
    p = plan_small(2, WORDS("model.config_overrides.vocab_size=8192",
                            "model.config_overrides.tie_word_embeddings=true"));
    assert_int_equal(bytes->unsharded,
                     2 * 8192 * 64 + mx(LOW_1) + ODD + 2 * NORMS + 4 * ROUTER + 2 * 64);
    drop(p);
}

static void plan_report__float32_model__computes_with_masters(void **state)
{
    (void)state;
    planned *p = plan_small(2, WORDS("model.torch_dtype=float32", "low_precision.enabled=false"));
    const oct_plan_bytes *bytes = &p->report.bytes;
    assert_int_equal(bytes->high_precision, 0);
    assert_int_equal(bytes->low_precision, 0);
    assert_int_equal(bytes->panels, 0);
    assert_int_equal(bytes->unsharded, 4 * (LOW_1 + NORMS + ROUTER + HEAD));
    drop(p);
}

/* Rank 0 owns the least and receives the most. 6 samples in micro-batches of one: three a rank. */
static void plan_report__two_ranks__traffic_of_the_busiest(void **state)
{
    (void)state;
    const int64_t low = mx(LOW_0 + LOW_1) + 2 * ODD - mx(LOW_OF_0);
    const int64_t one_direction = (LOW_0 + LOW_1 - LOW_OF_0) / 32 * 33;
    /* Embedding and head travel once, the rest for each pass. */
    const int64_t layers = 2 * 2 * NORMS + 4 * ROUTER;
    const int64_t high = 2 * HIGH_OF_1 + 4 * ROUTER;
    planned *p = plan_small(2, NULL);
    const oct_plan_report *report = &p->report;
    assert_int_equal(report->reduce_scatter_bytes, 3 * 4 * OF_1);
    assert_int_equal(report->all_gather_bytes, 3 * (one_direction + high + low + layers));
    drop(p);

    p = plan_small(2, WORDS("fsdp_config.narrow_backward_gather=true"));
    assert_int_equal(report->all_gather_bytes, 3 * (low + high + layers));
    drop(p);

    p = plan_small(2, WORDS("fsdp_config.reshard_after_forward=false",
                            "training.reduce_dtype=bfloat16", "training.global_batch_size=2"));
    assert_int_equal(report->reduce_scatter_bytes, 2 * OF_1);
    assert_int_equal(report->all_gather_bytes, low + high);
    drop(p);

    /* A byte an element for both directions; scales of dense weights are everywhere, those of
     * experts go with them. */
    p = plan_small(2, WORDS("low_precision.format=hif8", "low_precision.scaling=current"));
    const int64_t hif8 = LOW_0 + LOW_1 - LOW_OF_0 + 2 * 2 * 4;
    assert_int_equal(report->all_gather_bytes, 3 * (2 * hif8 + high + layers));
    assert_int_equal(report->bytes.low_precision, LOW_OF_1 + 4 * (14 + 2 * 2));
    drop(p);
}

/* Heights just above 64 leave rank 1 a row or two, so that it sends the most: what rank 0 owns. */
static void plan_report__short_last_tiles__last_rank_is_the_busiest(void **state)
{
    (void)state;
    const int64_t attention = (64 + 64) * 128 + (64 + 64) * 64, norms = 2 * 64;
    const int64_t mlp = 2 * 64 * 128 + 64 * 65, experts = 2 * 130 * 128 + 2 * 128 * 65;
    const int64_t of_0 = 2 * 128 * 128 + 64 + 2 * (attention + norms + mlp) + experts;
    planned *p = plan_small(2, WORDS("model.config_overrides.hidden_size=128",
                                     "model.config_overrides.intermediate_size=65",
                                     "model.config_overrides.moe_intermediate_size=65",
                                     "low_precision.enabled=false"));
    assert_int_equal(p->report.bytes.master, 4 * of_0);
    assert_int_equal(p->report.reduce_scatter_bytes, 3 * 4 * of_0);
    assert_int_equal(p->report.all_gather_bytes, 3 * 2 * (2 * of_0 - 2 * 128 * 128 - 64));
    drop(p);
}

/* A replicated parameter is not gathered; its gradient is shared out, and its sum comes back. */
static void plan_report__replicated__whole_on_each_rank_and_only_gradients_travel(void **state)
{
    (void)state;
    const int64_t kept = REPLICATED_0 + REPLICATED_1, cut = LOW_0 + LOW_1 - kept;
    const int64_t high = EMBEDDING + 2 * NORMS + HEAD, layers = 2 * 2 * NORMS + 4 * ROUTER;
    planned *p =
        plan_small(2, WORDS("fsdp_config.shard=even", "fsdp_config.fallback_to_unsharded=true"));
    const oct_plan_report *report = &p->report;
    assert_int_equal(replicated_count(p), 8);
    assert_int_equal(report->bytes.master, 4 * ((TOTAL - kept) / 2 + kept));
    assert_int_equal(report->bytes.low_precision, mx(cut) / 2 + mx(kept) + 2 * ODD);
    assert_int_equal(report->bytes.unsharded,
                     mx(LOW_1 - REPLICATED_1) + 2 * NORMS + 4 * ROUTER + 2 * HEAD);
    assert_int_equal(report->bytes.panels, 0);
    assert_int_equal(report->reduce_scatter_bytes, 3 * 4 * TOTAL / 2);
    assert_int_equal(report->all_gather_bytes,
                     3 * (mx(cut) + cut / 32 * 33 + 2 * high + 4 * ROUTER + layers) / 2 +
                         4 * kept / 2);
    drop(p);
}

/* With a vocabulary that makes the head the place of the most, a second micro-batch needs the
 * head's gradient beside the sum; recomputing keeps one layer instead of two. */
static void plan_report__accumulation_and_recompute__change_the_activations(void **state)
{
    (void)state;
    const char *const large = "model.config_overrides.vocab_size=8192";
    planned *p = plan_small(1, WORDS(large, "training.global_batch_size=1"));
    const oct_plan_bytes *bytes = &p->report.bytes;
    const int64_t once = bytes->activations;
    drop(p);
    p = plan_small(1, WORDS(large, "training.global_batch_size=2"));
    assert_int_equal(bytes->activations, once + 4 * 8192 * 64);
    drop(p);
    /* Several ranks have the stage, which is FP32 or half of that. */
    p = plan_small(2, WORDS(large, "training.global_batch_size=4"));
    assert_int_equal(bytes->activations, once);
    drop(p);
    p = plan_small(2, WORDS(large, "training.reduce_dtype=bfloat16"));
    assert_int_equal(bytes->activations, once + 4 * 8192 * 64);
    drop(p);
    p = plan_small(1, WORDS(large, "training.global_batch_size=1",
                            "gradient_checkpointing.activation_checkpoint=full"));
    assert_true(bytes->activations < once);
    drop(p);
}

/* A head that a rule replaces has its logits at once, and HiF8 one operand for both directions;
 * test_activation_size.c holds the formula against the arenas. */
static void plan_report__replaced_head__its_logits_are_counted(void **state)
{
    (void)state;
    const char *const large = "model.config_overrides.vocab_size=8192";
    for (int hif8 = 0; hif8 < 2; hif8++) {
        const char *const *words =
            hif8 ? WORDS(large, "low_precision.format=hif8", "low_precision.scaling=current")
                 : WORDS(large, "low_precision.format=mxfp8_e4m3");
        planned *p = plan_file("head.yaml", 1, words, hif8 ? 3 : 2);
        assert_made(p);
        oct_dsv3_pass_shape pass = {.batch = 1,
                                    .seq = 64,
                                    .act_dtype = OCT_DTYPE_BF16,
                                    .low_precision = true,
                                    .low_precision_head = true,
                                    .orientations_share = hif8,
                                    .accumulates = true,
                                    .threads = 1};
        const int64_t right = oct_dsv3_activation_bytes(&p->build.hf, &pass);
        assert_int_equal(p->report.bytes.activations, right);
        pass.low_precision_head = false;
        assert_int_not_equal(oct_dsv3_activation_bytes(&p->build.hf, &pass), right);
        pass.low_precision_head = true;
        pass.orientations_share = !hif8;
        assert_int_not_equal(oct_dsv3_activation_bytes(&p->build.hf, &pass), right);
        drop(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_report__frozen_16b__counts_parameters_and_hits),
        cmocka_unit_test(plan_report__tile_on_8_ranks__legal_and_complete),
        cmocka_unit_test(plan_report__one_rank__bytes_are_those_of_the_formulas),
        cmocka_unit_test(plan_report__even_on_8_ranks__names_the_first_illegal_weight),
        cmocka_unit_test(plan_report__even_with_fallback__replicates_84_weights),
        cmocka_unit_test(plan_report__two_ranks__bytes_of_the_largest),
        cmocka_unit_test(plan_report__large_vocabulary__units_are_all_looked_at),
        cmocka_unit_test(plan_report__float32_model__computes_with_masters),
        cmocka_unit_test(plan_report__two_ranks__traffic_of_the_busiest),
        cmocka_unit_test(plan_report__short_last_tiles__last_rank_is_the_busiest),
        cmocka_unit_test(plan_report__replicated__whole_on_each_rank_and_only_gradients_travel),
        cmocka_unit_test(plan_report__accumulation_and_recompute__change_the_activations),
        cmocka_unit_test(plan_report__replaced_head__its_logits_are_counted),
        cmocka_unit_test(plan_report__frozen_16b__takes_no_time_and_no_memory),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
