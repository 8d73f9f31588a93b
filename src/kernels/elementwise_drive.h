/* What the drivers of the elementwise operators share: cutting work into ranges, and checks. */
#ifndef OCT_KERNELS_ELEMENTWISE_DRIVE_H
#define OCT_KERNELS_ELEMENTWISE_DRIVE_H

#include <stdint.h>

#include "base/status.h"
#include "kernels/elementwise.h"
#include "tensor/tensor.h"

/* Does items [first, last); thread is in [0, exec->threads). */
typedef void (*oct_range_fn)(void *arg, int64_t first, int64_t last, int thread);

/* Calls fn over [0, items) in ranges of about 32k elements, or once if that is all. */
void oct_for_ranges(const oct_exec *exec, int64_t items, int64_t elements_per_item, oct_range_fn fn,
                    void *arg);

/* OCT_E_SHAPE unless `tensor`, named `name`, is a [rows, cols] tensor of `dtype`, and dtype is F32
 * or BF16. `what` is the failing action: "cannot normalise". */
oct_status oct_check_matrix(const char *what, const char *name, const oct_tensor *tensor,
                            oct_dtype dtype, int64_t rows, int64_t cols,
                            oct_err *err) OCT_MUST_CHECK;

/* OCT_E_API unless `out` can take finished rows: STORE or FOLD, no bias, a possible dtype. */
oct_status oct_check_gradient_out(const char *what, const oct_gemm_out *out,
                                  oct_err *err) OCT_MUST_CHECK;

/* Element `index` of an array of `dtype`. */
static inline const void *oct_at(oct_dtype dtype, const void *data, int64_t index)
{
    return (const char *)data + index * (dtype == OCT_DTYPE_BF16 ? 2 : 4);
}

static inline void *oct_at_mut(oct_dtype dtype, void *data, int64_t index)
{
    return (char *)data + index * (dtype == OCT_DTYPE_BF16 ? 2 : 4);
}

#endif
