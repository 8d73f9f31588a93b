/* The SwiGLU block of a dense layer and of the shared experts. */
#include "model/deepseek_v3/pass.h"

oct_status dsv3_mlp_forward(const dsv3_pass *pass, const dsv3_mlp *block, const oct_tensor *x,
                            const oct_tensor *y, dsv3_mlp_saved *saved, oct_err *err)
{
    const oct_run *run = pass->run;
    const int64_t width = block->width;
    OCT_TRY(dsv3_keep(pass, pass->tokens, width, &saved->gate, err));
    OCT_TRY(dsv3_keep(pass, pass->tokens, width, &saved->up, err));
    OCT_TRY(dsv3_keep(pass, pass->tokens, width, &saved->act, err));
    OCT_TRY(oct_linear_forward(*block->gate, run, x, &saved->gate, &saved->from_gate, err));
    OCT_TRY(oct_linear_forward(*block->up, run, x, &saved->up, &saved->from_up, err));
    OCT_TRY(oct_swiglu(run->exec, &saved->gate, width, &saved->up, width, &saved->act, err));
    return oct_linear_forward(*block->down, run, &saved->act, y, &saved->from_down, err);
}

oct_status dsv3_mlp_backward(const dsv3_pass *pass, const dsv3_mlp *block,
                             const dsv3_mlp_saved *saved, const oct_tensor *dy,
                             const oct_tensor *dx, oct_err *err)
{
    const oct_run *run = pass->run;
    const int64_t width = block->width;
    const oct_arena_mark mark = oct_arena_save(run->exec->scratch);
    oct_tensor dact, dgate, dup, dx_gate;
    OCT_TRY(dsv3_scratch(pass, pass->tokens, width, &dact, err));
    OCT_TRY(dsv3_scratch(pass, pass->tokens, width, &dgate, err));
    OCT_TRY(dsv3_scratch(pass, pass->tokens, width, &dup, err));
    OCT_TRY(dsv3_scratch(pass, pass->tokens, oct_tensor_cols(dx), &dx_gate, err));

    OCT_TRY(oct_linear_backward(*block->down, run, saved->from_down, dy, &dact, err));
    OCT_TRY(oct_swiglu_backward(run->exec, &dact, &saved->gate, width, &saved->up, width, &dgate,
                                &dup, err));
    OCT_TRY(oct_linear_backward(*block->up, run, saved->from_up, &dup, dx, err));
    OCT_TRY(oct_linear_backward(*block->gate, run, saved->from_gate, &dgate, &dx_gate, err));
    OCT_TRY(oct_add(run->exec, dx, &dx_gate, dx, err));
    oct_arena_rewind(run->exec->scratch, mark);
    return OCT_OK;
}
