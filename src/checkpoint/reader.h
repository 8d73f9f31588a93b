/* Opening one directory as a part of what all ranks do together. */
#ifndef OCT_CHECKPOINT_READER_H
#define OCT_CHECKPOINT_READER_H

#include "checkpoint/checkpoint.h"

/* A checkpoint to open. */
typedef struct oct_checkpoint_source {
    const oct_file_table *files; /* NULL: the operating system's */
    const char *dir;
    int64_t step;   /* the one it has to be of, COMMIT.json required; -1: any */
    oct_comm *comm; /* NULL: this rank alone */
    oct_checkpoint_verify_level level;
    oct_checkpoint_warning warn; /* may be NULL */
    void *warn_arg;
} oct_checkpoint_source;

/* Opens and checks on this rank, of the CRC-32 of data files only its share of the files. Not
 * collective. */
oct_status oct_checkpoint_open_part(const oct_checkpoint_source *source, oct_checkpoint **out,
                                    oct_err *err) OCT_MUST_CHECK;

/* CRC-32 of COMMIT.json, of .metadata without one: equal on ranks that opened the same thing. */
uint32_t oct_checkpoint_fingerprint(const oct_checkpoint *checkpoint);

#endif
