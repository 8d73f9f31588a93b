/* Q3-01 .. Q3-04: each format from end to end, and its boundary. */
#include <stdio.h>
#include <string.h>

#include "verify/cases.h"
#include "verify/setting.h"
#include "verify/summary.h"

static oct_status add_evidence(oct_verify *v, json_t *result, const char *name, json_t *value,
                               oct_err *err)
{
    const oct_status status = oct_verify_evidence_json(v, result, name, value, err);
    json_decref(value);
    return status;
}

/* Every pattern hits what octet plan says, and all of them together every target. */
static oct_status check_hits(oct_verify *v, json_t *result, const oct_verify_run *run, oct_err *err)
{
    json_t *plan = NULL;
    OCT_TRY(
        oct_verify_ask_plan(v, run->format, oct_verify_config(v), run->ranks, NULL, &plan, err));
    const json_t *rules = json_object_get(plan, "rules"),
                 *counts = json_object_get(plan, "replaced");
    json_int_t hits = 0, empty = 0;
    for (size_t i = 0; i < json_array_size(rules); i++) {
        const json_int_t n = json_integer_value(json_object_get(json_array_get(rules, i), "hits"));
        hits += n;
        empty += n == 0;
    }
    const oct_verify_trace *trace = NULL;
    oct_status status = oct_verify_run_trace(run, 0, &trace, err);
    if (status == OCT_OK) {
        json_t *replaced = oct_summary_replaced(trace);
        const json_int_t modules = (json_int_t)json_array_size(replaced);
        const json_int_t due = json_integer_value(json_object_get(counts, "linear")) +
                               json_integer_value(json_object_get(counts, "experts"));
        (void)oct_verify_check(result, hits == modules && due == modules && empty == 0,
                               "hits of the configuration's patterns",
                               "as many as modules were replaced, none without",
                               "%lld hits, %lld planned, %lld replaced, %lld patterns without",
                               (long long)hits, (long long)due, (long long)modules,
                               (long long)empty);
        status = add_evidence(v, result, "replacement.json", replaced, err);
    }
    if (status == OCT_OK)
        status = oct_verify_evidence_json(v, result, "hits.json", rules, err);
    json_decref(plan);
    return status;
}

/* Not frozen from the first step on (17.3.2). */
static void check_moves(json_t *result, const oct_verify_run *run)
{
    const json_t *first = json_object_get(json_array_get(run->metrics, 0), "loss");
    int64_t moved = 0;
    for (size_t i = 1; i < json_array_size(run->metrics); i++)
        moved += !json_equal(first, json_object_get(json_array_get(run->metrics, i), "loss"));
    (void)oct_verify_check(result, moved > 0, "the loss moves", "not the first one in every step",
                           "%lld steps with another loss", (long long)moved);
}

static oct_status resume(oct_verify *v, json_t *result, const oct_verify_setting *of,
                         const oct_verify_run *run, oct_err *err)
{
    const oct_verify_run *resumed = NULL;
    oct_verify_setting setting = *of;
    setting.resumes = run;
    setting.resume_at = of->save_at;
    bool ok = false;
    OCT_TRY(oct_verify_judge_setting(v, result, &setting, OCT_JUDGE_ALL, &resumed, &ok, err));
    return OCT_OK;
}

oct_status oct_verify_q3_01(oct_verify *v, json_t *result, oct_err *err)
{
    const oct_verify_setting setting = oct_verify_main_setting(v, OCT_VERIFY_BF16);
    const oct_verify_run *run = NULL;
    bool ok = false;
    OCT_TRY(oct_verify_judge_setting(v, result, &setting, OCT_JUDGE_ALL, &run, &ok, err));
    if (!ok)
        return OCT_OK;
    json_t *plan = NULL;
    check_moves(result, run);
    OCT_TRY(
        oct_verify_ask_plan(v, run->format, oct_verify_config(v), run->ranks, NULL, &plan, err));
    const oct_status status = oct_judge_checkpoint(run, setting.save_at, plan, result, err);
    json_decref(plan);
    OCT_TRY(status);
    return resume(v, result, &setting, run, err);
}

