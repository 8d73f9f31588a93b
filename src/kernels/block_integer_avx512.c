/* Block-integer product for AVX-512 VNNI: vpdpwssd multiplies pairs of int16 into int32. */
#include "kernels/gemm_blocks.h"

#if defined(__x86_64__)

#include <string.h>

#include "kernels/gemm_avx512.h"
#include "kernels/packing_ahead.h"
#include "kernels/remainders_fma.h"

enum { MR = OCT_GEMM_MR, NR = OCT_GEMM_NR, LANES = OCT_GEMM_LANES, PAIRS = OCT_GEMM_GROUP / 2 };

static __mmask64 first_bytes(int64_t count)
{
    return count >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << count) - 1;
}

/* k contiguous: fours of codes are transposed as 32-bit lanes, then cut into pairs. */
static void gather_contiguous(const oct_quantized_matrix *q, int64_t row, int64_t rows, int64_t k,
                              int64_t stride, uint8_t *pairs)
{
    const __mmask64 along = first_bytes(q->k - k);
    __m512i r[LANES];
    for (int64_t i = 0; i < LANES; i++)
        r[i] = i < rows ? _mm512_maskz_loadu_epi8(along, q->codes + (row + i) * q->ld + k)
                        : _mm512_setzero_si512();
    for (int64_t i = 0; i < rows && k + OCT_AHEAD_CODES < q->k; i++)
        oct_prefetch(q->codes + (row + i) * q->ld + k + OCT_AHEAD_CODES);
    oct_transpose_16x16(r);
#pragma GCC unroll 16
    for (int64_t i = 0; i < LANES; i++) {
        _mm256_storeu_si256((void *)(pairs + 2 * i * stride), _mm512_cvtepi32_epi16(r[i]));
        _mm256_storeu_si256((void *)(pairs + (2 * i + 1) * stride),
                            _mm512_cvtepi32_epi16(_mm512_srli_epi32(r[i], 16)));
    }
}

/* Rows contiguous: two neighbouring k are interleaved. */
static void gather_strided(const oct_quantized_matrix *q, int64_t row, int64_t rows, int64_t k,
                           int64_t stride, uint8_t *pairs)
{
    const __mmask16 lanes = (__mmask16)first_bytes(rows);
    for (int64_t p = 0; p < PAIRS; p++) {
        __m128i two[2];
        for (int64_t j = 0; j < 2; j++) {
            const int64_t at = k + 2 * p + j;
            two[j] = at < q->k ? _mm_maskz_loadu_epi8(lanes, q->codes + at * q->ld + row)
                               : _mm_setzero_si128();
            if (at + OCT_GEMM_GROUP < q->k)
                oct_prefetch(q->codes + (at + OCT_GEMM_GROUP) * q->ld + row);
        }
        /* One store: a load of the line would wait for two to reach the cache. */
        _mm256_storeu_si256(
            (void *)(pairs + p * stride),
            _mm256_set_m128i(_mm_unpackhi_epi8(two[0], two[1]), _mm_unpacklo_epi8(two[0], two[1])));
    }
}

static void gather_pairs(const oct_quantized_matrix *q, int64_t row, int64_t width, int64_t lanes,
                         int64_t k, uint8_t *pairs)
{
    for (int64_t lane = 0; lane < lanes; lane += LANES) {
        const int64_t inside = width < q->rows - row ? width - lane : q->rows - row - lane;
        const int64_t rows = inside < 0 ? 0 : inside < LANES ? inside : LANES;
        if (q->k_contiguous)
            gather_contiguous(q, row + lane, rows, k, lanes * 2, pairs + lane * 2);
        else
            gather_strided(q, row + lane, rows, k, lanes * 2, pairs + lane * 2);
    }
}

