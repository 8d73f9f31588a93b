/* Names below the checkpoints directory of a run. */
#ifndef OCT_CHECKPOINT_LAYOUT_H
#define OCT_CHECKPOINT_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"

/* What a name stands for. The last three carry 8 hex digits: step-N.tmp-0123abcd. */
typedef enum oct_layout_kind {
    OCT_LAYOUT_OTHER,
    OCT_LAYOUT_STEP,    /* step-N: a committed checkpoint */
    OCT_LAYOUT_TMP,     /* being written */
    OCT_LAYOUT_TRASH,   /* being removed */
    OCT_LAYOUT_REPLACED /* the old step-N while a new one takes its place */
} oct_layout_kind;

/* What an entry of the checkpoints folder is by its name; *step is its N unless OTHER. */
oct_layout_kind oct_layout_parse(const char *name, int64_t *step);

/* root/step-N, or root/step-N.<kind>-<tag> for the other kinds. */
oct_status oct_layout_path(const char *root, oct_layout_kind kind, int64_t step, uint32_t tag,
                           char out[OCT_PATH_BYTES], oct_err *err) OCT_MUST_CHECK;

/* Removes the leftovers of a killed save: step-N.tmp-*, step-N.trash-*; step-N.replaced-* moves
 * back if step-N is missing or not whole (CRC) and is removed otherwise. */
oct_status oct_layout_sweep(const oct_file_table *files, const char *root,
                            oct_checkpoint_warning warn, void *warn_arg,
                            oct_err *err) OCT_MUST_CHECK;

/* Removes all but the newest `keep` checkpoints that verify by size. Damaged ones are neither
 * counted nor removed: they are evidence. */
oct_status oct_layout_prune(const oct_file_table *files, const char *root, int64_t keep,
                            uint32_t tag, oct_err *err) OCT_MUST_CHECK;

#endif
