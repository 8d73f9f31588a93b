#include "checkpoint/stream.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

oct_status oct_stream_create(const oct_file_table *files, const char *path, uint64_t expected_bytes,
                             oct_stream *out, oct_err *err)
{
    enum { MIN_BUFFER_BYTES = 4096 };
    const uint64_t bytes = expected_bytes > MIN_BUFFER_BYTES ? expected_bytes : MIN_BUFFER_BYTES;
    *out = (oct_stream){.file = {.table = files, .path = path, .handle = -1},
                        .capacity = bytes < OCT_STREAM_BUFFER_BYTES ? (size_t)bytes
                                                                    : OCT_STREAM_BUFFER_BYTES};
    out->buffer = malloc(out->capacity);
    if (!out->buffer)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot write '%s': no memory for %zu bytes", path,
                        out->capacity);
    return oct_file_create(files, path, &out->file, err);
}

static oct_status flush(oct_stream *stream, oct_err *err)
{
    const uint64_t at = stream->bytes - stream->used;
    OCT_TRY(oct_file_write(&stream->file, stream->buffer, stream->used, at, err));
    if (stream->flushed)
        atomic_fetch_add_explicit(stream->flushed, stream->used, memory_order_relaxed);
    stream->used = 0;
    return OCT_OK;
}

oct_status oct_stream_write(oct_stream *stream, const void *data, size_t bytes, uint32_t *part_crc,
                            oct_err *err)
{
    const unsigned char *from = data;
    while (bytes > 0) {
        const size_t room = stream->capacity - stream->used;
        const size_t piece = bytes < room ? bytes : room;
        memcpy(stream->buffer + stream->used, from, piece);
        const uLong crc = crc32(0, from, (uInt)piece);
        stream->crc = (uint32_t)crc32_combine(stream->crc, crc, (z_off_t)piece);
        if (part_crc)
            *part_crc = (uint32_t)crc32_combine(*part_crc, crc, (z_off_t)piece);
        stream->used += piece;
        stream->bytes += piece;
        from += piece;
        bytes -= piece;
        if (stream->used == stream->capacity)
            OCT_TRY(flush(stream, err));
    }
    return OCT_OK;
}

oct_status oct_stream_align(oct_stream *stream, uint64_t alignment, oct_err *err)
{
    static const unsigned char zeros[4096];
    const uint64_t over = stream->bytes % alignment;
    return over == 0 ? OCT_OK
                     : oct_stream_write(stream, zeros, (size_t)(alignment - over), NULL, err);
}

oct_status oct_stream_finish(oct_stream *stream, oct_err *err)
{
    oct_status status = flush(stream, err);
    if (status == OCT_OK)
        status = oct_file_sync(&stream->file, err);
    if (status == OCT_OK)
        status = oct_file_close(&stream->file, err);
    oct_stream_discard(stream);
    return status;
}

void oct_stream_discard(oct_stream *stream)
{
    free(stream->buffer);
    stream->buffer = NULL;
    oct_file_discard(&stream->file);
}
