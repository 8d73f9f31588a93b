/* What is refused before anything of an earlier verification is touched. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "verify/cases.h"
#include "verify/setting.h"

static bool is_known(const char *id)
{
    for (const oct_verify_case *c = oct_verify_cases; c->id; c++)
        if (strcmp(c->id, id) == 0)
            return true;
    return false;
}

static oct_status check_ids(const char *const *ids, int count, oct_err *err)
{
    char names[512] = "";
    for (const oct_verify_case *c = oct_verify_cases; c->id; c++) {
        const size_t used = strlen(names);
        (void)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", c->id);
    }
    for (int i = 0; i < count; i++)
        if (!is_known(ids[i]))
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "unknown case: found '%.64s', one of %s is required (--case)", ids[i],
                            names);
    return OCT_OK;
}

/* --- --config -------------------------------------------------------------------------------- */

static oct_status check_steps(const oct_verify *v, const oct_config *config, oct_err *err)
{
    const int64_t steps = oct_verify_main_setting(v, v->format).steps;
    if (config->checkpoint.restore_from)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot verify '%s': checkpoint.restore_from is '%s', none is required: "
                        "the case begins anew (--config)",
                        v->config, config->checkpoint.restore_from);
    if (config->training.train_iters < steps)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot verify '%s': training.train_iters is %lld, at least %lld are "
                        "required (--config)",
                        v->config, (long long)config->training.train_iters, (long long)steps);
    return OCT_OK;
}

static oct_status check_config(const oct_verify *v, oct_err *err)
{
    const size_t length = strlen(v->config);
    oct_arena arena;
    oct_config config;
    if (length >= 5 && strcmp(v->config + length - 5, ".toml") == 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot verify '%s': found a TOML job, a YAML configuration is required: "
                        "`octet train %s --print-config > FILE.yaml` makes one (--config)",
                        v->config, v->config);
    oct_arena_init(&arena, "verify");
    oct_status status = oct_config_load(&v->config, 1, NULL, 0, &arena, NULL, NULL, &config, err);
    if (status == OCT_OK)
        status = check_steps(v, &config, err);
    oct_arena_release(&arena);
    return status;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* The plan is asked as a child, which writes: into a folder that is gone afterwards. */
static oct_status check_memory(const oct_verify *v, oct_err *err)
{
    char folder[OCT_PATH_BYTES];
    const char *tmp = getenv("TMPDIR");
    OCT_TRY(oct_path_join(tmp && tmp[0] ? tmp : "/tmp", "octet-verify-XXXXXX", folder,
                          sizeof folder, err));
    if (!mkdtemp(folder))
        return OCT_FAIL(err, OCT_E_IO, "cannot make '%s': %s", folder, strerror(errno));
    oct_verify asks = *v;
    asks.out = folder;
    const oct_status status = oct_verify_check_memory(&asks, err);
    const oct_status removed = oct_verify_remove_tree(folder, status == OCT_OK ? err : NULL);
    return status != OCT_OK ? status : removed;
}

/* Nothing is trained. */
static bool is_dry(const char *const *ids, int count)
{
    return count == 1 && strcmp(ids[0], "dry-run") == 0;
}

oct_status oct_verify_check_start(const oct_verify *v, const char *const *ids, int count,
                                  oct_err *err)
{
    OCT_TRY(check_ids(ids, count, err));
    if (v->config)
        OCT_TRY(check_config(v, err));
    return is_dry(ids, count) ? OCT_OK : check_memory(v, err);
}
