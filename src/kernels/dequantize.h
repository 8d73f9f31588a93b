/* Codes times scales, back to FP32. One IEEE multiplication for each element; a NaN has one bit
 * pattern, 7fc00000, as in the products (docs/spec/block-integer.md). */
#ifndef OCT_KERNELS_DEQUANTIZE_H
#define OCT_KERNELS_DEQUANTIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/exec.h"

/* y [rows, cols] FP32 of E4M3 codes [rows, cols] with scales in pairs (kernels/quantize.h): along a
 * row [rows, ceil(cols/64), 2], else down the columns [ceil(rows/64), cols, 2] (one group). */
void oct_mx_dequantize(const oct_exec *exec, const uint8_t *codes, const uint8_t *pairs,
                       int64_t rows, int64_t cols, bool along_row, float *y);

/* y[i] = HiF8(codes[i]) * scale for `count` elements. */
void oct_hif8_dequantize(const oct_exec *exec, const uint8_t *codes, int64_t count, float scale,
                         float *y);

#endif
