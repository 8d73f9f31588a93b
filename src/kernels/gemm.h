/* Matrix products.
 *
 * Two kinds, one output form:
 *   FP32-FMA product: BF16 or FP32 operands, every output is one chain of FP32 FMAs, k ascending.
 *   Block-integer product: 8-bit operands, exact integer dots of 64 elements,
 * docs/spec/block-integer.md. Both write finished values through an oct_gemm_out. Results do not
 * depend on instruction set, threads or tile edges. A NaN result is always stored as 7fc00000 (7fc0
 * in BF16). */
#ifndef OCT_KERNELS_GEMM_H
#define OCT_KERNELS_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/cpu.h"
#include "base/status.h"
#include "kernels/lazy.h"
#include "kernels/quantize.h"
#include "tensor/tensor.h"

/* Layout of C[M,N] = op(A) op(B): NN A[M,K] B[K,N]; NT A[M,K] B[N,K]; TN A[K,M] B[K,N]. */
typedef enum oct_layout { OCT_LAYOUT_NN, OCT_LAYOUT_NT, OCT_LAYOUT_TN } oct_layout;

/* What becomes of a finished FP32 value c (scaled and biased) of the product. */
typedef enum oct_gemm_store {
    OCT_GEMM_STORE,    /* C = c, rounded to the dtype of C */
    OCT_GEMM_CONTINUE, /* FP32-FMA product only: the chain starts at the F32 value in C */
    OCT_GEMM_FOLD      /* C (F32) = C + r(c), r(c) = c rounded to BF16 if round_bf16 */
} oct_gemm_store;

/* "store", "continue", "fold"; "NN", "NT", "TN". For traces. */
const char *oct_gemm_store_name(oct_gemm_store store);
const char *oct_layout_name(oct_layout layout);

/* Output of a product. F32 or BF16. */
typedef struct oct_gemm_out {
    void *data;      /* C, row-major */
    int64_t ld;      /* elements between rows of C */
    oct_dtype dtype; /* F32, or BF16 (STORE only) */
    oct_gemm_store store;
    bool round_bf16;   /* c is rounded to BF16 before STORE or FOLD (gradients reduced in BF16);
                          not with CONTINUE */
    const float *bias; /* [N] added in FP32 before the one rounding, or NULL */
} oct_gemm_out;

/* --- the FP32-FMA product ------------------------------------------------------------------ */

/* A dense matrix operand as stored, or made where it is packed. F32 or BF16. */
typedef struct oct_matrix {
    const void *data;
    oct_dtype dtype;
    int64_t rows, cols;   /* as stored */
    int64_t ld;           /* elements between rows */
    const oct_lazy *made; /* or NULL; then data and ld do not count */
    int64_t first_row;    /* of `made` */
} oct_matrix;

oct_matrix oct_matrix_of(const oct_tensor *tensor);  /* its 2-D view */
oct_matrix oct_matrix_of_lazy(const oct_lazy *lazy); /* all of it; `lazy` must outlive the result */

/* C = op(A) op(B). M = 0 or N = 0 does nothing; K = 0 gives c = 0.
 * Errors: OCT_E_SHAPE if the inner dims differ or a dtype is not F32/BF16. */
oct_status oct_gemm(const oct_exec *exec, const oct_matrix *a, const oct_matrix *b,
                    oct_layout layout, const oct_gemm_out *out, oct_err *err) OCT_MUST_CHECK;

/* Grouped by rows of A (and of B for TN). NT: A [S,K], B [G*N,K], C [S,N]; NN: A [S,K], B [G*K,N],
 * C [S,N]; TN: A [S,M], B [S,N], C [G*M,N]. An empty group gives zeros in TN. */
oct_status oct_gemm_grouped(const oct_exec *exec, const oct_matrix *a, const oct_matrix *b,
                            const oct_groups *groups, oct_layout layout, const oct_gemm_out *out,
                            oct_err *err) OCT_MUST_CHECK;

/* --- the block-integer product -------------------------------------------------------------- */

