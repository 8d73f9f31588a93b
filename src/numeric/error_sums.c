#include "numeric/error_sums.h"

#include <math.h>

static oct_scaled scaled_of(double x)
{
    oct_scaled parts = {0};
    parts.value = frexp(x, &parts.exponent);
    return parts;
}

/* x - y of finite numbers, also where a double overflows. */
static oct_scaled difference_of(double x, double y)
{
    oct_scaled parts = scaled_of(x - y);
    if (isinf(x - y)) {
        parts = scaled_of(0.5 * x - 0.5 * y);
        parts.exponent++;
    }
    return parts;
}

static void add_product(oct_scaled *sum, oct_scaled a, oct_scaled b)
{
    const double term = a.value * b.value;
    const int exponent = a.exponent + b.exponent;
    if (term == 0.0)
        return;
    if (sum->value == 0.0)
        sum->exponent = exponent;
    if (exponent > sum->exponent) {
        sum->value = ldexp(sum->value, sum->exponent - exponent);
        sum->exponent = exponent;
    }
    sum->value += ldexp(term, exponent - sum->exponent);
}

static oct_scaled root_of(oct_scaled x)
{
    const int odd = x.exponent & 1;
    return (oct_scaled){.value = sqrt(odd ? 2.0 * x.value : x.value),
                        .exponent = (x.exponent - odd) / 2};
}

void oct_error_sums_add(oct_error_sums *sums, double reference, double other, int64_t at)
{
    const double x = reference, y = other;
    sums->nan[0] += isnan(x);
    sums->nan[1] += isnan(y);
    sums->inf[0] += isinf(x) != 0;
    sums->inf[1] += isinf(y) != 0;
    if (!isfinite(x) || !isfinite(y)) {
        sums->nonfinite_different += !(x == y || (isnan(x) && isnan(y)));
        return;
    }
    sums->pairs++;
    const double error = fabs(x - y);
    if (error > sums->largest) {
        sums->largest = error;
        sums->largest_at = at;
    }
    const oct_scaled e = difference_of(x, y), p = scaled_of(x), q = scaled_of(y);
    add_product(&sums->squares, e, e);
    add_product(&sums->reference, p, p);
    add_product(&sums->other, q, q);
    add_product(&sums->product, p, q);
}

double oct_error_sums_mse(const oct_error_sums *sums)
{
    if (sums->pairs == 0)
        return 0.0;
    return ldexp(sums->squares.value / (double)sums->pairs, sums->squares.exponent);
}

double oct_error_sums_reference_rms(const oct_error_sums *sums)
{
    if (sums->pairs == 0)
        return 0.0;
    const oct_scaled root =
        root_of((oct_scaled){.value = sums->reference.value / (double)sums->pairs,
                             .exponent = sums->reference.exponent});
    return ldexp(root.value, root.exponent);
}

double oct_error_sums_nrmse(const oct_error_sums *sums)
{
    if (sums->squares.value == 0.0)
        return 0.0;
    const oct_scaled ratio = {.value = sums->squares.value / sums->reference.value,
                              .exponent = sums->squares.exponent - sums->reference.exponent};
    const oct_scaled root = root_of(ratio);
    return ldexp(root.value, root.exponent);
}

double oct_error_sums_cosine(const oct_error_sums *sums)
{
    if (sums->reference.value == 0.0 && sums->other.value == 0.0)
        return 1.0;
    if (sums->reference.value == 0.0 || sums->other.value == 0.0)
        return 0.0;
    const oct_scaled a = root_of(sums->reference), b = root_of(sums->other);
    return ldexp(sums->product.value / (a.value * b.value),
                 sums->product.exponent - a.exponent - b.exponent);
}
