#include "data/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/size.h"
#include "data/file_io.h"
#include "data/file_list.h"
#include "data/sampler.h"
#include "data/token_shard.h"

enum { CHUNK_TOKENS = 4096, FINGERPRINT_BYTES = 4096 };

/* One file of the stream. */
typedef struct source {
    const char *path;
    int64_t first; /* index of its first token in the stream */
    int64_t bytes; /* size when the dataset was opened: a file that changes is refused */
    bool is_shard;
    oct_token_shard shard; /* of a text: tokens, vocab_size and tokenizer */
} source;

struct oct_dataset {
    oct_arena arena; /* names */
    source *sources;
    int64_t source_count;
    int64_t tokens;
    int64_t seq_length;
    int64_t vocab_size;
    oct_sampler sampler;
    uint64_t fingerprint;
};

static oct_status open_source(const source *s, int *fd, oct_err *err)
{
    struct stat about = {0};
    *fd = open(s->path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0)
        return OCT_FAIL(err, OCT_E_DATA, "cannot open data: %s (%s)", strerror(errno), s->path);
    if (fstat(*fd, &about) == 0 && about.st_size == s->bytes)
        return OCT_OK;
    (void)close(*fd);
    return OCT_FAIL(err, OCT_E_DATA,
                    "data changed while in use: %lld bytes, %lld are required (%s)",
                    (long long)about.st_size, (long long)s->bytes, s->path);
}

/* --- Opening --- */

/* FNV-1a over 64 bits. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *c = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ c[i]) * 0x100000001B3u;
    return hash;
}

static uint64_t hash_number(uint64_t hash, int64_t number)
{
    for (int shift = 0; shift < 64; shift += 8) {
        const unsigned char byte = (unsigned char)((uint64_t)number >> shift);
        hash = hash_bytes(hash, &byte, 1);
    }
    return hash;
}

/* Name, size and both ends of the open file: enough to tell an edited corpus from the one that a
 * run began with, without reading it all. */
static oct_status add_to_fingerprint(oct_dataset *d, const source *s, int fd, oct_err *err)
{
    unsigned char end[FINGERPRINT_BYTES];
    const char *slash = strrchr(s->path, '/');
    const char *name = slash ? slash + 1 : s->path;
    const int64_t bytes = oct_min_i64(s->bytes, FINGERPRINT_BYTES);
    d->fingerprint = hash_bytes(d->fingerprint, name, strlen(name) + 1);
    d->fingerprint = hash_number(d->fingerprint, s->bytes);
    OCT_TRY(oct_data_read_at(fd, s->path, 0, end, (size_t)bytes, err));
    d->fingerprint = hash_bytes(d->fingerprint, end, (size_t)bytes);
    OCT_TRY(oct_data_read_at(fd, s->path, s->bytes - bytes, end, (size_t)bytes, err));
    d->fingerprint = hash_bytes(d->fingerprint, end, (size_t)bytes);
    return OCT_OK;
}

static bool is_shard_name(const char *path)
{
    const size_t length = strlen(path);
    return length >= 4 && strcmp(path + length - 4, ".bin") == 0;
}

static oct_status inspect_source(oct_dataset *d, source *s, int fd, const char *tokenizer,
                                 oct_err *err)
{
    s->is_shard = is_shard_name(s->path);
    if (s->is_shard) {
        OCT_TRY(oct_token_shard_open(fd, s->bytes, s->path, &s->shard, err));
    } else {
        s->shard = (oct_token_shard){.tokens = s->bytes + 1, .vocab_size = OCT_BYTES_VOCAB_SIZE};
        memcpy(s->shard.tokenizer, tokenizer, strlen(tokenizer) + 1);
        if (d->vocab_size < OCT_BYTES_VOCAB_SIZE)
            return OCT_FAIL(
                err, OCT_E_DATA,
                "cannot use text: its ids go up to %d, the vocabulary has %lld, at least "
                "%d are required (%s)",
                OCT_BYTES_END_OF_DOCUMENT, (long long)d->vocab_size, OCT_BYTES_VOCAB_SIZE, s->path);
    }
    const char *common = d->sources[0].shard.tokenizer;
    if (strcmp(s->shard.tokenizer, common) != 0)
        return OCT_FAIL(
            err, OCT_E_DATA,
            "cannot mix tokenizers: '%s' (%s), '%s' is required as in the first file (%s)",
            s->shard.tokenizer, s->path, common, d->sources[0].path);
    return add_to_fingerprint(d, s, fd, err);
}

