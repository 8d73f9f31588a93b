/* What the CPU can do and which instruction set the kernels use. */
#ifndef OCT_BASE_CPU_H
#define OCT_BASE_CPU_H

#include "base/status.h"

/* Levels of the kernel tables, lowest first. */
typedef enum oct_isa { OCT_ISA_REF = 0, OCT_ISA_AVX2 = 1, OCT_ISA_AVX512 = 2 } oct_isa;

/* The highest level this CPU and operating system support. AVX512 means F, BW, VL, DQ, VNNI, VBMI,
 * BF16 with FMA, F16C, BMI2. */
oct_isa oct_cpu_isa(void);

/* The word that OCTET_ISA takes. Never NULL. */
const char *oct_isa_name(oct_isa isa);

/* The level to use: oct_cpu_isa(), lowered by the environment variable OCTET_ISA = ref | avx2 |
 * avx512. Errors: OCT_E_CONFIG for another word, OCT_E_UNSUPPORTED for a level that the CPU lacks.
 */
oct_status oct_isa_choose(oct_isa *isa, oct_err *err) OCT_MUST_CHECK;

/* Cores that this process may run on; at least 1. */
int oct_cpu_count(void);

#endif
