/* Replacement plans on trees that are built here, on meta. Factories of the tests record their
 * calls; the real ones are tested with their modules. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "low_precision/config.h"
#include "low_precision/hif8/hif8.h"
#include "low_precision/modules/linear.h"
#include "model/deepseek_v3/deepseek_v3.h"
#include "model/deepseek_v3/low_precision_experts.h"
#include "module/linear.h"
#include "plan/plan.h"

static const oct_module_type plain = {.name = "torch.nn.Module"};
static const oct_module_type norm = {.name = "DeepseekV3RMSNorm"};
static const oct_module_type lora_linear = {.name = "peft.LoraLinear", .base = &oct_linear_type};
static const oct_module_type wrapper = {.name = "custom.Wrapper"};
static const oct_module_type experts = {.name = "DeepseekV3Experts"};
static const oct_module_type replaced_type = {.name = "Replaced", .base = &oct_linear_type};

/* --- a tree ---------------------------------------------------------------------------------- */

typedef struct forest {
    oct_module_tree tree;
    oct_arena arena;
    oct_err err;
    oct_module *model;
} forest;

#define must(f, call)                                                                              \
    do {                                                                                           \
        if ((call) != OCT_OK)                                                                      \
            fail_msg("%s", (f)->err.msg);                                                          \
    } while (0)

static oct_module *add(forest *f, oct_module *parent, const char *name, const oct_module_type *type,
                       int children)
{
    oct_module *m = NULL;
    must(f, oct_module_add(&f->tree, parent, name, type, children, &m, &f->err));
    return m;
}

static oct_module *add_linear(forest *f, oct_module *parent, const char *name)
{
    oct_module *m = NULL;
    must(f, oct_linear_add(&f->tree, parent, name, 8, 4, false, &m, &f->err));
    return m;
}

static void add_mlp(forest *f, oct_module *parent, const char *name)
{
    oct_module *mlp = add(f, parent, name, &plain, 3);
    add_linear(f, mlp, "gate_proj");
    add_linear(f, mlp, "up_proj");
    add_linear(f, mlp, "down_proj");
}

/* The module tree of the frozen 16B, shapes apart. */
static void add_layer(forest *f, oct_module *layers, int i)
{
    char name[16];
    snprintf(name, sizeof name, "%d", i);
    oct_module *layer = add(f, layers, name, &plain, 4);
    oct_module *attn = add(f, layer, "self_attn", &plain, 5);
    add_linear(f, attn, "q_proj");
    add_linear(f, attn, "kv_a_proj_with_mqa");
    add(f, attn, "kv_a_layernorm", &norm, 0);
    add_linear(f, attn, "kv_b_proj");
    add_linear(f, attn, "o_proj");
    if (i == 0) {
        add_mlp(f, layer, "mlp");
    } else {
        oct_module *mlp = add(f, layer, "mlp", &plain, 3);
        oct_param *param = NULL;
        oct_module *container = add(f, mlp, "experts", &experts, 0);
        must(f, oct_module_add_param(&f->tree, container, "gate_up_proj", 3, (int64_t[]){2, 8, 8},
                                     &param, &f->err));
        must(f, oct_module_add_param(&f->tree, container, "down_proj", 3, (int64_t[]){2, 8, 4},
                                     &param, &f->err));
        add(f, mlp, "gate", &plain, 0);
        add_mlp(f, mlp, "shared_experts");
    }
    add(f, layer, "input_layernorm", &norm, 0);
    add(f, layer, "post_attention_layernorm", &norm, 0);
}

static forest *forest_new(int layer_count)
{
    forest *f = calloc(1, sizeof *f);
    assert_non_null(f);
    oct_module_tree_init(&f->tree);
    oct_arena_init(&f->arena, "plan");
    oct_module *root = add(f, NULL, "", &plain, 3);
    f->model = add(f, root, "model", &plain, 4);
    add(f, f->model, "embed_tokens", &plain, 0);
    oct_module *layers = add(f, f->model, "layers", &plain, layer_count);
    for (int i = 0; i < layer_count; i++)
        add_layer(f, layers, i);
    add(f, f->model, "norm", &norm, 0);
    add_linear(f, root, "lm_head");
    return f;
}

static void forest_free(forest *f)
{
    oct_module_tree_release(&f->tree);
    oct_arena_release(&f->arena);
    free(f);
}

