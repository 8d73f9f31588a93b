/* The definition of the elementwise inner loops; contracts in kernels/elementwise_table.h. */
#include <math.h>
#include <string.h>

#include "kernels/elementwise.h"
#include "numeric/bf16.h"
#include "numeric/fmath.h"

enum { LANES = 16 };

static float load(oct_dtype dtype, const void *x, int64_t i)
{
    return dtype == OCT_DTYPE_BF16 ? oct_bf16_to_f32(((const uint16_t *)x)[i])
                                   : ((const float *)x)[i];
}

static void store(oct_dtype dtype, void *y, int64_t i, float value)
{
    if (dtype == OCT_DTYPE_BF16)
        ((uint16_t *)y)[i] = oct_bf16_from_f32(value);
    else
        ((float *)y)[i] = value;
}

static float round_to(oct_dtype dtype, float value)
{
    return dtype == OCT_DTYPE_BF16 ? oct_bf16_round(value) : value;
}

static float sum_lanes(float lane[LANES])
{
    for (int width = LANES / 2; width >= 1; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] += lane[j + width];
    return lane[0];
}

static void exp_ref(int64_t n, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = oct_expf(x[i]);
}

static void log_ref(int64_t n, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = oct_logf(x[i]);
}

static void sigmoid_ref(int64_t n, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = oct_sigmoidf(x[i]);
}

static void add_ref(oct_dtype dtype, int64_t n, const void *a, const void *b, void *y)
{
    for (int64_t i = 0; i < n; i++)
        store(dtype, y, i, load(dtype, a, i) + load(dtype, b, i));
}

static void swiglu_ref(oct_dtype dtype, int64_t n, const void *gate, const void *up, void *y)
{
    for (int64_t i = 0; i < n; i++) {
        const float g = load(dtype, gate, i);
        const float s = round_to(dtype, g * oct_sigmoidf(g));
        store(dtype, y, i, s * load(dtype, up, i));
    }
}

static void swiglu_backward_ref(oct_dtype dtype, int64_t n, const void *dy, const void *gate,
                                const void *up, void *dgate, void *dup)
{
    for (int64_t i = 0; i < n; i++) {
        const float g = load(dtype, gate, i), u = load(dtype, up, i), d = load(dtype, dy, i);
        const float sig = oct_sigmoidf(g);
        const float s = round_to(dtype, g * sig);
        const float ds = round_to(dtype, d * u);
        store(dtype, dup, i, d * s);
        store(dtype, dgate, i, ds * (sig * fmaf(g, 1.0f - sig, 1.0f)));
    }
}

static float rmsnorm_ref(oct_dtype dtype, int64_t n, const void *x, const void *w, float eps,
                         void *y)
{
    float lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        const float value = load(dtype, x, i);
        lane[i % LANES] = fmaf(value, value, lane[i % LANES]);
    }
    const float rstd = 1.0f / sqrtf(sum_lanes(lane) / (float)n + eps);
    for (int64_t i = 0; i < n; i++) {
        const float normalised = round_to(dtype, load(dtype, x, i) * rstd);
        store(dtype, y, i, normalised * load(dtype, w, i));
    }
    return rstd;
}

static void rmsnorm_backward_ref(oct_dtype dtype, int64_t n, const void *dy, const void *x,
                                 const void *w, float rstd, const void *add_to, void *dx)
{
    float lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        const float g = round_to(dtype, load(dtype, dy, i) * load(dtype, w, i));
        lane[i % LANES] = fmaf(g, load(dtype, x, i) * rstd, lane[i % LANES]);
    }
    const float c = sum_lanes(lane) / (float)n;
    for (int64_t i = 0; i < n; i++) {
        const float g = round_to(dtype, load(dtype, dy, i) * load(dtype, w, i));
        float d = rstd * fmaf(-c, load(dtype, x, i) * rstd, g);
        if (add_to)
            d = load(dtype, add_to, i) + round_to(dtype, d);
        store(dtype, dx, i, d);
    }
}

static void rmsnorm_dw_ref(oct_dtype dtype, int64_t n, const void *dy, const void *x, float rstd,
                           float *sums)
{
    for (int64_t i = 0; i < n; i++)
        sums[i] = fmaf(load(dtype, dy, i), round_to(dtype, load(dtype, x, i) * rstd), sums[i]);
}

