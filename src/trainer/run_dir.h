/* The directory of one run: config.yaml (resolved), metrics.jsonl, trace-R.jsonl, checkpoints/.
 * It is locked while in use; a foreign directory is never touched. */
#ifndef OCT_TRAINER_RUN_DIR_H
#define OCT_TRAINER_RUN_DIR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { OCT_PATH_MAX = 4096 };

typedef struct oct_run_dir {
    char path[OCT_PATH_MAX];
    char metrics[OCT_PATH_MAX];
    char checkpoints[OCT_PATH_MAX];
    char config[OCT_PATH_MAX];
    bool existed; /* it was a run directory before */
    int lock_fd;  /* -1 while not held */
} oct_run_dir;

/* The paths of a run directory that another rank holds; nothing is opened or looked at. Errors:
 * OCT_E_CONFIG for a path that is too long. */
oct_status oct_run_dir_name(const char *path, oct_run_dir *out, oct_err *err) OCT_MUST_CHECK;

/* Opens or creates the directory and locks it for this process.
 * Errors: OCT_E_CONFIG if it is not empty and no run directory; OCT_E_IO if another process holds
 * it (its pid and host are named) or the system refuses. */
oct_status oct_run_dir_open(const char *path, oct_run_dir *out, oct_err *err) OCT_MUST_CHECK;
void oct_run_dir_close(oct_run_dir *dir);

/* Writes config.yaml in one atomic step: the mark of a run directory. */
oct_status oct_run_dir_write_config(const oct_run_dir *dir, const char *text,
                                    oct_err *err) OCT_MUST_CHECK;

/* The text of config.yaml as written before, malloc'ed; *text = NULL if there is none. */
oct_status oct_run_dir_read_config(const oct_run_dir *dir, char **text,
                                   oct_err *err) OCT_MUST_CHECK;

#endif
