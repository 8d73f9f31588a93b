/* The dry run of the frozen 16B: hits, shards, sizes, and no weights. */
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
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    temp_dir_remove(&files);
    return 0;
}

static planned *plan(int ranks, const char *const *words, int word_count)
{
    static planned p;
    p = (planned){0};
    oct_arena_init(&p.arena, "test configuration");
    const char *const file = temp_dir_name(&files, "16b.yaml");
    if (oct_config_load(&file, 1, words, word_count, &p.arena, NULL, NULL, &p.config, &p.err) !=
            OCT_OK ||
        oct_config_resolve(&p.config, ranks, &p.err) != OCT_OK)
        fail_msg("%s", p.err.msg);
    oct_build_init(&p.build, &p.config);
    if (oct_build_through(&p.build, OCT_STAGE_PLAN, &p.err) != OCT_OK)
        fail_msg("%s", p.err.msg);
    p.status = oct_plan_report_make(&p.build, ranks, &p.report, &p.err);
    return &p;
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
    assert_int_equal(oct_plan_report_json(&p->build, &p->report, &json, &p->err), OCT_OK);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_report__frozen_16b__counts_parameters_and_hits),
        cmocka_unit_test(plan_report__tile_on_8_ranks__legal_and_complete),
        cmocka_unit_test(plan_report__one_rank__bytes_are_those_of_the_formulas),
        cmocka_unit_test(plan_report__even_on_8_ranks__names_the_first_illegal_weight),
        cmocka_unit_test(plan_report__even_with_fallback__replicates_84_weights),
        cmocka_unit_test(plan_report__frozen_16b__takes_no_time_and_no_memory),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