/* --- factories ------------------------------------------------------------------------------- */

static int builds, fail_at; /* fail_at: number of the build that fails, 0: none */

static oct_status copy_module(oct_module_tree *tree, const oct_module *source, oct_module **out,
                              oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_alloc(&tree->arena, sizeof **out, &memory, err));
    *out = memory;
    **out = *source;
    (*out)->type = &replaced_type;
    return OCT_OK;
}

static oct_status build_good(oct_module_tree *tree, const oct_module *source, const char *fqn,
                             const void *context, oct_module **out, oct_err *err)
{
    (void)context;
    if (++builds == fail_at)
        return OCT_FAIL(err, OCT_E_KERNEL, "factory failed on '%s'", fqn);
    return copy_module(tree, source, out, err);
}

/* Breaks one part of the contract, chosen by context. */
static oct_status build_bad(oct_module_tree *tree, const oct_module *source, const char *fqn,
                            const void *context, oct_module **out, oct_err *err)
{
    static oct_param other;
    static oct_buffer buffer;
    static char name[] = "renamed";
    const char *what = context;
    (void)fqn;
    OCT_TRY(copy_module(tree, source, out, err));
    if (strcmp(what, "FQN") == 0)
        (*out)->fqn = name;
    else if (strcmp(what, "parameter identity") == 0)
        (*out)->params[0] = &other;
    else if (strcmp(what, "parameter name") == 0)
        (*out)->param_names[0] = "kernel";
    else if (strcmp(what, "number of parameters") == 0)
        (*out)->param_count = 0;
    else if (strcmp(what, "training flag") == 0)
        (*out)->training = false;
    else if (strcmp(what, "buffer identity") == 0)
        (*out)->buffer = &buffer;
    else if (strcmp(what, "requires_grad") == 0)
        (*out)->params[0]->requires_grad = false;
    else if (strcmp(what, "parameter shape") == 0)
        (*out)->params[0]->shape[0]++;
    return OCT_OK;
}

static const oct_plan_factory factories[] = {
    {.target = "octet.replace_linear", .build = build_good},
    {.target = "octet.replace_experts", .build = build_good},
    {.target = "octet.break_contract", .build = build_bad},
};
static const oct_module_type *const types[] = {&oct_linear_type, &experts, &norm, &plain};
static const oct_plan_registry registry = {
    .factory_count = 3, .factories = factories, .type_count = 4, .types = types};

#define RULE(type, ...)                                                                            \
    {                                                                                              \
        .pattern_count = sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),                   \
        .patterns = (const char *const[]){__VA_ARGS__}, .module_type = (type), .exact_type = true, \
        .target = "octet.replace_linear", .where = "run.yaml:7"                                    \
    }

static oct_plan *compile(forest *f, const oct_plan_rule *rules, int64_t count)
{
    oct_plan *plan = NULL;
    must(f, oct_plan_compile(&f->tree, rules, count, &registry, &f->arena, &plan, &f->err));
    return plan;
}

/* Compilation must fail and say all of the words. */
static void refuse(forest *f, const oct_plan_rule *rules, int64_t count, const char *const *words)
{
    oct_plan *plan = NULL;
    f->err = (oct_err){0};
    assert_int_equal(oct_plan_compile(&f->tree, rules, count, &registry, &f->arena, &plan, &f->err),
                     OCT_E_PLAN);
    for (; *words; words++)
        if (!strstr(f->err.msg, *words))
            fail_msg("'%s' is not in '%s'", *words, f->err.msg);
    assert_null(plan);
}

/* --- patterns -------------------------------------------------------------------------------- */

