/* Checkpoints of a run: DIR/step-N, each a PyTorch distributed checkpoint with a COMMIT.json.
 * Format and commit protocol: docs/spec/checkpoint.md. A checkpoint that was reported saved is
 * complete on disk; one that was not is never visible under its final name. */
#ifndef OCT_CHECKPOINT_CHECKPOINT_H
#define OCT_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "checkpoint/item.h"
#include "comm/comm.h"

/* One line for the user: a damaged checkpoint that was passed over, a leftover that was removed, a
 * prune that did not work. Only rank 0 is told. May be called from the writer thread. */
typedef void (*oct_checkpoint_warning)(void *arg, const char *line);

/* --- writing ------------------------------------------------------------------------------- */

typedef struct oct_checkpoint_options {
    const oct_file_table *files; /* NULL: the operating system's */
    oct_comm *comm;              /* NULL: one rank; borrowed until the writer is destroyed */
    const char *root;            /* RUN_DIR/checkpoints, seen by all ranks; copied */
    int64_t keep_latest_k;       /* 0 = all */
    int64_t chunk_bytes;         /* largest chunk; 0 = 1 GiB */
    oct_checkpoint_warning warn; /* may be NULL */
    void *warn_arg;
} oct_checkpoint_options;

/* What COMMIT.json says about the run; strings are copied by the save. */
typedef struct oct_checkpoint_meta {
    const char *config_hash; /* of the resolved configuration */
    const char *model_json;  /* fingerprint of the model, one JSON value */
} oct_checkpoint_meta;

/* Writes checkpoints below one root, one at a time. With a comm, create, start, wait and save are
 * collective and end in an agreement: all ranks return the same status and message. A broken comm's
 * error comes back from all of them; what was being saved then stays a temporary directory. Rank r
 * writes __r_0.distcp: its own rows of sharded items and a part of the replicated ones. */
typedef struct oct_checkpoint_writer oct_checkpoint_writer;

/* Makes the root if it is missing and removes what a killed save left (step-N.tmp-*,
 * step-N.trash-*; step-N.replaced-* moves back if step-N is missing); rank 0 does. The caller holds
 * the lock of the run directory. Errors: OCT_E_IO, OCT_E_NOMEM, OCT_E_COMM. */
oct_status oct_checkpoint_writer_create(const oct_checkpoint_options *options,
                                        oct_checkpoint_writer **out, oct_err *err) OCT_MUST_CHECK;

/* Not collective. One rank: finishes a save in flight (its error is lost; call oct_checkpoint_wait
 * first) and frees. Several: a save in flight is given up, its directory is swept by the next
 * start. NULL is fine. */
void oct_checkpoint_writer_destroy(oct_checkpoint_writer *writer);

/* Starts saving step-N on a thread of its own and returns at once; `list` (kept by the caller) and
 * all tensor data have to stay unchanged until oct_checkpoint_wait. Waits first for a save in
 * flight, whose failure is returned and stops the new one. An existing step-N is replaced as the
 * new one commits. Every rank lists the same keys, kinds, dtypes and shapes in the same order; the
 * strings of `meta` are rank 0's. Errors: OCT_E_IO (space, the temporary directory), OCT_E_NOMEM,
 * OCT_E_API for ranks that differ, OCT_E_COMM. */
oct_status oct_checkpoint_start(oct_checkpoint_writer *writer, int64_t step,
                                const oct_item_list *list, const oct_checkpoint_meta *meta,
                                oct_err *err) OCT_MUST_CHECK;

/* Ends a save in flight: to be called before anything its items point to changes (before the bias
 * update and the optimizer step) and at the end. On several ranks the checkpoint is published in
 * here. *saved_step is its step, or -1 if none was in flight. Errors: those of the save, with path
 * and errno text: OCT_E_IO, OCT_E_NOMEM, OCT_E_UNSUPPORTED, OCT_E_CORRUPT for rows that no rank
 * wrote; its temporary directory is then gone and older checkpoints stand. OCT_E_COMM, or the error
 * of a rank that left. */
oct_status oct_checkpoint_wait(oct_checkpoint_writer *writer, int64_t *saved_step,
                               oct_err *err) OCT_MUST_CHECK;

/* Start and wait. */
oct_status oct_checkpoint_save(oct_checkpoint_writer *writer, int64_t step,
                               const oct_item_list *list, const oct_checkpoint_meta *meta,
                               oct_err *err) OCT_MUST_CHECK;

/* --- reading ------------------------------------------------------------------------------- */

