/* The quantizers with 512-bit vectors: the bytes of quantize_ref.c.
 *
 * Magnitudes are compared as unsigned integers, so NaN > Inf > everything else, as in ref. */
#if defined(__x86_64__)

#include "kernels/quantize_kernels.h"

#include <immintrin.h>
#include <string.h>

#include "base/size.h"

enum {
    MAGNITUDE = 0x7fffffff,
    INFINITY_BITS = 0x7f800000,
    E4M3_MAX_BITS = 0x43e00000,        /* 448 */
    E4M3_MIN_NORMAL_BITS = 0x3c800000, /* 2^-6 */
    HIF8_OVERFLOW_BITS = 0x47200000,   /* 40960 */
    HIF8_UNDERFLOW_BITS = 0x34000000   /* 2^-23 */
};

/* The first `count` bits, count clamped to 0..16 or 0..64. */
static inline __mmask16 mask16(int64_t count)
{
    return count >= 16  ? (__mmask16)0xffff
           : count <= 0 ? (__mmask16)0
                        : (__mmask16)((1u << count) - 1u);
}

static inline __mmask64 mask64(int64_t count)
{
    return count >= 64 ? ~(__mmask64)0 : count <= 0 ? 0 : ((__mmask64)1 << count) - 1u;
}

/* 16 elements from index i on, as FP32 bits; those outside the mask are 0 and not touched. */
static inline __m512i load16(const void *x, oct_dtype dtype, int64_t i, __mmask16 mask)
{
    if (dtype == OCT_DTYPE_BF16) {
        const __m256i words = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)x + i);
        return _mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16);
    }
    return _mm512_maskz_loadu_epi32(mask, (const float *)x + i);
}

static inline __m512i magnitude(__m512i bits)
{
    return _mm512_and_si512(bits, _mm512_set1_epi32(MAGNITUDE));
}

/* Codes (one per 32-bit lane, 0..255) of 64 elements as 64 bytes in order. */
static inline __m512i pack64(__m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i words = _mm512_packus_epi16(_mm512_packus_epi32(a, b), _mm512_packus_epi32(c, d));
    return _mm512_permutexvar_epi32(order, words);
}

/* --- MX ------------------------------------------------------------------------------------- */

/* Scale bytes from the bits of amax, one per lane. Round-up in integers: fl32(amax / 448) lies
 * above 2^(e-9-127) exactly if the mantissa field exceeds 0x600000 (448 = 1.75 * 2^8), except that
 * for amax = 0x04600001 the quotient rounds down to 2^-127. */
static inline __m512i scale_bytes(__m512i amax, oct_mx_rule rule)
{
    const __m512i inf = _mm512_set1_epi32(INFINITY_BITS);
    __m512i raised = amax;
    if (rule == OCT_MX_RULE_ROUND_UP) {
        const __mmask16 exception = _mm512_cmpeq_epi32_mask(amax, _mm512_set1_epi32(0x04600001));
        raised = _mm512_add_epi32(amax, _mm512_set1_epi32(0x1fffff));
        raised = _mm512_mask_mov_epi32(raised, exception, amax);
    }
    const __m512i exponent = _mm512_srli_epi32(raised, 23);
    const __m512i byte =
        _mm512_sub_epi32(_mm512_max_epu32(exponent, _mm512_set1_epi32(8)), _mm512_set1_epi32(8));
    return _mm512_mask_mov_epi32(byte, _mm512_cmpge_epu32_mask(amax, inf), _mm512_set1_epi32(0xff));
}

/* 2^(127 - byte). Byte is at most 247 where it matters (amax < 2^128), so the factor is normal. */
static inline __m512 element_factors(__m512i bytes)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(254), bytes), 23));
}

/* E4M3 codes, saturating, of bits * factor; anything for NaN. With E = the exponent, at least 2^-6,
 * adding 2^20 * 2^E rounds to a step of 2^(E-3), ties to even; the steps count from the code of
 * 2^E - 8. */
