#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* --- the operating system ------------------------------------------------------------------ */

static int real_open(const oct_file_table *self, const char *path)
{
    (void)self;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    return file < 0 ? -errno : file;
}

static int real_create(const oct_file_table *self, const char *path)
{
    (void)self;
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return file < 0 ? -errno : file;
}

static int64_t real_pread(const oct_file_table *self, int file, void *data, size_t bytes,
                          uint64_t offset)
{
    (void)self;
    const ssize_t n = pread(file, data, bytes, (off_t)offset);
    return n < 0 ? -errno : (int64_t)n;
}

static int64_t real_pwrite(const oct_file_table *self, int file, const void *data, size_t bytes,
                           uint64_t offset)
{
    (void)self;
    const ssize_t n = pwrite(file, data, bytes, (off_t)offset);
    return n < 0 ? -errno : (int64_t)n;
}

static int real_fsync(const oct_file_table *self, int file)
{
    (void)self;
    return fsync(file) ? -errno : 0;
}

static int real_close(const oct_file_table *self, int file)
{
    (void)self;
    /* Linux frees the descriptor even on EINTR: a second close could hit someone else's file. */
    return close(file) && errno != EINTR ? -errno : 0;
}

static int real_rename(const oct_file_table *self, const char *from, const char *to)
{
    (void)self;
    return rename(from, to) ? -errno : 0;
}

static int real_rename_new(const oct_file_table *self, const char *from, const char *to)
{
    (void)self;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    /* A file system without the flag; the run directory's lock keeps others out. */
    struct stat st;
    if (lstat(to, &st) == 0)
        return -EEXIST;
    if (errno != ENOENT)
        return -errno;
    return rename(from, to) ? -errno : 0;
}

static int real_unlink(const oct_file_table *self, const char *path)
{
    (void)self;
    return unlink(path) ? -errno : 0;
}

static int real_mkdir(const oct_file_table *self, const char *path)
{
    (void)self;
    return mkdir(path, 0777) ? -errno : 0;
}

static int real_rmdir(const oct_file_table *self, const char *path)
{
    (void)self;
    return rmdir(path) ? -errno : 0;
}

static int real_fsync_dir(const oct_file_table *self, const char *path)
{
    (void)self;
    const int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    const int result = fsync(dir) ? -errno : 0;
    (void)close(dir);
    return result;
}

static int real_list(const oct_file_table *self, const char *path, oct_file_visitor visit,
                     void *arg)
{
    (void)self;
    DIR *dir = opendir(path);
    if (!dir)
        return -errno;
    int result = 0;
    while (result == 0) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry) {
            result = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = visit(arg, entry->d_name);
    }
    (void)closedir(dir);
    return result;
}

static int real_stat(const oct_file_table *self, const char *path, oct_file_info *info)
{
    (void)self;
    struct stat st;
    *info = (oct_file_info){.kind = OCT_FILE_NONE};
    if (stat(path, &st))
        return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
    info->kind = S_ISREG(st.st_mode)   ? OCT_FILE_REGULAR
                 : S_ISDIR(st.st_mode) ? OCT_FILE_DIRECTORY
                                       : OCT_FILE_OTHER;
    info->bytes = st.st_size > 0 ? (uint64_t)st.st_size : 0;
    return 0;
}

static int real_free_space(const oct_file_table *self, const char *path, uint64_t *bytes)
{
    (void)self;
    struct statvfs st;
    if (statvfs(path, &st))
        return -errno;
    *bytes = (uint64_t)st.f_bavail * (uint64_t)st.f_frsize;
    return 0;
}

const oct_file_table oct_file_table_real = {
    .open = real_open,
    .create = real_create,
    .pread = real_pread,
    .pwrite = real_pwrite,
    .fsync = real_fsync,
    .close = real_close,
    .rename = real_rename,
    .rename_new = real_rename_new,
    .unlink = real_unlink,
    .mkdir = real_mkdir,
    .rmdir = real_rmdir,
    .fsync_dir = real_fsync_dir,
    .list = real_list,
    .stat = real_stat,
    .free_space = real_free_space,
};

/* --- helpers ------------------------------------------------------------------------------- */

/* Linux moves no more than this in one read or write. */
enum { MAX_TRANSFER_BYTES = 0x7ffff000 };

