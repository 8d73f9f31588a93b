#include "data/token_shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "base/utf8.h"
#include "data/file_io.h"

/* The header, little endian: docs/spec/token-shard.md. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_WIDTH = 12,
    AT_TOKENS = 16,
    AT_VOCAB = 24,
    AT_TOKENIZER = 32,
    AT_RESERVED = 112,
    MAGIC_BYTES = 8,
    VERSION = 1,
    CHUNK_BYTES = 16384
};

static const char magic[MAGIC_BYTES + 1] = "OCTETTOK";

static const int64_t MAX_VOCAB = (int64_t)1 << 31;

static uint64_t load_le(const unsigned char *bytes, int count)
{
    uint64_t value = 0;
    for (int i = count - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

static void store_le(unsigned char *bytes, int count, uint64_t value)
{
    for (int i = 0; i < count; i++, value >>= 8)
        bytes[i] = (unsigned char)value;
}

/* --- Reading --- */

static oct_status check_magic(const unsigned char *header, const char *path, oct_err *err)
{
    char found[MAGIC_BYTES + 1] = {0};
    if (memcmp(header + AT_MAGIC, magic, MAGIC_BYTES) == 0)
        return OCT_OK;
    for (int i = 0; i < MAGIC_BYTES; i++)
        found[i] = header[i] >= 0x20 && header[i] < 0x7f ? (char)header[i] : '.';
    return OCT_FAIL(err, OCT_E_DATA, "cannot read token shard: magic '%s', '%s' is required (%s)",
                    found, magic, path);
}

static oct_status check_sizes(uint64_t tokens, int width, int64_t file_bytes, const char *path,
                              oct_err *err)
{
    const uint64_t payload = (uint64_t)(file_bytes - OCT_TOKEN_SHARD_HEADER_BYTES);
    if (payload % (uint64_t)width != 0)
        return OCT_FAIL(
            err, OCT_E_DATA,
            "cannot read token shard: %llu bytes of tokens, a multiple of %d is required "
            "(%s)",
            (unsigned long long)payload, width, path);
    if (payload / (uint64_t)width != tokens)
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot read token shard: the file holds %llu tokens, the header says %llu "
                        "(%s)",
                        (unsigned long long)(payload / (uint64_t)width), (unsigned long long)tokens,
                        path);
    return OCT_OK;
}

/* `id` fills its field of the header. */
static oct_status check_tokenizer(const char *id, const char *path, oct_err *err)
{
    const size_t length = strnlen(id, OCT_TOKEN_SHARD_TOKENIZER_BYTES);
    if (length < 1 || length == OCT_TOKEN_SHARD_TOKENIZER_BYTES)
        return OCT_FAIL(
            err, OCT_E_DATA,
            "cannot read token shard: tokenizer id of %s bytes, 1 to %d are required (%s)",
            length ? "80 or more" : "0", OCT_TOKEN_SHARD_TOKENIZER_BYTES - 1, path);
    for (size_t i = length; i < OCT_TOKEN_SHARD_TOKENIZER_BYTES; i++)
        if (id[i] != '\0')
            return OCT_FAIL(err, OCT_E_DATA,
                            "cannot read token shard: byte %zu of the tokenizer id is 0x%02x after "
                            "its end, 0 is required (%s)",
                            i, (unsigned)(unsigned char)id[i], path);
    if (!oct_utf8_is_valid(id))
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot read token shard: the tokenizer id is not valid UTF-8, 1 to %d "
                        "bytes of UTF-8 are required (%s)",
                        OCT_TOKEN_SHARD_TOKENIZER_BYTES - 1, path);
    return OCT_OK;
}

