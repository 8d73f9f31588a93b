/* One layer, built and run through the stages of the trainer: its first loss, its gradient norm and
 * the gradients of its parameters in each format against those in BF16. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "trainer/build.h"
#include "verify/numerics.h"
#include "verify/quote.h"

enum { BATCH = 2, SEQ = 64, TOKENS = BATCH * SEQ };

/* Experts are 80 wide, so that the last MX block of a row is short. */
static const char model_json[] =
    "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 257, \"hidden_size\": 128,\n"
    " \"intermediate_size\": 192, \"moe_intermediate_size\": 80, \"num_hidden_layers\": 1,\n"
    " \"first_k_dense_replace\": 0, \"num_attention_heads\": 4, \"num_key_value_heads\": 4,\n"
    " \"n_routed_experts\": 8, \"n_shared_experts\": 2, \"num_experts_per_tok\": 2,\n"
    " \"n_group\": 1, \"topk_group\": 1, \"norm_topk_prob\": true,\n"
    " \"routed_scaling_factor\": 1.0, \"q_lora_rank\": null, \"kv_lora_rank\": 96,\n"
    " \"qk_nope_head_dim\": 16, \"qk_rope_head_dim\": 16, \"v_head_dim\": 16,\n"
    " \"max_position_embeddings\": 256, \"rope_theta\": 10000.0, \"rope_interleave\": true,\n"
    " \"tie_word_embeddings\": false}\n";

#define LINEAR_RULE                                                                                \
    "    when: low_precision\n"                                                                    \
    "    module_type: torch.nn.Linear\n"                                                           \
    "    exact_type: true\n"                                                                       \
    "    replace_module:\n"                                                                        \
    "      _target_: hyper_models.components.training.low_precision.modules.linear."               \
    "replace_low_precision_linear\n"
#define EXPERTS_RULE                                                                               \
    "    when: low_precision\n"                                                                    \
    "    module_type: transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3Experts\n"    \
    "    exact_type: true\n"                                                                       \
    "    replace_module:\n"                                                                        \
    "      _target_: hyper_models.components.models.adapters.deepseek_v3.low_precision."           \
    "replace_deepseek_v3_low_precision_experts\n"

/* Everything that a run needs besides low_precision. */
static const char common_yaml[] = "model:\n"
                                  "  config_name_or_path: %s\n"
                                  "  config_overrides:\n"
                                  "    first_k_dense_replace: %d\n"
                                  "dataset:\n"
                                  "  path: %s\n"
                                  "training:\n"
                                  "  train_iters: 1\n"
                                  "  threads: 1\n"
                                  "  seq_length: 64\n"
                                  "  global_batch_size: 2\n"
                                  "  micro_batch_size: 2\n"
                                  "  reduce_dtype: float32\n"
                                  "plan_overrides:\n"
                                  "  - match:\n"
                                  "      - \"model.layers.*.self_attn.q_proj\"\n"
                                  "      - \"model.layers.*.self_attn.kv_a_proj_with_mqa\"\n"
                                  "      - \"model.layers.*.self_attn.kv_b_proj\"\n"
                                  "      - \"model.layers.*.self_attn.o_proj\"\n" LINEAR_RULE "%s";

/* A layer: which rules its MLP needs, and the parameters that are compared. */
typedef struct layer {
    const char *name, *file;
    int dense_layers;
    const char *mlp_rules;
    const char *params[12]; /* below model. */
} layer;

