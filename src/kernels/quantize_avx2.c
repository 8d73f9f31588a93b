/* The quantizers with 256-bit vectors: the bytes of quantize_ref.c.
 *
 * The loops work on whole steps of 32 elements or columns; what is left over goes through a copy
 * that is filled up with zeros. Magnitudes are compared as integers, so NaN > Inf > everything
 * else, as in ref. Functions with a dtype argument are compiled once for each dtype: their callers
 * pass a constant. */
#if defined(__x86_64__)

#include "kernels/quantize_kernels.h"

#include <immintrin.h>
#include <string.h>

#include "base/size.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    STEP = 32, /* elements of a block of a row, columns of a block of columns */
    MAGNITUDE = 0x7fffffff,
    INFINITY_BITS = 0x7f800000,
    E4M3_MAX_BITS = 0x43e00000,        /* 448 */
    E4M3_MIN_NORMAL_BITS = 0x3c800000, /* 2^-6 */
    HIF8_OVERFLOW_BITS = 0x47200000    /* 40960 */
};

INLINE __m256i load_words(const uint16_t *x)
{
    return _mm256_loadu_si256((const void *)x);
}

/* 8 elements from index i on, as FP32 bits. */
INLINE __m256i load8(const void *x, oct_dtype dtype, int64_t i)
{
    if (dtype == OCT_DTYPE_BF16) {
        const __m128i words = _mm_loadu_si128((const void *)((const uint16_t *)x + i));
        return _mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16);
    }
    return _mm256_loadu_si256((const void *)((const float *)x + i));
}

INLINE __m256i magnitude(__m256i bits)
{
    return _mm256_and_si256(bits, _mm256_set1_epi32(MAGNITUDE));
}

/* Bytes of 32 elements, one per 32-bit lane, in an order of fours that in_order() undoes. */
INLINE __m256i pack_lanes(const __m256i v[4])
{
    return _mm256_packus_epi16(_mm256_packus_epi32(v[0], v[1]), _mm256_packus_epi32(v[2], v[3]));
}

INLINE __m256i in_order(__m256i packed)
{
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Bytes of 32 elements, one per 16-bit lane, in order. */
INLINE __m256i pack_words(const __m256i v[2])
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(v[0], v[1]), 0xd8);
}

INLINE const void *element(const void *x, oct_dtype dtype, int64_t i)
{
    return (const char *)x + i * (dtype == OCT_DTYPE_BF16 ? 2 : 4);
}

/* --- MX, one FP32 value per 32-bit lane ------------------------------------------------------- */

/* Scale bytes from the bits of amax. Round-up in integers: fl32(amax / 448) lies above a power of
 * two exactly if the mantissa field of amax exceeds 0x600000 (448 = 1.75 * 2^8), except that for
 * amax = 0x04600001 the quotient rounds down to 2^-127. */
INLINE __m256i scale_bytes(__m256i amax, oct_mx_rule rule)
{
    __m256i raised = amax;
    if (rule == OCT_MX_RULE_ROUND_UP) {
        const __m256i exception = _mm256_cmpeq_epi32(amax, _mm256_set1_epi32(0x04600001));
        raised =
            _mm256_add_epi32(amax, _mm256_andnot_si256(exception, _mm256_set1_epi32(0x1fffff)));
    }
    const __m256i eight = _mm256_set1_epi32(8);
    const __m256i byte =
        _mm256_sub_epi32(_mm256_max_epu32(_mm256_srli_epi32(raised, 23), eight), eight);
    const __m256i nonfinite = _mm256_cmpgt_epi32(amax, _mm256_set1_epi32(INFINITY_BITS - 1));
    return _mm256_blendv_epi8(byte, _mm256_set1_epi32(0xff), nonfinite);
}

/* 2^(127 - byte). A finite amax gives at most 247, so the factor is normal; for ff it is anything.
 */
INLINE __m256 element_factors(__m256i bytes)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(254), bytes), 23));
}