oct_status oct_token_shard_open(int fd, int64_t file_bytes, const char *path, oct_token_shard *out,
                                oct_err *err)
{
    unsigned char header[OCT_TOKEN_SHARD_HEADER_BYTES];
    if (file_bytes < (int64_t)sizeof header)
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot read token shard: %lld bytes, a header of %d is required (%s)",
                        (long long)file_bytes, OCT_TOKEN_SHARD_HEADER_BYTES, path);
    OCT_TRY(oct_data_read_at(fd, path, 0, header, sizeof header, err));
    OCT_TRY(check_magic(header, path, err));
    const uint64_t version = load_le(header + AT_VERSION, 4), width = load_le(header + AT_WIDTH, 4);
    const uint64_t tokens = load_le(header + AT_TOKENS, 8), vocab = load_le(header + AT_VOCAB, 8);
    if (version != VERSION)
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot read token shard: version %llu, %d is required (%s)",
                        (unsigned long long)version, VERSION, path);
    if (width != 2 && width != 4)
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot read token shard: %llu bytes per token, 2 or 4 are required (%s)",
                        (unsigned long long)width, path);
    const uint64_t max_vocab = width == 2 ? 65536 : (uint64_t)MAX_VOCAB;
    if (vocab < 1 || vocab > max_vocab)
        return OCT_FAIL(
            err, OCT_E_DATA,
            "cannot read token shard: vocabulary of %llu, 1 to %llu is required with %llu "
            "bytes per token (%s)",
            (unsigned long long)vocab, (unsigned long long)max_vocab, (unsigned long long)width,
            path);
    OCT_TRY(check_tokenizer((const char *)header + AT_TOKENIZER, path, err));
    for (int i = AT_RESERVED; i < OCT_TOKEN_SHARD_HEADER_BYTES; i++)
        if (header[i] != 0)
            return OCT_FAIL(
                err, OCT_E_DATA,
                "cannot read token shard: reserved byte %d is 0x%02x, 0 is required (%s)", i,
                header[i], path);
    OCT_TRY(check_sizes(tokens, (int)width, file_bytes, path, err));
    *out = (oct_token_shard){
        .tokens = (int64_t)tokens, .vocab_size = (int64_t)vocab, .width_bytes = (int)width};
    memcpy(out->tokenizer, header + AT_TOKENIZER, sizeof out->tokenizer);
    return OCT_OK;
}

oct_status oct_token_shard_read(const oct_token_shard *shard, int fd, const char *path,
                                int64_t first, int64_t count, uint32_t *ids, oct_err *err)
{
    if (first < 0 || count < 0 || first > shard->tokens - count)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot read tokens: %lld from %lld on, the shard has %lld (%s)",
                        (long long)count, (long long)first, (long long)shard->tokens, path);
    unsigned char chunk[CHUNK_BYTES];
    const int64_t per_chunk = CHUNK_BYTES / shard->width_bytes;
    for (int64_t done = 0; done < count;) {
        const int64_t now = oct_min_i64(count - done, per_chunk);
        const int64_t offset = OCT_TOKEN_SHARD_HEADER_BYTES + (first + done) * shard->width_bytes;
        OCT_TRY(oct_data_read_at(fd, path, offset, chunk, (size_t)(now * shard->width_bytes), err));
        for (int64_t i = 0; i < now; i++)
            ids[done + i] = (uint32_t)load_le(chunk + i * shard->width_bytes, shard->width_bytes);
        done += now;
    }
    return OCT_OK;
}

/* --- Writing --- */

struct oct_token_shard_writer {
    int fd;
    char *path;
    oct_token_shard shard;
};