static void pattern_match__table__as_written(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool match;
    } table[] = {
        {"model.layers.*.self_attn.q_proj", "model.layers.17.self_attn.q_proj", true},
        {"model.layers.*.self_attn.q_proj", "model.layers.1.x.self_attn.q_proj", false},
        {"model.layers.*.self_attn.q_proj", "model.layers.1.self_attn.q_projection", false},
        {"model.layers.0.mlp.*_proj", "model.layers.0.mlp.gate_proj", true},
        {"model.layers.0.mlp.*_proj", "model.layers.10.mlp.gate_proj", false},
        {"model.layers.0.mlp.*_proj", "model.layers.0.mlp.shared_experts.up_proj", false},
        {"model.layers.*.mlp.experts", "model.layers.3.mlp.shared_experts", false},
        {"a.b", "axb", false}, /* the dot is a dot */
        {"*", "lm_head", true},
        {"*", "model.norm", false},
        {"*_a*_b", "x_a_a_b_b", true},
        {"a*b*c", "abbbc", true},
        {"a*b*c", "ab.bc", false},
        {"a*.c", "a.c", true},
        {"", "", true},
        {"a", "", false},
        {"a**", "a", true},
        {"A", "a", false},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (oct_pattern_match(table[i].pattern, table[i].name) != table[i].match)
            fail_msg("'%s' on '%s'", table[i].pattern, table[i].name);
}

static void pattern_distance__edits__counted(void **state)
{
    (void)state;
    assert_int_equal(oct_pattern_distance("abc", "abc"), 0);
    assert_int_equal(oct_pattern_distance("abc", "abd"), 1);
    assert_int_equal(oct_pattern_distance("abc", "ab"), 1);
    assert_int_equal(oct_pattern_distance("", "abc"), 3);
    assert_int_equal(oct_pattern_distance("layers.*.q_proj", "layers.12.q_proj"), 0);
    assert_int_equal(oct_pattern_distance("layers.*.q_prj", "layers.12.q_proj"), 1);
    assert_int_equal(oct_pattern_distance("a*c", "a.c"), 1); /* a star takes no dot */
}

/* --- compilation ----------------------------------------------------------------------------- */

static const char *const mla[] = {
    "model.layers.*.self_attn.q_proj", "model.layers.*.self_attn.kv_a_proj_with_mqa",
    "model.layers.*.self_attn.kv_b_proj", "model.layers.*.self_attn.o_proj"};
static const char *const mlp[] = {"model.layers.0.mlp.*_proj",
                                  "model.layers.*.mlp.shared_experts.*_proj"};
static const char *const routed[] = {"model.layers.*.mlp.experts"};
static const oct_plan_rule frozen_16b[] = {
    {.pattern_count = 4,
     .patterns = mla,
     .module_type = "torch.nn.Linear",
     .exact_type = true,
     .target = "octet.replace_linear"},
    {.pattern_count = 2,
     .patterns = mlp,
     .module_type = "torch.nn.Linear",
     .exact_type = true,
     .target = "octet.replace_linear"},
    {.pattern_count = 1,
     .patterns = routed,
     .module_type = "DeepseekV3Experts",
     .exact_type = true,
     .target = "octet.replace_experts"},
};

static void compile__rules_of_the_16b__every_target_and_nothing_else(void **state)
{
    (void)state;
    forest *f = forest_new(28);
    const oct_plan *plan = compile(f, frozen_16b, 3);
    for (int p = 0; p < 4; p++)
        assert_int_equal(oct_plan_hits(plan, 0, p), 28);
    assert_int_equal(oct_plan_hits(plan, 1, 0), 3);
    assert_int_equal(oct_plan_hits(plan, 1, 1), 81);
    assert_int_equal(oct_plan_hits(plan, 2, 0), 27);
    int64_t count = 0;
    int linears = 0, containers = 0;
    const oct_plan_target *targets = oct_plan_targets(plan, &count);
    assert_int_equal(count, 196 + 27);
    for (int64_t i = 0; i < count; i++) {
        linears += targets[i].module->type == &oct_linear_type;
        containers += targets[i].module->type == &experts;
        assert_null(strstr(targets[i].fqn, "lm_head"));
        assert_null(strstr(targets[i].fqn, "embed"));
        assert_null(strstr(targets[i].fqn, "norm"));
        assert_string_not_equal(strrchr(targets[i].fqn, '.'), ".gate");
    }
    assert_int_equal(linears, 196);
    assert_int_equal(containers, 27);
    forest_free(f);
}

static uint64_t hash_tree(forest *f);

static void compile__no_rule__empty_plan(void **state)
{
    (void)state;
    forest *f = forest_new(1);
    oct_plan *plan = compile(f, NULL, 0);
    int64_t count = -1;
    oct_plan_targets(plan, &count);
    assert_int_equal(count, 0);
    assert_int_equal(oct_plan_rule_count(plan), 0);
    const uint64_t before = hash_tree(f);
    must(f, oct_plan_apply(plan, &f->tree, NULL, NULL, &f->err));
    assert_true(hash_tree(f) == before);
    forest_free(f);
}

