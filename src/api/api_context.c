/* Version, names and the context. */
#include <string.h>

#include "api/api_check.h"

_Static_assert(OCTET_VERSION_MAJOR == OCTET_PROJECT_MAJOR &&
                   OCTET_VERSION_MINOR == OCTET_PROJECT_MINOR &&
                   OCTET_VERSION_PATCH == OCTET_PROJECT_PATCH,
               "octet/version.h and CMakeLists.txt name one version");

enum { MAX_THREADS = 1024 };

uint32_t octet_version_number(void)
{
    return OCTET_VERSION_NUMBER;
}

#define TEXT_OF(number) #number
#define TEXT(number)    TEXT_OF(number)

const char *octet_version(void)
{
    return TEXT(OCTET_VERSION_MAJOR) "." TEXT(OCTET_VERSION_MINOR) "." TEXT(OCTET_VERSION_PATCH);
}

const char *octet_status_name(octet_status status)
{
    switch (status) {
    case OCTET_OK:
        return "ok";
    case OCTET_E_ARGUMENT:
        return "argument";
    case OCTET_E_WORKSPACE:
        return "workspace";
    case OCTET_E_ENVIRONMENT:
        return "environment";
    case OCTET_E_SHAPE:
        return "shape";
    case OCTET_E_UNSUPPORTED:
        return "unsupported";
    case OCTET_E_INTERNAL:
        return "internal";
    }
    return "unknown";
}

const char *octet_isa_name(octet_isa isa)
{
    switch (isa) {
    case OCTET_ISA_AUTO:
        return "auto";
    case OCTET_ISA_REF:
    case OCTET_ISA_AVX2:
    case OCTET_ISA_AVX512:
        return oct_isa_name((oct_isa)(isa - OCTET_ISA_REF));
    }
    return "unknown";
}

static octet_isa public_isa(oct_isa isa)
{
    return (octet_isa)((int)isa + OCTET_ISA_REF);
}

size_t octet_context_bytes(void)
{
    return sizeof(octet_context) + _Alignof(octet_context) - 1;
}

static octet_status choose(octet_isa wanted, oct_isa *isa, const char *function, octet_error *error)
{
    OCT_API_TRY(oct_api_check_range((int32_t)wanted, OCTET_ISA_AUTO, OCTET_ISA_AVX512, function,
                                    "settings->isa", error));
    if (wanted == OCTET_ISA_AUTO) {
        oct_err err = {0};
        const oct_status status = oct_isa_choose(isa, &err);
        return status == OCT_OK ? OCTET_OK : oct_api_wrap(error, function, status, &err);
    }
    *isa = (oct_isa)(wanted - OCTET_ISA_REF);
    if (*isa > oct_cpu_isa())
        return oct_api_fail(error, OCTET_E_UNSUPPORTED, function,
                            "settings->isa is %s, at most %s is required on this CPU",
                            octet_isa_name(wanted), oct_isa_name(oct_cpu_isa()));
    return OCTET_OK;
}

octet_status octet_context_init(void *memory, size_t memory_bytes,
                                const octet_context_settings *settings, octet_context **context,
                                octet_error *error)
{
    static const char function[] = "octet_context_init";
    octet_context_settings wanted = OCTET_CONTEXT_SETTINGS_INIT;
    oct_isa isa = OCT_ISA_REF;
    OCT_API_TRY(oct_api_check_pointer(context, function, "context", error));
    OCT_API_TRY(oct_api_check_pointer(memory, function, "memory", error));
    if (memory_bytes < octet_context_bytes())
        return oct_api_fail(error, OCTET_E_ARGUMENT, function,
                            "memory_bytes is %zu, at least %zu is required", memory_bytes,
                            octet_context_bytes());
    if (settings)
        OCT_API_TRY(oct_api_read_struct(settings, &wanted, sizeof wanted, sizeof wanted, function,
                                        "settings", error));
    OCT_API_TRY(
        oct_api_check_range(wanted.threads, 0, MAX_THREADS, function, "settings->threads", error));
    OCT_API_TRY(choose(wanted.isa, &isa, function, error));

    const size_t align = _Alignof(octet_context);
    octet_context *made =
        (octet_context *)(void *)((unsigned char *)memory + (-(uintptr_t)memory & (align - 1)));
    memset(made, 0, sizeof *made);
    made->self = made;
    made->threads = wanted.threads > 0 ? wanted.threads : oct_cpu_count();
    made->kernels.isa = isa;
    oct_quantize_kernels_init(&made->kernels.quantize, isa);
    oct_gemm_kernels_init(&made->kernels.gemm, isa);
    *context = made;
    return OCTET_OK;
}

octet_status octet_context_features(const octet_context *context, octet_features *features,
                                    octet_error *error)
{
    static const char function[] = "octet_context_features";
    octet_features wanted;
    OCT_API_TRY(oct_api_check_context(context, function, error));
    OCT_API_TRY(oct_api_read_struct(features, &wanted, sizeof wanted, sizeof wanted, function,
                                    "features", error));
    wanted.isa = public_isa(context->kernels.isa);
    wanted.highest_isa = public_isa(oct_cpu_isa());
    wanted.threads = context->threads;
    wanted.cores = oct_cpu_count();
    wanted.formats = 1u << OCTET_FORMAT_MXFP8 | 1u << OCTET_FORMAT_HIF8;
    wanted.elements = 1u << OCTET_ELEMENT_E4M3 | 1u << OCTET_ELEMENT_E8M0 |
                      1u << OCTET_ELEMENT_HIF8 | 1u << OCTET_ELEMENT_BF16;
    memcpy(features, &wanted, sizeof wanted);
    return OCTET_OK;
}
