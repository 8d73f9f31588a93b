/* The frozen thresholds of the layered numerics (design document, 17.3.2): one table, in
 * numerics_limits.c, made from measurements and never edited by hand. */
#ifndef OCT_VERIFY_NUMERICS_LIMITS_H
#define OCT_VERIFY_NUMERICS_LIMITS_H

/* What was measured over the seeds 1 .. OCT_NUMERICS_SEEDS and all sizes of a case. */
typedef struct oct_numerics_limit {
    const char *op, *data, *format, *tensor;
    double nrmse_least, nrmse_most; /* of loss and grad_norm: |difference| / BF16's */
    double cosine_least;
    double peak_most;
} oct_numerics_limit;

/* Changes with every new measurement; the comment on the table says why it was made. */
#define OCT_NUMERICS_VERSION 1
#define OCT_NUMERICS_DATA    "seeds 1 to 8, formats of docs/spec as of 2026-11-30"

enum { OCT_NUMERICS_SEEDS = 8 };

/* A figure may leave what was measured by this factor: NRMSE on either side, so that a product that
 * was not made in 8 bits is noticed too; 1 - cosine by its square; the largest error by its square,
 * being one element's. A difference of loss or norm, the sum of many errors of either sign, by
 * OCT_NUMERICS_SCALAR_MARGIN, and only upward. */
#define OCT_NUMERICS_MARGIN        1.25
#define OCT_NUMERICS_SCALAR_MARGIN 2.0

extern const oct_numerics_limit oct_numerics_limits[];
extern const int oct_numerics_limit_count;

/* NULL if nothing is frozen for it. */
const oct_numerics_limit *oct_numerics_limit_of(const char *op, const char *data,
                                                const char *format, const char *tensor);

#endif
