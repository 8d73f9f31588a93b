/* FP32 or BF16 to operands. */
#include <string.h>

#include "api/api_check.h"
#include "base/size.h"
#include "low_precision/hif8/hif8.h"

/* Internal values by public enumerators. */
static const oct_dtype dtypes[] = {
    [OCTET_DTYPE_F32] = OCT_DTYPE_F32, [OCTET_DTYPE_BF16] = OCT_DTYPE_BF16};
static const float format_max[] = {[OCTET_ROLE_INPUT] = OCT_HIF8_FORMAT_MAX_INPUT_WEIGHT,
                                   [OCTET_ROLE_WEIGHT] = OCT_HIF8_FORMAT_MAX_INPUT_WEIGHT,
                                   [OCTET_ROLE_GRADIENT] = OCT_HIF8_FORMAT_MAX_GRADIENT};

_Static_assert((int)OCTET_MX_RULE_FLOOR == (int)OCT_MX_RULE_FLOOR &&
                   (int)OCTET_MX_RULE_ROUND_UP == (int)OCT_MX_RULE_ROUND_UP,
               "rules are passed on");

/* --- workspace -------------------------------------------------------------------------------- */

/* The larger of what the formats take, so that amax may be asked of any operand. */
static size_t workspace_bytes_of(const oct_api_operand *o)
{
    if (o->codes_bytes == 0)
        return OCT_ARENA_FIXED_BYTES; /* there may be very many empty rows */
    const int64_t count = oct_api_segment_count(o);
    const int64_t ends = o->stacked ? count * (int64_t)sizeof(int64_t) + OCT_ARENA_ALIGN : 0;
    const int64_t mx = oct_mx_quantize_bytes(count, o->all_rows);
    const int64_t hif8 = oct_hif8_quantize_bytes(count, o->all_rows, o->about.cols);
    return (size_t)(oct_max_i64(mx, hif8) + ends) + OCT_ARENA_FIXED_BYTES;
}

octet_status octet_quantize_workspace_bytes(const octet_operand *operand, size_t *bytes,
                                            octet_error *error)
{
    static const char function[] = "octet_quantize_workspace_bytes";
    oct_api_operand o;
    OCT_API_TRY(oct_api_check_pointer(bytes, function, "bytes", error));
    OCT_API_TRY(oct_api_read_operand(operand, function, "operand", &o, error));
    *bytes = workspace_bytes_of(&o);
    return OCTET_OK;
}

/* Groups of all rows; the matrices of a stack are groups. */
static oct_status list_segments(const oct_api_operand *o, oct_arena *scratch, oct_groups *groups,
                                oct_err *err)
{
    *groups = (oct_groups){.count = o->about.groups.count, .ends = o->about.groups.ends};
    if (!o->stacked)
        return OCT_OK;
    void *memory = NULL;
    OCT_TRY(oct_arena_array(scratch, o->about.matrices, sizeof(int64_t), &memory, err));
    int64_t *ends = memory;
    for (int64_t s = 0; s < o->about.matrices; s++)
        ends[s] = oct_api_segment_end(o, s);
    *groups = (oct_groups){.count = o->about.matrices, .ends = ends};
    return OCT_OK;
}

/* --- quantize --------------------------------------------------------------------------------- */

typedef struct job {
    octet_quantize_settings settings;
    oct_tensor x;
    oct_api_operand *first, *row, *col; /* first: the one that is there; the others may be NULL */
} job;

static oct_status quantize_mxfp8(const job *j, const oct_exec *exec, const oct_groups *groups,
                                 oct_err *err)
{
    oct_mx_out out = {0};
    if (j->row) {
        out.row_codes = j->row->about.codes;
        out.row_scales = j->row->about.scales;
    }
    if (j->col) {
        out.col_codes = j->col->about.codes;
        out.col_scales = j->col->about.scales;
    }
    if (j->first->codes_bytes == 0)
        return OCT_OK;
    return oct_mx_quantize(exec, &j->x, groups, (oct_mx_rule)j->settings.mx_rule, &out, err);
}

static oct_status quantize_hif8(const job *j, const oct_exec *exec, const oct_groups *groups,
                                oct_err *err)
{
    float *scales = j->first->about.scales;
    const int64_t count = oct_api_segment_count(j->first);
    const float *amax = j->settings.amax;
    if (!amax && j->first->codes_bytes > 0)
        OCT_TRY(oct_hif8_amax(exec, &j->x, groups, scales, err));
    for (int64_t s = 0; s < count; s++) {
        const float largest = amax ? amax[s] : j->first->codes_bytes > 0 ? scales[s] : 0.0f;
        scales[s] = oct_hif8_scale(largest, format_max[j->settings.role]);
    }
    if (j->first->codes_bytes > 0)
        OCT_TRY(oct_hif8_quantize(exec, &j->x, groups, scales, j->settings.saturate != 0,
                                  j->first->about.codes, err));
    if (j->row && j->col) { /* both directions read the same bytes */
        memcpy(j->col->about.scales, scales, j->first->scales_bytes);
        if (j->first->codes_bytes > 0)
            memcpy(j->col->about.codes, j->first->about.codes, j->first->codes_bytes);
    }
    return OCT_OK;
}

