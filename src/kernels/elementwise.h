/* Everything of a training step that is not a matrix product, attention or quantization.
 *
 * Activations are F32 or BF16 ("the activation dtype"); arithmetic is FP32. Reductions over a row
 * run in 16 FP32 lanes (lane j takes elements j, j+16, ...) that are combined by a fixed tree;
 * every formula, rounding and order is in kernels/elementwise_table.h. Reductions over tokens,
 * slots and heads go in ascending order, one element after the other. exp, log, sigmoid are those
 * of numeric/fmath.h. ref and AVX-512 give the same bits for every thread count, NaN for NaN (which
 * NaN comes out where several meet is not defined). T = tokens (rows), H = row width.
 *
 * Gradients of parameters go through an oct_gemm_out: STORE or FOLD, F32 or (STORE only) BF16, no
 * bias, else OCT_E_API. Shapes or dtypes that do not fit are OCT_E_SHAPE; nothing is written then.
 */
#ifndef OCT_KERNELS_ELEMENTWISE_H
#define OCT_KERNELS_ELEMENTWISE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "base/status.h"
#include "kernels/gemm.h"
#include "kernels/lazy.h"
#include "tensor/tensor.h"

typedef struct oct_elementwise_kernels oct_elementwise_kernels;
#include "kernels/elementwise_table.h"

void oct_elementwise_kernels_init(oct_elementwise_kernels *kernels, oct_isa isa);

/* y = bf16(x * rsqrt(mean(x^2) + eps)) * w, rounded as the HF model does: the normalised value to
 * the activation dtype, then the product with w. x, y [T,H]; w [H] in the activation dtype;
 * rstd [T] out for the backward pass. y may be x's storage only if x is not needed again. */
oct_status oct_rmsnorm(const oct_exec *exec, const oct_tensor *x, const oct_tensor *w, float eps,
                       const oct_tensor *y, float *rstd_T, oct_err *err) OCT_MUST_CHECK;

/* dx = gradient of the input (activation dtype); dw folded into `dw` (one row of H). If add_to is
 * not NULL, dx = round(add_to + round(gradient)): the residual's gradient sum. dx may alias dy or
 * add_to. */
oct_status oct_rmsnorm_backward(const oct_exec *exec, const oct_tensor *dy, const oct_tensor *x,
                                const oct_tensor *w, const float *rstd_T, const oct_tensor *add_to,
                                const oct_tensor *dx, const oct_gemm_out *dw,
                                oct_err *err) OCT_MUST_CHECK;

/* y = round(a + b), any of them may alias. */
oct_status oct_add(const oct_exec *exec, const oct_tensor *a, const oct_tensor *b,
                   const oct_tensor *y, oct_err *err) OCT_MUST_CHECK;

/* y = round(round(silu(gate)) * up). gate and up are [T,F] views with row strides ld_gate, ld_up
 * (elements), so that one stacked [T,2F] tensor serves both; y [T,F] dense. */
oct_status oct_swiglu(const oct_exec *exec, const oct_tensor *gate, int64_t ld_gate,
                      const oct_tensor *up, int64_t ld_up, const oct_tensor *y,
                      oct_err *err) OCT_MUST_CHECK;

/* The same as a matrix [T,F] that is made where it is read. */
typedef struct oct_swiglu_operands {
    const oct_elementwise_kernels *kernels;
    oct_tensor gate, up;
    int64_t ld_gate, ld_up;
} oct_swiglu_operands;
oct_lazy oct_swiglu_lazy(const oct_swiglu_operands *operands);

/* dgate, dup have the same strides as gate and up; may alias them. */
oct_status oct_swiglu_backward(const oct_exec *exec, const oct_tensor *dy, const oct_tensor *gate,
                               int64_t ld_gate, const oct_tensor *up, int64_t ld_up,
                               const oct_tensor *dgate, const oct_tensor *dup,
                               oct_err *err) OCT_MUST_CHECK;

/* Rotary embedding of `heads` slices of `dim` elements per token. x points at the first slice of
 * token 0; token t, head h starts at x + t*token_stride + h*head_stride (elements). cos, sin:
 * [positions, dim/2] FP32 already rounded to the activation dtype; positions_T[t] picks the row.
 * interleave: pairs (x[2i], x[2i+1]), written split-half; otherwise pairs (x[i], x[i+dim/2]).
 * inverse = false: forward; true: gradient (reads split-half, writes the layout of the input).
 * dst may alias src. */
