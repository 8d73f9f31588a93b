/* Performance, numerics and scales of a report. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "verify/chart.h"
#include "verify/report_parts.h"

enum { MOST_ROWS = 128 };

static void put_cell(oct_html *html, double value, const char *fmt)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%g", value);
    if (isfinite(value))
        oct_html_put(html, "<td class=\"n\" title=\"%s\">", text);
    else
        oct_html_put(html, "<td class=\"n\">");
    if (isfinite(value) && strcmp(fmt, "%.4f") == 0)
        oct_html_put(html, "%.4f", value);
    else if (isfinite(value))
        oct_html_put(html, "%.4g", value);
    else
        oct_html_put(html, "-");
    oct_html_put(html, "</td>");
}

static void put_name(oct_html *html, const char *text)
{
    oct_html_put(html, "<td>");
    oct_html_text(html, text);
    oct_html_put(html, "</td>");
}

/* --- time and memory -------------------------------------------------------------------------- */

/* Parts of a step that exclude one another, as metrics.jsonl names them. */
static const char *const part_names[] = {"matmul",     "quantize",       "attention", "optimizer",
                                         "all_gather", "reduce_scatter", "rest"};
enum { PARTS = sizeof part_names / sizeof part_names[0] };

static double mean_of(const json_t *values)
{
    double sum = 0.0;
    const size_t count = json_array_size(values);
    for (size_t i = 0; i < count; i++)
        sum += json_number_value(json_array_get(values, i));
    return count ? sum / (double)count : 0.0;
}

static double largest_of(const json_t *values)
{
    double most = 0.0;
    for (size_t i = 0; i < json_array_size(values); i++)
        most = fmax(most, json_number_value(json_array_get(values, i)));
    return most;
}

/* A member that is a number or a list of them: its mean. */
static double mean_member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_array(value) ? mean_of(value) : json_number_value(value);
}

static void draw_shares(oct_html *html, const json_t *const *rows, int count)
{
    oct_chart_bar time[3] = {{0}}, memory[3] = {{0}};
    static const char *const memory_names[] = {"peak memory"};
    for (int f = 0; f < count; f++) {
        const json_t *seconds = json_object_get(rows[f], "seconds");
        const json_t *peak = json_object_get(rows[f], "peak_memory_bytes");
        double rest = mean_member(rows[f], "step_seconds");
        time[f].name = memory[f].name = oct_report_string(rows[f], "format");
        for (int p = 0; p < PARTS - 1; p++) {
            time[f].value[p] = 1e3 * mean_member(seconds, part_names[p]);
            rest -= 1e-3 * time[f].value[p];
        }
        time[f].value[PARTS - 1] = 1e3 * fmax(0.0, rest);
        memory[f].value[0] =
            0x1p-20 * (json_is_array(peak) ? largest_of(peak) : json_number_value(peak));
    }
    oct_html_put(html, "<div class=\"pair\">");
    oct_chart_bars(html, "Where the time of a step goes (mean)", "ms", part_names, PARTS, time,
                   count);
    oct_chart_bars(html, "Peak memory of the largest rank", "MiB", memory_names, 1, memory, count);
    oct_html_put(html, "</div>");
}