/* Two lines of 16 pairs, the first in the low half. */
static __m512i two_lines(const uint8_t *pairs, int64_t stride)
{
    const __m256i low = _mm256_loadu_si256((const void *)pairs);
    const __m256i high = _mm256_loadu_si256((const void *)(pairs + stride));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* A table over the 128 magnitudes; the sign bit of an index does not count. */
typedef struct magnitude_table {
    __m512i low, high;
} magnitude_table;

static magnitude_table load_table(const void *entries)
{
    return (magnitude_table){_mm512_loadu_si512(entries),
                             _mm512_loadu_si512((const char *)entries + 64)};
}

static __m512i look_up(magnitude_table table, __m512i codes)
{
    return _mm512_permutex2var_epi8(table.low, codes, table.high);
}

static __m256i half(__m512i x, int which)
{
    return which ? _mm512_extracti64x4_epi64(x, 1) : _mm512_castsi512_si256(x);
}

static void bounds_mxfp8(const oct_code_table *table, const uint8_t *pairs, int64_t stride,
                         oct_group_bounds *bounds)
{
    const magnitude_table bound = load_table(table->bound);
    const __m512i nan = _mm512_set1_epi8(0x7f);
    __mmask64 bad = 0;
    for (int block = 0; block < 2; block++) {
        __m512i norm = _mm512_setzero_si512();
        for (int p = 0; p < PAIRS / 2; p += 2, pairs += 2 * stride) {
            const __m512i codes = two_lines(pairs, stride);
            bad |= _mm512_cmpeq_epi8_mask(_mm512_and_si512(codes, nan), nan);
            const __m512i n = look_up(bound, codes);
            for (int line = 0; line < 2; line++) {
                const __m512i wide = _mm512_cvtepu8_epi16(half(n, line));
                norm = _mm512_dpwssd_epi32(norm, wide, wide);
            }
        }
        _mm512_storeu_si512(bounds->norm[block], norm);
    }
    bounds->nonfinite = bad != 0;
}

enum { TOP_BIAS = 64 };

/* Exponent of the top bit + TOP_BIAS for every magnitude, 0 for those without a finite value. */
static magnitude_table load_tops(const oct_code_table *table)
{
    const magnitude_table exponent = load_table(table->exponent);
    const magnitude_table mantissa = load_table(table->mantissa);
    const __m512i up = _mm512_set1_epi8(3 + TOP_BIAS);
    return (magnitude_table){
        _mm512_maskz_add_epi8(_mm512_test_epi8_mask(mantissa.low, mantissa.low), exponent.low, up),
        _mm512_maskz_add_epi8(_mm512_test_epi8_mask(mantissa.high, mantissa.high), exponent.high,
                              up)};
}

static void bounds_hif8(const oct_code_table *table, const uint8_t *pairs, int64_t stride,
                        oct_group_bounds *bounds)
{
    const magnitude_table tops = load_tops(table);
    const magnitude_table mantissa = load_table(table->mantissa);
    const __m512i seven_bits = _mm512_set1_epi8(0x7f);
    const __m512i inf = _mm512_set1_epi8(0x6f), nan = _mm512_set1_epi8((char)0x80);
    __m512i top = _mm512_setzero_si512();
    __mmask64 bad = 0;
    for (int p = 0; p < PAIRS; p += 2) {
        const __m512i codes = two_lines(pairs + p * stride, stride);
        bad |= _mm512_cmpeq_epi8_mask(_mm512_and_si512(codes, seven_bits), inf);
        bad |= _mm512_cmpeq_epi8_mask(codes, nan);
        top = _mm512_max_epu8(top, look_up(tops, codes));
    }
    bounds->nonfinite = bad != 0;

    /* Over lines, then over the two bytes of a pair: one value per row, in both halves of it. */
    const __m256i lines = _mm256_max_epu8(half(top, 0), half(top, 1));
    const __m256i row_top = _mm256_max_epu8(_mm256_and_si256(lines, _mm256_set1_epi16(0xff)),
                                            _mm256_srli_epi16(lines, 8));
    const __m512i wide_top = _mm512_cvtepu16_epi32(row_top);
    const __mmask16 empty = _mm512_testn_epi32_mask(wide_top, wide_top);
    _mm512_storeu_si512(
        bounds->top, _mm512_mask_mov_epi32(_mm512_sub_epi32(wide_top, _mm512_set1_epi32(TOP_BIAS)),
                                           empty, _mm512_set1_epi32(-128)));
    const __m512i pair_top = _mm512_or_si512(wide_top, _mm512_slli_epi32(wide_top, 16));

    __m512i norm = _mm512_setzero_si512();
    const __m512i one = _mm512_set1_epi16(1), most = _mm512_set1_epi16(15);
    for (int p = 0; p < PAIRS; p += 2) {
        const __m512i codes = two_lines(pairs + p * stride, stride);
        const __m512i q = look_up(mantissa, codes), t = look_up(tops, codes);
        for (int line = 0; line < 2; line++) {
            const __m512i below = _mm512_sub_epi16(pair_top, _mm512_cvtepu8_epi16(half(t, line)));
            const __m512i right = _mm512_min_epu16(below, most);
            const __m512i x = _mm512_slli_epi16(_mm512_cvtepu8_epi16(half(q, line)), 3);
            const __m512i round = _mm512_sub_epi16(_mm512_sllv_epi16(one, right), one);
            const __m512i n = _mm512_srlv_epi16(_mm512_add_epi16(x, round), right);
            norm = _mm512_dpwssd_epi32(norm, n, n);
        }
    }
    _mm512_storeu_si512(bounds->norm[0], norm);
    _mm512_storeu_si512(bounds->norm[1], _mm512_setzero_si512());
}

/* Units of the `used` rows: 2^exponent, and their range. */
static void store_units(__m512i exponent, __mmask16 used, oct_group_units *units)
{
    const __m512i e = _mm512_maskz_mov_epi32(used, exponent);
    const __m512i normal = _mm512_slli_epi32(_mm512_add_epi32(e, _mm512_set1_epi32(127)), 23);
    const __m512i subnormal =
        _mm512_sllv_epi32(_mm512_set1_epi32(1), _mm512_add_epi32(e, _mm512_set1_epi32(149)));
    const __mmask16 is_normal = _mm512_cmpge_epi32_mask(e, _mm512_set1_epi32(-126));
    _mm512_storeu_si512(units->exponent, e);
    _mm512_storeu_si512(units->unit, _mm512_mask_mov_epi32(subnormal, is_normal, normal));
    units->lowest = _mm512_reduce_min_epi32(
        _mm512_mask_mov_epi32(_mm512_set1_epi32(INT16_MAX), used, exponent));
    units->highest = _mm512_reduce_max_epi32(
        _mm512_mask_mov_epi32(_mm512_set1_epi32(INT16_MIN), used, exponent));
}

/* (leading zeros of x - 1) / 2, at most `most`. x < 2^24 is exact in FP32, and its exponent field e
 * stands for 158 - e leading zeros; anything for 0. */
static __m512i room_above(__m512i x, int most)
{
    const __m512i field = _mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepi32_ps(x)), 23);
    const __m512i room = _mm512_srai_epi32(_mm512_sub_epi32(_mm512_set1_epi32(157), field), 1);
    return _mm512_min_epi32(room, _mm512_set1_epi32(most));
}

