/* The attention core: bits over instruction sets, threads and packing; values against plain FP64
 * attention; what non-finite inputs reach; errors and memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "times.h"

#include "base/rng.h"
#include "base/size.h"
#include "kernels/exec.h"
#include "numeric/bf16.h"

/* --- one problem ------------------------------------------------------------------------------ */

enum { Q, K, V, DOUT, INPUTS, OUT = INPUTS, DQ, DK, DV, TENSORS };
static const char *const tensor_name[TENSORS] = {"q", "k", "v", "dout", "out", "dq", "dk", "dv"};

/* Elements between the heads of a token and between tokens that belong to nobody. */
enum { HEAD_GAP = 3, TOKEN_GAP = 5 };
enum { CANARY = 0x5a };

typedef struct problem {
    oct_dtype dtype;
    int64_t heads, qk_dim, v_dim, sequences, tokens;
    int32_t cu_seqlens[8];
    float scale;
    oct_attention_view view[TENSORS];
    size_t bytes[TENSORS];
    float *lse_HT; /* one canary behind the last */
} problem;

static int64_t dim_of(const problem *p, int tensor)
{
    return tensor == Q || tensor == K || tensor == DQ || tensor == DK ? p->qk_dim : p->v_dim;
}

static float get(const problem *p, int tensor, int64_t t, int64_t h, int64_t d)
{
    const oct_attention_view *view = &p->view[tensor];
    const int64_t at = t * view->token_stride + h * view->head_stride + d;
    return p->dtype == OCT_DTYPE_F32 ? ((const float *)view->data)[at]
                                     : oct_bf16_to_f32(((const uint16_t *)view->data)[at]);
}

static void set(const problem *p, int tensor, int64_t t, int64_t h, int64_t d, float x)
{
    const oct_attention_view *view = &p->view[tensor];
    const int64_t at = t * view->token_stride + h * view->head_stride + d;
    if (p->dtype == OCT_DTYPE_F32)
        ((float *)view->data)[at] = x;
    else
        ((uint16_t *)view->data)[at] = oct_bf16_from_f32(x);
}

static void *canaries(size_t bytes)
{
    void *data = malloc(bytes);
    assert_non_null(data);
    memset(data, CANARY, bytes);
    return data;
}

/* Inputs are uniform in (-2, 2) and depend on (tensor, token, head, element) only. */
static problem problem_new(oct_dtype dtype, int64_t heads, int64_t qk_dim, int64_t v_dim,
                           int64_t sequences, const int32_t *lengths)
{
    problem p = {.dtype = dtype,
                 .heads = heads,
                 .qk_dim = qk_dim,
                 .v_dim = v_dim,
                 .sequences = sequences,
                 .scale = 1.0f / sqrtf((float)qk_dim)};
    for (int64_t b = 0; b < sequences; b++)
        p.cu_seqlens[b + 1] = p.cu_seqlens[b] + lengths[b];
    p.tokens = p.cu_seqlens[sequences];
    for (int i = 0; i < TENSORS; i++) {
        const int64_t head_stride = dim_of(&p, i) + HEAD_GAP;
        const int64_t token_stride = heads * head_stride + TOKEN_GAP;
        p.bytes[i] = (size_t)(p.tokens * token_stride + 1) * oct_dtype_bytes(dtype);
        p.view[i] = (oct_attention_view){
            .data = canaries(p.bytes[i]), .token_stride = token_stride, .head_stride = head_stride};
    }
    for (int i = 0; i < INPUTS; i++) {
        const oct_rng rng = oct_rng_stream(1, tensor_name[i]);
        for (int64_t t = 0; t < p.tokens; t++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t d = 0; d < dim_of(&p, i); d++)
                    set(&p, i, t, h, d,
                        (float)(oct_rng_uniform(rng, (uint64_t)((t * 16 + h) * 256 + d)) * 4 - 2));
    }
    p.lse_HT = canaries((size_t)(heads * p.tokens + 1) * sizeof(float));
    return p;
}

static problem problem_one(oct_dtype dtype, int64_t heads, int64_t qk_dim, int64_t v_dim,
                           int32_t tokens)
{
    return problem_new(dtype, heads, qk_dim, v_dim, 1, &tokens);
}

static void problem_release(problem *p)
{
    for (int i = 0; i < TENSORS; i++)
        free(p->view[i].data);
    free(p->lse_HT);
}

static oct_attention_shape shape_of(const problem *p)
{
    return (oct_attention_shape){.dtype = p->dtype,
                                 .heads = p->heads,
                                 .qk_dim = p->qk_dim,
                                 .v_dim = p->v_dim,
                                 .sequences = p->sequences,
                                 .cu_seqlens = p->cu_seqlens,
                                 .softmax_scale = p->scale};
}

static oct_status run_on(const oct_exec *exec, const problem *p, oct_err *err)
{
    const oct_attention_shape shape = shape_of(p);
    const oct_attention_view *x = p->view;
    OCT_TRY(oct_attention(exec, &shape, &x[Q], &x[K], &x[V], &x[OUT], p->lse_HT, err));
    return oct_attention_backward(exec, &shape, &x[Q], &x[K], &x[V], &x[OUT], p->lse_HT, &x[DOUT],
                                  &x[DQ], &x[DK], &x[DV], err);
}

