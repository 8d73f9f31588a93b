/* What the elementwise operators mean: small cases worked out by hand, on every instruction set. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "elementwise_fixture.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != OCT_OK)                                                                      \
            fail_msg("%s", run->err.msg);                                                          \
    } while (0)

static void on_every_isa(void (*check)(op_run *run))
{
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        op_run run;
        run_init(&run, (oct_isa)isa, 2);
        check(&run);
        run_release(&run);
    }
}

static oct_tensor f32_matrix(float *data, int64_t rows, int64_t cols)
{
    return oct_tensor_2d(data, OCT_DTYPE_F32, rows, cols);
}

static oct_tensor bf16_matrix(uint16_t *data, int64_t rows, int64_t cols)
{
    return oct_tensor_2d(data, OCT_DTYPE_BF16, rows, cols);
}

static oct_gemm_out f32_row(float *data, int64_t n, oct_gemm_store store)
{
    return (oct_gemm_out){.data = data, .ld = n, .dtype = OCT_DTYPE_F32, .store = store};
}

static void assert_f32_equal(const float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (oct_f32_bits(got[i]) != oct_f32_bits(want[i]))
            fail_msg("[%lld] is %a, %a expected", (long long)i, (double)got[i], (double)want[i]);
}

/* --- RMSNorm -----------------------------------------------------------------------------------
 */

/* mean = 2^-20, eps = 3 * 2^-20: rstd = 2^9 only if eps is inside the root. */
static void check_eps(op_run *run)
{
    float x[] = {0x1p-10f, -0x1p-10f, 0x1p-10f, -0x1p-10f}, w[] = {1.0f, 2.0f, 3.0f, 4.0f}, y[4];
    float rstd;
    const oct_tensor tx = f32_matrix(x, 1, 4), tw = f32_matrix(w, 1, 4), ty = f32_matrix(y, 1, 4);
    CHECK(oct_rmsnorm(&run->exec, &tx, &tw, 0x3p-20f, &ty, &rstd, &run->err));
    assert_f32_equal(&rstd, &(float){512.0f}, 1);
    assert_f32_equal(y, (float[]){0.5f, -1.0f, 1.5f, -2.0f}, 4);
}

static void rmsnorm__eps_next_to_the_mean__inside_the_root(void **state)
{
    (void)state;
    on_every_isa(check_eps);
}

/* BF16: the normalised value is rounded before the product with w. 1.0078125 / sqrt(0.5 *
 * (1.0078125^2 + 1)) = 1.003891..., BF16 1.0; times w = 1.0078125 that is 1.0078125, and 1.015625
 * if rounded once. */
static void check_two_roundings(op_run *run)
{
    uint16_t x[] = {0x3f81, 0x3f80}, w[] = {0x3f81, 0x3f80}, y[2];
    float rstd;
    const oct_tensor tx = bf16_matrix(x, 1, 2), tw = bf16_matrix(w, 1, 2),
                     ty = bf16_matrix(y, 1, 2);
    CHECK(oct_rmsnorm(&run->exec, &tx, &tw, 0.0f, &ty, &rstd, &run->err));
    assert_int_equal(y[0], 0x3f81);
}

static void rmsnorm__bf16__normalised_value_rounded_first(void **state)
{
    (void)state;
    on_every_isa(check_two_roundings);
}

/* dx with a residual: the gradient is rounded, then the sum. */
static void check_residual(op_run *run)
{
    enum { H = 37 };
    uint16_t *x = run_input(run, OCT_DTYPE_BF16, 1, H), *dy = run_input(run, OCT_DTYPE_BF16, 2, H);
    uint16_t *w = run_input(run, OCT_DTYPE_BF16, 3, H), *add = run_input(run, OCT_DTYPE_BF16, 4, H);
    uint16_t alone[H], both[H];
    float dw[H];
    const float rstd = 0.75f;
    const oct_gemm_out out = f32_row(dw, H, OCT_GEMM_STORE);
    const oct_tensor tx = bf16_matrix(x, 1, H), tdy = bf16_matrix(dy, 1, H),
                     tw = bf16_matrix(w, 1, H), tadd = bf16_matrix(add, 1, H),
                     talone = bf16_matrix(alone, 1, H), tboth = bf16_matrix(both, 1, H);
    CHECK(oct_rmsnorm_backward(&run->exec, &tdy, &tx, &tw, &rstd, NULL, &talone, &out, &run->err));
    CHECK(oct_rmsnorm_backward(&run->exec, &tdy, &tx, &tw, &rstd, &tadd, &tboth, &out, &run->err));
    for (int i = 0; i < H; i++)
        assert_int_equal(both[i],
                         oct_bf16_from_f32(oct_bf16_to_f32(add[i]) + oct_bf16_to_f32(alone[i])));
}

static void rmsnorm_backward__add_to__round_of_sum_with_rounded_gradient(void **state)
{
    (void)state;
    on_every_isa(check_residual);
}

/* --- reduction orders --------------------------------------------------------------------------
 */

