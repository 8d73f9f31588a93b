/* FP32 or BF16 matrices to operands. */
#ifndef OCTET_QUANTIZE_H
#define OCTET_QUANTIZE_H

#include <octet/context.h>
#include <octet/export.h>
#include <octet/operand.h>
#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum octet_dtype {
    OCTET_DTYPE_F32 = 0, /* IEEE binary32 */
    OCTET_DTYPE_BF16 = 1 /* its upper half, as uint16 */
} octet_dtype;

typedef enum octet_mx_rule {
    OCTET_MX_RULE_FLOOR = 0,   /* scale_alg 0, the OCP rule; for tools and tests */
    OCTET_MX_RULE_ROUND_UP = 1 /* scale_alg 1, training */
} octet_mx_rule;

/* What a tensor is in training. It sets the largest code that HiF8 aims at. */
typedef enum octet_role {
    OCTET_ROLE_INPUT = 0,   /* 15 */
    OCTET_ROLE_WEIGHT = 1,  /* 15 */
    OCTET_ROLE_GRADIENT = 2 /* 224 */
} octet_role;

typedef struct octet_quantize_settings {
    size_t struct_bytes;   /* sizeof(octet_quantize_settings) */
    octet_mx_rule mx_rule; /* MXFP8 only */
    octet_role role;       /* HiF8 only */
    int32_t saturate;      /* HiF8 only. 0: Inf and NaN stay (training); 1: the NPU's mode */
    const float *amax; /* HiF8 only: one for each scale, of a larger tensor that this is a part of;
                          NULL: measured here */
} octet_quantize_settings;

/* What training does: rule ROUND_UP, role INPUT, no saturation, amax measured. */
#define OCTET_QUANTIZE_SETTINGS_INIT                                                               \
    {                                                                                              \
        sizeof(octet_quantize_settings), OCTET_MX_RULE_ROUND_UP, OCTET_ROLE_INPUT, 0, NULL         \
    }

/* Bytes of workspace that octet_quantize and octet_amax need for an operand; looks at shape and
 * groups only. bytes: out. Errors: E_ARGUMENT, E_SHAPE. Any thread. */
OCTET_API octet_status octet_quantize_workspace_bytes(const octet_operand *operand, size_t *bytes,
                                                      octet_error *error) OCTET_MUST_CHECK;

/* Quantizes x into one or two operands.
 * x: in, `dtype` [matrices, rows, cols] of the operands, row-major; x_bytes: there.
 * settings: in, or NULL for OCTET_QUANTIZE_SETTINGS_INIT.
 * row, col: what to fill, of orientation ROW and COL; either may be NULL. Both must have the same
 *   format, shape and groups; MXFP8 then reads x once. HiF8 writes the same bytes into both.
 * workspace: any alignment, workspace_bytes of it, undefined afterwards.
 * x, amax and HiF8 scales are aligned to their elements. x, codes, scales, workspace must not
 * overlap one another. Numerics: BF16 is widened exactly. MXFP8: a block with Inf or NaN has scale
 * ff and codes 00. HiF8: scale = octet_hif8_scale(amax of the matrix or group, 15 or 224), code of
 * fl32(x / scale); an empty, all-zero or non-finite group has scale 1.0. A short last block stands
 * alone. Errors: E_ARGUMENT, E_SHAPE, E_WORKSPACE, E_ENVIRONMENT. Any thread. Source:
 * docs/spec/mxfp8.md, docs/spec/hif8.md. */
OCTET_API octet_status octet_quantize(const octet_context *context, octet_dtype dtype,
                                      const void *x, size_t x_bytes,
                                      const octet_quantize_settings *settings,
                                      const octet_operand *row, const octet_operand *col,
                                      void *workspace, size_t workspace_bytes,
                                      octet_error *error) OCTET_MUST_CHECK;

/* The largest |x| of each matrix or group, as HiF8 scaling uses it: 0 for an empty one, NaN if it
 * holds a NaN. For tensors in several parts: take the maximum over the parts, any NaN first.
 * shape: in, only matrices, rows, cols and groups count. x: as above.
 * amax: out, FP32 [max(1, matrices or groups)]. workspace: as above.
 * Errors: E_ARGUMENT, E_SHAPE, E_WORKSPACE, E_ENVIRONMENT. Any thread. docs/spec/hif8.md, "Scale".
 */
OCTET_API octet_status octet_amax(const octet_context *context, octet_dtype dtype, const void *x,
                                  size_t x_bytes, const octet_operand *shape, float *amax,
                                  size_t amax_bytes, void *workspace, size_t workspace_bytes,
                                  octet_error *error) OCTET_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
