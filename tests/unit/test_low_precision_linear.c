/* The low-precision linear as a module: replacement, roles and orientations of its three products,
 * bias, shapes, accumulation, recompute, failures. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "low_precision/functional/linear.h"
#include "low_precision/hif8/hif8.h"
#include "low_precision/modules/linear.h"
#include "low_precision/mxfp8/mxfp8.h"
#include "numeric/bf16.h"
#include "plan/plan.h"
#include "unit/low_precision_fixture.h"

#include "unit/fake_format.h"

enum { TOKENS = 45, IN = 40, OUT = 70 };

/* One linear in a tree, replaced by the real plan and factory, with weights and gradients. */
typedef struct stand {
    bench *b;
    oct_module_tree tree;
    oct_module *source, *module;
    oct_low_precision_policy policy;
    oct_tensor x, dy, y, dx;
    oct_tensor master, bias, dw, db;
} stand;

static const oct_module_type root_type = {.name = "torch.nn.Module"};

static void replace(stand *s)
{
    static const char *const patterns[] = {"proj"};
    const oct_plan_rule rule = {.pattern_count = 1,
                                .patterns = patterns,
                                .module_type = "torch.nn.Linear",
                                .exact_type = true,
                                .target = OCT_REPLACE_LOW_PRECISION_LINEAR};
    const oct_plan_factory factory = {.target = OCT_REPLACE_LOW_PRECISION_LINEAR,
                                      .build = oct_replace_low_precision_linear};
    const oct_module_type *const types[] = {&oct_linear_type};
    const oct_plan_registry registry = {
        .factory_count = 1, .factories = &factory, .type_count = 1, .types = types};
    oct_plan *plan = NULL;
    oct_err *err = &s->b->err;
    assert_ok(s->b, oct_plan_compile(&s->tree, &rule, 1, &registry, &s->b->persist, &plan, err));
    assert_ok(s->b, oct_plan_apply(plan, &s->tree, &s->policy, &s->b->trace, err));
    s->module = oct_module_find(&s->tree, "proj");
}

static stand *stand_new(oct_low_precision_policy policy, bool bias)
{
    stand *s = calloc(1, sizeof *s);
    assert_non_null(s);
    bench *b = s->b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    s->policy = policy;
    oct_module_tree_init(&s->tree);
    oct_module *root = NULL;
    assert_ok(b, oct_module_add(&s->tree, NULL, "", &root_type, 1, &root, &b->err));
    assert_ok(b, oct_linear_add(&s->tree, root, "proj", IN, OUT, bias, &s->source, &b->err));
    replace(s);
    s->master = tensor_f32(b, OUT, IN);
    s->bias = tensor_f32(b, 1, OUT);
    s->dw = tensor_f32(b, OUT, IN);
    s->db = tensor_f32(b, 1, OUT);
    s->x = tensor_f32(b, TOKENS, IN);
    s->dy = tensor_f32(b, TOKENS, OUT);
    s->y = tensor_f32(b, TOKENS, OUT);
    s->dx = tensor_f32(b, TOKENS, IN);
    fill_f32(s->master.data, OUT * IN, 11);
    fill_f32(s->bias.data, OUT, 12);
    fill_f32(s->x.data, TOKENS * IN, 13);
    fill_f32(s->dy.data, TOKENS * OUT, 14);
    oct_param *weight = s->module->params[0];
    assert_ok(b, oct_weight_create(&b->persist, &policy, weight, OCT_DTYPE_F32, &weight->storage,
                                   &b->err));
    assert_ok(
        b, oct_weight_refresh(&b->exec, &b->trace, weight->storage, s->master.data, NULL, &b->err));
    weight->grad = s->dw.data;
    if (bias) {
        s->module->params[1]->value = s->bias;
        s->module->params[1]->grad = s->db.data;
    }
    b->event_count = 0;
    return s;
}

