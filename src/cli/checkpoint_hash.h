/* A hash of what a checkpoint holds. */
#ifndef OCT_CLI_CHECKPOINT_HASH_H
#define OCT_CLI_CHECKPOINT_HASH_H

#include "base/arena.h"
#include "checkpoint/checkpoint.h"

/* FNV-1a over keys, dtypes, shapes and values in the order of the keys: the same for every number
 * of ranks and files. `arena` for strings. Errors: those of reading. */
oct_status oct_checkpoint_hash(const oct_checkpoint *checkpoint, oct_arena *arena, uint64_t *out,
                               oct_err *err) OCT_MUST_CHECK;

#endif
