/* How much memory one training pass needs. Follows the blocks of this folder line by line: what
 * they keep in run->step, and what they hold in scratch at their fullest. */
#include "base/size.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "model/deepseek_v3/deepseek_v3.h"

enum { FLOAT = sizeof(float) };

typedef struct sizer {
    const oct_hf_config *hf;
    const oct_dsv3_pass_shape *pass;
    int64_t tokens, rows; /* rows: tokens * top_k, sorted by expert */
    int64_t element;      /* bytes of an activation */
    int64_t qk, shared;
} sizer;

static sizer sizer_of(const oct_hf_config *hf, const oct_dsv3_pass_shape *pass)
{
    return (sizer){
        .hf = hf,
        .pass = pass,
        .tokens = pass->batch * pass->seq,
        .rows = pass->batch * pass->seq * hf->num_experts_per_tok,
        .element = (int64_t)oct_dtype_bytes(pass->act_dtype),
        .qk = hf->num_attention_heads * oct_hf_qk_head_dim(hf),
        .shared = hf->n_shared_experts * hf->moe_intermediate_size,
    };
}

static int64_t largest_of(int64_t a, int64_t b, int64_t c)
{
    return oct_max_i64(a, oct_max_i64(b, c));
}

/* A quantized [rows, cols] operand of one orientation: codes and a scale per block of 32. */
static int64_t operand_bytes(int64_t rows, int64_t cols)
{
    return rows * cols + rows * cols / 32;
}

/* --- products --------------------------------------------------------------------------------- */

static int64_t product_bytes(const sizer *s, int64_t m, int64_t n, int64_t k, bool packs_right)
{
    const int64_t work = oct_gemm_work_bytes(s->pass->threads);
    if (!s->pass->low_precision)
        return oct_gemm_packed_bytes(m, k, OCT_SIDE_LEFT) +
               oct_gemm_packed_bytes(n, k, OCT_SIDE_RIGHT) + work;
    const int64_t left = oct_panels_bytes(m, k, OCT_SIDE_LEFT);
    const int64_t right = packs_right ? oct_panels_bytes(n, k, OCT_SIDE_RIGHT) : 0;
    /* While an operand is packed there is room for its longest list. */
    return largest_of(oct_panels_bytes_bound(m, k, OCT_SIDE_LEFT), left + right + work,
                      packs_right ? left + oct_panels_bytes_bound(n, k, OCT_SIDE_RIGHT) : 0);
}

/* y [rows, n] = x [rows, k] W^T, multiplied in slices of at most `slice` rows. */
static int64_t forward_bytes(const sizer *s, int64_t rows, int64_t slice, int64_t n, int64_t k)
{
    const int64_t quantized = s->pass->low_precision ? operand_bytes(rows, k) : 0;
    return quantized + product_bytes(s, slice, n, k, s->pass->packs_weights);
}

/* dx and dW: the gradient is quantized once, in both orientations. */
static int64_t backward_bytes(const sizer *s, int64_t rows, int64_t slice, int64_t n, int64_t k)
{
    const int64_t copies = s->pass->orientations_share ? 1 : 2;
    const int64_t quantized = s->pass->low_precision ? copies * operand_bytes(rows, n) : 0;
    return quantized + oct_max_i64(product_bytes(s, slice, k, n, s->pass->packs_weights),
                                   product_bytes(s, n, k, slice, true));
}

static int64_t linear_forward(const sizer *s, int64_t n, int64_t k)
{
    return forward_bytes(s, s->tokens, s->tokens, n, k);
}

static int64_t linear_backward(const sizer *s, int64_t n, int64_t k)
{
    return backward_bytes(s, s->tokens, s->tokens, n, k);
}

/* Rows of the busiest expert: routing is never even. */
static int64_t expert_slice(const sizer *s)
{
    return oct_min_i64(s->tokens, 2 * oct_ceil_div(s->rows, s->hf->n_routed_experts));
}

/* --- attention -------------------------------------------------------------------------------- */

