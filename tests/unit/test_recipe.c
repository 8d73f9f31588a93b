/* Roles, the quantizers behind them, and dynamic quantization by role, with scales and codes that
 * were worked out by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "low_precision/hif8/hif8.h"
#include "low_precision/mxfp8/mxfp8.h"
#include "low_precision/quantizer.h"
#include "numeric/e4m3.h"
#include "unit/low_precision_fixture.h"

static void recipe__mxfp8__one_stateless_quantizer(void **state)
{
    (void)state;
    for (int rule = 0; rule < 2; rule++) {
        const oct_low_precision_recipe *recipe = oct_mxfp8_recipe((oct_mx_rule)rule);
        const oct_quantizer *first = oct_recipe_quantizer(recipe, OCT_ROLE_INPUT_FWD);
        assert_ptr_equal(first->format, &oct_mxfp8_format);
        assert_int_equal(*(const oct_mx_rule *)first->settings, rule);
        for (int role = 0; role < OCT_ROLE_COUNT; role++)
            assert_ptr_equal(oct_recipe_quantizer(recipe, (oct_role)role), first);
    }
    assert_ptr_equal(oct_mxfp8_format.recipe, oct_mxfp8_recipe(OCT_MX_RULE_ROUND_UP));
}

static void recipe__hif8__15_for_inputs_and_weights_224_for_gradients(void **state)
{
    (void)state;
    const oct_low_precision_recipe *recipe = oct_hif8_format.recipe;
    static const float expected[OCT_ROLE_COUNT] = {15.0f, 15.0f, 224.0f, 15.0f, 15.0f};
    for (int role = 0; role < OCT_ROLE_COUNT; role++) {
        const oct_quantizer *quantizer = oct_recipe_quantizer(recipe, (oct_role)role);
        assert_ptr_equal(quantizer->format, &oct_hif8_format);
        assert_float_equal(*(const float *)quantizer->settings, expected[role], 0.0f);
        const bool gradient = role == OCT_ROLE_GRAD_OUTPUT;
        assert_int_equal(quantizer == oct_recipe_quantizer(recipe, OCT_ROLE_INPUT_FWD), !gradient);
    }
}

static void role_name__all__as_in_the_design(void **state)
{
    (void)state;
    static const char *const names[] = {"input_fwd", "weight_fwd", "grad_output", "input_bwd",
                                        "weight_bwd"};
    for (int role = 0; role < OCT_ROLE_COUNT; role++)
        assert_string_equal(oct_role_name((oct_role)role), names[role]);
}

/* Quantizes x in both orientations under one role. */
static void quantize(bench *b, const oct_low_precision_recipe *recipe, oct_role role,
                     const oct_tensor *x, const oct_groups *groups, oct_operand *row,
                     oct_operand *col)
{
    const oct_role_output rows = {.role = role, .operand = row, .arena = &b->persist};
    const oct_role_output cols = {.role = role, .operand = col, .arena = &b->persist};
    const oct_lazy source = oct_lazy_of(x);
    assert_ok(b, oct_quantize(&b->run, recipe, "m", &source, groups, &rows, &cols, &b->err));
}

static const uint8_t *bytes(const oct_tensor *t)
{
    return t->data;
}

