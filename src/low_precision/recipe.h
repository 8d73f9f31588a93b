/* A recipe maps each role of a tensor in training to the quantizer for it. Immutable, static. */
#ifndef OCT_LOW_PRECISION_RECIPE_H
#define OCT_LOW_PRECISION_RECIPE_H

#include "low_precision/operand.h"

/* What a tensor is in the computation. A role says how values are scaled; the orientation, which is
 * another matter, says along which axis. */
typedef enum oct_role {
    OCT_ROLE_INPUT_FWD,
    OCT_ROLE_WEIGHT_FWD,
    OCT_ROLE_GRAD_OUTPUT,
    OCT_ROLE_INPUT_BWD,
    OCT_ROLE_WEIGHT_BWD,
    OCT_ROLE_COUNT
} oct_role;

const char *oct_role_name(oct_role role); /* "input_fwd", ... */

/* A format with the settings of one role; stateless. Equal pointers mean: one pass serves both. */
typedef struct oct_quantizer {
    const oct_low_precision_format *format;
    const void *settings; /* read by the format only */
} oct_quantizer;

typedef struct oct_low_precision_recipe {
    const char *name;
    const oct_quantizer *quantizers[OCT_ROLE_COUNT];
} oct_low_precision_recipe;

/* Never NULL for a role of the recipe. */
const oct_quantizer *oct_recipe_quantizer(const oct_low_precision_recipe *recipe, oct_role role);

#endif
