/* The high-precision Linear and experts modules: numbers against plain loops, gradient stores and
 * folds, what is kept, and that calls go through the table of the module's type. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "module/experts.h"
#include "module/linear.h"
#include "numeric/bf16.h"

enum { T = 7, K = 5, N = 3, MAX_EVENTS = 16 };

typedef struct seat {
    oct_kernels kernels;
    oct_arena scratch, step;
    oct_exec exec;
    oct_trace trace;
    oct_run run;
    oct_module_tree tree;
    oct_module *root, *linear;
    oct_err err;
    oct_trace_event events[MAX_EVENTS];
    int event_count;
} seat;

static void record(void *arg, const oct_trace *trace, const oct_trace_event *event)
{
    (void)trace;
    seat *s = arg;
    assert_true(s->event_count < MAX_EVENTS);
    s->events[s->event_count++] = *event;
}

static const oct_module_type root_type = {.name = "root"};

#define assert_ok(s, call)                                                                         \
    do {                                                                                           \
        if ((call) != OCT_OK)                                                                      \
            fail_msg("%s", (s)->err.msg);                                                          \
    } while (0)

/* Small integers: every sum is exact, in BF16 too. */
static float whole(int64_t i, int64_t seed)
{
    return (float)((i * 7 + seed * 5) % 9 - 4);
}

