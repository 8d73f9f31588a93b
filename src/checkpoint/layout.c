#include "checkpoint/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_words[] = {[OCT_LAYOUT_TMP] = ".tmp-",
                                         [OCT_LAYOUT_TRASH] = ".trash-",
                                         [OCT_LAYOUT_REPLACED] = ".replaced-"};

/* Decimal digits without a leading zero, up to INT64_MAX; NULL if there are none. */
static const char *parse_step(const char *text, int64_t *step)
{
    if (*text < '0' || *text > '9' || (*text == '0' && text[1] >= '0' && text[1] <= '9'))
        return NULL;
    int64_t value = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *text - '0', &value))
            return NULL;
    *step = value;
    return text;
}

oct_layout_kind oct_layout_parse(const char *name, int64_t *step)
{
    if (strncmp(name, "step-", 5) != 0)
        return OCT_LAYOUT_OTHER;
    const char *rest = parse_step(name + 5, step);
    if (!rest)
        return OCT_LAYOUT_OTHER;
    if (*rest == '\0')
        return OCT_LAYOUT_STEP;
    for (int kind = OCT_LAYOUT_TMP; kind <= OCT_LAYOUT_REPLACED; kind++) {
        const size_t length = strlen(kind_words[kind]);
        if (strncmp(rest, kind_words[kind], length) == 0 && strlen(rest + length) == 8 &&
            strspn(rest + length, "0123456789abcdef") == 8)
            return (oct_layout_kind)kind;
    }
    return OCT_LAYOUT_OTHER;
}

int64_t oct_checkpoint_step_of_name(const char *name)
{
    int64_t step = 0;
    return oct_layout_parse(name, &step) == OCT_LAYOUT_STEP ? step : -1;
}

oct_status oct_layout_path(const char *root, oct_layout_kind kind, int64_t step, uint32_t tag,
                           char out[OCT_PATH_BYTES], oct_err *err)
{
    char name[64];
    if (kind == OCT_LAYOUT_STEP)
        (void)snprintf(name, sizeof name, "step-%lld", (long long)step);
    else
        (void)snprintf(name, sizeof name, "step-%lld%s%08x", (long long)step, kind_words[kind],
                       tag);
    return oct_path_join(root, name, out, OCT_PATH_BYTES, err);
}

/* --- listing ------------------------------------------------------------------------------- */

typedef struct step_list {
    int64_t *steps; /* on the heap */
    int64_t count, capacity;
} step_list;

