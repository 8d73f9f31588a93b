/* FP32-FMA product for AVX-512: packing, the 14 x 32 tile, the epilogue. */
#include "kernels/gemm_blocks.h"

#if defined(__x86_64__)

#include "kernels/gemm_avx512.h"
#include "kernels/packing_ahead.h"
#include "numeric/e8m0.h"

#define INLINE static inline __attribute__((always_inline))

enum { MR = OCT_GEMM_MR, NR = OCT_GEMM_NR, LANES = OCT_GEMM_LANES, MX_BLOCK = 32, AHEAD = 64 };

INLINE __m512 widen_bf16(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* One byte of the BF16 value of 16 codes; sign bits of the codes do not count. */
INLINE __m512i value_byte(const uint8_t bytes[128], __m512i codes)
{
    const __m512i low = _mm512_loadu_si512(bytes), high = _mm512_loadu_si512(bytes + 64);
    return _mm512_cvtepu8_epi32(_mm512_castsi512_si128(_mm512_permutex2var_epi8(low, codes, high)));
}

/* Values of 16 codes; 0 outside the mask. 80 (the NaN of HiF8) and ff (a NaN of E4M3) need not be
 * 00 and 7f with a sign. */
INLINE __m512 decode(const oct_code_table *table, __mmask16 lanes, const uint8_t *codes)
{
    const __m128i bytes = _mm_maskz_loadu_epi8(lanes, codes);
    const __m512i wide = _mm512_castsi128_si512(bytes);
    const __m512i value = _mm512_or_si512(_mm512_slli_epi32(value_byte(table->bf16[1], wide), 24),
                                          _mm512_slli_epi32(value_byte(table->bf16[0], wide), 16));
    const __m512i sign = _mm512_slli_epi32(
        _mm512_cvtepu8_epi32(_mm_and_si128(bytes, _mm_set1_epi8((char)0x80))), 24);
    const __m512 x = _mm512_castsi512_ps(_mm512_or_si512(value, sign));
    const __mmask16 least = _mm_cmpeq_epi8_mask(bytes, _mm_set1_epi8((char)0x80));
    const __mmask16 last = _mm_cmpeq_epi8_mask(bytes, _mm_set1_epi8((char)0xff));
    return _mm512_mask_mov_ps(_mm512_mask_mov_ps(x, least, _mm512_set1_ps(table->value[0x80])),
                              last, _mm512_set1_ps(table->value[0xff]));
}

/* 16 neighbours of an operand whose first is element `at`. */
INLINE __m512 load_dense(const oct_fma_source *s, __mmask16 lanes, int64_t at)
{
    if (s->dtype == OCT_DTYPE_F32)
        return _mm512_maskz_loadu_ps(lanes, (const float *)s->data + at);
    return widen_bf16(_mm256_maskz_loadu_epi16(lanes, (const uint16_t *)s->data + at));
}

INLINE __mmask16 first_lanes(int64_t count)
{
    const unsigned mask = count >= LANES ? 0xffffu : (1u << count) - 1;
    return (__mmask16)mask;
}

INLINE float mx_scale(const oct_quantized_matrix *q, int64_t r, int64_t b)
{
    const int64_t at = q->k_contiguous ? (r * ((q->k + 63) / 64) + b / 2) * 2 + b % 2
                                       : (b / 2 * q->scale_ld + r) * 2 + b % 2;
    return oct_e8m0_decode(q->scales[at]);
}

/* Elements k .. of row r, at most 16 and never across a multiple of 16. */
INLINE __m512 load_codes_along_k(const oct_quantized_matrix *q, const oct_code_table *table,
                                 __mmask16 lanes, int64_t r, int64_t k)
{
    const __m512 x = decode(table, lanes, q->codes + r * q->ld + k);
    return q->scales ? _mm512_mul_ps(x, _mm512_set1_ps(mx_scale(q, r, k / MX_BLOCK))) : x;
}

/* Fetches element `at`, which may lie past the end. */
INLINE void prefetch_element(const oct_fma_source *s, int64_t at)
{
    if (s->codes)
        oct_prefetch(s->codes->codes + at);
    else if (s->dtype == OCT_DTYPE_F32)
        oct_prefetch((const float *)s->data + at);
    else
        oct_prefetch((const uint16_t *)s->data + at);
}

/* 16 rows of a panel, k contiguous: transposed 16 x 16. k is a multiple of 16. */
static void pack_contiguous(const oct_fma_source *s, const oct_code_table *table, int64_t row,
                            int64_t width, int64_t lane, int64_t k, int64_t kc, float *panel)
{
    const int64_t lanes = width - lane < LANES ? width - lane : LANES;
    const int64_t rows = s->rows - row - lane < lanes ? s->rows - row - lane : lanes;
    const int64_t ld = s->codes ? s->codes->ld : s->ld;
    for (int64_t i = 0; i < kc; i += LANES) {
        const __mmask16 along = first_lanes(kc - i);
        __m512i r[LANES];
        for (int64_t j = 0; j < LANES; j++) {
            r[j] = _mm512_setzero_si512();
            if (j >= rows)
                continue;
            const int64_t at = (row + lane + j) * ld + k + i;
            prefetch_element(s, at + AHEAD);
            r[j] = _mm512_castps_si512(
                s->codes ? load_codes_along_k(s->codes, table, along, row + lane + j, k + i)
                         : load_dense(s, along, at));
        }
        oct_transpose_16x16(r);
        for (int64_t j = 0; j < LANES && i + j < kc; j++) {
            oct_prefetch(panel + (i + j + LANES) * width + lane);
            _mm512_mask_storeu_epi32(panel + (i + j) * width + lane, first_lanes(lanes), r[j]);
        }
    }
}

/* 16 rows of a panel, rows contiguous. */
static void pack_strided(const oct_fma_source *s, const oct_code_table *table, int64_t row,
                         int64_t width, int64_t lane, int64_t k, int64_t kc, float *panel)
{
    const int64_t lanes = width - lane < LANES ? width - lane : LANES;
    const int64_t rows = s->rows - row - lane < lanes ? s->rows - row - lane : lanes;
    const __mmask16 inside = rows > 0 ? first_lanes(rows) : (__mmask16)0;
    const oct_quantized_matrix *q = s->codes;
    const int64_t ld = q ? q->ld : s->ld;
    _Alignas(64) float scale[LANES] = {0};
    for (int64_t i = 0; i < kc; i++) {
        __m512 x;
        const int64_t at = (k + i) * ld + row + lane;
        prefetch_element(s, at + AHEAD * ld);
        oct_prefetch(panel + (i + LANES) * width + lane);
        if (!q) {
            x = load_dense(s, inside, at);
        } else {
            x = decode(table, inside, q->codes + at);
            if (q->scales && (i == 0 || (k + i) % MX_BLOCK == 0))
                for (int64_t j = 0; j < rows; j++)
                    scale[j] = mx_scale(q, row + lane + j, (k + i) / MX_BLOCK);
            if (q->scales)
                x = _mm512_maskz_mul_ps(inside, x, _mm512_load_ps(scale));
        }
        _mm512_mask_storeu_ps(panel + i * width + lane, first_lanes(lanes), x);
    }
}

static void fma_pack(const oct_fma_source *source, const oct_code_table *table, int64_t row,
                     int64_t width, int64_t k, int64_t kc, float *panel)
{
    const bool contiguous = source->codes ? source->codes->k_contiguous : source->k_contiguous;
    for (int64_t lane = 0; lane < width; lane += LANES) {
        if (contiguous)
            pack_contiguous(source, table, row, width, lane, k, kc, panel);
        else
            pack_strided(source, table, row, width, lane, k, kc, panel);
    }
}

/* The accumulators must stay in registers: 28 of 32. */
static void fma_tile(int64_t kc, const float *a, const float *b, float *c)
{
    __m512 sum[MR][2];
#pragma GCC unroll 14
    for (int i = 0; i < MR; i++) {
        sum[i][0] = _mm512_loadu_ps(c + i * NR);
        sum[i][1] = _mm512_loadu_ps(c + i * NR + 16);
    }
    for (int64_t k = 0; k < kc; k++) {
        const __m512 b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + 16);
        _mm_prefetch((const char *)(a + 64 * MR), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + 32 * NR), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + 32 * NR + 16), _MM_HINT_T0);
