/* Quantizations: formats and scales, refreshes of weights, work that is done twice. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verify/judge.h"

static bool is(const oct_verify_event *event, oct_trace_kind kind)
{
    return event->fields.kind == kind;
}

static bool same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool is_weight_role(const oct_trace_event *f)
{
    return strncmp(f->role, "weight", 6) == 0;
}

/* --- scales ---------------------------------------------------------------------------------- */

float oct_judge_hif8_scale(float amax, float format_max)
{
    const float scale = amax / format_max;
    return isfinite(amax) && scale >= 0x1p-126f ? scale : 1.0f;
}

static void check_hif8(const oct_verify_event *event, oct_finding *finding)
{
    const oct_trace_event *f = &event->fields;
    const float format_max = same(f->role, "grad_output") ? 224.0f : 15.0f;
    if (!f->has_scale || !(f->scale > 0.0f) || !isfinite(f->scale)) {
        oct_finding_wrong(finding, "'%s' %s has no finite positive scale", f->fqn, f->role);
        return;
    }
    const float due = oct_judge_hif8_scale(f->amax, format_max);
    if (f->scale != due)
        oct_finding_wrong(finding, "'%s' %s in step %lld: amax %.9g has scale %.9g, %.9g is due",
                          f->fqn, f->role, (long long)event->step, (double)f->amax,
                          (double)f->scale, (double)due);
}

void oct_judge_scales(const oct_verify_facts *facts, const oct_verify_trace *trace,
                      oct_finding *finding)
{
    const bool hif8 = facts->format == OCT_VERIFY_HIF8;
    const char *format = hif8 ? "hif8" : "mxfp8_e4m3", *dtype = hif8 ? "hifloat8" : "float8_e4m3fn";
    const char *scale_dtype = hif8 ? "float32" : "float8_e8m0fnu";
    for (int64_t i = 0; i < trace->count; i++) {
        const oct_trace_event *f = &trace->events[i].fields;
        if (!is(&trace->events[i], OCT_TRACE_QUANTIZE))
            continue;
        finding->seen++;
        if (!same(f->format, format) || !same(f->dtype, dtype) ||
            !same(f->scale_dtype, scale_dtype))
            oct_finding_wrong(finding, "'%s' %s is %s of %s with %s scales", f->fqn, f->role,
                              f->dtype, f->format, f->scale_dtype);
        if (hif8)
            check_hif8(&trace->events[i], finding);
    }
}

/* --- refresh --------------------------------------------------------------------------------- */

typedef struct refresh_counts {
    int64_t refreshes;
    int64_t forward, backward; /* quantizations for each direction, of all experts */
} refresh_counts;

/* The refreshes between two runs of products: each weight `due` times. `when` is for messages. */
static void end_refreshes(const oct_verify_facts *facts, refresh_counts *counts, int64_t due,
                          const char *when, int64_t step, oct_finding *finding)
{
    for (int64_t t = 0; t < facts->target_count; t++) {
        const oct_verify_target *target = &facts->targets[t];
        refresh_counts *c = &counts[t];
        finding->seen++;
        if (c->refreshes != due)
            oct_finding_wrong(finding, "'%s' was refreshed %lld times %s step %lld", target->weight,
                              (long long)c->refreshes, when, (long long)step);
        /* HiF8 tells of every expert of this rank. */
        if (c->forward != c->backward || c->forward < c->refreshes ||
            (!target->grouped && c->forward != c->refreshes) || c->forward > due * target->experts)
            oct_finding_wrong(finding, "'%s' was quantized %lld and %lld times %s step %lld",
                              target->weight, (long long)c->forward, (long long)c->backward, when,
                              (long long)step);
        *c = (refresh_counts){0};
    }
}

static bool any(const oct_verify_facts *facts, const refresh_counts *counts)
{
    for (int64_t t = 0; t < facts->target_count; t++)
        if (counts[t].refreshes || counts[t].forward || counts[t].backward)
            return true;
    return false;
}

static void count(const oct_verify_facts *facts, const oct_trace_event *f, refresh_counts *counts,
                  oct_finding *finding)
{
    const int64_t t = oct_verify_weight_of(facts, f->fqn);
    if (t < 0) {
        oct_finding_wrong(finding, "'%s' was refreshed, it is no weight of a target", f->fqn);
        return;
    }
    counts[t].refreshes += f->kind == OCT_TRACE_REFRESH;
    counts[t].forward += same(f->role, "weight_fwd");
    counts[t].backward += same(f->role, "weight_bwd");
}

