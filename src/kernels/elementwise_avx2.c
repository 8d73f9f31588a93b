/* AVX2 twins of kernels/elementwise_ref.c: the same operations in the same order on 8 lanes, so the
 * same bits (a NaN is a NaN; which one, where several meet, is not defined). A reduction keeps its
 * 16 lanes in two vectors.
 *
 * Every loop does whole vectors with the constant count LANES, which the inlined step turns into
 * plain loads and stores, and one shorter step for the rest. */
#if defined(__x86_64__)

#include <math.h>
#include <stdbool.h>

#include <immintrin.h>

#include "base/size.h"
#include "kernels/elementwise.h"
#include "kernels/fmath_avx2.h"

enum { LANES = 8 };

#define STEP static inline __attribute__((always_inline))

/* All bits of the lanes below `count`. */
STEP __m256i first_lanes(int64_t count)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lane);
}

/* `yes` in the lanes below `count`, `no` in the others. */
STEP __m256 select8(int64_t count, __m256 yes, __m256 no)
{
    return count == LANES ? yes
                          : _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(first_lanes(count)));
}

/* --- BF16 and FP32 elements --------------------------------------------------------------------
 */

STEP __m256 widen8(__m128i x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

/* Nearest, ties to even, in the low half of each lane; NaN becomes quiet. */
STEP __m256i bf16_bits(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i bump = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bump), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, is_nan);
}

STEP __m256 round8(bool bf16, __m256 x)
{
    return bf16 ? _mm256_castsi256_ps(_mm256_slli_epi32(bf16_bits(x), 16)) : x;
}

/* Elements i .. i+count-1 of `x`, then 0. */
STEP __m256 load8(bool bf16, const void *x, int64_t i, int64_t count)
{
    if (bf16) {
        const uint16_t *at = (const uint16_t *)x + i;
        if (count == LANES)
            return widen8(_mm_loadu_si128((const __m128i *)(const void *)at));
        uint16_t part[LANES] = {0};
        for (int64_t j = 0; j < count; j++)
            part[j] = at[j];
        return widen8(_mm_loadu_si128((const __m128i *)(const void *)part));
    }
    const float *at = (const float *)x + i;
    return count == LANES ? _mm256_loadu_ps(at) : _mm256_maskload_ps(at, first_lanes(count));
}

STEP void store8(bool bf16, void *y, int64_t i, int64_t count, __m256 value)
{
    if (bf16) {
        uint16_t *at = (uint16_t *)y + i;
        const __m256i wide = bf16_bits(value);
        const __m128i bits =
            _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
        if (count == LANES) {
            _mm_storeu_si128((__m128i *)(void *)at, bits);
            return;
        }
        uint16_t part[LANES];
        _mm_storeu_si128((__m128i *)(void *)part, bits);
        for (int64_t j = 0; j < count; j++)
            at[j] = part[j];
        return;
    }
    float *at = (float *)y + i;
    if (count == LANES)
        _mm256_storeu_ps(at, value);
    else
        _mm256_maskstore_ps(at, first_lanes(count), value);
}

/* --- reductions --------------------------------------------------------------------------------
 */

/* The 16 lanes of a reduction. Elements i .. i+7 go to the low half if i is a multiple of 16. */
typedef struct lanes16 {
    __m256 low, high;
} lanes16;

STEP lanes16 all_lanes(float x)
{
    return (lanes16){.low = _mm256_set1_ps(x), .high = _mm256_set1_ps(x)};
}

/* lane = fma(a, b, lane) below `count`. */
STEP __m256 fma_lanes(__m256 lane, int64_t count, __m256 a, __m256 b)
{
    return select8(count, _mm256_fmadd_ps(a, b, lane), lane);
}

/* The fixed tree: halves are added until one lane is left. */
STEP float sum_lanes(lanes16 lane)
{
    const __m256 eight = _mm256_add_ps(lane.low, lane.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

/* The same tree with hi > lo ? hi : lo. */
STEP float max_lanes(lanes16 lane)
{
    const __m256 eight = _mm256_max_ps(lane.high, lane.low);
    __m128 four = _mm_max_ps(_mm256_extractf128_ps(eight, 1), _mm256_castps256_ps128(eight));
    four = _mm_max_ps(_mm_movehl_ps(four, four), four);
    return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(four), four));
}

