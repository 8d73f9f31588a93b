#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/trace.h"

static void note(void *arg, const struct oct_trace *trace, const oct_trace_event *event)
{
    assert_int_equal(trace->step, 3);
    assert_int_equal(event->kind, OCT_TRACE_QUANTIZE);
    ++*(int *)arg;
}

static void emit__no_trace_or_no_sink__counts_only(void **state)
{
    (void)state;
    const oct_trace_event event = {.kind = OCT_TRACE_QUANTIZE};
    oct_trace_emit(NULL, &event);
    oct_trace trace = {.step = 3};
    oct_trace_emit(&trace, &event);
    oct_trace_emit(&trace, &event);
    assert_int_equal(trace.count[OCT_TRACE_QUANTIZE], 2);
    assert_int_equal(trace.count[OCT_TRACE_MATMUL], 0);
    int seen = 0;
    trace.sink = note;
    trace.sink_arg = &seen;
    oct_trace_emit(&trace, &event);
    assert_int_equal(seen, 1);
    assert_int_equal(trace.count[OCT_TRACE_QUANTIZE], 3);
}

static void emit__eight_bit_fma_products__are_counted_apart(void **state)
{
    (void)state;
    oct_trace trace = {0};
    const oct_trace_event events[] = {
        {.kind = OCT_TRACE_MATMUL, .kernel = "fma", .scale_dtype = "e8m0"},
        {.kind = OCT_TRACE_MATMUL, .kernel = "fma"}, /* BF16: its only route */
        {.kind = OCT_TRACE_MATMUL, .kernel = "block_integer", .scale_dtype = "e8m0"},
        {.kind = OCT_TRACE_MATMUL},
    };
    for (int i = 0; i < 4; i++)
        oct_trace_emit(&trace, &events[i]);
    assert_int_equal(trace.count[OCT_TRACE_MATMUL], 4);
    assert_int_equal(trace.fma_matmuls, 1);
}

static void kind_name__all__distinct(void **state)
{
    (void)state;
    for (int i = 0; i < OCT_TRACE_KIND_COUNT; i++) {
        for (int j = 0; j < i; j++)
            assert_string_not_equal(oct_trace_kind_name((oct_trace_kind)i),
                                    oct_trace_kind_name((oct_trace_kind)j));
    }
}

static void file_sink__events__are_json_lines_appended(void **state)
{
    (void)state;
    char path[] = "/tmp/octet-trace-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    const oct_trace_event events[] = {
        {.kind = OCT_TRACE_QUANTIZE,
         .fqn = "model.layers.0.mlp",
         .grouped = true,
         .has_scale = true,
         .amax = 0.1f,
         .scale = INFINITY,
         .group = 2,
         .ndim = {2},
         .shape = {{3, 4}}},
        {.kind = OCT_TRACE_GATHER,
         .tensors = {"codes", "scales"},
         .ndim = {0, 1},
         .shape = {{0}, {5}}},
    };
    for (int i = 0; i < 2; i++) { /* closed and opened again in between */
        oct_trace_file *file = NULL;
        oct_err err = {0};
        assert_int_equal(oct_trace_file_open(path, &file, &err), OCT_OK);
        oct_trace trace = {
            .step = 7, .micro_step = 1, .sink = oct_trace_file_sink, .sink_arg = file};
        oct_trace_emit(&trace, &events[i]);
        oct_trace_file_close(file);
    }
    FILE *stream = fopen(path, "re");
    assert_non_null(stream);
    char line[2000];
    assert_non_null(fgets(line, sizeof line, stream));
    json_t *row = json_loads(line, 0, NULL);
    assert_non_null(row);
    assert_int_equal(json_integer_value(json_object_get(row, "schema")), 1);
    assert_int_equal(json_integer_value(json_object_get(row, "step")), 7);
    assert_string_equal(json_string_value(json_object_get(row, "event")), "quantize");
    assert_true((float)json_real_value(json_object_get(row, "amax")) == 0.1f);
    assert_true(json_is_null(json_object_get(row, "scale")));
    assert_int_equal(json_integer_value(json_object_get(row, "group")), 2);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(row, "shape"), 1)), 4);
    assert_null(json_object_get(row, "role"));
    json_decref(row);
    assert_non_null(fgets(line, sizeof line, stream));
    row = json_loads(line, 0, NULL);
    assert_non_null(row);
    assert_int_equal(json_array_size(json_object_get(row, "tensors")), 2);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(row, "right_shape"), 0)), 5);
    json_decref(row);
    assert_null(fgets(line, sizeof line, stream));
    assert_int_equal(fclose(stream), 0);
    assert_int_equal(unlink(path), 0);
}

static void file_open__no_directory__refused_with_the_path(void **state)
{
    (void)state;
    oct_trace_file *file = NULL;
    oct_err err = {0};
    assert_int_equal(oct_trace_file_open("/nonexistent/trace", &file, &err), OCT_E_IO);
    assert_non_null(strstr(err.msg, "/nonexistent/trace"));
    assert_null(file);
    oct_trace_file_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(emit__no_trace_or_no_sink__counts_only),
        cmocka_unit_test(emit__eight_bit_fma_products__are_counted_apart),
        cmocka_unit_test(kind_name__all__distinct),
        cmocka_unit_test(file_sink__events__are_json_lines_appended),
        cmocka_unit_test(file_open__no_directory__refused_with_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