/* E4M3 codes, saturating, of bits * factor; anything for NaN. With 2^e the binade, at least 2^-6,
 * adding 2^(e+20) rounds to multiples of 2^(e-3), ties to even; these count from the code of 2^e
 * less 8. */
INLINE __m256i encode_e4m3(__m256i bits, __m256 factor)
{
    const __m256i least = _mm256_set1_epi32(E4M3_MIN_NORMAL_BITS);
    const __m256i scaled = _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(bits), factor));
    const __m256i size = _mm256_min_epu32(magnitude(scaled), _mm256_set1_epi32(E4M3_MAX_BITS));
    const __m256i binade =
        _mm256_max_epu32(_mm256_and_si256(size, _mm256_set1_epi32(INFINITY_BITS)), least);
    const __m256i shift = _mm256_add_epi32(binade, _mm256_set1_epi32(20 << 23));
    const __m256i sum =
        _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(size), _mm256_castsi256_ps(shift)));
    const __m256i steps = _mm256_sub_epi32(sum, shift);
    const __m256i base = _mm256_srli_epi32(_mm256_sub_epi32(binade, least), 20);
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    return _mm256_or_si256(sign, _mm256_add_epi32(base, steps));
}

/* The largest lane, in all lanes. */
INLINE __m256i maximum(__m256i x)
{
    x = _mm256_max_epu32(x, _mm256_permute2x128_si256(x, x, 0x01));
    x = _mm256_max_epu32(x, _mm256_shuffle_epi32(x, 0x4e));
    return _mm256_max_epu32(x, _mm256_shuffle_epi32(x, 0xb1));
}

