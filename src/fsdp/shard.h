/* Which rows of dim 0 each rank owns. The same cut for every format. */
#ifndef OCT_FSDP_SHARD_H
#define OCT_FSDP_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

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

#endif
