#include "low_precision/functional/linear.h"

#include "low_precision/matmul.h"
#include "low_precision/quantizer.h"

static oct_gemm_out store_to(const oct_tensor *c, const float *bias)
{
    return (oct_gemm_out){.data = c->data,
                          .ld = oct_tensor_cols(c),
                          .dtype = c->dtype,
                          .store = OCT_GEMM_STORE,
                          .bias = bias};
}

oct_status oct_low_precision_linear_forward(const oct_run *run, const char *fqn,
                                            oct_weight_storage *weight, const float *bias,
                                            const oct_tensor *x, const oct_tensor *y,
                                            oct_operand *saved, oct_err *err)
{
    oct_arena *scratch = run->exec->scratch;
    const oct_arena_mark mark = oct_arena_save(scratch);
    oct_operand x_row, w;
    const oct_role_output row = {.role = OCT_ROLE_INPUT_FWD, .operand = &x_row, .arena = scratch};
    const oct_role_output col = {.role = OCT_ROLE_INPUT_BWD, .operand = saved, .arena = run->step};
    const oct_lazy input = oct_lazy_of(x);
    OCT_TRY(oct_quantize(run, weight->recipe, fqn, &input, NULL, &row, &col, err));
    OCT_TRY(oct_weight_use(run, weight, oct_weight_fprop_orientation(weight), &w, err));
    const oct_gemm_out out = store_to(y, bias);
    const oct_matmul_label label = {.fqn = fqn, .phase = "fprop"};
    OCT_TRY(oct_low_precision_matmul(run, &label, &x_row, &w, OCT_LAYOUT_NT, &out, err));
    oct_arena_rewind(scratch, mark);
    return OCT_OK;
}

oct_status oct_low_precision_linear_backward(const oct_run *run, const char *fqn,
                                             oct_weight_storage *weight, const oct_operand *saved,
                                             const oct_tensor *dy, const oct_tensor *dx,
                                             const oct_gemm_out *dw, oct_err *err)
{
    oct_arena *scratch = run->exec->scratch;
    const oct_arena_mark mark = oct_arena_save(scratch);
    oct_operand dy_row, dy_col, w;
    const oct_role_output row = {
        .role = OCT_ROLE_GRAD_OUTPUT, .operand = dx ? &dy_row : NULL, .arena = scratch};
    const oct_role_output col = {
        .role = OCT_ROLE_GRAD_OUTPUT, .operand = dw ? &dy_col : NULL, .arena = scratch};
    const oct_lazy gradient = oct_lazy_of(dy);
    OCT_TRY(oct_quantize(run, weight->recipe, fqn, &gradient, NULL, &row, &col, err));
    if (dx) {
        OCT_TRY(oct_weight_use(run, weight, oct_weight_dgrad_orientation(weight), &w, err));
        const oct_gemm_out out = store_to(dx, NULL);
        const oct_matmul_label label = {.fqn = fqn, .phase = "dgrad"};
        OCT_TRY(oct_low_precision_matmul(run, &label, &dy_row, &w, OCT_LAYOUT_NN, &out, err));
    }
    if (dw) {
        const oct_matmul_label label = {.fqn = fqn, .phase = "wgrad"};
        OCT_TRY(oct_low_precision_matmul(run, &label, &dy_col, saved, OCT_LAYOUT_TN, dw, err));
    }
    oct_arena_rewind(scratch, mark);
    return OCT_OK;
}
