#include "base/median.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double oct_median(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}

double oct_median_ratio(const double *x, const double *y, int64_t count, double *work)
{
    for (int64_t i = 0; i < count; i++)
        work[i] = x[i] / y[i];
    return oct_median(work, count);
}
