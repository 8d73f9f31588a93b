/* Every case with its checks, and where and with what they ran. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "verify/report_parts.h"

static void put_list(oct_html *html, const char *what, const json_t *list, bool linked)
{
    if (json_array_size(list) == 0)
        return;
    oct_html_put(html, "<p>%s:", what);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        /* A path below the report's own folder; anything else is no link. */
        const bool is_path =
            linked && text && text[0] != '/' && !strchr(text, ':') && !strstr(text, "..");
        oct_html_put(html, "%s ", i ? "," : "");
        if (is_path) {
            oct_html_put(html, "<a href=\"");
            oct_html_text(html, text);
            oct_html_put(html, "\">");
        }
        oct_html_put(html, "<code>");
        oct_html_text(html, text);
        oct_html_put(html, is_path ? "</code></a>" : "</code>");
    }
    oct_html_put(html, ".</p>");
}

static void put_checks(oct_html *html, const json_t *checks)
{
    oct_html_put(html, "<table><thead><tr><th>check<th>required<th>found<th>held</tr></thead>"
                       "<tbody>\n");
    for (size_t i = 0; i < json_array_size(checks); i++) {
        const json_t *check = json_array_get(checks, i);
        const bool ok = json_is_true(json_object_get(check, "ok"));
        oct_html_put(html, ok ? "<tr><td>" : "<tr class=\"bad\"><td>");
        oct_html_text(html, oct_report_string(check, "what"));
        oct_html_put(html, "<td>");
        oct_html_text(html, oct_report_string(check, "required"));
        oct_html_put(html, "<td>");
        oct_html_text(html, oct_report_string(check, "found"));
        oct_html_put(html, ok ? "<td class=\"good\">yes</tr>\n" : "<td>no</tr>\n");
    }
    oct_html_put(html, "</tbody></table>");
}

void oct_report_cases(oct_html *html, const json_t *report)
{
    const json_t *cases = json_object_get(report, "cases");
    oct_html_put(html, "<section id=\"cases\"><h2>Cases</h2>\n");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        const char *status = oct_report_string(one, "status");
        const bool passed = strcmp(status, "passed") == 0, failed = strcmp(status, "failed") == 0;
        const json_t *checks = json_object_get(one, "checks");
        const double seconds = oct_report_number(one, "seconds");
        oct_html_put(html, "<details class=\"case %s\" id=\"case-%zu\"%s><summary><b>",
                     passed   ? "passed"
                     : failed ? "failed"
                              : "not-run",
                     i, passed ? "" : " open");
        oct_html_text(html, oct_report_string(one, "id"));
        oct_html_put(html, "</b> ");
        oct_html_text(html, oct_report_string(one, "title"));
        oct_html_put(html, "<span class=\"status\"><span class=\"%s\">",
                     passed   ? "good"
                     : failed ? "bad"
                              : "wait");
        oct_html_text(html, status);
        oct_html_put(html, "</span>, %zu checks", json_array_size(checks));
        if (isfinite(seconds))
            oct_html_put(html, ", %.1f s", seconds);
        oct_html_put(html, "</span></summary>");
        if (json_array_size(checks) > 0)
            put_checks(html, checks);
        put_list(html, "Evidence", json_object_get(one, "evidence"), true);
        put_list(html, "Runs", json_object_get(one, "runs"), false);
        oct_html_put(html, "</details>\n");
    }
    oct_html_put(html, "</section>\n");
}

/* --- environment ------------------------------------------------------------------------------ */

static void put_value(oct_html *html, const json_t *value)
{
    enum { LONG = 160 };
    const char *text = json_string_value(value);
    if (text && (strlen(text) > LONG || strchr(text, '\n'))) {
        oct_html_put(html, "<details><summary>%zu characters</summary><pre>", strlen(text));
        oct_html_text(html, text);
        oct_html_put(html, "</pre></details>");
    } else if (text) {
        oct_html_text(html, text);
    } else if (json_is_integer(value)) {
        oct_html_put(html, "%lld", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        oct_html_put(html, "%g", json_real_value(value));
    } else if (json_is_boolean(value)) {
        oct_html_put(html, json_is_true(value) ? "yes" : "no");
    }
}

static void put_object(oct_html *html, json_t *object, int depth)
{
    enum { DEEPEST = 4 };
    const char *key = NULL;
    json_t *value = NULL;
    oct_html_put(html, "<dl>");
    json_object_foreach(object, key, value)
    {
        oct_html_put(html, "<dt>");
        oct_html_text(html, key);
        oct_html_put(html, "</dt><dd>");
        if (json_is_object(value) && depth < DEEPEST) {
            oct_html_put(html, "<details><summary>%zu entries</summary>", json_object_size(value));
            put_object(html, value, depth + 1);
            oct_html_put(html, "</details>");
        } else {
            put_value(html, value);
        }
        oct_html_put(html, "</dd>");
    }
    oct_html_put(html, "</dl>");
}

void oct_report_environment(oct_html *html, const json_t *report)
{
    oct_html_put(html, "<section id=\"environment\"><h2>Environment</h2>");
    put_object(html, json_object_get(report, "environment"), 0);
    oct_html_put(html, "</section>\n");
}