static oct_status fail_errno(oct_err *err, const char *what, const char *path, int64_t result)
{
    char text[128];
    /* The GNU form of strerror_r returns the text, which need not be in the buffer. */
    const char *reason = strerror_r((int)-result, text, sizeof text);
    return OCT_FAIL(err, OCT_E_IO, "cannot %s '%s': %s", what, path, reason);
}

oct_status oct_file_open(const oct_file_table *table, const char *path, oct_file *out, oct_err *err)
{
    *out = (oct_file){.table = table, .path = path, .handle = -1};
    int handle;
    do {
        handle = table->open(table, path);
    } while (handle == -EINTR);
    if (handle < 0)
        return fail_errno(err, "open", path, handle);
    out->handle = handle;
    return OCT_OK;
}

oct_status oct_file_create(const oct_file_table *table, const char *path, oct_file *out,
                           oct_err *err)
{
    *out = (oct_file){.table = table, .path = path, .handle = -1};
    int handle;
    do {
        handle = table->create(table, path);
    } while (handle == -EINTR);
    if (handle < 0)
        return fail_errno(err, "create", path, handle);
    out->handle = handle;
    return OCT_OK;
}

oct_status oct_file_read(const oct_file *file, void *data, size_t bytes, uint64_t offset,
                         oct_err *err)
{
    unsigned char *to = data;
    while (bytes > 0) {
        const size_t piece = bytes < MAX_TRANSFER_BYTES ? bytes : MAX_TRANSFER_BYTES;
        const int64_t n = file->table->pread(file->table, file->handle, to, piece, offset);
        if (n == -EINTR)
            continue;
        if (n < 0)
            return fail_errno(err, "read", file->path, n);
        if (n == 0)
            return OCT_FAIL(err, OCT_E_CORRUPT,
                            "cannot read '%s': it ends at byte %llu, %zu more bytes are required",
                            file->path, (unsigned long long)offset, bytes);
        to += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return OCT_OK;
}

oct_status oct_file_write(const oct_file *file, const void *data, size_t bytes, uint64_t offset,
                          oct_err *err)
{
    const unsigned char *from = data;
    while (bytes > 0) {
        const size_t piece = bytes < MAX_TRANSFER_BYTES ? bytes : MAX_TRANSFER_BYTES;
        const int64_t n = file->table->pwrite(file->table, file->handle, from, piece, offset);
        if (n == -EINTR)
            continue;
        /* A write that moves nothing and names no reason would loop for ever. */
        if (n <= 0)
            return fail_errno(err, "write", file->path, n < 0 ? n : -EIO);
        from += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return OCT_OK;
}

oct_status oct_file_sync(const oct_file *file, oct_err *err)
{
    int result;
    do {
        result = file->table->fsync(file->table, file->handle);
    } while (result == -EINTR);
    return result ? fail_errno(err, "sync", file->path, result) : OCT_OK;
}

oct_status oct_file_close(oct_file *file, oct_err *err)
{
    const int handle = file->handle;
    file->handle = -1;
    const int result = file->table->close(file->table, handle);
    return result ? fail_errno(err, "close", file->path, result) : OCT_OK;
}

void oct_file_discard(oct_file *file)
{
    if (file->handle >= 0)
        (void)file->table->close(file->table, file->handle);
    file->handle = -1;
}

static oct_status rename_failed(oct_err *err, const char *from, const char *to, int result)
{
    (void)fail_errno(err, "rename", from, result);
    return OCT_WRAP(err, OCT_E_IO, "making '%s'", to);
}

oct_status oct_file_rename(const oct_file_table *table, const char *from, const char *to,
                           oct_err *err)
{
    const int result = table->rename(table, from, to);
    return result ? rename_failed(err, from, to, result) : OCT_OK;
}

oct_status oct_file_rename_new(const oct_file_table *table, const char *from, const char *to,
                               oct_err *err)
{
    const int result = table->rename_new(table, from, to);
    return result ? rename_failed(err, from, to, result) : OCT_OK;
}

oct_status oct_file_unlink(const oct_file_table *table, const char *path, oct_err *err)
{
    const int result = table->unlink(table, path);
    return result ? fail_errno(err, "remove", path, result) : OCT_OK;
}

oct_status oct_file_mkdir(const oct_file_table *table, const char *path, oct_err *err)
{
    const int result = table->mkdir(table, path);
    return result ? fail_errno(err, "make directory", path, result) : OCT_OK;
}

/* The directory of `path` into `out`: "." for a bare name, "/" for a name below the root. */
static oct_status parent_of(const char *path, char out[OCT_PATH_BYTES], oct_err *err)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash ? (size_t)(slash - path) : 0;
    if (length >= OCT_PATH_BYTES)
        return OCT_FAIL(err, OCT_E_IO, "cannot use path '%.64s...': %zu bytes, at most %d fit",
                        path, strlen(path), OCT_PATH_BYTES - 1);
    memcpy(out, path, length);
    out[length] = '\0';
    if (length == 0) {
        out[0] = slash ? '/' : '.';
        out[1] = '\0';
    }
    return OCT_OK;
}

/* A directory that is there may be the work of a process that was killed before it synced the
 * parent (or of one that never does): it is synced as well, if its parent is ours to sync. */
static oct_status make_one_dir(const oct_file_table *table, const char *path, oct_err *err)
{
    oct_file_info info;
    char parent[OCT_PATH_BYTES];
    OCT_TRY(parent_of(path, parent, err));
    OCT_TRY(oct_file_stat(table, path, &info, err));
    const bool is_new = info.kind != OCT_FILE_DIRECTORY;
    if (is_new)
        OCT_TRY(oct_file_mkdir(table, path, err));
    int result;
    do {
        result = table->fsync_dir(table, parent);
    } while (result == -EINTR);
    if (result == 0 || (!is_new && (result == -EACCES || result == -EPERM || result == -EROFS ||
                                    result == -EINVAL)))
        return OCT_OK;
    return fail_errno(err, "sync directory", parent, result);
}

oct_status oct_file_make_dirs(const oct_file_table *table, const char *path, oct_err *err)
{
    char partial[OCT_PATH_BYTES];
    const size_t length = strlen(path);
    if (length == 0 || length >= sizeof partial)
        return OCT_FAIL(err, OCT_E_IO, "cannot make directory '%.64s': %zu bytes, 1 to %d required",
                        path, length, OCT_PATH_BYTES - 1);
    memcpy(partial, path, length + 1);
    for (size_t i = 1; i < length; i++) {
        if (partial[i] != '/')
            continue;
        partial[i] = '\0';
        if (partial[i - 1] != '/' && partial[i - 1] != '\0')
            OCT_TRY(make_one_dir(table, partial, err));
        partial[i] = '/';
    }
    return make_one_dir(table, partial, err);
}

oct_status oct_file_sync_dir(const oct_file_table *table, const char *path, oct_err *err)
{
    int result;
    do {
        result = table->fsync_dir(table, path);
    } while (result == -EINTR);
    return result ? fail_errno(err, "sync directory", path, result) : OCT_OK;
}

oct_status oct_file_list(const oct_file_table *table, const char *path, oct_file_visitor visit,
                         void *arg, oct_err *err)
{
    const int result = table->list(table, path, visit, arg);
    return result ? fail_errno(err, "list", path, result) : OCT_OK;
}

oct_status oct_file_stat(const oct_file_table *table, const char *path, oct_file_info *info,
                         oct_err *err)
{
    const int result = table->stat(table, path, info);
    return result ? fail_errno(err, "stat", path, result) : OCT_OK;
}

oct_status oct_file_require_regular(const oct_file_table *table, const char *what, const char *path,
                                    oct_err *err)
{
    static const char *const found[] = {"nothing", "a regular file", "a directory",
                                        "a pipe or a device"};
    oct_file_info info;
    OCT_TRY(oct_file_stat(table, path, &info, err));
    if (info.kind == OCT_FILE_NONE || info.kind == OCT_FILE_REGULAR)
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_IO, "cannot open %s: found %s, a regular file is required (%s)",
                    what, found[info.kind], path);
}

