#include "data/sampler.h"

#include "base/rng.h"

/* Rounds of the Feistel network. Four make it a pseudorandom permutation for random round functions
 * (Luby and Rackoff, 1988); the halves are small here, so twice as many. */
enum { ROUNDS = 8 };

/* A permutation of [0, 2^(2 * half_bits)). */
static uint64_t permute(oct_rng stream, int half_bits, uint64_t value)
{
    const uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t left = value >> half_bits, right = value & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const uint64_t mixed = left ^ (oct_rng_u64(stream, round << 32 | right) & mask);
        left = right;
        right = mixed;
    }
    return left << half_bits | right;
}

int64_t oct_sampler_at(const oct_sampler *sampler, int64_t position)
{
    const uint64_t samples = (uint64_t)sampler->samples;
    const uint64_t epoch = (uint64_t)position / samples;
    uint64_t sample = (uint64_t)position % samples;
    if (!sampler->shuffle || samples == 1)
        return (int64_t)sample;
    /* The smallest even number of bits that holds every index: at least a quarter of the domain is
     * in range, so few steps along the cycle come back into it. Halves stay within 32 bits. */
    int half_bits = 1;
    while (half_bits < 32 && (uint64_t)1 << (2 * half_bits) < samples)
        half_bits++;
    const uint64_t epoch_seed = oct_rng_u64(oct_rng_stream(sampler->seed, "sampler"), epoch);
    const oct_rng stream = oct_rng_stream(epoch_seed, "sampler epoch");
    do
        sample = permute(stream, half_bits, sample);
    while (sample >= samples);
    return (int64_t)sample;
}