static const layer layers[OCT_NUMERICS_MAX_LAYERS] = {
    {"dense layer",
     "dense-layer.yaml",
     1,
     "  - match: \"model.layers.*.mlp.*_proj\"\n" LINEAR_RULE,
     {"embed_tokens", "layers.0.self_attn.q_proj", "layers.0.self_attn.kv_a_proj_with_mqa",
      "layers.0.self_attn.kv_b_proj", "layers.0.self_attn.o_proj", "layers.0.mlp.gate_proj",
      "layers.0.mlp.up_proj", "layers.0.mlp.down_proj"}},
    {"MoE layer",
     "moe-layer.yaml",
     0,
     "  - match: \"model.layers.*.mlp.shared_experts.*_proj\"\n" LINEAR_RULE
     "  - match: \"model.layers.*.mlp.experts\"\n" EXPERTS_RULE,
     {"embed_tokens", "layers.0.self_attn.q_proj", "layers.0.self_attn.kv_a_proj_with_mqa",
      "layers.0.self_attn.kv_b_proj", "layers.0.self_attn.o_proj",
      "layers.0.mlp.shared_experts.gate_proj", "layers.0.mlp.shared_experts.down_proj",
      "layers.0.mlp.experts.gate_up_proj", "layers.0.mlp.experts.down_proj", "layers.0.mlp.gate",
      "lm_head"}},
};

/* One step in one format. Gradients stay in the build. */
typedef struct step {
    oct_config config;
    oct_build build;
    bool is_open;
    double loss, grad_norm;
} step;

static oct_status write_files(const layer *l, const char *dir, char *path, size_t bytes,
                              oct_err *err)
{
    char model[OCT_PATH_BYTES], quoted[2 * OCT_PATH_BYTES], yaml[2 * sizeof quoted + 4096];
    OCT_TRY(oct_path_join(dir, "one-layer.json", model, sizeof model, err));
    OCT_TRY(oct_file_replace(&oct_file_table_real, model, model_json, strlen(model_json), err));
    OCT_TRY(oct_verify_quote(model, quoted, sizeof quoted, err));
    const int length =
        snprintf(yaml, sizeof yaml, common_yaml, quoted, l->dense_layers, quoted, l->mlp_rules);
    OCT_TRY(oct_path_join(dir, l->file, path, bytes, err));
    return oct_file_replace(&oct_file_table_real, path, yaml, (size_t)length, err);
}

static oct_status load(const char *path, const oct_low_precision_format *format, uint64_t seed,
                       oct_arena *arena, oct_config *config, oct_err *err)
{
    char words[4][64];
    const char *list[4] = {words[0], words[1], words[2], words[3]};
    (void)snprintf(words[0], sizeof words[0], "seed=%llu", (unsigned long long)seed);
    (void)snprintf(words[1], sizeof words[1], "low_precision.enabled=%s",
                   format ? "true" : "false");
    if (format) {
        (void)snprintf(words[2], sizeof words[2], "low_precision.format=%s", format->name);
        (void)snprintf(words[3], sizeof words[3], "low_precision.scaling=%s", format->scaling);
    }
    OCT_TRY(oct_config_load(&path, 1, list, format ? 4 : 2, arena, NULL, NULL, config, err));
    return oct_config_resolve(config, 1, err);
}

/* Builds, makes one forward and backward pass, takes the norm. */
static oct_status run_step(step *s, uint64_t seed, oct_err *err)
{
    int32_t ids[TOKENS + 1];
    oct_build *build = &s->build;
    oct_build_init(build, &s->config, NULL);
    s->is_open = true;
    OCT_TRY(oct_build_through(build, OCT_STAGE_MASTERS, err));
    const oct_rng stream = oct_rng_stream(seed, "tokens");
    for (int i = 0; i <= TOKENS; i++)
        ids[i] = (int32_t)oct_rng_below(stream, (uint64_t)i, (uint64_t)build->hf.vocab_size);
    const oct_batch batch = {.ids = ids, .targets = ids + 1, .batch = BATCH, .seq = SEQ};
    const oct_run run = oct_build_run(build, true);
    OCT_TRY(
        oct_dsv3_forward_backward(build->model, &run, &batch, 1.0f / TOKENS, false, &s->loss, err));
    s->loss /= TOKENS;
    for (int64_t p = 0; p < build->tree.param_count; p++)
        build->tree.params[p]->grad_started = true;
    oct_grad_norm norm;
    OCT_TRY(oct_optimizer_grad_norm(build->optimizer, &build->exec, &norm, err));
    s->grad_norm = norm.norm;
    return OCT_OK;
}

