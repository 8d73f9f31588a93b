/* The inner loops of both products in scalar C: what every other version must reproduce bit for
 * bit. */
#include "kernels/gemm_blocks.h"

#include <math.h>
#include <string.h>

#include "numeric/bf16.h"
#include "numeric/e8m0.h"

static float source_element(const oct_fma_source *s, const oct_code_table *table, int64_t r,
                            int64_t i)
{
    if (!s->codes) {
        const int64_t at = s->k_contiguous ? r * s->ld + i : i * s->ld + r;
        if (s->dtype == OCT_DTYPE_F32)
            return ((const float *)s->data)[at];
        return oct_bf16_to_f32(((const uint16_t *)s->data)[at]);
    }
    const oct_quantized_matrix *q = s->codes;
    const float x = table->value[q->codes[q->k_contiguous ? r * q->ld + i : i * q->ld + r]];
    if (!q->scales)
        return x;
    const int64_t b = i / 32;
    const int64_t at = q->k_contiguous ? (r * ((q->k + 63) / 64) + b / 2) * 2 + b % 2
                                       : (b / 2 * q->scale_ld + r) * 2 + b % 2;
    return x * oct_e8m0_decode(q->scales[at]);
}

static void fma_pack(const oct_fma_source *source, const oct_code_table *table, int64_t row,
                     int64_t width, int64_t k, int64_t kc, float *panel)
{
    for (int64_t i = 0; i < kc; i++)
        for (int64_t r = 0; r < width; r++)
            panel[i * width + r] =
                row + r < source->rows ? source_element(source, table, row + r, k + i) : 0.0f;
}

static void fma_tile(int64_t kc, const float *a, const float *b, float *c)
{
    for (int64_t k = 0; k < kc; k++)
        for (int64_t i = 0; i < OCT_GEMM_MR; i++)
            for (int64_t j = 0; j < OCT_GEMM_NR; j++)
                c[i * OCT_GEMM_NR + j] =
                    fmaf(a[k * OCT_GEMM_MR + i], b[k * OCT_GEMM_NR + j], c[i * OCT_GEMM_NR + j]);
}

static void gather_quads(const oct_quantized_matrix *q, int64_t row, int64_t width, int64_t lanes,
                         int64_t k, uint8_t *quads)
{
    const int64_t rows = q->rows - row < width ? q->rows - row : width;
    const int64_t kc = q->k - k < OCT_GEMM_GROUP ? q->k - k : OCT_GEMM_GROUP;
    if (rows < lanes || kc < OCT_GEMM_GROUP)
        memset(quads, 0, (size_t)(lanes * OCT_GEMM_GROUP));
    if (q->k_contiguous) {
        for (int64_t r = 0; r < rows; r++) {
            const uint8_t *from = q->codes + (row + r) * q->ld + k;
            for (int64_t i = 0; i < kc; i++)
                quads[(i / 4 * lanes + r) * 4 + i % 4] = from[i];
        }
        return;
    }
    for (int64_t i = 0; i < kc; i++) {
        const uint8_t *from = q->codes + (k + i) * q->ld + row;
        for (int64_t r = 0; r < rows; r++)
            quads[(i / 4 * lanes + r) * 4 + i % 4] = from[r];
    }
}

static void bounds_mxfp8(const oct_code_table *table, const uint8_t *quads, int64_t stride,
                         oct_group_bounds *bounds)
{
    memset(bounds, 0, sizeof *bounds);
    for (int64_t k = 0; k < OCT_GEMM_GROUP; k++)
        for (int64_t r = 0; r < OCT_GEMM_LANES; r++) {
            const uint8_t magnitude = quads[k / 4 * stride + 4 * r + k % 4] & 0x7f;
            const uint32_t n = table->bound[magnitude];
            bounds->norm[k / 32][r] += n * n;
            bounds->nonfinite |= magnitude == 0x7f;
        }
}

static void bounds_hif8(const oct_code_table *table, const uint8_t *quads, int64_t stride,
                        oct_group_bounds *bounds)
{
    memset(bounds, 0, sizeof *bounds);
    for (int64_t r = 0; r < OCT_GEMM_LANES; r++) {
        int top = -128;
        for (int64_t k = 0; k < OCT_GEMM_GROUP; k++) {
            const uint8_t code = quads[k / 4 * stride + 4 * r + k % 4];
            const int exponent = table->exponent[code & 0x7f] + 3;
            if (table->mantissa[code & 0x7f] && exponent > top)
                top = exponent;
            bounds->nonfinite |= code == 0x80 || (code & 0x7f) == 0x6f;
        }
        bounds->top[r] = top;
        for (int64_t k = 0; k < OCT_GEMM_GROUP; k++) {
            const uint8_t magnitude = quads[k / 4 * stride + 4 * r + k % 4] & 0x7f;
            const uint32_t q = table->mantissa[magnitude];
            if (q == 0)
                continue;
            /* n = ceil(|x| * 2^(6 - top)), |x| = q * 2^(exponent of the top bit - 3). */
            const int below = top - (table->exponent[magnitude] + 3); /* >= 0 */
            const int right = below < 24 ? below : 24;
            const uint32_t n = ((q << 3) + (1u << right) - 1) >> right;
            bounds->norm[0][r] += n * n;
        }
    }
}

