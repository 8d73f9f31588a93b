#include "low_precision/matmul.h"

#include <string.h>

#include "base/fault.h"

/* --- checks ---------------------------------------------------------------------------------- */

/* Blocks run along K, so the layout says which orientation either side must have. */
static oct_orientation left_orientation(oct_layout layout)
{
    return layout == OCT_LAYOUT_TN ? OCT_ORIENTATION_COL : OCT_ORIENTATION_ROW;
}

static oct_orientation right_orientation(oct_layout layout)
{
    return layout == OCT_LAYOUT_NT ? OCT_ORIENTATION_ROW : OCT_ORIENTATION_COL;
}

static oct_status check_operand(const oct_operand *operand, const char *side, oct_layout layout,
                                oct_orientation orientation, int ndim, oct_err *err)
{
    if (!operand->format || !operand->data.data || !operand->scales.data)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "the %s operand has no data or no scales, both are "
                        "required",
                        side);
    const oct_low_precision_format *format = operand->format;
    if (operand->data.ndim != ndim || (ndim == 2 && operand->transposed))
        return OCT_FAIL(err, OCT_E_SHAPE, "the %s operand has %d dimensions, %d are required", side,
                        operand->data.ndim, ndim);
    if (operand->orientation != orientation)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "the %s operand has %s orientation, %s is required for layout %s", side,
                        oct_orientation_name(operand->orientation),
                        oct_orientation_name(orientation), oct_layout_name(layout));
    if (operand->data.dtype != format->data_dtype)
        return OCT_FAIL(err, OCT_E_SHAPE, "the %s operand has data of %s, %s is required for %s",
                        side, oct_dtype_name(operand->data.dtype),
                        oct_dtype_name(format->data_dtype), format->name);
    if (operand->scales.dtype != format->scale_dtype)
        return OCT_FAIL(err, OCT_E_SHAPE, "the %s operand has scales of %s, %s is required for %s",
                        side, oct_dtype_name(operand->scales.dtype),
                        oct_dtype_name(format->scale_dtype), format->name);
    const oct_tensor wanted = format->scale_layout(operand);
    bool same = wanted.ndim == operand->scales.ndim;
    for (int d = 0; d < wanted.ndim && same; d++)
        same = wanted.shape[d] == operand->scales.shape[d];
    if (!same)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "the %s operand has %lld scales in %d dimensions, %lld in %d are required",
                        side, (long long)oct_tensor_numel(&operand->scales), operand->scales.ndim,
                        (long long)oct_tensor_numel(&wanted), wanted.ndim);
    return OCT_OK;
}

static oct_status check_groups(const oct_operand *operand, const char *side,
                               const oct_groups *groups, oct_err *err)
{
    const oct_groups *own = &operand->groups;
    const int64_t count = groups ? groups->count : 0;
    if (own->count != count)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "the %s operand was quantized in %lld groups, %lld are required", side,
                        (long long)own->count, (long long)count);
    int64_t start = 0;
    for (int64_t g = 0; g < count; g++) {
        if (own->ends[g] != groups->ends[g])
            return OCT_FAIL(err, OCT_E_SHAPE,
                            "group %lld of the %s operand ends at row %lld, row %lld is required",
                            (long long)g, side, (long long)own->ends[g],
                            (long long)groups->ends[g]);
        if (groups->ends[g] < start)
            return OCT_FAIL(err, OCT_E_SHAPE,
                            "group %lld ends at row %lld, at least %lld is "
                            "required",
                            (long long)g, (long long)groups->ends[g], (long long)start);
        start = groups->ends[g];
    }
    if (count && start != operand->data.shape[0])
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "the last group ends at row %lld, row %lld is required (%s operand)",
                        (long long)start, (long long)operand->data.shape[0], side);
    return OCT_OK;
}

/* m, n, k of one product (n and k if grouped by rows). */
typedef struct product_shape {
    int64_t m, n, k;
} product_shape;

