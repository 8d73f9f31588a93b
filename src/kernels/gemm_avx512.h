/* Register helpers of the AVX-512 matrix kernels. Included by *_avx512.c files only. */
#ifndef OCT_KERNELS_GEMM_AVX512_H
#define OCT_KERNELS_GEMM_AVX512_H

#include <immintrin.h>

/* Rows become columns: r[i] lane j <-> r[j] lane i, 32-bit lanes. */
static inline __attribute__((always_inline)) void oct_transpose_16x16(__m512i r[16])
{
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    /* r[4q + c], 128-bit lane L: column 4L + c of rows 4q .. 4q+3. */
#pragma GCC unroll 4
    for (int q = 0; q < 16; q += 4) {
        r[q] = _mm512_unpacklo_epi64(t[q], t[q + 2]);
        r[q + 1] = _mm512_unpackhi_epi64(t[q], t[q + 2]);
        r[q + 2] = _mm512_unpacklo_epi64(t[q + 1], t[q + 3]);
        r[q + 3] = _mm512_unpackhi_epi64(t[q + 1], t[q + 3]);
    }
    /* A 4x4 transpose of 128-bit lanes for each c. */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        const __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
        const __m512i b = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
        const __m512i d = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
        const __m512i e = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
        t[c] = _mm512_shuffle_i32x4(a, d, 0x88);
        t[4 + c] = _mm512_shuffle_i32x4(b, e, 0x88);
        t[8 + c] = _mm512_shuffle_i32x4(a, d, 0xdd);
        t[12 + c] = _mm512_shuffle_i32x4(b, e, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        r[i] = t[i];
}

#endif
