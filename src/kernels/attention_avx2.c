/* The inner loops of attention in AVX2: 8 columns per vector, every column computed by the same
 * operations in the same order as kernels/attention_ref.c. */
#include "kernels/attention.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>

#include "base/size.h"
#include "kernels/fmath_avx2.h"
#include "numeric/bf16.h"

enum { TILE = OCT_ATTENTION_TILE, LANES = 8 };

/* Micro-tile of the products: 6 rows x 2 vectors are 12 accumulators of the 16 registers, and 2
 * vectors are the 16 columns that every column count is a multiple of. */
enum { TILE_ROWS = 6, TILE_VECTORS = 2, TILE_COLS = TILE_VECTORS * LANES };

_Static_assert((int)TILE_COLS == (int)OCT_ATTENTION_LANES, "no part of a tile is left over");

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* All bits of the lanes below `lane` (which may lie outside 0..7). */
static inline __m256i lanes_below(int64_t lane)
{
    const int bound = lane <= 0 ? 0 : lane >= LANES ? LANES : (int)lane;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(bound), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* `below` in the lanes below `lane`, `from` in the others. */
static inline __m256 split_lanes(int64_t lane, __m256 below, __m256 from)
{
    return _mm256_blendv_ps(from, below, _mm256_castsi256_ps(lanes_below(lane)));
}

/* --- moving tiles ----------------------------------------------------------------------------- */

/* One row of F32 to dst, or of BF16: ld floats, those from `dim` on 0. */
static inline void load_row_f32(const float *src, int64_t dim, float *dst, int64_t ld)
{
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES)
        _mm256_store_ps(dst + d, _mm256_loadu_ps(src + d));
    for (; d < ld; d += LANES) {
        const __m256i lanes = lanes_below(dim - d);
        _mm256_store_ps(dst + d,
                        d < dim ? _mm256_maskload_ps(src + d, lanes) : _mm256_setzero_ps());
    }
}

static inline void load_row_bf16(const uint16_t *src, int64_t dim, float *dst, int64_t ld)
{
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES) {
        const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(src + d));
        _mm256_store_ps(dst + d,
                        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16)));
    }
    for (; d < dim; d++)
        dst[d] = oct_bf16_to_f32(src[d]);
    for (; d < ld; d++)
        dst[d] = 0.0f;
}

/* Rows of one head are far apart, a page in the usual layout: the hardware does not foresee the
 * next tile. A prefetch past the tensor does nothing. */
static inline void prefetch_row(const void *src, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64)
        _mm_prefetch((const char *)src + at, _MM_HINT_T1);
}

static void load_avx2(const oct_attention_rows *src, float *dst, int64_t ld)
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
    for (int64_t r = src->rows; r % OCT_ATTENTION_LANES != 0; r++, dst += ld)
        for (int64_t d = 0; d < ld; d += LANES)
            _mm256_store_ps(dst + d, _mm256_setzero_ps());
}

