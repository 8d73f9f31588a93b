/* HiF8: HiFloat8 with current scaling, one FP32 scale per tensor or per group; both orientations
 * read the same codes. */
#ifndef OCT_LOW_PRECISION_HIF8_HIF8_H
#define OCT_LOW_PRECISION_HIF8_HIF8_H

#include "low_precision/format.h"

extern const oct_low_precision_format oct_hif8_format;

/* Largest code magnitude that scaling aims at (recipe version 1; not configurable). */
#define OCT_HIF8_FORMAT_MAX_INPUT_WEIGHT 15.0f
#define OCT_HIF8_FORMAT_MAX_GRADIENT     224.0f

/* The entries scale_layout and matrix of the table. */
oct_tensor oct_hif8_scale_layout(const oct_operand *operand);
oct_quantized_matrix oct_hif8_matrix(const oct_operand *operand, const oct_operand_slice *slice);

#endif
