/* How low precision is computed: the policy that a run derives from `low_precision.*`. Names no
 * module; which modules use it is the replacement plan's business. */
#ifndef OCT_LOW_PRECISION_CONFIG_H
#define OCT_LOW_PRECISION_CONFIG_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/exec.h"
#include "low_precision/format.h"
#include "low_precision/recipe.h"

/* Immutable after oct_low_precision_policy_make. */
typedef struct oct_low_precision_policy {
    bool enabled;
    const oct_low_precision_format *format; /* NULL if not enabled */
    const oct_low_precision_recipe *recipe; /* NULL if not enabled */
} oct_low_precision_policy;

/* From the values of low_precision.{enabled,format,scaling}. The pair must be legal even if not
 * enabled. Errors: OCT_E_CONFIG naming both keys (an unknown value, a pair that does not go
 * together), OCT_E_UNSUPPORTED for `delayed` scaling. */
oct_status oct_low_precision_policy_make(bool enabled, const char *format, const char *scaling,
                                         oct_low_precision_policy *policy,
                                         oct_err *err) OCT_MUST_CHECK;

/* A policy with a recipe that no key can choose: for tests and tools (MX rule 0). */
oct_low_precision_policy oct_low_precision_policy_of(const oct_low_precision_recipe *recipe);

/* The capability gate, before any state is made. Not enabled: no check. Errors: OCT_E_UNSUPPORTED,
 * for a device other than cpu with the words that users of the Ascend packages know. */
oct_status oct_low_precision_gate(const oct_low_precision_policy *policy,
                                  const oct_kernels *kernels, const char *device,
                                  oct_err *err) OCT_MUST_CHECK;

#endif
