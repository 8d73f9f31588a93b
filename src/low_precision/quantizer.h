/* Dynamic quantization of activations and gradients by role, with its trace events. */
#ifndef OCT_LOW_PRECISION_QUANTIZER_H
#define OCT_LOW_PRECISION_QUANTIZER_H

#include "low_precision/format.h"
#include "low_precision/recipe.h"
#include "module/run.h"

/* One wanted result; operand NULL: not wanted. */
typedef struct oct_role_output {
    oct_role role;
    oct_operand *operand;
    oct_arena *arena; /* where its codes and scales live */
} oct_role_output;

/* Quantizes x [M, N] (F32 or BF16) in row and/or col orientation: one pass if both roles have the
 * same quantizer. groups: runs of rows that are scaled apart, or NULL. For results that share data
 * the arena of `col` must live at least as long as that of `row`. Emits one `quantize` event per
 * result (per group with FP32 scales); time counts as quantize. */
oct_status oct_quantize(const oct_run *run, const oct_low_precision_recipe *recipe, const char *fqn,
                        const oct_lazy *x, const oct_groups *groups, const oct_role_output *row,
                        const oct_role_output *col, oct_err *err) OCT_MUST_CHECK;

/* The events of an operand that was made (used for weights too). */
void oct_quantize_trace(oct_trace *trace, const char *fqn, oct_role role,
                        const oct_operand *operand);

#endif
