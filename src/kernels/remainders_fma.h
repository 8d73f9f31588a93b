/* Remainders of a block-integer operand and of both sides of a product. Included by *_avx2.c and
 * *_avx512.c files only: it needs the BMI2 and FMA instructions. */
#ifndef OCT_KERNELS_REMAINDERS_FMA_H
#define OCT_KERNELS_REMAINDERS_FMA_H

#include <immintrin.h>
#include <string.h>

#include "kernels/gemm_table.h"

/* lost_elements of both instruction sets. Most groups of some operands have a few, of others none:
 * what depends on where they are would be guessed wrong line by line. */
static inline uint64_t oct_lost_elements(const uint32_t lost[OCT_GEMM_GROUP / 2], int64_t *count)
{
    uint32_t lines[2] = {0}; /* with remainders at an even k, at an odd one */
    int64_t bits = 0;
    for (int p = 0; p < OCT_GEMM_GROUP / 2; p += 8) {
        const __m256i eight = _mm256_loadu_si256((const void *)(lost + p));
        for (int j = 0; j < 2; j++) {
            const __m256i own = _mm256_and_si256(eight, _mm256_set1_epi32((int)(0x55555555u << j)));
            const __m256i none = _mm256_cmpeq_epi32(own, _mm256_setzero_si256());
            const unsigned empty = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(none));
            lines[j] |= (~empty & 0xffu) << p;
        }
        for (int j = 0; j < 8; j += 2) {
            uint64_t two;
            memcpy(&two, lost + p + j, sizeof two);
            bits += __builtin_popcountll(two);
        }
    }
    *count += bits;
    const uint64_t even = UINT64_C(0x5555555555555555);
    return _pdep_u64(lines[0], even) | _pdep_u64(lines[1], even << 1);
}

/* The first entry of element k of a list, which has some. Each present k below it has one entry at
 * least, and few have more. */
static inline const oct_remainder *oct_entries_of(const oct_remainder_list *list, int64_t k)
{
    const uint64_t below = list->present[k / 64] & ((UINT64_C(1) << k % 64) - 1);
    const oct_remainder *at = list->entries + list->before[k / 64] + __builtin_popcountll(below);
    while (at->k < k)
        at++;
    return at;
}

/* column[row] += x * y, one rounding. It must store whole vectors: the transposition that reads d
 * soon after would wait for a smaller store to reach the cache. */
typedef void oct_add_product(float *column, int row, float x, float y);

/* Remainder times remainder, k ascending, into d[column][row] of OCT_GEMM_LANES rows. Few k have
 * remainders on both sides: four words are asked at a time. */
static inline __attribute__((always_inline)) void
oct_cross_remainders(const oct_remainder_list *right, const oct_remainder_list *left, float *d,
                     oct_add_product *add)
{
    for (int64_t w0 = 0; w0 < right->words; w0 += OCT_PRESENT_STEP) {
        const __m256i y_present = _mm256_loadu_si256((const void *)(right->present + w0));
        const __m256i x_present = _mm256_loadu_si256((const void *)(left->present + w0));
        if (_mm256_testz_si256(y_present, x_present))
            continue;
        for (int64_t w = w0; w < w0 + OCT_PRESENT_STEP; w++)
            for (uint64_t both = right->present[w] & left->present[w]; both; both &= both - 1) {
                const int64_t k = w * 64 + __builtin_ctzll(both);
                const oct_remainder *x0 = oct_entries_of(left, k), *y = oct_entries_of(right, k);
                for (; y < right->entries + right->count && y->k == k; y++)
                    for (const oct_remainder *x = x0; x < left->entries + left->count && x->k == k;
                         x++)
                        add(d + y->row * OCT_GEMM_LANES, x->row, x->value, y->value);
            }
    }
}

#endif
