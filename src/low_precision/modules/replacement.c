#include "low_precision/modules/replacement.h"

#include "base/fault.h"
#include "low_precision/config.h"

oct_status oct_low_precision_module(oct_module_tree *tree, const oct_module *source,
                                    const char *fqn, const void *policy,
                                    const oct_module_type *type, oct_module **replacement,
                                    oct_err *err)
{
    const oct_low_precision_policy *wanted = policy;
    if (!wanted || !wanted->enabled)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot replace '%s': low precision is off, an enabled policy is required",
                        fqn);
    if (oct_fault("replacement.build"))
        return OCT_FAIL(err, OCT_E_PLAN,
                        "cannot replace '%s': a fault is planted, none is required", fqn);
    void *memory = NULL, *state = NULL;
    OCT_TRY(oct_arena_alloc(&tree->arena, sizeof(oct_module), &memory, err));
    OCT_TRY(oct_arena_alloc(&tree->arena, sizeof *wanted, &state, err));
    *(oct_low_precision_policy *)state = *wanted;
    oct_module *made = memory;
    *made = *source;
    made->type = type;
    made->state = state;
    if (oct_fault("replacement.schema"))
        made->param_count--; /* as a factory that lost a parameter */
    *replacement = made;
    return OCT_OK;
}
