/* MXFP8: E4M3 in blocks of 32 with E8M0 scales, one copy per orientation. */
#ifndef OCT_LOW_PRECISION_MXFP8_MXFP8_H
#define OCT_LOW_PRECISION_MXFP8_MXFP8_H

#include "kernels/quantize.h"
#include "low_precision/format.h"

extern const oct_low_precision_format oct_mxfp8_format;

/* Rule 1 is what training uses. Rule 0 is for tests and tools; no configuration key reaches it. */
const oct_low_precision_recipe *oct_mxfp8_recipe(oct_mx_rule rule);

/* The entries scale_layout and matrix of the table. */
oct_tensor oct_mxfp8_scale_layout(const oct_operand *operand);
oct_quantized_matrix oct_mxfp8_matrix(const oct_operand *operand, const oct_operand_slice *slice);

#endif
