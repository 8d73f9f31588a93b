#include "verify/summary.h"

#include <string.h>

static json_t *child(json_t *object, const char *key)
{
    json_t *found = json_object_get(object, key);
    if (!found) {
        found = json_object();
        (void)json_object_set_new(object, key, found);
    }
    return found;
}

static void raise_by(json_t *object, const char *key, json_int_t amount)
{
    const json_int_t old = json_integer_value(json_object_get(object, key));
    (void)json_object_set_new(object, key, json_integer(old + amount));
}

static void widen(json_t *object, const char *low, const char *high, double value)
{
    const json_t *smallest = json_object_get(object, low), *largest = json_object_get(object, high);
    if (!smallest || value < json_number_value(smallest))
        (void)json_object_set_new(object, low, json_real(value));
    if (!largest || value > json_number_value(largest))
        (void)json_object_set_new(object, high, json_real(value));
}

json_t *oct_summary_replaced(const oct_verify_trace *trace)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < trace->count; i++) {
        const oct_trace_event *f = &trace->events[i].fields;
        if (f->kind != OCT_TRACE_REPLACE)
            continue;
        json_t *one = json_object();
        (void)json_object_set_new(one, "fqn", json_string(f->fqn));
        (void)json_object_set_new(one, "from", json_string(f->from));
        (void)json_object_set_new(one, "to", json_string(f->to));
        (void)json_array_append_new(list, one);
    }
    return list;
}

json_t *oct_summary_products(const oct_verify_trace *trace, bool only_high_precision)
{
    json_t *all = json_object();
    for (int64_t i = 0; i < trace->count; i++) {
        const oct_trace_event *f = &trace->events[i].fields;
        if (f->kind != OCT_TRACE_MATMUL || (only_high_precision && f->scale_dtype[0]))
            continue;
        json_t *one = child(child(all, f->fqn), f->phase);
        (void)json_object_set_new(one, "format", json_string(f->format));
        (void)json_object_set_new(one, "kernel", json_string(f->kernel));
        raise_by(one, "count", 1);
    }
    return all;
}

json_t *oct_summary_scales(const oct_verify_trace *trace)
{
    json_t *all = json_object();
    for (int64_t i = 0; i < trace->count; i++) {
        const oct_verify_event *event = &trace->events[i];
        const oct_trace_event *f = &event->fields;
        if (f->kind != OCT_TRACE_QUANTIZE || !f->has_scale)
            continue;
        json_t *one = child(all, f->role);
        raise_by(one, "count", 1);
        if (!event->is_finite) {
            raise_by(one, "not_finite", 1);
            continue;
        }
        widen(one, "scale_min", "scale_max", (double)f->scale);
        widen(one, "amax_min", "amax_max", (double)f->amax);
    }
    return all;
}

static json_t *shape_of(const int64_t *shape, int ndim)
{
    json_t *list = json_array();
    for (int d = 0; d < ndim; d++)
        (void)json_array_append_new(list, json_integer(shape[d]));
    return list;
}

static json_t *gather_of(const oct_verify_event *event)
{
    json_t *one = json_object(), *physical = json_array();
    (void)json_object_set_new(one, "fqn", json_string(event->fields.fqn));
    (void)json_object_set_new(one, "phase", json_string(event->fields.phase));
    for (int i = 0; i < event->physical_count; i++) {
        const oct_verify_physical *p = &event->physical[i];
        json_t *tensor = json_object(), *values = json_array();
        (void)json_object_set_new(tensor, "name", json_string(p->name));
        (void)json_object_set_new(tensor, "dtype", json_string(p->dtype));
        (void)json_object_set_new(tensor, "shard", shape_of(p->shard, p->ndim));
        (void)json_object_set_new(tensor, "whole", shape_of(p->whole, p->ndim));
        for (int64_t v = 0; v < p->value_count; v++)
            (void)json_array_append_new(values, json_real((double)p->values[v]));
        if (p->value_count)
            (void)json_object_set(tensor, "values", values);
        json_decref(values);
        (void)json_array_append_new(physical, tensor);
    }
    (void)json_object_set_new(one, "physical", physical);
    return one;
}

json_t *oct_summary_gathers(const oct_verify_trace *trace)
{
    json_t *list = json_array();
    const oct_verify_event *first = NULL;
    for (int64_t i = 0; i < trace->count; i++) {
        const oct_verify_event *event = &trace->events[i];
        if (event->fields.kind != OCT_TRACE_GATHER)
            continue;
        first = first ? first : event;
        if (event->step == first->step && event->micro_step == first->micro_step)
            (void)json_array_append_new(list, gather_of(event));
    }
    return list;
}

json_t *oct_summary_counts(const oct_verify_trace *trace)
{
    json_t *steps = json_array();
    json_t *one = NULL;
    int64_t step = -1;
    for (int64_t i = 0; i < trace->count; i++) {
        const oct_verify_event *event = &trace->events[i];
        const oct_trace_kind kind = event->fields.kind;
        if (!one || event->step != step) {
            one = json_object();
            step = event->step;
            (void)json_object_set_new(one, "step", json_integer(step));
            (void)json_array_append_new(steps, one);
        }
        if (kind == OCT_TRACE_MATMUL)
            (void)json_object_set_new(one, "micro_steps", json_integer(event->micro_step + 1));
        if (kind == OCT_TRACE_MATMUL || kind == OCT_TRACE_GATHER || kind == OCT_TRACE_REFRESH ||
            kind == OCT_TRACE_QUANTIZE)
            raise_by(one, oct_trace_kind_name(kind), 1);
    }
    return steps;
}
