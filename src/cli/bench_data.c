#include "cli/bench_data.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/size.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/e8m0.h"
#include "numeric/hif8.h"

/* --- data ------------------------------------------------------------------------------------ */

/* The sum of four uniforms: bell shaped, mean 0, variance 1. */
static float bell(oct_rng stream, int64_t i)
{
    const uint64_t bits = oct_rng_u64(stream, (uint64_t)i);
    float sum = -2.0f;
    for (int part = 0; part < 4; part++)
        sum += (float)(bits >> (16 * part) & 0xffff) * 0x1p-16f;
    return sum * 1.7320508f;
}

static float adversarial(oct_rng stream, int64_t row, int64_t col, int64_t cols)
{
    if ((row + col) % 32 == 0)
        return 448.0f;
    return (float)(2 * oct_rng_below(stream, (uint64_t)(row * cols + col), 4) + 1) * 0x1p-9f;
}

oct_status oct_bench_fill(oct_arena *arena, oct_bench_data kind, const char *name, int64_t rows,
                          int64_t cols, float std, oct_tensor *out, oct_err *err)
{
    OCT_TRY(oct_tensor_new_2d(arena, OCT_DTYPE_BF16, rows, cols, out, err));
    const oct_rng a = oct_rng_stream(0, name), b = oct_rng_stream(1, name);
    uint16_t *data = out->data;
    for (int64_t r = 0; r < rows; r++) {
        float scale = std;
        if (kind == OCT_BENCH_LOG_NORMAL_1 || kind == OCT_BENCH_LOG_NORMAL_2)
            scale *= expf((kind == OCT_BENCH_LOG_NORMAL_1 ? 1.0f : 2.0f) * bell(b, r));
        for (int64_t c = 0; c < cols; c++) {
            const int64_t i = r * cols + c;
            float value = kind == OCT_BENCH_ADVERSARIAL ? adversarial(a, r, c, cols) : bell(a, i);
            if (kind == OCT_BENCH_SWIGLU)
                value = value / (1.0f + expf(-value)) * bell(b, i);
            data[i] = oct_bf16_from_f32(value * scale);
        }
    }
    return OCT_OK;
}

/* --- checks ---------------------------------------------------------------------------------- */

oct_fma_source oct_bench_plain(const oct_tensor *tensor, bool k_contiguous)
{
    const int64_t rows = tensor->shape[0], cols = tensor->shape[1];
    return (oct_fma_source){.data = tensor->data,
                            .dtype = tensor->dtype,
                            .ld = cols,
                            .k_contiguous = k_contiguous,
                            .rows = k_contiguous ? rows : cols,
                            .k = k_contiguous ? cols : rows};
}

oct_fma_source oct_bench_codes(const oct_quantized_matrix *codes)
{
    return (oct_fma_source){.codes = codes, .rows = codes->rows, .k = codes->k};
}

static double stored(const void *data, oct_dtype dtype, int64_t i)
{
    return dtype == OCT_DTYPE_BF16 ? (double)oct_bf16_to_f32(((const uint16_t *)data)[i])
                                   : (double)((const float *)data)[i];
}

static double decoded(const oct_quantized_matrix *m, int64_t r, int64_t i)
{
    const uint8_t code = m->codes[m->k_contiguous ? r * m->ld + i : i * m->ld + r];
    if (!m->scales) /* HiF8 */
        return (double)oct_hif8_decode(code) * (double)m->scale;
    const int64_t block = i / 32;
    const int64_t pair =
        m->k_contiguous ? r * oct_ceil_div(m->k, 64) + block / 2 : block / 2 * m->scale_ld + r;
    return (double)oct_e4m3_decode(code) * (double)oct_e8m0_decode(m->scales[pair * 2 + block % 2]);
}

static double element(const oct_fma_source *side, int64_t r, int64_t i)
{
    if (side->codes)
        return decoded(side->codes, r, i);
    return stored(side->data, side->dtype,
                  side->k_contiguous ? r * side->ld + i : i * side->ld + r);
}

