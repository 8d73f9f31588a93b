#include "low_precision/modules/linear.h"

#include "low_precision/functional/linear.h"
#include "low_precision/modules/replacement.h"

struct oct_linear_saved {
    oct_operand x; /* along tokens */
};

static oct_status weight_of(const oct_module *module, oct_weight_storage **weight, oct_err *err)
{
    *weight = module->params[0]->storage;
    if (!*weight)
        return OCT_FAIL(
            err, OCT_E_API,
            "cannot compute '%s' in low precision: '%s' has no quantized weight, one is "
            "required",
            module->fqn, module->params[0]->fqn);
    return OCT_OK;
}

/* The bias in FP32, in scratch unless it is stored so; NULL if there is none. */
static oct_status bias_of(const oct_module *module, const oct_run *run, const float **bias,
                          oct_err *err)
{
    *bias = NULL;
    if (module->param_count < 2)
        return OCT_OK;
    const oct_tensor *stored = &module->params[1]->value;
    oct_tensor wide = *stored;
    if (stored->dtype != OCT_DTYPE_F32) {
        OCT_TRY(oct_tensor_new_2d(run->exec->scratch, OCT_DTYPE_F32, 1, oct_tensor_numel(stored),
                                  &wide, err));
        OCT_TRY(oct_convert(run->exec, stored, &wide, err));
    }
    *bias = wide.data;
    return OCT_OK;
}

static oct_status forward(oct_module *module, const oct_run *run, const oct_tensor *x,
                          const oct_tensor *y, oct_linear_saved **saved, oct_err *err)
{
    oct_arena *scratch = run->exec->scratch;
    const oct_arena_mark mark = oct_arena_save(scratch);
    oct_weight_storage *weight = NULL;
    const float *bias = NULL;
    void *memory = NULL;
    OCT_TRY(weight_of(module, &weight, err));
    OCT_TRY(bias_of(module, run, &bias, err));
    if (run->training)
        OCT_TRY(oct_arena_alloc(run->step, sizeof **saved, &memory, err));
    oct_linear_saved *kept = memory;
    OCT_TRY(oct_low_precision_linear_forward(run, module->fqn, weight, bias, x, y,
                                             kept ? &kept->x : NULL, err));
    if (kept)
        *saved = kept;
    oct_arena_rewind(scratch, mark);
    return OCT_OK;
}

static oct_status backward(oct_module *module, const oct_run *run, const oct_linear_saved *saved,
                           const oct_tensor *dy, const oct_tensor *dx, oct_err *err)
{
    oct_weight_storage *weight = NULL;
    OCT_TRY(weight_of(module, &weight, err));
    oct_gemm_out out;
    if (weight->requires_grad)
        OCT_TRY(oct_param_grad_open(module->params[0], run, &out, err));
    OCT_TRY(oct_low_precision_linear_backward(run, module->fqn, weight, &saved->x, dy, dx,
                                              weight->requires_grad ? &out : NULL, err));
    if (weight->requires_grad)
        OCT_TRY(oct_param_grad_close(module->params[0], run, err));
    if (module->param_count < 2 || !module->params[1]->requires_grad)
        return OCT_OK;
    OCT_TRY(oct_param_grad_open(module->params[1], run, &out, err));
    OCT_TRY(oct_bias_backward(run->exec, dy, &out, err));
    return oct_param_grad_close(module->params[1], run, err);
}

static const oct_linear_ops low_precision_ops = {.forward = forward, .backward = backward};

const oct_module_type oct_low_precision_linear_type = {
    .name = "LowPrecisionLinear", .base = &oct_linear_type, .ops = &low_precision_ops};

oct_status oct_replace_low_precision_linear(oct_module_tree *tree, const oct_module *source,
                                            const char *fqn, const void *policy,
                                            oct_module **replacement, oct_err *err)
{
    if (!oct_module_type_is(source->type, &oct_linear_type))
        return OCT_FAIL(err, OCT_E_PLAN, "cannot replace '%s': it is a '%s', '%s' is required", fqn,
                        source->type->name, oct_linear_type.name);
    return oct_low_precision_module(tree, source, fqn, policy, &oct_low_precision_linear_type,
                                    replacement, err);
}