oct_status oct_file_free_space(const oct_file_table *table, const char *path, uint64_t *bytes,
                               oct_err *err)
{
    const int result = table->free_space(table, path, bytes);
    return result ? fail_errno(err, "ask for the free space of", path, result) : OCT_OK;
}

/* Remembers one name: removing while listing is not portable. */
static int first_name(void *arg, const char *name)
{
    char *out = arg;
    if (strlen(name) >= OCT_PATH_BYTES)
        return -ENAMETOOLONG;
    memcpy(out, name, strlen(name) + 1);
    return 1;
}

oct_status oct_file_remove_dir(const oct_file_table *table, const char *path, oct_err *err)
{
    for (;;) {
        char name[OCT_PATH_BYTES], full[OCT_PATH_BYTES];
        const int result = table->list(table, path, first_name, name);
        if (result < 0)
            return fail_errno(err, "list", path, result);
        if (result == 0)
            break;
        OCT_TRY(oct_path_join(path, name, full, sizeof full, err));
        OCT_TRY(oct_file_unlink(table, full, err));
    }
    const int result = table->rmdir(table, path);
    return result ? fail_errno(err, "remove directory", path, result) : OCT_OK;
}

oct_status oct_file_read_all(const oct_file_table *table, const char *path, size_t limit_bytes,
                             char **data, size_t *bytes, oct_err *err)
{
    oct_file_info info;
    OCT_TRY(oct_file_stat(table, path, &info, err));
    if (info.kind == OCT_FILE_NONE)
        return fail_errno(err, "open", path, -ENOENT);
    if (info.kind != OCT_FILE_REGULAR)
        return OCT_FAIL(err, OCT_E_IO, "cannot read '%s': a regular file is required", path);
    if (info.bytes > limit_bytes)
        return OCT_FAIL(err, OCT_E_CORRUPT, "cannot read '%s': %llu bytes, at most %zu are allowed",
                        path, (unsigned long long)info.bytes, limit_bytes);
    const size_t size = (size_t)info.bytes;
    char *text = malloc(size + 1);
    if (!text)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot read '%s': no memory for %zu bytes", path, size);
    oct_file file;
    oct_status status = oct_file_open(table, path, &file, err);
    if (status == OCT_OK) {
        status = oct_file_read(&file, text, size, 0, err);
        oct_file_discard(&file);
    }
    if (status != OCT_OK) {
        free(text);
        return status;
    }
    text[size] = '\0';
    *data = text;
    *bytes = size;
    return OCT_OK;
}

