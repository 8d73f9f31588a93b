/* Block-integer product for AVX2: vpmaddwd multiplies pairs of int16 into int32.
 *
 * The dots need no saturating instruction: |m| <= 30720 (block-integer.md 3.3), so a pair of
 * products is at most 2 * 30720^2 < 2^31, exact in vpmaddwd, and vpaddd adds modulo 2^32, which is
 * all that the sums on the way to an int32 dot need. vpmaddubsw appears in the norm of MXFP8 only,
 * where its int16 sums cannot saturate. */
#include "kernels/gemm_blocks.h"

#if defined(__x86_64__)

#include <string.h>

#include "kernels/lanes_avx2.h"
#include "kernels/packing_ahead.h"
#include "kernels/remainders_fma.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    MR = OCT_GEMM_MR,
    NR = OCT_GEMM_NR,
    LANES = OCT_GEMM_LANES,
    WIDE = 8,
    HALF = 4 * WIDE, /* bytes of a line of quads of 8 rows */
    PAIRS = OCT_GEMM_GROUP / 2,
    QUADS = OCT_GEMM_GROUP / 4
};

/* k contiguous: quads of codes are transposed as 32-bit lanes. */
static void gather_contiguous(const oct_quantized_matrix *q, int64_t row, int64_t rows, int64_t k,
                              int64_t stride, uint8_t *quads)
{
    _Alignas(32) uint8_t copies[LANES][OCT_GEMM_GROUP];
    static const uint8_t zeros[OCT_GEMM_GROUP];
    const uint8_t *from[LANES];
    const int64_t along = q->k - k;
    for (int64_t i = 0; i < LANES; i++) {
        from[i] = i < rows ? q->codes + (row + i) * q->ld + k : zeros;
        if (i < rows && along < OCT_GEMM_GROUP) {
            memset(copies[i], 0, sizeof copies[i]);
            memcpy(copies[i], from[i], (size_t)along);
            from[i] = copies[i];
        }
        if (i < rows && k + OCT_AHEAD_CODES < q->k)
            oct_prefetch(from[i] + OCT_AHEAD_CODES);
    }
    for (int64_t part = 0; part < OCT_GEMM_GROUP; part += 32)
        for (int64_t half = 0; half < LANES; half += WIDE) {
            __m256i r[WIDE];
#pragma GCC unroll 8
            for (int64_t i = 0; i < WIDE; i++)
                r[i] = _mm256_loadu_si256((const void *)(from[half + i] + part));
            oct_transpose_8x8(r);
#pragma GCC unroll 8
            for (int64_t i = 0; i < WIDE; i++)
                _mm256_storeu_si256((void *)(quads + (part / 4 + i) * stride + 4 * half), r[i]);
        }
}

/* Rows contiguous: four neighbouring k are interleaved. */
INLINE void gather_strided(const oct_quantized_matrix *q, int64_t row, int64_t rows, int64_t k,
                           int64_t stride, uint8_t *quads)
{
    for (int64_t f = 0; f < QUADS; f++, quads += stride) {
        __m128i four[4];
#pragma GCC unroll 4
        for (int64_t j = 0; j < 4; j++) {
            const int64_t at = k + 4 * f + j;
            four[j] = at < q->k ? oct_load_first_bytes(q->codes + at * q->ld + row, rows)
                                : _mm_setzero_si128();
            if (at + OCT_GEMM_GROUP < q->k)
                oct_prefetch(q->codes + (at + OCT_GEMM_GROUP) * q->ld + row);
        }
        const __m128i low[2] = {_mm_unpacklo_epi8(four[0], four[1]),
                                _mm_unpackhi_epi8(four[0], four[1])};
        const __m128i high[2] = {_mm_unpacklo_epi8(four[2], four[3]),
                                 _mm_unpackhi_epi8(four[2], four[3])};
        /* One store for what is loaded at once: a load would wait for two to reach the cache. */
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
            _mm256_storeu_si256((void *)(quads + half * HALF),
                                _mm256_set_m128i(_mm_unpackhi_epi16(low[half], high[half]),
                                                 _mm_unpacklo_epi16(low[half], high[half])));
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
        else if (rows == LANES)
            gather_strided(q, row + lane, LANES, k, lanes * 4, quads + lane * 4);
        else
            gather_strided(q, row + lane, rows, k, lanes * 4, quads + lane * 4);
    }
}

