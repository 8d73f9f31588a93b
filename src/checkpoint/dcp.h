/* The files of a PyTorch distributed checkpoint: archives of tensor chunks and small objects in
 * __R_0.distcp, and the pickled .metadata that says where they are. docs/spec/checkpoint.md. */
#ifndef OCT_CHECKPOINT_DCP_H
#define OCT_CHECKPOINT_DCP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/item.h"
#include "checkpoint/pickle.h"
#include "checkpoint/stream.h"

enum {
    OCT_DCP_MAX_NDIM = 8,
    OCT_DCP_ARCHIVE_ALIGN = 4096 /* of every archive within its file */
};

/* Rows row_begin .. row_begin+rows-1 of one tensor, or one object (rows 1), in one archive. */
typedef struct oct_dcp_chunk {
    int64_t item; /* writer: index in the item list; reader: index of the entry */
    int64_t row_begin, rows;
    const char *file; /* name within the directory */
    uint64_t offset, length;
} oct_dcp_chunk;

/* --- writing ------------------------------------------------------------------------------- */

/* The part of a list that one of `size` ranks writes: its own rows of sharded tensors, an even
 * share of the rows of replicated ones of 1 MiB or more; rank 0 all other items. {0, 1}:
 * everything. */
typedef struct oct_dcp_part {
    int rank, size;
} oct_dcp_part;

/* Bytes that this part will take at most, archives included. */
uint64_t oct_dcp_estimate_bytes(const oct_item_list *list, oct_dcp_part part, int64_t chunk_bytes);

/* Appends every item's part to `stream`, tensors cut on dim 0 into chunks of at most chunk_bytes
 * (but never less than one row). *chunks is on the heap, in item order; free() it. `file_name` is
 * borrowed by the chunks. Errors: those of the stream, OCT_E_NOMEM, OCT_E_UNSUPPORTED for a row of
 * 4 GiB. */
oct_status oct_dcp_write_items(oct_stream *stream, const char *file_name, const oct_item_list *list,
                               oct_dcp_part part, int64_t chunk_bytes, oct_dcp_chunk **chunks,
                               int64_t *chunk_count, oct_err *err) OCT_MUST_CHECK;

/* The pickle of .metadata. chunks: of all ranks, by item and row. */
oct_status oct_dcp_write_metadata(const oct_item_list *list, const oct_dcp_chunk *chunks,
                                  int64_t chunk_count, oct_pickle_writer *out,
                                  oct_err *err) OCT_MUST_CHECK;

/* --- reading ------------------------------------------------------------------------------- */

typedef struct oct_dcp_entry {
    oct_checkpoint_entry info;
    size_t element_bytes;
    bool is_cut_elsewhere; /* along another dim than 0: listed, never read */
    int64_t first_chunk;   /* info.chunks of them; by ascending row, covering the tensor exactly,
                              unless it is cut elsewhere */
} oct_dcp_entry;

/* What .metadata says. Owner of everything in it. */
typedef struct oct_dcp_metadata {
    oct_arena arena;
    oct_dcp_entry *entries; /* by key */
    int64_t entry_count;
    oct_dcp_chunk *chunks;
    int64_t chunk_count;
} oct_dcp_metadata;

/* Frees what a read filled; the struct is zeroed. */
void oct_dcp_metadata_release(oct_dcp_metadata *metadata);

/* Parses and checks: names of files, shapes, chunks that cover each tensor without gap or overlap.
 * Errors: OCT_E_CORRUPT naming `where` and the key (more than 8 dims too); OCT_E_UNSUPPORTED for
 * compressed archives. `out` is to be released in either case. */
oct_status oct_dcp_read_metadata(const unsigned char *data, size_t bytes, const char *where,
                                 oct_dcp_metadata *out, oct_err *err) OCT_MUST_CHECK;

/* Rows row_begin .. row_begin+rows-1 (within the chunk) as FP32. scratch is left as it was found.
 * check_crc reads the whole payload and compares its CRC-32. Errors: OCT_E_CORRUPT naming file and
 * key; OCT_E_UNSUPPORTED dtype or cut. */
oct_status oct_dcp_read_chunk(const oct_file *file, const oct_dcp_entry *entry,
                              const oct_dcp_chunk *chunk, int64_t row_begin, int64_t rows,
                              float *out, bool check_crc, oct_arena *scratch,
                              oct_err *err) OCT_MUST_CHECK;

/* A small object; the value lives in `arena`. */
oct_status oct_dcp_read_object(const oct_file *file, const oct_dcp_entry *entry,
                               const oct_dcp_chunk *chunk, oct_arena *arena, oct_pickle_value **out,
                               oct_err *err) OCT_MUST_CHECK;

/* Reads the archive and compares the CRC-32 of each of its entries. */
oct_status oct_dcp_check_chunk(const oct_file *file, const oct_dcp_entry *entry,
                               const oct_dcp_chunk *chunk, oct_arena *scratch,
                               oct_err *err) OCT_MUST_CHECK;

/* true for a plain file name: no '/', no "..", 1 to 255 bytes, no leading '.'. */
bool oct_dcp_is_file_name(const char *name);

#endif