/* --- functions ---------------------------------------------------------------------------------
 */

static void exp_avx2(int64_t n, const float *x, float *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store8(false, y, i, LANES, oct_exp_x8(load8(false, x, i, LANES)));
    if (i < n)
        store8(false, y, i, n - i, oct_exp_x8(load8(false, x, i, n - i)));
}

static void log_avx2(int64_t n, const float *x, float *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store8(false, y, i, LANES, oct_log_x8(load8(false, x, i, LANES)));
    if (i < n)
        store8(false, y, i, n - i, oct_log_x8(load8(false, x, i, n - i)));
}

static void sigmoid_avx2(int64_t n, const float *x, float *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store8(false, y, i, LANES, oct_sigmoid_x8(load8(false, x, i, LANES)));
    if (i < n)
        store8(false, y, i, n - i, oct_sigmoid_x8(load8(false, x, i, n - i)));
}

/* --- sum of two activations --------------------------------------------------------------------
 */

STEP void add_step(bool bf16, int64_t i, int64_t count, const void *a, const void *b, void *y)
{
    store8(bf16, y, i, count, _mm256_add_ps(load8(bf16, a, i, count), load8(bf16, b, i, count)));
}

STEP void add_loop(bool bf16, int64_t n, const void *a, const void *b, void *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        add_step(bf16, i, LANES, a, b, y);
    if (i < n)
        add_step(bf16, i, n - i, a, b, y);
}

static void add_avx2(oct_dtype dtype, int64_t n, const void *a, const void *b, void *y)
{
    if (dtype == OCT_DTYPE_BF16)
        add_loop(true, n, a, b, y);
    else
        add_loop(false, n, a, b, y);
}

/* --- SwiGLU ------------------------------------------------------------------------------------
 */

STEP void swiglu_step(bool bf16, int64_t i, int64_t count, const void *gate, const void *up,
                      void *y)
{
    const __m256 g = load8(bf16, gate, i, count);
    const __m256 s = round8(bf16, _mm256_mul_ps(g, oct_sigmoid_x8(g)));
    store8(bf16, y, i, count, _mm256_mul_ps(s, load8(bf16, up, i, count)));
}

STEP void swiglu_loop(bool bf16, int64_t n, const void *gate, const void *up, void *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        swiglu_step(bf16, i, LANES, gate, up, y);
    if (i < n)
        swiglu_step(bf16, i, n - i, gate, up, y);
}

static void swiglu_avx2(oct_dtype dtype, int64_t n, const void *gate, const void *up, void *y)
{
    if (dtype == OCT_DTYPE_BF16)
        swiglu_loop(true, n, gate, up, y);
    else
        swiglu_loop(false, n, gate, up, y);
}

STEP void swiglu_backward_step(bool bf16, int64_t i, int64_t count, const void *dy,
                               const void *gate, const void *up, void *dgate, void *dup)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 g = load8(bf16, gate, i, count), d = load8(bf16, dy, i, count);
    const __m256 sig = oct_sigmoid_x8(g);
    const __m256 s = round8(bf16, _mm256_mul_ps(g, sig));
    const __m256 ds = round8(bf16, _mm256_mul_ps(d, load8(bf16, up, i, count)));
    const __m256 slope = _mm256_mul_ps(sig, _mm256_fmadd_ps(g, _mm256_sub_ps(one, sig), one));
    store8(bf16, dup, i, count, _mm256_mul_ps(d, s));
    store8(bf16, dgate, i, count, _mm256_mul_ps(ds, slope));
}

STEP void swiglu_backward_loop(bool bf16, int64_t n, const void *dy, const void *gate,
                               const void *up, void *dgate, void *dup)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        swiglu_backward_step(bf16, i, LANES, dy, gate, up, dgate, dup);
    if (i < n)
        swiglu_backward_step(bf16, i, n - i, dy, gate, up, dgate, dup);
}