static void give_value(oct_param *param, int64_t seed)
{
    const int64_t n = oct_param_numel(param);
    param->init = malloc((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        param->init[i] = whole(i, seed);
    param->value = (oct_tensor){.data = param->init, .dtype = OCT_DTYPE_F32, .ndim = param->ndim};
    memcpy(param->value.shape, param->shape, sizeof param->shape);
}

static seat *seat_new(bool bias)
{
    seat *s = calloc(1, sizeof *s);
    oct_kernels_init(&s->kernels, OCT_ISA_REF);
    oct_arena_init(&s->scratch, "scratch");
    oct_arena_init(&s->step, "step");
    s->exec = (oct_exec){.kernels = &s->kernels, .threads = 1, .scratch = &s->scratch};
    s->trace = (oct_trace){.sink = record, .sink_arg = s};
    s->run = (oct_run){.exec = &s->exec,
                       .step = &s->step,
                       .trace = &s->trace,
                       .act_dtype = OCT_DTYPE_F32,
                       .reduce_dtype = OCT_DTYPE_F32,
                       .training = true};
    oct_module_tree_init(&s->tree);
    assert_ok(s, oct_module_add(&s->tree, NULL, "m", &root_type, 2, &s->root, &s->err));
    assert_ok(s, oct_linear_add(&s->tree, s->root, "proj", K, N, bias, &s->linear, &s->err));
    for (int p = 0; p < s->linear->param_count; p++)
        give_value(s->linear->params[p], 1 + p);
    return s;
}

static void seat_free(seat *s)
{
    assert_int_equal(s->scratch.used_bytes, 0);
    oct_module_tree_release(&s->tree);
    oct_arena_release(&s->scratch);
    oct_arena_release(&s->step);
    free(s);
}

static void linear_add__with_bias__declares_two_parameters_on_meta(void **state)
{
    (void)state;
    seat *s = seat_new(true);
    assert_string_equal(s->linear->type->name, "torch.nn.Linear");
    assert_string_equal(s->tree.params[0]->fqn, "m.proj.weight");
    assert_string_equal(s->tree.params[1]->fqn, "m.proj.bias");
    assert_int_equal(s->tree.params[0]->shape[0], N);
    assert_int_equal(s->tree.params[0]->shape[1], K);
    seat_free(s);
}

static void linear__forward_and_backward__as_plain_loops(void **state)
{
    (void)state;
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        seat *s = seat_new(with_bias);
        float x[T * K], y[T * N], dy[T * N], dx[T * K], dw[N * K], db[N];
        for (int i = 0; i < T * K; i++)
            x[i] = whole(i, 3);
        for (int i = 0; i < T * N; i++)
            dy[i] = whole(i, 4);
        const float *w = s->linear->params[0]->init;
        s->linear->params[0]->grad = dw;
        if (with_bias)
            s->linear->params[1]->grad = db;
        const oct_tensor tx = oct_tensor_2d(x, OCT_DTYPE_F32, T, K);
        const oct_tensor ty = oct_tensor_2d(y, OCT_DTYPE_F32, T, N);
        const oct_tensor tdy = oct_tensor_2d(dy, OCT_DTYPE_F32, T, N);
        const oct_tensor tdx = oct_tensor_2d(dx, OCT_DTYPE_F32, T, K);
        oct_linear_saved *saved = NULL;
        assert_ok(s, oct_linear_forward(s->linear, &s->run, &tx, &ty, &saved, &s->err));
        assert_non_null(saved);
        for (int pass = 0; pass < 2; pass++) { /* store, then fold the same again */
            assert_ok(s, oct_linear_backward(s->linear, &s->run, saved, &tdy, &tdx, &s->err));
            for (int p = 0; p < s->linear->param_count; p++)
                s->linear->params[p]->grad_started = true;
        }
        for (int t = 0; t < T; t++)
            for (int n = 0; n < N; n++) {
                float want = with_bias ? s->linear->params[1]->init[n] : 0.0f;
                for (int k = 0; k < K; k++)
                    want += x[t * K + k] * w[n * K + k];
                assert_true(y[t * N + n] == want);
            }
        for (int t = 0; t < T; t++)
            for (int k = 0; k < K; k++) {
                float want = 0.0f;
                for (int n = 0; n < N; n++)
                    want += dy[t * N + n] * w[n * K + k];
                assert_true(dx[t * K + k] == want);
            }
        for (int n = 0; n < N; n++) {
            float bias = 0.0f;
            for (int t = 0; t < T; t++)
                bias += dy[t * N + n];
            if (with_bias)
                assert_true(db[n] == 2.0f * bias);
            for (int k = 0; k < K; k++) {
                float want = 0.0f;
                for (int t = 0; t < T; t++)
                    want += dy[t * N + n] * x[t * K + k];
                assert_true(dw[n * K + k] == 2.0f * want);
            }
        }
        seat_free(s);
    }
}

static void linear__bf16_with_bias__rounds_once_after_the_bias(void **state)
{
    (void)state;
    seat *s = seat_new(true);
    uint16_t x[K], w[N * K], b[N], y[N];
    s->run.act_dtype = OCT_DTYPE_BF16;
    s->run.training = false;
    for (int k = 0; k < K; k++)
        x[k] = oct_bf16_from_f32(1.0f + (float)k * 0x1p-7f);
    for (int i = 0; i < N * K; i++)
        w[i] = oct_bf16_from_f32(1.0f + whole(i, 2) * 0x1p-7f);
    for (int n = 0; n < N; n++)
        b[n] = oct_bf16_from_f32(0x1p-6f);
    s->linear->params[0]->value = oct_tensor_2d(w, OCT_DTYPE_BF16, N, K);
    s->linear->params[1]->value =
        (oct_tensor){.data = b, .dtype = OCT_DTYPE_BF16, .ndim = 1, .shape = {N}};
    const oct_tensor tx = oct_tensor_2d(x, OCT_DTYPE_BF16, 1, K);
    const oct_tensor ty = oct_tensor_2d(y, OCT_DTYPE_BF16, 1, N);
    assert_ok(s, oct_linear_forward(s->linear, &s->run, &tx, &ty, NULL, &s->err));
    int rounded_twice_differs = 0;
    for (int n = 0; n < N; n++) {
        float sum = 0.0f; /* exact: 16 bits of product, few terms */
        for (int k = 0; k < K; k++)
            sum += oct_bf16_to_f32(x[k]) * oct_bf16_to_f32(w[n * K + k]);
        assert_int_equal(y[n], oct_bf16_from_f32(sum + 0x1p-6f));
        rounded_twice_differs += y[n] != oct_bf16_from_f32(oct_bf16_round(sum) + 0x1p-6f);
    }
    assert_true(rounded_twice_differs > 0);
    assert_int_equal(s->step.used_bytes, 0); /* nothing is kept for evaluation */
    seat_free(s);
}

static void linear__training__emits_one_event_per_product(void **state)
{
    (void)state;
    seat *s = seat_new(false);
    float x[T * K] = {0}, y[T * N], dw[N * K];
    s->linear->params[0]->grad = dw;
    const oct_tensor tx = oct_tensor_2d(x, OCT_DTYPE_F32, T, K);
    const oct_tensor ty = oct_tensor_2d(y, OCT_DTYPE_F32, T, N);
    oct_linear_saved *saved = NULL;
    assert_ok(s, oct_linear_forward(s->linear, &s->run, &tx, &ty, &saved, &s->err));
    assert_ok(s, oct_linear_backward(s->linear, &s->run, saved, &ty, NULL, &s->err));
    assert_int_equal(s->event_count, 2); /* no dx, no dgrad */
    assert_string_equal(s->events[0].phase, "fprop");
    assert_string_equal(s->events[0].fqn, "m.proj");
    assert_string_equal(s->events[0].format, "float32");
    assert_string_equal(s->events[1].phase, "wgrad");
    assert_int_equal(s->events[1].shape[2][0], N);
    assert_int_equal(s->events[1].shape[2][1], K);
    seat_free(s);
}

static oct_status broken_forward(oct_module *module, const oct_run *run, const oct_tensor *x,
                                 const oct_tensor *y, oct_linear_saved **saved, oct_err *err)
{
    (void)module, (void)run, (void)x, (void)y, (void)saved;
    return OCT_FAIL(err, OCT_E_KERNEL, "out of order");
}

static void linear__other_type__its_table_is_called_and_its_error_names_the_module(void **state)
{
    (void)state;
    static const oct_linear_ops ops = {.forward = broken_forward};
    static const oct_module_type type = {.name = "broken", .base = &oct_linear_type, .ops = &ops};
    seat *s = seat_new(false);
    s->linear->type = &type;
    assert_int_equal(oct_linear_forward(s->linear, &s->run, NULL, NULL, NULL, &s->err),
                     OCT_E_KERNEL);
    assert_string_equal(s->err.msg, "forward of 'm.proj': out of order");
    seat_free(s);
}

/* --- experts: E groups of rows, one of them empty --- */

enum { E = 3, S = 6, H = 4, F = 2 };

static const oct_module_type experts_type = {.name = "experts",
                                             .ops = &oct_experts_high_precision_ops};

static void experts__three_groups__each_row_meets_its_own_expert(void **state)
{
    (void)state;
    seat *s = seat_new(false);
    oct_module *experts = NULL;
    oct_param *gate_up = NULL, *down = NULL;
    assert_ok(s, oct_module_add(&s->tree, s->root, "experts", &experts_type, 0, &experts, &s->err));
    assert_ok(s, oct_module_add_param(&s->tree, experts, "gate_up_proj", 3,
                                      (int64_t[]){E, 2 * F, H}, &gate_up, &s->err));
    assert_ok(s, oct_module_add_param(&s->tree, experts, "down_proj", 3, (int64_t[]){E, H, F},
                                      &down, &s->err));
    give_value(gate_up, 1);
    give_value(down, 2);
    float x[S * H], y[S * H], dy[S * H], dx[S * H], dgate_up[E * 2 * F * H], ddown[E * H * F];
    gate_up->grad = dgate_up;
    down->grad = ddown;
    for (int i = 0; i < S * H; i++) {
        x[i] = 0.25f * whole(i, 3);
        dy[i] = whole(i, 4);
    }
    const int64_t ends[E] = {2, 2, S};
    const oct_groups groups = {.count = E, .ends = ends};
    const oct_tensor tx = oct_tensor_2d(x, OCT_DTYPE_F32, S, H);
    const oct_tensor ty = oct_tensor_2d(y, OCT_DTYPE_F32, S, H);
    const oct_tensor tdy = oct_tensor_2d(dy, OCT_DTYPE_F32, S, H);
    const oct_tensor tdx = oct_tensor_2d(dx, OCT_DTYPE_F32, S, H);
    const oct_lazy lx = oct_lazy_of(&tx), ldy = oct_lazy_of(&tdy);
    oct_experts_saved *saved = NULL;
    assert_ok(s, oct_experts_forward(experts, &s->run, &lx, &groups, &ty, &saved, &s->err));
    assert_ok(s, oct_experts_backward(experts, &s->run, saved, &groups, &ldy, &tdx, &s->err));

    /* Central differences of sum(y * dy) over x, one row at a time. */
    for (int i = 0; i < S * H; i++) {
        double sums[2];
        const float kept = x[i];
        for (int side = 0; side < 2; side++) {
            float moved[S * H];
            x[i] = kept + (side ? 0x1p-7f : -0x1p-7f);
            const oct_tensor to = oct_tensor_2d(moved, OCT_DTYPE_F32, S, H);
            oct_run plain = s->run;
            plain.training = false;
            plain.trace = NULL;
            assert_ok(s, oct_experts_forward(experts, &plain, &lx, &groups, &to, NULL, &s->err));
            sums[side] = 0.0;
            for (int j = 0; j < S * H; j++) {
                sums[side] += (double)moved[j] * (double)dy[j];
                if (j / H != i / H)
                    assert_true(moved[j] == y[j]);
            }
        }
        x[i] = kept;
        const double slope = (sums[1] - sums[0]) / 0x1p-6;
        assert_true(slope - (double)dx[i] < 2e-2 && slope - (double)dx[i] > -2e-2);
    }
    for (int i = 0; i < 2 * F * H; i++)
        assert_true(dgate_up[2 * F * H + i] == 0.0f); /* the empty expert */
    for (int i = 0; i < H * F; i++)
        assert_true(ddown[H * F + i] == 0.0f);
    seat_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_add__with_bias__declares_two_parameters_on_meta),
        cmocka_unit_test(linear__forward_and_backward__as_plain_loops),
        cmocka_unit_test(linear__bf16_with_bias__rounds_once_after_the_bias),
        cmocka_unit_test(linear__training__emits_one_event_per_product),
        cmocka_unit_test(linear__other_type__its_table_is_called_and_its_error_names_the_module),
        cmocka_unit_test(experts__three_groups__each_row_meets_its_own_expert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
