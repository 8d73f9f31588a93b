#include "verify/chart.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

enum { WIDTH = 560, HEIGHT = 260, LEFT = 70, RIGHT = 16, TOP = 16, BOTTOM = 40 };

static void open_svg(oct_html *html, const char *title, int height)
{
    oct_html_put(html, "<figure><figcaption>");
    oct_html_text(html, title);
    oct_html_put(html, "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\"><title>", WIDTH,
                 height);
    oct_html_text(html, title);
    oct_html_put(html, "</title>");
}

static void close_svg(oct_html *html)
{
    oct_html_put(html, "</svg>");
}

static void put_text(oct_html *html, const char *class_name, double x, double y, const char *text)
{
    oct_html_put(html, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class_name, x, y);
    oct_html_text(html, text);
    oct_html_put(html, "</text>");
}

/* --- lines ------------------------------------------------------------------------------------ */

/* 1, 2 or 5 times a power of ten: about `count` steps of it make `span`. */
static double nice_step(double span, int count)
{
    const double raw = span / count, power = pow(10.0, floor(log10(raw)));
    const double lead = raw / power;
    return power * (lead < 1.5 ? 1.0 : lead < 3.5 ? 2.0 : lead < 7.5 ? 5.0 : 10.0);
}

typedef struct axes {
    double x_low, x_high, y_low, y_high;
} axes;

static double x_of(const axes *a, double x)
{
    return LEFT + (x - a->x_low) / (a->x_high - a->x_low) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const axes *a, double y)
{
    return TOP + (a->y_high - y) / (a->y_high - a->y_low) * (HEIGHT - TOP - BOTTOM);
}

/* false: there is no finite point. */
static bool fit(const oct_chart_line *lines, int count, axes *a)
{
    *a = (axes){(double)INFINITY, -(double)INFINITY, (double)INFINITY, -(double)INFINITY};
    for (int l = 0; l < count; l++)
        for (int i = 0; i < lines[l].count; i++) {
            if (!isfinite(lines[l].y[i]) || !isfinite(lines[l].x[i]))
                continue;
            a->x_low = fmin(a->x_low, lines[l].x[i]);
            a->x_high = fmax(a->x_high, lines[l].x[i]);
            a->y_low = fmin(a->y_low, lines[l].y[i]);
            a->y_high = fmax(a->y_high, lines[l].y[i]);
        }
    if (!(a->y_high >= a->y_low))
        return false;
    if (a->x_high == a->x_low)
        a->x_high += 1.0;
    const double margin =
        a->y_high > a->y_low ? 0.06 * (a->y_high - a->y_low) : fmax(fabs(a->y_high) * 1e-3, 1e-12);
    a->y_low -= margin;
    a->y_high += margin;
    return true;
}

static void draw_axes(oct_html *html, const axes *a, const char *unit)
{
    char label[48];
    const double y_step = nice_step(a->y_high - a->y_low, 5);
    for (double y = ceil(a->y_low / y_step) * y_step; y <= a->y_high; y += y_step) {
        oct_html_put(html, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y_of(a, y),
                     WIDTH - RIGHT);
        (void)snprintf(label, sizeof label, "%.5g", fabs(y) < 1e-9 * y_step ? 0.0 : y);
        put_text(html, "tick end", LEFT - 8, y_of(a, y) + 4, label);
    }
    const double x_step = fmax(1.0, nice_step(a->x_high - a->x_low, 8));
    for (double x = ceil(a->x_low / x_step) * x_step; x <= a->x_high; x += x_step) {
        (void)snprintf(label, sizeof label, "%.0f", x);
        put_text(html, "tick mid", x_of(a, x), HEIGHT - BOTTOM + 18, label);
    }
    oct_html_put(html, "<path class=\"axis\" d=\"M%d %dH%d\"/>", LEFT, HEIGHT - BOTTOM,
                 WIDTH - RIGHT);
    put_text(html, "tick mid", 0.5 * (LEFT + WIDTH - RIGHT), HEIGHT - 6, "step");
    oct_html_put(html, "<text class=\"tick mid\" transform=\"translate(14 %.1f) rotate(-90)\">",
                 0.5 * (TOP + HEIGHT - BOTTOM));
    oct_html_text(html, unit);
    oct_html_put(html, "</text>");
}

