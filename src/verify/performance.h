/* The speed of the formats side by side (design document, 17.4): steady steps of runs of the
 * production trainer whose configurations differ in low_precision alone. */
#ifndef OCT_VERIFY_PERFORMANCE_H
#define OCT_VERIFY_PERFORMANCE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* What a run is judged by: steps that follow the warm-up without a gap. */
enum { OCT_PERFORMANCE_WARMUP = 2, OCT_PERFORMANCE_STEPS = 20 };

enum { OCT_PERFORMANCE_PARTS = 6 };
extern const char *const oct_performance_parts[OCT_PERFORMANCE_PARTS]; /* keys of "seconds" */

/* Steady steps of one format, over all its turns. Begin with zeros. */
typedef struct oct_performance {
    int64_t steps, tokens;
    int64_t tokens_per_step; /* the same in every step */
    double seconds;
    double parts[OCT_PERFORMANCE_PARTS];
    int64_t peak_memory_bytes; /* of the largest rank */
} oct_performance;

/* Adds `steps` rows of metrics.jsonl (kind train) after the first `warmup` ones. Errors: OCT_E_DATA
 * naming run and step: fewer rows, a skipped step, a gap, no time, another number of tokens than
 * before. */
oct_status oct_performance_add(oct_performance *sum, const char *run, const json_t *rows,
                               int64_t warmup, int64_t steps, oct_err *err) OCT_MUST_CHECK;

double oct_performance_tokens_per_second(const oct_performance *p); /* NaN without steps */
double oct_performance_step_seconds(const oct_performance *p);      /* mean; NaN without steps */

/* The rule of 17.4, for one format alone: throughput / BF16's >= 1, mean step time / BF16's <= 1.
 */
double oct_performance_throughput_ratio(const oct_performance *low, const oct_performance *bf16);
double oct_performance_step_time_ratio(const oct_performance *low, const oct_performance *bf16);
bool oct_performance_holds(const oct_performance *low, const oct_performance *bf16);

/* Two resolved configurations (config.yaml of the runs) are the same but for low_precision. Errors:
 * OCT_E_CONFIG naming the first key that differs and both values; those of reading YAML. */
oct_status oct_performance_same_config(const char *bf16_text, const char *bf16_name,
                                       const char *low_text, const char *low_name,
                                       oct_err *err) OCT_MUST_CHECK;

/* {"format", "tokens_per_second", "step_seconds", "throughput_ratio", "step_time_ratio",
 * "peak_memory_bytes": per_rank (stolen; an array), "seconds": {part: of a mean step}}. */
json_t *oct_performance_json(const char *format, const oct_performance *p,
                             const oct_performance *bf16, json_t *per_rank);

#endif
