/* The quantizers with 512-bit vectors: the bytes of quantize_ref.c.
 *
 * Magnitudes are compared as unsigned integers, so NaN > Inf > everything else, as in ref.
 * Functions with a dtype argument are compiled once for each dtype: their callers pass a constant.
 */
#if defined(__x86_64__)

#include "kernels/quantize_kernels.h"

#include <immintrin.h>
#include <string.h>

#include "base/size.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    MAGNITUDE = 0x7fffffff,
    INFINITY_BITS = 0x7f800000,
    E4M3_MAX_BITS = 0x43e00000,        /* 448 */
    E4M3_MIN_NORMAL_BITS = 0x3c800000, /* 2^-6 */
    HIF8_OVERFLOW_BITS = 0x47200000,   /* 40960 */
    HIF8_UNDERFLOW_BITS = 0x34000000   /* 2^-23 */
};

/* The first `count` bits, for any count. */
INLINE __mmask64 mask64(int64_t count)
{
    return count >= 64 ? ~(__mmask64)0 : count <= 0 ? 0 : ((__mmask64)1 << count) - 1u;
}

INLINE __mmask32 mask32(int64_t count)
{
    return (__mmask32)mask64(count);
}

INLINE __mmask16 mask16(int64_t count)
{
    return (__mmask16)mask64(count);
}

/* 16 elements from index i on, as FP32 bits; those outside the mask are 0 and not touched. */
INLINE __m512i load16(const void *x, oct_dtype dtype, int64_t i, __mmask16 mask)
{
    if (dtype == OCT_DTYPE_BF16) {
        const __m256i words = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)x + i);
        return _mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16);
    }
    return _mm512_maskz_loadu_epi32(mask, (const float *)x + i);
}

INLINE __m512i magnitude(__m512i bits)
{
    return _mm512_and_si512(bits, _mm512_set1_epi32(MAGNITUDE));
}

/* (a & b) | c */
INLINE __m512i and_or(__m512i a, __m512i b, __m512i c)
{
    return _mm512_ternarylogic_epi32(a, b, c, 0xea);
}

/* Codes of 64 elements, one per 32-bit lane, as 64 bytes in order. */
INLINE __m512i pack64(__m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i words = _mm512_packus_epi16(_mm512_packus_epi32(a, b), _mm512_packus_epi32(c, d));
    return _mm512_permutexvar_epi32(order, words);
}

/* Codes of 64 elements, one per 16-bit lane, as 64 bytes in order. */
INLINE __m512i pack_words(__m512i a, __m512i b)
{
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return _mm512_permutexvar_epi64(order, _mm512_packus_epi16(a, b));
}

/* --- MX, one FP32 value per 32-bit lane ------------------------------------------------------- */

/* Scale bytes from the bits of amax. Round-up in integers: fl32(amax / 448) lies above a power of
 * two exactly if the mantissa field of amax exceeds 0x600000 (448 = 1.75 * 2^8), except that for
 * amax = 0x04600001 the quotient rounds down to 2^-127. */
INLINE __m512i scale_bytes(__m512i amax, oct_mx_rule rule)
{
    __m512i raised = amax;
    if (rule == OCT_MX_RULE_ROUND_UP) {
        const __mmask16 regular = _mm512_cmpneq_epi32_mask(amax, _mm512_set1_epi32(0x04600001));
        raised = _mm512_mask_add_epi32(amax, regular, amax, _mm512_set1_epi32(0x1fffff));
    }
    const __m512i eight = _mm512_set1_epi32(8);
    const __m512i byte =
        _mm512_sub_epi32(_mm512_max_epu32(_mm512_srli_epi32(raised, 23), eight), eight);
    const __mmask16 nonfinite = _mm512_cmpge_epu32_mask(amax, _mm512_set1_epi32(INFINITY_BITS));
    return _mm512_mask_mov_epi32(byte, nonfinite, _mm512_set1_epi32(0xff));
}