/* One block of a row; returns its scale byte. */
INLINE uint8_t row_block(const void *x, oct_dtype dtype, oct_mx_rule rule, uint8_t *codes)
{
    __m256i v[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        v[j] = load8(x, dtype, 8 * j);
    const __m256i largest = _mm256_max_epu32(_mm256_max_epu32(magnitude(v[0]), magnitude(v[1])),
                                             _mm256_max_epu32(magnitude(v[2]), magnitude(v[3])));
    const __m256i bytes = scale_bytes(maximum(largest), rule);
    const __m256 factor = element_factors(bytes);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        v[j] = encode_e4m3(v[j], factor);
    const uint8_t byte = (uint8_t)_mm256_extract_epi8(bytes, 0);
    const __m256i packed = byte == 0xff ? _mm256_setzero_si256() : in_order(pack_lanes(v));
    _mm256_storeu_si256((void *)codes, packed);
    return byte;
}

/* One block (1..32 rows) of 32 columns; returns their scale bytes. */
INLINE __m256i col_blocks(const void *x, oct_dtype dtype, int64_t ld, int64_t m, oct_mx_rule rule,
                          uint8_t *codes, int64_t code_ld)
{
    __m256i amax[4], bytes[4];
    __m256 factor[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        amax[j] = _mm256_setzero_si256();
    for (int64_t row = 0; row < m; row++) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            amax[j] = _mm256_max_epu32(amax[j], magnitude(load8(x, dtype, row * ld + 8 * j)));
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        bytes[j] = scale_bytes(amax[j], rule);
        factor[j] = element_factors(bytes[j]);
    }
    const __m256i packed_bytes = in_order(pack_lanes(bytes));
    const __m256i nonfinite = _mm256_cmpeq_epi8(packed_bytes, _mm256_set1_epi8(-1));
    for (int64_t row = 0; row < m; row++) {
        __m256i v[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            v[j] = encode_e4m3(load8(x, dtype, row * ld + 8 * j), factor[j]);
        _mm256_storeu_si256((void *)(codes + row * code_ld),
                            _mm256_andnot_si256(nonfinite, in_order(pack_lanes(v))));
    }
    return packed_bytes;
}

/* --- MX, one BF16 word per 16-bit lane: half the instructions --------------------------------- */

INLINE __m256i word_magnitude(__m256i words)
{
    return _mm256_and_si256(words, _mm256_set1_epi16(0x7fff));
}

/* The exception of scale_bytes() is no BF16 number. */
INLINE __m256i word_scale_bytes(__m256i amax, oct_mx_rule rule)
{
    const __m256i raise = _mm256_set1_epi16(rule == OCT_MX_RULE_ROUND_UP ? 0x1f : 0);
    const __m256i exponent = _mm256_srli_epi16(_mm256_add_epi16(amax, raise), 7);
    const __m256i byte = _mm256_subs_epu16(exponent, _mm256_set1_epi16(8));
    const __m256i nonfinite = _mm256_cmpgt_epi16(amax, _mm256_set1_epi16(0x7f7f));
    return _mm256_blendv_epi8(byte, _mm256_set1_epi16(0xff), nonfinite);
}

/* The words take all magnitudes for normal numbers, which is right while BF16 subnormals encode to
 * zero: for scale bytes from 11 on, where 2^-126 becomes 2^-10. Smaller ones, that of an all-zero
 * block aside, need the FP32 form. */
enum { WORD_BYTE_MIN = 11, WORD_AMAX_MIN = (WORD_BYTE_MIN + 8) << 7 };

INLINE __m256i needs_f32(__m256i amax)
{
    return _mm256_and_si256(_mm256_cmpgt_epi16(amax, _mm256_setzero_si256()),
                            _mm256_cmpgt_epi16(_mm256_set1_epi16(WORD_AMAX_MIN), amax));
}

/* What encode_words() subtracts from magnitudes: it makes an exponent field of 0 of 2^-11 * scale.
 */
INLINE __m256i word_offsets(__m256i bytes)
{
    return _mm256_slli_epi16(_mm256_subs_epu16(bytes, _mm256_set1_epi16(WORD_BYTE_MIN)), 7);
}

/* E4M3 codes, saturating; anything for NaN and Inf. d is the scaled magnitude, exponent field 0 for
 * 2^-11 and all below, 5 for 2^-6, the least normal number. `exact` is the code before rounding in
 * units of 1/512: linear in d for normal numbers, linear in the value (1.m * 2^field) below. */
INLINE __m256i encode_words(__m256i words, __m256i offsets)
{
    const __m256i d = _mm256_min_epu16(_mm256_subs_epu16(word_magnitude(words), offsets),
                                       _mm256_set1_epi16((4 << 7) + (0x7e << 4)));
    /* 2^field for fields 0..4; the upper byte of the index gives zero. */
    const __m256i powers =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(1, 2, 4, 8, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m256i field =
        _mm256_or_si256(_mm256_srli_epi16(d, 7), _mm256_set1_epi16((int16_t)0x8000));
    const __m256i leading = _mm256_set1_epi16(0x80);
    const __m256i value = _mm256_or_si256(_mm256_and_si256(d, _mm256_set1_epi16(0x7f)), leading);
    const __m256i subnormal = _mm256_mullo_epi16(value, _mm256_shuffle_epi8(powers, field));
    const __m256i normal = _mm256_sub_epi16(_mm256_slli_epi16(d, 5), _mm256_set1_epi16(4 << 12));
    const __m256i is_normal = _mm256_cmpgt_epi16(d, _mm256_set1_epi16((5 << 7) - 1));
    const __m256i exact = _mm256_blendv_epi8(subnormal, normal, is_normal);
    /* Ties stay down unless the code is odd. */
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(exact, 9), _mm256_set1_epi16(1));
    const __m256i up = _mm256_add_epi16(odd, _mm256_set1_epi16(0xff));
    const __m256i code = _mm256_srli_epi16(_mm256_add_epi16(exact, up), 9);
    return _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(words, 8), leading), code);
}

/* The largest word, in all lanes. */
INLINE __m256i word_maximum(__m256i x)
{
    const __m128i half = _mm_max_epu16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    /* There is an instruction for the least of 8 words. */
    const __m128i ones = _mm_set1_epi16(-1);
    const __m128i least = _mm_minpos_epu16(_mm_xor_si128(half, ones));
    return _mm256_broadcastw_epi16(_mm_xor_si128(least, ones));
}

