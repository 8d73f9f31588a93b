/* What one forward or backward pass runs with, and how a finished gradient reaches its owner. */
#ifndef OCT_MODULE_RUN_H
#define OCT_MODULE_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/profile.h"
#include "base/trace.h"
#include "kernels/exec.h"
#include "module/module.h"

/* Unit = embedding, one decoder layer, or the final norm with the head: what sharding gathers and
 * releases together. Called by the model around each unit; one rank has no hooks. */
typedef enum oct_unit_event {
    OCT_UNIT_PRE_FORWARD,
    OCT_UNIT_POST_FORWARD,
    OCT_UNIT_PRE_BACKWARD,
    OCT_UNIT_POST_BACKWARD
} oct_unit_event;

typedef struct oct_unit_hooks {
    oct_status (*on_unit)(void *arg, int64_t unit, oct_unit_event event, oct_err *err);
    /* Around the one product that makes a micro-batch's gradient of a parameter: where it goes, and
     * that it is there. NULL: straight into param->grad, which is the whole parameter's. */
    oct_status (*open_grad)(void *arg, const oct_param *param, oct_gemm_out *out, oct_err *err);
    oct_status (*close_grad)(void *arg, const oct_param *param, oct_err *err);
    void *arg;
} oct_unit_hooks;

typedef struct oct_run {
    const oct_exec *exec;        /* exec->scratch: temporaries within one call */
    oct_arena *step;             /* activations kept for the backward pass; reset per micro-batch */
    oct_trace *trace;            /* may be NULL */
    oct_profile *profile;        /* may be NULL */
    const oct_unit_hooks *hooks; /* NULL: nothing to gather or release */
    oct_dtype act_dtype;         /* F32 or BF16 */
    oct_dtype reduce_dtype; /* F32 or BF16: dtype of a micro-batch's gradient before the fold */
    bool training;          /* save what the backward pass needs, count tokens per expert */
    bool recompute;         /* inside the replay of a layer: no counts, no second event of state */
} oct_run;

/* Where this micro-batch's gradient of the whole parameter goes, as the 2-D view [oct_param_rows,
 * oct_param_cols]: a store for the first micro-batch of a step, a fold after that; with several
 * ranks always a store, in run->reduce_dtype. At most one gradient is open at a time; close it when
 * it is finished. Errors: those of the hooks. */
oct_status oct_param_grad_open(const oct_param *param, const oct_run *run, oct_gemm_out *out,
                               oct_err *err) OCT_MUST_CHECK;
oct_status oct_param_grad_close(const oct_param *param, const oct_run *run,
                                oct_err *err) OCT_MUST_CHECK;

/* Emits the event of an FP32-FMA product C = op(a) op(b) that was made for `fqn`. Shapes are those
 * of the product, [M,K] [K,N] [M,N]; if grouped those of the operands as stored and of C. */
void oct_run_trace_gemm(const oct_run *run, const char *fqn, const char *phase, const oct_matrix *a,
                        const oct_matrix *b, oct_layout layout, const oct_groups *groups,
                        const oct_gemm_out *out);

/* Calls the hook of a unit, if there is one. Errors: those of the hook. */
oct_status oct_run_unit(const oct_run *run, int64_t unit, oct_unit_event event,
                        oct_err *err) OCT_MUST_CHECK;

#endif
