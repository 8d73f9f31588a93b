/* Rotary embedding and the moves of head slices. */
#include <string.h>

#include "kernels/elementwise_drive.h"
#include "kernels/exec.h"

typedef struct slice_job {
    const oct_elementwise_kernels *kernels;
    oct_dtype dtype;
    oct_rope_view view;
    int64_t heads, dim;
    const float *cos, *sin;
    const int32_t *positions_T;
    bool interleave, inverse;
    char *turned; /* one slice per thread */
} slice_job;

static const void *slice_src(const slice_job *job, int64_t t, int64_t h)
{
    return oct_at(job->dtype, job->view.src,
                  t * job->view.src_token_stride + h * job->view.src_head_stride);
}

static void *slice_dst(const slice_job *job, int64_t t, int64_t h)
{
    return oct_at_mut(job->dtype, job->view.dst,
                      t * job->view.dst_token_stride + h * job->view.dst_head_stride);
}

static oct_status check_slices(const char *what, oct_dtype dtype, int64_t tokens, int64_t heads,
                               int64_t dim, oct_err *err)
{
    if (dtype != OCT_DTYPE_F32 && dtype != OCT_DTYPE_BF16)
        return OCT_FAIL(err, OCT_E_SHAPE, "%s: dtype %s, float32 or bfloat16 is required", what,
                        oct_dtype_name(dtype));
    if (tokens < 0 || heads < 1 || dim < 1)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "%s: %lld tokens, %lld heads of %lld, one head of one element or more is "
                        "required",
                        what, (long long)tokens, (long long)heads, (long long)dim);
    return OCT_OK;
}

static void rope_tokens(void *arg, int64_t first, int64_t last, int thread)
{
    const slice_job *job = arg;
    const int64_t half = job->dim / 2;
    const size_t bytes = (size_t)job->dim * oct_dtype_bytes(job->dtype);
    void *turned = job->turned + (size_t)thread * bytes;
    for (int64_t t = first; t < last; t++) {
        const float *cos = job->cos + job->positions_T[t] * half;
        const float *sin = job->sin + job->positions_T[t] * half;
        for (int64_t h = 0; h < job->heads; h++) {
            const void *src = slice_src(job, t, h);
            void *dst = slice_dst(job, t, h);
            /* Interleaved pairs change places, which the kernel cannot do in place. */
            const bool in_place = job->interleave && src == dst;
            job->kernels->rope(job->dtype, half, src, cos, sin, job->interleave, job->inverse,
                               in_place ? turned : dst);
            if (in_place)
                memcpy(dst, turned, bytes);
        }
    }
}

oct_status oct_rope(const oct_exec *exec, oct_dtype dtype, const oct_rope_view *view,
                    int64_t tokens, int64_t heads, int64_t dim, const float *cos, const float *sin,
                    const int32_t *positions_T, bool interleave, bool inverse, oct_err *err)
{
    OCT_TRY(check_slices("cannot apply rope", dtype, tokens, heads, dim, err));
    if (dim % 2 != 0)
        return OCT_FAIL(err, OCT_E_SHAPE, "cannot apply rope: dim %lld, an even one is required",
                        (long long)dim);
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    void *turned = NULL;
    OCT_TRY(
        oct_arena_array(exec->scratch, exec->threads * dim, oct_dtype_bytes(dtype), &turned, err));
    slice_job job = {.kernels = &exec->kernels->elementwise,
                     .dtype = dtype,
                     .view = *view,
                     .heads = heads,
                     .dim = dim,
                     .cos = cos,
                     .sin = sin,
                     .positions_T = positions_T,
                     .interleave = interleave,
                     .inverse = inverse,
                     .turned = turned};
    oct_for_ranges(exec, tokens, heads * dim, rope_tokens, &job);
    oct_arena_rewind(exec->scratch, mark);
    return OCT_OK;
}

static void head_sum_tokens(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const slice_job *job = arg;
    for (int64_t t = first; t < last; t++)
        job->kernels->sum_rows(job->dtype, job->dim, job->heads, slice_src(job, t, 0),
                               job->view.src_head_stride, NULL, NULL, NULL, slice_dst(job, t, 0));
}

oct_status oct_head_sum(const oct_exec *exec, oct_dtype dtype, const oct_rope_view *view,
                        int64_t tokens, int64_t heads, int64_t dim, oct_err *err)
{
    OCT_TRY(check_slices("cannot sum over heads", dtype, tokens, heads, dim, err));
    slice_job job = {.kernels = &exec->kernels->elementwise,
                     .dtype = dtype,
                     .view = *view,
                     .heads = heads,
                     .dim = dim};
    oct_for_ranges(exec, tokens, heads * dim, head_sum_tokens, &job);
    return OCT_OK;
}

static void head_copy_tokens(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const slice_job *job = arg;
    const size_t bytes = (size_t)job->dim * oct_dtype_bytes(job->dtype);
    for (int64_t t = first; t < last; t++)
        for (int64_t h = 0; h < job->heads; h++)
            memcpy(slice_dst(job, t, h), slice_src(job, t, h), bytes);
}

oct_status oct_head_copy(const oct_exec *exec, oct_dtype dtype, const oct_rope_view *view,
                         int64_t tokens, int64_t heads, int64_t dim, oct_err *err)
{
    OCT_TRY(check_slices("cannot copy heads", dtype, tokens, heads, dim, err));
    slice_job job = {.dtype = dtype, .view = *view, .heads = heads, .dim = dim};
    oct_for_ranges(exec, tokens, heads * dim, head_copy_tokens, &job);
    return OCT_OK;
}