void oct_bench_poison(const oct_tensor *tensor)
{
    memset(tensor->data, 0xff, oct_tensor_bytes(tensor));
}

/* The corners, then steps through all residues. */
enum { SAMPLES = 96 };

static void sample(int s, int64_t rows, int64_t cols, int64_t *row, int64_t *col)
{
    if (s < 4) {
        *row = s & 1 ? rows - 1 : 0;
        *col = s & 2 ? cols - 1 : 0;
        return;
    }
    *row = s * (int64_t)7919 % rows;
    *col = s * (int64_t)104729 % cols;
}

oct_status oct_bench_check_product(const oct_fma_source *left, const oct_fma_source *right,
                                   const oct_tensor *c, const char *what, int64_t *checked,
                                   oct_err *err)
{
    const int64_t m = c->shape[0], n = c->shape[1], k = left->k;
    if (left->rows != m || right->rows != n || right->k != k || k < 1)
        return OCT_FAIL(err, OCT_E_KERNEL,
                        "%s is no product: left [%lld, %lld], right [%lld, %lld], result "
                        "[%lld, %lld] are required to fit",
                        what, (long long)left->rows, (long long)left->k, (long long)right->rows,
                        (long long)right->k, (long long)m, (long long)n);
    /* One rounding of the result, and those of a chain of FP32 sums. */
    const double rounding = c->dtype == OCT_DTYPE_BF16 ? 0x1p-8 : 0x1p-22, chain = 0x1p-16;
    int64_t nonzero = 0;
    for (int s = 0; s < SAMPLES; s++) {
        int64_t row = 0, col = 0;
        double sum = 0.0, magnitude = 0.0;
        sample(s, m, n, &row, &col);
        for (int64_t i = 0; i < k; i++) {
            const double product = element(left, row, i) * element(right, col, i);
            sum += product;
            magnitude += fabs(product);
        }
        const double found = stored(c->data, c->dtype, row * n + col);
        if (!(fabs(found - sum) <= rounding * fabs(sum) + chain * magnitude))
            return OCT_FAIL(err, OCT_E_KERNEL,
                            "%s is wrong at [%lld, %lld]: %.9g, %.9g is required", what,
                            (long long)row, (long long)col, found, sum);
        nonzero += found != 0.0;
    }
    if (nonzero == 0)
        return OCT_FAIL(err, OCT_E_KERNEL, "%s is zero everywhere, other values are required",
                        what);
    *checked += SAMPLES;
    return OCT_OK;
}

oct_status oct_bench_check_codes(const oct_quantized_matrix *codes, const oct_tensor *x,
                                 const char *what, int64_t *checked, oct_err *err)
{
    const oct_fma_source plain = oct_bench_plain(x, codes->k_contiguous);
    if (plain.rows != codes->rows || plain.k != codes->k || plain.k < 1)
        return OCT_FAIL(
            err, OCT_E_KERNEL, "%s has %lld vectors of %lld codes, %lld of %lld are required", what,
            (long long)codes->rows, (long long)codes->k, (long long)plain.rows, (long long)plain.k);
    double differences = 0.0, squares = 0.0;
    for (int s = 0; s < SAMPLES; s++) {
        int64_t row = 0, unused = 0;
        sample(s, plain.rows, plain.k, &row, &unused);
        for (int64_t i = 0; i < plain.k; i++) {
            const double is = element(&plain, row, i), has = decoded(codes, row, i);
            differences += (is - has) * (is - has);
            squares += is * is;
        }
    }
    /* 8 bits keep 3 to 5 of a value. */
    if (!(squares > 0.0) || !(differences <= 0.08 * 0.08 * squares))
        return OCT_FAIL(err, OCT_E_KERNEL,
                        "%s is no quantization of its input: relative difference %.3g, at most "
                        "0.08 is required",
                        what, squares > 0.0 ? sqrt(differences / squares) : 0.0);
    *checked += SAMPLES * plain.k;
    return OCT_OK;
}