static void compile__rule_without_a_pattern__refused(void **state)
{
    (void)state;
    forest *f = forest_new(1);
    const oct_plan_rule rule = {
        .module_type = "torch.nn.Linear", .target = "octet.replace_linear", .where = "run.yaml:7"};
    refuse(f, &rule, 1, (const char *const[]){"0 patterns", "match", "run.yaml:7", NULL});
    forest_free(f);
}

static void compile__pattern_without_hit__refused_with_nearest_fqns(void **state)
{
    (void)state;
    forest *f = forest_new(2);
    const oct_plan_rule rules[] = {RULE("torch.nn.Linear", "lm_head"),
                                   RULE("torch.nn.Linear", "model.layers.0.self_attn.q_proj",
                                        "model.layers.0.self_attn.o_porj")};
    refuse(f, rules, 2,
           (const char *const[]){"'model.layers.0.self_attn.o_porj' matches 0 modules",
                                 "'model.layers.0.self_attn.o_proj'", "run.yaml:7", NULL});
    const oct_plan_rule output[] = {RULE("torch.nn.Linear", "router.gate")};
    refuse(f, output, 1, (const char *const[]){"'router.gate' matches 0 modules", NULL});
    forest_free(f);
}

static void compile__type_of_a_hit__must_be_exact(void **state)
{
    (void)state;
    forest *f = forest_new(1);
    oct_module *attn = oct_module_find(&f->tree, "model.layers.0.self_attn");
    oct_module *q = attn->children[0];
    oct_plan_rule rule = RULE("torch.nn.Linear", "model.layers.0.self_attn.q_proj");
    compile(f, &rule, 1);

    q->type = &lora_linear;
    refuse(f, &rule, 1,
           (const char *const[]){"'model.layers.0.self_attn.q_proj'", "'peft.LoraLinear'",
                                 "derived from", "exactly 'torch.nn.Linear'", "run.yaml:7", NULL});
    rule.exact_type = false;
    compile(f, &rule, 1);

    q->type = &wrapper;
    refuse(f, &rule, 1,
           (const char *const[]){"is a 'custom.Wrapper'", "'torch.nn.Linear' is required", NULL});

    oct_plan_rule all = RULE("torch.nn.Linear", "*"); /* hits the root, which has no name */
    refuse(f, &all, 1, (const char *const[]){"cannot replace '(the root)'", NULL});
    forest_free(f);
}

static void compile__type_that_the_factory_does_not_build_from__refused(void **state)
{
    (void)state;
    const oct_plan_factory picky[] = {
        {"octet.replace_linear", build_good, &oct_linear_type},
        {"octet.replace_experts", build_good, &experts},
    };
    const oct_plan_registry picky_registry = {2, picky, 4, types};
    forest *f = forest_new(2);
    oct_plan *plan = NULL;
    oct_plan_rule rules[] = {RULE(experts.name, "model.layers.*.mlp.experts"),
                             RULE("torch.nn.Linear", "lm_head")};
    static const char *const words[2][4] = {
        {"'model.layers.1.mlp.experts'", "factory 'octet.replace_linear'",
         "builds from a 'torch.nn.Linear'", "run.yaml:7"},
        {"'lm_head'", "factory 'octet.replace_experts'", "is a 'torch.nn.Linear'", "run.yaml:7"}};
    rules[1].target = "octet.replace_experts";
    for (int r = 0; r < 2; r++) {
        f->err = (oct_err){0};
        assert_int_equal(
            oct_plan_compile(&f->tree, &rules[r], 1, &picky_registry, &f->arena, &plan, &f->err),
            OCT_E_PLAN);
        assert_null(plan);
        for (int w = 0; w < 4; w++)
            if (!strstr(f->err.msg, words[r][w]))
                fail_msg("'%s' is not in '%s'", words[r][w], f->err.msg);
    }
    /* Each with its own, and a type derived from it. */
    rules[0].target = "octet.replace_experts";
    rules[1].target = "octet.replace_linear";
    rules[1].exact_type = false;
    oct_module_find(&f->tree, "lm_head")->type = &lora_linear;
    must(f, oct_plan_compile(&f->tree, rules, 2, &picky_registry, &f->arena, &plan, &f->err));
    forest_free(f);
}