static void run(const problem *p, oct_isa isa, int threads)
{
    oct_kernels kernels;
    oct_kernels_init(&kernels, isa);
    oct_arena scratch;
    oct_arena_init(&scratch, "scratch");
    const oct_exec exec = {.kernels = &kernels, .threads = threads, .scratch = &scratch};
    oct_err err = {0};
    if (run_on(&exec, p, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(scratch.used_bytes, 0);
    oct_arena_release(&scratch);
}

static void run_best(const problem *p)
{
    run(p, oct_cpu_isa(), 1);
}

static void assert_all_same_bits(const problem *a, const problem *b)
{
    for (int i = 0; i < TENSORS; i++)
        if (memcmp(a->view[i].data, b->view[i].data, a->bytes[i]) != 0)
            fail_msg("%s differs: tokens %d, heads %d, qk_dim %d, v_dim %d", tensor_name[i],
                     (int)a->tokens, (int)a->heads, (int)a->qk_dim, (int)a->v_dim);
    assert_memory_equal(a->lse_HT, b->lse_HT, (size_t)(a->heads * a->tokens + 1) * sizeof(float));
}

/* Token t of a has the outputs of token t + shift of b. */
static void assert_token_same_bits(const problem *a, const problem *b, int64_t t, int64_t shift,
                                   int first_tensor, int last_tensor)
{
    for (int i = first_tensor; i <= last_tensor; i++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t d = 0; d < dim_of(a, i); d++)
                if (oct_f32_bits(get(a, i, t, h, d)) != oct_f32_bits(get(b, i, t + shift, h, d)))
                    fail_msg("%s differs at token %d, head %d, element %d", tensor_name[i], (int)t,
                             (int)h, (int)d);
}

static void assert_canaries(const problem *p)
{
    const size_t size = oct_dtype_bytes(p->dtype);
    for (int i = 0; i < TENSORS; i++) {
        const oct_attention_view *view = &p->view[i];
        const int64_t elements = (int64_t)(p->bytes[i] / size);
        for (int64_t at = 0; at < elements; at++) {
            const int64_t in_token = at % view->token_stride;
            if (at < elements - 1 && in_token / view->head_stride < p->heads &&
                in_token % view->head_stride < dim_of(p, i))
                continue;
            for (size_t byte = 0; byte < size; byte++)
                assert_int_equal(((const unsigned char *)view->data)[(size_t)at * size + byte],
                                 CANARY);
        }
    }
    const unsigned char *behind = (const unsigned char *)(p->lse_HT + p->heads * p->tokens);
    assert_int_equal(behind[0], CANARY);
}

/* --- plain attention in FP64 ------------------------------------------------------------------ */

typedef struct oracle {
    double *x[TENSORS]; /* OUT .. DV: [tokens, heads, dim] */
    double *lse_HT;
} oracle;

static double *at64(const oracle *o, const problem *p, int tensor, int64_t t, int64_t h)
{
    return o->x[tensor] + (t * p->heads + h) * dim_of(p, tensor);
}

static double dot64(const problem *p, int a, int64_t ta, int b, int64_t tb, int64_t h)
{
    double dot = 0.0;
    for (int64_t d = 0; d < dim_of(p, a); d++)
        dot += (double)get(p, a, ta, h, d) * (double)get(p, b, tb, h, d);
    return dot;
}

/* y += w * (input tensor x of token t). */
static void add64(const problem *p, double *y, double w, int x, int64_t t, int64_t h)
{
    for (int64_t d = 0; d < dim_of(p, x); d++)
        y[d] += w * (double)get(p, x, t, h, d);
}

static void oracle_query(const oracle *o, const problem *p, int64_t start, int64_t i, int64_t h,
                         double *weight)
{
    const double scale = (double)p->scale;
    double max = -HUGE_VAL, sum = 0.0, delta = 0.0;
    for (int64_t j = start; j <= i; j++) {
        weight[j] = scale * dot64(p, Q, i, K, j, h);
        max = fmax(max, weight[j]);
    }
    for (int64_t j = start; j <= i; j++)
        sum += exp(weight[j] - max);
    o->lse_HT[h * p->tokens + i] = max + log(sum);
    for (int64_t j = start; j <= i; j++) {
        weight[j] = exp(weight[j] - max) / sum;
        add64(p, at64(o, p, OUT, i, h), weight[j], V, j, h);
        add64(p, at64(o, p, DV, j, h), weight[j], DOUT, i, h);
        delta += weight[j] * dot64(p, DOUT, i, V, j, h);
    }
    for (int64_t j = start; j <= i; j++) {
        const double ds = scale * weight[j] * (dot64(p, DOUT, i, V, j, h) - delta);
        add64(p, at64(o, p, DQ, i, h), ds, K, j, h);
        add64(p, at64(o, p, DK, j, h), ds, Q, i, h);
    }
}

static oracle oracle_new(const problem *p)
{
    oracle o = {.lse_HT = calloc((size_t)(p->heads * p->tokens), sizeof(double))};
    for (int i = OUT; i < TENSORS; i++)
        o.x[i] = calloc((size_t)(p->tokens * p->heads * dim_of(p, i)), sizeof(double));
    double *weight = calloc((size_t)p->tokens, sizeof *weight);
    for (int64_t b = 0; b < p->sequences; b++)
        for (int64_t i = p->cu_seqlens[b]; i < p->cu_seqlens[b + 1]; i++)
            for (int64_t h = 0; h < p->heads; h++)
                oracle_query(&o, p, p->cu_seqlens[b], i, h, weight);
    free(weight);
    return o;
}

static void oracle_release(oracle *o)
{
    for (int i = OUT; i < TENSORS; i++)
        free(o->x[i]);
    free(o->lse_HT);
}

/* Every value within `bound` of the tensor's largest value, or of 1 where that is smaller:
 * gradients of the first tokens are 0 up to cancellation. F32: scores of up to 4*sqrt(D) are off by
 * some ulp, which exp turns into a relative error of P; 6e-6 is 3 times what is measured. BF16 adds
 * the rounding of the results (2^-9 of them) and that of out, which delta sees; 2^-7 is 1.7 times
 * what is measured. */
static const double f32_bound = 6e-6, bf16_bound = 0x1p-7;

static void assert_near_oracle(const problem *p)
{
    const double bound = p->dtype == OCT_DTYPE_F32 ? f32_bound : bf16_bound;
    oracle o = oracle_new(p);
    for (int i = OUT; i < TENSORS; i++) {
        double largest = 0.0, worst = 0.0;
        for (int64_t t = 0; t < p->tokens; t++)
            for (int64_t h = 0; h < p->heads; h++)
                for (int64_t d = 0; d < dim_of(p, i); d++) {
                    const double want = at64(&o, p, i, t, h)[d];
                    const double distance = fabs((double)get(p, i, t, h, d) - want);
                    largest = fmax(largest, fabs(want));
                    worst = isnan(distance) ? HUGE_VAL : fmax(worst, distance);
                }
        if (!(worst <= bound * fmax(largest, 1.0)))
            fail_msg("%s is off by %.3g of %.3g: tokens %d, heads %d, qk_dim %d, v_dim %d",
                     tensor_name[i], worst, largest, (int)p->tokens, (int)p->heads, (int)p->qk_dim,
                     (int)p->v_dim);
    }
    for (int64_t n = 0; n < p->heads * p->tokens; n++)
        assert_true(fabs((double)p->lse_HT[n] - o.lse_HT[n]) <= 1e-5);
    oracle_release(&o);
}

/* --- sizes ------------------------------------------------------------------------------------ */

static const int32_t all_tokens[] = {1, 2, 7, 63, 64, 65, 130};
static const int64_t all_dims[][2] = {{1, 1}, {3, 16}, {16, 3}, {48, 80}, {80, 48}, {192, 128}};
enum {
    TOKEN_CASES = sizeof all_tokens / sizeof *all_tokens,
    DIM_CASES = sizeof all_dims / sizeof *all_dims
};

static void attention__odd_sizes__same_bits_for_every_isa_and_thread_count(void **state)
{
    (void)state;
    for (int t = 0; t < TOKEN_CASES; t++)
        for (int d = 0; d < DIM_CASES; d++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                const oct_dtype dtype = bf16 ? OCT_DTYPE_BF16 : OCT_DTYPE_F32;
                problem a = problem_one(dtype, 2, all_dims[d][0], all_dims[d][1], all_tokens[t]);
                run(&a, OCT_ISA_REF, 1);
                assert_canaries(&a);
                for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
                    for (int threads = 1; threads <= 2; threads++) {
                        if (isa == OCT_ISA_REF && (threads == 1 || d == DIM_CASES - 1))
                            continue;
                        problem b =
                            problem_one(dtype, 2, all_dims[d][0], all_dims[d][1], all_tokens[t]);
                        run(&b, (oct_isa)isa, threads);
                        assert_all_same_bits(&a, &b);
                        problem_release(&b);
                    }
                problem_release(&a);
            }
}

static void attention__odd_sizes__near_plain_fp64_attention(void **state)
{
    (void)state;
    for (int t = 0; t < TOKEN_CASES; t++)
        for (int d = 0; d < DIM_CASES; d++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                problem p = problem_one(bf16 ? OCT_DTYPE_BF16 : OCT_DTYPE_F32, 2, all_dims[d][0],
                                        all_dims[d][1], all_tokens[t]);
                run_best(&p);
                assert_near_oracle(&p);
                problem_release(&p);
            }
}

/* The running max rises in every tile of keys, so that every rescale counts. */
static void attention__rising_scores__near_plain_fp64_attention(void **state)
{
    (void)state;
    problem p = problem_one(OCT_DTYPE_F32, 1, 16, 16, 200);
    for (int64_t t = 0; t < p.tokens; t++) {
        set(&p, Q, t, 0, 0, 1.0f);
        set(&p, K, t, 0, 0, (float)t * 0.25f);
    }
    run_best(&p);
    assert_near_oracle(&p);
    problem_release(&p);
}

static void attention__large_scores__one_hot_without_overflow(void **state)
{
    (void)state;
    problem p = problem_one(OCT_DTYPE_F32, 1, 8, 4, 70);
    for (int64_t t = 0; t < p.tokens; t++)
        for (int64_t d = 0; d < 8; d++) {
            set(&p, Q, t, 0, d, d == t % 8 ? 1e4f : 0.0f);
            set(&p, K, t, 0, d, d == t % 8 ? (float)(t + 1) * 1e4f : -1e4f);
        }
    run_best(&p);
    for (int64_t t = 0; t < p.tokens; t++) /* the best key is the query's own token */
        for (int64_t d = 0; d < 4; d++) {
            assert_true(get(&p, OUT, t, 0, d) == get(&p, V, t, 0, d));
            assert_true(get(&p, DV, t, 0, d) == get(&p, DOUT, t, 0, d));
        }
    problem_release(&p);
}

/* --- sequences -------------------------------------------------------------------------------- */

static void attention__packed_sequences__same_bits_as_alone(void **state)
{
    (void)state;
    const int32_t lengths[] = {0, 70, 0, 129, 1};
    const int64_t starts[] = {0, 0, 70, 70, 199};
    problem packed = problem_new(OCT_DTYPE_BF16, 3, 20, 12, 5, lengths);
    run(&packed, oct_cpu_isa(), 2);
    for (int b = 0; b < 5; b++) {
        if (lengths[b] == 0)
            continue;
        problem alone = problem_one(OCT_DTYPE_BF16, 3, 20, 12, lengths[b]);
        for (int i = 0; i < INPUTS; i++)
            for (int64_t t = 0; t < lengths[b]; t++)
                for (int64_t h = 0; h < 3; h++)
                    for (int64_t d = 0; d < dim_of(&alone, i); d++)
                        set(&alone, i, t, h, d, get(&packed, i, t + starts[b], h, d));
        run_best(&alone);
        for (int64_t t = 0; t < lengths[b]; t++) {
            assert_token_same_bits(&alone, &packed, t, starts[b], OUT, DV);
            for (int64_t h = 0; h < 3; h++)
                assert_int_equal(oct_f32_bits(alone.lse_HT[h * lengths[b] + t]),
                                 oct_f32_bits(packed.lse_HT[h * packed.tokens + starts[b] + t]));
        }
        problem_release(&alone);
    }
    assert_near_oracle(&packed);
    problem_release(&packed);
}

/* Causality, and that tile edges do not show. */
static void attention__shorter_sequence__same_bits_in_out_and_dq(void **state)
{
    (void)state;
    problem whole = problem_one(OCT_DTYPE_F32, 2, 17, 9, 131);
    run_best(&whole);
    for (int32_t tokens = 1; tokens < 131; tokens += 13) {
        problem part = problem_one(OCT_DTYPE_F32, 2, 17, 9, tokens);
        run_best(&part);
        for (int64_t t = 0; t < tokens; t++)
            assert_token_same_bits(&part, &whole, t, 0, OUT, DQ);
        problem_release(&part);
    }
    problem_release(&whole);
}

static void attention__nothing_to_do__succeeds(void **state)
{
    (void)state;
    const int32_t empty[] = {0, 0};
    problem p = problem_new(OCT_DTYPE_F32, 2, 4, 4, 2, empty);
    run_best(&p);
    problem none = problem_new(OCT_DTYPE_F32, 2, 4, 4, 0, empty);
    run_best(&none);
    problem headless = problem_one(OCT_DTYPE_F32, 0, 4, 4, 5);
    run_best(&headless);
    assert_canaries(&p);
    assert_canaries(&headless);
    problem_release(&p);
    problem_release(&none);
    problem_release(&headless);
}

static void attention__shared_head__same_bits_as_copies(void **state)
{
    (void)state;
    problem copies = problem_one(OCT_DTYPE_BF16, 3, 24, 10, 75);
    problem shared = problem_one(OCT_DTYPE_BF16, 3, 24, 10, 75);
    for (int64_t t = 0; t < 75; t++)
        for (int64_t h = 1; h < 3; h++)
            for (int64_t d = 0; d < 24; d++)
                set(&copies, K, t, h, d, get(&copies, K, t, 0, d));
    shared.view[K].head_stride = 0;
    run_best(&copies);
    run_best(&shared);
    for (int64_t t = 0; t < 75; t++)
        assert_token_same_bits(&copies, &shared, t, 0, OUT, DV);
    problem_release(&copies);
    problem_release(&shared);
}

/* --- non-finite inputs ------------------------------------------------------------------------ */

static bool token_is_nan(const problem *p, int tensor, int64_t t)
{
    bool all = true;
    for (int64_t d = 0; d < dim_of(p, tensor); d++)
        all = all && isnan(get(p, tensor, t, 0, d));
    return all;
}

enum { SPOILT_TOKENS = 150, SPOILT = 100 };

/* One element of one input of token SPOILT becomes `value`; earlier tokens must not notice in out
 * and dq, whose sums run over earlier tokens only, nor later ones in dk and dv if only the query
 * side (q, dout) is spoilt. */
static problem spoilt_problem(oct_isa isa, int tensor, float value)
{
    problem clean = problem_one(OCT_DTYPE_F32, 1, 20, 18, SPOILT_TOKENS);
    problem p = problem_one(OCT_DTYPE_F32, 1, 20, 18, SPOILT_TOKENS);
    set(&p, tensor, SPOILT, 0, 3, value);
    run(&clean, isa, 1);
    run(&p, isa, 1);
    for (int64_t t = 0; t < SPOILT; t++)
        assert_token_same_bits(&p, &clean, t, 0, OUT, DQ);
    if (tensor == Q || tensor == DOUT)
        for (int64_t t = SPOILT + 1; t < SPOILT_TOKENS; t++)
            assert_token_same_bits(&p, &clean, t, 0, OUT, DV);
    problem_release(&clean);
    return p;
}

static void attention__nan_input__reaches_what_depends_on_it_and_nothing_else(void **state)
{
    (void)state;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        problem q = spoilt_problem((oct_isa)isa, Q, NAN);
        assert_true(token_is_nan(&q, OUT, SPOILT) && token_is_nan(&q, DQ, SPOILT));
        assert_true(isnan(q.lse_HT[SPOILT]));
        for (int64_t t = 0; t <= SPOILT; t++)
            assert_true(token_is_nan(&q, DK, t) && token_is_nan(&q, DV, t));
        problem_release(&q);
        problem k = spoilt_problem((oct_isa)isa, K, NAN);
        for (int64_t t = SPOILT; t < SPOILT_TOKENS; t++)
            assert_true(token_is_nan(&k, OUT, t) && token_is_nan(&k, DQ, t));
        problem_release(&k);
        problem v = spoilt_problem((oct_isa)isa, V, NAN);
        for (int64_t t = SPOILT; t < SPOILT_TOKENS; t++)
            assert_true(isnan(get(&v, OUT, t, 0, 3)) && !isnan(get(&v, OUT, t, 0, 4)) &&
                        token_is_nan(&v, DQ, t));
        problem_release(&v);
        problem g = spoilt_problem((oct_isa)isa, DOUT, NAN);
        assert_true(token_is_nan(&g, DQ, SPOILT));
        for (int64_t t = 0; t <= SPOILT; t++)
            assert_true(token_is_nan(&g, DK, t) && isnan(get(&g, DV, t, 0, 3)));
        problem_release(&g);
    }
}

static void attention__inf_input__reaches_out(void **state)
{
    (void)state;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        for (int tensor = 0; tensor < INPUTS; tensor++)
            for (int sign = -1; sign <= 1; sign += 2) {
                problem p = spoilt_problem((oct_isa)isa, tensor, (float)sign * INFINITY);
                if (tensor == V)
                    for (int64_t t = SPOILT; t < SPOILT_TOKENS; t++)
                        assert_true(get(&p, OUT, t, 0, 3) == (float)sign * INFINITY);
                problem_release(&p);
            }
    }
}

