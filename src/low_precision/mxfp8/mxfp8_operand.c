/* How MXFP8 operands lie in memory. */
#include "base/size.h"
#include "low_precision/mxfp8/mxfp8.h"

/* Scales come in pairs: [lines, pairs, 2] along the last stored axis, [pairs, lines, 2] along the
 * one before it, once per matrix of a stack (kernels/quantize.h). */
oct_tensor oct_mxfp8_scale_layout(const oct_operand *operand)
{
    const oct_tensor *data = &operand->data;
    const int ndim = data->ndim;
    const int64_t rows = data->shape[ndim - 2], cols = data->shape[ndim - 1];
    const bool along_last = oct_operand_k_contiguous(operand);
    oct_tensor scales = {.dtype = OCT_DTYPE_E8M0, .ndim = ndim + 1};
    scales.shape[0] = data->shape[0]; /* of a stack; overwritten for one matrix */
    scales.shape[ndim - 2] = along_last ? rows : oct_mx_col_pairs(&operand->groups, rows);
    scales.shape[ndim - 1] = along_last ? oct_ceil_div(cols, 64) : cols;
    scales.shape[ndim] = 2;
    return scales;
}

oct_quantized_matrix oct_mxfp8_matrix(const oct_operand *operand, const oct_operand_slice *slice)
{
    oct_quantized_matrix codes = oct_operand_codes(operand, slice);
    const uint8_t *scales = operand->scales.data;
    const bool stacked = operand->data.ndim == 3;
    const int64_t line = codes.k_contiguous ? oct_ceil_div(codes.k, 64) : codes.rows;
    const int64_t first = stacked ? slice->group * operand->scales.shape[1]
                                  : (codes.k_contiguous ? slice->row : slice->pair);
    codes.format = OCT_FORMAT_MXFP8;
    codes.scales = scales + first * line * 2;
    codes.scale_ld = codes.k_contiguous ? 0 : codes.rows;
    return codes;
}
