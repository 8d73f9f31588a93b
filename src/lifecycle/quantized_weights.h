/* The low-precision weights of a model across a run: made when a replacement is finalised, first
 * quantized from the FP32 initial values, refreshed from the masters after each successful
 * optimizer step, and gathered through the extension protocol of sharding - the only place where
 * low precision meets the optimizer and FSDP2. */
#ifndef OCT_LIFECYCLE_QUANTIZED_WEIGHTS_H
#define OCT_LIFECYCLE_QUANTIZED_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "comm/comm.h"
#include "fsdp/fsdp.h"
#include "low_precision/weight.h"
#include "optim/optimizer.h"
#include "plan/plan.h"

/* Owner of the storages. One rank: params point at them through param->storage. Several: `shards`
 * hold the owned rows, and sharding decides when param->storage is the gathered weight. */
typedef struct oct_quantized_weights {
    oct_arena arena;
    oct_comm *comm;              /* borrowed; NULL: one rank */
    oct_param **params;          /* one per weight, in plan order */
    oct_weight_storage **shards; /* of the owned rows; of a replicated parameter all */
    int64_t count;
    bool pack_at_use; /* set between init and finalize: weights have no panels of their own */
    float *amax;      /* one per weight that shares its scale over ranks */
} oct_quantized_weights;

void oct_quantized_weights_init(oct_quantized_weights *weights);
void oct_quantized_weights_release(oct_quantized_weights *weights);

/* Gives every matrix parameter of every module that the plan replaced the storage of its owned rows
 * and quantizes them from param->init. Call after oct_plan_apply, before masters are made.
 * Collective. Errors: OCT_E_API naming a parameter without initial values; OCT_E_NOMEM. */
oct_status oct_quantized_weights_finalize(oct_quantized_weights *weights, const oct_plan *plan,
                                          const oct_low_precision_policy *policy,
                                          oct_dtype act_dtype, const oct_exec *exec, oct_comm *comm,
                                          oct_trace *trace, oct_err *err) OCT_MUST_CHECK;

/* Registers the extension of every sharded weight: MXFP8 gathers one direction for a forward pass
 * after which it is released, else both; HiF8 its data and scales (design document, tables 9.1 and
 * 9.2). narrow_backward: the backward pass of MXFP8 gathers only what dgrad reads; not if it
 * recomputes the forward pass. Before oct_fsdp_seal. */
oct_status oct_quantized_weights_shard(oct_quantized_weights *weights, oct_fsdp *fsdp,
                                       bool narrow_backward, oct_err *err) OCT_MUST_CHECK;

/* Refreshes every weight from its master, once. After a successful update and after loading, never
 * else. Scales that hold for a whole weight come from one MAX over the ranks for all weights.
 * Collective. Errors: OCT_E_API naming a weight whose parameter has no master. */
oct_status oct_quantized_weights_refresh(oct_quantized_weights *weights,
                                         const oct_optimizer *optimizer, const oct_exec *exec,
                                         oct_trace *trace, oct_err *err) OCT_MUST_CHECK;

/* Bytes of the 8-bit storage of this rank, without panels. */
int64_t oct_quantized_weights_bytes(const oct_quantized_weights *weights);

#endif
