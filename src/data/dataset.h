/* Training and validation data: files seen as one stream of tokens, cut into samples, visited in a
 * deterministic order. */
#ifndef OCT_DATA_DATASET_H
#define OCT_DATA_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* The byte tokenizer: a byte is its own id. */
enum { OCT_BYTES_END_OF_DOCUMENT = 256, OCT_BYTES_VOCAB_SIZE = 257 };

/* What to open. Borrowed for the call of oct_dataset_open. */
typedef struct oct_dataset_spec {
    const char *const *paths; /* files, folders (read recursively, names sorted), glob patterns */
    int64_t path_count;
    const char *tokenizer; /* of text files: "bytes" */
    int64_t seq_length;    /* >= 1 */
    int64_t vocab_size;    /* of the model: every id must be below it */
    uint64_t seed;
    bool shuffle;
} oct_dataset_spec;

typedef struct oct_dataset oct_dataset;

/* Finds the files and lays them end to end: a file named *.bin is a token shard (token_shard.h),
 * any other file is a document, its bytes followed by OCT_BYTES_END_OF_DOCUMENT. Hidden files,
 * special files and symbolic links to folders inside a folder are passed over. All files must have
 * one tokenizer. Nothing is kept in memory but names and sizes. Errors: OCT_E_DATA (no such file,
 * nothing matched, empty folder, damaged shard, two tokenizers, vocabulary too small, fewer than
 * seq_length + 1 tokens), OCT_E_UNSUPPORTED (tokenizer), OCT_E_API. */
oct_status oct_dataset_open(const oct_dataset_spec *spec, oct_dataset **out,
                            oct_err *err) OCT_MUST_CHECK;
void oct_dataset_close(oct_dataset *dataset);

/* Number of files. */
int64_t oct_dataset_files(const oct_dataset *dataset);

/* What made the ids: that of the token shards, or of the texts. Borrowed. */
const char *oct_dataset_tokenizer(const oct_dataset *dataset);

int64_t oct_dataset_tokens(const oct_dataset *dataset);

/* Samples per epoch, (tokens - 1) / seq_length, rounded down: sample s is tokens
 * [s*seq_length, s*seq_length + seq_length] of the stream, so neighbours share one token and up to
 * seq_length - 1 tokens at the end of the stream are never read. */
int64_t oct_dataset_samples(const oct_dataset *dataset);

/* The sample at `position` >= 0, counted over all epochs (data/sampler.h): ids [seq_length] are its
 * first tokens, targets [seq_length] the ones after them, all valid. Reads the files, allocates
 * nothing, keeps no state: threads may call it at once.
 * Errors: OCT_E_DATA for an id outside the vocabulary (file, index, id, vocabulary size) and for a
 * file that changed or cannot be read. */
oct_status oct_dataset_fill(const oct_dataset *dataset, int64_t position, int32_t *ids,
                            int32_t *targets, oct_err *err) OCT_MUST_CHECK;

/* Identifies the content: tokenizer, token count and, per file in order, name without folder, size
 * and the bytes near both ends. A checkpoint keeps it, so that a run is not continued on other
 * data; seed, seq_length and shuffle are not part of it and must be compared by themselves. */
uint64_t oct_dataset_fingerprint(const oct_dataset *dataset);

/* Entropy of the token frequencies, in nats per token: the loss of the best model that knows no
 * context. Reads everything once. Errors: as oct_dataset_fill, OCT_E_NOMEM. */
oct_status oct_dataset_unigram_entropy(const oct_dataset *dataset, double *nats,
                                       oct_err *err) OCT_MUST_CHECK;

#endif