/* dot of x (a few non-zero elements) with ones, through the combine's weight gradient. */
static float lane_dot(op_run *run, const int *at, const float *values, int count)
{
    enum { H = 40 };
    float x[H] = {0}, dy[H], dweight;
    for (int i = 0; i < H; i++)
        dy[i] = 1.0f;
    for (int i = 0; i < count; i++)
        x[at[i]] = values[i];
    const int32_t row = 0;
    const oct_tensor tx = f32_matrix(x, 1, H), tdy = f32_matrix(dy, 1, H);
    CHECK(oct_route_combine_backward(&run->exec, &tdy, &tx, &row, 1, &dweight, &run->err));
    return dweight;
}

/* Experts' rows of another number than tokens times slots. */
static void check_combine_shapes(op_run *run)
{
    float x[6] = {0}, dy[4] = {0}, dweights[4];
    const int32_t rows[] = {0, 1, 2, 3};
    const oct_tensor tx = f32_matrix(x, 3, 2), tdy = f32_matrix(dy, 2, 2);
    assert_int_equal(
        oct_route_combine_backward(&run->exec, &tdy, &tx, rows, 2, dweights, &run->err),
        OCT_E_SHAPE);
}

static void route_combine_backward__other_rows__refused(void **state)
{
    (void)state;
    on_every_isa(check_combine_shapes);
}

static void check_lane_order(op_run *run)
{
    const float big = 0x1p24f; /* big + 1 rounds to big, big + 2 does not */
    const float values[] = {big, 1.0f, 1.0f, 1.0f};
    /* Lane 0 takes elements 0, 16, 32 one after the other. */
    assert_true(lane_dot(run, (const int[]){0, 16, 32}, values, 3) == big);
    /* Lanes 4 and 12 meet before lane 0 does. */
    assert_true(lane_dot(run, (const int[]){0, 4, 12}, values, 3) == big + 2.0f);
    /* Lane 8 goes to lane 0 first; lane 9 arrives last, with the odd lanes. */
    assert_true(lane_dot(run, (const int[]){0, 8, 9}, values, 3) == big);
    /* Lane 2 and 6 meet first; lane 4 is lost in lane 0 before. */
    assert_true(lane_dot(run, (const int[]){0, 4, 2, 6}, values, 4) == big + 2.0f);
    /* Odd lanes are complete before they join. */
    assert_true(lane_dot(run, (const int[]){0, 1, 15}, values, 3) == big + 2.0f);
}

static void lane_reduction__sums_that_round__fixed_tree(void **state)
{
    (void)state;
    on_every_isa(check_lane_order);
}

static void check_token_order(op_run *run)
{
    const float big = 0x1p24f;
    float dy[] = {big, 1.0f, 1.0f, 1.0f, 1.0f, big}; /* [3, 2] */
    float sums[2];
    const oct_tensor tdy = f32_matrix(dy, 3, 2);
    const oct_gemm_out out = f32_row(sums, 2, OCT_GEMM_STORE);
    CHECK(oct_bias_backward(&run->exec, &tdy, &out, &run->err));
    assert_f32_equal(sums, (float[]){big, big + 2.0f}, 2);

    float table[3 * 2] = {9.0f, 9.0f, 9.0f, 9.0f, 9.0f, 9.0f};
    const int32_t ids[] = {2, 2, 2};
    const oct_gemm_out rows = f32_row(table, 2, OCT_GEMM_STORE);
    CHECK(oct_embedding_backward(&run->exec, &tdy, ids, 3, &rows, &run->err));
    assert_f32_equal(table, (float[]){0, 0, 0, 0, big, big + 2.0f}, 6);

    float x[] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f}, w[] = {1.0f, 1.0f}, dx[6];
    const float rstd[] = {1.0f, 1.0f, 1.0f};
    const oct_tensor tx = f32_matrix(x, 3, 2), tw = f32_matrix(w, 1, 2), tdx = f32_matrix(dx, 3, 2);
    CHECK(oct_rmsnorm_backward(&run->exec, &tdy, &tx, &tw, rstd, NULL, &tdx, &out, &run->err));
    assert_f32_equal(sums, (float[]){big, big + 2.0f}, 2);
}

static void token_sums__sums_that_round__tokens_ascending(void **state)
{
    (void)state;
    on_every_isa(check_token_order);
}