#pragma GCC unroll 14
        for (int i = 0; i < MR; i++) {
            const __m512 x = _mm512_set1_ps(a[i]);
            sum[i][0] = _mm512_fmadd_ps(x, b0, sum[i][0]);
            sum[i][1] = _mm512_fmadd_ps(x, b1, sum[i][1]);
        }
        a += MR;
        b += NR;
    }
#pragma GCC unroll 14
    for (int i = 0; i < MR; i++) {
        _mm512_storeu_ps(c + i * NR, sum[i][0]);
        _mm512_storeu_ps(c + i * NR + 16, sum[i][1]);
    }
}

static __m512 canonical(__m512 x)
{
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(_mm512_castps_si512(x), nan, _mm512_set1_epi32(0x7fc00000)));
}

/* The BF16 of each lane in its low 16 bits; x holds no NaN but 7fc00000. */
static __m512i bf16_bits(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    return _mm512_srli_epi32(_mm512_add_epi32(bits, up), 16);
}

/* 16 elements of a chain, from column `col` of C on, as they are before the rounding to BF16. */
static inline __m512 finished(const oct_gemm_finish *finish, const float *c, int64_t col,
                              __mmask16 lanes)
{
    __m512 y = _mm512_loadu_ps(c);
    if (finish->scaled)
        y = _mm512_mul_ps(_mm512_mul_ps(y, _mm512_set1_ps(finish->left_scale)),
                          _mm512_set1_ps(finish->right_scale));
    if (finish->out->bias)
        y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(lanes, finish->out->bias + col));
    return canonical(y);
}

