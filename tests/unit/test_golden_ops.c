/* The elementwise operators of golden/model/ops.json, in FP32, on every instruction set. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "golden_ops.h"
#include "kernels/exec.h"
#include "numeric/fmath.h"

/* What every case gets. */
typedef struct op_bench {
    const oct_exec *exec;
    uint64_t seed;
    oct_err err;
} op_bench;

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != OCT_OK)                                                                      \
            fail_msg("%s", bench->err.msg);                                                        \
    } while (0)

static float *floats(int64_t n)
{
    float *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    return x;
}

static oct_tensor matrix(float *data, int64_t rows, int64_t cols)
{
    return oct_tensor_2d(data, OCT_DTYPE_F32, rows, cols);
}

static int shift_of(const json_t *golden, const char *tensor)
{
    return (int)golden_int(json_object_get(golden, "shift"), tensor);
}

static void check_rms_norm(op_bench *bench, const json_t *golden)
{
    const int64_t T = golden_int(golden, "rows"), H = golden_int(golden, "cols");
    float *x = floats(T * H), *w = floats(H), *g = floats(T * H), *y = floats(T * H);
    float *dx = floats(T * H), *dw = floats(H), *rstd = floats(T);
    golden_fill(x, T * H, "op/rms/x", bench->seed, 0.0, shift_of(golden, "x"));
    golden_fill(w, H, "op/rms/w", bench->seed, 1.0, shift_of(golden, "w"));
    golden_fill(g, T * H, "op/rms/g", bench->seed, 0.0, shift_of(golden, "g"));
    const oct_tensor tx = matrix(x, T, H), tw = matrix(w, 1, H), ty = matrix(y, T, H),
                     tg = matrix(g, T, H), tdx = matrix(dx, T, H);
    const oct_gemm_out out = {.data = dw, .ld = H, .dtype = OCT_DTYPE_F32};
    CHECK(oct_rmsnorm(bench->exec, &tx, &tw, (float)golden_number(golden, "eps"), &ty, rstd,
                      &bench->err));
    CHECK(oct_rmsnorm_backward(bench->exec, &tg, &tx, &tw, rstd, NULL, &tdx, &out, &bench->err));
    golden_matches(golden, "y", y, T, H);
    golden_matches(golden, "dx", dx, T, H);
    golden_matches(golden, "dw", dw, 1, H);
    float *const all[] = {x, w, g, y, dx, dw, rstd};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void check_swiglu(op_bench *bench, const json_t *golden)
{
    const int64_t T = golden_int(golden, "rows"), F = golden_int(golden, "cols");
    const int shift = (int)golden_int(golden, "shift");
    float *gate = floats(T * F), *up = floats(T * F), *g = floats(T * F);
    float *y = floats(T * F), *dgate = floats(T * F), *dup = floats(T * F);
    golden_fill(gate, T * F, "op/swiglu/gate", bench->seed, 0.0, shift);
    golden_fill(up, T * F, "op/swiglu/up", bench->seed, 0.0, shift);
    golden_fill(g, T * F, "op/swiglu/g", bench->seed, 0.0, shift);
    const oct_tensor tgate = matrix(gate, T, F), tup = matrix(up, T, F), tg = matrix(g, T, F),
                     ty = matrix(y, T, F), tdgate = matrix(dgate, T, F), tdup = matrix(dup, T, F);
    CHECK(oct_swiglu(bench->exec, &tgate, F, &tup, F, &ty, &bench->err));
    CHECK(oct_swiglu_backward(bench->exec, &tg, &tgate, F, &tup, F, &tdgate, &tdup, &bench->err));
    golden_matches(golden, "y", y, T, F);
    golden_matches(golden, "dgate", dgate, T, F);
    golden_matches(golden, "dup", dup, T, F);
    float *const all[] = {gate, up, g, y, dgate, dup};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void check_cross_entropy(op_bench *bench, const json_t *golden)
{
    const int64_t T = golden_int(golden, "rows"), V = golden_int(golden, "vocab");
    const json_t *labels = json_object_get(golden, "labels");
    assert_int_equal(json_array_size(labels), T);
    float *logits = floats(T * V), *loss = floats(T);
    int32_t *targets = calloc((size_t)T, sizeof *targets);
    assert_non_null(targets);
    golden_fill(logits, T * V, "op/ce/logits", bench->seed, 0.0, (int)golden_int(golden, "shift"));
    int valid = 0;
    for (int64_t t = 0; t < T; t++) {
        const json_int_t label = json_integer_value(json_array_get(labels, (size_t)t));
        targets[t] = label == -100 ? -1 : (int32_t)label;
        valid += label != -100;
    }
    const oct_tensor tlogits = matrix(logits, T, V);
    CHECK(
        oct_cross_entropy(bench->exec, &tlogits, targets, 1.0f / (float)valid, loss, &bench->err));
    double sum = 0.0;
    for (int64_t t = 0; t < T; t++)
        sum += (double)loss[t];
    const double want = golden_number(golden, "loss");
    golden_near("loss", 0, sum / valid, want, 1e-5 * want);
    golden_matches(golden, "dlogits", logits, T, V);
    free(logits);
    free(loss);
    free(targets);
}

/* c[m][n] = sum over k of a(m, k) b(k, n), strides in elements; the products around the router
 * belong to the caller of the operator. */
static void multiply(int64_t M, int64_t N, int64_t K, const float *a, int64_t a_m, int64_t a_k,
                     const float *b, int64_t b_k, int64_t b_n, float *c)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double sum = 0.0;
            for (int64_t k = 0; k < K; k++)
                sum += (double)a[m * a_m + k * a_k] * (double)b[k * b_k + n * b_n];
            c[m * N + n] = (float)sum;
        }
}