static oct_status add_source(oct_dataset *d, const char *path, const char *tokenizer, oct_err *err)
{
    source *s = &d->sources[d->source_count++];
    struct stat about;
    *s = (source){.path = path, .first = d->tokens};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return OCT_FAIL(err, OCT_E_DATA, "cannot open data: %s (%s)", strerror(errno), path);
    oct_status status = OCT_OK;
    if (fstat(fd, &about) != 0)
        status = OCT_FAIL(err, OCT_E_DATA, "cannot open data: %s (%s)", strerror(errno), path);
    else
        s->bytes = about.st_size;
    if (status == OCT_OK)
        status = inspect_source(d, s, fd, tokenizer, err);
    (void)close(fd);
    OCT_TRY(status);
    if (__builtin_add_overflow(d->tokens, s->shard.tokens, &d->tokens))
        return OCT_FAIL(err, OCT_E_DATA, "cannot use data: more than 2^63 tokens (%s)", path);
    return OCT_OK;
}

static oct_status add_sources(oct_dataset *d, const oct_file_list *files, const char *tokenizer,
                              oct_err *err)
{
    d->sources = calloc((size_t)files->count, sizeof *d->sources);
    if (!d->sources)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot open data: no memory for %lld files",
                        (long long)files->count);
    for (int64_t i = 0; i < files->count; i++)
        OCT_TRY(add_source(d, files->paths[i], tokenizer, err));
    return OCT_OK;
}

static oct_status check_spec(const oct_dataset_spec *spec, oct_err *err)
{
    if (spec->path_count < 1 || spec->seq_length < 1 || spec->seq_length >= INT32_MAX ||
        spec->vocab_size < 1 || spec->vocab_size > INT32_MAX)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot open data: %lld paths, sequences of %lld, vocabulary of %lld; each "
                        "from 1 to 2^31 - 1 is required",
                        (long long)spec->path_count, (long long)spec->seq_length,
                        (long long)spec->vocab_size);
    if (strcmp(spec->tokenizer, "bytes") != 0)
        return OCT_FAIL(
            err, OCT_E_UNSUPPORTED,
            "cannot tokenize text: tokenizer '%s', bytes is required (dataset.tokenizer)",
            spec->tokenizer);
    return OCT_OK;
}

static oct_status build(oct_dataset *d, const oct_dataset_spec *spec, oct_err *err)
{
    oct_file_list files = {.arena = &d->arena};
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < spec->path_count && status == OCT_OK; i++)
        status = oct_file_list_add(&files, spec->paths[i], err);
    if (status == OCT_OK)
        status = add_sources(d, &files, spec->tokenizer, err);
    oct_file_list_release(&files);
    OCT_TRY(status);
    if (d->tokens < d->seq_length + 1)
        return OCT_FAIL(err, OCT_E_DATA,
                        "not enough data: %lld tokens in %lld files, seq_length + 1 = %lld are "
                        "required for one sample (%s)",
                        (long long)d->tokens, (long long)d->source_count,
                        (long long)(d->seq_length + 1), spec->paths[0]);
    d->sampler.samples = (d->tokens - 1) / d->seq_length;
    d->fingerprint = hash_number(d->fingerprint, d->tokens);
    const char *tokenizer = d->sources[0].shard.tokenizer;
    d->fingerprint = hash_bytes(d->fingerprint, tokenizer, strlen(tokenizer));
    return OCT_OK;
}

oct_status oct_dataset_open(const oct_dataset_spec *spec, oct_dataset **out, oct_err *err)
{
    OCT_TRY(check_spec(spec, err));
    oct_dataset *d = calloc(1, sizeof *d);
    if (!d)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot open data: no memory");
    oct_arena_init(&d->arena, "dataset");
    d->seq_length = spec->seq_length;
    d->vocab_size = spec->vocab_size;
    d->sampler = (oct_sampler){.seed = spec->seed, .shuffle = spec->shuffle};
    d->fingerprint = 0xCBF29CE484222325u; /* FNV-1a offset basis */
    const oct_status status = build(d, spec, err);
    if (status != OCT_OK) {
        oct_dataset_close(d);
        return status;
    }
    *out = d;
    return OCT_OK;
}

void oct_dataset_close(oct_dataset *dataset)
{
    if (!dataset)
        return;
    oct_arena_release(&dataset->arena);
    free(dataset->sources);
    free(dataset);
}

int64_t oct_dataset_files(const oct_dataset *dataset)
{
    return dataset->source_count;
}

const char *oct_dataset_tokenizer(const oct_dataset *dataset)
{
    return dataset->sources[0].shard.tokenizer;
}

int64_t oct_dataset_tokens(const oct_dataset *dataset)
{
    return dataset->tokens;
}

int64_t oct_dataset_samples(const oct_dataset *dataset)
{
    return dataset->sampler.samples;
}

uint64_t oct_dataset_fingerprint(const oct_dataset *dataset)
{
    return dataset->fingerprint;
}

/* --- Reading --- */

/* Tokens [first, first + count) of a text: its bytes, then the end of the document. */
static oct_status read_text(const source *s, int fd, int64_t first, int64_t count, uint32_t *ids,
                            oct_err *err)
{
    unsigned char bytes[CHUNK_TOKENS];
    const int64_t in_file = oct_min_i64(count, s->bytes - first);
    OCT_TRY(oct_data_read_at(fd, s->path, first, bytes, (size_t)in_file, err));
    for (int64_t i = 0; i < in_file; i++)
        ids[i] = bytes[i];
    if (in_file < count)
        ids[in_file] = OCT_BYTES_END_OF_DOCUMENT;
    return OCT_OK;
}