static float power_of_two(int exponent) /* -149 .. 127 */
{
    return exponent >= -126 ? oct_f32_from_bits((uint32_t)(exponent + 127) << 23)
                            : oct_f32_from_bits(1u << (exponent + 149));
}

static int leading_zeros(uint32_t x) /* x > 0 */
{
    return __builtin_clz(x);
}

/* Gives row r the unit 2^exponent. */
static void set_unit(oct_group_units *units, int64_t r, int exponent)
{
    units->exponent[r] = exponent;
    units->unit[r] = power_of_two(exponent);
    if (exponent < units->lowest)
        units->lowest = exponent;
    if (exponent > units->highest)
        units->highest = exponent;
}

/* Units of 16 rows of zeros. */
static void clear_units(oct_group_units *units)
{
    *units = (oct_group_units){.lowest = INT16_MAX, .highest = INT16_MIN};
    for (int64_t r = 0; r < OCT_GEMM_LANES; r++)
        units->unit[r] = 1.0f;
}

static void units_mxfp8(const oct_group_bounds *bounds, const uint8_t scales[OCT_GEMM_LANES][2],
                        oct_group_units *units)
{
    clear_units(units);
    for (int64_t r = 0; r < OCT_GEMM_LANES; r++) {
        const uint32_t norm[2] = {bounds->norm[0][r], bounds->norm[1][r]};
        const int exponents[2] = {scales[r][0] - 127, scales[r][1] - 127};
        if ((norm[0] | norm[1]) == 0)
            continue;
        int top = -128;
        for (int j = 0; j < 2; j++)
            if (norm[j] && exponents[j] > top)
                top = exponents[j];
        uint32_t sum = 0;
        for (int j = 0; j < 2; j++) {
            if (norm[j] == 0)
                continue;
            const int below = top - exponents[j];
            const int right = 2 * below < 30 ? 2 * below : 30;
            sum += (norm[j] + (1u << right) - 1) >> right;
        }
        const int room = (leading_zeros(16 * sum) - 1) >> 1;
        const int up = room < 6 ? room : 6;
        set_unit(units, r, top - up);
        for (int j = 0; j < 2; j++)
            units->shift[j][r] = (int16_t)(norm[j] ? up - (top - exponents[j]) : 0);
    }
}

static void units_hif8(const oct_group_bounds *bounds, oct_group_units *units)
{
    clear_units(units);
    for (int64_t r = 0; r < OCT_GEMM_LANES; r++) {
        if (bounds->norm[0][r] == 0)
            continue;
        const int room = (leading_zeros(bounds->norm[0][r]) - 1) >> 1;
        set_unit(units, r, bounds->top[r] - 6 - (room < 8 ? room : 8));
        units->shift[0][r] = units->shift[1][r] = (int16_t)-units->exponent[r];
    }
}

static void mantissas(const oct_code_table *table, const uint8_t *quads, int64_t stride,
                      const int16_t shift[2][OCT_GEMM_LANES], int64_t lanes, int16_t *out,
                      int64_t out_stride, uint32_t lost[OCT_GEMM_GROUP / 2])
{
    memset(lost, 0, OCT_GEMM_GROUP / 2 * sizeof *lost);
    for (int64_t k = 0; k < OCT_GEMM_GROUP; k++)
        for (int64_t r = 0; r < lanes; r++) {
            const uint8_t code = quads[k / 4 * stride + 4 * r + k % 4];
            const int32_t q = table->mantissa[code & 0x7f];
            const int left = table->exponent[code & 0x7f] + shift[k / 32][r];
            int32_t m = 0;
            if (q != 0) {
                if (left >= 0)
                    m = q << left;
                else if (left > -4 && (q & ((1 << -left) - 1)) == 0)
                    m = q >> -left;
                else
                    lost[k / 2] |= 1u << (2 * r + k % 2);
            }
            out[k / 2 * out_stride + 2 * r + k % 2] = (int16_t)(code & 0x80 ? -m : m);
        }
}

static uint64_t lost_elements(const uint32_t lost[OCT_GEMM_GROUP / 2], int64_t *count)
{
    uint64_t elements = 0;
    for (int64_t p = 0; p < OCT_GEMM_GROUP / 2; p++)
        for (int64_t bit = 0; bit < 32; bit++) {
            const uint64_t one = lost[p] >> bit & 1;
            elements |= one << (2 * p + bit % 2);
            *count += (int64_t)one;
        }
    return elements;
}