/* oct_bf16_from_f32 in 8 lanes. */
static inline __m128i bf16_from_f32(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i wide = _mm256_blendv_epi8(rounded, quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
}

static void store_avx2(const float *src, int64_t ld, float factor, const oct_attention_rows *dst)
{
    const __m256 factors = _mm256_set1_ps(factor);
    for (int64_t r = 0; r < dst->rows; r++) {
        for (int64_t d = 0; d < dst->dim; d += LANES) {
            const int64_t at = r * dst->stride + d, left = dst->dim - d;
            const __m256 x = _mm256_mul_ps(_mm256_load_ps(src + r * ld + d), factors);
            if (dst->dtype == OCT_DTYPE_F32) {
                _mm256_maskstore_ps((float *)dst->data + at, lanes_below(left), x);
            } else if (left >= LANES) {
                _mm_storeu_si128((__m128i *)(void *)((uint16_t *)dst->data + at), bf16_from_f32(x));
            } else {
                uint16_t part[LANES];
                _mm_storeu_si128((__m128i *)(void *)part, bf16_from_f32(x));
                for (int64_t i = 0; i < left; i++)
                    ((uint16_t *)dst->data)[at + i] = part[i];
            }
        }
    }
}

/* One 8 x 8 block, by doubling the width of what is exchanged: 1, 2 and 4 floats. */
static inline void transpose_block(const float *src, int64_t ld_src, float *dst, int64_t ld_dst)
{
    __m256 x[LANES], y[LANES];
    UNROLL
    for (int i = 0; i < 4; i++) {
        const __m256 even = _mm256_load_ps(src + 2 * i * ld_src);
        const __m256 odd = _mm256_load_ps(src + (2 * i + 1) * ld_src);
        y[2 * i] = _mm256_unpacklo_ps(even, odd);
        y[2 * i + 1] = _mm256_unpackhi_ps(even, odd);
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        const __m256d low0 = _mm256_castps_pd(y[4 * i]), high0 = _mm256_castps_pd(y[4 * i + 1]);
        const __m256d low1 = _mm256_castps_pd(y[4 * i + 2]), high1 = _mm256_castps_pd(y[4 * i + 3]);
        x[4 * i] = _mm256_castpd_ps(_mm256_unpacklo_pd(low0, low1));
        x[4 * i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low0, low1));
        x[4 * i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high0, high1));
        x[4 * i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high0, high1));
    }
    /* x[4g + c] now holds, per half h, column 4h + c of rows 4g .. 4g+3. */
    UNROLL
    for (int c = 0; c < 4; c++) {
        _mm256_store_ps(dst + c * ld_dst, _mm256_permute2f128_ps(x[c], x[4 + c], 0x20));
        _mm256_store_ps(dst + (4 + c) * ld_dst, _mm256_permute2f128_ps(x[c], x[4 + c], 0x31));
    }
}

static void transpose_avx2(const float *src, int64_t ld_src, int64_t rows, int64_t cols, float *dst,
                           int64_t ld_dst)
{
    for (int64_t r = 0; r < rows; r += LANES)
        for (int64_t c = 0; c < cols; c += LANES)
            transpose_block(src + r * ld_src + c, ld_src, dst + c * ld_dst + r, ld_dst);
}

/* --- products --------------------------------------------------------------------------------- */

/* `rows` x 16 outputs at (m, n), terms first .. end-1; with `masked`, column n takes part in term k
 * only if n >= k. Inlined with constants, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void micro_tile(const oct_attention_product *p,
                                                             int64_t m, int64_t n, int64_t first,
                                                             int64_t end, const int rows,
                                                             const bool masked)
{
    __m256 c[TILE_ROWS][TILE_VECTORS];
    float *out = p->c + m * p->ldc + n;
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++)
            c[r][v] =
                p->accumulate ? _mm256_load_ps(out + r * p->ldc + v * LANES) : _mm256_setzero_ps();
    }
    const int64_t a_row = p->a_row, a_depth = p->a_depth, ldb = p->ldb;
    const float *a = p->a + m * a_row + first * a_depth;
    const float *b = p->b + first * ldb + n;
    for (int64_t k = first; k < end; k++) {
        __m256 x[TILE_VECTORS];
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++)
            x[v] = _mm256_load_ps(b + v * LANES);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const __m256 y = _mm256_set1_ps(a[r * a_row]);
            UNROLL
            for (int v = 0; v < TILE_VECTORS; v++) {
                const __m256 sum = _mm256_fmadd_ps(y, x[v], c[r][v]);
                c[r][v] = masked ? split_lanes(k - n - v * LANES, c[r][v], sum) : sum;
            }
        }
        a += a_depth;
        b += ldb;
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++)
            _mm256_store_ps(out + r * p->ldc + v * LANES, c[r][v]);
    }
}

typedef void micro_tile_fn(const oct_attention_product *p, int64_t m, int64_t n, int64_t first,
                           int64_t end);

#define MICRO_TILE(rows)                                                                           \
    static void micro_tile_##rows(const oct_attention_product *p, int64_t m, int64_t n,            \
                                  int64_t first, int64_t end)                                      \
    {                                                                                              \
        micro_tile(p, m, n, first, end, rows, false);                                              \
    }                                                                                              \
    static void micro_tile_masked_##rows(const oct_attention_product *p, int64_t m, int64_t n,     \
                                         int64_t first, int64_t end)                               \
    {                                                                                              \
        micro_tile(p, m, n, first, end, rows, true);                                               \
    }
MICRO_TILE(1)
MICRO_TILE(2)
MICRO_TILE(3)
MICRO_TILE(4)
MICRO_TILE(5)
MICRO_TILE(6)

static micro_tile_fn *const tiles[TILE_ROWS] = {micro_tile_1, micro_tile_2, micro_tile_3,
                                                micro_tile_4, micro_tile_5, micro_tile_6};
static micro_tile_fn *const masked_tiles[TILE_ROWS] = {micro_tile_masked_1, micro_tile_masked_2,
                                                       micro_tile_masked_3, micro_tile_masked_4,
                                                       micro_tile_masked_5, micro_tile_masked_6};

/* Columns n .. n+15 where column c takes part in the terms k <= c: what all columns have, then the
 * triangle under the mask. */