INLINE uint8_t row_block_words(const uint16_t *x, oct_mx_rule rule, uint8_t *codes)
{
    __m256i v[2] = {load_words(x), load_words(x + 16)};
    const __m256i amax = word_maximum(_mm256_max_epu16(word_magnitude(v[0]), word_magnitude(v[1])));
    const __m256i suspect = needs_f32(amax);
    if (!_mm256_testz_si256(suspect, suspect))
        return row_block(x, OCT_DTYPE_BF16, rule, codes);
    const __m256i bytes = word_scale_bytes(amax, rule);
    const __m256i offsets = word_offsets(bytes);
    v[0] = encode_words(v[0], offsets);
    v[1] = encode_words(v[1], offsets);
    const uint8_t byte = (uint8_t)_mm256_extract_epi8(bytes, 0);
    const __m256i packed = byte == 0xff ? _mm256_setzero_si256() : pack_words(v);
    _mm256_storeu_si256((void *)codes, packed);
    return byte;
}

/* Four neighbouring blocks of a row; their scales are worked out together. */
INLINE void row_4_blocks_words(const uint16_t *x, oct_mx_rule rule, uint8_t *codes, uint8_t *scales)
{
    __m256i largest[4];
#pragma GCC unroll 4
    for (int b = 0; b < 4; b++)
        largest[b] = _mm256_max_epu16(word_magnitude(load_words(x + STEP * b)),
                                      word_magnitude(load_words(x + STEP * b + 16)));
    /* 128-bit lanes of blocks 0 and 1, 2 and 3; then 64-bit lanes of blocks 0, 2, 1, 3. */
    const __m256i first = _mm256_max_epu16(_mm256_permute2x128_si256(largest[0], largest[1], 0x20),
                                           _mm256_permute2x128_si256(largest[0], largest[1], 0x31));
    const __m256i second =
        _mm256_max_epu16(_mm256_permute2x128_si256(largest[2], largest[3], 0x20),
                         _mm256_permute2x128_si256(largest[2], largest[3], 0x31));
    __m256i amax = _mm256_max_epu16(_mm256_unpacklo_epi64(first, second),
                                    _mm256_unpackhi_epi64(first, second));
    amax = _mm256_max_epu16(amax, _mm256_shuffle_epi32(amax, 0xb1));
    amax = _mm256_max_epu16(
        amax, _mm256_or_si256(_mm256_srli_epi32(amax, 16), _mm256_slli_epi32(amax, 16)));
    const __m256i bytes = word_scale_bytes(amax, rule);
    const __m256i rare =
        _mm256_or_si256(needs_f32(amax), _mm256_cmpeq_epi16(bytes, _mm256_set1_epi16(0xff)));
    if (!_mm256_testz_si256(rare, rare)) {
        for (int b = 0; b < 4; b++)
            scales[b] = row_block_words(x + STEP * b, rule, codes + STEP * b);
        return;
    }
    const __m256i offsets = word_offsets(bytes);
    const __m256i offset[4] = {
        _mm256_permute4x64_epi64(offsets, 0x00), _mm256_permute4x64_epi64(offsets, 0xaa),
        _mm256_permute4x64_epi64(offsets, 0x55), _mm256_permute4x64_epi64(offsets, 0xff)};
#pragma GCC unroll 4
    for (int b = 0; b < 4; b++) {
        const __m256i v[2] = {encode_words(load_words(x + STEP * b), offset[b]),
                              encode_words(load_words(x + STEP * b + 16), offset[b])};
        _mm256_storeu_si256((void *)(codes + STEP * b), pack_words(v));
    }
    const __m128i low = _mm256_castsi256_si128(bytes), high = _mm256_extracti128_si256(bytes, 1);
    const __m128i blocks_0_1 = _mm_unpacklo_epi16(low, high);
    const __m128i blocks_2_3 = _mm_unpackhi_epi16(low, high);
    const __m128i words = _mm_unpacklo_epi32(blocks_0_1, blocks_2_3);
    const __m128i packed = _mm_packus_epi16(words, words);
    const int32_t four = _mm_cvtsi128_si32(packed);
    memcpy(scales, &four, sizeof four);
}

