/* AVX-512 twins of kernels/elementwise_ref.c: the same operations in the same order on 16 lanes, so
 * the same bits (a NaN is a NaN; which one, where several meet, is not defined).
 *
 * Every loop does whole vectors with the constant mask ALL, which the inlined step turns into plain
 * loads and stores, and one masked step for the rest. */
#if defined(__x86_64__)

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include <immintrin.h>

#include "kernels/elementwise.h"
#include "kernels/fmath_avx512.h"

enum { LANES = 16, ALL = 0xffff };

#define STEP static inline __attribute__((always_inline))

STEP __mmask16 rest_mask(int64_t n)
{
    return (__mmask16)((1u << n) - 1u);
}

/* --- BF16 and FP32 elements --------------------------------------------------------------------
 */

STEP __m512 widen16(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* Nearest, ties to even, in the low half of each lane; NaN becomes quiet. Not vcvtneps2bf16: that
 * flushes subnormals. */
STEP __m512i bf16_bits(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i bump = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bump), 16);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(rounded, is_nan, high, _mm512_set1_epi32(0x40));
}

STEP __m512 round16(bool bf16, __m512 x)
{
    return bf16 ? _mm512_castsi512_ps(_mm512_slli_epi32(bf16_bits(x), 16)) : x;
}

/* Elements i .. i+15 of `x`, 0 where the mask is clear. */
STEP __m512 load16(bool bf16, const void *x, int64_t i, __mmask16 mask)
{
    if (bf16) {
        const uint16_t *at = (const uint16_t *)x + i;
        return widen16(mask == ALL ? _mm256_loadu_si256((const __m256i *)(const void *)at)
                                   : _mm256_maskz_loadu_epi16(mask, at));
    }
    const float *at = (const float *)x + i;
    return mask == ALL ? _mm512_loadu_ps(at) : _mm512_maskz_loadu_ps(mask, at);
}

STEP void store16(bool bf16, void *y, int64_t i, __mmask16 mask, __m512 value)
{
    if (bf16) {
        uint16_t *at = (uint16_t *)y + i;
        const __m256i bits = _mm512_cvtepi32_epi16(bf16_bits(value));
        if (mask == ALL)
            _mm256_storeu_si256((__m256i *)(void *)at, bits);
        else
            _mm256_mask_storeu_epi16(at, mask, bits);
        return;
    }
    float *at = (float *)y + i;
    if (mask == ALL)
        _mm512_storeu_ps(at, value);
    else
        _mm512_mask_storeu_ps(at, mask, value);
}

/* lane = fma(a, b, lane) where the mask is set. */
STEP __m512 fma_lanes(__m512 lane, __mmask16 mask, __m512 a, __m512 b)
{
    return mask == ALL ? _mm512_fmadd_ps(a, b, lane) : _mm512_mask3_fmadd_ps(a, b, lane, mask);
}

/* The fixed tree: halves are added until one lane is left. */
STEP float sum_lanes(__m512 lane)
{
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(lane), _mm512_extractf32x8_ps(lane, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

/* The same tree with hi > lo ? hi : lo. */
STEP float max_lanes(__m512 lane)
{
    const __m256 eight =
        _mm256_max_ps(_mm512_extractf32x8_ps(lane, 1), _mm512_castps512_ps256(lane));
    __m128 four = _mm_max_ps(_mm256_extractf128_ps(eight, 1), _mm256_castps256_ps128(eight));
    four = _mm_max_ps(_mm_movehl_ps(four, four), four);
    return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(four), four));
}

/* --- functions ---------------------------------------------------------------------------------
 */

static void exp_avx512(int64_t n, const float *x, float *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store16(false, y, i, ALL, oct_exp_x16(load16(false, x, i, ALL)));
    if (i < n)
        store16(false, y, i, rest_mask(n - i), oct_exp_x16(load16(false, x, i, rest_mask(n - i))));
}

static void log_avx512(int64_t n, const float *x, float *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store16(false, y, i, ALL, oct_log_x16(load16(false, x, i, ALL)));
    if (i < n)
        store16(false, y, i, rest_mask(n - i), oct_log_x16(load16(false, x, i, rest_mask(n - i))));
}

static void sigmoid_avx512(int64_t n, const float *x, float *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store16(false, y, i, ALL, oct_sigmoid_x16(load16(false, x, i, ALL)));
    if (i < n)
        store16(false, y, i, rest_mask(n - i),
                oct_sigmoid_x16(load16(false, x, i, rest_mask(n - i))));
}

/* --- sum of two activations --------------------------------------------------------------------
 */

STEP void add_step(bool bf16, int64_t i, __mmask16 mask, const void *a, const void *b, void *y)
{
    store16(bf16, y, i, mask, _mm512_add_ps(load16(bf16, a, i, mask), load16(bf16, b, i, mask)));
}

