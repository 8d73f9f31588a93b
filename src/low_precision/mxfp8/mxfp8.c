#include "low_precision/mxfp8/mxfp8.h"

#include "low_precision/operand_matmul.h"
#include "low_precision/weight.h"

static oct_status gate(const oct_kernels *kernels, oct_err *err)
{
    const oct_gate_kernel needed[] = {
        {"mx_rows", "dynamic MX quantization to E4M3 and E8M0", "gate.mx_rows",
         kernels->quantize.mx_rows != NULL},
        {"mx_cols", "MX quantization along the other axis", "gate.mx_cols",
         kernels->quantize.mx_cols != NULL},
        {"bounds_mxfp8", "products of MXFP8 operands", "gate.bounds_mxfp8",
         kernels->gemm.bounds_mxfp8 != NULL},
        {"integer_tile", "products of 8-bit operands", "gate.integer_tile",
         kernels->gemm.integer_tile != NULL},
    };
    return oct_gate_require(kernels, needed, sizeof needed / sizeof needed[0], err);
}

static oct_mx_rule rule_of(const oct_quantizer *quantizer)
{
    return *(const oct_mx_rule *)quantizer->settings;
}

/* Makes an operand over new codes and scales. */
static oct_status new_operand(const oct_quantizer *quantizer, const oct_quantize_want *want,
                              oct_orientation orientation, const oct_lazy *x,
                              const oct_groups *groups, uint8_t **codes, uint8_t **scales,
                              oct_err *err)
{
    oct_operand made = {
        .format = quantizer->format, .orientation = orientation, .logical_dtype = x->dtype};
    if (groups)
        made.groups = *groups;
    OCT_TRY(oct_tensor_new_2d(want->arena, OCT_DTYPE_E4M3, x->rows, x->cols, &made.data, err));
    made.scales = oct_mxfp8_scale_layout(&made);
    OCT_TRY(oct_arena_alloc(want->arena, oct_tensor_bytes(&made.scales), &made.scales.data, err));
    *codes = made.data.data;
    *scales = made.scales.data;
    *want->operand = made;
    return OCT_OK;
}

static oct_status quantize(const oct_exec *exec, const oct_quantizer *quantizer, const oct_lazy *x,
                           const oct_groups *groups, const oct_quantize_want *row,
                           const oct_quantize_want *col, oct_err *err)
{
    oct_mx_out out = {0};
    if (row->operand)
        OCT_TRY(new_operand(quantizer, row, OCT_ORIENTATION_ROW, x, groups, &out.row_codes,
                            &out.row_scales, err));
    if (col->operand)
        OCT_TRY(new_operand(quantizer, col, OCT_ORIENTATION_COL, x, groups, &out.col_codes,
                            &out.col_scales, err));
    return oct_mx_quantize_lazy(exec, x, groups, rule_of(quantizer), &out, err);
}

/* --- weights ---------------------------------------------------------------------------------
 * tensors[0..1] run along the last stored axis, tensors[2..3] along the one before it. For a dense
 * weight that is row and col; stacked experts are stored transposed, there it is col and row. */

enum { ALONG_LAST = 0, ALONG_ROWS = 2 };

static int weight_tensors(int ndim, const int64_t *shape, oct_physical_tensor *tensors)
{
    static const char *const names[2][2] = {{"row_data", "row_scale"}, {"col_data", "col_scale"}};
    oct_operand as_stored = {.transposed = ndim == 3, .data = {.dtype = OCT_DTYPE_E4M3}};
    as_stored.data.ndim = ndim;
    for (int d = 0; d < ndim; d++)
        as_stored.data.shape[d] = shape[d];
    for (int o = OCT_ORIENTATION_ROW; o <= OCT_ORIENTATION_COL; o++) {
        as_stored.orientation = (oct_orientation)o;
        const int axis = oct_operand_k_contiguous(&as_stored) ? ALONG_LAST : ALONG_ROWS;
        tensors[axis] = (oct_physical_tensor){.name = names[o][0], .tensor = as_stored.data};
        tensors[axis + 1] = (oct_physical_tensor){.name = names[o][1],
                                                  .tensor = oct_mxfp8_scale_layout(&as_stored)};
    }
    return OCT_WEIGHT_MAX_TENSORS;
}

static int64_t weight_scales(int ndim, const int64_t *shape)
{
    (void)ndim;
    (void)shape;
    return 0;
}

