#include "module/run.h"

oct_status oct_param_grad_open(const oct_param *param, const oct_run *run, oct_gemm_out *out,
                               oct_err *err)
{
    *out = (oct_gemm_out){
        .data = param->grad,
        .ld = oct_param_cols(param),
        .dtype = OCT_DTYPE_F32,
        .store = param->grad_started ? OCT_GEMM_FOLD : OCT_GEMM_STORE,
        .round_bf16 = run->reduce_dtype == OCT_DTYPE_BF16,
    };
    return run->hooks && run->hooks->open_grad
               ? run->hooks->open_grad(run->hooks->arg, param, out, err)
               : OCT_OK;
}

oct_status oct_param_grad_close(const oct_param *param, const oct_run *run, oct_err *err)
{
    return run->hooks && run->hooks->close_grad
               ? run->hooks->close_grad(run->hooks->arg, param, err)
               : OCT_OK;
}

void oct_run_trace_gemm(const oct_run *run, const char *fqn, const char *phase, const oct_matrix *a,
                        const oct_matrix *b, oct_layout layout, const oct_groups *groups,
                        const oct_gemm_out *out)
{
    const bool tn = layout == OCT_LAYOUT_TN, nt = layout == OCT_LAYOUT_NT;
    const int64_t stack = groups ? groups->count : 1;
    const int64_t k = tn ? a->rows : a->cols, n = nt ? b->rows / stack : b->cols;
    const int64_t m = tn ? a->cols * stack : a->rows;
    oct_trace_event event = {
        .kind = OCT_TRACE_MATMUL,
        .fqn = fqn,
        .phase = phase,
        .format = a->dtype == OCT_DTYPE_BF16 ? "bf16" : oct_dtype_name(a->dtype),
        .dtype = oct_dtype_name(out->dtype),
        .layout = oct_layout_name(layout),
        .kernel = "fma",
        .store = oct_gemm_store_name(out->store),
        .grouped = groups != NULL,
        .ndim = {2, 2, 2},
        .shape = {{m, k}, {k, n}, {m, n}},
    };
    if (groups) {
        event.shape[0][0] = a->rows;
        event.shape[0][1] = a->cols;
        event.shape[1][0] = b->rows;
        event.shape[1][1] = b->cols;
    }
    oct_trace_emit(run->trace, &event);
}

oct_status oct_run_unit(const oct_run *run, int64_t unit, oct_unit_event event, oct_err *err)
{
    return run->hooks && run->hooks->on_unit
               ? run->hooks->on_unit(run->hooks->arg, unit, event, err)
               : OCT_OK;
}