static void units_mxfp8(const oct_group_bounds *bounds, const uint8_t scales[OCT_GEMM_LANES][2],
                        oct_group_units *units)
{
    const __m512i both = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)scales));
    const __m512i bias = _mm512_set1_epi32(127);
    __m512i norm[2], exponent[2], below[2];
    __mmask16 filled[2];
    __m512i top = _mm512_set1_epi32(-128), sum = _mm512_setzero_si512();
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        norm[j] = _mm512_loadu_si512(bounds->norm[j]);
        const __m512i scale =
            j ? _mm512_srli_epi32(both, 8) : _mm512_and_si512(both, _mm512_set1_epi32(0xff));
        exponent[j] = _mm512_sub_epi32(scale, bias);
        filled[j] = _mm512_test_epi32_mask(norm[j], norm[j]);
        top = _mm512_mask_max_epi32(top, filled[j], top, exponent[j]);
    }
    const __m512i one = _mm512_set1_epi32(1);
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        below[j] = _mm512_sub_epi32(top, exponent[j]);
        const __m512i right =
            _mm512_min_epi32(_mm512_slli_epi32(below[j], 1), _mm512_set1_epi32(30));
        const __m512i round = _mm512_sub_epi32(_mm512_sllv_epi32(one, right), one);
        const __m512i part = _mm512_srlv_epi32(_mm512_add_epi32(norm[j], round), right);
        sum = _mm512_mask_add_epi32(sum, filled[j], sum, part);
    }
    const __m512i up = room_above(_mm512_slli_epi32(sum, 4), 6);
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        const __m512i shift = _mm512_maskz_sub_epi32(filled[j], up, below[j]);
        _mm256_storeu_si256((void *)units->shift[j], _mm512_cvtepi32_epi16(shift));
    }
    store_units(_mm512_sub_epi32(top, up), filled[0] | filled[1], units);
}

