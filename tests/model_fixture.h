/* A tiny DeepSeek-V3 model ready to run, in any instruction set and numeric mode, and the inputs of
 * golden/model by the recipe of its README. Include cmocka.h before. */
#ifndef OCT_TESTS_MODEL_FIXTURE_H
#define OCT_TESTS_MODEL_FIXTURE_H

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden_ops.h"
#include "low_precision/config.h"
#include "low_precision/hif8/hif8.h"
#include "low_precision/modules/linear.h"
#include "low_precision/mxfp8/mxfp8.h"
#include "low_precision/weight.h"
#include "model/deepseek_v3/deepseek_v3.h"
#include "model/deepseek_v3/low_precision_experts.h"
#include "plan/plan.h"

/* How a model computes. recipe NULL: no low precision. */
typedef struct numeric_mode {
    oct_dtype act_dtype;
    const oct_low_precision_recipe *recipe;
} numeric_mode;

typedef struct fixture {
    oct_hf_config hf;
    oct_module_tree tree;
    oct_dsv3 *model;
    numeric_mode mode;
    oct_kernels kernels;
    oct_arena scratch, step, persist;
    oct_exec exec;
    oct_trace trace;
    oct_run run;
    oct_err err;
} fixture;

#define fixture_ok(f, call)                                                                        \
    do {                                                                                           \
        if ((call) != OCT_OK)                                                                      \
            fail_msg("%s", (f)->err.msg);                                                          \
    } while (0)