static void put_formats(oct_html *html, const json_t *formats)
{
    oct_html_put(html, "<div class=\"wide\"><table><thead><tr><th>format<th "
                       "class=\"n\">tokens/s<th class=\"n\">mean "
                       "step, s<th class=\"n\">throughput / BF16<th class=\"n\">step time / BF16"
                       "<th class=\"n\">quantize<th class=\"n\">matmul<th class=\"n\">all-gather"
                       "<th class=\"n\">reduce-scatter<th class=\"n\">peak memory of each rank, "
                       "MiB<th class=\"n\">of all</tr></thead><tbody>");
    for (size_t i = 0; i < json_array_size(formats); i++) {
        static const char *const shares[] = {"quantize", "matmul", "all_gather", "reduce_scatter"};
        const json_t *row = json_array_get(formats, i);
        const json_t *seconds = json_object_get(row, "seconds");
        const json_t *peak = json_object_get(row, "peak_memory_bytes");
        double all = 0.0;
        oct_html_put(html, "<tr>");
        put_name(html, oct_report_string(row, "format"));
        put_cell(html, oct_report_number(row, "tokens_per_second"), "");
        put_cell(html, oct_report_number(row, "step_seconds"), "");
        put_cell(html, oct_report_number(row, "throughput_ratio"), "");
        put_cell(html, oct_report_number(row, "step_time_ratio"), "");
        for (size_t s = 0; s < sizeof shares / sizeof shares[0]; s++)
            oct_html_put(html, "<td class=\"n\">%.1f %%</td>",
                         100.0 * mean_member(seconds, shares[s]) /
                             mean_member(row, "step_seconds"));
        oct_html_put(html, "<td class=\"n\">");
        for (size_t r = 0; r < json_array_size(peak); r++) {
            const double bytes = json_number_value(json_array_get(peak, r));
            oct_html_put(html, "%s%.0f", r ? " " : "", bytes * 0x1p-20);
            all += bytes;
        }
        oct_html_put(html, "</td><td class=\"n\">%.0f</td></tr>\n", all * 0x1p-20);
    }
    oct_html_put(html, "</tbody></table></div>");
}

static void put_switches(oct_html *html, const json_t *switches)
{
    if (json_array_size(switches) == 0)
        return;
    oct_html_put(html, "<h3>What a switch changes</h3><table><thead><tr><th>switch<th>format"
                       "<th class=\"n\">tokens/s<th class=\"n\">speed / without it"
                       "<th class=\"n\">peak memory, MiB<th class=\"n\">memory / without it"
                       "</tr></thead><tbody>");
    for (size_t i = 0; i < json_array_size(switches); i++) {
        const json_t *row = json_array_get(switches, i);
        oct_html_put(html, "<tr>");
        put_name(html, oct_report_string(row, "switch"));
        put_name(html, oct_report_string(row, "format"));
        put_cell(html, oct_report_number(row, "tokens_per_second"), "");
        put_cell(html, oct_report_number(row, "speed_ratio"), "");
        put_cell(html, oct_report_number(row, "peak_memory_bytes") * 0x1p-20, "");
        put_cell(html, oct_report_number(row, "memory_ratio"), "");
        oct_html_put(html, "</tr>\n");
    }
    oct_html_put(html, "</tbody></table>");
}

void oct_report_performance(oct_html *html, const json_t *report)
{
    const json_t *performance = json_object_get(report, "performance");
    const json_t *formats = json_object_get(performance, "formats"), *rows[3];
    int count = 0;
    if (performance)
        for (; count < 3 && count < (int)json_array_size(formats); count++)
            rows[count] = json_array_get(formats, (size_t)count);
    else {
        const json_t *trio[3];
        oct_report_trio(report, trio);
        for (int f = 0; f < 3; f++)
            if (trio[f])
                rows[count++] = trio[f];
    }
    if (count == 0)
        return;
    oct_html_put(html, "<section id=\"performance\"><h2>Time and memory</h2>");
    if (performance) {
        oct_html_put(
            html,
            "<p>%.0f steps of each format after %.0f of warm-up in each of %.0f "
            "turns, on %.0f rank%s, %.0f tokens a step, ",
            oct_report_number(performance, "steps"), oct_report_number(performance, "warmup"),
            oct_report_number(performance, "turns"), oct_report_number(performance, "ranks"),
            oct_report_number(performance, "ranks") == 1.0 ? "" : "s",
            oct_report_number(performance, "tokens"));
        oct_html_put(html, "<code>");
        oct_html_text(html, oct_report_string(performance, "config"));
        oct_html_put(html, "</code>. The formats take turns. %s</p>",
                     json_is_true(json_object_get(performance, "judged"))
                         ? "Each 8-bit format is judged alone: throughput at least 1, step time at "
                           "most 1."
                         : "The quick form gives no verdict on speed.");
        put_formats(html, formats);
    } else {
        oct_html_put(html, "<p>From the runs of the curves, tracing included: shares, no speed."
                           "</p>");
    }
    draw_shares(html, rows, count);
    put_switches(html, json_object_get(performance, "switches"));
    oct_html_put(html, "</section>\n");
}

