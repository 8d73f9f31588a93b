#include "low_precision/hif8/hif8.h"

#include "low_precision/operand_matmul.h"
#include "low_precision/weight.h"
#include "numeric/hif8.h"

static oct_status gate(const oct_kernels *kernels, oct_err *err)
{
    const oct_gate_kernel needed[] = {
        {"amax", "the current amax", "gate.amax", kernels->quantize.amax != NULL},
        {"hif8_encode", "HiF8 quantization with a given scale", "gate.hif8_encode",
         kernels->quantize.hif8_encode != NULL},
        {"bounds_hif8", "products of HiF8 operands with FP32 scales", "gate.bounds_hif8",
         kernels->gemm.bounds_hif8 != NULL},
        {"integer_tile", "products of 8-bit operands", "gate.integer_tile",
         kernels->gemm.integer_tile != NULL},
    };
    return oct_gate_require(kernels, needed, sizeof needed / sizeof needed[0], err);
}

static float format_max_of(const oct_quantizer *quantizer)
{
    return *(const float *)quantizer->settings;
}

/* Codes and scales are made once; both orientations point at them. */
static oct_status quantize(const oct_exec *exec, const oct_quantizer *quantizer, const oct_lazy *x,
                           const oct_groups *groups, const oct_quantize_want *row,
                           const oct_quantize_want *col, oct_err *err)
{
    if (!row->operand && !col->operand)
        return OCT_OK;
    oct_arena *arena = col->operand ? col->arena : row->arena;
    oct_operand made = {.format = quantizer->format, .logical_dtype = x->dtype};
    if (groups)
        made.groups = *groups;
    OCT_TRY(oct_tensor_new_2d(arena, OCT_DTYPE_HIF8, x->rows, x->cols, &made.data, err));
    made.scales = oct_hif8_scale_layout(&made);
    void *amax = NULL;
    OCT_TRY(oct_arena_alloc(arena, oct_tensor_bytes(&made.scales), &made.scales.data, err));
    OCT_TRY(oct_arena_alloc(arena, oct_tensor_bytes(&made.scales), &amax, err));
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    oct_tensor kept;
    const bool keep = x->make && !x->cheap;
    if (keep)
        OCT_TRY(oct_tensor_new_2d(exec->scratch, x->dtype, x->rows, x->cols, &kept, err));
    OCT_TRY(oct_hif8_amax_lazy(exec, x, groups, keep ? &kept : NULL, amax, err));
    const oct_lazy again = keep ? oct_lazy_of(&kept) : *x;
    made.amax = amax;
    float *scales = made.scales.data;
    for (int64_t g = 0; g < oct_tensor_numel(&made.scales); g++)
        scales[g] = oct_hif8_scale(made.amax[g], format_max_of(quantizer));
    OCT_TRY(oct_hif8_quantize_lazy(exec, &again, groups, scales, false, made.data.data, err));
    oct_arena_rewind(exec->scratch, mark);
    if (row->operand) {
        made.orientation = OCT_ORIENTATION_ROW;
        *row->operand = made;
    }
    if (col->operand) {
        made.orientation = OCT_ORIENTATION_COL;
        *col->operand = made;
    }
    return OCT_OK;
}

/* --- weights --------------------------------------------------------------------------------- */

static int weight_tensors(int ndim, const int64_t *shape, oct_physical_tensor *tensors)
{
    oct_operand as_stored = {.data = {.dtype = OCT_DTYPE_HIF8, .ndim = ndim}};
    for (int d = 0; d < ndim; d++)
        as_stored.data.shape[d] = shape[d];
    tensors[0] = (oct_physical_tensor){.name = "data", .tensor = as_stored.data};
    tensors[1] = (oct_physical_tensor){
        .name = "scale", .tensor = oct_hif8_scale_layout(&as_stored), .replicated = ndim == 2};
    return 2;
}

static int64_t weight_scales(int ndim, const int64_t *shape)
{
    return ndim == 3 ? shape[0] : 1;
}

