/* DeepSeek-V3 for causal language modelling: module tree, initial weights, and one training pass as
 * plain functions on planned memory. The HF model is the meaning (reference: transformers
 * models/deepseek_v3); where it rounds to BF16, so does this.
 *
 * Units (run->hooks): 0 = embedding, 1 .. L = decoder layers, L+1 = final norm and head. With a
 * tied head unit 0 stays open from its PRE_FORWARD to the end of the head's forward pass, and from
 * before the head's backward pass to the end of its own.
 *
 * Memory: what the backward pass needs lives in run->step (reset by the caller between
 * micro-batches), temporaries in run->exec->scratch. Sizes depend only on batch, seq and the
 * config, so that no heap call happens after the first step. One pass at a time per model. */
#ifndef OCT_MODEL_DEEPSEEK_V3_H
#define OCT_MODEL_DEEPSEEK_V3_H

#include <stdbool.h>
#include <stdint.h>

#include "model/deepseek_v3/hf_config.h"
#include "module/experts.h"
#include "module/linear.h"
#include "module/module.h"
#include "module/run.h"

typedef struct oct_dsv3 oct_dsv3;

/* Tokens that a head in high precision takes at once: its weight is packed for every chunk. */
enum { OCT_DSV3_HEAD_CHUNK = 1024 };

/* transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3Experts; params[0] = gate_up_proj,
 * params[1] = down_proj. Replacements derive their FQN, parameters and sizes from the module. */
extern const oct_module_type oct_dsv3_experts_type;

/* Builds the tree on meta: HF module types, FQNs, shapes, named_parameters order, and the buffer
 * e_score_correction_bias of each MoE layer. Allocates no weights. `hf` is copied; *model lives in
 * tree->arena and is valid as long as `tree`, which must stay where it is.
 * Errors: OCT_E_NOMEM, OCT_E_SHAPE. */
oct_status oct_dsv3_build(const oct_hf_config *hf, oct_module_tree *tree, oct_dsv3 **model,
                          oct_err *err) OCT_MUST_CHECK;

/* Borrowed; live as long as the tree. */
const oct_hf_config *oct_dsv3_config(const oct_dsv3 *model);
oct_module_tree *oct_dsv3_tree(const oct_dsv3 *model);

/* The frozen 16B: every structural field of `hf`, then count and shape of every parameter of the
 * tree, then 16,585,005,056 in all. Errors: OCT_E_CONFIG naming the first field, FQN or total
 * that differs, the value found and the value required. */
oct_status oct_dsv3_expect_16b(const oct_hf_config *hf, const oct_module_tree *tree,
                               oct_err *err) OCT_MUST_CHECK;

/* Fills param->init of every parameter with its owned rows (64-byte aligned heap memory of its own,
 * also of 0 rows; released with the tree or by whoever takes it, see module.h) and the buffers:
 * normal(0, initializer_range), norms 1, biases 0, correction bias 0, the padding row of the
 * embedding 0. A value is a function of (seed, FQN, element) alone: ranks, threads and instruction
 * sets do not matter, and no rank ever holds rows that it does not own. Not collective. Errors:
 * OCT_E_NOMEM naming the parameter; on failure no parameter has `init`. */
oct_status oct_dsv3_init(oct_dsv3 *model, const oct_exec *exec, uint64_t seed,
                         oct_err *err) OCT_MUST_CHECK;

/* The same values for elements first .. first+count-1 of one parameter: what a rank needs that owns
 * a shard of it. */
void oct_dsv3_init_range(const oct_dsv3 *model, const oct_kernels *kernels, const oct_param *param,
                         uint64_t seed, int64_t first, int64_t count, float *out);

/* --- units, counts ------------------------------------------------------------------------- */

int64_t oct_dsv3_unit_count(const oct_dsv3 *model); /* num_hidden_layers + 2 */

/* Parameters of unit u: tree->params[*first] .. [*first + *count - 1]. */
void oct_dsv3_unit_params(const oct_dsv3 *model, int64_t unit, int64_t *first, int64_t *count);

/* Size figures of a config, from formulas. */
typedef struct oct_dsv3_size {
    int64_t parameters_total;
    int64_t parameters_active;       /* per token: top_k of the routed experts */
    double flops_per_token_megatron; /* forward and backward, causal half of the attention */
    double flops_per_token_torchtitan;
} oct_dsv3_size;
oct_dsv3_size oct_dsv3_size_of(const oct_hf_config *hf, int64_t seq_length);

