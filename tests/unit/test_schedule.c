/* Learning-rate factors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "optim/schedule.h"

static oct_lr_schedule schedule(int64_t total, int64_t warmup, double ratio, oct_decay_type type,
                                double min)
{
    return (oct_lr_schedule){.total_steps = total,
                             .warmup_steps = warmup,
                             .decay_ratio = ratio,
                             .decay_type = type,
                             .min_factor = min};
}

static void assert_factor(const oct_lr_schedule *s, int64_t step, double wanted)
{
    const double found = oct_lr_factor(s, step);
    if (!(fabs(found - wanted) <= 4e-16))
        fail_msg("step %lld: %.17g, %.17g is required", (long long)step, found, wanted);
}

static void lr_factor__warmup_then_linear__table(void **state)
{
    (void)state;
    const oct_lr_schedule s = schedule(30, 10, -1.0, OCT_DECAY_LINEAR, 0.0);
    static const struct {
        int64_t step;
        double factor;
    } rows[] = {{0, 0.1},   {4, 0.5},   {9, 1.0},   {10, 1.0}, {11, 0.95}, {12, 0.90},
                {20, 0.50}, {28, 0.10}, {29, 0.05}, {30, 0.0}, {31, 0.0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_factor(&s, rows[i].step, rows[i].factor);
}

static void lr_factor__every_shape__formula(void **state)
{
    (void)state;
    const int64_t total = 100, warmup = 7, decay = 40, stable = total + 1 - warmup - decay;
    for (int type = OCT_DECAY_LINEAR; type <= OCT_DECAY_CONSTANT; type++)
        for (int m = 0; m <= 2; m++) {
            const double min = 0.25 * m;
            const oct_lr_schedule s = schedule(total, warmup, 0.4, (oct_decay_type)type, min);
            for (int64_t step = 0; step < total; step++) {
                const double p = (double)(step + 1 - warmup - stable) / (double)decay;
                const double shapes[] = {1.0 - p, 1.0 - sqrt(p > 0.0 ? p : 0.0),
                                         0.5 * (1.0 + cos(3.14159265358979323846 * p)), 1.0};
                const double wanted = step < warmup            ? (double)(step + 1) / (double)warmup
                                      : step < warmup + stable ? 1.0
                                      : type == OCT_DECAY_CONSTANT
                                          ? 1.0
                                          : min + (1.0 - min) * shapes[type];
                assert_factor(&s, step, wanted);
            }
        }
}

/* Python's round: 1.5 -> 2, 2.5 -> 2. */
static void lr_factor__decay_steps__round_half_even(void **state)
{
    (void)state;
    oct_lr_schedule s = schedule(30, 0, 0.05, OCT_DECAY_LINEAR, 0.0); /* D = 2, stable = 29 */
    assert_factor(&s, 28, 1.0);
    assert_factor(&s, 29, 0.5);
    s = schedule(50, 0, 0.05, OCT_DECAY_LINEAR, 0.0); /* D = 2, stable = 49 */
    assert_factor(&s, 48, 1.0);
    assert_factor(&s, 49, 0.5);
    s = schedule(70, 0, 0.05, OCT_DECAY_LINEAR, 0.0); /* 3.5: D = 4, stable = 67 */
    assert_factor(&s, 66, 1.0);
    assert_factor(&s, 67, 0.75);
}

static void lr_factor__edges__no_division_by_zero(void **state)
{
    (void)state;
    oct_lr_schedule s = schedule(10, 10, -1.0, OCT_DECAY_LINEAR, 0.0); /* warmup only */
    assert_factor(&s, 9, 1.0);
    assert_factor(&s, 10, 1.0);
    s = schedule(10, 0, 0.0, OCT_DECAY_COSINE, 0.0); /* no decay */
    assert_factor(&s, 9, 1.0);
    s = schedule(1, 0, -1.0, OCT_DECAY_LINEAR, 0.0);
    assert_factor(&s, 0, 1.0);
    s = schedule(10, 8, 1.0, OCT_DECAY_LINEAR, 0.5); /* ratio cut to what warmup leaves: D = 2 */
    assert_factor(&s, 8, 1.0);
    assert_factor(&s, 9, 0.75);
}

static void cos_pi__against_libm__1e_15(void **state)
{
    (void)state;
    for (int i = 0; i <= 100000; i++) {
        const double x = i / 100000.0;
        const double wanted = (double)cosl(3.14159265358979323846264338327950288L * (long double)x);
        if (!(fabs(oct_cos_pi(x) - wanted) <= 1e-15))
            fail_msg("cos(pi %.17g) = %.17g, %.17g is required", x, oct_cos_pi(x), wanted);
    }
    assert_true(oct_cos_pi(0.0) == 1.0 && oct_cos_pi(1.0) == -1.0 && oct_cos_pi(0.5) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lr_factor__warmup_then_linear__table),
        cmocka_unit_test(lr_factor__every_shape__formula),
        cmocka_unit_test(lr_factor__decay_steps__round_half_even),
        cmocka_unit_test(lr_factor__edges__no_division_by_zero),
        cmocka_unit_test(cos_pi__against_libm__1e_15),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
