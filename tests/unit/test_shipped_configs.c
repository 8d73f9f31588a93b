/* The configurations of configs/: each is read, resolved and planned as it stands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "trainer/converters.h"
#include "trainer/machine.h"
#include "trainer/plan_report.h"

/* Paths in the files are relative to the project. */
static int enter_project(void **state)
{
    (void)state;
    return chdir(OCTET_SOURCE_DIR);
}

typedef struct shipped {
    const char *file;
    int ranks;
    int64_t parameters, low_precision;
    int64_t linear, experts; /* replaced */
    int64_t tokens;          /* of a step */
} shipped;

enum { MILLION = 1 << 20 };

static const shipped configs[] = {
    {"configs/demo.yaml", 1, 0, 0, 0, 0, 8 * 128},
    {"configs/ranks.yaml", 8, 0, 0, 0, 0, 0},
    {"configs/mid.yaml", 1, 0, 0, 0, 0, 4 * 1024},
    {"configs/slice.yaml", 1, 713048064, 0, 0, 0, 4096},
    {"configs/slice-vocab.yaml", 1, 1106264064, 0, 0, 0, 4096},
    {"configs/demo.toml", 1, 0, 0, 0, 0, 8 * 128},
    {"configs/deepseek_v3_16b/bf16.toml", 8, 16585005056, 0, 0, 0, 2 * MILLION},
    {"configs/deepseek_v3_16b/mxfp8.toml", 8, 16585005056, 16161832960, 196, 27, 2 * MILLION},
    {"configs/deepseek_v3_16b/hif8.toml", 8, 16585005056, 16161832960, 196, 27, 2 * MILLION},
    {"configs/deepseek_v3_16b/bf16.yaml", 8, 16585005056, 0, 0, 0, 2 * MILLION},
    {"configs/deepseek_v3_16b/mxfp8.yaml", 8, 16585005056, 16161832960, 196, 27, 2 * MILLION},
    {"configs/deepseek_v3_16b/hif8.yaml", 8, 16585005056, 16161832960, 196, 27, 2 * MILLION},
    {"configs/deepseek_v3_16b_small/bf16.yaml", 8, 0, 0, 0, 0, 8 * 32},
    {"configs/deepseek_v3_16b_small/mxfp8.yaml", 8, 0, 0, 0, 0, 8 * 32},
    {"configs/deepseek_v3_16b_small/hif8.yaml", 8, 0, 0, 0, 0, 8 * 32},
};

static void assert_plans(const shipped *s, const char *const *words, int word_count)
{
    oct_arena arena;
    oct_config config;
    oct_build build;
    oct_plan_report report;
    oct_err err = {0};
    oct_arena_init(&arena, "test configuration");
    if (oct_config_load(&s->file, 1, words, word_count, &arena, NULL, NULL, &config, &err) !=
            OCT_OK ||
        oct_converters_expand(&config, &arena, NULL, NULL, &err) != OCT_OK ||
        oct_config_resolve(&config, s->ranks, &err) != OCT_OK)
        fail_msg("%s: %s", s->file, err.msg);
    oct_build_init(&build, &config, NULL);
    if (oct_build_through(&build, OCT_STAGE_PLAN, &err) != OCT_OK ||
        oct_plan_report_make(&build, s->ranks, &report, &err) != OCT_OK)
        fail_msg("%s: %s", s->file, err.msg);
    if (s->parameters) {
        assert_int_equal(report.parameters_total, s->parameters);
        assert_int_equal(report.parameters_low_precision, s->low_precision);
        assert_int_equal(report.replaced_linear, s->linear);
        assert_int_equal(report.replaced_experts, s->experts);
    }
    if (s->tokens)
        assert_int_equal(config.training.global_batch_size * config.training.seq_length, s->tokens);
    for (int64_t i = 0; i < report.shard_count; i++)
        assert_false(report.shards[i].replicated);
    oct_build_release(&build);
    oct_arena_release(&arena);
}

static void plan__shipped_configs__parameters_hits_and_tokens(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++)
        assert_plans(&configs[i], NULL, 0);
}