typedef enum oct_checkpoint_verify_level {
    OCT_VERIFY_SIZE, /* COMMIT.json, names, sizes, .metadata's CRC */
    OCT_VERIFY_CRC   /* and the CRC-32 of every byte of every file */
} oct_checkpoint_verify_level;

/* One key as `octet checkpoint ls|show` lists it. */
typedef struct oct_checkpoint_entry {
    const char *key;
    bool is_tensor;
    const char *dtype; /* "bfloat16", "float32", ...; "object" */
    int ndim;
    int64_t shape[8];
    int64_t bytes; /* of the tensor's payload, or of the object's archive */
    int64_t chunks;
} oct_checkpoint_entry;

/* An open checkpoint: one thread at a time reads from it. */
typedef struct oct_checkpoint oct_checkpoint;

/* Opens a directory and checks it. A directory with .metadata and no COMMIT.json (written by
 * PyTorch) opens with a warning. Errors: OCT_E_CORRUPT naming the file, what was found and what is
 * required; OCT_E_IO; OCT_E_UNSUPPORTED (a layout or dtype of PyTorch that octet does not read). */
oct_status oct_checkpoint_open(const oct_file_table *files, const char *dir,
                               oct_checkpoint_verify_level level, oct_checkpoint_warning warn,
                               void *warn_arg, oct_checkpoint **out, oct_err *err) OCT_MUST_CHECK;
void oct_checkpoint_close(oct_checkpoint *checkpoint);

/* The same on all ranks of a comm (NULL: oct_checkpoint_open): rank 0's `dir`, level and warning
 * count, every rank verifies some of the files. Collective, ends in an agreement: a failure on one
 * rank is everybody's. What the ranks see has to be the same checkpoint, else OCT_E_IO. The comm is
 * borrowed until the checkpoint is closed; reading from it and closing it are not collective, and a
 * failure to read is to be agreed by the caller. */
oct_status oct_checkpoint_open_together(oct_comm *comm, const oct_file_table *files,
                                        const char *dir, oct_checkpoint_verify_level level,
                                        oct_checkpoint_warning warn, void *warn_arg,
                                        oct_checkpoint **out, oct_err *err) OCT_MUST_CHECK;

int64_t oct_checkpoint_step(const oct_checkpoint *checkpoint);  /* -1 without COMMIT.json */
int64_t oct_checkpoint_world(const oct_checkpoint *checkpoint); /* ranks that wrote it; -1 */
int64_t oct_checkpoint_bytes(const oct_checkpoint *checkpoint); /* of all its files */
const char *oct_checkpoint_config_hash(const oct_checkpoint *checkpoint); /* "" if unknown */
const char *oct_checkpoint_model_json(const oct_checkpoint *checkpoint);  /* "null" if unknown */

/* Tensors and objects. */
int64_t oct_checkpoint_entry_count(const oct_checkpoint *checkpoint);
/* Entries in the order of their keys (bytewise). Borrowed. */
const oct_checkpoint_entry *oct_checkpoint_entry_at(const oct_checkpoint *checkpoint,
                                                    int64_t index);
/* NULL if the checkpoint has no such key. */
const oct_checkpoint_entry *oct_checkpoint_find(const oct_checkpoint *checkpoint, const char *key);

/* Rows row_begin .. row_begin+rows-1 of dim 0 of a tensor into FP32 `out` (BF16 is widened); shape
 * is what the caller expects of the whole tensor. 0-d: rows 0, 1. Chunks may be cut in any way
 * along dim 0. CRC-32 of every payload is checked unless the file was already verified or level is
 * SIZE. Errors: OCT_E_CORRUPT naming key and file; OCT_E_SHAPE (found and required shape);
 * OCT_E_UNSUPPORTED dtype. */
oct_status oct_checkpoint_read_rows(const oct_checkpoint *checkpoint, const char *key, int ndim,
                                    const int64_t *shape, int64_t row_begin, int64_t rows,
                                    float *out, oct_err *err) OCT_MUST_CHECK;

/* The whole tensor. */
oct_status oct_checkpoint_read_tensor(const oct_checkpoint *checkpoint, const char *key, int ndim,
                                      const int64_t *shape, float *out,
                                      oct_err *err) OCT_MUST_CHECK;

/* Small objects. Errors: OCT_E_CORRUPT for a missing key or another type, naming the key. Strings,
 * bytes and lists are copied into `arena`; a string ends with 0. */
oct_status oct_checkpoint_read_int(const oct_checkpoint *checkpoint, const char *key,
                                   int64_t *value, oct_err *err) OCT_MUST_CHECK;