/* 2^(127 - byte). A finite amax gives at most 247, so the factor is normal; for ff it is anything.
 */
INLINE __m512 element_factors(__m512i bytes)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(254), bytes), 23));
}

/* E4M3 codes, saturating, of bits * factor; anything for NaN. With 2^e the binade, at least 2^-6,
 * adding 2^(e+20) rounds to multiples of 2^(e-3), ties to even; these count from the code of 2^e
 * less 8. */
INLINE __m512i encode_e4m3(__m512i bits, __m512 factor)
{
    const __m512i least = _mm512_set1_epi32(E4M3_MIN_NORMAL_BITS);
    const __m512i scaled = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(bits), factor));
    const __m512i size = _mm512_min_epu32(magnitude(scaled), _mm512_set1_epi32(E4M3_MAX_BITS));
    const __m512i binade =
        _mm512_max_epu32(_mm512_and_si512(size, _mm512_set1_epi32(INFINITY_BITS)), least);
    const __m512i shift = _mm512_add_epi32(binade, _mm512_set1_epi32(20 << 23));
    const __m512i sum =
        _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(size), _mm512_castsi512_ps(shift)));
    const __m512i steps = _mm512_sub_epi32(sum, shift);
    const __m512i base = _mm512_srli_epi32(_mm512_sub_epi32(binade, least), 20);
    const __m512i sign = _mm512_srli_epi32(bits, 24);
    return and_or(sign, _mm512_set1_epi32(0x80), _mm512_add_epi32(base, steps));
}

/* The largest of each of four vectors, in all of 128-bit lane 0, 1, 2, 3. */
INLINE __m512i maxima4(__m512i a, __m512i b, __m512i c, __m512i d)
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

/* Writes the scale bytes of up to four blocks (lane 0 of each 128-bit lane) and clears the codes of
 * blocks that hold a NaN or an Inf. */
INLINE void store_scales(__m512i bytes, int64_t count, uint8_t *codes, uint8_t *scales)
{
    const __m512i first_bytes = _mm512_set1_epi32(48 << 24 | 32 << 16 | 16 << 8);
    const __m128i packed = _mm512_castsi512_si128(_mm512_permutexvar_epi8(first_bytes, bytes));
    const uint32_t four = (uint32_t)_mm_cvtsi128_si32(packed);
    memcpy(scales, &four, count > 64 ? 4 : 2);
    if (!_mm_cmpeq_epi8_mask(packed, _mm_set1_epi8(-1)))
        return;
    for (int64_t b = 0; b < 4; b++) {
        if ((four >> 8 * b & 0xffu) == 0xff)
            memset(codes + 32 * b, 0, (size_t)oct_max_i64(0, oct_min_i64(32, count - 32 * b)));
    }
}

/* Four neighbouring blocks of one row, of which `count` (1..128) elements exist. */
INLINE void rows_128(const void *x, oct_dtype dtype, int64_t count, oct_mx_rule rule,
                     uint8_t *codes, uint8_t *scales)
{
    __m512i v[8], largest[4];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        v[j] = load16(x, dtype, 16 * j, mask16(count - 16 * j));
#pragma GCC unroll 4
    for (int b = 0; b < 4; b++)
        largest[b] = _mm512_max_epu32(magnitude(v[2 * b]), magnitude(v[2 * b + 1]));
    const __m512i amax = maxima4(largest[0], largest[1], largest[2], largest[3]);
    const __m512i bytes = scale_bytes(amax, rule);
    const __m512 factors = element_factors(bytes);
    const __m512 factor[4] = {
        _mm512_shuffle_f32x4(factors, factors, 0x00), _mm512_shuffle_f32x4(factors, factors, 0x55),
        _mm512_shuffle_f32x4(factors, factors, 0xaa), _mm512_shuffle_f32x4(factors, factors, 0xff)};
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        v[j] = encode_e4m3(v[j], factor[j / 2]);
    _mm512_mask_storeu_epi8(codes, mask64(count), pack64(v[0], v[1], v[2], v[3]));
    if (count > 64)
        _mm512_mask_storeu_epi8(codes + 64, mask64(count - 64), pack64(v[4], v[5], v[6], v[7]));
    store_scales(bytes, count, codes, scales);
}