/* Column sums run in blocks of 256: whole numbers, so that every sum is exact in any order. */
static void check_wide_column_sums(op_run *run)
{
    enum { ROWS = 3, COLS = 600 };
    static float dy[ROWS * COLS], x[ROWS * COLS], w[COLS], dx[ROWS * COLS], sums[COLS];
    static float dot[COLS], total[COLS];
    const float rstd[ROWS] = {1.0f, 1.0f, 1.0f};
    for (int h = 0; h < COLS; h++) {
        w[h] = 1.0f;
        dot[h] = total[h] = 0.0f;
        for (int t = 0; t < ROWS; t++) {
            dy[t * COLS + h] = (float)(h + t);
            x[t * COLS + h] = (float)(h % 11 - 5 * t);
            dot[h] += dy[t * COLS + h] * x[t * COLS + h];
            total[h] += dy[t * COLS + h];
        }
    }
    const oct_tensor tdy = f32_matrix(dy, ROWS, COLS), tx = f32_matrix(x, ROWS, COLS);
    const oct_tensor tw = f32_matrix(w, 1, COLS), tdx = f32_matrix(dx, ROWS, COLS);
    const oct_gemm_out out = f32_row(sums, COLS, OCT_GEMM_STORE);
    CHECK(oct_bias_backward(&run->exec, &tdy, &out, &run->err));
    assert_f32_equal(sums, total, COLS);
    CHECK(oct_rmsnorm_backward(&run->exec, &tdy, &tx, &tw, rstd, NULL, &tdx, &out, &run->err));
    assert_f32_equal(sums, dot, COLS);
}

static void column_sums__wider_than_a_block__every_column(void **state)
{
    (void)state;
    on_every_isa(check_wide_column_sums);
}

static void check_slot_order(op_run *run)
{
    const float big = 0x1p24f;
    float x[] = {1.0f, big, 1.0f}, y; /* rows of three experts, H = 1 */
    const int32_t ascending[] = {1, 0, 2}, other[] = {0, 2, 1};
    const float ones[] = {1.0f, 1.0f, 1.0f};
    const oct_tensor tx = f32_matrix(x, 3, 1), ty = f32_matrix(&y, 1, 1);
    CHECK(oct_route_combine(&run->exec, &tx, ascending, ones, 3, NULL, &ty, &run->err));
    assert_f32_equal(&y, &(float){big}, 1);
    CHECK(oct_route_combine(&run->exec, &tx, other, ones, 3, NULL, &ty, &run->err));
    assert_f32_equal(&y, &(float){big + 2.0f}, 1);
    CHECK(oct_route_gather_backward(&run->exec, &tx, other, 3, &ty, &run->err));
    assert_f32_equal(&y, &(float){big + 2.0f}, 1);
    const oct_rope_view heads = {.src = x, .dst = &y, .src_head_stride = 1};
    CHECK(oct_head_sum(&run->exec, OCT_DTYPE_F32, &heads, 1, 3, 1, &run->err));
    assert_f32_equal(&y, &(float){big}, 1); /* 1 + big + 1, ascending */
}

static void slot_sums__sums_that_round__slots_ascending(void **state)
{
    (void)state;
    on_every_isa(check_slot_order);
}

/* The sum is rounded to BF16 before the shared expert is added. 1 + 2^-8 + 2^-9: 1.0078125 rounded,
 * plus 2^-8 ties to 1.0078125 + 2^-8 -> even 1.015625; unrounded 1.009765625 rounds to 1.0078125.
 */
static void check_shared(op_run *run)
{
    uint16_t x[] = {0x3f80, 0x3b80, 0x3b00}, shared[] = {0x3b80}, y[1];
    const int32_t rows[] = {0, 1, 2};
    const float ones[] = {1.0f, 1.0f, 1.0f};
    const oct_tensor tx = bf16_matrix(x, 3, 1), tshared = bf16_matrix(shared, 1, 1),
                     ty = bf16_matrix(y, 1, 1);
    CHECK(oct_route_combine(&run->exec, &tx, rows, ones, 3, &tshared, &ty, &run->err));
    assert_int_equal(y[0], 0x3f82);
}

static void route_combine__shared_expert__added_to_the_rounded_sum(void **state)
{
    (void)state;
    on_every_isa(check_shared);
}

/* --- gradients stored and folded ----------------------------------------------------------------
 */

static void check_fold(op_run *run)
{
    float dy[] = {0x1.01p0f, 0x1.03p0f}; /* halfway between BF16 neighbours */
    float sums[2] = {10.0f, 20.0f};
    uint16_t rounded[2];
    const oct_tensor tdy = f32_matrix(dy, 1, 2);
    oct_gemm_out out = f32_row(sums, 2, OCT_GEMM_FOLD);
    CHECK(oct_bias_backward(&run->exec, &tdy, &out, &run->err));
    assert_f32_equal(sums, (float[]){10.0f + 0x1.01p0f, 20.0f + 0x1.03p0f}, 2);
    out.round_bf16 = true;
    sums[0] = sums[1] = 0.0f;
    CHECK(oct_bias_backward(&run->exec, &tdy, &out, &run->err));
    assert_f32_equal(sums, (float[]){1.0f, 0x1.04p0f}, 2);
    out.store = OCT_GEMM_STORE;
    sums[0] = sums[1] = 7.0f;
    CHECK(oct_bias_backward(&run->exec, &tdy, &out, &run->err));
    assert_f32_equal(sums, (float[]){1.0f, 0x1.04p0f}, 2);
    const oct_gemm_out narrow = {.data = rounded, .ld = 2, .dtype = OCT_DTYPE_BF16};
    CHECK(oct_bias_backward(&run->exec, &tdy, &narrow, &run->err));
    assert_int_equal(rounded[0], 0x3f80);
    assert_int_equal(rounded[1], 0x3f82);
}

