/* What the plan decides without weights: hits, shards, legality, memory, what gathers bring. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "low_precision/format.h"
#include "verify/cases.h"
#include "verify/setting.h"

static const double GIB = 1073741824.0;
static const double DEVICE_GIB = 96.0; /* of one device (17.1) */
static const json_int_t PARAMETERS_16B = 16585005056, LINEAR_16B = 196, EXPERTS_16B = 27;

static json_int_t number(const json_t *object, const char *a, const char *b)
{
    const json_t *inner = json_object_get(object, a);
    return json_integer_value(b ? json_object_get(inner, b) : inner);
}

/* --- hits ------------------------------------------------------------------------------------ */

static void check_hits(json_t *result, const oct_verify_facts *facts, const json_t *plan,
                       bool is_16b)
{
    const json_int_t linear = number(plan, "replaced", "linear");
    const json_int_t experts = number(plan, "replaced", "experts");
    const json_t *rules = json_object_get(plan, "rules");
    json_int_t hits = 0;
    bool all = json_array_size(rules) > 0;
    for (size_t i = 0; i < json_array_size(rules); i++) {
        const json_int_t n = number(json_array_get(rules, i), "hits", NULL);
        hits += n;
        all = all && n > 0;
    }
    char what[OCT_VERIFY_NAME_BYTES + 16], required[128];
    (void)snprintf(what, sizeof what, "%s: hits", facts->name);
    (void)snprintf(required, sizeof required, "%lld Linear and %lld experts, no pattern without",
                   (long long)facts->dense_targets, (long long)facts->expert_modules);
    (void)oct_verify_check(result,
                           all && linear == facts->dense_targets &&
                               experts == facts->expert_modules && hits == linear + experts &&
                               (!is_16b || (linear == LINEAR_16B && experts == EXPERTS_16B)),
                           what, required, "%lld Linear, %lld experts, %lld hits",
                           (long long)linear, (long long)experts, (long long)hits);
    if (is_16b)
        (void)oct_verify_check(result, number(plan, "parameters_total", NULL) == PARAMETERS_16B,
                               "parameters of the 16B", "16585005056", "%lld",
                               (long long)number(plan, "parameters_total", NULL));
}

/* --- shards ---------------------------------------------------------------------------------- */

/* Interior cuts of a target's weight stand on tiles of 64 rows and between experts. */
static void check_cuts(const oct_verify_facts *facts, const oct_verify_target *target,
                       const json_t *rows_per_rank, oct_finding *finding)
{
    const int64_t whole = target->grouped ? target->experts : target->rows;
    const int64_t rows_each = target->grouped ? target->rows : 1;
    int64_t at = 0;
    for (size_t r = 0; r < json_array_size(rows_per_rank); r++) {
        at += json_integer_value(json_array_get(rows_per_rank, r));
        if (at < whole && facts->format == OCT_VERIFY_MXFP8 && at * rows_each % 64 != 0)
            oct_finding_wrong(finding, "'%s' is cut at row %lld", target->weight,
                              (long long)(at * rows_each));
    }
    finding->seen++;
}

static void check_shards(json_t *result, const oct_verify_facts *facts, const json_t *plan)
{
    const json_t *shards = json_object_get(plan, "shards");
    oct_finding sums = {0}, cuts = {0};
    for (size_t i = 0; i < json_array_size(shards); i++) {
        const json_t *shard = json_array_get(shards, i);
        const json_t *rows = json_object_get(shard, "rows_per_rank");
        const char *fqn = json_string_value(json_object_get(shard, "fqn"));
        const json_int_t whole =
            json_integer_value(json_array_get(json_object_get(shard, "shape"), 0));
        const int64_t t = oct_verify_weight_of(facts, fqn);
        json_int_t sum = 0;
        for (size_t r = 0; r < json_array_size(rows); r++)
            sum += json_integer_value(json_array_get(rows, r));
        sums.seen++;
        if (sum != whole || json_array_size(rows) != (size_t)facts->ranks)
            oct_finding_wrong(&sums, "'%s' has %lld rows in shards of %lld", fqn, (long long)sum,
                              (long long)whole);
        if (json_is_true(json_object_get(shard, "replicated")))
            oct_finding_wrong(&sums, "'%s' is replicated", fqn);
        if (t >= 0)
            check_cuts(facts, &facts->targets[t], rows, &cuts);
    }
    if (cuts.seen != facts->target_count)
        oct_finding_wrong(&cuts, "%lld weights of targets, %lld are due", (long long)cuts.seen,
                          (long long)facts->target_count);
    (void)oct_finding_check(result, facts, &sums, "shards",
                            "the rows of every parameter add up, nothing is replicated", false);
    (void)oct_finding_check(result, facts, &cuts, "legal cuts",
                            "MXFP8 between tiles of 64 rows; experts are never parted", false);
}

