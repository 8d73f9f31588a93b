/* The context: which kernels run, on how many threads. It lives in memory of the caller, is never
 * written after octet_context_init, and may be used by any number of threads at once. */
#ifndef OCTET_CONTEXT_H
#define OCTET_CONTEXT_H

#include <octet/export.h>
#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Instruction sets, lowest first. All give the same bits; `ref` is portable C, the definition. */
typedef enum octet_isa {
    OCTET_ISA_AUTO = 0, /* the highest that the CPU has, lowered by the environment variable
                           OCTET_ISA = ref | avx2 | avx512 */
    OCTET_ISA_REF = 1,
    OCTET_ISA_AVX2 = 2,  /* AVX2, FMA, BMI2 */
    OCTET_ISA_AVX512 = 3 /* AVX-512 F, BW, VL, DQ, VNNI, VBMI, BF16 */
} octet_isa;

/* "auto", "ref", "avx2", "avx512"; "unknown" for another number. Static string. Any thread. */
OCTET_API const char *octet_isa_name(octet_isa isa);

/* Kernel tables and a number of threads; opaque. */
typedef struct octet_context octet_context;

typedef struct octet_context_settings {
    size_t struct_bytes; /* sizeof(octet_context_settings) */
    octet_isa isa;       /* one that is not AUTO disregards the environment variable */
    int32_t threads;     /* 1 .. 1024; 0: as many as this process may use cores */
} octet_context_settings;

#define OCTET_CONTEXT_SETTINGS_INIT                                                                \
    {                                                                                              \
        sizeof(octet_context_settings), OCTET_ISA_AUTO, 0                                          \
    }

/* Bytes that octet_context_init needs (a few thousand). Cannot fail. Any thread. */
OCTET_API size_t octet_context_bytes(void);

/* Makes a context.
 * memory: in, any alignment; the context stays inside, so it must outlive every use and may not be
 *   moved or copied. There is nothing to destroy: forget the memory.
 * memory_bytes: at least octet_context_bytes().
 * settings: in, or NULL for OCTET_CONTEXT_SETTINGS_INIT.
 * context: out, a pointer into memory.
 * Errors: E_ARGUMENT; E_ENVIRONMENT if AUTO finds another word in OCTET_ISA; E_UNSUPPORTED for an
 * instruction set that the CPU lacks.
 * Threads: reads the environment with getenv if isa is AUTO, so no other thread may change it. */
OCTET_API octet_status octet_context_init(void *memory, size_t memory_bytes,
                                          const octet_context_settings *settings,
                                          octet_context **context,
                                          octet_error *error) OCTET_MUST_CHECK;

/* What a context uses and what there is. */
typedef struct octet_features {
    size_t struct_bytes;   /* in: sizeof(octet_features) */
    octet_isa isa;         /* whose kernels run */
    octet_isa highest_isa; /* of this CPU and operating system */
    int32_t threads;       /* that a call may use */
    int32_t cores;         /* that this process may use */
    uint32_t formats;      /* bit f: operands of octet_format f */
    uint32_t elements;     /* bit e: codecs of octet_element e */
} octet_features;

#define OCTET_FEATURES_INIT                                                                        \
    {                                                                                              \
        sizeof(octet_features), OCTET_ISA_AUTO, OCTET_ISA_AUTO, 0, 0, 0, 0                         \
    }

/* Fills `features`. Errors: E_ARGUMENT. Any thread. */
OCTET_API octet_status octet_context_features(const octet_context *context,
                                              octet_features *features,
                                              octet_error *error) OCTET_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
