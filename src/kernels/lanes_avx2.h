/* The first few lanes of a 256-bit vector, where AVX2 has no masks: nothing beyond them is read or
 * written. Included by *_avx2.c files only. */
#ifndef OCT_KERNELS_LANES_AVX2_H
#define OCT_KERNELS_LANES_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* All bits of the first `count` 32-bit lanes. */
static inline __m256i oct_first_lanes(int64_t count)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const int32_t least = count > 8 ? 8 : (int32_t)count;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(least), lane);
}

/* The first `count` bytes, the rest zero. Pieces of 8, 4, 2 and 1 bytes. */
static inline __m128i oct_load_first_bytes(const void *from, int64_t count)
{
    const uint8_t *p = from;
    if (count >= 16)
        return _mm_loadu_si128((const void *)p);
    uint64_t half[2] = {0, 0};
    if (count >= 8) {
        /* The last 8 bytes, moved down to where the first 8 end. */
        memcpy(&half[0], p, 8);
        memcpy(&half[1], p + count - 8, 8);
        half[1] = count > 8 ? half[1] >> 8 * (16 - count) : 0;
    } else if (count >= 4) {
        uint32_t low, high;
        memcpy(&low, p, 4);
        memcpy(&high, p + count - 4, 4);
        half[0] = low | (uint64_t)high << 8 * (count - 4);
    } else {
        for (int64_t i = 0; i < count; i++)
            half[0] |= (uint64_t)p[i] << 8 * i;
    }
    return _mm_set_epi64x((int64_t)half[1], (int64_t)half[0]);
}

/* Writes the first `count` bytes, count <= 16. */
static inline void oct_store_first_bytes(void *to, __m128i x, int64_t count)
{
    uint8_t *p = to;
    if (count >= 16) {
        _mm_storeu_si128((void *)p, x);
        return;
    }
    uint64_t rest = (uint64_t)_mm_cvtsi128_si64(x);
    if (count & 8) {
        memcpy(p, &rest, 8);
        rest = (uint64_t)_mm_extract_epi64(x, 1);
        p += 8;
    }
    if (count & 4) {
        memcpy(p, &rest, 4);
        rest >>= 32;
        p += 4;
    }
    if (count & 2) {
        memcpy(p, &rest, 2);
        rest >>= 16;
        p += 2;
    }
    if (count & 1)
        memcpy(p, &rest, 1);
}

/* Writes the first `count` 32-bit lanes. */
static inline void oct_store_first_lanes(void *to, __m256i x, int64_t count)
{
    if (count >= 8) {
        _mm256_storeu_si256(to, x);
        return;
    }
    oct_store_first_bytes(to, _mm256_castsi256_si128(x), 4 * count);
    if (count > 4)
        oct_store_first_bytes((uint8_t *)to + 16, _mm256_extracti128_si256(x, 1), 4 * count - 16);
}

/* Rows become columns: r[i] lane j <-> r[j] lane i, 32-bit lanes. */
static inline void oct_transpose_8x8(__m256i r[8])
{
    __m256i t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    /* r[4q + c], 128-bit lane L: column 4L + c of rows 4q .. 4q+3. */
#pragma GCC unroll 2
    for (int q = 0; q < 8; q += 4) {
        r[q] = _mm256_unpacklo_epi64(t[q], t[q + 2]);
        r[q + 1] = _mm256_unpackhi_epi64(t[q], t[q + 2]);
        r[q + 2] = _mm256_unpacklo_epi64(t[q + 1], t[q + 3]);
        r[q + 3] = _mm256_unpackhi_epi64(t[q + 1], t[q + 3]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        t[c] = _mm256_permute2x128_si256(r[c], r[4 + c], 0x20);
        t[4 + c] = _mm256_permute2x128_si256(r[c], r[4 + c], 0x31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        r[i] = t[i];
}

#endif