static inline __m512i encode_e4m3(__m512i bits, __m512 factor)
{
    const __m512i least = _mm512_set1_epi32(E4M3_MIN_NORMAL_BITS);
    const __m512i scaled = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(bits), factor));
    const __m512i size = _mm512_min_epu32(magnitude(scaled), _mm512_set1_epi32(E4M3_MAX_BITS));
    const __m512i exponent =
        _mm512_max_epu32(_mm512_and_si512(size, _mm512_set1_epi32(INFINITY_BITS)), least);
    const __m512i shift = _mm512_add_epi32(exponent, _mm512_set1_epi32(20 << 23));
    const __m512i sum =
        _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(size), _mm512_castsi512_ps(shift)));
    const __m512i steps = _mm512_sub_epi32(sum, shift);
    const __m512i base = _mm512_srli_epi32(_mm512_sub_epi32(exponent, least), 20);
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
    return _mm512_or_si512(_mm512_add_epi32(base, steps), sign);
}

/* The largest of each of four groups of 16 lanes, in all four lanes of 128-bit lane 0, 1, 2, 3. */
static inline __m512i maxima4(__m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i ab =
        _mm512_max_epu32(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
    const __m512i cd =
        _mm512_max_epu32(_mm512_shuffle_i64x2(c, d, 0x44), _mm512_shuffle_i64x2(c, d, 0xee));
    __m512i all =
        _mm512_max_epu32(_mm512_shuffle_i64x2(ab, cd, 0x88), _mm512_shuffle_i64x2(ab, cd, 0xdd));
    all = _mm512_max_epu32(all, _mm512_shuffle_epi32(all, 0x4e));
    return _mm512_max_epu32(all, _mm512_shuffle_epi32(all, 0xb1));
}

/* Four neighbouring blocks of one row, of which `count` (1..128) elements exist. */
static inline __attribute__((always_inline)) void rows_128(const void *x, oct_dtype dtype,
                                                           int64_t i, int64_t count,
                                                           oct_mx_rule rule, uint8_t *codes,
                                                           uint8_t *scales)
{
    __m512i v[8], largest[4];
    for (int j = 0; j < 8; j++)
        v[j] = load16(x, dtype, i + 16 * j, mask16(count - 16 * j));
    for (int b = 0; b < 4; b++)
        largest[b] = _mm512_max_epu32(magnitude(v[2 * b]), magnitude(v[2 * b + 1]));
    const __m512i amax = maxima4(largest[0], largest[1], largest[2], largest[3]);
    const __m512i bytes = scale_bytes(amax, rule);
    const __m512 factors = element_factors(bytes);
    const __m512 factor[4] = {
        _mm512_shuffle_f32x4(factors, factors, 0x00), _mm512_shuffle_f32x4(factors, factors, 0x55),
        _mm512_shuffle_f32x4(factors, factors, 0xaa), _mm512_shuffle_f32x4(factors, factors, 0xff)};
    for (int j = 0; j < 8; j++)
        v[j] = encode_e4m3(v[j], factor[j / 2]);
    _mm512_mask_storeu_epi8(codes, mask64(count), pack64(v[0], v[1], v[2], v[3]));
    if (count > 64)
        _mm512_mask_storeu_epi8(codes + 64, mask64(count - 64), pack64(v[4], v[5], v[6], v[7]));
    const __m128i packed = _mm512_cvtepi32_epi8(_mm512_maskz_compress_epi32(0x1111, bytes));
    const uint32_t four = (uint32_t)_mm_cvtsi128_si32(packed);
    memcpy(scales, &four, count > 64 ? 4 : 2);
    if (_mm512_cmpge_epu32_mask(amax, _mm512_set1_epi32(INFINITY_BITS))) {
        for (int b = 0; b < 4; b++) {
            if ((four >> 8 * b & 0xffu) == 0xff)
                memset(codes + 32 * b, 0, (size_t)oct_max_i64(0, oct_min_i64(32, count - 32 * b)));
        }
    }
}

static inline __attribute__((always_inline)) void
rows_of(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n, oct_mx_rule rule,
        uint8_t *codes, int64_t code_ld, uint8_t *scales, int64_t scale_ld)
{
    for (int64_t row = 0; row < m; row++) {
        int64_t i = 0;
        for (; i + 128 <= n; i += 128)
            rows_128(x, dtype, row * ld + i, 128, rule, codes + row * code_ld + i,
                     scales + row * scale_ld + i / 32);
        if (i < n)
            rows_128(x, dtype, row * ld + i, n - i, rule, codes + row * code_ld + i,
                     scales + row * scale_ld + i / 32);
    }
}

static void mx_rows(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n,
                    oct_mx_rule rule, uint8_t *codes, int64_t code_ld, uint8_t *scales,
                    int64_t scale_ld)
{
    if (dtype == OCT_DTYPE_BF16)
        rows_of(x, OCT_DTYPE_BF16, ld, m, n, rule, codes, code_ld, scales, scale_ld);
    else
        rows_of(x, OCT_DTYPE_F32, ld, m, n, rule, codes, code_ld, scales, scale_ld);
}

/* One block (1 <= m <= 32 rows) of up to 64 columns from index i on; returns its 64 scale bytes. */
static inline __attribute__((always_inline)) __m512i
block_of_64_cols(const void *x, oct_dtype dtype, int64_t i, int64_t ld, int64_t m, int64_t count,
                 oct_mx_rule rule, uint8_t *codes, int64_t code_ld)
{
    const __mmask16 mask[4] = {mask16(count), mask16(count - 16), mask16(count - 32),
                               mask16(count - 48)};
    __m512i amax[4], bytes[4];
    __m512 factor[4];
    for (int j = 0; j < 4; j++)
        amax[j] = _mm512_setzero_si512();
    for (int64_t row = 0; row < m; row++) {
        for (int j = 0; j < 4; j++)
            amax[j] = _mm512_max_epu32(amax[j],
                                       magnitude(load16(x, dtype, i + row * ld + 16 * j, mask[j])));
    }
    for (int j = 0; j < 4; j++) {
        bytes[j] = scale_bytes(amax[j], rule);
        factor[j] = element_factors(bytes[j]);
    }
    for (int64_t row = 0; row < m; row++) {
        __m512i v[4];
        for (int j = 0; j < 4; j++)
            v[j] = encode_e4m3(load16(x, dtype, i + row * ld + 16 * j, mask[j]), factor[j]);
        _mm512_mask_storeu_epi8(codes + row * code_ld, mask64(count),
                                pack64(v[0], v[1], v[2], v[3]));
    }
    const __m512i packed = pack64(bytes[0], bytes[1], bytes[2], bytes[3]);
    const __mmask64 nonfinite =
        _mm512_cmpeq_epi8_mask(packed, _mm512_set1_epi8(-1)) & mask64(count);
    if (nonfinite) {
        for (int64_t row = 0; row < m; row++)
            _mm512_mask_storeu_epi8(codes + row * code_ld, nonfinite, _mm512_setzero_si512());
    }
    return packed;
}

static inline __attribute__((always_inline)) void cols_of(const void *x, oct_dtype dtype,
                                                          int64_t ld, int64_t m, int64_t n,
                                                          oct_mx_rule rule, uint8_t *codes,
                                                          int64_t code_ld, uint8_t *scales)
{
    for (int64_t col = 0; col < n; col += 64) {
        const int64_t count = oct_min_i64(64, n - col);
        const __m512i first = block_of_64_cols(x, dtype, col, ld, oct_min_i64(32, m), count, rule,
                                               codes + col, code_ld);
        __m512i second = _mm512_setzero_si512();
        if (m > 32)
            second = block_of_64_cols(x, dtype, col + 32 * ld, ld, m - 32, count, rule,
                                      codes + 32 * code_ld + col, code_ld);
        /* Spread the 64-bit quarters so that interleaving within 128-bit lanes keeps the order. */
        const __m512i spread = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
        const __m512i a = _mm512_permutexvar_epi64(spread, first);
        const __m512i b = _mm512_permutexvar_epi64(spread, second);
        _mm512_mask_storeu_epi8(scales + 2 * col, mask64(2 * count), _mm512_unpacklo_epi8(a, b));
        if (count > 32)
            _mm512_mask_storeu_epi8(scales + 2 * col + 64, mask64(2 * count - 64),
                                    _mm512_unpackhi_epi8(a, b));
    }
}

static void mx_cols(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n,
                    oct_mx_rule rule, uint8_t *codes, int64_t code_ld, uint8_t *scales)
{
    if (dtype == OCT_DTYPE_BF16)
        cols_of(x, OCT_DTYPE_BF16, ld, m, n, rule, codes, code_ld, scales);
    else
        cols_of(x, OCT_DTYPE_F32, ld, m, n, rule, codes, code_ld, scales);
}

/* --- HiF8 ----------------------------------------------------------------------------------- */

static inline __m512i max_of(const void *x, oct_dtype dtype, int64_t n)
{
    __m512i largest[4];
    for (int j = 0; j < 4; j++)
        largest[j] = _mm512_setzero_si512();
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (int j = 0; j < 4; j++)
            largest[j] =
                _mm512_max_epu32(largest[j], magnitude(load16(x, dtype, i + 16 * j, 0xffff)));
    }
    for (; i < n; i += 16)
        largest[0] = _mm512_max_epu32(largest[0], magnitude(load16(x, dtype, i, mask16(n - i))));
    return _mm512_max_epu32(_mm512_max_epu32(largest[0], largest[1]),
                            _mm512_max_epu32(largest[2], largest[3]));
}