static void stand_free(stand *s)
{
    oct_weight_release(s->module->params[0]->storage);
    oct_module_tree_release(&s->tree);
    bench_free(s->b);
    free(s);
}

static void forward_backward(stand *s)
{
    oct_linear_saved *saved = NULL;
    bench *b = s->b;
    assert_ok(b, oct_linear_forward(s->module, &b->run, &s->x, &s->y, &saved, &b->err));
    assert_ok(b, oct_linear_backward(s->module, &b->run, saved, &s->dy, &s->dx, &b->err));
    oct_arena_reset(&b->step);
}

static oct_low_precision_policy mxfp8(void)
{
    return oct_low_precision_policy_of(oct_mxfp8_format.recipe);
}

static oct_low_precision_policy hif8(void)
{
    return oct_low_precision_policy_of(oct_hif8_format.recipe);
}

/* --- replacement ----------------------------------------------------------------------------- */

static void replace__factory__same_parameters_another_type(void **state)
{
    (void)state;
    stand *s = stand_new(mxfp8(), true);
    assert_ptr_not_equal(s->module, s->source);
    assert_ptr_equal(s->module->type, &oct_low_precision_linear_type);
    assert_true(oct_module_type_is(s->module->type, &oct_linear_type));
    assert_ptr_equal(s->module->params[0], s->source->params[0]);
    assert_ptr_equal(s->module->params[1], s->source->params[1]);
    assert_string_equal(s->module->params[0]->fqn, "proj.weight");
    assert_string_equal(s->module->params[1]->fqn, "proj.bias");
    assert_string_equal(s->module->fqn, "proj");
    stand_free(s);
}

static void replace__target_string__is_that_of_the_design_document(void **state)
{
    (void)state;
    assert_string_equal(OCT_REPLACE_LOW_PRECISION_LINEAR,
                        "hyper_models.components.training.low_precision.modules.linear."
                        "replace_low_precision_linear");
}

static void replace__policy_off_or_wrong_type__refused(void **state)
{
    (void)state;
    stand *s = stand_new(mxfp8(), false);
    bench *b = s->b;
    const oct_low_precision_policy off = {0};
    oct_module *made = NULL;
    assert_fails(
        b, oct_replace_low_precision_linear(&s->tree, s->source, "proj", &off, &made, &b->err),
        OCT_E_API, "'proj'");
    assert_fails(b,
                 oct_replace_low_precision_linear(&s->tree, s->tree.root, "root", &s->policy, &made,
                                                  &b->err),
                 OCT_E_PLAN, "'torch.nn.Linear' is required");
    assert_null(made);
    stand_free(s);
}

/* --- roles, orientations, layouts ------------------------------------------------------------- */

static void expect_quantize(int call, oct_role role, bool row, bool col)
{
    assert_int_equal(fake.calls[call].kind, FAKE_QUANTIZE);
    assert_ptr_equal(fake.calls[call].quantizer, &fake_quantizers[role]);
    assert_int_equal(fake.calls[call].row, row);
    assert_int_equal(fake.calls[call].col, col);
}

static void expect_matmul(int call, oct_layout layout, oct_orientation left, oct_orientation right)
{
    assert_int_equal(fake.calls[call].kind, FAKE_MATMUL);
    assert_int_equal(fake.calls[call].layout, layout);
    assert_int_equal(fake.calls[call].left.orientation, left);
    assert_int_equal(fake.calls[call].right.orientation, right);
}