STEP void add_loop(bool bf16, int64_t n, const void *a, const void *b, void *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        add_step(bf16, i, ALL, a, b, y);
    if (i < n)
        add_step(bf16, i, rest_mask(n - i), a, b, y);
}

static void add_avx512(oct_dtype dtype, int64_t n, const void *a, const void *b, void *y)
{
    if (dtype == OCT_DTYPE_BF16)
        add_loop(true, n, a, b, y);
    else
        add_loop(false, n, a, b, y);
}

/* --- SwiGLU ------------------------------------------------------------------------------------
 */

STEP void swiglu_step(bool bf16, int64_t i, __mmask16 mask, const void *gate, const void *up,
                      void *y)
{
    const __m512 g = load16(bf16, gate, i, mask);
    const __m512 s = round16(bf16, _mm512_mul_ps(g, oct_sigmoid_x16(g)));
    store16(bf16, y, i, mask, _mm512_mul_ps(s, load16(bf16, up, i, mask)));
}

STEP void swiglu_loop(bool bf16, int64_t n, const void *gate, const void *up, void *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        swiglu_step(bf16, i, ALL, gate, up, y);
    if (i < n)
        swiglu_step(bf16, i, rest_mask(n - i), gate, up, y);
}

static void swiglu_avx512(oct_dtype dtype, int64_t n, const void *gate, const void *up, void *y)
{
    if (dtype == OCT_DTYPE_BF16)
        swiglu_loop(true, n, gate, up, y);
    else
        swiglu_loop(false, n, gate, up, y);
}

STEP void swiglu_backward_step(bool bf16, int64_t i, __mmask16 mask, const void *dy,
                               const void *gate, const void *up, void *dgate, void *dup)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 g = load16(bf16, gate, i, mask), d = load16(bf16, dy, i, mask);
    const __m512 sig = oct_sigmoid_x16(g);
    const __m512 s = round16(bf16, _mm512_mul_ps(g, sig));
    const __m512 ds = round16(bf16, _mm512_mul_ps(d, load16(bf16, up, i, mask)));
    const __m512 slope = _mm512_mul_ps(sig, _mm512_fmadd_ps(g, _mm512_sub_ps(one, sig), one));
    store16(bf16, dup, i, mask, _mm512_mul_ps(d, s));
    store16(bf16, dgate, i, mask, _mm512_mul_ps(ds, slope));
}

STEP void swiglu_backward_loop(bool bf16, int64_t n, const void *dy, const void *gate,
                               const void *up, void *dgate, void *dup)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        swiglu_backward_step(bf16, i, ALL, dy, gate, up, dgate, dup);
    if (i < n)
        swiglu_backward_step(bf16, i, rest_mask(n - i), dy, gate, up, dgate, dup);
}

static void swiglu_backward_avx512(oct_dtype dtype, int64_t n, const void *dy, const void *gate,
                                   const void *up, void *dgate, void *dup)
{
    if (dtype == OCT_DTYPE_BF16)
        swiglu_backward_loop(true, n, dy, gate, up, dgate, dup);
    else
        swiglu_backward_loop(false, n, dy, gate, up, dgate, dup);
}

/* --- RMSNorm -----------------------------------------------------------------------------------
 */

STEP void norm_step(bool bf16, int64_t i, __mmask16 mask, const void *x, const void *w, __m512 rstd,
                    void *y)
{
    const __m512 normalised = round16(bf16, _mm512_mul_ps(load16(bf16, x, i, mask), rstd));
    store16(bf16, y, i, mask, _mm512_mul_ps(normalised, load16(bf16, w, i, mask)));
}

STEP float norm_loop(bool bf16, int64_t n, const void *x, const void *w, float eps, void *y)
{
    __m512 lane = _mm512_setzero_ps();
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m512 value = load16(bf16, x, i, ALL);
        lane = fma_lanes(lane, ALL, value, value);
    }
    if (i < n) {
        const __m512 value = load16(bf16, x, i, rest_mask(n - i));
        lane = fma_lanes(lane, rest_mask(n - i), value, value);
    }
    const float rstd = 1.0f / sqrtf(sum_lanes(lane) / (float)n + eps);
    for (i = 0; i + LANES <= n; i += LANES)
        norm_step(bf16, i, ALL, x, w, _mm512_set1_ps(rstd), y);
    if (i < n)
        norm_step(bf16, i, rest_mask(n - i), x, w, _mm512_set1_ps(rstd), y);
    return rstd;
}

static float rmsnorm_avx512(oct_dtype dtype, int64_t n, const void *x, const void *w, float eps,
                            void *y)
{
    return dtype == OCT_DTYPE_BF16 ? norm_loop(true, n, x, w, eps, y)
                                   : norm_loop(false, n, x, w, eps, y);
}

