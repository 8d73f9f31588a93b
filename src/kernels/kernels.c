#include "kernels/exec.h"

void oct_kernels_init(oct_kernels *kernels, oct_isa isa)
{
    kernels->isa = isa;
    oct_quantize_kernels_init(&kernels->quantize, isa);
    oct_gemm_kernels_init(&kernels->gemm, isa);
    oct_elementwise_kernels_init(&kernels->elementwise, isa);
    oct_attention_kernels_init(&kernels->attention, isa);
}
