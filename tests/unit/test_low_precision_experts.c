/* The routed experts in low precision: replacement, call order, groups, empty experts, and every
 * expert bit for bit as if it were computed alone. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "kernels/elementwise.h"
#include "low_precision/functional/grouped_linear.h"
#include "low_precision/functional/linear.h"
#include "low_precision/hif8/hif8.h"
#include "low_precision/mxfp8/mxfp8.h"
#include "model/deepseek_v3/deepseek_v3.h"
#include "model/deepseek_v3/low_precision_experts.h"
#include "plan/plan.h"
#include "unit/low_precision_fixture.h"

#include "unit/fake_format.h"

enum { E = 5, F = 24, H = 40, MAX_ROWS = 256 };

typedef struct stand {
    bench *b;
    oct_module_tree tree;
    oct_module *source, *module;
    oct_low_precision_policy policy;
    int64_t rows, ends[E];
    oct_groups groups;
    oct_tensor gate_up, down; /* masters [E*2F,H], [E*H,F] */
    oct_tensor dgate_up, ddown;
    oct_tensor x, y, dy, dx; /* [rows,H] */
} stand;

static const oct_module_type root_type = {.name = "torch.nn.Module"};

static void replace(stand *s)
{
    static const char *const patterns[] = {"experts"};
    const oct_plan_rule rule = {.pattern_count = 1,
                                .patterns = patterns,
                                .module_type = oct_dsv3_experts_type.name,
                                .exact_type = true,
                                .target = OCT_REPLACE_DSV3_LOW_PRECISION_EXPERTS};
    const oct_plan_factory factory = {.target = OCT_REPLACE_DSV3_LOW_PRECISION_EXPERTS,
                                      .build = oct_replace_dsv3_low_precision_experts};
    const oct_module_type *const types[] = {&oct_dsv3_experts_type};
    const oct_plan_registry registry = {
        .factory_count = 1, .factories = &factory, .type_count = 1, .types = types};
    oct_plan *plan = NULL;
    oct_err *err = &s->b->err;
    assert_ok(s->b, oct_plan_compile(&s->tree, &rule, 1, &registry, &s->b->persist, &plan, err));
    assert_ok(s->b, oct_plan_apply(plan, &s->tree, &s->policy, NULL, err));
    s->module = oct_module_find(&s->tree, "experts");
}

static void set_rows(stand *s, const int64_t *counts)
{
    s->rows = 0;
    for (int e = 0; e < E; e++)
        s->ends[e] = s->rows += counts[e];
    assert_true(s->rows <= MAX_ROWS);
    s->groups = (oct_groups){.count = E, .ends = s->ends};
    s->x.shape[0] = s->y.shape[0] = s->dy.shape[0] = s->dx.shape[0] = s->rows;
}

static stand *stand_new_isa(oct_low_precision_policy policy, oct_isa isa, const int64_t *counts)
{
    stand *s = calloc(1, sizeof *s);
    assert_non_null(s);
    bench *b = s->b = bench_new(isa, OCT_DTYPE_F32);
    s->policy = policy;
    oct_module_tree_init(&s->tree);
    oct_module *root = NULL;
    oct_param *param = NULL;
    assert_ok(b, oct_module_add(&s->tree, NULL, "", &root_type, 1, &root, &b->err));
    assert_ok(b, oct_module_add(&s->tree, root, "experts", &oct_dsv3_experts_type, 0, &s->source,
                                &b->err));
    assert_ok(b, oct_module_add_param(&s->tree, s->source, "gate_up_proj", 3,
                                      (int64_t[]){E, 2 * F, H}, &param, &b->err));
    assert_ok(b, oct_module_add_param(&s->tree, s->source, "down_proj", 3, (int64_t[]){E, H, F},
                                      &param, &b->err));
    replace(s);
    s->gate_up = tensor_f32(b, E * 2 * F, H);
    s->down = tensor_f32(b, E * H, F);
    s->dgate_up = tensor_f32(b, E * 2 * F, H);
    s->ddown = tensor_f32(b, E * H, F);
    s->x = tensor_f32(b, MAX_ROWS, H);
    s->y = tensor_f32(b, MAX_ROWS, H);
    s->dy = tensor_f32(b, MAX_ROWS, H);
    s->dx = tensor_f32(b, MAX_ROWS, H);
    fill_f32(s->gate_up.data, E * 2 * F * H, 21);
    fill_f32(s->down.data, E * H * F, 22);
    fill_f32(s->x.data, MAX_ROWS * H, 23);
    fill_f32(s->dy.data, MAX_ROWS * H, 24);
    for (int64_t i = 0; i < MAX_ROWS * H; i++) { /* rows of unequal size, so that scales differ */
        f32(&s->x)[i] = ldexpf(f32(&s->x)[i], (int)(i / H % 7) - 3);
        f32(&s->dy)[i] = ldexpf(f32(&s->dy)[i], (int)(i / H % 5) - 4);
    }
    oct_tensor *masters[2] = {&s->gate_up, &s->down}, *grads[2] = {&s->dgate_up, &s->ddown};
    for (int p = 0; p < 2; p++) {
        param = s->module->params[p];
        assert_ok(b, oct_weight_create(&b->persist, &policy, param, OCT_DTYPE_F32, &param->storage,
                                       &b->err));
        assert_ok(
            b, oct_weight_refresh(&b->exec, NULL, param->storage, masters[p]->data, NULL, &b->err));
        param->grad = grads[p]->data;
    }
    set_rows(s, counts);
    return s;
}

