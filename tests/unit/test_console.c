/* The progress line of torchtitan jobs: shares and sums of the rows since the last line. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cli/console.h"

static void expect_in_line(oct_console console, const char *wanted)
{
    const oct_step_metrics row = {
        .step = 3, .loss = 5.5, .grad_norm = 1.25, .tokens = 1000, .step_seconds = 0.5};
    char line[OCT_CONSOLE_LINE];
    oct_console_count(&console, &row);
    oct_console_count(&console, &row);
    oct_console_format(&console, &row, line);
    if (!strstr(line, wanted))
        fail_msg("no '%s' in '%s'", wanted, line);
    assert_int_equal(console.steps, 0);
    assert_int_equal(console.tokens, 0);
}

/* 2000 tokens in one second on two ranks: 1000 per rank, 2e9 operations per second. */
static const oct_console two_ranks = {.ranks = 2, .flops_per_token = 2e6, .peak_flops = 8e9};

static void format__sums__of_one_rank(void **state)
{
    (void)state;
    expect_in_line(two_ranks, "step:  3  loss:  5.50000  grad_norm:  1.2500  ");
    expect_in_line(two_ranks, "  tps: 1,000  tflops: 0.00  mfu: 25.00%  elapsed_time_per_step: "
                              "0.500s");
}

static void format__mfu_above_the_measured_peak__is_not_told(void **state)
{
    (void)state;
    oct_console console = two_ranks;
    console.peak_flops = 2e9;
    expect_in_line(console, "  mfu: 100.00%  ");
    console.peak_flops = 1.9e9;
    expect_in_line(console, "  mfu: n/a  ");
    console.peak_flops = 0.0;
    expect_in_line(console, "  mfu: n/a  ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(format__sums__of_one_rank),
        cmocka_unit_test(format__mfu_above_the_measured_peak__is_not_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