typedef struct oct_rope_view {
    const void *src;
    void *dst;
    int64_t src_token_stride, src_head_stride;
    int64_t dst_token_stride, dst_head_stride;
} oct_rope_view;
oct_status oct_rope(const oct_exec *exec, oct_dtype dtype, const oct_rope_view *view,
                    int64_t tokens, int64_t heads, int64_t dim, const float *cos, const float *sin,
                    const int32_t *positions_T, bool interleave, bool inverse,
                    oct_err *err) OCT_MUST_CHECK;

/* dst[t] = round(sum over h ascending of src[t, h]) in FP32: the gradient of a slice that all heads
 * share. src(t, h) is at src + t*src_token_stride + h*src_head_stride, dst(t) at
 * dst + t*dst_token_stride (view.dst_head_stride is not used); dim elements each. */
oct_status oct_head_sum(const oct_exec *exec, oct_dtype dtype, const oct_rope_view *view,
                        int64_t tokens, int64_t heads, int64_t dim, oct_err *err) OCT_MUST_CHECK;

/* Copies a strided slice: dst(t, h) = src(t, h), dim elements; a head stride of 0 in src
 * broadcasts. */
oct_status oct_head_copy(const oct_exec *exec, oct_dtype dtype, const oct_rope_view *view,
                         int64_t tokens, int64_t heads, int64_t dim, oct_err *err) OCT_MUST_CHECK;

/* y[t] = table[ids[t]]; table [V,H], y [T,H] of one dtype. ids are checked by the caller. */
oct_status oct_embedding(const oct_exec *exec, const oct_tensor *table, const int32_t *ids_T,
                         const oct_tensor *y, oct_err *err) OCT_MUST_CHECK;

/* Gradient of the table: row v = sum over t ascending with ids[t] = v of dy[t] in FP32, then
 * stored or folded into dtable [V,H] (rows without a token give 0). */
oct_status oct_embedding_backward(const oct_exec *exec, const oct_tensor *dy, const int32_t *ids_T,
                                  int64_t vocab, const oct_gemm_out *dtable,
                                  oct_err *err) OCT_MUST_CHECK;

/* Cross entropy of logits [T,V] (activation dtype) against targets_T (-1 = not counted).
 * loss_T[t] = logsumexp(logits[t]) - logits[t][target], FP32, 0 where not counted. If scale > 0,
 * logits are replaced by dlogits = round((softmax - onehot) * scale), 0 where not counted.
 * Errors: OCT_E_DATA for a target that is neither -1 nor below V; nothing is written then. */
oct_status oct_cross_entropy(const oct_exec *exec, const oct_tensor *logits,
                             const int32_t *targets_T, float scale, float *loss_T,
                             oct_err *err) OCT_MUST_CHECK;

/* Router of one MoE layer. logits [T,E] F32 -> experts_TK [T,K] (ascending expert index),
 * weights_TK F32 (already normalised and scaled), scores [T,E] F32 = sigmoid(logits) for the
 * backward pass. Choice: scores + bias, groups masked with -inf, ties to the lower index
 * (deepseek_v3 semantics); a NaN ranks with +Inf, so that it is chosen and reaches the weights.
 * Weights: scores, divided by (their sum, ascending, + 1e-20) if `normalise`, times scaling_factor.
 * top_groups = groups switches the masking off. Errors: OCT_E_SHAPE for a choice that cannot be
 * made (top_k above the experts of top_groups, groups that do not divide, groups of one expert). */
typedef struct oct_router_config {
    int64_t experts, top_k, groups, top_groups;
    bool normalise;
    float scaling_factor;
} oct_router_config;
oct_status oct_router(const oct_exec *exec, const oct_router_config *config,
                      const oct_tensor *logits, const float *bias_E, float *scores_TE,
                      int32_t *experts_TK, float *weights_TK, oct_err *err) OCT_MUST_CHECK;