static void swiglu_backward_avx2(oct_dtype dtype, int64_t n, const void *dy, const void *gate,
                                 const void *up, void *dgate, void *dup)
{
    if (dtype == OCT_DTYPE_BF16)
        swiglu_backward_loop(true, n, dy, gate, up, dgate, dup);
    else
        swiglu_backward_loop(false, n, dy, gate, up, dgate, dup);
}

/* --- RMSNorm -----------------------------------------------------------------------------------
 */

STEP void norm_step(bool bf16, int64_t i, int64_t count, const void *x, const void *w, __m256 rstd,
                    void *y)
{
    const __m256 normalised = round8(bf16, _mm256_mul_ps(load8(bf16, x, i, count), rstd));
    store8(bf16, y, i, count, _mm256_mul_ps(normalised, load8(bf16, w, i, count)));
}

STEP __m256 norm_square_step(bool bf16, int64_t i, int64_t count, const void *x, __m256 lane)
{
    const __m256 value = load8(bf16, x, i, count);
    return fma_lanes(lane, count, value, value);
}

STEP float norm_loop(bool bf16, int64_t n, const void *x, const void *w, float eps, void *y)
{
    lanes16 lane = all_lanes(0.0f);
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        lane.low = norm_square_step(bf16, i, LANES, x, lane.low);
        lane.high = norm_square_step(bf16, i + LANES, LANES, x, lane.high);
    }
    if (i < n)
        lane.low = norm_square_step(bf16, i, oct_min_i64(n - i, LANES), x, lane.low);
    if (i + LANES < n)
        lane.high = norm_square_step(bf16, i + LANES, n - i - LANES, x, lane.high);
    const float rstd = 1.0f / sqrtf(sum_lanes(lane) / (float)n + eps);
    for (i = 0; i + LANES <= n; i += LANES)
        norm_step(bf16, i, LANES, x, w, _mm256_set1_ps(rstd), y);
    if (i < n)
        norm_step(bf16, i, n - i, x, w, _mm256_set1_ps(rstd), y);
    return rstd;
}

static float rmsnorm_avx2(oct_dtype dtype, int64_t n, const void *x, const void *w, float eps,
                          void *y)
{
    return dtype == OCT_DTYPE_BF16 ? norm_loop(true, n, x, w, eps, y)
                                   : norm_loop(false, n, x, w, eps, y);
}

/* round(dy * w) */
STEP __m256 norm_gradient(bool bf16, int64_t i, int64_t count, const void *dy, const void *w)
{
    return round8(bf16, _mm256_mul_ps(load8(bf16, dy, i, count), load8(bf16, w, i, count)));
}

STEP __m256 norm_dot_step(bool bf16, int64_t i, int64_t count, const void *dy, const void *x,
                          const void *w, __m256 rstd, __m256 lane)
{
    return fma_lanes(lane, count, norm_gradient(bf16, i, count, dy, w),
                     _mm256_mul_ps(load8(bf16, x, i, count), rstd));
}

STEP void norm_backward_step(bool bf16, int64_t i, int64_t count, const void *dy, const void *x,
                             const void *w, __m256 rstd, __m256 c, const void *add_to, void *dx)
{
    const __m256 xh = _mm256_mul_ps(load8(bf16, x, i, count), rstd);
    __m256 d = _mm256_fnmadd_ps(c, xh, norm_gradient(bf16, i, count, dy, w));
    d = _mm256_mul_ps(rstd, d);
    if (add_to)
        d = _mm256_add_ps(load8(bf16, add_to, i, count), round8(bf16, d));
    store8(bf16, dx, i, count, d);
}

STEP void norm_backward_loop(bool bf16, int64_t n, const void *dy, const void *x, const void *w,
                             float rstd, const void *add_to, void *dx)
{
    const __m256 r = _mm256_set1_ps(rstd);
    lanes16 lane = all_lanes(0.0f);
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        lane.low = norm_dot_step(bf16, i, LANES, dy, x, w, r, lane.low);
        lane.high = norm_dot_step(bf16, i + LANES, LANES, dy, x, w, r, lane.high);
    }
    if (i < n)
        lane.low = norm_dot_step(bf16, i, oct_min_i64(n - i, LANES), dy, x, w, r, lane.low);
    if (i + LANES < n)
        lane.high = norm_dot_step(bf16, i + LANES, n - i - LANES, dy, x, w, r, lane.high);
    const __m256 c = _mm256_set1_ps(sum_lanes(lane) / (float)n);
    for (i = 0; i + LANES <= n; i += LANES)
        norm_backward_step(bf16, i, LANES, dy, x, w, r, c, add_to, dx);
    if (i < n)
        norm_backward_step(bf16, i, n - i, dy, x, w, r, c, add_to, dx);
}

