/* The table of inner loops of the matrix products. Included by kernels/gemm.h only. All loops work
 * on panels: the rows of an operand in strips of OCT_GEMM_MR (left) or OCT_GEMM_NR (right), k
 * outermost, missing rows zero. A tile is float c[OCT_GEMM_MR][OCT_GEMM_NR]. */
#ifndef OCT_KERNELS_GEMM_TABLE_H
#define OCT_KERNELS_GEMM_TABLE_H

enum {
    OCT_GEMM_MR = 14,      /* rows of a left panel and of a tile */
    OCT_GEMM_NR = 32,      /* rows of a right panel, columns of a tile */
    OCT_GEMM_LANES = 16,   /* rows that one packing call handles */
    OCT_GEMM_GROUP = 64,   /* k per unit of a block-integer operand */
    OCT_GEMM_STRIP = 8,    /* left panels whose tiles with a right panel are made together */
    OCT_GEMM_CHUNK = 2048, /* k per round of dense part and remainders; part of the definition */
    OCT_PRESENT_STEP = 4   /* words of 64 k that are looked at together */
};

/* What the 128 magnitudes of an 8-bit format are. A finite non-zero value is
 * mantissa * 2^exponent with 8 <= mantissa <= 15; zero, NaN and Inf have mantissa 0. */
typedef struct oct_code_table {
    uint8_t mantissa[128];
    int8_t exponent[128];
    uint8_t bound[128];   /* MXFP8 only: ceil(|x| / 4) */
    float value[256];     /* by whole code */
    uint8_t bf16[2][128]; /* low and high byte of the value as BF16, which holds it exactly */
} oct_code_table;

/* An operand as the FP32-FMA product reads it. F32 or BF16: element (r, i) is data[r*ld + i] if
 * k_contiguous, data[i*ld + r] otherwise. 8-bit: `codes`, and only rows and k of the rest. */
typedef struct oct_fma_source {
    const void *data;
    oct_dtype dtype;
    int64_t ld;
    bool k_contiguous;
    int64_t rows, k;
    const oct_quantized_matrix *codes; /* or NULL; decoded with MX scales, without that of HiF8 */
    const oct_lazy *made; /* or NULL; its rows from first_row on. Kernels see stored tiles of it. */
    int64_t first_row;
} oct_fma_source;

/* Integer bounds of one group of 16 rows, from which the units follow (block-integer.md 3). */
typedef struct oct_group_bounds {
    uint32_t norm[2][OCT_GEMM_LANES]; /* MXFP8: per block; HiF8: [0] only */
    int32_t top[OCT_GEMM_LANES];      /* HiF8: exponent of the largest magnitude */
    bool nonfinite;                   /* a NaN or Inf code is there */
} oct_group_bounds;

/* What the elements of 16 rows need to become mantissas of their units. */
typedef struct oct_group_units {
    int16_t shift[2][OCT_GEMM_LANES]; /* per block: m = x * 2^shift */
    int32_t exponent[OCT_GEMM_LANES]; /* of the unit; 0 for a row of zeros */
    float unit[OCT_GEMM_LANES];       /* 2^exponent, -149 .. 127 */
    int32_t lowest, highest; /* exponent over the rows that are not zero; INT16_MAX, INT16_MIN if
                                all are */
} oct_group_units;

/* An element that is no multiple of its unit. */
typedef struct oct_remainder {
    float value;  /* exact, MX scale included */
    uint16_t k;   /* within the chunk */
    uint16_t row; /* within the panel */
} oct_remainder;

/* The remainders of one panel in one chunk, k ascending. Bit k of `present`: element k has some. */
typedef struct oct_remainder_list {
    const oct_remainder *entries;
    int64_t count;
    int64_t words;           /* a multiple of OCT_PRESENT_STEP */
    const uint64_t *present; /* [words] */
    const uint16_t *before;  /* [words], entries of the words before; undefined for a word of 0 */
} oct_remainder_list;

