#include "base/rng.h"

/* SplitMix64 finalizer (Steele et al., 2014): spreads a key over all bits. */
static uint64_t mix64(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

oct_rng oct_rng_stream(uint64_t seed, const char *name)
{
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a, 64 bits */
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        hash = (hash ^ *c) * 0x100000001B3u;
    return (oct_rng){.key = mix64(hash ^ mix64(seed))};
}

void oct_rng_block(oct_rng stream, uint64_t counter, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)stream.key, k1 = (uint32_t)(stream.key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t oct_rng_u64(oct_rng stream, uint64_t index)
{
    uint32_t words[4];
    oct_rng_block(stream, index >> 1, words);
    const int half = (int)(index & 1) * 2;
    return (uint64_t)words[half + 1] << 32 | words[half];
}

uint64_t oct_rng_below(oct_rng stream, uint64_t index, uint64_t bound)
{
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)(((wide)oct_rng_u64(stream, index) * bound) >> 64);
}

double oct_rng_uniform(oct_rng stream, uint64_t index)
{
    return (double)(oct_rng_u64(stream, index) >> 11) * 0x1p-53;
}