static oct_status end_to_end(oct_verify *v, json_t *result, oct_verify_format format,
                             const oct_verify_run **run, bool *ok, oct_err *err)
{
    const oct_verify_setting setting = oct_verify_main_setting(v, format);
    OCT_TRY(oct_verify_judge_setting(v, result, &setting, OCT_JUDGE_ALL, run, ok, err));
    if (!*ok)
        return OCT_OK;
    const oct_verify_trace *trace = NULL;
    check_moves(result, *run);
    OCT_TRY(check_hits(v, result, *run, err));
    OCT_TRY(oct_verify_run_trace(*run, 0, &trace, err));
    return add_evidence(v, result, "products.json", oct_summary_products(trace, false), err);
}

oct_status oct_verify_q3_02(oct_verify *v, json_t *result, oct_err *err)
{
    const oct_verify_run *run = NULL;
    bool ok = false;
    return end_to_end(v, result, OCT_VERIFY_MXFP8, &run, &ok, err);
}

oct_status oct_verify_q3_03(oct_verify *v, json_t *result, oct_err *err)
{
    const oct_verify_run *run = NULL;
    const oct_verify_trace *trace = NULL;
    bool ok = false;
    OCT_TRY(end_to_end(v, result, OCT_VERIFY_HIF8, &run, &ok, err));
    if (!ok)
        return OCT_OK;
    OCT_TRY(oct_verify_run_trace(run, 0, &trace, err));
    return add_evidence(v, result, "scales.json", oct_summary_scales(trace), err);
}

/* --- the boundary ---------------------------------------------------------------------------- */

static const struct {
    const char *what, *part;
    bool hit;
} boundary[] = {
    {"dense FFN", ".mlp.gate_proj", true},
    {"shared experts", ".mlp.shared_experts.down_proj", true},
    {"routed experts", ".mlp.experts", true},
    {"MLA projections", ".self_attn.kv_b_proj", true},
    {"embedding", "embed_tokens", false},
    {"head", "lm_head", false},
    {"router", ".mlp.gate", false},
    {"norms", "norm", false},
};

/* true if `part` ends the FQN, so that .mlp.gate is not found in .mlp.gate_proj. */
static bool is_at_end(const char *fqn, const char *part)
{
    const size_t a = strlen(fqn), b = strlen(part);
    return a >= b && strcmp(fqn + a - b, part) == 0;
}

static void check_boundary(json_t *result, const oct_verify_run *run, const json_t *replaced)
{
    char what[OCT_VERIFY_NAME_BYTES + 64];
    for (size_t b = 0; b < sizeof boundary / sizeof boundary[0]; b++) {
        int64_t hits = 0;
        for (size_t i = 0; i < json_array_size(replaced); i++)
            hits +=
                is_at_end(json_string_value(json_object_get(json_array_get(replaced, i), "fqn")),
                          boundary[b].part);
        (void)snprintf(what, sizeof what, "%s: %s", run->name, boundary[b].what);
        (void)oct_verify_check(result, (hits > 0) == boundary[b].hit, what,
                               boundary[b].hit ? "replaced" : "not replaced", "%lld modules hit",
                               (long long)hits);
    }
}

static oct_status boundary_of(oct_verify *v, json_t *result, oct_verify_format format, oct_err *err)
{
    const oct_verify_setting setting = oct_verify_main_setting(v, format);
    const oct_verify_run *run = NULL;
    const oct_verify_trace *trace = NULL;
    char name[64];
    bool ok = false;
    OCT_TRY(oct_verify_judge_setting(v, result, &setting,
                                     OCT_JUDGE_REPLACEMENT | OCT_JUDGE_BOUNDARY, &run, &ok, err));
    if (!ok)
        return OCT_OK;
    OCT_TRY(oct_verify_run_trace(run, 0, &trace, err));
    json_t *replaced = oct_summary_replaced(trace);
    check_boundary(result, run, replaced);
    (void)snprintf(name, sizeof name, "replacement-%s.json", oct_verify_formats[format]);
    OCT_TRY(add_evidence(v, result, name, replaced, err));
    (void)snprintf(name, sizeof name, "high-precision-%s.json", oct_verify_formats[format]);
    return add_evidence(v, result, name, oct_summary_products(trace, true), err);
}

oct_status oct_verify_q3_04(oct_verify *v, json_t *result, oct_err *err)
{
    OCT_TRY(boundary_of(v, result, OCT_VERIFY_MXFP8, err));
    return boundary_of(v, result, OCT_VERIFY_HIF8, err);
}
