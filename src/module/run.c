#include "module/run.h"

oct_gemm_out oct_param_grad_out(const oct_param *param, const oct_run *run, int64_t row)
{
    const int64_t cols = oct_param_cols(param);
    return (oct_gemm_out){
        .data = param->grad + row * cols,
        .ld = cols,
        .dtype = OCT_DTYPE_F32,
        .store = param->grad_started ? OCT_GEMM_FOLD : OCT_GEMM_STORE,
        .round_bf16 = run->reduce_dtype == OCT_DTYPE_BF16,
    };
}

oct_status oct_run_unit(const oct_run *run, int64_t unit, oct_unit_event event, oct_err *err)
{
    return run->hooks ? run->hooks->on_unit(run->hooks->arg, unit, event, err) : OCT_OK;
}