static void units_hif8(const oct_group_bounds *bounds, oct_group_units *units)
{
    const __m512i norm = _mm512_loadu_si512(bounds->norm[0]);
    const __mmask16 used = _mm512_test_epi32_mask(norm, norm);
    const __m512i top = _mm512_sub_epi32(_mm512_loadu_si512(bounds->top), _mm512_set1_epi32(6));
    const __m512i exponent = _mm512_sub_epi32(top, room_above(norm, 8));
    const __m256i shift =
        _mm512_cvtepi32_epi16(_mm512_maskz_sub_epi32(used, _mm512_setzero_si512(), exponent));
    _mm256_storeu_si256((void *)units->shift[0], shift);
    _mm256_storeu_si256((void *)units->shift[1], shift);
    store_units(exponent, used, units);
}

static void mantissas(const oct_code_table *table, const uint8_t *pairs, int64_t stride,
                      const int16_t shift[2][OCT_GEMM_LANES], int64_t lanes, int16_t *out,
                      int64_t out_stride, uint32_t lost[OCT_GEMM_GROUP / 2])
{
    const magnitude_table mantissa = load_table(table->mantissa);
    const magnitude_table exponent = load_table(table->exponent);
    const __mmask16 rows = (__mmask16)((1u << lanes) - 1);
    __m512i eleven_less_shift[2];
    for (int block = 0; block < 2; block++) {
        const __m512i s = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)shift[block]));
        eleven_less_shift[block] =
            _mm512_sub_epi16(_mm512_set1_epi16(11), _mm512_or_si512(s, _mm512_slli_epi32(s, 16)));
    }
    for (int p = 0; p < PAIRS; p += 2) {
        for (int line = 0; line < 2; line++)
            oct_prefetch(out + (PAIRS + p + line) * out_stride);
        const __m512i codes = two_lines(pairs + p * stride, stride);
        const __m512i q = look_up(mantissa, codes), e = look_up(exponent, codes);
        const __mmask64 negative = _mm512_movepi8_mask(codes);
#pragma GCC unroll 2
        for (int line = 0; line < 2; line++) {
            /* q * 2^11 < 2^15, to be moved right by 11 - exponent - shift >= 0. */
            const __m512i x = _mm512_slli_epi16(_mm512_cvtepu8_epi16(half(q, line)), 11);
            const __m512i right = _mm512_sub_epi16(eleven_less_shift[p / (PAIRS / 2)],
                                                   _mm512_cvtepi8_epi16(half(e, line)));
            const __m512i m = _mm512_srlv_epi16(x, right);
            const __mmask32 gone = _mm512_cmpneq_epi16_mask(_mm512_sllv_epi16(m, right), x);
            const __mmask32 minus = (__mmask32)(negative >> (32 * line));
            __m512i y = _mm512_mask_mov_epi16(m, gone, _mm512_setzero_si512());
            y = _mm512_mask_sub_epi16(y, minus, _mm512_setzero_si512(), y);
            _mm512_mask_storeu_epi32(out + (p + line) * out_stride, rows, y);
            lost[p + line] = gone;
        }
    }
}

