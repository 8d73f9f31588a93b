/* metrics.jsonl: every row complete, every float the same bits, cut in one step on resume; and the
 * curves that are read back from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/rng.h"
#include "trainer/metrics.h"
#include "trainer/report.h"
#include "unit/temp_dir.h"

static temp_dir files;

static int make_files(void **state)
{
    (void)state;
    files = temp_dir_create();
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    temp_dir_remove(&files);
    return 0;
}

static void assert_same_bits(const json_t *row, const char *name, double required)
{
    const json_t *value = json_object_get(row, name);
    const double found = json_number_value(value);
    assert_true(json_is_number(value));
    assert_memory_equal(&found, &required, sizeof found);
}

static json_t *format(const oct_step_metrics *row)
{
    oct_json json;
    oct_err err = {0};
    oct_json_init(&json);
    assert_int_equal(oct_metrics_format(row, &json, &err), OCT_OK);
    assert_null(strchr(json.text, '\n'));
    json_t *object = json_loads(json.text, JSON_REJECT_DUPLICATES, NULL);
    oct_json_release(&json);
    assert_non_null(object);
    return object;
}

static void format__any_finite_floats__read_back_to_the_same_bits(void **state)
{
    (void)state;
    const oct_rng rng = oct_rng_stream(1, "metrics");
    for (uint64_t i = 0; i < 2000; i++) {
        double values[3];
        for (uint64_t v = 0; v < 3; v++) {
            uint64_t bits = oct_rng_below(rng, 3 * i + v, UINT64_MAX);
            memcpy(&values[v], &bits, sizeof bits);
            if (!isfinite(values[v]))
                values[v] = 0.1;
        }
        const oct_step_metrics row = {
            .loss = values[0], .grad_norm = values[1], .lr = values[2], .step_seconds = 1e-300};
        json_t *object = format(&row);
        assert_same_bits(object, "loss", values[0]);
        assert_same_bits(object, "grad_norm", values[1]);
        assert_same_bits(object, "lr", values[2]);
        assert_same_bits(object, "step_seconds", 1e-300);
        json_decref(object);
    }
}

static void format__non_finite__is_null(void **state)
{
    (void)state;
    const oct_step_metrics row = {
        .loss = (double)NAN, .grad_norm = (double)INFINITY, .lr = -(double)INFINITY};
    json_t *object = format(&row);
    assert_true(json_is_null(json_object_get(object, "loss")));
    assert_true(json_is_null(json_object_get(object, "grad_norm")));
    assert_true(json_is_null(json_object_get(object, "lr")));
    json_decref(object);
}

/* The names that tests outside the project read. */
static void format__train_row__has_every_member(void **state)
{
    (void)state;
    static const char *const members[] = {"schema",
                                          "kind",
                                          "attempt",
                                          "step",
                                          "loss",
                                          "grad_norm",
                                          "lr",
                                          "tokens",
                                          "step_seconds",
                                          "tokens_per_second",
                                          "peak_memory_bytes",
                                          "skipped",
                                          "refreshed_weights",
                                          "fma_matmuls",
                                          "expert_load_max",
                                          "seconds"};
    static const char *const parts[] = {"forward",   "backward",       "quantize",
                                        "matmul",    "attention",      "all_gather",
                                        "optimizer", "reduce_scatter", "checkpoint"};
    const oct_step_metrics row = {.attempt = 3};
    json_t *object = format(&row);
    const size_t count = sizeof members / sizeof members[0];
    assert_int_equal(json_object_size(object), count);
    for (size_t i = 0; i < count; i++)
        assert_non_null(json_object_get(object, members[i]));
    const json_t *seconds = json_object_get(object, "seconds");
    assert_int_equal(json_object_size(seconds), sizeof parts / sizeof parts[0]);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        assert_non_null(json_object_get(seconds, parts[i]));
    assert_int_equal(json_integer_value(json_object_get(object, "schema")), 1);
    json_decref(object);
}

/* --- the file ------------------------------------------------------------------------------- */

static void write_rows(const char *path, int64_t keep, int64_t first, int64_t last)
{
    oct_metrics *metrics = NULL;
    oct_err err = {0};
    assert_int_equal(oct_metrics_open(path, keep, &metrics, &err), OCT_OK);
    for (int64_t attempt = first; attempt <= last; attempt++) {
        const oct_step_metrics row = {.attempt = attempt, .step = attempt, .loss = 0.5};
        const oct_step_metrics check = {.attempt = attempt, .step = attempt, .validation = true};
        assert_int_equal(oct_metrics_write(metrics, &row, &err), OCT_OK);
        assert_int_equal(oct_metrics_write(metrics, &check, &err), OCT_OK);
    }
    oct_metrics_close(metrics);
}

