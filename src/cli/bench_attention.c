/* octet bench attention: the causal core alone, in BF16, forward, backward and both. The limit is
 * the FP32-FMA inner loop: operations are counted as 2 per product term, of which the causal half
 * exists: forward S = Q K^T and O = P V, backward S again, dP = dO V^T, dV = P^T dO, dQ = dS K,
 * dK = dS^T Q. */
#include <math.h>
#include <stdio.h>

#include "cli/bench_data.h"
#include "cli/bench_harness.h"
#include "cli/bench_limits.h"
#include "numeric/bf16.h"

enum { HEADS = 16, DIM = 128, Q = 0, K, V, OUT, DOUT, DQ, DK, DV, TENSORS };

typedef struct attention {
    oct_bench *bench;
    int64_t tokens, heads, dim;
    int32_t cu_seqlens[2];
    oct_tensor tensors[TENSORS];
    oct_attention_view views[TENSORS];
    oct_attention_shape shape;
    float *lse;
} attention;

static oct_status run_forward(void *arg, oct_err *err)
{
    attention *a = arg;
    const oct_attention_view *v = a->views;
    return oct_attention(&a->bench->exec, &a->shape, &v[Q], &v[K], &v[V], &v[OUT], a->lse, err);
}

static oct_status run_backward(void *arg, oct_err *err)
{
    attention *a = arg;
    const oct_attention_view *v = a->views;
    return oct_attention_backward(&a->bench->exec, &a->shape, &v[Q], &v[K], &v[V], &v[OUT], a->lse,
                                  &v[DOUT], &v[DQ], &v[DK], &v[DV], err);
}

static oct_status run_both(void *arg, oct_err *err)
{
    OCT_TRY(run_forward(arg, err));
    return run_backward(arg, err);
}

/* --- checks in FP64 -------------------------------------------------------------------------- */

static double value(const attention *a, int tensor, int64_t token, int64_t head, int64_t d)
{
    const uint16_t *data = a->tensors[tensor].data;
    return (double)oct_bf16_to_f32(data[(token * a->heads + head) * a->dim + d]);
}

static double dot(const attention *a, int left, int64_t i, int right, int64_t j, int64_t head)
{
    double sum = 0.0;
    for (int64_t d = 0; d < a->dim; d++)
        sum += value(a, left, i, head, d) * value(a, right, j, head, d);
    return sum;
}

/* Probabilities p[0..i] of one query, and dS of the same entries. */
static void row_of(const attention *a, int64_t head, int64_t i, double *p, double *ds)
{
    const double scale = (double)a->shape.softmax_scale;
    double largest = -HUGE_VAL, sum = 0.0, delta = 0.0;
    for (int64_t j = 0; j <= i; j++) {
        p[j] = scale * dot(a, Q, i, K, j, head);
        largest = fmax(largest, p[j]);
    }
    for (int64_t j = 0; j <= i; j++)
        sum += p[j] = exp(p[j] - largest);
    for (int64_t j = 0; j <= i; j++) {
        p[j] /= sum;
        ds[j] = dot(a, DOUT, i, V, j, head);
        delta += p[j] * ds[j];
    }
    for (int64_t j = 0; j <= i; j++)
        ds[j] = scale * p[j] * (ds[j] - delta);
}

/* A vector of one token and head against sum_j weights[j] source_j. */
static oct_status compare(const attention *a, int tensor, int64_t token, int64_t head,
                          const double *sums, const double *magnitudes, const char *what,
                          int64_t *checked, oct_err *err)
{
    for (int64_t d = 0; d < a->dim; d++) {
        const double found = value(a, tensor, token, head, d);
        /* One rounding to BF16; the output that delta is made of was rounded too. */
        if (!(fabs(found - sums[d]) <= 0x1p-8 * fabs(sums[d]) + 0x1p-7 * magnitudes[d]))
            return OCT_FAIL(err, OCT_E_KERNEL,
                            "%s is wrong at token %lld, head %lld, %lld: %.9g, %.9g is required",
                            what, (long long)token, (long long)head, (long long)d, found, sums[d]);
    }
    *checked += a->dim;
    return OCT_OK;
}

static void add(const attention *a, double weight, int tensor, int64_t token, int64_t head,
                double *sums, double *magnitudes)
{
    for (int64_t d = 0; d < a->dim; d++) {
        const double term = weight * value(a, tensor, token, head, d);
        sums[d] += term;
        magnitudes[d] += fabs(term);
    }
}

typedef struct sums {
    double sum[DIM], magnitude[DIM];
} sums;

/* Output, dQ of one query; dK, dV of one key that only `last - key + 1` queries see. */
static oct_status check_row(const attention *a, int64_t head, int64_t i, double *p, double *ds,
                            bool backward, int64_t *checked, oct_err *err)
{
    sums o = {{0}, {0}}, dq = {{0}, {0}};
    row_of(a, head, i, p, ds);
    for (int64_t j = 0; j <= i; j++) {
        add(a, p[j], V, j, head, o.sum, o.magnitude);
        add(a, ds[j], K, j, head, dq.sum, dq.magnitude);
    }
    OCT_TRY(compare(a, OUT, i, head, o.sum, o.magnitude, "the output", checked, err));
    return backward ? compare(a, DQ, i, head, dq.sum, dq.magnitude, "dQ", checked, err) : OCT_OK;
}

