#include "api/api_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "low_precision/hif8/hif8.h"
#include "low_precision/mxfp8/mxfp8.h"

_Static_assert(sizeof(octet_error) == 1024, "the layout is a promise");

/* --- errors ----------------------------------------------------------------------------------- */

octet_status oct_api_fail(octet_error *error, octet_status status, const char *function,
                          const char *fmt, ...)
{
    if (!error)
        return status;
    error->status = status;
    const int used = snprintf(error->message, sizeof error->message, "%s: ", function);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(error->message + used, sizeof error->message - (size_t)used, fmt, args);
    va_end(args);
    return status;
}

octet_status oct_api_wrap(octet_error *error, const char *function, oct_status failed,
                          const oct_err *err)
{
    octet_status status = OCTET_E_INTERNAL;
    if (failed == OCT_E_CONFIG)
        status = OCTET_E_ENVIRONMENT;
    if (failed == OCT_E_UNSUPPORTED)
        status = OCTET_E_UNSUPPORTED;
    return oct_api_fail(error, status, function, "%.900s", err->msg);
}

/* --- values and structures -------------------------------------------------------------------- */

octet_status oct_api_check_pointer(const void *pointer, const char *function, const char *argument,
                                   octet_error *error)
{
    if (pointer)
        return OCTET_OK;
    return oct_api_fail(error, OCTET_E_ARGUMENT, function, "%s is NULL, a pointer is required",
                        argument);
}

octet_status oct_api_check_range(int64_t value, int64_t low, int64_t high, const char *function,
                                 const char *argument, octet_error *error)
{
    if (value >= low && value <= high)
        return OCTET_OK;
    if (high == INT64_MAX)
        return oct_api_fail(error, OCTET_E_ARGUMENT, function,
                            "%s is %lld, %lld or more is required", argument, (long long)value,
                            (long long)low);
    return oct_api_fail(error, OCTET_E_ARGUMENT, function, "%s is %lld, %lld to %lld is required",
                        argument, (long long)value, (long long)low, (long long)high);
}

octet_status oct_api_read_struct(const void *from, void *to, size_t bytes, size_t least,
                                 const char *function, const char *argument, octet_error *error)
{
    OCT_API_TRY(oct_api_check_pointer(from, function, argument, error));
    size_t given = 0;
    memcpy(&given, from, sizeof given);
    /* No version will grow a structure beyond this: larger is garbage, and is not read. */
    if (given < least || given > least + 4096)
        return oct_api_fail(error, OCTET_E_ARGUMENT, function,
                            "%s->struct_bytes is %zu, sizeof of the structure (%zu here) is "
                            "required",
                            argument, given, bytes);
    memset(to, 0, bytes);
    memcpy(to, from, given < bytes ? given : bytes);
    for (size_t i = bytes; i < given; i++)
        if (((const unsigned char *)from)[i] != 0)
            return oct_api_fail(
                error, OCTET_E_UNSUPPORTED, function,
                "%s has byte %zu set, zeros are required after byte %zu: later fields "
                "are not known to version %s",
                argument, i, bytes, octet_version());
    return OCTET_OK;
}

/* --- the context ------------------------------------------------------------------------------ */

/* Nearest even, and subnormals as operands and results. */
static bool is_ieee(void)
{
    const volatile float one = 1.0f, half_ulp = 0x1p-24f, least = 0x1p-126f, half = 0.5f;
    const volatile float up = one + half_ulp, down = -one - half_ulp;
    const volatile float above = one + 3.0f * half_ulp, subnormal = least * half;
    const volatile float doubled = subnormal + subnormal;
    return up == 1.0f && down == -1.0f && above == 1.0f + 0x1p-22f && subnormal != 0.0f &&
           doubled == 0x1p-126f;
}

octet_status oct_api_check_context(const octet_context *context, const char *function,
                                   octet_error *error)
{
    OCT_API_TRY(oct_api_check_pointer(context, function, "context", error));
    if ((uintptr_t)context % _Alignof(octet_context) != 0 || context->self != context)
        return oct_api_fail(error, OCTET_E_ARGUMENT, function,
                            "context is no context or a copy of one, what octet_context_init gave "
                            "is required");
    return OCTET_OK;
}

octet_status oct_api_check_compute(const octet_context *context, const char *function,
                                   octet_error *error)
{
    OCT_API_TRY(oct_api_check_context(context, function, error));
    if (!is_ieee())
        return oct_api_fail(error, OCTET_E_ENVIRONMENT, function,
                            "the floating-point environment of the thread has FTZ, DAZ or another "
                            "rounding mode set, round to nearest with subnormals is required");
    return OCTET_OK;
}