/* --- memory (17.1b) -------------------------------------------------------------------------- */

static oct_status check_memory(oct_verify *v, json_t *result, oct_verify_format format,
                               json_t *table, oct_err *err)
{
    for (int variant = 0; variant < 4; variant++) {
        char what[OCT_VERIFY_NAME_BYTES];
        const char *const words[] = {variant & 1 ? "fsdp_config.reshard_after_forward=false"
                                                 : "fsdp_config.reshard_after_forward=true",
                                     variant & 2
                                         ? "gradient_checkpointing.activation_checkpoint=full"
                                         : "gradient_checkpointing.activation_checkpoint=off",
                                     NULL};
        json_t *plan = NULL;
        OCT_TRY(oct_verify_ask_plan(v, format, oct_verify_config(v), v->ranks, words, &plan, err));
        const json_int_t peak = number(plan, "bytes_per_rank", "peak");
        (void)snprintf(what, sizeof what, "%s, %s, recompute %s", oct_verify_formats[format],
                       variant & 1 ? "keep" : "reshard", variant & 2 ? "full" : "off");
        (void)oct_verify_check(result, peak > 0 && (double)peak <= DEVICE_GIB * GIB, what,
                               "at most 96 GiB on a rank", "%.1f GiB", (double)peak / GIB);
        (void)json_object_set_new(table, what,
                                  json_deep_copy(json_object_get(plan, "bytes_per_rank")));
        json_decref(plan);
    }
    return OCT_OK;
}

/* The judges know which modules low precision takes over: all that the design document names. */
static oct_status check_targets(const oct_verify *v, const json_t *plan, oct_err *err)
{
    const json_int_t linear = number(plan, "replaced", "linear");
    const json_int_t experts = number(plan, "replaced", "experts");
    oct_arena arena;
    oct_verify_facts facts;
    oct_arena_init(&arena, "verify");
    oct_status status = oct_verify_facts_of_config(v->config, &arena, &facts, err);
    if (status == OCT_OK && (linear != facts.dense_targets || experts != facts.expert_modules))
        status = OCT_FAIL(
            err, OCT_E_CONFIG,
            "cannot verify '%s': its rules replace %lld Linear and %lld experts, %lld and %lld are "
            "required: the projections of attention, the dense and shared FFN and the routed "
            "experts of every layer, and nothing else (--config, plan_overrides)",
            v->config, (long long)linear, (long long)experts, (long long)facts.dense_targets,
            (long long)facts.expert_modules);
    oct_arena_release(&arena);
    return status;
}

oct_status oct_verify_check_plan(oct_verify *v, oct_err *err)
{
    json_t *plan = NULL;
    const oct_verify_format format = v->config ? v->format : OCT_VERIFY_MXFP8;
    OCT_TRY(oct_verify_ask_plan(v, format, oct_verify_config(v), v->ranks, NULL, &plan, err));
    const double needed = (double)number(plan, "bytes_per_rank", "peak") * v->ranks;
    const double found = (double)oct_memory_limit();
    const oct_status status =
        v->config && format != OCT_VERIFY_BF16 ? check_targets(v, plan, err) : OCT_OK;
    json_decref(plan);
    OCT_TRY(status);
    if (needed <= found)
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_NOMEM,
                    "cannot train %s%s%s on %d ranks of this machine: %.1f GiB of memory were "
                    "found, %.1f GiB are required (%s)",
                    v->config ? "'" : "the ", v->config ? v->config : oct_verify_models[v->model],
                    v->config ? "'" : " model", v->ranks, found / GIB, needed / GIB,
                    v->config ? "--config" : "--model; --dry-run checks what needs no weights");
}

/* --- what gathers bring ---------------------------------------------------------------------- */

static const oct_low_precision_format *format_of(oct_verify_format format)
{
    for (int f = 0; oct_low_precision_formats[f]; f++)
        if (strncmp(oct_low_precision_formats[f]->name, oct_verify_formats[format],
                    strlen(oct_verify_formats[format])) == 0)
            return oct_low_precision_formats[f];
    return NULL;
}

