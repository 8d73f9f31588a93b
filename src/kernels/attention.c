#include "kernels/exec.h"

void oct_attention_kernels_init(oct_attention_kernels *kernels, oct_isa isa)
{
    (void)isa;
    *kernels = (oct_attention_kernels){0};
}
