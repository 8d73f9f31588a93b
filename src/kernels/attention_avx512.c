/* The inner loops of attention in AVX-512: 16 columns per vector, every column computed by the same
 * operations in the same order as kernels/attention_ref.c. */
#include "kernels/attention.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>

#include "base/size.h"
#include "kernels/fmath_avx512.h"

enum { TILE = OCT_ATTENTION_TILE, LANES = OCT_ATTENTION_LANES };

/* Micro-tile of the products: 6 rows x 4 vectors are 24 accumulators, which leaves registers for
 * the 4 vectors of b and one broadcast, and takes 10 loads for 24 FMAs. */
enum { TILE_ROWS = 6, TILE_VECTORS = 4 };

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* Lanes that are at or above `lane` (which may lie outside 0..15). */
static inline __mmask16 lanes_from(int64_t lane)
{
    const unsigned mask = lane <= 0 ? 0xffffu : lane >= LANES ? 0u : 0xffffu << lane;
    return (__mmask16)mask;
}

static inline __mmask16 lanes_below(int64_t lane)
{
    return (__mmask16)~lanes_from(lane);
}

/* --- moving tiles ----------------------------------------------------------------------------- */

/* One row of F32 to dst, or of BF16: ld floats, those from `dim` on 0. */
static inline void load_row_f32(const float *src, int64_t dim, float *dst, int64_t ld)
{
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES)
        _mm512_store_ps(dst + d, _mm512_loadu_ps(src + d));
    if (d < ld)
        _mm512_store_ps(dst + d, _mm512_maskz_loadu_ps(lanes_below(dim - d), src + d));
}

static inline void load_row_bf16(const uint16_t *src, int64_t dim, float *dst, int64_t ld)
{
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES) {
        const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)(src + d));
        _mm512_store_si512(dst + d, _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
    }
    if (d < ld) {
        const __m256i half = _mm256_maskz_loadu_epi16(lanes_below(dim - d), src + d);
        _mm512_store_si512(dst + d, _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
    }
}

/* Rows of one head are far apart, a page in the usual layout: the hardware does not foresee the
 * next tile. A prefetch past the tensor does nothing. */
static inline void prefetch_row(const void *src, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64)
        _mm_prefetch((const char *)src + at, _MM_HINT_T1);
}

static void load_avx512(const oct_attention_rows *src, float *dst, int64_t ld)
{
    const size_t bytes = oct_dtype_bytes(src->dtype);
    const unsigned char *row = src->data;
    for (int64_t r = 0; r < src->rows; r++) {
        prefetch_row(row + (size_t)(TILE * src->stride) * bytes, (size_t)src->dim * bytes);
        if (src->dtype == OCT_DTYPE_F32)
            load_row_f32((const float *)(const void *)row, src->dim, dst, ld);
        else
            load_row_bf16((const uint16_t *)(const void *)row, src->dim, dst, ld);
        row += (size_t)src->stride * bytes;
        dst += ld;
    }
    for (int64_t r = src->rows; r % LANES != 0; r++, dst += ld)
        for (int64_t d = 0; d < ld; d += LANES)
            _mm512_store_ps(dst + d, _mm512_setzero_ps());
}

/* oct_bf16_from_f32 in 16 lanes; vcvtneps2bf16 would flush subnormals. */
static inline __m256i bf16_from_f32(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i upper = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(
        _mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40)));
}

static void store_avx512(const float *src, int64_t ld, float factor, const oct_attention_rows *dst)
{
    const __m512 factors = _mm512_set1_ps(factor);
    for (int64_t r = 0; r < dst->rows; r++) {
        for (int64_t d = 0; d < dst->dim; d += LANES) {
            const int64_t at = r * dst->stride + d;
            const __mmask16 lanes = lanes_below(dst->dim - d);
            const __m512 x = _mm512_mul_ps(_mm512_load_ps(src + r * ld + d), factors);
            if (dst->dtype == OCT_DTYPE_F32)
                _mm512_mask_storeu_ps((float *)dst->data + at, lanes, x);
            else
                _mm256_mask_storeu_epi16((uint16_t *)dst->data + at, lanes, bf16_from_f32(x));
        }
    }
}

