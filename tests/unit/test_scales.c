/* Statistics of scales from the events of a trace. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "verify/scales.h"

static oct_verify_event scale(const char *role, float value)
{
    return (oct_verify_event){.fields = {.kind = OCT_TRACE_QUANTIZE,
                                         .role = role,
                                         .format = "hif8",
                                         .has_scale = true,
                                         .amax = 15.0f * value,
                                         .scale = value},
                              .is_finite = isfinite(value)};
}

static double number(const json_t *rows, size_t row, const char *key)
{
    return json_number_value(json_object_get(json_array_get(rows, row), key));
}

static void statistics__by_role__min_median_max(void **state)
{
    (void)state;
    oct_verify_event events[] = {
        scale("input_fwd", 0.5f),  scale("grad_output", 2.0f), scale("input_fwd", 0.25f),
        scale("input_fwd", 4.0f),  scale("grad_output", 1.0f), scale("input_fwd", 1.0f),
        scale("weight_fwd", 8.0f), scale("input_fwd", 1.0f),
    };
    events[6].fields.kind = OCT_TRACE_MATMUL; /* no scale of a quantization */
    events[7].fields.amax = 0.0f;             /* an expert without tokens */
    const oct_verify_trace trace = {.events = events, .count = 8};
    json_t *rows = oct_scale_statistics(&trace);
    assert_int_equal(json_array_size(rows), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "role")),
                        "input_fwd");
    assert_true(number(rows, 0, "count") == 4.0 && number(rows, 0, "min") == 0.25);
    assert_true(number(rows, 0, "median") == 0.75 && number(rows, 0, "max") == 4.0);
    assert_true(number(rows, 0, "zero") == 1.0 && number(rows, 1, "zero") == 0.0);
    assert_true(number(rows, 1, "count") == 2.0 && number(rows, 1, "median") == 1.5);
    assert_int_equal(oct_scale_faults(rows), 0);
    json_decref(rows);
}

static void faults__zero_negative_not_finite__counted(void **state)
{
    (void)state;
    oct_verify_event events[] = {scale("input_fwd", 0.5f), scale("input_fwd", 0.0f),
                                 scale("input_fwd", -1.0f), scale("input_fwd", INFINITY)};
    oct_verify_trace trace = {.events = events, .count = 4};
    json_t *rows = oct_scale_statistics(&trace);
    assert_true(number(rows, 0, "count") == 1.0 && number(rows, 0, "bad") == 3.0);
    assert_int_equal(oct_scale_faults(rows), 3);
    json_decref(rows);
    trace.count = 0; /* MXFP8 and BF16 have none */
    rows = oct_scale_statistics(&trace);
    assert_int_equal(json_array_size(rows), 0);
    assert_int_equal(oct_scale_faults(rows), -1);
    json_decref(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics__by_role__min_median_max),
        cmocka_unit_test(faults__zero_negative_not_finite__counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
