/* Causal attention core, blocked: memory is linear in tokens, no [T,T] matrix exists.
 *
 * Scores, softmax and the weighted sum are FP32 (the probabilities too: they are never rounded to
 * BF16); the arithmetic, block sizes and reduction order are part of the definition
 * (kernels/attention.c), so that every instruction set gives the same bits. NaN and Inf propagate
 * to what depends on them, never from a later token to an earlier one; which NaN is not defined. */
#ifndef OCT_KERNELS_ATTENTION_H
#define OCT_KERNELS_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/status.h"
#include "kernels/gemm.h"
#include "tensor/tensor.h"

typedef struct oct_attention_kernels oct_attention_kernels;
#include "kernels/attention_table.h"

/* ref, then what `isa` has beyond it. */
void oct_attention_kernels_init(oct_attention_kernels *kernels, oct_isa isa);

/* One call: heads share `sequences` token ranges. Element (t, h, d) of a tensor is at
 * data + t*token_stride + h*head_stride + d (elements); a head_stride of 0 shares one head (inputs
 * only). */
typedef struct oct_attention_view {
    void *data; /* inputs are not written */
    int64_t token_stride, head_stride;
} oct_attention_view;

typedef struct oct_attention_shape {
    oct_dtype dtype; /* of q, k, v, out and their gradients: F32 or BF16 */
    int64_t heads;
    int64_t qk_dim; /* D of q and k */
    int64_t v_dim;  /* D of v and out */
    int64_t sequences;
    const int32_t *cu_seqlens; /* [sequences + 1], first 0; tokens attend within their range only;
                                  ranges may be empty, their end is the number of tokens */
    float softmax_scale;
} oct_attention_shape;

/* out[t,h] = sum_j softmax(scale * q.k)_j v_j over j <= t of its sequence, rounded once to the
 * dtype. lse_HT [heads, tokens], F32, out: log of the sum of exp(scale * q.k), for the backward
 * pass. Scratch: a few tiles of 64 rows per thread. Errors: OCT_E_SHAPE for sizes that do not fit,
 * OCT_E_NOMEM. */
oct_status oct_attention(const oct_exec *exec, const oct_attention_shape *shape,
                         const oct_attention_view *q, const oct_attention_view *k,
                         const oct_attention_view *v, const oct_attention_view *out, float *lse_HT,
                         oct_err *err) OCT_MUST_CHECK;

/* dq, dk, dv are written (not accumulated), rounded once to the dtype; they share no memory with
 * the inputs. Scratch per thread: the forward's tiles and qk_dim + v_dim floats per token of the
 * longest sequence (dk and dv of one head in FP32). Threads share the (sequence, head) pairs. */
oct_status oct_attention_backward(const oct_exec *exec, const oct_attention_shape *shape,
                                  const oct_attention_view *q, const oct_attention_view *k,
                                  const oct_attention_view *v, const oct_attention_view *out,
                                  const float *lse_HT, const oct_attention_view *dout,
                                  const oct_attention_view *dq, const oct_attention_view *dk,
                                  const oct_attention_view *dv, oct_err *err) OCT_MUST_CHECK;

/* Bytes that the forward (longest 0) or backward pass over sequences of at most `longest` tokens
 * takes from scratch, but for small lists. For plans of memory. */
int64_t oct_attention_work_bytes(int64_t qk_dim, int64_t v_dim, int64_t longest, int threads);

#endif
