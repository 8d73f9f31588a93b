/* Every operator on every instruction set and on one and two threads gives the bits of ref on one
 * thread: odd widths, unaligned buffers between canaries, extreme and non-finite values. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "elementwise_fixture.h"
#include "times.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != OCT_OK)                                                                      \
            fail_msg("%s", run->err.msg);                                                          \
    } while (0)

static oct_tensor act_input(op_run *run, uint64_t seed, int64_t rows, int64_t cols)
{
    return oct_tensor_2d(run_input(run, run->dtype, seed, rows * cols), run->dtype, rows, cols);
}

static oct_tensor act_output(op_run *run, int64_t rows, int64_t cols)
{
    return oct_tensor_2d(run_output(run, run->dtype, rows * cols), run->dtype, rows, cols);
}

/* An output that starts with values. */
static oct_tensor act_inout(op_run *run, uint64_t seed, int64_t rows, int64_t cols)
{
    oct_tensor tensor = act_input(run, seed, rows, cols);
    run->buffers[run->count - 1].dtype = run->dtype;
    return tensor;
}

static float *f32_inout(op_run *run, uint64_t seed, int64_t n)
{
    float *x = run_input(run, OCT_DTYPE_F32, seed, n);
    run->buffers[run->count - 1].dtype = OCT_DTYPE_F32;
    return x;
}

static void op_rmsnorm(op_run *run)
{
    const oct_tensor x = act_input(run, 1, run->T, run->n), w = act_input(run, 2, 1, run->n);
    const oct_tensor y = act_output(run, run->T, run->n);
    float *rstd = run_output(run, OCT_DTYPE_F32, run->T);
    CHECK(oct_rmsnorm(&run->exec, &x, &w, 1e-6f, &y, rstd, &run->err));
}

static void rmsnorm_backward(op_run *run, bool add, oct_gemm_store store, bool round_bf16)
{
    const oct_tensor x = act_input(run, 1, run->T, run->n), w = act_input(run, 2, 1, run->n);
    const oct_tensor dy = act_input(run, 3, run->T, run->n);
    const oct_tensor add_to = act_input(run, 4, run->T, run->n);
    const oct_tensor dx = act_output(run, run->T, run->n);
    const float *rstd = run_input(run, OCT_DTYPE_F32, 5, run->T);
    const oct_gemm_out dw = {.data = f32_inout(run, 6, run->n),
                             .ld = run->n,
                             .dtype = OCT_DTYPE_F32,
                             .store = store,
                             .round_bf16 = round_bf16};
    CHECK(oct_rmsnorm_backward(&run->exec, &dy, &x, &w, rstd, add ? &add_to : NULL, &dx, &dw,
                               &run->err));
}

static void op_rmsnorm_backward(op_run *run)
{
    rmsnorm_backward(run, false, OCT_GEMM_STORE, false);
}

static void op_rmsnorm_backward_fold(op_run *run)
{
    rmsnorm_backward(run, true, OCT_GEMM_FOLD, true);
}

static void op_rmsnorm_backward_in_place(op_run *run)
{
    const oct_tensor x = act_input(run, 1, run->T, run->n), w = act_input(run, 2, 1, run->n);
    const oct_tensor dy = act_inout(run, 3, run->T, run->n);
    const float *rstd = run_input(run, OCT_DTYPE_F32, 5, run->T);
    const oct_gemm_out dw = {.data = run_output(run, run->dtype, run->n),
                             .ld = run->n,
                             .dtype = run->dtype,
                             .store = OCT_GEMM_STORE};
    CHECK(oct_rmsnorm_backward(&run->exec, &dy, &x, &w, rstd, &dy, &dy, &dw, &run->err));
}

static void op_add(op_run *run)
{
    const oct_tensor a = act_input(run, 1, run->T, run->n), b = act_input(run, 2, run->T, run->n);
    const oct_tensor y = act_output(run, run->T, run->n);
    CHECK(oct_add(&run->exec, &a, &b, &y, &run->err));
}

