/* The table of inner loops of the matrix products. Included by kernels/gemm.h only. */
#ifndef OCT_KERNELS_GEMM_TABLE_H
#define OCT_KERNELS_GEMM_TABLE_H

struct oct_gemm_kernels {
    int unused;
};

#endif
