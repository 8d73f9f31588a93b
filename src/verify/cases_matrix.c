/* The combinations of the fixed dimensions (17.1), the list of HiF8 (17.3.1), work that is done
 * twice (17.4f), and one format of one file (16.6). */
#include <stdio.h>
#include <string.h>

#include "verify/cases.h"
#include "verify/setting.h"
#include "verify/summary.h"

/* --- combinations ---------------------------------------------------------------------------- */

enum { COMBINATIONS = 48, VARIANTS = 8 };

/* format x {accumulation 1, 2} x {reshard} x {recompute} x {fallback}. */
static oct_verify_setting combination(const oct_verify *v, int index)
{
    const int variant = index % VARIANTS, group = index / VARIANTS;
    oct_verify_setting setting = oct_verify_short_setting(v, (oct_verify_format)(group / 2));
    setting.accumulation = 1 + group % 2;
    setting.keeps = variant & 1;
    setting.recompute = variant & 2;
    setting.fallback = variant & 4;
    return setting;
}

/* Quick: two of each format, which have every value of every dimension. */
static bool is_wanted(const oct_verify *v, int index)
{
    static const char handful[COMBINATIONS] = {[0] = 1,          [8 + 7] = 1, /* BF16 */
                                               [16 + 5] = 1,     [24 + 2] = 1,
                                               [32 + 4 + 1] = 1, [40 + 2] = 1};
    return !v->quick || handful[index];
}

/* Which weights stay whole on every rank is decided by the rule of the format. */
static oct_status check_replicated(json_t *result, const oct_verify_run *run, oct_err *err)
{
    oct_arena arena;
    oct_verify_facts facts;
    int64_t whole = 0;
    char what[OCT_VERIFY_NAME_BYTES + 64];
    oct_arena_init(&arena, "verify");
    const oct_status status = oct_verify_facts_of(run, &arena, &facts, err);
    for (int64_t t = 0; status == OCT_OK && t < facts.target_count; t++)
        whole += oct_verify_is_replicated(&facts, &facts.targets[t]);
    if (status == OCT_OK && facts.ranks == 8) {
        (void)snprintf(what, sizeof what, "%s: weights that stay whole", run->name);
        (void)oct_verify_check(result, whole > 0 && whole < facts.target_count, what,
                               "some are replicated and some are sharded", "%lld of %lld",
                               (long long)whole, (long long)facts.target_count);
    }
    oct_arena_release(&arena);
    return status;
}

oct_status oct_verify_combinations(oct_verify *v, json_t *result, oct_err *err)
{
    const oct_verify_run *first = NULL;
    json_t *list = json_array();
    int made = 0;
    for (int c = 0; c < COMBINATIONS; c++) {
        const oct_verify_setting setting = combination(v, c);
        const oct_verify_run *run = NULL;
        bool ok = false;
        if (c % VARIANTS == 0)
            first = NULL;
        if (!is_wanted(v, c))
            continue;
        oct_status status =
            oct_verify_judge_setting(v, result, &setting, OCT_JUDGE_ALL, &run, &ok, err);
        if (status == OCT_OK && ok && setting.fallback && setting.format == OCT_VERIFY_MXFP8)
            status = check_replicated(result, run, err);
        if (status != OCT_OK) {
            json_decref(list);
            return status;
        }
        made++;
        (void)json_array_append_new(list, json_string(run->name));
        if (ok && first)
            (void)oct_verify_check_same_records(
                result, "reshard, recompute and fallback change no bit", first, run);
        first = first ? first : ok ? run : NULL;
        oct_verify_forget(run);
    }
    (void)oct_verify_check(result, v->quick || made == COMBINATIONS, "combinations",
                           "48: 3 formats x reshard x recompute x fallback x accumulation", "%d",
                           made);
    const oct_status status = oct_verify_evidence_json(v, result, "combinations.json", list, err);
    json_decref(list);
    return status;
}

/* --- HiF8 ------------------------------------------------------------------------------------ */

/* Rows of each expert in a micro-batch do not show in a trace; the largest load of a step does:
 * more than an even share means that experts are uneven. */
