/* A matrix as products and quantizers read it: stored, or made tile by tile while it is read. The
 * inputs of experts, their weighted output gradients, and their SwiGLU where it is quantized need
 * no memory as a whole this way. */
#ifndef OCT_KERNELS_LAZY_H
#define OCT_KERNELS_LAZY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/tensor.h"

typedef struct oct_exec oct_exec;

typedef struct oct_lazy {
    oct_dtype dtype; /* F32 or BF16 */
    int64_t rows, cols;
    const void *data; /* row-major, if it is stored */
    /* NULL if it is stored. Writes columns col .. col + cols - 1 of rows row .. row + rows - 1 to a
     * tile with `ld` elements between its rows. Any thread, any order, the same elements as often
     * as asked. */
    void (*make)(const void *arg, int64_t row, int64_t rows, int64_t col, int64_t cols, void *tile,
                 int64_t ld);
    const void *arg; /* of make; borrowed as long as the matrix is read */
    bool cheap;      /* a quantizer that reads twice has it made again rather than kept between;
                        products make it again whatever this says */
} oct_lazy;

/* A stored matrix: the rows x columns view of `tensor`. */
oct_lazy oct_lazy_of(const oct_tensor *tensor);

/* Stores x in y, a tensor with its dtype, rows and columns. Errors: OCT_E_SHAPE. */
oct_status oct_lazy_store(const oct_exec *exec, const oct_lazy *x, const oct_tensor *y,
                          oct_err *err) OCT_MUST_CHECK;

#endif