/* A query whose every score so far is -Inf takes the first finite one, whatever tile it is in. */
static void attention__leading_scores_minus_inf__ignored(void **state)
{
    (void)state;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        problem p = problem_one(OCT_DTYPE_F32, 1, 1, 2, 71);
        for (int64_t t = 0; t < 71; t++) {
            set(&p, Q, t, 0, 0, 1.0f);
            set(&p, K, t, 0, 0, t < 70 ? -INFINITY : 0.5f);
        }
        run(&p, (oct_isa)isa, 1);
        assert_true(token_is_nan(&p, OUT, 69)); /* no key left: 0 / 0 */
        for (int64_t d = 0; d < 2; d++)
            assert_true(get(&p, OUT, 70, 0, d) == get(&p, V, 70, 0, d));
        assert_true(p.lse_HT[70] == 0.5f);
        problem_release(&p);
    }
}

/* --- errors and memory ------------------------------------------------------------------------ */

static void assert_refused(const problem *p, const oct_attention_shape *shape, const char *word)
{
    oct_kernels kernels;
    oct_kernels_init(&kernels, OCT_ISA_REF);
    oct_arena scratch;
    oct_arena_init(&scratch, "scratch");
    const oct_exec exec = {.kernels = &kernels, .threads = 1, .scratch = &scratch};
    oct_err err = {0};
    const oct_attention_view *x = p->view;
    assert_int_equal(oct_attention(&exec, shape, &x[Q], &x[K], &x[V], &x[OUT], p->lse_HT, &err),
                     OCT_E_SHAPE);
    assert_non_null(strstr(err.msg, word));
    assert_int_equal(oct_attention_backward(&exec, shape, &x[Q], &x[K], &x[V], &x[OUT], p->lse_HT,
                                            &x[DOUT], &x[DQ], &x[DK], &x[DV], &err),
                     OCT_E_SHAPE);
    assert_non_null(strstr(err.msg, word));
    assert_canaries(p);
    oct_arena_release(&scratch);
}