/* One line of table 9.1: which tensors the format gives, against those that are due. */
static void check_row(const oct_verify_facts *facts, const oct_verify_target *target, bool fprop,
                      bool dgrad, json_t *out, oct_finding *finding)
{
    const oct_low_precision_format *format = format_of(facts->format);
    oct_physical_tensor tensors[OCT_WEIGHT_MAX_TENSORS];
    int which[OCT_WEIGHT_MAX_TENSORS];
    const int ndim = target->grouped ? 3 : 2;
    const int64_t dense[3] = {target->rows, target->cols, 1};
    const int64_t stack[3] = {target->experts, target->rows, target->cols};
    (void)format->weight_tensors(ndim, target->grouped ? stack : dense, tensors);
    const int count = format->gather(fprop, dgrad, which);
    const bool hif8 = facts->format == OCT_VERIFY_HIF8;
    int64_t data = 0;
    finding->seen++;
    for (int i = 0; i < count; i++) {
        const oct_physical_tensor *t = &tensors[which[i]];
        const int64_t numel = oct_tensor_numel(&t->tensor);
        const bool is_scale = strstr(t->name, "scale") != NULL;
        char text[96];
        (void)snprintf(text, sizeof text, "%s %s, %lld bytes", t->name,
                       oct_dtype_name(t->tensor.dtype), (long long)oct_tensor_bytes(&t->tensor));
        (void)json_array_append_new(out, json_string(text));
        data += is_scale ? 0 : numel;
        if (!is_scale && numel != target->experts * target->rows * target->cols)
            oct_finding_wrong(finding, "'%s' of '%s' has %lld elements", t->name, target->weight,
                              (long long)numel);
        const bool row_name = strncmp(t->name, "row", 3) == 0;
        const bool is_fprop = row_name != target->grouped;
        if (!hif8 && ((is_fprop && !fprop) || (!is_fprop && !dgrad)))
            oct_finding_wrong(finding, "'%s' of '%s' is not due", t->name, target->weight);
    }
    const int due = hif8 ? 2 : 2 * (fprop + dgrad);
    if (count != due || data == 0)
        oct_finding_wrong(finding, "'%s' has %d tensors, %d are due", target->weight, count, due);
}

static oct_status check_gathers(oct_verify *v, json_t *result, const oct_verify_facts *facts,
                                oct_err *err)
{
    static const struct {
        const char *name;
        bool fprop, dgrad;
    } rows[] = {
        {"forward, reshard", true, false}, {"forward, keep", true, true}, {"backward", true, true}};
    char name[64];
    oct_finding finding = {0};
    json_t *table = json_object();
    for (int64_t t = 0; t < facts->target_count; t++) {
        json_t *of_weight = json_object();
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            json_t *list = json_array();
            check_row(facts, &facts->targets[t], rows[r].fprop, rows[r].dgrad, list, &finding);
            (void)json_object_set_new(of_weight, rows[r].name, list);
        }
        (void)json_object_set_new(table, facts->targets[t].weight, of_weight);
    }
    (void)oct_finding_check(result, facts, &finding, "what gathers bring",
                            "table 9.1 for every weight, data of its full size", false);
    (void)snprintf(name, sizeof name, "gathers-%s.json", oct_verify_formats[facts->format]);
    const oct_status status = oct_verify_evidence_json(v, result, name, table, err);
    json_decref(table);
    return status;
}

/* --- the case -------------------------------------------------------------------------------- */

static oct_status plan_of(oct_verify *v, json_t *result, oct_verify_format format, oct_arena *arena,
                          json_t *table, oct_err *err)
{
    oct_verify_facts facts;
    json_t *plan = NULL;
    char name[64];
    OCT_TRY(oct_verify_facts_of_config(oct_verify_config(v), arena, &facts, err));
    facts.format = format;
    facts.ranks = v->ranks;
    (void)snprintf(facts.name, sizeof facts.name, "%s plan", oct_verify_formats[format]);
    OCT_TRY(oct_verify_ask_plan(v, format, oct_verify_config(v), v->ranks, NULL, &plan, err));
    if (format != OCT_VERIFY_BF16)
        check_hits(result, &facts, plan, v->model == OCT_VERIFY_16B && !v->config);
    check_shards(result, &facts, plan);
    (void)snprintf(name, sizeof name, "plan-%s.json", oct_verify_formats[format]);
    oct_status status = oct_verify_evidence_json(v, result, name, plan, err);
    json_decref(plan);
    if (status == OCT_OK && format != OCT_VERIFY_BF16)
        status = check_gathers(v, result, &facts, err);
    return status == OCT_OK ? check_memory(v, result, format, table, err) : status;
}

oct_status oct_verify_dry_run(oct_verify *v, json_t *result, oct_err *err)
{
    oct_arena arena;
    oct_status status = OCT_OK;
    json_t *table = json_object();
    oct_arena_init(&arena, "verify");
    for (int f = 0; f < OCT_VERIFY_FORMAT_COUNT && status == OCT_OK; f++)
        status = plan_of(v, result, (oct_verify_format)f, &arena, table, err);
    if (status == OCT_OK)
        status = oct_verify_evidence_json(v, result, "bytes.json", table, err);
    json_decref(table);
    oct_arena_release(&arena);
    return status;
}