/* One 16 x 16 block, by doubling the width of what is exchanged: 1, 2, 4 and 8 floats. */
static inline void transpose_block(const float *src, int64_t ld_src, float *dst, int64_t ld_dst)
{
    __m512 x[LANES], y[LANES];
    UNROLL
    for (int i = 0; i < 8; i++) {
        x[2 * i] = _mm512_load_ps(src + 2 * i * ld_src);
        x[2 * i + 1] = _mm512_load_ps(src + (2 * i + 1) * ld_src);
        y[2 * i] = _mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]);
        y[2 * i + 1] = _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        const __m512d low0 = _mm512_castps_pd(y[4 * i]), high0 = _mm512_castps_pd(y[4 * i + 1]);
        const __m512d low1 = _mm512_castps_pd(y[4 * i + 2]), high1 = _mm512_castps_pd(y[4 * i + 3]);
        x[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(low0, low1));
        x[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low0, low1));
        x[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high0, high1));
        x[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high0, high1));
    }
    /* x[4g + c] now holds, per quarter q, column 4q + c of rows 4g .. 4g+3. */
    UNROLL
    for (int c = 0; c < 4; c++) {
        const __m512 a = _mm512_shuffle_f32x4(x[c], x[4 + c], 0x88);
        const __m512 b = _mm512_shuffle_f32x4(x[c], x[4 + c], 0xdd);
        const __m512 d = _mm512_shuffle_f32x4(x[8 + c], x[12 + c], 0x88);
        const __m512 e = _mm512_shuffle_f32x4(x[8 + c], x[12 + c], 0xdd);
        _mm512_store_ps(dst + c * ld_dst, _mm512_shuffle_f32x4(a, d, 0x88));
        _mm512_store_ps(dst + (4 + c) * ld_dst, _mm512_shuffle_f32x4(b, e, 0x88));
        _mm512_store_ps(dst + (8 + c) * ld_dst, _mm512_shuffle_f32x4(a, d, 0xdd));
        _mm512_store_ps(dst + (12 + c) * ld_dst, _mm512_shuffle_f32x4(b, e, 0xdd));
    }
}

static void transpose_avx512(const float *src, int64_t ld_src, int64_t rows, int64_t cols,
                             float *dst, int64_t ld_dst)
{
    for (int64_t r = 0; r < rows; r += LANES)
        for (int64_t c = 0; c < cols; c += LANES)
            transpose_block(src + r * ld_src + c, ld_src, dst + c * ld_dst + r, ld_dst);
}

/* --- products --------------------------------------------------------------------------------- */

/* Inlined with constants, so that the accumulators are registers. */
#define INLINE static inline __attribute__((always_inline))

/* The next term of a micro-tile: its number, and where its operands are. */
typedef struct term {
    int64_t k;
    const float *a, *b;
} term;

/* The terms up to end-1 of `rows` x the vectors from .. vectors-1; with `masked`, column n takes
 * part in term k of vector `from` only if n >= k, n being counted from `column` on. */
INLINE term add_terms(const oct_attention_product *p, __m512 c[TILE_ROWS][TILE_VECTORS], term t,
                      int64_t end, const int rows, const int from, const int vectors,
                      const bool masked, int64_t column)
{
    const int64_t a_row = p->a_row, a_depth = p->a_depth, ldb = p->ldb;
    for (; t.k < end; t.k++) {
        __m512 x[TILE_VECTORS];
        UNROLL
        for (int v = from; v < vectors; v++)
            x[v] = _mm512_load_ps(t.b + v * LANES);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const __m512 y = _mm512_set1_ps(t.a[r * a_row]);
            UNROLL
            for (int v = from; v < vectors; v++)
                c[r][v] = masked && v == from
                              ? _mm512_mask3_fmadd_ps(y, x[v], c[r][v], lanes_from(t.k - column))
                              : _mm512_fmadd_ps(y, x[v], c[r][v]);
        }
        t.a += a_depth;
        t.b += ldb;
    }
    return t;
}