static void rmsnorm_backward_avx2(oct_dtype dtype, int64_t n, const void *dy, const void *x,
                                  const void *w, float rstd, const void *add_to, void *dx)
{
    if (dtype == OCT_DTYPE_BF16)
        norm_backward_loop(true, n, dy, x, w, rstd, add_to, dx);
    else
        norm_backward_loop(false, n, dy, x, w, rstd, add_to, dx);
}

STEP void norm_dw_step(bool bf16, int64_t i, int64_t count, const void *dy, const void *x,
                       __m256 rstd, float *sums)
{
    const __m256 normalised = round8(bf16, _mm256_mul_ps(load8(bf16, x, i, count), rstd));
    store8(false, sums, i, count,
           _mm256_fmadd_ps(load8(bf16, dy, i, count), normalised, load8(false, sums, i, count)));
}

STEP void norm_dw_loop(bool bf16, int64_t n, const void *dy, const void *x, float rstd, float *sums)
{
    const __m256 r = _mm256_set1_ps(rstd);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        norm_dw_step(bf16, i, LANES, dy, x, r, sums);
    if (i < n)
        norm_dw_step(bf16, i, n - i, dy, x, r, sums);
}

static void rmsnorm_dw_avx2(oct_dtype dtype, int64_t n, const void *dy, const void *x, float rstd,
                            float *sums)
{
    if (dtype == OCT_DTYPE_BF16)
        norm_dw_loop(true, n, dy, x, rstd, sums);
    else
        norm_dw_loop(false, n, dy, x, rstd, sums);
}

/* --- sums of rows ------------------------------------------------------------------------------
 */

STEP void accumulate_step(bool bf16, int64_t i, int64_t count, const void *x, float *sums)
{
    store8(false, sums, i, count,
           _mm256_add_ps(load8(false, sums, i, count), load8(bf16, x, i, count)));
}

STEP void accumulate_loop(bool bf16, int64_t n, const void *x, float *sums)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        accumulate_step(bf16, i, LANES, x, sums);
    if (i < n)
        accumulate_step(bf16, i, n - i, x, sums);
}

static void accumulate_avx2(oct_dtype dtype, int64_t n, const void *x, float *sums)
{
    if (dtype == OCT_DTYPE_BF16)
        accumulate_loop(true, n, x, sums);
    else
        accumulate_loop(false, n, x, sums);
}

STEP __m256 row_term(bool bf16, int64_t i, int64_t count, int64_t k, const void *x, int64_t stride,
                     const int32_t *rows, const float *weights)
{
    const __m256 value = load8(bf16, x, (rows ? rows[k] : k) * stride + i, count);
    return weights ? _mm256_mul_ps(value, _mm256_set1_ps(weights[k])) : value;
}

STEP void sum_rows_step(bool bf16, int64_t i, int64_t count, int64_t terms, const void *x,
                        int64_t stride, const int32_t *rows, const float *weights,
                        const void *addend, void *y)
{
    __m256 sum = row_term(bf16, i, count, 0, x, stride, rows, weights);
    for (int64_t k = 1; k < terms; k++)
        sum = _mm256_add_ps(sum, row_term(bf16, i, count, k, x, stride, rows, weights));
    if (addend)
        sum = _mm256_add_ps(round8(bf16, sum), load8(bf16, addend, i, count));
    store8(bf16, y, i, count, sum);
}