static void op_swiglu(op_run *run)
{
    const int64_t ld = 2 * run->n;
    const oct_tensor both = act_input(run, 1, run->T, ld);
    const oct_tensor gate = oct_tensor_2d(both.data, run->dtype, run->T, run->n);
    const oct_tensor up =
        oct_tensor_2d((char *)both.data + (size_t)run->n * oct_dtype_bytes(run->dtype), run->dtype,
                      run->T, run->n);
    const oct_tensor y = act_output(run, run->T, run->n);
    CHECK(oct_swiglu(&run->exec, &gate, ld, &up, ld, &y, &run->err));
}

static void op_swiglu_backward(op_run *run)
{
    const int64_t ld = 2 * run->n;
    const oct_tensor dy = act_input(run, 2, run->T, run->n);
    const oct_tensor both = act_inout(run, 1, run->T, ld); /* in place */
    const oct_tensor gate = oct_tensor_2d(both.data, run->dtype, run->T, run->n);
    const oct_tensor up =
        oct_tensor_2d((char *)both.data + (size_t)run->n * oct_dtype_bytes(run->dtype), run->dtype,
                      run->T, run->n);
    CHECK(oct_swiglu_backward(&run->exec, &dy, &gate, ld, &up, ld, &gate, &up, &run->err));
}

static void rope(op_run *run, bool interleave, bool inverse, bool in_place)
{
    const int64_t heads = 3, half = run->n, dim = 2 * half, stride = heads * dim + 5;
    const int64_t elements = run->T * stride;
    const oct_tensor x = act_inout(run, 1, 1, elements);
    const oct_tensor y = act_inout(run, 2, 1, elements);
    const fill how = run->fill;
    run->fill = FILL_PLAIN;
    const float *cos = run_input(run, OCT_DTYPE_F32, 3, 7 * half);
    const float *sin = run_input(run, OCT_DTYPE_F32, 4, 7 * half);
    run->fill = how;
    int32_t *positions = run_buffer(run, OCT_DTYPE_I32, run->T, false);
    for (int64_t t = 0; t < run->T; t++)
        positions[t] = (int32_t)(t * 3 % 7);
    const oct_rope_view view = {.src = x.data,
                                .dst = in_place ? x.data : y.data,
                                .src_token_stride = stride,
                                .src_head_stride = dim,
                                .dst_token_stride = stride,
                                .dst_head_stride = dim};
    CHECK(oct_rope(&run->exec, run->dtype, &view, run->T, heads, dim, cos, sin, positions,
                   interleave, inverse, &run->err));
}

static void op_rope(op_run *run)
{
    rope(run, false, false, false);
}

static void op_rope_inverse(op_run *run)
{
    rope(run, false, true, true);
}

static void op_rope_interleaved(op_run *run)
{
    rope(run, true, false, false);
}

static void op_rope_interleaved_in_place(op_run *run)
{
    rope(run, true, false, true);
}

static void op_rope_interleaved_inverse(op_run *run)
{
    rope(run, true, true, false);
}

static void op_rope_interleaved_inverse_in_place(op_run *run)
{
    rope(run, true, true, true);
}

static void op_head_sum(op_run *run)
{
    const int64_t heads = 5;
    const oct_tensor x = act_input(run, 1, run->T * heads, run->n);
    const oct_tensor y = act_output(run, run->T, run->n);
    const oct_rope_view view = {.src = x.data,
                                .dst = y.data,
                                .src_token_stride = heads * run->n,
                                .src_head_stride = run->n,
                                .dst_token_stride = run->n};
    CHECK(oct_head_sum(&run->exec, run->dtype, &view, run->T, heads, run->n, &run->err));
}

static void op_head_copy(op_run *run)
{
    const int64_t heads = 3;
    const oct_tensor x = act_input(run, 1, run->T, run->n);
    const oct_tensor y = act_output(run, run->T * heads, run->n);
    const oct_rope_view view = {.src = x.data,
                                .dst = y.data,
                                .src_token_stride = run->n,
                                .dst_token_stride = heads * run->n,
                                .dst_head_stride = run->n};
    CHECK(oct_head_copy(&run->exec, run->dtype, &view, run->T, heads, run->n, &run->err));
}

static int32_t *token_ids(op_run *run, int64_t vocab)
{
    int32_t *ids = run_buffer(run, OCT_DTYPE_I32, run->T, false);
    for (int64_t t = 0; t < run->T; t++)
        ids[t] = (int32_t)(test_mix((uint64_t)t) % (uint64_t)vocab);
    return ids;
}