oct_exec oct_api_exec(const octet_context *context, oct_arena *scratch)
{
    return (oct_exec){
        .kernels = &context->kernels, .threads = context->threads, .scratch = scratch};
}

/* --- memory ----------------------------------------------------------------------------------- */

static bool overlap(const oct_api_region *a, const oct_api_region *b)
{
    const uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;
    return a->bytes > 0 && b->bytes > 0 && (x <= y ? y - x < a->bytes : x - y < b->bytes);
}

static octet_status check_region(const oct_api_region *region, const char *function,
                                 octet_error *error)
{
    if (region->given < region->bytes)
        return oct_api_fail(error, OCTET_E_ARGUMENT, function,
                            "%s has %zu bytes, at least %zu is required", region->name,
                            region->given, region->bytes);
    if (region->bytes == 0)
        return OCTET_OK;
    OCT_API_TRY(oct_api_check_pointer(region->data, function, region->name, error));
    const uintptr_t start = (uintptr_t)region->data;
    if (start % region->align != 0)
        return oct_api_fail(error, OCTET_E_ARGUMENT, function,
                            "%s is at an address that is no multiple of %zu, the alignment of its "
                            "elements is required",
                            region->name, region->align);
    if (region->bytes > UINTPTR_MAX - start)
        return oct_api_fail(error, OCTET_E_ARGUMENT, function,
                            "%s has %zu bytes, so many as there are before the end of memory is "
                            "required",
                            region->name, region->bytes);
    return OCTET_OK;
}

octet_status oct_api_check_regions(const oct_api_region *regions, int count, const char *function,
                                   octet_error *error)
{
    for (int i = 0; i < count; i++)
        OCT_API_TRY(check_region(&regions[i], function, error));
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++)
            if ((regions[i].written || regions[j].written) && overlap(&regions[i], &regions[j]))
                return oct_api_fail(error, OCTET_E_ARGUMENT, function,
                                    "%s overlaps %s, separate memory is required", regions[i].name,
                                    regions[j].name);
    return OCTET_OK;
}

octet_status oct_api_check_workspace(const void *workspace, size_t given, size_t bytes,
                                     const char *function, octet_error *error)
{
    if (given < bytes)
        return oct_api_fail(error, OCTET_E_WORKSPACE, function,
                            "workspace_bytes is %zu, at least %zu is required", given, bytes);
    return oct_api_check_pointer(workspace, function, "workspace", error);
}

/* --- operands --------------------------------------------------------------------------------- */

/* The part of a format's table that operands need; by octet_format. */
static const oct_low_precision_format formats[] = {
    [OCTET_FORMAT_MXFP8] = {.name = "mxfp8",
                            .data_dtype = OCT_DTYPE_E4M3,
                            .scale_dtype = OCT_DTYPE_E8M0,
                            .scale_layout = oct_mxfp8_scale_layout,
                            .matrix = oct_mxfp8_matrix},
    [OCTET_FORMAT_HIF8] = {.name = "hif8",
                           .data_dtype = OCT_DTYPE_HIF8,
                           .scale_dtype = OCT_DTYPE_F32,
                           .scale_layout = oct_hif8_scale_layout,
                           .matrix = oct_hif8_matrix},
};
enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

const char *octet_format_name(octet_format format)
{
    return (unsigned)format < FORMAT_COUNT ? formats[format].name : "unknown";
}

octet_status oct_api_check_groups(const octet_groups *groups, int64_t rows, const char *function,
                                  const char *argument, octet_error *error)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%.40scount", argument);
    OCT_API_TRY(oct_api_check_range(groups->count, 0, INT32_MAX, function, name, error));
    if (groups->count == 0)
        return OCTET_OK;
    (void)snprintf(name, sizeof name, "%.40sends", argument);
    OCT_API_TRY(oct_api_check_pointer(groups->ends, function, name, error));
    if ((uintptr_t)groups->ends % _Alignof(int64_t) != 0)
        return oct_api_fail(error, OCTET_E_ARGUMENT, function,
                            "%s is at an address that is no multiple of %zu, the alignment of its "
                            "elements is required",
                            name, _Alignof(int64_t));
    int64_t start = 0;
    for (int64_t g = 0; g < groups->count; g++) {
        if (groups->ends[g] < start)
            return oct_api_fail(error, OCTET_E_SHAPE, function,
                                "%s[%lld] is %lld, at least %lld is required", name, (long long)g,
                                (long long)groups->ends[g], (long long)start);
        start = groups->ends[g];
    }
    if (start != rows)
        return oct_api_fail(error, OCTET_E_SHAPE, function,
                            "%s[%lld] is %lld, the number of rows, %lld, is required", name,
                            (long long)(groups->count - 1), (long long)start, (long long)rows);
    return OCTET_OK;
}

