/* The routed experts of DeepSeek-V3 in low precision. Knows the parameter names and the signature
 * of the container; the grouped SwiGLU itself is low_precision/functional/grouped_linear. */
#ifndef OCT_MODEL_DEEPSEEK_V3_LOW_PRECISION_EXPERTS_H
#define OCT_MODEL_DEEPSEEK_V3_LOW_PRECISION_EXPERTS_H

#include "module/experts.h"
#include "module/module.h"

/* "DeepseekV3LowPrecisionExperts", derived from oct_dsv3_experts_type. Needs storage of both
 * parameters at run time. */
extern const oct_module_type oct_dsv3_low_precision_experts_type;

#define OCT_REPLACE_DSV3_LOW_PRECISION_EXPERTS                                                     \
    "hyper_models.components.models.adapters.deepseek_v3.low_precision."                           \
    "replace_deepseek_v3_low_precision_experts"

/* An oct_plan_build: reuses both parameters of `source`, copies nothing. policy: an
 * oct_low_precision_policy that is enabled; it is copied. */
oct_status oct_replace_dsv3_low_precision_experts(oct_module_tree *tree, const oct_module *source,
                                                  const char *fqn, const void *policy,
                                                  oct_module **replacement,
                                                  oct_err *err) OCT_MUST_CHECK;

#endif