static int64_t attention_kept(const sizer *s)
{
    const oct_hf_config *hf = s->hf;
    const int64_t heads = hf->num_attention_heads;
    const int64_t columns = 2 * hf->q_lora_rank + 2 * s->qk + 2 * hf->kv_lora_rank +
                            heads * (hf->qk_nope_head_dim + 2 * hf->v_head_dim);
    return s->tokens * (columns * s->element + (heads + 2) * FLOAT);
}

/* Inputs of q (or q_a and q_b), kv_a, kv_b and o. */
static int64_t attention_operands(const sizer *s)
{
    const oct_hf_config *hf = s->hf;
    return operand_bytes(s->tokens, 2 * hf->hidden_size + hf->q_lora_rank + hf->kv_lora_rank +
                                        hf->num_attention_heads * hf->v_head_dim);
}

static int64_t attention_tiles(const sizer *s, bool backward)
{
    return oct_attention_work_bytes(oct_hf_qk_head_dim(s->hf), s->hf->v_head_dim,
                                    backward ? s->pass->seq : 0, s->pass->threads);
}

static int64_t attention_forward(const sizer *s)
{
    const oct_hf_config *hf = s->hf;
    const int64_t kv_a = hf->kv_lora_rank + hf->qk_rope_head_dim, hidden = hf->hidden_size;
    const int64_t kv = hf->num_attention_heads * (hf->qk_nope_head_dim + hf->v_head_dim);
    const int64_t project =
        s->tokens * kv_a * s->element +
        oct_max_i64(linear_forward(s, kv_a, hidden), linear_forward(s, kv, hf->kv_lora_rank));
    return largest_of(project,
                      oct_max_i64(linear_forward(s, s->qk, hidden), attention_tiles(s, false)),
                      linear_forward(s, hidden, hf->num_attention_heads * hf->v_head_dim));
}

static int64_t attention_backward(const sizer *s)
{
    const oct_hf_config *hf = s->hf;
    const int64_t heads = hf->num_attention_heads, hidden = hf->hidden_size;
    const int64_t context = heads * hf->v_head_dim, kv_a = hf->kv_lora_rank + hf->qk_rope_head_dim;
    const int64_t kv = heads * (hf->qk_nope_head_dim + hf->v_head_dim);
    const int64_t held = s->tokens * s->element * (context + 2 * s->qk + kv + hidden);
    const int64_t latents = s->tokens * s->element * (hf->kv_lora_rank + kv_a);
    const int64_t q = hf->q_lora_rank ? s->tokens * s->element * hf->q_lora_rank +
                                            oct_max_i64(linear_backward(s, s->qk, hf->q_lora_rank),
                                                        linear_backward(s, hf->q_lora_rank, hidden))
                                      : linear_backward(s, s->qk, hidden);
    const int64_t projections =
        largest_of(linear_backward(s, kv, hf->kv_lora_rank), linear_backward(s, kv_a, hidden), q);
    return held + largest_of(linear_backward(s, hidden, context), attention_tiles(s, true),
                             latents + projections);
}

/* --- dense block and shared experts ----------------------------------------------------------- */

static int64_t mlp_kept(const sizer *s, int64_t width)
{
    return s->tokens * s->element * 3 * width;
}

static int64_t mlp_operands(const sizer *s, int64_t width)
{
    return operand_bytes(s->tokens, 2 * s->hf->hidden_size + width);
}

static int64_t mlp_forward(const sizer *s, int64_t width)
{
    return oct_max_i64(linear_forward(s, width, s->hf->hidden_size),
                       linear_forward(s, s->hf->hidden_size, width));
}

static int64_t mlp_backward(const sizer *s, int64_t width)
{
    const int64_t hidden = s->hf->hidden_size;
    return s->tokens * s->element * (3 * width + hidden) +
           oct_max_i64(linear_backward(s, width, hidden), linear_backward(s, hidden, width));
}

/* --- routed experts --------------------------------------------------------------------------- */

/* Scores, routing tables, the sorted rows behind the experts. */
static int64_t routing_kept(const sizer *s)
{
    return s->tokens * s->hf->n_routed_experts * FLOAT + 4 * s->rows * FLOAT +
           s->rows * s->element * s->hf->hidden_size;
}

/* Gate and up; their product only where nothing quantizes it. */
static int64_t experts_kept(const sizer *s)
{
    const int64_t parts = s->pass->low_precision ? 2 : 3;
    return s->rows * s->element * parts * s->hf->moe_intermediate_size;
}

