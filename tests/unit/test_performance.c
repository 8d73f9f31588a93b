/* The judge of speed on rows that are made up: what is slower fails, what cannot be compared is
 * refused by key or step. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verify/low_precision_off.h"
#include "verify/performance.h"

enum { WARMUP = OCT_PERFORMANCE_WARMUP, STEPS = OCT_PERFORMANCE_STEPS };

/* Rows of a run whose steady steps take `seconds` each; its warm-up takes ten times as long. */
static json_t *run_of(double seconds, int steps, int tokens)
{
    json_t *rows = json_array();
    for (int i = 1; i <= steps; i++)
        (void)json_array_append_new(
            rows, json_pack("{s:i,s:i,s:f,s:i,s:b,s:{s:f,s:f}}", "step", i, "tokens", tokens,
                            "step_seconds", i <= WARMUP ? 10.0 * seconds : seconds,
                            "peak_memory_bytes", 1000 + i, "skipped", 0, "seconds", "quantize",
                            0.1 * seconds, "matmul", 0.5 * seconds));
    return rows;
}

static oct_performance steady(double seconds, int tokens)
{
    oct_performance sum = {0};
    oct_err err = {0};
    json_t *rows = run_of(seconds, WARMUP + STEPS, tokens);
    for (int turn = 0; turn < 2; turn++)
        if (oct_performance_add(&sum, "run", rows, WARMUP, STEPS, &err) != OCT_OK)
            fail_msg("%s", err.msg);
    json_decref(rows);
    return sum;
}

static void sum__two_turns__without_the_warm_up(void **state)
{
    (void)state;
    const oct_performance p = steady(0.5, 1000);
    assert_int_equal(p.steps, 2 * STEPS);
    assert_int_equal(p.tokens, 2 * STEPS * 1000);
    assert_true(fabs(oct_performance_step_seconds(&p) - 0.5) < 1e-12);
    assert_true(fabs(oct_performance_tokens_per_second(&p) - 2000.0) < 1e-6);
    assert_true(fabs(p.parts[0] / p.seconds - 0.1) < 1e-12);
    assert_true(fabs(p.parts[1] / p.seconds - 0.5) < 1e-12);
    assert_int_equal(p.peak_memory_bytes, 1000 + WARMUP + STEPS);
}

static void judge__slower_format__fails(void **state)
{
    (void)state;
    const oct_performance bf16 = steady(1.0, 1000), same = steady(1.0, 1000);
    const oct_performance faster = steady(0.7, 1000), slower = steady(1.01, 1000);
    assert_true(oct_performance_holds(&faster, &bf16));
    assert_true(oct_performance_holds(&same, &bf16));
    assert_false(oct_performance_holds(&slower, &bf16));
    assert_true(fabs(oct_performance_throughput_ratio(&faster, &bf16) - 1.0 / 0.7) < 1e-9);
    assert_true(fabs(oct_performance_step_time_ratio(&slower, &bf16) - 1.01) < 1e-9);
}

/* Fewer tokens a step are no speed, and no steps are none either. */
static void judge__other_tokens_or_none__fails(void **state)
{
    (void)state;
    const oct_performance bf16 = steady(1.0, 1000), fewer = steady(0.4, 500), none = {0};
    const oct_performance more = steady(0.9, 2000);
    assert_false(oct_performance_holds(&fewer, &bf16));
    assert_false(oct_performance_holds(&more, &bf16));
    assert_false(oct_performance_holds(&none, &bf16));
    assert_false(oct_performance_holds(&bf16, &none));
}

static void expect_refused(json_t *rows, const char *text)
{
    oct_performance sum = {0};
    oct_err err = {0};
    assert_int_equal(oct_performance_add(&sum, "slow-run", rows, WARMUP, STEPS, &err), OCT_E_DATA);
    if (!strstr(err.msg, text) || !strstr(err.msg, "'slow-run'"))
        fail_msg("'%s' is not in '%s'", text, err.msg);
    json_decref(rows);
}

static void rows__not_steady__refused(void **state)
{
    (void)state;
    expect_refused(run_of(1.0, WARMUP + STEPS - 1, 1000), "found 21 steps, 22 are required");
    json_t *rows = run_of(1.0, WARMUP + STEPS, 1000);
    (void)json_object_set_new(json_array_get(rows, 9), "skipped", json_true());
    expect_refused(rows, "step 10, skipped");
    rows = run_of(1.0, WARMUP + STEPS + 1, 1000);
    (void)json_array_remove(rows, 7);
    expect_refused(rows, "found step 9, step 8 is required");
    rows = run_of(1.0, WARMUP + STEPS, 1000);
    (void)json_object_set_new(json_array_get(rows, 4), "step_seconds", json_null());
    expect_refused(rows, "step 5 took 0 seconds");
    rows = run_of(1.0, WARMUP + STEPS, 1000);
    (void)json_object_set_new(json_array_get(rows, 12), "tokens", json_integer(999));
    expect_refused(rows, "step 13 had 999 tokens, 1000 are required");
}

