#include "cli/checkpoint_dir.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"

static bool exists(const char *dir, const char *name)
{
    char path[OCT_CHECKPOINT_DIR_MAX + 32];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

oct_status oct_checkpoint_dir_find(const char *dir, oct_arena *arena, oct_checkpoint_dir *out,
                                   oct_err *err)
{
    *out = (oct_checkpoint_dir){0};
    struct stat info;
    if (strlen(dir) + 16 > sizeof out->root || stat(dir, &info) != 0 || !S_ISDIR(info.st_mode))
        return OCT_FAIL(err, OCT_E_CHECKPOINT,
                        "no checkpoint found: not a directory, a checkpoint, a folder of "
                        "checkpoints or a run directory is required (%s)",
                        dir);
    if (exists(dir, ".metadata") || exists(dir, "COMMIT.json")) {
        memcpy(out->single, dir, strlen(dir) + 1);
        return OCT_OK;
    }
    (void)snprintf(out->root, sizeof out->root, "%s%s", dir,
                   exists(dir, "checkpoints") ? "/checkpoints" : "");
    OCT_TRY(oct_checkpoint_list(NULL, out->root, arena, &out->steps, &out->count, err));
    if (out->count == 0)
        return OCT_FAIL(err, OCT_E_CHECKPOINT,
                        "no checkpoint found: no step-N in the directory, at least one is required "
                        "(%s)",
                        out->root);
    return OCT_OK;
}