/* round(dy * w) */
STEP __m512 norm_gradient(bool bf16, int64_t i, __mmask16 mask, const void *dy, const void *w)
{
    return round16(bf16, _mm512_mul_ps(load16(bf16, dy, i, mask), load16(bf16, w, i, mask)));
}

STEP __m512 norm_dot_step(bool bf16, int64_t i, __mmask16 mask, const void *dy, const void *x,
                          const void *w, __m512 rstd, __m512 lane)
{
    return fma_lanes(lane, mask, norm_gradient(bf16, i, mask, dy, w),
                     _mm512_mul_ps(load16(bf16, x, i, mask), rstd));
}

STEP void norm_backward_step(bool bf16, int64_t i, __mmask16 mask, const void *dy, const void *x,
                             const void *w, __m512 rstd, __m512 c, const void *add_to, void *dx)
{
    const __m512 xh = _mm512_mul_ps(load16(bf16, x, i, mask), rstd);
    __m512 d = _mm512_fnmadd_ps(c, xh, norm_gradient(bf16, i, mask, dy, w));
    d = _mm512_mul_ps(rstd, d);
    if (add_to)
        d = _mm512_add_ps(load16(bf16, add_to, i, mask), round16(bf16, d));
    store16(bf16, dx, i, mask, d);
}

STEP void norm_backward_loop(bool bf16, int64_t n, const void *dy, const void *x, const void *w,
                             float rstd, const void *add_to, void *dx)
{
    const __m512 r = _mm512_set1_ps(rstd);
    __m512 lane = _mm512_setzero_ps();
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lane = norm_dot_step(bf16, i, ALL, dy, x, w, r, lane);
    if (i < n)
        lane = norm_dot_step(bf16, i, rest_mask(n - i), dy, x, w, r, lane);
    const __m512 c = _mm512_set1_ps(sum_lanes(lane) / (float)n);
    for (i = 0; i + LANES <= n; i += LANES)
        norm_backward_step(bf16, i, ALL, dy, x, w, r, c, add_to, dx);
    if (i < n)
        norm_backward_step(bf16, i, rest_mask(n - i), dy, x, w, r, c, add_to, dx);
}

static void rmsnorm_backward_avx512(oct_dtype dtype, int64_t n, const void *dy, const void *x,
                                    const void *w, float rstd, const void *add_to, void *dx)
{
    if (dtype == OCT_DTYPE_BF16)
        norm_backward_loop(true, n, dy, x, w, rstd, add_to, dx);
    else
        norm_backward_loop(false, n, dy, x, w, rstd, add_to, dx);
}

STEP void norm_dw_step(bool bf16, int64_t i, __mmask16 mask, const void *dy, const void *x,
                       __m512 rstd, float *sums)
{
    const __m512 normalised = round16(bf16, _mm512_mul_ps(load16(bf16, x, i, mask), rstd));
    store16(false, sums, i, mask,
            _mm512_fmadd_ps(load16(bf16, dy, i, mask), normalised, load16(false, sums, i, mask)));
}

STEP void norm_dw_loop(bool bf16, int64_t n, const void *dy, const void *x, float rstd, float *sums)
{
    const __m512 r = _mm512_set1_ps(rstd);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        norm_dw_step(bf16, i, ALL, dy, x, r, sums);
    if (i < n)
        norm_dw_step(bf16, i, rest_mask(n - i), dy, x, r, sums);
}

static void rmsnorm_dw_avx512(oct_dtype dtype, int64_t n, const void *dy, const void *x, float rstd,
                              float *sums)
{
    if (dtype == OCT_DTYPE_BF16)
        norm_dw_loop(true, n, dy, x, rstd, sums);
    else
        norm_dw_loop(false, n, dy, x, rstd, sums);
}

/* --- sums of rows ------------------------------------------------------------------------------
 */

STEP void accumulate_step(bool bf16, int64_t i, __mmask16 mask, const void *x, float *sums)
{
    store16(false, sums, i, mask,
            _mm512_add_ps(load16(false, sums, i, mask), load16(bf16, x, i, mask)));
}

STEP void accumulate_loop(bool bf16, int64_t n, const void *x, float *sums)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        accumulate_step(bf16, i, ALL, x, sums);
    if (i < n)
        accumulate_step(bf16, i, rest_mask(n - i), x, sums);
}

static void accumulate_avx512(oct_dtype dtype, int64_t n, const void *x, float *sums)
{
    if (dtype == OCT_DTYPE_BF16)
        accumulate_loop(true, n, x, sums);
    else
        accumulate_loop(false, n, x, sums);
}

STEP __m512 row_term(bool bf16, int64_t i, __mmask16 mask, int64_t k, const void *x, int64_t stride,
                     const int32_t *rows, const float *weights)
{
    const __m512 value = load16(bf16, x, (rows ? rows[k] : k) * stride + i, mask);
    return weights ? _mm512_mul_ps(value, _mm512_set1_ps(weights[k])) : value;
}