static int collect_step(void *arg, const char *name)
{
    step_list *list = arg;
    const int64_t step = oct_checkpoint_step_of_name(name);
    if (step < 0)
        return 0;
    if (list->count == list->capacity) {
        const int64_t capacity = list->capacity * 2 + 64;
        int64_t *grown = realloc(list->steps, (size_t)capacity * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        list->steps = grown;
        list->capacity = capacity;
    }
    list->steps[list->count++] = step;
    return 0;
}

static int compare_steps(const void *left, const void *right)
{
    const int64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* Steps below root, ascending; the list is to be freed in either case. */
static oct_status list_steps(const oct_file_table *files, const char *root, step_list *out,
                             oct_err *err)
{
    oct_file_info info;
    *out = (step_list){0};
    OCT_TRY(oct_file_stat(files, root, &info, err));
    if (info.kind != OCT_FILE_DIRECTORY)
        return OCT_OK;
    OCT_TRY(oct_file_list(files, root, collect_step, out, err));
    if (out->count > 1)
        qsort(out->steps, (size_t)out->count, sizeof *out->steps, compare_steps);
    return OCT_OK;
}

oct_status oct_checkpoint_list(const oct_file_table *files, const char *root, oct_arena *arena,
                               int64_t **steps, int64_t *count, oct_err *err)
{
    step_list list;
    void *memory = NULL;
    oct_status status = list_steps(files ? files : &oct_file_table_real, root, &list, err);
    if (status == OCT_OK)
        status = oct_arena_array(arena, list.count, sizeof **steps, &memory, err);
    if (status == OCT_OK) {
        if (list.count > 0)
            memcpy(memory, list.steps, (size_t)list.count * sizeof **steps);
        *steps = memory;
        *count = list.count;
    }
    free(list.steps);
    return status;
}

/* --- sweeping ------------------------------------------------------------------------------ */

typedef struct leftover {
    char name[64];
    oct_layout_kind kind;
    int64_t step;
} leftover;

/* Finds one leftover: the listing stops there, so that nothing is removed while it runs. */
static int find_leftover(void *arg, const char *name)
{
    leftover *found = arg;
    found->kind = oct_layout_parse(name, &found->step);
    if (found->kind == OCT_LAYOUT_OTHER || found->kind == OCT_LAYOUT_STEP)
        return 0;
    (void)snprintf(found->name, sizeof found->name, "%s", name);
    return 1;
}

/* OCT_OK: root/step-N is whole. OCT_E_IO also if there is no such directory. */
static oct_status check_step(const oct_file_table *files, const char *root, int64_t step,
                             oct_checkpoint_verify_level level, oct_err *err)
{
    oct_checkpoint *checkpoint = NULL;
    const oct_status status = oct_checkpoint_open_step(files, root, step, level, &checkpoint, err);
    if (status == OCT_OK)
        oct_checkpoint_close(checkpoint);
    return status;
}

/* Moves what stands in the way of an old step-N out of sight. */
static oct_status set_aside(const oct_file_table *files, const char *root, int64_t step,
                            oct_err *err)
{
    char path[OCT_PATH_BYTES], trash[OCT_PATH_BYTES];
    oct_file_info info;
    OCT_TRY(oct_layout_path(root, OCT_LAYOUT_STEP, step, 0, path, err));
    uint32_t tag = 0;
    do {
        OCT_TRY(oct_layout_path(root, OCT_LAYOUT_TRASH, step, tag++, trash, err));
        OCT_TRY(oct_file_stat(files, trash, &info, err));
    } while (info.kind != OCT_FILE_NONE);
    return oct_file_rename_new(files, path, trash, err);
}

/* An old step-N that stepped aside comes back if the new one is not there or is not whole: a failed
 * sync of the root leaves on the disk what it likes. */
static oct_status settle_replaced(const oct_file_table *files, const char *root, int64_t step,
                                  const char *path, bool *is_back, oct_err *err)
{
    char target[OCT_PATH_BYTES];
    oct_file_info info;
    oct_err damage = {0};
    *is_back = false;
    OCT_TRY(oct_layout_path(root, OCT_LAYOUT_STEP, step, 0, target, err));
    OCT_TRY(oct_file_stat(files, target, &info, err));
    if (info.kind != OCT_FILE_NONE) {
        const oct_status status = check_step(files, root, step, OCT_VERIFY_CRC, &damage);
        if (status == OCT_OK)
            return OCT_OK;
        if (status != OCT_E_CORRUPT) /* not known: neither may go */
            return OCT_FAIL(err, status, "%s", damage.msg);
        OCT_TRY(set_aside(files, root, step, err));
    }
    OCT_TRY(oct_file_rename_new(files, path, target, err));
    *is_back = true;
    return oct_file_sync_dir(files, root, err);
}

static oct_status sweep_one(const oct_file_table *files, const char *root, const leftover *found,
                            oct_checkpoint_warning warn, void *warn_arg, oct_err *err)
{
    char path[OCT_PATH_BYTES], line[OCT_PATH_BYTES + 64];
    bool is_back = false;
    OCT_TRY(oct_path_join(root, found->name, path, sizeof path, err));
    if (found->kind == OCT_LAYOUT_REPLACED)
        OCT_TRY(settle_replaced(files, root, found->step, path, &is_back, err));
    (void)snprintf(line, sizeof line, "%s '%s' of an interrupted save",
                   is_back ? "put back" : "removing", path);
    if (warn)
        warn(warn_arg, line);
    return is_back ? OCT_OK : oct_file_remove_dir(files, path, err);
}

/* What a killed process renamed may be in memory only: it has to be on the disk before anything
 * that it makes superfluous is removed. */
oct_status oct_layout_sweep(const oct_file_table *files, const char *root,
                            oct_checkpoint_warning warn, void *warn_arg, oct_err *err)
{
    OCT_TRY(oct_file_sync_dir(files, root, err));
    for (;;) {
        leftover found = {.kind = OCT_LAYOUT_OTHER};
        const int stopped = files->list(files, root, find_leftover, &found);
        if (stopped == 0)
            return OCT_OK;
        if (stopped < 0)
            return oct_file_list(files, root, find_leftover, &found, err);
        OCT_TRY(sweep_one(files, root, &found, warn, warn_arg, err));
    }
}

/* --- pruning ------------------------------------------------------------------------------- */

/* Out of sight first, durably; then file by file. */
static oct_status remove_step(const oct_file_table *files, const char *root, int64_t step,
                              uint32_t tag, oct_err *err)
{
    char path[OCT_PATH_BYTES], trash[OCT_PATH_BYTES];
    OCT_TRY(oct_layout_path(root, OCT_LAYOUT_STEP, step, 0, path, err));
    OCT_TRY(oct_layout_path(root, OCT_LAYOUT_TRASH, step, tag, trash, err));
    OCT_TRY(oct_file_rename_new(files, path, trash, err));
    OCT_TRY(oct_file_sync_dir(files, root, err));
    return oct_file_remove_dir(files, trash, err);
}

oct_status oct_layout_prune(const oct_file_table *files, const char *root, int64_t keep,
                            uint32_t tag, oct_err *err)
{
    step_list list;
    oct_status status = list_steps(files, root, &list, err);
    int64_t kept = 0;
    for (int64_t i = list.count; keep > 0 && i-- > 0 && status == OCT_OK;) {
        if (kept < keep && check_step(files, root, list.steps[i], OCT_VERIFY_SIZE, NULL) == OCT_OK)
            kept++;
        else if (kept == keep)
            status = remove_step(files, root, list.steps[i], tag, err);
    }
    free(list.steps);
    return status;
}