static void bias_backward__store_and_fold__finished_values_rounded_once(void **state)
{
    (void)state;
    on_every_isa(check_fold);
}

static void check_bad_outputs(op_run *run)
{
    float dy[] = {1.0f}, sums[] = {1.0f}, bias[] = {0.0f};
    const oct_tensor tdy = f32_matrix(dy, 1, 1);
    oct_gemm_out out = f32_row(sums, 1, OCT_GEMM_CONTINUE);
    assert_int_equal(oct_bias_backward(&run->exec, &tdy, &out, &run->err), OCT_E_API);
    out = f32_row(sums, 1, OCT_GEMM_STORE);
    out.bias = bias;
    assert_int_equal(oct_bias_backward(&run->exec, &tdy, &out, &run->err), OCT_E_API);
    out = f32_row(sums, 1, OCT_GEMM_FOLD);
    out.dtype = OCT_DTYPE_BF16;
    assert_int_equal(oct_bias_backward(&run->exec, &tdy, &out, &run->err), OCT_E_API);
    const oct_tensor wide = f32_matrix(dy, 1, 2);
    assert_int_equal(oct_add(&run->exec, &tdy, &wide, &tdy, &run->err), OCT_E_SHAPE);
}

static void drivers__outputs_that_do_not_fit__refused(void **state)
{
    (void)state;
    on_every_isa(check_bad_outputs);
}

/* --- SwiGLU -------------------------------------------------------------------------------------
 */

static float bf16(double x)
{
    return oct_bf16_round((float)x);
}

/* The roundings of the HF model's BF16 graph around FP64 sigmoids. */
static void check_swiglu_roundings(op_run *run)
{
    enum { F = 500 };
    uint16_t *gate = run_input(run, OCT_DTYPE_BF16, 1, F),
             *up = run_input(run, OCT_DTYPE_BF16, 2, F);
    uint16_t *dy = run_input(run, OCT_DTYPE_BF16, 3, F), y[F], dgate[F], dup[F];
    const oct_tensor tgate = bf16_matrix(gate, 1, F), tup = bf16_matrix(up, 1, F),
                     tdy = bf16_matrix(dy, 1, F), ty = bf16_matrix(y, 1, F),
                     tdgate = bf16_matrix(dgate, 1, F), tdup = bf16_matrix(dup, 1, F);
    CHECK(oct_swiglu(&run->exec, &tgate, F, &tup, F, &ty, &run->err));
    CHECK(oct_swiglu_backward(&run->exec, &tdy, &tgate, F, &tup, F, &tdgate, &tdup, &run->err));
    for (int i = 0; i < F; i++) {
        const double g = (double)oct_bf16_to_f32(gate[i]), sig = 1.0 / (1.0 + exp(-g));
        const float u = oct_bf16_to_f32(up[i]), d = oct_bf16_to_f32(dy[i]);
        const float s = bf16(g * sig);
        assert_int_equal(y[i], oct_bf16_from_f32(s * u));
        assert_int_equal(dup[i], oct_bf16_from_f32(d * s));
        assert_int_equal(dgate[i], oct_bf16_from_f32((float)((double)bf16((double)(d * u)) * sig *
                                                             (1.0 + g * (1.0 - sig)))));
    }
}

static void swiglu__bf16__rounded_where_the_hf_graph_rounds(void **state)
{
    (void)state;
    on_every_isa(check_swiglu_roundings);
}

/* --- rope ---------------------------------------------------------------------------------------
 */

static void check_rope_layout(op_run *run)
{
    float x[] = {1.0f, 2.0f, 3.0f, 4.0f}, y[4], back[4];
    const float cos[] = {9.0f, 9.0f, 0.0f, 1.0f}, sin[] = {9.0f, 9.0f, 1.0f, 0.0f};
    const int32_t position = 1; /* the second row: a quarter turn, and none */
    const oct_rope_view forward = {.src = x, .dst = y}, backward = {.src = y, .dst = back};
    CHECK(oct_rope(&run->exec, OCT_DTYPE_F32, &forward, 1, 1, 4, cos, sin, &position, true, false,
                   &run->err));
    assert_f32_equal(y, (float[]){-2.0f, 3.0f, 1.0f, 4.0f}, 4);
    CHECK(oct_rope(&run->exec, OCT_DTYPE_F32, &backward, 1, 1, 4, cos, sin, &position, true, true,
                   &run->err));
    assert_f32_equal(back, x, 4);
    CHECK(oct_rope(&run->exec, OCT_DTYPE_F32, &forward, 1, 1, 4, cos, sin, &position, false, false,
                   &run->err));
    assert_f32_equal(y, (float[]){-3.0f, 2.0f, 1.0f, 4.0f}, 4);
    CHECK(oct_rope(&run->exec, OCT_DTYPE_F32, &backward, 1, 1, 4, cos, sin, &position, false, true,
                   &run->err));
    assert_f32_equal(back, x, 4);
    assert_int_equal(oct_rope(&run->exec, OCT_DTYPE_F32, &forward, 1, 1, 3, cos, sin, &position,
                              false, false, &run->err),
                     OCT_E_SHAPE);
}

