#include "trainer/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir_lock.h"
#include "base/file.h"

/* First line of a run directory's config.yaml. */
static const char config_mark[] = "# octet run configuration, resolved\n";

/* Leaves room for the longest path below: a file of a checkpoint that is being written. */
static oct_status check_length(const char *path, oct_err *err)
{
    enum { MAX_BYTES = OCT_PATH_MAX - 128 };
    if (strlen(path) > MAX_BYTES)
        return OCT_FAIL(
            err, OCT_E_CONFIG,
            "run directory path is too long: %zu characters, at most %d are allowed (%.64s...)",
            strlen(path), MAX_BYTES, path);
    return OCT_OK;
}

static void join(char out[OCT_PATH_MAX], const char *dir, const char *name)
{
    if (snprintf(out, OCT_PATH_MAX, "%s/%s", dir, name) >= OCT_PATH_MAX)
        out[0] = '\0'; /* not after check_length */
}

static bool has_mark(const char *config)
{
    char head[sizeof config_mark] = {0};
    const int fd = open(config, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* no waiting at a pipe */
    if (fd < 0)
        return false;
    const ssize_t n = read(fd, head, sizeof config_mark - 1);
    close(fd);
    return n == (ssize_t)sizeof config_mark - 1 && memcmp(head, config_mark, (size_t)n) == 0;
}

static bool is_trace(const char *name)
{
    const char *const prefix = "trace-";
    const size_t length = strlen(prefix);
    if (strncmp(name, prefix, length) != 0)
        return false;
    const size_t digits = strspn(name + length, "0123456789");
    return digits > 0 && strcmp(name + length + digits, ".jsonl") == 0;
}

/* What a run that died before its config.yaml was written leaves behind. */
static bool left_by_a_start(const char *path, const char *name)
{
    if (strcmp(name, "lock") == 0 || strcmp(name, "config.yaml.tmp") == 0 || is_trace(name))
        return true;
    char inner[OCT_PATH_MAX + 16];
    (void)snprintf(inner, sizeof inner, "%s/checkpoints", path);
    DIR *dir = strcmp(name, "checkpoints") == 0 ? opendir(inner) : NULL;
    if (!dir)
        return false;
    int entries = 0;
    while (readdir(dir))
        entries++;
    closedir(dir);
    return entries == 2; /* "." and ".." */
}

static oct_status check_empty(const char *path, oct_err *err)
{
    DIR *dir = opendir(path);
    if (!dir)
        return OCT_FAIL(err, OCT_E_IO, "cannot read the run directory: %s (%s)", strerror(errno),
                        path);
    oct_status status = OCT_OK;
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || left_by_a_start(path, name))
            continue;
        status = OCT_FAIL(err, OCT_E_CONFIG,
                          "cannot use the run directory: it holds '%s' and no run of octet, an "
                          "empty directory or one of an earlier run is required (%s)",
                          name, path);
        break;
    }
    closedir(dir);
    return status;
}

oct_status oct_run_dir_name(const char *path, oct_run_dir *out, oct_err *err)
{
    *out = (oct_run_dir){.lock_fd = -1};
    OCT_TRY(check_length(path, err));
    join(out->config, path, "config.yaml");
    join(out->metrics, path, "metrics.jsonl");
    join(out->checkpoints, path, "checkpoints");
    memcpy(out->path, path, strlen(path) + 1);
    return OCT_OK;
}

oct_status oct_run_dir_open(const char *path, oct_run_dir *out, oct_err *err)
{
    OCT_TRY(oct_run_dir_name(path, out, err));
    OCT_TRY(oct_file_make_dirs(&oct_file_table_real, path, err));
    out->existed = has_mark(out->config);
    if (!out->existed)
        OCT_TRY(check_empty(path, err));
    OCT_TRY(oct_dir_lock(path, "run directory", &out->lock_fd, err));
    if (mkdir(out->checkpoints, 0777) != 0 && errno != EEXIST) {
        const int error = errno;
        oct_run_dir_close(out);
        return OCT_FAIL(err, OCT_E_IO, "cannot create the checkpoint directory: %s (%s)",
                        strerror(error), out->checkpoints);
    }
    return OCT_OK;
}

void oct_run_dir_close(oct_run_dir *dir)
{
    if (dir->lock_fd >= 0)
        close(dir->lock_fd);
    dir->lock_fd = -1;
}

oct_status oct_run_dir_write_config(const oct_run_dir *dir, const char *text, oct_err *err)
{
    const size_t mark = sizeof config_mark - 1, length = strlen(text);
    char *data = malloc(mark + length);
    if (!data)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot write %zu bytes of configuration (%s)",
                        mark + length, dir->config);
    memcpy(data, config_mark, mark);
    memcpy(data + mark, text, length);
    const oct_status status =
        oct_file_replace(&oct_file_table_real, dir->config, data, mark + length, err);
    free(data);
    return status;
}

oct_status oct_run_dir_read_config(const oct_run_dir *dir, char **text, oct_err *err)
{
    enum { LIMIT = 64 << 20 };
    *text = NULL;
    if (!has_mark(dir->config))
        return OCT_OK;
    size_t bytes = 0;
    OCT_TRY(oct_file_read_all(&oct_file_table_real, dir->config, LIMIT, text, &bytes, err));
    const size_t mark = sizeof config_mark - 1;
    memmove(*text, *text + mark, bytes - mark + 1);
    return OCT_OK;
}