static void attention__bad_arguments__e_shape(void **state)
{
    (void)state;
    const int32_t lengths[] = {3, 2};
    problem p = problem_new(OCT_DTYPE_F32, 2, 4, 4, 2, lengths);
    oct_attention_shape shape = shape_of(&p);
    shape.dtype = OCT_DTYPE_E4M3;
    assert_refused(&p, &shape, "dtype");
    shape = shape_of(&p);
    shape.qk_dim = 0;
    assert_refused(&p, &shape, "qk_dim 0");
    shape = shape_of(&p);
    shape.heads = -1;
    assert_refused(&p, &shape, "heads -1");
    shape = shape_of(&p);
    const int32_t falling[] = {0, 3, 2}, late[] = {1, 3, 5};
    shape.cu_seqlens = falling;
    assert_refused(&p, &shape, "cu_seqlens[2] is 2");
    shape.cu_seqlens = late;
    assert_refused(&p, &shape, "cu_seqlens[0] is 1");
    shape = shape_of(&p);
    for (int i = OUT; i < TENSORS; i++)
        p.view[i].head_stride = 0;
    oct_kernels kernels;
    oct_kernels_init(&kernels, OCT_ISA_REF);
    oct_arena scratch;
    oct_arena_init(&scratch, "scratch");
    const oct_exec exec = {.kernels = &kernels, .threads = 1, .scratch = &scratch};
    oct_err err = {0};
    assert_int_equal(run_on(&exec, &p, &err), OCT_E_SHAPE);
    assert_non_null(strstr(err.msg, "head_stride of out"));
    oct_arena_release(&scratch);
    problem_release(&p);
}

