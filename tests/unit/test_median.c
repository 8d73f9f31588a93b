/* base/median.h. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/median.h"

static void median__odd_and_even_counts__the_middle(void **state)
{
    (void)state;
    double one[] = {7.0}, two[] = {4.0, 1.0}, three[] = {9.0, 1.0, 2.0};
    double four[] = {10.0, -3.0, 100.0, 2.0};
    assert_true(oct_median(one, 1) == 7.0);
    assert_true(oct_median(two, 2) == 2.5);
    assert_true(oct_median(three, 3) == 2.0);
    assert_true(oct_median(four, 4) == 6.0);
    assert_true(four[0] == -3.0 && four[3] == 100.0); /* sorted */
}

/* Each turn at another speed of the machine: the ratio of the medians would be 1.5. */
static void median_ratio__turns_of_different_speed__ratio_within_a_turn(void **state)
{
    (void)state;
    const double x[] = {2.0, 30.0, 6.0}, y[] = {1.0, 10.0, 4.0};
    double work[3];
    assert_true(oct_median_ratio(x, y, 3, work) == 2.0);
    assert_true(oct_median_ratio(x, y, 2, work) == 2.5);
    assert_true(x[1] == 30.0 && y[2] == 4.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(median__odd_and_even_counts__the_middle),
        cmocka_unit_test(median_ratio__turns_of_different_speed__ratio_within_a_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