static void op_embedding(op_run *run)
{
    const oct_tensor table = act_input(run, 1, 11, run->n);
    const oct_tensor y = act_output(run, run->T, run->n);
    CHECK(oct_embedding(&run->exec, &table, token_ids(run, 11), &y, &run->err));
}

static void embedding_backward(op_run *run, oct_gemm_store store)
{
    const int64_t vocab = 3 * run->T / 2 + 2; /* some ids never occur */
    const oct_tensor dy = act_input(run, 1, run->T, run->n);
    const oct_gemm_out out = {.data = f32_inout(run, 2, vocab * (run->n + 3)),
                              .ld = run->n + 3,
                              .dtype = OCT_DTYPE_F32,
                              .store = store,
                              .round_bf16 = store == OCT_GEMM_FOLD};
    CHECK(oct_embedding_backward(&run->exec, &dy, token_ids(run, vocab), vocab, &out, &run->err));
}

static void op_embedding_backward(op_run *run)
{
    embedding_backward(run, OCT_GEMM_STORE);
}

static void op_embedding_backward_fold(op_run *run)
{
    embedding_backward(run, OCT_GEMM_FOLD);
}

static void cross_entropy(op_run *run, float scale)
{
    const oct_tensor logits = act_inout(run, 1, run->T, run->n);
    int32_t *targets = run_buffer(run, OCT_DTYPE_I32, run->T, false);
    for (int64_t t = 0; t < run->T; t++)
        targets[t] = t % 4 == 3 ? -1 : (int32_t)(test_mix((uint64_t)t) % (uint64_t)run->n);
    float *loss = run_output(run, OCT_DTYPE_F32, run->T);
    CHECK(oct_cross_entropy(&run->exec, &logits, targets, scale, loss, &run->err));
}

static void op_cross_entropy(op_run *run)
{
    cross_entropy(run, 0.0f);
}

static void op_cross_entropy_gradient(op_run *run)
{
    cross_entropy(run, 0.125f);
}

/* n is the number of experts per group. */
static oct_router_config router_config(const op_run *run)
{
    return (oct_router_config){.experts = 4 * (run->n + 1),
                               .top_k = 2,
                               .groups = 4,
                               .top_groups = 2,
                               .normalise = run->n % 2 == 0,
                               .scaling_factor = 2.5f};
}

static void op_router(op_run *run)
{
    const oct_router_config config = router_config(run);
    const oct_tensor logits =
        oct_tensor_2d(run_input(run, OCT_DTYPE_F32, 1, run->T * config.experts), OCT_DTYPE_F32,
                      run->T, config.experts);
    const float *bias = run_input(run, OCT_DTYPE_F32, 2, config.experts);
    float *scores = run_output(run, OCT_DTYPE_F32, run->T * config.experts);
    int32_t *experts = run_output(run, OCT_DTYPE_I32, run->T * config.top_k);
    float *weights = run_output(run, OCT_DTYPE_F32, run->T * config.top_k);
    CHECK(oct_router(&run->exec, &config, &logits, bias, scores, experts, weights, &run->err));
    const float *dweights = run_input(run, OCT_DTYPE_F32, 3, run->T * config.top_k);
    const oct_tensor dlogits =
        oct_tensor_2d(run_output(run, OCT_DTYPE_F32, run->T * config.experts), OCT_DTYPE_F32,
                      run->T, config.experts);
    CHECK(oct_router_backward(&run->exec, &config, scores, experts, weights, dweights, &dlogits,
                              &run->err));
}