STEP void sum_rows_loop(bool bf16, int64_t n, int64_t count, const void *x, int64_t stride,
                        const int32_t *rows, const float *weights, const void *addend, void *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        sum_rows_step(bf16, i, LANES, count, x, stride, rows, weights, addend, y);
    if (i < n)
        sum_rows_step(bf16, i, n - i, count, x, stride, rows, weights, addend, y);
}

static void sum_rows_avx2(oct_dtype dtype, int64_t n, int64_t count, const void *x, int64_t stride,
                          const int32_t *rows, const float *weights, const void *addend, void *y)
{
    if (dtype == OCT_DTYPE_BF16)
        sum_rows_loop(true, n, count, x, stride, rows, weights, addend, y);
    else
        sum_rows_loop(false, n, count, x, stride, rows, weights, addend, y);
}

STEP void scale_step(bool bf16, int64_t i, int64_t count, __m256 factor, const void *x, void *y)
{
    store8(bf16, y, i, count, _mm256_mul_ps(factor, load8(bf16, x, i, count)));
}

STEP void scale_loop(bool bf16, int64_t n, float factor, const void *x, void *y)
{
    const __m256 f = _mm256_set1_ps(factor);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        scale_step(bf16, i, LANES, f, x, y);
    if (i < n)
        scale_step(bf16, i, n - i, f, x, y);
}

static void scale_avx2(oct_dtype dtype, int64_t n, float factor, const void *x, void *y)
{
    if (dtype == OCT_DTYPE_BF16)
        scale_loop(true, n, factor, x, y);
    else
        scale_loop(false, n, factor, x, y);
}

STEP __m256 dot_step(bool bf16, int64_t i, int64_t count, const void *a, const void *b, __m256 lane)
{
    return fma_lanes(lane, count, load8(bf16, a, i, count), load8(bf16, b, i, count));
}

STEP float dot_loop(bool bf16, int64_t n, const void *a, const void *b)
{
    lanes16 lane = all_lanes(0.0f);
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        lane.low = dot_step(bf16, i, LANES, a, b, lane.low);
        lane.high = dot_step(bf16, i + LANES, LANES, a, b, lane.high);
    }
    if (i < n)
        lane.low = dot_step(bf16, i, oct_min_i64(n - i, LANES), a, b, lane.low);
    if (i + LANES < n)
        lane.high = dot_step(bf16, i + LANES, n - i - LANES, a, b, lane.high);
    return sum_lanes(lane);
}

static float dot_avx2(oct_dtype dtype, int64_t n, const void *a, const void *b)
{
    return dtype == OCT_DTYPE_BF16 ? dot_loop(true, n, a, b) : dot_loop(false, n, a, b);
}

/* --- rope --------------------------------------------------------------------------------------
 */

/* 8 pairs as the vectors of their first and second elements. */
typedef struct pairs {
    __m256 a, b;
} pairs;

/* Pairs i .. i+count-1 of (x[2i], x[2i+1]). */
STEP pairs load_interleaved(bool bf16, const void *x, int64_t i, int64_t count)
{
    if (bf16) { /* a pair is one 32-bit lane */
        const int *at = (const int *)(const void *)((const uint16_t *)x + 2 * i);
        const __m256i both = _mm256_maskload_epi32(at, first_lanes(count));
        return (pairs){
            .a = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16)),
            .b = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32((int)0xffff0000u)))};
    }
    const float *at = (const float *)x + 2 * i;
    const __m256 low = _mm256_maskload_ps(at, first_lanes(2 * count));
    const __m256 high = _mm256_maskload_ps(at + LANES, first_lanes(2 * count - LANES));
    /* The even elements of both, then the odd ones: by 128-bit halves, whose middle is turned. */
    const __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88));
    const __m256d odd = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd));
    return (pairs){.a = _mm256_castpd_ps(_mm256_permute4x64_pd(even, 0xd8)),
                   .b = _mm256_castpd_ps(_mm256_permute4x64_pd(odd, 0xd8))};
}

