/* Learning-rate schedules: warmup, stable, decay. A pure function of the step, so that a resumed
 * run has the same rates and a skipped step does not move it. */
#ifndef OCT_OPTIM_SCHEDULE_H
#define OCT_OPTIM_SCHEDULE_H

#include <stdint.h>

#include "config/config.h"

typedef struct oct_lr_schedule {
    int64_t total_steps;  /* training.train_iters */
    int64_t warmup_steps; /* W, 0 .. total_steps */
    double decay_ratio;   /* share of total_steps that decays; < 0: all after warmup */
    oct_decay_type decay_type;
    double min_factor; /* in [0,1] */
} oct_lr_schedule;

oct_lr_schedule oct_lr_schedule_from_config(const oct_config *config);

/* Factor of the learning rate of the optimizer step with index `step` (0 = first; the number of
 * steps completed before it). With D = round-half-even(ratio * total), at most total - W, and
 * stable = total + 1 - W - D:
 *   step < W           (step + 1) / W
 *   step < W + stable  1
 *   else               min + (1 - min) * f(p), p = (step + 1 - W - stable) / D, at most 1;
 *                      f = 1 - p | 1 - sqrt(p) | (1 + cos(pi p)) / 2 | 1.
 * Arithmetic in double with an own cos: the same bits on every machine. Source: torchtitan's
 * linear_warmup_stable_decay. */
double oct_lr_factor(const oct_lr_schedule *schedule, int64_t step);

/* cos(pi x) for x in [0,1], within 1e-15. */
double oct_cos_pi(double x);

#endif
