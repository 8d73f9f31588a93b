/* Gathers: what each one brings, its schema over all ranks, the scales that came with it. */
#include <stdlib.h>
#include <string.h>

#include "verify/judge.h"

static bool same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* --- table 9.1 ------------------------------------------------------------------------------- */

static bool has(const oct_verify_event *event, const char *name)
{
    for (int i = 0; i < event->physical_count; i++)
        if (same(event->physical[i].name, name))
            return true;
    return false;
}

/* The tensors that the design document's table 9.1 asks for. */
static bool has_tensors(const oct_verify_facts *facts, const oct_verify_target *target,
                        const oct_verify_event *event)
{
    if (facts->format == OCT_VERIFY_BF16)
        return event->physical_count == 1 && has(event, "value");
    if (facts->format == OCT_VERIFY_HIF8)
        return event->physical_count == 2 && has(event, "data") && has(event, "scale");
    const bool both = !facts->reshard || same(event->fields.phase, "backward");
    const bool row = both || !target->grouped, col = both || target->grouped;
    return event->physical_count == 2 * (row + col) && has(event, "row_data") == row &&
           has(event, "row_scale") == row && has(event, "col_data") == col &&
           has(event, "col_scale") == col;
}

static const char *dtype_of(const oct_verify_facts *facts, const char *name)
{
    static const char *const data[] = {"bfloat16", "float8_e4m3fn", "hifloat8"};
    static const char *const scale[] = {"", "float8_e8m0fnu", "float32"};
    return strstr(name, "scale") ? scale[facts->format] : data[facts->format];
}

/* The tensors of the whole weight have the shape that it is rebuilt in. */
static bool is_whole(const oct_verify_facts *facts, const oct_verify_target *target,
                     const oct_verify_physical *p)
{
    const int d = target->grouped;
    if (target->grouped && p->whole[0] != target->experts)
        return false;
    if (!strstr(p->name, "scale"))
        return p->ndim == d + 2 && p->whole[d] == target->rows && p->whole[d + 1] == target->cols;
    if (facts->format == OCT_VERIFY_HIF8)
        return p->ndim == 1 && p->whole[0] == (target->grouped ? target->experts : facts->ranks);
    return p->ndim == d + 3 && p->whole[d + 2] == 2; /* pairs of E8M0 */
}

static void check_gather(const oct_verify_facts *facts, const oct_verify_target *target,
                         const oct_verify_event *event, oct_finding *finding)
{
    const char *fqn = target->weight, *phase = event->fields.phase;
    if (!has_tensors(facts, target, event))
        oct_finding_wrong(finding, "'%s' %s brings %d tensors, first '%s', against table 9.1", fqn,
                          phase, event->physical_count, event->fields.tensors[0]);
    for (int i = 0; i < event->physical_count; i++) {
        const oct_verify_physical *p = &event->physical[i];
        if (!same(p->dtype, dtype_of(facts, p->name)))
            oct_finding_wrong(finding, "'%s' brings '%s' as %s", fqn, p->name, p->dtype);
        if (!is_whole(facts, target, p))
            oct_finding_wrong(finding, "'%s' brings '%s' as [%lld, %lld, ..]", fqn, p->name,
                              (long long)p->whole[0], (long long)p->whole[1]);
    }
}

static void end_window(const oct_verify_facts *facts, int64_t (*counts)[2],
                       const oct_verify_event *at, oct_finding *finding)
{
    for (int64_t t = 0; t < facts->target_count; t++) {
        const bool none = oct_verify_is_replicated(facts, &facts->targets[t]) || facts->ranks == 1;
        const int64_t due[2] = {!none, !none && facts->reshard};
        for (int p = 0; p < 2; p++)
            if (counts[t][p] != due[p])
                oct_finding_wrong(finding,
                                  "'%s' is gathered %lld times for the %s of step %lld, %lld "
                                  "is due",
                                  facts->targets[t].weight, (long long)counts[t][p],
                                  p ? "backward" : "forward", (long long)at->step,
                                  (long long)due[p]);
        counts[t][0] = counts[t][1] = 0;
    }
}

