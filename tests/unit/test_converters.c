/* The converters of torchtitan jobs over real models: what their strings hit, the rules that
 * follow, the names of modules, and the lines of the log. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "model/deepseek_v3/torchtitan_names.h"
#include "trainer/converters.h"
#include "trainer/plan_report.h"
#include "unit/temp_dir.h"

#define FIXTURES OCTET_SOURCE_DIR "/tests/unit/fixtures/"

static oct_arena arena;
static oct_err err;
static oct_config config;
static temp_dir dir;
static char notes[8192];

static int setup(void **state)
{
    (void)state;
    oct_arena_init(&arena, "test");
    err = (oct_err){0};
    dir = temp_dir_create();
    (void)temp_dir_write(
        &dir, "base.toml",
        "[model]\nhf_config = '" OCTET_SOURCE_DIR "/configs/models/deepseek_v3_16b'\n"
        "[training]\ndataset_path = 'd'\n[octet.model]\nexpect = 'deepseek_v3_16b'\n");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    oct_arena_release(&arena);
    temp_dir_remove(&dir);
    return 0;
}

static void take_note(void *arg, const char *line)
{
    (void)arg;
    (void)strncat(notes, line, sizeof notes - strlen(notes) - 1);
    (void)strncat(notes, "\n", sizeof notes - strlen(notes) - 1);
}

/* The 16B with `file` over it, and up to three words. */
static oct_status expand(const char *file, const char *const *words)
{
    const char *files[2] = {temp_dir_name(&dir, "base.toml"), file};
    int word_count = 0;
    while (words && word_count < 3 && words[word_count])
        word_count++;
    err = (oct_err){0};
    notes[0] = '\0';
    if (oct_config_load(files, 2, words, word_count, &arena, NULL, NULL, &config, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    return oct_converters_expand(&config, &arena, take_note, NULL, &err);
}

static void expands(const char *file, const char *const *words)
{
    if (expand(file, words) != OCT_OK)
        fail_msg("%s", err.msg);
    assert_true(config.torchtitan->expanded);
}

static void refuses(const char *word, const char *message)
{
    static const char file[] = FIXTURES "guide_linear_and_experts.toml";
    const oct_status status = expand(file, (const char *[3]){word});
    if (status != OCT_E_CONFIG || !strstr(err.msg, message))
        fail_msg("got:  %s\nwant: %s\nin: %s", err.msg, message, word);
    assert_int_equal(config.plan_override_count, 0);
    assert_false(config.low_precision.enabled);
}

/* What the compiled plan replaces: Linear and experts. */
static void replaces(int64_t linear, int64_t experts)
{
    oct_build build;
    oct_plan_report report;
    if (oct_config_resolve(&config, 1, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    oct_build_init(&build, &config, NULL);
    if (oct_build_through(&build, OCT_STAGE_PLAN, &err) != OCT_OK ||
        oct_plan_report_make(&build, 1, &report, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(report.replaced_linear, linear);
    assert_int_equal(report.replaced_experts, experts);
    oct_build_release(&build);
}

/* --- Rules --- */

static void same_list(const oct_string_list *a, const oct_string_list *b)
{
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++)
        assert_string_equal(a->items[i], b->items[i]);
}

static void converters__second_example__the_rules_of_base_yaml(void **state)
{
    (void)state;
    const char *yaml = OCTET_SOURCE_DIR "/configs/base.yaml";
    oct_config twin;
    expands(FIXTURES "guide_linear_and_experts.toml", NULL);
    assert_string_equal(notes, "");
    assert_int_equal(oct_config_load(&yaml, 1, NULL, 0, &arena, NULL, NULL, &twin, &err), OCT_OK);
    assert_int_equal(config.plan_override_count, twin.plan_override_count);
    for (int64_t r = 0; r < twin.plan_override_count; r++) {
        same_list(&config.plan_overrides[r].match, &twin.plan_overrides[r].match);
        assert_string_equal(config.plan_overrides[r].module_type,
                            twin.plan_overrides[r].module_type);
        assert_string_equal(config.plan_overrides[r].target, twin.plan_overrides[r].target);
        assert_string_equal(config.plan_overrides[r].when, twin.plan_overrides[r].when);
        assert_true(config.plan_overrides[r].exact_type);
    }
    assert_true(config.low_precision.enabled);
    replaces(196, 27);
    /* Once is enough. */
    assert_int_equal(oct_converters_expand(&config, &arena, take_note, NULL, &err), OCT_OK);
    assert_int_equal(config.plan_override_count, 3);
}

static void converters__first_example__no_experts(void **state)
{
    (void)state;
    expands(FIXTURES "guide_linear.toml", NULL);
    assert_int_equal(config.plan_override_count, 2);
    replaces(196, 0);
}

/* K18: the head is taken out by `output`, the router is no Linear here, and [] takes the head too.
 */
static void converters__filters__hits_of_the_16b(void **state)
{
    (void)state;
    static const struct {
        const char *filter;
        int64_t linear;
        bool warned;
    } rows[] = {
        {"output,router.gate", 196, false},
        {"output", 196, false},
        {"lm_head", 196, false},
        {"", 197, true},
        {"router.gate", 197, true},
        {"output,attention.wq", 168, false},
        {"output,self_attn.q_proj", 168, false},
        {"output,wq_a", 196, false}, /* of models with a low-rank query */
        {"output,feed_forward", 193, false},
        {"output,shared_experts", 115, false},
        {"output,layers.27.", 189, false},
        {"output,layers.2", 133, false}, /* and 20 to 27 */
        {"output,attention,feed_forward.w2,moe.shared_experts.w3", 56, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char word[256];
        (void)snprintf(word, sizeof word, "quantize.linear.mx.filter_fqns=%s", rows[i].filter);
        expands(FIXTURES "guide_linear.toml", (const char *[3]){word});
        if (rows[i].warned !=
            (strstr(notes, "warning: quantize.linear.mx converts the head") != NULL))
            fail_msg("%s: %s", word, notes);
        replaces(rows[i].linear, 0);
    }
}

static void converters__fqns__containers_of_experts(void **state)
{
    (void)state;
    static const struct {
        const char *fqns;
        int64_t experts;
    } rows[] = {
        {"experts", 27},  {"moe.experts", 27}, {"mlp.experts", 27},
        {"layers.5.", 1}, {"layers.1", 11},    {"layers.3.,layers.4.,attention", 2},
        {"layers", 27},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char word[256];
        (void)snprintf(word, sizeof word, "quantize.grouped_mm.mx.fqns=%s", rows[i].fqns);
        expands(FIXTURES "guide_linear_and_experts.toml", (const char *[3]){word});
        replaces(196, rows[i].experts);
    }
    expands(FIXTURES "guide_linear_and_experts.toml",
            (const char *[3]){"model.converters=npu_gmm,quantize.grouped_mm.mx"});
    replaces(0, 27);
    expands(FIXTURES "guide_linear_and_experts.toml",
            (const char *[3]){"model.converters=npu_gmm"});
    assert_false(config.low_precision.enabled);
    replaces(0, 0);
}

/* FR-40, B6: an entry that nothing could carry, and a converter that reaches nothing. */
static void converters__no_match__refused_with_the_nearest_names(void **state)
{
    (void)state;
    refuses(
        "quantize.linear.mx.filter_fqns=Output",
        "entry 'Output' of quantize.linear.mx.filter_fqns matches 0 modules, a part of a name is "
        "required, upper and lower case as they are; the nearest are 'output', ");
    refuses("quantize.linear.mx.filter_fqns=output,lm_hed", "the nearest are 'lm_head', ");
    refuses("quantize.linear.mx.filter_fqns=output,router.gat_", "'layers.*.moe.router.gate'");
    refuses(
        "quantize.linear.mx.filter_fqns=output,layers.28.",
        "entry 'layers.28.' of quantize.linear.mx.filter_fqns matches 0 modules, a layer from 0 to "
        "27 is required (");
    refuses("quantize.linear.mx.filter_fqns=output,,wq",
            "wrong entry of quantize.linear.mx.filter_fqns");
    refuses("quantize.linear.mx.filter_fqns=layers,output", "no linear layer is left to convert");
    refuses("quantize.grouped_mm.mx.fqns=expertz",
            "entry 'expertz' of quantize.grouped_mm.mx.fqns matches 0 modules");
    refuses("quantize.grouped_mm.mx.fqns=Experts", "the nearest are 'layers.*.moe.experts', ");
    refuses("quantize.grouped_mm.mx.fqns=",
            "no MoE expert module matches fqns []: 0 of 27, at least 1 is required");
    refuses("quantize.grouped_mm.mx.fqns=attention,shared_experts",
            "no MoE expert module matches fqns ['attention', 'shared_experts']: 0 of 27");
    refuses("quantize.grouped_mm.mx.fqns=layers.0.",
            "no MoE expert module matches fqns ['layers.0.']");
    assert_int_equal(
        expand(FIXTURES "guide_linear_and_experts.toml",
               (const char *[3]){"octet.model.expect=none",
                                 "octet.model.config_overrides.tie_word_embeddings=true",
                                 "quantize.linear.mx.filter_fqns="}),
        OCT_E_CONFIG);
    assert_non_null(strstr(err.msg,
                           "cannot convert the head 'output': its weight is that of "
                           "tok_embeddings, \"output\" in quantize.linear.mx.filter_fqns"));
}

/* A partly converted group is its modules by name. */
static void converters__part_of_a_group__modules_by_name(void **state)
{
    (void)state;
    expands(FIXTURES "guide_linear_and_experts.toml",
            (const char *[3]){"quantize.linear.mx.filter_fqns=output,layers.0.feed_forward.w2",
                              "quantize.grouped_mm.mx.fqns=layers.26.,layers.27."});
    assert_int_equal(config.plan_override_count, 3);
    const oct_string_list *ffn = &config.plan_overrides[1].match;
    assert_int_equal(ffn->count, 3);
    assert_string_equal(ffn->items[0], "model.layers.0.mlp.gate_proj");
    assert_string_equal(ffn->items[1], "model.layers.0.mlp.up_proj");
    assert_string_equal(ffn->items[2], "model.layers.*.mlp.shared_experts.*_proj");
    assert_string_equal(config.plan_overrides[2].match.items[0], "model.layers.26.mlp.experts");
    assert_int_equal(config.plan_overrides[2].match.count, 2);
    replaces(195, 2);
}

static void converters__not_expanded__build_refuses(void **state)
{
    (void)state;
    oct_build build;
    const char *files[2] = {temp_dir_name(&dir, "base.toml"), FIXTURES "guide_linear.toml"};
    assert_int_equal(oct_config_load(files, 2, NULL, 0, &arena, NULL, NULL, &config, &err), OCT_OK);
    oct_build_init(&build, &config, NULL);
    assert_int_equal(oct_build_stage(&build, OCT_STAGE_POLICY, &err), OCT_E_API);
    assert_non_null(strstr(err.msg, "oct_converters_expand is required"));
    oct_build_release(&build);
}

/* --- Names --- */

static oct_status check_name(void *arg, const char *fqn, oct_module **slot, oct_err *e)
{
    (void)e;
    char name[OCT_DSV3_NAME], back[OCT_DSV3_NAME];
    const bool computes = (*slot)->param_count > 0;
    const bool named = oct_dsv3_torchtitan_name(fqn, name);
    if (named != computes)
        fail_msg("%s has %s name", fqn, named ? "a" : "no");
    if (!named)
        return OCT_OK;
    assert_true(oct_dsv3_hf_name(name, back));
    assert_string_equal(back, fqn);
    ++*(int64_t *)arg;
    return OCT_OK;
}

static void torchtitan_names__every_module__there_and_back(void **state)
{
    (void)state;
    oct_build build;
    int64_t named = 0;
    expands(FIXTURES "guide_linear.toml", NULL);
    assert_int_equal(oct_config_resolve(&config, 1, &err), OCT_OK);
    oct_build_init(&build, &config, NULL);
    assert_int_equal(oct_build_through(&build, OCT_STAGE_META, &err), OCT_OK);
    assert_int_equal(oct_module_walk(&build.tree, check_name, &named, &err), OCT_OK);
    /* 28 layers of 4 projections and 3 norms, one of 3 and 27 of 5 below, and 3 more. */
    assert_int_equal(named, 28 * 7 + 3 + 27 * 5 + 3);
    oct_build_release(&build);
    static const char *const pairs[][2] = {
        {"tok_embeddings", "model.embed_tokens"},
        {"tok_embeddings.weight", "model.embed_tokens.weight"},
        {"output.weight", "lm_head.weight"},
        {"layers.12.attention.wq_a", "model.layers.12.self_attn.q_a_proj"},
        {"layers.12.attention.wq_b", "model.layers.12.self_attn.q_b_proj"},
        {"layers.0.attention.q_norm", "model.layers.0.self_attn.q_a_layernorm"},
        {"layers.0.attention.wkv_a", "model.layers.0.self_attn.kv_a_proj_with_mqa"},
        {"layers.3.moe.router.gate.weight", "model.layers.3.mlp.gate.weight"},
        {"layers.3.moe.expert_bias", "model.layers.3.mlp.gate.e_score_correction_bias"},
        {"layers.0.feed_forward.w1", "model.layers.0.mlp.gate_proj"},
        {"layers.0.feed_forward.w3", "model.layers.0.mlp.up_proj"},
        {"layers.0.feed_forward.w2", "model.layers.0.mlp.down_proj"},
    };
    char name[OCT_DSV3_NAME];
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        assert_true(oct_dsv3_hf_name(pairs[i][0], name));
        assert_string_equal(name, pairs[i][1]);
        assert_true(oct_dsv3_torchtitan_name(pairs[i][1], name));
        assert_string_equal(name, pairs[i][0]);
    }
    static const char *const nothing[] = {"",
                                          "layers",
                                          "layers.x.attention.wq",
                                          "layers..attention.wq",
                                          "layers.1.attention.wqx",
                                          "outputs",
                                          "output.bias"};
    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++)
        assert_false(oct_dsv3_hf_name(nothing[i], name));
}

/* --- The log --- */

/* The lines of a job over the tiny model, its replacements installed. */
static void tell(const char *filter)
{
    oct_build build;
    char word[256];
    (void)snprintf(word, sizeof word, "quantize.linear.mx.filter_fqns=%s", filter);
    expands(FIXTURES "guide_linear_and_experts.toml",
            (const char *[3]){"octet.model.expect=none",
                              "model.hf_config=" OCTET_SOURCE_DIR "/tests/cli/files/config.json",
                              word});
    assert_int_equal(oct_config_resolve(&config, 1, &err), OCT_OK);
    oct_build_init(&build, &config, NULL);
    if (oct_build_through(&build, OCT_STAGE_REPLACE, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    notes[0] = '\0';
    assert_int_equal(oct_converters_tell(&config, &build, take_note, NULL, &err), OCT_OK);
    oct_build_release(&build);
}

static void converters_tell__the_verification_checklist(void **state)
{
    (void)state;
    tell("output,router.gate");
    assert_string_equal(notes,
                        "MX training active with recipe mxfp8\n"
                        "mxfp8 MoE training enabled\n"
                        "[NPU-CONVERTER] Applied 'npu_gmm' : 1 replacements\n"
                        "Swapped to MXLinear_NPU layers\n"
                        "[MXFP8/HiF8 GMM] Replaced 1 NPU GMM methods/functions.\n"
                        "Converted MoE layers matching FQNs ['experts'] to use dynamic mxfp8 "
                        "quantization with scaled grouped GEMMs\n");
    /* K18: one line says that the router is left alone. */
    tell("output");
    assert_non_null(strstr(notes, "Swapped to MXLinear_NPU layers\n"
                                  "router.gate is no Linear here and stays in FP32, "));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(converters__second_example__the_rules_of_base_yaml),
        TEST(converters__first_example__no_experts),
        TEST(converters__filters__hits_of_the_16b),
        TEST(converters__fqns__containers_of_experts),
        TEST(converters__no_match__refused_with_the_nearest_names),
        TEST(converters__part_of_a_group__modules_by_name),
        TEST(converters__not_expanded__build_refuses),
        TEST(torchtitan_names__every_module__there_and_back),
        TEST(converters_tell__the_verification_checklist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