static void finish_f32(const oct_gemm_out *out, float *target, __mmask16 lanes, __m512 y)
{
    if (out->round_bf16)
        y = _mm512_castsi512_ps(_mm512_slli_epi32(bf16_bits(y), 16));
    if (out->store == OCT_GEMM_FOLD)
        y = canonical(_mm512_add_ps(_mm512_maskz_loadu_ps(lanes, target), y));
    _mm512_mask_storeu_ps(target, lanes, y);
}

static void finish_tile(const oct_gemm_finish *finish, const float *c, int64_t row, int64_t rows,
                        int64_t col, int64_t cols)
{
    const oct_gemm_out *out = finish->out;
    const __mmask16 low = first_lanes(cols), high = first_lanes(cols < LANES ? 0 : cols - LANES);
    int64_t at = row * out->ld + col;
    for (int64_t i = 0; i < rows; i++, c += NR, at += out->ld) {
        const __m512 first = finished(finish, c, col, low);
        const __m512 second = finished(finish, c + LANES, col + LANES, high);
        if (out->dtype == OCT_DTYPE_BF16) {
            const __m256i words = _mm512_cvtepi32_epi16(bf16_bits(first));
            const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(words),
                                                    _mm512_cvtepi32_epi16(bf16_bits(second)), 1);
            _mm512_mask_storeu_epi16((uint16_t *)out->data + at, _mm512_kunpackw(high, low), both);
        } else {
            finish_f32(out, (float *)out->data + at, low, first);
            finish_f32(out, (float *)out->data + at + LANES, high, second);
        }
    }
}

void oct_gemm_kernels_avx512(oct_gemm_kernels *kernels)
{
    kernels->fma_pack = fma_pack;
    kernels->fma_tile = fma_tile;
    kernels->finish_tile = finish_tile;
}

#endif