void oct_judge_gather_table(const oct_verify_facts *facts, const oct_verify_trace *trace,
                            oct_finding *finding)
{
    int64_t(*counts)[2] = calloc((size_t)facts->target_count + 1, sizeof *counts);
    const oct_verify_event *at = NULL;
    if (!counts) {
        oct_finding_wrong(finding, "no memory");
        return;
    }
    for (int64_t i = 0; i < trace->count; i++) {
        const oct_verify_event *event = &trace->events[i];
        const oct_trace_kind kind = event->fields.kind;
        if (kind != OCT_TRACE_GATHER && kind != OCT_TRACE_MATMUL)
            continue;
        if (at && (at->step != event->step || at->micro_step != event->micro_step))
            end_window(facts, counts, at, finding);
        at = event;
        const int64_t t =
            kind == OCT_TRACE_GATHER ? oct_verify_weight_of(facts, event->fields.fqn) : -1;
        if (t < 0)
            continue;
        finding->seen++;
        counts[t][same(event->fields.phase, "backward")]++;
        check_gather(facts, &facts->targets[t], event, finding);
    }
    if (at)
        end_window(facts, counts, at, finding);
    free(counts);
}

/* --- over all ranks -------------------------------------------------------------------------- */

/* The next gather at or after *i; NULL at the end. */
static const oct_verify_event *next_gather(const oct_verify_trace *trace, int64_t *i)
{
    for (; *i < trace->count; (*i)++)
        if (trace->events[*i].fields.kind == OCT_TRACE_GATHER)
            return &trace->events[(*i)++];
    return NULL;
}

static bool same_gather(const oct_verify_event *a, const oct_verify_event *b)
{
    bool equal = a->step == b->step && a->micro_step == b->micro_step &&
                 same(a->fields.fqn, b->fields.fqn) && same(a->fields.phase, b->fields.phase) &&
                 a->physical_count == b->physical_count;
    for (int i = 0; equal && i < a->physical_count; i++) {
        const oct_verify_physical *p = &a->physical[i], *q = &b->physical[i];
        equal = same(p->name, q->name) && same(p->dtype, q->dtype) && p->ndim == q->ndim &&
                memcmp(p->whole, q->whole, sizeof p->whole) == 0 &&
                memcmp(p->shard + 1, q->shard + 1, sizeof p->shard - sizeof p->shard[0]) == 0;
    }
    return equal;
}

void oct_judge_gather_schema(const oct_verify_facts *facts, const oct_verify_trace *const *traces,
                             oct_finding *finding)
{
    int64_t *at = calloc((size_t)facts->ranks, sizeof *at);
    while (at) {
        int64_t rows[OCT_VERIFY_MAX_PHYSICAL] = {0};
        const oct_verify_event *first = NULL;
        for (int r = 0; r < facts->ranks; r++) {
            const oct_verify_event *event = next_gather(traces[r], &at[r]);
            if (r == 0)
                first = event;
            if (!first != !event || (first && !same_gather(first, event))) {
                oct_finding_wrong(finding, "rank %d gathers '%s' while rank 0 gathers '%s'", r,
                                  event ? event->fields.fqn : "nothing",
                                  first ? first->fields.fqn : "nothing");
                free(at);
                return;
            }
            for (int i = 0; event && i < event->physical_count; i++)
                rows[i] += event->physical[i].shard[0];
        }
        if (!first)
            break;
        finding->seen++;
        for (int i = 0; i < first->physical_count; i++) {
            const oct_verify_physical *p = &first->physical[i];
            if (rows[i] != p->whole[0] ||
                memcmp(p->shard + 1, p->whole + 1, sizeof p->whole - sizeof p->whole[0]) != 0)
                oct_finding_wrong(
                    finding, "'%s' of '%s' has %lld rows in parts and %lld put together", p->name,
                    first->fields.fqn, (long long)rows[i], (long long)p->whole[0]);
        }
    }
    free(at);
}

