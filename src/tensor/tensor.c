#include "tensor/tensor.h"

#include "base/size.h"

size_t oct_dtype_bytes(oct_dtype dtype)
{
    switch (dtype) {
    case OCT_DTYPE_F32:
    case OCT_DTYPE_I32:
        return 4;
    case OCT_DTYPE_BF16:
        return 2;
    case OCT_DTYPE_I64:
        return 8;
    case OCT_DTYPE_E4M3:
    case OCT_DTYPE_E8M0:
    case OCT_DTYPE_HIF8:
    case OCT_DTYPE_U8:
        return 1;
    }
    return 0;
}

const char *oct_dtype_name(oct_dtype dtype)
{
    static const char *const names[] = {"float32",  "bfloat16", "float8_e4m3fn", "float8_e8m0fnu",
                                        "hifloat8", "uint8",    "int32",         "int64"};
    return names[dtype];
}

int64_t oct_tensor_numel(const oct_tensor *tensor)
{
    int64_t n = 1;
    for (int d = 0; d < tensor->ndim; d++)
        n *= tensor->shape[d];
    return n;
}

size_t oct_tensor_bytes(const oct_tensor *tensor)
{
    return (size_t)oct_tensor_numel(tensor) * oct_dtype_bytes(tensor->dtype);
}

int64_t oct_tensor_rows(const oct_tensor *tensor)
{
    int64_t n = 1;
    for (int d = 0; d + 1 < tensor->ndim; d++)
        n *= tensor->shape[d];
    return n;
}

int64_t oct_tensor_cols(const oct_tensor *tensor)
{
    return tensor->ndim ? tensor->shape[tensor->ndim - 1] : 1;
}

oct_tensor oct_tensor_2d(void *data, oct_dtype dtype, int64_t rows, int64_t cols)
{
    return (oct_tensor){.data = data, .dtype = dtype, .ndim = 2, .shape = {rows, cols}};
}

oct_status oct_tensor_new_2d(oct_arena *arena, oct_dtype dtype, int64_t rows, int64_t cols,
                             oct_tensor *out, oct_err *err)
{
    size_t bytes = 0;
    if (rows < 0 || cols < 0 || !oct_size_mul((size_t)rows, (size_t)cols, &bytes) ||
        !oct_size_mul(bytes, oct_dtype_bytes(dtype), &bytes))
        return OCT_FAIL(err, OCT_E_SHAPE, "cannot make a tensor of %lld x %lld %s", (long long)rows,
                        (long long)cols, oct_dtype_name(dtype));
    void *data = NULL;
    OCT_TRY(oct_arena_alloc(arena, bytes, &data, err));
    *out = oct_tensor_2d(data, dtype, rows, cols);
    return OCT_OK;
}
