/* Q3-05 .. Q3-09: sharding, accumulation, recompute, resume. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/cases.h"
#include "verify/setting.h"
#include "verify/summary.h"

/* A table of rank 0's trace as evidence: CASE/PREFIX-RUN.json. */
static oct_status add_table(oct_verify *v, json_t *result, const oct_verify_run *run,
                            const char *prefix, json_t *(*table)(const oct_verify_trace *),
                            oct_err *err)
{
    char name[OCT_VERIFY_NAME_BYTES + 32];
    const oct_verify_trace *trace = NULL;
    OCT_TRY(oct_verify_run_trace(run, 0, &trace, err));
    (void)snprintf(name, sizeof name, "%s-%s.json", prefix, run->name);
    json_t *value = table(trace);
    const oct_status status = oct_verify_evidence_json(v, result, name, value, err);
    json_decref(value);
    return status;
}

/* --- Q3-05, Q3-06 ---------------------------------------------------------------------------- */

static oct_status both_ways(oct_verify *v, json_t *result, oct_verify_format format,
                            const oct_verify_run *runs[2], bool *ok, oct_err *err)
{
    *ok = true;
    for (int keeps = 0; keeps < 2; keeps++) {
        oct_verify_setting setting = oct_verify_short_setting(v, format);
        setting.keeps = keeps;
        bool trained = false;
        OCT_TRY(oct_verify_judge_setting(v, result, &setting, OCT_JUDGE_GATHERS | OCT_JUDGE_REFRESH,
                                         &runs[keeps], &trained, err));
        *ok = *ok && trained;
        if (trained)
            OCT_TRY(add_table(v, result, runs[keeps], "gathers", oct_summary_gathers, err));
        oct_verify_forget(runs[keeps]);
    }
    if (*ok)
        (void)oct_verify_check_same_records(result, "reshard_after_forward changes no bit", runs[0],
                                            runs[1]);
    return OCT_OK;
}

oct_status oct_verify_q3_05(oct_verify *v, json_t *result, oct_err *err)
{
    const oct_verify_run *runs[2];
    bool ok = false;
    return both_ways(v, result, OCT_VERIFY_MXFP8, runs, &ok, err);
}

/* Scales of weights by refresh, those of all ranks one after another: a dense weight's once. */
typedef struct scale_list {
    float *values;
    int64_t count;
} scale_list;

static scale_list scales_of(const oct_verify_run *run, const char *weight, bool grouped)
{
    scale_list list = {0};
    int64_t rooms = 0;
    for (int r = 0; r < run->ranks; r++)
        rooms += run->traces[r]->count;
    list.values = calloc((size_t)rooms + 1, sizeof(float));
    for (int64_t refresh = 0; list.values; refresh++) {
        const int64_t before = list.count;
        for (int r = 0; r < (grouped ? run->ranks : 1); r++) {
            int64_t seen = -1;
            for (int64_t i = 0; i < run->traces[r]->count; i++) {
                const oct_trace_event *f = &run->traces[r]->events[i].fields;
                if (strcmp(f->fqn, weight) != 0)
                    continue;
                seen += f->kind == OCT_TRACE_REFRESH;
                if (seen == refresh && strcmp(f->role, "weight_fwd") == 0)
                    list.values[list.count++] = f->scale;
            }
        }
        if (list.count == before)
            break;
    }
    return list;
}

/* The ranks' amax is that of the whole weight: one rank alone, with the same samples in each step,
 * finds the same scales. */
