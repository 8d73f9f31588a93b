/* Medians of measured values. */
#ifndef OCT_BASE_MEDIAN_H
#define OCT_BASE_MEDIAN_H

#include <stdint.h>

/* The middle one of `count` > 0 values, or the mean of the two in the middle. Sorts them. */
double oct_median(double *values, int64_t count);

/* The median of x[i] / y[i]: what two variants that take turns are worth beside each other. What
 * slows a machine down for a while slows both sides of a ratio. work: room for `count` values; may
 * be neither x nor y. */
double oct_median_ratio(const double *x, const double *y, int64_t count, double *work);

#endif
