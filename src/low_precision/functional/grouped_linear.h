/* Low-precision grouped linear and grouped SwiGLU on rows that are sorted by group. */
#ifndef OCT_LOW_PRECISION_FUNCTIONAL_GROUPED_LINEAR_H
#define OCT_LOW_PRECISION_FUNCTIONAL_GROUPED_LINEAR_H

#include "low_precision/weight.h"
#include "module/run.h"

/* y[rows of g] = x[rows of g] W_g^T. x [S,K], weight [G,N,K], y [S,N]. saved as for the linear. */
oct_status oct_low_precision_grouped_linear_forward(const oct_run *run, oct_weight_storage *weight,
                                                    const oct_lazy *x, const oct_groups *groups,
                                                    const oct_tensor *y, oct_operand *saved,
                                                    oct_err *err) OCT_MUST_CHECK;

/* dx [S,K] or NULL; dw [G*N,K] or NULL, zeros for an empty group. */
oct_status oct_low_precision_grouped_linear_backward(const oct_run *run, oct_weight_storage *weight,
                                                     const oct_operand *saved,
                                                     const oct_groups *groups, const oct_lazy *dy,
                                                     const oct_tensor *dx, const oct_gemm_out *dw,
                                                     oct_err *err) OCT_MUST_CHECK;

/* The two weights of a grouped SwiGLU: gate_up [G,2F,H] (gate rows first), down [G,H,F]. */
typedef struct oct_grouped_swiglu {
    oct_weight_storage *gate_up, *down;
} oct_grouped_swiglu;

typedef struct oct_grouped_swiglu_saved oct_grouped_swiglu_saved;

/* y = down(swiglu(gate_up(x))) per group; SwiGLU is high precision. x, y [S,H]. saved: NULL, or set
 * to a record in run->step. */
oct_status oct_low_precision_grouped_swiglu_forward(const oct_run *run,
                                                    const oct_grouped_swiglu *weights,
                                                    const oct_lazy *x, const oct_groups *groups,
                                                    const oct_tensor *y,
                                                    oct_grouped_swiglu_saved **saved,
                                                    oct_err *err) OCT_MUST_CHECK;

/* dx [S,H] or NULL. gate_up, down: the parameters whose gradients are made, one after the other,
 * where they require one. */
oct_status oct_low_precision_grouped_swiglu_backward(
    const oct_run *run, const oct_grouped_swiglu *weights, const oct_grouped_swiglu_saved *saved,
    const oct_groups *groups, const oct_lazy *dy, const oct_tensor *dx, const oct_param *gate_up,
    const oct_param *down, oct_err *err) OCT_MUST_CHECK;

#endif
