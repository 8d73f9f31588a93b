/* What is refused before anything of an earlier verification is touched. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/config_files.h"
#include "verify/cases.h"
#include "verify/setting.h"

static bool is_known(const char *id)
{
    for (const oct_verify_case *c = oct_verify_cases; c->id; c++)
        if (strcmp(c->id, id) == 0)
            return true;
    return false;
}

static oct_status check_ids(const oct_verify *v, const char *const *ids, int count, oct_err *err)
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
    for (int i = 0; i < count; i++)
        if (strcmp(ids[i], "16.6") == 0 && !v->config)
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "cannot run case 16.6 of a model: it is --config FILE --case bf16, "
                            "mxfp8 or hif8_current that is required (--case)");
    return OCT_OK;
}

/* --- configurations -------------------------------------------------------------------------- */

/* Those of a model are named relative to the project's folder. */
static oct_status check_folder(const oct_verify *v, oct_err *err)
{
    oct_file_info info = {0};
    OCT_TRY(oct_file_stat(&oct_file_table_real, oct_verify_config(v), &info, err));
    return info.kind == OCT_FILE_REGULAR
               ? OCT_OK
               : OCT_FAIL(err, OCT_E_CONFIG,
                          "cannot find '%s' here: octet verify is required to run in the folder of "
                          "the project, whose configurations it trains",
                          oct_verify_config(v));
}

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
    if (v->format == OCT_VERIFY_BF16 && strcmp(config->model.torch_dtype, "bfloat16") != 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot verify '%s': model.torch_dtype is %s, bfloat16 is required for "
                        "--case bf16 (--config)",
                        v->config, config->model.torch_dtype);
    if (v->format == OCT_VERIFY_MXFP8 && config->fsdp.narrow_backward_gather)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot verify '%s': fsdp_config.narrow_backward_gather is true, false is "
                        "required: gathers are held against table 9.1 (--config)",
                        v->config);
    return OCT_OK;
}

static oct_status check_config(const oct_verify *v, oct_err *err)
{
    oct_arena arena;
    oct_config config;
    if (oct_config_is_toml(v->config))
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

/* --- the plan -------------------------------------------------------------------------------- */

/* The plan is asked as a child, which writes: into a folder that is gone afterwards. */
static oct_status check_plan(const oct_verify *v, oct_err *err)
{
    char folder[OCT_PATH_BYTES];
    const char *tmp = getenv("TMPDIR");
    OCT_TRY(oct_path_join(tmp && tmp[0] ? tmp : "/tmp", "octet-verify-XXXXXX", folder,
                          sizeof folder, err));
    if (!mkdtemp(folder))
        return OCT_FAIL(err, OCT_E_IO,
                        "cannot make '%s': %s, a folder for temporary files is required (TMPDIR)",
                        folder, strerror(errno));
    oct_verify asks = *v;
    asks.out = folder;
    const oct_status status = oct_verify_check_plan(&asks, err);
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
    OCT_TRY(check_ids(v, ids, count, err));
    OCT_TRY(v->config ? check_config(v, err) : check_folder(v, err));
    return is_dry(ids, count) ? OCT_OK : check_plan(v, err);
}