STEP void sum_rows_step(bool bf16, int64_t i, __mmask16 mask, int64_t count, const void *x,
                        int64_t stride, const int32_t *rows, const float *weights,
                        const void *addend, void *y)
{
    __m512 sum = row_term(bf16, i, mask, 0, x, stride, rows, weights);
    for (int64_t k = 1; k < count; k++)
        sum = _mm512_add_ps(sum, row_term(bf16, i, mask, k, x, stride, rows, weights));
    if (addend)
        sum = _mm512_add_ps(round16(bf16, sum), load16(bf16, addend, i, mask));
    store16(bf16, y, i, mask, sum);
}

STEP void sum_rows_loop(bool bf16, int64_t n, int64_t count, const void *x, int64_t stride,
                        const int32_t *rows, const float *weights, const void *addend, void *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        sum_rows_step(bf16, i, ALL, count, x, stride, rows, weights, addend, y);
    if (i < n)
        sum_rows_step(bf16, i, rest_mask(n - i), count, x, stride, rows, weights, addend, y);
}

static void sum_rows_avx512(oct_dtype dtype, int64_t n, int64_t count, const void *x,
                            int64_t stride, const int32_t *rows, const float *weights,
                            const void *addend, void *y)
{
    if (dtype == OCT_DTYPE_BF16)
        sum_rows_loop(true, n, count, x, stride, rows, weights, addend, y);
    else
        sum_rows_loop(false, n, count, x, stride, rows, weights, addend, y);
}

STEP void scale_step(bool bf16, int64_t i, __mmask16 mask, __m512 factor, const void *x, void *y)
{
    store16(bf16, y, i, mask, _mm512_mul_ps(factor, load16(bf16, x, i, mask)));
}

STEP void scale_loop(bool bf16, int64_t n, float factor, const void *x, void *y)
{
    const __m512 f = _mm512_set1_ps(factor);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        scale_step(bf16, i, ALL, f, x, y);
    if (i < n)
        scale_step(bf16, i, rest_mask(n - i), f, x, y);
}

static void scale_avx512(oct_dtype dtype, int64_t n, float factor, const void *x, void *y)
{
    if (dtype == OCT_DTYPE_BF16)
        scale_loop(true, n, factor, x, y);
    else
        scale_loop(false, n, factor, x, y);
}

STEP __m512 dot_step(bool bf16, int64_t i, __mmask16 mask, const void *a, const void *b,
                     __m512 lane)
{
    return fma_lanes(lane, mask, load16(bf16, a, i, mask), load16(bf16, b, i, mask));
}

STEP float dot_loop(bool bf16, int64_t n, const void *a, const void *b)
{
    __m512 lane = _mm512_setzero_ps();
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lane = dot_step(bf16, i, ALL, a, b, lane);
    if (i < n)
        lane = dot_step(bf16, i, rest_mask(n - i), a, b, lane);
    return sum_lanes(lane);
}

static float dot_avx512(oct_dtype dtype, int64_t n, const void *a, const void *b)
{
    return dtype == OCT_DTYPE_BF16 ? dot_loop(true, n, a, b) : dot_loop(false, n, a, b);
}

/* --- rope --------------------------------------------------------------------------------------
 */

/* 16 pairs as the vectors of their first and second elements. */
typedef struct pairs {
    __m512 a, b;
} pairs;

/* Pairs i .. i+15 of (x[2i], x[2i+1]). */
STEP pairs load_interleaved(bool bf16, const void *x, int64_t i, __mmask16 mask)
{
    if (bf16) { /* a pair is one 32-bit lane */
        const uint16_t *at = (const uint16_t *)x + 2 * i;
        const __m512i both = _mm512_maskz_loadu_epi32(mask, at);
        return (pairs){
            .a = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
            .b = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000u)))};
    }
    const float *at = (const float *)x + 2 * i;
    const uint32_t wide = mask == ALL ? 0xffffffffu : (1u << 2 * __builtin_popcount(mask)) - 1u;
    const __m512 low = _mm512_maskz_loadu_ps((__mmask16)wide, at);
    const __m512 high = _mm512_maskz_loadu_ps((__mmask16)(wide >> 16), at + LANES);
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return (pairs){.a = _mm512_permutex2var_ps(low, even, high),
                   .b = _mm512_permutex2var_ps(low, odd, high)};
}

