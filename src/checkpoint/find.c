/* Opening checkpoints by directory, by step, or the newest that is whole; on one rank or together.
 */
#include <stdio.h>
#include <string.h>

#include "checkpoint/layout.h"
#include "checkpoint/reader.h"

static bool is_rank_0(const oct_comm *comm)
{
    return !comm || oct_comm_rank(comm) == 0;
}

/* Ranks that each see another disk under the same path may have opened different checkpoints. */
static oct_status check_same(oct_comm *comm, const oct_checkpoint *cp, const char *dir,
                             oct_err *err)
{
    const int64_t own = oct_checkpoint_fingerprint(cp);
    int64_t bounds[2] = {own, -own};
    OCT_TRY(oct_comm_max_i64(comm, bounds, 2, err));
    if (bounds[0] == -bounds[1])
        return OCT_OK;
    oct_status status = OCT_OK;
    if (oct_comm_rank(comm) == 0) /* its path goes into the message of all */
        status =
            OCT_FAIL(err, OCT_E_IO,
                     "cannot open checkpoint '%s': the ranks see different ones (CRC-32 %08llx "
                     "and %08llx), a file system that all ranks share is required",
                     dir, (unsigned long long)-bounds[1], (unsigned long long)bounds[0]);
    return oct_comm_agree(comm, status, err);
}

/* On all ranks or on none; *out is NULL after a failure. err is not NULL. */
static oct_status open_source(const oct_checkpoint_source *source, oct_checkpoint **out,
                              oct_err *err)
{
    oct_comm *comm = source->comm;
    *out = NULL;
    oct_status status = oct_checkpoint_open_part(source, out, err);
    if (!comm)
        return status;
    status = oct_comm_agree(comm, status, err);
    if (status == OCT_OK)
        status = check_same(comm, *out, source->dir, err);
    if (status != OCT_OK) {
        oct_checkpoint_close(*out);
        *out = NULL;
    }
    return status;
}

static void enter_phase(oct_comm *comm)
{
    if (comm)
        oct_comm_phase(comm, "opening a checkpoint", NULL);
}

oct_status oct_checkpoint_open_together(oct_comm *comm, const oct_file_table *files,
                                        const char *dir, oct_checkpoint_verify_level level,
                                        oct_checkpoint_warning warn, void *warn_arg,
                                        oct_checkpoint **out, oct_err *err)
{
    oct_err unread = {0};
    char same_dir[OCT_PATH_BYTES] = "";
    oct_status status = OCT_OK;
    if (!err)
        err = &unread;
    enter_phase(comm);
    if (snprintf(same_dir, sizeof same_dir, "%s", dir) >= OCT_PATH_BYTES)
        status = OCT_FAIL(err, OCT_E_IO,
                          "cannot open '%.100s...': a path of less than %d bytes is "
                          "required",
                          dir, OCT_PATH_BYTES);
    OCT_TRY(comm ? oct_comm_agree(comm, status, err) : status);
    if (comm)
        OCT_TRY(oct_comm_broadcast(comm, 0, same_dir, sizeof same_dir, err));
    const oct_checkpoint_source source = {.files = files,
                                          .dir = same_dir,
                                          .step = -1,
                                          .comm = comm,
                                          .level = level,
                                          .warn = is_rank_0(comm) ? warn : NULL,
                                          .warn_arg = warn_arg};
    return open_source(&source, out, err);
}

oct_status oct_checkpoint_open_step_together(oct_comm *comm, const oct_file_table *files,
                                             const char *root, int64_t step,
                                             oct_checkpoint_verify_level level,
                                             oct_checkpoint **out, oct_err *err)
{
    oct_err unread = {0};
    char dir[OCT_PATH_BYTES];
    if (!err)
        err = &unread;
    enter_phase(comm);
    const oct_status status = oct_layout_path(root, OCT_LAYOUT_STEP, step, 0, dir, err);
    OCT_TRY(comm ? oct_comm_agree(comm, status, err) : status);
    const oct_checkpoint_source source = {
        .files = files, .dir = dir, .step = step, .comm = comm, .level = level};
    return open_source(&source, out, err);
}

/* Tries the steps from the newest to the oldest. steps and warn are rank 0's. */
static oct_status open_newest(oct_comm *comm, const oct_file_table *files, const char *root,
                              oct_checkpoint_verify_level level, oct_checkpoint_warning warn,
                              void *warn_arg, const int64_t *steps, int64_t count,
                              oct_checkpoint **out, oct_err *err)
{
    for (int64_t i = count; i-- > 0;) {
        oct_err damage = {0};
        int64_t step = steps ? steps[i] : 0;
        if (comm)
            OCT_TRY(oct_comm_broadcast(comm, 0, &step, sizeof step, err));
        const oct_status status =
            oct_checkpoint_open_step_together(comm, files, root, step, level, out, &damage);
        if (status == OCT_OK)
            return OCT_OK;
        if (status == OCT_E_NOMEM || (comm && oct_comm_is_broken(comm))) {
            *err = damage;
            return status;
        }
        if (warn) {
            char line[sizeof damage.msg + 64];
            (void)snprintf(line, sizeof line, "passing over step-%lld: %s", (long long)step,
                           damage.msg);
            warn(warn_arg, line);
        }
    }
    if (count == 0)
        return OCT_OK;
    err->rank = 0;
    return OCT_FAIL(err, OCT_E_CORRUPT,
                    "cannot resume from '%s': %lld checkpoints and none of them is whole", root,
                    (long long)count);
}

oct_status oct_checkpoint_open_latest_together(oct_comm *comm, const oct_file_table *files,
                                               const char *root, oct_checkpoint_verify_level level,
                                               oct_checkpoint_warning warn, void *warn_arg,
                                               oct_checkpoint **out, oct_err *err)
{
    oct_err unread = {0};
    oct_arena arena;
    int64_t *steps = NULL;
    int64_t count = 0;
    if (!err)
        err = &unread;
    *out = NULL;
    oct_arena_init(&arena, "checkpoint steps");
    enter_phase(comm);
    oct_status status = OCT_OK;
    if (is_rank_0(comm))
        status = oct_checkpoint_list(files, root, &arena, &steps, &count, err);
    if (comm)
        status = oct_comm_agree(comm, status, err);
    if (comm && status == OCT_OK)
        status = oct_comm_broadcast(comm, 0, &count, sizeof count, err);
    if (status == OCT_OK)
        status = open_newest(comm, files, root, level, is_rank_0(comm) ? warn : NULL, warn_arg,
                             steps, count, out, err);
    oct_arena_release(&arena);
    return status;
}

/* --- one rank ------------------------------------------------------------------------------ */

oct_status oct_checkpoint_open(const oct_file_table *files, const char *dir,
                               oct_checkpoint_verify_level level, oct_checkpoint_warning warn,
                               void *warn_arg, oct_checkpoint **out, oct_err *err)
{
    return oct_checkpoint_open_together(NULL, files, dir, level, warn, warn_arg, out, err);
}

oct_status oct_checkpoint_open_step(const oct_file_table *files, const char *root, int64_t step,
                                    oct_checkpoint_verify_level level, oct_checkpoint **out,
                                    oct_err *err)
{
    return oct_checkpoint_open_step_together(NULL, files, root, step, level, out, err);
}

oct_status oct_checkpoint_open_latest(const oct_file_table *files, const char *root,
                                      oct_checkpoint_verify_level level,
                                      oct_checkpoint_warning warn, void *warn_arg,
                                      oct_checkpoint **out, oct_err *err)
{
    return oct_checkpoint_open_latest_together(NULL, files, root, level, warn, warn_arg, out, err);
}
