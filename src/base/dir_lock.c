#include "base/dir_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"

static void first_line(int fd, char out[OCT_DIR_LOCK_HOLDER])
{
    memset(out, 0, OCT_DIR_LOCK_HOLDER);
    const ssize_t n = fd < 0 ? 0 : read(fd, out, OCT_DIR_LOCK_HOLDER - 1);
    out[n > 0 ? (size_t)n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

oct_status oct_dir_lock(const char *dir, const char *what, int *fd, oct_err *err)
{
    char name[OCT_PATH_BYTES], text[OCT_DIR_LOCK_HOLDER];
    *fd = -1;
    OCT_TRY(oct_path_join(dir, "lock", name, sizeof name, err));
    const int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return OCT_FAIL(err, OCT_E_IO, "cannot lock the %s: %s (%s)", what, strerror(errno), name);
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
        first_line(file, text);
        close(file);
        return OCT_FAIL(err, OCT_E_IO, "%s is in use: held by %s, a free one is required (%s)",
                        what, text[0] ? text : "another process", dir);
    }
    char host[256] = "unknown";
    (void)gethostname(host, sizeof host - 1);
    const int n = snprintf(text, sizeof text, "pid %ld on %s\n", (long)getpid(), host);
    errno = ENOSPC; /* what a write cut short means */
    if (ftruncate(file, 0) != 0 || pwrite(file, text, (size_t)n, 0) != n || fsync(file) != 0) {
        const int error = errno;
        close(file);
        return OCT_FAIL(err, OCT_E_IO, "cannot lock the %s: %s (%s)", what, strerror(error), name);
    }
    *fd = file;
    return OCT_OK;
}

void oct_dir_lock_holder(const char *dir, char out[OCT_DIR_LOCK_HOLDER])
{
    char name[OCT_PATH_BYTES];
    const int fd = oct_path_join(dir, "lock", name, sizeof name, NULL) == OCT_OK
                       ? open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                       : -1;
    first_line(fd, out);
    if (fd >= 0)
        close(fd);
}