static stand *stand_new(oct_low_precision_policy policy, const int64_t *counts)
{
    return stand_new_isa(policy, OCT_ISA_REF, counts);
}

static void stand_free(stand *s)
{
    oct_weight_release(s->module->params[0]->storage);
    oct_weight_release(s->module->params[1]->storage);
    oct_module_tree_release(&s->tree);
    bench_free(s->b);
    free(s);
}

static oct_status forward(stand *s, oct_experts_saved **saved)
{
    const oct_lazy x = oct_lazy_of(&s->x);
    return oct_experts_forward(s->module, &s->b->run, &x, &s->groups, &s->y, saved, &s->b->err);
}

static oct_status backward(stand *s, const oct_experts_saved *saved)
{
    const oct_lazy dy = oct_lazy_of(&s->dy);
    return oct_experts_backward(s->module, &s->b->run, saved, &s->groups, &dy, &s->dx, &s->b->err);
}

static void forward_backward(stand *s)
{
    bench *b = s->b;
    oct_experts_saved *saved = NULL;
    assert_ok(b, forward(s, &saved));
    assert_ok(b, backward(s, saved));
    oct_arena_reset(&b->step);
}

static oct_low_precision_policy policy_at(int f)
{
    return oct_low_precision_policy_of(oct_low_precision_formats[f]->recipe);
}

static const int64_t uneven[E] = {1, 31, 33, 0, 64}; /* FR-09 */

/* --- replacement ----------------------------------------------------------------------------- */

static void replace__container__whole_with_its_stacked_parameters(void **state)
{
    (void)state;
    stand *s = stand_new(policy_at(0), uneven);
    assert_ptr_equal(s->module->type, &oct_dsv3_low_precision_experts_type);
    assert_true(oct_module_type_is(s->module->type, &oct_dsv3_experts_type));
    for (int p = 0; p < 2; p++)
        assert_ptr_equal(s->module->params[p], s->source->params[p]);
    assert_string_equal(s->module->params[0]->fqn, "experts.gate_up_proj");
    assert_string_equal(s->module->params[1]->fqn, "experts.down_proj");
    assert_string_equal(OCT_REPLACE_DSV3_LOW_PRECISION_EXPERTS,
                        "hyper_models.components.models.adapters.deepseek_v3.low_precision.replace_"
                        "deepseek_v3_low_precision_experts");
    assert_string_equal(oct_dsv3_experts_type.name,
                        "transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3Experts");
    stand_free(s);
}

static void replace__other_shapes_or_type__refused(void **state)
{
    (void)state;
    stand *s = stand_new(policy_at(0), uneven);
    bench *b = s->b;
    oct_module *made = NULL;
    s->source->params[1]->shape[2] = F - 1;
    assert_fails(b,
                 oct_replace_dsv3_low_precision_experts(&s->tree, s->source, "experts", &s->policy,
                                                        &made, &b->err),
                 OCT_E_PLAN, "gate_up_proj [5,48,40] and down_proj [5,40,23]");
    s->source->params[1]->shape[2] = F;
    assert_fails(b,
                 oct_replace_dsv3_low_precision_experts(&s->tree, s->tree.root, "root", &s->policy,
                                                        &made, &b->err),
                 OCT_E_PLAN, "DeepseekV3Experts' is required");
    const oct_low_precision_policy off = {0};
    assert_fails(b,
                 oct_replace_dsv3_low_precision_experts(&s->tree, s->source, "experts", &off, &made,
                                                        &b->err),
                 OCT_E_API, "'experts'");
    assert_null(made);
    stand_free(s);
}

