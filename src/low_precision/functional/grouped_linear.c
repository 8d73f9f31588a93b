/* S = rows (tokens times top_k, sorted by expert), F = expert width, H = hidden. */
#include "low_precision/functional/grouped_linear.h"

#include "low_precision/matmul.h"
#include "low_precision/quantizer.h"

static oct_gemm_out store_to(const oct_tensor *c)
{
    return (oct_gemm_out){
        .data = c->data, .ld = oct_tensor_cols(c), .dtype = c->dtype, .store = OCT_GEMM_STORE};
}

oct_status oct_low_precision_grouped_linear_forward(const oct_run *run, oct_weight_storage *weight,
                                                    const oct_lazy *x, const oct_groups *groups,
                                                    const oct_tensor *y, oct_operand *saved,
                                                    oct_err *err)
{
    oct_arena *scratch = run->exec->scratch;
    const oct_arena_mark mark = oct_arena_save(scratch);
    oct_operand x_row, w;
    const oct_role_output row = {.role = OCT_ROLE_INPUT_FWD, .operand = &x_row, .arena = scratch};
    const oct_role_output col = {.role = OCT_ROLE_INPUT_BWD, .operand = saved, .arena = run->step};
    OCT_TRY(oct_quantize(run, weight->recipe, weight->fqn, x, groups, &row, &col, err));
    OCT_TRY(oct_weight_use(run, weight, oct_weight_fprop_orientation(weight), &w, err));
    const oct_gemm_out out = store_to(y);
    const oct_matmul_label label = {.fqn = weight->fqn, .phase = "fprop"};
    OCT_TRY(oct_low_precision_grouped_matmul(run, &label, &x_row, &w, OCT_LAYOUT_NN, groups, &out,
                                             err));
    oct_arena_rewind(scratch, mark);
    return OCT_OK;
}

oct_status oct_low_precision_grouped_linear_backward(const oct_run *run, oct_weight_storage *weight,
                                                     const oct_operand *saved,
                                                     const oct_groups *groups, const oct_lazy *dy,
                                                     const oct_tensor *dx, const oct_gemm_out *dw,
                                                     oct_err *err)
{
    oct_arena *scratch = run->exec->scratch;
    const oct_arena_mark mark = oct_arena_save(scratch);
    oct_operand dy_row, dy_col, w;
    const oct_role_output row = {
        .role = OCT_ROLE_GRAD_OUTPUT, .operand = dx ? &dy_row : NULL, .arena = scratch};
    const oct_role_output col = {
        .role = OCT_ROLE_GRAD_OUTPUT, .operand = dw ? &dy_col : NULL, .arena = scratch};
    OCT_TRY(oct_quantize(run, weight->recipe, weight->fqn, dy, groups, &row, &col, err));
    if (dx) {
        OCT_TRY(oct_weight_use(run, weight, oct_weight_dgrad_orientation(weight), &w, err));
        const oct_gemm_out out = store_to(dx);
        const oct_matmul_label label = {.fqn = weight->fqn, .phase = "dgrad"};
        OCT_TRY(oct_low_precision_grouped_matmul(run, &label, &dy_row, &w, OCT_LAYOUT_NT, groups,
                                                 &out, err));
    }
    if (dw) {
        const oct_matmul_label label = {.fqn = weight->fqn, .phase = "wgrad"};
        OCT_TRY(oct_low_precision_grouped_matmul(run, &label, &dy_col, saved, OCT_LAYOUT_TN, groups,
                                                 dw, err));
    }
    oct_arena_rewind(scratch, mark);
    return OCT_OK;
}

/* --- SwiGLU ---------------------------------------------------------------------------------- */

struct oct_grouped_swiglu_saved {
    oct_operand x;         /* [S,H] along tokens */
    oct_tensor gate_up_SF; /* [S,2F], activation dtype */
    oct_operand act;       /* [S,F] along tokens */
};

/* gate (0) or up (1): one half of each row of the stacked tensor. */
static oct_tensor half(const oct_tensor *gate_up, int64_t which)
{
    const int64_t f = oct_tensor_cols(gate_up) / 2;
    const size_t offset = (size_t)(which * f) * oct_dtype_bytes(gate_up->dtype);
    return oct_tensor_2d((unsigned char *)gate_up->data + offset, gate_up->dtype,
                         oct_tensor_rows(gate_up), f);
}