INLINE __m256i load_line(const uint8_t *line)
{
    return _mm256_loadu_si256((const void *)line);
}

/* A table over the 128 magnitudes, looked up in pieces of 16 that the upper bits choose among. */
INLINE __m256i look_up(const void *table, __m256i magnitudes)
{
    const uint8_t *pieces = table;
    __m256i found[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        found[i] = _mm256_shuffle_epi8(
            _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(pieces + 16 * i))),
            magnitudes);
    /* The choice is by bit 7 of each byte; what the shifts carry into lower bits does not count. */
    const __m256i bit4 = _mm256_slli_epi16(magnitudes, 3);
    const __m256i bit5 = _mm256_slli_epi16(magnitudes, 2);
    const __m256i bit6 = _mm256_slli_epi16(magnitudes, 1);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        found[i] = _mm256_blendv_epi8(found[2 * i], found[2 * i + 1], bit4);
    return _mm256_blendv_epi8(_mm256_blendv_epi8(found[0], found[1], bit5),
                              _mm256_blendv_epi8(found[2], found[3], bit5), bit6);
}

/* sum + both 16-bit terms of each row, which are below 2^15. */
INLINE __m256i add_terms(__m256i sum, __m256i terms)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(terms, _mm256_set1_epi16(1)));
}

static void bounds_mxfp8(const oct_code_table *table, const uint8_t *quads, int64_t stride,
                         oct_group_bounds *bounds)
{
    const __m256i nan = _mm256_set1_epi8(0x7f);
    __m256i bad = _mm256_setzero_si256();
    for (int part = 0; part < 4; part++) { /* 8 rows of a block */
        const int block = part / 2, half = part % 2;
        const uint8_t *line = quads + block * (QUADS / 2) * stride + half * HALF;
        __m256i norm = _mm256_setzero_si256();
        for (int f = 0; f < QUADS / 2; f++, line += stride) {
            const __m256i codes = _mm256_and_si256(load_line(line), nan);
            bad = _mm256_or_si256(bad, _mm256_cmpeq_epi8(codes, nan));
            const __m256i n = look_up(table->bound, codes);
            /* n <= 112: two squares are at most 25088. */
            norm = add_terms(norm, _mm256_maddubs_epi16(n, n));
        }
        _mm256_storeu_si256((void *)(bounds->norm[block] + half * WIDE), norm);
    }
    bounds->nonfinite = _mm256_movemask_epi8(bad) != 0;
}

enum { TOP_BIAS = 64 };

/* Exponent of the top bit + TOP_BIAS for every magnitude, 0 for those without a finite value. */
static void make_tops(const oct_code_table *table, uint8_t tops[128])
{
    for (int i = 0; i < 128; i += 32) {
        const __m256i mantissa = _mm256_loadu_si256((const void *)(table->mantissa + i));
        const __m256i exponent = _mm256_loadu_si256((const void *)(table->exponent + i));
        const __m256i top = _mm256_add_epi8(exponent, _mm256_set1_epi8(3 + TOP_BIAS));
        const __m256i none = _mm256_cmpeq_epi8(mantissa, _mm256_setzero_si256());
        _mm256_storeu_si256((void *)(tops + i), _mm256_andnot_si256(none, top));
    }
}

/* ceil(q * 8 / 2^right)^2 of 16-bit lanes, given factor = 2^(7 - right); at most 120^2. */
INLINE __m256i ceil_squared(__m256i q, __m256i factor)
{
    const __m256i x = _mm256_mullo_epi16(q, factor);
    const __m256i n = _mm256_srli_epi16(_mm256_add_epi16(x, _mm256_set1_epi16(15)), 4);
    return _mm256_mullo_epi16(n, n);
}