static void pass__operators__called_in_order_with_their_roles(void **state)
{
    (void)state;
    stand *s = stand_new(fake_policy(false), false);
    forward_backward(s);
    const oct_weight_storage *w = s->module->params[0]->storage;
    assert_int_equal(fake.count, 6);
    expect_quantize(0, OCT_ROLE_INPUT_FWD, true, false);
    expect_quantize(1, OCT_ROLE_INPUT_BWD, false, true);
    expect_matmul(2, OCT_LAYOUT_NT, OCT_ORIENTATION_ROW, OCT_ORIENTATION_ROW);
    assert_ptr_equal(fake.calls[2].right.data.data, w->tensors[0].tensor.data);
    expect_quantize(3, OCT_ROLE_GRAD_OUTPUT, true, true); /* both axes in one pass */
    expect_matmul(4, OCT_LAYOUT_NN, OCT_ORIENTATION_ROW, OCT_ORIENTATION_COL);
    assert_ptr_equal(fake.calls[4].right.data.data, w->tensors[2].tensor.data);
    expect_matmul(5, OCT_LAYOUT_TN, OCT_ORIENTATION_COL, OCT_ORIENTATION_COL);
    assert_ptr_equal(fake.calls[5].out.data, s->dw.data); /* straight to its owner */
    assert_int_equal(fake.calls[5].out.store, OCT_GEMM_STORE);
    for (int i = 0; i < 6; i++)
        assert_int_equal(fake.calls[i].groups, 0);
    stand_free(s);
}

static void pass__one_quantizer_for_all_roles__input_quantized_in_one_pass(void **state)
{
    (void)state;
    stand *s = stand_new(fake_policy(true), false);
    forward_backward(s);
    assert_int_equal(fake.quantizes, 2);
    assert_int_equal(fake.matmuls, 3);
    assert_true(fake.calls[0].row && fake.calls[0].col);
    stand_free(s);
}

static void pass__events__roles_phases_and_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *what, *role_or_phase, *orientation, *layout;
    } expected[] = {
        {"quantize", "input_fwd", "row", NULL},   {"quantize", "input_bwd", "col", NULL},
        {"matmul", "fprop", "row", "NT"},         {"quantize", "grad_output", "row", NULL},
        {"quantize", "grad_output", "col", NULL}, {"matmul", "dgrad", "col", "NN"},
        {"matmul", "wgrad", "col", "TN"},
    };
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        stand *s =
            stand_new(oct_low_precision_policy_of(oct_low_precision_formats[f]->recipe), false);
        forward_backward(s);
        assert_int_equal(s->b->event_count, 7);
        for (int i = 0; i < 7; i++) {
            const oct_trace_event *e = &s->b->events[i].event;
            assert_string_equal(oct_trace_kind_name(e->kind), expected[i].what);
            assert_string_equal(e->role ? e->role : e->phase, expected[i].role_or_phase);
            assert_string_equal(e->orientation, expected[i].orientation);
            assert_string_equal(e->fqn, "proj");
            assert_string_equal(e->format, oct_low_precision_formats[f]->name);
            assert_string_equal(e->scale_dtype,
                                oct_dtype_name(oct_low_precision_formats[f]->scale_dtype));
            if (expected[i].layout)
                assert_string_equal(e->layout, expected[i].layout);
            if (e->has_scale) {
                const float format_max = strcmp(e->role, "grad_output") == 0 ? 224.0f : 15.0f;
                assert_float_equal(e->scale, e->amax / format_max, 0.0f);
            }
        }
        stand_free(s);
    }
}

static void backward__poisoned_weight__wgrad_does_not_read_it(void **state)
{
    (void)state;
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        const oct_low_precision_policy policy =
            oct_low_precision_policy_of(oct_low_precision_formats[f]->recipe);
        stand *s = stand_new(policy, false), *t = stand_new(policy, false);
        forward_backward(s);
        bench *b = t->b;
        oct_linear_saved *saved = NULL;
        assert_ok(b, oct_linear_forward(t->module, &b->run, &t->x, &t->y, &saved, &b->err));
        memset(t->x.data, 0xff, oct_tensor_bytes(&t->x)); /* x is not kept either */
        oct_weight_storage *w = t->module->params[0]->storage;
        for (int i = 0; i < w->tensor_count; i++)
            memset(w->tensors[i].tensor.data, 0xff, oct_tensor_bytes(&w->tensors[i].tensor));
        assert_ok(b, oct_linear_backward(t->module, &b->run, saved, &t->dy, NULL, &b->err));
        assert_memory_equal(s->dw.data, t->dw.data, oct_tensor_bytes(&s->dw));
        stand_free(s);
        stand_free(t);
    }
}