static void draw_line(oct_html *html, const axes *a, const oct_chart_line *line)
{
    enum { MOST_POINTS = 120 };
    bool is_open = false;
    oct_html_put(html, "<path class=\"line f%d\" d=\"", line->style);
    for (int i = 0; i < line->count; i++) {
        const bool good = isfinite(line->y[i]);
        if (good)
            oct_html_put(html, "%c%.1f %.1f", is_open ? 'L' : 'M', x_of(a, line->x[i]),
                         y_of(a, line->y[i]));
        is_open = good;
    }
    oct_html_put(html, "\"/>");
    for (int i = 0; i < line->count && line->count <= MOST_POINTS; i++) {
        if (!isfinite(line->y[i]))
            continue;
        oct_html_put(html, "<circle class=\"dot f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>",
                     line->style, x_of(a, line->x[i]), y_of(a, line->y[i]));
        oct_html_text(html, line->name);
        oct_html_put(html, ", step %.0f: %.6g</title></circle>", line->x[i], line->y[i]);
    }
}

static void legend_of_lines(oct_html *html, const oct_chart_line *lines, int count)
{
    oct_html_put(html, "<p class=\"legend\">");
    for (int l = 0; l < count; l++) {
        int bad = 0;
        for (int i = 0; i < lines[l].count; i++)
            bad += !isfinite(lines[l].y[i]);
        oct_html_put(html,
                     "<span><svg class=\"key\" viewBox=\"0 0 34 10\" aria-hidden=\"true\"><path "
                     "class=\"line f%d\" d=\"M1 5H33\"/></svg>",
                     lines[l].style);
        oct_html_text(html, lines[l].name);
        if (bad)
            oct_html_put(html, " <b class=\"bad\">(%d values are not finite)</b>", bad);
        oct_html_put(html, "</span>");
    }
    oct_html_put(html, "</p>");
}

void oct_chart_lines(oct_html *html, const char *title, const char *unit,
                     const oct_chart_line *lines, int count)
{
    axes a;
    open_svg(html, title, HEIGHT);
    if (fit(lines, count, &a)) {
        draw_axes(html, &a, unit);
        for (int l = 0; l < count; l++)
            draw_line(html, &a, &lines[l]);
    } else {
        put_text(html, "tick mid", WIDTH / 2, HEIGHT / 2, "no finite value");
    }
    close_svg(html);
    legend_of_lines(html, lines, count);
    oct_html_put(html, "</figure>");
}

/* --- bars ------------------------------------------------------------------------------------- */

void oct_chart_bars(oct_html *html, const char *title, const char *unit, const char *const *names,
                    int parts, const oct_chart_bar *bars, int count)
{
    enum { ROW = 34, NAME = 88, SUM = 92 };
    double largest = 0.0;
    for (int b = 0; b < count; b++) {
        double sum = 0.0;
        for (int p = 0; p < parts; p++)
            sum += fmax(0.0, bars[b].value[p]);
        largest = fmax(largest, sum);
    }
    open_svg(html, title, count * ROW + 8);
    for (int b = 0; b < count; b++) {
        double sum = 0.0, x = NAME;
        char label[64];
        for (int p = 0; p < parts; p++)
            sum += fmax(0.0, bars[b].value[p]);
        put_text(html, "label end", NAME - 8, b * ROW + 24, bars[b].name);
        for (int p = 0; p < parts; p++) {
            const double value = fmax(0.0, bars[b].value[p]);
            const double width =
                largest > 0.0 ? value / largest * (double)(WIDTH - NAME - SUM) : 0.0;
            if (width <= 0.0)
                continue;
            oct_html_put(html,
                         "<rect class=\"part p%d\" x=\"%.1f\" y=\"%d\" width=\"%.2f\" "
                         "height=\"%d\"><title>",
                         p, x, b * ROW + 8, width, ROW - 10);
            oct_html_text(html, bars[b].name);
            oct_html_put(html, ", ");
            oct_html_text(html, names[p]);
            oct_html_put(html, ": %.4g %s, %.1f %%</title></rect>", value, unit,
                         100.0 * value / sum);
            if (parts > 1 && width > 36.0) {
                (void)snprintf(label, sizeof label, "%.0f %%", 100.0 * value / sum);
                put_text(html, "inside mid", x + 0.5 * width, b * ROW + 24, label);
            }
            x += width;
        }
        (void)snprintf(label, sizeof label, "%.4g %s", sum, unit);
        put_text(html, "label", x + 8, b * ROW + 24, label);
    }
    close_svg(html);
    oct_html_put(html, "<p class=\"legend\">");
    for (int p = 0; p < parts && parts > 1; p++) {
        oct_html_put(html,
                     "<span><svg class=\"key\" viewBox=\"0 0 34 10\" aria-hidden=\"true\"><rect "
                     "class=\"part p%d\" width=\"34\" height=\"10\"/></svg>",
                     p);
        oct_html_text(html, names[p]);
        oct_html_put(html, "</span>");
    }
    oct_html_put(html, "</p></figure>");
}

