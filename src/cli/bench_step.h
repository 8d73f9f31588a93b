/* What the two sides of octet bench step share. */
#ifndef OCT_CLI_BENCH_STEP_H
#define OCT_CLI_BENCH_STEP_H

#include "cli/bench_harness.h"

/* Makes steps in this process, which may be one of several ranks, and lets rank 0 print one JSON
 * object: `step_seconds` [..], `tokens`, `loss`, `peak_memory_bytes`, `parts` {name: {seconds,
 * floor}}. */
oct_status oct_bench_step_child(oct_bench *bench, oct_err *err) OCT_MUST_CHECK;

#endif