static void check_uneven(json_t *result, const oct_verify_run *run, const oct_verify_facts *facts)
{
    int64_t uneven = 0;
    const size_t rows = json_array_size(run->metrics);
    for (size_t i = 0; i < rows; i++) {
        const json_t *row = json_array_get(run->metrics, i);
        const json_int_t most = json_integer_value(json_object_get(row, "expert_load_max"));
        const json_int_t tokens = json_integer_value(json_object_get(row, "tokens"));
        int64_t experts = 1;
        for (int64_t t = 0; t < facts->target_count; t++)
            experts = facts->targets[t].grouped ? facts->targets[t].experts : experts;
        uneven += most * experts > tokens;
    }
    (void)oct_verify_check(result, rows > 0 && uneven == (int64_t)rows, "uneven experts run",
                           "in every step one expert has more tokens than an even share",
                           "%lld of %zu steps", (long long)uneven, rows);
}

/* A quantization of no rows has amax 0 and scale 1. */
static void check_empty(json_t *result, const oct_verify_run *run)
{
    int64_t empty = 0, wrong = 0;
    for (int r = 0; r < run->ranks; r++)
        for (int64_t i = 0; run->traces[r] && i < run->traces[r]->count; i++) {
            const oct_trace_event *f = &run->traces[r]->events[i].fields;
            if (f->kind != OCT_TRACE_QUANTIZE || !f->grouped || strncmp(f->role, "input", 5) != 0 ||
                f->amax != 0.0f)
                continue;
            empty++;
            wrong += f->scale != 1.0f;
        }
    (void)oct_verify_check(result, empty > 0 && wrong == 0, "empty experts run",
                           "some experts without tokens on a rank, scale 1",
                           "%lld quantizations without rows, %lld with another scale",
                           (long long)empty, (long long)wrong);
}

static const struct {
    const char *part, *phase;
} hif8_products[] = {
    {".mlp.gate_proj", "fprop"},        {".mlp.gate_proj", "dgrad"},
    {".mlp.gate_proj", "wgrad"},        {".experts.gate_up_proj", "fprop"},
    {".experts.gate_up_proj", "dgrad"}, {".experts.gate_up_proj", "wgrad"},
    {".experts.down_proj", "fprop"},    {".experts.down_proj", "dgrad"},
    {".experts.down_proj", "wgrad"},
};

static void check_products(json_t *result, const oct_verify_trace *trace)
{
    for (size_t p = 0; p < sizeof hif8_products / sizeof hif8_products[0]; p++) {
        int64_t count = 0;
        char what[96];
        for (int64_t i = 0; i < trace->count; i++) {
            const oct_trace_event *f = &trace->events[i].fields;
            count += f->kind == OCT_TRACE_MATMUL && strcmp(f->format, "hif8") == 0 &&
                     strcmp(f->phase, hif8_products[p].phase) == 0 &&
                     strstr(f->fqn, hif8_products[p].part) != NULL;
        }
        (void)snprintf(what, sizeof what, "%s %s", hif8_products[p].part, hif8_products[p].phase);
        (void)oct_verify_check(result, count > 0, what, "a HiF8 product", "%lld products",
                               (long long)count);
    }
}

/* Delayed scaling is refused at start; never ignored, mapped to current or computed otherwise. */
static oct_status check_delayed(oct_verify *v, json_t *result, oct_err *err)
{
    const oct_verify_job job = {.name = "hif8-delayed",
                                .format = OCT_VERIFY_HIF8,
                                .ranks = 1,
                                .words = {"low_precision.scaling=delayed"}};
    const oct_verify_run *run = NULL;
    char line[512];
    OCT_TRY(oct_verify_train(v, result, &job, &run, err));
    oct_verify_last_line(run->stderr_path, line, sizeof line);
    (void)oct_verify_check(
        result,
        run->exit_code == 2 && strstr(line, "delayed") && strstr(line, "low_precision.scaling") &&
            json_array_size(run->metrics) == 0,
        "delayed scaling is refused",
        "exit code 2, the message names the key and the value, no step is made",
        "exit code %d, %zu steps: %s", run->exit_code, json_array_size(run->metrics), line);
    return OCT_OK;
}

