/* Figures of a config by formula, and the frozen 16B. */
#include <stddef.h>
#include <string.h>

#include "model/deepseek_v3/layout.h"

oct_dsv3_size oct_dsv3_size_of(const oct_hf_config *hf, int64_t seq_length)
{
    const int64_t h = hf->hidden_size, heads = hf->num_attention_heads, v = hf->vocab_size;
    const int64_t qk = oct_hf_qk_head_dim(hf), vd = hf->v_head_dim, rope = hf->qk_rope_head_dim;
    const int64_t kvr = hf->kv_lora_rank, qr = hf->q_lora_rank;
    const int64_t layers = hf->num_hidden_layers, dense = hf->first_k_dense_replace;
    const int64_t sparse = layers - dense;
    const int64_t f = hf->moe_intermediate_size, shared = f * hf->n_shared_experts;
    const int64_t q = qr ? qr * (h + heads * qk + 1) : heads * qk * h;
    const int64_t kv = kvr * (h + heads * (hf->qk_nope_head_dim + vd) + 1) + rope * h;
    const int64_t bias = hf->attention_bias ? (qr ? qr : 0) + kvr + rope + h : 0;
    const int64_t attention = q + kv + heads * vd * h + bias;
    const int64_t routed = sparse * hf->n_routed_experts * 3 * h * f;
    const int64_t router = sparse * hf->n_routed_experts * h;
    const int64_t rest = layers * (attention + 2 * h) + dense * 3 * h * hf->intermediate_size +
                         sparse * 3 * h * shared + router + h;
    const int64_t active_routed = routed / hf->n_routed_experts * hf->num_experts_per_tok;
    const int64_t tables = hf->tie_word_embeddings ? v * h : 2 * v * h;

    const double core = (double)(layers * heads * (qk + vd)) * (double)seq_length;
    const int64_t megatron =
        layers * (attention - bias) +
        3 * h * (dense * hf->intermediate_size + sparse * (hf->num_experts_per_tok * f + shared)) +
        h * v;
    return (oct_dsv3_size){
        .parameters_total = tables + rest + routed,
        .parameters_active = tables + rest + active_routed,
        .flops_per_token_megatron = 6.0 * (double)megatron + 3.0 * core,
        .flops_per_token_torchtitan = 6.0 * (double)(v * h + rest + active_routed) + 6.0 * core,
    };
}

/* --- the frozen 16B --- */

typedef struct frozen_field {
    const char *name;
    size_t offset;
    int64_t value;
} frozen_field;

#define FROZEN(n, v)                                                                               \
    {                                                                                              \
#n, offsetof(oct_hf_config, n), v                                                          \
    }

/* HyperParallel Trainer design, 4.1; 0 stands for null. */
static const frozen_field frozen_sizes[] = {
    FROZEN(vocab_size, 102400),
    FROZEN(hidden_size, 2048),
    FROZEN(intermediate_size, 10944),
    FROZEN(moe_intermediate_size, 1408),
    FROZEN(num_hidden_layers, 28),
    FROZEN(first_k_dense_replace, 1),
    FROZEN(num_attention_heads, 16),
    FROZEN(num_key_value_heads, 16),
    FROZEN(n_routed_experts, 64),
    FROZEN(n_shared_experts, 2),
    FROZEN(q_lora_rank, 0),
    FROZEN(kv_lora_rank, 3072),
    FROZEN(qk_nope_head_dim, 64),
    FROZEN(qk_rope_head_dim, 64),
    FROZEN(v_head_dim, 128),
    FROZEN(num_experts_per_tok, 6),
    FROZEN(n_group, 1),
    FROZEN(topk_group, 1),
    FROZEN(max_position_embeddings, 4096),
};

static const frozen_field frozen_flags[] = {
    FROZEN(norm_topk_prob, true),
    FROZEN(use_cache, false),
    FROZEN(attention_bias, false),
    FROZEN(tie_word_embeddings, false),
};

#undef FROZEN

