/* Runs the judges over all ranks of a run. */
#include "verify/judge.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void oct_finding_wrong(oct_finding *finding, const char *text, ...)
{
    if (finding->wrong++ > 0)
        return;
    va_list args;
    va_start(args, text);
    (void)vsnprintf(finding->first, sizeof finding->first, text, args);
    va_end(args);
}

bool oct_finding_check(json_t *result, const oct_verify_facts *facts, const oct_finding *finding,
                       const char *what, const char *required, bool may_be_empty)
{
    char text[OCT_VERIFY_NAME_BYTES + 128];
    (void)snprintf(text, sizeof text, "%s: %s", facts->name, what);
    return oct_verify_check(result, finding->wrong == 0 && (may_be_empty || finding->seen > 0),
                            text, required, "%lld seen, %lld wrong%s%s", (long long)finding->seen,
                            (long long)finding->wrong, finding->wrong ? ", first: " : "",
                            finding->first);
}

static void check_roles(json_t *result, const oct_verify_facts *facts, int64_t roles[2][3])
{
    char what[OCT_VERIFY_NAME_BYTES + 64];
    bool all = true;
    for (int k = 0; k < 2; k++)
        for (int p = 0; p < 3; p++)
            all = all && roles[k][p] > 0;
    (void)snprintf(what, sizeof what, "%s: dense and grouped products of all phases", facts->name);
    (void)oct_verify_check(result, all, what,
                           "{dense, grouped} x {fprop, dgrad, wgrad}, all six executed",
                           "dense %lld, %lld, %lld, grouped %lld, %lld, %lld",
                           (long long)roles[0][0], (long long)roles[0][1], (long long)roles[0][2],
                           (long long)roles[1][0], (long long)roles[1][1], (long long)roles[1][2]);
}

static void judge_products(const oct_verify_facts *facts, const oct_verify_trace *const *traces,
                           json_t *result)
{
    oct_finding products = {0}, high = {0};
    int64_t roles[2][3] = {{0}};
    for (int r = 0; r < facts->ranks; r++) {
        oct_judge_products(facts, traces[r], &products, roles);
        oct_judge_high_precision(facts, traces[r], &high);
    }
    (void)oct_finding_check(result, facts, &products, "products at targets",
                            "each phase once a micro-batch (fprop twice under recompute), in the "
                            "format of the run, layout and orientation of its kind",
                            false);
    (void)oct_finding_check(result, facts, &high, "no high-precision fallback",
                            "no BF16 or FP32 product at a target", false);
    check_roles(result, facts, roles);
}

static void judge_gathers(const oct_verify_facts *facts, const oct_verify_trace *const *traces,
                          json_t *result)
{
    oct_finding table = {0}, schema = {0}, scales = {0};
    const bool none = facts->ranks == 1;
    for (int r = 0; r < facts->ranks; r++)
        oct_judge_gather_table(facts, traces[r], &table);
    oct_judge_gather_schema(facts, traces, &schema);
    (void)oct_finding_check(result, facts, &table, "tensors that are gathered",
                            "table 9.1 for phase, kind and reshard_after_forward, each once a "
                            "micro-batch; replicated weights never",
                            none);
    (void)oct_finding_check(result, facts, &schema, "post matches pre",
                            "all ranks gather the same tensors in the same order; the whole is the "
                            "ranks' parts, in dtype and shape",
                            none);
    if (facts->format != OCT_VERIFY_HIF8)
        return;
    oct_judge_gathered_scales(facts, traces, &scales);
    (void)oct_finding_check(result, facts, &scales, "gathered scales",
                            "dense: one and the same from every rank; grouped: those of the ranks' "
                            "experts in order; both the ones of the last refresh",
                            none);
}

typedef void (*judge_fn)(const oct_verify_facts *facts, const oct_verify_trace *trace,
                         oct_finding *finding);

static void judge_each(const oct_verify_facts *facts, const oct_verify_trace *const *traces,
                       judge_fn judge, const char *what, const char *required, json_t *result)
{
    oct_finding finding = {0};
    for (int r = 0; r < facts->ranks; r++)
        judge(facts, traces[r], &finding);
    /* Nothing is replaced, scaled or refreshed in BF16. */
    (void)oct_finding_check(result, facts, &finding, what, required,
                            facts->format == OCT_VERIFY_BF16);
}

static void judge(const oct_verify_facts *facts, const oct_verify_trace *const *traces,
                  unsigned judges, json_t *result)
{
    if (judges & OCT_JUDGE_REPLACEMENT)
        judge_each(facts, traces, oct_judge_replacement, "replacement",
                   "every target once, by its low-precision type, nothing else (BF16: nothing)",
                   result);
    if ((judges & OCT_JUDGE_PRODUCTS) && facts->format != OCT_VERIFY_BF16)
        judge_products(facts, traces, result);
    if (judges & OCT_JUDGE_BOUNDARY)
        judge_each(facts, traces, oct_judge_boundary, "boundary",
                   "no 8-bit product or quantization outside the targets; high precision only at "
                   "the head and the routers (BF16: anywhere)",
                   result);
    if (judges & OCT_JUDGE_SCALES)
        judge_each(facts, traces, oct_judge_scales, "scales",
                   "MXFP8: E4M3 with E8M0; HiF8: FP32 amax/15 of inputs and weights, amax/224 of "
                   "gradients, finite and positive",
                   result);
    if (judges & OCT_JUDGE_REFRESH)
        judge_each(facts, traces, oct_judge_refresh, "refresh of weights",
                   "each once before the first product (and once from a checkpoint) and once after "
                   "each step, never between",
                   result);
    if (judges & OCT_JUDGE_DUPLICATES)
        judge_each(facts, traces, oct_judge_duplicates, "no work twice",
                   "an operand is quantized, a parameter gathered, a gradient reduced once",
                   result);
    if (judges & OCT_JUDGE_GATHERS)
        judge_gathers(facts, traces, result);
}

oct_status oct_judge_run(const oct_verify_run *run, unsigned judges, json_t *result, oct_err *err)
{
    oct_arena arena;
    oct_verify_facts facts;
    oct_arena_init(&arena, "verify");
    oct_status status = oct_verify_facts_of(run, &arena, &facts, err);
    for (int r = 0; r < run->ranks && status == OCT_OK; r++) {
        const oct_verify_trace *trace = NULL;
        status = oct_verify_run_trace(run, r, &trace, err);
    }
    if (status == OCT_OK) {
        const oct_verify_trace **traces = calloc((size_t)run->ranks, sizeof *traces);
        for (int r = 0; traces && r < run->ranks; r++)
            traces[r] = run->traces[r];
        if (traces)
            judge(&facts, traces, judges, result);
        else
            status = OCT_FAIL(err, OCT_E_NOMEM, "no memory to judge '%s'", run->name);
        free(traces);
    }
    oct_arena_release(&arena);
    return status;
}