static void forward__no_storage__refused_with_fqn(void **state)
{
    (void)state;
    stand *s = stand_new(policy_at(0), uneven);
    bench *b = s->b;
    oct_experts_saved *saved = NULL;
    oct_weight_storage *kept = s->module->params[1]->storage;
    s->module->params[1]->storage = NULL;
    assert_fails(b, forward(s, &saved), OCT_E_API, "'experts.down_proj' has no quantized weight");
    s->module->params[1]->storage = kept;
    stand_free(s);
}

/* --- order of the operators ------------------------------------------------------------------- */

static void expect_quantize(int call, oct_role role, bool row, bool col)
{
    assert_int_equal(fake.calls[call].kind, FAKE_QUANTIZE);
    assert_ptr_equal(fake.calls[call].quantizer, &fake_quantizers[role]);
    assert_int_equal(fake.calls[call].row, row);
    assert_int_equal(fake.calls[call].col, col);
    assert_int_equal(fake.calls[call].groups, E);
}

static void expect_matmul(int call, oct_layout layout, const oct_operand *weight)
{
    const fake_call *c = &fake.calls[call];
    assert_int_equal(c->kind, FAKE_MATMUL);
    assert_int_equal(c->layout, layout);
    assert_int_equal(c->groups, E);
    if (weight) {
        assert_ptr_equal(c->right.data.data, weight->data.data);
        assert_ptr_equal(c->right.scales.data, weight->scales.data);
        assert_int_equal(c->right.orientation, weight->orientation);
    } else {
        assert_int_equal(c->left.orientation, OCT_ORIENTATION_COL);
        assert_int_equal(c->right.orientation, OCT_ORIENTATION_COL);
    }
}

static void pass__operators__gate_up_swiglu_down_and_back(void **state)
{
    (void)state;
    stand *s = stand_new(fake_policy(false), uneven);
    oct_operand gate_up_col, gate_up_row, down_col, down_row;
    const oct_weight_storage *gate_up = s->module->params[0]->storage;
    const oct_weight_storage *down = s->module->params[1]->storage;
    oct_err *err = &s->b->err;
    assert_ok(s->b, oct_weight_select(gate_up, OCT_ORIENTATION_COL, &gate_up_col, err));
    assert_ok(s->b, oct_weight_select(gate_up, OCT_ORIENTATION_ROW, &gate_up_row, err));
    assert_ok(s->b, oct_weight_select(down, OCT_ORIENTATION_COL, &down_col, err));
    assert_ok(s->b, oct_weight_select(down, OCT_ORIENTATION_ROW, &down_row, err));
    forward_backward(s);
    assert_int_equal(fake.count, 12);
    expect_quantize(0, OCT_ROLE_INPUT_FWD, true, false);
    expect_quantize(1, OCT_ROLE_INPUT_BWD, false, true);
    expect_matmul(2, OCT_LAYOUT_NN, &gate_up_col);
    expect_quantize(3, OCT_ROLE_INPUT_FWD, true, false);
    expect_quantize(4, OCT_ROLE_INPUT_BWD, false, true);
    expect_matmul(5, OCT_LAYOUT_NN, &down_col);
    expect_quantize(6, OCT_ROLE_GRAD_OUTPUT, true, true);
    expect_matmul(7, OCT_LAYOUT_NT, &down_row);
    expect_matmul(8, OCT_LAYOUT_TN, NULL);
    assert_ptr_equal(fake.calls[8].out.data, s->ddown.data);
    expect_quantize(9, OCT_ROLE_GRAD_OUTPUT, true, true);
    expect_matmul(10, OCT_LAYOUT_NT, &gate_up_row);
    expect_matmul(11, OCT_LAYOUT_TN, NULL);
    assert_ptr_equal(fake.calls[11].out.data, s->dgate_up.data);
    stand_free(s);
}