/* Of 8 rows; true if a code is NaN or Inf. */
static bool half_bounds_hif8(const oct_code_table *table, const uint8_t tops[128],
                             const uint8_t *quads, int64_t stride, int32_t top[WIDE],
                             uint32_t norm[WIDE])
{
    _Alignas(32) uint8_t element_tops[QUADS][HALF];
    const __m256i seven_bits = _mm256_set1_epi8(0x7f);
    const __m256i inf = _mm256_set1_epi8(0x6f), nan = _mm256_set1_epi8((char)0x80);
    __m256i lines = _mm256_setzero_si256(), bad = _mm256_setzero_si256();
    for (int f = 0; f < QUADS; f++) {
        const __m256i codes = load_line(quads + f * stride);
        const __m256i magnitudes = _mm256_and_si256(codes, seven_bits);
        bad = _mm256_or_si256(bad, _mm256_or_si256(_mm256_cmpeq_epi8(magnitudes, inf),
                                                   _mm256_cmpeq_epi8(codes, nan)));
        const __m256i element_top = look_up(tops, magnitudes);
        _mm256_store_si256((void *)element_tops[f], element_top);
        lines = _mm256_max_epu8(lines, element_top);
    }

    /* Over the four bytes of a row, then in all of them. */
    lines = _mm256_max_epu8(lines, _mm256_srli_epi32(lines, 16));
    lines = _mm256_max_epu8(lines, _mm256_srli_epi32(lines, 8));
    const __m256i row_top = _mm256_and_si256(lines, _mm256_set1_epi32(0xff));
    const __m256i quad_top = _mm256_mullo_epi32(row_top, _mm256_set1_epi32(0x01010101));
    const __m256i empty = _mm256_cmpeq_epi32(row_top, _mm256_setzero_si256());
    _mm256_storeu_si256((void *)top,
                        _mm256_blendv_epi8(_mm256_sub_epi32(row_top, _mm256_set1_epi32(TOP_BIAS)),
                                           _mm256_set1_epi32(-128), empty));

    /* right = min(below, 7): q * 8 < 2^7, so further steps change nothing. */
    const __m256i seven = _mm256_set1_epi8(7), low_bytes = _mm256_set1_epi16(0xff);
    const __m256i factors = _mm256_broadcastsi128_si256(
        _mm_setr_epi8((char)128, 64, 32, 16, 8, 4, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0));
    __m256i sum = _mm256_setzero_si256();
    for (int f = 0; f < QUADS; f++) {
        const __m256i magnitudes = _mm256_and_si256(load_line(quads + f * stride), seven_bits);
        const __m256i q = look_up(table->mantissa, magnitudes);
        const __m256i below = _mm256_sub_epi8(quad_top, load_line(element_tops[f]));
        const __m256i factor = _mm256_shuffle_epi8(factors, _mm256_min_epu8(below, seven));
        const __m256i even =
            ceil_squared(_mm256_and_si256(q, low_bytes), _mm256_and_si256(factor, low_bytes));
        const __m256i odd = ceil_squared(_mm256_srli_epi16(q, 8), _mm256_srli_epi16(factor, 8));
        sum = add_terms(sum, _mm256_add_epi16(even, odd)); /* at most 2 * 120^2 */
    }
    _mm256_storeu_si256((void *)norm, sum);
    return _mm256_movemask_epi8(bad) != 0;
}

static void bounds_hif8(const oct_code_table *table, const uint8_t *quads, int64_t stride,
                        oct_group_bounds *bounds)
{
    _Alignas(32) uint8_t tops[128];
    make_tops(table, tops);
    bounds->nonfinite = false;
    for (int half = 0; half < 2; half++)
        bounds->nonfinite |=
            half_bounds_hif8(table, tops, quads + half * HALF, stride, bounds->top + half * WIDE,
                             bounds->norm[0] + half * WIDE);
    memset(bounds->norm[1], 0, sizeof bounds->norm[1]);
}

/* Quarters of 64 bits 0, 2, 1, 3: unpacking within 128 bits then gives rows 0..7 and 8..15, and
 * what packing leaves comes back in order. */
INLINE __m256i swap_middle(__m256i x)
{
    return _mm256_permute4x64_epi64(x, 0xd8);
}