STEP void store_interleaved(bool bf16, void *y, int64_t i, __mmask16 mask, pairs value)
{
    if (bf16) {
        uint16_t *at = (uint16_t *)y + 2 * i;
        const __m512i both =
            _mm512_or_si512(bf16_bits(value.a), _mm512_slli_epi32(bf16_bits(value.b), 16));
        _mm512_mask_storeu_epi32(at, mask, both);
        return;
    }
    float *at = (float *)y + 2 * i;
    const uint32_t wide = mask == ALL ? 0xffffffffu : (1u << 2 * __builtin_popcount(mask)) - 1u;
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    _mm512_mask_storeu_ps(at, (__mmask16)wide, _mm512_permutex2var_ps(value.a, low, value.b));
    _mm512_mask_storeu_ps(at + LANES, (__mmask16)(wide >> 16),
                          _mm512_permutex2var_ps(value.a, high, value.b));
}

STEP void rope_step(bool bf16, int64_t half, int64_t i, __mmask16 mask, const void *x,
                    const float *cos, const float *sin, bool interleave, bool inverse, void *y)
{
    const __m512 c = load16(false, cos, i, mask);
    __m512 s = load16(false, sin, i, mask);
    if (inverse)
        s = _mm512_xor_ps(s, _mm512_set1_ps(-0.0f));
    const pairs in = interleave && !inverse ? load_interleaved(bf16, x, i, mask)
                                            : (pairs){.a = load16(bf16, x, i, mask),
                                                      .b = load16(bf16, x, i + half, mask)};
    const pairs out = {.a = _mm512_sub_ps(round16(bf16, _mm512_mul_ps(in.a, c)),
                                          round16(bf16, _mm512_mul_ps(in.b, s))),
                       .b = _mm512_add_ps(round16(bf16, _mm512_mul_ps(in.b, c)),
                                          round16(bf16, _mm512_mul_ps(in.a, s)))};
    if (interleave && inverse) {
        store_interleaved(bf16, y, i, mask, out);
    } else {
        store16(bf16, y, i, mask, out.a);
        store16(bf16, y, i + half, mask, out.b);
    }
}

STEP void rope_loop(bool bf16, int64_t half, const void *x, const float *cos, const float *sin,
                    bool interleave, bool inverse, void *y)
{
    int64_t i = 0;
    for (; i + LANES <= half; i += LANES)
        rope_step(bf16, half, i, ALL, x, cos, sin, interleave, inverse, y);
    if (i < half)
        rope_step(bf16, half, i, rest_mask(half - i), x, cos, sin, interleave, inverse, y);
}

static void rope_avx512(oct_dtype dtype, int64_t half, const void *x, const float *cos,
                        const float *sin, bool interleave, bool inverse, void *y)
{
    if (dtype == OCT_DTYPE_BF16)
        rope_loop(true, half, x, cos, sin, interleave, inverse, y);
    else
        rope_loop(false, half, x, cos, sin, interleave, inverse, y);
}

/* --- cross entropy -----------------------------------------------------------------------------
 */

STEP float row_max(bool bf16, int64_t n, const void *x)
{
    /* max(x, lane) keeps lane where x is NaN. */
    __m512 lane = _mm512_set1_ps(-INFINITY);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lane = _mm512_max_ps(load16(bf16, x, i, ALL), lane);
    if (i < n) {
        const __mmask16 mask = rest_mask(n - i);
        lane = _mm512_mask_max_ps(lane, mask, load16(bf16, x, i, mask), lane);
    }
    return max_lanes(lane);
}

STEP float row_exp_sum(bool bf16, int64_t n, const void *x, __m512 max)
{
    __m512 lane = _mm512_setzero_ps();
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lane = _mm512_add_ps(lane, oct_exp_x16(_mm512_sub_ps(load16(bf16, x, i, ALL), max)));
    if (i < n) {
        const __mmask16 mask = rest_mask(n - i);
        lane = _mm512_mask_add_ps(lane, mask, lane,
                                  oct_exp_x16(_mm512_sub_ps(load16(bf16, x, i, mask), max)));
    }
    return sum_lanes(lane);
}

/* One lane, with the lanes' own functions. */
STEP float log1(float x)
{
    return _mm512_cvtss_f32(oct_log_x16(_mm512_set1_ps(x)));
}

STEP float element(bool bf16, const void *x, int64_t i)
{
    return _mm512_cvtss_f32(load16(bf16, x, i, 1));
}

STEP void softmax_step(bool bf16, int64_t i, __mmask16 mask, void *x, int64_t target, __m512 max,
                       __m512 inverse_sum, __m512 scale)
{
    const __m512 e = oct_exp_x16(_mm512_sub_ps(load16(bf16, x, i, mask), max));
    __m512 p = _mm512_mul_ps(e, inverse_sum);
    if (target >= i && target < i + LANES)
        p = _mm512_mask_sub_ps(p, (__mmask16)(1u << (target - i)), p, _mm512_set1_ps(1.0f));
    store16(bf16, x, i, mask, _mm512_mul_ps(p, scale));
}

