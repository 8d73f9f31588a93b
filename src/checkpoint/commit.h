/* COMMIT.json: the last file of a checkpoint, which says what all the others are. */
#ifndef OCT_CHECKPOINT_COMMIT_H
#define OCT_CHECKPOINT_COMMIT_H

#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"

#define OCT_COMMIT_FILE   "COMMIT.json"
#define OCT_METADATA_FILE ".metadata"

enum { OCT_COMMIT_MAX_BYTES = 64 << 20 };

typedef struct oct_commit_file {
    const char *name;
    uint64_t bytes;
    uint32_t crc; /* CRC-32 of the whole file */
} oct_commit_file;

typedef struct oct_commit {
    int64_t step;
    int64_t world; /* ranks that wrote the checkpoint */
    const char *config_hash;
    const char *model_json; /* one JSON value */
    const oct_commit_file *files;
    int64_t file_count;
} oct_commit;

/* The text, ending in the member self_crc32: the CRC-32 of every byte in front of its comma.
 * Errors: OCT_E_API if model_json is no JSON; OCT_E_NOMEM. */
oct_status oct_commit_write(const oct_commit *commit, oct_json *out, oct_err *err) OCT_MUST_CHECK;

/* Parses and checks a text. Strings and the file list live in `arena`. Errors: OCT_E_CORRUPT naming
 * `where`, what was found and what is required. */
oct_status oct_commit_read(const char *text, size_t bytes, const char *where, oct_arena *arena,
                           oct_commit *out, oct_err *err) OCT_MUST_CHECK;

/* NULL if there is no file of this name. */
const oct_commit_file *oct_commit_find(const oct_commit *commit, const char *name);

#endif
