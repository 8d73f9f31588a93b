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
#include "tensor/tensor.h"

typedef struct oct_exec oct_exec;

/* The shared-exponent rule: 1 rounds up (training), 0 is the OCP floor rule (tools and tests). */
typedef enum oct_mx_rule { OCT_MX_RULE_FLOOR = 0, OCT_MX_RULE_ROUND_UP = 1 } oct_mx_rule;

/* Rows of one matrix that belong together: group g is rows ends[g-1] .. ends[g]-1, ends[-1] = 0.
 * count 0 means one group of all rows. */
typedef struct oct_groups {
    int64_t count;
    const int64_t *ends; /* [count], ascending, last = rows */
} oct_groups;

/* Sum over groups of ceil(m_g / 64): the pair rows of the col orientation. */
int64_t oct_mx_col_pairs(const oct_groups *groups, int64_t rows);

/* Largest value that oct_mx_col_pairs can take for any split of `rows` into `count` groups. */
int64_t oct_mx_col_pairs_bound(int64_t count, int64_t rows);

/* An element-level observer for a later use (quantization statistics); NULL everywhere today. It
 * sees the source, codes and scales of a finished tensor and may not change them. */
typedef struct oct_quantize_observer {
    void (*observe)(void *arg, const oct_tensor *x, const uint8_t *codes, const void *scales);
    void *arg;
} oct_quantize_observer;

/* Where an MX quantization puts its result; an orientation that is not wanted has NULL pointers. */
typedef struct oct_mx_out {
    uint8_t *row_codes;  /* [M, N] */
    uint8_t *row_scales; /* [M, ceil(N/64), 2] */
    uint8_t *col_codes;  /* [M, N] */
    uint8_t *col_scales; /* [P, N, 2] */
} oct_mx_out;

/* The inner loops. x points at the first element of a strip; ld counts elements of the source. */
typedef struct oct_quantize_kernels {
    /* One strip of m rows (m >= 1), row orientation: scales [m, ceil(N/64), 2]. */
    void (*mx_rows)(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n,
                    oct_mx_rule rule, uint8_t *codes, uint8_t *scales);
    /* One pair of blocks: m <= 64 rows of one group, n columns, col orientation: codes with row
     * stride code_ld, scales [n, 2]. */
    void (*mx_cols)(const void *x, oct_dtype dtype, int64_t ld, int64_t m, int64_t n,
                    oct_mx_rule rule, uint8_t *codes, int64_t code_ld, uint8_t *scales);
    /* max |x| of n elements; NaN if any element is NaN. */
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
 * Errors: OCT_E_SHAPE if x is not 2-D F32/BF16 or the groups do not end at M. */
oct_status oct_mx_quantize(const oct_exec *exec, const oct_tensor *x, const oct_groups *groups,
                           oct_mx_rule rule, const oct_mx_out *out, oct_err *err) OCT_MUST_CHECK;

/* amax[g] = max |x| over group g (0 for an empty group, NaN if it holds a NaN); one value when
 * groups is NULL or its count is 0. */
oct_status oct_hif8_amax(const oct_exec *exec, const oct_tensor *x, const oct_groups *groups,
                         float *amax, oct_err *err) OCT_MUST_CHECK;

/* scale = amax / format_max (IEEE) if amax is finite and the quotient a normal number, else 1.0. */
float oct_hif8_scale(float amax, float format_max);

/* HiF8 of x [M, N] with given scales, one per group. codes [M, N]. */
oct_status oct_hif8_quantize(const oct_exec *exec, const oct_tensor *x, const oct_groups *groups,
                             const float *scales, bool saturate, uint8_t *codes,
                             oct_err *err) OCT_MUST_CHECK;

#endif