static int64_t moe_kept(const sizer *s)
{
    return routing_kept(s) + experts_kept(s) + mlp_kept(s, s->shared);
}

static int64_t moe_operands(const sizer *s)
{
    return operand_bytes(s->rows, s->hf->hidden_size + s->hf->moe_intermediate_size) +
           mlp_operands(s, s->shared);
}

/* The router computes in FP32, on a copy where activations are narrower. */
static int64_t router_bytes(const sizer *s)
{
    const oct_hf_config *hf = s->hf;
    const int64_t wide = s->element == FLOAT ? 0 : s->tokens * hf->hidden_size * FLOAT;
    const int64_t left = oct_gemm_packed_bytes(s->tokens, hf->hidden_size, OCT_SIDE_LEFT);
    const int64_t right = oct_gemm_packed_bytes(hf->hidden_size, s->tokens, OCT_SIDE_RIGHT);
    return wide + s->tokens * hf->n_routed_experts * FLOAT + oct_max_i64(left, right) +
           oct_gemm_work_bytes(s->pass->threads);
}

static int64_t experts_forward(const sizer *s)
{
    const int64_t hidden = s->hf->hidden_size, width = s->hf->moe_intermediate_size;
    const int64_t slice = expert_slice(s);
    /* The product of gate and up is stored only for a quantizer that reads it twice. */
    const int64_t act = s->pass->orientations_share
                            ? operand_bytes(s->rows, width) + s->rows * s->element * width
                            : 0;
    return largest_of(act, forward_bytes(s, s->rows, slice, 2 * width, hidden),
                      forward_bytes(s, s->rows, slice, hidden, width));
}

static int64_t experts_backward(const sizer *s)
{
    const int64_t hidden = s->hf->hidden_size, width = s->hf->moe_intermediate_size;
    const int64_t slice = expert_slice(s);
    return s->rows * s->element * 3 * width +
           oct_max_i64(backward_bytes(s, s->rows, slice, 2 * width, hidden),
                       backward_bytes(s, s->rows, slice, hidden, width));
}

static int64_t shared_forward(const sizer *s)
{
    return s->tokens * s->element * s->hf->hidden_size + mlp_forward(s, s->shared);
}

static int64_t moe_backward(const sizer *s)
{
    const int64_t hidden = s->hf->hidden_size;
    const int64_t held = s->tokens * s->element * hidden + s->rows * FLOAT;
    const int64_t sorted = s->rows * s->element * hidden; /* gradients of the experts' inputs */
    return held + largest_of(mlp_backward(s, s->shared), sorted + experts_backward(s),
                             sorted + router_bytes(s));
}

/* --- layers, head, pass ----------------------------------------------------------------------- */

static int64_t norms_kept(const sizer *s)
{
    return s->tokens * (3 * s->hf->hidden_size * s->element + 2 * FLOAT);
}

static int64_t layer_kept(const sizer *s, bool experts)
{
    return norms_kept(s) + attention_kept(s) +
           (experts ? moe_kept(s) : mlp_kept(s, s->hf->intermediate_size));
}

static int64_t layer_operands(const sizer *s, bool experts)
{
    if (!s->pass->low_precision)
        return 0;
    return attention_operands(s) +
           (experts ? moe_operands(s) : mlp_operands(s, s->hf->intermediate_size));
}

static int64_t layer_forward(const sizer *s, bool experts)
{
    const int64_t block = experts
                              ? largest_of(router_bytes(s), experts_forward(s), shared_forward(s))
                              : mlp_forward(s, s->hf->intermediate_size);
    return oct_max_i64(attention_forward(s), block);
}

/* Forward with everything in scratch, as the first pass under recompute: what the experts keep is
 * given back before the shared ones begin. */
static int64_t layer_forward_only(const sizer *s, bool experts)
{
    const int64_t dense = s->hf->intermediate_size;
    const int64_t block =
        experts
            ? routing_kept(s) + largest_of(router_bytes(s), experts_kept(s) + experts_forward(s),
                                           mlp_kept(s, s->shared) + shared_forward(s))
            : mlp_kept(s, dense) + mlp_forward(s, dense);
    return norms_kept(s) + attention_kept(s) + oct_max_i64(attention_forward(s), block);
}

