/* The linear module that computes in low precision, and the factory that puts it in place of
 * torch.nn.Linear. */
#ifndef OCT_LOW_PRECISION_MODULES_LINEAR_H
#define OCT_LOW_PRECISION_MODULES_LINEAR_H

#include "module/linear.h"
#include "module/module.h"

/* "LowPrecisionLinear", derived from torch.nn.Linear. Needs params[0]->storage at run time. */
extern const oct_module_type oct_low_precision_linear_type;

#define OCT_REPLACE_LOW_PRECISION_LINEAR                                                           \
    "hyper_models.components.training.low_precision.modules.linear.replace_low_precision_linear"

/* An oct_plan_build: reuses weight and bias of `source`, copies nothing. policy: an
 * oct_low_precision_policy that is enabled; it is copied. */
oct_status oct_replace_low_precision_linear(oct_module_tree *tree, const oct_module *source,
                                            const char *fqn, const void *policy,
                                            oct_module **replacement, oct_err *err) OCT_MUST_CHECK;

#endif