static void append(const char *path, const char *text)
{
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Attempts 1 .. last, a training and a validation row each, and nothing else. */
static void assert_rows(const char *path, int64_t last)
{
    char *text = NULL;
    size_t bytes = 0;
    oct_err err = {0};
    assert_int_equal(oct_file_read_all(&oct_file_table_real, path, 1 << 20, &text, &bytes, &err),
                     OCT_OK);
    int64_t rows = 0;
    for (char *line = text, *end; *line; line = end + 1, rows++) {
        end = strchr(line, '\n');
        assert_non_null(end);
        json_t *row = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(row);
        assert_int_equal(json_integer_value(json_object_get(row, "attempt")), rows / 2 + 1);
        json_decref(row);
    }
    assert_int_equal(rows, 2 * last);
    free(text);
}

static void open__resumed_earlier__cuts_later_rows_and_goes_on(void **state)
{
    (void)state;
    const char *path = temp_dir_name(&files, "cut.jsonl");
    write_rows(path, -1, 1, 5);
    assert_rows(path, 5);
    write_rows(path, 3, 4, 6);
    assert_rows(path, 6);
    write_rows(path, 6, 7, 7);
    assert_rows(path, 7);
    write_rows(path, 0, 1, 2);
    assert_rows(path, 2);
    assert_int_not_equal(access(temp_dir_name(&files, "cut.jsonl.tmp"), F_OK), 0);
}

/* What a kill can leave: half a row, or rubbish from a disk that lost a page. */
static void open__half_a_row_at_the_end__is_cut_away(void **state)
{
    (void)state;
    const char *path = temp_dir_name(&files, "half.jsonl");
    write_rows(path, -1, 1, 3);
    append(path, "{\"schema\": 1, \"kind\": \"train\", \"attempt\": 2, \"st");
    write_rows(path, 3, 4, 4);
    assert_rows(path, 4);
    append(path, "\x01\x02 not a row\n{\"attempt\": \"4\"}\n{}\n");
    write_rows(path, 4, 5, 5);
    assert_rows(path, 5);
}

static void open__no_such_folder__is_an_error_with_the_path(void **state)
{
    (void)state;
    oct_metrics *metrics = NULL;
    oct_err err = {0};
    assert_int_equal(oct_metrics_open(temp_dir_name(&files, "no/where"), 3, &metrics, &err),
                     OCT_E_IO);
    assert_non_null(strstr(err.msg, "no/where"));
}

static void write__full_disk__is_an_error_with_the_path(void **state)
{
    (void)state;
    oct_metrics *metrics = NULL;
    oct_err err = {0};
    const oct_step_metrics row = {.attempt = 1};
    const struct rlimit none = {.rlim_max = RLIM_INFINITY};
    struct rlimit before;
    assert_int_equal(oct_metrics_open(temp_dir_name(&files, "full.jsonl"), -1, &metrics, &err),
                     OCT_OK);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    const oct_status status = oct_metrics_write(metrics, &row, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, OCT_E_IO);
    assert_non_null(strstr(err.msg, "full.jsonl"));
    oct_metrics_close(metrics);
}

/* A pipe would wait for a reader, to the end of time. */
static void open__pipe_or_device__is_refused_at_once(void **state)
{
    (void)state;
    oct_metrics *metrics = NULL;
    const char *pipe = temp_dir_name(&files, "pipe.jsonl");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    for (int64_t keep = -1; keep < 2; keep++) {
        oct_err err = {0};
        assert_int_equal(oct_metrics_open(pipe, keep, &metrics, &err), OCT_E_IO);
        assert_non_null(strstr(err.msg, "a regular file is required"));
        assert_non_null(strstr(err.msg, "pipe.jsonl"));
        assert_int_equal(oct_metrics_open("/dev/full", keep, &metrics, &err), OCT_E_IO);
        assert_int_equal(oct_metrics_open(files.path, keep, &metrics, &err), OCT_E_IO);
        assert_non_null(strstr(err.msg, "found a directory"));
    }
    const char *path = temp_dir_name(&files, "beside.jsonl");
    write_rows(path, -1, 1, 3);
    assert_int_equal(mkfifo(temp_dir_name(&files, "beside.jsonl.tmp"), 0600), 0);
    write_rows(path, 2, 3, 4);
    assert_rows(path, 4);
}

/* --- curves ----------------------------------------------------------------------------------- */

static oct_curve curve_of(oct_curve_point *points, int64_t count)
{
    return (oct_curve){.points = points, .count = count};
}

static void curve__gap_rate_and_final_loss__are_those_of_the_points(void **state)
{
    (void)state;
    oct_curve_point a[30], b[30];
    for (int i = 0; i < 30; i++) {
        a[i] = (oct_curve_point){.step = i + 1, .loss = 4.0, .step_seconds = 0.5, .tokens = 100};
        b[i] = (oct_curve_point){.step = i + 1, .loss = 4.0, .step_seconds = 0.5, .tokens = 100};
    }
    a[0].step_seconds = 50.0; /* warm-up */
    a[17].loss = 4.2;
    for (int i = 27; i < 30; i++)
        a[i].loss = 1.0 + (double)i - 27.0;
    b[29].step = 99; /* not in both */
    const oct_curve first = curve_of(a, 30), second = curve_of(b, 30);
    oct_arena arena;
    oct_err err = {0};
    int64_t step = 0;
    oct_arena_init(&arena, "test");
    assert_true(oct_curve_tokens_per_second(&first, &arena, &err) == 200.0);
    assert_true(oct_curve_final_loss(&first) == 2.0);
    assert_true(fabs(oct_curve_largest_gap(&first, &second, 1, &step) - 0.75) < 1e-12);
    assert_int_equal(step, 28);
    const oct_curve none = curve_of(b, 0);
    assert_true(oct_curve_largest_gap(&first, &none, 1, &step) == -1.0);
    assert_true(isnan(oct_curve_final_loss(&none)));
    assert_true(oct_curve_tokens_per_second(&none, &arena, &err) == 0.0);
    oct_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(format__any_finite_floats__read_back_to_the_same_bits),
        cmocka_unit_test(format__non_finite__is_null),
        cmocka_unit_test(format__train_row__has_every_member),
        cmocka_unit_test(open__resumed_earlier__cuts_later_rows_and_goes_on),
        cmocka_unit_test(open__half_a_row_at_the_end__is_cut_away),
        cmocka_unit_test(open__no_such_folder__is_an_error_with_the_path),
        cmocka_unit_test(open__pipe_or_device__is_refused_at_once),
        cmocka_unit_test(write__full_disk__is_an_error_with_the_path),
        cmocka_unit_test(curve__gap_rate_and_final_loss__are_those_of_the_points),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
