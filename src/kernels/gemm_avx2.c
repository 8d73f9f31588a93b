/* FP32-FMA product for AVX2: packing, the 14 x 32 tile, the epilogue. */
#include "kernels/gemm_blocks.h"

#if defined(__x86_64__)

#include "kernels/lanes_avx2.h"
#include "numeric/e8m0.h"

enum { MR = OCT_GEMM_MR, NR = OCT_GEMM_NR, WIDE = 8, MX_BLOCK = 32 };

#define INLINE static inline __attribute__((always_inline))

/* 8 neighbours of an operand whose first is element `at`, as FP32 bits; those from `count` on are
 * zero and not touched. */
INLINE __m256i load_dense(const oct_fma_source *s, int64_t at, int64_t count)
{
    if (s->dtype == OCT_DTYPE_F32) {
        const float *x = (const float *)s->data + at;
        if (count >= WIDE)
            return _mm256_loadu_si256((const void *)x);
        return _mm256_castps_si256(_mm256_maskload_ps(x, oct_first_lanes(count)));
    }
    const __m128i words = oct_load_first_bytes((const uint16_t *)s->data + at, 2 * count);
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16);
}

INLINE __m256 decode(const oct_code_table *table, const uint8_t *codes, int64_t count)
{
    const __m128i bytes = oct_load_first_bytes(codes, count < WIDE ? count : WIDE);
    return _mm256_i32gather_ps(table->value, _mm256_cvtepu8_epi32(bytes), 4);
}

static inline float mx_scale(const oct_quantized_matrix *q, int64_t r, int64_t b)
{
    const int64_t at = q->k_contiguous ? (r * ((q->k + 63) / 64) + b / 2) * 2 + b % 2
                                       : (b / 2 * q->scale_ld + r) * 2 + b % 2;
    return oct_e8m0_decode(q->scales[at]);
}

/* Elements k .. of row r, at most 8 and never across a multiple of 8. */
INLINE __m256i load_along_k(const oct_fma_source *s, const oct_code_table *table, int64_t r,
                            int64_t k, int64_t count)
{
    const oct_quantized_matrix *q = s->codes;
    if (!q)
        return load_dense(s, r * s->ld + k, count);
    __m256 x = decode(table, q->codes + r * q->ld + k, count);
    if (q->scales)
        x = _mm256_mul_ps(x, _mm256_set1_ps(mx_scale(q, r, k / MX_BLOCK)));
    return _mm256_castps_si256(x);
}

/* Elements k .. k+count-1 of `rows` rows from `row` on, transposed: block[i] holds k + i. */
INLINE void load_block(const oct_fma_source *s, const oct_code_table *table, int64_t row,
                       int64_t rows, int64_t k, int64_t count, __m256i block[WIDE])
{
#pragma GCC unroll 8
    for (int64_t j = 0; j < WIDE; j++)
        block[j] = j < rows ? load_along_k(s, table, row + j, k, count) : _mm256_setzero_si256();
    oct_transpose_8x8(block);
}

/* 8 rows of a panel, k contiguous; `rows` of them exist. k is a multiple of 8. */
static void pack_contiguous(const oct_fma_source *s, const oct_code_table *table, int64_t row,
                            int64_t rows, int64_t k, int64_t kc, float *panel, int64_t width)
{
    __m256i block[WIDE];
    int64_t i = 0;
    if (rows == WIDE)
        for (; i + WIDE <= kc; i += WIDE) {
            load_block(s, table, row, WIDE, k + i, WIDE, block);
#pragma GCC unroll 8
            for (int64_t j = 0; j < WIDE; j++)
                _mm256_storeu_si256((void *)(panel + (i + j) * width), block[j]);
        }
    for (; i < kc; i += WIDE) {
        load_block(s, table, row, rows, k + i, kc - i, block);
        for (int64_t j = 0; j < WIDE && i + j < kc; j++)
            _mm256_storeu_si256((void *)(panel + (i + j) * width), block[j]);
    }
}

/* 8 rows of a panel, rows contiguous; `rows` of them exist. */
INLINE void pack_strided(const oct_fma_source *s, const oct_code_table *table, int64_t row,
                         int64_t rows, int64_t k, int64_t kc, float *panel, int64_t width)
{
    const oct_quantized_matrix *q = s->codes;
    _Alignas(32) float scale[WIDE] = {0};
    for (int64_t i = 0; i < kc; i++, k++, panel += width) {
        if (!q) {
            _mm256_storeu_si256((void *)panel, load_dense(s, k * s->ld + row, rows));
            continue;
        }
        __m256 x = decode(table, q->codes + k * q->ld + row, rows);
        if (q->scales && (i == 0 || k % MX_BLOCK == 0))
            for (int64_t j = 0; j < rows; j++)
                scale[j] = mx_scale(q, row + j, k / MX_BLOCK);
        if (q->scales)
            x = _mm256_mul_ps(x, _mm256_load_ps(scale));
        _mm256_storeu_ps(panel, x);
    }
}

