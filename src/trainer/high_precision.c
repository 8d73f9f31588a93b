#include "trainer/high_precision.h"

static oct_status count_module(void *arg, const char *fqn, oct_module **slot, oct_err *err)
{
    (void)fqn;
    (void)err;
    oct_high_precision *all = arg;
    all->linear += oct_module_type_is((*slot)->type, &oct_linear_type);
    all->experts += oct_module_type_is((*slot)->type, &oct_dsv3_experts_type);
    return OCT_OK;
}

oct_status oct_high_precision_of(oct_build *build, oct_high_precision *out, oct_err *err)
{
    enum { QK_AND_PV = 2 };
    *out = (oct_high_precision){0};
    OCT_TRY(oct_module_walk(&build->tree, count_module, out, err));
    out->router = out->experts; /* one beside each container */
    out->attention = QK_AND_PV * build->hf.num_hidden_layers;
    int64_t count = 0;
    const oct_plan_target *targets = oct_plan_targets(build->plan, &count);
    for (int64_t t = 0; t < count; t++) {
        if (oct_module_type_is(targets[t].module->type, &oct_linear_type))
            out->linear--;
        else
            out->experts--;
    }
    return OCT_OK;
}
