/* What a step of a planned configuration would take on a machine. */
#ifndef OCT_TRAINER_STEP_TIME_H
#define OCT_TRAINER_STEP_TIME_H

#include "base/json.h"
#include "trainer/machine.h"
#include "trainer/plan_report.h"

/* Seconds of one optimizer step, by part; docs/scaling.md has the formulas. Nothing overlaps. */
typedef struct oct_step_time {
    int64_t threads; /* of a rank */
    double products; /* projections, dense and shared FFN */
    double experts, head, attention;
    double elementwise; /* norms, rope, SwiGLU, residuals, permutation, loss */
    double pack;        /* 8-bit weights, where products find no panels */
    double optimizer;   /* with refresh */
    double all_gather, reduce_scatter;
    double total;
    double tokens_per_second;   /* of all ranks */
    double communication_share; /* of the total */
} oct_step_time;

/* What a step of `build`, planned as `report`, takes on this machine. */
oct_step_time oct_step_time_of(const oct_machine *machine, const oct_build *build,
                               const oct_plan_report *report);

/* The members "machine", "step_seconds", "tokens_per_second" and "communication_share". */
void oct_step_time_json(const oct_machine *machine, const oct_step_time *time, oct_json *json);

#endif
