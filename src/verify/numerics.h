/* Layered numerics (design document, 17.3.2): every product of each 8-bit format against the BF16
 * module's result on the same inputs, then one layer with loss and gradients. Inputs follow from a
 * seed, and every machine computes the same bits: a figure only moves when the arithmetic does. */
#ifndef OCT_VERIFY_NUMERICS_H
#define OCT_VERIFY_NUMERICS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "numeric/error_sums.h"
#include "verify/numerics_limits.h"

enum { OCT_NUMERICS_MAX_ROWS = 320, OCT_NUMERICS_MAX_LAYERS = 2, OCT_NUMERICS_MAX_FORMATS = 3 };

/* One tensor of one case in one format. Strings are static, but for `shape`. */
typedef struct oct_numerics_row {
    const char *op;     /* "dense", "grouped", "experts", "dense layer", "MoE layer" */
    const char *data;   /* "gaussian", "lognormal", "outlier", "tokens" */
    const char *format; /* "mxfp8_e4m3", "hif8" */
    const char *tensor; /* "output", "dinput", "dweight", a parameter, "loss", "grad_norm" */
    char shape[64];     /* tokens x in x out, and the rows of each group */
    double max_abs, mse, nrmse, cosine;
    double peak;                     /* max_abs / root mean square of the BF16 result */
    int64_t nonfinite;               /* NaN and infinities of either side */
    const oct_numerics_limit *limit; /* NULL: nothing is frozen for it */
    const char *left;                /* the figure that left its limits, or NULL */
} oct_numerics_row;

/* One layer in the three formats: loss (nats per token) and gradient norm of its first step. */
typedef struct oct_numerics_layer {
    const char *name;
    int formats;
    const char *format[OCT_NUMERICS_MAX_FORMATS];
    double loss[OCT_NUMERICS_MAX_FORMATS], grad_norm[OCT_NUMERICS_MAX_FORMATS];
} oct_numerics_layer;

/* Begin with zeros. Plain memory. */
typedef struct oct_numerics {
    uint64_t seed;
    int count, layer_count;
    oct_numerics_row rows[OCT_NUMERICS_MAX_ROWS];
    oct_numerics_layer layers[OCT_NUMERICS_MAX_LAYERS];
} oct_numerics;

/* Dense and grouped products and whole experts: adds a row per case, data, format and tensor. */
oct_status oct_numerics_products(oct_numerics *numerics, oct_err *err) OCT_MUST_CHECK;

/* A dense and a MoE layer through the stages of the trainer. Writes their configurations into the
 * folder `dir`, which exists. */
oct_status oct_numerics_layers(oct_numerics *numerics, const char *dir,
                               oct_err *err) OCT_MUST_CHECK;

/* Adds a row of these sums and judges it. Errors: OCT_E_API if there is no room. */
oct_status oct_numerics_add(oct_numerics *numerics, const oct_numerics_row *names,
                            const oct_error_sums *sums, oct_err *err) OCT_MUST_CHECK;

/* Judges a row: sets limit and left. */
void oct_numerics_judge(oct_numerics_row *row);

/* How many rows left their limits. */
int oct_numerics_failures(const oct_numerics *numerics);

/* "MoE layer tokens hif8 q_proj: NRMSE 0.3, at most 0.1 is required" or "... : inside". */
void oct_numerics_text(const oct_numerics_row *row, char *text, size_t bytes);

/* The error tables of a report: {"version", "data", "margin", "seed", "rows": [..], "layers":
 * [..]}. NULL without memory. */
json_t *oct_numerics_json(const oct_numerics *numerics);

#endif
