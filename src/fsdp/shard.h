/* Which rows of dim 0 each rank owns. The same cut for every format. */
#ifndef OCT_FSDP_SHARD_H
#define OCT_FSDP_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "module/module.h"

typedef enum oct_shard_rule {
    OCT_SHARD_TILE, /* whole 64-row tiles, uneven, no padding; whole experts of a 3-D weight */
    OCT_SHARD_EVEN  /* dim 0 must divide by the ranks */
} oct_shard_rule;

enum { OCT_SHARD_TILE_ROWS = 64 };

/* Rows of dim 0 (experts of a 3-D weight) that a rank owns. */
typedef struct oct_shard {
    int64_t row_begin, rows;
} oct_shard;

/* TILE: rank r of R owns tiles r*T/R .. (r+1)*T/R - 1 of the T = ceil(M/64) tiles of a tensor with
 * M rows, or experts r*E/R .. (r+1)*E/R - 1 of E. EVEN: M/R rows; call only if oct_shard_divides.
 */
oct_shard oct_shard_of(oct_shard_rule rule, int ndim, const int64_t *shape, int64_t ranks,
                       int64_t rank);

/* Can this rule cut the tensor at all? TILE always can. */
bool oct_shard_divides(oct_shard_rule rule, const int64_t *shape, int64_t ranks);

/* What the compute form of a parameter requires of a cut between two ranks. */
typedef struct oct_shard_law {
    bool (*rows_legal)(int ndim, const int64_t *shape, int64_t rows); /* after `rows` of dim 0? */
    const char *required;                                             /* for messages */
} oct_shard_law;

/* How a run shards. */
typedef struct oct_sharding {
    oct_shard_rule rule;
    int64_t ranks;
    bool fallback_to_unsharded; /* what cannot be cut is replicated */
} oct_sharding;

/* Is the parameter replicated? Only what a rule or the law (NULL: none) forbids to cut is. Errors:
 * OCT_E_SHAPE naming the parameter, its rows and what is required, without fallback_to_unsharded.
 */
oct_status oct_shard_decide(const oct_sharding *sharding, const oct_param *param,
                            const oct_shard_law *law, bool *replicated,
                            oct_err *err) OCT_MUST_CHECK;

/* Rows of the parameter that a rank owns: all if it is replicated. */
oct_shard oct_shard_of_param(const oct_sharding *sharding, const oct_param *param, bool replicated,
                             int64_t rank);

#endif
