/* Random numbers and the comparison of floats for the tests of matrix products. */
#ifndef GEMM_RANDOM_H
#define GEMM_RANDOM_H

#include <math.h>
#include <stdint.h>

#include "numeric/bf16.h"

static uint64_t fixture_state = 1;

static uint32_t random_bits(void)
{
    fixture_state += 0x9e3779b97f4a7c15u;
    uint64_t z = fixture_state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

static int64_t random_below(int64_t n)
{
    return (int64_t)(random_bits() % (uint64_t)n);
}

static double random_normal(void)
{
    const double u = (random_bits() + 0.5) / 4294967296.0, v = random_bits() / 4294967296.0;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

static inline float one_nan(float x)
{
    return x != x ? oct_f32_from_bits(0x7fc00000u) : x;
}

#endif