/* A job and its twin in the other dialect. */
static const struct {
    const char *toml, *yaml, *word; /* word: over the YAML file, or NULL */
    int ranks;
    bool same_rules; /* without converters a TOML job has no rules that wait for a format */
} twins[] = {
    {"configs/demo.toml", "configs/demo.yaml", "low_precision.enabled=true", 1, true},
    {"configs/deepseek_v3_16b/mxfp8.toml", "configs/deepseek_v3_16b/mxfp8.yaml", NULL, 8, true},
    {"configs/deepseek_v3_16b/hif8.toml", "configs/deepseek_v3_16b/hif8.yaml", NULL, 8, true},
    {"configs/deepseek_v3_16b/bf16.toml", "configs/deepseek_v3_16b/bf16.yaml", NULL, 8, false},
};

/* The resolved configuration as text, and the plan as JSON. */
static void describe(const char *file, const char *word, int ranks, oct_arena *arena, char **text,
                     oct_json *json)
{
    oct_config config;
    oct_build build;
    oct_plan_report report;
    oct_err err = {0};
    oct_json_init(json);
    if (oct_config_load(&file, 1, &word, word != NULL, arena, NULL, NULL, &config, &err) !=
            OCT_OK ||
        oct_converters_expand(&config, arena, NULL, NULL, &err) != OCT_OK ||
        oct_config_resolve(&config, ranks, &err) != OCT_OK ||
        oct_config_print(&config, arena, text, &err) != OCT_OK)
        fail_msg("%s: %s", file, err.msg);
    oct_build_init(&build, &config, NULL);
    if (oct_build_through(&build, OCT_STAGE_PLAN, &err) != OCT_OK ||
        oct_plan_report_make(&build, ranks, &report, &err) != OCT_OK ||
        oct_plan_report_json(&build, &report, NULL, json, &err) != OCT_OK)
        fail_msg("%s: %s", file, err.msg);
    oct_build_release(&build);
}

static void twins__both_dialects__same_config_and_plan(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof twins / sizeof twins[0]; i++) {
        oct_arena arena;
        oct_json plans[2];
        char *texts[2];
        oct_arena_init(&arena, "test configuration");
        describe(twins[i].toml, NULL, twins[i].ranks, &arena, &texts[0], &plans[0]);
        describe(twins[i].yaml, twins[i].word, twins[i].ranks, &arena, &texts[1], &plans[1]);
        if (twins[i].same_rules)
            assert_string_equal(texts[0], texts[1]);
        assert_string_equal(plans[0].text, plans[1].text);
        oct_json_release(&plans[0]);
        oct_json_release(&plans[1]);
        oct_arena_release(&arena);
    }
}

