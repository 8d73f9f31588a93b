/* How far values are from reference values: sums over pairs that hold for every finite double. */
#ifndef OCT_NUMERIC_ERROR_SUMS_H
#define OCT_NUMERIC_ERROR_SUMS_H

#include <stdint.h>

/* value * 2^exponent: squares of doubles would leave the range of a double. Begin with zeros. */
typedef struct oct_scaled {
    double value;
    int exponent;
} oct_scaled;

/* Begin with zeros. A pair with a NaN or an infinity counts below and enters no sum. */
typedef struct oct_error_sums {
    int64_t pairs;               /* of finite values */
    int64_t nan[2], inf[2];      /* in the reference, in the other */
    int64_t nonfinite_different; /* pairs with such a value that are not the same one */
    double largest;              /* |reference - other| */
    int64_t largest_at;          /* the `at` of the first pair with it */
    oct_scaled squares, reference, other, product; /* of errors, values, and both values */
} oct_error_sums;

/* Adds one pair; `at` says where it stands. */
void oct_error_sums_add(oct_error_sums *sums, double reference, double other, int64_t at);

/* Mean squared error; 0 without pairs. Infinite where a double overflows. */
double oct_error_sums_mse(const oct_error_sums *sums);

/* sqrt(mean(reference^2)); 0 without pairs. */
double oct_error_sums_reference_rms(const oct_error_sums *sums);

/* sqrt(sum of squared errors / sum of squared references); 0 without errors. */
double oct_error_sums_nrmse(const oct_error_sums *sums);

/* Cosine of the angle between the two; 1 if both are zero, 0 if one is. */
double oct_error_sums_cosine(const oct_error_sums *sums);

#endif
