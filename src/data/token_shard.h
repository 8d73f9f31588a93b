/* Token shards: files of token ids with a self-describing header. The format is
 * docs/spec/token-shard.md. */
#ifndef OCT_DATA_TOKEN_SHARD_H
#define OCT_DATA_TOKEN_SHARD_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    OCT_TOKEN_SHARD_HEADER_BYTES = 128,
    OCT_TOKEN_SHARD_TOKENIZER_BYTES = 80 /* with at least one closing NUL */
};

typedef struct oct_token_shard {
    int64_t tokens;
    int64_t vocab_size; /* ids are below it; 1 .. 2^31 */
    int width_bytes;    /* 2 = uint16, 4 = uint32 */
    char tokenizer[OCT_TOKEN_SHARD_TOKENIZER_BYTES];
} oct_token_shard;

/* Reads and checks the header of the open file `fd` of file_bytes bytes; `path` is for messages.
 * Errors: OCT_E_DATA for anything that is not a whole shard, with the value found and required. */
oct_status oct_token_shard_open(int fd, int64_t file_bytes, const char *path, oct_token_shard *out,
                                oct_err *err) OCT_MUST_CHECK;

/* Tokens [first, first + count) as they stand in the file, widened to 32 bits. Offsets are 64 bits
 * throughout. Errors: OCT_E_API outside the shard, OCT_E_DATA when the file gives less. */
oct_status oct_token_shard_read(const oct_token_shard *shard, int fd, const char *path,
                                int64_t first, int64_t count, uint32_t *ids,
                                oct_err *err) OCT_MUST_CHECK;

/* Writes a shard. The header comes last, so that a file that was never finished is refused. */
typedef struct oct_token_shard_writer oct_token_shard_writer;

/* width_bytes 2 or 4; 0 takes the smaller one that holds vocab_size. Replaces `path`.
 * Errors: OCT_E_API for arguments out of range, OCT_E_IO. */
oct_status oct_token_shard_create(const char *path, int width_bytes, int64_t vocab_size,
                                  const char *tokenizer, oct_token_shard_writer **out,
                                  oct_err *err) OCT_MUST_CHECK;

/* Errors: OCT_E_DATA for an id >= vocab_size (with its index), OCT_E_IO. */
oct_status oct_token_shard_append(oct_token_shard_writer *writer, const uint32_t *ids,
                                  int64_t count, oct_err *err) OCT_MUST_CHECK;

/* Completes and closes the file, and frees the writer in any case. */
oct_status oct_token_shard_finish(oct_token_shard_writer *writer, oct_err *err) OCT_MUST_CHECK;

/* Gives up: closes and removes the file. */
void oct_token_shard_abandon(oct_token_shard_writer *writer);

#endif