static void op_route(op_run *run)
{
    enum { TOP_K = 3, EXPERTS = 7 };
    const int64_t pairs = run->T * TOP_K;
    const oct_tensor x = act_input(run, 1, run->T, run->n);
    const oct_tensor shared = act_input(run, 2, run->T, run->n);
    const oct_tensor dy = act_input(run, 3, run->T, run->n);
    const oct_tensor rows = act_output(run, pairs, run->n), y = act_output(run, run->T, run->n);
    const oct_tensor plain = act_output(run, run->T, run->n);
    const oct_tensor drows = act_output(run, pairs, run->n), dx = act_output(run, run->T, run->n);
    const float *weights = run_input(run, OCT_DTYPE_F32, 4, pairs);
    float *dweights = run_output(run, OCT_DTYPE_F32, pairs);
    int32_t *experts = run_buffer(run, OCT_DTYPE_I32, pairs, false);
    int32_t *source = run_output(run, OCT_DTYPE_I32, pairs);
    int32_t *row = run_output(run, OCT_DTYPE_I32, pairs);
    int64_t *ends = run_buffer(run, OCT_DTYPE_I64, EXPERTS, false);
    for (int64_t i = 0; i < pairs; i++) /* expert 3 and 6 stay empty */
        experts[i] = (int32_t)(i % TOP_K * 2 + (i % TOP_K != 1 && i / TOP_K % 2));
    oct_route_sort(experts, run->T, TOP_K, EXPERTS, ends, source, row);
    const oct_routed inputs = {
        .kernels = &run->exec.kernels->elementwise, .x = x, .source_S = source, .top_k = TOP_K};
    oct_routed gradients = inputs;
    gradients.x = dy;
    gradients.weights_TK = weights;
    const oct_lazy made = oct_route_rows(&inputs), dmade = oct_route_rows(&gradients);
    CHECK(oct_lazy_store(&run->exec, &made, &rows, &run->err));
    CHECK(oct_lazy_store(&run->exec, &dmade, &drows, &run->err));
    CHECK(oct_route_combine(&run->exec, &rows, row, weights, TOP_K, &shared, &y, &run->err));
    CHECK(oct_route_combine(&run->exec, &rows, row, weights, TOP_K, NULL, &plain, &run->err));
    CHECK(oct_route_combine_backward(&run->exec, &dy, &rows, row, TOP_K, dweights, &run->err));
    CHECK(oct_route_gather_backward(&run->exec, &drows, row, TOP_K, &dx, &run->err));
}

static void op_bias_backward(op_run *run)
{
    const oct_tensor dy = act_input(run, 1, run->T, run->n);
    const oct_gemm_out stored = {.data = run_output(run, run->dtype, run->n),
                                 .ld = run->n,
                                 .dtype = run->dtype,
                                 .store = OCT_GEMM_STORE};
    const oct_gemm_out folded = {.data = f32_inout(run, 2, run->n),
                                 .ld = run->n,
                                 .dtype = OCT_DTYPE_F32,
                                 .store = OCT_GEMM_FOLD};
    CHECK(oct_bias_backward(&run->exec, &dy, &stored, &run->err));
    CHECK(oct_bias_backward(&run->exec, &dy, &folded, &run->err));
}

static void op_convert(op_run *run)
{
    const oct_dtype to = run->dtype == OCT_DTYPE_F32 ? OCT_DTYPE_BF16 : OCT_DTYPE_F32;
    const oct_tensor x = act_input(run, 1, run->T, run->n);
    const oct_tensor y = oct_tensor_2d(run_output(run, to, run->T * run->n), to, run->T, run->n);
    CHECK(oct_convert(&run->exec, &x, &y, &run->err));
}

static void op_adamw(op_run *run)
{
    const oct_adamw_step step = {.lr = 3e-4,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8,
                                 .weight_decay = 0.1,
                                 .bias1 = 0.271,
                                 .bias2 = 0.142625,
                                 .grad_scale = 0.7f};
    const int64_t n = run->T * run->n;
    const float *grad = run_input(run, OCT_DTYPE_F32, 1, n);
    float *w = f32_inout(run, 2, n), *m = f32_inout(run, 3, n), *v = f32_inout(run, 4, n);
    CHECK(oct_adamw(&run->exec, &step, n, grad, w, m, v, &run->err));
}

static void op_sum_squares(op_run *run)
{
    const float *x = run_input(run, OCT_DTYPE_F32, 1, run->T * run->n);
    double *sums = run_output_f64(run, run->T), *sum = run_output_f64(run, 1);
    oct_sum_squares_rows(&run->exec, x, run->T, run->n, sums);
    *sum = oct_sum_squares(&run->exec, x, run->T * run->n);
}

typedef struct op_case {
    const char *name;
    void (*run)(op_run *run);
} op_case;

