/* Is a short training curve sound (design document, 17.3.2): finite, no sustained blow-up, and not
 * frozen from the first step? */
#ifndef OCT_VERIFY_CURVES_H
#define OCT_VERIFY_CURVES_H

#include <jansson.h>

enum { OCT_CURVE_WINDOW = 5 }; /* steps at either end that are compared */

/* rows: of metrics.jsonl, kind train, in order. Returns NULL, or what is wrong with them: */
#define OCT_CURVE_SHORT     "fewer than two windows of steps"
#define OCT_CURVE_NONFINITE "a loss or gradient norm is not finite"
#define OCT_CURVE_LOSS_UP   "the last losses lie above the first"
#define OCT_CURVE_NORM_UP   "the last gradient norms are ten times the first"
#define OCT_CURVE_FROZEN    "the loss does not move"
const char *oct_curve_fault(const json_t *rows);

#endif