static octet_status read_settings(const octet_quantize_settings *settings,
                                  octet_quantize_settings *out, const char *function,
                                  octet_error *error)
{
    *out = (octet_quantize_settings)OCTET_QUANTIZE_SETTINGS_INIT;
    if (settings)
        OCT_API_TRY(oct_api_read_struct(settings, out, sizeof *out, sizeof *out, function,
                                        "settings", error));
    OCT_API_TRY(oct_api_check_range((int32_t)out->mx_rule, OCTET_MX_RULE_FLOOR,
                                    OCTET_MX_RULE_ROUND_UP, function, "settings->mx_rule", error));
    OCT_API_TRY(oct_api_check_range((int32_t)out->role, OCTET_ROLE_INPUT, OCTET_ROLE_GRADIENT,
                                    function, "settings->role", error));
    return oct_api_check_range(out->saturate, 0, 1, function, "settings->saturate", error);
}

static octet_status read_target(const octet_operand *operand, octet_orientation orientation,
                                const char *argument, const char *function, oct_api_operand *out,
                                octet_error *error)
{
    OCT_API_TRY(oct_api_read_operand(operand, function, argument, out, error));
    if (out->about.orientation != orientation)
        return oct_api_fail(error, OCTET_E_SHAPE, function, "%s->orientation is %d, %d is required",
                            argument, (int)out->about.orientation, (int)orientation);
    return OCTET_OK;
}

static octet_status check_alike(const oct_api_operand *row, const oct_api_operand *col,
                                const char *function, octet_error *error)
{
    const octet_operand *r = &row->about, *c = &col->about;
    const struct {
        const char *field;
        int64_t row, col;
    } fields[] = {{"format", (int32_t)r->format, (int32_t)c->format},
                  {"matrices", r->matrices, c->matrices},
                  {"rows", r->rows, c->rows},
                  {"cols", r->cols, c->cols},
                  {"groups.count", r->groups.count, c->groups.count}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].row != fields[i].col)
            return oct_api_fail(error, OCTET_E_SHAPE, function,
                                "col->%s is %lld, that of row, %lld, is required", fields[i].field,
                                (long long)fields[i].col, (long long)fields[i].row);
    for (int64_t g = 0; g < r->groups.count; g++)
        if (r->groups.ends[g] != c->groups.ends[g])
            return oct_api_fail(error, OCTET_E_SHAPE, function,
                                "col->groups.ends[%lld] is %lld, that of row, %lld, is required",
                                (long long)g, (long long)c->groups.ends[g],
                                (long long)r->groups.ends[g]);
    return OCTET_OK;
}

static octet_status check_dtype(octet_dtype dtype, const char *function, octet_error *error)
{
    return oct_api_check_range((int32_t)dtype, OCTET_DTYPE_F32, OCTET_DTYPE_BF16, function, "dtype",
                               error);
}

static oct_api_region source_region(octet_dtype dtype, const void *x, size_t x_bytes,
                                    const oct_api_operand *o)
{
    const size_t size = oct_dtype_bytes(dtypes[dtype]);
    return (oct_api_region){"x", x, o->codes_bytes * size, x_bytes, size, false};
}

static oct_api_region groups_region(const oct_api_operand *o, const char *name)
{
    const octet_groups *groups = &o->about.groups;
    const size_t bytes = (size_t)groups->count * sizeof *groups->ends;
    return (oct_api_region){name, groups->ends, bytes, bytes, 1, false};
}

static oct_api_region workspace_region(void *workspace, size_t bytes)
{
    return (oct_api_region){"workspace", workspace, bytes, bytes, 1, true};
}

static oct_tensor source_of(octet_dtype dtype, const void *x, const oct_api_operand *o)
{
    /* A tensor's data may be written, a source is not. */
    union {
        const void *in;
        void *out;
    } data = {.in = x};
    return oct_tensor_2d(data.out, dtypes[dtype], o->all_rows, o->about.cols);
}

