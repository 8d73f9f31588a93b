/* The files that `octet quantize` writes and the other tensor commands read: PREFIX.data.npy,
 * PREFIX.scale.npy and PREFIX.json (docs/tensor-tools.md). */
#ifndef OCT_CLI_QUANTIZED_H
#define OCT_CLI_QUANTIZED_H

#include "base/arena.h"
#include "data/npy.h"
#include "kernels/quantize.h"

typedef enum oct_tool_format {
    OCT_TOOL_MXFP8,
    OCT_TOOL_HIF8,
    OCT_TOOL_E4M3,
    OCT_TOOL_BF16,
    OCT_TOOL_FORMAT_COUNT
} oct_tool_format;
extern const char *const oct_tool_formats[OCT_TOOL_FORMAT_COUNT];

typedef enum oct_tool_role {
    OCT_TOOL_INPUT,
    OCT_TOOL_WEIGHT,
    OCT_TOOL_GRAD,
    OCT_TOOL_ROLE_COUNT
} oct_tool_role;
extern const char *const oct_tool_roles[OCT_TOOL_ROLE_COUNT];

/* What PREFIX.json says, and what follows from it. */
typedef struct oct_quantized {
    oct_tool_format format;
    int axis; /* -1 or -2: along which the blocks run */
    oct_tool_role role;
    oct_groups groups; /* of the rows of a matrix; count 0: none given */
    oct_npy_shape shape;
    int scale_alg;
    bool pairs;    /* the scale layout of the NPU operators */
    bool saturate; /* HiF8 */

    /* Derived: the tensor as rows x cols, cut into runs of rows that have scales (HiF8) or blocks
     * down the columns (MXFP8, axis -2) of their own. */
    int64_t rows, cols;
    oct_groups segments;
    const int64_t *scale_rows; /* MXFP8, axis -2: where the scales of a segment begin; one more is
                                  the end */
    bool has_scales;
    oct_npy_shape scale_shape;
} oct_quantized;

/* Fills the derived part; arrays live in `arena`. `where` names the tensor in messages.
 * Errors: OCT_E_SHAPE if shape, axis and groups do not fit; OCT_E_NOMEM. */
oct_status oct_quantized_derive(oct_quantized *quantized, const char *where, oct_arena *arena,
                                oct_err *err) OCT_MUST_CHECK;

/* First row of a segment. */
int64_t oct_quantized_segment_start(const oct_quantized *quantized, int64_t segment);

oct_npy_dtype oct_quantized_data_dtype(const oct_quantized *quantized);

enum { OCT_PREFIX_BYTES = 4000 };

/* The three files, open for reading. */
typedef struct oct_quantized_files {
    oct_quantized about;
    oct_npy data, scale; /* scale is zeroed for formats without scales */
    char data_path[OCT_NPY_PATH_BYTES], scale_path[OCT_NPY_PATH_BYTES];
} oct_quantized_files;

/* "PREFIX.suffix" into out. Errors: OCT_E_CONFIG for an empty, too long or "-" prefix. */
oct_status oct_quantized_path(const char *prefix, const char *suffix, char out[OCT_NPY_PATH_BYTES],
                              oct_err *err) OCT_MUST_CHECK;

oct_status oct_quantized_write_about(const oct_quantized *quantized, const char *path,
                                     oct_err *err) OCT_MUST_CHECK;

/* Checks that the three files belong together. Errors: OCT_E_DATA naming the file. */
oct_status oct_quantized_open(const char *prefix, oct_arena *arena, oct_quantized_files *out,
                              oct_err *err) OCT_MUST_CHECK;
void oct_quantized_close(oct_quantized_files *files);

/* MXFP8 scales of `rows` rows from `first` (a multiple of 64 within a segment for axis -2) in
 * pairs, as kernels/quantize.h has them: [rows, ceil(cols/64), 2] for axis -1,
 * [ceil(rows/64), cols, 2] for axis -2. Bytes that no block owns are 00. */
oct_status oct_quantized_read_pairs(const oct_quantized_files *files, int64_t segment,
                                    int64_t first, int64_t rows, oct_arena *scratch, uint8_t *pairs,
                                    oct_err *err) OCT_MUST_CHECK;

#endif
