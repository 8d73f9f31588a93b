/* Matrix products of operands, to the bit as docs/spec/block-integer.md defines them. */
#ifndef OCTET_PRODUCT_H
#define OCTET_PRODUCT_H

#include <octet/context.h>
#include <octet/export.h>
#include <octet/operand.h>
#include <octet/quantize.h>
#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* C[M,N] = op(left) op(right), the operands as stored, and the orientation that each must have:
 *
 *        left         right        in training
 *   NN   [M,K] ROW    [K,N] COL    dgrad
 *   NT   [M,K] ROW    [N,K] ROW    fprop
 *   TN   [K,M] COL    [K,N] COL    wgrad
 *
 * Left and right are not interchangeable: left is the activation or the output gradient. */
typedef enum octet_layout {
    OCTET_LAYOUT_NN = 0,
    OCTET_LAYOUT_NT = 1,
    OCTET_LAYOUT_TN = 2
} octet_layout;

/* "NN", "NT", "TN"; "unknown" for another number. Static string. Any thread. */
OCTET_API const char *octet_layout_name(octet_layout layout);

/* Where a product goes. */
typedef struct octet_output {
    size_t struct_bytes; /* sizeof(octet_output) */
    octet_dtype dtype;   /* FP32, or BF16 rounded once from it */
    void *data;          /* out, row-major, aligned to its elements */
    size_t data_bytes;   /* of the buffer */
    int64_t ld;        /* elements from row to row, at least N; what lies between is not written */
    const float *bias; /* [N], added in FP32 before the rounding; NULL: none */
} octet_output;

#define OCTET_OUTPUT_INIT                                                                          \
    {                                                                                              \
        sizeof(octet_output), OCTET_DTYPE_F32, NULL, 0, 0, NULL                                    \
    }

/* How often each route of docs/spec/block-integer.md 5 was taken: one for each product whose C has
 * elements. */
typedef struct octet_product_report {
    size_t struct_bytes; /* in: sizeof(octet_product_report) */
    int64_t block_integer, fma;
} octet_product_report;

#define OCTET_PRODUCT_REPORT_INIT                                                                  \
    {                                                                                              \
        sizeof(octet_product_report), 0, 0                                                         \
    }

/* Bytes of workspace of a product, an upper bound over all contents; depends on shapes and groups,
 * and on the threads of the context. groups: NULL for octet_product. bytes: out.
 * Errors: E_ARGUMENT, E_SHAPE (M * N * K of one product must be at most 2^56). Any thread. */
OCTET_API octet_status octet_product_workspace_bytes(const octet_context *context,
                                                     const octet_operand *left,
                                                     const octet_operand *right,
                                                     octet_layout layout,
                                                     const octet_groups *groups, size_t *bytes,
                                                     octet_error *error) OCTET_MUST_CHECK;

/* C = op(left) op(right), one matrix each, of one format.
 * left, right: in, neither with groups (MXFP8 ROW may have some: they do not matter) nor a stack.
 * output: in, where C [M,N] goes; output->data is written: every element of C, all zeros if K is 0.
 * report: out, or NULL. workspace: any alignment, workspace_bytes of it, undefined afterwards.
 * Written memory must not overlap anything.
 * Numerics: exact dots of 64 elements, one FP32 rounding and one FMA each; NaN and Inf propagate, a
 *   NaN is 7fc00000 (BF16 7fc0). HiF8: fl32(fl32(c * scale of left) * scale of right).
 * Errors: E_ARGUMENT, E_SHAPE, E_WORKSPACE, E_ENVIRONMENT. Any thread. */
OCTET_API octet_status octet_product(const octet_context *context, const octet_operand *left,
                                     const octet_operand *right, octet_layout layout,
                                     const octet_output *output, octet_product_report *report,
                                     void *workspace, size_t workspace_bytes,
                                     octet_error *error) OCTET_MUST_CHECK;

/* One product for each group g of the rows of left, with m_g rows.
 *
 *        left           right                          C
 *   NN   [S,K]          stack [G,K,N]                  [S,N]: rows of g = left_g right[g]
 *   NT   [S,K]          stack [G,N,K]                  [S,N]: rows of g = left_g right[g]^T
 *   TN   [S,M] groups   [S,N], the same groups         [G*M,N]: matrix g = left_g^T right_g
 *
 * groups: in, count at least 1. An operand that is not a stack must have been quantized with the
 * same groups (MXFP8 ROW: any, they do not matter). An empty group gives no rows in NN and NT and
 * a matrix of zeros (plus the bias) in TN. Everything else as octet_product. */
OCTET_API octet_status octet_grouped_product(const octet_context *context,
                                             const octet_operand *left, const octet_operand *right,
                                             octet_layout layout, const octet_groups *groups,
                                             const octet_output *output,
                                             octet_product_report *report, void *workspace,
                                             size_t workspace_bytes,
                                             octet_error *error) OCTET_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
