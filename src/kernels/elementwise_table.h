/* The table of inner loops of the elementwise operators. Included by kernels/elementwise.h only.
 *
 * All loops are serial; drivers cut the work into rows, columns or ranges. "act" arguments are F32
 * or BF16 elements as `dtype` says, widened to FP32 on load and rounded by oct_bf16_from_f32 on
 * store; round(x) is that rounding, or x itself for F32. Element counts may be 0. dst may be a
 * source at the same offset unless an entry says otherwise.
 *
 * A lane reduction over x[0..n): 16 lanes, lane j takes elements j, j+16, ... in ascending order;
 * then lane j += lane j+8 for j < 8, lane j += lane j+4 for j < 4, then +2, then +1. */
#ifndef OCT_KERNELS_ELEMENTWISE_TABLE_H
#define OCT_KERNELS_ELEMENTWISE_TABLE_H

/* FP32 constants of one AdamW step. */
typedef struct oct_adamw_constants {
    float grad_scale;
    float step_size, eps;             /* step_size = lr / bias1 */
    float decay;                      /* 1 - lr * weight_decay */
    float beta1, beta2, gain1, gain2; /* gain = 1 - beta */
    float root_bias2;                 /* sqrt(bias2) */
} oct_adamw_constants;

/* Numbers of a block of kernels->normal. */
enum { OCT_NORMAL_WORDS = 4 };

struct oct_elementwise_kernels {
    /* y[i] = f(x[i]), FP32, numeric/fmath.h. */
    void (*exp)(int64_t n, const float *x, float *y);
    void (*log)(int64_t n, const float *x, float *y);
    void (*sigmoid)(int64_t n, const float *x, float *y);

    /* y = round(a + b). */
    void (*add)(oct_dtype dtype, int64_t n, const void *a, const void *b, void *y);

    /* s = round(g * sigmoid(g)); y = round(s * up). */
    void (*swiglu)(oct_dtype dtype, int64_t n, const void *gate, const void *up, void *y);

    /* sig = sigmoid(g); dup = round(dy * round(g * sig)); d = round(dy * up);
     * dgate = round(d * (sig * fma(g, 1 - sig, 1))). */
    void (*swiglu_backward)(oct_dtype dtype, int64_t n, const void *dy, const void *gate,
                            const void *up, void *dgate, void *dup);

    /* rstd = 1 / sqrt(q / n + eps), q the lane reduction of fma(x, x, lane);
     * y = round(round(x * rstd) * w). Returns rstd. */
    float (*rmsnorm)(oct_dtype dtype, int64_t n, const void *x, const void *w, float eps, void *y);

    /* g = round(dy * w); xh = x * rstd; c = (lane reduction of fma(g, xh, lane)) / n;
     * dx = round(rstd * fma(-c, xh, g)), then round(add_to + dx) if add_to is not NULL. */
    void (*rmsnorm_backward)(oct_dtype dtype, int64_t n, const void *dy, const void *x,
                             const void *w, float rstd, const void *add_to, void *dx);

    /* sums[i] = fma(dy[i], round(x[i] * rstd), sums[i]): one row's part of dw. */
    void (*rmsnorm_dw)(oct_dtype dtype, int64_t n, const void *dy, const void *x, float rstd,
                       float *sums);

    /* sums[i] += x[i]. */
    void (*accumulate)(oct_dtype dtype, int64_t n, const void *x, float *sums);

    /* y = round(sum over k < count ascending of r_k * weights[k]), product and sum rounded apart,
     * the sum starting with its first term; weights NULL: of r_k. Then y = round(y + addend) if
     * addend is not NULL. Row r_k starts at element rows[k] * stride of x, or k * stride if rows is
     * NULL. count >= 1; y may be addend but not a row of x. */
    void (*sum_rows)(oct_dtype dtype, int64_t n, int64_t count, const void *x, int64_t stride,
                     const int32_t *rows, const float *weights, const void *addend, void *y);

    /* y = round(factor * x). */
    void (*scale)(oct_dtype dtype, int64_t n, float factor, const void *x, void *y);

    /* The lane reduction of fma(a, b, lane). */
    float (*dot)(oct_dtype dtype, int64_t n, const void *a, const void *b);

    /* One slice of dim = 2 half elements. Forward: (a, b) = (x[2i], x[2i+1]) if interleave, else
     * (x[i], x[i+half]); y[i] = round(round(a*c) - round(b*s)), y[i+half] = round(round(b*c) +
     * round(a*s)). Inverse: (a, b) = (x[i], x[i+half]) and s negated, written where forward reads.
     * y may be x only if interleave is false. */
    void (*rope)(oct_dtype dtype, int64_t half, const void *x, const float *cos, const float *sin,
                 bool interleave, bool inverse, void *y);

    /* m = lane maximum (lane = x > lane ? x : lane, from -Inf: NaN is passed over here and enters
     * by the sum), s = lane reduction of lane + exp(x - m); returns (m + log(s)) - x[target]. If
     * scale > 0, x = round((exp(x - m) * (1 / s) - onehot) * scale). */
    float (*cross_entropy)(oct_dtype dtype, int64_t n, void *x, int64_t target, float scale);

    /* The finished FP32 values c of one row of a gradient, stored or folded as oct_gemm_out says.
     */
    void (*store_row)(const oct_gemm_out *out, int64_t n, const float *c, void *dst);

    void (*widen)(int64_t n, const uint16_t *x, float *y);  /* BF16 -> F32; no aliasing */
    void (*narrow)(int64_t n, const float *x, uint16_t *y); /* F32 -> BF16; no aliasing */

    /* g = grad * grad_scale; m = fma(beta1, m, gain1 * g); v = fma(beta2, v, (gain2 * g) * g);
     * w = fma(-step_size, m / (sqrt(v) / root_bias2 + eps), w * decay): torch.optim.AdamW. */
    void (*adamw)(const oct_adamw_constants *constants, int64_t n, const float *grad, float *w,
                  float *m, float *v);

    /* FP64 lane reduction of lane + x * x. */
    double (*sum_squares)(int64_t n, const float *x);

    /* out[4b .. 4b+3] = normal(0, std) from the four random words of block first + b of the
     * stream: two pairs of uniforms, each turned into two numbers (Box & Muller 1958), in FP64
     * without fma. Below 6.8 std. */
    void (*normal)(oct_rng stream, uint64_t first, int64_t blocks, double std, float *out);
};

/* Fill every entry: the definition, and its twins. */
void oct_elementwise_kernels_ref(struct oct_elementwise_kernels *kernels);
void oct_elementwise_kernels_avx2(struct oct_elementwise_kernels *kernels);   /* x86-64 only */
void oct_elementwise_kernels_avx512(struct oct_elementwise_kernels *kernels); /* x86-64 only */

#endif