static inline oct_isa highest_isa(void)
{
    oct_isa isa = OCT_ISA_REF;
    oct_err err;
    if (oct_isa_choose(&isa, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    return isa;
}

/* "bf16", "mxfp8_alg1_fp32out", ...; anything else is FP32. */
static inline numeric_mode mode_named(const char *name)
{
    numeric_mode mode = {.act_dtype = strstr(name, "bf16") ? OCT_DTYPE_BF16 : OCT_DTYPE_F32};
    if (strstr(name, "mxfp8_alg1"))
        mode.recipe = oct_mxfp8_recipe(OCT_MX_RULE_ROUND_UP);
    else if (strstr(name, "mxfp8_alg0"))
        mode.recipe = oct_mxfp8_recipe(OCT_MX_RULE_FLOOR);
    else if (strstr(name, "hif8"))
        mode.recipe = oct_hif8_format.recipe;
    return mode;
}

/* --- the model -------------------------------------------------------------------------------- */

/* The config of a golden file: an old-style config.json without model_type. */
static inline void golden_config(const json_t *config, oct_hf_config *hf)
{
    json_t *copy = json_deep_copy(config);
    json_object_set_new(copy, "model_type", json_string("deepseek_v3"));
    char *text = json_dumps(copy, 0);
    oct_err err;
    if (oct_hf_config_parse(text, "golden config", NULL, hf, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    free(text);
    json_decref(copy);
}

static inline void *fixture_take(fixture *f, size_t bytes)
{
    void *memory = NULL;
    fixture_ok(f, oct_arena_zalloc(&f->persist, bytes, &memory, &f->err));
    return memory;
}

/* Replaces the Linears and experts that the design document names. */
static inline void fixture_replace(fixture *f)
{
    static const char *const attention[] = {"model.layers.*.self_attn.q*_proj",
                                            "model.layers.*.self_attn.kv_*proj*",
                                            "model.layers.*.self_attn.o_proj"};
    static const char *const dense[] = {"model.layers.*.mlp.*_proj"};
    static const char *const shared[] = {"model.layers.*.mlp.shared_experts.*_proj"};
    static const char *const experts[] = {"model.layers.*.mlp.experts"};
    static const oct_plan_factory factories[] = {
        {OCT_REPLACE_LOW_PRECISION_LINEAR, oct_replace_low_precision_linear, &oct_linear_type},
        {OCT_REPLACE_DSV3_LOW_PRECISION_EXPERTS, oct_replace_dsv3_low_precision_experts,
         &oct_dsv3_experts_type},
    };
    static const oct_module_type *const types[] = {&oct_linear_type, &oct_dsv3_experts_type};
    static const oct_plan_registry registry = {2, factories, 2, types};
    const char *linear = oct_linear_type.name, *to_linear = OCT_REPLACE_LOW_PRECISION_LINEAR;
    oct_plan_rule rules[4] = {{3, attention, linear, true, to_linear, NULL}};
    int64_t count = 1;
    if (f->hf.first_k_dense_replace > 0)
        rules[count++] = (oct_plan_rule){1, dense, linear, true, to_linear, NULL};
    if (f->hf.first_k_dense_replace < f->hf.num_hidden_layers) {
        rules[count++] = (oct_plan_rule){1, shared, linear, true, to_linear, NULL};
        rules[count++] = (oct_plan_rule){
            1,   experts, oct_dsv3_experts_type.name, true, OCT_REPLACE_DSV3_LOW_PRECISION_EXPERTS,
            NULL};
    }
    const oct_low_precision_policy policy = oct_low_precision_policy_of(f->mode.recipe);
    oct_plan *plan = NULL;
    fixture_ok(f, oct_plan_compile(&f->tree, rules, count, &registry, &f->persist, &plan, &f->err));
    int64_t target_count = 0;
    const oct_plan_target *targets = oct_plan_targets(plan, &target_count);
    for (int64_t t = 0; t < target_count; t++)
        for (int p = 0; p < targets[t].module->param_count; p++) {
            oct_param *param = targets[t].module->params[p];
            if (param->ndim > 1) /* biases stay in high precision */
                fixture_ok(f, oct_weight_create(&f->persist, &policy, param, f->mode.act_dtype,
                                                &param->storage, &f->err));
        }
    fixture_ok(f, oct_plan_apply(plan, &f->tree, &policy, NULL, &f->err));
}

/* Tree, initial values (seed), replacements, gradients. The compute copies follow from
 * fixture_refresh. param->init stays the master. */
static inline fixture *fixture_new(const oct_hf_config *hf, oct_isa isa, int threads,
                                   numeric_mode mode, uint64_t seed)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->hf = *hf;
    f->mode = mode;
    oct_module_tree_init(&f->tree);
    oct_arena_init(&f->scratch, "scratch");
    oct_arena_init(&f->step, "step");
    oct_arena_init(&f->persist, "persist");
    oct_kernels_init(&f->kernels, isa);
    f->exec = (oct_exec){.kernels = &f->kernels, .threads = threads, .scratch = &f->scratch};
    f->run = (oct_run){.exec = &f->exec,
                       .step = &f->step,
                       .trace = &f->trace,
                       .act_dtype = mode.act_dtype,
                       .reduce_dtype = OCT_DTYPE_F32,
                       .training = true};
    fixture_ok(f, oct_dsv3_build(hf, &f->tree, &f->model, &f->err));
    fixture_ok(f, oct_dsv3_init(f->model, &f->exec, seed, &f->err));
    if (mode.recipe)
        fixture_replace(f);
    for (int64_t p = 0; p < f->tree.param_count; p++) {
        oct_param *param = f->tree.params[p];
        param->grad = fixture_take(f, (size_t)oct_param_numel(param) * sizeof(float));
    }
    return f;
}

/* Compute copies and quantized weights from param->init. */
static inline void fixture_refresh(fixture *f)
{
    for (int64_t p = 0; p < f->tree.param_count; p++) {
        oct_param *param = f->tree.params[p];
        if (param->storage) {
            fixture_ok(
                f, oct_weight_refresh(&f->exec, NULL, param->storage, param->init, NULL, &f->err));
            continue;
        }
        oct_tensor master = {.data = param->init, .dtype = OCT_DTYPE_F32, .ndim = param->ndim};
        memcpy(master.shape, param->shape, sizeof param->shape);
        if (f->mode.act_dtype == OCT_DTYPE_F32 || param->keep_float32) {
            param->value = master;
            continue;
        }
        if (!param->value.data) {
            param->value = master;
            param->value.dtype = OCT_DTYPE_BF16;
            param->value.data = fixture_take(f, 2 * (size_t)oct_param_numel(param));
        }
        fixture_ok(f, oct_convert(&f->exec, &master, &param->value, &f->err));
    }
}

static inline void fixture_free(fixture *f)
{
    assert_int_equal(f->scratch.used_bytes, 0);
    for (int64_t p = 0; p < f->tree.param_count; p++)
        if (f->tree.params[p]->storage)
            oct_weight_release(f->tree.params[p]->storage);
    oct_module_tree_release(&f->tree);
    oct_arena_release(&f->scratch);
    oct_arena_release(&f->step);
    oct_arena_release(&f->persist);
    free(f);
}

static inline void fixture_start_step(fixture *f)
{
    oct_arena_reset(&f->step);
    for (int64_t p = 0; p < f->tree.param_count; p++)
        f->tree.params[p]->grad_started = false;
}

/* One micro-batch; returns the sum of the losses. */
static inline double fixture_train(fixture *f, const oct_batch *batch, float scale, bool recompute)
{
    double loss = -1.0;
    oct_arena_reset(&f->step);
    fixture_ok(
        f, oct_dsv3_forward_backward(f->model, &f->run, batch, scale, recompute, &loss, &f->err));
    for (int64_t p = 0; p < f->tree.param_count; p++)
        f->tree.params[p]->grad_started = true;
    return loss;
}

/* FNV-1a over the bits of all gradients. */
static inline uint64_t fixture_gradient_hash(const fixture *f)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (int64_t p = 0; p < f->tree.param_count; p++) {
        const unsigned char *bytes = (const unsigned char *)f->tree.params[p]->grad;
        const size_t n = (size_t)oct_param_numel(f->tree.params[p]) * sizeof(float);
        for (size_t i = 0; i < n; i++)
            hash = (hash ^ bytes[i]) * 0x100000001B3u;
    }
    return hash;
}

/* --- golden inputs ---------------------------------------------------------------------------- */

static inline const char *golden_kind(const oct_param *param)
{
    const char *fqn = param->fqn;
    if (strstr(fqn, "embed_tokens"))
        return "embedding";
    if (strstr(fqn, "lm_head"))
        return "lm_head";
    if (param->ndim == 1)
        return strstr(fqn, "norm.weight") ? "norm" : "attn_bias";
    if (strstr(fqn, "self_attn"))
        return "mla_proj";
    if (strstr(fqn, "shared_experts"))
        return "shared_experts";
    if (strstr(fqn, ".experts."))
        return "routed_experts";
    return strstr(fqn, "mlp.gate.weight") ? "router" : "dense_ffn";
}

/* Weights and correction biases of a golden file; compute copies follow. */
static inline void golden_weights(fixture *f, const json_t *root)
{
    const json_t *init = json_object_get(root, "init");
    const uint64_t seed = (uint64_t)golden_int(root, "seed");
    for (int64_t p = 0; p < f->tree.param_count; p++) {
        oct_param *param = f->tree.params[p];
        const char *kind = golden_kind(param);
        golden_fill(param->init, oct_param_numel(param), param->fqn, seed,
                    strcmp(kind, "norm") ? 0.0 : 1.0, (int)golden_int(init, kind));
    }
    for (int64_t b = 0; b < f->tree.buffer_count; b++) {
        oct_buffer *buffer = f->tree.buffers[b];
        golden_fill(buffer->data, buffer->numel, buffer->fqn, seed,
                    golden_number(init, "correction_bias_offset"),
                    (int)golden_int(init, "correction_bias"));
    }
    fixture_refresh(f);
}

/* Tokens by the recipe; targets are the next tokens, -1 at the end of a row and where masked.
 * Returns the number of counted targets. */
static inline int64_t golden_tokens(const json_t *root, const char *ids_name, int32_t *ids,
                                    int32_t *targets)
{
    const int64_t rows = golden_int(root, "batch"), length = golden_int(root, "seq_len");
    const int64_t vocab = golden_int(json_object_get(root, "config"), "vocab_size");
    const uint64_t seed = (uint64_t)golden_int(root, "seed");
    uint64_t name = 0xCBF29CE484222325u;
    for (const char *s = ids_name; *s; s++)
        name = (name ^ (unsigned char)*s) * 0x100000001B3u;
    const uint64_t stream = golden_mix64(name ^ golden_mix64(seed));
    for (int64_t i = 0; i < rows * length; i++) {
        const uint64_t h = golden_mix64(stream + (uint64_t)i);
        const uint64_t next = i % length ? 5 * (uint64_t)ids[i - 1] + 17 + h % 3 : h;
        ids[i] = (int32_t)(next % (uint64_t)vocab);
    }
    for (int64_t i = 0; i < rows * length; i++)
        targets[i] = (i + 1) % length ? ids[i + 1] : -1;
    size_t m = 0;
    const json_t *masked = NULL;
    json_array_foreach(json_object_get(root, "label_mask"), m, masked)
    {
        const int64_t row = json_integer_value(json_array_get(masked, 0));
        const int64_t at = json_integer_value(json_array_get(masked, 1));
        if (at > 0)
            targets[row * length + at - 1] = -1;
    }
    int64_t counted = 0;
    for (int64_t i = 0; i < rows * length; i++)
        counted += targets[i] >= 0;
    return counted;
}

/* --- golden files ----------------------------------------------------------------------------- */

static inline json_t *golden_load(const char *name)
{
    const char *directory = getenv("OCTET_GOLDEN");
    assert_non_null(directory);
    char path[4096];
    snprintf(path, sizeof path, "%s/model/%s", directory, name);
    json_error_t problem;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &problem);
    if (!root)
        fail_msg("%s: %s", path, problem.text);
    return root;
}

/* Calls `check` for each file of golden/model with this format; fails if there is none. */
static inline void golden_each(const char *format, void (*check)(const json_t *root, void *arg),
                               void *arg)
{
    const char *directory = getenv("OCTET_GOLDEN");
    assert_non_null(directory);
    char path[4096];
    snprintf(path, sizeof path, "%s/model", directory);
    struct dirent **names = NULL;
    const int count = scandir(path, &names, NULL, alphasort);
    assert_true(count > 0);
    int found = 0;
    for (int i = 0; i < count; i++) {
        const size_t length = strlen(names[i]->d_name);
        if (length > 5 && !strcmp(names[i]->d_name + length - 5, ".json")) {
            json_t *root = golden_load(names[i]->d_name);
            const char *is = json_string_value(json_object_get(root, "format"));
            if (is && !strcmp(is, format)) {
                found++;
                check(root, arg);
            }
            json_decref(root);
        }
        free(names[i]);
    }
    free(names);
    assert_true(found > 0);
}

/* The same for every instruction set up to the highest; arg is the oct_isa. */
static inline void each_isa(const char *format, void (*check)(const json_t *root, void *arg))
{
    for (int level = OCT_ISA_REF; level <= (int)highest_isa(); level++) {
        oct_isa isa = (oct_isa)level;
        golden_each(format, check, &isa);
    }
}

/* --- gradients against golden ones ------------------------------------------------------------ */

/* sqrt(sum g^2) and the four inner products of the README. */
static inline void gradient_figures(const oct_param *param, double *l2, double proj[4])
{
    char name[600];
    const int64_t n = oct_param_numel(param);
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++)
        squares += (double)param->grad[i] * (double)param->grad[i];
    *l2 = sqrt(squares);
    for (int j = 0; j < 4; j++) {
        snprintf(name, sizeof name, "%s#proj%d", param->fqn, j);
        proj[j] = 0.0;
        uint64_t h = 0xCBF29CE484222325u;
        for (const char *s = name; *s; s++)
            h = (h ^ (unsigned char)*s) * 0x100000001B3u;
        const uint64_t stream = golden_mix64(h ^ golden_mix64(0));
        for (int64_t i = 0; i < n; i++) {
            const uint64_t u = golden_mix64(stream + (uint64_t)i);
            const uint64_t sum =
                (u & 0xffffu) + (u >> 16 & 0xffffu) + (u >> 32 & 0xffffu) + (u >> 48);
            proj[j] += (double)param->grad[i] * (double)((int64_t)sum - 131070) * 0x1p-15;
        }
    }
}

/* D of the README over all parameters; *norm is the global gradient norm. */
static inline double gradient_distance(const fixture *f, const json_t *grads, double *norm)
{
    double sum = 0.0, squares = 0.0;
    int64_t terms = 0;
    for (int64_t p = 0; p < f->tree.param_count; p++) {
        double l2, proj[4];
        const json_t *golden = json_object_get(grads, f->tree.params[p]->fqn);
        assert_non_null(golden);
        gradient_figures(f->tree.params[p], &l2, proj);
        squares += l2 * l2;
        const double reference = golden_number(golden, "l2");
        for (int j = 0; j < 4 && reference > 0.0; j++) {
            const double want =
                json_number_value(json_array_get(json_object_get(golden, "proj"), (size_t)j));
            const double off = (proj[j] - want) / (1.15470 * reference);
            sum += off * off;
            terms++;
        }
    }
    *norm = sqrt(squares);
    return sqrt(sum / (double)terms);
}

#endif