static void rope__quarter_turn__pairs_and_layouts(void **state)
{
    (void)state;
    on_every_isa(check_rope_layout);
}

/* BF16: both products are rounded, then their sum. */
static void check_rope_roundings(op_run *run)
{
    enum { HALF = 21 };
    uint16_t *x = run_input(run, OCT_DTYPE_BF16, 1, 2 * HALF), y[2 * HALF];
    float cos[HALF], sin[HALF];
    const int32_t position = 0;
    for (int i = 0; i < HALF; i++) {
        cos[i] = oct_bf16_round(test_value(2, i, FILL_PLAIN));
        sin[i] = oct_bf16_round(test_value(3, i, FILL_PLAIN));
    }
    const oct_rope_view view = {.src = x, .dst = y};
    CHECK(oct_rope(&run->exec, OCT_DTYPE_BF16, &view, 1, 1, 2 * HALF, cos, sin, &position, true,
                   false, &run->err));
    for (int i = 0; i < HALF; i++) {
        const float a = oct_bf16_to_f32(x[2 * i]), b = oct_bf16_to_f32(x[2 * i + 1]);
        assert_int_equal(
            y[i], oct_bf16_from_f32(oct_bf16_round(a * cos[i]) - oct_bf16_round(b * sin[i])));
        assert_int_equal(y[i + HALF], oct_bf16_from_f32(oct_bf16_round(b * cos[i]) +
                                                        oct_bf16_round(a * sin[i])));
    }
}

static void rope__bf16__products_and_sum_rounded(void **state)
{
    (void)state;
    on_every_isa(check_rope_roundings);
}

/* --- cross entropy -------------------------------------------------------------------------------
 */

static void check_uniform(op_run *run)
{
    float logits[3 * 8], loss[3];
    for (int i = 0; i < 24; i++)
        logits[i] = 1000.0f; /* exp would overflow without the maximum */
    const int32_t targets[] = {2, -1, 7};
    const oct_tensor t = f32_matrix(logits, 3, 8);
    CHECK(oct_cross_entropy(&run->exec, &t, targets, 0.0f, loss, &run->err));
    for (int i = 0; i < 24; i++)
        assert_true(logits[i] == 1000.0f);                /* scale 0: the logits stay */
    assert_true(fabs((double)loss[0] - log(8.0)) < 1e-4); /* an ulp of 1000 is 6e-5 */
    assert_f32_equal(&loss[1], &(float){0.0f}, 1);
    CHECK(oct_cross_entropy(&run->exec, &t, targets, 0.5f, loss, &run->err));
    for (int i = 0; i < 8; i++) {
        assert_f32_equal(&logits[i], &(float){i == 2 ? -0.4375f : 0.0625f}, 1);
        assert_f32_equal(&logits[8 + i], &(float){0.0f}, 1);
        assert_f32_equal(&logits[16 + i], &(float){i == 7 ? -0.4375f : 0.0625f}, 1);
    }
    const int32_t above[] = {0, 8, 0}, below[] = {0, -100, 0};
    assert_int_equal(oct_cross_entropy(&run->exec, &t, above, 0.0f, loss, &run->err), OCT_E_DATA);
    assert_int_equal(oct_cross_entropy(&run->exec, &t, below, 0.0f, loss, &run->err), OCT_E_DATA);
}

static void cross_entropy__uniform_logits__log_of_vocabulary(void **state)
{
    (void)state;
    on_every_isa(check_uniform);
}

static void check_nonfinite_logits(op_run *run)
{
    float logits[] = {1.0f, NAN, 2.0f, 1.0f, INFINITY, 2.0f, 1.0f, -INFINITY, 1.0f}, loss[3];
    const int32_t targets[] = {0, 0, 0};
    const oct_tensor t = f32_matrix(logits, 3, 3);
    CHECK(oct_cross_entropy(&run->exec, &t, targets, 1.0f, loss, &run->err));
    assert_true(isnan(loss[0]) && isnan(logits[0]) && isnan(logits[1]));
    assert_true(isnan(loss[1]) && isnan(logits[4]));
    assert_true(fabs((double)loss[2] - log(2.0)) < 1e-6);
    assert_f32_equal(logits + 6, (float[]){-0.5f, 0.0f, 0.5f}, 3);
}

static void cross_entropy__nonfinite_logits__reach_loss_and_gradient(void **state)
{
    (void)state;
    on_every_isa(check_nonfinite_logits);
}

/* --- router --------------------------------------------------------------------------------------
 */

