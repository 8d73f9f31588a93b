#include "low_precision/operand_matmul.h"

#include "base/profile.h"
#include "base/size.h"

static oct_status multiply_slice(const oct_exec *exec, const oct_operand *left,
                                 const oct_operand *right, oct_layout layout,
                                 const oct_operand_slice *slice, const oct_gemm_out *out,
                                 oct_matmul_routes *routes, oct_err *err)
{
    /* The rows of a group are rows of right too only where they are contracted. */
    const oct_operand_slice all = {.group = slice->group, .rows = right->data.shape[0]};
    const oct_quantized_matrix l = left->format->matrix(left, slice);
    const oct_quantized_matrix r =
        right->format->matrix(right, layout == OCT_LAYOUT_TN ? slice : &all);
    if (l.rows == 0 || r.rows == 0)
        return OCT_OK;
    const double started = oct_clock_seconds();
    oct_panels *left_panels = NULL, *packed = NULL;
    OCT_TRY(oct_pack(exec, &l, OCT_SIDE_LEFT, exec->scratch, &left_panels, err));
    const oct_panels *right_panels = right->panels ? right->panels[slice->group] : NULL;
    bool fma = false;
    if (!right_panels && out->store == OCT_GEMM_STORE) {
        routes->pack_seconds += oct_clock_seconds() - started;
        OCT_TRY(
            oct_block_integer_stream(exec, left_panels, &r, out, &fma, &routes->pack_seconds, err));
    } else {
        if (!right_panels) {
            OCT_TRY(oct_pack(exec, &r, OCT_SIDE_RIGHT, exec->scratch, &packed, err));
            right_panels = packed;
        }
        routes->pack_seconds += oct_clock_seconds() - started;
        OCT_TRY(oct_block_integer_gemm(exec, left_panels, right_panels, out, &fma, err));
    }
    routes->block_integer += !fma;
    routes->fma += fma;
    return OCT_OK;
}

int64_t oct_operand_matmul_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    const int64_t parts[] = {
        oct_panels_bytes_bound(m, k, OCT_SIDE_LEFT),
        oct_panels_bytes_bound(n, k, OCT_SIDE_RIGHT),
        oct_gemm_packed_bytes(m, k, OCT_SIDE_LEFT),
        oct_gemm_packed_bytes(n, k, OCT_SIDE_RIGHT),
        oct_gemm_work_bytes(threads),
    };
    int64_t bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        bytes += oct_ceil_div(parts[i], OCT_ARENA_ALIGN) * OCT_ARENA_ALIGN;
    return bytes;
}

oct_status oct_operand_matmul(const oct_exec *exec, const oct_operand *left,
                              const oct_operand *right, oct_layout layout, const oct_groups *groups,
                              const oct_gemm_out *out, oct_matmul_routes *routes, oct_err *err)
{
    const int64_t count = groups ? groups->count : 1;
    const bool tn = layout == OCT_LAYOUT_TN;
    oct_operand_slice slice = {0};
    for (int64_t g = 0; g < count; g++) {
        const int64_t end = groups ? groups->ends[g] : left->data.shape[0];
        slice.group = g;
        slice.rows = end - slice.row;
        oct_gemm_out part = *out;
        const int64_t first = tn ? g * left->data.shape[1] : slice.row;
        part.data =
            (unsigned char *)out->data + (size_t)(first * out->ld) * oct_dtype_bytes(out->dtype);
        const oct_arena_mark mark = oct_arena_save(exec->scratch);
        OCT_TRY(multiply_slice(exec, left, right, layout, &slice, &part, routes, err));
        oct_arena_rewind(exec->scratch, mark);
        slice.row = end;
        slice.pair += oct_mx_col_pairs(NULL, slice.rows);
    }
    return OCT_OK;
}
