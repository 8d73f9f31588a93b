/* A file table over the real one that makes the n-th call misbehave. */
#ifndef OCT_TESTS_FAULTY_FILES_H
#define OCT_TESTS_FAULTY_FILES_H

#include <errno.h>
#include <stdint.h>

#include "base/file.h"

typedef enum faulty_mode {
    FAULTY_NONE,
    FAULTY_EIO,    /* the call fails */
    FAULTY_ENOSPC, /* the call fails */
    FAULTY_EINTR,  /* the call is interrupted once */
    FAULTY_SHORT,  /* a transfer moves only a part; other calls work */
    FAULTY_DEAD    /* this call and all later ones fail: the process was killed */
} faulty_mode;

typedef struct faulty_files {
    oct_file_table table;
    faulty_mode mode;
    int64_t fail_at; /* 1 = the first call */
    int64_t calls;
    int64_t open_files;
    const char *failed_operation; /* NULL: the fault has not been reached */
} faulty_files;

/* The error of this call: 0 = go on, 1 = go on with a part of the transfer. */
static int faulty_call(const oct_file_table *self, const char *operation)
{
    /* The table is the first member of an object that the test owns and may change. */
    faulty_files *files = (faulty_files *)(uintptr_t)self;
    files->calls++;
    const int is_hit = files->calls == files->fail_at;
    if (is_hit)
        files->failed_operation = operation;
    switch (files->mode) {
    case FAULTY_NONE:
        break;
    case FAULTY_EIO:
        return is_hit ? -EIO : 0;
    case FAULTY_ENOSPC:
        return is_hit ? -ENOSPC : 0;
    case FAULTY_EINTR:
        return is_hit ? -EINTR : 0;
    case FAULTY_SHORT:
        return is_hit;
    case FAULTY_DEAD:
        return files->calls >= files->fail_at ? -EIO : 0;
    }
    return 0;
}

static void faulty_count(const oct_file_table *self, int64_t change)
{
    ((faulty_files *)(uintptr_t)self)->open_files += change;
}

static int faulty_open(const oct_file_table *self, const char *path)
{
    const int fault = faulty_call(self, "open");
    if (fault < 0)
        return fault;
    const int file = oct_file_table_real.open(&oct_file_table_real, path);
    faulty_count(self, file >= 0);
    return file;
}

static int faulty_create(const oct_file_table *self, const char *path)
{
    const int fault = faulty_call(self, "create");
    if (fault < 0)
        return fault;
    const int file = oct_file_table_real.create(&oct_file_table_real, path);
    faulty_count(self, file >= 0);
    return file;
}

static int64_t faulty_pread(const oct_file_table *self, int file, void *data, size_t bytes,
                            uint64_t offset)
{
    const int fault = faulty_call(self, "pread");
    if (fault < 0)
        return fault;
    const size_t n = fault > 0 && bytes > 1 ? bytes / 2 : bytes;
    return oct_file_table_real.pread(&oct_file_table_real, file, data, n, offset);
}

static int64_t faulty_pwrite(const oct_file_table *self, int file, const void *data, size_t bytes,
                             uint64_t offset)
{
    const int fault = faulty_call(self, "pwrite");
    if (fault < 0)
        return fault;
    const size_t n = fault > 0 && bytes > 1 ? bytes / 2 : bytes;
    return oct_file_table_real.pwrite(&oct_file_table_real, file, data, n, offset);
}

static int faulty_fsync(const oct_file_table *self, int file)
{
    const int fault = faulty_call(self, "fsync");
    return fault < 0 ? fault : oct_file_table_real.fsync(&oct_file_table_real, file);
}

/* The descriptor is gone whatever close reports. */
static int faulty_close(const oct_file_table *self, int file)
{
    const int fault = faulty_call(self, "close");
    faulty_count(self, -1);
    const int result = oct_file_table_real.close(&oct_file_table_real, file);
    return fault < 0 && fault != -EINTR ? fault : result;
}

static int faulty_rename(const oct_file_table *self, const char *from, const char *to)
{
    const int fault = faulty_call(self, "rename");
    return fault < 0 ? fault : oct_file_table_real.rename(&oct_file_table_real, from, to);
}

static int faulty_rename_new(const oct_file_table *self, const char *from, const char *to)
{
    const int fault = faulty_call(self, "rename_new");
    return fault < 0 ? fault : oct_file_table_real.rename_new(&oct_file_table_real, from, to);
}

static int faulty_unlink(const oct_file_table *self, const char *path)
{
    const int fault = faulty_call(self, "unlink");
    return fault < 0 ? fault : oct_file_table_real.unlink(&oct_file_table_real, path);
}

static int faulty_mkdir(const oct_file_table *self, const char *path)
{
    const int fault = faulty_call(self, "mkdir");
    return fault < 0 ? fault : oct_file_table_real.mkdir(&oct_file_table_real, path);
}

static int faulty_rmdir(const oct_file_table *self, const char *path)
{
    const int fault = faulty_call(self, "rmdir");
    return fault < 0 ? fault : oct_file_table_real.rmdir(&oct_file_table_real, path);
}

static int faulty_fsync_dir(const oct_file_table *self, const char *path)
{
    const int fault = faulty_call(self, "fsync_dir");
    return fault < 0 ? fault : oct_file_table_real.fsync_dir(&oct_file_table_real, path);
}

static int faulty_list(const oct_file_table *self, const char *path, oct_file_visitor visit,
                       void *arg)
{
    const int fault = faulty_call(self, "list");
    return fault < 0 ? fault : oct_file_table_real.list(&oct_file_table_real, path, visit, arg);
}

static int faulty_stat(const oct_file_table *self, const char *path, oct_file_info *info)
{
    const int fault = faulty_call(self, "stat");
    return fault < 0 ? fault : oct_file_table_real.stat(&oct_file_table_real, path, info);
}

static int faulty_free_space(const oct_file_table *self, const char *path, uint64_t *bytes)
{
    const int fault = faulty_call(self, "free_space");
    return fault < 0 ? fault : oct_file_table_real.free_space(&oct_file_table_real, path, bytes);
}

static faulty_files faulty_files_new(faulty_mode mode, int64_t fail_at)
{
    return (faulty_files){.table = {.open = faulty_open,
                                    .create = faulty_create,
                                    .pread = faulty_pread,
                                    .pwrite = faulty_pwrite,
                                    .fsync = faulty_fsync,
                                    .close = faulty_close,
                                    .rename = faulty_rename,
                                    .rename_new = faulty_rename_new,
                                    .unlink = faulty_unlink,
                                    .mkdir = faulty_mkdir,
                                    .rmdir = faulty_rmdir,
                                    .fsync_dir = faulty_fsync_dir,
                                    .list = faulty_list,
                                    .stat = faulty_stat,
                                    .free_space = faulty_free_space},
                          .mode = mode,
                          .fail_at = fail_at};
}

#endif
