/* How far ahead packing fetches. Each row of codes and each line of mantissas is a stream of its
 * own, more of them than the hardware foresees, so every call fetches what the next one for the
 * same rows reads and writes. One at a time, between the work: all at once gained nothing. */
#ifndef OCT_KERNELS_PACKING_AHEAD_H
#define OCT_KERNELS_PACKING_AHEAD_H

#include <immintrin.h>

#include "kernels/gemm.h"

enum { OCT_AHEAD_CODES = 2 * OCT_GEMM_GROUP }; /* k, where k is contiguous */

/* Past an array it does nothing. Always inline: GCC finds a function that only fetches free of
 * effects, and drops calls of it. */
static inline __attribute__((always_inline)) void oct_prefetch(const void *at)
{
    _mm_prefetch((const char *)at, _MM_HINT_T0);
}

#endif
