/* Block-integer product for AVX-512 VNNI: vpdpwssd multiplies pairs of int16 into int32. */
#include "kernels/gemm_blocks.h"

#if defined(__x86_64__)

#include <string.h>

#include "kernels/gemm_avx512.h"
#include "kernels/packing_ahead.h"
#include "kernels/remainders_fma.h"

enum {
    MR = OCT_GEMM_MR,
    NR = OCT_GEMM_NR,
    LANES = OCT_GEMM_LANES,
    PAIRS = OCT_GEMM_GROUP / 2,
    QUADS = OCT_GEMM_GROUP / 4
};

static __mmask64 first_bytes(int64_t count)
{
    return count >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << count) - 1;
}

/* k contiguous: quads of codes are transposed as 32-bit lanes. */
static void gather_contiguous(const oct_quantized_matrix *q, int64_t row, int64_t rows, int64_t k,
                              int64_t stride, uint8_t *quads)
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
    for (int64_t i = 0; i < LANES; i++)
        _mm512_storeu_si512(quads + i * stride, r[i]);
}

/* Rows contiguous: four neighbouring k are interleaved. */
static void gather_strided(const oct_quantized_matrix *q, int64_t row, int64_t rows, int64_t k,
                           int64_t stride, uint8_t *quads)
{
    /* Byte 4r + j of a line is byte r of k + j. */
    const __m512i bytes = _mm512_add_epi32(
        _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                           _mm512_set1_epi32(0x01010101)),
        _mm512_set1_epi32(0x30201000));
    const __mmask16 lanes = (__mmask16)first_bytes(rows);
    const uint8_t *from = q->codes + k * q->ld + row;
    for (int64_t f = 0; f < QUADS; f++, quads += stride) {
        __m128i four[4];
#pragma GCC unroll 4
        for (int64_t j = 0; j < 4; j++, from += q->ld) {
            const int64_t at = k + 4 * f + j;
            four[j] = at < q->k ? _mm_maskz_loadu_epi8(lanes, from) : _mm_setzero_si128();
            if (at + OCT_GEMM_GROUP < q->k)
                oct_prefetch(from + OCT_GEMM_GROUP * q->ld);
        }
        const __m256i low = _mm256_set_m128i(four[1], four[0]);
        const __m256i high = _mm256_set_m128i(four[3], four[2]);
        const __m512i line = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
        /* One store: a load of the line would wait for several to reach the cache. */
        _mm512_storeu_si512(quads, _mm512_permutexvar_epi8(bytes, line));
    }
}

