#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/size.h"

static void mul_add__overflow__is_reported(void **state)
{
    (void)state;
    size_t out = 0;
    assert_true(oct_size_mul(SIZE_MAX / 2, 2, &out));
    assert_true(out == SIZE_MAX - 1);
    assert_false(oct_size_mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_true(oct_size_mul(0, SIZE_MAX, &out));
    assert_true(out == 0);
    assert_true(oct_size_add(SIZE_MAX - 1, 1, &out));
    assert_true(out == SIZE_MAX);
    assert_false(oct_size_add(SIZE_MAX, 1, &out));
}

static void ceil_div__any__least_enough(void **state)
{
    (void)state;
    for (int64_t a = 0; a < 300; a++) {
        for (int64_t b = 1; b < 70; b++) {
            const int64_t q = oct_ceil_div(a, b);
            assert_true(q * b >= a && (q - 1) * b < a);
        }
    }
    assert_true(oct_ceil_div(INT64_MAX, 64) == INT64_MAX / 64 + 1);
    assert_true(oct_ceil_div(INT64_MAX, 1) == INT64_MAX);
}

static void min_max__pairs__ordered(void **state)
{
    (void)state;
    assert_true(oct_min_i64(INT64_MIN, INT64_MAX) == INT64_MIN);
    assert_true(oct_max_i64(INT64_MIN, INT64_MAX) == INT64_MAX);
    assert_true(oct_min_i64(2, 1) == 1 && oct_max_i64(2, 1) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mul_add__overflow__is_reported),
        cmocka_unit_test(ceil_div__any__least_enough),
        cmocka_unit_test(min_max__pairs__ordered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
