/* Counter-based random numbers: a value is a pure function of (seed, name, index), so that it does
 * not depend on ranks, threads or order. Philox4x32-10 (Salmon et al., SC'11). */
#ifndef OCT_BASE_RNG_H
#define OCT_BASE_RNG_H

#include <stdint.h>

/* The key of a stream. */
typedef struct oct_rng {
    uint64_t key;
} oct_rng;

/* A stream named by a seed and a string (an FQN, "sampler", ...). */
oct_rng oct_rng_stream(uint64_t seed, const char *name);

/* Four random words of block `counter` of the stream. */
void oct_rng_block(oct_rng stream, uint64_t counter, uint32_t out[4]);

/* 64 random bits at `index`. */
uint64_t oct_rng_u64(oct_rng stream, uint64_t index);

/* Uniform in [0, bound), bound >= 1, unbiased to within 2^-64. */
uint64_t oct_rng_below(oct_rng stream, uint64_t index, uint64_t bound);

/* Uniform in [0, 1) with 53 bits. */
double oct_rng_uniform(oct_rng stream, uint64_t index);

#endif