/* One instruction: from the intrinsic GCC 12 makes a register copy and a spill each time. */
static inline __m512i dot_pairs(__m512i sum, __m512i x, __m512i y)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
}

static inline __m512i broadcast_pair(const int16_t *pair)
{
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return _mm512_set1_epi32(both);
}

/* One group. A function of its own: inlined into a loop, GCC 12 keeps a second copy of the tile on
 * the stack. */
static __attribute__((noinline)) void integer_group(const int16_t *a, const int16_t *b,
                                                    const float *a_unit, const float *b_unit,
                                                    float *c)
{
    __m512i sum[MR][2];
    {
        /* The first pair starts the sums. */
        const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 32);
#pragma GCC unroll 14
        for (int i = 0; i < MR; i++) {
            const __m512i x = broadcast_pair(a + 2 * i);
            sum[i][0] = _mm512_madd_epi16(x, b0);
            sum[i][1] = _mm512_madd_epi16(x, b1);
        }
    }
    for (int p = 1; p < PAIRS; p++) {
        a += 2 * MR;
        b += 2 * NR;
        const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 32);
        _mm_prefetch((const char *)(a + 64 * 2 * MR), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + 32 * 2 * NR), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + 32 * 2 * NR + 32), _MM_HINT_T0);
#pragma GCC unroll 14
        for (int i = 0; i < MR; i++) {
            const __m512i x = broadcast_pair(a + 2 * i);
            sum[i][0] = dot_pairs(sum[i][0], x, b0);
            sum[i][1] = dot_pairs(sum[i][1], x, b1);
        }
    }
    const __m512 u0 = _mm512_loadu_ps(b_unit), u1 = _mm512_loadu_ps(b_unit + 16);
#pragma GCC unroll 14
    for (int i = 0; i < MR; i++) {
        const __m512 u = _mm512_set1_ps(a_unit[i]);
        float *row = c + i * NR;
        const __m512 x0 = _mm512_cvtepi32_ps(sum[i][0]), x1 = _mm512_cvtepi32_ps(sum[i][1]);
        _mm512_storeu_ps(row, _mm512_fmadd_ps(x0, _mm512_mul_ps(u, u0), _mm512_loadu_ps(row)));
        _mm512_storeu_ps(row + 16,
                         _mm512_fmadd_ps(x1, _mm512_mul_ps(u, u1), _mm512_loadu_ps(row + 16)));
    }
}

static void integer_tile(int64_t groups, const int16_t *a, const int16_t *b, const float *a_unit,
                         const float *b_unit, float *c)
{
    for (int64_t g = 0; g < groups; g++)
        integer_group(a + g * PAIRS * 2 * MR, b + g * PAIRS * 2 * NR, a_unit + g * MR,
                      b_unit + g * NR, c);
}

/* (1, 0) for the first element of a pair, (0, 1) for the second: what mantissas_of() multiplies
 * pairs with. */
static inline __m512i pair_element(size_t k)
{
    static const int32_t elements[2] = {1, 1 << 16};
    return _mm512_set1_epi32(elements[k % 2]);
}

static inline __m512 mantissas_of(__m512i pairs, __m512i element)
{
    return _mm512_cvtepi32_ps(_mm512_madd_epi16(pairs, element));
}