/* The forward pass needs tiles only, the backward pass adds FP32 dk and dv of one head per thread;
 * the second call asks the heap for nothing. */
static void attention__scratch__linear_in_tokens_and_reused(void **state)
{
    (void)state;
    size_t peak[2];
    oct_kernels kernels;
    oct_kernels_init(&kernels, oct_cpu_isa());
    for (int i = 0; i < 2; i++) {
        problem p = problem_one(OCT_DTYPE_BF16, 2, 16, 16, i == 0 ? 256 : 1024);
        oct_arena scratch;
        oct_arena_init(&scratch, "scratch");
        const oct_exec exec = {.kernels = &kernels, .threads = 2, .scratch = &scratch};
        assert_int_equal(run_on(&exec, &p, NULL), OCT_OK);
        const uint64_t heap_calls = scratch.heap_calls;
        assert_int_equal(run_on(&exec, &p, NULL), OCT_OK);
        assert_int_equal(scratch.heap_calls, heap_calls);
        peak[i] = scratch.peak_bytes;
        oct_arena_release(&scratch);
        problem_release(&p);
    }
    assert_int_equal(peak[1] - peak[0], (1024 - 256) * (16 + 16) * (int)sizeof(float) * 2);
}

/* --- inner loops ------------------------------------------------------------------------------ */

/* 64-byte aligned floats with recognisable values. */
static float *numbers(size_t n, const char *name)
{
    float *x = aligned_alloc(64, (n * sizeof *x + 63) / 64 * 64);
    assert_non_null(x);
    const oct_rng rng = oct_rng_stream(2, name);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(oct_rng_uniform(rng, i) * 4 - 2);
    return x;
}

static const oct_attention_kernels *kernels_of(int isa)
{
    static oct_attention_kernels kernels[OCT_ISA_AVX512 + 1];
    static bool is_ready[OCT_ISA_AVX512 + 1];
    if (!is_ready[isa])
        oct_attention_kernels_init(&kernels[isa], (oct_isa)isa);
    is_ready[isa] = true;
    return &kernels[isa];
}

/* Sets what a product of these terms leaves undefined. */
static void forget_undefined(const oct_attention_product *p, float *c)
{
    if (p->terms != OCT_ATTENTION_TERMS_ALL_FROM_ROW_ON)
        return;
    for (int64_t m = 0; m < p->rows; m++)
        for (int64_t n = 0; n < oct_min_i64(m, p->cols); n++)
            c[m * p->ldc + n] = 0.0f;
}

static void product_kernel__all_edges__same_bits_as_ref(void **state)
{
    (void)state;
    enum { ROWS = 70, COLS = 144, DEPTH = 64, FLOATS = ROWS * COLS };
    static const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 13, 64}, depths[] = {1, 5, 63, 64};
    float *a = numbers(ROWS * DEPTH, "a"), *b = numbers(DEPTH * COLS, "b");
    float *start = numbers(FLOATS, "c"), *want = numbers(FLOATS, "c"), *got = numbers(FLOATS, "c");
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t k = 0; k < sizeof depths / sizeof *depths; k++)
            for (int64_t cols = 16; cols <= COLS; cols += 16)
                for (int variant = 0; variant < 16; variant++) {
                    const bool a_transposed = variant & 1;
                    oct_attention_product p = {.a = a,
                                               .b = b,
                                               .c = want,
                                               .a_row = a_transposed ? 1 : DEPTH,
                                               .a_depth = a_transposed ? ROWS : 1,
                                               .ldb = COLS,
                                               .ldc = COLS,
                                               .rows = rows[r],
                                               .cols = cols,
                                               .depth = depths[k],
                                               .accumulate = variant & 2,
                                               .terms = (oct_attention_terms)(variant / 4)};
                    memcpy(want, start, FLOATS * sizeof(float));
                    kernels_of(OCT_ISA_REF)->product(&p);
                    forget_undefined(&p, want);
                    p.c = got;
                    for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++) {
                        memcpy(got, start, FLOATS * sizeof(float));
                        kernels_of(isa)->product(&p);
                        forget_undefined(&p, got);
                        assert_memory_equal(want, got, FLOATS * sizeof(float));
                    }
                }
    free(a);
    free(b);
    free(start);
    free(want);
    free(got);
}