static void integer_tile(int64_t groups, const int16_t *a, const int16_t *b, const float *a_unit,
                         const float *b_unit, float *c)
{
    for (int64_t g = 0; g < groups; g++)
        for (int64_t i = 0; i < OCT_GEMM_MR; i++)
            for (int64_t j = 0; j < OCT_GEMM_NR; j++) {
                uint32_t dot = 0; /* sums may pass through values outside int32, the end does not */
                for (int64_t p = g * 32; p < g * 32 + 32; p++) {
                    const int16_t *x = a + (p * OCT_GEMM_MR + i) * 2;
                    const int16_t *y = b + (p * OCT_GEMM_NR + j) * 2;
                    dot += (uint32_t)(x[0] * y[0]);
                    dot += (uint32_t)(x[1] * y[1]);
                }
                const float unit = a_unit[g * OCT_GEMM_MR + i] * b_unit[g * OCT_GEMM_NR + j];
                float *out = c + i * OCT_GEMM_NR + j;
                *out = fmaf((float)(int32_t)dot, unit, *out);
            }
}

static void left_remainders(const oct_remainder_list *left, const int16_t *b, const float *b_unit,
                            float *c)
{
    for (const oct_remainder *x = left->entries; x < left->entries + left->count; x++) {
        float *row = c + x->row * OCT_GEMM_NR;
        const float *unit = b_unit + x->k / OCT_GEMM_GROUP * OCT_GEMM_NR;
        for (int64_t j = 0; j < OCT_GEMM_NR; j++) {
            const float m = (float)b[(x->k / 2 * OCT_GEMM_NR + j) * 2 + x->k % 2];
            row[j] = fmaf(m, x->value * unit[j], row[j]);
        }
    }
}

/* Remainder times remainder, k ascending. */
static void cross_remainders(const oct_remainder_list *right, const oct_remainder_list *left,
                             float *d)
{
    for (const oct_remainder *y = right->entries; y < right->entries + right->count; y++) {
        if (!(left->present[y->k / 64] >> y->k % 64 & 1))
            continue;
        for (const oct_remainder *x = left->entries; x < left->entries + left->count; x++) {
            if (x->k != y->k)
                continue;
            float *target = d + x->row * OCT_GEMM_NR + y->row;
            *target = fmaf(x->value, y->value, *target);
        }
    }
}

static void tile_remainders(const oct_remainder_list *right, const oct_remainder_list *left,
                            const int16_t *a, const float *a_unit, float *c)
{
    float d[OCT_GEMM_TILE] = {0};
    for (const oct_remainder *y = right->entries; y < right->entries + right->count; y++) {
        const float *unit = a_unit + y->k / OCT_GEMM_GROUP * OCT_GEMM_MR;
        for (int64_t i = 0; i < OCT_GEMM_MR; i++) {
            const float m = (float)a[(y->k / 2 * OCT_GEMM_MR + i) * 2 + y->k % 2];
            float *target = d + i * OCT_GEMM_NR + y->row;
            *target = fmaf(m, y->value * unit[i], *target);
        }
    }
    if (left->count > 0)
        cross_remainders(right, left, d);
    for (int64_t i = 0; i < OCT_GEMM_TILE; i++)
        c[i] += d[i];
}

static void right_remainders(const oct_remainder_list *right, const oct_tile_column *column)
{
    for (int64_t t = 0; t < column->tiles; t++)
        tile_remainders(right, &column->left[t], column->a + t * column->a_stride,
                        column->a_unit + t * column->unit_stride, column->c + t * OCT_GEMM_TILE);
}

/* One NaN for all: which payload survives an FMA depends on its operand order. */
static float canonical(float c)
{
    return isnan(c) ? oct_f32_from_bits(0x7fc00000u) : c;
}

static void finish_tile(const oct_gemm_finish *finish, const float *c, int64_t row, int64_t rows,
                        int64_t col, int64_t cols)
{
    const oct_gemm_out *out = finish->out;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float y = c[i * OCT_GEMM_NR + j];
            const int64_t at = (row + i) * out->ld + col + j;
            if (finish->scaled)
                y = (y * finish->left_scale) * finish->right_scale;
            if (out->bias)
                y += out->bias[col + j];
            y = canonical(y);
            if (out->dtype == OCT_DTYPE_BF16) {
                ((uint16_t *)out->data)[at] = oct_bf16_from_f32(y);
                continue;
            }
            float *target = (float *)out->data + at;
            if (out->round_bf16)
                y = oct_bf16_round(y);
            *target = out->store == OCT_GEMM_FOLD ? canonical(*target + y) : y;
        }
}

void oct_gemm_kernels_ref(oct_gemm_kernels *kernels)
{
    kernels->fma_pack = fma_pack;
    kernels->fma_tile = fma_tile;
    kernels->gather_quads = gather_quads;
    kernels->bounds_mxfp8 = bounds_mxfp8;
    kernels->bounds_hif8 = bounds_hif8;
    kernels->units_mxfp8 = units_mxfp8;
    kernels->units_hif8 = units_hif8;
    kernels->mantissas = mantissas;
    kernels->lost_elements = lost_elements;
    kernels->integer_tile = integer_tile;
    kernels->left_remainders = left_remainders;
    kernels->right_remainders = right_remainders;
    kernels->finish_tile = finish_tile;
}
