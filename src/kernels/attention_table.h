/* The table of inner loops of attention. Included by kernels/attention.h only.
 *
 * All of them work on FP32 tiles in scratch memory: 64-byte aligned, rows of a multiple of 16
 * floats. "Columns" are the vectorised axis: every column is computed as by the scalar loop of the
 * ref kernel, so the instruction set cannot show in the bits. */
#ifndef OCT_KERNELS_ATTENTION_TABLE_H
#define OCT_KERNELS_ATTENTION_TABLE_H

/* Queries and keys of one tile. Part of the definition: the online softmax rescales per key tile.
 */
enum { OCT_ATTENTION_TILE = 64, OCT_ATTENTION_LANES = 16 };

/* What a causal tile leaves out of a product. */
typedef enum oct_attention_terms {
    OCT_ATTENTION_TERMS_ALL,
    OCT_ATTENTION_TERMS_ALL_FROM_ROW_ON, /* all terms, but c[m,n] is defined for n >= m only: rows
                                            are keys, columns are queries */
    OCT_ATTENTION_TERMS_UP_TO_COLUMN, /* only k <= n: columns are queries, the depth runs over keys
                                       */
    OCT_ATTENTION_TERMS_FROM_ROW      /* only k >= m: rows are keys, the depth runs over queries */
} oct_attention_terms;

/* c[m*ldc + n] = (accumulate ? c[m*ldc + n] : 0), then fmaf(a[m*a_row + k*a_depth], b[k*ldb + n],
 * c) for k = 0 .. depth-1 ascending. cols is a multiple of 16; b and c are aligned, a need not be.
 */
typedef struct oct_attention_product {
    const float *a, *b;
    float *c;
    int64_t a_row, a_depth, ldb, ldc;
    int64_t rows, cols, depth;
    bool accumulate;
    oct_attention_terms terms;
} oct_attention_product;

/* `rows` rows of `dim` elements in a tensor of F32 or BF16. */
typedef struct oct_attention_rows {
    void *data;
    oct_dtype dtype;
    int64_t stride;
    int64_t rows, dim;
} oct_attention_rows;

struct oct_attention_kernels {
    /* dst[r*ld + d] = src row r in FP32; columns dim..ld-1 and rows up to the next multiple of 16
     * become 0. */
    void (*load)(const oct_attention_rows *src, float *dst, int64_t ld);
    /* dst row r = round(src[r*ld + d] * factor). */
    void (*store)(const float *src, int64_t ld, float factor, const oct_attention_rows *dst);
    /* dst[c*ld_dst + r] = src[r*ld_src + c]; rows and cols are multiples of 16. */
    void (*transpose)(const float *src, int64_t ld_src, int64_t rows, int64_t cols, float *dst,
                      int64_t ld_dst);
    void (*product)(const oct_attention_product *product);
    /* c[m*OCT_ATTENTION_TILE + n] *= factor_n[n]. */
    void (*scale_columns)(float *c, int64_t rows, int64_t cols, const float *factor_n);
    /* dot_n[n] = chain over m ascending of fmaf(a[m*TILE + n], b[m*TILE + n], .), starting at 0. */
    void (*column_dots)(const float *a, const float *b, int64_t rows, int64_t cols, float *dot_n);
    /* One key tile of the online softmax, s[key*TILE + query]: see kernels/attention.c, step 2. */
    void (*softmax)(float *s, int64_t keys, int64_t queries, float scale, bool diagonal,
                    float *max_n, float *sum_n, float *rescale_n);
    /* Backward of one tile: see kernels/attention.c, steps 6 and 7. s becomes P, dp becomes dS. In
     * a diagonal tile only query >= key is defined, before and after. */
    void (*softmax_backward)(float *s, float *dp, int64_t keys, int64_t queries, float scale,
                             bool diagonal, const float *lse_n, const float *delta_n);
};

/* The loops in scalar C; they are the meaning of the table. */
void oct_attention_kernels_ref(oct_attention_kernels *kernels);
#if defined(__x86_64__)
void oct_attention_kernels_avx2(oct_attention_kernels *kernels);
void oct_attention_kernels_avx512(oct_attention_kernels *kernels);
#endif

#endif
