/* Names of the parts of a step, and the time booked on them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/profile.h"

static void part_name__every_part__named_once(void **state)
{
    (void)state;
    for (int i = 0; i < OCT_PART_COUNT; i++) {
        assert_non_null(oct_part_name((oct_part)i));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(oct_part_name((oct_part)i), oct_part_name((oct_part)j));
    }
}

/* The keys of metrics.jsonl: a file format, so they are pinned. */
static void part_name__keys__as_written_in_metrics(void **state)
{
    (void)state;
    assert_string_equal(oct_part_name(OCT_PART_FORWARD), "forward");
    assert_string_equal(oct_part_name(OCT_PART_BACKWARD), "backward");
    assert_string_equal(oct_part_name(OCT_PART_QUANTIZE), "quantize");
    assert_string_equal(oct_part_name(OCT_PART_MATMUL), "matmul");
    assert_string_equal(oct_part_name(OCT_PART_ATTENTION), "attention");
    assert_string_equal(oct_part_name(OCT_PART_ALL_GATHER), "all_gather");
    assert_string_equal(oct_part_name(OCT_PART_REDUCE_SCATTER), "reduce_scatter");
    assert_string_equal(oct_part_name(OCT_PART_OPTIMIZER), "optimizer");
    assert_string_equal(oct_part_name(OCT_PART_CHECKPOINT), "checkpoint");
}

static void clock_seconds__read_twice__does_not_run_backwards(void **state)
{
    (void)state;
    double last = oct_clock_seconds();
    for (int i = 0; i < 1000; i++) {
        const double now = oct_clock_seconds();
        assert_true(now >= last);
        last = now;
    }
}

/* At least as long as the interval that surely lies inside, at most the one around. */
static void profile_add__interval__added_to_its_part_only(void **state)
{
    (void)state;
    oct_profile profile = {.seconds = {[OCT_PART_ATTENTION] = 2.0, [OCT_PART_MATMUL] = 3.0}};
    const double before = oct_clock_seconds();
    const double started = oct_clock_seconds() - 1.5;
    const double inside = oct_clock_seconds() - started;
    oct_profile_add(&profile, OCT_PART_ATTENTION, started);
    const double around = oct_clock_seconds() - (before - 1.5);
    const double added = profile.seconds[OCT_PART_ATTENTION] - 2.0;
    assert_true(added >= inside - 1e-9);
    assert_true(added <= around + 1e-9);
    for (int i = 0; i < OCT_PART_COUNT; i++)
        if (i != OCT_PART_ATTENTION)
            assert_true(profile.seconds[i] == (i == OCT_PART_MATMUL ? 3.0 : 0.0));
}

static void profile_add__no_profile__does_nothing(void **state)
{
    (void)state;
    oct_profile_add(NULL, OCT_PART_FORWARD, oct_clock_seconds());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(part_name__every_part__named_once),
        cmocka_unit_test(part_name__keys__as_written_in_metrics),
        cmocka_unit_test(clock_seconds__read_twice__does_not_run_backwards),
        cmocka_unit_test(profile_add__interval__added_to_its_part_only),
        cmocka_unit_test(profile_add__no_profile__does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