static void compile__two_rules_on_one_module__refused(void **state)
{
    (void)state;
    forest *f = forest_new(2);
    const oct_plan_rule rules[] = {RULE("torch.nn.Linear", "model.layers.*.self_attn.q_proj"),
                                   RULE("torch.nn.Linear", "model.layers.1.self_attn.*_proj")};
    refuse(f, rules, 2,
           (const char *const[]){"'model.layers.1.self_attn.q_proj'", "two rules", NULL});
    /* Two patterns of one rule may meet: one factory, one replacement. */
    const oct_plan_rule once = RULE("torch.nn.Linear", "model.layers.*.self_attn.q_proj",
                                    "model.layers.1.self_attn.*_proj");
    int64_t count = 0;
    oct_plan_targets(compile(f, &once, 1), &count);
    assert_int_equal(count, 1 + 3);
    forest_free(f);
}

static void compile__unknown_names__refused_with_the_nearest(void **state)
{
    (void)state;
    forest *f = forest_new(1);
    oct_plan_rule rule = RULE("torch.nn.Linear", "lm_head");
    rule.target = "octet.replace_linera";
    refuse(f, &rule, 1,
           (const char *const[]){"'octet.replace_linera'", "nearest is 'octet.replace_linear'",
                                 "_target_", NULL});
    rule.target = "octet.replace_linear";
    rule.module_type = "torch.nn.linear";
    refuse(f, &rule, 1,
           (const char *const[]){"'torch.nn.linear'", "nearest is 'torch.nn.Linear'", "module_type",
                                 NULL});
    forest_free(f);
}

static void compile__module_and_its_descendant__refused(void **state)
{
    (void)state;
    forest *f = forest_new(1);
    oct_plan_rule rules[] = {RULE("torch.nn.Module", "model.layers.0.mlp"),
                             RULE("torch.nn.Linear", "model.layers.0.mlp.up_proj")};
    refuse(
        f, rules, 2,
        (const char *const[]){"'model.layers.0.mlp'", "'model.layers.0.mlp.up_proj' inside", NULL});
    /* The same beginning of a name is no descent. */
    const oct_plan_rule apart[] = {RULE("torch.nn.Linear", "lm_head"),
                                   RULE("torch.nn.Linear", "lm_head_2")};
    add_linear(f, f->tree.root, "lm_head_2");
    compile(f, apart, 2);
    forest_free(f);
}

static void compile__alias__one_target(void **state)
{
    (void)state;
    forest *f = forest_new(1);
    oct_module *q = oct_module_find(&f->tree, "model.layers.0.self_attn.q_proj");
    oct_module *root = f->tree.root;
    must(f, oct_module_alias(&f->tree, root, q, &f->err));
    const oct_plan_rule rule = RULE("torch.nn.Linear", "model.layers.0.self_attn.q_proj", "q_proj");
    oct_plan *plan = compile(f, &rule, 1);
    int64_t count = 0;
    oct_plan_targets(plan, &count);
    assert_int_equal(count, 1);
    builds = fail_at = 0;
    must(f, oct_plan_apply(plan, &f->tree, NULL, NULL, &f->err));
    assert_int_equal(builds, 1);
    oct_module *now = oct_module_find(&f->tree, "model.layers.0.self_attn.q_proj");
    assert_ptr_not_equal(now, q);
    assert_ptr_equal(now, oct_module_find(&f->tree, "q_proj"));
    assert_ptr_equal(now->params[0], q->params[0]);

    /* Two rules that name the two aliases hit one module. */
    const oct_plan_rule two[] = {RULE("Replaced", "model.layers.0.self_attn.q_proj"),
                                 RULE("Replaced", "q_proj")};
    const oct_module_type *const more[] = {&replaced_type};
    const oct_plan_registry with_replaced = {
        .factory_count = 3, .factories = factories, .type_count = 1, .types = more};
    oct_plan *twice = NULL;
    assert_int_equal(oct_plan_compile(&f->tree, two, 2, &with_replaced, &f->arena, &twice, &f->err),
                     OCT_E_PLAN);
    assert_non_null(strstr(f->err.msg, "two rules"));
    forest_free(f);
}

