#include "verify/trace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- reading --------------------------------------------------------------------------------- */

/* The trace's own copy of a string, the same pointer for the same text; NULL without memory. */
static const char *intern(oct_verify_trace *trace, const char *text)
{
    if (!text)
        text = "";
    for (int64_t i = trace->string_count - 1; i >= 0; i--)
        if (strcmp(trace->strings[i], text) == 0)
            return trace->strings[i];
    if (trace->string_count == trace->string_room) {
        const int64_t room = trace->string_room ? 2 * trace->string_room : 64;
        char **strings = realloc(trace->strings, (size_t)room * sizeof *strings);
        if (!strings)
            return NULL;
        trace->strings = strings;
        trace->string_room = room;
    }
    char *copy = strdup(text);
    if (copy)
        trace->strings[trace->string_count++] = copy;
    return copy;
}

static bool put_text(oct_verify_trace *trace, const json_t *row, const char *key, const char **out)
{
    *out = intern(trace, json_string_value(json_object_get(row, key)));
    return *out != NULL;
}

/* At most `room` dims; the rest of a longer shape is left out. */
static int read_shape(const json_t *row, const char *key, int room, int64_t *out)
{
    const json_t *shape = json_object_get(row, key);
    const int ndim = (int)json_array_size(shape);
    for (int d = 0; d < ndim && d < room; d++)
        out[d] = json_integer_value(json_array_get(shape, (size_t)d));
    return ndim < room ? ndim : room;
}

static bool read_kind(const json_t *row, oct_trace_kind *out)
{
    const char *name = json_string_value(json_object_get(row, "event"));
    for (int k = 0; name && k < OCT_TRACE_KIND_COUNT; k++)
        if (strcmp(name, oct_trace_kind_name((oct_trace_kind)k)) == 0) {
            *out = (oct_trace_kind)k;
            return true;
        }
    return false;
}

static bool read_scale(const json_t *row, oct_verify_event *event)
{
    const json_t *amax = json_object_get(row, "amax"), *scale = json_object_get(row, "scale");
    event->fields.has_scale = amax || scale;
    event->is_finite = json_is_number(amax) && json_is_number(scale);
    event->fields.amax = json_is_number(amax) ? (float)json_number_value(amax) : NAN;
    event->fields.scale = json_is_number(scale) ? (float)json_number_value(scale) : NAN;
    event->fields.group = json_integer_value(json_object_get(row, "group"));
    return true;
}

static bool read_physical(oct_verify_trace *trace, const json_t *row, oct_verify_event *event)
{
    const json_t *list = json_object_get(row, "physical");
    event->physical_count = (int)json_array_size(list);
    if (event->physical_count > OCT_VERIFY_MAX_PHYSICAL)
        return false;
    for (int i = 0; i < event->physical_count; i++) {
        const json_t *from = json_array_get(list, (size_t)i);
        oct_verify_physical *to = &event->physical[i];
        const json_t *values = json_object_get(from, "values");
        if (!put_text(trace, from, "name", &to->name) ||
            !put_text(trace, from, "dtype", &to->dtype))
            return false;
        to->ndim = read_shape(from, "whole", 4, to->whole);
        if (read_shape(from, "shard", 4, to->shard) != to->ndim)
            return false;
        to->value_count = (int64_t)json_array_size(values);
        to->values = to->value_count ? calloc((size_t)to->value_count, sizeof(float)) : NULL;
        if (to->value_count && !to->values)
            return false;
        for (int64_t j = 0; j < to->value_count; j++)
            to->values[j] = (float)json_number_value(json_array_get(values, (size_t)j));
    }
    return true;
}

