/* The table through which everything above speaks to an 8-bit format. One folder and one table per
 * format; nothing outside those folders asks which format it is. */
#ifndef OCT_LOW_PRECISION_FORMAT_H
#define OCT_LOW_PRECISION_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "kernels/exec.h"
#include "low_precision/operand.h"
#include "low_precision/recipe.h"

struct oct_weight_storage;

/* Where the result of a quantization goes; `operand` NULL: this orientation is not wanted. */
typedef struct oct_quantize_want {
    oct_operand *operand;
    oct_arena *arena;
} oct_quantize_want;

/* One physical tensor of a weight. */
typedef struct oct_physical_tensor {
    const char *name; /* "row_data", "row_scale", ... */
    oct_tensor tensor;
    bool replicated; /* the same on every rank, whatever rows it owns: one scale for all */
} oct_physical_tensor;

enum { OCT_WEIGHT_MAX_TENSORS = 4 };

/* How often each kernel of a product was used: one per product, one per expert if grouped. */
typedef struct oct_matmul_routes {
    int64_t block_integer, fma;
    double pack_seconds; /* spent on packing the operands */
} oct_matmul_routes;

/* A kernel that a format cannot do without. */
typedef struct oct_gate_kernel {
    const char *name;  /* in the table of kernels */
    const char *duty;  /* what it is for, in the words of the design document */
    const char *fault; /* fault point that hides it */
    bool present;
} oct_gate_kernel;

/* Errors: OCT_E_UNSUPPORTED naming the first kernel that is not there, and its table. */
oct_status oct_gate_require(const oct_kernels *kernels, const oct_gate_kernel *needed, int count,
                            oct_err *err) OCT_MUST_CHECK;

struct oct_low_precision_format {
    const char *name;    /* low_precision.format */
    const char *scaling; /* low_precision.scaling */
    oct_dtype data_dtype, scale_dtype;
    bool orientations_share;                /* both orientations of an operand are the same bytes */
    const oct_low_precision_recipe *recipe; /* the one that training uses */

    /* Can these kernels compute this format? The error says what is missing. */
    oct_status (*gate)(const oct_kernels *kernels, oct_err *err);

    /* x [M, N] F32 or BF16, both orientations in one pass where both are wanted. Data that both
     * share lives in the arena of `col`, which must live as long as that of `row`. */
    oct_status (*quantize)(const oct_exec *exec, const oct_quantizer *quantizer, const oct_lazy *x,
                           const oct_groups *groups, const oct_quantize_want *row,
                           const oct_quantize_want *col, oct_err *err);

    /* Names, dtypes and shapes of the storage of a weight [N, K] or [E, out, in]; returns how many.
     */
    int (*weight_tensors)(int ndim, const int64_t *shape, oct_physical_tensor *tensors);
    /* Number of FP32 scales of a weight; 0 if scales are not derived from an amax of the whole. */
    int64_t (*weight_scales)(int ndim, const int64_t *shape);
    /* amax of the master, one per FP32 scale. NULL if weight_scales is always 0. */
    oct_status (*weight_amax)(const oct_exec *exec, const struct oct_weight_storage *weight,
                              const oct_tensor *master, float *amax, oct_err *err);
    /* Rewrites the storage from the FP32 master; weight->amax is already set. */
    oct_status (*refresh)(const oct_exec *exec, struct oct_weight_storage *weight,
                          const oct_tensor *master, oct_err *err);
    /* Which of the tensors other ranks need for fprop, for dgrad or for both; ascending. Returns
     * how many. */
    int (*gather)(bool fprop, bool dgrad, int *which);
    /* The operand of one orientation: pointers only. */
    void (*select)(const struct oct_weight_storage *weight, oct_orientation orientation,
                   oct_operand *out);

    /* dtype and shape that the scales of an operand must have; looks at data, orientation,
     * transposed and groups. */
    oct_tensor (*scale_layout)(const oct_operand *operand);
    /* One slice as the kernels take it. */
    oct_quantized_matrix (*matrix)(const oct_operand *operand, const oct_operand_slice *slice);
    /* Arguments are checked. groups NULL: a plain product. */
    oct_status (*matmul)(const oct_exec *exec, const oct_operand *left, const oct_operand *right,
                         oct_layout layout, const oct_groups *groups, const oct_gemm_out *out,
                         oct_matmul_routes *routes, oct_err *err);

    /* May a cut between two ranks lie after `rows` of dim 0? (The last shard may be short.) */
    bool (*shard_rows_legal)(int ndim, const int64_t *shape, int64_t rows);
    const char *shard_rule; /* for messages: what shard_rows_legal requires */
};

/* All formats; ends with NULL. */
extern const oct_low_precision_format *const oct_low_precision_formats[];

#endif
