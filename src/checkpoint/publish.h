/* The end of a save, done by one rank: from data files that are complete and durable to a
 * checkpoint under its final name. */
#ifndef OCT_CHECKPOINT_PUBLISH_H
#define OCT_CHECKPOINT_PUBLISH_H

#include <stdint.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/commit.h"
#include "checkpoint/dcp.h"

/* Everything is borrowed. */
typedef struct oct_publication {
    const oct_file_table *files;
    const char *root;
    int64_t step;
    uint32_t tag;              /* of step-N.tmp-<tag>, which holds the data files */
    const oct_item_list *list; /* keys, dtypes and shapes are read, no data */
    oct_dcp_chunk *chunks;     /* of all ranks; is sorted by item and row */
    int64_t chunk_count;
    oct_commit_file *records; /* [world + 1]: the data files; the last gets .metadata */
    int64_t world;
    const char *config_hash, *model_json;
    int64_t keep_latest_k;
    oct_checkpoint_warning warn; /* may be NULL */
    void *warn_arg;
} oct_publication;

/* Checks that every data file is there, writes .metadata and COMMIT.json, renames the directory to
 * step-N and prunes. On a failure the temporary directory is left to the caller and an older step-N
 * stands. Errors: OCT_E_IO, OCT_E_NOMEM; OCT_E_CORRUPT for a key used twice or rows that no rank
 * wrote. */
oct_status oct_publish(const oct_publication *publication, oct_err *err) OCT_MUST_CHECK;

/* Removes a directory below the root that nobody looks at any more; what does not work is a
 * warning, since the next start tries again. */
void oct_publish_remove(const oct_file_table *files, const char *dir, oct_checkpoint_warning warn,
                        void *warn_arg);

#endif
