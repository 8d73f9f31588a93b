/* The products of a pass that stay in high precision: those that a forward function computes itself,
 * which no rule can replace, and those of modules that no rule selects. */
#ifndef OCT_TRAINER_HIGH_PRECISION_H
#define OCT_TRAINER_HIGH_PRECISION_H

#include "trainer/build.h"

/* Products of one forward pass over the whole model. */
typedef struct oct_high_precision {
    int64_t linear;    /* Linear modules that are not replaced */
    int64_t experts;   /* containers of routed experts that are not replaced */
    int64_t router;    /* logits of a router: a product in its forward function, in FP32 */
    int64_t attention; /* QK and PV of a layer: products in the forward function of attention */
} oct_high_precision;

/* After the plan stage. */
oct_status oct_high_precision_of(oct_build *build, oct_high_precision *out,
                                 oct_err *err) OCT_MUST_CHECK;

#endif