/* --- numerics --------------------------------------------------------------------------------- */

/* A parameter below its block: layers.0.mlp.experts.down_proj is experts.down_proj. */
static const char *short_name(const char *tensor)
{
    static const char *const blocks[] = {".self_attn.", ".mlp."};
    for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
        const char *at = strstr(tensor, blocks[b]);
        if (at)
            return at + strlen(blocks[b]);
    }
    return tensor;
}

/* Rows of one kind as a picture: NRMSE of one format per row, in its limits. */
static void draw_errors(oct_html *html, const json_t *rows, bool layers, const char *title)
{
    static char names[MOST_ROWS][96];
    static oct_chart_range ranges[MOST_ROWS];
    int count = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *op = oct_report_string(row, "op"), *tensor = oct_report_string(row, "tensor");
        const char *format = oct_report_string(row, "format");
        const double nrmse = oct_report_number(row, "nrmse");
        const int style = oct_report_format(format);
        char name[96];
        if ((strstr(op, "layer") != NULL) != layers || style < 0)
            continue;
        (void)snprintf(name, sizeof name, "%.12s %.12s%s%.24s %.5s", op,
                       layers ? "" : oct_report_string(row, "data"), layers ? "" : " ",
                       short_name(tensor), format);
        int at = 0;
        while (at < count && strcmp(names[at], name) != 0)
            at++;
        if (at == MOST_ROWS)
            continue;
        if (at == count) {
            memcpy(names[at], name, sizeof name);
            ranges[count++] = (oct_chart_range){
                .name = names[at],
                .low = oct_report_number(row, "nrmse_least"),
                .high = oct_report_number(row, "nrmse_most"),
                .marks = 1,
                .mark = {nrmse},
                .style = {style},
            };
        } else if (ranges[at].marks < OCT_CHART_STYLES) { /* the other sizes of the case */
            ranges[at].style[ranges[at].marks] = style;
            ranges[at].mark[ranges[at].marks++] = nrmse;
        }
    }
    if (count > 0)
        oct_chart_ranges(html, title, "NRMSE against BF16; the bar is what is allowed", ranges,
                         count);
}

static void put_layers(oct_html *html, const json_t *layers)
{
    oct_html_put(html, "<table><thead><tr><th>layer<th>format<th class=\"n\">loss of the first "
                       "step<th class=\"n\">gradient norm</tr></thead><tbody>");
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *layer = json_array_get(layers, i);
        const json_t *formats = json_object_get(layer, "formats");
        for (size_t f = 0; f < json_array_size(formats); f++) {
            const json_t *row = json_array_get(formats, f);
            oct_html_put(html, "<tr>");
            put_name(html, oct_report_string(layer, "layer"));
            put_name(html, oct_report_string(row, "format"));
            oct_html_put(html, "<td class=\"n\">%.6f</td><td class=\"n\">%.6f</td></tr>\n",
                         oct_report_number(row, "loss"), oct_report_number(row, "grad_norm"));
        }
    }
    oct_html_put(html, "</tbody></table>");
}

