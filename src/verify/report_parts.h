/* Sections of report.html, one function each; a section without data writes nothing. */
#ifndef OCT_VERIFY_REPORT_PARTS_H
#define OCT_VERIFY_REPORT_PARTS_H

#include <jansson.h>

#include "verify/html.h"

extern const char *const oct_report_style[]; /* the style element, in pieces up to NULL */

/* Member as text, "" if it is no string; as a number, NaN if it is none. */
const char *oct_report_string(const json_t *object, const char *key);
double oct_report_number(const json_t *object, const char *key);

/* 0 bf16, 1 mxfp8, 2 hif8, by the beginning of the name; -1: none of them. */
int oct_report_format(const char *name);

void oct_report_curves(oct_html *html, const json_t *report);
void oct_report_performance(oct_html *html, const json_t *report);
void oct_report_numerics(oct_html *html, const json_t *report);
void oct_report_scales(oct_html *html, const json_t *report);
void oct_report_cases(oct_html *html, const json_t *report);
void oct_report_runs(oct_html *html, const json_t *report);
void oct_report_environment(oct_html *html, const json_t *report);

/* The runs that show the three formats side by side: equal in everything but low_precision, as many
 * formats and then as many steps as there are. trio[f] NULL: none of this format. */
void oct_report_trio(const json_t *report, const json_t *trio[3]);

#endif
