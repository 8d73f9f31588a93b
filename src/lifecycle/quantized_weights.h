/* The low-precision weights of a model across a run: made when a replacement is finalised, first
 * quantized from the FP32 initial values, and refreshed from the masters after each successful
 * optimizer step - the only place where low precision meets the optimizer. */
#ifndef OCT_LIFECYCLE_QUANTIZED_WEIGHTS_H
#define OCT_LIFECYCLE_QUANTIZED_WEIGHTS_H

#include <stdint.h>

#include "base/arena.h"
#include "low_precision/weight.h"
#include "optim/optimizer.h"
#include "plan/plan.h"

/* Owner of the storages; params point at them through param->storage. */
typedef struct oct_quantized_weights {
    oct_arena arena;
    oct_param **params; /* one per weight, in plan order */
    int64_t count;
} oct_quantized_weights;

void oct_quantized_weights_init(oct_quantized_weights *weights);
void oct_quantized_weights_release(oct_quantized_weights *weights);

/* Gives every matrix parameter of every module that the plan replaced its storage and quantizes it
 * from param->init. Call after oct_plan_apply, before masters are made. Errors: OCT_E_API naming a
 * parameter without initial values; OCT_E_NOMEM. */
oct_status oct_quantized_weights_finalize(oct_quantized_weights *weights, const oct_plan *plan,
                                          const oct_low_precision_policy *policy,
                                          oct_dtype act_dtype, const oct_exec *exec,
                                          oct_trace *trace, oct_err *err) OCT_MUST_CHECK;

/* Refreshes every weight from its master, once. After a successful update and after loading, never
 * else. Errors: OCT_E_API naming a weight whose parameter has no master. */
oct_status oct_quantized_weights_refresh(oct_quantized_weights *weights,
                                         const oct_optimizer *optimizer, const oct_exec *exec,
                                         oct_trace *trace, oct_err *err) OCT_MUST_CHECK;

/* Bytes of the 8-bit storage of all weights, without panels. */
int64_t oct_quantized_weights_bytes(const oct_quantized_weights *weights);

#endif
