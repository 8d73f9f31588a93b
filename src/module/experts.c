/* S = rows (tokens times top_k, sorted by expert), E = experts, F = expert width, H = hidden. */
#include "module/experts.h"

struct oct_experts_saved {
    oct_lazy x_SH;         /* the caller's */
    oct_tensor gate_up_SF; /* [S,2F] */
    oct_tensor act_SF;     /* silu(gate) * up */
};

/* gate and up are the two halves of each row of the stacked tensor. */
static oct_tensor half(const oct_tensor *gate_up, int64_t which)
{
    const int64_t f = oct_tensor_cols(gate_up) / 2;
    const int64_t offset = which * f * (int64_t)oct_dtype_bytes(gate_up->dtype);
    return oct_tensor_2d((char *)gate_up->data + offset, gate_up->dtype, oct_tensor_rows(gate_up),
                         f);
}

static oct_status product(const oct_module *module, const oct_run *run, const oct_lazy *a,
                          const oct_param *weight, const oct_groups *groups, oct_layout layout,
                          const oct_tensor *out, oct_err *err)
{
    const oct_span span =
        oct_profile_begin(run->profile, layout == OCT_LAYOUT_NT ? OCT_PART_FPROP : OCT_PART_DGRAD);
    const oct_matrix left = oct_matrix_of_lazy(a), right = oct_matrix_of(&weight->value);
    const oct_gemm_out to = {.data = out->data,
                             .ld = oct_tensor_cols(out),
                             .dtype = out->dtype,
                             .store = OCT_GEMM_STORE};
    OCT_TRY(oct_gemm_grouped(run->exec, &left, &right, groups, layout, &to, err));
    oct_profile_end(run->profile, span);
    oct_run_trace_gemm(run, module->fqn, layout == OCT_LAYOUT_NT ? "fprop" : "dgrad", &left, &right,
                       layout, groups, &to);
    return OCT_OK;
}

static oct_status weight_gradient(const oct_module *module, const oct_run *run, const oct_lazy *dy,
                                  const oct_lazy *x, const oct_param *weight,
                                  const oct_groups *groups, oct_err *err)
{
    const oct_span span = oct_profile_begin(run->profile, OCT_PART_WGRAD);
    const oct_matrix left = oct_matrix_of_lazy(dy), right = oct_matrix_of_lazy(x);
    oct_gemm_out to;
    OCT_TRY(oct_param_grad_open(weight, run, &to, err));
    OCT_TRY(oct_gemm_grouped(run->exec, &left, &right, groups, OCT_LAYOUT_TN, &to, err));
    oct_profile_end(run->profile, span);
    oct_run_trace_gemm(run, module->fqn, "wgrad", &left, &right, OCT_LAYOUT_TN, groups, &to);
    return oct_param_grad_close(weight, run, err);
}

static oct_status forward(oct_module *module, const oct_run *run, const oct_lazy *x,
                          const oct_groups *groups, const oct_tensor *y, oct_experts_saved **saved,
                          oct_err *err)
{
    const oct_param *gate_up = module->params[0], *down = module->params[1];
    const int64_t rows = x->rows, width = oct_param_cols(down);
    const oct_arena_mark mark = oct_arena_save(run->exec->scratch);
    oct_arena *keep = run->training ? run->step : run->exec->scratch;
    oct_experts_saved kept = {.x_SH = *x};
    OCT_TRY(oct_tensor_new_2d(keep, x->dtype, rows, 2 * width, &kept.gate_up_SF, err));
    OCT_TRY(oct_tensor_new_2d(keep, x->dtype, rows, width, &kept.act_SF, err));

    OCT_TRY(product(module, run, x, gate_up, groups, OCT_LAYOUT_NT, &kept.gate_up_SF, err));
    const oct_tensor gate = half(&kept.gate_up_SF, 0), up = half(&kept.gate_up_SF, 1);
    OCT_TRY(oct_swiglu(run->exec, &gate, 2 * width, &up, 2 * width, &kept.act_SF, err));
    const oct_lazy act = oct_lazy_of(&kept.act_SF);
    OCT_TRY(product(module, run, &act, down, groups, OCT_LAYOUT_NT, y, err));
    if (run->training) {
        void *memory = NULL;
        OCT_TRY(oct_arena_alloc(run->step, sizeof kept, &memory, err));
        *saved = memory;
        **saved = kept;
    }
    oct_arena_rewind(run->exec->scratch, mark);
    return OCT_OK;
}

static oct_status backward(oct_module *module, const oct_run *run, const oct_experts_saved *saved,
                           const oct_groups *groups, const oct_lazy *dy, const oct_tensor *dx,
                           oct_err *err)
{
    const oct_param *gate_up = module->params[0], *down = module->params[1];
    const int64_t rows = dy->rows, width = oct_param_cols(down);
    const oct_arena_mark mark = oct_arena_save(run->exec->scratch);
    oct_tensor dact, dgate_up;
    OCT_TRY(oct_tensor_new_2d(run->exec->scratch, dy->dtype, rows, width, &dact, err));
    OCT_TRY(oct_tensor_new_2d(run->exec->scratch, dy->dtype, rows, 2 * width, &dgate_up, err));

    const oct_lazy act = oct_lazy_of(&saved->act_SF), dpair = oct_lazy_of(&dgate_up);
    OCT_TRY(product(module, run, dy, down, groups, OCT_LAYOUT_NN, &dact, err));
    OCT_TRY(weight_gradient(module, run, dy, &act, down, groups, err));
    const oct_tensor gate = half(&saved->gate_up_SF, 0), up = half(&saved->gate_up_SF, 1);
    const oct_tensor dgate = half(&dgate_up, 0), dup = half(&dgate_up, 1);
    OCT_TRY(
        oct_swiglu_backward(run->exec, &dact, &gate, 2 * width, &up, 2 * width, &dgate, &dup, err));
    OCT_TRY(product(module, run, &dpair, gate_up, groups, OCT_LAYOUT_NN, dx, err));
    OCT_TRY(weight_gradient(module, run, &dpair, &saved->x_SH, gate_up, groups, err));
    oct_arena_rewind(run->exec->scratch, mark);
    return OCT_OK;
}

const oct_experts_ops oct_experts_high_precision_ops = {.forward = forward, .backward = backward};

oct_status oct_experts_forward(oct_module *module, const oct_run *run, const oct_lazy *x,
                               const oct_groups *groups, const oct_tensor *y,
                               oct_experts_saved **saved, oct_err *err)
{
    const oct_experts_ops *ops = module->type->ops;
    const oct_status status = ops->forward(module, run, x, groups, y, saved, err);
    return status == OCT_OK ? status : OCT_WRAP(err, status, "forward of '%s'", module->fqn);
}

oct_status oct_experts_backward(oct_module *module, const oct_run *run,
                                const oct_experts_saved *saved, const oct_groups *groups,
                                const oct_lazy *dy, const oct_tensor *dx, oct_err *err)
{
    const oct_experts_ops *ops = module->type->ops;
    const oct_status status = ops->backward(module, run, saved, groups, dy, dx, err);
    return status == OCT_OK ? status : OCT_WRAP(err, status, "backward of '%s'", module->fqn);
}
