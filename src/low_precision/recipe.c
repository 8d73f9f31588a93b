#include "low_precision/recipe.h"

const char *oct_role_name(oct_role role)
{
    static const char *const names[OCT_ROLE_COUNT] = {
        "input_fwd", "weight_fwd", "grad_output", "input_bwd", "weight_bwd",
    };
    return names[role];
}

const oct_quantizer *oct_recipe_quantizer(const oct_low_precision_recipe *recipe, oct_role role)
{
    return recipe->quantizers[role];
}
