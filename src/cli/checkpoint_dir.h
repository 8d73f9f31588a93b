/* How commands find checkpoints: DIR may be one checkpoint (step-N), a folder of them, or a run
 * directory. */
#ifndef OCT_CLI_CHECKPOINT_DIR_H
#define OCT_CLI_CHECKPOINT_DIR_H

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

enum { OCT_CHECKPOINT_DIR_MAX = 4096 };

typedef struct oct_checkpoint_dir {
    char root[OCT_CHECKPOINT_DIR_MAX];   /* folder with step-N entries, "" for a lone checkpoint */
    char single[OCT_CHECKPOINT_DIR_MAX]; /* the checkpoint itself if DIR is one, else "" */
    int64_t *steps;                      /* ascending; empty for a lone checkpoint */
    int64_t count;
} oct_checkpoint_dir;

/* Errors: OCT_E_CHECKPOINT if DIR is none of the three. */
oct_status oct_checkpoint_dir_find(const char *dir, oct_arena *arena, oct_checkpoint_dir *out,
                                   oct_err *err) OCT_MUST_CHECK;

#endif
