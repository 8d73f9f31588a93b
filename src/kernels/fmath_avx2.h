/* 8-lane twins of the FP32 functions of numeric/fmath.h: the same operations in the same order, so
 * the same bits for every operand. For *_avx2.c only: everything here is static inline because it
 * is compiled with the instruction set of the file that includes it. */
#ifndef OCT_KERNELS_FMATH_AVX2_H
#define OCT_KERNELS_FMATH_AVX2_H

#include <immintrin.h>

/* 2^n for normal results. */
static inline __m256 oct_exp2_x8(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

static inline __m256 oct_exp_x8(__m256 x)
{
    const __m256 magic = _mm256_set1_ps(0x1.8p23f);
    const __m256 one = _mm256_set1_ps(1.0f);
    /* Both keep their second operand if one is NaN. */
    x = _mm256_min_ps(_mm256_set1_ps(89.0f), x);
    x = _mm256_max_ps(_mm256_set1_ps(-104.0f), x);
    const __m256 n =
        _mm256_sub_ps(_mm256_fmadd_ps(x, _mm256_set1_ps(0x1.715476p+0f), magic), magic);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.62e430p-1f), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(0x1.05c610p-29f), r);
    __m256 p = _mm256_set1_ps(0x1.6a1e6ep-10f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.123980p-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558f6p-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555492p-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2f));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    /* p * 2^n in two factors, of which the first is exact. A NaN converts to INT_MIN, whose two
     * halves make both factors 1. */
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(p, oct_exp2_x8(half)),
                         oct_exp2_x8(_mm256_sub_epi32(whole, half)));
}

static inline __m256 oct_log_x8(__m256 x)
{
    const __m256i root = _mm256_set1_epi32(0x3f3504f3);
    const __m256 subnormal = _mm256_cmp_ps(x, _mm256_set1_ps(0x1p-126f), _CMP_LT_OQ);
    const __m256 scaled = _mm256_blendv_ps(x, _mm256_mul_ps(x, _mm256_set1_ps(0x1p23f)), subnormal);
    const __m256i bits = _mm256_sub_epi32(_mm256_castps_si256(scaled), root);
    const __m256 e = _mm256_sub_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(bits, 23)),
                                   _mm256_and_ps(subnormal, _mm256_set1_ps(23.0f)));
    const __m256i m = _mm256_add_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffff)), root);
    const __m256 f = _mm256_sub_ps(_mm256_castsi256_ps(m), _mm256_set1_ps(1.0f));
    const __m256 s = _mm256_div_ps(f, _mm256_add_ps(_mm256_set1_ps(2.0f), f));
    const __m256 z = _mm256_mul_ps(s, s);
    __m256 p = _mm256_set1_ps(0x1.c71c72p-3f);
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(0x1.24924ap-2f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(0x1.99999ap-2f));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(0x1.555556p-1f));
    const __m256 half_square = _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(0.5f), f), f);
    const __m256 tail = _mm256_mul_ps(s, _mm256_fmadd_ps(p, z, half_square));
    const __m256 low =
        _mm256_sub_ps(_mm256_fmadd_ps(e, _mm256_set1_ps(0x1.7f7d1cp-20f), tail), half_square);
    __m256 y = _mm256_fmadd_ps(e, _mm256_set1_ps(0x1.62e400p-1f), _mm256_add_ps(low, f));

    const __m256 zero = _mm256_setzero_ps();
    const __m256 infinity = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000));
    const __m256 invalid = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    y = _mm256_blendv_ps(y, invalid, _mm256_cmp_ps(x, zero, _CMP_LT_OQ));
    y = _mm256_blendv_ps(y, _mm256_sub_ps(zero, infinity), _mm256_cmp_ps(x, zero, _CMP_EQ_OQ));
    y = _mm256_blendv_ps(y, infinity, _mm256_cmp_ps(x, infinity, _CMP_EQ_OQ));
    return _mm256_blendv_ps(y, _mm256_add_ps(x, x), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

static inline __m256 oct_sigmoid_x8(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 minus_magnitude = _mm256_or_ps(x, _mm256_set1_ps(-0.0f));
    const __m256 e = oct_exp_x8(minus_magnitude);
    const __m256 positive = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GE_OQ);
    const __m256 y = _mm256_div_ps(_mm256_blendv_ps(e, one, positive), _mm256_add_ps(one, e));
    return _mm256_blendv_ps(y, _mm256_add_ps(x, x), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

#endif