static oct_status check_one_rank(oct_verify *v, json_t *result, const oct_verify_run *run,
                                 oct_err *err)
{
    oct_verify_setting alone = oct_verify_short_setting(v, OCT_VERIFY_HIF8);
    alone.ranks = 1;
    alone.accumulation = v->ranks;
    const oct_verify_run *one = NULL;
    const oct_verify_trace *trace = NULL;
    oct_arena arena;
    oct_verify_facts facts;
    oct_finding finding = {0};
    bool ok = false;
    OCT_TRY(oct_verify_judge_setting(v, result, &alone, 0, &one, &ok, err));
    if (!ok)
        return OCT_OK;
    OCT_TRY(oct_verify_run_trace(one, 0, &trace, err));
    for (int r = 0; r < run->ranks; r++)
        OCT_TRY(oct_verify_run_trace(run, r, &trace, err));
    oct_arena_init(&arena, "verify");
    const oct_status status = oct_verify_facts_of(run, &arena, &facts, err);
    for (int64_t t = 0; status == OCT_OK && t < facts.target_count; t++) {
        const oct_verify_target *target = &facts.targets[t];
        const scale_list a = scales_of(one, target->weight, target->grouped);
        const scale_list b = scales_of(run, target->weight, target->grouped);
        const int64_t due = (facts.steps + 1) * target->experts;
        finding.seen += a.count;
        if (a.count != b.count || a.count != due)
            oct_finding_wrong(
                &finding, "'%s' has %lld scales of one rank, %lld of %d, %lld are due",
                target->weight, (long long)a.count, (long long)b.count, run->ranks, (long long)due);
        for (int64_t i = 0; i < a.count && i < b.count; i++)
            if (a.values[i] != b.values[i])
                oct_finding_wrong(&finding, "'%s': scale %lld is %.9g of one rank and %.9g of %d",
                                  target->weight, (long long)i, (double)a.values[i],
                                  (double)b.values[i], run->ranks);
        free(a.values);
        free(b.values);
    }
    if (status == OCT_OK)
        (void)oct_finding_check(result, &facts, &finding, "amax over ranks",
                                "scales of every weight and expert after every step as one rank "
                                "finds them",
                                false);
    oct_arena_release(&arena);
    return status;
}

oct_status oct_verify_q3_06(oct_verify *v, json_t *result, oct_err *err)
{
    const oct_verify_run *runs[2];
    bool ok = false;
    OCT_TRY(both_ways(v, result, OCT_VERIFY_HIF8, runs, &ok, err));
    return ok ? check_one_rank(v, result, runs[0], err) : OCT_OK;
}

/* --- Q3-07, Q3-08 ---------------------------------------------------------------------------- */

/* Quick: the 8-bit formats alone, BF16 has nothing to refresh. */
static int first_format(const oct_verify *v)
{
    return v->quick ? OCT_VERIFY_MXFP8 : OCT_VERIFY_BF16;
}

/* What the records count: every low-precision weight once a step. */
static void check_refreshed(json_t *result, const oct_verify_run *run, int64_t due)
{
    char what[OCT_VERIFY_NAME_BYTES + 64];
    int64_t wrong = 0;
    const size_t rows = json_array_size(run->metrics);
    for (size_t i = 0; i < rows; i++)
        wrong += json_integer_value(
                     json_object_get(json_array_get(run->metrics, i), "refreshed_weights")) != due;
    (void)snprintf(what, sizeof what, "%s: refreshed_weights", run->name);
    (void)oct_verify_check(
        result, rows > 0 && wrong == 0, what, "the number of low-precision weights in every step",
        "%zu steps, %lld with another number than %lld", rows, (long long)wrong, (long long)due);
}

static oct_status count_refreshes(json_t *result, const oct_verify_run *run, oct_err *err)
{
    oct_arena arena;
    oct_verify_facts facts;
    oct_arena_init(&arena, "verify");
    const oct_status status = oct_verify_facts_of(run, &arena, &facts, err);
    if (status == OCT_OK)
        check_refreshed(result, run, run->format == OCT_VERIFY_BF16 ? 0 : facts.target_count);
    oct_arena_release(&arena);
    return status;
}

oct_status oct_verify_q3_07(oct_verify *v, json_t *result, oct_err *err)
{
    for (int f = first_format(v); f < OCT_VERIFY_FORMAT_COUNT; f++) {
        oct_verify_setting setting = oct_verify_short_setting(v, (oct_verify_format)f);
        setting.accumulation = v->quick ? 2 : 3;
        const oct_verify_run *run = NULL;
        bool ok = false;
        OCT_TRY(oct_verify_judge_setting(
            v, result, &setting, OCT_JUDGE_REFRESH | OCT_JUDGE_PRODUCTS | OCT_JUDGE_DUPLICATES,
            &run, &ok, err));
        if (!ok)
            continue;
        OCT_TRY(count_refreshes(result, run, err));
        OCT_TRY(add_table(v, result, run, "counts", oct_summary_counts, err));
        oct_verify_forget(run);
    }
    return OCT_OK;
}