static void route(op_run *run, const oct_router_config *config, const float *logits,
                  const float *bias, int32_t *experts, float *weights)
{
    float *copy = run_buffer(run, OCT_DTYPE_F32, config->experts, false);
    float *scores = run_buffer(run, OCT_DTYPE_F32, config->experts, false);
    memcpy(copy, logits, (size_t)config->experts * sizeof *copy);
    const oct_tensor t = f32_matrix(copy, 1, config->experts);
    CHECK(oct_router(&run->exec, config, &t, bias, scores, experts, weights, &run->err));
}

static void assert_near(float got, double want, double bound)
{
    if (!(fabs((double)got - want) <= bound))
        fail_msg("%.9g, %.9g expected", (double)got, want);
}

/* FR-12: scores of 1e-8 beside a bias of 12 vanish in the choice values; the weights must not. */
static void check_small_scores(op_run *run)
{
    const oct_router_config config = {.experts = 4,
                                      .top_k = 2,
                                      .groups = 1,
                                      .top_groups = 1,
                                      .normalise = true,
                                      .scaling_factor = 2.5f};
    const float logits[] = {-18.0f, -17.5f, -17.0f, -16.5f};
    int32_t experts[2];
    float weights[2];
    route(run, &config, logits, (const float[]){12.0f, 12.0f, 13.0f, 13.0f}, experts, weights);
    assert_int_equal(experts[0], 2);
    assert_int_equal(experts[1], 3);
    assert_near(weights[0], 0.37754067 * 2.5, 1e-5);
    assert_near(weights[1], 0.62245933 * 2.5, 1e-5);
    /* Equal biases: all choice values round to 12, ties go to the lower index. */
    route(run, &config, logits, (const float[]){12.0f, 12.0f, 12.0f, 12.0f}, experts, weights);
    assert_int_equal(experts[0], 0);
    assert_int_equal(experts[1], 1);
    assert_near(weights[0], 0.37754067 * 2.5, 1e-5);
    assert_near(weights[1], 0.62245933 * 2.5, 1e-5);
    /* Scores of exactly 0: the epsilon keeps 0/0 out. */
    const float zero[] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    route(run, &config, zero, (const float[]){0.0f, 0.0f, 1.0f, 1.0f}, experts, weights);
    assert_int_equal(experts[0], 2);
    assert_f32_equal(weights, (float[]){0.0f, 0.0f}, 2);
}

static void router__scores_lost_in_the_bias__weights_from_the_scores(void **state)
{
    (void)state;
    on_every_isa(check_small_scores);
}

/* With negative choice values everywhere, a group masked with 0 instead of -inf would win. */
static void check_groups(op_run *run)
{
    const oct_router_config config = {.experts = 6,
                                      .top_k = 2,
                                      .groups = 3,
                                      .top_groups = 1,
                                      .normalise = false,
                                      .scaling_factor = 1.0f};
    const float bias[] = {-2.0f, -2.0f, -2.0f, -2.0f, -2.0f, -2.0f};
    int32_t experts[2];
    float weights[2];
    /* Expert 5 has the highest score, but group 1 (2, 3) the highest sum. */
    route(run, &config, (const float[]){-9.0f, 1.0f, 1.0f, 1.5f, -9.0f, 4.0f}, bias, experts,
          weights);
    assert_int_equal(experts[0], 2);
    assert_int_equal(experts[1], 3);
    assert_near(weights[0], 1.0 / (1.0 + exp(-1.0)), 1e-6);
    /* Equal groups: the lower one. */
    route(run, &config, (const float[]){0.0f, 1.0f, 1.0f, 0.0f, 0.0f, 1.0f}, bias, experts,
          weights);
    assert_int_equal(experts[0], 0);
    assert_int_equal(experts[1], 1);
    /* Experts of one token are ascending, whatever their choice order. */
    const oct_router_config plain = {
        .experts = 6, .top_k = 2, .groups = 1, .top_groups = 1, .scaling_factor = 1.0f};
    route(run, &plain, (const float[]){0.0f, 2.0f, 0.0f, 0.0f, 3.0f, 1.0f}, bias, experts, weights);
    assert_int_equal(experts[0], 1);
    assert_int_equal(experts[1], 4);
    assert_true(weights[0] < weights[1]);
}

static void router__negative_choice_values__other_groups_out(void **state)
{
    (void)state;
    on_every_isa(check_groups);
}

static void check_nan_logits(op_run *run)
{
    const oct_router_config config = {.experts = 8,
                                      .top_k = 3,
                                      .groups = 4,
                                      .top_groups = 2,
                                      .normalise = true,
                                      .scaling_factor = 1.0f};
    float logits[8], bias[8] = {0};
    int32_t experts[3];
    float weights[3];
    for (int i = 0; i < 8; i++)
        logits[i] = NAN;
    route(run, &config, logits, bias, experts, weights);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(experts[k], k);
        assert_true(isnan(weights[k]));
    }
    /* One NaN is chosen, so that it is seen. */
    for (int i = 0; i < 8; i++)
        logits[i] = i == 5 ? NAN : 0.0f;
    route(run, &config, logits, bias, experts, weights);
    assert_int_equal(experts[0], 0);
    assert_int_equal(experts[1], 1);
    assert_int_equal(experts[2], 5);
    assert_true(isnan(weights[0]) && isnan(weights[2]));
    for (int i = 0; i < 8; i++)
        bias[i] = -INFINITY;
    route(run, &config, logits, bias, experts, weights);
    for (int k = 0; k < 3; k++)
        assert_true(experts[k] >= 0 && experts[k] < 8 && (k == 0 || experts[k] > experts[k - 1]));
}

