/* The zip archives of torch.save, inside a larger file: stored entries only.
 * docs/spec/checkpoint.md 2. */
#ifndef OCT_CHECKPOINT_ZIP_H
#define OCT_CHECKPOINT_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "checkpoint/stream.h"

enum {
    OCT_ZIP_MAX_ENTRIES = 64, /* torch writes at most 7 per tensor */
    OCT_ZIP_NAME_BYTES = 256,
    OCT_ZIP_PAYLOAD_ALIGN = 64 /* of every payload within its archive, as torch does */
};

/* Largest entry: sizes are 32-bit here, and ffffffff would mean zip64. */
#define OCT_ZIP_MAX_ENTRY_BYTES 0xfffffffeu

typedef struct oct_zip_entry {
    char name[OCT_ZIP_NAME_BYTES];
    uint32_t crc;
    uint64_t bytes;
    uint64_t offset; /* writer: of the local header within the archive; reader: of the payload
                        within the file */
} oct_zip_entry;

/* One archive: being written, or as read. */
typedef struct oct_zip {
    uint64_t start; /* within the file */
    int count;
    oct_zip_entry entries[OCT_ZIP_MAX_ENTRIES];
} oct_zip;

/* Writing: begin, then per entry begin / write... / end, then end, which returns the archive's
 * length. Sizes and CRC follow the payload in a data descriptor, so nothing is written twice.
 * Errors: those of the stream; OCT_E_UNSUPPORTED for an entry or archive of 4 GiB. */
void oct_zip_begin(oct_zip *zip, const oct_stream *stream);
oct_status oct_zip_entry_begin(oct_zip *zip, oct_stream *stream, const char *name,
                               oct_err *err) OCT_MUST_CHECK;
oct_status oct_zip_entry_write(oct_zip *zip, oct_stream *stream, const void *data, size_t bytes,
                               oct_err *err) OCT_MUST_CHECK;
oct_status oct_zip_entry_end(oct_zip *zip, oct_stream *stream, oct_err *err) OCT_MUST_CHECK;
oct_status oct_zip_end(oct_zip *zip, oct_stream *stream, uint64_t *length,
                       oct_err *err) OCT_MUST_CHECK;

/* An entry that is small enough to have at once. */
oct_status oct_zip_add(oct_zip *zip, oct_stream *stream, const char *name, const void *data,
                       size_t bytes, oct_err *err) OCT_MUST_CHECK;

/* Reads the central directory of the archive at [start, start+length), zip64 or not; of local
 * headers only the lengths of name and extra field. Everything is checked against those bounds.
 * Errors: OCT_E_CORRUPT naming file and offset; OCT_E_UNSUPPORTED for a compressed or encrypted
 * entry. */
oct_status oct_zip_read(const oct_file *file, uint64_t start, uint64_t length, oct_zip *out,
                        oct_err *err) OCT_MUST_CHECK;

/* The entry whose name ends in `suffix` after its first '/' ("data.pkl" finds "archive/data.pkl"),
 * or NULL. */
const oct_zip_entry *oct_zip_find(const oct_zip *zip, const char *suffix);

/* A whole small entry on the heap, CRC checked; free() it. Errors: OCT_E_CORRUPT (CRC, or longer
 * than limit_bytes), OCT_E_NOMEM. */
oct_status oct_zip_load(const oct_file *file, const oct_zip_entry *entry, size_t limit_bytes,
                        unsigned char **data, oct_err *err) OCT_MUST_CHECK;

/* Compares a CRC-32 computed over an entry's payload. Errors: OCT_E_CORRUPT. */
oct_status oct_zip_check_crc(const oct_file *file, const oct_zip_entry *entry, uint32_t crc,
                             oct_err *err) OCT_MUST_CHECK;

#endif
