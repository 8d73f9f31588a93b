/* Replacement, products and their boundary. */
#include <stdlib.h>
#include <string.h>

#include "verify/judge.h"

static const char *const phases[3] = {"fprop", "dgrad", "wgrad"};
static const char *const formats[OCT_VERIFY_FORMAT_COUNT] = {"bf16", "mxfp8_e4m3", "hif8"};
static const char *const scale_dtypes[OCT_VERIFY_FORMAT_COUNT] = {"", "float8_e8m0fnu", "float32"};

/* By kind (dense, grouped) and phase: how the product reads its right side. */
static const char *const layouts[2][3] = {{"NT", "NN", "TN"}, {"NN", "NT", "TN"}};
static const char *const orientations[2][3] = {{"row", "col", "col"}, {"col", "row", "col"}};

static bool is(const oct_verify_event *event, oct_trace_kind kind)
{
    return event->fields.kind == kind;
}

static bool same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* --- replacement ----------------------------------------------------------------------------- */

static bool is_module(const oct_verify_facts *facts, const char *fqn, bool *grouped)
{
    for (int64_t i = 0; i < facts->target_count; i++)
        if (same(facts->targets[i].module, fqn)) {
            *grouped = facts->targets[i].grouped;
            return true;
        }
    return false;
}

static void check_replaced(const oct_verify_facts *facts, const oct_verify_trace *trace, int64_t at,
                           oct_finding *finding)
{
    const oct_trace_event *f = &trace->events[at].fields;
    bool grouped = false;
    finding->seen++;
    if (facts->format == OCT_VERIFY_BF16 || !is_module(facts, f->fqn, &grouped)) {
        oct_finding_wrong(finding, "'%s' was replaced, it is no target", f->fqn);
        return;
    }
    const char *from = strrchr(f->from, '.') ? strrchr(f->from, '.') + 1 : f->from;
    if (!same(from, grouped ? "DeepseekV3Experts" : "Linear") ||
        !same(f->to, grouped ? "DeepseekV3LowPrecisionExperts" : "LowPrecisionLinear"))
        oct_finding_wrong(finding, "'%s': %s became %s", f->fqn, f->from, f->to);
    for (int64_t i = 0; i < at; i++)
        if (is(&trace->events[i], OCT_TRACE_REPLACE) && same(trace->events[i].fields.fqn, f->fqn))
            oct_finding_wrong(finding, "'%s' was replaced twice", f->fqn);
}

void oct_judge_replacement(const oct_verify_facts *facts, const oct_verify_trace *trace,
                           oct_finding *finding)
{
    int64_t replaced = 0;
    for (int64_t i = 0; i < trace->count; i++) {
        if (!is(&trace->events[i], OCT_TRACE_REPLACE))
            continue;
        replaced++;
        check_replaced(facts, trace, i, finding);
    }
    const int64_t due =
        facts->format == OCT_VERIFY_BF16 ? 0 : facts->dense_targets + facts->expert_modules;
    if (replaced != due)
        oct_finding_wrong(finding, "%lld modules were replaced, %lld are required",
                          (long long)replaced, (long long)due);
}

/* --- products at targets --------------------------------------------------------------------- */

static int phase_of(const oct_trace_event *f)
{
    for (int p = 0; p < 3; p++)
        if (same(f->phase, phases[p]))
            return p;
    return -1;
}

static void check_product(const oct_verify_facts *facts, const oct_verify_target *target,
                          const oct_verify_event *event, int phase, oct_finding *finding)
{
    const oct_trace_event *f = &event->fields;
    const int kind = target->grouped;
    if (f->grouped != target->grouped)
        oct_finding_wrong(finding, "'%s' %s is %sgrouped", f->fqn, f->phase,
                          f->grouped ? "" : "not ");
    if (!same(f->format, formats[facts->format]) ||
        !same(f->scale_dtype, scale_dtypes[facts->format]))
        oct_finding_wrong(finding, "'%s' %s in step %lld multiplies in %s with scales '%s'", f->fqn,
                          f->phase, (long long)event->step, f->format, f->scale_dtype);
    if (!same(f->layout, layouts[kind][phase]) || !same(f->orientation, orientations[kind][phase]))
        oct_finding_wrong(finding, "'%s' %s has layout %s and reads its right side by %s", f->fqn,
                          f->phase, f->layout, f->orientation);
}

/* Every target has done what a micro-batch asks for. */
static void end_window(const oct_verify_facts *facts, int64_t (*counts)[3],
                       const oct_verify_event *last, oct_finding *finding)
{
    for (int64_t t = 0; t < facts->target_count; t++)
        for (int p = 0; p < 3; p++) {
            const int64_t due = p == 0 && facts->recompute ? 2 : 1;
            if (counts[t][p] != due)
                oct_finding_wrong(finding,
                                  "'%s' has %lld %s products in step %lld, micro-step %lld",
                                  facts->targets[t].fqn, (long long)counts[t][p], phases[p],
                                  (long long)last->step, (long long)last->micro_step);
            counts[t][p] = 0;
        }
}