octet_status octet_quantize(const octet_context *context, octet_dtype dtype, const void *x,
                            size_t x_bytes, const octet_quantize_settings *settings,
                            const octet_operand *row, const octet_operand *col, void *workspace,
                            size_t workspace_bytes, octet_error *error)
{
    static const char function[] = "octet_quantize";
    static oct_status (*const run[])(const job *, const oct_exec *, const oct_groups *,
                                     oct_err *) = {
        [OCTET_FORMAT_MXFP8] = quantize_mxfp8, [OCTET_FORMAT_HIF8] = quantize_hif8};
    oct_api_operand row_copy, col_copy;
    job j = {0};
    OCT_API_TRY(oct_api_check_compute(context, function, error));
    OCT_API_TRY(check_dtype(dtype, function, error));
    OCT_API_TRY(read_settings(settings, &j.settings, function, error));
    if (!row && !col)
        return oct_api_fail(error, OCTET_E_ARGUMENT, function,
                            "row and col are NULL, one of them at least is required");
    if (row) {
        OCT_API_TRY(read_target(row, OCTET_ORIENTATION_ROW, "row", function, &row_copy, error));
        j.first = j.row = &row_copy;
    }
    if (col) {
        OCT_API_TRY(read_target(col, OCTET_ORIENTATION_COL, "col", function, &col_copy, error));
        j.col = &col_copy;
        j.first = j.row ? j.row : j.col;
    }
    if (row && col)
        OCT_API_TRY(check_alike(j.row, j.col, function, error));
    const size_t needed = workspace_bytes_of(j.first);
    OCT_API_TRY(oct_api_check_workspace(workspace, workspace_bytes, needed, function, error));

    oct_api_region regions[9] = {source_region(dtype, x, x_bytes, j.first),
                                 workspace_region(workspace, needed)};
    int count = 2;
    if (j.row) {
        oct_api_operand_regions(j.row, "row->codes", "row->scales", true, regions + count);
        regions[count + 2] = groups_region(j.row, "row->groups.ends");
        count += 3;
    }
    if (j.col) {
        oct_api_operand_regions(j.col, "col->codes", "col->scales", true, regions + count);
        regions[count + 2] = groups_region(j.col, "col->groups.ends");
        count += 3;
    }
    if (j.settings.amax && j.first->about.format == OCTET_FORMAT_HIF8)
        regions[count++] =
            (oct_api_region){"settings->amax",      j.settings.amax, j.first->scales_bytes,
                             j.first->scales_bytes, _Alignof(float), false};
    OCT_API_TRY(oct_api_check_regions(regions, count, function, error));

    oct_arena scratch;
    oct_err err = {0};
    oct_groups groups = {0};
    oct_arena_init_fixed(&scratch, "workspace", workspace, needed);
    const oct_exec exec = oct_api_exec(context, &scratch);
    j.x = source_of(dtype, x, j.first);
    oct_status status = OCT_OK;
    if (j.first->codes_bytes > 0)
        status = list_segments(j.first, &scratch, &groups, &err);
    if (status == OCT_OK)
        status = run[j.first->about.format](&j, &exec, &groups, &err);
    return status == OCT_OK ? OCTET_OK : oct_api_wrap(error, function, status, &err);
}

octet_status octet_amax(const octet_context *context, octet_dtype dtype, const void *x,
                        size_t x_bytes, const octet_operand *shape, float *amax, size_t amax_bytes,
                        void *workspace, size_t workspace_bytes, octet_error *error)
{
    static const char function[] = "octet_amax";
    oct_api_operand o;
    OCT_API_TRY(oct_api_check_compute(context, function, error));
    OCT_API_TRY(check_dtype(dtype, function, error));
    OCT_API_TRY(oct_api_read_operand(shape, function, "shape", &o, error));
    const size_t needed = workspace_bytes_of(&o);
    OCT_API_TRY(oct_api_check_workspace(workspace, workspace_bytes, needed, function, error));
    const int64_t count = oct_api_segment_count(&o);
    const oct_api_region regions[] = {
        source_region(dtype, x, x_bytes, &o),
        workspace_region(workspace, needed),
        {"amax", amax, (size_t)count * sizeof *amax, amax_bytes, _Alignof(float), true},
        groups_region(&o, "shape->groups.ends")};
    OCT_API_TRY(oct_api_check_regions(regions, 4, function, error));
    for (int64_t s = 0; s < count; s++)
        amax[s] = 0.0f;
    if (o.codes_bytes == 0)
        return OCTET_OK;

    oct_arena scratch;
    oct_err err = {0};
    oct_groups groups = {0};
    oct_arena_init_fixed(&scratch, "workspace", workspace, needed);
    const oct_exec exec = oct_api_exec(context, &scratch);
    const oct_tensor tensor = source_of(dtype, x, &o);
    oct_status status = list_segments(&o, &scratch, &groups, &err);
    if (status == OCT_OK)
        status = oct_hif8_amax(&exec, &tensor, &groups, amax, &err);
    return status == OCT_OK ? OCTET_OK : oct_api_wrap(error, function, status, &err);
}
