/* Quantization kernels: MXFP8 (E4M3 in blocks of 32 with E8M0 scales) and HiF8 (one FP32 scale).
 *
 * Codes always keep the logical row-major layout of the source, [M, N] with one byte each. Scales
 * of MXFP8 are stored in pairs (two neighbouring blocks of one line side by side):
 *   row orientation, blocks of 32 along N: [M, ceil(N/64), 2], a missing odd block is 00;
 *   col orientation, blocks of 32 along M: [P, N, 2], P = sum over groups of ceil(m_g/64);
 *     blocks restart at the first row of each group and a short last block stands alone.
 * Source: OCP MX v1.0; docs/spec/mxfp8.md and docs/spec/hif8.md. */
#ifndef OCT_KERNELS_QUANTIZE_H
#define OCT_KERNELS_QUANTIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/status.h"
#include "kernels/lazy.h"
#include "numeric/e8m0.h"
#include "numeric/hif8.h"
#include "tensor/tensor.h"

/* Rows of one matrix that belong together: group g is rows ends[g-1] .. ends[g]-1, ends[-1] = 0.
 * count 0 means one group of all rows. */
typedef struct oct_groups {
    int64_t count;
    const int64_t *ends; /* [count], not descending, last = rows */
} oct_groups;

/* Sum over groups of ceil(m_g / 64): the pair rows of the col orientation. */
int64_t oct_mx_col_pairs(const oct_groups *groups, int64_t rows);

/* Largest value that oct_mx_col_pairs can take for any split of `rows` into `count` groups. */
int64_t oct_mx_col_pairs_bound(int64_t count, int64_t rows);

/* What an observer sees: one finished result and its source. All borrowed for the call. */
typedef enum oct_quantize_kind {
    OCT_QUANTIZE_MX_ROW,
    OCT_QUANTIZE_MX_COL,
    OCT_QUANTIZE_HIF8
} oct_quantize_kind;

typedef struct oct_quantize_result {
    oct_quantize_kind kind;
    const oct_lazy *x;
    const oct_groups *groups; /* NULL: one group */
    const uint8_t *codes;     /* [M, N] */
    const void *scales;       /* MX: uint8 as in oct_mx_out; HiF8: float [max(groups, 1)] */
} oct_quantize_result;

/* An element-level observer for a later use (quantization statistics); NULL everywhere today. The
 * drivers call it once for every finished result, on the calling thread, after all codes and scales
 * are written; it may not change them. */
typedef struct oct_quantize_observer {
    void (*observe)(void *arg, const oct_quantize_result *result);
    void *arg;
} oct_quantize_observer;

/* Where an MX quantization puts its result; an orientation that is not wanted has NULL pointers. */
typedef struct oct_mx_out {
    uint8_t *row_codes;  /* [M, N] */
    uint8_t *row_scales; /* [M, ceil(N/64), 2] */
    uint8_t *col_codes;  /* [M, N] */
    uint8_t *col_scales; /* [P, N, 2] */
} oct_mx_out;

/* The inner loops. x points at the first element of a tile; ld counts elements between its rows,
 * code_ld bytes between rows of codes. dtype is F32 or BF16; no pointer needs alignment. */
typedef struct oct_quantize_kernels {
    /* m x n tile, row orientation. The tile starts at a multiple of 64 columns; scales points at
     * its first pair, rows of pairs are scale_ld bytes apart. Writes 2*ceil(n/64) bytes per row. */
    void (*mx_rows)(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n,
                    oct_mx_rule rule, uint8_t *codes, int64_t code_ld, uint8_t *scales,
                    int64_t scale_ld);
    /* 1 <= m <= 64 rows of one group, n columns, col orientation: scales [n, 2]. */
    void (*mx_cols)(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n,
                    oct_mx_rule rule, uint8_t *codes, int64_t code_ld, uint8_t *scales);
    /* The largest |x| of n elements, 0 if n is 0. Magnitudes are compared as bit patterns, so any
     * NaN wins over everything else. */
    float (*amax)(const void *x, oct_dtype dtype, int64_t n);
    /* codes[i] = HiF8(fl32(x[i] / scale)), nearest, ties away; saturate picks the `sat` mode. */
    void (*hif8_encode)(const void *x, oct_dtype dtype, int64_t n, float scale, bool saturate,
                        uint8_t *codes);
    const oct_quantize_observer *observer;
} oct_quantize_kernels;

void oct_quantize_kernels_init(oct_quantize_kernels *kernels, oct_isa isa);

/* MXFP8 of x [M, N] (F32 or BF16, any sizes >= 0). Row and col outputs in one pass over x where
 * both are wanted. Bit-identical for every thread count and instruction set.
 * A block with Inf or NaN: scale ff, codes 00. An all-zero block: scale 00.
 * x and the outputs do not overlap. groups only matter to the col orientation and may be NULL.
 * Errors: OCT_E_SHAPE if x is not 2-D F32/BF16 or the groups do not end at M; OCT_E_API if an
 * output has codes without scales or scales without codes; OCT_E_NOMEM. */
oct_status oct_mx_quantize(const oct_exec *exec, const oct_tensor *x, const oct_groups *groups,
                           oct_mx_rule rule, const oct_mx_out *out, oct_err *err) OCT_MUST_CHECK;

/* The same of a matrix that may be made while it is read. */
oct_status oct_mx_quantize_lazy(const oct_exec *exec, const oct_lazy *x, const oct_groups *groups,
                                oct_mx_rule rule, const oct_mx_out *out,
                                oct_err *err) OCT_MUST_CHECK;

/* Bytes of exec->scratch that oct_mx_quantize takes at most, and oct_hif8_amax or
 * oct_hif8_quantize, for any split of `rows` into `count` groups. */
int64_t oct_mx_quantize_bytes(int64_t count, int64_t rows);
int64_t oct_hif8_quantize_bytes(int64_t count, int64_t rows, int64_t cols);

/* amax[g] = max |x| over group g (0 for an empty group, NaN if it holds a NaN); one value when
 * groups is NULL or its count is 0. Errors: OCT_E_SHAPE if x is not 2-D F32/BF16 or the groups do
 * not end at M; OCT_E_NOMEM. */
oct_status oct_hif8_amax(const oct_exec *exec, const oct_tensor *x, const oct_groups *groups,
                         float *amax, oct_err *err) OCT_MUST_CHECK;

/* HiF8 of x [M, N] with given scales (oct_hif8_scale), one per group; one when groups is NULL or
 * its count is 0. codes [M, N]. Errors: as above. */
oct_status oct_hif8_quantize(const oct_exec *exec, const oct_tensor *x, const oct_groups *groups,
                             const float *scales, bool saturate, uint8_t *codes,
                             oct_err *err) OCT_MUST_CHECK;

/* The same of a matrix that may be made while it is read; with `kept` not NULL, [M, N] of its
 * dtype, what was made for the amax is kept there. Errors: also OCT_E_SHAPE for another `kept`. */
oct_status oct_hif8_amax_lazy(const oct_exec *exec, const oct_lazy *x, const oct_groups *groups,
                              const oct_tensor *kept, float *amax, oct_err *err) OCT_MUST_CHECK;
oct_status oct_hif8_quantize_lazy(const oct_exec *exec, const oct_lazy *x, const oct_groups *groups,
                                  const float *scales, bool saturate, uint8_t *codes,
                                  oct_err *err) OCT_MUST_CHECK;

#endif
