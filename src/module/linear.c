#include "module/linear.h"

struct oct_linear_saved {
    oct_tensor x; /* [T,K], the caller's */
};

/* The bias as the product adds it: FP32 [N], a copy in scratch unless it is FP32 already. */
static oct_status widen_bias(const oct_run *run, const oct_param *bias, const float **out,
                             oct_err *err)
{
    if (!bias || bias->value.dtype == OCT_DTYPE_F32) {
        *out = bias ? bias->value.data : NULL;
        return OCT_OK;
    }
    oct_tensor wide;
    OCT_TRY(
        oct_tensor_new_2d(run->exec->scratch, OCT_DTYPE_F32, 1, oct_param_numel(bias), &wide, err));
    *out = wide.data;
    return oct_convert(run->exec, &bias->value, &wide, err);
}

static oct_status forward(oct_module *module, const oct_run *run, const oct_tensor *x,
                          const oct_tensor *y, oct_linear_saved **saved, oct_err *err)
{
    const oct_span span = oct_profile_begin(run->profile, OCT_PART_FPROP);
    const oct_arena_mark mark = oct_arena_save(run->exec->scratch);
    const oct_matrix a = oct_matrix_of(x), b = oct_matrix_of(&module->params[0]->value);
    oct_gemm_out out = {.data = y->data, .ld = b.rows, .dtype = y->dtype, .store = OCT_GEMM_STORE};
    OCT_TRY(widen_bias(run, module->params[1], &out.bias, err));
    OCT_TRY(oct_gemm(run->exec, &a, &b, OCT_LAYOUT_NT, &out, err));
    oct_arena_rewind(run->exec->scratch, mark);
    oct_run_trace_gemm(run, module->fqn, "fprop", &a, &b, OCT_LAYOUT_NT, NULL, &out);
    if (run->training) {
        void *memory = NULL;
        OCT_TRY(oct_arena_alloc(run->step, sizeof **saved, &memory, err));
        *saved = memory;
        (*saved)->x = *x;
    }
    oct_profile_end(run->profile, span);
    return OCT_OK;
}

static oct_status backward(oct_module *module, const oct_run *run, const oct_linear_saved *saved,
                           const oct_tensor *dy, const oct_tensor *dx, oct_err *err)
{
    const oct_param *weight = module->params[0], *bias = module->params[1];
    const oct_matrix g = oct_matrix_of(dy), w = oct_matrix_of(&weight->value);
    const oct_matrix x = oct_matrix_of(&saved->x);
    if (dx) {
        const oct_span span = oct_profile_begin(run->profile, OCT_PART_DGRAD);
        const oct_gemm_out out = {
            .data = dx->data, .ld = w.cols, .dtype = dx->dtype, .store = OCT_GEMM_STORE};
        OCT_TRY(oct_gemm(run->exec, &g, &w, OCT_LAYOUT_NN, &out, err));
        oct_profile_end(run->profile, span);
        oct_run_trace_gemm(run, module->fqn, "dgrad", &g, &w, OCT_LAYOUT_NN, NULL, &out);
    }
    oct_gemm_out dw, db;
    OCT_TRY(oct_param_grad_open(weight, run, &dw, err));
    const oct_span span = oct_profile_begin(run->profile, OCT_PART_WGRAD);
    OCT_TRY(oct_gemm(run->exec, &g, &x, OCT_LAYOUT_TN, &dw, err));
    oct_profile_end(run->profile, span);
    oct_run_trace_gemm(run, module->fqn, "wgrad", &g, &x, OCT_LAYOUT_TN, NULL, &dw);
    OCT_TRY(oct_param_grad_close(weight, run, err));
    if (!bias)
        return OCT_OK;
    OCT_TRY(oct_param_grad_open(bias, run, &db, err));
    OCT_TRY(oct_bias_backward(run->exec, dy, &db, err));
    return oct_param_grad_close(bias, run, err);
}

static const oct_linear_ops high_precision_ops = {.forward = forward, .backward = backward};

const oct_module_type oct_linear_type = {.name = "torch.nn.Linear", .ops = &high_precision_ops};

oct_status oct_linear_add(oct_module_tree *tree, oct_module *parent, const char *name, int64_t in,
                          int64_t out, bool bias, oct_module **module, oct_err *err)
{
    oct_param *param = NULL;
    OCT_TRY(oct_module_add(tree, parent, name, &oct_linear_type, 0, module, err));
    OCT_TRY(oct_module_add_param(tree, *module, "weight", 2, (int64_t[]){out, in}, &param, err));
    if (bias)
        OCT_TRY(oct_module_add_param(tree, *module, "bias", 1, (int64_t[]){out}, &param, err));
    return OCT_OK;
}

oct_status oct_linear_forward(oct_module *module, const oct_run *run, const oct_tensor *x,
                              const oct_tensor *y, oct_linear_saved **saved, oct_err *err)
{
    const oct_linear_ops *ops = module->type->ops;
    const oct_status status = ops->forward(module, run, x, y, saved, err);
    return status == OCT_OK ? status : OCT_WRAP(err, status, "forward of '%s'", module->fqn);
}

oct_status oct_linear_backward(oct_module *module, const oct_run *run,
                               const oct_linear_saved *saved, const oct_tensor *dy,
                               const oct_tensor *dx, oct_err *err)
{
    const oct_linear_ops *ops = module->type->ops;
    const oct_status status = ops->backward(module, run, saved, dy, dx, err);
    return status == OCT_OK ? status : OCT_WRAP(err, status, "backward of '%s'", module->fqn);
}