static oct_status check_ids(const oct_dataset *d, const source *s, int64_t first, int64_t count,
                            const uint32_t *ids, oct_err *err)
{
    const bool of_shard = s->shard.vocab_size < d->vocab_size;
    const int64_t bound = of_shard ? s->shard.vocab_size : d->vocab_size;
    for (int64_t i = 0; i < count; i++)
        if (ids[i] >= bound)
            return OCT_FAIL(err, OCT_E_DATA,
                            "token outside the vocabulary: token %lld is id %u, the vocabulary of "
                            "the %s has %lld (%s)",
                            (long long)(first + i), ids[i], of_shard ? "shard" : "model",
                            (long long)bound, s->path);
    return OCT_OK;
}

/* The source that holds a token: the last one that begins at or before it. */
static const source *find_source(const oct_dataset *d, int64_t token)
{
    int64_t low = 0, high = d->source_count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (d->sources[middle].first <= token)
            low = middle;
        else
            high = middle;
    }
    return &d->sources[low];
}

/* Receives `count` tokens of the stream, in order. */
typedef void (*token_sink)(void *arg, const uint32_t *ids, int64_t count);

static oct_status stream_source(const oct_dataset *d, const source *s, int fd, int64_t first,
                                int64_t count, token_sink sink, void *arg, oct_err *err)
{
    uint32_t ids[CHUNK_TOKENS];
    while (count > 0) {
        const int64_t now = oct_min_i64(count, CHUNK_TOKENS);
        if (s->is_shard)
            OCT_TRY(oct_token_shard_read(&s->shard, fd, s->path, first, now, ids, err));
        else
            OCT_TRY(read_text(s, fd, first, now, ids, err));
        OCT_TRY(check_ids(d, s, first, now, ids, err));
        sink(arg, ids, now);
        first += now;
        count -= now;
    }
    return OCT_OK;
}

/* Hands tokens [first, first + count) of the stream, across files, to the sink. */
static oct_status stream_tokens(const oct_dataset *d, int64_t first, int64_t count, token_sink sink,
                                void *arg, oct_err *err)
{
    for (const source *s = find_source(d, first); count > 0; s++) {
        const int64_t inside = first - s->first;
        const int64_t now = oct_min_i64(count, s->shard.tokens - inside);
        if (now == 0) /* an empty shard */
            continue;
        int fd = -1;
        OCT_TRY(open_source(s, &fd, err));
        const oct_status status = stream_source(d, s, fd, inside, now, sink, arg, err);
        (void)close(fd);
        OCT_TRY(status);
        first += now;
        count -= now;
    }
    return OCT_OK;
}

typedef struct sample_out {
    int32_t *ids, *targets;
    int64_t done, seq_length;
} sample_out;

/* Token i of the sample is input i and target i - 1. */
static void put_sample(void *arg, const uint32_t *ids, int64_t count)
{
    sample_out *out = arg;
    for (int64_t i = 0; i < count; i++, out->done++) {
        if (out->done < out->seq_length)
            out->ids[out->done] = (int32_t)ids[i];
        if (out->done > 0)
            out->targets[out->done - 1] = (int32_t)ids[i];
    }
}

oct_status oct_dataset_fill(const oct_dataset *dataset, int64_t position, int32_t *ids,
                            int32_t *targets, oct_err *err)
{
    if (position < 0)
        return OCT_FAIL(err, OCT_E_API, "cannot read a sample: position %lld, 0 is the least",
                        (long long)position);
    const int64_t sample = oct_sampler_at(&dataset->sampler, position);
    sample_out out = {.ids = ids, .targets = targets, .seq_length = dataset->seq_length};
    return stream_tokens(dataset, sample * dataset->seq_length, dataset->seq_length + 1, put_sample,
                         &out, err);
}

static void count_tokens(void *arg, const uint32_t *ids, int64_t count)
{
    int64_t *counts = arg;
    for (int64_t i = 0; i < count; i++)
        counts[ids[i]]++;
}

oct_status oct_dataset_unigram_entropy(const oct_dataset *dataset, double *nats, oct_err *err)
{
    int64_t *counts = calloc((size_t)dataset->vocab_size, sizeof *counts);
    if (!counts)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot count tokens: no memory for %lld ids",
                        (long long)dataset->vocab_size);
    const oct_status status = stream_tokens(dataset, 0, dataset->tokens, count_tokens, counts, err);
    double entropy = 0;
    for (int64_t id = 0; id < dataset->vocab_size && status == OCT_OK; id++) {
        const double share = (double)counts[id] / (double)dataset->tokens;
        if (counts[id] > 0)
            entropy -= share * log(share);
    }
    free(counts);
    *nats = entropy;
    return status;
}