/* --- HiF8 scales ----------------------------------------------------------------------------- */

/* The scales that one rank's refreshes gave a weight, as far as its trace was read. */
typedef struct last_scales {
    float *values; /* of this rank's experts, or one */
    int64_t count, room;
} last_scales;

static bool keep(last_scales *last, float scale)
{
    if (last->count == last->room) {
        const int64_t room = last->room ? 2 * last->room : 4;
        float *values = realloc(last->values, (size_t)room * sizeof *values);
        if (!values)
            return false;
        last->values = values;
        last->room = room;
    }
    last->values[last->count++] = scale;
    return true;
}

/* Reads a rank's trace up to and over its next gather. */
static const oct_verify_event *advance(const oct_verify_facts *facts, const oct_verify_trace *trace,
                                       int64_t *i, last_scales *last)
{
    for (; *i < trace->count; (*i)++) {
        const oct_trace_event *f = &trace->events[*i].fields;
        if (f->kind == OCT_TRACE_GATHER)
            return &trace->events[(*i)++];
        const int64_t t = oct_verify_weight_of(facts, f->fqn);
        if (t < 0)
            continue;
        if (f->kind == OCT_TRACE_REFRESH)
            last[t].count = 0;
        else if (f->kind == OCT_TRACE_QUANTIZE && same(f->role, "weight_fwd") &&
                 !keep(&last[t], f->scale))
            return NULL;
    }
    return NULL;
}

static void check_scales(const oct_verify_facts *facts, int64_t t, const oct_verify_event *event,
                         const last_scales *last, oct_finding *finding)
{
    const oct_verify_target *target = &facts->targets[t];
    const oct_verify_physical *p = &event->physical[event->physical_count - 1];
    int64_t at = 0;
    finding->seen++;
    for (int r = 0; r < facts->ranks; r++) {
        const last_scales *own = &last[(int64_t)r * facts->target_count + t];
        for (int64_t i = 0; i < own->count; i++, at++)
            if (at < p->value_count && p->values[at] != own->values[i])
                oct_finding_wrong(
                    finding, "'%s' in step %lld: scale %lld is %.9g, rank %d refreshed to %.9g",
                    target->weight, (long long)event->step, (long long)at, (double)p->values[at], r,
                    (double)own->values[i]);
    }
    const int64_t due = target->grouped ? target->experts : facts->ranks;
    if (at != due || p->value_count != due)
        oct_finding_wrong(finding, "'%s' brings %lld scales of %lld refreshed, %lld are due",
                          target->weight, (long long)p->value_count, (long long)at, (long long)due);
    for (int64_t i = 1; !target->grouped && i < p->value_count; i++)
        if (p->values[i] != p->values[0])
            oct_finding_wrong(finding, "'%s' in step %lld: scale %.9g of rank 0, %.9g of rank %lld",
                              target->weight, (long long)event->step, (double)p->values[0],
                              (double)p->values[i], (long long)i);
}

void oct_judge_gathered_scales(const oct_verify_facts *facts, const oct_verify_trace *const *traces,
                               oct_finding *finding)
{
    const int64_t n = facts->target_count, all = n * facts->ranks;
    int64_t *at = calloc((size_t)facts->ranks, sizeof *at);
    last_scales *last = calloc((size_t)all + 1, sizeof *last);
    for (bool more = at && last; more;) {
        const oct_verify_event *event = NULL;
        for (int r = 0; r < facts->ranks; r++)
            event = advance(facts, traces[r], &at[r], &last[r * n]);
        more = event != NULL;
        const int64_t t = event ? oct_verify_weight_of(facts, event->fields.fqn) : -1;
        if (t >= 0 && event->physical_count > 0)
            check_scales(facts, t, event, last, finding);
    }
    for (int64_t i = 0; last && i < all; i++)
        free(last[i].values);
    free(last);
    free(at);
}