STEP float cross_entropy_loop(bool bf16, int64_t n, void *x, int64_t target, float scale)
{
    const float max = row_max(bf16, n, x);
    const __m512 m = _mm512_set1_ps(max);
    const float sum = row_exp_sum(bf16, n, x, m);
    const float loss = (max + log1(sum)) - element(bf16, x, target);
    if (scale > 0.0f) {
        const __m512 inverse_sum = _mm512_set1_ps(1.0f / sum), factor = _mm512_set1_ps(scale);
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES)
            softmax_step(bf16, i, ALL, x, target, m, inverse_sum, factor);
        if (i < n)
            softmax_step(bf16, i, rest_mask(n - i), x, target, m, inverse_sum, factor);
    }
    return loss;
}

static float cross_entropy_avx512(oct_dtype dtype, int64_t n, void *x, int64_t target, float scale)
{
    return dtype == OCT_DTYPE_BF16 ? cross_entropy_loop(true, n, x, target, scale)
                                   : cross_entropy_loop(false, n, x, target, scale);
}

/* --- gradient rows, conversion -----------------------------------------------------------------
 */

STEP void store_row_step(bool bf16, bool fold, bool round_bf16, int64_t i, __mmask16 mask,
                         const float *c, void *dst)
{
    __m512 value = round16(round_bf16, load16(false, c, i, mask));
    if (fold)
        value = _mm512_add_ps(load16(false, dst, i, mask), value);
    store16(bf16, dst, i, mask, value);
}

STEP void store_row_loop(bool bf16, bool fold, bool round_bf16, int64_t n, const float *c,
                         void *dst)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store_row_step(bf16, fold, round_bf16, i, ALL, c, dst);
    if (i < n)
        store_row_step(bf16, fold, round_bf16, i, rest_mask(n - i), c, dst);
}

static void store_row_avx512(const oct_gemm_out *out, int64_t n, const float *c, void *dst)
{
    if (out->store == OCT_GEMM_FOLD)
        store_row_loop(false, true, out->round_bf16, n, c, dst);
    else
        store_row_loop(out->dtype == OCT_DTYPE_BF16, false, out->round_bf16, n, c, dst);
}

static void widen_avx512(int64_t n, const uint16_t *x, float *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store16(false, y, i, ALL, load16(true, x, i, ALL));
    if (i < n)
        store16(false, y, i, rest_mask(n - i), load16(true, x, i, rest_mask(n - i)));
}

static void narrow_avx512(int64_t n, const float *x, uint16_t *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store16(true, y, i, ALL, load16(false, x, i, ALL));
    if (i < n)
        store16(true, y, i, rest_mask(n - i), load16(false, x, i, rest_mask(n - i)));
}

/* --- optimizer ---------------------------------------------------------------------------------
 */

STEP void adamw_step(const oct_adamw_constants *k, int64_t i, __mmask16 mask, const float *grad,
                     float *w, float *m, float *v)
{
    const __m512 g = _mm512_mul_ps(load16(false, grad, i, mask), _mm512_set1_ps(k->grad_scale));
    const __m512 new_m = _mm512_fmadd_ps(_mm512_set1_ps(k->beta1), load16(false, m, i, mask),
                                         _mm512_mul_ps(_mm512_set1_ps(k->gain1), g));
    const __m512 new_v =
        _mm512_fmadd_ps(_mm512_set1_ps(k->beta2), load16(false, v, i, mask),
                        _mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(k->gain2), g), g));
    const __m512 root = _mm512_div_ps(_mm512_sqrt_ps(new_v), _mm512_set1_ps(k->root_bias2));
    const __m512 update = _mm512_div_ps(new_m, _mm512_add_ps(root, _mm512_set1_ps(k->eps)));
    const __m512 decayed = _mm512_mul_ps(load16(false, w, i, mask), _mm512_set1_ps(k->decay));
    store16(false, m, i, mask, new_m);
    store16(false, v, i, mask, new_v);
    store16(false, w, i, mask, _mm512_fnmadd_ps(_mm512_set1_ps(k->step_size), update, decayed));
}

static void adamw_avx512(const oct_adamw_constants *constants, int64_t n, const float *grad,
                         float *w, float *m, float *v)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        adamw_step(constants, i, ALL, grad, w, m, v);
    if (i < n)
        adamw_step(constants, i, rest_mask(n - i), grad, w, m, v);
}

static double sum_squares_avx512(int64_t n, const float *x)
{
    /* The square of an FP32 value is exact in FP64, so the FMA rounds like the sum. */
    __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd(); /* lanes 0-7, 8-15 */
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 mask = n - i >= LANES ? ALL : rest_mask(n - i);
        const __m512 value = load16(false, x, i, mask);
        const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(value));
        const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(value, 1));
        low = _mm512_fmadd_pd(a, a, low); /* a masked lane adds 0 to a sum that is no -0 */
        high = _mm512_fmadd_pd(b, b, high);
    }
    const __m512d eight = _mm512_add_pd(low, high);
    const __m256d four =
        _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