/* The master as rows with one group per expert. */
static oct_status rows_of(const oct_exec *exec, const oct_weight_storage *weight,
                          const oct_tensor *master, oct_tensor *rows, oct_groups *experts,
                          oct_err *err)
{
    *rows = oct_tensor_2d(master->data, master->dtype, oct_tensor_rows(master),
                          oct_tensor_cols(master));
    *experts = (oct_groups){0};
    return weight->ndim == 3 ? oct_weight_expert_groups(weight, exec->scratch, experts, err)
                             : OCT_OK;
}

static oct_status weight_amax(const oct_exec *exec, const oct_weight_storage *weight,
                              const oct_tensor *master, float *amax, oct_err *err)
{
    oct_tensor rows;
    oct_groups experts;
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    OCT_TRY(rows_of(exec, weight, master, &rows, &experts, err));
    OCT_TRY(oct_hif8_amax(exec, &rows, &experts, amax, err));
    oct_arena_rewind(exec->scratch, mark);
    return OCT_OK;
}

static oct_status refresh(const oct_exec *exec, oct_weight_storage *weight,
                          const oct_tensor *master, oct_err *err)
{
    /* Both roles of a weight read the same codes, so they have the same format max. */
    const oct_quantizer *quantizer = oct_recipe_quantizer(weight->recipe, OCT_ROLE_WEIGHT_FWD);
    float *scales = weight->tensors[1].tensor.data;
    for (int64_t g = 0; g < weight_scales(weight->ndim, weight->shape); g++)
        scales[g] = oct_hif8_scale(weight->amax[g], format_max_of(quantizer));
    oct_tensor rows;
    oct_groups experts;
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    OCT_TRY(rows_of(exec, weight, master, &rows, &experts, err));
    OCT_TRY(oct_hif8_quantize(exec, &rows, &experts, scales, false, weight->tensors[0].tensor.data,
                              err));
    oct_arena_rewind(exec->scratch, mark);
    return OCT_OK;
}

static void select(const oct_weight_storage *weight, oct_orientation orientation, oct_operand *out)
{
    out->orientation = orientation;
    out->data = weight->tensors[0].tensor;
    out->scales = weight->tensors[1].tensor;
    out->amax = weight->amax;
}

/* Both orientations read the same bytes. */
static int gather(bool fprop, bool dgrad, int *which)
{
    (void)fprop;
    (void)dgrad;
    which[0] = 0;
    which[1] = 1;
    return 2;
}

/* --- tables ---------------------------------------------------------------------------------- */

/* Any row of a dense weight; a cut of dim 0 of stacked experts is between experts by itself. */
static bool shard_rows_legal(int ndim, const int64_t *shape, int64_t rows)
{
    (void)ndim;
    (void)shape;
    (void)rows;
    return true;
}

static const float input_weight_max = OCT_HIF8_FORMAT_MAX_INPUT_WEIGHT;
static const float gradient_max = OCT_HIF8_FORMAT_MAX_GRADIENT;

static const oct_quantizer input_weight = {.format = &oct_hif8_format,
                                           .settings = &input_weight_max};
static const oct_quantizer gradient = {.format = &oct_hif8_format, .settings = &gradient_max};

static const oct_low_precision_recipe recipe = {
    .name = "hif8_current",
    .quantizers = {[OCT_ROLE_INPUT_FWD] = &input_weight,
                   [OCT_ROLE_WEIGHT_FWD] = &input_weight,
                   [OCT_ROLE_GRAD_OUTPUT] = &gradient,
                   [OCT_ROLE_INPUT_BWD] = &input_weight,
                   [OCT_ROLE_WEIGHT_BWD] = &input_weight},
};

const oct_low_precision_format oct_hif8_format = {
    .name = "hif8",
    .scaling = "current",
    .data_dtype = OCT_DTYPE_HIF8,
    .scale_dtype = OCT_DTYPE_F32,
    .orientations_share = true,
    .recipe = &recipe,
    .gate = gate,
    .quantize = quantize,
    .weight_tensors = weight_tensors,
    .weight_scales = weight_scales,
    .weight_amax = weight_amax,
    .refresh = refresh,
    .gather = gather,
    .select = select,
    .scale_layout = oct_hif8_scale_layout,
    .matrix = oct_hif8_matrix,
    .matmul = oct_operand_matmul,
    .shard_rows_legal = shard_rows_legal,
    .shard_rule = "whole rows (dense) or whole experts",
};
