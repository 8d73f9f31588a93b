/* From the paths of a configuration to the files of a dataset. */
#ifndef OCT_DATA_FILE_LIST_H
#define OCT_DATA_FILE_LIST_H

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* Growable list; paths live in the arena, the array on the heap. */
typedef struct oct_file_list {
    oct_arena *arena;
    const char **paths;
    int64_t count;
    int64_t capacity;
} oct_file_list;

void oct_file_list_release(oct_file_list *list);

/* Appends what `path` stands for: a regular file itself; a folder, its regular files and those of
 * its subfolders; a pattern (* ? [ ]), all that it matches. What one path adds is sorted by bytes,
 * so that the order is the same on every machine. Inside a folder, names that begin with a dot,
 * special files and symbolic links to folders are passed over. Errors: OCT_E_DATA when there is
 * nothing, or something cannot be read; OCT_E_NOMEM. */
oct_status oct_file_list_add(oct_file_list *list, const char *path, oct_err *err) OCT_MUST_CHECK;

#endif
