/* octet checkpoint ls|verify|show|hash DIR */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "cli/checkpoint_dir.h"
#include "cli/checkpoint_hash.h"
#include "cli/cli.h"

static const char name[] = "checkpoint";

static void print_warning(void *arg, const char *line)
{
    (void)arg;
    oct_cli_line("octet: warning: ", line);
}

/* The path of the index-th checkpoint. */
static void path_of(const oct_checkpoint_dir *dir, int64_t index, char *out, size_t size)
{
    if (dir->single[0])
        (void)snprintf(out, size, "%s", dir->single);
    else
        (void)snprintf(out, size, "%s/step-%lld", dir->root, (long long)dir->steps[index]);
}

static int64_t count_of(const oct_checkpoint_dir *dir)
{
    return dir->single[0] ? 1 : dir->count;
}

static oct_status list(const oct_checkpoint_dir *dir, oct_err *err)
{
    oct_status worst = OCT_OK;
    for (int64_t i = 0; i < count_of(dir); i++) {
        char path[OCT_CHECKPOINT_DIR_MAX + 32];
        path_of(dir, i, path, sizeof path);
        oct_checkpoint *checkpoint = NULL;
        oct_err problem = {0};
        const oct_status status = oct_checkpoint_open(NULL, path, OCT_VERIFY_SIZE, print_warning,
                                                      NULL, &checkpoint, &problem);
        if (status != OCT_OK) {
            printf("%s  damaged: %s\n", path, problem.msg);
            *err = problem;
            worst = status;
            continue;
        }
        char origin[80] = "of PyTorch";
        if (oct_checkpoint_step(checkpoint) >= 0)
            (void)snprintf(origin, sizeof origin, "step %lld  %lld ranks",
                           (long long)oct_checkpoint_step(checkpoint),
                           (long long)oct_checkpoint_world(checkpoint));
        printf("%s  %s  %.1f MB  %lld keys\n", path, origin,
               1e-6 * (double)oct_checkpoint_bytes(checkpoint),
               (long long)oct_checkpoint_entry_count(checkpoint));
        oct_checkpoint_close(checkpoint);
    }
    return worst;
}

static void print_file(void *arg, const char *file, int64_t bytes, const char *problem)
{
    (void)arg;
    printf("  %-24s %14lld bytes  %s\n", file, (long long)bytes, problem ? problem : "ok");
}

static oct_status verify(const oct_checkpoint_dir *dir, oct_err *err)
{
    oct_status worst = OCT_OK;
    for (int64_t i = 0; i < count_of(dir); i++) {
        char path[OCT_CHECKPOINT_DIR_MAX + 32];
        path_of(dir, i, path, sizeof path);
        printf("%s\n", path);
        oct_err problem = {0};
        const oct_status status = oct_checkpoint_verify(NULL, path, print_file, NULL, &problem);
        if (status != OCT_OK) {
            *err = problem;
            worst = status;
        }
    }
    return worst;
}

static oct_status show(const oct_checkpoint_dir *dir, oct_err *err)
{
    char path[OCT_CHECKPOINT_DIR_MAX + 32];
    path_of(dir, count_of(dir) - 1, path, sizeof path);
    oct_checkpoint *checkpoint = NULL;
    OCT_TRY(oct_checkpoint_open(NULL, path, OCT_VERIFY_CRC, print_warning, NULL, &checkpoint, err));
    if (oct_checkpoint_step(checkpoint) >= 0)
        printf("%s\nstep %lld, written by %lld ranks, configuration %s\nmodel %s\n", path,
               (long long)oct_checkpoint_step(checkpoint),
               (long long)oct_checkpoint_world(checkpoint), oct_checkpoint_config_hash(checkpoint),
               oct_checkpoint_model_json(checkpoint));
    else
        printf("%s\nwritten by PyTorch\n", path);
    for (int64_t i = 0; i < oct_checkpoint_entry_count(checkpoint); i++) {
        const oct_checkpoint_entry *entry = oct_checkpoint_entry_at(checkpoint, i);
        printf("%-80s %-10s", entry->key, entry->dtype);
        for (int d = 0; entry->is_tensor && d < entry->ndim; d++)
            printf("%s%lld", d ? " x " : " ", (long long)entry->shape[d]);
        putchar('\n');
    }
    oct_checkpoint_close(checkpoint);
    return OCT_OK;
}

static oct_status hash(const oct_checkpoint_dir *dir, oct_err *err)
{
    char path[OCT_CHECKPOINT_DIR_MAX + 32];
    path_of(dir, count_of(dir) - 1, path, sizeof path);
    oct_checkpoint *checkpoint = NULL;
    OCT_TRY(oct_checkpoint_open(NULL, path, OCT_VERIFY_CRC, print_warning, NULL, &checkpoint, err));
    oct_arena arena;
    uint64_t value = 0;
    oct_arena_init(&arena, "checkpoint hash");
    const oct_status status = oct_checkpoint_hash(checkpoint, &arena, &value, err);
    if (status == OCT_OK)
        printf("%016" PRIx64 "  %s\n", value, path);
    oct_arena_release(&arena);
    oct_checkpoint_close(checkpoint);
    return status;
}

int oct_command_checkpoint(int argc, char **argv)
{
    if (argc != 3)
        return oct_cli_usage(name, "found %d arguments, an action and a directory are required",
                             argc - 1);
    oct_status (*action)(const oct_checkpoint_dir *, oct_err *) = NULL;
    if (strcmp(argv[1], "ls") == 0)
        action = list;
    else if (strcmp(argv[1], "verify") == 0)
        action = verify;
    else if (strcmp(argv[1], "show") == 0)
        action = show;
    else if (strcmp(argv[1], "hash") == 0)
        action = hash;
    if (!action)
        return oct_cli_usage(name, "unknown action '%s', ls, verify, show or hash is required",
                             argv[1]);

    static oct_checkpoint_dir dir;
    oct_arena arena;
    oct_err err = {0};
    oct_arena_init(&arena, "checkpoint list");
    oct_status status = oct_checkpoint_dir_find(argv[2], &arena, &dir, &err);
    if (status == OCT_OK)
        status = action(&dir, &err);
    oct_arena_release(&arena);
    if (status == OCT_OK)
        return OCT_EXIT_OK;
    (void)oct_cli_fail(status, &err);
    return status == OCT_E_NOMEM ? OCT_EXIT_NOMEM : OCT_EXIT_CHECKPOINT;
}
