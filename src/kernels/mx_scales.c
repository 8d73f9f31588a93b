#include "kernels/mx_scales.h"

#include <string.h>

void oct_mx_row_scales_to_plain(const uint8_t *pairs, int64_t rows, int64_t blocks, uint8_t *plain)
{
    const int64_t padded = blocks + blocks % 2;
    for (int64_t r = 0; r < rows && blocks > 0; r++)
        memmove(plain + r * blocks, pairs + r * padded, (size_t)blocks);
}

void oct_mx_row_scales_to_pairs(const uint8_t *plain, int64_t rows, int64_t blocks, uint8_t *pairs)
{
    const int64_t padded = blocks + blocks % 2;
    for (int64_t r = 0; r < rows && blocks > 0; r++) {
        memcpy(pairs + r * padded, plain + r * blocks, (size_t)blocks);
        if (blocks % 2)
            pairs[r * padded + blocks] = 0;
    }
}

void oct_mx_col_scales_to_plain(const uint8_t *pairs, int64_t blocks, int64_t cols, uint8_t *plain)
{
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t c = 0; c < cols; c++)
            plain[b * cols + c] = pairs[(b / 2 * cols + c) * 2 + b % 2];
}

void oct_mx_col_scales_to_pairs(const uint8_t *plain, int64_t blocks, int64_t cols, uint8_t *pairs)
{
    for (int64_t b = 0; b < blocks + blocks % 2; b++)
        for (int64_t c = 0; c < cols; c++)
            pairs[(b / 2 * cols + c) * 2 + b % 2] = b < blocks ? plain[b * cols + c] : 0;
}