static const op_case ops[] = {
    {"rmsnorm", op_rmsnorm},
    {"rmsnorm_backward", op_rmsnorm_backward},
    {"rmsnorm_backward folded", op_rmsnorm_backward_fold},
    {"rmsnorm_backward in place", op_rmsnorm_backward_in_place},
    {"add", op_add},
    {"swiglu", op_swiglu},
    {"swiglu_backward", op_swiglu_backward},
    {"rope", op_rope},
    {"rope inverse", op_rope_inverse},
    {"rope interleaved", op_rope_interleaved},
    {"rope interleaved in place", op_rope_interleaved_in_place},
    {"rope interleaved inverse", op_rope_interleaved_inverse},
    {"rope interleaved inverse in place", op_rope_interleaved_inverse_in_place},
    {"head_sum", op_head_sum},
    {"head_copy", op_head_copy},
    {"embedding", op_embedding},
    {"embedding_backward", op_embedding_backward},
    {"embedding_backward folded", op_embedding_backward_fold},
    {"cross_entropy", op_cross_entropy},
    {"cross_entropy gradient", op_cross_entropy_gradient},
    {"router", op_router},
    {"route", op_route},
    {"bias_backward", op_bias_backward},
    {"convert", op_convert},
    {"adamw", op_adamw},
    {"sum_squares", op_sum_squares},
};

static void run_once(op_run *run, const op_case *op, oct_isa isa, int threads, oct_dtype dtype,
                     int64_t T, int64_t n, fill how)
{
    run_init(run, isa, threads);
    run->dtype = dtype;
    run->T = T;
    run->n = n;
    run->fill = how;
    op->run(run);
}

static void compare(const op_case *op, oct_dtype dtype, int64_t T, int64_t n, fill how,
                    int most_threads)
{
    op_run want;
    run_once(&want, op, OCT_ISA_REF, 1, dtype, T, n, how);
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
        for (int threads = isa == OCT_ISA_REF ? 2 : 1; threads <= most_threads; threads++) {
            op_run run;
            run_once(&run, op, (oct_isa)isa, threads, dtype, T, n, how);
            assert_same_outputs(op->name, &run, &want);
            run_release(&run);
        }
    run_release(&want);
}

/* Every rest of 16 lanes alone and behind one whole vector, and wider rows. These are too small for
 * a second thread. */
static void all_operators__widths_1_to_131__bits_of_ref(void **state)
{
    (void)state;
    const oct_dtype dtypes[] = {OCT_DTYPE_F32, OCT_DTYPE_BF16};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            for (int64_t n = 1; n <= 131; n += n < 33 ? 1 : 14)
                for (int how = FILL_PLAIN; how <= FILL_NONFINITE; how++)
                    compare(&ops[i], dtypes[d], 5, n, (fill)how, 1);
}

/* Large enough that two threads have several ranges of rows, and of columns. */
static void all_operators__many_rows__bits_of_ref(void **state)
{
    (void)state;
    const oct_dtype dtypes[] = {OCT_DTYPE_F32, OCT_DTYPE_BF16};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            compare(&ops[i], dtypes[d], 523, 131, FILL_PLAIN, 2);
            compare(&ops[i], dtypes[d], 37, 1031, FILL_EXTREME, 2);
        }
}

static void all_operators__no_rows__nothing_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        compare(&ops[i], OCT_DTYPE_BF16, 0, 5, FILL_PLAIN, 2);
}

typedef void function_kernel(int64_t n, const float *x, float *y);

static function_kernel *function_of(const oct_elementwise_kernels *kernels, int f)
{
    return f == 0 ? kernels->exp : f == 1 ? kernels->log : kernels->sigmoid;
}

/* A prime step: every exponent and sign, all kinds of mantissas. */
static void functions__every_1021st_operand__bits_of_fmath(void **state)
{
    (void)state;
    enum { BATCH = 4096 };
    static float x[BATCH], want[BATCH], got[BATCH];
    oct_elementwise_kernels kernels[OCT_ISA_AVX512 + 1];
    const int best = (int)oct_cpu_isa();
    for (int isa = OCT_ISA_REF; isa <= best; isa++)
        oct_elementwise_kernels_init(&kernels[isa], (oct_isa)isa);
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32;) {
        for (int i = 0; i < BATCH; i++, bits += 1021)
            x[i] = oct_f32_from_bits((uint32_t)bits);
        for (int f = 0; f < 3; f++) {
            function_of(&kernels[OCT_ISA_REF], f)(BATCH, x, want);
            for (int isa = OCT_ISA_AVX2; isa <= best; isa++) {
                function_of(&kernels[isa], f)(BATCH, x, got);
                assert_memory_equal(got, want, sizeof got);
            }
        }
    }
}