static void check_choice(const json_t *golden, int64_t T, int64_t K, const int32_t *experts,
                         const float *weights)
{
    const json_t *golden_experts = json_object_get(golden, "experts_ascending");
    const json_t *golden_weights = json_object_get(golden, "weights");
    assert_int_equal(json_array_size(golden_experts), T);
    assert_int_equal(json_array_size(golden_weights), T);
    for (int64_t i = 0; i < T * K; i++) {
        const size_t t = (size_t)(i / K), k = (size_t)(i % K);
        assert_int_equal(experts[i],
                         json_integer_value(json_array_get(json_array_get(golden_experts, t), k)));
        golden_near("weight", i, (double)weights[i],
                    json_number_value(json_array_get(json_array_get(golden_weights, t), k)), 1e-5);
    }
}

static void check_router(op_bench *bench, const json_t *golden)
{
    const json_t *cfg = json_object_get(golden, "cfg");
    const int64_t T = golden_int(golden, "tokens"), H = golden_int(golden, "hidden");
    const uint64_t seed = (uint64_t)golden_int(golden, "seed");
    const oct_router_config config = {
        .experts = golden_int(cfg, "n_routed_experts"),
        .top_k = golden_int(cfg, "num_experts_per_tok"),
        .groups = golden_int(cfg, "n_group"),
        .top_groups = golden_int(cfg, "topk_group"),
        .normalise = json_is_true(json_object_get(cfg, "norm_topk_prob")),
        .scaling_factor = (float)golden_number(cfg, "routed_scaling_factor")};
    const int64_t E = config.experts, K = config.top_k;
    float *x = floats(T * H), *w = floats(E * H), *b = floats(E), *g = floats(T * K);
    float *logits = floats(T * E), *scores = floats(T * E), *weights = floats(T * K);
    float *dlogits = floats(T * E), *dx = floats(T * H), *dw = floats(E * H);
    int32_t *experts = calloc((size_t)(T * K), sizeof *experts);
    assert_non_null(experts);
    golden_fill(x, T * H, "op/router/x", seed, 0.0, shift_of(golden, "x"));
    golden_fill(w, E * H, "op/router/w", seed, 0.0, shift_of(golden, "w"));
    golden_fill(b, E, "op/router/b", seed, golden_number(golden, "bias_offset"),
                shift_of(golden, "b"));
    golden_fill(g, T * K, "op/router/g", seed, 0.0, shift_of(golden, "g"));
    multiply(T, E, H, x, H, 1, w, 1, H, logits);
    const oct_tensor tlogits = matrix(logits, T, E), tdlogits = matrix(dlogits, T, E);
    CHECK(oct_router(bench->exec, &config, &tlogits, b, scores, experts, weights, &bench->err));
    CHECK(oct_router_backward(bench->exec, &config, scores, experts, weights, g, &tdlogits,
                              &bench->err));
    multiply(T, H, E, dlogits, E, 1, w, H, 1, dx);
    multiply(E, H, T, dlogits, 1, E, x, H, 1, dw);
    check_choice(golden, T, K, experts, weights);
    golden_matches(golden, "scores", scores, T, E);
    golden_matches(golden, "dx", dx, T, H);
    golden_matches(golden, "dw", dw, E, H);
    float *const all[] = {x, w, b, g, logits, scores, weights, dlogits, dx, dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(experts);
}

/* The cosines and sines of a golden table from its own inverse frequencies: those are made, and
 * checked, by the model. */
static void check_rope_table(const json_t *golden)
{
    const json_t *positions = json_object_get(golden, "pos");
    const json_t *inv_freq = json_object_get(golden, "inv_freq_f32");
    const double factor = golden_number(golden, "factor");
    assert_int_equal(json_array_size(inv_freq) * 2, golden_int(golden, "dim"));
    for (size_t p = 0; p < json_array_size(positions); p++) {
        const float position = (float)json_number_value(json_array_get(positions, p));
        const json_t *cos_row = json_array_get(json_object_get(golden, "cos"), p);
        const json_t *sin_row = json_array_get(json_object_get(golden, "sin"), p);
        for (size_t i = 0; i < json_array_size(inv_freq); i++) {
            const float angle =
                position * strtof(json_string_value(json_array_get(inv_freq, i)), NULL);
            golden_near("cos", (int64_t)i, (double)oct_cosf(angle) * factor,
                        json_number_value(json_array_get(cos_row, i)), 1e-7);
            golden_near("sin", (int64_t)i, (double)oct_sinf(angle) * factor,
                        json_number_value(json_array_get(sin_row, i)), 1e-7);
        }
    }
}

static void check_rope_apply(op_bench *bench, const json_t *golden)
{
    const json_t *positions = json_object_get(golden, "pos");
    const int64_t T = (int64_t)json_array_size(positions), dim = golden_int(golden, "dim");
    const int64_t half = dim / 2;
    float *x = floats(T * dim), *y = floats(T * dim), *cos = floats(T * half),
          *sin = floats(T * half);
    int32_t *rows = calloc((size_t)T, sizeof *rows);
    assert_non_null(rows);
    golden_fill(x, T * dim, "op/rope/x", bench->seed, 0.0, (int)golden_int(golden, "shift"));
    for (int64_t t = 0; t < T; t++) {
        rows[t] = (int32_t)t; /* of the table below, one row per golden position */
        for (int64_t i = 0; i < half; i++) {
            const double power = -2.0 * (double)i / (double)dim;
            const float inv_freq = (float)oct_pow(golden_number(golden, "theta"), power);
            const float angle =
                (float)json_number_value(json_array_get(positions, (size_t)t)) * inv_freq;
            cos[t * half + i] = oct_cosf(angle);
            sin[t * half + i] = oct_sinf(angle);
        }
    }
    const oct_rope_view view = {
        .src = x, .dst = y, .src_token_stride = dim, .dst_token_stride = dim};
    for (int interleave = 0; interleave < 2; interleave++) {
        const json_t *want = json_object_get(golden, interleave ? "interleaved" : "split_half");
        CHECK(oct_rope(bench->exec, OCT_DTYPE_F32, &view, T, 1, dim, cos, sin, rows, interleave,
                       false, &bench->err));
        assert_int_equal(json_array_size(want), T);
        for (int64_t i = 0; i < T * dim; i++)
            golden_near(interleave ? "interleaved" : "split_half", i, (double)y[i],
                        json_number_value(json_array_get(json_array_get(want, (size_t)(i / dim)),
                                                         (size_t)(i % dim))),
                        1e-5);
    }
    float *const all[] = {x, y, cos, sin};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(rows);
}

/* Returns whether the case is one of this program's. Products and attention have their own
 * programs, test_golden_linear and test_golden_attention. */
static bool check_case(op_bench *bench, const json_t *golden)
{
    const char *op = json_string_value(json_object_get(golden, "op"));
    assert_non_null(op);
    if (strcmp(op, "linear") == 0 || strcmp(op, "grouped_linear") == 0 ||
        strcmp(op, "attention") == 0)
        return false;
    if (strcmp(op, "rms_norm") == 0)
        check_rms_norm(bench, golden);
    else if (strcmp(op, "swiglu") == 0)
        check_swiglu(bench, golden);
    else if (strcmp(op, "cross_entropy") == 0)
        check_cross_entropy(bench, golden);
    else if (strcmp(op, "router") == 0)
        check_router(bench, golden);
    else if (strcmp(op, "rope_table") == 0)
        check_rope_table(golden);
    else if (strcmp(op, "rope_apply") == 0)
        check_rope_apply(bench, golden);
    else
        fail_msg("golden operator '%s' is not known", op);
    return true;
}

static void elementwise__golden_ops__within_1e_5(void **state)
{
    (void)state;
    const char *directory = getenv("OCTET_GOLDEN");
    assert_non_null(directory);
    char path[4096];
    snprintf(path, sizeof path, "%s/model/ops.json", directory);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        fail_msg("%s: %s", path, error.text);
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        oct_kernels kernels;
        oct_kernels_init(&kernels, (oct_isa)isa);
        oct_arena scratch;
        oct_arena_init(&scratch, "scratch");
        const oct_exec exec = {.kernels = &kernels, .threads = 1, .scratch = &scratch};
        op_bench bench = {.exec = &exec, .seed = (uint64_t)golden_int(root, "seed")};
        int checked = 0;
        size_t i;
        json_t *golden;
        json_array_foreach(json_object_get(root, "cases"), i, golden) checked +=
            check_case(&bench, golden);
        assert_true(checked > 0);
        oct_arena_release(&scratch);
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise__golden_ops__within_1e_5),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