static void router__nan_logits__valid_experts_nan_weights(void **state)
{
    (void)state;
    on_every_isa(check_nan_logits);
}

/* Against central differences of the weights in FP64. */
static void check_router_gradient(op_run *run)
{
    enum { E = 5, K = 3 };
    for (int normalise = 0; normalise < 2; normalise++) {
        const oct_router_config config = {.experts = E,
                                          .top_k = K,
                                          .groups = 1,
                                          .top_groups = 1,
                                          .normalise = normalise,
                                          .scaling_factor = 2.5f};
        float logits[E] = {0.3f, -1.0f, 0.9f, -0.4f, 1.2f}, scores[E], weights[K], dlogits[E];
        const float bias[E] = {0}, dweights[K] = {0.7f, -0.2f, 0.5f};
        int32_t experts[K];
        const oct_tensor t = f32_matrix(logits, 1, E), td = f32_matrix(dlogits, 1, E);
        CHECK(oct_router(&run->exec, &config, &t, bias, scores, experts, weights, &run->err));
        CHECK(oct_router_backward(&run->exec, &config, scores, experts, weights, dweights, &td,
                                  &run->err));
        for (int e = 0; e < E; e++) {
            double value[2];
            for (int side = 0; side < 2; side++) {
                double s[K], sum = 0.0;
                value[side] = 0.0;
                for (int k = 0; k < K; k++) {
                    const double shift = experts[k] == e ? (side ? 1e-5 : -1e-5) : 0.0;
                    s[k] = 1.0 / (1.0 + exp(-(double)logits[experts[k]] - shift));
                    sum += s[k];
                }
                for (int k = 0; k < K; k++)
                    value[side] += (double)dweights[k] * 2.5 * s[k] / (normalise ? sum : 1.0);
            }
            assert_near(dlogits[e], (value[1] - value[0]) / 2e-5, 1e-6);
        }
    }
}

static void router_backward__central_differences__gradient(void **state)
{
    (void)state;
    on_every_isa(check_router_gradient);
}

