/* The makers of the quantizer table, one for each instruction set that has inner loops of its own.
 */
#ifndef OCT_KERNELS_QUANTIZE_KERNELS_H
#define OCT_KERNELS_QUANTIZE_KERNELS_H

#include "kernels/quantize.h"

/* Each sets every entry it implements and leaves the others alone. */
void oct_quantize_kernels_ref(oct_quantize_kernels *kernels);
void oct_quantize_kernels_avx2(oct_quantize_kernels *kernels);   /* x86-64 only */
void oct_quantize_kernels_avx512(oct_quantize_kernels *kernels); /* x86-64 only */

#endif