static bool read_event(oct_verify_trace *trace, const json_t *row, oct_verify_event *event)
{
    static const char *const shape_keys[3] = {"shape", "right_shape", "output_shape"};
    oct_trace_event *f = &event->fields;
    if (json_integer_value(json_object_get(row, "schema")) != 1 || !read_kind(row, &f->kind) ||
        !json_is_integer(json_object_get(row, "step")))
        return false;
    event->step = json_integer_value(json_object_get(row, "step"));
    event->micro_step = json_integer_value(json_object_get(row, "micro_step"));
    f->grouped = json_is_true(json_object_get(row, "grouped"));
    for (int i = 0; i < 3; i++)
        f->ndim[i] = read_shape(row, shape_keys[i], 3, f->shape[i]);
    const json_t *tensors = json_object_get(row, "tensors");
    for (size_t i = 0; i < 4; i++)
        f->tensors[i] = intern(trace, json_string_value(json_array_get(tensors, i)));
    return put_text(trace, row, "fqn", &f->fqn) && put_text(trace, row, "role", &f->role) &&
           put_text(trace, row, "phase", &f->phase) && put_text(trace, row, "format", &f->format) &&
           put_text(trace, row, "orientation", &f->orientation) &&
           put_text(trace, row, "dtype", &f->dtype) &&
           put_text(trace, row, "scale_dtype", &f->scale_dtype) &&
           put_text(trace, row, "layout", &f->layout) &&
           put_text(trace, row, "kernel", &f->kernel) && put_text(trace, row, "store", &f->store) &&
           put_text(trace, row, "from", &f->from) && put_text(trace, row, "to", &f->to) &&
           read_scale(row, event) && read_physical(trace, row, event);
}

static oct_verify_event *next_event(oct_verify_trace *trace)
{
    if (trace->count == trace->room) {
        const int64_t room = trace->room ? 2 * trace->room : 1024;
        oct_verify_event *events = realloc(trace->events, (size_t)room * sizeof *events);
        if (!events)
            return NULL;
        trace->events = events;
        trace->room = room;
    }
    oct_verify_event *event = &trace->events[trace->count++];
    memset(event, 0, sizeof *event);
    return event;
}

oct_status oct_verify_trace_read(const char *path, oct_verify_trace **out, oct_err *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return OCT_FAIL(err, OCT_E_IO, "cannot read trace: %s, a trace is required (%s)",
                        strerror(errno), path);
    oct_verify_trace *trace = calloc(1, sizeof *trace);
    char *line = NULL;
    size_t room = 0;
    oct_status status = trace ? OCT_OK : OCT_FAIL(err, OCT_E_NOMEM, "no memory for '%s'", path);
    for (int64_t n = 1; status == OCT_OK && getline(&line, &room, file) > 0; n++) {
        json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        oct_verify_event *event = next_event(trace);
        if (!event)
            status = OCT_FAIL(err, OCT_E_NOMEM, "no memory for '%s'", path);
        else if (!row || !read_event(trace, row, event))
            status = OCT_FAIL(err, OCT_E_DATA,
                              "cannot read trace: a row is no event, one of schema 1 is required "
                              "(%s:%lld)",
                              path, (long long)n);
        json_decref(row);
    }
    free(line);
    fclose(file);
    if (status != OCT_OK) {
        oct_verify_trace_release(trace);
        return status;
    }
    *out = trace;
    return OCT_OK;
}

void oct_verify_trace_release(oct_verify_trace *trace)
{
    if (!trace)
        return;
    for (int64_t i = 0; i < trace->count; i++)
        for (int p = 0; p < OCT_VERIFY_MAX_PHYSICAL; p++)
            free(trace->events[i].physical[p].values);
    for (int64_t i = 0; i < trace->string_count; i++)
        free(trace->strings[i]);
    free(trace->strings);
    free(trace->events);
    free(trace);
}

/* --- of a run -------------------------------------------------------------------------------- */

oct_status oct_verify_run_trace(const oct_verify_run *run, int rank, const oct_verify_trace **out,
                                oct_err *err)
{
    char name[32], path[OCT_PATH_BYTES];
    if (!run->traces[rank]) {
        (void)snprintf(name, sizeof name, "trace-%d.jsonl", rank);
        OCT_TRY(oct_path_join(run->dir, name, path, sizeof path, err));
        OCT_TRY(oct_verify_trace_read(path, &run->traces[rank], err));
    }
    *out = run->traces[rank];
    return OCT_OK;
}

void oct_verify_forget(const oct_verify_run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        oct_verify_trace_release(run->traces[r]);
        run->traces[r] = NULL;
    }
}
