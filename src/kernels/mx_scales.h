/* MX scales between the pairs that kernels work on (kernels/quantize.h) and the plain layout of one
 * byte for each block. What a missing odd block leaves free in a pair is 00. */
#ifndef OCT_KERNELS_MX_SCALES_H
#define OCT_KERNELS_MX_SCALES_H

#include <stdint.h>

/* Blocks along rows: pairs [rows, ceil(blocks/2), 2], plain [rows, blocks]. to_plain works in place
 * too. */
void oct_mx_row_scales_to_plain(const uint8_t *pairs, int64_t rows, int64_t blocks, uint8_t *plain);
void oct_mx_row_scales_to_pairs(const uint8_t *plain, int64_t rows, int64_t blocks, uint8_t *pairs);

/* Blocks down the columns: pairs [ceil(blocks/2), cols, 2], plain [blocks, cols]. */
void oct_mx_col_scales_to_plain(const uint8_t *pairs, int64_t blocks, int64_t cols, uint8_t *plain);
void oct_mx_col_scales_to_pairs(const uint8_t *plain, int64_t blocks, int64_t cols, uint8_t *pairs);

#endif
