/* report.html: one page that shows a report.json; needs no other file, no script and no network. */
#ifndef OCT_VERIFY_REPORT_HTML_H
#define OCT_VERIFY_REPORT_HTML_H

#include <jansson.h>

#include "base/status.h"

/* report (schema 1): "environment" {..}, "cases" [{id, title, status, checks [{what, required,
 * found, ok}], evidence [..], runs [..], seconds}], "runs" [{name, format, words, steps, loss,
 * grad_norm, tokens_per_second, step_seconds, peak_memory_bytes, seconds {part: []}}]; optional
 * "scales"
 * [{role, format, count, min, median, max}], "numerics" (oct_numerics_json), "performance"
 * (verify/performance.h). Replaces `path` in one step. Errors: OCT_E_API naming the member that is
 * missing or wrong; OCT_E_NOMEM; OCT_E_IO. */
oct_status oct_verify_report_html(const json_t *report, const char *path,
                                  oct_err *err) OCT_MUST_CHECK;

#endif
