/* Remainders of a block-integer operand and of both sides of a product. Included by *_avx2.c and
 * *_avx512.c files only: it needs the BMI2 and FMA instructions. */
#ifndef OCT_KERNELS_REMAINDERS_FMA_H
#define OCT_KERNELS_REMAINDERS_FMA_H

#include <immintrin.h>

#include "kernels/gemm_table.h"

/* Writes down the remainders of pair line p, one bit for each of 16 pairs: even bits are element
 * 2p, odd ones 2p + 1. Returns the bits of these two k. */
static inline uint64_t oct_note_remainders(uint32_t lost, int p, uint16_t *remainders)
{
    uint64_t present = 0;
    for (int j = 0; j < 2; j++) {
        const uint16_t rows = (uint16_t)_pext_u32(lost, 0x55555555u << j);
        if (rows == 0)
            continue;
        remainders[(2 * p + j) * 2] = rows;
        present |= UINT64_C(1) << (2 * p + j);
    }
    return present;
}

/* Remainder times remainder, k ascending, into d[column][row] of OCT_GEMM_LANES rows. */
static inline void oct_cross_remainders(const oct_remainder_list *right,
                                        const oct_remainder_list *left, float *d)
{
    for (int64_t w = 0; w < OCT_GEMM_CHUNK / 64; w++)
        for (uint64_t both = right->present[w] & left->present[w]; both; both &= both - 1) {
            const int64_t k = w * 64 + __builtin_ctzll(both);
            for (int64_t j = right->start[k]; j < right->count && right->entries[j].k == k; j++) {
                const __m128 y = _mm_set_ss(right->entries[j].value);
                float *column = d + right->entries[j].row * OCT_GEMM_LANES;
                for (int64_t i = left->start[k]; i < left->count && left->entries[i].k == k; i++) {
                    float *target = column + left->entries[i].row;
                    const __m128 x = _mm_set_ss(left->entries[i].value);
                    _mm_store_ss(target, _mm_fmadd_ss(x, y, _mm_load_ss(target)));
                }
            }
        }
}

#endif
