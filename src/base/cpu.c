#include "base/cpu.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

oct_isa oct_cpu_isa(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi2"))
        return OCT_ISA_REF;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
        __builtin_cpu_supports("avx512bf16"))
        return OCT_ISA_AVX512;
    return OCT_ISA_AVX2;
#else
    return OCT_ISA_REF;
#endif
}

const char *oct_isa_name(oct_isa isa)
{
    static const char *const names[] = {"ref", "avx2", "avx512"};
    return names[isa];
}

oct_status oct_isa_choose(oct_isa *isa, oct_err *err)
{
    const oct_isa best = oct_fault("cpu.features") ? OCT_ISA_REF : oct_cpu_isa();
    const char *word = getenv("OCTET_ISA");
    *isa = best;
    if (!word || !*word)
        return OCT_OK;
    for (int level = OCT_ISA_REF; level <= OCT_ISA_AVX512; level++) {
        if (strcmp(word, oct_isa_name((oct_isa)level)) != 0)
            continue;
        if (level > (int)best)
            return OCT_FAIL(
                err, OCT_E_UNSUPPORTED,
                "cannot use instruction set '%s': this CPU supports '%s' at most, which is required "
                "(OCTET_ISA)",
                word, oct_isa_name(best));
        *isa = (oct_isa)level;
        return OCT_OK;
    }
    return OCT_FAIL(
        err, OCT_E_CONFIG,
        "unknown instruction set '%s': one of ref, avx2, avx512 is required (OCTET_ISA)", word);
}

int oct_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int count = CPU_COUNT(&set);
    return count > 0 ? count : 1;
}