static void tile_up_to_columns(const oct_attention_product *p, int64_t m, int64_t rows, int64_t n)
{
    const int64_t common = oct_min_i64(n + 1, p->depth);
    tiles[rows - 1](p, m, n, 0, common);
    if (common < p->depth) {
        oct_attention_product rest = *p;
        rest.accumulate = true;
        masked_tiles[rows - 1](&rest, m, n, common, oct_min_i64(n + TILE_COLS, p->depth));
    }
}

/* Rows m .. m+rows-1 where row r takes part in the terms k >= r: the triangle row by row, then what
 * all rows have. */
static void tile_from_rows(const oct_attention_product *p, int64_t m, int64_t rows, int64_t n)
{
    const int64_t common = oct_min_i64(m + rows, p->depth);
    for (int64_t r = m; r < m + rows; r++)
        tiles[0](p, r, n, r, common);
    if (common < p->depth) {
        oct_attention_product rest = *p;
        rest.accumulate = true;
        tiles[rows - 1](&rest, m, n, common, p->depth);
    }
}

static void product_avx2(const oct_attention_product *p)
{
    for (int64_t n = 0; n < p->cols; n += TILE_COLS) {
        for (int64_t m = 0; m < p->rows; m += TILE_ROWS) {
            const int64_t rows = oct_min_i64(TILE_ROWS, p->rows - m);
            switch (p->terms) {
            case OCT_ATTENTION_TERMS_ALL:
                tiles[rows - 1](p, m, n, 0, p->depth);
                break;
            case OCT_ATTENTION_TERMS_ALL_FROM_ROW_ON:
                if (n + TILE_COLS > m)
                    tiles[rows - 1](p, m, n, 0, p->depth);
                break;
            case OCT_ATTENTION_TERMS_UP_TO_COLUMN:
                tile_up_to_columns(p, m, rows, n);
                break;
            case OCT_ATTENTION_TERMS_FROM_ROW:
                tile_from_rows(p, m, rows, n);
                break;
            }
        }
    }
}

/* --- columns ---------------------------------------------------------------------------------- */

static void scale_columns_avx2(float *c, int64_t rows, int64_t cols, const float *factor_n)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    for (int64_t n = 0; n < cols; n += LANES) {
        const __m256 factor = _mm256_load_ps(factor_n + n);
        if (_mm256_movemask_ps(_mm256_cmp_ps(factor, one, _CMP_EQ_OQ)) == 0xff)
            continue; /* the running max seldom rises */
        for (int64_t m = 0; m < rows; m++) {
            float *at = c + m * TILE + n;
            _mm256_store_ps(at, _mm256_mul_ps(_mm256_load_ps(at), factor));
        }
    }
}

