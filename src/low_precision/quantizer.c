#include "low_precision/quantizer.h"

#include <string.h>

#include "base/fault.h"

void oct_quantize_trace(oct_trace *trace, const char *fqn, oct_role role,
                        const oct_operand *operand)
{
    if (!trace)
        return;
    oct_trace_event event = {
        .kind = OCT_TRACE_QUANTIZE,
        .fqn = fqn,
        .role = oct_role_name(role),
        .format = operand->format->name,
        .orientation = oct_orientation_name(operand->orientation),
        .dtype = oct_dtype_name(operand->data.dtype),
        .scale_dtype = oct_dtype_name(operand->scales.dtype),
        .grouped = operand->groups.count > 0 || operand->data.ndim == 3,
        .has_scale = operand->amax != NULL,
    };
    event.ndim[0] = oct_operand_view(operand, event.shape[0]);
    const int64_t scales = operand->amax ? oct_tensor_numel(&operand->scales) : 1;
    for (int64_t g = 0; g < scales; g++) {
        if (operand->amax) {
            event.group = g;
            event.amax = operand->amax[g];
            event.scale = ((const float *)operand->scales.data)[g];
        }
        oct_trace_emit(trace, &event);
    }
}

/* A copy of the groups that lives as long as the operands. */
static oct_status own_groups(const oct_groups *groups, oct_arena *arena, oct_groups *own,
                             oct_err *err)
{
    void *ends = NULL;
    OCT_TRY(oct_arena_array(arena, groups->count, sizeof *groups->ends, &ends, err));
    memcpy(ends, groups->ends, (size_t)groups->count * sizeof *groups->ends);
    *own = (oct_groups){.count = groups->count, .ends = ends};
    return OCT_OK;
}

/* What is quantized, for messages. */
typedef struct subject {
    const char *fqn;
    oct_role role; /* of the row orientation */
    bool grouped;
} subject;

static bool fault_is_planted(const subject *of)
{
    if (of->role == OCT_ROLE_GRAD_OUTPUT)
        return oct_fault(of->grouped ? "quantize.grouped.grad_output"
                                     : "quantize.dense.grad_output");
    return oct_fault(of->grouped ? "quantize.grouped.input" : "quantize.dense.input");
}

static oct_status quantize_as(const oct_run *run, const oct_quantizer *quantizer, const subject *of,
                              const oct_lazy *x, const oct_groups *groups,
                              const oct_quantize_want *row, const oct_quantize_want *col,
                              oct_err *err)
{
    const oct_status status =
        fault_is_planted(of)
            ? OCT_FAIL(err, OCT_E_KERNEL, "the kernel failed: a fault is planted")
            : quantizer->format->quantize(run->exec, quantizer, x, groups, row, col, err);
    if (status != OCT_OK)
        return OCT_WRAP(err, status, "quantizing the %s of '%s' to %s", oct_role_name(of->role),
                        of->fqn, quantizer->format->name);
    return OCT_OK;
}

oct_status oct_quantize(const oct_run *run, const oct_low_precision_recipe *recipe, const char *fqn,
                        const oct_lazy *x, const oct_groups *groups, const oct_role_output *row,
                        const oct_role_output *col, oct_err *err)
{
    const oct_quantize_want nothing = {0};
    const oct_span span = oct_profile_begin(run->profile, OCT_PART_QUANTIZE);
    const subject of = {.fqn = fqn, .role = row->role, .grouped = groups && groups->count > 0};
    oct_groups own = {0};
    if (groups && groups->count > 0)
        OCT_TRY(own_groups(groups, col->operand ? col->arena : row->arena, &own, err));
    const oct_quantize_want row_want = {.operand = row->operand, .arena = row->arena};
    const oct_quantize_want col_want = {.operand = col->operand, .arena = col->arena};
    const oct_quantizer *row_quantizer = oct_recipe_quantizer(recipe, row->role);
    const oct_quantizer *col_quantizer = oct_recipe_quantizer(recipe, col->role);
    if (row_quantizer == col_quantizer) {
        OCT_TRY(quantize_as(run, row_quantizer, &of, x, &own, &row_want, &col_want, err));
    } else {
        if (row->operand)
            OCT_TRY(quantize_as(run, row_quantizer, &of, x, &own, &row_want, &nothing, err));
        if (col->operand)
            OCT_TRY(quantize_as(run, col_quantizer, &of, x, &own, &nothing, &col_want, err));
    }
    if (row->operand)
        oct_quantize_trace(run->trace, fqn, row->role, row->operand);
    if (col->operand)
        oct_quantize_trace(run->trace, fqn, col->role, col->operand);
    oct_profile_end(run->profile, span);
    return OCT_OK;
}
