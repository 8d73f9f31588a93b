/* Statistics of the FP32 scales that a run used. */
#ifndef OCT_VERIFY_SCALES_H
#define OCT_VERIFY_SCALES_H

#include "verify/trace.h"

/* [{"role", "format", "count", "min", "median", "max", "bad"}] of every role with FP32 scales, in
 * the order of their first event: "count" finite positive scales and "bad" others. "min", "median"
 * and "max" are 0 without any of the former. NULL without memory. */
json_t *oct_scale_statistics(const oct_verify_trace *trace);

/* Scales of all roles that are not finite and positive; -1 if there is no scale at all. */
int64_t oct_scale_faults(const json_t *statistics);

#endif
