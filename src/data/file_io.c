#include "data/file_io.h"

#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == 8, "file offsets have 64 bits");

oct_status oct_data_read_at(int fd, const char *path, int64_t offset, void *out, size_t bytes,
                            oct_err *err)
{
    size_t done = 0;
    while (done < bytes) {
        const ssize_t got = pread(fd, (char *)out + done, bytes - done, offset + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return OCT_FAIL(err, OCT_E_DATA, "cannot read data: %s (%s)", strerror(errno), path);
        if (got == 0)
            return OCT_FAIL(
                err, OCT_E_DATA,
                "cannot read data: the file ends at byte %lld, %zu bytes from %lld on are "
                "required (%s)",
                (long long)(offset + (int64_t)done), bytes, (long long)offset, path);
        done += (size_t)got;
    }
    return OCT_OK;
}

oct_status oct_data_write_at(int fd, const char *path, int64_t offset, const void *data,
                             size_t bytes, oct_err *err)
{
    size_t done = 0;
    while (done < bytes) {
        const ssize_t put =
            pwrite(fd, (const char *)data + done, bytes - done, offset + (off_t)done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return OCT_FAIL(err, OCT_E_IO, "cannot write: %s (%s)", strerror(errno), path);
        done += (size_t)put;
    }
    return OCT_OK;
}