/* All terms of `rows` x `vectors` outputs at (m, n). */
INLINE void micro_tile(const oct_attention_product *p, int64_t m, int64_t n, const int rows,
                       const int vectors, const oct_attention_terms terms)
{
    __m512 c[TILE_ROWS][TILE_VECTORS];
    float *out = p->c + m * p->ldc + n;
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            c[r][v] =
                p->accumulate ? _mm512_load_ps(out + r * p->ldc + v * LANES) : _mm512_setzero_ps();
    }
    const int64_t depth = p->depth;
    term t = {.a = p->a + m * p->a_row, .b = p->b + n};
    if (terms == OCT_ATTENTION_TERMS_UP_TO_COLUMN) {
        /* What all columns have, then vector by vector those that end within it. */
        t = add_terms(p, c, t, oct_min_i64(n, depth), rows, 0, vectors, false, 0);
        UNROLL
        for (int v = 0; v < vectors; v++)
            t = add_terms(p, c, t, oct_min_i64(n + (v + 1) * LANES, depth), rows, v, vectors, true,
                          n + v * LANES);
    } else if (terms == OCT_ATTENTION_TERMS_FROM_ROW) {
        /* Row by row those that not all rows have, then the others. */
        t = (term){.k = m, .a = t.a + m * p->a_depth, .b = t.b + m * p->ldb};
        UNROLL
        for (int r = 1; r < rows; r++)
            t = add_terms(p, c, t, oct_min_i64(m + r, depth), r, 0, vectors, false, 0);
        add_terms(p, c, t, depth, rows, 0, vectors, false, 0);
    } else {
        add_terms(p, c, t, depth, rows, 0, vectors, false, 0);
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            _mm512_store_ps(out + r * p->ldc + v * LANES, c[r][v]);
    }
}

typedef void micro_tile_fn(const oct_attention_product *p, int64_t m, int64_t n);

#define MICRO_TILE(name, rows, vectors, terms)                                                     \
    static void name##rows##x##vectors(const oct_attention_product *p, int64_t m, int64_t n)       \
    {                                                                                              \
        micro_tile(p, m, n, rows, vectors, terms);                                                 \
    }
#define MICRO_TILES(name, rows, terms)                                                             \
    MICRO_TILE(name, rows, 1, terms)                                                               \
    MICRO_TILE(name, rows, 2, terms)                                                               \
    MICRO_TILE(name, rows, 3, terms)                                                               \
    MICRO_TILE(name, rows, 4, terms)
#define ROW_OF_TILES(name, rows)                                                                   \
    {                                                                                              \
        name##rows##x1, name##rows##x2, name##rows##x3, name##rows##x4                             \
    }
/* The table name##tiles[rows - 1][vectors - 1]. */
#define ALL_TILES(name, terms)                                                                     \
    MICRO_TILES(name, 1, terms)                                                                    \
    MICRO_TILES(name, 2, terms)                                                                    \
    MICRO_TILES(name, 3, terms)                                                                    \
    MICRO_TILES(name, 4, terms)                                                                    \
    MICRO_TILES(name, 5, terms)                                                                    \
    MICRO_TILES(name, 6, terms)                                                                    \
    static micro_tile_fn *const name##tiles[TILE_ROWS][TILE_VECTORS] = {                           \
        ROW_OF_TILES(name, 1), ROW_OF_TILES(name, 2), ROW_OF_TILES(name, 3),                       \
        ROW_OF_TILES(name, 4), ROW_OF_TILES(name, 5), ROW_OF_TILES(name, 6)};

ALL_TILES(whole_, OCT_ATTENTION_TERMS_ALL)
ALL_TILES(up_to_column_, OCT_ATTENTION_TERMS_UP_TO_COLUMN)
ALL_TILES(from_row_, OCT_ATTENTION_TERMS_FROM_ROW)

static void product_avx512(const oct_attention_product *p)
{
    micro_tile_fn *const(*tiles)[TILE_VECTORS] = whole_tiles;
    if (p->terms == OCT_ATTENTION_TERMS_UP_TO_COLUMN)
        tiles = up_to_column_tiles;
    else if (p->terms == OCT_ATTENTION_TERMS_FROM_ROW)
        tiles = from_row_tiles;
    for (int64_t n = 0; n < p->cols; n += TILE_VECTORS * LANES) {
        const int64_t end = oct_min_i64(n + TILE_VECTORS * LANES, p->cols);
        for (int64_t m = 0; m < p->rows; m += TILE_ROWS) {
            const int64_t rows = oct_min_i64(TILE_ROWS, p->rows - m);
            int64_t first = n;
            if (p->terms == OCT_ATTENTION_TERMS_ALL_FROM_ROW_ON)
                first = oct_max_i64(n, m / LANES * LANES);
            if (first < end)
                tiles[rows - 1][(end - first) / LANES - 1](p, m, first);
        }
    }
}

