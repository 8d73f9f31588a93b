/* The table of inner loops of the elementwise operators. Included by kernels/elementwise.h only. */
#ifndef OCT_KERNELS_ELEMENTWISE_TABLE_H
#define OCT_KERNELS_ELEMENTWISE_TABLE_H

struct oct_elementwise_kernels {
    int unused;
};

#endif