static void left_remainders(const oct_remainder_list *left, const int16_t *b, const float *b_unit,
                            float *c)
{
    const oct_remainder *end = left->entries + left->count;
    for (const oct_remainder *at = left->entries; at < end; at++) {
        const size_t k = at->k;
        const int16_t *m = b + k / 2 * 2 * NR;
        const float *unit = b_unit + k / OCT_GEMM_GROUP * NR;
        const __m512 value = _mm512_set1_ps(at->value);
        const __m512i which = pair_element(k);
        float *row = c + (size_t)at->row * NR;
#pragma GCC unroll 2
        for (int64_t j = 0; j < NR; j += LANES) {
            const __m512 x = mantissas_of(_mm512_loadu_si512(m + 2 * j), which);
            const __m512 y = _mm512_mul_ps(value, _mm512_loadu_ps(unit + j));
            _mm512_storeu_ps(row + j, _mm512_fmadd_ps(x, y, _mm512_loadu_ps(row + j)));
        }
    }
}

/* A column of d, or zeros if it has not begun. */
static inline const float *column_of(const float *d, uint32_t columns, size_t j)
{
    static const _Alignas(64) float zeros[LANES];
    return columns >> j & 1 ? d + j * LANES : zeros;
}

static inline void add_product(float *column, int row, float x, float y)
{
    const __m512 only = _mm512_maskz_mov_ps((__mmask16)(1u << row), _mm512_set1_ps(x));
    _mm512_store_ps(column, _mm512_fmadd_ps(only, _mm512_set1_ps(y), _mm512_load_ps(column)));
}

static void right_remainders(const oct_remainder_list *right, const oct_remainder_list *left,
                             const int16_t *a, const float *a_unit, float *c)
{
    _Alignas(64) float d[NR * LANES]; /* [column][row], of columns that have begun */
    const __mmask16 rows = (1u << MR) - 1;
    uint32_t columns = 0; /* that have */
    const oct_remainder *end = right->entries + right->count;
    for (const oct_remainder *at = right->entries; at < end; at++) {
        const size_t k = at->k, row = at->row;
        const __m512i pairs = _mm512_maskz_loadu_epi32(rows, a + k / 2 * 2 * MR);
        const __m512 x = mantissas_of(pairs, pair_element(k));
        const __m512 unit = _mm512_maskz_loadu_ps(rows, a_unit + k / OCT_GEMM_GROUP * MR);
        const __m512 y = _mm512_mul_ps(_mm512_set1_ps(at->value), unit);
        const __m512 sum = _mm512_load_ps(column_of(d, columns, row));
        columns |= UINT32_C(1) << row;
        _mm512_store_ps(d + row * LANES, _mm512_fmadd_ps(x, y, sum));
    }
    if (left)
        oct_cross_remainders(right, left, d, add_product);
    for (int64_t j = 0; j < NR; j += LANES) {
        if (!(columns >> j & 0xffff))
            continue; /* c + 0: no c is -0 */
        __m512i r[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            r[i] = _mm512_load_si512(column_of(d, columns, (size_t)(j + i)));
        oct_transpose_16x16(r);
#pragma GCC unroll 14
        for (int i = 0; i < MR; i++) {
            float *row = c + i * NR + j;
            _mm512_storeu_ps(row, _mm512_add_ps(_mm512_loadu_ps(row), _mm512_castsi512_ps(r[i])));
        }
    }
}

void oct_block_integer_kernels_avx512(oct_gemm_kernels *kernels)
{
    kernels->gather_pairs = gather_pairs;
    kernels->bounds_mxfp8 = bounds_mxfp8;
    kernels->bounds_hif8 = bounds_hif8;
    kernels->units_mxfp8 = units_mxfp8;
    kernels->units_hif8 = units_hif8;
    kernels->mantissas = mantissas;
    kernels->lost_elements = oct_lost_elements;
    kernels->integer_tile = integer_tile;
    kernels->left_remainders = left_remainders;
    kernels->right_remainders = right_remainders;
}

#endif