/* --- shapes, bias, dtypes ----------------------------------------------------------------------
 */

static void forward__three_dimensions__same_as_flat(void **state)
{
    (void)state;
    stand *s = stand_new(mxfp8(), false);
    bench *b = s->b;
    forward_backward(s);
    oct_tensor y = tensor_f32(b, TOKENS, OUT), dx = tensor_f32(b, TOKENS, IN);
    oct_tensor dw = tensor_f32(b, OUT, IN);
    const oct_tensor x3 = {.data = s->x.data, .ndim = 3, .shape = {9, 5, IN}};
    const oct_tensor y3 = {.data = y.data, .ndim = 3, .shape = {9, 5, OUT}};
    const oct_tensor dy3 = {.data = s->dy.data, .ndim = 3, .shape = {9, 5, OUT}};
    const oct_tensor dx3 = {.data = dx.data, .ndim = 3, .shape = {9, 5, IN}};
    oct_linear_saved *saved = NULL;
    s->module->params[0]->grad = dw.data;
    assert_ok(b, oct_linear_forward(s->module, &b->run, &x3, &y3, &saved, &b->err));
    assert_ok(b, oct_linear_backward(s->module, &b->run, saved, &dy3, &dx3, &b->err));
    assert_memory_equal(y.data, s->y.data, oct_tensor_bytes(&y));
    assert_memory_equal(dx.data, s->dx.data, oct_tensor_bytes(&dx));
    assert_memory_equal(dw.data, s->dw.data, oct_tensor_bytes(&dw));
    stand_free(s);
}

static void pass__bias__added_in_fp32_and_its_gradient_to_its_owner(void **state)
{
    (void)state;
    stand *s = stand_new(hif8(), true), *plain = stand_new(hif8(), false);
    forward_backward(s);
    forward_backward(plain);
    for (int64_t t = 0; t < TOKENS; t++)
        for (int64_t n = 0; n < OUT; n++)
            assert_float_equal(f32(&s->y)[t * OUT + n],
                               f32(&plain->y)[t * OUT + n] + f32(&s->bias)[n], 0.0f);
    for (int64_t n = 0; n < OUT; n++) {
        double sum = 0, size = 0;
        for (int64_t t = 0; t < TOKENS; t++) {
            sum += (double)f32(&s->dy)[t * OUT + n];
            size += fabs((double)f32(&s->dy)[t * OUT + n]);
        }
        assert_true(fabs((double)f32(&s->db)[n] - sum) <= TOKENS * 0x1p-24 * size);
    }
    assert_memory_equal(s->dw.data, plain->dw.data, oct_tensor_bytes(&s->dw));
    assert_memory_equal(s->dx.data, plain->dx.data, oct_tensor_bytes(&s->dx));
    stand_free(s);
    stand_free(plain);
}