/* Rounding to BF16 of every kind of value, subnormals included. */
static void store_kernel__special_values__same_bits_as_bf16_from_f32(void **state)
{
    (void)state;
    static const uint32_t bits[] = {0x00000000, 0x80000000, 0x00000001, 0x00008000, 0x00008001,
                                    0x00018000, 0x007fffff, 0x3f808000, 0x3f818000, 0x3f808001,
                                    0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc01234, 0xffc0ffff};
    enum { N = sizeof bits / sizeof *bits };
    float *src = numbers(16, "src");
    for (int i = 0; i < N; i++)
        src[i] = oct_f32_from_bits(bits[i]);
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        oct_attention_kernels kernels;
        oct_attention_kernels_init(&kernels, (oct_isa)isa);
        uint16_t dst[N + 1];
        dst[N] = 0x5a5a;
        const oct_attention_rows rows = {
            .data = dst, .dtype = OCT_DTYPE_BF16, .stride = N, .rows = 1, .dim = N};
        kernels.store(src, 16, 1.0f, &rows);
        for (int i = 0; i < N; i++)
            assert_int_equal(dst[i], oct_bf16_from_f32(src[i]));
        assert_int_equal(dst[N], 0x5a5a);
    }
    free(src);
}

/* Every value of a kind that a score, a running max or a gradient can be. */
static float awkward(int64_t i)
{
    static const uint32_t bits[] = {0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x00800000,
                                    0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc01234,
                                    0xffc00001, 0x42b17218, 0xc2cff1b5, 0x3f800000, 0xbf800001};
    return oct_f32_from_bits(bits[i % (int64_t)(sizeof bits / sizeof *bits)]);
}

/* Into the middle of wider rows; the bits of every NaN too. */
static void transpose_kernel__blocks__moves_every_element(void **state)
{
    (void)state;
    enum { MOST = 80, LD = MOST + 16, FLOATS = LD * LD };
    float *src = numbers(FLOATS, "src"), *want = numbers(FLOATS, "dst");
    float *got = numbers(FLOATS, "dst");
    for (int i = 0; i < FLOATS; i += 3)
        src[i] = awkward(i / 3);
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
        for (int rows = 16; rows <= MOST; rows += 16)
            for (int cols = 16; cols <= MOST; cols += 16) {
                memset(want, CANARY, FLOATS * sizeof(float));
                memset(got, CANARY, FLOATS * sizeof(float));
                for (int i = 0; i < rows * cols; i++)
                    memcpy(&want[i % cols * LD + i / cols], &src[i / cols * LD + i % cols],
                           sizeof(float));
                kernels_of(isa)->transpose(src, LD, rows, cols, got, LD);
                assert_memory_equal(want, got, FLOATS * sizeof(float));
            }
    free(src);
    free(want);
    free(got);
}

/* Bits equal, or both NaN: which NaN comes out where several meet is not defined. */
static void assert_same_floats(const char *what, int isa, const float *want, const float *got,
                               int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (oct_f32_bits(want[i]) != oct_f32_bits(got[i]) && !(isnan(want[i]) && isnan(got[i])))
            fail_msg("%s, %s: [%lld] is %a, ref %a", what, oct_isa_name((oct_isa)isa), (long long)i,
                     (double)got[i], (double)want[i]);
}

static const int64_t kernel_dims[] = {1, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 48};
enum { KERNEL_DIMS = sizeof kernel_dims / sizeof *kernel_dims, MOST_DIM = 48, MOST_ROWS = 17 };

/* Rows of a tensor at an odd address, to a padded tile and back between canaries. */
static void load_and_store_kernels__odd_rows__same_bits_as_ref(void **state)
{
    (void)state;
    enum { STRIDE = MOST_DIM + 3, TENSOR = MOST_ROWS * STRIDE + 1, TILE_FLOATS = 32 * MOST_DIM };
    float *want = numbers(TILE_FLOATS, "tile"), *got = numbers(TILE_FLOATS, "tile");
    static float f32[TENSOR], stored[2][TENSOR];
    static uint16_t bf16[TENSOR];
    for (int64_t i = 0; i < TENSOR; i++) {
        f32[i] = i % 3 ? (float)i * 0.37f : awkward(i / 3);
        bf16[i] = oct_bf16_from_f32(f32[i]);
    }
    for (int c = 0; c < KERNEL_DIMS * 2 * (int)oct_cpu_isa(); c++) {
        const int isa = OCT_ISA_AVX2 + c / (KERNEL_DIMS * 2);
        const int64_t dim = kernel_dims[c / 2 % KERNEL_DIMS], ld = (dim + 15) / 16 * 16;
        for (int64_t rows = 1; rows <= MOST_ROWS; rows += 4) {
            oct_attention_rows at = {.data = c % 2 ? (void *)(bf16 + 1) : (void *)(f32 + 1),
                                     .dtype = c % 2 ? OCT_DTYPE_BF16 : OCT_DTYPE_F32,
                                     .stride = STRIDE,
                                     .rows = rows,
                                     .dim = dim};
            memset(want, CANARY, TILE_FLOATS * sizeof(float));
            memset(got, CANARY, TILE_FLOATS * sizeof(float));
            kernels_of(OCT_ISA_REF)->load(&at, want, ld);
            kernels_of(isa)->load(&at, got, ld);
            assert_memory_equal(want, got, TILE_FLOATS * sizeof(float));
            memset(stored, CANARY, sizeof stored);
            for (int side = 0; side < 2; side++) {
                at.data = (unsigned char *)stored[side] + oct_dtype_bytes(at.dtype);
                kernels_of(side ? isa : OCT_ISA_REF)->store(want, ld, 0.7f, &at);
            }
            assert_memory_equal(stored[0], stored[1], sizeof stored[0]);
        }
    }
    free(want);
    free(got);
}

/* Tiles of plain and awkward values: 0 in one of three problems, some in the next, many in the
 * last.
 */
static void fill_tile(float *x, int64_t n, int kind, int64_t salt)
{
    for (int64_t i = 0; i < n; i++) {
        const uint64_t u = oct_rng_u64(oct_rng_stream((uint64_t)salt, "tile"), (uint64_t)i);
        const bool is_awkward = kind > 0 && u % (kind == 1 ? 61 : 5) == 0;
        x[i] = is_awkward ? awkward((int64_t)(u >> 40)) : (float)(int32_t)(u >> 32) * 0x1p-28f;
    }
}

