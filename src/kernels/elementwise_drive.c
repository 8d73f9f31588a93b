#include "kernels/elementwise_drive.h"

#include "base/size.h"
#include "base/threads.h"
#include "kernels/exec.h"

/* Below this many elements a thread costs more than it saves. */
enum { RANGE_ELEMENTS = 32768 };

typedef struct range_job {
    oct_range_fn fn;
    void *arg;
    int64_t items, items_per_range;
} range_job;

static void run_range(void *arg, int64_t item, int thread)
{
    const range_job *job = arg;
    const int64_t first = item * job->items_per_range;
    job->fn(job->arg, first, oct_min_i64(first + job->items_per_range, job->items), thread);
}

void oct_for_ranges(const oct_exec *exec, int64_t items, int64_t elements_per_item, oct_range_fn fn,
                    void *arg)
{
    if (items <= 0)
        return;
    range_job job = {.fn = fn, .arg = arg, .items = items};
    job.items_per_range = oct_max_i64(1, RANGE_ELEMENTS / oct_max_i64(1, elements_per_item));
    oct_parallel_for(exec->threads, oct_ceil_div(items, job.items_per_range), run_range, &job);
}

oct_status oct_check_matrix(const char *what, const char *name, const oct_tensor *tensor,
                            oct_dtype dtype, int64_t rows, int64_t cols, oct_err *err)
{
    if (dtype != OCT_DTYPE_F32 && dtype != OCT_DTYPE_BF16)
        return OCT_FAIL(err, OCT_E_SHAPE, "%s: %s is %s, float32 or bfloat16 is required", what,
                        name, oct_dtype_name(dtype));
    if (tensor->dtype != dtype)
        return OCT_FAIL(err, OCT_E_SHAPE, "%s: %s is %s, %s is required", what, name,
                        oct_dtype_name(tensor->dtype), oct_dtype_name(dtype));
    if (oct_tensor_rows(tensor) != rows || oct_tensor_cols(tensor) != cols)
        return OCT_FAIL(err, OCT_E_SHAPE, "%s: %s is [%lld,%lld], [%lld,%lld] is required", what,
                        name, (long long)oct_tensor_rows(tensor),
                        (long long)oct_tensor_cols(tensor), (long long)rows, (long long)cols);
    return OCT_OK;
}

oct_status oct_check_gradient_out(const char *what, const oct_gemm_out *out, oct_err *err)
{
    if (out->bias || (out->store != OCT_GEMM_STORE && out->store != OCT_GEMM_FOLD))
        return OCT_FAIL(err, OCT_E_API,
                        "%s: the output has a bias or continues a sum, store or fold is required",
                        what);
    if (out->dtype != OCT_DTYPE_F32 &&
        (out->dtype != OCT_DTYPE_BF16 || out->store == OCT_GEMM_FOLD))
        return OCT_FAIL(err, OCT_E_API,
                        "%s: the output is %s, float32 (or bfloat16 without fold) is required",
                        what, oct_dtype_name(out->dtype));
    return OCT_OK;
}
