/* Curves of the three formats, and the list of all runs. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"
#include "verify/chart.h"
#include "verify/report_parts.h"

/* --- which runs belong together ------------------------------------------------------------- */

/* The next word that is no part of low_precision; its length, 0 at the end. */
static size_t next_word(const char **at)
{
    static const char own[] = "low_precision.";
    for (;;) {
        *at += strspn(*at, " ");
        const size_t length = strcspn(*at, " ");
        if (strncmp(*at, own, sizeof own - 1) != 0)
            return length;
        *at += length;
    }
}

static bool same_words(const char *a, const char *b)
{
    for (;;) {
        const size_t m = next_word(&a), n = next_word(&b);
        if (m != n || memcmp(a, b, m) != 0)
            return false;
        if (m == 0)
            return true;
        a += m;
        b += n;
    }
}

static size_t steps_of(const json_t *run)
{
    return json_array_size(json_object_get(run, "steps"));
}

/* The runs that go with run number `at`; returns how many formats there are. */
static int gather(const json_t *runs, size_t at, const json_t *trio[3])
{
    const json_t *first = json_array_get(runs, at);
    int formats = 0;
    for (int f = 0; f < 3; f++)
        trio[f] = NULL;
    for (size_t i = at; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        const int f = oct_report_format(oct_report_string(run, "format"));
        if (f < 0 || trio[f] || steps_of(run) == 0 ||
            !same_words(oct_report_string(first, "words"), oct_report_string(run, "words")))
            continue;
        trio[f] = run;
        formats++;
    }
    return formats;
}

void oct_report_trio(const json_t *report, const json_t *trio[3])
{
    const json_t *runs = json_object_get(report, "runs"), *made[3];
    int most = 0;
    size_t longest = 0;
    trio[0] = trio[1] = trio[2] = NULL;
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const int formats = gather(runs, i, made);
        const size_t steps = steps_of(json_array_get(runs, i));
        if (formats < most || (formats == most && steps <= longest) || formats == 0)
            continue;
        most = formats;
        longest = steps;
        memcpy(trio, made, sizeof made);
    }
}

/* --- curves ----------------------------------------------------------------------------------- */

static double value_at(const json_t *run, const char *key, size_t i)
{
    const json_t *value = json_array_get(json_object_get(run, key), i);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* of BF16 NULL: the values; else their distance from it in percent. */
static void draw(oct_html *html, const json_t *const *trio, const char *key, const json_t *bf16,
                 const char *title, const char *unit)
{
    oct_chart_line lines[3];
    double *memory[3] = {NULL};
    int count = 0;
    for (int f = 0; f < 3; f++) {
        if (!trio[f] || trio[f] == bf16)
            continue;
        const size_t steps = steps_of(trio[f]);
        double *x = malloc((2 * steps + 1) * sizeof *x), *y = x ? x + steps : NULL;
        if (!x) {
            html->status = OCT_E_NOMEM;
            break;
        }
        for (size_t i = 0; i < steps; i++) {
            x[i] = value_at(trio[f], "steps", i);
            y[i] = value_at(trio[f], key, i);
            if (bf16)
                y[i] = 100.0 * (y[i] / value_at(bf16, key, i) - 1.0);
        }
        memory[count] = x;
        lines[count++] = (oct_chart_line){.name = oct_report_string(trio[f], "format"),
                                          .style = f,
                                          .count = (int)steps,
                                          .x = x,
                                          .y = y};
    }
    if (html->status == OCT_OK && count > 0)
        oct_chart_lines(html, title, unit, lines, count);
    for (int i = 0; i < count; i++)
        free(memory[i]);
}

void oct_report_curves(oct_html *html, const json_t *report)
{
    const json_t *trio[3];
    oct_report_trio(report, trio);
    if (!trio[0] && !trio[1] && !trio[2])
        return;
    oct_html_put(html, "<section id=\"curves\"><h2>Curves</h2><p>Runs that differ in "
                       "<code>low_precision</code> alone:");
    for (int f = 0; f < 3; f++)
        if (trio[f]) {
            oct_html_put(html, " <code>");
            oct_html_text(html, oct_report_string(trio[f], "name"));
            oct_html_put(html, "</code>");
        }
    oct_html_put(html, ".</p><div class=\"pair\">");
    draw(html, trio, "loss", NULL, "Loss", "nats per token");
    draw(html, trio, "grad_norm", NULL, "Gradient norm before clipping", "norm");
    if (trio[0] && (trio[1] || trio[2])) {
        draw(html, trio, "loss", trio[0], "Loss against BF16", "percent");
        draw(html, trio, "grad_norm", trio[0], "Gradient norm against BF16", "percent");
    }
    oct_html_put(html, "</div></section>\n");
}

/* --- all runs --------------------------------------------------------------------------------- */

static double median_of(const json_t *run, const char *key)
{
    const size_t count = json_array_size(json_object_get(run, key));
    double *values = malloc((count + 1) * sizeof *values), result = (double)NAN;
    size_t n = 0;
    for (size_t i = 0; values && i < count; i++) {
        values[n] = value_at(run, key, i);
        n += isfinite(values[n]) != 0;
    }
    if (values && n > 0)
        result = oct_median(values, (int64_t)n);
    free(values);
    return result;
}

static void put_number(oct_html *html, const char *fmt_unit, double value, int digits)
{
    if (isfinite(value))
        oct_html_put(html, "<td class=\"n\">%.*f%s</td>", digits, value, fmt_unit);
    else
        oct_html_put(html, "<td class=\"n\">-</td>");
}

void oct_report_runs(oct_html *html, const json_t *report)
{
    const json_t *runs = json_object_get(report, "runs");
    const size_t count = json_array_size(runs);
    if (count == 0)
        return;
    oct_html_put(html,
                 "<section id=\"runs\"><h2>Runs</h2><details><summary>%zu training runs, each made "
                 "once</summary><div class=\"wide\"><table><thead><tr><th>run<th>format<th>steps"
                 "<th>first loss<th>last loss<th>tokens/s<th>peak memory<th>words</tr></thead>"
                 "<tbody>\n",
                 count);
    for (size_t i = 0; i < count; i++) {
        const json_t *run = json_array_get(runs, i);
        const size_t steps = steps_of(run);
        oct_html_put(html, "<tr><td>");
        oct_html_text(html, oct_report_string(run, "name"));
        oct_html_put(html, "<td>");
        oct_html_text(html, oct_report_string(run, "format"));
        oct_html_put(html, "<td class=\"n\">%zu</td>", steps);
        put_number(html, "", value_at(run, "loss", 0), 4);
        put_number(html, "", steps ? value_at(run, "loss", steps - 1) : (double)NAN, 4);
        put_number(html, "", median_of(run, "tokens_per_second"), 0);
        put_number(html, " MiB", median_of(run, "peak_memory_bytes") * 0x1p-20, 0);
        oct_html_put(html, "<td class=\"words\">");
        oct_html_text(html, oct_report_string(run, "words"));
        oct_html_put(html, "</tr>\n");
    }
    oct_html_put(html, "</tbody></table></div></details></section>\n");
}
