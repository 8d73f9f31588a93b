/* A lock on a directory, held by one process: its file `lock` names the holder. */
#ifndef OCT_BASE_DIR_LOCK_H
#define OCT_BASE_DIR_LOCK_H

#include "base/status.h"

enum { OCT_DIR_LOCK_HOLDER = 320 };

/* Locks `dir` for this process until *fd is closed or the process ends; `what` names the directory
 * in messages ("run directory"). Errors: OCT_E_IO if another process holds it (its pid and host are
 * named) or the system refuses; *fd is -1 then. */
oct_status oct_dir_lock(const char *dir, const char *what, int *fd, oct_err *err) OCT_MUST_CHECK;

/* Who holds the directory, as its lock says ("pid 7 on host"); empty where there is none. */
void oct_dir_lock_holder(const char *dir, char out[OCT_DIR_LOCK_HOLDER]);

#endif