INLINE __m256i col_blocks_words(const uint16_t *x, int64_t ld, int64_t m, oct_mx_rule rule,
                                uint8_t *codes, int64_t code_ld)
{
    __m256i left = _mm256_setzero_si256(), right = _mm256_setzero_si256();
    for (int64_t row = 0; row < m; row++) {
        left = _mm256_max_epu16(left, word_magnitude(load_words(x + row * ld)));
        right = _mm256_max_epu16(right, word_magnitude(load_words(x + row * ld + 16)));
    }
    const __m256i suspect = _mm256_or_si256(needs_f32(left), needs_f32(right));
    if (!_mm256_testz_si256(suspect, suspect))
        return col_blocks(x, OCT_DTYPE_BF16, ld, m, rule, codes, code_ld);
    const __m256i bytes[2] = {word_scale_bytes(left, rule), word_scale_bytes(right, rule)};
    const __m256i offsets[2] = {word_offsets(bytes[0]), word_offsets(bytes[1])};
    const __m256i packed_bytes = pack_words(bytes);
    const __m256i nonfinite = _mm256_cmpeq_epi8(packed_bytes, _mm256_set1_epi8(-1));
    for (int64_t row = 0; row < m; row++) {
        const __m256i v[2] = {encode_words(load_words(x + row * ld), offsets[0]),
                              encode_words(load_words(x + row * ld + 16), offsets[1])};
        _mm256_storeu_si256((void *)(codes + row * code_ld),
                            _mm256_andnot_si256(nonfinite, pack_words(v)));
    }
    return packed_bytes;
}

/* --- MX tiles --------------------------------------------------------------------------------- */

INLINE uint8_t row_block_at(const void *x, oct_dtype dtype, oct_mx_rule rule, uint8_t *codes)
{
    return dtype == OCT_DTYPE_BF16 ? row_block_words(x, rule, codes)
                                   : row_block(x, dtype, rule, codes);
}