static void put_errors(oct_html *html, const json_t *rows)
{
    static const char *const names[] = {"op", "shape", "data", "format", "tensor"};
    static const char *const figures[] = {"max_abs",    "mse",    "nrmse",       "nrmse_least",
                                          "nrmse_most", "cosine", "cosine_least"};
    oct_html_put(html,
                 "<details><summary>All %zu rows: max abs, MSE, NRMSE, cosine, non-finite</summary>"
                 "<div class=\"wide\"><table><thead><tr><th>product<th>shape<th>data<th>format"
                 "<th>tensor<th class=\"n\">max abs<th class=\"n\">MSE<th class=\"n\">NRMSE"
                 "<th class=\"n\">least<th class=\"n\">most<th class=\"n\">cosine"
                 "<th class=\"n\">least<th class=\"n\">non-finite</tr></thead><tbody>\n",
                 json_array_size(rows));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        oct_html_put(html,
                     json_is_true(json_object_get(row, "ok")) ? "<tr>" : "<tr class=\"bad\">");
        for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
            put_name(html, oct_report_string(row, names[n]));
        for (size_t n = 0; n < sizeof figures / sizeof figures[0]; n++)
            put_cell(html, oct_report_number(row, figures[n]),
                     strncmp(figures[n], "cosine", 6) == 0 ? "%.4f" : "");
        oct_html_put(html, "<td class=\"n\">%.0f</td></tr>\n", oct_report_number(row, "nonfinite"));
    }
    oct_html_put(html, "</tbody></table></div></details>");
}

void oct_report_numerics(oct_html *html, const json_t *report)
{
    const json_t *numerics = json_object_get(report, "numerics");
    const json_t *rows = json_object_get(numerics, "rows");
    if (json_array_size(rows) == 0)
        return;
    oct_html_put(html,
                 "<section id=\"numerics\"><h2>Errors against BF16</h2><p>Every product of "
                 "each 8-bit format and one whole layer, on the inputs of seed %.0f. Limits: "
                 "version %.0f, ",
                 oct_report_number(numerics, "seed"), oct_report_number(numerics, "version"));
    oct_html_text(html, oct_report_string(numerics, "data"));
    oct_html_put(html, ".</p><div class=\"pair\">");
    draw_errors(html, rows, false, "Products");
    draw_errors(html, rows, true, "One layer: loss, norm and gradients");
    oct_html_put(html, "</div>");
    put_layers(html, json_object_get(numerics, "layers"));
    put_errors(html, rows);
    oct_html_put(html, "</section>\n");
}

/* --- scales ----------------------------------------------------------------------------------- */

void oct_report_scales(oct_html *html, const json_t *report)
{
    const json_t *scales = json_object_get(report, "scales");
    static char names[MOST_ROWS][96];
    static oct_chart_range ranges[MOST_ROWS];
    int count = 0;
    if (json_array_size(scales) == 0)
        return;
    oct_html_put(html,
                 "<section id=\"scales\"><h2>Scales</h2><p>FP32 scales by role of the tensor: "
                 "from the least to the largest, the mark is the median. Experts "
                 "without rows are left out: their scale is 1.</p>");
    for (size_t i = 0; i < json_array_size(scales) && count < MOST_ROWS; i++, count++) {
        const json_t *row = json_array_get(scales, i);
        (void)snprintf(names[count], sizeof names[count], "%.60s", oct_report_string(row, "role"));
        ranges[count] = (oct_chart_range){.name = names[count],
                                          .low = oct_report_number(row, "min"),
                                          .high = oct_report_number(row, "max"),
                                          .marks = 1,
                                          .mark = {oct_report_number(row, "median")},
                                          .style = {2}};
    }
    oct_chart_ranges(html, "Scales", "scale", ranges, count);
    oct_html_put(html, "<table><thead><tr><th>role<th class=\"n\">count<th class=\"n\">least"
                       "<th class=\"n\">median<th class=\"n\">largest</tr></thead><tbody>");
    for (size_t i = 0; i < json_array_size(scales); i++) {
        const json_t *row = json_array_get(scales, i);
        oct_html_put(html, "<tr>");
        put_name(html, oct_report_string(row, "role"));
        oct_html_put(html, "<td class=\"n\">%.0f</td>", oct_report_number(row, "count"));
        put_cell(html, oct_report_number(row, "min"), "");
        put_cell(html, oct_report_number(row, "median"), "");
        put_cell(html, oct_report_number(row, "max"), "");
        oct_html_put(html, "</tr>\n");
    }
    oct_html_put(html, "</tbody></table></section>\n");
}
