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

static void wait_a_little(void)
{
    const double started = oct_clock_seconds();
    while (oct_clock_seconds() - started < 2e-4)
        ;
}

static double sum_of_own(const oct_profile *profile)
{
    double sum = 0.0;
    for (int i = 0; i < OCT_PART_COUNT; i++)
        sum += profile->own[i];
    return sum;
}

/* At least as long as the wait that surely lies inside, at most the interval around. */
static void profile_end__one_span__added_to_its_part_only(void **state)
{
    (void)state;
    oct_profile profile = {.seconds = {[OCT_PART_ATTENTION] = 2.0, [OCT_PART_FPROP] = 3.0}};
    const double before = oct_clock_seconds();
    const oct_span span = oct_profile_begin(&profile, OCT_PART_ATTENTION);
    wait_a_little();
    oct_profile_end(&profile, span);
    const double around = oct_clock_seconds() - before;
    const double added = profile.seconds[OCT_PART_ATTENTION] - 2.0;
    assert_true(added >= 2e-4 - 1e-9);
    assert_true(added <= around + 1e-9);
    assert_true(profile.own[OCT_PART_ATTENTION] >= 2e-4 - 1e-9);
    for (int i = 0; i < OCT_PART_COUNT; i++)
        if (i != OCT_PART_ATTENTION) {
            assert_true(profile.seconds[i] == (i == OCT_PART_FPROP ? 3.0 : 0.0));
            assert_true(profile.own[i] == 0.0);
        }
}

/* Own seconds are a partition of the outer span; seconds[] of a part hold what is nested. */
static void profile_end__nested_spans__own_seconds_add_up(void **state)
{
    (void)state;
    oct_profile profile = {0};
    const oct_span outer = oct_profile_begin(&profile, OCT_PART_BACKWARD);
    wait_a_little();
    const oct_span inner = oct_profile_begin(&profile, OCT_PART_WGRAD);
    wait_a_little();
    const oct_span innermost = oct_profile_begin(&profile, OCT_PART_REDUCE_SCATTER);
    wait_a_little();
    oct_profile_end(&profile, innermost);
    oct_profile_end(&profile, inner);
    wait_a_little();
    oct_profile_end(&profile, outer);
    assert_true(profile.own[OCT_PART_BACKWARD] >= 3.9e-4);
    assert_true(profile.own[OCT_PART_WGRAD] >= 1.9e-4);
    assert_true(profile.own[OCT_PART_REDUCE_SCATTER] >= 1.9e-4);
    assert_true(profile.seconds[OCT_PART_WGRAD] >= 3.9e-4);
    assert_true(profile.seconds[OCT_PART_BACKWARD] >= 7.9e-4);
    const double difference = sum_of_own(&profile) - profile.seconds[OCT_PART_BACKWARD];
    assert_true(difference > -1e-9 && difference < 1e-9);
    assert_true(profile.owner == OCT_PART_REST);
}

/* The head's products are the head's; its communication is not. */
static void profile_end__inside_the_head__owned_by_the_head(void **state)
{
    (void)state;
    oct_profile profile = {0};
    const oct_span head = oct_profile_begin(&profile, OCT_PART_HEAD);
    const oct_span product = oct_profile_begin(&profile, OCT_PART_FPROP);
    wait_a_little();
    oct_profile_end(&profile, product);
    oct_profile_move(&profile, product, OCT_PART_PACK, 1e-5);
    const oct_span gather = oct_profile_begin(&profile, OCT_PART_ALL_GATHER);
    wait_a_little();
    oct_profile_end(&profile, gather);
    oct_profile_end(&profile, head);
    assert_true(profile.own[OCT_PART_FPROP] == 0.0);
    assert_true(profile.own[OCT_PART_PACK] == 0.0);
    assert_true(profile.own[OCT_PART_HEAD] >= 1.9e-4);
    assert_true(profile.own[OCT_PART_ALL_GATHER] >= 1.9e-4);
    assert_true(profile.seconds[OCT_PART_FPROP] >= 1.8e-4);
    assert_true(profile.seconds[OCT_PART_PACK] == 1e-5);
}

static void profile_move__span_ended__seconds_change_their_part(void **state)
{
    (void)state;
    oct_profile profile = {0};
    const oct_span span = oct_profile_begin(&profile, OCT_PART_DGRAD);
    wait_a_little();
    oct_profile_end(&profile, span);
    const double all = profile.own[OCT_PART_DGRAD];
    oct_profile_move(&profile, span, OCT_PART_PACK, 0.5 * all);
    assert_true(profile.own[OCT_PART_PACK] == 0.5 * all);
    assert_true(profile.own[OCT_PART_DGRAD] == all - 0.5 * all);
    assert_true(profile.seconds[OCT_PART_PACK] == 0.5 * all);
}

static void profile_begin__no_profile__does_nothing(void **state)
{
    (void)state;
    const oct_span span = oct_profile_begin(NULL, OCT_PART_FORWARD);
    oct_profile_end(NULL, span);
    oct_profile_move(NULL, span, OCT_PART_PACK, 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(part_name__every_part__named_once),
        cmocka_unit_test(part_name__keys__as_written_in_metrics),
        cmocka_unit_test(clock_seconds__read_twice__does_not_run_backwards),
        cmocka_unit_test(profile_end__one_span__added_to_its_part_only),
        cmocka_unit_test(profile_end__nested_spans__own_seconds_add_up),
        cmocka_unit_test(profile_end__inside_the_head__owned_by_the_head),
        cmocka_unit_test(profile_move__span_ended__seconds_change_their_part),
        cmocka_unit_test(profile_begin__no_profile__does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
