/* File operations behind one table, so that a test can make any of them fail, run short or lose
 * unsynced data. The helpers below the table are what the rest of the code calls: they retry EINTR,
 * finish short transfers and turn errno into a message with the path. */
#ifndef OCT_BASE_FILE_H
#define OCT_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum oct_file_kind {
    OCT_FILE_NONE,
    OCT_FILE_REGULAR,
    OCT_FILE_DIRECTORY,
    OCT_FILE_OTHER
} oct_file_kind;

typedef struct oct_file_info {
    oct_file_kind kind; /* OCT_FILE_NONE: nothing of this name exists */
    uint64_t bytes;
} oct_file_info;

/* Called once per entry but "." and ".."; any value but 0 stops the listing and is returned. */
typedef int (*oct_file_visitor)(void *arg, const char *name);

/* Operations of one file system. Every function returns 0 (or a handle, or a byte count) on success
 * and -errno on failure. `self` is the table: an implementation with state embeds it first. Any
 * thread may call; one handle is used by one thread at a time. */
typedef struct oct_file_table oct_file_table;
struct oct_file_table {
    int (*open)(const oct_file_table *self, const char *path);   /* for reading */
    int (*create)(const oct_file_table *self, const char *path); /* for writing; -EEXIST if there */
    int64_t (*pread)(const oct_file_table *self, int file, void *data, size_t bytes,
                     uint64_t offset); /* may be short; 0 at the end */
    int64_t (*pwrite)(const oct_file_table *self, int file, const void *data, size_t bytes,
                      uint64_t offset); /* may be short */
    int (*fsync)(const oct_file_table *self, int file);
    int (*close)(const oct_file_table *self, int file);
    int (*rename)(const oct_file_table *self, const char *from,
                  const char *to); /* replaces a file */
    int (*rename_new)(const oct_file_table *self, const char *from,
                      const char *to); /* -EEXIST if `to` is there */
    int (*unlink)(const oct_file_table *self, const char *path);
    int (*mkdir)(const oct_file_table *self, const char *path);
    int (*rmdir)(const oct_file_table *self, const char *path);
    int (*fsync_dir)(const oct_file_table *self, const char *path);
    int (*list)(const oct_file_table *self, const char *path, oct_file_visitor visit, void *arg);
    int (*stat)(const oct_file_table *self, const char *path, oct_file_info *info);
    int (*free_space)(const oct_file_table *self, const char *path, uint64_t *bytes);
};

/* The operating system's files. */
extern const oct_file_table oct_file_table_real;

/* An open file. `path` is borrowed: it outlives the file. */
typedef struct oct_file {
    const oct_file_table *table;
    const char *path;
    int handle;
} oct_file;

/* Every helper: errors are OCT_E_IO with operation, path and the text of errno. After a failure
 * *out may be discarded. */
oct_status oct_file_open(const oct_file_table *table, const char *path, oct_file *out,
                         oct_err *err) OCT_MUST_CHECK;
oct_status oct_file_create(const oct_file_table *table, const char *path, oct_file *out,
                           oct_err *err) OCT_MUST_CHECK;

/* All of `bytes`, in transfers of at most 0x7ffff000 (Linux moves no more per call). Reading past
 * the end is OCT_E_CORRUPT: the file is shorter than its description says. */
oct_status oct_file_read(const oct_file *file, void *data, size_t bytes, uint64_t offset,
                         oct_err *err) OCT_MUST_CHECK;
oct_status oct_file_write(const oct_file *file, const void *data, size_t bytes, uint64_t offset,
                          oct_err *err) OCT_MUST_CHECK;

/* A failure is final: the kernel may have dropped the dirty pages, so a second fsync proves
 * nothing. */
oct_status oct_file_sync(const oct_file *file, oct_err *err) OCT_MUST_CHECK;

/* Reports the failure of a deferred write; the handle is gone either way. */
oct_status oct_file_close(oct_file *file, oct_err *err) OCT_MUST_CHECK;

/* For error paths: closes and reports nothing. */
void oct_file_discard(oct_file *file);

/* Replaces `to` if it exists. */
oct_status oct_file_rename(const oct_file_table *table, const char *from, const char *to,
                           oct_err *err) OCT_MUST_CHECK;
/* The target must not exist. */
oct_status oct_file_rename_new(const oct_file_table *table, const char *from, const char *to,
                               oct_err *err) OCT_MUST_CHECK;
oct_status oct_file_unlink(const oct_file_table *table, const char *path,
                           oct_err *err) OCT_MUST_CHECK;
oct_status oct_file_mkdir(const oct_file_table *table, const char *path,
                          oct_err *err) OCT_MUST_CHECK;
/* Makes `path` and its missing parents and syncs the parent of each of them, also of those that are
 * there (where that is allowed): who made them may have died before the sync. */
oct_status oct_file_make_dirs(const oct_file_table *table, const char *path,
                              oct_err *err) OCT_MUST_CHECK;
oct_status oct_file_sync_dir(const oct_file_table *table, const char *path,
                             oct_err *err) OCT_MUST_CHECK;
oct_status oct_file_list(const oct_file_table *table, const char *path, oct_file_visitor visit,
                         void *arg, oct_err *err) OCT_MUST_CHECK;
/* info->kind is OCT_FILE_NONE, and the call succeeds, if nothing is there. */
oct_status oct_file_stat(const oct_file_table *table, const char *path, oct_file_info *info,
                         oct_err *err) OCT_MUST_CHECK;
oct_status oct_file_free_space(const oct_file_table *table, const char *path, uint64_t *bytes,
                               oct_err *err) OCT_MUST_CHECK;

/* Refuses a path where something else than a regular file is: opening a pipe would wait for its
 * other end. Nothing there is fine. `what` is named in the message. Errors: OCT_E_IO. */
oct_status oct_file_require_regular(const oct_file_table *table, const char *what, const char *path,
                                    oct_err *err) OCT_MUST_CHECK;

/* Unlinks the files of a directory that has no subdirectories, then the directory. */
oct_status oct_file_remove_dir(const oct_file_table *table, const char *path,
                               oct_err *err) OCT_MUST_CHECK;

/* The whole file on the heap with a terminating 0 that *bytes does not count; free() it. Errors
 * also: OCT_E_CORRUPT if it is longer than limit_bytes; OCT_E_NOMEM. */
oct_status oct_file_read_all(const oct_file_table *table, const char *path, size_t limit_bytes,
                             char **data, size_t *bytes, oct_err *err) OCT_MUST_CHECK;

/* Puts a file in place of whatever `path` was in one atomic step: writes `path`.tmp, fsync, rename,
 * fsync of the directory. After a failure the old contents stand, or, if only the last fsync
 * failed, perhaps the new ones; never a mixture. */
oct_status oct_file_replace(const oct_file_table *table, const char *path, const void *data,
                            size_t bytes, oct_err *err) OCT_MUST_CHECK;

/* "dir/name" into out. Errors: OCT_E_IO if it does not fit. */
oct_status oct_path_join(const char *dir, const char *name, char *out, size_t out_bytes,
                         oct_err *err) OCT_MUST_CHECK;

/* Room for any path here; longer ones are errors. */
enum { OCT_PATH_BYTES = 4096 };

#endif