/* Clears the codes of the columns whose scale byte is ff. */
INLINE void clear_nonfinite_cols(__m512i bytes, int64_t m, int64_t count, uint8_t *codes,
                                 int64_t code_ld)
{
    const __mmask64 nonfinite =
        _mm512_mask_cmpeq_epi8_mask(mask64(count), bytes, _mm512_set1_epi8(-1));
    if (!nonfinite)
        return;
    for (int64_t row = 0; row < m; row++)
        _mm512_mask_storeu_epi8(codes + row * code_ld, nonfinite, _mm512_setzero_si512());
}

/* One block (1..32 rows) of up to 64 columns; returns its 64 scale bytes. */
INLINE __m512i cols_64(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t count,
                       oct_mx_rule rule, uint8_t *codes, int64_t code_ld)
{
    const __mmask16 mask[4] = {mask16(count), mask16(count - 16), mask16(count - 32),
                               mask16(count - 48)};
    __m512i amax[4], bytes[4];
    __m512 factor[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        amax[j] = _mm512_setzero_si512();
    for (int64_t row = 0; row < m; row++) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            amax[j] =
                _mm512_max_epu32(amax[j], magnitude(load16(x, dtype, row * ld + 16 * j, mask[j])));
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        bytes[j] = scale_bytes(amax[j], rule);
        factor[j] = element_factors(bytes[j]);
    }
    for (int64_t row = 0; row < m; row++) {
        __m512i v[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            v[j] = encode_e4m3(load16(x, dtype, row * ld + 16 * j, mask[j]), factor[j]);
        _mm512_mask_storeu_epi8(codes + row * code_ld, mask64(count),
                                pack64(v[0], v[1], v[2], v[3]));
    }
    const __m512i packed = pack64(bytes[0], bytes[1], bytes[2], bytes[3]);
    clear_nonfinite_cols(packed, m, count, codes, code_ld);
    return packed;
}

/* --- MX, one BF16 word per 16-bit lane: half the instructions --------------------------------- */

/* The exception of scale_bytes() is no BF16 number. */
INLINE __m512i word_scale_bytes(__m512i amax, oct_mx_rule rule)
{
    const __m512i raise = _mm512_set1_epi16(rule == OCT_MX_RULE_ROUND_UP ? 0x1f : 0);
    const __m512i exponent = _mm512_srli_epi16(_mm512_add_epi16(amax, raise), 7);
    const __m512i byte = _mm512_subs_epu16(exponent, _mm512_set1_epi16(8));
    const __mmask32 nonfinite = _mm512_cmpge_epu16_mask(amax, _mm512_set1_epi16(0x7f80));
    return _mm512_mask_mov_epi16(byte, nonfinite, _mm512_set1_epi16(0xff));
}

/* The words take all magnitudes for normal numbers, which is right while BF16 subnormals encode to
 * zero: for scale bytes from 11 on, where 2^-126 becomes 2^-10. Smaller ones, that of an all-zero
 * block aside, need the FP32 form. */
enum { WORD_BYTE_MIN = 11, WORD_AMAX_MIN = (WORD_BYTE_MIN + 8) << 7 };

INLINE __mmask32 needs_f32(__m512i amax)
{
    const __m512i one = _mm512_set1_epi16(1);
    return _mm512_cmplt_epu16_mask(_mm512_sub_epi16(amax, one), /* 0 wraps to the top */
                                   _mm512_set1_epi16(WORD_AMAX_MIN - 1));
}

/* What encode_words() subtracts from magnitudes: it makes an exponent field of 0 of 2^-11 * scale.
 */
INLINE __m512i word_offsets(__m512i bytes)
{
    return _mm512_slli_epi16(_mm512_subs_epu16(bytes, _mm512_set1_epi16(WORD_BYTE_MIN)), 7);
}

/* E4M3 codes, saturating; anything for NaN and Inf. d is the scaled magnitude, exponent field 0 for
 * 2^-11 and all below, 5 for 2^-6, the least normal number. `exact` is the code before rounding in
 * units of 1/512: linear in d for normal numbers, linear in the value (1.m * 2^field) below. */
INLINE __m512i encode_words(__m512i words, __m512i offsets)
{
    const __m512i size = _mm512_and_si512(words, _mm512_set1_epi16(0x7fff));
    const __m512i d = _mm512_min_epu16(_mm512_subs_epu16(size, offsets),
                                       _mm512_set1_epi16((4 << 7) + (0x7e << 4)));
    const __m512i leading = _mm512_set1_epi16(0x80);
    const __m512i value = and_or(d, _mm512_set1_epi16(0x7f), leading);
    const __m512i subnormal = _mm512_sllv_epi16(value, _mm512_srli_epi16(d, 7));
    const __mmask32 is_normal = _mm512_cmpge_epu16_mask(d, _mm512_set1_epi16(5 << 7));
    const __m512i exact = _mm512_mask_sub_epi16(subnormal, is_normal, _mm512_slli_epi16(d, 5),
                                                _mm512_set1_epi16(4 << 12));
    const __mmask32 is_odd = _mm512_test_epi16_mask(exact, _mm512_set1_epi16(0x200));
    __m512i code = _mm512_add_epi16(exact, _mm512_set1_epi16(0xff));        /* ties stay down ... */
    code = _mm512_mask_add_epi16(code, is_odd, code, _mm512_set1_epi16(1)); /* ... unless odd */
    return and_or(_mm512_srli_epi16(words, 8), leading, _mm512_srli_epi16(code, 9));
}

INLINE __m512i word_maxima4(__m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i ab =
        _mm512_max_epu16(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
    const __m512i cd =
        _mm512_max_epu16(_mm512_shuffle_i64x2(c, d, 0x44), _mm512_shuffle_i64x2(c, d, 0xee));
    __m512i all =
        _mm512_max_epu16(_mm512_shuffle_i64x2(ab, cd, 0x88), _mm512_shuffle_i64x2(ab, cd, 0xdd));
    all = _mm512_max_epu16(all, _mm512_shuffle_epi32(all, 0x4e));
    all = _mm512_max_epu16(all, _mm512_shuffle_epi32(all, 0xb1));
    return _mm512_max_epu16(all, _mm512_rol_epi32(all, 16));
}

INLINE void rows_128_words(const uint16_t *x, int64_t count, oct_mx_rule rule, uint8_t *codes,
                           uint8_t *scales)
{
    const __m512i magnitudes = _mm512_set1_epi16(0x7fff);
    const __m512i a = _mm512_maskz_loadu_epi16(mask32(count), x);
    const __m512i b = _mm512_maskz_loadu_epi16(mask32(count - 32), x + 32);
    const __m512i c = _mm512_maskz_loadu_epi16(mask32(count - 64), x + 64);
    const __m512i d = _mm512_maskz_loadu_epi16(mask32(count - 96), x + 96);
    const __m512i amax =
        word_maxima4(_mm512_and_si512(a, magnitudes), _mm512_and_si512(b, magnitudes),
                     _mm512_and_si512(c, magnitudes), _mm512_and_si512(d, magnitudes));
    if (needs_f32(amax)) {
        rows_128(x, OCT_DTYPE_BF16, count, rule, codes, scales);
        return;
    }
    const __m512i bytes = word_scale_bytes(amax, rule);
    const __m512i offsets = word_offsets(bytes);
    const __m512i ab = pack_words(encode_words(a, _mm512_shuffle_i64x2(offsets, offsets, 0x00)),
                                  encode_words(b, _mm512_shuffle_i64x2(offsets, offsets, 0x55)));
    const __m512i cd = pack_words(encode_words(c, _mm512_shuffle_i64x2(offsets, offsets, 0xaa)),
                                  encode_words(d, _mm512_shuffle_i64x2(offsets, offsets, 0xff)));
    _mm512_mask_storeu_epi8(codes, mask64(count), ab);
    if (count > 64)
        _mm512_mask_storeu_epi8(codes + 64, mask64(count - 64), cd);
    store_scales(bytes, count, codes, scales);
}

INLINE __m512i cols_64_words(const uint16_t *x, int64_t ld, int64_t m, int64_t count,
                             oct_mx_rule rule, uint8_t *codes, int64_t code_ld)
{
    const __m512i magnitudes = _mm512_set1_epi16(0x7fff);
    const __mmask32 left = mask32(count), right = mask32(count - 32);
    __m512i amax_left = _mm512_setzero_si512(), amax_right = _mm512_setzero_si512();
    for (int64_t row = 0; row < m; row++) {
        const __m512i a = _mm512_maskz_loadu_epi16(left, x + row * ld);
        const __m512i b = _mm512_maskz_loadu_epi16(right, x + row * ld + 32);
        amax_left = _mm512_max_epu16(amax_left, _mm512_and_si512(a, magnitudes));
        amax_right = _mm512_max_epu16(amax_right, _mm512_and_si512(b, magnitudes));
    }
    if (needs_f32(amax_left) | needs_f32(amax_right))
        return cols_64(x, OCT_DTYPE_BF16, ld, m, count, rule, codes, code_ld);
    const __m512i bytes_left = word_scale_bytes(amax_left, rule);
    const __m512i bytes_right = word_scale_bytes(amax_right, rule);
    const __m512i offsets_left = word_offsets(bytes_left);
    const __m512i offsets_right = word_offsets(bytes_right);
    for (int64_t row = 0; row < m; row++) {
        const __m512i a = _mm512_maskz_loadu_epi16(left, x + row * ld);
        const __m512i b = _mm512_maskz_loadu_epi16(right, x + row * ld + 32);
        _mm512_mask_storeu_epi8(
            codes + row * code_ld, mask64(count),
            pack_words(encode_words(a, offsets_left), encode_words(b, offsets_right)));
    }
    const __m512i packed = pack_words(bytes_left, bytes_right);
    clear_nonfinite_cols(packed, m, count, codes, code_ld);
    return packed;
}

/* --- MX tiles --------------------------------------------------------------------------------- */

INLINE void rows_at(const void *x, oct_dtype dtype, int64_t i, int64_t count, oct_mx_rule rule,
                    uint8_t *codes, uint8_t *scales)
{
    if (dtype == OCT_DTYPE_BF16)
        rows_128_words((const uint16_t *)x + i, count, rule, codes, scales);
    else
        rows_128((const float *)x + i, OCT_DTYPE_F32, count, rule, codes, scales);
}

/* Rows are pages apart: the hardware does not foresee the next one. A prefetch past the tensor does
 * nothing. */
enum { AHEAD_ROWS = 2 };

INLINE void prefetch_128(const void *x, oct_dtype dtype, int64_t i)
{
    const int64_t size = dtype == OCT_DTYPE_BF16 ? 2 : 4;
    const char *at = (const char *)x + i * size;
#pragma GCC unroll 8
    for (int64_t line = 0; line < 128 * size; line += 64)
        _mm_prefetch(at + line, _MM_HINT_T0);
}

INLINE void rows_of(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n,
                    oct_mx_rule rule, uint8_t *codes, int64_t code_ld, uint8_t *scales,
                    int64_t scale_ld)
{
    const int64_t whole = n / 128 * 128;
    for (int64_t row = 0; row < m; row++) {
        uint8_t *row_codes = codes + row * code_ld, *row_scales = scales + row * scale_ld;
        for (int64_t i = 0; i < whole; i += 128) {
            prefetch_128(x, dtype, (row + AHEAD_ROWS) * ld + i);
            rows_at(x, dtype, row * ld + i, 128, rule, row_codes + i, row_scales + i / 32);
        }
        if (whole < n)
            rows_at(x, dtype, row * ld + whole, n - whole, rule, row_codes + whole,
                    row_scales + whole / 32);
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

INLINE __m512i cols_at(const void *x, oct_dtype dtype, int64_t i, int64_t ld, int64_t m,
                       int64_t count, oct_mx_rule rule, uint8_t *codes, int64_t code_ld)
{
    if (dtype == OCT_DTYPE_BF16)
        return cols_64_words((const uint16_t *)x + i, ld, m, count, rule, codes, code_ld);
    return cols_64((const float *)x + i, OCT_DTYPE_F32, ld, m, count, rule, codes, code_ld);
}

/* Two blocks of up to 64 columns. */
INLINE void col_pair(const void *x, oct_dtype dtype, int64_t i, int64_t ld, int64_t m,
                     int64_t count, oct_mx_rule rule, uint8_t *codes, int64_t code_ld,
                     uint8_t *scales)
{
    __m512i first, second = _mm512_setzero_si512();
    first = cols_at(x, dtype, i, ld, oct_min_i64(32, m), count, rule, codes, code_ld);
    if (m > 32)
        second =
            cols_at(x, dtype, 32 * ld + i, ld, m - 32, count, rule, codes + 32 * code_ld, code_ld);
    /* Spread the 64-bit quarters so that interleaving within 128-bit lanes keeps the order. */
    const __m512i spread = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    first = _mm512_permutexvar_epi64(spread, first);
    second = _mm512_permutexvar_epi64(spread, second);
    _mm512_mask_storeu_epi8(scales, mask64(2 * count), _mm512_unpacklo_epi8(first, second));
    if (count > 32)
        _mm512_mask_storeu_epi8(scales + 64, mask64(2 * count - 64),
                                _mm512_unpackhi_epi8(first, second));
}

INLINE void cols_of(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n,
                    oct_mx_rule rule, uint8_t *codes, int64_t code_ld, uint8_t *scales)
{
    const int64_t whole = n / 64 * 64; /* their count is a constant: plain loads and stores */
    for (int64_t i = 0; i < whole; i += 64)
        col_pair(x, dtype, i, ld, m, 64, rule, codes + i, code_ld, scales + 2 * i);
    if (whole < n)
        col_pair(x, dtype, whole, ld, m, n - whole, rule, codes + whole, code_ld,
                 scales + 2 * whole);
}

static void mx_cols(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n,
                    oct_mx_rule rule, uint8_t *codes, int64_t code_ld, uint8_t *scales)
{
    if (dtype == OCT_DTYPE_BF16)
        cols_of(x, OCT_DTYPE_BF16, ld, m, n, rule, codes, code_ld, scales);
    else
        cols_of(x, OCT_DTYPE_F32, ld, m, n, rule, codes, code_ld, scales);
}

/* --- HiF8 ------------------------------------------------------------------------------------- */

INLINE uint32_t largest_f32(const float *x, int64_t n)
{
    __m512i largest[4];
    int64_t i = 0;
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        largest[j] = _mm512_setzero_si512();
    for (; i + 64 <= n; i += 64) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            largest[j] =
                _mm512_max_epu32(largest[j], magnitude(_mm512_loadu_si512(x + i + 16 * j)));
    }
    for (; i < n; i += 16)
        largest[0] =
            _mm512_max_epu32(largest[0], magnitude(_mm512_maskz_loadu_epi32(mask16(n - i), x + i)));
    return _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_max_epu32(largest[0], largest[1]),
                                                    _mm512_max_epu32(largest[2], largest[3])));
}

/* As FP32 bits. */
INLINE uint32_t largest_bf16(const uint16_t *x, int64_t n)
{
    const __m512i magnitudes = _mm512_set1_epi16(0x7fff);
    __m512i largest[4];
    int64_t i = 0;
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        largest[j] = _mm512_setzero_si512();
    for (; i + 128 <= n; i += 128) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            largest[j] = _mm512_max_epu16(
                largest[j], _mm512_and_si512(_mm512_loadu_si512(x + i + 32 * j), magnitudes));
    }
    for (; i < n; i += 32)
        largest[0] = _mm512_max_epu16(
            largest[0],
            _mm512_and_si512(_mm512_maskz_loadu_epi16(mask32(n - i), x + i), magnitudes));
    const __m512i all = _mm512_max_epu16(_mm512_max_epu16(largest[0], largest[1]),
                                         _mm512_max_epu16(largest[2], largest[3]));
    /* Either word of a 32-bit lane as the upper half of FP32 bits. */
    const __m512i even = _mm512_slli_epi32(all, 16);
    const __m512i odd = _mm512_and_si512(all, _mm512_set1_epi32(INFINITY_BITS | 0x7f0000));
    return _mm512_reduce_max_epu32(_mm512_max_epu32(even, odd));
}