static void pass__events__one_matmul_per_product_and_kernel(void **state)
{
    (void)state;
    static const struct {
        const char *phase, *fqn, *layout, *orientation;
    } expected[] = {
        {"fprop", "experts.gate_up_proj", "NN", "col"},
        {"fprop", "experts.down_proj", "NN", "col"},
        {"dgrad", "experts.down_proj", "NT", "row"},
        {"wgrad", "experts.down_proj", "TN", "col"},
        {"dgrad", "experts.gate_up_proj", "NT", "row"},
        {"wgrad", "experts.gate_up_proj", "TN", "col"},
    };
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        stand *s = stand_new(policy_at(f), uneven);
        s->b->event_count = 0;
        forward_backward(s);
        int at = -1;
        for (int i = 0; i < s->b->event_count; i++) {
            const oct_trace_event *e = &s->b->events[i].event;
            assert_true(e->grouped);
            if (e->kind != OCT_TRACE_MATMUL)
                continue;
            const bool second_kernel = at >= 0 && strcmp(e->kernel, "fma") == 0 &&
                                       strcmp(e->phase, expected[at].phase) == 0 &&
                                       strcmp(e->fqn, expected[at].fqn) == 0;
            at += !second_kernel;
            assert_string_equal(e->phase, expected[at].phase);
            assert_string_equal(e->fqn, expected[at].fqn);
            assert_string_equal(e->layout, expected[at].layout);
            assert_string_equal(e->orientation, expected[at].orientation);
        }
        assert_int_equal(at, 5);
        stand_free(s);
    }
}

/* --- every expert as if alone ------------------------------------------------------------------
 */

static oct_tensor rows_of(const oct_tensor *t, int64_t first, int64_t rows)
{
    return oct_tensor_2d(f32(t) + first * t->shape[1], OCT_DTYPE_F32, rows, t->shape[1]);
}

/* Expert e by the dense path on its own slice, compared bit for bit. */
static void compare_expert(stand *s, int e)
{
    bench *b = s->b;
    const oct_run *run = &b->run;
    const int64_t first = e ? s->ends[e - 1] : 0, rows = s->ends[e] - first;
    const int64_t up_shape[] = {2 * F, H}, down_shape[] = {H, F};
    oct_weight_storage *up =
        weight_of(b, &s->policy, "up", 2, up_shape, f32(&s->gate_up) + e * 2 * F * H);
    oct_weight_storage *down =
        weight_of(b, &s->policy, "down", 2, down_shape, f32(&s->down) + e * H * F);
    const oct_tensor x = rows_of(&s->x, first, rows), dy = rows_of(&s->dy, first, rows);
    oct_tensor pair = tensor_f32(b, rows, 2 * F), act = tensor_f32(b, rows, F);
    oct_tensor dpair = tensor_f32(b, rows, 2 * F), dact = tensor_f32(b, rows, F);
    oct_tensor y = tensor_f32(b, rows, H), dx = tensor_f32(b, rows, H);
    oct_tensor dup = tensor_f32(b, 2 * F, H), ddown = tensor_f32(b, H, F);
    const oct_tensor gate = oct_tensor_2d(pair.data, OCT_DTYPE_F32, rows, F);
    const oct_tensor upper = oct_tensor_2d(f32(&pair) + F, OCT_DTYPE_F32, rows, F);
    const oct_tensor dgate = oct_tensor_2d(dpair.data, OCT_DTYPE_F32, rows, F);
    const oct_tensor dupper = oct_tensor_2d(f32(&dpair) + F, OCT_DTYPE_F32, rows, F);
    const oct_gemm_out dup_out = store_f32(&dup), ddown_out = store_f32(&ddown);
    oct_operand x_kept, act_kept;
    assert_ok(b,
              oct_low_precision_linear_forward(run, "up", up, NULL, &x, &pair, &x_kept, &b->err));
    assert_ok(b, oct_swiglu(&b->exec, &gate, 2 * F, &upper, 2 * F, &act, &b->err));
    assert_ok(
        b, oct_low_precision_linear_forward(run, "down", down, NULL, &act, &y, &act_kept, &b->err));
    assert_ok(b, oct_low_precision_linear_backward(run, "down", down, &act_kept, &dy, &dact,
                                                   &ddown_out, &b->err));
    assert_ok(b, oct_swiglu_backward(&b->exec, &dact, &gate, 2 * F, &upper, 2 * F, &dgate, &dupper,
                                     &b->err));
    assert_ok(b, oct_low_precision_linear_backward(run, "up", up, &x_kept, &dpair, &dx, &dup_out,
                                                   &b->err));
    assert_memory_equal(y.data, f32(&s->y) + first * H, oct_tensor_bytes(&y));
    assert_memory_equal(dx.data, f32(&s->dx) + first * H, oct_tensor_bytes(&dx));
    assert_memory_equal(dup.data, f32(&s->dgate_up) + e * 2 * F * H, oct_tensor_bytes(&dup));
    assert_memory_equal(ddown.data, f32(&s->ddown) + e * H * F, oct_tensor_bytes(&ddown));
    weight_free(up);
    weight_free(down);
}