/* --- columns ---------------------------------------------------------------------------------- */

static void scale_columns_avx512(float *c, int64_t rows, int64_t cols, const float *factor_n)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    for (int64_t n = 0; n < cols; n += LANES) {
        const __m512 factor = _mm512_load_ps(factor_n + n);
        if (_mm512_cmp_ps_mask(factor, one, _CMP_EQ_OQ) == 0xffff)
            continue; /* the running max seldom rises */
        for (int64_t m = 0; m < rows; m++) {
            float *at = c + m * TILE + n;
            _mm512_store_ps(at, _mm512_mul_ps(_mm512_load_ps(at), factor));
        }
    }
}

static void column_dots_avx512(const float *a, const float *b, int64_t rows, int64_t cols,
                               float *dot_n)
{
    for (int64_t n = 0; n < cols; n += LANES) {
        __m512 dot = _mm512_setzero_ps();
        for (int64_t m = 0; m < rows; m++)
            dot = _mm512_fmadd_ps(_mm512_load_ps(a + m * TILE + n),
                                  _mm512_load_ps(b + m * TILE + n), dot);
        _mm512_store_ps(dot_n + n, dot);
    }
}

static void softmax_avx512(float *s, int64_t keys, int64_t queries, float scale, bool diagonal,
                           float *max_n, float *sum_n, float *rescale_n)
{
    const __m512 scales = _mm512_set1_ps(scale);
    const __m512 masked = _mm512_set1_ps(-INFINITY);
    for (int64_t n = 0; n < queries; n += LANES) {
        /* Keys above all these queries would add exact zeros. */
        const int64_t end = diagonal ? oct_min_i64(keys, n + LANES) : keys;
        const __m512 old_max = _mm512_load_ps(max_n + n);
        __m512 max = old_max;
        for (int64_t j = 0; j < end; j++) {
            float *at = s + j * TILE + n;
            __m512 score = _mm512_mul_ps(_mm512_load_ps(at), scales);
            if (diagonal)
                score = _mm512_mask_mov_ps(masked, lanes_from(j - n), score);
            _mm512_store_ps(at, score);
            max = _mm512_max_ps(score, max); /* max if score is NaN */
        }
        __m512 sum = _mm512_setzero_ps();
        for (int64_t j = 0; j < end; j++) {
            float *at = s + j * TILE + n;
            const __m512 p = oct_exp_x16(_mm512_sub_ps(_mm512_load_ps(at), max));
            _mm512_store_ps(at, p);
            sum = _mm512_add_ps(sum, p);
        }
        const __m512 rescale = oct_exp_x16(_mm512_sub_ps(old_max, max));
        _mm512_store_ps(rescale_n + n, rescale);
        _mm512_store_ps(max_n + n, max);
        _mm512_store_ps(sum_n + n, _mm512_fmadd_ps(_mm512_load_ps(sum_n + n), rescale, sum));
    }
}

static void softmax_backward_avx512(float *s, float *dp, int64_t keys, int64_t queries, float scale,
                                    bool diagonal, const float *lse_n, const float *delta_n)
{
    const __m512 scales = _mm512_set1_ps(scale);
    for (int64_t n = 0; n < queries; n += LANES) {
        const __m512 lse = _mm512_load_ps(lse_n + n), delta = _mm512_load_ps(delta_n + n);
        const int64_t end = diagonal ? oct_min_i64(keys, n + LANES) : keys;
        for (int64_t j = 0; j < end; j++) {
            const int64_t at = j * TILE + n;
            const __m512 score = _mm512_mul_ps(_mm512_load_ps(s + at), scales);
            const __m512 p = oct_exp_x16(_mm512_sub_ps(score, lse));
            _mm512_store_ps(s + at, p);
            _mm512_store_ps(dp + at,
                            _mm512_mul_ps(p, _mm512_sub_ps(_mm512_load_ps(dp + at), delta)));
        }
    }
}

void oct_attention_kernels_avx512(oct_attention_kernels *kernels)
{
    *kernels = (oct_attention_kernels){
        .load = load_avx512,
        .store = store_avx512,
        .transpose = transpose_avx512,
        .product = product_avx512,
        .scale_columns = scale_columns_avx512,
        .column_dots = column_dots_avx512,
        .softmax = softmax_avx512,
        .softmax_backward = softmax_backward_avx512,
    };
}

#endif
