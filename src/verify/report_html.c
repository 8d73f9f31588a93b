#include "verify/report_html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "verify/report_parts.h"

const char *oct_report_string(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

double oct_report_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

int oct_report_format(const char *name)
{
    static const char *const begins[3] = {"b", "mx", "hi"}; /* bf16 or bfloat16 */
    for (int f = 0; f < 3; f++)
        if (strncmp(name, begins[f], strlen(begins[f])) == 0)
            return f;
    return -1;
}

/* --- what the writers below rely on ----------------------------------------------------------- */

static oct_status check_rows(const json_t *report, const char *list, const char *const *strings,
                             const char *const *arrays, oct_err *err)
{
    const json_t *rows = json_object_get(report, list);
    if (!json_is_array(rows))
        return OCT_FAIL(err, OCT_E_API, "cannot show a report: '%s' is no array", list);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        for (const char *const *key = strings; *key; key++)
            if (!json_is_string(json_object_get(row, *key)))
                return OCT_FAIL(err, OCT_E_API,
                                "cannot show a report: '%s' of %s[%zu] is no string", *key, list,
                                i);
        for (const char *const *key = arrays; *key; key++)
            if (!json_is_array(json_object_get(row, *key)))
                return OCT_FAIL(err, OCT_E_API, "cannot show a report: '%s' of %s[%zu] is no array",
                                *key, list, i);
    }
    return OCT_OK;
}

static oct_status check(const json_t *report, oct_err *err)
{
    static const char *const case_strings[] = {"id", "title", "status", NULL};
    static const char *const case_arrays[] = {"checks", NULL};
    static const char *const run_strings[] = {"name", "format", NULL};
    static const char *const run_arrays[] = {"steps", "loss", "grad_norm", NULL};
    if (json_integer_value(json_object_get(report, "schema")) != 1)
        return OCT_FAIL(err, OCT_E_API, "cannot show a report: its schema is not 1");
    if (!json_is_object(json_object_get(report, "environment")))
        return OCT_FAIL(err, OCT_E_API, "cannot show a report: 'environment' is no object");
    OCT_TRY(check_rows(report, "cases", case_strings, case_arrays, err));
    return check_rows(report, "runs", run_strings, run_arrays, err);
}

/* --- the page --------------------------------------------------------------------------------- */

typedef struct tally {
    size_t cases, passed, failed, not_run, checks, checks_failed;
} tally;

static tally count_cases(const json_t *cases)
{
    tally t = {.cases = json_array_size(cases)};
    for (size_t i = 0; i < t.cases; i++) {
        const json_t *one = json_array_get(cases, i);
        const char *status = oct_report_string(one, "status");
        t.passed += strcmp(status, "passed") == 0;
        t.failed += strcmp(status, "failed") == 0;
        const json_t *checks = json_object_get(one, "checks");
        t.checks += json_array_size(checks);
        for (size_t c = 0; c < json_array_size(checks); c++)
            t.checks_failed += !json_is_true(json_object_get(json_array_get(checks, c), "ok"));
    }
    t.not_run = t.cases - t.passed - t.failed;
    return t;
}

static void write_verdict(oct_html *html, const json_t *report)
{
    const json_t *cases = json_object_get(report, "cases");
    const json_t *environment = json_object_get(report, "environment");
    const tally t = count_cases(cases);
    const bool passed = t.cases > 0 && t.passed == t.cases;
    oct_html_put(html,
                 "<header class=\"verdict %s\"><h1>octet verify: %s</h1><p>%zu of %zu cases passed",
                 passed ? "passed" : "failed", passed ? "passed" : "not passed", t.passed, t.cases);
    if (t.failed)
        oct_html_put(html, ", <b>%zu failed</b>", t.failed);
    if (t.not_run)
        oct_html_put(html, ", <b>%zu not run</b>", t.not_run);
    oct_html_put(html, "; %zu checks, %zu of them not held.", t.checks, t.checks_failed);
    if (json_is_true(json_object_get(environment, "quick")))
        oct_html_put(html, " Quick form: fewer combinations and steps, speed without a verdict.");
    oct_html_put(html, "</p><ul class=\"tiles\">");
    for (size_t i = 0; i < t.cases; i++) {
        const json_t *one = json_array_get(cases, i);
        const char *status = oct_report_string(one, "status");
        const char *mark = strcmp(status, "passed") == 0   ? "passed"
                           : strcmp(status, "failed") == 0 ? "failed"
                                                           : "not-run";
        oct_html_put(html, "<li><a class=\"tile %s\" href=\"#case-%zu\" title=\"", mark, i);
        oct_html_text(html, oct_report_string(one, "title"));
        oct_html_put(html, "\"><b>");
        oct_html_text(html, oct_report_string(one, "id"));
        oct_html_put(html, "</b> ");
        oct_html_text(html, status);
        oct_html_put(html, "</a></li>");
    }
    oct_html_put(html, "</ul></header>");
}

static void write_page(oct_html *html, const json_t *report)
{
    oct_html_put(html, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                       "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                       "style-src 'unsafe-inline'\">"
                       "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
                       "<meta name=\"color-scheme\" content=\"light dark\">"
                       "<title>octet verify</title><style>");
    for (int i = 0; oct_report_style[i]; i++)
        oct_html_put(html, "%s", oct_report_style[i]);
    oct_html_put(html, "</style></head>\n<body><main>\n");
    write_verdict(html, report);
    oct_report_curves(html, report);
    oct_report_performance(html, report);
    oct_report_numerics(html, report);
    oct_report_scales(html, report);
    oct_report_cases(html, report);
    oct_report_runs(html, report);
    oct_report_environment(html, report);
    oct_html_put(html, "</main></body></html>\n");
}

oct_status oct_verify_report_html(const json_t *report, const char *path, oct_err *err)
{
    oct_html html = {0};
    OCT_TRY(check(report, err));
    write_page(&html, report);
    const oct_status status =
        html.status == OCT_OK
            ? oct_file_replace(&oct_file_table_real, path, html.text, html.bytes, err)
            : OCT_FAIL(err, html.status, "cannot write '%s': out of memory", path);
    free(html.text);
    return status;
}
