#include "model/deepseek_v3/pass.h"

oct_status dsv3_keep(const dsv3_pass *pass, int64_t rows, int64_t cols, oct_tensor *out,
                     oct_err *err)
{
    return oct_tensor_new_2d(pass->keep, pass->run->act_dtype, rows, cols, out, err);
}

oct_status dsv3_scratch(const dsv3_pass *pass, int64_t rows, int64_t cols, oct_tensor *out,
                        oct_err *err)
{
    return oct_tensor_new_2d(pass->run->exec->scratch, pass->run->act_dtype, rows, cols, out, err);
}

oct_status dsv3_keep_floats(const dsv3_pass *pass, int64_t count, float **out, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_array(pass->keep, count, sizeof **out, &memory, err));
    *out = memory;
    return OCT_OK;
}

const oct_tensor *dsv3_weight(const oct_param *param)
{
    return &param->value;
}

oct_status dsv3_layer_forward(const dsv3_pass *pass, const dsv3_layer *layer, const oct_tensor *x,
                              const oct_tensor *y, dsv3_layer_saved *saved, oct_err *err)
{
    const oct_exec *exec = pass->run->exec;
    const float eps = (float)pass->model->hf.rms_norm_eps;
    const int64_t tokens = pass->tokens, hidden = pass->model->hf.hidden_size;
    const oct_span span = oct_profile_begin(pass->run->profile, OCT_PART_ELEMENTWISE);
    saved->x = *x;
    OCT_TRY(dsv3_keep(pass, tokens, hidden, &saved->x_normed, err));
    OCT_TRY(dsv3_keep(pass, tokens, hidden, &saved->middle, err));
    OCT_TRY(dsv3_keep(pass, tokens, hidden, &saved->middle_normed, err));
    OCT_TRY(dsv3_keep_floats(pass, tokens, &saved->x_rstd, err));
    OCT_TRY(dsv3_keep_floats(pass, tokens, &saved->middle_rstd, err));

    OCT_TRY(oct_rmsnorm(exec, x, dsv3_weight(layer->input_norm), eps, &saved->x_normed,
                        saved->x_rstd, err));
    OCT_TRY(dsv3_attention_forward(pass, &layer->attention, &saved->x_normed, y, &saved->attention,
                                   err));
    OCT_TRY(oct_add(exec, x, y, &saved->middle, err));
    OCT_TRY(oct_rmsnorm(exec, &saved->middle, dsv3_weight(layer->post_norm), eps,
                        &saved->middle_normed, saved->middle_rstd, err));
    if (layer->has_experts)
        OCT_TRY(dsv3_moe_forward(pass, layer, &saved->middle_normed, y, &saved->moe, err));
    else
        OCT_TRY(dsv3_mlp_forward(pass, &layer->mlp, &saved->middle_normed, y, &saved->mlp, err));
    OCT_TRY(oct_add(exec, &saved->middle, y, y, err));
    oct_profile_end(pass->run->profile, span);
    return OCT_OK;
}

oct_status dsv3_norm_backward(const oct_run *run, const oct_tensor *dy, const oct_tensor *x,
                              const oct_param *norm, const float *rstd, const oct_tensor *add_to,
                              const oct_tensor *dx, oct_err *err)
{
    oct_gemm_out dw;
    OCT_TRY(oct_param_grad_open(norm, run, &dw, err));
    OCT_TRY(oct_rmsnorm_backward(run->exec, dy, x, dsv3_weight(norm), rstd, add_to, dx, &dw, err));
    return oct_param_grad_close(norm, run, err);
}

oct_status dsv3_layer_backward(const dsv3_pass *pass, const dsv3_layer *layer,
                               const dsv3_layer_saved *saved, const oct_tensor *d, oct_err *err)
{
    const oct_run *run = pass->run;
    const oct_span span = oct_profile_begin(run->profile, OCT_PART_ELEMENTWISE);
    const oct_arena_mark mark = oct_arena_save(run->exec->scratch);
    oct_tensor inner; /* gradient inside a branch; d is the residual's */
    OCT_TRY(dsv3_scratch(pass, pass->tokens, pass->model->hf.hidden_size, &inner, err));

    if (layer->has_experts)
        OCT_TRY(dsv3_moe_backward(pass, layer, &saved->moe, d, &inner, err));
    else
        OCT_TRY(dsv3_mlp_backward(pass, &layer->mlp, &saved->mlp, d, &inner, err));
    OCT_TRY(dsv3_norm_backward(run, &inner, &saved->middle, layer->post_norm, saved->middle_rstd, d,
                               d, err));
    OCT_TRY(dsv3_attention_backward(pass, &layer->attention, &saved->attention, d, &inner, err));
    OCT_TRY(
        dsv3_norm_backward(run, &inner, &saved->x, layer->input_norm, saved->x_rstd, d, d, err));
    oct_arena_rewind(run->exec->scratch, mark);
    oct_profile_end(run->profile, span);
    return OCT_OK;
}