/* Tiles of one right panel with left panels that follow one another, in one chunk. */
typedef struct oct_tile_column {
    int64_t tiles;                  /* 1 .. OCT_GEMM_STRIP */
    const int16_t *a;               /* of the first left panel, the next a_stride further */
    const float *a_unit;            /* the same, unit_stride further */
    int64_t a_stride, unit_stride;  /* elements */
    const oct_remainder_list *left; /* [tiles], of the left panels; count 0: none */
    float *c;                       /* [tiles][OCT_GEMM_MR][OCT_GEMM_NR] */
} oct_tile_column;

/* How a finished chain becomes an element of C. */
typedef struct oct_gemm_finish {
    const oct_gemm_out *out;
    bool scaled; /* c = (c * left_scale) * right_scale first */
    float left_scale, right_scale;
} oct_gemm_finish;

struct oct_gemm_kernels {
    /* panel[kc][width] = elements k .. k+kc-1 of rows row .. row+width-1 as FP32, rows past the end
     * zero. */
    void (*fma_pack)(const oct_fma_source *source, const oct_code_table *table, int64_t row,
                     int64_t width, int64_t k, int64_t kc, float *panel);
    /* c[i][j] = fma(a[k][i], b[k][j], c[i][j]) for k ascending. */
    void (*fma_tile)(int64_t kc, const float *a, const float *b, float *c);

    /* The codes of one group of one panel as quads: byte (f, r, j) of quads[16][lanes][4] is
     * element k + 4f + j of row row + r. Rows from `width` on, and rows and k past the end, are 00.
     */
    void (*gather_quads)(const oct_quantized_matrix *source, int64_t row, int64_t width,
                         int64_t lanes, int64_t k, uint8_t *quads);
    /* What follows reads 16 of those rows; lines of quads are `stride` bytes apart. */
    void (*bounds_mxfp8)(const oct_code_table *table, const uint8_t *quads, int64_t stride,
                         oct_group_bounds *bounds);
    void (*bounds_hif8)(const oct_code_table *table, const uint8_t *quads, int64_t stride,
                        oct_group_bounds *bounds);
    /* Units from bounds, block-integer.md 3.1 and 3.2. scales: E8M0 of both blocks of each row. */
    void (*units_mxfp8)(const oct_group_bounds *bounds, const uint8_t scales[OCT_GEMM_LANES][2],
                        oct_group_units *units);
    void (*units_hif8)(const oct_group_bounds *bounds, oct_group_units *units);
    /* m = x * 2^shift[block][row] where integral, else 0 and a remainder. out: pair lines
     * `out_stride` int16 apart, only the first `lanes` rows are written. Bit 2r + j of lost[p]
     * tells that element 2p + j of row r is a remainder. */
    void (*mantissas)(const oct_code_table *table, const uint8_t *quads, int64_t stride,
                      const int16_t shift[2][OCT_GEMM_LANES], int64_t lanes, int16_t *out,
                      int64_t out_stride, uint32_t lost[OCT_GEMM_GROUP / 2]);
    /* The elements k that are lost in any row, bit k; *count grows by the number of remainders. */
    uint64_t (*lost_elements)(const uint32_t lost[OCT_GEMM_GROUP / 2], int64_t *count);

    /* For every group g: c = fma(float(dot of a and b), a_unit * b_unit, c), dots in int32.
     * a [groups*32][MR][2], b [groups*32][NR][2], units [groups][MR] and [groups][NR]. */
    void (*integer_tile)(int64_t groups, const int16_t *a, const int16_t *b, const float *a_unit,
                         const float *b_unit, float *c);
    /* Left remainders times right mantissas into c[row][0..NR). */
    void (*left_remainders)(const oct_remainder_list *left, const int16_t *b, const float *b_unit,
                            float *c);
    /* For every tile: d = 0; right remainders times left mantissas, then times left remainders,
     * into d; c += d. */
    void (*right_remainders)(const oct_remainder_list *right, const oct_tile_column *column);

    /* Writes the first `rows` x `cols` elements of a tile to C at (row, col). */
    void (*finish_tile)(const oct_gemm_finish *finish, const float *c, int64_t row, int64_t rows,
                        int64_t col, int64_t cols);

    oct_code_table tables[2]; /* by oct_format */
};

#endif