static void forward__bf16_activations__fp32_result_rounded_once(void **state)
{
    (void)state;
    stand *s = stand_new(mxfp8(), true);
    bench *b = s->b;
    /* x of values that BF16 holds, so that both runs quantize the same numbers. */
    oct_tensor x, y, bias;
    assert_ok(b, oct_tensor_new_2d(&b->persist, OCT_DTYPE_BF16, TOKENS, IN, &x, &b->err));
    assert_ok(b, oct_tensor_new_2d(&b->persist, OCT_DTYPE_BF16, TOKENS, OUT, &y, &b->err));
    assert_ok(b, oct_tensor_new_2d(&b->persist, OCT_DTYPE_BF16, 1, OUT, &bias, &b->err));
    assert_ok(b, oct_convert(&b->exec, &s->x, &x, &b->err));
    assert_ok(b, oct_convert(&b->exec, &x, &s->x, &b->err));
    assert_ok(b, oct_convert(&b->exec, &s->bias, &bias, &b->err));
    assert_ok(b, oct_convert(&b->exec, &bias, &s->bias, &b->err));
    oct_linear_saved *saved = NULL;
    assert_ok(b, oct_linear_forward(s->module, &b->run, &s->x, &s->y, &saved, &b->err));
    b->run.act_dtype = OCT_DTYPE_BF16;
    s->module->params[1]->value = bias;
    assert_ok(b, oct_linear_forward(s->module, &b->run, &x, &y, &saved, &b->err));
    for (int64_t i = 0; i < TOKENS * OUT; i++)
        assert_int_equal(((const uint16_t *)y.data)[i], oct_bf16_from_f32(f32(&s->y)[i]));
    assert_string_equal(b->events[b->event_count - 1].event.dtype, "bfloat16");
    stand_free(s);
}

static void forward__not_training__keeps_nothing(void **state)
{
    (void)state;
    stand *s = stand_new(fake_policy(false), false);
    bench *b = s->b;
    oct_linear_saved *saved = NULL;
    b->run.training = false;
    assert_ok(b, oct_linear_forward(s->module, &b->run, &s->x, &s->y, &saved, &b->err));
    assert_null(saved);
    assert_int_equal(b->step.used_bytes, 0);
    assert_int_equal(fake.quantizes, 1);
    stand_free(s);
}

static void forward__training__keeps_eight_bits_per_element(void **state)
{
    (void)state;
    stand *s = stand_new(hif8(), false);
    bench *b = s->b;
    oct_linear_saved *saved = NULL;
    assert_ok(b, oct_linear_forward(s->module, &b->run, &s->x, &s->y, &saved, &b->err));
    assert_true(b->step.used_bytes < TOKENS * IN + 1024);
    stand_free(s);
}

static void backward__weight_without_gradient__no_wgrad(void **state)
{
    (void)state;
    stand *s = stand_new(fake_policy(false), false);
    s->module->params[0]->storage->requires_grad = false;
    forward_backward(s);
    assert_int_equal(fake.matmuls, 2);
    expect_quantize(3, OCT_ROLE_GRAD_OUTPUT, true, false);
    stand_free(s);
}

static void forward__no_storage__refused_with_fqn(void **state)
{
    (void)state;
    stand *s = stand_new(mxfp8(), false);
    bench *b = s->b;
    oct_weight_storage *kept = s->module->params[0]->storage;
    s->module->params[0]->storage = NULL;
    oct_linear_saved *saved = NULL;
    assert_fails(b, oct_linear_forward(s->module, &b->run, &s->x, &s->y, &saved, &b->err),
                 OCT_E_API, "'proj.weight' has no quantized weight");
    s->module->params[0]->storage = kept;
    stand_free(s);
}

/* --- the life of a step ------------------------------------------------------------------------
 */

static void accumulation__four_equal_micro_batches__same_losses_one_refresh(void **state)
{
    (void)state;
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        stand *s =
            stand_new(oct_low_precision_policy_of(oct_low_precision_formats[f]->recipe), false);
        oct_param *weight = s->module->params[0];
        forward_backward(s);
        float *y = malloc(oct_tensor_bytes(&s->y)), *g = malloc(oct_tensor_bytes(&s->dw));
        assert_non_null(y);
        assert_non_null(g);
        memcpy(y, s->y.data, oct_tensor_bytes(&s->y));
        memcpy(g, s->dw.data, oct_tensor_bytes(&s->dw));
        for (int micro = 1; micro < 4; micro++) {
            weight->grad_started = true;
            forward_backward(s);
            assert_memory_equal(s->y.data, y, oct_tensor_bytes(&s->y));
            for (int64_t i = 0; i < OUT * IN; i++) {
                float sum = g[i];
                for (int k = 0; k < micro; k++)
                    sum += g[i];
                assert_float_equal(f32(&s->dw)[i], sum, 0.0f);
            }
        }
        assert_int_equal(weight->storage->refresh_count, 1);
        free(y);
        free(g);
        stand_free(s);
    }
}

