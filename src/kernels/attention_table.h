/* The table of inner loops of attention. Included by kernels/attention.h only. */
#ifndef OCT_KERNELS_ATTENTION_TABLE_H
#define OCT_KERNELS_ATTENTION_TABLE_H

struct oct_attention_kernels {
    int unused;
};

#endif
