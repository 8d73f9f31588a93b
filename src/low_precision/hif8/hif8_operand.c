/* How HiF8 operands lie in memory. */
#include "low_precision/hif8/hif8.h"

/* One scale, or one per group or matrix of a stack. */
oct_tensor oct_hif8_scale_layout(const oct_operand *operand)
{
    oct_tensor scales = {.dtype = OCT_DTYPE_F32};
    const bool stacked = operand->data.ndim == 3;
    if (stacked || operand->groups.count > 0) {
        scales.ndim = 1;
        scales.shape[0] = stacked ? operand->data.shape[0] : operand->groups.count;
    }
    return scales;
}

oct_quantized_matrix oct_hif8_matrix(const oct_operand *operand, const oct_operand_slice *slice)
{
    oct_quantized_matrix codes = oct_operand_codes(operand, slice);
    const bool per_group = operand->scales.ndim == 1;
    codes.format = OCT_FORMAT_HIF8;
    codes.scale = ((const float *)operand->scales.data)[per_group ? slice->group : 0];
    return codes;
}
