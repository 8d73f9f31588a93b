#include "verify/scales.h"

#include <stdlib.h>
#include <string.h>

#include "base/median.h"

static bool has_scale(const oct_verify_event *event)
{
    return event->fields.kind == OCT_TRACE_QUANTIZE && event->fields.has_scale;
}

/* values: room for all events of the trace. */
static json_t *row_of(const oct_verify_trace *trace, const oct_trace_event *first, double *values)
{
    size_t count = 0;
    int64_t bad = 0, zero = 0;
    for (int64_t i = 0; i < trace->count; i++) {
        const oct_verify_event *event = &trace->events[i];
        if (!has_scale(event) || strcmp(event->fields.role, first->role) != 0)
            continue;
        if (event->is_finite && event->fields.amax == 0.0f && event->fields.scale == 1.0f)
            zero++;
        else if (event->is_finite && event->fields.scale > 0.0f)
            values[count++] = (double)event->fields.scale;
        else
            bad++;
    }
    const double median = count ? oct_median(values, (int64_t)count) : 0.0; /* sorts them */
    return json_pack("{s:s,s:s,s:I,s:I,s:I,s:f,s:f,s:f}", "role", first->role, "format",
                     first->format, "count", (json_int_t)count, "bad", (json_int_t)bad, "zero",
                     (json_int_t)zero, "min", count ? values[0] : 0.0, "median", median, "max",
                     count ? values[count - 1] : 0.0);
}

json_t *oct_scale_statistics(const oct_verify_trace *trace)
{
    json_t *rows = json_array();
    double *values = malloc(((size_t)trace->count + 1) * sizeof *values);
    for (int64_t i = 0; values && rows && i < trace->count; i++) {
        const oct_trace_event *f = &trace->events[i].fields;
        bool seen = !has_scale(&trace->events[i]);
        for (size_t r = 0; r < json_array_size(rows); r++)
            seen = seen ||
                   strcmp(f->role,
                          json_string_value(json_object_get(json_array_get(rows, r), "role"))) == 0;
        if (!seen)
            (void)json_array_append_new(rows, row_of(trace, f, values));
    }
    if (!values) {
        json_decref(rows);
        rows = NULL;
    }
    free(values);
    return rows;
}

int64_t oct_scale_faults(const json_t *statistics)
{
    int64_t count = 0, bad = 0;
    for (size_t r = 0; r < json_array_size(statistics); r++) {
        const json_t *row = json_array_get(statistics, r);
        count += json_integer_value(json_object_get(row, "count"));
        bad += json_integer_value(json_object_get(row, "bad"));
    }
    return count + bad == 0 ? -1 : bad;
}