/* Every rest of 16 lanes, at an odd address between canaries and in place. */
static void functions__odd_lengths__bits_of_ref(void **state)
{
    (void)state;
    enum { MOST = 67, BUFFER = MOST + 3 };
    oct_elementwise_kernels kernels[OCT_ISA_AVX512 + 1];
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
        oct_elementwise_kernels_init(&kernels[isa], (oct_isa)isa);
    for (int c = 0; c < 3 * 3 * (MOST + 1) * (int)oct_cpu_isa(); c++) {
        const int f = c % 3, how = c / 3 % 3, n = c / 9 % (MOST + 1);
        const int isa = OCT_ISA_AVX2 + c / 9 / (MOST + 1);
        float x[BUFFER], want[BUFFER], got[BUFFER];
        for (int i = 0; i < BUFFER; i++)
            x[i] = test_value((uint64_t)n, i, (fill)how);
        memset(want, CANARY, sizeof want);
        memset(got, CANARY, sizeof got);
        function_of(&kernels[OCT_ISA_REF], f)(n, x + 1, want + 1);
        function_of(&kernels[isa], f)(n, x + 1, got + 1);
        assert_memory_equal(got, want, sizeof got);
        memcpy(got + 1, x + 1, (size_t)n * sizeof *x);
        function_of(&kernels[isa], f)(n, got + 1, got + 1);
        assert_memory_equal(got, want, sizeof got);
    }
}

/* --- initial weights ----------------------------------------------------------------------------
 */

/* Every number of blocks up to a few vectors, at odd addresses between canaries; counters that
 * carry into their upper half, and one that ends. */
static void normal_kernel__any_blocks__same_bits_as_ref(void **state)
{
    (void)state;
    enum { MOST = 27, ROOM = MOST * OCT_NORMAL_WORDS + 2 };
    static const uint64_t starts[] = {0, 5, 0xfffffffa, 0xfffffffffffffffc, 0x123456789abcdef};
    for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++)
        for (int64_t blocks = 0; blocks <= MOST; blocks++)
            for (size_t i = 0; i < 400; i++) {
                const oct_rng stream = {.key = 0x9e3779b97f4a7c15u * (i + 1)};
                const uint64_t first = starts[i % 5];
                float want[ROOM], got[ROOM];
                memset(want, 0x5a, sizeof want);
                memset(got, 0x5a, sizeof got);
                timed_level(OCT_ISA_REF)->elementwise.normal(stream, first, blocks, 0.02, want + 1);
                timed_level(isa)->elementwise.normal(stream, first, blocks, 0.02, got + 1);
                assert_memory_equal(got, want, sizeof got);
            }
}

/* The words are those of oct_rng, and the first pair is Box & Muller's of the first two. */
static void normal_kernel__some_blocks__box_and_muller_of_the_stream(void **state)
{
    (void)state;
    const oct_rng stream = oct_rng_stream(7, "a");
    for (uint64_t b = 0; b < 1000; b++) {
        uint32_t w[OCT_NORMAL_WORDS];
        float x[OCT_NORMAL_WORDS];
        oct_rng_block(stream, b, w);
        timed_level((int)oct_cpu_isa())->elementwise.normal(stream, b, 1, 3.0, x);
        for (int pair = 0; pair < OCT_NORMAL_WORDS; pair += 2) {
            const double radius = 3.0 * sqrt(-2.0 * log(((double)w[pair] + 0.5) * 0x1p-32));
            const double turn = (double)w[pair + 1] * (0x1.921fb54442d18p+2 * 0x1p-32);
            assert_true(fabs((double)x[pair] - radius * cos(turn)) < 2e-6);
            assert_true(fabs((double)x[pair + 1] - radius * sin(turn)) < 2e-6);
        }
    }
}

/* --- times (times.h) -------------------------------------------------------------------------- */

/* Elements of a row, rows of sum_rows, elements of a rotated slice. */
enum { TIMED_N = 1024, TIMED_ROWS = 8, TIMED_SLICE = 64 };