oct_status oct_verify_hif8(oct_verify *v, json_t *result, oct_err *err)
{
    const oct_verify_setting setting = oct_verify_main_setting(v, OCT_VERIFY_HIF8);
    const oct_verify_run *run = NULL;
    const oct_verify_trace *trace = NULL;
    oct_arena arena;
    oct_verify_facts facts;
    bool ok = false;
    OCT_TRY(oct_verify_judge_setting(v, result, &setting,
                                     OCT_JUDGE_PRODUCTS | OCT_JUDGE_SCALES | OCT_JUDGE_GATHERS |
                                         OCT_JUDGE_REFRESH,
                                     &run, &ok, err));
    OCT_TRY(check_delayed(v, result, err));
    if (!ok)
        return OCT_OK;
    OCT_TRY(oct_verify_run_trace(run, 0, &trace, err));
    check_products(result, trace);
    check_empty(result, run);
    oct_arena_init(&arena, "verify");
    const oct_status status = oct_verify_facts_of(run, &arena, &facts, err);
    if (status == OCT_OK)
        check_uneven(result, run, &facts);
    oct_arena_release(&arena);
    OCT_TRY(status);
    json_t *scales = oct_summary_scales(trace);
    const oct_status written = oct_verify_evidence_json(v, result, "scales.json", scales, err);
    json_decref(scales);
    return written;
}

/* --- duplicates ------------------------------------------------------------------------------ */

oct_status oct_verify_duplicates(oct_verify *v, json_t *result, oct_err *err)
{
    json_t *names = json_array();
    oct_status status = OCT_OK;
    bool traced = false; /* runs that were timed are not */
    for (int r = 0; r < v->run_count; r++)
        traced = traced || v->runs[r]->has_trace;
    if (!traced) {
        for (int f = OCT_VERIFY_BF16; f < OCT_VERIFY_FORMAT_COUNT && status == OCT_OK; f++) {
            const oct_verify_setting setting = oct_verify_main_setting(v, (oct_verify_format)f);
            const oct_verify_run *run = NULL;
            status = oct_verify_train_setting(v, result, &setting, &run, err);
        }
    }
    for (int r = 0; r < v->run_count && status == OCT_OK; r++) {
        const oct_verify_run *run = v->runs[r];
        if (run->exit_code != 0 || !run->has_trace)
            continue;
        oct_verify_name_run(result, run->name);
        (void)json_array_append_new(names, json_string(run->name));
        status = oct_judge_run(run, OCT_JUDGE_DUPLICATES, result, err);
        oct_judge_growth(run, result);
        oct_verify_forget(run);
    }
    if (status == OCT_OK)
        status = oct_verify_evidence_json(v, result, "runs.json", names, err);
    json_decref(names);
    return status;
}

/* --- one format of one file ------------------------------------------------------------------ */

oct_status oct_verify_one_format(oct_verify *v, json_t *result, oct_err *err)
{
    const oct_verify_setting setting = oct_verify_main_setting(v, v->format);
    const oct_verify_run *run = NULL, *resumed = NULL;
    bool ok = false;
    OCT_TRY(oct_verify_judge_setting(v, result, &setting, OCT_JUDGE_ALL, &run, &ok, err));
    if (!ok)
        return OCT_OK;
    json_t *plan = NULL;
    OCT_TRY(oct_verify_ask_plan(v, v->format, oct_verify_config(v), run->ranks, NULL, &plan, err));
    const oct_status status = oct_judge_checkpoint(run, setting.save_at, plan, result, err);
    json_decref(plan);
    OCT_TRY(status);
    oct_verify_setting again = setting;
    again.resumes = run;
    again.resume_at = setting.save_at;
    OCT_TRY(oct_verify_judge_setting(v, result, &again, OCT_JUDGE_ALL, &resumed, &ok, err));
    if (ok)
        (void)oct_verify_check_same_records(result, "resumed as continuous", run, resumed);
    return OCT_OK;
}
