/* One pass over the layers. Internal to model/deepseek_v3.
 *
 * Shapes: T tokens of the micro-batch, H hidden, N heads, S = T * top_k rows in expert order. Each
 * block first allocates everything that its backward pass reads from `keep` - the step arena while
 * training, scratch otherwise - and then computes; what it takes from scratch beyond that is given
 * back before it returns. */
#ifndef OCT_MODEL_DEEPSEEK_V3_PASS_H
#define OCT_MODEL_DEEPSEEK_V3_PASS_H

#include "model/deepseek_v3/layout.h"

typedef struct dsv3_pass {
    oct_dsv3 *model;
    const oct_run *run; /* run->training: keep what the backward pass needs */
    oct_arena *keep;
    bool count; /* add to the token counts */
    int64_t tokens;
    const int32_t *positions_T;
    const float *cos, *sin; /* [longest sequence, rope/2], rounded to the activation dtype */
    int64_t sequences;
    const int32_t *cu_seqlens;
} dsv3_pass;

typedef struct dsv3_attention_saved {
    oct_tensor q_a, q_a_normed, q, latent, latent_normed, kv, k, context;
    float *q_a_rstd, *latent_rstd, *lse_NT;
    oct_linear_saved *from_q, *from_q_a, *from_q_b, *from_kv_a, *from_kv_b, *from_o;
} dsv3_attention_saved;

typedef struct dsv3_mlp_saved {
    oct_tensor gate, up, act;
    oct_linear_saved *from_gate, *from_up, *from_down;
} dsv3_mlp_saved;

typedef struct dsv3_moe_saved {
    oct_tensor x_TH; /* the caller's */
    float *scores_TE, *weights_TK;
    int32_t *experts_TK, *source_S, *row_TK;
    int64_t *ends_E;
    oct_routed routed; /* x_SH points here: the record stays where it is */
    oct_lazy x_SH;
    oct_tensor y_SH;
    oct_experts_saved *from_experts;
    dsv3_mlp_saved shared;
} dsv3_moe_saved;

typedef struct dsv3_layer_saved {
    oct_tensor x, x_normed, middle, middle_normed; /* middle: after the attention's residual add */
    float *x_rstd, *middle_rstd;
    dsv3_attention_saved attention;
    dsv3_mlp_saved mlp;
    dsv3_moe_saved moe;
} dsv3_layer_saved;

/* [tokens, cols] in the activation dtype from pass->keep, or from scratch. */
oct_status dsv3_keep(const dsv3_pass *pass, int64_t rows, int64_t cols, oct_tensor *out,
                     oct_err *err) OCT_MUST_CHECK;
oct_status dsv3_scratch(const dsv3_pass *pass, int64_t rows, int64_t cols, oct_tensor *out,
                        oct_err *err) OCT_MUST_CHECK;
oct_status dsv3_keep_floats(const dsv3_pass *pass, int64_t count, float **out,
                            oct_err *err) OCT_MUST_CHECK;

/* Dense view of a parameter's compute copy. */
const oct_tensor *dsv3_weight(const oct_param *param);

/* y [T,H] = attention of x [T,H]; dx from dy. */
oct_status dsv3_attention_forward(const dsv3_pass *pass, const dsv3_attention *block,
                                  const oct_tensor *x, const oct_tensor *y,
                                  dsv3_attention_saved *saved, oct_err *err) OCT_MUST_CHECK;
oct_status dsv3_attention_backward(const dsv3_pass *pass, const dsv3_attention *block,
                                   const dsv3_attention_saved *saved, const oct_tensor *dy,
                                   const oct_tensor *dx, oct_err *err) OCT_MUST_CHECK;

oct_status dsv3_mlp_forward(const dsv3_pass *pass, const dsv3_mlp *block, const oct_tensor *x,
                            const oct_tensor *y, dsv3_mlp_saved *saved,
                            oct_err *err) OCT_MUST_CHECK;
oct_status dsv3_mlp_backward(const dsv3_pass *pass, const dsv3_mlp *block,
                             const dsv3_mlp_saved *saved, const oct_tensor *dy,
                             const oct_tensor *dx, oct_err *err) OCT_MUST_CHECK;

oct_status dsv3_moe_forward(const dsv3_pass *pass, const dsv3_layer *layer, const oct_tensor *x,
                            const oct_tensor *y, dsv3_moe_saved *saved,
                            oct_err *err) OCT_MUST_CHECK;
oct_status dsv3_moe_backward(const dsv3_pass *pass, const dsv3_layer *layer,
                             const dsv3_moe_saved *saved, const oct_tensor *dy,
                             const oct_tensor *dx, oct_err *err) OCT_MUST_CHECK;

/* One decoder layer: y from x; d is the gradient of y on entry, of x on return. */
oct_status dsv3_layer_forward(const dsv3_pass *pass, const dsv3_layer *layer, const oct_tensor *x,
                              const oct_tensor *y, dsv3_layer_saved *saved,
                              oct_err *err) OCT_MUST_CHECK;
oct_status dsv3_layer_backward(const dsv3_pass *pass, const dsv3_layer *layer,
                               const dsv3_layer_saved *saved, const oct_tensor *d,
                               oct_err *err) OCT_MUST_CHECK;

/* Sum of the cross entropy over the counted targets of h [T,H], the normalised output of the last
 * layer. With d not NULL also its gradient and that of the head's weight; dlogits is multiplied by
 * `scale`. tied_dW (tied head, d not NULL): FP32 [V,H] that receives the head's part instead of the
 * parameter's accumulator. */
oct_status dsv3_head(const dsv3_pass *pass, const oct_tensor *h, const int32_t *targets_T,
                     float scale, const oct_tensor *d, float *tied_dW, double *loss_sum,
                     oct_err *err) OCT_MUST_CHECK;

/* Writes the finished FP32 gradient g [numel] of a parameter where it belongs. */
oct_status dsv3_store_gradient(const oct_run *run, const oct_param *param, const float *g,
                               oct_err *err) OCT_MUST_CHECK;

/* Backward pass of an RMSNorm with weight `norm`; the rest as oct_rmsnorm_backward. */
oct_status dsv3_norm_backward(const oct_run *run, const oct_tensor *dy, const oct_tensor *x,
                              const oct_param *norm, const float *rstd, const oct_tensor *add_to,
                              const oct_tensor *dx, oct_err *err) OCT_MUST_CHECK;

#endif