/* A grouped product whose experts took both kernels has an event of each: block_integer, fma. */
static bool is_second_kernel(const oct_verify_trace *trace, int64_t i)
{
    if (i == 0)
        return false;
    const oct_trace_event *a = &trace->events[i - 1].fields, *b = &trace->events[i].fields;
    return a->kind == OCT_TRACE_MATMUL && b->grouped && same(a->fqn, b->fqn) &&
           same(a->phase, b->phase) && same(a->kernel, "block_integer") && same(b->kernel, "fma");
}

void oct_judge_products(const oct_verify_facts *facts, const oct_verify_trace *trace,
                        oct_finding *finding, int64_t roles[2][3])
{
    int64_t(*counts)[3] = calloc((size_t)facts->target_count + 1, sizeof *counts);
    const oct_verify_event *last = NULL;
    int64_t windows = 0;
    if (!counts) {
        oct_finding_wrong(finding, "no memory");
        return;
    }
    for (int64_t i = 0; i < trace->count; i++) {
        const oct_verify_event *event = &trace->events[i];
        const int phase = phase_of(&event->fields);
        const int64_t t =
            is(event, OCT_TRACE_MATMUL) ? oct_verify_target_of(facts, event->fields.fqn) : -1;
        if (t < 0 || phase < 0 || is_second_kernel(trace, i))
            continue;
        if (last && (last->step != event->step || last->micro_step != event->micro_step)) {
            end_window(facts, counts, last, finding);
            windows++;
        }
        last = event;
        counts[t][phase]++;
        roles[facts->targets[t].grouped][phase]++;
        finding->seen++;
        check_product(facts, &facts->targets[t], event, phase, finding);
    }
    if (last) {
        end_window(facts, counts, last, finding);
        windows++;
    }
    if (windows != facts->steps * facts->accumulation)
        oct_finding_wrong(finding, "products in %lld micro-batches, %lld are required",
                          (long long)windows, (long long)(facts->steps * facts->accumulation));
    free(counts);
}

void oct_judge_high_precision(const oct_verify_facts *facts, const oct_verify_trace *trace,
                              oct_finding *finding)
{
    for (int64_t i = 0; i < trace->count; i++) {
        const oct_trace_event *f = &trace->events[i].fields;
        if (!is(&trace->events[i], OCT_TRACE_MATMUL) || oct_verify_target_of(facts, f->fqn) < 0)
            continue;
        finding->seen++;
        if (f->scale_dtype[0] == '\0' || same(f->format, "bf16") || same(f->format, "float32"))
            oct_finding_wrong(finding, "'%s' %s in step %lld is a %s product", f->fqn, f->phase,
                              (long long)trace->events[i].step, f->format);
    }
}

/* --- the boundary ---------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    const size_t a = strlen(text), b = strlen(end);
    return a >= b && same(text + a - b, end);
}

/* Head and router: all that multiplies in high precision beside the core of attention, which has no
 * weights and no event. */
static bool stays_high(const char *fqn)
{
    return same(fqn, "lm_head") || ends_with(fqn, ".mlp.gate");
}

void oct_judge_boundary(const oct_verify_facts *facts, const oct_verify_trace *trace,
                        oct_finding *finding)
{
    const bool bf16 = facts->format == OCT_VERIFY_BF16;
    for (int64_t i = 0; i < trace->count; i++) {
        const oct_trace_event *f = &trace->events[i].fields;
        bool grouped = false; /* BF16 experts multiply under the name of their module */
        const bool target = oct_verify_target_of(facts, f->fqn) >= 0 ||
                            (bf16 && is_module(facts, f->fqn, &grouped));
        const bool weight = oct_verify_weight_of(facts, f->fqn) >= 0;
        if (is(&trace->events[i], OCT_TRACE_QUANTIZE) || is(&trace->events[i], OCT_TRACE_REFRESH)) {
            if (bf16 || !(target || weight))
                oct_finding_wrong(finding, "'%s' is quantized", f->fqn);
            continue;
        }
        if (!is(&trace->events[i], OCT_TRACE_MATMUL) || (target && !bf16))
            continue;
        finding->seen++;
        if (f->scale_dtype[0] != '\0')
            oct_finding_wrong(finding, "'%s' %s multiplies in %s", f->fqn, f->phase, f->format);
        if (!stays_high(f->fqn) && !(bf16 && target))
            oct_finding_wrong(finding, "'%s' %s is a %s product, it is not known", f->fqn, f->phase,
                              f->format);
    }
}
