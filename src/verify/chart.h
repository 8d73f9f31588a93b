/* Pictures of a report as inline SVG: lines over steps, bars of parts, ranges. Colours come from
 * the page's style (classes f0 f1 f2 of the formats, p0 .. p9 of parts); dashes and titles say the
 * same without colour. */
#ifndef OCT_VERIFY_CHART_H
#define OCT_VERIFY_CHART_H

#include <jansson.h>

#include "verify/html.h"

enum { OCT_CHART_STYLES = 3, OCT_CHART_PARTS = 10 };

/* Points (x[i], y[i]); a y that is no number leaves a gap. `style` 0 .. 2 is that of a format. */
typedef struct oct_chart_line {
    const char *name;
    int style;
    int count;
    const double *x, *y;
} oct_chart_line;

/* Lines over one pair of axes. `unit` is written beside the y axis. */
void oct_chart_lines(oct_html *html, const char *title, const char *unit,
                     const oct_chart_line *lines, int count);

/* A horizontal bar of parts. value[p] of part p, drawn to one scale for all bars. */
typedef struct oct_chart_bar {
    const char *name;
    double value[OCT_CHART_PARTS];
} oct_chart_bar;

/* Bars with one legend of `parts` part names; each bar's sum stands behind it in `unit`, and each
 * part has a title with its share. */
void oct_chart_bars(oct_html *html, const char *title, const char *unit, const char *const *names,
                    int parts, const oct_chart_bar *bars, int count);

/* A row of a range picture: low .. high as a line (what is allowed, or what was seen), marks on it.
 */
typedef struct oct_chart_range {
    const char *name;
    double low, high;
    int marks;
    double mark[OCT_CHART_STYLES];
    int style[OCT_CHART_STYLES];
} oct_chart_range;

/* Rows over one logarithmic axis; values that are not positive are left out. */
void oct_chart_ranges(oct_html *html, const char *title, const char *unit,
                      const oct_chart_range *rows, int count);

#endif