static oct_status check_key(const attention *a, int64_t head, int64_t j, double *p, double *ds,
                            int64_t *checked, oct_err *err)
{
    sums dk = {{0}, {0}}, dv = {{0}, {0}};
    for (int64_t i = j; i < a->tokens; i++) {
        row_of(a, head, i, p, ds);
        add(a, p[j], DOUT, i, head, dv.sum, dv.magnitude);
        add(a, ds[j], Q, i, head, dk.sum, dk.magnitude);
    }
    OCT_TRY(compare(a, DV, j, head, dv.sum, dv.magnitude, "dV", checked, err));
    return compare(a, DK, j, head, dk.sum, dk.magnitude, "dK", checked, err);
}

/* What one pass computes; `before` makes its inputs. */
typedef oct_status (*pass_fn)(void *arg, oct_err *err);

static oct_status check(attention *a, pass_fn before, pass_fn run, int64_t *checked, oct_err *err)
{
    const int64_t last = a->tokens - 1, heads = a->heads;
    const int64_t queries[] = {0, last / 3, last};
    const bool backward = run != run_forward;
    const oct_arena_mark mark = oct_arena_save(&a->bench->memory);
    void *memory = NULL;
    OCT_TRY(oct_arena_array(&a->bench->memory, 2 * a->tokens, sizeof(double), &memory, err));
    double *p = memory, *ds = p + a->tokens;
    for (int t = OUT; t < TENSORS; t++)
        if (t != DOUT && (t == OUT || backward))
            oct_bench_poison(&a->tensors[t]);
    if (before)
        OCT_TRY(before(a, err));
    OCT_TRY(run(a, err));
    for (int q = 0; q < 3; q++)
        OCT_TRY(check_row(a, q * (heads - 1) / 2, queries[q], p, ds, backward, checked, err));
    if (backward)
        OCT_TRY(check_key(a, heads - 1, last > 3 ? last - 3 : 0, p, ds, checked, err));
    oct_arena_rewind(&a->bench->memory, mark);
    return OCT_OK;
}

static oct_status check_forward(void *arg, int64_t *checked, oct_err *err)
{
    return check(arg, NULL, run_forward, checked, err);
}

static oct_status check_backward(void *arg, int64_t *checked, oct_err *err)
{
    return check(arg, run_forward, run_backward, checked, err);
}

static oct_status check_both(void *arg, int64_t *checked, oct_err *err)
{
    return check(arg, NULL, run_both, checked, err);
}

/* --- cases ----------------------------------------------------------------------------------- */

static oct_status open_attention(oct_bench *bench, int64_t tokens, attention *a, oct_err *err)
{
    static const char *const names[TENSORS] = {"q", "k", "v", "out", "dout", "dq", "dk", "dv"};
    *a = (attention){.bench = bench,
                     .tokens = tokens,
                     .heads = oct_bench_dim(bench, HEADS),
                     .dim = oct_bench_dim(bench, DIM),
                     .cu_seqlens = {0, (int32_t)tokens}};
    a->shape = (oct_attention_shape){.dtype = OCT_DTYPE_BF16,
                                     .heads = a->heads,
                                     .qk_dim = a->dim,
                                     .v_dim = a->dim,
                                     .sequences = 1,
                                     .cu_seqlens = a->cu_seqlens,
                                     .softmax_scale = (float)(1.0 / sqrt((double)a->dim))};
    for (int t = 0; t < TENSORS; t++) {
        OCT_TRY(oct_bench_fill(&bench->memory, OCT_BENCH_GAUSSIAN, names[t], tokens,
                               a->heads * a->dim, 1.0f, &a->tensors[t], err));
        a->views[t] = (oct_attention_view){
            .data = a->tensors[t].data, .token_stride = a->heads * a->dim, .head_stride = a->dim};
    }
    void *memory = NULL;
    OCT_TRY(oct_arena_array(&bench->memory, a->heads * tokens, sizeof(float), &memory, err));
    a->lse = memory;
    return OCT_OK;
}

static oct_status measure_cases(oct_bench *bench, int64_t tokens, oct_err *err)
{
    static attention a;
    static const struct {
        const char *name;
        double products; /* causal halves */
        oct_status (*run)(void *arg, oct_err *err);
        oct_status (*check)(void *arg, int64_t *checked, oct_err *err);
    } passes[] = {{"forward", 2.0, run_forward, check_forward},
                  {"backward", 5.0, run_backward, check_backward},
                  {"both", 7.0, run_both, check_both}};
    oct_bench_limit limits[OCT_BENCH_LIMIT_COUNT];
    bool is_open = false;
    for (size_t p = 0; p < sizeof passes / sizeof passes[0]; p++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%lldx%lldx%lld %s", (long long)tokens,
                       (long long)oct_bench_dim(bench, HEADS), (long long)oct_bench_dim(bench, DIM),
                       passes[p].name);
        if (!oct_bench_wanted(bench, name))
            continue;
        if (!is_open) {
            OCT_TRY(open_attention(bench, tokens, &a, err));
            OCT_TRY(oct_bench_limits_open(bench, limits, err));
        }
        is_open = true;
        const double work =
            passes[p].products * (double)(a.heads * a.dim) * (double)tokens * (double)(tokens + 1);
        const oct_bench_variant variants[] = {
            {.format = "bf16",
             .work = work,
             .floor = {{.limit = 2, .work = work}},
             .run = passes[p].run,
             .check = passes[p].check,
             .arg = &a},
            oct_bench_limit_variant(&limits[OCT_BENCH_LIMIT_FMA]),
        };
        OCT_TRY(oct_bench_case(bench, "attention", name, variants, 2, 1e9, "GFLOP/s", err));
    }
    return OCT_OK;
}

oct_status oct_bench_attention(oct_bench *bench, oct_err *err)
{
    return measure_cases(bench, oct_bench_dim(bench, 4096), err);
}