static void compile__parameter_shared_with_an_unselected_module__refused(void **state)
{
    (void)state;
    forest *f = forest_new(1);
    oct_module *head = oct_module_find(&f->tree, "lm_head");
    oct_module *embed = oct_module_find(&f->tree, "model.embed_tokens");
    must(f, oct_module_share_param(&f->tree, embed, "weight", head->params[0], &f->err));
    const oct_plan_rule rule = RULE("torch.nn.Linear", "lm_head");
    refuse(f, &rule, 1,
           (const char *const[]){"'lm_head'", "shares 'lm_head.weight'", "'model.embed_tokens'",
                                 NULL});
    forest_free(f);
}

/* --- application ----------------------------------------------------------------------------- */

static uint64_t hash_bytes(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * 0x100000001B3u;
    return h;
}

static oct_status hash_place(void *arg, const char *fqn, oct_module **slot, oct_err *err)
{
    (void)err;
    uint64_t *h = arg;
    const oct_module *m = *slot;
    *h = hash_bytes(*h, fqn, strlen(fqn));
    *h = hash_bytes(*h, slot, sizeof *slot);
    *h = hash_bytes(*h, m, sizeof *m);
    for (int i = 0; i < m->param_count; i++)
        *h = hash_bytes(*h, m->params[i], sizeof *m->params[i]);
    return OCT_OK;
}

static uint64_t hash_tree(forest *f)
{
    uint64_t h = 0xCBF29CE484222325u;
    must(f, oct_module_walk(&f->tree, hash_place, &h, &f->err));
    return h;
}

static void apply__factory_k_fails__tree_is_as_before(void **state)
{
    (void)state;
    for (int k = 1; k <= 4; k++) {
        forest *f = forest_new(2);
        const oct_plan_rule rule = RULE("torch.nn.Linear", "model.layers.*.self_attn.q_proj",
                                        "model.layers.*.self_attn.o_proj");
        oct_plan *plan = compile(f, &rule, 1);
        const uint64_t before = hash_tree(f);
        oct_trace trace = {0};
        builds = 0;
        fail_at = k;
        f->err = (oct_err){0};
        assert_int_equal(oct_plan_apply(plan, &f->tree, NULL, &trace, &f->err), OCT_E_KERNEL);
        assert_non_null(strstr(f->err.msg, "factory failed on 'model.layers."));
        assert_int_equal(builds, k);
        assert_true(hash_tree(f) == before);
        assert_int_equal(trace.count[OCT_TRACE_REPLACE], 0);
        fail_at = 0;
        must(f, oct_plan_apply(plan, &f->tree, NULL, &trace, &f->err));
        assert_true(hash_tree(f) != before);
        assert_int_equal(trace.count[OCT_TRACE_REPLACE], 4);
        forest_free(f);
    }
}

static void apply__contract_broken__refused_by_name(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "FQN",           "parameter identity", "parameter name", "number of parameters",
        "training flag", "buffer identity",    "requires_grad",  "parameter shape"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        forest *f = forest_new(1);
        oct_plan_rule rule = RULE("torch.nn.Linear", "lm_head");
        rule.target = "octet.break_contract";
        oct_plan *plan = compile(f, &rule, 1);
        oct_module *head = oct_module_find(&f->tree, "lm_head");
        f->err = (oct_err){0};
        assert_int_equal(oct_plan_apply(plan, &f->tree, parts[i], NULL, &f->err), OCT_E_PLAN);
        assert_non_null(strstr(f->err.msg, parts[i]));
        assert_non_null(strstr(f->err.msg, "'lm_head'"));
        assert_ptr_equal(oct_module_find(&f->tree, "lm_head"), head);
        forest_free(f);
    }
}

/* FQNs, parameters and flags in walk order. */
typedef struct schema {
    int count;
    char fqn[400][64];
    oct_param *params[400];
    const char *types[400];
    bool training[400];
} schema;

static oct_status read_schema(void *arg, const char *fqn, oct_module **slot, oct_err *err)
{
    (void)err;
    schema *s = arg;
    assert_true(s->count < 400);
    snprintf(s->fqn[s->count], sizeof s->fqn[0], "%s", fqn);
    s->params[s->count] = (*slot)->param_count ? (*slot)->params[0] : NULL;
    s->types[s->count] = (*slot)->type->name;
    s->training[s->count++] = (*slot)->training;
    return OCT_OK;
}

