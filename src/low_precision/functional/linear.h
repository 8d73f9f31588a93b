/* Low-precision linear: y = x W^T + b with 8-bit operands in all three products. */
#ifndef OCT_LOW_PRECISION_FUNCTIONAL_LINEAR_H
#define OCT_LOW_PRECISION_FUNCTIONAL_LINEAR_H

#include "low_precision/weight.h"
#include "module/run.h"

/* x [.., K] -> y [.., N] in run->act_dtype. bias: FP32 [N] added before the one rounding, or NULL.
 * saved: NULL, or what wgrad reads: x quantized along tokens by INPUT_BWD, in run->step; x itself
 * is not kept. fqn: of the module, for trace events. */
oct_status oct_low_precision_linear_forward(const oct_run *run, const char *fqn,
                                            oct_weight_storage *weight, const float *bias,
                                            const oct_tensor *x, const oct_tensor *y,
                                            oct_operand *saved, oct_err *err) OCT_MUST_CHECK;

/* dx = dy W, dW = dy^T x. dy is quantized once in both orientations; wgrad does not read the
 * weight. dx NULL: not wanted; dw NULL: not wanted. */
oct_status oct_low_precision_linear_backward(const oct_run *run, const char *fqn,
                                             oct_weight_storage *weight, const oct_operand *saved,
                                             const oct_tensor *dy, const oct_tensor *dx,
                                             const oct_gemm_out *dw, oct_err *err) OCT_MUST_CHECK;

#endif
