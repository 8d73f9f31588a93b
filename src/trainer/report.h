/* Reading metrics.jsonl back, to compare runs. */
#ifndef OCT_TRAINER_REPORT_H
#define OCT_TRAINER_REPORT_H

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* One successful training step. */
typedef struct oct_curve_point {
    int64_t step;
    double loss;
    double step_seconds;
    int64_t tokens;
} oct_curve_point;

/* The training curve of a run directory. */
typedef struct oct_curve {
    const char *run_dir;
    const char *format; /* "mxfp8_e4m3", "hif8", "bfloat16", "float32" */
    oct_curve_point *points;
    int64_t count;
    int64_t skipped; /* attempts without an update */
    int64_t peak_memory_bytes;
} oct_curve;

/* Reads config.yaml and metrics.jsonl of a run. Errors: OCT_E_CONFIG if `run_dir` is no run
 * directory; OCT_E_DATA naming the line for a row that is no metrics row. */
oct_status oct_curve_read(const char *run_dir, oct_arena *arena, oct_curve *out,
                          oct_err *err) OCT_MUST_CHECK;

/* Median tokens per second over all steps but the first tenth (warm-up), the mean of the two middle
 * ones of an even count. 0 without steps. */
double oct_curve_tokens_per_second(const oct_curve *curve, oct_arena *scratch, oct_err *err);

/* The point of a step, NULL if the curve has none. Steps ascend. */
const oct_curve_point *oct_curve_at(const oct_curve *curve, int64_t step);

/* Largest |mean a - mean b| / |mean b| over windows of `window` consecutive steps that both have
 * (window 1: single steps) with finite losses; *step is where the window ends. -1, and *step -1, if
 * there is none. */
double oct_curve_largest_gap(const oct_curve *a, const oct_curve *b, int64_t window, int64_t *step);

/* Mean loss of the last tenth of the steps. */
double oct_curve_final_loss(const oct_curve *curve);

/* Entropy of the token frequencies of the run's training data, in nats per token: the loss of the
 * best model that knows no context. Reads the data once. */
oct_status oct_curve_unigram_entropy(const char *run_dir, oct_arena *arena, double *nats,
                                     oct_err *err) OCT_MUST_CHECK;

#endif
