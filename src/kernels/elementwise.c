/* The kernel table, and the drivers of the operators that work element by element. */
#include "kernels/elementwise.h"

#include <math.h>

#include "base/size.h"
#include "kernels/elementwise_drive.h"
#include "kernels/exec.h"

void oct_elementwise_kernels_init(oct_elementwise_kernels *kernels, oct_isa isa)
{
    oct_elementwise_kernels_ref(kernels);
#if defined(__x86_64__)
    if (isa >= OCT_ISA_AVX2)
        oct_elementwise_kernels_avx2(kernels);
    if (isa >= OCT_ISA_AVX512)
        oct_elementwise_kernels_avx512(kernels);
#else
    (void)isa;
#endif
}

/* --- sum of two activations ------------------------------------------------------------------- */

typedef struct add_job {
    const oct_elementwise_kernels *kernels;
    oct_dtype dtype;
    const void *a, *b;
    void *y;
} add_job;

static void add_range(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const add_job *job = arg;
    job->kernels->add(job->dtype, last - first, oct_at(job->dtype, job->a, first),
                      oct_at(job->dtype, job->b, first), oct_at_mut(job->dtype, job->y, first));
}

oct_status oct_add(const oct_exec *exec, const oct_tensor *a, const oct_tensor *b,
                   const oct_tensor *y, oct_err *err)
{
    const int64_t rows = oct_tensor_rows(a), cols = oct_tensor_cols(a);
    OCT_TRY(oct_check_matrix("cannot add", "a", a, a->dtype, rows, cols, err));
    OCT_TRY(oct_check_matrix("cannot add", "b", b, a->dtype, rows, cols, err));
    OCT_TRY(oct_check_matrix("cannot add", "y", y, a->dtype, rows, cols, err));
    add_job job = {.kernels = &exec->kernels->elementwise,
                   .dtype = a->dtype,
                   .a = a->data,
                   .b = b->data,
                   .y = y->data};
    oct_for_ranges(exec, rows * cols, 1, add_range, &job);
    return OCT_OK;
}

/* --- SwiGLU ------------------------------------------------------------------------------------
 */

typedef struct swiglu_job {
    const oct_elementwise_kernels *kernels;
    oct_dtype dtype;
    int64_t cols, ld_gate, ld_up;
    const void *dy, *gate, *up;
    void *dgate, *dup;
} swiglu_job;

static void make_swiglu(const void *arg, int64_t row, int64_t rows, int64_t col, int64_t cols,
                        void *tile, int64_t ld)
{
    const oct_swiglu_operands *o = arg;
    const oct_dtype dtype = o->gate.dtype;
    for (int64_t r = 0; r < rows; r++)
        o->kernels->swiglu(dtype, cols, oct_at(dtype, o->gate.data, (row + r) * o->ld_gate + col),
                           oct_at(dtype, o->up.data, (row + r) * o->ld_up + col),
                           oct_at_mut(dtype, tile, r * ld));
}

oct_lazy oct_swiglu_lazy(const oct_swiglu_operands *operands)
{
    return (oct_lazy){.dtype = operands->gate.dtype,
                      .rows = oct_tensor_rows(&operands->gate),
                      .cols = oct_tensor_cols(&operands->gate),
                      .make = make_swiglu,
                      .arg = operands};
}

static void swiglu_backward_rows(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const swiglu_job *job = arg;
    for (int64_t t = first; t < last; t++)
        job->kernels->swiglu_backward(job->dtype, job->cols,
                                      oct_at(job->dtype, job->dy, t * job->cols),
                                      oct_at(job->dtype, job->gate, t * job->ld_gate),
                                      oct_at(job->dtype, job->up, t * job->ld_up),
                                      oct_at_mut(job->dtype, job->dgate, t * job->ld_gate),
                                      oct_at_mut(job->dtype, job->dup, t * job->ld_up));
}

/* A view into a wider tensor is described by its first row's columns; only dtype and columns can be
 * checked. */
static oct_status check_strided(const char *name, const oct_tensor *view, int64_t ld,
                                const oct_tensor *dense, oct_err *err)
{
    if (view->dtype != dense->dtype)
        return OCT_FAIL(err, OCT_E_SHAPE, "cannot apply SwiGLU: %s is %s, %s is required", name,
                        oct_dtype_name(view->dtype), oct_dtype_name(dense->dtype));
    if (oct_tensor_cols(view) != oct_tensor_cols(dense) || ld < oct_tensor_cols(dense) ||
        oct_tensor_rows(view) != oct_tensor_rows(dense))
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot apply SwiGLU: %s is [%lld,%lld] with row stride %lld, "
                        "[%lld,%lld] is required",
                        name, (long long)oct_tensor_rows(view), (long long)oct_tensor_cols(view),
                        (long long)ld, (long long)oct_tensor_rows(dense),
                        (long long)oct_tensor_cols(dense));
    return OCT_OK;
}

oct_status oct_swiglu(const oct_exec *exec, const oct_tensor *gate, int64_t ld_gate,
                      const oct_tensor *up, int64_t ld_up, const oct_tensor *y, oct_err *err)
{
    const int64_t rows = oct_tensor_rows(y), cols = oct_tensor_cols(y);
    OCT_TRY(oct_check_matrix("cannot apply SwiGLU", "y", y, y->dtype, rows, cols, err));
    OCT_TRY(check_strided("gate", gate, ld_gate, y, err));
    OCT_TRY(check_strided("up", up, ld_up, y, err));
    const oct_swiglu_operands operands = {.kernels = &exec->kernels->elementwise,
                                          .gate = *gate,
                                          .up = *up,
                                          .ld_gate = ld_gate,
                                          .ld_up = ld_up};
    const oct_lazy product = oct_swiglu_lazy(&operands);
    return oct_lazy_store(exec, &product, y, err);
}

