/* A fresh directory per test, removed with everything in it. */
#ifndef OCT_TESTS_SCRATCH_DIR_H
#define OCT_TESTS_SCRATCH_DIR_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch_dir[256];

static int scratch_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int scratch_make(void **state)
{
    (void)state;
    /* Tests that sync thousands of times want memory, not a disk. */
    const char *base = getenv("TMPDIR");
    if (!base)
        base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(scratch_dir, sizeof scratch_dir, "%s/octet-test-XXXXXX", base);
    return mkdtemp(scratch_dir) ? 0 : -1;
}

static int scratch_remove(void **state)
{
    (void)state;
    return nftw(scratch_dir, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int scratch_clear(void)
{
    return scratch_remove(NULL) || mkdir(scratch_dir, 0777);
}

static inline const char *scratch_path(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", scratch_dir, name);
    return path;
}

#endif