static void recompute__second_forward__same_bits_no_refresh_no_new_weight(void **state)
{
    (void)state;
    stand *s = stand_new(fake_policy(false), false);
    bench *b = s->b;
    oct_linear_saved *saved = NULL;
    oct_weight_storage *weight = s->module->params[0]->storage;
    b->run.training = false; /* the first pass of a recomputed layer keeps nothing */
    assert_ok(b, oct_linear_forward(s->module, &b->run, &s->x, &s->y, &saved, &b->err));
    oct_tensor again = tensor_f32(b, TOKENS, OUT);
    const size_t persistent = b->persist.used_bytes;
    b->run.training = b->run.recompute = true;
    assert_ok(b, oct_linear_forward(s->module, &b->run, &s->x, &again, &saved, &b->err));
    assert_ok(b, oct_linear_backward(s->module, &b->run, saved, &s->dy, &s->dx, &b->err));
    assert_memory_equal(again.data, s->y.data, oct_tensor_bytes(&again));
    assert_ptr_equal(s->module->params[0]->storage, weight);
    assert_int_equal(weight->refresh_count, 1);
    assert_int_equal(fake.refreshes, 1);
    assert_int_equal(b->persist.used_bytes, persistent);
    stand_free(s);
}

static void steps__after_the_first__no_heap_call(void **state)
{
    (void)state;
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        stand *s =
            stand_new(oct_low_precision_policy_of(oct_low_precision_formats[f]->recipe), false);
        bench *b = s->b;
        oct_weight_storage *w = s->module->params[0]->storage;
        for (int step = 0; step < 4; step++) {
            const uint64_t calls =
                b->scratch.heap_calls + b->step.heap_calls + w->panel_arena.heap_calls;
            for (int64_t i = 0; i < OUT * IN; i++)
                f32(&s->master)[i] += 0.25f * (float)(i % (step + 2));
            assert_ok(b, oct_weight_refresh(&b->exec, NULL, w, s->master.data, NULL, &b->err));
            forward_backward(s);
            if (step > 0)
                assert_int_equal(
                    b->scratch.heap_calls + b->step.heap_calls + w->panel_arena.heap_calls, calls);
        }
        stand_free(s);
    }
}

static void backward__reduce_in_bf16__gradient_rounded_before_the_fold(void **state)
{
    (void)state;
    stand *s = stand_new(mxfp8(), false), *t = stand_new(mxfp8(), false);
    t->b->run.reduce_dtype = OCT_DTYPE_BF16;
    forward_backward(s);
    forward_backward(t);
    for (int64_t i = 0; i < OUT * IN; i++)
        assert_float_equal(f32(&t->dw)[i], oct_bf16_round(f32(&s->dw)[i]), 0.0f);
    stand_free(s);
    stand_free(t);
}

static void pass__zero_input_weight_or_gradient__finite_and_exactly_zero(void **state)
{
    (void)state;
    for (int f = 0; oct_low_precision_formats[f]; f++)
        for (int which = 0; which < 3; which++) {
            stand *s =
                stand_new(oct_low_precision_policy_of(oct_low_precision_formats[f]->recipe), false);
            bench *b = s->b;
            oct_tensor *zero[3] = {&s->x, &s->master, &s->dy};
            memset(zero[which]->data, 0, oct_tensor_bytes(zero[which]));
            assert_ok(b, oct_weight_refresh(&b->exec, NULL, s->module->params[0]->storage,
                                            s->master.data, NULL, &b->err));
            b->event_count = 0;
            forward_backward(s);
            const bool y_zero = which != 2, dx_zero = which != 0, dw_zero = which != 1;
            for (int64_t i = 0; i < TOKENS * OUT; i++)
                assert_true(y_zero ? f32(&s->y)[i] == 0.0f : isfinite(f32(&s->y)[i]));
            for (int64_t i = 0; i < TOKENS * IN; i++)
                assert_true(dx_zero ? f32(&s->dx)[i] == 0.0f : isfinite(f32(&s->dx)[i]));
            for (int64_t i = 0; i < OUT * IN; i++)
                assert_true(dw_zero ? f32(&s->dw)[i] == 0.0f : isfinite(f32(&s->dw)[i]));
            for (int i = 0; i < b->event_count; i++)
                if (b->events[i].event.has_scale && b->events[i].event.amax == 0.0f)
                    assert_float_equal(b->events[i].event.scale, 1.0f, 0.0f);
            stand_free(s);
        }
}

