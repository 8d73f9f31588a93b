/* Curves read back from handwritten metrics: every figure is one that can be told by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "trainer/report.h"
#include "unit/temp_dir.h"

static temp_dir files;
static oct_arena arena;

static int make_files(void **state)
{
    (void)state;
    files = temp_dir_create();
    oct_arena_init(&arena, "test");
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    oct_arena_release(&arena);
    temp_dir_remove(&files);
    return 0;
}

/* A run directory with this metrics.jsonl. */
static void make_run(const char *name, const char *low_precision, const char *rows)
{
    char yaml[600], path[200];
    temp_dir_make(&files, name);
    (void)snprintf(yaml, sizeof yaml,
                   "base: %s/configs/base.yaml\nmodel:\n  config_name_or_path: model\n%s",
                   OCTET_SOURCE_DIR, low_precision);
    (void)snprintf(path, sizeof path, "%s/config.yaml", name);
    temp_dir_write(&files, path, yaml);
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    temp_dir_write(&files, path, rows);
}

static oct_status read_run(const char *name, oct_curve *curve, oct_err *err)
{
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", files.path, name);
    return oct_curve_read(path, &arena, curve, err);
}

static void curve_read__rows_of_all_kinds__only_successful_steps_are_points(void **state)
{
    (void)state;
    oct_curve curve;
    oct_err err = {0};
    make_run("kinds", "low_precision:\n  enabled: true\n  format: hif8\n  scaling: current\n",
             "{\"kind\":\"train\",\"step\":1,\"loss\":5.5,\"tokens\":64,\"step_seconds\":0.25,"
             "\"peak_memory_bytes\":1000,\"skipped\":false,\"attempt\":1}\n"
             "{\"kind\":\"train\",\"step\":1,\"loss\":9.0,\"tokens\":64,\"step_seconds\":0.5,"
             "\"peak_memory_bytes\":3000,\"skipped\":true,\"attempt\":2}\n"
             "{\"kind\":\"train\",\"step\":1,\"loss\":null,\"tokens\":64,\"step_seconds\":0.5,"
             "\"peak_memory_bytes\":10,\"skipped\":true}\n"
             "{\"kind\":\"validation\",\"step\":1,\"loss\":7.0,\"tokens\":999,\"step_seconds\":9,"
             "\"peak_memory_bytes\":4000}\n"
             "{\"kind\":\"train\",\"step\":2,\"loss\":null,\"tokens\":32,\"step_seconds\":1,"
             "\"peak_memory_bytes\":2000,\"skipped\":false}\n"
             "{\"kind\":\"train\",\"step\":3,\"loss\":4,\"tokens\":96,\"step_seconds\":2,"
             "\"peak_memory_bytes\":2000}\n"
             "{\"kind\":\"train\",\"step\":4,\"lo"); /* a row that is still being written */
    if (read_run("kinds", &curve, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    assert_string_equal(curve.format, "hif8");
    assert_int_equal(curve.count, 3);
    assert_int_equal(curve.skipped, 2);
    assert_int_equal(curve.peak_memory_bytes, 4000);
    const oct_curve_point required[3] = {
        {.step = 1, .loss = 5.5, .step_seconds = 0.25, .tokens = 64},
        {.step = 2, .loss = (double)NAN, .step_seconds = 1.0, .tokens = 32},
        {.step = 3, .loss = 4.0, .step_seconds = 2.0, .tokens = 96},
    };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(curve.points[i].step, required[i].step);
        assert_int_equal(curve.points[i].tokens, required[i].tokens);
        assert_true(curve.points[i].step_seconds == required[i].step_seconds);
        assert_true(isnan(required[i].loss) ? isnan(curve.points[i].loss)
                                            : curve.points[i].loss == required[i].loss);
    }
}

static void curve_read__precision_off__format_is_that_of_the_activations(void **state)
{
    (void)state;
    oct_curve curve;
    oct_err err = {0};
    make_run("off", "low_precision:\n  enabled: false\n", "");
    assert_int_equal(read_run("off", &curve, &err), OCT_OK);
    assert_string_equal(curve.format, "bfloat16");
    assert_int_equal(curve.count, 0);
}

static void curve_read__row_of_other_types__names_the_line(void **state)
{
    (void)state;
    static const char good[] =
        "{\"kind\":\"train\",\"step\":1,\"loss\":5,\"tokens\":64,\"step_seconds\":1,"
        "\"peak_memory_bytes\":1,\"skipped\":false}\n";
    static const char *const bad[] = {
        "{\"kind\":\"train\",\"step\":1,\"loss\":\"5\",\"tokens\":64,\"step_seconds\":1,"
        "\"peak_memory_bytes\":1,\"skipped\":false}\n",
        "{\"kind\":\"train\",\"step\":1,\"loss\":5,\"tokens\":64,\"step_seconds\":1,"
        "\"peak_memory_bytes\":1,\"skipped\":1}\n",
        "{\"kind\":\"train\",\"step\":1.5,\"loss\":5,\"tokens\":64,\"step_seconds\":1,"
        "\"peak_memory_bytes\":1,\"skipped\":false}\n",
        "{\"kind\":\"train\",\"step\":1,\"tokens\":64,\"step_seconds\":1,"
        "\"peak_memory_bytes\":1,\"skipped\":false}\n",
        "[]\n",
        "\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char rows[600], name[16];
        oct_curve curve;
        oct_err err = {0};
        (void)snprintf(rows, sizeof rows, "%s%s%s", good, bad[i], good);
        (void)snprintf(name, sizeof name, "bad%zu", i);
        make_run(name, "", rows);
        assert_int_equal(read_run(name, &curve, &err), OCT_E_DATA);
        assert_non_null(strstr(err.msg, "metrics.jsonl:2)"));
    }
}

/* --- figures ---------------------------------------------------------------------------------- */

enum { MAX_POINTS = 40 };

/* Steps first, first + 1, ... with these losses. */
static oct_curve curve_of(oct_curve_point *points, int64_t first, int64_t count,
                          const double *losses)
{
    for (int64_t i = 0; i < count; i++)
        points[i] = (oct_curve_point){
            .step = first + i, .loss = losses ? losses[i] : 0.0, .step_seconds = 1.0, .tokens = 1};
    return (oct_curve){.points = points, .count = count};
}

static double rate_of(const oct_curve *curve)
{
    oct_err err = {0};
    return oct_curve_tokens_per_second(curve, &arena, &err);
}

static void tokens_per_second__odd_and_even__median_without_the_first_tenth(void **state)
{
    (void)state;
    oct_curve_point points[MAX_POINTS];
    oct_curve curve = curve_of(points, 1, 5, NULL);
    /* 40/2, 10/1, 9/3, 100/4, 7/1: sorted 3, 7, 10, 20, 25 */
    const double seconds[] = {2, 1, 3, 4, 1};
    const int64_t tokens[] = {40, 10, 9, 100, 7};
    for (int i = 0; i < 5; i++) {
        points[i].step_seconds = seconds[i];
        points[i].tokens = tokens[i];
    }
    assert_true(rate_of(&curve) == 10.0);
    curve.count = 4; /* 3, 10, 20, 25 */
    assert_true(rate_of(&curve) == 15.0);
    curve.count = 1;
    assert_true(rate_of(&curve) == 20.0);
    curve.count = 0;
    assert_true(rate_of(&curve) == 0.0);

    /* Of 20 steps the first two are left out; 18 remain: 3 .. 20, whose middle is 11.5. */
    curve = curve_of(points, 1, 20, NULL);
    for (int i = 0; i < 20; i++)
        points[i].tokens = i + 1;
    assert_true(rate_of(&curve) == 11.5);
    curve.count = 19; /* the first one: 2 .. 19 */
    assert_true(rate_of(&curve) == 10.5);
}

static void final_loss__any_count__mean_of_the_last_tenth(void **state)
{
    (void)state;
    oct_curve_point points[MAX_POINTS];
    oct_curve curve = curve_of(points, 1, 39, NULL);
    for (int i = 0; i < 39; i++)
        points[i].loss = (double)i;
    assert_true(oct_curve_final_loss(&curve) == 37.0); /* 36, 37, 38 */
    curve.count = 20;
    assert_true(oct_curve_final_loss(&curve) == 18.5);
    curve.count = 19;
    assert_true(oct_curve_final_loss(&curve) == 18.0);
    curve.count = 9;
    assert_true(oct_curve_final_loss(&curve) == 8.0);
    curve.count = 0;
    assert_true(isnan(oct_curve_final_loss(&curve)));
}

static void assert_gap(const oct_curve *a, const oct_curve *b, int64_t window, double gap,
                       int64_t at)
{
    int64_t step = 0;
    const double found = oct_curve_largest_gap(a, b, window, &step);
    if (found != gap || step != at)
        fail_msg("window %lld: gap %.17g at %lld, required %.17g at %lld", (long long)window, found,
                 (long long)step, gap, (long long)at);
}

static void largest_gap__windows__relative_to_the_second_curve(void **state)
{
    (void)state;
    oct_curve_point x[MAX_POINTS], y[MAX_POINTS];
    const double a[] = {8, 7, 2, 6, 5, 5}, b[] = {8, 8, 4, 4, 4, 5};
    const oct_curve first = curve_of(x, 11, 6, a), second = curve_of(y, 11, 6, b);
    assert_gap(&first, &second, 1, 0.5, 13);   /* the first of two that are as large: 2:4, 6:4 */
    assert_gap(&second, &first, 1, 1.0, 13);   /* 4:2 */
    assert_gap(&first, &second, 2, 0.375, 15); /* 11:8 */
    assert_gap(&first, &second, 3, 3.0 / 13.0, 16);
    assert_gap(&first, &second, 6, 0.0, 16);
    assert_gap(&first, &second, 7, -1.0, -1);
}

/* Windows hold consecutive steps that both curves have; a hole in one or in both ends them. */
static void largest_gap__holes__no_window_across(void **state)
{
    (void)state;
    oct_curve_point x[MAX_POINTS], y[MAX_POINTS];
    const double a[] = {1, 1, 9, 9, 2, 2}, b[] = {1, 1, 1, 1, 1, 1};
    oct_curve first = curve_of(x, 1, 6, a), second = curve_of(y, 1, 6, b);
    assert_gap(&first, &second, 2, 8.0, 4);
    for (int i = 0; i < 6; i++)
        y[i].step = i < 2 ? i + 1 : i + 3; /* 1, 2, 5, 6, 7, 8: 5 and 6 are common */
    assert_gap(&first, &second, 2, 1.0, 6);
    assert_gap(&second, &first, 2, 0.5, 6);
    assert_gap(&first, &second, 3, -1.0, -1);
    for (int i = 0; i < 6; i++)
        x[i].step = y[i].step = i < 3 ? i + 1 : i + 2; /* both lack 4: 3 and 5 are no window */
    assert_gap(&first, &second, 2, 4.5, 6);
    assert_gap(&first, &second, 3, 10.0 / 3.0, 7);
    assert_gap(&first, &second, 4, -1.0, -1);
    second.count = 0;
    assert_gap(&first, &second, 1, -1.0, -1);
}

static void largest_gap__loss_that_is_no_number__only_its_windows_are_left_out(void **state)
{
    (void)state;
    oct_curve_point x[MAX_POINTS], y[MAX_POINTS];
    const double a[] = {3, (double)NAN, 1, 1, 2}, b[] = {1, 1, 1, 1, 1};
    const oct_curve first = curve_of(x, 1, 5, a), second = curve_of(y, 1, 5, b);
    assert_gap(&first, &second, 1, 2.0, 1);
    assert_gap(&first, &second, 2, 0.5, 5);
    assert_gap(&second, &first, 3, 0.25, 5);
}

static void curve_at__step__found_wherever_it_stands(void **state)
{
    (void)state;
    oct_curve_point x[MAX_POINTS];
    oct_curve curve = curve_of(x, 5, 7, NULL);
    x[6].step = 20;
    for (int i = 0; i < 7; i++)
        assert_ptr_equal(oct_curve_at(&curve, x[i].step), &x[i]);
    assert_null(oct_curve_at(&curve, 4));
    assert_null(oct_curve_at(&curve, 11));
    assert_null(oct_curve_at(&curve, 21));
    curve.count = 0;
    assert_null(oct_curve_at(&curve, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curve_read__rows_of_all_kinds__only_successful_steps_are_points),
        cmocka_unit_test(curve_read__precision_off__format_is_that_of_the_activations),
        cmocka_unit_test(curve_read__row_of_other_types__names_the_line),
        cmocka_unit_test(tokens_per_second__odd_and_even__median_without_the_first_tenth),
        cmocka_unit_test(final_loss__any_count__mean_of_the_last_tenth),
        cmocka_unit_test(largest_gap__windows__relative_to_the_second_curve),
        cmocka_unit_test(largest_gap__holes__no_window_across),
        cmocka_unit_test(largest_gap__loss_that_is_no_number__only_its_windows_are_left_out),
        cmocka_unit_test(curve_at__step__found_wherever_it_stands),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
