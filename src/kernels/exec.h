/* Where a computation runs: the kernel tables of one instruction set and the threads to use. */
#ifndef OCT_KERNELS_EXEC_H
#define OCT_KERNELS_EXEC_H

#include "base/arena.h"
#include "base/cpu.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/quantize.h"

/* All kernel tables of one instruction set. Immutable after oct_kernels_init. */
typedef struct oct_kernels {
    oct_isa isa;
    oct_quantize_kernels quantize;
    oct_gemm_kernels gemm;
    oct_elementwise_kernels elementwise;
    oct_attention_kernels attention;
} oct_kernels;

/* Fills every table with the ref kernels, then overrides upward to `isa`. */
void oct_kernels_init(oct_kernels *kernels, oct_isa isa);

/* What every driver function gets: the tables, a thread count and working memory. A driver rewinds
 * `scratch` to where it found it before it returns. Not thread-safe: one exec per calling thread.
 */
struct oct_exec {
    const oct_kernels *kernels;
    int threads; /* >= 1 */
    oct_arena *scratch;
};

#endif
