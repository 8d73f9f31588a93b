#include "kernels/lazy.h"

#include <string.h>

#include "kernels/elementwise_drive.h"
#include "kernels/exec.h"

oct_lazy oct_lazy_of(const oct_tensor *tensor)
{
    return (oct_lazy){.dtype = tensor->dtype,
                      .rows = oct_tensor_rows(tensor),
                      .cols = oct_tensor_cols(tensor),
                      .data = tensor->data};
}

typedef struct store_job {
    const oct_lazy *x;
    void *y;
} store_job;

static void store_rows(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const store_job *job = arg;
    const oct_lazy *x = job->x;
    void *y = oct_at_mut(x->dtype, job->y, first * x->cols);
    if (x->make)
        x->make(x->arg, first, last - first, 0, x->cols, y, x->cols);
    else
        memcpy(y, oct_at(x->dtype, x->data, first * x->cols),
               (size_t)((last - first) * x->cols) * oct_dtype_bytes(x->dtype));
}

oct_status oct_lazy_store(const oct_exec *exec, const oct_lazy *x, const oct_tensor *y,
                          oct_err *err)
{
    OCT_TRY(
        oct_check_matrix("cannot store a matrix", "its place", y, x->dtype, x->rows, x->cols, err));
    store_job job = {.x = x, .y = y->data};
    oct_for_ranges(exec, x->rows, x->cols, store_rows, &job);
    return OCT_OK;
}