static int64_t layer_backward(const sizer *s, bool experts)
{
    const int64_t inner = s->tokens * s->element * s->hf->hidden_size;
    return inner +
           oct_max_i64(attention_backward(s),
                       experts ? moe_backward(s) : mlp_backward(s, s->hf->intermediate_size));
}

/* A replaced head: BF16 logits of all tokens, its input kept along tokens. */
static int64_t replaced_head_bytes(const sizer *s)
{
    const int64_t hidden = s->hf->hidden_size, vocab = s->hf->vocab_size;
    return s->tokens * FLOAT + 2 * s->tokens * vocab + operand_bytes(s->tokens, hidden) +
           oct_max_i64(linear_forward(s, vocab, hidden), linear_backward(s, vocab, hidden));
}

/* Logits of one chunk of tokens in high precision; from the second micro-batch on the weight's
 * gradient of this one stands beside the sum. */
static int64_t head_bytes(const sizer *s)
{
    if (s->pass->low_precision_head)
        return replaced_head_bytes(s);
    const int64_t hidden = s->hf->hidden_size, vocab = s->hf->vocab_size;
    const int64_t chunk = oct_min_i64(s->tokens, OCT_DSV3_HEAD_CHUNK);
    const int64_t logits = oct_gemm_packed_bytes(chunk, hidden, OCT_SIDE_LEFT) +
                           oct_gemm_packed_bytes(vocab, hidden, OCT_SIDE_RIGHT);
    const int64_t to_x = oct_gemm_packed_bytes(chunk, vocab, OCT_SIDE_LEFT) +
                         oct_gemm_packed_bytes(hidden, vocab, OCT_SIDE_RIGHT);
    const int64_t to_w = oct_gemm_packed_bytes(vocab, chunk, OCT_SIDE_LEFT) +
                         oct_gemm_packed_bytes(hidden, chunk, OCT_SIDE_RIGHT);
    const bool extra = s->pass->accumulates && !s->hf->tie_word_embeddings;
    return s->tokens * FLOAT + chunk * vocab * s->element + (extra ? vocab * hidden * FLOAT : 0) +
           largest_of(logits, to_x, to_w) + oct_gemm_work_bytes(s->pass->threads);
}

oct_dsv3_activations oct_dsv3_activations_of(const oct_hf_config *hf,
                                             const oct_dsv3_pass_shape *pass)
{
    const sizer s = sizer_of(hf, pass);
    const int64_t hidden = s.tokens * s.element * hf->hidden_size;
    const int64_t dense_layers = oct_min_i64(hf->first_k_dense_replace, hf->num_hidden_layers);
    const int64_t layers[2] = {dense_layers, hf->num_hidden_layers - dense_layers};
    int64_t kept = 0, largest = 0, work = head_bytes(&s);
    for (int experts = 0; experts < 2; experts++) {
        if (layers[experts] == 0)
            continue;
        const int64_t bytes = layer_kept(&s, experts) + layer_operands(&s, experts);
        const int64_t forward =
            pass->recompute_full ? layer_forward_only(&s, experts) : layer_forward(&s, experts);
        kept += layers[experts] * bytes;
        largest = oct_max_i64(largest, bytes);
        work = largest_of(work, forward, layer_backward(&s, experts));
    }
    const int64_t rope = s.tokens * (hf->qk_rope_head_dim + 1) * FLOAT;
    const int64_t tied = hf->tie_word_embeddings ? hf->vocab_size * hf->hidden_size * FLOAT : 0;
    const int64_t tape = (hf->num_hidden_layers + 2) * hidden + s.tokens * FLOAT;
    return (oct_dsv3_activations){
        .step = tape + tied + (pass->recompute_full ? largest : kept),
        .scratch = rope + hidden + work,
    };
}

int64_t oct_dsv3_activation_bytes(const oct_hf_config *hf, const oct_dsv3_pass_shape *pass)
{
    const oct_dsv3_activations both = oct_dsv3_activations_of(hf, pass);
    return both.step + both.scratch;
}