static float amax(const void *x, oct_dtype dtype, int64_t n)
{
    const uint32_t bits = dtype == OCT_DTYPE_BF16 ? largest_bf16(x, n) : largest_f32(x, n);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounding to at most 3 bits of mantissa, ties away, needs no more of a quotient than its upper
 * half: the first bit that is dropped decides. 16-bit lanes hold it.
 *
 * Tables by biased exponent modulo 64, good for 104..143 (2^-23 .. 2^16): the number of bits below
 * the mantissa, half a step of the mantissa, and what precedes the mantissa in a code. Exponents
 * 80..103 have half 0: nothing below 2^-23 is rounded up to it. */
typedef struct hif8_tables {
    __m512i dropped, half, prefix;
} hif8_tables;

static hif8_tables hif8_tables_make(void)
{
    uint8_t dropped[64] = {0}, half[64] = {0}, prefix[64] = {0};
    for (int e = -23; e <= 15; e++) {
        const int size = e < 0 ? -e : e, negative = e < 0, at = (e + 127) & 63;
        const int below = size <= 3 ? 4 : size <= 7 ? 5 : size <= 15 ? 6 : 7;
        dropped[at] = (uint8_t)below;
        half[at] = (uint8_t)(1 << (below - 1));
        if (e < -15)
            prefix[at] = (uint8_t)(e == -23 ? 1 : e + 23); /* all of [2^-23, 2^-22) rounds to 01 */
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
    return (hif8_tables){.dropped = _mm512_loadu_si512(dropped),
                         .half = _mm512_loadu_si512(half),
                         .prefix = _mm512_loadu_si512(prefix)};
}

/* What a mode does at the top. */
typedef struct hif8_mode {
    __m512i limit; /* larger magnitudes count as it: 40960 rounds to the code of infinity */
    __m512i nan_code;
} hif8_mode;

/* Codes of 32 values, the upper halves of FP32. A NaN there is quiet, so it shows. */
INLINE __m512i encode_hif8(__m512i words, const hif8_tables *tables, const hif8_mode *mode)
{
    const __mmask64 low_bytes = 0x5555555555555555u;
    const __m512i size = _mm512_and_si512(words, _mm512_set1_epi16(0x7fff));
    const __mmask32 is_nan = _mm512_cmpgt_epu16_mask(size, _mm512_set1_epi16(INFINITY_BITS >> 16));
    const __mmask32 is_kept =
        _mm512_cmpge_epu16_mask(size, _mm512_set1_epi16(HIF8_UNDERFLOW_BITS >> 16));
    const __m512i clamped = _mm512_min_epu16(size, mode->limit);
    const __m512i half =
        _mm512_maskz_permutexvar_epi8(low_bytes, _mm512_srli_epi16(clamped, 7), tables->half);
    const __m512i rounded = _mm512_add_epi16(clamped, half);
    const __m512i exponent = _mm512_srli_epi16(rounded, 7);
    const __m512i dropped = _mm512_maskz_permutexvar_epi8(low_bytes, exponent, tables->dropped);
    const __m512i prefix = _mm512_maskz_permutexvar_epi8(low_bytes, exponent, tables->prefix);
    /* After a carry the mantissa is zero, whatever its width is now. */
    const __m512i mantissa =
        _mm512_srlv_epi16(_mm512_and_si512(rounded, _mm512_set1_epi16(0x7f)), dropped);
    const __m512i code = and_or(_mm512_srli_epi16(words, 8), _mm512_set1_epi16(0x80),
                                _mm512_or_si512(prefix, mantissa));
    return _mm512_mask_mov_epi16(_mm512_maskz_mov_epi16(is_kept, code), is_nan, mode->nan_code);
}

INLINE __m512i divided(__m512i bits, __m512 scale)
{
    return _mm512_castps_si512(_mm512_div_ps(_mm512_castsi512_ps(bits), scale));
}

/* Upper halves of the quotients of up to 32 elements. */
INLINE __m512i quotients_32(const void *x, oct_dtype dtype, int64_t i, int64_t count, __m512 scale)
{
    if (dtype == OCT_DTYPE_BF16) {
        const __m512i pairs = _mm512_maskz_loadu_epi16(mask32(count), (const uint16_t *)x + i);
        const __m512i even = divided(_mm512_slli_epi32(pairs, 16), scale);
        const __m512i odd =
            divided(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)), scale);
        return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(even, 16), odd);
    }
    const __m512i low = divided(load16(x, dtype, i, mask16(count)), scale);
    const __m512i high = divided(load16(x, dtype, i + 16, mask16(count - 16)), scale);
    const __m512i order =
        _mm512_packus_epi32(_mm512_srli_epi32(low, 16), _mm512_srli_epi32(high, 16));
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), order);
}