static void gather_quads(const oct_quantized_matrix *q, int64_t row, int64_t width, int64_t lanes,
                         int64_t k, uint8_t *quads)
{
    for (int64_t lane = 0; lane < lanes; lane += LANES) {
        const int64_t inside = width < q->rows - row ? width - lane : q->rows - row - lane;
        const int64_t rows = inside < 0 ? 0 : inside < LANES ? inside : LANES;
        if (q->k_contiguous)
            gather_contiguous(q, row + lane, rows, k, lanes * 4, quads + lane * 4);
        else
            gather_strided(q, row + lane, rows, k, lanes * 4, quads + lane * 4);
    }
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

static void bounds_mxfp8(const oct_code_table *table, const uint8_t *quads, int64_t stride,
                         oct_group_bounds *bounds)
{
    const magnitude_table bound = load_table(table->bound);
    const __m512i nan = _mm512_set1_epi8(0x7f);
    __mmask64 bad = 0;
    for (int block = 0; block < 2; block++) {
        __m512i norm = _mm512_setzero_si512();
        for (int f = 0; f < QUADS / 2; f++, quads += stride) {
            const __m512i codes = _mm512_loadu_si512(quads);
            bad |= _mm512_cmpeq_epi8_mask(_mm512_and_si512(codes, nan), nan);
            const __m512i n = look_up(bound, codes); /* <= 112, so signed as well as unsigned */
            norm = _mm512_dpbusd_epi32(norm, n, n);
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

/* ceil(8 q / 2^right) for 8 <= q <= 15, at 16 (q - 8) + right. */
#define CEILING(q, right) (uint8_t)((8 * (q) + (1 << (right)) - 1) >> (right))
#define CEILINGS(q)                                                                                \
    CEILING(q, 0), CEILING(q, 1), CEILING(q, 2), CEILING(q, 3), CEILING(q, 4), CEILING(q, 5),      \
        CEILING(q, 6), CEILING(q, 7), CEILING(q, 8), CEILING(q, 9), CEILING(q, 10),                \
        CEILING(q, 11), CEILING(q, 12), CEILING(q, 13), CEILING(q, 14), CEILING(q, 15)
static const uint8_t ceilings[128] = {CEILINGS(8),  CEILINGS(9),  CEILINGS(10), CEILINGS(11),
                                      CEILINGS(12), CEILINGS(13), CEILINGS(14), CEILINGS(15)};

/* The first byte of every 32-bit lane, four times. */
static __m512i first_of_four(__m512i x)
{
    const __m128i bytes = _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(bytes));
}

static void bounds_hif8(const oct_code_table *table, const uint8_t *quads, int64_t stride,
                        oct_group_bounds *bounds)
{
    const magnitude_table tops = load_tops(table);
    const magnitude_table mantissa = load_table(table->mantissa), ceiling = load_table(ceilings);
    const __m512i seven_bits = _mm512_set1_epi8(0x7f);
    const __m512i inf = _mm512_set1_epi8(0x6f), nan = _mm512_set1_epi8((char)0x80);
    __m512i top = _mm512_setzero_si512();
    __mmask64 bad = 0;
    for (int f = 0; f < QUADS; f++) {
        const __m512i codes = _mm512_loadu_si512(quads + f * stride);
        bad |= _mm512_cmpeq_epi8_mask(_mm512_and_si512(codes, seven_bits), inf);
        bad |= _mm512_cmpeq_epi8_mask(codes, nan);
        top = _mm512_max_epu8(top, look_up(tops, codes));
    }
    bounds->nonfinite = bad != 0;

    /* Over the four bytes of a row. */
    top = _mm512_max_epu8(top, _mm512_srli_epi32(top, 16));
    top = _mm512_max_epu8(top, _mm512_srli_epi32(top, 8));
    const __m512i row_top = _mm512_and_si512(top, _mm512_set1_epi32(0xff));
    const __mmask16 empty = _mm512_testn_epi32_mask(row_top, row_top);
    _mm512_storeu_si512(
        bounds->top, _mm512_mask_mov_epi32(_mm512_sub_epi32(row_top, _mm512_set1_epi32(TOP_BIAS)),
                                           empty, _mm512_set1_epi32(-128)));

    const __m512i quad_top = first_of_four(row_top), most = _mm512_set1_epi8(15);
    __m512i norm = _mm512_setzero_si512();
    for (int f = 0; f < QUADS; f++) {
        const __m512i codes = _mm512_loadu_si512(quads + f * stride);
        const __m512i q = look_up(mantissa, codes), t = look_up(tops, codes);
        const __m512i right = _mm512_min_epu8(_mm512_sub_epi8(quad_top, t), most);
        /* 16 q, of which the lookup sees 16 (q - 8); q < 16: no byte spills into the next. */
        const __m512i index = _mm512_or_si512(_mm512_slli_epi16(q, 4), right);
        const __m512i n = _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(q, q),
                                                look_up(ceiling, index)); /* <= 120 */
        norm = _mm512_dpbusd_epi32(norm, n, n);
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

/* 11 - shift of one block for all four bytes of each row, at most 127 and as such as good as
 * anything above. */
static __m512i eleven_less_shifts(const int16_t shift[LANES])
{
    const __m512i s = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const void *)shift));
    const __m512i right = _mm512_sub_epi32(_mm512_set1_epi32(11), s);
    return first_of_four(_mm512_min_epi32(right, _mm512_set1_epi32(127)));
}

static void mantissas(const oct_code_table *table, const uint8_t *quads, int64_t stride,
                      const int16_t shift[2][OCT_GEMM_LANES], int64_t lanes, int16_t *out,
                      int64_t out_stride, uint32_t lost[OCT_GEMM_GROUP / 2])
{
    /* 8 q, at most 120: no byte spills into the next. */
    magnitude_table eightfold = load_table(table->mantissa);
    eightfold.low = _mm512_slli_epi16(eightfold.low, 3);
    eightfold.high = _mm512_slli_epi16(eightfold.high, 3);
    const magnitude_table exponent = load_table(table->exponent);
    const __mmask16 rows = (__mmask16)((1u << lanes) - 1);
    const __m512i zero = _mm512_setzero_si512();
    const __m512i eleven_less_shift[2] = {eleven_less_shifts(shift[0]),
                                          eleven_less_shifts(shift[1])};
    /* Two bytes of each lane as 16-bit words: in the upper halves, and in the lower ones. */
    const __m512i up[2] = {_mm512_broadcast_i32x4(_mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8,
                                                                -1, 9, -1, 12, -1, 13)),
                           _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 2, -1, 3, -1, 6, -1, 7, -1, 10,
                                                                -1, 11, -1, 14, -1, 15))};
    const __m512i down[2] = {_mm512_broadcast_i32x4(_mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1,
                                                                  9, -1, 12, -1, 13, -1)),
                             _mm512_broadcast_i32x4(_mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10,
                                                                  -1, 11, -1, 14, -1, 15, -1))};
    for (int f = 0; f < QUADS; f++) {
        const __m512i codes = _mm512_loadu_si512(quads + f * stride);
        const __m512i magnitude = look_up(eightfold, codes);
        const __m512i q =
            _mm512_mask_sub_epi8(magnitude, _mm512_movepi8_mask(codes), zero, magnitude);
        /* 11 - exponent - shift, >= 0 where q is not 0. */
        const __m512i right =
            _mm512_subs_epi8(eleven_less_shift[f / (QUADS / 2)], look_up(exponent, codes));
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            const int p = 2 * f + j;
            oct_prefetch(out + (PAIRS + p) * out_stride);
            const __m512i x = _mm512_shuffle_epi8(q, up[j]); /* q * 2^11 */
            const __m512i by = _mm512_shuffle_epi8(right, down[j]);
            const __m512i m = _mm512_srav_epi16(x, by);
            const __mmask32 gone = _mm512_cmpneq_epi16_mask(_mm512_sllv_epi16(m, by), x);
            _mm512_mask_storeu_epi32(out + p * out_stride, rows,
                                     _mm512_mask_mov_epi16(m, gone, zero));
            lost[p] = gone;
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

/* All lanes of a column of d, or none if it has not begun. */
static inline __mmask16 begun(uint32_t columns, size_t j)
{
    return columns >> j & 1 ? 0xffff : 0;
}

static inline void add_product(float *column, int row, float x, float y)
{
    const __m512 only = _mm512_maskz_mov_ps((__mmask16)(1u << row), _mm512_set1_ps(x));
    _mm512_store_ps(column, _mm512_fmadd_ps(only, _mm512_set1_ps(y), _mm512_load_ps(column)));
}

/* c[row][column] += d[column][row]. */
static void add_transposed(const float *d, uint32_t columns, float *c)
{
    for (int64_t j = 0; j < NR; j += LANES) {
        if (!(columns >> j & 0xffff))
            continue; /* c + 0: no c is -0 */
        __m512i r[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            r[i] = _mm512_maskz_load_epi32(begun(columns, (size_t)(j + i)), d + (j + i) * LANES);
        oct_transpose_16x16(r);
#pragma GCC unroll 14
        for (int i = 0; i < MR; i++) {
            float *row = c + i * NR + j;
            _mm512_storeu_ps(row, _mm512_add_ps(_mm512_loadu_ps(row), _mm512_castsi512_ps(r[i])));
        }
    }
}

static void right_remainders(const oct_remainder_list *right, const oct_tile_column *column)
{
    _Alignas(
        64) float d[OCT_GEMM_STRIP][NR * LANES]; /* [column][row], of columns that have begun */
    const __mmask16 rows = (1u << MR) - 1;
    uint32_t columns = 0; /* that have */
    const oct_remainder *end = right->entries + right->count;
    for (const oct_remainder *at = right->entries; at < end; at++) {
        const size_t k = at->k, row = at->row;
        const int16_t *a = column->a + k / 2 * 2 * MR;
        const float *unit = column->a_unit + k / OCT_GEMM_GROUP * MR;
        const __m512 value = _mm512_set1_ps(at->value);
        const __m512i which = pair_element(k);
        const __mmask16 before = begun(columns, row);
        columns |= UINT32_C(1) << row;
        for (int64_t t = 0; t < column->tiles; t++) {
            float *sum = d[t] + row * LANES;
            const __m512 x = mantissas_of(_mm512_maskz_loadu_epi32(rows, a), which);
            const __m512 y = _mm512_mul_ps(value, _mm512_maskz_loadu_ps(rows, unit));
            _mm512_store_ps(sum, _mm512_fmadd_ps(x, y, _mm512_maskz_load_ps(before, sum)));
            a += column->a_stride;
            unit += column->unit_stride;
        }
    }
    for (int64_t t = 0; t < column->tiles; t++) {
        if (column->left[t].count > 0)
            oct_cross_remainders(right, &column->left[t], d[t], add_product);
        add_transposed(d[t], columns, column->c + t * MR * NR);
    }
}

void oct_block_integer_kernels_avx512(oct_gemm_kernels *kernels)
{
    kernels->gather_quads = gather_quads;
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
