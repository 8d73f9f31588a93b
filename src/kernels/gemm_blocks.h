/* How tiles of a product are spread over threads and caches; shared by both products. */
#ifndef OCT_KERNELS_GEMM_BLOCKS_H
#define OCT_KERNELS_GEMM_BLOCKS_H

#include "kernels/exec.h"

enum { OCT_GEMM_TILE = OCT_GEMM_MR * OCT_GEMM_NR };

/* A rectangle of tiles of C and how to fill one. */
typedef struct oct_gemm_blocks {
    const oct_gemm_finish *finish;
    int64_t rows, cols;            /* of C */
    int64_t row_panel, row_panels; /* the rectangle: first panel and count */
    int64_t col_panel, col_panels;
    int64_t chunks; /* of k */
    /* Adds chunk `chunk` of the chains of tile (i, j), panel numbers of the whole C. */
    void (*add)(const void *arg, int64_t i, int64_t j, int64_t chunk, float *c);
    /* If not NULL, follows for tiles (i .. i + count - 1, j), which lie behind one another. */
    void (*add_column)(const void *arg, int64_t i, int64_t count, int64_t j, int64_t chunk,
                       float *c);
    const void *arg;
} oct_gemm_blocks;

/* Starts every chain (at 0, or at C for CONTINUE), adds its chunks in order, finishes it. */
oct_status oct_gemm_blocks_run(const oct_exec *exec, const oct_gemm_blocks *blocks,
                               oct_err *err) OCT_MUST_CHECK;

/* The FP32-FMA product of two sources. */
oct_status oct_fma_product(const oct_exec *exec, const oct_fma_source *left,
                           const oct_fma_source *right, const oct_gemm_finish *finish,
                           oct_err *err) OCT_MUST_CHECK;

/* Refuses outputs that no product can write. */
oct_status oct_gemm_out_check(const oct_gemm_out *out, int64_t cols, oct_err *err) OCT_MUST_CHECK;

/* The same loops in scalar C (gemm_ref.c, the meaning) and for one instruction set. */
void oct_gemm_kernels_ref(oct_gemm_kernels *kernels);
void oct_gemm_kernels_avx2(oct_gemm_kernels *kernels);
void oct_gemm_kernels_avx512(oct_gemm_kernels *kernels);
void oct_block_integer_kernels_avx2(oct_gemm_kernels *kernels);
void oct_block_integer_kernels_avx512(oct_gemm_kernels *kernels);

#endif