static const char bf16_yaml[] = "seed: 7\n"
                                "low_precision:\n  enabled: false\n"
                                "training:\n  seq_length: 512\n  micro_batch_size: 4\n"
                                "dataset:\n  path:\n    - a\n    - b\n";

static void expect_config(const char *low, const char *text)
{
    oct_err err = {0};
    const oct_status status = oct_performance_same_config(bf16_yaml, "bf16", low, "hif8", &err);
    assert_int_equal(status, text ? OCT_E_CONFIG : OCT_OK);
    if (text && !strstr(err.msg, text))
        fail_msg("'%s' is not in '%s'", text, err.msg);
}

static void config__only_low_precision_differs__compared(void **state)
{
    (void)state;
    expect_config(bf16_yaml, NULL);
    expect_config("seed: 7\n"
                  "low_precision:\n  enabled: true\n  format: hif8\n  scaling: current\n"
                  "training:\n  seq_length: 512\n  micro_batch_size: 4\n"
                  "dataset:\n  path:\n    - a\n    - b\n",
                  NULL);
    expect_config("seed: 7\n"
                  "training:\n  micro_batch_size: 4\n  seq_length: 512\n"
                  "dataset:\n  path:\n    - a\n    - b\n",
                  NULL);
}

static void config__anything_else_differs__refused_by_key(void **state)
{
    (void)state;
    expect_config("seed: 7\ntraining:\n  seq_length: 256\n  micro_batch_size: 4\n"
                  "dataset:\n  path:\n    - a\n    - b\n",
                  "found integer 256 and integer 512, equal configurations but for low_precision "
                  "are required (training.seq_length)");
    expect_config("seed: 8\ntraining:\n  seq_length: 512\n  micro_batch_size: 4\n"
                  "dataset:\n  path:\n    - a\n    - b\n",
                  "(seed)");
    expect_config("seed: 7\ntraining:\n  seq_length: 512\n"
                  "dataset:\n  path:\n    - a\n    - b\n",
                  "found nothing and integer 4, equal configurations but for low_precision are "
                  "required (training.micro_batch_size)");
    expect_config("seed: 7\ntraining:\n  seq_length: 512\n  micro_batch_size: 4\n  threads: 2\n"
                  "dataset:\n  path:\n    - a\n    - b\n",
                  "(training.threads)");
    expect_config("seed: 7\ntraining:\n  seq_length: 512\n  micro_batch_size: 4\n"
                  "dataset:\n  path:\n    - a\n    - c\n",
                  "(dataset.path[1])");
    expect_config("seed: 7\ntraining:\n  seq_length: 512\n  micro_batch_size: 4\n"
                  "  low_precision: 1\ndataset:\n  path:\n    - a\n    - b\n",
                  "(training.low_precision)");
}

static void json__row__figures_of_a_mean_step(void **state)
{
    (void)state;
    const oct_performance bf16 = steady(1.0, 1000), low = steady(0.5, 1000);
    json_t *row = oct_performance_json("hif8", &low, &bf16, json_array());
    assert_non_null(row);
    assert_true(fabs(json_number_value(json_object_get(row, "throughput_ratio")) - 2.0) < 1e-9);
    assert_true(fabs(json_number_value(json_object_get(row, "step_time_ratio")) - 0.5) < 1e-9);
    const json_t *parts = json_object_get(row, "seconds");
    assert_true(fabs(json_number_value(json_object_get(parts, "matmul")) - 0.25) < 1e-9);
    json_decref(row);
}

/* --- low precision off ------------------------------------------------------------------------ */

static void off__disabled_section__leaves_nothing(void **state)
{
    (void)state;
    oct_off_objects objects;
    oct_err err = {0};
    assert_int_equal(chdir(OCTET_SOURCE_DIR), 0);
    if (oct_low_precision_off_objects(&objects, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    if (objects.extra != 0)
        fail_msg("%s", objects.text);
    assert_null(strstr(objects.text, "0 modules,"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sum__two_turns__without_the_warm_up),
        cmocka_unit_test(judge__slower_format__fails),
        cmocka_unit_test(judge__other_tokens_or_none__fails),
        cmocka_unit_test(rows__not_steady__refused),
        cmocka_unit_test(config__only_low_precision_differs__compared),
        cmocka_unit_test(config__anything_else_differs__refused_by_key),
        cmocka_unit_test(off__disabled_section__leaves_nothing),
        cmocka_unit_test(json__row__figures_of_a_mean_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
