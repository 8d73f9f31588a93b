#include "base/trace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

const char *oct_trace_kind_name(oct_trace_kind kind)
{
    static const char *const names[OCT_TRACE_KIND_COUNT] = {
        "replace", "quantize", "matmul", "gather", "reduce", "refresh", "save", "skip",
    };
    return names[kind];
}

void oct_trace_emit(oct_trace *trace, const oct_trace_event *event)
{
    if (!trace)
        return;
    trace->count[event->kind]++;
    if (event->kind == OCT_TRACE_MATMUL && event->kernel && strcmp(event->kernel, "fma") == 0 &&
        event->scale_dtype)
        trace->fma_matmuls++;
    if (trace->sink)
        trace->sink(trace->sink_arg, trace, event);
}

struct oct_trace_file {
    FILE *stream;
};

oct_status oct_trace_file_open(const char *path, oct_trace_file **out, oct_err *err)
{
    OCT_TRY(oct_file_require_regular(&oct_file_table_real, "the trace", path, err));
    oct_trace_file *file = malloc(sizeof *file);
    if (!file)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot open trace '%s': out of memory", path);
    file->stream = fopen(path, "ae");
    if (!file->stream) {
        free(file);
        return OCT_FAIL(err, OCT_E_IO, "cannot open trace: %s, a writable file is required (%s)",
                        strerror(errno), path);
    }
    *out = file;
    return OCT_OK;
}

void oct_trace_file_close(oct_trace_file *file)
{
    if (!file)
        return;
    fclose(file->stream);
    free(file);
}

static void put_string(FILE *stream, const char *key, const char *value)
{
    if (value)
        fprintf(stream, ",\"%s\":\"%s\"", key, value); /* FQNs and words: nothing to escape */
}

static void put_float(FILE *stream, const char *key, float value)
{
    if (isfinite(value))
        fprintf(stream, ",\"%s\":%.9g", key, (double)value);
    else
        fprintf(stream, ",\"%s\":null", key);
}

static void put_shape(FILE *stream, const char *key, const int64_t *shape, int ndim)
{
    fprintf(stream, ",\"%s\":[", key);
    for (int d = 0; d < ndim; d++)
        fprintf(stream, "%s%lld", d ? "," : "", (long long)shape[d]);
    fputc(']', stream);
}

static void put_physical(FILE *stream, const oct_trace_event *event)
{
    fputs(",\"physical\":[", stream);
    for (int i = 0; i < event->physical_count; i++) {
        const oct_trace_tensor *t = &event->physical[i];
        fprintf(stream, "%s{\"name\":\"%s\",\"dtype\":\"%s\"", i ? "," : "", t->name, t->dtype);
        put_shape(stream, "shard", t->shard, t->ndim);
        put_shape(stream, "whole", t->whole, t->ndim);
        for (int64_t v = 0; v < t->value_count; v++)
            if (isfinite(t->values[v]))
                fprintf(stream, "%s%.9g", v ? "," : ",\"values\":[", (double)t->values[v]);
            else
                fprintf(stream, "%snull", v ? "," : ",\"values\":[");
        fputs(t->value_count ? "]}" : "}", stream);
    }
    fputc(']', stream);
}

void oct_trace_file_sink(void *arg, const struct oct_trace *trace, const oct_trace_event *event)
{
    static const char *const shape_keys[3] = {"shape", "right_shape", "output_shape"};
    FILE *stream = ((oct_trace_file *)arg)->stream;
    fprintf(stream, "{\"schema\":1,\"event\":\"%s\",\"step\":%lld,\"micro_step\":%lld",
            oct_trace_kind_name(event->kind), (long long)trace->step, (long long)trace->micro_step);
    put_string(stream, "fqn", event->fqn);
    put_string(stream, "role", event->role);
    put_string(stream, "phase", event->phase);
    put_string(stream, "format", event->format);
    put_string(stream, "orientation", event->orientation);
    put_string(stream, "dtype", event->dtype);
    put_string(stream, "scale_dtype", event->scale_dtype);
    put_string(stream, "layout", event->layout);
    put_string(stream, "kernel", event->kernel);
    put_string(stream, "store", event->store);
    if (event->scratch_bytes)
        fprintf(stream, ",\"scratch_bytes\":%lld", (long long)event->scratch_bytes);
    put_string(stream, "from", event->from);
    put_string(stream, "to", event->to);
    if (event->kind == OCT_TRACE_MATMUL || event->kind == OCT_TRACE_QUANTIZE)
        fprintf(stream, ",\"grouped\":%s", event->grouped ? "true" : "false");
    if (event->has_scale) {
        put_float(stream, "amax", event->amax);
        put_float(stream, "scale", event->scale);
        if (event->grouped)
            fprintf(stream, ",\"group\":%lld", (long long)event->group);
    }
    if (event->tensors[0]) {
        fputs(",\"tensors\":[", stream);
        for (int i = 0; i < 4 && event->tensors[i]; i++)
            fprintf(stream, "%s\"%s\"", i ? "," : "", event->tensors[i]);
        fputc(']', stream);
    }
    if (event->physical_count)
        put_physical(stream, event);
    for (int i = 0; i < 3; i++)
        if (event->ndim[i])
            put_shape(stream, shape_keys[i], event->shape[i], event->ndim[i]);
    fputs("}\n", stream);
}