/* 4 + shift of one block for both bytes of the pair of each row, at least -128 and as such as good
 * as anything lower; rows as swap_middle() leaves them. */
static __m256i pair_shifts(const int16_t shift[LANES])
{
    const __m256i four_more =
        _mm256_add_epi16(_mm256_loadu_si256((const void *)shift), _mm256_set1_epi16(4));
    const __m256i least = _mm256_max_epi16(four_more, _mm256_set1_epi16(-128));
    const __m256i low = _mm256_and_si256(least, _mm256_set1_epi16(0xff));
    return swap_middle(_mm256_or_si256(low, _mm256_slli_epi16(least, 8)));
}

/* The first or second pair of codes of 16 rows; rows as swap_middle() leaves them. */
INLINE __m256i pair_codes(const uint8_t *quads, int which)
{
    __m256i halves[2] = {load_line(quads), load_line(quads + HALF)};
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        halves[i] = which ? _mm256_srli_epi32(halves[i], 16)
                          : _mm256_and_si256(halves[i], _mm256_set1_epi32(0xffff));
    return _mm256_packus_epi32(halves[0], halves[1]);
}

/* A mantissa of 8 rows: (q * 2^12) * 2^(left + 4) / 2^16; what the low half of the product keeps
 * is lost. The low byte of x, the high byte of the power are in separate vectors of bytes. */
INLINE __m256i mantissa_words(__m256i x, __m256i power, __m256i codes, __m256i *kept)
{
    *kept = _mm256_cmpeq_epi16(_mm256_mullo_epi16(x, power), _mm256_setzero_si256());
    const __m256i m = _mm256_and_si256(_mm256_mulhi_epu16(x, power), *kept);
    return _mm256_sign_epi16(m, _mm256_or_si256(codes, _mm256_set1_epi16(1)));
}

static void mantissas(const oct_code_table *table, const uint8_t *quads, int64_t stride,
                      const int16_t shift[2][OCT_GEMM_LANES], int64_t lanes, int16_t *out,
                      int64_t out_stride, uint32_t lost[OCT_GEMM_GROUP / 2])
{
    /* Powers 0..15 of two, low and high bytes; an index below 0 becomes 0, where nothing is left
     * of q and all of it is lost. */
    const __m256i low_powers = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, (char)128, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m256i high_powers = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, (char)128));
    const __m256i zero = _mm256_setzero_si256();
    const __m256i shifts[2] = {pair_shifts(shift[0]), pair_shifts(shift[1])};
    for (int p = 0; p < PAIRS; p++) {
        oct_prefetch(out + (PAIRS + p) * out_stride);
        const __m256i codes = pair_codes(quads + p / 2 * stride, p % 2);
        const __m256i magnitudes = _mm256_and_si256(codes, _mm256_set1_epi8(0x7f));
        const __m256i q = look_up(table->mantissa, magnitudes);
        const __m256i left =
            _mm256_adds_epi8(look_up(table->exponent, magnitudes), shifts[p / (PAIRS / 2)]);
        const __m256i index = _mm256_max_epi8(left, zero);
        const __m256i low = _mm256_shuffle_epi8(low_powers, index);
        const __m256i high = _mm256_shuffle_epi8(high_powers, index);
        const __m256i x = _mm256_slli_epi16(q, 4); /* q < 16: no byte spills into the next */
        __m256i kept[2];
        const __m256i first =
            mantissa_words(_mm256_unpacklo_epi8(zero, x), _mm256_unpacklo_epi8(low, high),
                           _mm256_unpacklo_epi8(codes, codes), &kept[0]);
        const __m256i second =
            mantissa_words(_mm256_unpackhi_epi8(zero, x), _mm256_unpackhi_epi8(low, high),
                           _mm256_unpackhi_epi8(codes, codes), &kept[1]);
        _mm256_storeu_si256((void *)(out + p * out_stride), first);
        oct_store_first_lanes(out + p * out_stride + 16, second, lanes - 8);
        const __m256i bytes = swap_middle(_mm256_packs_epi16(kept[0], kept[1]));
        lost[p] = ~(uint32_t)_mm256_movemask_epi8(bytes);
    }
}

