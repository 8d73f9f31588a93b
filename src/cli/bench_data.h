/* What octet bench multiplies, and how it knows that the result is right. */
#ifndef OCT_CLI_BENCH_DATA_H
#define OCT_CLI_BENCH_DATA_H

#include "base/arena.h"
#include "base/status.h"
#include "kernels/gemm.h"
#include "low_precision/format.h"
#include "tensor/tensor.h"

/* Distributions, as in training: */
typedef enum oct_bench_data {
    OCT_BENCH_GAUSSIAN,
    OCT_BENCH_LOG_NORMAL_1, /* Gaussian times exp(normal) per row */
    OCT_BENCH_LOG_NORMAL_2, /* times exp(2 normal) */
    OCT_BENCH_SWIGLU,       /* silu(a) * b of Gaussian a and b */
    OCT_BENCH_ADVERSARIAL   /* along both axes every 32 values are one 448 and 31 tiny odd ones */
} oct_bench_data;

/* BF16 [rows, cols] in `arena`, scaled by `std`, keyed by name. */
oct_status oct_bench_fill(oct_arena *arena, oct_bench_data kind, const char *name, int64_t rows,
                          int64_t cols, float std, oct_tensor *out, oct_err *err) OCT_MUST_CHECK;

/* The two sides of a product as they were really multiplied: vectors along the contraction. */
oct_fma_source oct_bench_plain(const oct_tensor *tensor, bool k_contiguous);
oct_fma_source oct_bench_codes(const oct_quantized_matrix *codes);

/* NaN in every element, so that what a product does not write shows. */
void oct_bench_poison(const oct_tensor *tensor);

/* Compares sampled elements of c [m, n], corners included, with sums in FP64. *checked grows by
 * their number. Errors: OCT_E_KERNEL for a wrong value, for operands of other sizes, and if nothing
 * but zeros was compared. */
oct_status oct_bench_check_product(const oct_fma_source *left, const oct_fma_source *right,
                                   const oct_tensor *c, const char *what, int64_t *checked,
                                   oct_err *err) OCT_MUST_CHECK;

/* Are the codes a quantization of x? Root mean square of the sampled differences. Errors:
 * OCT_E_KERNEL. */
oct_status oct_bench_check_codes(const oct_quantized_matrix *codes, const oct_tensor *x,
                                 const char *what, int64_t *checked, oct_err *err) OCT_MUST_CHECK;

#endif
