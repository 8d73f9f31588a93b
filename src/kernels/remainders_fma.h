/* Remainders of a block-integer operand and of both sides of a product. Included by *_avx2.c and
 * *_avx512.c files only: it needs the BMI2 and FMA instructions. */
#ifndef OCT_KERNELS_REMAINDERS_FMA_H
#define OCT_KERNELS_REMAINDERS_FMA_H

#include <immintrin.h>

#include "kernels/gemm_table.h"

/* Writes down the remainders of 16 rows of a group. lost[p]: pair line p, one bit for each element
 * of 16 pairs, even bits are element 2p, odd ones 2p + 1. Returns the k that have any. Most groups
 * of some operands have a few, of others none: what depends on where they are would be guessed
 * wrong line by line, so it is asked once, here. */
static inline uint64_t oct_note_remainders(const uint32_t lost[OCT_GEMM_GROUP / 2],
                                           uint16_t *remainders)
{
    uint32_t lines[2] = {0}; /* with remainders at an even k, at an odd one */
    for (int p = 0; p < OCT_GEMM_GROUP / 2; p += 8) {
        const __m256i eight = _mm256_loadu_si256((const void *)(lost + p));
        for (int j = 0; j < 2; j++) {
            const __m256i own = _mm256_and_si256(eight, _mm256_set1_epi32((int)(0x55555555u << j)));
            const __m256i none = _mm256_cmpeq_epi32(own, _mm256_setzero_si256());
            const unsigned empty = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(none));
            lines[j] |= (~empty & 0xffu) << p;
        }
    }
    const uint64_t even = UINT64_C(0x5555555555555555);
    const uint64_t present = _pdep_u64(lines[0], even) | _pdep_u64(lines[1], even << 1);
    for (uint64_t left = present; left; left &= left - 1) {
        const int k = __builtin_ctzll(left);
        remainders[k * 2] = (uint16_t)_pext_u32(lost[k / 2], 0x55555555u << k % 2);
    }
    return present;
}

/* Remainder times remainder, k ascending, into d[column][row] of OCT_GEMM_LANES rows. */
static inline void oct_cross_remainders(const oct_remainder_list *right,
                                        const oct_remainder_list *left, float *d)
{
    if (right->count == 0)
        return;
    const int64_t last = right->entries[right->count - 1].k / 64;
    for (int64_t w = 0; w <= last; w++)
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