static oct_status check_shapes(const oct_operand *left, const oct_operand *right, oct_layout layout,
                               const oct_groups *groups, product_shape *shape, oct_err *err)
{
    int64_t l[3], r[3];
    oct_operand_view(left, l);
    const int ndim = oct_operand_view(right, r);
    const int64_t *matrix = r + ndim - 2;
    const int64_t k_left = layout == OCT_LAYOUT_TN ? l[0] : l[1];
    const int64_t k_right = layout == OCT_LAYOUT_NT ? matrix[1] : matrix[0];
    if (k_left != k_right)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "left [%lld, %lld] and right [%lld, %lld] in layout %s contract %lld with "
                        "%lld, equal dims are required",
                        (long long)l[0], (long long)l[1], (long long)matrix[0],
                        (long long)matrix[1], oct_layout_name(layout), (long long)k_left,
                        (long long)k_right);
    if (ndim == 3 && r[0] != groups->count)
        return OCT_FAIL(err, OCT_E_SHAPE, "right holds %lld matrices, %lld are required",
                        (long long)r[0], (long long)groups->count);
    *shape = (product_shape){.m = layout == OCT_LAYOUT_TN ? l[1] : l[0],
                             .n = layout == OCT_LAYOUT_NT ? matrix[0] : matrix[1],
                             .k = k_left};
    return OCT_OK;
}

static oct_status check_out(const oct_gemm_out *out, const product_shape *shape, oct_err *err)
{
    if (out->dtype != OCT_DTYPE_F32 && out->dtype != OCT_DTYPE_BF16)
        return OCT_FAIL(err, OCT_E_SHAPE, "the output is %s, float32 or bfloat16 is required",
                        oct_dtype_name(out->dtype));
    if (out->store == OCT_GEMM_CONTINUE ||
        (out->store == OCT_GEMM_FOLD && out->dtype != OCT_DTYPE_F32))
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "the output is continued or folded into %s, a store or a fold into float32 "
                        "is required",
                        oct_dtype_name(out->dtype));
    if (!out->data || out->ld < shape->n)
        return OCT_FAIL(err, OCT_E_SHAPE, "the output has no data or rows of %lld, %lld required",
                        (long long)out->ld, (long long)shape->n);
    return OCT_OK;
}

static oct_status check(const oct_operand *left, const oct_operand *right, oct_layout layout,
                        const oct_groups *groups, const oct_gemm_out *out, oct_err *err)
{
    const bool stacked = groups && layout != OCT_LAYOUT_TN;
    product_shape shape = {0};
    OCT_TRY(check_operand(left, "left", layout, left_orientation(layout), 2, err));
    OCT_TRY(check_operand(right, "right", layout, right_orientation(layout), stacked ? 3 : 2, err));
    if (left->format != right->format)
        return OCT_FAIL(err, OCT_E_SHAPE, "left is %s and right is %s, one format is required",
                        left->format->name, right->format->name);
    OCT_TRY(check_groups(left, "left", groups, err));
    if (!stacked)
        OCT_TRY(check_groups(right, "right", groups, err));
    OCT_TRY(check_shapes(left, right, layout, groups, &shape, err));
    return check_out(out, &shape, err);
}

/* --- the entry points ------------------------------------------------------------------------ */

