#include "data/file_list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void oct_file_list_release(oct_file_list *list)
{
    free(list->paths);
    list->paths = NULL;
    list->count = list->capacity = 0;
}

/* Takes a copy of folder/name, or of `name` alone with folder NULL. */
static oct_status append(oct_file_list *list, const char *folder, const char *name, oct_err *err)
{
    if (list->count == list->capacity) {
        const int64_t capacity = 2 * list->capacity + 64;
        const char **grown = realloc(list->paths, (size_t)capacity * sizeof *grown);
        if (!grown)
            return OCT_FAIL(err, OCT_E_NOMEM, "cannot list data: no memory for %lld names (%s)",
                            (long long)capacity, name);
        list->paths = grown;
        list->capacity = capacity;
    }
    const size_t front = folder ? strlen(folder) : 0, back = strlen(name);
    const size_t slash = front && folder[front - 1] != '/';
    void *memory = NULL;
    OCT_TRY(oct_arena_alloc(list->arena, front + slash + back + 1, &memory, err));
    char *path = memory;
    if (front)
        memcpy(path, folder, front);
    if (slash)
        path[front] = '/';
    memcpy(path + front + slash, name, back + 1);
    list->paths[list->count++] = path;
    return OCT_OK;
}

static int compare(const void *a, const void *b)
{
    const char *const *left = a;
    const char *const *right = b;
    return strcmp(*left, *right);
}

/* The entry at the end of the list is a name inside a folder: keeps a file, puts a folder into
 * `folders`, drops anything else. */
static oct_status sort_out(oct_file_list *list, oct_file_list *folders, oct_err *err)
{
    struct stat about;
    const char *path = list->paths[list->count - 1];
    if (lstat(path, &about) == 0 && S_ISDIR(about.st_mode)) {
        list->count--;
        return append(folders, NULL, path, err);
    }
    if (stat(path, &about) != 0)
        return OCT_FAIL(err, OCT_E_DATA, "cannot open data: %s (%s)", strerror(errno), path);
    if (!S_ISREG(about.st_mode))
        list->count--;
    return OCT_OK;
}

static oct_status read_folder(oct_file_list *list, oct_file_list *folders, const char *path,
                              oct_err *err)
{
    DIR *folder = opendir(path);
    if (!folder)
        return OCT_FAIL(err, OCT_E_DATA, "cannot open data folder: %s (%s)", strerror(errno), path);
    oct_status status = OCT_OK;
    while (status == OCT_OK) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (!entry) {
            if (errno != 0)
                status = OCT_FAIL(err, OCT_E_DATA, "cannot read data folder: %s (%s)",
                                  strerror(errno), path);
            break;
        }
        if (entry->d_name[0] == '.')
            continue;
        status = append(list, path, entry->d_name, err);
        if (status == OCT_OK)
            status = sort_out(list, folders, err);
    }
    (void)closedir(folder);
    return status;
}

/* All regular files below `path`; the folders still to visit wait in a list, so that a deep tree
 * costs no stack. */
static oct_status add_folder(oct_file_list *list, const char *path, oct_err *err)
{
    const int64_t before = list->count;
    oct_file_list folders = {.arena = list->arena};
    oct_status status = append(&folders, NULL, path, err);
    while (status == OCT_OK && folders.count > 0)
        status = read_folder(list, &folders, folders.paths[--folders.count], err);
    oct_file_list_release(&folders);
    OCT_TRY(status);
    if (list->count == before)
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot use data folder: no files in it, at least one is required (%s)",
                        path);
    return OCT_OK;
}

static oct_status add_existing(oct_file_list *list, const char *path, const struct stat *about,
                               oct_err *err)
{
    if (S_ISDIR(about->st_mode))
        return add_folder(list, path, err);
    if (!S_ISREG(about->st_mode))
        return OCT_FAIL(
            err, OCT_E_DATA,
            "cannot use data: a special file, a regular file or folder is required (%s)", path);
    return append(list, NULL, path, err);
}

static oct_status add_pattern(oct_file_list *list, const char *pattern, oct_err *err)
{
    glob_t found;
    const int result = glob(pattern, GLOB_NOSORT, NULL, &found);
    if (result == GLOB_NOMATCH)
        return OCT_FAIL(
            err, OCT_E_DATA,
            "cannot find data: nothing matches the pattern, at least one file is required "
            "(%s)",
            pattern);
    if (result != 0)
        return OCT_FAIL(err, OCT_E_DATA, "cannot find data: the pattern cannot be followed (%s)",
                        pattern);
    oct_status status = OCT_OK;
    for (size_t i = 0; i < found.gl_pathc && status == OCT_OK; i++) {
        struct stat about;
        if (stat(found.gl_pathv[i], &about) != 0)
            status = OCT_FAIL(err, OCT_E_DATA, "cannot open data: %s (%s)", strerror(errno),
                              found.gl_pathv[i]);
        else
            status = add_existing(list, found.gl_pathv[i], &about, err);
    }
    globfree(&found);
    return status;
}

oct_status oct_file_list_add(oct_file_list *list, const char *path, oct_err *err)
{
    const int64_t before = list->count;
    struct stat about;
    /* A file may be named like a pattern: what exists is taken by its name. */
    if (stat(path, &about) == 0)
        OCT_TRY(add_existing(list, path, &about, err));
    else if (strpbrk(path, "*?["))
        OCT_TRY(add_pattern(list, path, err));
    else
        return OCT_FAIL(err, OCT_E_DATA, "cannot open data: %s (%s)", strerror(errno), path);
    qsort(list->paths + before, (size_t)(list->count - before), sizeof *list->paths, compare);
    return OCT_OK;
}