static void pass__any_split_of_tokens__each_expert_as_if_alone(void **state)
{
    (void)state;
    static const int64_t splits[][E] = {
        {1, 31, 33, 0, 64}, {0, 0, 129, 0, 0}, {32, 32, 32, 32, 32},
        {0, 7, 0, 0, 90},   {70, 1, 1, 65, 0},
    };
    for (int f = 0; oct_low_precision_formats[f]; f++)
        for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
            stand *s = stand_new(policy_at(f), splits[i]);
            forward_backward(s);
            s->b->trace.sink = NULL;
            for (int e = 0; e < E; e++)
                compare_expert(s, e);
            stand_free(s);
        }
}

static void pass__two_threads_and_every_isa__same_bits(void **state)
{
    (void)state;
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        stand *ref = stand_new(policy_at(f), uneven);
        forward_backward(ref);
        for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
            stand *s = stand_new_isa(policy_at(f), (oct_isa)isa, uneven);
            s->b->exec.threads = 2;
            forward_backward(s);
            assert_memory_equal(s->y.data, ref->y.data, oct_tensor_bytes(&s->y));
            assert_memory_equal(s->dx.data, ref->dx.data, oct_tensor_bytes(&s->dx));
            assert_memory_equal(s->dgate_up.data, ref->dgate_up.data,
                                oct_tensor_bytes(&s->dgate_up));
            assert_memory_equal(s->ddown.data, ref->ddown.data, oct_tensor_bytes(&s->ddown));
            stand_free(s);
        }
        stand_free(ref);
    }
}

/* --- experts without tokens --------------------------------------------------------------------
 */

static void expect_zero(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        assert_true(x[i] == 0.0f);
}

static void poison(stand *s)
{
    oct_tensor *outputs[] = {&s->y, &s->dx, &s->dgate_up, &s->ddown};
    for (int i = 0; i < 4; i++)
        memset(outputs[i]->data, 0xff, oct_tensor_bytes(outputs[i]));
}

static void pass__empty_expert_in_dirty_memory__its_gradient_is_zero(void **state)
{
    (void)state;
    static const int64_t busy[E] = {9, 9, 9, 9, 9}, idle[E] = {9, 9, 0, 9, 9}, none[E] = {0};
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        stand *s = stand_new(policy_at(f), busy);
        poison(s);
        forward_backward(s);
        set_rows(s, idle); /* the arenas now hold what the busy step left */
        poison(s);
        forward_backward(s);
        expect_zero(f32(&s->dgate_up) + 2 * 2 * F * H, 2 * F * H);
        expect_zero(f32(&s->ddown) + 2 * H * F, H * F);
        for (int64_t i = 0; i < E * 2 * F * H; i++)
            assert_true(isfinite(f32(&s->dgate_up)[i]));
        for (int64_t i = 0; i < s->rows * H; i++)
            assert_true(isfinite(f32(&s->y)[i]) && isfinite(f32(&s->dx)[i]));
        s->b->trace.sink = NULL;
        compare_expert(s, 3);

        set_rows(s, none);
        poison(s);
        forward_backward(s);
        expect_zero(s->dgate_up.data, E * 2 * F * H);
        expect_zero(s->ddown.data, E * H * F);
        stand_free(s);
    }
}

static void pass__second_micro_batch__folded_and_idle_expert_kept(void **state)
{
    (void)state;
    static const int64_t idle[E] = {9, 9, 0, 9, 9};
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        stand *s = stand_new(policy_at(f), uneven), *t = stand_new(policy_at(f), idle);
        forward_backward(t); /* the second micro-batch on its own */
        forward_backward(s);
        float *first = malloc(oct_tensor_bytes(&s->ddown));
        assert_non_null(first);
        memcpy(first, s->ddown.data, oct_tensor_bytes(&s->ddown));
        s->module->params[0]->grad_started = s->module->params[1]->grad_started = true;
        set_rows(s, idle);
        forward_backward(s);
        for (int64_t i = 0; i < E * H * F; i++)
            assert_float_equal(f32(&s->ddown)[i], first[i] + f32(&t->ddown)[i], 0.0f);
        assert_int_equal(s->module->params[1]->storage->refresh_count, 1);
        free(first);
        stand_free(s);
        stand_free(t);
    }
}