/* The 8-bit element formats; the scale semantics follow from them. */
typedef enum oct_format { OCT_FORMAT_MXFP8, OCT_FORMAT_HIF8 } oct_format;

/* One 8-bit operand as stored, seen as `rows` vectors of length `k` (the contraction). Element
 * (r, i) is codes[r*ld + i] if k_contiguous, codes[i*ld + r] otherwise.
 * MXFP8: scale byte of block b of vector r is
 *   scales[(r*ceil(k/64) + b/2)*2 + b%2] if k_contiguous, scales[((b/2)*scale_ld + r)*2 + b%2]
 *   otherwise.
 * HiF8: scales NULL, one `scale` for all. */
typedef struct oct_quantized_matrix {
    oct_format format;
    const uint8_t *codes;
    int64_t ld;
    bool k_contiguous;
    int64_t rows, k;
    const uint8_t *scales;
    int64_t scale_ld;
    float scale;
} oct_quantized_matrix;

/* Which side of a product an operand is on; the packed forms differ. */
typedef enum oct_side { OCT_SIDE_LEFT, OCT_SIDE_RIGHT } oct_side;

/* Packed form of one operand: int16 mantissas in panels, units, the list of remainders, and the
 * counts that choose the route. Opaque to callers; memory comes from the arena given to oct_pack.
 * Codes and scales of the source must outlive it: the FP32-FMA route reads them. */
typedef struct oct_panels oct_panels;

/* Packs one operand. Deterministic for any thread count. `arena` may be exec->scratch; the work
 * memory of the packing then stays among the panels until the caller rewinds.
 * Errors: OCT_E_SHAPE for negative sizes, OCT_E_NOMEM. */
oct_status oct_pack(const oct_exec *exec, const oct_quantized_matrix *source, oct_side side,
                    oct_arena *arena, oct_panels **out, oct_err *err) OCT_MUST_CHECK;

/* Bytes that a BF16 or FP32 product takes from scratch for the packed form of one [rows, k]
 * operand, and any product for its tiles. For plans of memory. */
int64_t oct_gemm_packed_bytes(int64_t rows, int64_t k, oct_side side);
int64_t oct_gemm_work_bytes(int threads);

/* Bytes that oct_pack leaves taken from its arena for a [rows, k] operand without remainders. */
int64_t oct_panels_bytes(int64_t rows, int64_t k, oct_side side);

/* Bytes that oct_pack takes from its arena for a [rows, k] operand while it packs: there is room
 * for the longest list of remainders. What it leaves taken is less. */
int64_t oct_panels_bytes_bound(int64_t rows, int64_t k, oct_side side);

/* C[left rows, right rows] = sum over k. Left is the activation (fprop) or the output gradient
 * (dgrad, wgrad). *used_fma (may be NULL) tells whether the FP32-FMA route was taken.
 * Errors: OCT_E_SHAPE if k or formats differ. */
oct_status oct_block_integer_gemm(const oct_exec *exec, const oct_panels *left,
                                  const oct_panels *right, const oct_gemm_out *out, bool *used_fma,
                                  oct_err *err) OCT_MUST_CHECK;

/* The same product, same bits, of a right operand that is used once: it is packed some panels at a
 * time, which are multiplied while they are in the cache; its panels never exist as a whole. Codes
 * and scales are read again if the FP32-FMA route turns out to be the one. STORE only: a part of C
 * may be written twice. *pack_seconds grows by the time of packing. Errors: as
 * oct_block_integer_gemm, OCT_E_API for FOLD, OCT_E_NOMEM. */
oct_status oct_block_integer_stream(const oct_exec *exec, const oct_panels *left,
                                    const oct_quantized_matrix *right, const oct_gemm_out *out,
                                    bool *used_fma, double *pack_seconds,
                                    oct_err *err) OCT_MUST_CHECK;

/* Inner loops of both products; see kernels/gemm_ref.c for the contracts. */
typedef struct oct_gemm_kernels oct_gemm_kernels;
#include "kernels/gemm_table.h"

/* ref, then what `isa` has beyond it. */
void oct_gemm_kernels_init(oct_gemm_kernels *kernels, oct_isa isa);

#endif