/* In blocks of 8 rows; the last one ends with the panel and may repeat rows of the one before. */
static void fma_pack(const oct_fma_source *source, const oct_code_table *table, int64_t row,
                     int64_t width, int64_t k, int64_t kc, float *panel)
{
    const bool contiguous = source->codes ? source->codes->k_contiguous : source->k_contiguous;
    for (int64_t next = 0; next < width; next += WIDE) {
        const int64_t lane = next + WIDE <= width ? next : width - WIDE;
        const int64_t left = source->rows - row - lane;
        const int64_t rows = left <= 0 ? 0 : left < WIDE ? left : WIDE;
        if (rows == 0)
            for (int64_t i = 0; i < kc; i++)
                _mm256_storeu_ps(panel + i * width + lane, _mm256_setzero_ps());
        else if (contiguous)
            pack_contiguous(source, table, row + lane, rows, k, kc, panel + lane, width);
        else if (rows == WIDE)
            pack_strided(source, table, row + lane, WIDE, k, kc, panel + lane, width);
        else
            pack_strided(source, table, row + lane, rows, k, kc, panel + lane, width);
    }
}

/* `rows` (at most 5) x 16 of a tile: 10 accumulators, 2 vectors of b and one of a in 16 registers.
 */
INLINE void fma_part(int rows, int64_t kc, const float *a, const float *b, float *c)
{
    __m256 sum[5][2];
#pragma GCC unroll 5
    for (int i = 0; i < rows; i++) {
        sum[i][0] = _mm256_loadu_ps(c + i * NR);
        sum[i][1] = _mm256_loadu_ps(c + i * NR + 8);
    }
    for (int64_t k = 0; k < kc; k++) {
        const __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 5
        for (int i = 0; i < rows; i++) {
            const __m256 x = _mm256_broadcast_ss(a + i);
            sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
        }
        a += MR;
        b += NR;
    }
#pragma GCC unroll 5
    for (int i = 0; i < rows; i++) {
        _mm256_storeu_ps(c + i * NR, sum[i][0]);
        _mm256_storeu_ps(c + i * NR + 8, sum[i][1]);
    }
}

/* k of a round: 128 of both panels are 23 KB and stay in the first cache while six parts of the
 * tile (5, 5 and 4 rows, 16 columns) read them. */
enum { ROUND = 128 };

static void fma_tile(int64_t kc, const float *a, const float *b, float *c)
{
    for (int64_t k = 0; k < kc; k += ROUND) {
        const int64_t round = kc - k < ROUND ? kc - k : ROUND;
        for (int64_t j = 0; j < NR; j += 16) {
            fma_part(5, round, a + k * MR, b + k * NR + j, c + j);
            fma_part(5, round, a + k * MR + 5, b + k * NR + j, c + 5 * NR + j);
            fma_part(4, round, a + k * MR + 10, b + k * NR + j, c + 10 * NR + j);
        }
    }
}

INLINE __m256 canonical(__m256 x)
{
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_blendv_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)), nan);
}

/* The BF16 of each lane in its low 16 bits; x holds no NaN but 7fc00000. */
INLINE __m256i bf16_bits(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    return _mm256_srli_epi32(_mm256_add_epi32(bits, up), 16);
}

INLINE void store_words(uint16_t *to, __m256i words, int64_t count)
{
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    oct_store_first_bytes(to, packed, count < WIDE ? 2 * count : 2 * WIDE);
}

INLINE __m256 load_floats(const float *x, int64_t count)
{
    return count >= WIDE ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, oct_first_lanes(count));
}

static void finish_tile(const oct_gemm_finish *finish, const float *c, int64_t row, int64_t rows,
                        int64_t col, int64_t cols)
{
    const oct_gemm_out *out = finish->out;
    const __m256 left = _mm256_set1_ps(finish->left_scale);
    const __m256 right = _mm256_set1_ps(finish->right_scale);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j += WIDE) {
            const int64_t lanes = cols - j;
            const int64_t at = (row + i) * out->ld + col + j;
            __m256 y = _mm256_loadu_ps(c + i * NR + j);
            if (finish->scaled)
                y = _mm256_mul_ps(_mm256_mul_ps(y, left), right);
            if (out->bias)
                y = _mm256_add_ps(y, load_floats(out->bias + col + j, lanes));
            y = canonical(y);
            if (out->dtype == OCT_DTYPE_BF16) {
                store_words((uint16_t *)out->data + at, bf16_bits(y), lanes);
                continue;
            }
            float *target = (float *)out->data + at;
            if (out->round_bf16)
                y = _mm256_castsi256_ps(_mm256_slli_epi32(bf16_bits(y), 16));
            if (out->store == OCT_GEMM_FOLD)
                y = canonical(_mm256_add_ps(load_floats(target, lanes), y));
            oct_store_first_lanes(target, _mm256_castps_si256(y), lanes);
        }
}

void oct_gemm_kernels_avx2(oct_gemm_kernels *kernels)
{
    kernels->fma_pack = fma_pack;
    kernels->fma_tile = fma_tile;
    kernels->finish_tile = finish_tile;
}

#endif
