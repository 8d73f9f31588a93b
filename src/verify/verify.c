#include "verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "verify/report_html.h"
#include "verify/cases.h"
#include "verify/run.h"
#include "verify/trace.h"

const char *const oct_verify_models[OCT_VERIFY_MODEL_COUNT] = {"scaled", "slice", "16b"};
const char *const oct_verify_formats[OCT_VERIFY_FORMAT_COUNT] = {"bf16", "mxfp8", "hif8"};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void say(const oct_verify *v, const json_t *result)
{
    char line[1024];
    const char *status = json_string_value(json_object_get(result, "status"));
    const json_t *checks = json_object_get(result, "checks");
    (void)snprintf(line, sizeof line, "%-10s %-8s %4zu checks %7.1f s  %s",
                   json_string_value(json_object_get(result, "id")), status,
                   json_array_size(checks), json_number_value(json_object_get(result, "seconds")),
                   json_string_value(json_object_get(result, "title")));
    if (v->say)
        v->say(line);
    for (size_t i = 0; v->say && i < json_array_size(checks); i++) {
        const json_t *check = json_array_get(checks, i);
        if (json_is_true(json_object_get(check, "ok")))
            continue;
        (void)snprintf(line, sizeof line, "  %s: found %s, required: %s",
                       json_string_value(json_object_get(check, "what")),
                       json_string_value(json_object_get(check, "found")),
                       json_string_value(json_object_get(check, "required")));
        v->say(line);
    }
}

static json_t *begin_result(const oct_verify_case *c)
{
    json_t *result = json_object();
    (void)json_object_set_new(result, "id", json_string(c->id));
    (void)json_object_set_new(result, "title", json_string(c->title));
    return result;
}

/* Puts the result in its place in the report; true if it passed. */
static bool run_case(oct_verify *v, const oct_verify_case *c, size_t index)
{
    oct_err err = {0};
    const double begin = now();
    json_t *result = begin_result(c);
    const oct_status status =
        c->run ? c->run(v, result, &err)
               : OCT_FAIL(&err, OCT_E_UNSUPPORTED, "this program has no such case");
    for (int r = 0; r < v->run_count; r++)
        oct_verify_forget(v->runs[r]);
    oct_verify_settle(v, result, status, &err);
    (void)json_object_set_new(result, "seconds", json_real(now() - begin));
    say(v, result);
    const bool passed = strcmp(json_string_value(json_object_get(result, "status")), "passed") == 0;
    (void)json_array_set_new(json_object_get(v->report, "cases"), index, result);
    return passed;
}

static oct_status write_report(const oct_verify *v, oct_err *err)
{
    char path[OCT_PATH_BYTES];
    char *text = json_dumps(v->report, JSON_INDENT(1));
    if (!text)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot write the report: out of memory");
    oct_status status = oct_path_join(v->out, "report.json", path, sizeof path, err);
    if (status == OCT_OK)
        status = oct_file_replace(&oct_file_table_real, path, text, strlen(text), err);
    free(text);
    OCT_TRY(status);
    OCT_TRY(oct_path_join(v->out, "report.html", path, sizeof path, err));
    return oct_verify_report_html(v->report, path, err);
}

static bool is_wanted(const oct_verify_case *c, const char *const *ids, int count)
{
    bool wanted = count == 0 && c->is_standard;
    for (int i = 0; i < count; i++)
        wanted = wanted || strcmp(ids[i], c->id) == 0;
    return wanted;
}

/* All that were asked for, none of them run: a verification that ends early has not passed. */
static json_t *list_cases(const oct_verify *v, const char *const *ids, int count)
{
    const oct_err why = {.msg = "not reached"};
    json_t *cases = json_array();
    for (const oct_verify_case *c = oct_verify_cases; c->id; c++) {
        if (!is_wanted(c, ids, count))
            continue;
        json_t *result = begin_result(c);
        oct_verify_settle(v, result, OCT_E_INTERRUPTED, &why);
        (void)json_object_set_new(result, "seconds", json_real(0.0));
        (void)json_array_append_new(cases, result);
    }
    return cases;
}

oct_status oct_verify_all(oct_verify *v, const char *const *ids, int count, bool *passed,
                          oct_err *err)
{
    v->report = json_object();
    (void)json_object_set_new(v->report, "schema", json_integer(1));
    (void)json_object_set_new(v->report, "environment", oct_verify_environment(v));
    (void)json_object_set_new(v->report, "cases", list_cases(v, ids, count));
    (void)json_object_set_new(v->report, "runs", json_array());
    *passed = true;
    OCT_TRY(write_report(v, err));
    size_t index = 0;
    for (const oct_verify_case *c = oct_verify_cases; c->id; c++) {
        if (!is_wanted(c, ids, count))
            continue;
        *passed = run_case(v, c, index++) && *passed;
        OCT_TRY(write_report(v, err));
        if (v->stop && *v->stop)
            return OCT_FAIL(err, OCT_E_INTERRUPTED, "stopped by a signal");
    }
    oct_verify_add_configs(v);
    return write_report(v, err);
}

void oct_verify_release(oct_verify *v)
{
    for (int r = 0; r < v->run_count; r++)
        oct_verify_run_release(v->runs[r]);
    free(v->runs);
    json_decref(v->report);
    v->runs = NULL;
    v->run_count = 0;
    v->report = NULL;
}