/* Everything that kernels compute from a shape stays within an int64_t. */
static bool fits(const oct_api_operand *operand)
{
    const octet_operand *about = &operand->about;
    int64_t elements = 0;
    return operand->all_rows < INT64_MAX / 2 && about->cols < INT64_MAX / 2 &&
           !__builtin_mul_overflow(operand->all_rows + 64, about->cols + 64, &elements) &&
           !__builtin_mul_overflow(elements, 64, &elements);
}

oct_operand oct_api_view(oct_api_operand *operand)
{
    const octet_operand *about = &operand->about;
    oct_operand view = {.format = operand->format,
                        .orientation = (oct_orientation)about->orientation,
                        .data = {.data = about->codes ? about->codes : operand,
                                 .dtype = operand->format->data_dtype,
                                 .ndim = operand->stacked ? 3 : 2},
                        .groups = {.count = about->groups.count, .ends = about->groups.ends}};
    int64_t *shape = view.data.shape;
    if (operand->stacked)
        *shape++ = about->matrices;
    shape[0] = about->rows;
    shape[1] = about->cols;
    view.scales = operand->format->scale_layout(&view);
    view.scales.data = about->scales ? about->scales : operand;
    return view;
}

octet_status oct_api_read_operand(const octet_operand *operand, const char *function,
                                  const char *argument, oct_api_operand *out, octet_error *error)
{
    char name[64];
    *out = (oct_api_operand){0};
    octet_operand *about = &out->about;
    OCT_API_TRY(oct_api_read_struct(operand, about, sizeof *about, sizeof *about, function,
                                    argument, error));
    const struct {
        const char *field;
        int64_t value, high;
    } ranges[] = {{"format", (int32_t)about->format, FORMAT_COUNT - 1},
                  {"orientation", (int32_t)about->orientation, OCTET_ORIENTATION_COL},
                  {"matrices", about->matrices, INT32_MAX},
                  {"rows", about->rows, INT64_MAX},
                  {"cols", about->cols, INT64_MAX}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        (void)snprintf(name, sizeof name, "%.40s->%s", argument, ranges[i].field);
        OCT_API_TRY(oct_api_check_range(ranges[i].value, 0, ranges[i].high, function, name, error));
    }
    out->format = &formats[about->format];
    out->stacked = about->matrices > 0;
    const int64_t matrices = out->stacked ? about->matrices : 1;
    if (__builtin_mul_overflow(matrices, about->rows, &out->all_rows) || !fits(out))
        return oct_api_fail(error, OCTET_E_ARGUMENT, function,
                            "%s has shape [%lld, %lld, %lld], (rows + 64) * (cols + 64) * 64 below "
                            "2^63 is required",
                            argument, (long long)matrices, (long long)about->rows,
                            (long long)about->cols);
    (void)snprintf(name, sizeof name, "%.40s->groups.", argument);
    OCT_API_TRY(oct_api_check_groups(&about->groups, about->rows, function, name, error));
    if (out->stacked && about->groups.count > 0)
        return oct_api_fail(error, OCTET_E_SHAPE, function,
                            "%scount is %lld, 0 is required for a stack of matrices", name,
                            (long long)about->groups.count);
    const oct_operand view = oct_api_view(out);
    out->codes_bytes = oct_tensor_bytes(&view.data);
    out->scales_bytes = oct_tensor_bytes(&view.scales);
    return OCTET_OK;
}

void oct_api_operand_regions(const oct_api_operand *operand, const char *codes_name,
                             const char *scales_name, bool written, oct_api_region out[2])
{
    const octet_operand *about = &operand->about;
    out[0] = (oct_api_region){codes_name, about->codes, operand->codes_bytes, about->codes_bytes,
                              1,          written};
    out[1] = (oct_api_region){scales_name,
                              about->scales,
                              operand->scales_bytes,
                              about->scales_bytes,
                              oct_dtype_bytes(operand->format->scale_dtype),
                              written};
}

int64_t oct_api_segment_count(const oct_api_operand *operand)
{
    const octet_operand *about = &operand->about;
    if (operand->stacked)
        return about->matrices;
    return oct_max_i64(1, about->groups.count);
}

int64_t oct_api_segment_end(const oct_api_operand *operand, int64_t index)
{
    const octet_operand *about = &operand->about;
    if (index < 0)
        return 0;
    if (operand->stacked)
        return (index + 1) * about->rows;
    return about->groups.count > 0 ? about->groups.ends[index] : about->rows;
}