static void quantize__mxfp8__scales_by_hand(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    /* 2 x 40: row blocks of 32 and 8. Row 0: amax 448 then 1.0; row 1: 3.5 then 0. */
    oct_tensor x = tensor_f32(b, 2, 40);
    f32(&x)[3] = -448.0f;
    f32(&x)[4] = 1.0f;
    f32(&x)[35] = 1.0f;
    f32(&x)[40] = 3.5f;
    oct_operand row, col;
    quantize(b, oct_mxfp8_recipe(OCT_MX_RULE_ROUND_UP), OCT_ROLE_INPUT_FWD, &x, NULL, &row, &col);
    assert_int_equal(row.data.dtype, OCT_DTYPE_E4M3);
    assert_int_equal(row.scales.dtype, OCT_DTYPE_E8M0);
    assert_int_equal(row.logical_dtype, OCT_DTYPE_F32);
    assert_int_equal(row.orientation, OCT_ORIENTATION_ROW);
    assert_int_equal(row.scales.shape[0] * 100 + row.scales.shape[1] * 10 + row.scales.shape[2],
                     212); /* [2, 1, 2] */
    /* 448/448 = 2^0; 1/448 -> 2^-8; 3.5/448 = 2^-7 exactly. */
    static const uint8_t row_scales[4] = {127, 127 - 8, 127 - 7, 0};
    assert_memory_equal(row.scales.data, row_scales, 4);
    assert_int_equal(bytes(&row.data)[3], 0xfe);  /* -448 */
    assert_int_equal(bytes(&row.data)[4], 0x38);  /* 1.0 */
    assert_int_equal(bytes(&row.data)[35], 0x78); /* 256 * 2^-8 */
    assert_int_equal(bytes(&row.data)[40], 0x7e); /* 448 * 2^-7 */
    assert_int_equal(bytes(&row.data)[0], 0x00);

    /* Columns: one short block of 2 rows each. */
    assert_int_equal(col.orientation, OCT_ORIENTATION_COL);
    assert_int_equal(col.scales.shape[0], 1);
    assert_int_equal(col.scales.shape[1], 40);
    assert_int_equal(col.scales.shape[2], 2);
    assert_int_equal(bytes(&col.scales)[2 * 3], 127);
    assert_int_equal(bytes(&col.scales)[2 * 4], 127 - 8);
    assert_int_equal(bytes(&col.scales)[2 * 0], 127 - 7);
    assert_int_equal(bytes(&col.scales)[2 * 1], 0);
    assert_ptr_not_equal(row.data.data, col.data.data); /* two physical copies */
    assert_int_equal(b->event_count, 2);
    assert_string_equal(b->events[0].event.role, "input_fwd");
    assert_string_equal(b->events[0].event.orientation, "row");
    assert_string_equal(b->events[0].event.scale_dtype, "float8_e8m0fnu");
    assert_string_equal(b->events[1].event.orientation, "col");
    assert_false(b->events[0].event.has_scale);

    /* The floor rule differs where amax is not 448 * 2^n: 500 -> 2^0, saturated; round up: 2^1. */
    memset(x.data, 0, oct_tensor_bytes(&x));
    f32(&x)[0] = 500.0f;
    quantize(b, oct_mxfp8_recipe(OCT_MX_RULE_FLOOR), OCT_ROLE_INPUT_FWD, &x, NULL, &row, &col);
    assert_int_equal(bytes(&row.scales)[0], 127);
    assert_int_equal(bytes(&row.data)[0], 0x7e);
    quantize(b, oct_mxfp8_recipe(OCT_MX_RULE_ROUND_UP), OCT_ROLE_INPUT_FWD, &x, NULL, &row, &col);
    assert_int_equal(bytes(&row.scales)[0], 128);
    assert_int_equal(bytes(&row.data)[0], 0x78); /* 250 -> 256 */
    bench_free(b);
}

static void quantize__hif8__scale_is_amax_over_the_format_max_of_the_role(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    oct_tensor x = tensor_f32(b, 2, 3);
    const float values[6] = {0.5f, -30.0f, 2.0f, 4.0f, 0.0f, 1.0f};
    memcpy(x.data, values, sizeof values);
    oct_operand row, col;
    for (int role = 0; role < OCT_ROLE_COUNT; role++) {
        b->event_count = 0;
        quantize(b, oct_hif8_format.recipe, (oct_role)role, &x, NULL, &row, &col);
        const float scale = role == OCT_ROLE_GRAD_OUTPUT ? 30.0f / 224.0f : 2.0f;
        assert_int_equal(row.scales.dtype, OCT_DTYPE_F32);
        assert_int_equal(row.scales.ndim, 0);
        assert_float_equal(*f32(&row.scales), scale, 0.0f);
        assert_ptr_equal(row.data.data, col.data.data); /* one copy, two orientations */
        assert_ptr_equal(row.scales.data, col.scales.data);
        assert_int_equal(row.orientation, OCT_ORIENTATION_ROW);
        assert_int_equal(col.orientation, OCT_ORIENTATION_COL);
        assert_int_equal(b->event_count, 2);
        assert_true(b->events[0].event.has_scale);
        assert_float_equal(b->events[0].event.amax, 30.0f, 0.0f);
        assert_float_equal(b->events[0].event.scale, scale, 0.0f);
        assert_string_equal(b->events[1].event.role, oct_role_name((oct_role)role));
    }
    /* Scale 2 (roles of 15): 0.25, -15, 1, 2, 0, 0.5. */
    static const uint8_t codes[6] = {0x30, 0xaf, 0x08, 0x10, 0x00, 0x18};
    quantize(b, oct_hif8_format.recipe, OCT_ROLE_INPUT_FWD, &x, NULL, &row, &col);
    for (int i = 0; i < 6; i++)
        assert_int_equal(bytes(&row.data)[i], codes[i]);
    bench_free(b);
}

static void quantize__hif8_unusable_amax__scale_one(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    const float cases[] = {0.0f, NAN, INFINITY, -INFINITY, 0x1p-126f};
    for (int i = 0; i < 5; i++) {
        oct_tensor x = tensor_f32(b, 1, 2);
        f32(&x)[0] = cases[i];
        oct_operand row, col;
        quantize(b, oct_hif8_format.recipe, OCT_ROLE_GRAD_OUTPUT, &x, NULL, &row, &col);
        assert_float_equal(*f32(&row.scales), 1.0f, 0.0f);
    }
    bench_free(b);
}

