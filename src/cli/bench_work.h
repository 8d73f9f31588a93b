/* The least that a training step has to do, part by part: counted from the events of one step and,
 * where there are none, from formulas (docs/benchmarks.md). */
#ifndef OCT_CLI_BENCH_WORK_H
#define OCT_CLI_BENCH_WORK_H

#include "base/profile.h"
#include "base/trace.h"
#include "trainer/build.h"

/* Operations of either inner loop, bytes read and written. */
typedef struct oct_bench_part_work {
    double fma, integer, bytes;
} oct_bench_part_work;

typedef struct oct_bench_work {
    const oct_build *build;
    oct_bench_part_work parts[OCT_PART_COUNT];
    double quantized_swiglu; /* values of experts' SwiGLU that their quantization makes */
    char last_fqn[256];
    const char *last_phase;
    bool last_was_integer;
} oct_bench_work;

/* A trace sink that counts products and quantizations; arg is the oct_bench_work. */
void oct_bench_work_sink(void *arg, const oct_trace *trace, const oct_trace_event *event);

/* Adds what the events do not show. */
void oct_bench_work_finish(oct_bench_work *work);

/* Seconds at these rates per second. */
double oct_bench_work_seconds(const oct_bench_part_work *work, double fma, double integer,
                              double copy);

#endif
