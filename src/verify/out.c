/* The directory of the evidence. */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/dir_lock.h"
#include "base/utf8.h"
#include "verify/run.h"

static int count_one(void *arg, const char *name)
{
    (void)name;
    ++*(int *)arg;
    return 0;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

oct_status oct_verify_remove_tree(const char *path, oct_err *err)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT)
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_IO, "cannot remove '%s': %s", path, strerror(errno));
}

oct_status oct_verify_open_out(const char *path, int *lock, oct_err *err)
{
    static const char *const folders[] = {"runs", "logs", "cases"};
    char mark[OCT_PATH_BYTES], folder[OCT_PATH_BYTES];
    int entries = 0;
    *lock = -1;
    oct_file_info info = {0};
    if (!oct_utf8_is_valid(path))
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot write evidence to '%s': its name is not UTF-8, which reports and "
                        "configurations require (--out)",
                        path);
    OCT_TRY(oct_file_make_dirs(&oct_file_table_real, path, err));
    OCT_TRY(oct_path_join(path, "verify.mark", mark, sizeof mark, err));
    OCT_TRY(oct_file_list(&oct_file_table_real, path, count_one, &entries, err));
    OCT_TRY(oct_file_stat(&oct_file_table_real, mark, &info, err));
    if (entries > 0 && info.kind != OCT_FILE_REGULAR)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot write evidence to '%s': it holds %d other entries, an empty "
                        "directory or that of an earlier verification is required (--out)",
                        path, entries);
    OCT_TRY(oct_file_replace(&oct_file_table_real, mark, "octet verify\n", 13, err));
    OCT_TRY(oct_dir_lock(path, "evidence directory", lock, err));
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        OCT_TRY(oct_path_join(path, folders[i], folder, sizeof folder, err));
        OCT_TRY(oct_verify_remove_tree(folder, err));
    }
    static const char *const files[] = {"report.json", "report.html"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        OCT_TRY(oct_path_join(path, files[i], folder, sizeof folder, err));
        if (unlink(folder) != 0 && errno != ENOENT)
            return OCT_FAIL(err, OCT_E_IO, "cannot remove '%s': %s", folder, strerror(errno));
    }
    return OCT_OK;
}