static void quantize__groups__scaled_apart_and_owned(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    int64_t ends[4] = {1, 1, 3, 4}; /* group 1 is empty */
    const oct_groups groups = {.count = 4, .ends = ends};
    oct_tensor x = tensor_f32(b, 4, 1);
    const float values[4] = {15.0f, 3.0f, -30.0f, 0.0f};
    memcpy(x.data, values, sizeof values);
    oct_operand row, col;
    quantize(b, oct_hif8_format.recipe, OCT_ROLE_INPUT_FWD, &x, &groups, &row, &col);
    const float scales[4] = {1.0f, 1.0f, 2.0f, 1.0f};
    assert_int_equal(row.scales.ndim, 1);
    assert_int_equal(row.scales.shape[0], 4);
    assert_memory_equal(row.scales.data, scales, sizeof scales);
    assert_int_equal(b->event_count, 8); /* one per group and orientation */
    assert_int_equal(b->events[2].event.group, 2);
    assert_float_equal(b->events[2].event.amax, 30.0f, 0.0f);

    quantize(b, oct_mxfp8_recipe(OCT_MX_RULE_ROUND_UP), OCT_ROLE_INPUT_FWD, &x, &groups, &row,
             &col);
    assert_int_equal(col.scales.shape[0], 3);         /* one pair of blocks per busy group */
    assert_int_equal(bytes(&col.scales)[0], 127 - 4); /* 15/448 -> 2^-4 */
    assert_int_equal(bytes(&col.scales)[2], 127 - 3); /* 30/448 -> 2^-3 */
    assert_int_equal(bytes(&col.scales)[4], 0);
    ends[2] = 99; /* the operand has its own copy */
    assert_int_equal(col.groups.ends[2], 3);
    bench_free(b);
}

static void quantize__three_dimensions__flattened(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    oct_tensor x = tensor_f32(b, 6, 5);
    fill_f32(x.data, 30, 1);
    oct_tensor x3 = {.data = x.data, .dtype = OCT_DTYPE_F32, .ndim = 3, .shape = {2, 3, 5}};
    oct_operand row, col;
    quantize(b, oct_hif8_format.recipe, OCT_ROLE_INPUT_FWD, &x3, NULL, &row, &col);
    assert_int_equal(row.data.ndim, 2);
    assert_int_equal(row.data.shape[0], 6);
    bench_free(b);
}

/* Both orientations of quantized data are within the format's error of the source. */
static void quantize__random_values__error_within_the_format(void **state)
{
    (void)state;
    bench *b = bench_new(OCT_ISA_REF, OCT_DTYPE_F32);
    oct_tensor x = tensor_f32(b, 70, 50);
    fill_f32(x.data, 3500, 7);
    oct_operand row, col;
    quantize(b, oct_mxfp8_recipe(OCT_MX_RULE_ROUND_UP), OCT_ROLE_INPUT_FWD, &x, NULL, &row, &col);
    for (int64_t r = 0; r < 70; r++)
        for (int64_t c = 0; c < 50; c++) {
            const float value = f32(&x)[r * 50 + c];
            const int row_exponent = bytes(&row.scales)[r * 2 + c / 32] - 127;
            const int col_exponent =
                bytes(&col.scales)[((r / 64) * 50 + c) * 2 + r % 64 / 32] - 127;
            const float from_row =
                ldexpf(oct_e4m3_decode(bytes(&row.data)[r * 50 + c]), row_exponent);
            const float from_col =
                ldexpf(oct_e4m3_decode(bytes(&col.data)[r * 50 + c]), col_exponent);
            /* Half a step of 2^-3 relative, or half of the subnormal step 2^-9 of the scale. */
            const float row_bound = fmaxf(fabsf(value) / 16, ldexpf(1.0f, row_exponent - 10));
            const float col_bound = fmaxf(fabsf(value) / 16, ldexpf(1.0f, col_exponent - 10));
            assert_true(fabsf(from_row - value) <= row_bound);
            assert_true(fabsf(from_col - value) <= col_bound);
        }
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipe__mxfp8__one_stateless_quantizer),
        cmocka_unit_test(recipe__hif8__15_for_inputs_and_weights_224_for_gradients),
        cmocka_unit_test(role_name__all__as_in_the_design),
        cmocka_unit_test(quantize__mxfp8__scales_by_hand),
        cmocka_unit_test(quantize__hif8__scale_is_amax_over_the_format_max_of_the_role),
        cmocka_unit_test(quantize__hif8_unusable_amax__scale_one),
        cmocka_unit_test(quantize__groups__scaled_apart_and_owned),
        cmocka_unit_test(quantize__three_dimensions__flattened),
        cmocka_unit_test(quantize__random_values__error_within_the_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
