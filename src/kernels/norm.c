/* RMSNorm and bias gradients: rows in parallel, sums over tokens by blocks of columns. */
#include "base/size.h"
#include "kernels/elementwise_drive.h"
#include "kernels/exec.h"

/* Columns whose sum over tokens is one work item: their FP32 sums stay in the first-level cache. */
enum { SUM_COLUMNS = 256 };

typedef struct norm_job {
    const oct_elementwise_kernels *kernels;
    oct_dtype dtype;
    int64_t rows, cols;
    const void *x, *w;
    float eps;
    float *rstd_T;
    void *y;
    const float *saved_rstd_T; /* backward */
    const void *dy, *add_to;
    void *dx;
    const oct_gemm_out *dw;
} norm_job;

static void norm_rows(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const norm_job *job = arg;
    for (int64_t t = first; t < last; t++) {
        const int64_t at = t * job->cols;
        job->rstd_T[t] =
            job->kernels->rmsnorm(job->dtype, job->cols, oct_at(job->dtype, job->x, at), job->w,
                                  job->eps, oct_at_mut(job->dtype, job->y, at));
    }
}

oct_status oct_rmsnorm(const oct_exec *exec, const oct_tensor *x, const oct_tensor *w, float eps,
                       const oct_tensor *y, float *rstd_T, oct_err *err)
{
    const char *what = "cannot apply RMSNorm";
    const int64_t rows = oct_tensor_rows(x), cols = oct_tensor_cols(x);
    OCT_TRY(oct_check_matrix(what, "x", x, x->dtype, rows, cols, err));
    OCT_TRY(oct_check_matrix(what, "w", w, x->dtype, 1, cols, err));
    OCT_TRY(oct_check_matrix(what, "y", y, x->dtype, rows, cols, err));
    norm_job job = {.kernels = &exec->kernels->elementwise,
                    .dtype = x->dtype,
                    .cols = cols,
                    .x = x->data,
                    .w = w->data,
                    .eps = eps,
                    .rstd_T = rstd_T,
                    .y = y->data};
    oct_for_ranges(exec, rows, cols, norm_rows, &job);
    return OCT_OK;
}

static void norm_backward_rows(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const norm_job *job = arg;
    for (int64_t t = first; t < last; t++) {
        const int64_t at = t * job->cols;
        job->kernels->rmsnorm_backward(job->dtype, job->cols, oct_at(job->dtype, job->dy, at),
                                       oct_at(job->dtype, job->x, at), job->w, job->saved_rstd_T[t],
                                       job->add_to ? oct_at(job->dtype, job->add_to, at) : NULL,
                                       oct_at_mut(job->dtype, job->dx, at));
    }
}

static void norm_dw_columns(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const norm_job *job = arg;
    for (int64_t block = first; block < last; block++) {
        const int64_t column = block * SUM_COLUMNS;
        const int64_t n = oct_min_i64(SUM_COLUMNS, job->cols - column);
        float sums[SUM_COLUMNS] = {0};
        for (int64_t t = 0; t < job->rows; t++) {
            const int64_t at = t * job->cols + column;
            job->kernels->rmsnorm_dw(job->dtype, n, oct_at(job->dtype, job->dy, at),
                                     oct_at(job->dtype, job->x, at), job->saved_rstd_T[t], sums);
        }
        job->kernels->store_row(job->dw, n, sums,
                                oct_at_mut(job->dw->dtype, job->dw->data, column));
    }
}

oct_status oct_rmsnorm_backward(const oct_exec *exec, const oct_tensor *dy, const oct_tensor *x,
                                const oct_tensor *w, const float *rstd_T, const oct_tensor *add_to,
                                const oct_tensor *dx, const oct_gemm_out *dw, oct_err *err)
{
    const char *what = "cannot apply RMSNorm backward";
    const int64_t rows = oct_tensor_rows(x), cols = oct_tensor_cols(x);
    OCT_TRY(oct_check_matrix(what, "x", x, x->dtype, rows, cols, err));
    OCT_TRY(oct_check_matrix(what, "dy", dy, x->dtype, rows, cols, err));
    OCT_TRY(oct_check_matrix(what, "w", w, x->dtype, 1, cols, err));
    OCT_TRY(oct_check_matrix(what, "dx", dx, x->dtype, rows, cols, err));
    if (add_to)
        OCT_TRY(oct_check_matrix(what, "add_to", add_to, x->dtype, rows, cols, err));
    OCT_TRY(oct_check_gradient_out(what, dw, err));
    norm_job job = {.kernels = &exec->kernels->elementwise,
                    .dtype = x->dtype,
                    .rows = rows,
                    .cols = cols,
                    .x = x->data,
                    .w = w->data,
                    .saved_rstd_T = rstd_T,
                    .dy = dy->data,
                    .add_to = add_to ? add_to->data : NULL,
                    .dx = dx->data,
                    .dw = dw};
    /* dw first: dx may take the place of dy. */
    oct_for_ranges(exec, oct_ceil_div(cols, SUM_COLUMNS), rows * SUM_COLUMNS, norm_dw_columns,
                   &job);
    oct_for_ranges(exec, rows, cols, norm_backward_rows, &job);
    return OCT_OK;
}

typedef struct bias_job {
    const oct_elementwise_kernels *kernels;
    const oct_tensor *dy;
    const oct_gemm_out *dbias;
} bias_job;

static void bias_columns(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const bias_job *job = arg;
    const int64_t rows = oct_tensor_rows(job->dy), cols = oct_tensor_cols(job->dy);
    const oct_dtype dtype = job->dy->dtype;
    for (int64_t block = first; block < last; block++) {
        const int64_t column = block * SUM_COLUMNS;
        const int64_t n = oct_min_i64(SUM_COLUMNS, cols - column);
        float sums[SUM_COLUMNS] = {0};
        for (int64_t t = 0; t < rows; t++)
            job->kernels->accumulate(dtype, n, oct_at(dtype, job->dy->data, t * cols + column),
                                     sums);
        job->kernels->store_row(job->dbias, n, sums,
                                oct_at_mut(job->dbias->dtype, job->dbias->data, column));
    }
}

oct_status oct_bias_backward(const oct_exec *exec, const oct_tensor *dy, const oct_gemm_out *dbias,
                             oct_err *err)
{
    const char *what = "cannot sum a bias gradient";
    const int64_t rows = oct_tensor_rows(dy), cols = oct_tensor_cols(dy);
    OCT_TRY(oct_check_matrix(what, "dy", dy, dy->dtype, rows, cols, err));
    OCT_TRY(oct_check_gradient_out(what, dbias, err));
    bias_job job = {.kernels = &exec->kernels->elementwise, .dy = dy, .dbias = dbias};
    oct_for_ranges(exec, oct_ceil_div(cols, SUM_COLUMNS), rows * SUM_COLUMNS, bias_columns, &job);
    return OCT_OK;
}