static void apply__whole_plan__schema_kept_and_types_changed(void **state)
{
    (void)state;
    forest *f = forest_new(3);
    schema *before = calloc(2, sizeof *before), *after = before + 1;
    assert_non_null(before);
    must(f, oct_module_walk(&f->tree, read_schema, before, &f->err));
    const int64_t params = f->tree.param_count;
    oct_plan *plan = compile(f, frozen_16b, 3);
    builds = fail_at = 0;
    must(f, oct_plan_apply(plan, &f->tree, NULL, NULL, &f->err));
    must(f, oct_module_walk(&f->tree, read_schema, after, &f->err));
    assert_int_equal(f->tree.param_count, params);
    assert_int_equal(before->count, after->count);
    int changed = 0;
    for (int i = 0; i < before->count; i++) {
        assert_string_equal(before->fqn[i], after->fqn[i]);
        assert_ptr_equal(before->params[i], after->params[i]);
        assert_int_equal(before->training[i], after->training[i]);
        changed += strcmp(before->types[i], after->types[i]) != 0;
    }
    assert_int_equal(changed, 3 * 4 + 3 + 2 * 3 + 2);
    assert_int_equal(builds, changed);
    free(before);
    forest_free(f);
}

static int events;
static void see_replace(void *arg, const oct_trace *trace, const oct_trace_event *event)
{
    (void)trace;
    const char *fqn = arg;
    assert_int_equal(event->kind, OCT_TRACE_REPLACE);
    assert_string_equal(event->fqn, fqn);
    assert_string_equal(event->from, "torch.nn.Linear");
    assert_string_equal(event->to, "Replaced");
    events++;
}

static void apply__one_module__one_replace_event(void **state)
{
    (void)state;
    forest *f = forest_new(1);
    const oct_plan_rule rule = RULE("torch.nn.Linear", "lm_head");
    static char fqn[] = "lm_head";
    oct_trace trace = {.sink = see_replace, .sink_arg = fqn};
    events = builds = fail_at = 0;
    must(f, oct_plan_apply(compile(f, &rule, 1), &f->tree, NULL, &trace, &f->err));
    assert_int_equal(events, 1);
    forest_free(f);
}

/* --- the real model with the rules of the design document ------------------------------------- */

static const char frozen_config[] =
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 102400, \"hidden_size\": 2048, "
    "\"intermediate_size\": 10944,"
    "\"moe_intermediate_size\": 1408, \"num_hidden_layers\": 28, \"first_k_dense_replace\": 1,"
    "\"num_attention_heads\": 16, \"num_key_value_heads\": 16, \"n_routed_experts\": 64,"
    "\"n_shared_experts\": 2, \"q_lora_rank\": null, \"kv_lora_rank\": 3072,"
    "\"qk_nope_head_dim\": 64, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128,"
    "\"num_experts_per_tok\": 6, \"n_group\": 1, \"topk_group\": 1, \"norm_topk_prob\": true,"
    "\"routed_scaling_factor\": 2.5, \"max_position_embeddings\": 4096, \"use_cache\": false}";