oct_status oct_token_shard_create(const char *path, int width_bytes, int64_t vocab_size,
                                  const char *tokenizer, oct_token_shard_writer **out, oct_err *err)
{
    const int width = width_bytes ? width_bytes : vocab_size <= 65536 ? 2 : 4;
    if ((width != 2 && width != 4) || vocab_size < 1 || vocab_size > MAX_VOCAB ||
        (width == 2 && vocab_size > 65536))
        return OCT_FAIL(
            err, OCT_E_API,
            "cannot write token shard: vocabulary of %lld in %d bytes per token, at most "
            "65536 in 2 or 2^31 in 4 is required (%s)",
            (long long)vocab_size, width, path);
    const size_t length = strlen(tokenizer);
    if (length < 1 || length >= OCT_TOKEN_SHARD_TOKENIZER_BYTES)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot write token shard: tokenizer id of %zu bytes, 1 to %d are required "
                        "(%s)",
                        length, OCT_TOKEN_SHARD_TOKENIZER_BYTES - 1, path);
    oct_token_shard_writer *writer = calloc(1, sizeof *writer);
    if (!writer || !(writer->path = strdup(path))) {
        free(writer);
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot write token shard: no memory (%s)", path);
    }
    writer->shard = (oct_token_shard){.vocab_size = vocab_size, .width_bytes = width};
    memcpy(writer->shard.tokenizer, tokenizer, length);
    writer->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    const unsigned char blank[OCT_TOKEN_SHARD_HEADER_BYTES] = {0};
    oct_status status = OCT_OK;
    if (writer->fd < 0)
        status =
            OCT_FAIL(err, OCT_E_IO, "cannot create token shard: %s (%s)", strerror(errno), path);
    else
        status = oct_data_write_at(writer->fd, path, 0, blank, sizeof blank, err);
    if (status != OCT_OK) {
        oct_token_shard_abandon(writer);
        return status;
    }
    *out = writer;
    return OCT_OK;
}

oct_status oct_token_shard_append(oct_token_shard_writer *writer, const uint32_t *ids,
                                  int64_t count, oct_err *err)
{
    oct_token_shard *shard = &writer->shard;
    unsigned char chunk[CHUNK_BYTES];
    const int64_t per_chunk = CHUNK_BYTES / shard->width_bytes;
    for (int64_t done = 0; done < count;) {
        const int64_t now = oct_min_i64(count - done, per_chunk);
        for (int64_t i = 0; i < now; i++) {
            if (ids[done + i] >= shard->vocab_size)
                return OCT_FAIL(
                    err, OCT_E_DATA,
                    "cannot write token shard: token %lld is %u, below %lld is required "
                    "(%s)",
                    (long long)(shard->tokens + i), ids[done + i], (long long)shard->vocab_size,
                    writer->path);
            store_le(chunk + i * shard->width_bytes, shard->width_bytes, ids[done + i]);
        }
        const int64_t offset = OCT_TOKEN_SHARD_HEADER_BYTES + shard->tokens * shard->width_bytes;
        OCT_TRY(oct_data_write_at(writer->fd, writer->path, offset, chunk,
                                  (size_t)(now * shard->width_bytes), err));
        shard->tokens += now;
        done += now;
    }
    return OCT_OK;
}

static void writer_free(oct_token_shard_writer *writer)
{
    free(writer->path);
    free(writer);
}

oct_status oct_token_shard_finish(oct_token_shard_writer *writer, oct_err *err)
{
    const oct_token_shard *shard = &writer->shard;
    unsigned char header[OCT_TOKEN_SHARD_HEADER_BYTES] = {0};
    memcpy(header + AT_MAGIC, magic, MAGIC_BYTES);
    store_le(header + AT_VERSION, 4, VERSION);
    store_le(header + AT_WIDTH, 4, (uint64_t)shard->width_bytes);
    store_le(header + AT_TOKENS, 8, (uint64_t)shard->tokens);
    store_le(header + AT_VOCAB, 8, (uint64_t)shard->vocab_size);
    memcpy(header + AT_TOKENIZER, shard->tokenizer, sizeof shard->tokenizer);
    oct_status status = oct_data_write_at(writer->fd, writer->path, 0, header, sizeof header, err);
    /* A full disk may show only here. */
    if (status == OCT_OK && fsync(writer->fd) != 0)
        status = OCT_FAIL(err, OCT_E_IO, "cannot write token shard: %s (%s)", strerror(errno),
                          writer->path);
    if (close(writer->fd) != 0 && status == OCT_OK)
        status = OCT_FAIL(err, OCT_E_IO, "cannot close token shard: %s (%s)", strerror(errno),
                          writer->path);
    writer_free(writer);
    return status;
}

void oct_token_shard_abandon(oct_token_shard_writer *writer)
{
    if (writer->fd >= 0) {
        (void)close(writer->fd);
        (void)unlink(writer->path);
    }
    writer_free(writer);
}