oct_status oct_verify_q3_08(oct_verify *v, json_t *result, oct_err *err)
{
    for (int f = first_format(v); f < OCT_VERIFY_FORMAT_COUNT; f++) {
        const oct_verify_run *runs[2];
        bool ok[2];
        for (int recompute = 0; recompute < 2; recompute++) {
            oct_verify_setting setting = oct_verify_short_setting(v, (oct_verify_format)f);
            setting.recompute = recompute;
            OCT_TRY(oct_verify_judge_setting(v, result, &setting, recompute ? OCT_JUDGE_ALL : 0,
                                             &runs[recompute], &ok[recompute], err));
        }
        if (!ok[0] || !ok[1])
            continue;
        OCT_TRY(count_refreshes(result, runs[1], err));
        (void)oct_verify_check_same_records(result, "recompute changes no bit", runs[0], runs[1]);
        OCT_TRY(add_table(v, result, runs[1], "counts", oct_summary_counts, err));
        oct_verify_forget(runs[1]);
    }
    return OCT_OK;
}

/* --- Q3-09 ----------------------------------------------------------------------------------- */

static oct_status hash_of(oct_verify *v, const oct_verify_run *run, int64_t step, char *line,
                          size_t size, oct_err *err)
{
    char path[OCT_PATH_BYTES + 64], name[OCT_VERIFY_NAME_BYTES + 32];
    (void)snprintf(path, sizeof path, "%s/checkpoints/step-%lld", run->dir, (long long)step);
    (void)snprintf(name, sizeof name, "hash-%s-%lld", run->name, (long long)step);
    OCT_TRY(oct_verify_ask_line(v, name, (const char *[]){"checkpoint", "hash", path, NULL}, line,
                                size, err));
    line[strcspn(line, " ")] = '\0';
    return OCT_OK;
}

/* The whole state at the end: weights, masters, moments, step, position in the data. */
static oct_status check_same_end(oct_verify *v, json_t *result, const oct_verify_run *a,
                                 const oct_verify_run *b, int64_t step, oct_err *err)
{
    char first[256], second[256];
    OCT_TRY(hash_of(v, a, step, first, sizeof first, err));
    OCT_TRY(hash_of(v, b, step, second, sizeof second, err));
    (void)oct_verify_check(
        result, strcmp(first, second) == 0 && first[0], "state after the last step",
        "both checkpoints hold the same bits: weights, FP32 masters and moments, "
        "step, position in the data",
        "step-%lld of %s has hash %s, of %s %s", (long long)step, a->name, first, b->name, second);
    return OCT_OK;
}

static oct_status resume(oct_verify *v, json_t *result, const oct_verify_setting *of, oct_err *err)
{
    const oct_verify_run *run = NULL, *resumed = NULL;
    json_t *plan = NULL;
    bool ok = false;
    OCT_TRY(oct_verify_judge_setting(v, result, of, 0, &run, &ok, err));
    if (!ok)
        return OCT_OK;
    OCT_TRY(
        oct_verify_ask_plan(v, run->format, oct_verify_config(v), run->ranks, NULL, &plan, err));
    const oct_status status = oct_judge_checkpoint(run, of->save_at, plan, result, err);
    json_decref(plan);
    OCT_TRY(status);
    oct_verify_setting again = *of;
    again.resumes = run;
    again.resume_at = of->save_at;
    /* The refresh judge finds that weights are rebuilt once, before the first product. */
    OCT_TRY(oct_verify_judge_setting(v, result, &again, OCT_JUDGE_REFRESH, &resumed, &ok, err));
    if (!ok)
        return OCT_OK;
    const json_t *first = json_array_get(resumed->metrics, 0);
    const json_int_t step = json_integer_value(json_object_get(first, "step"));
    (void)oct_verify_check(result, step == of->save_at + 1, "first resumed step",
                           "its index is N, the number of steps that were completed",
                           "index %lld after %lld steps", (long long)step - 1,
                           (long long)of->save_at);
    (void)oct_verify_check_same_records(result, "resumed as continuous", run, resumed);
    oct_verify_forget(resumed);
    return check_same_end(v, result, run, resumed, of->steps, err);
}

oct_status oct_verify_q3_09(oct_verify *v, json_t *result, oct_err *err)
{
    for (int f = 0; f < OCT_VERIFY_FORMAT_COUNT; f++) {
        const oct_verify_setting main = oct_verify_main_setting(v, (oct_verify_format)f);
        oct_verify_setting accumulated = main;
        accumulated.accumulation = 2;
        if (!v->quick) {
            accumulated.steps = 10;
            accumulated.save_at = 5;
        }
        OCT_TRY(resume(v, result, &main, err));
        if (!v->quick || f == OCT_VERIFY_HIF8)
            OCT_TRY(resume(v, result, &accumulated, err));
    }
    return OCT_OK;
}
