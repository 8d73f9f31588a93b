/* A folder of its own for a test program, with files written from literals. */
#ifndef OCT_TESTS_TEMP_DIR_H
#define OCT_TESTS_TEMP_DIR_H

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct temp_dir {
    char path[256];
} temp_dir;

static inline temp_dir temp_dir_create(void)
{
    temp_dir dir;
    (void)snprintf(dir.path, sizeof dir.path, "/tmp/octet-test-XXXXXX");
    if (!mkdtemp(dir.path))
        perror("mkdtemp");
    return dir;
}

static inline int temp_dir_drop(const char *path, const struct stat *about, int kind,
                                struct FTW *walk)
{
    (void)about;
    (void)kind;
    (void)walk;
    return remove(path);
}

static inline void temp_dir_remove(const temp_dir *dir)
{
    (void)nftw(dir->path, temp_dir_drop, 16, FTW_DEPTH | FTW_PHYS);
}

/* The full name of a file in the folder, in one of eight buffers taken in turn. */
static inline const char *temp_dir_name(const temp_dir *dir, const char *name)
{
    static char names[8][512];
    static int next;
    char *buffer = names[next++ % 8];
    (void)snprintf(buffer, sizeof names[0], "%s/%s", dir->path, name);
    return buffer;
}

static inline const char *temp_dir_write_bytes(const temp_dir *dir, const char *name,
                                               const void *bytes, size_t count)
{
    const char *path = temp_dir_name(dir, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, count, file) != count || fclose(file) != 0)
        perror(path);
    return path;
}

static inline const char *temp_dir_write(const temp_dir *dir, const char *name, const char *text)
{
    return temp_dir_write_bytes(dir, name, text, strlen(text));
}

static inline const char *temp_dir_make(const temp_dir *dir, const char *name)
{
    const char *path = temp_dir_name(dir, name);
    if (mkdir(path, 0777) != 0)
        perror(path);
    return path;
}

#endif
