/* 16-lane twins of the FP32 functions of numeric/fmath.h: the same operations in the same order, so
 * the same bits for every operand. For *_avx512.c only: everything here is static inline because it
 * is compiled with the instruction set of the file that includes it. */
#ifndef OCT_KERNELS_FMATH_AVX512_H
#define OCT_KERNELS_FMATH_AVX512_H

#include <immintrin.h>

static inline __m512 oct_exp_x16(__m512 x)
{
    const __m512 magic = _mm512_set1_ps(0x1.8p23f);
    const __m512 one = _mm512_set1_ps(1.0f);
    /* Both keep their second operand if one is NaN. */
    x = _mm512_min_ps(_mm512_set1_ps(89.0f), x);
    x = _mm512_max_ps(_mm512_set1_ps(-104.0f), x);
    const __m512 n =
        _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), magic), magic);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e430p-1f), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(0x1.05c610p-29f), r);
    __m512 p = _mm512_set1_ps(0x1.6a1e6ep-10f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.123980p-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558f6p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555492p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    return _mm512_scalef_ps(p, n);
}

static inline __m512 oct_log_x16(__m512 x)
{
    const __m512i root = _mm512_set1_epi32(0x3f3504f3);
    const __mmask16 subnormal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(0x1p-126f), _CMP_LT_OQ);
    const __m512 scaled = _mm512_mask_mul_ps(x, subnormal, x, _mm512_set1_ps(0x1p23f));
    const __m512i bits = _mm512_sub_epi32(_mm512_castps_si512(scaled), root);
    __m512 e = _mm512_cvtepi32_ps(_mm512_srai_epi32(bits, 23));
    e = _mm512_mask_sub_ps(e, subnormal, e, _mm512_set1_ps(23.0f));
    const __m512i m = _mm512_add_epi32(_mm512_and_si512(bits, _mm512_set1_epi32(0x7fffff)), root);
    const __m512 f = _mm512_sub_ps(_mm512_castsi512_ps(m), _mm512_set1_ps(1.0f));
    const __m512 s = _mm512_div_ps(f, _mm512_add_ps(_mm512_set1_ps(2.0f), f));
    const __m512 z = _mm512_mul_ps(s, s);
    __m512 p = _mm512_set1_ps(0x1.c71c72p-3f);
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(0x1.24924ap-2f));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(0x1.99999ap-2f));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(0x1.555556p-1f));
    const __m512 half_square = _mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(0.5f), f), f);
    const __m512 tail = _mm512_mul_ps(s, _mm512_fmadd_ps(p, z, half_square));
    const __m512 low =
        _mm512_sub_ps(_mm512_fmadd_ps(e, _mm512_set1_ps(0x1.7f7d1cp-20f), tail), half_square);
    __m512 y = _mm512_fmadd_ps(e, _mm512_set1_ps(0x1.62e400p-1f), _mm512_add_ps(low, f));

    const __m512 zero = _mm512_setzero_ps();
    const __m512 infinity = _mm512_castsi512_ps(_mm512_set1_epi32(0x7f800000));
    const __mmask16 negative = _mm512_cmp_ps_mask(x, zero, _CMP_LT_OQ);
    const __mmask16 is_zero = _mm512_cmp_ps_mask(x, zero, _CMP_EQ_OQ);
    const __mmask16 is_infinity = _mm512_cmp_ps_mask(x, infinity, _CMP_EQ_OQ);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    y = _mm512_mask_mov_ps(y, negative, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
    y = _mm512_mask_mov_ps(y, is_zero, _mm512_sub_ps(zero, infinity));
    y = _mm512_mask_mov_ps(y, is_infinity, infinity);
    return _mm512_mask_add_ps(y, is_nan, x, x);
}

static inline __m512 oct_sigmoid_x16(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 magnitude = _mm512_abs_ps(x);
    const __m512 e = oct_exp_x16(_mm512_sub_ps(_mm512_setzero_ps(), magnitude));
    const __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512 top = _mm512_mask_mov_ps(e, positive, one);
    return _mm512_mask_add_ps(_mm512_div_ps(top, _mm512_add_ps(one, e)), is_nan, x, x);
}

#endif
