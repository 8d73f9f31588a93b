/* One side of an 8-bit matrix product: codes and scales with what is needed to read them.
 * Short-lived; its memory belongs to the arena or weight that it was made from. */
#ifndef OCT_LOW_PRECISION_OPERAND_H
#define OCT_LOW_PRECISION_OPERAND_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/gemm.h"
#include "kernels/quantize.h"
#include "tensor/tensor.h"

typedef struct oct_low_precision_format oct_low_precision_format;

/* Along which of the two last axes of the GEMM view the operand is contracted (and its blocks run):
 * ROW the last, COL the one before it. */
typedef enum oct_orientation { OCT_ORIENTATION_ROW, OCT_ORIENTATION_COL } oct_orientation;

const char *oct_orientation_name(oct_orientation orientation); /* "row", "col" */

/* GEMM view: [M, N] for activations, gradients and dense weights; [E, in, out] for stacked expert
 * weights, whose codes are stored [E, out, in] (`transposed`). */
typedef struct oct_operand {
    const oct_low_precision_format *format;
    oct_orientation orientation;
    oct_dtype logical_dtype; /* what was quantized: F32 or BF16 */
    oct_tensor data;         /* codes as stored */
    oct_tensor scales;       /* as the format stores them */
    bool transposed;         /* stored with the last two axes of the view exchanged */
    oct_groups groups;       /* of the rows of a 2-D operand; count 0: one group */
    const float *amax;       /* what FP32 scales were derived from, one per group; NULL otherwise */
    const oct_panels *const
        *panels; /* packed for the right side, one per group; NULL: not packed */
} oct_operand;

/* Dims of the GEMM view; returns 2 or 3. */
int oct_operand_view(const oct_operand *operand, int64_t shape[3]);

/* true if the contraction runs along the last stored axis. */
bool oct_operand_k_contiguous(const oct_operand *operand);

/* A run of rows of an operand that is multiplied on its own. */
typedef struct oct_operand_slice {
    int64_t group;
    int64_t row, rows; /* of a 2-D operand */
    int64_t pair;      /* first pair row of scales in col orientation (kernels/quantize.h) */
} oct_operand_slice;

/* Codes of one slice seen as vectors along the contraction; scale fields are left to the format. A
 * stacked operand gives its matrix number slice->group, a 2-D one the rows of the slice. */
oct_quantized_matrix oct_operand_codes(const oct_operand *operand, const oct_operand_slice *slice);

#endif
