/* The product of two operands that were checked, over all their groups: what the formats put into
 * their table and the public interface calls. */
#ifndef OCT_LOW_PRECISION_OPERAND_MATMUL_H
#define OCT_LOW_PRECISION_OPERAND_MATMUL_H

#include "low_precision/format.h"

/* Packs what is not packed yet into exec->scratch and runs the block-integer product per group, as
 * matmul.h describes it. An empty contraction gives c = 0. Errors: OCT_E_NOMEM or those of the
 * kernels. */
oct_status oct_operand_matmul(const oct_exec *exec, const oct_operand *left,
                              const oct_operand *right, oct_layout layout, const oct_groups *groups,
                              const oct_gemm_out *out, oct_matmul_routes *routes,
                              oct_err *err) OCT_MUST_CHECK;

/* Bytes of exec->scratch that one product C[M,N] takes at most, whatever the operands hold. */
int64_t oct_operand_matmul_bytes(int64_t m, int64_t n, int64_t k, int threads);

#endif
