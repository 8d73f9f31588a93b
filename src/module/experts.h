/* Routed experts as one module: stacked gate_up_proj [E,2F,H] (gate rows first) and down_proj
 * [E,H,F]. Computes on rows that are already sorted by expert; routing and the weighted sum over
 * top_k stay with the MoE block. */
#ifndef OCT_MODULE_EXPERTS_H
#define OCT_MODULE_EXPERTS_H

#include "module/run.h"

typedef struct oct_experts_saved oct_experts_saved;

typedef struct oct_experts_ops {
    /* x [S,H] -> y [S,H]; rows of expert e are groups->ends[e-1] .. ends[e]-1. */
    oct_status (*forward)(oct_module *module, const oct_run *run, const oct_lazy *x,
                          const oct_groups *groups, const oct_tensor *y, oct_experts_saved **saved,
                          oct_err *err);
    oct_status (*backward)(oct_module *module, const oct_run *run, const oct_experts_saved *saved,
                           const oct_groups *groups, const oct_lazy *dy, const oct_tensor *dx,
                           oct_err *err);
} oct_experts_ops;

/* Calls the module's table. *saved is set when run->training and lives in run->step; what x points
 * at must stay valid and unchanged until the backward pass. */
oct_status oct_experts_forward(oct_module *module, const oct_run *run, const oct_lazy *x,
                               const oct_groups *groups, const oct_tensor *y,
                               oct_experts_saved **saved, oct_err *err) OCT_MUST_CHECK;
oct_status oct_experts_backward(oct_module *module, const oct_run *run,
                                const oct_experts_saved *saved, const oct_groups *groups,
                                const oct_lazy *dy, const oct_tensor *dx,
                                oct_err *err) OCT_MUST_CHECK;

/* High-precision grouped SwiGLU; the type that a model derives its container from has this table.
 */
extern const oct_experts_ops oct_experts_high_precision_ops;

#endif