void oct_judge_refresh(const oct_verify_facts *facts, const oct_verify_trace *trace,
                       oct_finding *finding)
{
    refresh_counts *counts = calloc((size_t)facts->target_count + 1, sizeof *counts);
    int64_t step = facts->first_step, micro = -1, steps = 0;
    bool began = false;
    if (!counts || facts->format == OCT_VERIFY_BF16) {
        for (int64_t i = 0; i < trace->count; i++)
            if (is(&trace->events[i], OCT_TRACE_REFRESH))
                oct_finding_wrong(finding, "'%s' was refreshed", trace->events[i].fields.fqn);
        free(counts);
        return;
    }
    for (int64_t i = 0; i < trace->count; i++) {
        const oct_verify_event *event = &trace->events[i];
        const oct_trace_event *f = &event->fields;
        if (f->kind == OCT_TRACE_REFRESH || (f->kind == OCT_TRACE_QUANTIZE && is_weight_role(f))) {
            count(facts, f, counts, finding);
            continue;
        }
        if (f->kind != OCT_TRACE_MATMUL)
            continue;
        if (!began) { /* what quantized the first weights, and again those that were restored */
            end_refreshes(facts, counts, facts->resumed ? 2 : 1, "before", event->step, finding);
            began = true;
        } else if (event->step != step) {
            end_refreshes(facts, counts, 1, "after", step, finding);
            steps++;
        } else if (any(facts, counts)) {
            oct_finding_wrong(finding,
                              "weights were refreshed within step %lld, before the products of "
                              "micro-step %lld end",
                              (long long)step, (long long)micro);
            memset(counts, 0, (size_t)facts->target_count * sizeof *counts);
        }
        step = event->step;
        micro = event->micro_step;
    }
    if (began) {
        end_refreshes(facts, counts, 1, "after", step, finding);
        steps++;
    }
    if (steps != facts->steps)
        oct_finding_wrong(finding, "refreshes after %lld steps, %lld are required",
                          (long long)steps, (long long)facts->steps);
    free(counts);
}

/* --- duplicates ------------------------------------------------------------------------------ */

/* What makes two events the same work: strings are equal if their pointers are. */
typedef struct work {
    const char *fqn, *role, *phase, *orientation;
    int kind;
    int64_t group, order;
} work;

static int compare_work(const void *left, const void *right)
{
    const work *a = left, *b = right;
    const uintptr_t keys[2][6] = {
        {(uintptr_t)a->fqn, (uintptr_t)a->role, (uintptr_t)a->phase, (uintptr_t)a->orientation,
         (uintptr_t)a->kind, (uintptr_t)a->group},
        {(uintptr_t)b->fqn, (uintptr_t)b->role, (uintptr_t)b->phase, (uintptr_t)b->orientation,
         (uintptr_t)b->kind, (uintptr_t)b->group},
    };
    for (int i = 0; i < 6; i++)
        if (keys[0][i] != keys[1][i])
            return keys[0][i] < keys[1][i] ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static bool is_work(const oct_verify_facts *facts, const oct_trace_event *f)
{
    if (f->kind == OCT_TRACE_QUANTIZE)
        return !is_weight_role(f) && oct_verify_target_of(facts, f->fqn) >= 0;
    return f->kind == OCT_TRACE_GATHER || f->kind == OCT_TRACE_REDUCE;
}

/* One micro-batch. */
static void judge_window(const oct_verify_facts *facts, work *list, int64_t n,
                         const oct_verify_event *at, oct_finding *finding)
{
    qsort(list, (size_t)n, sizeof *list, compare_work);
    for (int64_t i = 0, j = 0; i < n; i = j) {
        for (j = i + 1; j < n; j++) {
            work as_first = list[j];
            as_first.order = list[i].order;
            if (compare_work(&list[i], &as_first) != 0)
                break;
        }
        /* Recompute runs the forward pass once more, and with it the quantization of inputs. */
        const int64_t due = facts->recompute && same(list[i].role, "input_fwd") ? 2 : 1;
        finding->seen++;
        if (j - i > due)
            oct_finding_wrong(finding, "'%s': %s %s%s %lld times in step %lld, micro-step %lld",
                              list[i].fqn, oct_trace_kind_name((oct_trace_kind)list[i].kind),
                              list[i].role, list[i].phase, (long long)(j - i), (long long)at->step,
                              (long long)at->micro_step);
    }
}

void oct_judge_duplicates(const oct_verify_facts *facts, const oct_verify_trace *trace,
                          oct_finding *finding)
{
    work *list = calloc((size_t)trace->count + 1, sizeof *list);
    const oct_verify_event *at = NULL;
    int64_t n = 0;
    if (!list) {
        oct_finding_wrong(finding, "no memory");
        return;
    }
    for (int64_t i = 0; i < trace->count; i++) {
        const oct_verify_event *event = &trace->events[i];
        const oct_trace_event *f = &event->fields;
        if (!is_work(facts, f))
            continue;
        if (at && (at->step != event->step || at->micro_step != event->micro_step)) {
            judge_window(facts, list, n, at, finding);
            n = 0;
        }
        at = event;
        list[n++] = (work){.fqn = f->fqn,
                           .role = f->role,
                           .phase = f->phase,
                           .orientation = f->orientation,
                           .kind = (int)f->kind,
                           .group = f->group,
                           .order = i};
    }
    if (at)
        judge_window(facts, list, n, at, finding);
    free(list);
}
