/* Which sample comes next. A pure function of (seed, position), so that the order does not depend
 * on ranks, threads or restarts: the whole state of a run's data is one counter. */
#ifndef OCT_DATA_SAMPLER_H
#define OCT_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct oct_sampler {
    uint64_t seed;
    int64_t samples; /* per epoch, >= 1 */
    bool shuffle;    /* false: 0, 1, 2, ... in every epoch */
} oct_sampler;

/* The sample read at position >= 0, counted over all epochs: every epoch of `samples` positions
 * visits each sample once. With shuffle the order of an epoch is a permutation of its own: a
 * Feistel network over base/rng.h, keyed by (seed, epoch), that walks its cycle back into the
 * range. */
int64_t oct_sampler_at(const oct_sampler *sampler, int64_t position);

#endif
