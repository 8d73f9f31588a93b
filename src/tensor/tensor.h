/* Dtypes and dense row-major tensor views. A view never owns its data. */
#ifndef OCT_TENSOR_TENSOR_H
#define OCT_TENSOR_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/arena.h"

typedef enum oct_dtype {
    OCT_DTYPE_F32,
    OCT_DTYPE_BF16, /* upper half of an FP32 word */
    OCT_DTYPE_E4M3, /* one byte, OCP FP8 E4M3 (finite) */
    OCT_DTYPE_E8M0, /* one byte, power of two */
    OCT_DTYPE_HIF8, /* one byte, HiFloat8 */
    OCT_DTYPE_U8,
    OCT_DTYPE_I32,
    OCT_DTYPE_I64
} oct_dtype;

enum { OCT_MAX_NDIM = 4 };

typedef struct oct_tensor {
    void *data; /* NULL on the meta device */
    oct_dtype dtype;
    int ndim;
    int64_t shape[OCT_MAX_NDIM];
} oct_tensor;

size_t oct_dtype_bytes(oct_dtype dtype);
const char *oct_dtype_name(oct_dtype dtype); /* "float32", "bfloat16", ... */

int64_t oct_tensor_numel(const oct_tensor *tensor);
size_t oct_tensor_bytes(const oct_tensor *tensor);

/* Rows x columns view of a tensor: columns = last dim, rows = product of the others. */
int64_t oct_tensor_rows(const oct_tensor *tensor);
int64_t oct_tensor_cols(const oct_tensor *tensor);

/* A [rows, cols] view over `data`. */
oct_tensor oct_tensor_2d(void *data, oct_dtype dtype, int64_t rows, int64_t cols);

/* Allocates a [rows, cols] tensor in `arena`, uninitialised. */
oct_status oct_tensor_new_2d(oct_arena *arena, oct_dtype dtype, int64_t rows, int64_t cols,
                             oct_tensor *out, oct_err *err) OCT_MUST_CHECK;

#endif