/* What the loops write. Values that a call reads again stay finite over any number of calls. */
static struct {
    _Alignas(64) float y[TIMED_N], sums[TIMED_N], w[TIMED_N], m[TIMED_N], v[TIMED_N];
    _Alignas(64) uint16_t bf16[TIMED_N], dup[TIMED_N], logits[TIMED_N];
} timed;

static void timed_call(const timed_loop *loop, const oct_kernels *at)
{
    static const oct_adamw_constants adamw = {.grad_scale = 0.7f,
                                              .step_size = 1e-3f,
                                              .eps = 1e-8f,
                                              .decay = 0.9999f,
                                              .beta1 = 0.9f,
                                              .beta2 = 0.95f,
                                              .gain1 = 0.1f,
                                              .gain2 = 0.05f,
                                              .root_bias2 = 0.5f};
    const oct_elementwise_kernels *kernels = &at->elementwise;
    const float *x = test_pool(OCT_DTYPE_F32, FILL_PLAIN);
    const uint16_t *a = test_pool(OCT_DTYPE_BF16, FILL_PLAIN), *b = a + TIMED_N, *c = b + TIMED_N;
    const oct_dtype dtype = loop->dtype;
    const oct_gemm_out out = {.data = timed.bf16, .dtype = dtype};
    switch (loop->slot) {
    case offsetof(oct_kernels, elementwise.exp):
        kernels->exp(TIMED_N, x, timed.y);
        break;
    case offsetof(oct_kernels, elementwise.log):
        kernels->log(TIMED_N, x, timed.y);
        break;
    case offsetof(oct_kernels, elementwise.sigmoid):
        kernels->sigmoid(TIMED_N, x, timed.y);
        break;
    case offsetof(oct_kernels, elementwise.add):
        kernels->add(dtype, TIMED_N, a, b, timed.bf16);
        break;
    case offsetof(oct_kernels, elementwise.swiglu):
        kernels->swiglu(dtype, TIMED_N, a, b, timed.bf16);
        break;
    case offsetof(oct_kernels, elementwise.swiglu_backward):
        kernels->swiglu_backward(dtype, TIMED_N, a, b, c, timed.bf16, timed.dup);
        break;
    case offsetof(oct_kernels, elementwise.rmsnorm):
        (void)kernels->rmsnorm(dtype, TIMED_N, a, b, 1e-6f, timed.bf16);
        break;
    case offsetof(oct_kernels, elementwise.rmsnorm_backward):
        kernels->rmsnorm_backward(dtype, TIMED_N, a, b, c, 0.5f, NULL, timed.bf16);
        break;
    case offsetof(oct_kernels, elementwise.rmsnorm_dw):
        kernels->rmsnorm_dw(dtype, TIMED_N, a, b, 0.5f, timed.sums);
        break;
    case offsetof(oct_kernels, elementwise.accumulate):
        kernels->accumulate(dtype, TIMED_N, a, timed.sums);
        break;
    case offsetof(oct_kernels, elementwise.sum_rows):
        kernels->sum_rows(dtype, TIMED_N, TIMED_ROWS, a, TIMED_N, NULL, x, NULL, timed.bf16);
        break;
    case offsetof(oct_kernels, elementwise.scale):
        kernels->scale(dtype, TIMED_N, 0.5f, a, timed.bf16);
        break;
    case offsetof(oct_kernels, elementwise.dot):
        (void)kernels->dot(dtype, TIMED_N, a, b);
        break;
    case offsetof(oct_kernels, elementwise.rope):
        kernels->rope(dtype, TIMED_SLICE / 2, a, x, x + TIMED_SLICE, loop->transposed, false,
                      timed.bf16);
        break;
    case offsetof(oct_kernels, elementwise.cross_entropy):
        (void)kernels->cross_entropy(dtype, TIMED_N, timed.logits, 7, 0.125f);
        break;
    case offsetof(oct_kernels, elementwise.store_row):
        kernels->store_row(&out, TIMED_N, x, timed.bf16);
        break;
    case offsetof(oct_kernels, elementwise.widen):
        kernels->widen(TIMED_N, a, timed.y);
        break;
    case offsetof(oct_kernels, elementwise.narrow):
        kernels->narrow(TIMED_N, x, timed.bf16);
        break;
    case offsetof(oct_kernels, elementwise.adamw):
        kernels->adamw(&adamw, TIMED_N, x, timed.w, timed.m, timed.v);
        break;
    case offsetof(oct_kernels, elementwise.sum_squares):
        (void)kernels->sum_squares(TIMED_N, x);
        break;
    case offsetof(oct_kernels, elementwise.normal):
        kernels->normal((oct_rng){.key = 1}, 0, TIMED_N / OCT_NORMAL_WORDS, 0.02, timed.w);
        break;
    default:
        fail_msg("%s has no call", loop->name);
    }
}