INLINE void hif8_64(const void *x, oct_dtype dtype, int64_t i, int64_t count, __m512 scale,
                    const hif8_tables *tables, const hif8_mode *mode, uint8_t *codes)
{
    const __m512i a = quotients_32(x, dtype, i, count, scale);
    const __m512i b = quotients_32(x, dtype, i + 32, count - 32, scale);
    _mm512_mask_storeu_epi8(codes + i, mask64(count),
                            pack_words(encode_hif8(a, tables, mode), encode_hif8(b, tables, mode)));
}

INLINE void hif8_of(const void *x, oct_dtype dtype, int64_t n, __m512 scale,
                    const hif8_tables *tables, const hif8_mode *mode, uint8_t *codes)
{
    const int64_t whole = n / 64 * 64;
    for (int64_t i = 0; i < whole; i += 64)
        hif8_64(x, dtype, i, 64, scale, tables, mode, codes);
    if (whole < n)
        hif8_64(x, dtype, whole, n - whole, scale, tables, mode, codes);
}

static void hif8_encode(const void *x, oct_dtype dtype, int64_t n, float scale, bool saturate,
                        uint8_t *codes)
{
    const hif8_tables tables = hif8_tables_make();
    const hif8_mode mode = {.limit = _mm512_set1_epi16((HIF8_OVERFLOW_BITS >> 16) - saturate),
                            .nan_code = _mm512_set1_epi16(saturate ? 0x00 : 0x80)};
    const __m512 divisor = _mm512_set1_ps(scale);
    if (dtype == OCT_DTYPE_BF16)
        hif8_of(x, OCT_DTYPE_BF16, n, divisor, &tables, &mode, codes);
    else
        hif8_of(x, OCT_DTYPE_F32, n, divisor, &tables, &mode, codes);
}

void oct_quantize_kernels_avx512(oct_quantize_kernels *kernels)
{
    kernels->mx_rows = mx_rows;
    kernels->mx_cols = mx_cols;
    kernels->amax = amax;
    kernels->hif8_encode = hif8_encode;
}

#endif
