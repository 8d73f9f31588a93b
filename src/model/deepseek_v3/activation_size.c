#include "base/size.h"
#include "model/deepseek_v3/deepseek_v3.h"

/* Elements per token; T = tokens of the micro-batch. */
typedef struct widths {
    int64_t hidden, q, k, kv, context, latents, dense, shared, routed_rows, routed;
} widths;

static widths widths_of(const oct_hf_config *hf)
{
    const int64_t heads = hf->num_attention_heads, qk = oct_hf_qk_head_dim(hf);
    return (widths){
        .hidden = hf->hidden_size,
        .q = heads * qk,
        .k = heads * qk,
        .kv = heads * (hf->qk_nope_head_dim + hf->v_head_dim),
        .context = heads * hf->v_head_dim,
        .latents = 2 * (hf->kv_lora_rank + hf->q_lora_rank),
        .dense = hf->intermediate_size,
        .shared = hf->n_shared_experts * hf->moe_intermediate_size,
        .routed_rows = hf->num_experts_per_tok,
        .routed = hf->moe_intermediate_size,
    };
}

/* What one layer keeps for its backward pass besides its input: activations, and the 8-bit inputs
 * of replaced modules. */
static int64_t kept_elements(const widths *w, bool experts)
{
    const int64_t attention = 3 * w->hidden + w->q + w->k + w->kv + w->context + w->latents;
    if (!experts)
        return attention + 3 * w->dense;
    return attention + 3 * w->shared + w->routed_rows * (2 * w->hidden + 3 * w->routed);
}

static int64_t kept_bytes_8bit(const widths *w, bool experts)
{
    const int64_t attention = 2 * w->hidden + w->latents / 2 + w->context;
    const int64_t block = experts
                              ? 2 * w->hidden + w->shared + w->routed_rows * (w->hidden + w->routed)
                              : 2 * w->hidden + w->dense;
    return attention + block;
}

/* Temporaries of the backward pass of one layer at its fullest. */
static int64_t backward_elements(const widths *w, bool experts)
{
    const int64_t attention = 2 * w->hidden + w->q + w->k + w->kv + w->context;
    const int64_t block =
        experts ? 2 * w->hidden + 3 * w->shared + w->routed_rows * (2 * w->hidden + 3 * w->routed)
                : 2 * w->hidden + 3 * w->dense;
    return oct_max_i64(attention, block);
}

int64_t oct_dsv3_activation_bytes(const oct_hf_config *hf, int64_t batch, int64_t seq,
                                  oct_dtype act_dtype, bool low_precision, bool recompute_full)
{
    enum { HEAD_CHUNK = 256 };
    const widths w = widths_of(hf);
    const int64_t tokens = batch * seq, element = (int64_t)oct_dtype_bytes(act_dtype);
    const int64_t dense_layers = oct_min_i64(hf->first_k_dense_replace, hf->num_hidden_layers);
    const int64_t moe_layers = hf->num_hidden_layers - dense_layers;
    int64_t kept = 0, largest = 0, temporaries = 0;
    for (int experts = 0; experts < 2; experts++) {
        const int64_t layers = experts ? moe_layers : dense_layers;
        if (!layers)
            continue;
        const int64_t bytes = element * kept_elements(&w, experts) +
                              (low_precision ? kept_bytes_8bit(&w, experts) : 0);
        kept += layers * bytes;
        largest = oct_max_i64(largest, bytes);
        temporaries = oct_max_i64(temporaries, element * backward_elements(&w, experts));
    }
    const int64_t tape = (hf->num_hidden_layers + 2) * element * w.hidden;
    const int64_t head = oct_min_i64(tokens, HEAD_CHUNK) * hf->vocab_size * element;
    const int64_t layers_now = tokens * ((recompute_full ? largest : kept) + temporaries);
    const int64_t head_now = tokens * (recompute_full ? 0 : kept) + head;
    return tokens * (tape + element * w.hidden) + oct_max_i64(layers_now, head_now);
}