static const timed_loop timed_loops[] = {
    TIMED(elementwise.exp, OCT_DTYPE_F32, false, TIMED_N, "element"),
    TIMED(elementwise.log, OCT_DTYPE_F32, false, TIMED_N, "element"),
    TIMED(elementwise.sigmoid, OCT_DTYPE_F32, false, TIMED_N, "element"),
    TIMED(elementwise.add, OCT_DTYPE_BF16, false, TIMED_N, "element"),
    TIMED(elementwise.swiglu, OCT_DTYPE_BF16, false, TIMED_N, "element"),
    TIMED(elementwise.swiglu_backward, OCT_DTYPE_BF16, false, TIMED_N, "element"),
    TIMED(elementwise.rmsnorm, OCT_DTYPE_BF16, false, TIMED_N, "element"),
    TIMED(elementwise.rmsnorm_backward, OCT_DTYPE_BF16, false, TIMED_N, "element"),
    TIMED(elementwise.rmsnorm_dw, OCT_DTYPE_BF16, false, TIMED_N, "element"),
    TIMED(elementwise.accumulate, OCT_DTYPE_BF16, false, TIMED_N, "element"),
    TIMED(elementwise.sum_rows, OCT_DTYPE_BF16, false, TIMED_ROWS *TIMED_N, "element"),
    TIMED(elementwise.scale, OCT_DTYPE_BF16, false, TIMED_N, "element"),
    TIMED(elementwise.dot, OCT_DTYPE_BF16, false, TIMED_N, "element"),
    TIMED(elementwise.rope, OCT_DTYPE_BF16, false, TIMED_SLICE, "element"),
    TIMED(elementwise.rope, OCT_DTYPE_BF16, true, TIMED_SLICE, "element"), /* interleaved */
    TIMED(elementwise.cross_entropy, OCT_DTYPE_BF16, false, TIMED_N, "element"),
    TIMED(elementwise.store_row, OCT_DTYPE_BF16, false, TIMED_N, "element"),
    TIMED(elementwise.widen, OCT_DTYPE_BF16, false, TIMED_N, "element"),
    TIMED(elementwise.narrow, OCT_DTYPE_F32, false, TIMED_N, "element"),
    TIMED(elementwise.adamw, OCT_DTYPE_F32, false, TIMED_N, "element"),
    TIMED(elementwise.sum_squares, OCT_DTYPE_F32, false, TIMED_N, "element"),
    TIMED(elementwise.normal, OCT_DTYPE_F32, false, TIMED_N, "element"),
};
static const timed_table timed_elementwise = {
    .loops = timed_loops,
    .count = sizeof timed_loops / sizeof *timed_loops,
    .first = offsetof(oct_kernels, elementwise),
    .end = offsetof(oct_kernels, elementwise) + sizeof(oct_elementwise_kernels),
    .call = timed_call,
};

static void times__every_loop_of_the_table__listed_and_callable(void **state)
{
    (void)state;
    times_check(&timed_elementwise);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_operators__widths_1_to_131__bits_of_ref),
        cmocka_unit_test(all_operators__many_rows__bits_of_ref),
        cmocka_unit_test(all_operators__no_rows__nothing_written),
        cmocka_unit_test(functions__every_1021st_operand__bits_of_fmath),
        cmocka_unit_test(functions__odd_lengths__bits_of_ref),
        cmocka_unit_test(normal_kernel__any_blocks__same_bits_as_ref),
        cmocka_unit_test(normal_kernel__some_blocks__box_and_muller_of_the_stream),
        cmocka_unit_test(times__every_loop_of_the_table__listed_and_callable),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return times_finish(failed, argc, argv, &timed_elementwise);
}
