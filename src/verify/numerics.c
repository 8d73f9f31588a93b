#include "verify/numerics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

oct_status oct_numerics_add(oct_numerics *numerics, const oct_numerics_row *names,
                            const oct_error_sums *sums, oct_err *err)
{
    if (numerics->count == OCT_NUMERICS_MAX_ROWS)
        return OCT_FAIL(err, OCT_E_API, "too many numeric rows: at most %d are required",
                        OCT_NUMERICS_MAX_ROWS);
    oct_numerics_row *row = &numerics->rows[numerics->count++];
    *row = *names;
    const double rms = oct_error_sums_reference_rms(sums);
    row->max_abs = sums->largest;
    row->mse = oct_error_sums_mse(sums);
    row->nrmse = oct_error_sums_nrmse(sums);
    row->cosine = oct_error_sums_cosine(sums);
    row->peak = rms > 0.0 ? sums->largest / rms : 0.0;
    row->nonfinite = sums->nan[0] + sums->nan[1] + sums->inf[0] + sums->inf[1];
    oct_numerics_judge(row);
    return OCT_OK;
}

/* Loss and gradient norm are one number each. */
static bool is_scalar(const oct_numerics_row *row)
{
    return strcmp(row->tensor, "loss") == 0 || strcmp(row->tensor, "grad_norm") == 0;
}

static double most_nrmse(const oct_numerics_row *row)
{
    return row->limit->nrmse_most *
           (is_scalar(row) ? OCT_NUMERICS_SCALAR_MARGIN : OCT_NUMERICS_MARGIN);
}

static double least_nrmse(const oct_numerics_row *row)
{
    return is_scalar(row) ? 0.0 : row->limit->nrmse_least / OCT_NUMERICS_MARGIN;
}

static double least_cosine(const oct_numerics_row *row)
{
    return 1.0 - (1.0 - row->limit->cosine_least) * OCT_NUMERICS_MARGIN * OCT_NUMERICS_MARGIN;
}

static double most_peak(const oct_numerics_row *row)
{
    return row->limit->peak_most * OCT_NUMERICS_MARGIN * OCT_NUMERICS_MARGIN;
}

/* Written so that a NaN leaves every limit. */
void oct_numerics_judge(oct_numerics_row *row)
{
    row->limit = oct_numerics_limit_of(row->op, row->data, row->format, row->tensor);
    row->left = NULL;
    if (!row->limit)
        row->left = "no limit is frozen";
    else if (row->nonfinite != 0)
        row->left = "nonfinite";
    else if (!(row->nrmse <= most_nrmse(row)) || !(row->nrmse >= least_nrmse(row)))
        row->left = "NRMSE";
    else if (!is_scalar(row) && !(row->cosine >= least_cosine(row)))
        row->left = "cosine";
    else if (!is_scalar(row) && !(row->peak <= most_peak(row)))
        row->left = "peak";
}

int oct_numerics_failures(const oct_numerics *numerics)
{
    int failures = 0;
    for (int i = 0; i < numerics->count; i++)
        failures += numerics->rows[i].left != NULL;
    return failures;
}

void oct_numerics_text(const oct_numerics_row *row, char *text, size_t bytes)
{
    if (!row->limit) {
        (void)snprintf(text, bytes, "%s %s %s %s %s: no limit is frozen for it", row->op,
                       row->shape, row->data, row->format, row->tensor);
        return;
    }
    (void)snprintf(text, bytes,
                   "%s %s %s %s %s: NRMSE %.4g (%.4g to %.4g), cosine %.6f (at least %.6f), peak "
                   "%.3g (at most %.3g), %lld non-finite: %s",
                   row->op, row->shape, row->data, row->format, row->tensor, row->nrmse,
                   least_nrmse(row), most_nrmse(row), row->cosine, least_cosine(row), row->peak,
                   most_peak(row), (long long)row->nonfinite, row->left ? row->left : "inside");
}

static json_t *json_of_row(const oct_numerics_row *row)
{
    json_t *object = json_pack("{s:s,s:s,s:s,s:s,s:s,s:f,s:f,s:f,s:f,s:f,s:I,s:b}", "op", row->op,
                               "shape", row->shape, "data", row->data, "format", row->format,
                               "tensor", row->tensor, "max_abs", row->max_abs, "mse", row->mse,
                               "nrmse", row->nrmse, "cosine", row->cosine, "peak", row->peak,
                               "nonfinite", (json_int_t)row->nonfinite, "ok", row->left == NULL);
    if (object && row->limit) {
        (void)json_object_set_new(object, "nrmse_least", json_real(least_nrmse(row)));
        (void)json_object_set_new(object, "nrmse_most", json_real(most_nrmse(row)));
        if (!is_scalar(row)) {
            (void)json_object_set_new(object, "cosine_least", json_real(least_cosine(row)));
            (void)json_object_set_new(object, "peak_most", json_real(most_peak(row)));
        }
    }
    if (object && row->left)
        (void)json_object_set_new(object, "left", json_string(row->left));
    return object;
}

static json_t *json_of_layer(const oct_numerics_layer *layer)
{
    json_t *formats = json_array();
    for (int f = 0; f < layer->formats; f++)
        (void)json_array_append_new(formats,
                                    json_pack("{s:s,s:f,s:f}", "format", layer->format[f], "loss",
                                              layer->loss[f], "grad_norm", layer->grad_norm[f]));
    return json_pack("{s:s,s:o}", "layer", layer->name, "formats", formats);
}

json_t *oct_numerics_json(const oct_numerics *numerics)
{
    json_t *rows = json_array(), *layers = json_array();
    for (int i = 0; i < numerics->count; i++)
        (void)json_array_append_new(rows, json_of_row(&numerics->rows[i]));
    for (int i = 0; i < numerics->layer_count; i++)
        (void)json_array_append_new(layers, json_of_layer(&numerics->layers[i]));
    return json_pack("{s:i,s:s,s:f,s:f,s:I,s:o,s:o}", "version", OCT_NUMERICS_VERSION, "data",
                     OCT_NUMERICS_DATA, "margin", OCT_NUMERICS_MARGIN, "scalar_margin",
                     OCT_NUMERICS_SCALAR_MARGIN, "seed", (json_int_t)numerics->seed, "rows", rows,
                     "layers", layers);
}