static void pass__expert_with_zero_weights__finite_and_scale_one(void **state)
{
    (void)state;
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        stand *s = stand_new(policy_at(f), uneven);
        bench *b = s->b;
        memset(f32(&s->gate_up) + 1 * 2 * F * H, 0, 2 * F * H * sizeof(float));
        memset(f32(&s->down) + 1 * H * F, 0, H * F * sizeof(float));
        oct_weight_storage *gate_up = s->module->params[0]->storage;
        oct_weight_storage *down = s->module->params[1]->storage;
        assert_ok(b, oct_weight_refresh(&b->exec, NULL, gate_up, s->gate_up.data, NULL, &b->err));
        assert_ok(b, oct_weight_refresh(&b->exec, NULL, down, s->down.data, NULL, &b->err));
        if (gate_up->amax)
            assert_float_equal(f32(&gate_up->tensors[1].tensor)[1], 1.0f, 0.0f);
        forward_backward(s);
        expect_zero(f32(&s->y) + s->ends[0] * H, uneven[1] * H);
        expect_zero(f32(&s->ddown) + 1 * H * F, H * F); /* its input was zero */
        for (int64_t i = 0; i < s->rows * H; i++)
            assert_true(isfinite(f32(&s->dx)[i]));
        stand_free(s);
    }
}

/* --- what is kept, failures ---------------------------------------------------------------------
 */

static void forward__training__keeps_inputs_in_eight_bits(void **state)
{
    (void)state;
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        stand *s = stand_new(policy_at(f), uneven);
        bench *b = s->b;
        oct_experts_saved *saved = NULL;
        b->run.training = false;
        assert_ok(b, forward(s, &saved));
        assert_null(saved);
        assert_int_equal(b->step.used_bytes, 0);
        b->run.training = true;
        assert_ok(b, forward(s, &saved));
        const size_t gate_up = (size_t)s->rows * 2 * F * sizeof(float);
        const size_t codes = (size_t)s->rows * (H + F), scales = (size_t)6 * (H + F) * 2;
        assert_true(b->step.used_bytes < gate_up + codes + scales + 2048);
        stand_free(s);
    }
}

static void pass__failing_operator__its_error_surfaces(void **state)
{
    (void)state;
    for (int k = 1; k <= 12; k++) {
        stand *s = stand_new(fake_policy(false), uneven);
        bench *b = s->b;
        fake.fail_quantize_at = k <= 6 ? k : 0;
        fake.fail_matmul_at = k > 6 ? k - 6 : 0;
        oct_experts_saved *saved = NULL;
        oct_status status = forward(s, &saved);
        if (status == OCT_OK)
            status = backward(s, saved);
        assert_int_equal(status, OCT_E_KERNEL);
        assert_non_null(strstr(b->err.msg, k <= 6 ? "injected quantizer" : "injected matmul"));
        assert_non_null(strstr(b->err.msg, "'experts"));
        assert_int_equal(fake.calls[fake.count - 1].kind, k <= 6 ? FAKE_QUANTIZE : FAKE_MATMUL);
        oct_arena_reset(&b->scratch);
        stand_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replace__container__whole_with_its_stacked_parameters),
        cmocka_unit_test(replace__other_shapes_or_type__refused),
        cmocka_unit_test(forward__no_storage__refused_with_fqn),
        cmocka_unit_test(pass__operators__gate_up_swiglu_down_and_back),
        cmocka_unit_test(pass__events__one_matmul_per_product_and_kernel),
        cmocka_unit_test(pass__any_split_of_tokens__each_expert_as_if_alone),
        cmocka_unit_test(pass__two_threads_and_every_isa__same_bits),
        cmocka_unit_test(pass__empty_expert_in_dirty_memory__its_gradient_is_zero),
        cmocka_unit_test(pass__second_micro_batch__folded_and_idle_expert_kept),
        cmocka_unit_test(pass__expert_with_zero_weights__finite_and_scale_one),
        cmocka_unit_test(forward__training__keeps_inputs_in_eight_bits),
        cmocka_unit_test(pass__failing_operator__its_error_surfaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