/* --- failures --------------------------------------------------------------------------------- */

static void pass__failing_operator__its_error_surfaces(void **state)
{
    (void)state;
    for (int k = 1; k <= 6; k++) {
        stand *s = stand_new(fake_policy(false), false);
        bench *b = s->b;
        fake.fail_quantize_at = k <= 3 ? k : 0;
        fake.fail_matmul_at = k > 3 ? k - 3 : 0;
        oct_linear_saved *saved = NULL;
        oct_status status = oct_linear_forward(s->module, &b->run, &s->x, &s->y, &saved, &b->err);
        if (status == OCT_OK)
            status = oct_linear_backward(s->module, &b->run, saved, &s->dy, &s->dx, &b->err);
        assert_int_equal(status, OCT_E_KERNEL);
        assert_non_null(strstr(b->err.msg, k <= 3 ? "injected quantizer" : "injected matmul"));
        assert_non_null(strstr(b->err.msg, "'proj'"));
        /* Nothing was called after the failure, above all no other product. */
        assert_int_equal(fake.calls[fake.count - 1].kind, k <= 3 ? FAKE_QUANTIZE : FAKE_MATMUL);
        for (int i = 0; i < b->event_count; i++)
            if (b->events[i].event.kind == OCT_TRACE_MATMUL)
                assert_string_equal(b->events[i].event.format, "fake");
        oct_arena_reset(&b->scratch); /* what the trainer does after a failed step */
        stand_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replace__factory__same_parameters_another_type),
        cmocka_unit_test(replace__target_string__is_that_of_the_design_document),
        cmocka_unit_test(replace__policy_off_or_wrong_type__refused),
        cmocka_unit_test(pass__operators__called_in_order_with_their_roles),
        cmocka_unit_test(pass__one_quantizer_for_all_roles__input_quantized_in_one_pass),
        cmocka_unit_test(pass__events__roles_phases_and_layouts),
        cmocka_unit_test(backward__poisoned_weight__wgrad_does_not_read_it),
        cmocka_unit_test(forward__three_dimensions__same_as_flat),
        cmocka_unit_test(pass__bias__added_in_fp32_and_its_gradient_to_its_owner),
        cmocka_unit_test(forward__bf16_activations__fp32_result_rounded_once),
        cmocka_unit_test(forward__not_training__keeps_nothing),
        cmocka_unit_test(forward__training__keeps_eight_bits_per_element),
        cmocka_unit_test(backward__weight_without_gradient__no_wgrad),
        cmocka_unit_test(forward__no_storage__refused_with_fqn),
        cmocka_unit_test(accumulation__four_equal_micro_batches__same_losses_one_refresh),
        cmocka_unit_test(recompute__second_forward__same_bits_no_refresh_no_new_weight),
        cmocka_unit_test(steps__after_the_first__no_heap_call),
        cmocka_unit_test(backward__reduce_in_bf16__gradient_rounded_before_the_fold),
        cmocka_unit_test(pass__zero_input_weight_or_gradient__finite_and_exactly_zero),
        cmocka_unit_test(pass__failing_operator__its_error_surfaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