/* What decides about the memory of a training pass. */
typedef struct oct_dsv3_pass_shape {
    int64_t batch, seq;
    oct_dtype act_dtype;
    bool low_precision; /* products on 8-bit operands, whose inputs are kept besides */
    bool low_precision_head;
    bool orientations_share; /* both orientations of an operand are the same bytes */
    bool packs_weights;      /* products of 8-bit weights pack them */
    bool recompute_full;
    bool accumulates; /* several micro-batches per step */
    int threads;
} oct_dsv3_pass_shape;

/* Bytes that run->step and the scratch arena hold at their fullest, from formulas; within 10 % for
 * an even enough routing. */
typedef struct oct_dsv3_activations {
    int64_t step, scratch;
} oct_dsv3_activations;
oct_dsv3_activations oct_dsv3_activations_of(const oct_hf_config *hf,
                                             const oct_dsv3_pass_shape *pass);
int64_t oct_dsv3_activation_bytes(const oct_hf_config *hf,
                                  const oct_dsv3_pass_shape *pass); /* their sum */

/* --- one pass ------------------------------------------------------------------------------ */

/* T = batch * seq tokens, row after row. targets[t] is the token that follows ids[t], -1 = not
 * counted. cu_seqlens [sequences + 1], first 0, last T, ascending: attention and positions restart
 * at each; NULL: each row is one sequence. */
typedef struct oct_batch {
    const int32_t *ids, *targets;
    int64_t batch, seq;
    const int32_t *cu_seqlens;
    int64_t sequences;
} oct_batch;

/* Forward and backward pass of one micro-batch. *loss_sum = sum over counted targets of the cross
 * entropy in nats (FP64 sum of FP32 values, tokens ascending); dlogits is multiplied by loss_scale
 * = fl32(1/N) and nothing else is scaled. Each parameter's finished gradient of this micro-batch is
 * stored in param->grad, or folded into it where param->grad_started; the caller sets grad_started
 * afterwards. run->training must be true. recompute_full keeps only the input of each layer and
 * runs the layer again in the backward pass; same bits. Errors: OCT_E_DATA for an id or target out
 * of the vocabulary (row and position named), OCT_E_SHAPE, OCT_E_NOMEM, and whatever a hook or
 * kernel reports. After a failure gradients and counts are undefined; run->step and scratch may be
 * reset as always. */
oct_status oct_dsv3_forward_backward(oct_dsv3 *model, const oct_run *run, const oct_batch *batch,
                                     float loss_scale, bool recompute_full, double *loss_sum,
                                     oct_err *err) OCT_MUST_CHECK;

/* Loss only: no gradients, nothing kept, no token counts. */
oct_status oct_dsv3_loss(oct_dsv3 *model, const oct_run *run, const oct_batch *batch,
                         double *loss_sum, oct_err *err) OCT_MUST_CHECK;

/* Logits [vocab_size] of the token after ids[0 .. n-1], FP32. */
oct_status oct_dsv3_next_logits(oct_dsv3 *model, const oct_run *run, const int32_t *ids, int64_t n,
                                float *logits_V, oct_err *err) OCT_MUST_CHECK;

/* --- load balancing ------------------------------------------------------------------------- */

/* Tokens per expert since the last reset, [MoE layers * n_routed_experts], layers ascending; summed
 * over ranks by the caller, in place. Counted in training passes, once under recompute. *count may
 * be NULL; NULL is returned for a model without MoE layers. */
int64_t *oct_dsv3_counts(oct_dsv3 *model, int64_t *count);
void oct_dsv3_counts_reset(oct_dsv3 *model);

/* e_score_correction_bias += rate * sign(mean - count) per expert, from the counts. Source:
 * DeepSeek-V3 technical report; Megatron-LM (no re-centring). */
void oct_dsv3_update_bias(oct_dsv3 *model, double rate);

/* --- observation ---------------------------------------------------------------------------- */

/* Sees intermediate results; may not change them. Any member may be NULL. */
typedef struct oct_dsv3_observer {
    void *arg;
    void (*hidden)(void *arg, int64_t layer, const oct_tensor *h_TH); /* residual after a layer */
    void (*routing)(void *arg, int64_t layer, int64_t tokens, const int32_t *experts_TK,
                    const float *weights_TK);
    void (*logits)(void *arg, int64_t first_token, const oct_tensor *logits_TV);
} oct_dsv3_observer;
void oct_dsv3_observe(oct_dsv3 *model, const oct_dsv3_observer *observer); /* NULL: nobody */

#endif