static void accumulate_ref(oct_dtype dtype, int64_t n, const void *x, float *sums)
{
    for (int64_t i = 0; i < n; i++)
        sums[i] += load(dtype, x, i);
}

static void sum_rows_ref(oct_dtype dtype, int64_t n, int64_t count, const void *x, int64_t stride,
                         const int32_t *rows, const float *weights, const void *addend, void *y)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (int64_t k = 0; k < count; k++) {
            const float value = load(dtype, x, (rows ? rows[k] : k) * stride + i);
            const float term = weights ? value * weights[k] : value;
            sum = k == 0 ? term : sum + term;
        }
        if (addend)
            sum = round_to(dtype, sum) + load(dtype, addend, i);
        store(dtype, y, i, sum);
    }
}

static void scale_ref(oct_dtype dtype, int64_t n, float factor, const void *x, void *y)
{
    for (int64_t i = 0; i < n; i++)
        store(dtype, y, i, factor * load(dtype, x, i));
}

static float dot_ref(oct_dtype dtype, int64_t n, const void *a, const void *b)
{
    float lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % LANES] = fmaf(load(dtype, a, i), load(dtype, b, i), lane[i % LANES]);
    return sum_lanes(lane);
}

static void rope_ref(oct_dtype dtype, int64_t half, const void *x, const float *cos,
                     const float *sin, bool interleave, bool inverse, void *y)
{
    for (int64_t i = 0; i < half; i++) {
        /* Where the pair is in the layout of the model's projections, and in split halves. */
        const int64_t first = interleave ? 2 * i : i, second = interleave ? 2 * i + 1 : i + half;
        const float a = load(dtype, x, inverse ? i : first);
        const float b = load(dtype, x, inverse ? i + half : second);
        const float c = cos[i], s = inverse ? -sin[i] : sin[i];
        store(dtype, y, inverse ? first : i, round_to(dtype, a * c) - round_to(dtype, b * s));
        store(dtype, y, inverse ? second : i + half,
              round_to(dtype, b * c) + round_to(dtype, a * s));
    }
}

static float cross_entropy_ref(oct_dtype dtype, int64_t n, void *x, int64_t target, float scale)
{
    float lane[LANES];
    for (int j = 0; j < LANES; j++)
        lane[j] = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        const float value = load(dtype, x, i);
        lane[i % LANES] = value > lane[i % LANES] ? value : lane[i % LANES];
    }
    for (int width = LANES / 2; width >= 1; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] = lane[j + width] > lane[j] ? lane[j + width] : lane[j];
    const float max = lane[0];

    for (int j = 0; j < LANES; j++)
        lane[j] = 0.0f;
    for (int64_t i = 0; i < n; i++)
        lane[i % LANES] += oct_expf(load(dtype, x, i) - max);
    const float sum = sum_lanes(lane);
    const float loss = (max + oct_logf(sum)) - load(dtype, x, target);

    if (scale > 0.0f) {
        const float inverse_sum = 1.0f / sum;
        for (int64_t i = 0; i < n; i++) {
            const float p = oct_expf(load(dtype, x, i) - max) * inverse_sum;
            store(dtype, x, i, (i == target ? p - 1.0f : p) * scale);
        }
    }
    return loss;
}

static void store_row_ref(const oct_gemm_out *out, int64_t n, const float *c, void *dst)
{
    for (int64_t i = 0; i < n; i++) {
        const float value = out->round_bf16 ? oct_bf16_round(c[i]) : c[i];
        if (out->store == OCT_GEMM_FOLD)
            ((float *)dst)[i] += value;
        else
            store(out->dtype, dst, i, value);
    }
}

static void widen_ref(int64_t n, const uint16_t *x, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = oct_bf16_to_f32(x[i]);
}

static void narrow_ref(int64_t n, const float *x, uint16_t *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = oct_bf16_from_f32(x[i]);
}

static void adamw_ref(const oct_adamw_constants *constants, int64_t n, const float *grad, float *w,
                      float *m, float *v)
{
    const oct_adamw_constants k = *constants;
    for (int64_t i = 0; i < n; i++) {
        const float g = grad[i] * k.grad_scale;
        m[i] = fmaf(k.beta1, m[i], k.gain1 * g);
        v[i] = fmaf(k.beta2, v[i], k.gain2 * g * g);
        const float update = m[i] / (sqrtf(v[i]) / k.root_bias2 + k.eps);
        w[i] = fmaf(-k.step_size, update, w[i] * k.decay);
    }
}