static void check_router_shapes(op_run *run)
{
    float logits[6] = {0}, bias[6] = {0}, scores[6], weights[6];
    int32_t experts[6];
    const oct_tensor t = f32_matrix(logits, 1, 6);
    const oct_router_config bad[] = {
        {.experts = 6, .top_k = 2, .groups = 4, .top_groups = 1},
        {.experts = 6, .top_k = 2, .groups = 3, .top_groups = 4},
        {.experts = 6, .top_k = 3, .groups = 3, .top_groups = 1},
        {.experts = 6, .top_k = 0, .groups = 1, .top_groups = 1},
        {.experts = 6, .top_k = 1, .groups = 6, .top_groups = 2},
        {.experts = 7, .top_k = 1, .groups = 1, .top_groups = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(
            oct_router(&run->exec, &bad[i], &t, bias, scores, experts, weights, &run->err),
            OCT_E_SHAPE);
}

static void router__impossible_choice__refused(void **state)
{
    (void)state;
    on_every_isa(check_router_shapes);
}

/* --- rows in expert order
 * ------------------------------------------------------------------------- */

static void route_sort__empty_experts__token_order_within_an_expert(void **state)
{
    (void)state;
    const int32_t experts[] = {1, 4, 1, 2, 2, 4}; /* three tokens, two slots; 0, 3, 5 stay empty */
    int64_t ends[6];
    int32_t source[6], row[6];
    oct_route_sort(experts, 3, 2, 6, ends, source, row);
    const int64_t want_ends[] = {0, 2, 4, 4, 6, 6};
    const int32_t want_source[] = {0, 2, 3, 4, 1, 5}, want_row[] = {0, 4, 1, 2, 3, 5};
    assert_memory_equal(ends, want_ends, sizeof ends);
    assert_memory_equal(source, want_source, sizeof source);
    assert_memory_equal(row, want_row, sizeof row);
    oct_route_sort(experts, 0, 2, 6, ends, source, row);
    for (int e = 0; e < 6; e++)
        assert_int_equal(ends[e], 0);
}

static void check_rows(op_run *run)
{
    float x[] = {1.0f, 2.0f, 3.0f}, y[6];
    const int32_t source[] = {0, 2, 3, 4, 1, 5};
    const float weights[] = {1.0f, 10.0f, 2.0f, 20.0f, 4.0f, 40.0f};
    const oct_tensor ty = f32_matrix(y, 6, 1);
    oct_routed routed = {.kernels = &run->exec.kernels->elementwise,
                         .x = f32_matrix(x, 3, 1),
                         .source_S = source,
                         .top_k = 2};
    oct_lazy rows = oct_route_rows(&routed);
    assert_int_equal(rows.rows, 6);
    assert_int_equal(rows.cols, 1);
    CHECK(oct_lazy_store(&run->exec, &rows, &ty, &run->err));
    assert_f32_equal(y, (float[]){1.0f, 2.0f, 2.0f, 3.0f, 1.0f, 3.0f}, 6);
    routed.weights_TK = weights; /* of the pair, not of its row */
    rows = oct_route_rows(&routed);
    CHECK(oct_lazy_store(&run->exec, &rows, &ty, &run->err));
    assert_f32_equal(y, (float[]){1.0f, 4.0f, 40.0f, 12.0f, 10.0f, 120.0f}, 6);
}

static void route_rows__source_of_pairs__rows_of_tokens(void **state)
{
    (void)state;
    on_every_isa(check_rows);
}

/* --- optimizer
 * ------------------------------------------------------------------------------------- */

static void check_adamw(op_run *run)
{
    enum { N = 37 };
    const oct_adamw_step step = {.lr = 1e-3,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .weight_decay = 0.1,
                                 .bias1 = 0.1,
                                 .bias2 = 0.001,
                                 .grad_scale = 0.5f};
    float grad[N], w[N], m[N] = {0}, v[N] = {0}, before[N];
    for (int i = 0; i < N; i++) {
        grad[i] = test_value(1, i, FILL_PLAIN);
        before[i] = w[i] = test_value(2, i, FILL_PLAIN);
    }
    CHECK(oct_adamw(&run->exec, &step, N, grad, w, m, v, &run->err));
    for (int i = 0; i < N; i++) {
        const double g = 0.5 * (double)grad[i];
        const double want = (double)before[i] * (1.0 - 1e-4) - 1e-3 * g / (fabs(g) + 1e-8);
        assert_near(w[i], want, 3e-7 * (fabs((double)before[i]) + 1e-3));
        assert_near(m[i], 0.1 * g, 1e-7 * fabs(g));
        assert_near(v[i], 0.001 * g * g, 3e-7 * 0.001 * g * g);
    }
}

static void adamw__first_step__sign_of_the_gradient(void **state)
{
    (void)state;
    on_every_isa(check_adamw);
}

static void check_sum_squares(op_run *run)
{
    /* 2^54 + 4 in the even lanes, 10 in the odd ones; the sum is a tie and goes to 2^54 + 16. */
    const float x[] = {0x1p27f, 1.0f, 2.0f, 3.0f};
    double sums[2];
    assert_true(oct_sum_squares(&run->exec, x, 4) == 0x1p54 + 16.0);
    oct_sum_squares_rows(&run->exec, x + 2, 2, 1, sums);
    assert_true(sums[0] == 4.0 && sums[1] == 9.0);
}

static void sum_squares__wide_range__fp64_lanes(void **state)
{
    (void)state;
    on_every_isa(check_sum_squares);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm__eps_next_to_the_mean__inside_the_root),
        cmocka_unit_test(rmsnorm__bf16__normalised_value_rounded_first),
        cmocka_unit_test(rmsnorm_backward__add_to__round_of_sum_with_rounded_gradient),
        cmocka_unit_test(lane_reduction__sums_that_round__fixed_tree),
        cmocka_unit_test(column_sums__wider_than_a_block__every_column),
        cmocka_unit_test(token_sums__sums_that_round__tokens_ascending),
        cmocka_unit_test(slot_sums__sums_that_round__slots_ascending),
        cmocka_unit_test(route_combine__shared_expert__added_to_the_rounded_sum),
        cmocka_unit_test(bias_backward__store_and_fold__finished_values_rounded_once),
        cmocka_unit_test(drivers__outputs_that_do_not_fit__refused),
        cmocka_unit_test(swiglu__bf16__rounded_where_the_hf_graph_rounds),
        cmocka_unit_test(rope__quarter_turn__pairs_and_layouts),
        cmocka_unit_test(rope__bf16__products_and_sum_rounded),
        cmocka_unit_test(cross_entropy__uniform_logits__log_of_vocabulary),
        cmocka_unit_test(cross_entropy__nonfinite_logits__reach_loss_and_gradient),
        cmocka_unit_test(router__scores_lost_in_the_bias__weights_from_the_scores),
        cmocka_unit_test(router__negative_choice_values__other_groups_out),
        cmocka_unit_test(router__nan_logits__valid_experts_nan_weights),
        cmocka_unit_test(router_backward__central_differences__gradient),
        cmocka_unit_test(router__impossible_choice__refused),
        cmocka_unit_test(route_sort__empty_experts__token_order_within_an_expert),
        cmocka_unit_test(route_rows__source_of_pairs__rows_of_tokens),
        cmocka_unit_test(route_combine_backward__other_rows__refused),
        cmocka_unit_test(adamw__first_step__sign_of_the_gradient),
        cmocka_unit_test(sum_squares__wide_range__fp64_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