/* --- initial weights ----------------------------------------------------------------------------
 */

/* 8 blocks at a time, in lanes of 64 bits. */
enum { NORMAL_BLOCKS = 8 };

/* oct_rng_block; what is above 32 bits is left over from products and means nothing. */
STEP void normal_words(uint64_t key, __m512i counter, __m512i words[OCT_NORMAL_WORDS])
{
    const __m512i low = _mm512_set1_epi64(0xffffffff);
    __m512i c0 = counter, c1 = _mm512_srli_epi64(counter, 32);
    __m512i c2 = _mm512_setzero_si512(), c3 = c2;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const __m512i p0 = _mm512_mul_epu32(c0, _mm512_set1_epi64(0xD2511F53));
        const __m512i p1 = _mm512_mul_epu32(c2, _mm512_set1_epi64(0xCD9E8D57));
        c0 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p1, 32), c1),
                              _mm512_set1_epi64(k0));
        c2 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p0, 32), c3),
                              _mm512_set1_epi64(k1));
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = _mm512_and_si512(c0, low);
    words[1] = _mm512_and_si512(c1, low);
    words[2] = _mm512_and_si512(c2, low);
    words[3] = _mm512_and_si512(c3, low);
}

/* a + z * b */
STEP __m512d horner(double a, __m512d z, __m512d b)
{
    return _mm512_add_pd(_mm512_set1_pd(a), _mm512_mul_pd(z, b));
}

STEP __m512d log_uniform(__m512i w)
{
    const __m512d one = _mm512_set1_pd(1.0);
    const __m512i root = _mm512_set1_epi64(0x3fe6a09e667f3bcd);
    const __m512d u = _mm512_add_pd(_mm512_cvtepi64_pd(w), _mm512_set1_pd(0.5));
    const __m512i bits = _mm512_sub_epi64(_mm512_castpd_si512(u), root);
    const __m512d e =
        _mm512_sub_pd(_mm512_cvtepi64_pd(_mm512_srai_epi64(bits, 52)), _mm512_set1_pd(32.0));
    const __m512d m = _mm512_castsi512_pd(
        _mm512_add_epi64(_mm512_and_si512(bits, _mm512_set1_epi64(0xfffffffffffff)), root));
    const __m512d s = _mm512_div_pd(_mm512_sub_pd(m, one), _mm512_add_pd(m, one));
    const __m512d z = _mm512_mul_pd(s, s);
    __m512d series = _mm512_set1_pd(1.0 / 11);
    series = horner(1.0 / 9, z, series);
    series = horner(1.0 / 7, z, series);
    series = horner(1.0 / 5, z, series);
    series = horner(1.0 / 3, z, series);
    series = horner(1.0, z, series);
    const __m512d twice = _mm512_mul_pd(_mm512_mul_pd(_mm512_set1_pd(2.0), s), series);
    return _mm512_add_pd(_mm512_mul_pd(e, _mm512_set1_pd(0x1.62e42fefa39efp-1)), twice);
}

/* `value` with its sign changed where bit 1 of `quadrant` is set. */
STEP __m512d turn(__m512d value, __m512i quadrant)
{
    const __m512i sign = _mm512_slli_epi64(_mm512_and_si512(quadrant, _mm512_set1_epi64(2)), 62);
    return _mm512_castsi512_pd(_mm512_xor_si512(_mm512_castpd_si512(value), sign));
}

STEP void circle(__m512i w, __m512d *cosine, __m512d *sine)
{
    const __m512i one = _mm512_set1_epi64(1);
    const __m512i quadrant =
        _mm512_and_si512(_mm512_srli_epi64(_mm512_add_epi64(w, _mm512_set1_epi64(0x20000000)), 30),
                         _mm512_set1_epi64(3));
    const __m512i rest = _mm512_sub_epi64(w, _mm512_slli_epi64(quadrant, 30));
    const __m512i angle = _mm512_srai_epi64(_mm512_slli_epi64(rest, 32), 32);
    const __m512d x =
        _mm512_mul_pd(_mm512_cvtepi64_pd(angle), _mm512_set1_pd(0x1.921fb54442d18p+2 * 0x1p-32));
    const __m512d z = _mm512_mul_pd(x, x);
    __m512d c = _mm512_set1_pd(-1.0 / 3628800), s = _mm512_set1_pd(-1.0 / 39916800);
    c = horner(1.0 / 40320, z, c);
    c = horner(-1.0 / 720, z, c);
    c = horner(1.0 / 24, z, c);
    c = horner(-1.0 / 2, z, c);
    c = horner(1.0, z, c);
    s = horner(1.0 / 362880, z, s);
    s = horner(-1.0 / 5040, z, s);
    s = horner(1.0 / 120, z, s);
    s = horner(-1.0 / 6, z, s);
    s = _mm512_mul_pd(x, horner(1.0, z, s));
    const __mmask8 odd = _mm512_test_epi64_mask(quadrant, one);
    *cosine = turn(_mm512_mask_blend_pd(odd, c, s), _mm512_add_epi64(quadrant, one));
    *sine = turn(_mm512_mask_blend_pd(odd, s, c), quadrant);
}

