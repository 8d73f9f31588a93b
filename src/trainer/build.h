/* From a configuration to a model that can train: one array of stages in their one legal order. A
 * stage never writes what an earlier one made, and none runs before its predecessor. */
#ifndef OCT_TRAINER_BUILD_H
#define OCT_TRAINER_BUILD_H

#include "base/arena.h"
#include "base/ledger.h"
#include "base/trace.h"
#include "comm/comm.h"
#include "config/config.h"
#include "fsdp/fsdp.h"
#include "fsdp/shard.h"
#include "kernels/exec.h"
#include "lifecycle/quantized_weights.h"
#include "low_precision/config.h"
#include "model/deepseek_v3/deepseek_v3.h"
#include "module/run.h"
#include "optim/optimizer.h"
#include "plan/plan.h"

typedef enum oct_stage {
    OCT_STAGE_POLICY,      /* kernels, low-precision policy, capability gate */
    OCT_STAGE_HF_CONFIG,   /* read and check the HF config */
    OCT_STAGE_META,        /* module tree on meta, frozen-structure check */
    OCT_STAGE_PLAN,        /* compile the replacement plan: structure only */
    OCT_STAGE_CUT,         /* which rows each rank owns */
    OCT_STAGE_MATERIALISE, /* FP32 initial values of these rows */
    OCT_STAGE_REPLACE,     /* install the replacements */
    OCT_STAGE_FINALIZE,    /* quantize the replaced weights */
    OCT_STAGE_SHARD,       /* several ranks: units, and how each 8-bit weight is gathered */
    OCT_STAGE_MASTERS,     /* FP32 masters, moments, compute copies, gradient accumulators */
    OCT_STAGE_COUNT
} oct_stage;

const char *oct_stage_name(oct_stage stage);

/* Everything that a run is made of. Owned by whoever called oct_build_init; must stay where it is.
 */
typedef struct oct_build {
    const oct_config *config; /* borrowed; resolved */
    oct_comm *comm;           /* borrowed; NULL: one rank */
    int next_stage;           /* the only stage that may run */
    oct_ledger ledger;        /* memory of this rank */
    oct_arena persist;        /* plan, HF strings */
    oct_arena step;           /* activations of one micro-batch */
    oct_arena scratch;        /* temporaries of one call */
    oct_kernels kernels;
    oct_exec exec;
    oct_trace trace;
    oct_profile profile;
    oct_low_precision_policy policy;
    oct_hf_config hf;
    oct_module_tree tree;
    oct_dsv3 *model;
    oct_plan *plan;
    oct_quantized_weights weights;
    oct_fsdp *fsdp; /* NULL: one rank */
    oct_optimizer *optimizer;
    oct_dtype act_dtype, reduce_dtype;
    bool keep_panels; /* set after init: many passes read the weights as they are */
} oct_build;

/* comm NULL: one rank. */
void oct_build_init(oct_build *build, const oct_config *config, oct_comm *comm);
void oct_build_release(oct_build *build);

/* Runs one stage. Errors: OCT_E_API naming both stages if it is not this one's turn; else those of
 * the stage. After a failure only oct_build_release may follow. */
oct_status oct_build_stage(oct_build *build, oct_stage stage, oct_err *err) OCT_MUST_CHECK;

/* Runs every stage that has not run yet, up to and including `last`. */
oct_status oct_build_through(oct_build *build, oct_stage last, oct_err *err) OCT_MUST_CHECK;

int oct_build_rank(const oct_build *build);
int oct_build_ranks(const oct_build *build);

/* How fsdp_config shards over so many ranks. */
oct_sharding oct_build_sharding(const oct_config *config, int64_t ranks);

/* oct_shard_decide under the law of the format that the parameter computes in. */
oct_status oct_build_shard_decide(const oct_build *build, const oct_sharding *sharding,
                                  const oct_param *param, bool low_precision, bool *replicated,
                                  oct_err *err) OCT_MUST_CHECK;

/* Does a product of an 8-bit weight pack it, rather than find panels that the weight keeps? Not on
 * one rank with several micro-batches a step, which read the same weight again. */
bool oct_build_packs_at_use(const oct_build *build, int64_t ranks);

/* What decides about the memory of a training pass on one of so many ranks. After the plan stage.
 */
oct_dsv3_pass_shape oct_build_pass_shape(const oct_build *build, int64_t ranks);

/* Gives both arenas of a pass their planned size in one block each, so that growing does not leave
 * small blocks behind. Before the first pass; pages that no pass writes cost nothing. */
oct_status oct_build_prepare(oct_build *build, oct_err *err) OCT_MUST_CHECK;

/* What a pass runs with. */
oct_run oct_build_run(oct_build *build, bool training);

/* Several ranks: after the last micro-batch of a step, before its gradients are read. Collective.
 */
oct_status oct_build_finish_gradients(oct_build *build, oct_err *err) OCT_MUST_CHECK;

/* Releases gathered weights and empties the arenas of a pass, when nothing in them is alive. One
 * that grew in several blocks is one block from then on. Not collective. */
void oct_build_settle(oct_build *build);

/* Settles and makes both arenas as large as passes over `tokens` tokens can ever need, judged by
 * those that ran: how many rows an expert gets and how many remainders its operands hold depends on
 * the data. No later pass of this size asks the heap. */
oct_status oct_build_reserve(oct_build *build, int64_t tokens, oct_err *err) OCT_MUST_CHECK;

/* Brings every compute form up to date with the masters: after an update or a load.
 * *refreshed = number of low-precision weights rewritten. */
oct_status oct_build_refresh(oct_build *build, int64_t *refreshed, oct_err *err) OCT_MUST_CHECK;

#endif