oct_status oct_checkpoint_read_float(const oct_checkpoint *checkpoint, const char *key,
                                     double *value, oct_err *err) OCT_MUST_CHECK;
oct_status oct_checkpoint_read_bool(const oct_checkpoint *checkpoint, const char *key, bool *value,
                                    oct_err *err) OCT_MUST_CHECK;
oct_status oct_checkpoint_read_string(const oct_checkpoint *checkpoint, const char *key,
                                      oct_arena *arena, const char **value,
                                      oct_err *err) OCT_MUST_CHECK;
oct_status oct_checkpoint_read_bytes(const oct_checkpoint *checkpoint, const char *key,
                                     oct_arena *arena, const void **value, int64_t *bytes,
                                     oct_err *err) OCT_MUST_CHECK;
oct_status oct_checkpoint_read_ints(const oct_checkpoint *checkpoint, const char *key,
                                    oct_arena *arena, const int64_t **values, int64_t *count,
                                    oct_err *err) OCT_MUST_CHECK;

/* Fills masters, moments and the step count from optimizer.state.*: the rows that each slot owns,
 * whatever number of ranks wrote them; not collective. with_moments false (the key
 * checkpoint.restore_optimizer): masters only, moments zero, step 0. Masters come from the weights
 * where there are none: in octet's own checkpoints only if with_moments is false, in PyTorch's
 * always; keys of these are found by their ends (torch_keys.h). Values and low-precision storage
 * are not touched: refresh them after this. After a failure the contents are undefined and the run
 * must not go on. */
oct_status oct_checkpoint_restore_optimizer(const oct_checkpoint *checkpoint,
                                            oct_optimizer *optimizer, bool with_moments,
                                            oct_err *err) OCT_MUST_CHECK;

/* Fills the persistent buffers of the tree. */
oct_status oct_checkpoint_restore_buffers(const oct_checkpoint *checkpoint, oct_module_tree *tree,
                                          oct_err *err) OCT_MUST_CHECK;

/* --- finding ------------------------------------------------------------------------------- */

/* Step numbers of the directories named step-N below root, ascending, in `arena`. A missing root
 * has none. */
oct_status oct_checkpoint_list(const oct_file_table *files, const char *root, oct_arena *arena,
                               int64_t **steps, int64_t *count, oct_err *err) OCT_MUST_CHECK;

/* Opens the newest step-N (numeric order) that verifies. Each damaged one is named in a warning and
 * passed over. *out = NULL if root holds no step-N at all. Errors: OCT_E_CORRUPT if there are some
 * and none verifies; OCT_E_IO. */
oct_status oct_checkpoint_open_latest(const oct_file_table *files, const char *root,
                                      oct_checkpoint_verify_level level,
                                      oct_checkpoint_warning warn, void *warn_arg,
                                      oct_checkpoint **out, oct_err *err) OCT_MUST_CHECK;

/* Opens root/step-N and nothing else: an explicit step never falls back. */
oct_status oct_checkpoint_open_step(const oct_file_table *files, const char *root, int64_t step,
                                    oct_checkpoint_verify_level level, oct_checkpoint **out,
                                    oct_err *err) OCT_MUST_CHECK;

/* The same two on all ranks of a comm (NULL: as above), as oct_checkpoint_open_together does it:
 * rank 0 finds the steps; one that is damaged for any rank is passed over by all. */
oct_status oct_checkpoint_open_latest_together(oct_comm *comm, const oct_file_table *files,
                                               const char *root, oct_checkpoint_verify_level level,
                                               oct_checkpoint_warning warn, void *warn_arg,
                                               oct_checkpoint **out, oct_err *err) OCT_MUST_CHECK;
oct_status oct_checkpoint_open_step_together(oct_comm *comm, const oct_file_table *files,
                                             const char *root, int64_t step,
                                             oct_checkpoint_verify_level level,
                                             oct_checkpoint **out, oct_err *err) OCT_MUST_CHECK;

/* The N of "step-N" (no sign, no leading zero), or -1. */
int64_t oct_checkpoint_step_of_name(const char *name);

/* Checks everything that can be checked: COMMIT.json, size and CRC-32 of every file, .metadata,
 * every archive and the CRC-32 of every entry. `report` gets each file with its bytes and NULL or
 * what is wrong. Returns the first failure. */
typedef void (*oct_checkpoint_report)(void *arg, const char *file, int64_t bytes,
                                      const char *problem);
oct_status oct_checkpoint_verify(const oct_file_table *files, const char *dir,
                                 oct_checkpoint_report report, void *arg,
                                 oct_err *err) OCT_MUST_CHECK;

#endif
