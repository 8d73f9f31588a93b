/* A file that is written from front to back, with the CRC-32 of everything written so far. */
#ifndef OCT_CHECKPOINT_STREAM_H
#define OCT_CHECKPOINT_STREAM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"

/* Bytes collected before one write, at most. */
enum { OCT_STREAM_BUFFER_BYTES = 8 << 20 };

/* Owner of its buffer and of the open file. */
typedef struct oct_stream {
    oct_file file;
    unsigned char *buffer;
    size_t used, capacity;
    uint64_t bytes;         /* written so far, the buffer included */
    uint32_t crc;           /* CRC-32 of those bytes */
    atomic_ullong *flushed; /* or NULL: goes up by what the file took, for a thread that watches */
} oct_stream;

/* Creates `path` (borrowed, must not exist). expected_bytes sizes the buffer: more or less may be
 * written. Errors: OCT_E_IO, OCT_E_NOMEM. */
oct_status oct_stream_create(const oct_file_table *files, const char *path, uint64_t expected_bytes,
                             oct_stream *out, oct_err *err) OCT_MUST_CHECK;

/* Appends. If part_crc is not NULL it is the CRC-32 of a part of the file and goes on over `data`.
 * Every byte is run through CRC-32 once. */
oct_status oct_stream_write(oct_stream *stream, const void *data, size_t bytes, uint32_t *part_crc,
                            oct_err *err) OCT_MUST_CHECK;

/* Appends zeros up to the next multiple of `alignment` (at most 4096). */
oct_status oct_stream_align(oct_stream *stream, uint64_t alignment, oct_err *err) OCT_MUST_CHECK;

/* Writes the rest, syncs and closes. The buffer is freed in either case. */
oct_status oct_stream_finish(oct_stream *stream, oct_err *err) OCT_MUST_CHECK;

/* For error paths, also after a failed create or finish. */
void oct_stream_discard(oct_stream *stream);

#endif