STEP void store_interleaved(bool bf16, void *y, int64_t i, int64_t count, pairs value)
{
    if (bf16) {
        int *at = (int *)(void *)((uint16_t *)y + 2 * i);
        const __m256i both =
            _mm256_or_si256(bf16_bits(value.a), _mm256_slli_epi32(bf16_bits(value.b), 16));
        _mm256_maskstore_epi32(at, first_lanes(count), both);
        return;
    }
    float *at = (float *)y + 2 * i;
    const __m256 outer = _mm256_unpacklo_ps(value.a, value.b); /* pairs 0, 1, 4, 5 */
    const __m256 inner = _mm256_unpackhi_ps(value.a, value.b); /* pairs 2, 3, 6, 7 */
    _mm256_maskstore_ps(at, first_lanes(2 * count), _mm256_permute2f128_ps(outer, inner, 0x20));
    _mm256_maskstore_ps(at + LANES, first_lanes(2 * count - LANES),
                        _mm256_permute2f128_ps(outer, inner, 0x31));
}

STEP void rope_step(bool bf16, int64_t half, int64_t i, int64_t count, const void *x,
                    const float *cos, const float *sin, bool interleave, bool inverse, void *y)
{
    const __m256 c = load8(false, cos, i, count);
    __m256 s = load8(false, sin, i, count);
    if (inverse)
        s = _mm256_xor_ps(s, _mm256_set1_ps(-0.0f));
    const pairs in = interleave && !inverse ? load_interleaved(bf16, x, i, count)
                                            : (pairs){.a = load8(bf16, x, i, count),
                                                      .b = load8(bf16, x, i + half, count)};
    const pairs out = {.a = _mm256_sub_ps(round8(bf16, _mm256_mul_ps(in.a, c)),
                                          round8(bf16, _mm256_mul_ps(in.b, s))),
                       .b = _mm256_add_ps(round8(bf16, _mm256_mul_ps(in.b, c)),
                                          round8(bf16, _mm256_mul_ps(in.a, s)))};
    if (interleave && inverse) {
        store_interleaved(bf16, y, i, count, out);
    } else {
        store8(bf16, y, i, count, out.a);
        store8(bf16, y, i + half, count, out.b);
    }
}

STEP void rope_loop(bool bf16, int64_t half, const void *x, const float *cos, const float *sin,
                    bool interleave, bool inverse, void *y)
{
    int64_t i = 0;
    for (; i + LANES <= half; i += LANES)
        rope_step(bf16, half, i, LANES, x, cos, sin, interleave, inverse, y);
    if (i < half)
        rope_step(bf16, half, i, half - i, x, cos, sin, interleave, inverse, y);
}

static void rope_avx2(oct_dtype dtype, int64_t half, const void *x, const float *cos,
                      const float *sin, bool interleave, bool inverse, void *y)
{
    if (dtype == OCT_DTYPE_BF16)
        rope_loop(true, half, x, cos, sin, interleave, inverse, y);
    else
        rope_loop(false, half, x, cos, sin, interleave, inverse, y);
}

/* --- cross entropy -----------------------------------------------------------------------------
 */

/* max(x, lane) keeps lane where x is NaN. */
STEP __m256 max_step(bool bf16, int64_t i, int64_t count, const void *x, __m256 lane)
{
    return select8(count, _mm256_max_ps(load8(bf16, x, i, count), lane), lane);
}

STEP float row_max(bool bf16, int64_t n, const void *x)
{
    lanes16 lane = all_lanes(-INFINITY);
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        lane.low = max_step(bf16, i, LANES, x, lane.low);
        lane.high = max_step(bf16, i + LANES, LANES, x, lane.high);
    }
    if (i < n)
        lane.low = max_step(bf16, i, oct_min_i64(n - i, LANES), x, lane.low);
    if (i + LANES < n)
        lane.high = max_step(bf16, i + LANES, n - i - LANES, x, lane.high);
    return max_lanes(lane);
}

STEP __m256 exp_sum_step(bool bf16, int64_t i, int64_t count, const void *x, __m256 max,
                         __m256 lane)
{
    const __m256 e = oct_exp_x8(_mm256_sub_ps(load8(bf16, x, i, count), max));
    return select8(count, _mm256_add_ps(lane, e), lane);
}

