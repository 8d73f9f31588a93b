/* Q3-10: every failure rule, through the program. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "verify/cases.h"
#include "verify/failure_run.h"

static oct_status run_row(const oct_verify *v, const oct_failure *f, json_t *result, json_t *rows,
                          oct_err *err)
{
    char folder[OCT_PATH_BYTES];
    oct_failure_outcome out;
    char base[OCT_PATH_BYTES];
    (void)snprintf(folder, sizeof folder, "%s/cases/Q3-10/%s", v->out, f->id);
    if (!realpath("configs/base.toml", base))
        return OCT_FAIL(err, OCT_E_IO, "cannot find 'configs/base.toml': %s", strerror(errno));
    OCT_TRY(oct_file_make_dirs(&oct_file_table_real, folder, err));
    const oct_failure_program program = {.program = v->program,
                                         .small = "configs/verify.yaml",
                                         .frozen = "configs/deepseek_v3_16b/mxfp8.yaml",
                                         .toml = base,
                                         .model = "configs/models/verify",
                                         .folder = folder};
    OCT_TRY(oct_failure_run(&program, f, &out, err));
    oct_utf8_repair(out.message); /* a long one is cut */
    (void)oct_verify_check(result, out.why[0] == '\0', f->id,
                           "stops at its stage with its exit code and message, and leaves nothing",
                           "%s", out.why[0] ? out.why : out.message);
    (void)json_array_append_new(
        rows, json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:f}", "id", f->id, "rows",
                        f->rows, "wrong", f->wrong, "stage", out.stage, "required_stage", f->stage,
                        "exit_code", out.exit_code, "required_exit_code", f->exit_code, "message",
                        out.message, "seconds", out.seconds));
    return OCT_OK;
}

oct_status oct_verify_q3_10(oct_verify *v, json_t *result, oct_err *err)
{
    json_t *rows = json_array();
    oct_status status =
        rows ? OCT_OK : OCT_FAIL(err, OCT_E_NOMEM, "cannot list failures: no memory");
    for (const oct_failure *f = oct_failures; f->id && status == OCT_OK; f++) {
        if (v->stop && *v->stop)
            status = OCT_FAIL(err, OCT_E_INTERRUPTED, "stopped by a signal");
        else
            status = run_row(v, f, result, rows, err);
    }
    if (status == OCT_OK)
        status = oct_verify_evidence_json(v, result, "failures.json", rows, err);
    json_decref(rows);
    return status;
}
