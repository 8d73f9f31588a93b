#include "low_precision/operand.h"

const char *oct_orientation_name(oct_orientation orientation)
{
    return orientation == OCT_ORIENTATION_ROW ? "row" : "col";
}

int oct_operand_view(const oct_operand *operand, int64_t shape[3])
{
    const int ndim = operand->data.ndim;
    for (int d = 0; d < ndim; d++)
        shape[d] = operand->data.shape[d];
    if (operand->transposed) {
        shape[ndim - 2] = operand->data.shape[ndim - 1];
        shape[ndim - 1] = operand->data.shape[ndim - 2];
    }
    return ndim;
}

bool oct_operand_k_contiguous(const oct_operand *operand)
{
    return (operand->orientation == OCT_ORIENTATION_ROW) != operand->transposed;
}

oct_quantized_matrix oct_operand_codes(const oct_operand *operand, const oct_operand_slice *slice)
{
    const bool stacked = operand->data.ndim == 3;
    const int64_t cols = oct_tensor_cols(&operand->data);
    const int64_t rows = stacked ? operand->data.shape[1] : slice->rows;
    const int64_t first = stacked ? slice->group * rows : slice->row;
    const bool contiguous = oct_operand_k_contiguous(operand);
    return (oct_quantized_matrix){
        .codes = (const uint8_t *)operand->data.data + first * cols,
        .ld = cols,
        .k_contiguous = contiguous,
        .rows = contiguous ? rows : cols,
        .k = contiguous ? cols : rows,
    };
}