INLINE __m256i broadcast_pair(const int16_t *pair)
{
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return _mm256_set1_epi32(both);
}

/* sum + the dots of pairs, modulo 2^32. In one piece: from intrinsics GCC 12 makes a register copy
 * of every sum and spills. */
INLINE __m256i add_dots(__m256i sum, __m256i x, __m256i y)
{
    __m256i dots;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(dots) : "x"(x), "x"(y));
    return sum;
}

/* One group of `rows` (at most 5) x 16 of a tile: 10 sums, 2 vectors of b, one of a and one of dots
 * in 16 registers. */
INLINE void integer_part(int rows, const int16_t *a, const int16_t *b, const float *a_unit,
                         const float *b_unit, float *c)
{
    __m256i sum[5][2];
#pragma GCC unroll 5
    for (int i = 0; i < rows; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int p = 0; p < PAIRS; p++) {
        const __m256i b0 = _mm256_loadu_si256((const void *)b);
        const __m256i b1 = _mm256_loadu_si256((const void *)(b + 16));
#pragma GCC unroll 5
        for (int i = 0; i < rows; i++) {
            const __m256i x = broadcast_pair(a + 2 * i);
            sum[i][0] = add_dots(sum[i][0], x, b0);
            sum[i][1] = add_dots(sum[i][1], x, b1);
        }
        a += 2 * MR;
        b += 2 * NR;
    }
    const __m256 u0 = _mm256_loadu_ps(b_unit), u1 = _mm256_loadu_ps(b_unit + 8);
#pragma GCC unroll 5
    for (int i = 0; i < rows; i++) {
        const __m256 u = _mm256_broadcast_ss(a_unit + i);
        float *row = c + i * NR;
        const __m256 x0 = _mm256_cvtepi32_ps(sum[i][0]), x1 = _mm256_cvtepi32_ps(sum[i][1]);
        _mm256_storeu_ps(row, _mm256_fmadd_ps(x0, _mm256_mul_ps(u, u0), _mm256_loadu_ps(row)));
        _mm256_storeu_ps(row + 8,
                         _mm256_fmadd_ps(x1, _mm256_mul_ps(u, u1), _mm256_loadu_ps(row + 8)));
    }
}

/* Functions of their own: inlined into a loop, GCC 12 keeps a second copy of the sums on the stack.
 */
static __attribute__((noinline)) void
integer_5x16(const int16_t *a, const int16_t *b, const float *a_unit, const float *b_unit, float *c)
{
    integer_part(5, a, b, a_unit, b_unit, c);
}

static __attribute__((noinline)) void
integer_4x16(const int16_t *a, const int16_t *b, const float *a_unit, const float *b_unit, float *c)
{
    integer_part(4, a, b, a_unit, b_unit, c);
}

static void integer_tile(int64_t groups, const int16_t *a, const int16_t *b, const float *a_unit,
                         const float *b_unit, float *c)
{
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t j = 0; j < NR; j += 16) {
            integer_5x16(a, b + 2 * j, a_unit, b_unit + j, c + j);
            integer_5x16(a + 10, b + 2 * j, a_unit + 5, b_unit + j, c + 5 * NR + j);
            integer_4x16(a + 20, b + 2 * j, a_unit + 10, b_unit + j, c + 10 * NR + j);
        }
        a += PAIRS * 2 * MR;
        b += PAIRS * 2 * NR;
        a_unit += MR;
        b_unit += NR;
    }
}

/* The mantissas of element k of 8 rows whose pairs are given. */
INLINE __m256 odd_or_even(__m256i pairs, int64_t k)
{
    const __m128i left = _mm_cvtsi32_si128(k % 2 ? 0 : 16);
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_sll_epi32(pairs, left), 16));
}

