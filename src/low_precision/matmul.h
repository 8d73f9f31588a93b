/* Matrix products of 8-bit operands. Every argument is checked, every failure is an error; nothing
 * here knows a high-precision product. */
#ifndef OCT_LOW_PRECISION_MATMUL_H
#define OCT_LOW_PRECISION_MATMUL_H

#include "low_precision/format.h"
#include "module/run.h"

/* For trace events: whose product, in which phase ("fprop", "dgrad", "wgrad"). */
typedef struct oct_matmul_label {
    const char *fqn;
    const char *phase;
} oct_matmul_label;

/* C = op(left) op(right) in the GEMM views of the operands: NN left [M,K] right [K,N]; NT left
 * [M,K] right [N,K]; TN left [K,M] right [K,N]. Left is the activation (fprop) or the output
 * gradient (dgrad, wgrad). Blocks must run along K: row for an operand whose last axis is K, else
 * col. Emits one `matmul` event per kernel used (orientation: that of right); time counts as
 * matmul. Errors: OCT_E_SHAPE for formats, dtypes, orientations, shapes that do not fit,
 * OCT_E_KERNEL or the kernel's own code. */
oct_status oct_low_precision_matmul(const oct_run *run, const oct_matmul_label *label,
                                    const oct_operand *left, const oct_operand *right,
                                    oct_layout layout, const oct_gemm_out *out,
                                    oct_err *err) OCT_MUST_CHECK;

/* One product per group. NN: left [S,K], right [G,K,N], C [S,N]; NT: right [G,N,K]; TN: left [S,M],
 * right [S,N], C [G*M,N], zeros for an empty group. groups->ends must be the ones that the 2-D
 * operands were quantized with. */
oct_status oct_low_precision_grouped_matmul(const oct_run *run, const oct_matmul_label *label,
                                            const oct_operand *left, const oct_operand *right,
                                            oct_layout layout, const oct_groups *groups,
                                            const oct_gemm_out *out, oct_err *err) OCT_MUST_CHECK;

#endif