static void trace_product(const oct_run *run, const oct_matmul_label *label,
                          const oct_operand *left, const oct_operand *right, oct_layout layout,
                          const oct_groups *groups, const oct_gemm_out *out, const char *kernel,
                          size_t scratch_bytes)
{
    oct_trace_event event = {
        .kind = OCT_TRACE_MATMUL,
        .fqn = label->fqn,
        .phase = label->phase,
        .format = left->format->name,
        .orientation = oct_orientation_name(right->orientation),
        .dtype = oct_dtype_name(out->dtype),
        .scale_dtype = oct_dtype_name(left->scales.dtype),
        .layout = oct_layout_name(layout),
        .kernel = kernel,
        .store = oct_gemm_store_name(out->store),
        .scratch_bytes = (int64_t)scratch_bytes,
        .grouped = groups != NULL,
    };
    const bool tn = layout == OCT_LAYOUT_TN, stacked_out = tn && groups;
    event.ndim[0] = oct_operand_view(left, event.shape[0]);
    event.ndim[1] = oct_operand_view(right, event.shape[1]);
    event.ndim[2] = stacked_out ? 3 : 2;
    int64_t *c = event.shape[2];
    if (stacked_out)
        *c++ = groups->count;
    c[0] = event.shape[0][tn ? 1 : 0];
    c[1] = event.shape[1][event.ndim[1] - (layout == OCT_LAYOUT_NT ? 2 : 1)];
    oct_trace_emit(run->trace, &event);
}

static oct_part part_of(const oct_matmul_label *label)
{
    return strcmp(label->phase, "fprop") == 0   ? OCT_PART_FPROP
           : strcmp(label->phase, "dgrad") == 0 ? OCT_PART_DGRAD
                                                : OCT_PART_WGRAD;
}

static bool fault_is_planted(const oct_matmul_label *label, bool grouped)
{
    switch (part_of(label)) {
    case OCT_PART_FPROP:
        return oct_fault(grouped ? "matmul.grouped.fprop" : "matmul.dense.fprop");
    case OCT_PART_DGRAD:
        return oct_fault(grouped ? "matmul.grouped.dgrad" : "matmul.dense.dgrad");
    default:
        return oct_fault(grouped ? "matmul.grouped.wgrad" : "matmul.dense.wgrad");
    }
}

static oct_status multiply(const oct_run *run, const oct_matmul_label *label,
                           const oct_operand *left, const oct_operand *right, oct_layout layout,
                           const oct_groups *groups, const oct_gemm_out *out, oct_err *err)
{
    const oct_span span = oct_profile_begin(run->profile, part_of(label));
    oct_matmul_routes routes = {0};
    const oct_arena_watch watch = oct_arena_watch_begin(run->exec->scratch);
    oct_status status = check(left, right, layout, groups, out, err);
    if (status == OCT_OK && fault_is_planted(label, groups != NULL))
        status = OCT_FAIL(err, OCT_E_KERNEL, "the kernel failed: a fault is planted");
    if (status == OCT_OK)
        status = left->format->matmul(run->exec, left, right, layout, groups, out, &routes, err);
    const size_t scratch = oct_arena_watch_end(run->exec->scratch, watch);
    if (status != OCT_OK)
        return OCT_WRAP(err, status, "%s product of '%s' in %s", label->phase, label->fqn,
                        left->format ? left->format->name : "no format");
    oct_profile_end(run->profile, span);
    oct_profile_move(run->profile, span, OCT_PART_PACK, routes.pack_seconds);
    if (run->trace) {
        if (routes.block_integer > 0 || routes.fma == 0)
            trace_product(run, label, left, right, layout, groups, out, "block_integer", scratch);
        if (routes.fma > 0)
            trace_product(run, label, left, right, layout, groups, out, "fma", scratch);
    }
    return OCT_OK;
}

oct_status oct_low_precision_matmul(const oct_run *run, const oct_matmul_label *label,
                                    const oct_operand *left, const oct_operand *right,
                                    oct_layout layout, const oct_gemm_out *out, oct_err *err)
{
    return multiply(run, label, left, right, layout, NULL, out, err);
}

oct_status oct_low_precision_grouped_matmul(const oct_run *run, const oct_matmul_label *label,
                                            const oct_operand *left, const oct_operand *right,
                                            oct_layout layout, const oct_groups *groups,
                                            const oct_gemm_out *out, oct_err *err)
{
    if (!groups || groups->count <= 0)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "%s product of '%s': no groups are given, at least 1 is required",
                        label->phase, label->fqn);
    return multiply(run, label, left, right, layout, groups, out, err);
}