static float amax(const void *x, oct_dtype dtype, int64_t n)
{
    const __m512i largest =
        dtype == OCT_DTYPE_BF16 ? max_of(x, OCT_DTYPE_BF16, n) : max_of(x, OCT_DTYPE_F32, n);
    const uint32_t bits = _mm512_reduce_max_epu32(largest);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Two tables by biased exponent modulo 64, good for 104..143 (2^-23 .. 2^16): the bits below the
 * mantissa (23 - its width), and what precedes the mantissa in the code. */
typedef struct hif8_tables {
    __m512i dropped, prefix;
} hif8_tables;

static hif8_tables hif8_tables_make(void)
{
    uint8_t dropped[64] = {0}, prefix[64] = {0};
    for (int e = -23; e <= 15; e++) {
        const int size = e < 0 ? -e : e, at = (e + 127) & 63, negative = e < 0;
        dropped[at] = (uint8_t)(size <= 3 ? 20 : size <= 7 ? 21 : size <= 15 ? 22 : 23);
        if (e < -15)
            prefix[at] = (uint8_t)(e == -23 ? 1 : e + 23);
        else if (size == 0)
            prefix[at] = 0x08;
        else if (size == 1)
            prefix[at] = (uint8_t)(0x10 | negative << 3);
        else if (size <= 3)
            prefix[at] = (uint8_t)(0x20 | negative << 4 | (size - 2) << 3);
        else if (size <= 7)
            prefix[at] = (uint8_t)(0x40 | negative << 4 | (size - 4) << 2);
        else
            prefix[at] = (uint8_t)(0x60 | negative << 4 | (size - 8) << 1);
    }
    return (hif8_tables){_mm512_loadu_si512(dropped), _mm512_loadu_si512(prefix)};
}

/* Codes of 16 FP32 values. limit: magnitudes above it count as it; 40960 rounds to the infinity
 * code, the number below it to the largest value. */
static inline __m512i encode_hif8(__m512i bits, const hif8_tables *tables, __m512i limit,
                                  __m512i nan_code)
{
    const __mmask64 low_bytes = 0x1111111111111111u;
    const __m512i size = magnitude(bits);
    const __mmask16 is_nan = _mm512_cmpgt_epu32_mask(size, _mm512_set1_epi32(INFINITY_BITS));
    const __mmask16 is_kept = _mm512_cmpge_epu32_mask(size, _mm512_set1_epi32(HIF8_UNDERFLOW_BITS));
    const __m512i clamped = _mm512_min_epu32(size, limit);
    const __m512i dropped =
        _mm512_maskz_permutexvar_epi8(low_bytes, _mm512_srli_epi32(clamped, 23), tables->dropped);
    /* Half a step of the kept mantissa: 2^(dropped-1). */
    const __m512i half = _mm512_srli_epi32(_mm512_sllv_epi32(_mm512_set1_epi32(1), dropped), 1);
    const __m512i rounded = _mm512_add_epi32(clamped, half);
    const __m512i prefix =
        _mm512_maskz_permutexvar_epi8(low_bytes, _mm512_srli_epi32(rounded, 23), tables->prefix);
    /* After a carry the mantissa is zero, so the width before it serves. */
    const __m512i mantissa =
        _mm512_srlv_epi32(_mm512_and_si512(rounded, _mm512_set1_epi32(0x7fffff)), dropped);
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
    const __m512i code = _mm512_or_si512(_mm512_or_si512(prefix, mantissa), sign);
    return _mm512_mask_mov_epi32(_mm512_maskz_mov_epi32(is_kept, code), is_nan, nan_code);
}

static inline __attribute__((always_inline)) void hif8_64(const void *x, oct_dtype dtype, int64_t i,
                                                          int64_t count, __m512 scale,
                                                          const hif8_tables *tables, __m512i limit,
                                                          __m512i nan_code, uint8_t *codes)
{
    __m512i v[4];
    for (int j = 0; j < 4; j++) {
        const __m512 loaded =
            _mm512_castsi512_ps(load16(x, dtype, i + 16 * j, mask16(count - 16 * j)));
        v[j] =
            encode_hif8(_mm512_castps_si512(_mm512_div_ps(loaded, scale)), tables, limit, nan_code);
    }
    _mm512_mask_storeu_epi8(codes + i, mask64(count), pack64(v[0], v[1], v[2], v[3]));
}

static inline __attribute__((always_inline)) void
hif8_of(const void *x, oct_dtype dtype, int64_t n, float scale, bool saturate, uint8_t *codes)
{
    const hif8_tables tables = hif8_tables_make();
    const __m512i limit = _mm512_set1_epi32(saturate ? HIF8_OVERFLOW_BITS - 1 : HIF8_OVERFLOW_BITS);
    const __m512i nan_code = _mm512_set1_epi32(saturate ? 0x00 : 0x80);
    const __m512 divisor = _mm512_set1_ps(scale);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        hif8_64(x, dtype, i, 64, divisor, &tables, limit, nan_code, codes);
    if (i < n)
        hif8_64(x, dtype, i, n - i, divisor, &tables, limit, nan_code, codes);
}

static void hif8_encode(const void *x, oct_dtype dtype, int64_t n, float scale, bool saturate,
                        uint8_t *codes)
{
    if (dtype == OCT_DTYPE_BF16)
        hif8_of(x, OCT_DTYPE_BF16, n, scale, saturate, codes);
    else
        hif8_of(x, OCT_DTYPE_F32, n, scale, saturate, codes);
}

void oct_quantize_kernels_avx512(oct_quantize_kernels *kernels)
{
    kernels->mx_rows = mx_rows;
    kernels->mx_cols = mx_cols;
    kernels->amax = amax;
    kernels->hif8_encode = hif8_encode;
}

#endif