static oct_status refresh_axis(const oct_exec *exec, const oct_quantizer *quantizer,
                               oct_weight_storage *weight, const oct_tensor *master,
                               const oct_groups *experts, bool last, bool rows, oct_err *err)
{
    oct_mx_out out = {0};
    if (last) {
        out.row_codes = weight->tensors[ALONG_LAST].tensor.data;
        out.row_scales = weight->tensors[ALONG_LAST + 1].tensor.data;
    }
    if (rows) {
        out.col_codes = weight->tensors[ALONG_ROWS].tensor.data;
        out.col_scales = weight->tensors[ALONG_ROWS + 1].tensor.data;
    }
    return oct_mx_quantize(exec, master, experts, rule_of(quantizer), &out, err);
}

static oct_status refresh(const oct_exec *exec, oct_weight_storage *weight,
                          const oct_tensor *master, oct_err *err)
{
    /* fprop contracts along the last stored axis in both storages. */
    const oct_quantizer *fwd = oct_recipe_quantizer(weight->recipe, OCT_ROLE_WEIGHT_FWD);
    const oct_quantizer *bwd = oct_recipe_quantizer(weight->recipe, OCT_ROLE_WEIGHT_BWD);
    const oct_tensor rows = oct_tensor_2d(master->data, master->dtype, oct_tensor_rows(master),
                                          oct_tensor_cols(master));
    oct_groups experts = {0};
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    if (weight->ndim == 3)
        OCT_TRY(oct_weight_expert_groups(weight, exec->scratch, &experts, err));
    if (fwd == bwd) {
        OCT_TRY(refresh_axis(exec, fwd, weight, &rows, &experts, true, true, err));
    } else {
        OCT_TRY(refresh_axis(exec, fwd, weight, &rows, &experts, true, false, err));
        OCT_TRY(refresh_axis(exec, bwd, weight, &rows, &experts, false, true, err));
    }
    oct_arena_rewind(exec->scratch, mark);
    return OCT_OK;
}

static void select(const oct_weight_storage *weight, oct_orientation orientation, oct_operand *out)
{
    out->orientation = orientation;
    const int axis = oct_operand_k_contiguous(out) ? ALONG_LAST : ALONG_ROWS;
    out->data = weight->tensors[axis].tensor;
    out->scales = weight->tensors[axis + 1].tensor;
}

/* fprop contracts along the last stored axis in both storages. */
static int gather(bool fprop, bool dgrad, int *which)
{
    int count = 0;
    for (int i = 0; i < OCT_WEIGHT_MAX_TENSORS; i++)
        if (i < ALONG_ROWS ? fprop : dgrad)
            which[count++] = i;
    return count;
}

/* --- tables ---------------------------------------------------------------------------------- */

static bool shard_rows_legal(int ndim, const int64_t *shape, int64_t rows)
{
    return (ndim == 3 ? rows * shape[1] : rows) % 64 == 0;
}

static const oct_mx_rule rules[2] = {OCT_MX_RULE_FLOOR, OCT_MX_RULE_ROUND_UP};

static const oct_quantizer quantizers[2] = {
    {.format = &oct_mxfp8_format, .settings = &rules[0]},
    {.format = &oct_mxfp8_format, .settings = &rules[1]},
};

static const oct_low_precision_recipe recipes[2] = {
    {.name = "mxfp8_floor",
     .quantizers = {&quantizers[0], &quantizers[0], &quantizers[0], &quantizers[0],
                    &quantizers[0]}},
    {.name = "mxfp8",
     .quantizers = {&quantizers[1], &quantizers[1], &quantizers[1], &quantizers[1],
                    &quantizers[1]}},
};

const oct_low_precision_recipe *oct_mxfp8_recipe(oct_mx_rule rule)
{
    return &recipes[rule == OCT_MX_RULE_ROUND_UP];
}

const oct_low_precision_format oct_mxfp8_format = {
    .name = "mxfp8_e4m3",
    .scaling = "mx_block",
    .data_dtype = OCT_DTYPE_E4M3,
    .scale_dtype = OCT_DTYPE_E8M0,
    .recipe = &recipes[1],
    .gate = gate,
    .quantize = quantize,
    .weight_tensors = weight_tensors,
    .weight_scales = weight_scales,
    .refresh = refresh,
    .gather = gather,
    .select = select,
    .scale_layout = oct_mxfp8_scale_layout,
    .matrix = oct_mxfp8_matrix,
    .matmul = oct_operand_matmul,
    .shard_rows_legal = shard_rows_legal,
    .shard_rule = "a multiple of 64 rows (of whole experts, all their rows)",
};