static void left_remainders(const oct_remainder_list *left, const int16_t *b, const float *b_unit,
                            float *c)
{
    for (int64_t e = 0; e < left->count; e++) {
        const oct_remainder *entry = left->entries + e;
        const int16_t *m = b + entry->k / 2 * 2 * NR;
        const float *unit = b_unit + entry->k / OCT_GEMM_GROUP * NR;
        const __m256 value = _mm256_set1_ps(entry->value);
        float *row = c + entry->row * NR;
#pragma GCC unroll 4
        for (int64_t j = 0; j < NR; j += WIDE) {
            const __m256 x = odd_or_even(_mm256_loadu_si256((const void *)(m + 2 * j)), entry->k);
            const __m256 y = _mm256_mul_ps(value, _mm256_loadu_ps(unit + j));
            _mm256_storeu_ps(row + j, _mm256_fmadd_ps(x, y, _mm256_loadu_ps(row + j)));
        }
    }
}

INLINE void add_product(float *column, int row, float x, float y)
{
    float *half = column + row / WIDE * WIDE;
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i own = _mm256_cmpeq_epi32(lanes, _mm256_set1_epi32(row % WIDE));
    const __m256 only = _mm256_and_ps(_mm256_castsi256_ps(own), _mm256_set1_ps(x));
    _mm256_store_ps(half, _mm256_fmadd_ps(only, _mm256_set1_ps(y), _mm256_load_ps(half)));
}

static void tile_remainders(const oct_remainder_list *right, const oct_remainder_list *left,
                            const int16_t *a, const float *a_unit, float *c)
{
    _Alignas(32) float d[NR * LANES] = {0}; /* [column][row] */
    const __m256i rows[2] = {oct_first_lanes(WIDE), oct_first_lanes(MR - WIDE)};
    for (int64_t e = 0; e < right->count; e++) {
        const oct_remainder *entry = right->entries + e;
        const int16_t *m = a + entry->k / 2 * 2 * MR;
        const float *unit = a_unit + entry->k / OCT_GEMM_GROUP * MR;
        const __m256 value = _mm256_set1_ps(entry->value);
        float *column = d + entry->row * LANES;
#pragma GCC unroll 2
        for (int64_t i = 0; i < 2; i++) {
            const __m256i both =
                _mm256_maskload_epi32((const int *)(const void *)m + 8 * i, rows[i]);
            const __m256 y = _mm256_mul_ps(value, _mm256_maskload_ps(unit + 8 * i, rows[i]));
            float *target = column + 8 * i;
            _mm256_store_ps(
                target, _mm256_fmadd_ps(odd_or_even(both, entry->k), y, _mm256_load_ps(target)));
        }
    }
    if (left->count > 0)
        oct_cross_remainders(right, left, d, add_product);
    for (int64_t j = 0; j < NR; j += WIDE)
        for (int64_t half = 0; half < LANES; half += WIDE) {
            __m256i r[WIDE];
#pragma GCC unroll 8
            for (int64_t i = 0; i < WIDE; i++)
                r[i] = _mm256_load_si256((const void *)(d + (j + i) * LANES + half));
            oct_transpose_8x8(r);
#pragma GCC unroll 8
            for (int64_t i = 0; i < WIDE; i++) {
                if (half + i >= MR)
                    break;
                float *row = c + (half + i) * NR + j;
                _mm256_storeu_ps(row,
                                 _mm256_add_ps(_mm256_loadu_ps(row), _mm256_castsi256_ps(r[i])));
            }
        }
}

static void right_remainders(const oct_remainder_list *right, const oct_tile_column *column)
{
    for (int64_t t = 0; t < column->tiles; t++)
        tile_remainders(right, &column->left[t], column->a + t * column->a_stride,
                        column->a_unit + t * column->unit_stride, column->c + t * OCT_GEMM_TILE);
}

void oct_block_integer_kernels_avx2(oct_gemm_kernels *kernels)
{
    kernels->gather_quads = gather_quads;
    kernels->bounds_mxfp8 = bounds_mxfp8;
    kernels->bounds_hif8 = bounds_hif8;
    kernels->mantissas = mantissas;
    kernels->lost_elements = oct_lost_elements;
    kernels->integer_tile = integer_tile;
    kernels->left_remainders = left_remainders;
    kernels->right_remainders = right_remainders;
}

#endif
