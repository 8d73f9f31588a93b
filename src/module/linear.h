/* Linear modules: y = x W^T + b. The high-precision module lives here; a replacement brings another
 * table of the same shape. */
#ifndef OCT_MODULE_LINEAR_H
#define OCT_MODULE_LINEAR_H

#include "module/run.h"

/* What a forward pass keeps for the backward pass; each implementation has its own contents. */
typedef struct oct_linear_saved oct_linear_saved;

typedef struct oct_linear_ops {
    /* x [T,K], y [T,N] (allocated by the caller, act dtype). *saved is set when run->training;
     * it lives in run->step. x must stay valid and unchanged until the backward pass. */
    oct_status (*forward)(oct_module *module, const oct_run *run, const oct_tensor *x,
                          const oct_tensor *y, oct_linear_saved **saved, oct_err *err);
    /* dy [T,N]; dx [T,K] written unless NULL; dW and db go to their gradient accumulators. */
    oct_status (*backward)(oct_module *module, const oct_run *run, const oct_linear_saved *saved,
                           const oct_tensor *dy, const oct_tensor *dx, oct_err *err);
} oct_linear_ops;

extern const oct_module_type oct_linear_type; /* torch.nn.Linear */

/* params[0] = weight [N,K], params[1] = bias [N] or absent. */
oct_status oct_linear_add(oct_module_tree *tree, oct_module *parent, const char *name, int64_t in,
                          int64_t out, bool bias, oct_module **module, oct_err *err) OCT_MUST_CHECK;

/* Calls the module's table; implementations add their own time to the profile. */
oct_status oct_linear_forward(oct_module *module, const oct_run *run, const oct_tensor *x,
                              const oct_tensor *y, oct_linear_saved **saved,
                              oct_err *err) OCT_MUST_CHECK;
oct_status oct_linear_backward(oct_module *module, const oct_run *run,
                               const oct_linear_saved *saved, const oct_tensor *dy,
                               const oct_tensor *dx, oct_err *err) OCT_MUST_CHECK;

#endif
