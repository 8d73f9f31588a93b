/* What every low-precision factory does: the same module with another type. */
#ifndef OCT_LOW_PRECISION_MODULES_REPLACEMENT_H
#define OCT_LOW_PRECISION_MODULES_REPLACEMENT_H

#include "module/module.h"

/* A copy of `source` (parameters, buffer and children by identity) in tree->arena with `type`, its
 * state a copy of the policy. policy: an enabled oct_low_precision_policy.
 * Errors: OCT_E_API without one, OCT_E_NOMEM. */
oct_status oct_low_precision_module(oct_module_tree *tree, const oct_module *source,
                                    const char *fqn, const void *policy,
                                    const oct_module_type *type, oct_module **replacement,
                                    oct_err *err) OCT_MUST_CHECK;

#endif
