/* Wall seconds by part of a step, for metrics; never an input of any computation. */
#ifndef OCT_BASE_PROFILE_H
#define OCT_BASE_PROFILE_H

typedef enum oct_part {
    OCT_PART_FORWARD,
    OCT_PART_BACKWARD,
    OCT_PART_QUANTIZE,
    OCT_PART_MATMUL, /* every matrix product, packing included */
    OCT_PART_ATTENTION,
    OCT_PART_ALL_GATHER,
    OCT_PART_REDUCE_SCATTER,
    OCT_PART_OPTIMIZER, /* update and refresh */
    OCT_PART_CHECKPOINT,
    OCT_PART_COUNT
} oct_part;

typedef struct oct_profile {
    double seconds[OCT_PART_COUNT];
} oct_profile;

const char *oct_part_name(oct_part part); /* the key in metrics.jsonl */

/* Monotonic seconds. */
double oct_clock_seconds(void);

/* seconds[part] += now - started. profile may be NULL. */
void oct_profile_add(oct_profile *profile, oct_part part, double started);

#endif