static double sum_squares_ref(int64_t n, const float *x)
{
    double lane[LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % LANES] += (double)x[i] * (double)x[i];
    for (int width = LANES / 2; width >= 1; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] += lane[j + width];
    return lane[0];
}

/* --- initial weights ----------------------------------------------------------------------------
 */

/* Short functions, exact to 2e-10: a model has billions of elements. Without fma, which is a
 * library call where the instruction may be missing. */

/* ln((w + 0.5) 2^-32); the half step keeps it finite: |x| < 6.8 std. */
static double log_uniform(uint32_t w)
{
    const double u = (double)w + 0.5;
    uint64_t bits;
    memcpy(&bits, &u, sizeof bits);
    /* u = 2^e m, sqrt(1/2) <= m < sqrt(2); ln m = 2 atanh(s). */
    static const uint64_t root = 0x3fe6a09e667f3bcdu; /* sqrt(1/2) */
    bits -= root;
    const double e = (double)((int64_t)bits >> 52) - 32.0;
    bits = (bits & 0xfffffffffffffu) + root;
    double m;
    memcpy(&m, &bits, sizeof m);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    const double series =
        1.0 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11)))));
    return e * 0x1.62e42fefa39efp-1 + 2.0 * s * series;
}

/* Cosine and sine of w 2^-32 turns. */
static void circle(uint32_t w, double *cosine, double *sine)
{
    const uint32_t quadrant = (w + 0x20000000u) >> 30;
    /* |x| <= pi/4 */
    const double x = (double)(int32_t)(w - (quadrant << 30)) * (0x1.921fb54442d18p+2 * 0x1p-32);
    const double z = x * x;
    const double c =
        1.0 + z * (-1.0 / 2 +
                   z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800)))));
    const double s =
        x * (1.0 +
             z * (-1.0 / 6 + z * (1.0 / 120 +
                                  z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800))))));
    /* Tables, not branches: the quadrant cannot be predicted. */
    static const double sign[2] = {1.0, -1.0};
    const double value[2] = {c, s};
    *cosine = value[quadrant & 1] * sign[(quadrant + 1) >> 1 & 1];
    *sine = value[~quadrant & 1] * sign[quadrant >> 1 & 1];
}

static void normal_block(oct_rng stream, uint64_t block, double std, float out[OCT_NORMAL_WORDS])
{
    uint32_t words[OCT_NORMAL_WORDS];
    oct_rng_block(stream, block, words);
    for (int pair = 0; pair < OCT_NORMAL_WORDS; pair += 2) {
        double cosine, sine;
        const double radius = sqrt(-2.0 * log_uniform(words[pair])) * std;
        circle(words[pair + 1], &cosine, &sine);
        out[pair] = (float)(radius * cosine);
        out[pair + 1] = (float)(radius * sine);
    }
}

static void normal_ref(oct_rng stream, uint64_t first, int64_t blocks, double std, float *out)
{
    for (int64_t b = 0; b < blocks; b++)
        normal_block(stream, first + (uint64_t)b, std, out + b * OCT_NORMAL_WORDS);
}

void oct_elementwise_kernels_ref(oct_elementwise_kernels *kernels)
{
    *kernels = (oct_elementwise_kernels){
        .exp = exp_ref,
        .log = log_ref,
        .sigmoid = sigmoid_ref,
        .add = add_ref,
        .swiglu = swiglu_ref,
        .swiglu_backward = swiglu_backward_ref,
        .rmsnorm = rmsnorm_ref,
        .rmsnorm_backward = rmsnorm_backward_ref,
        .rmsnorm_dw = rmsnorm_dw_ref,
        .accumulate = accumulate_ref,
        .sum_rows = sum_rows_ref,
        .scale = scale_ref,
        .dot = dot_ref,
        .rope = rope_ref,
        .cross_entropy = cross_entropy_ref,
        .store_row = store_row_ref,
        .widen = widen_ref,
        .narrow = narrow_ref,
        .adamw = adamw_ref,
        .sum_squares = sum_squares_ref,
        .normal = normal_ref,
    };
}