static const oct_param *param_of(const oct_build *build, const char *name)
{
    for (int64_t p = 0; p < build->tree.param_count; p++) {
        const oct_param *param = build->tree.params[p];
        const char *fqn = param->fqn;
        if (strncmp(fqn, "model.", 6) == 0)
            fqn += 6;
        const size_t length = strlen(name);
        if (strncmp(fqn, name, length) == 0 &&
            (fqn[length] == '\0' || strcmp(fqn + length, ".weight") == 0))
            return param;
    }
    return NULL;
}

static oct_status compare_number(oct_numerics *numerics, oct_numerics_row names, double golden,
                                 double made, oct_err *err)
{
    oct_error_sums sums = {0};
    oct_error_sums_add(&sums, golden, made, 0);
    return oct_numerics_add(numerics, &names, &sums, err);
}

static oct_status compare(oct_numerics *numerics, const layer *l, const char *format,
                          const step *golden, const step *made, oct_err *err)
{
    oct_numerics_row names = {.op = l->name, .data = "tokens", .format = format, .shape = "2x64"};
    names.tensor = "loss";
    OCT_TRY(compare_number(numerics, names, golden->loss, made->loss, err));
    names.tensor = "grad_norm";
    OCT_TRY(compare_number(numerics, names, golden->grad_norm, made->grad_norm, err));
    for (size_t k = 0; k < sizeof l->params / sizeof l->params[0] && l->params[k]; k++) {
        const oct_param *a = param_of(&golden->build, l->params[k]);
        const oct_param *b = param_of(&made->build, l->params[k]);
        if (!a || !b)
            return OCT_FAIL(err, OCT_E_API, "the %s has no parameter '%s'", l->name, l->params[k]);
        oct_error_sums sums = {0};
        for (int64_t i = 0; i < oct_param_numel(a); i++)
            oct_error_sums_add(&sums, (double)a->grad[i], (double)b->grad[i], i);
        names.tensor = l->params[k];
        OCT_TRY(oct_numerics_add(numerics, &names, &sums, err));
    }
    return OCT_OK;
}

static void note(oct_numerics_layer *to, const char *format, const step *s)
{
    to->format[to->formats] = format;
    to->loss[to->formats] = s->loss;
    to->grad_norm[to->formats++] = s->grad_norm;
}

static void close_step(step *s)
{
    if (s->is_open)
        oct_build_release(&s->build);
    *s = (step){0};
}

static oct_status run_layer(oct_numerics *numerics, const layer *l, const char *dir, step *golden,
                            step *made, oct_arena *arena, oct_err *err)
{
    char path[OCT_PATH_BYTES];
    if (numerics->layer_count == OCT_NUMERICS_MAX_LAYERS)
        return OCT_FAIL(err, OCT_E_API, "too many layers: at most %d are required",
                        OCT_NUMERICS_MAX_LAYERS);
    oct_numerics_layer *to = &numerics->layers[numerics->layer_count++];
    *to = (oct_numerics_layer){.name = l->name};
    OCT_TRY(write_files(l, dir, path, sizeof path, err));
    OCT_TRY(load(path, NULL, numerics->seed, arena, &golden->config, err));
    OCT_TRY(run_step(golden, numerics->seed, err));
    note(to, "bfloat16", golden);
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        const oct_low_precision_format *format = oct_low_precision_formats[f];
        OCT_TRY(load(path, format, numerics->seed, arena, &made->config, err));
        OCT_TRY(run_step(made, numerics->seed, err));
        note(to, format->name, made);
        OCT_TRY(compare(numerics, l, format->name, golden, made, err));
        close_step(made);
    }
    return OCT_OK;
}

oct_status oct_numerics_layers(oct_numerics *numerics, const char *dir, oct_err *err)
{
    oct_arena arena;
    step golden = {0}, made = {0};
    oct_status status = OCT_OK;
    oct_arena_init(&arena, "one-layer configurations");
    for (int l = 0; l < OCT_NUMERICS_MAX_LAYERS && status == OCT_OK; l++) {
        status = run_layer(numerics, &layers[l], dir, &golden, &made, &arena, err);
        close_step(&made);
        close_step(&golden);
    }
    oct_arena_release(&arena);
    return status;
}
