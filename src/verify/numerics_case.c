/* The case 17.3.2: products and one layer inside the frozen limits, and three sound curves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/curves.h"
#include "verify/numerics.h"
#include "verify/scales.h"
#include "verify/verify.h"

enum { CURVE_STEPS = 20 };

static oct_status measure(oct_verify *v, oct_numerics *numerics, oct_err *err)
{
    char dir[OCT_PATH_BYTES];
    OCT_TRY(oct_path_join(v->out, "cases/17.3.2", dir, sizeof dir, err));
    OCT_TRY(oct_file_make_dirs(&oct_file_table_real, dir, err));
    OCT_TRY(oct_numerics_products(numerics, err));
    return oct_numerics_layers(numerics, dir, err);
}

/* One check per operation, format and tensor: all its data and sizes. */
static void check_rows(json_t *result, const oct_numerics *n)
{
    for (int i = 0; i < n->count; i++) {
        const oct_numerics_row *row = &n->rows[i], *worst = NULL;
        int count = 0, left = 0;
        bool seen = false;
        for (int k = 0; k < n->count; k++) {
            const oct_numerics_row *other = &n->rows[k];
            if (strcmp(row->op, other->op) != 0 || strcmp(row->format, other->format) != 0 ||
                strcmp(row->tensor, other->tensor) != 0)
                continue;
            seen = seen || k < i;
            count++;
            left += other->left != NULL;
            if (!worst || (other->left && !worst->left) ||
                (!worst->left == !other->left && other->nrmse > worst->nrmse))
                worst = other;
        }
        if (seen)
            continue;
        char what[160], text[400];
        (void)snprintf(what, sizeof what, "%s, %s, %s", row->op, row->format, row->tensor);
        oct_numerics_text(worst, text, sizeof text);
        (void)oct_verify_check(result, left == 0, what, "every figure inside the frozen limits",
                               "%d of %d rows outside; worst: %s", left, count, text);
    }
}

/* What the HiF8 run of rank 0 scaled with, for the report. */
static oct_status check_scales(oct_verify *v, json_t *result, const oct_verify_run *run,
                               oct_err *err)
{
    const oct_verify_trace *trace = NULL;
    OCT_TRY(oct_verify_run_trace(run, 0, &trace, err));
    json_t *statistics = oct_scale_statistics(trace);
    if (!statistics)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot collect scales: out of memory");
    (void)json_object_set_new(v->report, "scales", statistics);
    const int64_t faults = oct_scale_faults(statistics);
    (void)oct_verify_check(result, faults == 0, "scales of the HiF8 run",
                           "some, each finite and positive", "%zu roles, %lld faults",
                           json_array_size(statistics), (long long)faults);
    return oct_verify_evidence_json(v, result, "scales.json", statistics, err);
}

static oct_status check_curves(oct_verify *v, json_t *result, oct_err *err)
{
    static const char *const names[OCT_VERIFY_FORMAT_COUNT] = {"curve-bf16", "curve-mxfp8",
                                                               "curve-hif8"};
    for (int f = 0; f < OCT_VERIFY_FORMAT_COUNT; f++) {
        const oct_verify_job job = {
            .name = names[f], .format = (oct_verify_format)f, .words = {"training.train_iters=20"}};
        const oct_verify_run *run = NULL;
        char what[96];
        OCT_TRY(oct_verify_train(v, result, &job, &run, err));
        (void)oct_verify_check_trained(result, run, CURVE_STEPS);
        const char *fault = oct_curve_fault(run->metrics);
        (void)snprintf(what, sizeof what, "the curve of %s is sound", oct_verify_formats[f]);
        (void)oct_verify_check(result, fault == NULL, what,
                               "finite, no sustained blow-up, not frozen from the first step", "%s",
                               fault ? fault : "all of it");
        if (f == OCT_VERIFY_HIF8 && run->exit_code == 0)
            OCT_TRY(check_scales(v, result, run, err));
    }
    return OCT_OK;
}

static oct_status run_case(oct_verify *v, json_t *result, oct_numerics *numerics, oct_err *err)
{
    OCT_TRY(measure(v, numerics, err));
    check_rows(result, numerics);
    json_t *tables = oct_numerics_json(numerics);
    if (!tables)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot write the error tables: out of memory");
    (void)json_object_set_new(v->report, "numerics", tables);
    OCT_TRY(oct_verify_evidence_json(v, result, "numerics.json", tables, err));
    oct_verify_evidence(result, "cases/17.3.2/dense-layer.yaml");
    oct_verify_evidence(result, "cases/17.3.2/moe-layer.yaml");
    return check_curves(v, result, err);
}

oct_status oct_verify_numerics(oct_verify *v, json_t *result, oct_err *err)
{
    oct_numerics *numerics = calloc(1, sizeof *numerics);
    if (!numerics)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot measure errors: out of memory");
    numerics->seed = 1;
    const oct_status status = run_case(v, result, numerics, err);
    free(numerics);
    return status;
}