STEP float row_exp_sum(bool bf16, int64_t n, const void *x, __m256 max)
{
    lanes16 lane = all_lanes(0.0f);
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        lane.low = exp_sum_step(bf16, i, LANES, x, max, lane.low);
        lane.high = exp_sum_step(bf16, i + LANES, LANES, x, max, lane.high);
    }
    if (i < n)
        lane.low = exp_sum_step(bf16, i, oct_min_i64(n - i, LANES), x, max, lane.low);
    if (i + LANES < n)
        lane.high = exp_sum_step(bf16, i + LANES, n - i - LANES, x, max, lane.high);
    return sum_lanes(lane);
}

/* One lane, with the lanes' own functions. */
STEP float log1(float x)
{
    return _mm256_cvtss_f32(oct_log_x8(_mm256_set1_ps(x)));
}

STEP float element(bool bf16, const void *x, int64_t i)
{
    return _mm256_cvtss_f32(load8(bf16, x, i, 1));
}

STEP void softmax_step(bool bf16, int64_t i, int64_t count, void *x, int64_t target, __m256 max,
                       __m256 inverse_sum, __m256 scale)
{
    const __m256 e = oct_exp_x8(_mm256_sub_ps(load8(bf16, x, i, count), max));
    __m256 p = _mm256_mul_ps(e, inverse_sum);
    if (target >= i && target < i + LANES) {
        const __m256i below = first_lanes(target - i), up_to = first_lanes(target - i + 1);
        const __m256 here = _mm256_castsi256_ps(_mm256_andnot_si256(below, up_to));
        p = _mm256_sub_ps(p, _mm256_and_ps(here, _mm256_set1_ps(1.0f))); /* elsewhere p - 0 */
    }
    store8(bf16, x, i, count, _mm256_mul_ps(p, scale));
}

STEP float cross_entropy_loop(bool bf16, int64_t n, void *x, int64_t target, float scale)
{
    const float max = row_max(bf16, n, x);
    const __m256 m = _mm256_set1_ps(max);
    const float sum = row_exp_sum(bf16, n, x, m);
    const float loss = (max + log1(sum)) - element(bf16, x, target);
    if (scale > 0.0f) {
        const __m256 inverse_sum = _mm256_set1_ps(1.0f / sum), factor = _mm256_set1_ps(scale);
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES)
            softmax_step(bf16, i, LANES, x, target, m, inverse_sum, factor);
        if (i < n)
            softmax_step(bf16, i, n - i, x, target, m, inverse_sum, factor);
    }
    return loss;
}

static float cross_entropy_avx2(oct_dtype dtype, int64_t n, void *x, int64_t target, float scale)
{
    return dtype == OCT_DTYPE_BF16 ? cross_entropy_loop(true, n, x, target, scale)
                                   : cross_entropy_loop(false, n, x, target, scale);
}

/* --- gradient rows, conversion -----------------------------------------------------------------
 */

STEP void store_row_step(bool bf16, bool fold, bool round_bf16, int64_t i, int64_t count,
                         const float *c, void *dst)
{
    __m256 value = round8(round_bf16, load8(false, c, i, count));
    if (fold)
        value = _mm256_add_ps(load8(false, dst, i, count), value);
    store8(bf16, dst, i, count, value);
}

STEP void store_row_loop(bool bf16, bool fold, bool round_bf16, int64_t n, const float *c,
                         void *dst)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store_row_step(bf16, fold, round_bf16, i, LANES, c, dst);
    if (i < n)
        store_row_step(bf16, fold, round_bf16, i, n - i, c, dst);
}

static void store_row_avx2(const oct_gemm_out *out, int64_t n, const float *c, void *dst)
{
    if (out->store == OCT_GEMM_FOLD)
        store_row_loop(false, true, out->round_bf16, n, c, dst);
    else
        store_row_loop(out->dtype == OCT_DTYPE_BF16, false, out->round_bf16, n, c, dst);
}

static void widen_avx2(int64_t n, const uint16_t *x, float *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store8(false, y, i, LANES, load8(true, x, i, LANES));
    if (i < n)
        store8(false, y, i, n - i, load8(true, x, i, n - i));
}

static void narrow_avx2(int64_t n, const float *x, uint16_t *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store8(true, y, i, LANES, load8(false, x, i, LANES));
    if (i < n)
        store8(true, y, i, n - i, load8(false, x, i, n - i));
}