static oct_status write_whole(const oct_file_table *table, const char *path, const void *data,
                              size_t bytes, oct_err *err)
{
    oct_file file;
    OCT_TRY(oct_file_create(table, path, &file, err));
    oct_status status = oct_file_write(&file, data, bytes, 0, err);
    if (status == OCT_OK)
        status = oct_file_sync(&file, err);
    if (status == OCT_OK)
        status = oct_file_close(&file, err);
    oct_file_discard(&file);
    return status;
}

oct_status oct_file_replace(const oct_file_table *table, const char *path, const void *data,
                            size_t bytes, oct_err *err)
{
    char temporary[OCT_PATH_BYTES], parent[OCT_PATH_BYTES];
    const int n = snprintf(temporary, sizeof temporary, "%s.tmp", path);
    if (n < 0 || (size_t)n >= sizeof temporary)
        return OCT_FAIL(err, OCT_E_IO, "cannot use path '%.64s...': at most %d bytes fit", path,
                        OCT_PATH_BYTES - 5);
    OCT_TRY(parent_of(path, parent, err));
    (void)table->unlink(table, temporary); /* left by a killed process, or not there */
    oct_status status = write_whole(table, temporary, data, bytes, err);
    if (status == OCT_OK)
        status = oct_file_rename(table, temporary, path, err);
    if (status != OCT_OK) {
        (void)table->unlink(table, temporary);
        return status;
    }
    return oct_file_sync_dir(table, parent, err);
}

oct_status oct_path_join(const char *dir, const char *name, char *out, size_t out_bytes,
                         oct_err *err)
{
    const size_t length = strlen(dir);
    const char *between = length > 0 && dir[length - 1] == '/' ? "" : "/";
    const int n = snprintf(out, out_bytes, "%s%s%s", dir, between, name);
    if (n < 0 || (size_t)n >= out_bytes)
        return OCT_FAIL(err, OCT_E_IO, "cannot use path '%.64s.../%.64s': at most %zu bytes fit",
                        dir, name, out_bytes - 1);
    return OCT_OK;
}
