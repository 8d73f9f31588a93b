#include "numeric/fmath.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "numeric/bf16.h"

static double f64_from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint64_t f64_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* 2^n for normal results. */
static float exp2_f32(int n)
{
    return oct_f32_from_bits((uint32_t)(n + 127) << 23);
}

static double exp2_f64(int n)
{
    return f64_from_bits((uint64_t)(n + 1023) << 52);
}

/* x * 2^n rounded once, for 0.5 < x < 2 and |n| < 252: the first factor cannot round. */
static float scale_f32(float x, int n)
{
    return x * exp2_f32(n / 2) * exp2_f32(n - n / 2);
}

static double scale_f64(double x, int n)
{
    return x * exp2_f64(n / 2) * exp2_f64(n - n / 2);
}

float oct_expf(float x)
{
    /* x = n ln2 + r, |r| <= ln2 / 2. Adding 1.5 * 2^23 rounds to an integer, ties to even. */
    static const float magic = 0x1.8p23f;
    if (isnan(x))
        return x + x;
    x = x < 89.0f ? x : 89.0f;
    x = x > -104.0f ? x : -104.0f;
    const float n = fmaf(x, 0x1.715476p+0f, magic) - magic;
    float r = fmaf(n, -0x1.62e430p-1f, x);
    r = fmaf(n, 0x1.05c610p-29f, r);
    /* e^r = 1 + r + r^2 q(r); q minimises the relative error, which is 3.1e-9. */
    float p = 0x1.6a1e6ep-10f;
    p = fmaf(p, r, 0x1.123980p-7f);
    p = fmaf(p, r, 0x1.5558f6p-5f);
    p = fmaf(p, r, 0x1.555492p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return scale_f32(p, (int)n);
}

float oct_logf(float x)
{
    if (isnan(x))
        return x + x;
    if (x == 0.0f)
        return -INFINITY;
    if (x < 0.0f)
        return oct_f32_from_bits(0x7fc00000u);
    if (x == INFINITY)
        return x;
    const bool subnormal = x < 0x1p-126f;
    /* x = 2^e m with sqrt(1/2) <= m < sqrt(2). */
    const uint32_t root = 0x3f3504f3u; /* sqrt(1/2) */
    const uint32_t bits = oct_f32_bits(subnormal ? x * 0x1p23f : x) - root;
    const float e = (float)((int32_t)bits >> 23) - (subnormal ? 23.0f : 0.0f);
    const float f = oct_f32_from_bits((bits & 0x7fffffu) + root) - 1.0f;
    /* log(1 + f) = 2 atanh(s), s = f / (2 + f): 2s = f - s f, and the series goes on in s^2. */
    const float s = f / (2.0f + f);
    const float z = s * s;
    float p = 0x1.c71c72p-3f; /* 2/9 */
    p = fmaf(p, z, 0x1.24924ap-2f);
    p = fmaf(p, z, 0x1.99999ap-2f);
    p = fmaf(p, z, 0x1.555556p-1f);
    const float half_square = 0.5f * f * f;
    const float tail = s * fmaf(p, z, half_square);
    /* ln2 in two parts; e times the first is exact. */
    const float low = fmaf(e, 0x1.7f7d1cp-20f, tail) - half_square;
    return fmaf(e, 0x1.62e400p-1f, low + f);
}

float oct_sigmoidf(float x)
{
    if (isnan(x))
        return x + x;
    const float e = oct_expf(-fabsf(x));
    return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

double oct_exp(double x)
{
    if (isnan(x))
        return x + x;
    x = x < 710.0 ? x : 710.0;
    x = x > -746.0 ? x : -746.0;
    static const double magic = 0x1.8p52;
    const double n = fma(x, 0x1.71547652b82fep+0, magic) - magic;
    double r = fma(n, -0x1.62e42fefa39efp-1, x);
    r = fma(n, -0x1.abc9e3b39803fp-56, r);
    /* Taylor; |r|^14 / 14! < 5e-18. */
    double p = 1.0 / 6227020800.0;
    static const double inverse_factorial[] = {1.0 / 479001600.0,
                                               1.0 / 39916800.0,
                                               1.0 / 3628800.0,
                                               1.0 / 362880.0,
                                               1.0 / 40320.0,
                                               1.0 / 5040.0,
                                               1.0 / 720.0,
                                               1.0 / 120.0,
                                               1.0 / 24.0,
                                               1.0 / 6.0,
                                               0.5,
                                               1.0,
                                               1.0};
    for (size_t i = 0; i < sizeof inverse_factorial / sizeof *inverse_factorial; i++)
        p = fma(p, r, inverse_factorial[i]);
    return scale_f64(p, (int)n);
}

double oct_log(double x)
{
    if (isnan(x))
        return x + x;
    if (x == 0.0)
        return -(double)INFINITY;
    if (x < 0.0)
        return (double)oct_f32_from_bits(0x7fc00000u);
    if (x == (double)INFINITY)
        return x;
    const bool subnormal = x < 0x1p-1022;
    const uint64_t root = 0x3fe6a09e667f3bcdu; /* sqrt(1/2) */
    const uint64_t bits = f64_bits(subnormal ? x * 0x1p54 : x) - root;
    const double e = (double)((int64_t)bits >> 52) - (subnormal ? 54.0 : 0.0);
    const double f = f64_from_bits((bits & 0xfffffffffffffu) + root) - 1.0;
    const double s = f / (2.0 + f);
    const double z = s * s;
    double p = 0.0; /* sum of 2 / (2i + 1) z^(i-1), i = 1..10; z < 0.0295 */
    for (int i = 10; i >= 1; i--)
        p = fma(p, z, 2.0 / (2.0 * (double)i + 1.0));
    const double half_square = 0.5 * f * f;
    const double tail = s * fma(p, z, half_square);
    const double low = fma(e, 0x1.ef35793c76730p-45, tail) - half_square;
    return fma(e, 0x1.62e42fefa3800p-1, low + f);
}

/* r in [-pi/4, pi/4] of x = r + k pi/2, for |x| <= 2^30; returns k mod 4. */
static unsigned reduce_f64(double x, double *r)
{
    static const double magic = 0x1.8p52;
    const double k = fma(x, 0x1.45f306dc9c883p-1, magic) - magic;
    *r = fma(k, -0x1.1a62633145c07p-54, fma(k, -0x1.921fb54442d18p+0, x));
    return (unsigned)((int64_t)k & 3);
}

/* The same for finite |x| >= 2^30: x 2/pi modulo 4 in 96-bit fixed point (Payne & Hanek 1983). */
static unsigned reduce_large_f32(float x, double *r)
{
    static const uint32_t two_over_pi[] = {0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
                                           0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u};
    const uint32_t bits = oct_f32_bits(x);
    const uint64_t m = (bits & 0x7fffffu) | 0x800000u; /* |x| = m 2^e */
    const unsigned e = (bits >> 23 & 0xffu) - 150u;
    /* Bits of 2/pi before `start` give multiples of 4. */
    const unsigned start = e - 2u, shift = start % 32u;
    uint32_t window[3];
    for (unsigned i = 0; i < 3; i++) {
        const uint64_t pair =
            (uint64_t)two_over_pi[start / 32u + i] << 32 | two_over_pi[start / 32u + i + 1u];
        window[i] = (uint32_t)(pair << shift >> 32);
    }
    const uint64_t low = m * window[2];
    const uint64_t middle = m * window[1] + (low >> 32);
    const uint64_t high = m * window[0] + (middle >> 32);
    const uint64_t turns = high << 32 | (middle & 0xffffffffu); /* quadrants, times 2^62 */
    const uint64_t k = (turns + ((uint64_t)1 << 61)) >> 62;
    *r = (double)(int64_t)(turns - (k << 62)) * (0x1p-62 * 0x1.921fb54442d18p+0);
    if (bits >> 31) {
        *r = -*r;
        return (unsigned)(4u - k) & 3u;
    }
    return (unsigned)k & 3u;
}

/* sin for even, cos for odd quadrants, |r| <= pi/4; Taylor, the first term left out is < 1e-17. */
static double quadrant_value(unsigned quadrant, double r)
{
    const double z = r * r;
    double value;
    if (quadrant & 1u) {
        double p = 1.0 / 20922789888000.0;
        p = fma(p, z, -1.0 / 87178291200.0);
        p = fma(p, z, 1.0 / 479001600.0);
        p = fma(p, z, -1.0 / 3628800.0);
        p = fma(p, z, 1.0 / 40320.0);
        p = fma(p, z, -1.0 / 720.0);
        p = fma(p, z, 1.0 / 24.0);
        p = fma(p, z, -0.5);
        value = fma(p, z, 1.0);
    } else {
        double p = 1.0 / 355687428096000.0;
        p = fma(p, z, -1.0 / 1307674368000.0);
        p = fma(p, z, 1.0 / 6227020800.0);
        p = fma(p, z, -1.0 / 39916800.0);
        p = fma(p, z, 1.0 / 362880.0);
        p = fma(p, z, -1.0 / 5040.0);
        p = fma(p, z, 1.0 / 120.0);
        p = fma(p, z, -1.0 / 6.0);
        value = fma(p * z, r, r);
    }
    return quadrant & 2u ? -value : value;
}

/* cos x = sin(x + pi/2): one quadrant further. */
static float sine_f32(float x, unsigned quadrants)
{
    if (isnan(x))
        return x + x;
    if (isinf(x))
        return oct_f32_from_bits(0x7fc00000u);
    double r;
    const unsigned k = fabsf(x) < 0x1p30f ? reduce_f64((double)x, &r) : reduce_large_f32(x, &r);
    if (r == 0.0 && quadrants == 0 && x == 0.0f)
        return x;
    return (float)quadrant_value((k + quadrants) & 3u, r);
}

float oct_sinf(float x)
{
    return sine_f32(x, 0);
}

float oct_cosf(float x)
{
    return sine_f32(x, 1);
}

static double sine_f64(double x, unsigned quadrants)
{
    if (isnan(x))
        return x + x;
    if (fabs(x) > 0x1p30)
        return (double)oct_f32_from_bits(0x7fc00000u);
    double r;
    const unsigned k = reduce_f64(x, &r);
    return quadrant_value((k + quadrants) & 3u, r);
}

double oct_sin(double x)
{
    return sine_f64(x, 0);
}

double oct_cos(double x)
{
    return sine_f64(x, 1);
}

double oct_pow(double x, double y)
{
    if (y == 0.0)
        return 1.0;
    if (x == 0.0)
        return y > 0.0 ? 0.0 : (double)INFINITY;
    return oct_exp(y * oct_log(x));
}

double oct_powi(double x, int64_t n)
{
    double power = 1.0;
    for (uint64_t bits = n < 0 ? -(uint64_t)n : (uint64_t)n; bits; bits >>= 1) {
        if (bits & 1u)
            power *= x;
        x *= x;
    }
    return n < 0 ? 1.0 / power : power;
}
