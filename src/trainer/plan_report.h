/* The dry run: what a configuration would replace, shard, store and compute. Built on meta; no
 * weight is allocated. */
#ifndef OCT_TRAINER_PLAN_REPORT_H
#define OCT_TRAINER_PLAN_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "trainer/build.h"
#include "trainer/high_precision.h"
#include "trainer/machine.h"

/* Bytes of the rank that needs most, by what they are for. */
typedef struct oct_plan_bytes {
    int64_t master, moments;
    int64_t low_precision;  /* 8-bit storage of the rank's shards */
    int64_t high_precision; /* compute copies of the other parameters */
    int64_t gradients;      /* FP32 accumulators */
    int64_t staging;        /* a gradient on its way to its owners; 0 for one rank */
    int64_t unsharded;      /* gathered weights: of the largest unit, of all without
                             * fsdp_config.reshard_after_forward; 0 for one rank */
    int64_t panels;         /* packed forms that low-precision weights keep */
    int64_t activations;    /* of one micro-batch, kept for the backward pass and temporaries */
    int64_t peak;           /* the sum: all of it lives at once */
} oct_plan_bytes;

/* One parameter. rows_per_rank points to `ranks` values. */
typedef struct oct_plan_shard {
    const oct_param *param;
    bool low_precision; /* an 8-bit weight */
    bool replicated;
    int64_t *rows_per_rank;
} oct_plan_shard;

typedef struct oct_plan_report {
    int64_t ranks;
    int64_t parameters_total, parameters_active, parameters_low_precision;
    int64_t replaced_linear, replaced_experts;
    oct_high_precision high_precision;
    oct_plan_shard *shards; /* one per parameter, in tree order */
    int64_t shard_count;
    oct_plan_bytes bytes;
    /* In one step, of the rank with the most: received in all-gathers, sent in reduce-scatters. */
    int64_t all_gather_bytes, reduce_scatter_bytes;
    double flops_per_token_megatron, flops_per_token_torchtitan;
} oct_plan_report;

/* `build` must have passed the plan stage and no later one. Arrays live in build->persist. Errors:
 * OCT_E_SHAPE naming the parameter, rows and ranks if a shard breaks the rule of the format or of
 * fsdp_config.shard and fallback_to_unsharded is false. */
oct_status oct_plan_report_make(oct_build *build, int64_t ranks, oct_plan_report *out,
                                oct_err *err) OCT_MUST_CHECK;

/* One JSON object; with the time of a step on `machine`, unless that is NULL. */
oct_status oct_plan_report_json(const oct_build *build, const oct_plan_report *report,
                                const oct_machine *machine, oct_json *json,
                                oct_err *err) OCT_MUST_CHECK;

#endif
