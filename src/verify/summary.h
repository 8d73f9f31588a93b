/* Evidence drawn from a trace: small tables in place of thousands of rows. */
#ifndef OCT_VERIFY_SUMMARY_H
#define OCT_VERIFY_SUMMARY_H

#include "verify/trace.h"

/* [{"fqn", "from", "to"}] of every replacement. */
json_t *oct_summary_replaced(const oct_verify_trace *trace);

/* {FQN: {phase: {"format", "kernel", "count"}}} of the products, either all or those in BF16 and
 * FP32 alone. */
json_t *oct_summary_products(const oct_verify_trace *trace, bool only_high_precision);

/* {role: {"count", "scale_min", "scale_max", "amax_min", "amax_max"}} of HiF8 quantizations. */
json_t *oct_summary_scales(const oct_verify_trace *trace);

/* The gathers of the first micro-batch: [{"fqn", "phase", "physical": [...]}]. */
json_t *oct_summary_gathers(const oct_verify_trace *trace);

/* [{"step", "micro_steps", "products", "gathers", "refreshes"}] of every step. */
json_t *oct_summary_counts(const oct_verify_trace *trace);

#endif