oct_status oct_low_precision_grouped_swiglu_forward(const oct_run *run,
                                                    const oct_grouped_swiglu *weights,
                                                    const oct_lazy *x, const oct_groups *groups,
                                                    const oct_tensor *y,
                                                    oct_grouped_swiglu_saved **saved, oct_err *err)
{
    oct_arena *scratch = run->exec->scratch;
    oct_arena *keep = saved ? run->step : scratch;
    const oct_arena_mark mark = oct_arena_save(scratch);
    const int64_t rows = x->rows, width = weights->down->shape[2];
    void *memory = NULL;
    OCT_TRY(oct_arena_zalloc(keep, sizeof(oct_grouped_swiglu_saved), &memory, err));
    oct_grouped_swiglu_saved *kept = memory;
    OCT_TRY(oct_tensor_new_2d(keep, run->act_dtype, rows, 2 * width, &kept->gate_up_SF, err));

    OCT_TRY(oct_low_precision_grouped_linear_forward(
        run, weights->gate_up, x, groups, &kept->gate_up_SF, saved ? &kept->x : NULL, err));
    /* Made where it is quantized: nothing else reads it. */
    const oct_swiglu_operands operands = {.kernels = &run->exec->kernels->elementwise,
                                          .gate = half(&kept->gate_up_SF, 0),
                                          .up = half(&kept->gate_up_SF, 1),
                                          .ld_gate = 2 * width,
                                          .ld_up = 2 * width};
    const oct_lazy act = oct_swiglu_lazy(&operands);
    OCT_TRY(oct_low_precision_grouped_linear_forward(run, weights->down, &act, groups, y,
                                                     saved ? &kept->act : NULL, err));
    if (saved)
        *saved = kept;
    oct_arena_rewind(scratch, mark);
    return OCT_OK;
}

/* One of the two linears, with the gradient of its parameter. */
static oct_status linear_backward(const oct_run *run, oct_weight_storage *weight,
                                  const oct_operand *saved, const oct_groups *groups,
                                  const oct_lazy *dy, const oct_tensor *dx, const oct_param *param,
                                  oct_err *err)
{
    oct_gemm_out dw;
    if (param->requires_grad)
        OCT_TRY(oct_param_grad_open(param, run, &dw, err));
    OCT_TRY(oct_low_precision_grouped_linear_backward(run, weight, saved, groups, dy, dx,
                                                      param->requires_grad ? &dw : NULL, err));
    return param->requires_grad ? oct_param_grad_close(param, run, err) : OCT_OK;
}

oct_status oct_low_precision_grouped_swiglu_backward(const oct_run *run,
                                                     const oct_grouped_swiglu *weights,
                                                     const oct_grouped_swiglu_saved *saved,
                                                     const oct_groups *groups, const oct_lazy *dy,
                                                     const oct_tensor *dx, const oct_param *gate_up,
                                                     const oct_param *down, oct_err *err)
{
    oct_arena *scratch = run->exec->scratch;
    const oct_arena_mark mark = oct_arena_save(scratch);
    const int64_t rows = dy->rows, width = weights->down->shape[2];
    oct_tensor dact, dpair;
    OCT_TRY(oct_tensor_new_2d(scratch, run->act_dtype, rows, width, &dact, err));
    OCT_TRY(oct_tensor_new_2d(scratch, run->act_dtype, rows, 2 * width, &dpair, err));

    OCT_TRY(linear_backward(run, weights->down, &saved->act, groups, dy, &dact, down, err));
    const oct_tensor gate = half(&saved->gate_up_SF, 0), up = half(&saved->gate_up_SF, 1);
    const oct_tensor dgate = half(&dpair, 0), dup = half(&dpair, 1);
    OCT_TRY(
        oct_swiglu_backward(run->exec, &dact, &gate, 2 * width, &up, 2 * width, &dgate, &dup, err));
    const oct_lazy gradient = oct_lazy_of(&dpair);
    OCT_TRY(linear_backward(run, weights->gate_up, &saved->x, groups, &gradient, dx, gate_up, err));
    oct_arena_rewind(scratch, mark);
    return OCT_OK;
}