/* dlogits [T,E] F32 from dweights_TK. */
oct_status oct_router_backward(const oct_exec *exec, const oct_router_config *config,
                               const float *scores_TE, const int32_t *experts_TK,
                               const float *weights_TK, const float *dweights_TK,
                               const oct_tensor *dlogits, oct_err *err) OCT_MUST_CHECK;

/* Rows of tokens in expert order: group_ends_E [E], source_S [T*K] = t*K + slot of every row (token
 * order within an expert), row_TK [T*K] the inverse. */
void oct_route_sort(const int32_t *experts_TK, int64_t tokens, int64_t top_k, int64_t experts,
                    int64_t *group_ends_E, int32_t *source_S, int32_t *row_TK);

/* Rows in expert order as a matrix [T*K,H] that is made where it is read: row s is
 * x[source_S[s] / K] as it is, or with weights_TK round(weights_TK[source_S[s]] * x[..]). */
typedef struct oct_routed {
    const oct_elementwise_kernels *kernels;
    oct_tensor x; /* [T,H] */
    const int32_t *source_S;
    int64_t top_k;
    const float *weights_TK; /* or NULL */
} oct_routed;
oct_lazy oct_route_rows(const oct_routed *routed);

/* y[t] = round(sum over slots ascending of x[row_TK[t,k]] * weights[t,k]) in FP32, the sum starting
 * with the first product; then, if shared is not NULL, y = round(y + shared). */
oct_status oct_route_combine(const oct_exec *exec, const oct_tensor *x_SH, const int32_t *row_TK,
                             const float *weights_TK, int64_t top_k, const oct_tensor *shared,
                             const oct_tensor *y, oct_err *err) OCT_MUST_CHECK;

/* dweights_TK = dot(x_SH[row_TK[t,k]], dy[t]) in FP32. The gradient of x_SH is oct_route_rows of dy
 * and the weights. */
oct_status oct_route_combine_backward(const oct_exec *exec, const oct_tensor *dy,
                                      const oct_tensor *x_SH, const int32_t *row_TK, int64_t top_k,
                                      float *dweights_TK, oct_err *err) OCT_MUST_CHECK;

/* dx[t] = round(sum over slots ascending of dx_SH[row_TK[t,k]]) in FP32. */
oct_status oct_route_gather_backward(const oct_exec *exec, const oct_tensor *dx_SH,
                                     const int32_t *row_TK, int64_t top_k, const oct_tensor *dx,
                                     oct_err *err) OCT_MUST_CHECK;

/* Column sums of dy [T,N] in FP32, t ascending: a bias gradient, stored or folded. */
oct_status oct_bias_backward(const oct_exec *exec, const oct_tensor *dy, const oct_gemm_out *dbias,
                             oct_err *err) OCT_MUST_CHECK;

/* dst = src converted (F32 <-> BF16, nearest even), same number of elements. */
oct_status oct_convert(const oct_exec *exec, const oct_tensor *src, const oct_tensor *dst,
                       oct_err *err) OCT_MUST_CHECK;

/* AdamW with decoupled decay on one flat FP32 range (Loshchilov & Hutter), gradient g scaled first:
 * w *= 1 - lr*decay; m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g^2;
 * w -= (lr / bias1) * m / (sqrt(v) / sqrt(bias2) + eps), in the order of torch.optim.AdamW.
 * The constants (1 - lr*decay, 1 - b1, ...) are formed in FP64 and rounded to FP32 once: 1 - b2 in
 * FP32 would be off by 1e-5. */
typedef struct oct_adamw_step {
    double lr, beta1, beta2, eps, weight_decay;
    double bias1, bias2; /* 1 - beta^step, with oct_powi */
    float grad_scale;
} oct_adamw_step;
oct_status oct_adamw(const oct_exec *exec, const oct_adamw_step *step, int64_t n, const float *grad,
                     float *master, float *exp_avg, float *exp_avg_sq, oct_err *err) OCT_MUST_CHECK;

/* FP64 sum of squares of n FP32 values, ascending in 16 FP64 lanes and a fixed tree. */
double oct_sum_squares(const oct_exec *exec, const float *x, int64_t n);

/* The same for every row of x [rows, cols] (dense), rows in parallel: sums[r], r < rows. */
void oct_sum_squares_rows(const oct_exec *exec, const float *x, int64_t rows, int64_t cols,
                          double *sums);

#endif