INLINE void rows_of(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n,
                    oct_mx_rule rule, uint8_t *codes, int64_t code_ld, uint8_t *scales,
                    int64_t scale_ld)
{
    const int64_t whole = n / STEP, rest = n % STEP;
    for (int64_t row = 0; row < m; row++) {
        const void *from = element(x, dtype, row * ld);
        uint8_t *to = codes + row * code_ld, *bytes = scales + row * scale_ld;
        int64_t b = 0;
        for (; dtype == OCT_DTYPE_BF16 && b + 4 <= whole; b += 4)
            row_4_blocks_words((const uint16_t *)from + b * STEP, rule, to + b * STEP, bytes + b);
        for (; b < whole; b++)
            bytes[b] = row_block_at(element(from, dtype, b * STEP), dtype, rule, to + b * STEP);
        if (rest) {
            _Alignas(32) float filled[STEP] = {0};
            uint8_t rest_codes[STEP];
            memcpy(filled, element(from, dtype, whole * STEP),
                   (size_t)rest * (dtype == OCT_DTYPE_BF16 ? 2 : 4));
            bytes[whole] = row_block_at(filled, dtype, rule, rest_codes);
            memcpy(to + whole * STEP, rest_codes, (size_t)rest);
        }
        const int64_t blocks = oct_ceil_div(n, STEP);
        if (blocks % 2)
            bytes[blocks] = 0;
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

INLINE __m256i col_blocks_at(const void *x, oct_dtype dtype, int64_t ld, int64_t m,
                             oct_mx_rule rule, uint8_t *codes, int64_t code_ld)
{
    return dtype == OCT_DTYPE_BF16 ? col_blocks_words(x, ld, m, rule, codes, code_ld)
                                   : col_blocks(x, dtype, ld, m, rule, codes, code_ld);
}

/* Two blocks of 32 columns; scales [32, 2]. */
INLINE void col_pair(const void *x, oct_dtype dtype, int64_t ld, int64_t m, oct_mx_rule rule,
                     uint8_t *codes, int64_t code_ld, uint8_t *scales)
{
    const int64_t first_rows = oct_min_i64(STEP, m);
    const __m256i first = col_blocks_at(x, dtype, ld, first_rows, rule, codes, code_ld);
    __m256i second = _mm256_setzero_si256();
    if (m > STEP)
        second = col_blocks_at(element(x, dtype, STEP * ld), dtype, ld, m - STEP, rule,
                               codes + STEP * code_ld, code_ld);
    const __m256i low = _mm256_unpacklo_epi8(first, second);
    const __m256i high = _mm256_unpackhi_epi8(first, second);
    _mm256_storeu_si256((void *)scales, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256((void *)(scales + 32), _mm256_permute2x128_si256(low, high, 0x31));
}

INLINE void cols_of(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n,
                    oct_mx_rule rule, uint8_t *codes, int64_t code_ld, uint8_t *scales)
{
    const int64_t whole = n / STEP * STEP, rest = n % STEP;
    for (int64_t i = 0; i < whole; i += STEP)
        col_pair(element(x, dtype, i), dtype, ld, m, rule, codes + i, code_ld, scales + 2 * i);
    if (rest == 0)
        return;
    _Alignas(32) float filled[2 * STEP * STEP] = {0};
    uint8_t rest_codes[2 * STEP * STEP], rest_scales[2 * STEP];
    const int64_t size = dtype == OCT_DTYPE_BF16 ? 2 : 4;
    for (int64_t row = 0; row < m; row++)
        memcpy((char *)filled + row * STEP * size, element(x, dtype, row * ld + whole),
               (size_t)(rest * size));
    col_pair(filled, dtype, STEP, m, rule, rest_codes, STEP, rest_scales);
    for (int64_t row = 0; row < m; row++)
        memcpy(codes + row * code_ld + whole, rest_codes + row * STEP, (size_t)rest);
    memcpy(scales + 2 * whole, rest_scales, (size_t)(2 * rest));
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

INLINE uint32_t first_lane(__m256i x)
{
    return (uint32_t)_mm256_cvtsi256_si32(x);
}

INLINE uint32_t largest_f32(const float *x, int64_t n)
{
    __m256i largest[4];
    int64_t i = 0;
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        largest[j] = _mm256_setzero_si256();
    for (; i + 32 <= n; i += 32) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            largest[j] =
                _mm256_max_epu32(largest[j], magnitude(load8(x, OCT_DTYPE_F32, i + 8 * j)));
    }
    float filled[32] = {0};
    if (i < n)
        memcpy(filled, x + i, (size_t)(n - i) * sizeof *x);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        largest[j] = _mm256_max_epu32(largest[j], magnitude(load8(filled, OCT_DTYPE_F32, 8 * j)));
    return first_lane(maximum(_mm256_max_epu32(_mm256_max_epu32(largest[0], largest[1]),
                                               _mm256_max_epu32(largest[2], largest[3]))));
}

/* As FP32 bits. */
INLINE uint32_t largest_bf16(const uint16_t *x, int64_t n)
{
    __m256i largest[4];
    int64_t i = 0;
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        largest[j] = _mm256_setzero_si256();
    for (; i + 64 <= n; i += 64) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            largest[j] = _mm256_max_epu16(largest[j], word_magnitude(load_words(x + i + 16 * j)));
    }
    uint16_t filled[64] = {0};
    if (i < n)
        memcpy(filled, x + i, (size_t)(n - i) * sizeof *x);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        largest[j] = _mm256_max_epu16(largest[j], word_magnitude(load_words(filled + 16 * j)));
    const __m256i all = word_maximum(_mm256_max_epu16(_mm256_max_epu16(largest[0], largest[1]),
                                                      _mm256_max_epu16(largest[2], largest[3])));
    return first_lane(all) << 16;
}

static float amax(const void *x, oct_dtype dtype, int64_t n)
{
    const uint32_t bits = dtype == OCT_DTYPE_BF16 ? largest_bf16(x, n) : largest_f32(x, n);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* What precedes the mantissa in a code, by exponent from -23 on; never 0 up to exponent 15. */
typedef struct hif8_prefixes {
    __m256i part[3]; /* exponents -23 .. -8, -7 .. 8, 9 .. 15 */
} hif8_prefixes;

static hif8_prefixes hif8_prefixes_make(void)
{
    uint8_t prefix[48] = {0};
    for (int e = -23; e <= 15; e++) {
        const int size = e < 0 ? -e : e, negative = e < 0;
        uint8_t *at = prefix + (e + 23);
        if (e < -15)
            *at = (uint8_t)(e == -23 ? 1 : e + 23); /* all of [2^-23, 2^-22) rounds to 01 */
        else if (size == 0)
            *at = 0x08;
        else if (size == 1)
            *at = (uint8_t)(0x10 | negative << 3);
        else if (size <= 3)
            *at = (uint8_t)(0x20 | negative << 4 | (size - 2) << 3);
        else if (size <= 7)
            *at = (uint8_t)(0x40 | negative << 4 | (size - 4) << 2);
        else
            *at = (uint8_t)(0x60 | negative << 4 | (size - 8) << 1);
    }
    hif8_prefixes prefixes;
    for (int i = 0; i < 3; i++)
        prefixes.part[i] =
            _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(prefix + 16 * i)));
    return prefixes;
}

/* 0 for biased exponents below 104; they are at most 142. */
INLINE __m256i hif8_prefix(const hif8_prefixes *prefixes, __m256i exponents)
{
    /* Bits 4 and 5 of an index choose the part; a negative one finds 0 in each. */
    const __m256i index = _mm256_sub_epi8(exponents, _mm256_set1_epi8(127 - 23));
    const __m256i low = _mm256_blendv_epi8(_mm256_shuffle_epi8(prefixes->part[0], index),
                                           _mm256_shuffle_epi8(prefixes->part[1], index),
                                           _mm256_slli_epi16(index, 3));
    return _mm256_blendv_epi8(low, _mm256_shuffle_epi8(prefixes->part[2], index),
                              _mm256_slli_epi16(index, 2));
}

/* Rounds 8 values of magnitude `size`: the biased exponent and the mantissa of the code, which
 * means nothing for an exponent below 104 (2^-23). No smaller magnitude is rounded up to that. */
INLINE void hif8_round(__m256i size, __m256i limit, __m256i *exponent, __m256i *mantissa)
{
    /* Bits below the mantissa, less 1, by a quarter of the size of the exponent; beyond 23 a shift
     * that leaves nothing (from 64 on the index starts again, which does not matter there). The
     * upper bytes of an index give zero. */
    const __m256i widths = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(19, 20, 21, 21, 22, 22, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
    const __m256i clamped = _mm256_min_epu32(size, limit);
    const __m256i power =
        _mm256_abs_epi32(_mm256_sub_epi32(_mm256_srli_epi32(clamped, 23), _mm256_set1_epi32(127)));
    const __m256i index =
        _mm256_or_si256(_mm256_srli_epi32(power, 2), _mm256_set1_epi32((int32_t)0x80808000));
    const __m256i below = _mm256_shuffle_epi8(widths, index);
    const __m256i rounded =
        _mm256_add_epi32(clamped, _mm256_sllv_epi32(_mm256_set1_epi32(1), below));
    *exponent = _mm256_srli_epi32(rounded, 23);
    /* After a carry the mantissa is zero, whatever its width is now. */
    const __m256i fraction = _mm256_and_si256(rounded, _mm256_set1_epi32(0x7fffff));
    *mantissa = _mm256_srlv_epi32(_mm256_srli_epi32(fraction, 1), below);
}

/* What a call encodes by. */
typedef struct hif8_mode {
    hif8_prefixes prefixes;
    __m256 scale;
    __m256i limit; /* 40960 rounds to the code of infinity */
    uint8_t nan_code;
} hif8_mode;

/* Puts the code of NaN where a quotient of 32 is one. */
static __attribute__((noinline)) void hif8_mark_nans(const void *x, oct_dtype dtype,
                                                     const hif8_mode *mode, uint8_t *codes)
{
    for (int j = 0; j < 4; j++) {
        const __m256 quotient =
            _mm256_div_ps(_mm256_castsi256_ps(load8(x, dtype, 8 * j)), mode->scale);
        const int nans = _mm256_movemask_ps(_mm256_cmp_ps(quotient, quotient, _CMP_UNORD_Q));
        for (int i = 0; i < 8; i++)
            if (nans >> i & 1)
                codes[8 * j + i] = mode->nan_code;
    }
}

INLINE void hif8_32(const void *x, oct_dtype dtype, const hif8_mode *mode, uint8_t *codes)
{
    __m256i quotient[4], exponent[4], mantissa[4];
    __m256i largest = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const __m256 value = _mm256_castsi256_ps(load8(x, dtype, 8 * j));
        quotient[j] = _mm256_castps_si256(_mm256_div_ps(value, mode->scale));
        const __m256i size = magnitude(quotient[j]);
        largest = _mm256_max_epu32(largest, size);
        hif8_round(size, mode->limit, &exponent[j], &mantissa[j]);
    }
    /* Saturation keeps the sign bits. */
    const __m256i signs =
        _mm256_and_si256(_mm256_packs_epi16(_mm256_packs_epi32(quotient[0], quotient[1]),
                                            _mm256_packs_epi32(quotient[2], quotient[3])),
                         _mm256_set1_epi8((char)0x80));
    const __m256i prefix = hif8_prefix(&mode->prefixes, pack_lanes(exponent));
    const __m256i zero = _mm256_cmpeq_epi8(prefix, _mm256_setzero_si256()); /* has no sign */
    const __m256i rest = _mm256_or_si256(signs, pack_lanes(mantissa));
    const __m256i code = _mm256_andnot_si256(zero, _mm256_or_si256(prefix, rest));
    _mm256_storeu_si256((void *)codes, in_order(code));
    const __m256i nan = _mm256_cmpgt_epi32(largest, _mm256_set1_epi32(INFINITY_BITS));
    if (!_mm256_testz_si256(nan, nan))
        hif8_mark_nans(x, dtype, mode, codes);
}

INLINE void hif8_of(const void *x, oct_dtype dtype, int64_t n, const hif8_mode *mode,
                    uint8_t *codes)
{
    const int64_t whole = n / STEP * STEP, rest = n % STEP;
    for (int64_t i = 0; i < whole; i += STEP)
        hif8_32(element(x, dtype, i), dtype, mode, codes + i);
    if (rest == 0)
        return;
    _Alignas(32) float filled[STEP] = {0};
    uint8_t rest_codes[STEP];
    memcpy(filled, element(x, dtype, whole), (size_t)rest * (dtype == OCT_DTYPE_BF16 ? 2 : 4));
    hif8_32(filled, dtype, mode, rest_codes);
    memcpy(codes + whole, rest_codes, (size_t)rest);
}

static void hif8_encode(const void *x, oct_dtype dtype, int64_t n, float scale, bool saturate,
                        uint8_t *codes)
{
    const hif8_mode mode = {
        .prefixes = hif8_prefixes_make(),
        .scale = _mm256_set1_ps(scale),
        .limit = _mm256_set1_epi32(saturate ? HIF8_OVERFLOW_BITS - 1 : HIF8_OVERFLOW_BITS),
        .nan_code = saturate ? 0x00 : 0x80};
    if (dtype == OCT_DTYPE_BF16)
        hif8_of(x, OCT_DTYPE_BF16, n, &mode, codes);
    else
        hif8_of(x, OCT_DTYPE_F32, n, &mode, codes);
}

void oct_quantize_kernels_avx2(oct_quantize_kernels *kernels)
{
    kernels->mx_rows = mx_rows;
    kernels->mx_cols = mx_cols;
    kernels->amax = amax;
    kernels->hif8_encode = hif8_encode;
}

#endif
