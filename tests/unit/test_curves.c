/* The judge of short training curves. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "verify/curves.h"

/* A falling curve of `steps` rows. */
static json_t *falling(int steps)
{
    json_t *rows = json_array();
    for (int i = 0; i < steps; i++)
        (void)json_array_append_new(
            rows, json_pack("{s:f,s:f}", "loss", 5.0 - 0.1 * i, "grad_norm", 2.0 + 0.5 * (i % 3)));
    return rows;
}

static void set(json_t *rows, size_t at, const char *key, json_t *value)
{
    (void)json_object_set_new(json_array_get(rows, at), key, value);
}

static void curve__falling__sound(void **state)
{
    (void)state;
    json_t *rows = falling(20);
    assert_null(oct_curve_fault(rows));
    set(rows, 9, "grad_norm", json_real(200.0)); /* one spike is no blow-up */
    set(rows, 9, "loss", json_real(9.0));
    assert_null(oct_curve_fault(rows));
    json_decref(rows);
}

static void curve__each_fault__named(void **state)
{
    (void)state;
    json_t *rows = falling(9);
    assert_string_equal(oct_curve_fault(rows), OCT_CURVE_SHORT);
    json_decref(rows);
    rows = falling(20);
    set(rows, 19, "loss", json_null()); /* how metrics.jsonl writes NaN */
    assert_string_equal(oct_curve_fault(rows), OCT_CURVE_NONFINITE);
    json_decref(rows);
    rows = falling(20);
    set(rows, 3, "grad_norm", json_null());
    assert_string_equal(oct_curve_fault(rows), OCT_CURVE_NONFINITE);
    for (size_t i = 0; i < 20; i++) {
        set(rows, i, "grad_norm", json_real(1.0));
        set(rows, i, "loss", json_real(5.5));
    }
    assert_string_equal(oct_curve_fault(rows), OCT_CURVE_FROZEN);
    json_decref(rows);
    rows = falling(20);
    for (size_t i = 15; i < 20; i++)
        set(rows, i, "grad_norm", json_real(30.0));
    assert_string_equal(oct_curve_fault(rows), OCT_CURVE_NORM_UP);
    json_decref(rows);
    rows = falling(20);
    for (size_t i = 15; i < 20; i++)
        set(rows, i, "loss", json_real(5.0 + 0.1 * (double)i));
    assert_string_equal(oct_curve_fault(rows), OCT_CURVE_LOSS_UP);
    json_decref(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curve__falling__sound),
        cmocka_unit_test(curve__each_fault__named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
