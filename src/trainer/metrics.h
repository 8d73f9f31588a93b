/* metrics.jsonl: one JSON object per attempted step and per validation. */
#ifndef OCT_TRAINER_METRICS_H
#define OCT_TRAINER_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/profile.h"
#include "base/status.h"

typedef struct oct_step_metrics {
    bool validation;
    int64_t attempt;  /* 1, 2, ...: every step tried, successful or not */
    int64_t step;     /* successful optimizer steps so far */
    double loss;      /* nats per token, before the update */
    double grad_norm; /* before clipping */
    double lr;
    int64_t tokens; /* of this step */
    double tokens_per_second;
    double step_seconds;
    int64_t peak_memory_bytes;
    bool skipped;
    int64_t refreshed_weights;
    int64_t fma_matmuls;
    int64_t expert_load_max; /* most tokens that one expert of one layer got */
    oct_profile profile;
} oct_step_metrics;

typedef struct oct_metrics oct_metrics;

/* Opens for appending. keep_attempt >= 0 first cuts every row with a larger attempt, in one atomic
 * step (a new file is renamed over the old one). Errors: OCT_E_IO, also if there is something that
 * is no regular file. */
oct_status oct_metrics_open(const char *path, int64_t keep_attempt, oct_metrics **out,
                            oct_err *err) OCT_MUST_CHECK;

/* Appends one row in one write. Floats read back to the same bits; non-finite ones are null. */
oct_status oct_metrics_write(oct_metrics *metrics, const oct_step_metrics *row,
                             oct_err *err) OCT_MUST_CHECK;
void oct_metrics_close(oct_metrics *metrics);

/* The row as one JSON object into json->text (no newline). Errors: OCT_E_NOMEM. */
oct_status oct_metrics_format(const oct_step_metrics *row, oct_json *json,
                              oct_err *err) OCT_MUST_CHECK;

#endif