/* As measured in docs/scaling.md: one rank, the true vocabulary, at most 22 GiB in all formats. */
static void plan__slice_with_true_vocabulary__fits_22_gib(void **state)
{
    (void)state;
    static const char *const words[3][4] = {
        {"training.threads=1", "low_precision.enabled=false"},
        {"training.threads=1", "low_precision.enabled=true"},
        {"training.threads=1", "low_precision.enabled=true", "low_precision.format=hif8",
         "low_precision.scaling=current"},
    };
    static const int counts[3] = {2, 2, 4};
    static const char *const file = "configs/slice-vocab.yaml";
    for (int f = 0; f < 3; f++) {
        oct_arena arena;
        oct_config config;
        oct_build build;
        oct_plan_report report;
        oct_err err = {0};
        oct_arena_init(&arena, "test configuration");
        oct_build_init(&build, &config, NULL);
        if (oct_config_load(&file, 1, words[f], counts[f], &arena, NULL, NULL, &config, &err) !=
                OCT_OK ||
            oct_config_resolve(&config, 1, &err) != OCT_OK ||
            oct_build_through(&build, OCT_STAGE_PLAN, &err) != OCT_OK ||
            oct_plan_report_make(&build, 1, &report, &err) != OCT_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(report.parameters_low_precision, f ? 686686208 : 0);
        assert_in_range(report.bytes.peak, INT64_C(16) * 1106264064, INT64_C(22) << 30);
        oct_build_release(&build);
        oct_arena_release(&arena);
    }
}

/* The 16B as the design document writes it, chapters 4.1 and 4.3, and its small twin: which keys,
 * which patterns in which order, and how many modules of 28 (3) layers each pattern hits. Planning
 * them takes the memory of names and shapes, and gives no parameter a value. */
static void plan__16b_and_twin__keys_and_hits_of_the_design_document(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        int64_t hits, hits_of_twin;
    } wanted[] = {
        {"model.layers.*.self_attn.q_proj", 28, 3},
        {"model.layers.*.self_attn.kv_a_proj_with_mqa", 28, 3},
        {"model.layers.*.self_attn.kv_b_proj", 28, 3},
        {"model.layers.*.self_attn.o_proj", 28, 3},
        {"model.layers.0.mlp.*_proj", 3, 3},
        {"model.layers.*.mlp.shared_experts.*_proj", 81, 6},
        {"model.layers.*.mlp.experts", 27, 2},
    };
    static const char *const folders[] = {"deepseek_v3_16b", "deepseek_v3_16b_small"};
    static const char *const formats[] = {"bf16", "mxfp8", "hif8"};
    for (int i = 0; i < 6; i++) {
        char path[128];
        const bool twin = i >= 3, low = i % 3 != 0;
        (void)snprintf(path, sizeof path, "configs/%s/%s.yaml", folders[twin], formats[i % 3]);
        const char *file = path;
        oct_arena arena;
        oct_config config;
        oct_build build;
        oct_plan_report report;
        oct_err err = {0};
        oct_arena_init(&arena, "test configuration");
        oct_build_init(&build, &config, NULL);
        if (oct_config_load(&file, 1, NULL, 0, &arena, NULL, NULL, &config, &err) != OCT_OK ||
            oct_config_resolve(&config, 8, &err) != OCT_OK ||
            oct_build_through(&build, OCT_STAGE_PLAN, &err) != OCT_OK ||
            oct_plan_report_make(&build, 8, &report, &err) != OCT_OK)
            fail_msg("%s: %s", file, err.msg);
        assert_int_equal(config.fsdp.dp_shard_size, twin ? -1 : 8);
        assert_true(config.fsdp.reshard_after_forward && !config.fsdp.comm_fusion);
        assert_false(config.fsdp.fallback_to_unsharded);
        assert_string_equal(config.fsdp.shard, "tile");
        assert_string_equal(config.model.torch_dtype, "bfloat16");
        assert_true(config.activation_checkpoint.full);
        assert_string_equal(config.model.expect, twin ? "none" : "deepseek_v3_16b");
        assert_int_equal(config.low_precision.enabled, low);
        if (low) {
            size_t at = 0;
            assert_int_equal(oct_plan_rule_count(build.plan), 3);
            for (int64_t r = 0; r < 3; r++)
                for (int64_t p = 0; p < oct_plan_rule_at(build.plan, r)->pattern_count; p++, at++) {
                    assert_string_equal(oct_plan_rule_at(build.plan, r)->patterns[p],
                                        wanted[at].pattern);
                    assert_int_equal(oct_plan_hits(build.plan, r, p),
                                     twin ? wanted[at].hits_of_twin : wanted[at].hits);
                }
            assert_int_equal(at, sizeof wanted / sizeof wanted[0]);
        }
        assert_true(build.ledger.peak_bytes_all < 16 * MILLION);
        for (int64_t p = 0; p < build.tree.param_count; p++)
            assert_true(!build.tree.params[p]->init && !build.tree.params[p]->value.data);
        oct_build_release(&build);
        oct_arena_release(&arena);
    }
}

static void machine_read__shipped_machines__are_complete(void **state)
{
    (void)state;
    static const char *const shipped_machines[] = {"configs/machines/epyc-zen5.yaml",
                                                   "configs/machines/epyc-zen5-cluster.yaml"};
    for (size_t i = 0; i < sizeof shipped_machines / sizeof shipped_machines[0]; i++) {
        oct_arena arena;
        oct_machine machine;
        oct_err err = {0};
        oct_arena_init(&arena, "test machine");
        if (oct_machine_read(shipped_machines[i], &arena, &machine, &err) != OCT_OK)
            fail_msg("%s", err.msg);
        assert_true(machine.products.of[1] > machine.products.of[0]);
        oct_arena_release(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan__shipped_configs__parameters_hits_and_tokens),
        cmocka_unit_test(twins__both_dialects__same_config_and_plan),
        cmocka_unit_test(plan__16b_and_twin__keys_and_hits_of_the_design_document),
        cmocka_unit_test(plan__slice_with_true_vocabulary__fits_22_gib),
        cmocka_unit_test(machine_read__shipped_machines__are_complete),
    };
    return cmocka_run_group_tests(tests, enter_project, NULL);
}