/* --- optimizer ---------------------------------------------------------------------------------
 */

STEP void adamw_step(const oct_adamw_constants *k, int64_t i, int64_t count, const float *grad,
                     float *w, float *m, float *v)
{
    const __m256 g = _mm256_mul_ps(load8(false, grad, i, count), _mm256_set1_ps(k->grad_scale));
    const __m256 new_m = _mm256_fmadd_ps(_mm256_set1_ps(k->beta1), load8(false, m, i, count),
                                         _mm256_mul_ps(_mm256_set1_ps(k->gain1), g));
    const __m256 new_v =
        _mm256_fmadd_ps(_mm256_set1_ps(k->beta2), load8(false, v, i, count),
                        _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(k->gain2), g), g));
    const __m256 root = _mm256_div_ps(_mm256_sqrt_ps(new_v), _mm256_set1_ps(k->root_bias2));
    const __m256 update = _mm256_div_ps(new_m, _mm256_add_ps(root, _mm256_set1_ps(k->eps)));
    const __m256 decayed = _mm256_mul_ps(load8(false, w, i, count), _mm256_set1_ps(k->decay));
    store8(false, m, i, count, new_m);
    store8(false, v, i, count, new_v);
    store8(false, w, i, count, _mm256_fnmadd_ps(_mm256_set1_ps(k->step_size), update, decayed));
}

static void adamw_avx2(const oct_adamw_constants *constants, int64_t n, const float *grad, float *w,
                       float *m, float *v)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        adamw_step(constants, i, LANES, grad, w, m, v);
    if (i < n)
        adamw_step(constants, i, n - i, grad, w, m, v);
}

/* lane[i] += x[i]^2 of the elements i .. i+count-1, 4 lanes to a vector. The square of an FP32
 * value is exact in FP64, so the FMA rounds like the sum; a lane without an element adds 0 to a sum
 * that is no -0. */
STEP void square_step(int64_t i, int64_t count, const float *x, __m256d lane[2])
{
    const __m256 value = load8(false, x, i, count);
    const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(value));
    const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(value, 1));
    lane[0] = _mm256_fmadd_pd(a, a, lane[0]);
    lane[1] = _mm256_fmadd_pd(b, b, lane[1]);
}

static double sum_squares_avx2(int64_t n, const float *x)
{
    const __m256d zero = _mm256_setzero_pd();
    __m256d low[2] = {zero, zero}, high[2] = {zero, zero}; /* lanes 0-7, 8-15 */
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        square_step(i, LANES, x, low);
        square_step(i + LANES, LANES, x, high);
    }
    if (i < n)
        square_step(i, oct_min_i64(n - i, LANES), x, low);
    if (i + LANES < n)
        square_step(i + LANES, n - i - LANES, x, high);
    const __m256d four =
        _mm256_add_pd(_mm256_add_pd(low[0], high[0]), _mm256_add_pd(low[1], high[1]));
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

void oct_elementwise_kernels_avx2(oct_elementwise_kernels *kernels)
{
    *kernels = (oct_elementwise_kernels){
        .exp = exp_avx2,
        .log = log_avx2,
        .sigmoid = sigmoid_avx2,
        .add = add_avx2,
        .swiglu = swiglu_avx2,
        .swiglu_backward = swiglu_backward_avx2,
        .rmsnorm = rmsnorm_avx2,
        .rmsnorm_backward = rmsnorm_backward_avx2,
        .rmsnorm_dw = rmsnorm_dw_avx2,
        .accumulate = accumulate_avx2,
        .sum_rows = sum_rows_avx2,
        .scale = scale_avx2,
        .dot = dot_avx2,
        .rope = rope_avx2,
        .cross_entropy = cross_entropy_avx2,
        .store_row = store_row_avx2,
        .widen = widen_avx2,
        .narrow = narrow_avx2,
        .adamw = adamw_avx2,
        .sum_squares = sum_squares_avx2,
        .normal = kernels->normal, /* the one that is there: 64-bit shifts are missing */
    };
}

#endif