static const int64_t frozen_parameters = 16585005056;

static oct_status differs(const char *what, long long found, long long required, oct_err *err)
{
    return OCT_FAIL(err, OCT_E_CONFIG,
                    "model is not deepseek_v3_16b: '%s' is %lld, required %lld (model.expect)",
                    what, found, required);
}

static oct_status check_frozen_config(const oct_hf_config *hf, oct_err *err)
{
    const char *base = (const char *)hf;
    for (size_t i = 0; i < sizeof frozen_sizes / sizeof *frozen_sizes; i++) {
        const frozen_field *field = &frozen_sizes[i];
        const int64_t found = *(const int64_t *)(const void *)(base + field->offset);
        if (found != field->value && field->offset == offsetof(oct_hf_config, q_lora_rank))
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "model is not deepseek_v3_16b: 'q_lora_rank' is %lld, required null "
                            "(model.expect)",
                            (long long)found);
        if (found != field->value)
            return differs(field->name, found, field->value, err);
    }
    for (size_t i = 0; i < sizeof frozen_flags / sizeof *frozen_flags; i++) {
        const frozen_field *field = &frozen_flags[i];
        const bool found = *(const bool *)(base + field->offset);
        if (found != (field->value != 0))
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "model is not deepseek_v3_16b: '%s' is %s, required %s (model.expect)",
                            field->name, found ? "true" : "false", found ? "false" : "true");
    }
    if (hf->routed_scaling_factor != 2.5)
        return OCT_FAIL(
            err, OCT_E_CONFIG,
            "model is not deepseek_v3_16b: 'routed_scaling_factor' is %.3f, required 2.5 "
            "(model.expect)",
            hf->routed_scaling_factor);
    return OCT_OK;
}

/* Compares with a tree built from the frozen fields alone. */
static oct_status check_shapes(const oct_module_tree *tree, const oct_module_tree *frozen,
                               oct_err *err)
{
    if (tree->param_count != frozen->param_count)
        return differs("number of parameters", (long long)tree->param_count,
                       (long long)frozen->param_count, err);
    int64_t total = 0;
    for (int64_t p = 0; p < tree->param_count; p++) {
        const oct_param *found = tree->params[p], *required = frozen->params[p];
        if (strcmp(found->fqn, required->fqn) != 0)
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "model is not deepseek_v3_16b: parameter %lld is '%s', required '%s' "
                            "(model.expect)",
                            (long long)p, found->fqn, required->fqn);
        if (found->ndim != required->ndim)
            return differs(found->fqn, found->ndim, required->ndim, err);
        for (int d = 0; d < found->ndim; d++)
            if (found->shape[d] != required->shape[d])
                return OCT_FAIL(
                    err, OCT_E_CONFIG,
                    "model is not deepseek_v3_16b: dim %d of '%s' is %lld, required %lld "
                    "(model.expect)",
                    d, found->fqn, (long long)found->shape[d], (long long)required->shape[d]);
        total += oct_param_numel(found);
    }
    return total == frozen_parameters ? OCT_OK
                                      : differs("parameters", total, frozen_parameters, err);
}

oct_status oct_dsv3_expect_16b(const oct_hf_config *hf, const oct_module_tree *tree, oct_err *err)
{
    OCT_TRY(check_frozen_config(hf, err));
    oct_hf_config frozen_hf = *hf;
    char *base = (char *)&frozen_hf;
    for (size_t i = 0; i < sizeof frozen_sizes / sizeof *frozen_sizes; i++)
        *(int64_t *)(void *)(base + frozen_sizes[i].offset) = frozen_sizes[i].value;
    oct_module_tree frozen;
    oct_module_tree_init(&frozen);
    oct_dsv3 *model = NULL;
    oct_status status = oct_dsv3_build(&frozen_hf, &frozen, &model, err);
    if (status == OCT_OK)
        status = check_shapes(tree, &frozen, err);
    oct_module_tree_release(&frozen);
    return status;
}