static void apply__frozen_16b_on_meta__196_linears_27_containers_no_weights(void **state)
{
    (void)state;
    static const char *const q_lora[] = {"model.layers.*.self_attn.q_a_proj"};
    const oct_plan_factory real[] = {
        {OCT_REPLACE_LOW_PRECISION_LINEAR, oct_replace_low_precision_linear, &oct_linear_type},
        {OCT_REPLACE_DSV3_LOW_PRECISION_EXPERTS, oct_replace_dsv3_low_precision_experts,
         &oct_dsv3_experts_type}};
    const oct_module_type *const real_types[] = {&oct_linear_type, &oct_dsv3_experts_type};
    const oct_plan_registry real_registry = {2, real, 2, real_types};
    oct_plan_rule rules[3] = {frozen_16b[0], frozen_16b[1], frozen_16b[2]};
    rules[0].target = rules[1].target = OCT_REPLACE_LOW_PRECISION_LINEAR;
    rules[2].target = OCT_REPLACE_DSV3_LOW_PRECISION_EXPERTS;
    rules[2].module_type = oct_dsv3_experts_type.name;
    oct_module_tree tree;
    oct_arena arena;
    oct_err err = {0};
    oct_hf_config hf;
    oct_dsv3 *model = NULL;
    oct_plan *plan = NULL;
    oct_module_tree_init(&tree);
    oct_arena_init(&arena, "plan");
    if (oct_hf_config_parse(frozen_config, "16b", NULL, &hf, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(oct_dsv3_build(&hf, &tree, &model, &err), OCT_OK);
    assert_int_equal(oct_plan_compile(&tree, rules, 3, &real_registry, &arena, &plan, &err),
                     OCT_OK);
    assert_int_equal(oct_plan_hits(plan, 0, 0), 28);
    assert_int_equal(oct_plan_hits(plan, 1, 1), 81);
    int64_t count = 0, linears = 0;
    const oct_plan_target *targets = oct_plan_targets(plan, &count);
    for (int64_t i = 0; i < count; i++)
        linears += targets[i].module->type == &oct_linear_type;
    assert_int_equal(linears, 196);
    assert_int_equal(count - linears, 27);
    const oct_low_precision_policy policy = oct_low_precision_policy_of(oct_hif8_format.recipe);
    assert_int_equal(oct_plan_apply(plan, &tree, &policy, NULL, &err), OCT_OK);
    assert_ptr_equal(oct_module_find(&tree, "model.layers.27.mlp.experts")->type,
                     &oct_dsv3_low_precision_experts_type);
    assert_ptr_equal(oct_module_find(&tree, "model.layers.0.mlp.up_proj")->type,
                     &oct_low_precision_linear_type);
    assert_ptr_equal(oct_module_find(&tree, "lm_head")->type, &oct_linear_type);
    assert_int_equal(oct_dsv3_expect_16b(&hf, &tree, &err), OCT_OK);
    for (int64_t p = 0; p < tree.param_count; p++)
        assert_true(!tree.params[p]->init && !tree.params[p]->value.data);
    assert_true(arena.peak_bytes + tree.arena.peak_bytes < 4 << 20);

    /* This model has no q LoRA: a rule for one hits nothing. The gate is no Linear. */
    rules[0].patterns = q_lora;
    rules[0].pattern_count = 1;
    assert_int_equal(oct_plan_compile(&tree, rules, 1, &real_registry, &arena, &plan, &err),
                     OCT_E_PLAN);
    static const char *const gate[] = {"model.layers.*.mlp.gate"};
    rules[0].patterns = gate;
    err = (oct_err){0};
    assert_int_equal(oct_plan_compile(&tree, rules, 1, &real_registry, &arena, &plan, &err),
                     OCT_E_PLAN);
    assert_non_null(strstr(err.msg, "'model.layers.1.mlp.gate'"));
    assert_non_null(strstr(err.msg, "DeepseekV3TopkRouter"));
    oct_module_tree_release(&tree);
    oct_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pattern_match__table__as_written),
        cmocka_unit_test(pattern_distance__edits__counted),
        cmocka_unit_test(compile__rules_of_the_16b__every_target_and_nothing_else),
        cmocka_unit_test(compile__no_rule__empty_plan),
        cmocka_unit_test(compile__rule_without_a_pattern__refused),
        cmocka_unit_test(compile__pattern_without_hit__refused_with_nearest_fqns),
        cmocka_unit_test(compile__type_of_a_hit__must_be_exact),
        cmocka_unit_test(compile__type_that_the_factory_does_not_build_from__refused),
        cmocka_unit_test(compile__two_rules_on_one_module__refused),
        cmocka_unit_test(compile__unknown_names__refused_with_the_nearest),
        cmocka_unit_test(compile__module_and_its_descendant__refused),
        cmocka_unit_test(compile__alias__one_target),
        cmocka_unit_test(compile__parameter_shared_with_an_unselected_module__refused),
        cmocka_unit_test(apply__factory_k_fails__tree_is_as_before),
        cmocka_unit_test(apply__contract_broken__refused_by_name),
        cmocka_unit_test(apply__whole_plan__schema_kept_and_types_changed),
        cmocka_unit_test(apply__one_module__one_replace_event),
        cmocka_unit_test(apply__frozen_16b_on_meta__196_linears_27_containers_no_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