/* Two numbers of 8 blocks. */
STEP void normal_pair(__m512i first, __m512i second, __m512d std, __m256 *a, __m256 *b)
{
    __m512d cosine, sine;
    const __m512d square = _mm512_mul_pd(_mm512_set1_pd(-2.0), log_uniform(first));
    const __m512d radius = _mm512_mul_pd(_mm512_sqrt_pd(square), std);
    circle(second, &cosine, &sine);
    *a = _mm512_cvtpd_ps(_mm512_mul_pd(radius, cosine));
    *b = _mm512_cvtpd_ps(_mm512_mul_pd(radius, sine));
}

/* out[4b + i] = x[i] lane b. */
STEP void store_blocks(const __m256 x[OCT_NORMAL_WORDS], float *out)
{
    const __m256d low0 = _mm256_castps_pd(_mm256_unpacklo_ps(x[0], x[1]));
    const __m256d high0 = _mm256_castps_pd(_mm256_unpackhi_ps(x[0], x[1]));
    const __m256d low1 = _mm256_castps_pd(_mm256_unpacklo_ps(x[2], x[3]));
    const __m256d high1 = _mm256_castps_pd(_mm256_unpackhi_ps(x[2], x[3]));
    /* Blocks i and 4 + i. */
    const __m256 y[4] = {_mm256_castpd_ps(_mm256_unpacklo_pd(low0, low1)),
                         _mm256_castpd_ps(_mm256_unpackhi_pd(low0, low1)),
                         _mm256_castpd_ps(_mm256_unpacklo_pd(high0, high1)),
                         _mm256_castpd_ps(_mm256_unpackhi_pd(high0, high1))};
    for (int i = 0; i < 4; i++) {
        _mm_storeu_ps(out + 4 * i, _mm256_castps256_ps128(y[i]));
        _mm_storeu_ps(out + 16 + 4 * i, _mm256_extractf128_ps(y[i], 1));
    }
}

STEP void normal_step(oct_rng stream, uint64_t first, __m512d std, float *out)
{
    __m512i words[OCT_NORMAL_WORDS];
    __m256 x[OCT_NORMAL_WORDS];
    const __m512i counter = _mm512_add_epi64(_mm512_set1_epi64((int64_t)first),
                                             _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    normal_words(stream.key, counter, words);
    normal_pair(words[0], words[1], std, &x[0], &x[1]);
    normal_pair(words[2], words[3], std, &x[2], &x[3]);
    store_blocks(x, out);
}

static void normal_avx512(oct_rng stream, uint64_t first, int64_t blocks, double std, float *out)
{
    const __m512d deviation = _mm512_set1_pd(std);
    int64_t b = 0;
    for (; b + NORMAL_BLOCKS <= blocks; b += NORMAL_BLOCKS)
        normal_step(stream, first + (uint64_t)b, deviation, out + b * OCT_NORMAL_WORDS);
    if (b < blocks) {
        float rest[NORMAL_BLOCKS * OCT_NORMAL_WORDS];
        normal_step(stream, first + (uint64_t)b, deviation, rest);
        memcpy(out + b * OCT_NORMAL_WORDS, rest,
               (size_t)((blocks - b) * OCT_NORMAL_WORDS) * sizeof *out);
    }
}

void oct_elementwise_kernels_avx512(oct_elementwise_kernels *kernels)
{
    *kernels = (oct_elementwise_kernels){
        .exp = exp_avx512,
        .log = log_avx512,
        .sigmoid = sigmoid_avx512,
        .add = add_avx512,
        .swiglu = swiglu_avx512,
        .swiglu_backward = swiglu_backward_avx512,
        .rmsnorm = rmsnorm_avx512,
        .rmsnorm_backward = rmsnorm_backward_avx512,
        .rmsnorm_dw = rmsnorm_dw_avx512,
        .accumulate = accumulate_avx512,
        .sum_rows = sum_rows_avx512,
        .scale = scale_avx512,
        .dot = dot_avx512,
        .rope = rope_avx512,
        .cross_entropy = cross_entropy_avx512,
        .store_row = store_row_avx512,
        .widen = widen_avx512,
        .narrow = narrow_avx512,
        .adamw = adamw_avx512,
        .sum_squares = sum_squares_avx512,
        .normal = normal_avx512,
    };
}

#endif
