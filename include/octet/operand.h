/* Quantized matrices. An octet_operand is a description of codes and scales in memory of the
 * caller: fill in format, orientation and shape, ask octet_operand_bytes for the sizes, point it at
 * two buffers, and quantize into it or load codes from elsewhere.
 *
 * Matrices are row-major without gaps. Codes keep the layout of the source, one byte each. */
#ifndef OCTET_OPERAND_H
#define OCTET_OPERAND_H

#include <octet/context.h>
#include <octet/export.h>
#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum octet_format {
    OCTET_FORMAT_MXFP8 =
        0,                /* E4M3 codes, an E8M0 scale for each block of 32 (docs/spec/mxfp8.md) */
    OCTET_FORMAT_HIF8 = 1 /* HiF8 codes, an FP32 scale for all or each group (docs/spec/hif8.md) */
} octet_format;

/* "mxfp8", "hif8"; "unknown" for another number. Static string. Any thread. */
OCTET_API const char *octet_format_name(octet_format format);

/* The axis of the stored matrix along which blocks run, which is the one that a product contracts.
 * HiF8 has no blocks: both orientations hold the same bytes, and the field must still say which
 * axis the product contracts. */
typedef enum octet_orientation {
    OCTET_ORIENTATION_ROW = 0, /* within a row: along cols, axis -1 */
    OCTET_ORIENTATION_COL = 1  /* down a column: along rows, axis -2 */
} octet_orientation;

/* Rows of one matrix that belong together: group g is rows ends[g-1] .. ends[g] - 1, ends[-1] = 0.
 * ends: [count], never descending, the last one is the number of rows; empty groups are legal.
 * Borrowed: it must live as long as what refers to it. count 0: one group of all rows. */
typedef struct octet_groups {
    int64_t count;
    const int64_t *ends;
} octet_groups;

/* One matrix [rows, cols], or a stack of them [matrices, rows, cols].
 *
 *   format, orientation       scales                                   type
 *   MXFP8 ROW                 [matrices * rows, ceil(cols/64), 2]      uint8 (E8M0)
 *   MXFP8 COL                 [P, cols, 2]                             uint8 (E8M0)
 *   HiF8                      [max(1, matrices or groups)]             FP32
 *
 * MXFP8 scales are stored in pairs: the bytes of blocks 2p and 2p+1 of a line are neighbours, and a
 * missing odd block is 00. P = matrices * ceil(rows/64), or with groups the sum over them of
 * ceil(rows of the group / 64): blocks restart at each matrix and at each group. MXFP8 ROW does not
 * depend on groups. HiF8 has one scale for each matrix of a stack or each group. */
typedef struct octet_operand {
    size_t struct_bytes; /* sizeof(octet_operand) */
    octet_format format;
    octet_orientation orientation;
    int64_t matrices; /* 0: one matrix; 1 or more: a stack of so many */
    int64_t rows, cols;
    octet_groups groups; /* of the rows of one matrix; count 0 for a stack */
    void *codes;         /* uint8 [matrices, rows, cols]; written by octet_quantize only */
    size_t codes_bytes;  /* of the buffer: at least what octet_operand_bytes says */
    void *scales;        /* as above, FP32 ones aligned to 4 bytes; written by octet_quantize and
                            octet_mx_scales_load only */
    size_t scales_bytes;
} octet_operand;

#define OCTET_OPERAND_INIT                                                                         \
    {                                                                                              \
        sizeof(octet_operand), OCTET_FORMAT_MXFP8, OCTET_ORIENTATION_ROW, 0, 0, 0, {0, NULL},      \
            NULL, 0, NULL, 0                                                                       \
    }

/* Sizes of the two buffers of an operand; looks at format, orientation, shape and groups only.
 * codes_bytes, scales_bytes: out; either may be NULL. 0 is possible: that pointer may then be NULL.
 * Errors: E_ARGUMENT (fields out of range, sizes that overflow: (rows + 64) * (cols + 64) * 64 over
 * all matrices must be below 2^63), E_SHAPE (groups). Any thread. */
OCTET_API octet_status octet_operand_bytes(const octet_operand *operand, size_t *codes_bytes,
                                           size_t *scales_bytes,
                                           octet_error *error) OCTET_MUST_CHECK;

/* y = code times scale: one IEEE FP32 multiplication for each element, a NaN is 7fc00000.
 * operand: in. y: out, FP32 [matrices, rows, cols], overlaps nothing; y_bytes: of the buffer.
 * Errors: E_ARGUMENT, E_SHAPE, E_ENVIRONMENT. Any thread. docs/spec/mxfp8.md, docs/spec/hif8.md. */
OCTET_API octet_status octet_dequantize(const octet_context *context, const octet_operand *operand,
                                        float *y, size_t y_bytes,
                                        octet_error *error) OCTET_MUST_CHECK;

/* Layouts in which other tools keep MXFP8 scales. Groups matter to COL only.
 *
 *   layout  orientation                scales
 *   PLAIN   ROW                        [matrices * rows, ceil(cols/32)]
 *   PLAIN   COL, a matrix or a stack   [matrices, ceil(rows/32), cols]
 *   PLAIN   COL, groups of m_g rows    [sum of ceil(m_g/32), cols]
 *   NPU     ROW                        as octet_operand
 *   NPU     COL, a matrix or a stack   as octet_operand
 *   NPU     COL, groups                [floor(rows/64) + G, cols, 2]
 *
 * NPU: what the Ascend operators take; group g begins at pair row floor(first row / 64) + g, and
 * bytes that no block owns are 00 (read: not looked at). */
typedef enum octet_scale_layout {
    OCTET_SCALE_LAYOUT_PLAIN = 0,
    OCTET_SCALE_LAYOUT_NPU = 1
} octet_scale_layout;

/* Bytes of the scales of an MXFP8 operand in another layout. bytes: out.
 * Errors: E_ARGUMENT, E_SHAPE, E_UNSUPPORTED (no MXFP8 operand). Any thread. */
OCTET_API octet_status octet_mx_scales_bytes(const octet_operand *operand,
                                             octet_scale_layout layout, size_t *bytes,
                                             octet_error *error) OCTET_MUST_CHECK;

/* Writes operand->scales in another layout. out: out, out_bytes of room, no overlap.
 * Errors: as above. Any thread. */
OCTET_API octet_status octet_mx_scales_store(const octet_operand *operand,
                                             octet_scale_layout layout, uint8_t *out,
                                             size_t out_bytes, octet_error *error) OCTET_MUST_CHECK;

/* Fills operand->scales from another layout. in: in, in_bytes there, no overlap.
 * Errors: as above. Any thread. */
OCTET_API octet_status octet_mx_scales_load(const octet_operand *operand, octet_scale_layout layout,
                                            const uint8_t *in, size_t in_bytes,
                                            octet_error *error) OCTET_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
