/* Checked size arithmetic: products and sums of sizes never wrap silently. */
#ifndef OCT_BASE_SIZE_H
#define OCT_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* true and *out = a * b, or false on overflow. */
static inline bool oct_size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool oct_size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* ceil(a / b) for a >= 0, b > 0. */
static inline int64_t oct_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b > 0);
}

static inline int64_t oct_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t oct_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