/* A term that a causal tile leaves out is not there, whatever it is. */
static void product_kernel__all_kinds_of_values__same_bits_as_ref(void **state)
{
    (void)state;
    enum { ROWS = 13, COLS = 48, DEPTH = 37, FLOATS = 2048 };
    float *a = numbers(FLOATS, "a"), *b = numbers(FLOATS, "b");
    float *want = numbers(FLOATS, "c"), *got = numbers(FLOATS, "c");
    for (int c = 0; c < 3 * 16 * (int)oct_cpu_isa(); c++) {
        const int isa = OCT_ISA_AVX2 + c / 48, variant = c % 16;
        const bool a_transposed = variant & 1;
        fill_tile(a, FLOATS, c / 16 % 3, 1);
        fill_tile(b, FLOATS, c / 16 % 3, 2);
        fill_tile(want, FLOATS, 1, 3);
        memcpy(got, want, FLOATS * sizeof(float));
        oct_attention_product p = {.a = a + 1,
                                   .b = b,
                                   .c = want,
                                   .a_row = a_transposed ? 1 : DEPTH,
                                   .a_depth = a_transposed ? ROWS : 1,
                                   .ldb = COLS,
                                   .ldc = COLS,
                                   .rows = ROWS,
                                   .cols = COLS - 16,
                                   .depth = DEPTH,
                                   .accumulate = variant & 2,
                                   .terms = (oct_attention_terms)(variant / 4)};
        kernels_of(OCT_ISA_REF)->product(&p);
        forget_undefined(&p, want);
        p.c = got;
        kernels_of(isa)->product(&p);
        forget_undefined(&p, got);
        assert_same_floats("product", isa, want, got, FLOATS);
    }
    free(a);
    free(b);
    free(want);
    free(got);
}

/* Columns at 0 .. 63 of a tile; what lies outside the triangle of a diagonal tile is not defined.
 */
static void column_kernels__all_kinds_of_values__same_bits_as_ref(void **state)
{
    (void)state;
    enum { SIDE = OCT_ATTENTION_TILE, FLOATS = SIDE * SIDE, ROW = SIDE };
    static const int64_t keys[] = {1, 2, 8, 9, 15, 17, 33, 63, 64};
    float *s[2], *dp[2], *max[2], *sum[2], *rescale[2];
    for (int i = 0; i < 2; i++) {
        s[i] = numbers(FLOATS, "s");
        dp[i] = numbers(FLOATS, "dp");
        max[i] = numbers(ROW, "max");
        sum[i] = numbers(ROW, "sum");
        rescale[i] = numbers(ROW, "rescale");
    }
    const int cases = (int)(sizeof keys / sizeof *keys) * 4 * 3 * 2;
    for (int c = 0; c < cases * (int)oct_cpu_isa(); c++) {
        const int isa = OCT_ISA_AVX2 + c / cases, kind = c % 3;
        const bool diagonal = c / 3 % 2;
        const int64_t queries = 16 * (1 + c / 6 % 4), rows = keys[c % cases / 24];
        const int levels[] = {OCT_ISA_REF, isa};
        for (int i = 0; i < 2; i++) {
            const oct_attention_kernels *kernels = kernels_of(levels[i]);
            fill_tile(s[i], FLOATS, kind, 1);
            fill_tile(dp[i], FLOATS, kind, 2);
            fill_tile(max[i], ROW, kind, 3);
            fill_tile(sum[i], ROW, kind, 4);
            fill_tile(rescale[i], ROW, kind, 5);
            kernels->column_dots(s[i], dp[i], rows, queries, rescale[i]);
        }
        assert_same_floats("column_dots", isa, rescale[0], rescale[1], ROW);
        for (int i = 0; i < 2; i++)
            kernels_of(levels[i])->softmax(s[i], rows, queries, 0.125f, diagonal, max[i], sum[i],
                                           rescale[i]);
        for (int64_t j = 0; j < SIDE; j++) {
            const int64_t from = diagonal && j < rows && j < queries ? j : 0;
            if (!diagonal || j < queries)
                assert_same_floats("softmax", isa, s[0] + j * SIDE + from, s[1] + j * SIDE + from,
                                   SIDE - from);
        }
        assert_same_floats("softmax max", isa, max[0], max[1], ROW);
        assert_same_floats("softmax sum", isa, sum[0], sum[1], ROW);
        assert_same_floats("softmax rescale", isa, rescale[0], rescale[1], ROW);
        for (int i = 0; i < 2; i++) {
            fill_tile(s[i], FLOATS, kind, 6);
            kernels_of(levels[i])->scale_columns(s[i], rows, queries, rescale[0]);
        }
        assert_same_floats("scale_columns", isa, s[0], s[1], FLOATS);
        for (int i = 0; i < 2; i++)
            kernels_of(levels[i])->softmax_backward(s[i], dp[i], rows, queries, 0.125f, diagonal,
                                                    max[0], sum[0]);
        for (int64_t j = 0; j < SIDE; j++) {
            const int64_t from = diagonal && j < rows ? oct_min_i64(j, queries) : 0;
            const int64_t at = j * SIDE + from;
            assert_same_floats("softmax_backward P", isa, s[0] + at, s[1] + at, SIDE - from);
            assert_same_floats("softmax_backward dS", isa, dp[0] + at, dp[1] + at, SIDE - from);
        }
    }
    for (int i = 0; i < 2; i++) {
        free(s[i]);
        free(dp[i]);
        free(max[i]);
        free(sum[i]);
        free(rescale[i]);
    }
}

/* --- times (times.h) -------------------------------------------------------------------------- */

enum { TIMED_SIDE = OCT_ATTENTION_TILE, TIMED_DIM = 128, TIMED_FLOATS = TIMED_SIDE * TIMED_DIM };

/* A tile of 64 tokens of a head of 128, and its 64 x 64 scores. */
static struct {
    float tensor[TIMED_FLOATS];
    _Alignas(64) float x[TIMED_FLOATS], y[TIMED_FLOATS], z[TIMED_FLOATS];
    _Alignas(64) float s[TIMED_SIDE * TIMED_SIDE], dp[TIMED_SIDE * TIMED_SIDE];
    _Alignas(64) float max[TIMED_SIDE], sum[TIMED_SIDE], signs[TIMED_SIDE], dots[TIMED_SIDE];
} timed;