/* --- ranges ----------------------------------------------------------------------------------- */

void oct_chart_ranges(oct_html *html, const char *title, const char *unit,
                      const oct_chart_range *rows, int count)
{
    enum { ROW = 17, NAME = 244, HEAD = 8, FOOT = 34 };
    double low = (double)INFINITY, high = 0.0;
    for (int r = 0; r < count; r++) {
        low = rows[r].low > 0.0 ? fmin(low, rows[r].low) : low;
        high = fmax(high, rows[r].high);
        for (int m = 0; m < rows[r].marks; m++) {
            low = rows[r].mark[m] > 0.0 ? fmin(low, rows[r].mark[m]) : low;
            high = fmax(high, rows[r].mark[m]);
        }
    }
    const int bottom = HEAD + count * ROW, height = bottom + FOOT;
    open_svg(html, title, height);
    if (!(high >= low && isfinite(high))) {
        put_text(html, "tick mid", WIDTH / 2, height / 2, "no positive value");
        close_svg(html);
        oct_html_put(html, "</figure>");
        return;
    }
    const double from = log10(low) - 0.05, to = log10(high) + 0.05 + (low == high);
    const double scale = (double)(WIDTH - NAME - RIGHT) / (to - from);
    const int stride = (int)fmax(1.0, ceil((to - from) / 8.0));
    for (int e = (int)floor(from); e <= (int)ceil(to); e++)
        for (int digit = 1; digit <= 5; digit += digit == 1 ? 1 : 3) {
            const double at = (double)e + log10((double)digit);
            char label[32];
            if (at < from || at > to || (digit > 1 && to - from > 3.0) ||
                (digit == 1 && e % stride != 0))
                continue;
            const double x = NAME + (at - from) * scale;
            oct_html_put(html, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>", x, HEAD, bottom);
            (void)snprintf(label, sizeof label, "%.3g", pow(10.0, at));
            put_text(html, "tick mid", x, bottom + 14, label);
        }
    put_text(html, "tick mid", 0.5 * (NAME + WIDTH - RIGHT), height - 4, unit);
    for (int r = 0; r < count; r++) {
        const double y = HEAD + (r + 0.5) * ROW;
        put_text(html, "tick small end", NAME - 8, y + 4, rows[r].name);
        const double begin = rows[r].low > 0.0 ? fmax(from, log10(rows[r].low)) : from;
        if (rows[r].high > 0.0 && rows[r].high >= rows[r].low)
            oct_html_put(html,
                         "<path class=\"range\" d=\"M%.1f %.1fH%.1f\"><title>%.4g to "
                         "%.4g</title></path>",
                         NAME + (begin - from) * scale, y,
                         NAME + (log10(rows[r].high) - from) * scale + 0.1, rows[r].low,
                         rows[r].high);
        for (int m = 0; m < rows[r].marks; m++)
            if (rows[r].mark[m] > 0.0)
                oct_html_put(html,
                             "<circle class=\"mark f%d\" cx=\"%.1f\" cy=\"%.1f\" "
                             "r=\"4\"><title>%.4g</title></circle>",
                             rows[r].style[m], NAME + (log10(rows[r].mark[m]) - from) * scale, y,
                             rows[r].mark[m]);
    }
    close_svg(html);
    oct_html_put(html, "</figure>");
}