oct_status oct_swiglu_backward(const oct_exec *exec, const oct_tensor *dy, const oct_tensor *gate,
                               int64_t ld_gate, const oct_tensor *up, int64_t ld_up,
                               const oct_tensor *dgate, const oct_tensor *dup, oct_err *err)
{
    const int64_t rows = oct_tensor_rows(dy), cols = oct_tensor_cols(dy);
    OCT_TRY(oct_check_matrix("cannot apply SwiGLU backward", "dy", dy, dy->dtype, rows, cols, err));
    OCT_TRY(check_strided("gate", gate, ld_gate, dy, err));
    OCT_TRY(check_strided("up", up, ld_up, dy, err));
    OCT_TRY(check_strided("dgate", dgate, ld_gate, dy, err));
    OCT_TRY(check_strided("dup", dup, ld_up, dy, err));
    swiglu_job job = {.kernels = &exec->kernels->elementwise,
                      .dtype = dy->dtype,
                      .cols = cols,
                      .ld_gate = ld_gate,
                      .ld_up = ld_up,
                      .gate = gate->data,
                      .up = up->data,
                      .dy = dy->data,
                      .dgate = dgate->data,
                      .dup = dup->data};
    oct_for_ranges(exec, rows, cols, swiglu_backward_rows, &job);
    return OCT_OK;
}

/* --- conversion --------------------------------------------------------------------------------
 */

typedef struct convert_job {
    const oct_elementwise_kernels *kernels;
    oct_dtype from, to;
    const void *src;
    void *dst;
} convert_job;

static void convert_range(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const convert_job *job = arg;
    const void *src = oct_at(job->from, job->src, first);
    void *dst = oct_at_mut(job->to, job->dst, first);
    if (job->from == OCT_DTYPE_BF16)
        job->kernels->widen(last - first, src, dst);
    else
        job->kernels->narrow(last - first, src, dst);
}

oct_status oct_convert(const oct_exec *exec, const oct_tensor *src, const oct_tensor *dst,
                       oct_err *err)
{
    const int64_t n = oct_tensor_numel(src);
    const bool widens = src->dtype == OCT_DTYPE_BF16 && dst->dtype == OCT_DTYPE_F32;
    const bool narrows = src->dtype == OCT_DTYPE_F32 && dst->dtype == OCT_DTYPE_BF16;
    if (!widens && !narrows)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot convert: %s to %s, float32 to bfloat16 or back is required",
                        oct_dtype_name(src->dtype), oct_dtype_name(dst->dtype));
    if (oct_tensor_numel(dst) != n)
        return OCT_FAIL(err, OCT_E_SHAPE, "cannot convert: %lld elements to %lld, as many required",
                        (long long)n, (long long)oct_tensor_numel(dst));
    convert_job job = {.kernels = &exec->kernels->elementwise,
                       .from = src->dtype,
                       .to = dst->dtype,
                       .src = src->data,
                       .dst = dst->data};
    oct_for_ranges(exec, n, 1, convert_range, &job);
    return OCT_OK;
}

/* --- optimizer ---------------------------------------------------------------------------------
 */

typedef struct adamw_job {
    const oct_elementwise_kernels *kernels;
    oct_adamw_constants constants;
    const float *grad;
    float *master, *exp_avg, *exp_avg_sq;
} adamw_job;

static void adamw_range(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const adamw_job *job = arg;
    job->kernels->adamw(&job->constants, last - first, job->grad + first, job->master + first,
                        job->exp_avg + first, job->exp_avg_sq + first);
}

oct_status oct_adamw(const oct_exec *exec, const oct_adamw_step *step, int64_t n, const float *grad,
                     float *master, float *exp_avg, float *exp_avg_sq, oct_err *err)
{
    if (n < 0)
        return OCT_FAIL(err, OCT_E_API, "cannot update weights: %lld elements, 0 or more required",
                        (long long)n);
    adamw_job job = {
        .kernels = &exec->kernels->elementwise,
        .constants = {.grad_scale = step->grad_scale,
                      .step_size = (float)(step->lr / step->bias1),
                      .eps = (float)step->eps,
                      .decay = (float)(1.0 - step->lr * step->weight_decay),
                      .beta1 = (float)step->beta1,
                      .beta2 = (float)step->beta2,
                      .gain1 = (float)(1.0 - step->beta1),
                      .gain2 = (float)(1.0 - step->beta2),
                      .root_bias2 = (float)sqrt(step->bias2)},
        .grad = grad,
        .master = master,
        .exp_avg = exp_avg,
        .exp_avg_sq = exp_avg_sq,
    };
    oct_for_ranges(exec, n, 1, adamw_range, &job);
    return OCT_OK;
}

double oct_sum_squares(const oct_exec *exec, const float *x, int64_t n)
{
    return exec->kernels->elementwise.sum_squares(n, x);
}

typedef struct sum_squares_job {
    const oct_elementwise_kernels *kernels;
    int64_t cols;
    const float *x;
    double *sums;
} sum_squares_job;

static void sum_squares_rows(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const sum_squares_job *job = arg;
    for (int64_t r = first; r < last; r++)
        job->sums[r] = job->kernels->sum_squares(job->cols, job->x + r * job->cols);
}

void oct_sum_squares_rows(const oct_exec *exec, const float *x, int64_t rows, int64_t cols,
                          double *sums)
{
    sum_squares_job job = {
        .kernels = &exec->kernels->elementwise, .cols = cols, .x = x, .sums = sums};
    oct_for_ranges(exec, rows, cols, sum_squares_rows, &job);
}