static void timed_fill(void)
{
    for (int i = 0; i < TIMED_FLOATS; i++)
        timed.tensor[i] = timed.x[i] = timed.y[i] = (float)(i % 61) * 0x1p-4f - 2.0f;
    memcpy(timed.s, timed.x, sizeof timed.s);
    memcpy(timed.dp, timed.x, sizeof timed.dp);
    for (int i = 0; i < TIMED_SIDE; i++)
        timed.signs[i] = i % 2 ? 1.0f : -1.0f; /* loops may pass over factors of 1 */
}

static void timed_call(const timed_loop *loop, const oct_kernels *at)
{
    const oct_attention_kernels *attention = &at->attention;
    const oct_attention_rows rows = {timed.tensor, loop->dtype, TIMED_DIM, TIMED_SIDE, TIMED_DIM};
    const oct_attention_product product = {.a = timed.x,
                                           .b = timed.y,
                                           .c = timed.s,
                                           .a_row = loop->transposed ? 1 : TIMED_DIM,
                                           .a_depth = loop->transposed ? TIMED_SIDE : 1,
                                           .ldb = TIMED_SIDE,
                                           .ldc = TIMED_SIDE,
                                           .rows = TIMED_SIDE,
                                           .cols = TIMED_SIDE,
                                           .depth = TIMED_DIM};
    switch (loop->slot) {
    case offsetof(oct_kernels, attention.load):
        attention->load(&rows, timed.z, TIMED_DIM);
        break;
    case offsetof(oct_kernels, attention.store):
        attention->store(timed.x, TIMED_DIM, 0.5f, &rows);
        break;
    case offsetof(oct_kernels, attention.transpose):
        attention->transpose(timed.x, TIMED_DIM, TIMED_SIDE, TIMED_DIM, timed.z, TIMED_SIDE);
        break;
    case offsetof(oct_kernels, attention.product):
        attention->product(&product);
        break;
    case offsetof(oct_kernels, attention.scale_columns):
        attention->scale_columns(timed.x, TIMED_DIM, TIMED_SIDE, timed.signs);
        break;
    case offsetof(oct_kernels, attention.column_dots):
        attention->column_dots(timed.x, timed.y, TIMED_DIM, TIMED_SIDE, timed.dots);
        break;
    case offsetof(oct_kernels, attention.softmax):
        attention->softmax(timed.s, TIMED_SIDE, TIMED_SIDE, 0.125f, false, timed.max, timed.sum,
                           timed.dots);
        break;
    case offsetof(oct_kernels, attention.softmax_backward):
        attention->softmax_backward(timed.s, timed.dp, TIMED_SIDE, TIMED_SIDE, 0.125f, false,
                                    timed.signs, timed.signs);
        break;
    default:
        fail_msg("%s has no call", loop->name);
    }
}

static const timed_loop timed_loops[] = {
    TIMED(attention.load, OCT_DTYPE_F32, false, TIMED_FLOATS, "element"),
    TIMED(attention.load, OCT_DTYPE_BF16, false, TIMED_FLOATS, "element"),
    TIMED(attention.store, OCT_DTYPE_F32, false, TIMED_FLOATS, "element"),
    TIMED(attention.store, OCT_DTYPE_BF16, false, TIMED_FLOATS, "element"),
    TIMED(attention.transpose, OCT_DTYPE_F32, false, TIMED_FLOATS, "element"),
    TIMED(attention.product, OCT_DTYPE_F32, false, TIMED_FLOATS *TIMED_SIDE, "FMA"),
    TIMED(attention.product, OCT_DTYPE_F32, true, TIMED_FLOATS *TIMED_SIDE, "FMA"),
    TIMED(attention.scale_columns, OCT_DTYPE_F32, false, TIMED_FLOATS, "element"),
    TIMED(attention.column_dots, OCT_DTYPE_F32, false, TIMED_FLOATS, "element"),
    TIMED(attention.softmax, OCT_DTYPE_F32, false, TIMED_SIDE *TIMED_SIDE, "element"),
    TIMED(attention.softmax_backward, OCT_DTYPE_F32, false, TIMED_SIDE *TIMED_SIDE, "element"),
};
static const timed_table timed_attention = {
    .loops = timed_loops,
    .count = sizeof timed_loops / sizeof *timed_loops,
    .first = offsetof(oct_kernels, attention),
    .end = offsetof(oct_kernels, attention) + sizeof(oct_attention_kernels),
    .call = timed_call,
};

static void times__every_loop_of_the_table__listed_and_callable(void **state)
{
    (void)state;
    timed_fill();
    times_check(&timed_attention);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention__odd_sizes__same_bits_for_every_isa_and_thread_count),
        cmocka_unit_test(attention__odd_sizes__near_plain_fp64_attention),
        cmocka_unit_test(attention__rising_scores__near_plain_fp64_attention),
        cmocka_unit_test(attention__large_scores__one_hot_without_overflow),
        cmocka_unit_test(attention__packed_sequences__same_bits_as_alone),
        cmocka_unit_test(attention__shorter_sequence__same_bits_in_out_and_dq),
        cmocka_unit_test(attention__nothing_to_do__succeeds),
        cmocka_unit_test(attention__shared_head__same_bits_as_copies),
        cmocka_unit_test(attention__nan_input__reaches_what_depends_on_it_and_nothing_else),
        cmocka_unit_test(attention__inf_input__reaches_out),
        cmocka_unit_test(attention__leading_scores_minus_inf__ignored),
        cmocka_unit_test(attention__bad_arguments__e_shape),
        cmocka_unit_test(attention__scratch__linear_in_tokens_and_reused),
        cmocka_unit_test(product_kernel__all_edges__same_bits_as_ref),
        cmocka_unit_test(product_kernel__all_kinds_of_values__same_bits_as_ref),
        cmocka_unit_test(transpose_kernel__blocks__moves_every_element),
        cmocka_unit_test(load_and_store_kernels__odd_rows__same_bits_as_ref),
        cmocka_unit_test(column_kernels__all_kinds_of_values__same_bits_as_ref),
        cmocka_unit_test(store_kernel__special_values__same_bits_as_bf16_from_f32),
        cmocka_unit_test(times__every_loop_of_the_table__listed_and_callable),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return times_finish(failed, argc, argv, &timed_attention);
}
