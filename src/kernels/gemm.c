#include "kernels/exec.h"

void oct_gemm_kernels_init(oct_gemm_kernels *kernels, oct_isa isa)
{
    (void)isa;
    *kernels = (oct_gemm_kernels){0};
}
