#include "model/deepseek_v3/low_precision_experts.h"

#include "low_precision/functional/grouped_linear.h"
#include "low_precision/modules/replacement.h"
#include "model/deepseek_v3/deepseek_v3.h"

struct oct_experts_saved {
    oct_grouped_swiglu_saved *swiglu;
};

static oct_status weights_of(const oct_module *module, oct_grouped_swiglu *weights, oct_err *err)
{
    *weights = (oct_grouped_swiglu){.gate_up = module->params[0]->storage,
                                    .down = module->params[1]->storage};
    if (!weights->gate_up || !weights->down)
        return OCT_FAIL(
            err, OCT_E_API,
            "cannot compute '%s' in low precision: '%s' has no quantized weight, one is "
            "required",
            module->fqn, module->params[weights->gate_up ? 1 : 0]->fqn);
    return OCT_OK;
}

static oct_status forward(oct_module *module, const oct_run *run, const oct_lazy *x,
                          const oct_groups *groups, const oct_tensor *y, oct_experts_saved **saved,
                          oct_err *err)
{
    oct_grouped_swiglu weights;
    void *memory = NULL;
    OCT_TRY(weights_of(module, &weights, err));
    if (run->training)
        OCT_TRY(oct_arena_alloc(run->step, sizeof **saved, &memory, err));
    oct_experts_saved *kept = memory;
    OCT_TRY(oct_low_precision_grouped_swiglu_forward(run, &weights, x, groups, y,
                                                     kept ? &kept->swiglu : NULL, err));
    if (kept)
        *saved = kept;
    return OCT_OK;
}

static oct_status backward(oct_module *module, const oct_run *run, const oct_experts_saved *saved,
                           const oct_groups *groups, const oct_lazy *dy, const oct_tensor *dx,
                           oct_err *err)
{
    oct_grouped_swiglu weights;
    OCT_TRY(weights_of(module, &weights, err));
    return oct_low_precision_grouped_swiglu_backward(run, &weights, saved->swiglu, groups, dy, dx,
                                                     module->params[0], module->params[1], err);
}

static const oct_experts_ops low_precision_ops = {.forward = forward, .backward = backward};

const oct_module_type oct_dsv3_low_precision_experts_type = {.name =
                                                                 "DeepseekV3LowPrecisionExperts",
                                                             .base = &oct_dsv3_experts_type,
                                                             .ops = &low_precision_ops};

static oct_status check_params(const oct_module *source, const char *fqn, oct_err *err)
{
    const oct_param *gate_up = source->params[0], *down = source->params[1];
    if (source->param_count != 2 || gate_up->ndim != 3 || down->ndim != 3)
        return OCT_FAIL(err, OCT_E_PLAN,
                        "cannot replace '%s': it has %d parameters, gate_up_proj [E,2F,H] and "
                        "down_proj [E,H,F] are required",
                        fqn, source->param_count);
    if (gate_up->shape[0] != down->shape[0] || gate_up->shape[1] != 2 * down->shape[2] ||
        gate_up->shape[2] != down->shape[1])
        return OCT_FAIL(err, OCT_E_PLAN,
                        "cannot replace '%s': gate_up_proj [%lld,%lld,%lld] and down_proj "
                        "[%lld,%lld,%lld], [E,2F,H] and [E,H,F] are required",
                        fqn, (long long)gate_up->shape[0], (long long)gate_up->shape[1],
                        (long long)gate_up->shape[2], (long long)down->shape[0],
                        (long long)down->shape[1], (long long)down->shape[2]);
    return OCT_OK;
}

oct_status oct_replace_dsv3_low_precision_experts(oct_module_tree *tree, const oct_module *source,
                                                  const char *fqn, const void *policy,
                                                  oct_module **replacement, oct_err *err)
{
    if (!oct_module_type_is(source->type, &oct_dsv3_experts_type))
        return OCT_FAIL(err, OCT_E_PLAN, "cannot replace '%s': it is a '%s', '%s' is required", fqn,
                        source->type->name, oct_dsv3_experts_type.name);
    OCT_TRY(check_params(source, fqn, err));
    return oct_low_precision_module(tree, source, fqn, policy, &oct_dsv3_low_precision_experts_type,
                                    replacement, err);
}