static void column_dots_avx2(const float *a, const float *b, int64_t rows, int64_t cols,
                             float *dot_n)
{
    for (int64_t n = 0; n < cols; n += LANES) {
        __m256 dot = _mm256_setzero_ps();
        for (int64_t m = 0; m < rows; m++)
            dot = _mm256_fmadd_ps(_mm256_load_ps(a + m * TILE + n),
                                  _mm256_load_ps(b + m * TILE + n), dot);
        _mm256_store_ps(dot_n + n, dot);
    }
}

static void softmax_avx2(float *s, int64_t keys, int64_t queries, float scale, bool diagonal,
                         float *max_n, float *sum_n, float *rescale_n)
{
    const __m256 scales = _mm256_set1_ps(scale);
    const __m256 masked = _mm256_set1_ps(-INFINITY);
    for (int64_t n = 0; n < queries; n += LANES) {
        /* Keys above all these queries would add exact zeros. */
        const int64_t end = diagonal ? oct_min_i64(keys, n + LANES) : keys;
        const __m256 old_max = _mm256_load_ps(max_n + n);
        __m256 max = old_max;
        for (int64_t j = 0; j < end; j++) {
            float *at = s + j * TILE + n;
            __m256 score = _mm256_mul_ps(_mm256_load_ps(at), scales);
            if (diagonal)
                score = split_lanes(j - n, masked, score);
            _mm256_store_ps(at, score);
            max = _mm256_max_ps(score, max); /* max if score is NaN */
        }
        __m256 sum = _mm256_setzero_ps();
        for (int64_t j = 0; j < end; j++) {
            float *at = s + j * TILE + n;
            const __m256 p = oct_exp_x8(_mm256_sub_ps(_mm256_load_ps(at), max));
            _mm256_store_ps(at, p);
            sum = _mm256_add_ps(sum, p);
        }
        const __m256 rescale = oct_exp_x8(_mm256_sub_ps(old_max, max));
        _mm256_store_ps(rescale_n + n, rescale);
        _mm256_store_ps(max_n + n, max);
        _mm256_store_ps(sum_n + n, _mm256_fmadd_ps(_mm256_load_ps(sum_n + n), rescale, sum));
    }
}

static void softmax_backward_avx2(float *s, float *dp, int64_t keys, int64_t queries, float scale,
                                  bool diagonal, const float *lse_n, const float *delta_n)
{
    const __m256 scales = _mm256_set1_ps(scale);
    for (int64_t n = 0; n < queries; n += LANES) {
        const __m256 lse = _mm256_load_ps(lse_n + n), delta = _mm256_load_ps(delta_n + n);
        const int64_t end = diagonal ? oct_min_i64(keys, n + LANES) : keys;
        for (int64_t j = 0; j < end; j++) {
            const int64_t at = j * TILE + n;
            const __m256 score = _mm256_mul_ps(_mm256_load_ps(s + at), scales);
            const __m256 p = oct_exp_x8(_mm256_sub_ps(score, lse));
            _mm256_store_ps(s + at, p);
            _mm256_store_ps(dp + at,
                            _mm256_mul_ps(p, _mm256_sub_ps(_mm256_load_ps(dp + at), delta)));
        }
    }
}

void oct_attention_kernels_avx2(oct_attention_kernels *kernels)
{
    *kernels = (oct_attention_kernels){
        .load = load_avx2,
        .store = store_avx2,
        .transpose = transpose_avx2,
        .product = product_avx2,
        .scale_columns = scale_columns_avx2,
        .column_dots = column_dots_avx2,
        .softmax = softmax_avx2,
        .softmax_backward = softmax_backward_avx2,
    };
}

#endif
