#include "trainer/report.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/median.h"
#include "config/config.h"
#include "data/dataset.h"
#include "model/deepseek_v3/hf_config.h"
#include "trainer/run_dir.h"

static const size_t metrics_limit = (size_t)1 << 32;

static oct_status read_config(const char *run_dir, oct_arena *arena, oct_config *config,
                              oct_err *err)
{
    char path[OCT_PATH_MAX];
    OCT_TRY(oct_path_join(run_dir, "config.yaml", path, sizeof path, err));
    const char *const files[] = {path};
    return oct_config_load(files, 1, NULL, 0, arena, NULL, NULL, config, err);
}

static oct_status read_format(oct_curve *curve, oct_arena *arena, oct_err *err)
{
    oct_config config;
    OCT_TRY(read_config(curve->run_dir, arena, &config, err));
    curve->format =
        config.low_precision.enabled ? config.low_precision.format : config.model.torch_dtype;
    return OCT_OK;
}

/* One line of metrics.jsonl; rows that are no successful training step only leave their counts. */
static oct_status read_row(oct_curve *curve, const char *line, size_t length, const char *path,
                           int64_t number, oct_err *err)
{
    const char *kind = NULL;
    int skipped = 0;
    json_int_t step = 0, tokens = 0, peak = 0;
    double seconds = 0.0;
    json_t *loss = NULL, *row = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
    const bool good =
        row &&
        json_unpack(row, "{s:s,s:I,s:I,s:I,s:F,s:o,s?b}", "kind", &kind, "step", &step, "tokens",
                    &tokens, "peak_memory_bytes", &peak, "step_seconds", &seconds, "loss", &loss,
                    "skipped", &skipped) == 0 &&
        (json_is_null(loss) || json_is_number(loss));
    if (!good) {
        json_decref(row);
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot read metrics: found something else, a metrics row is required "
                        "(%s:%lld)",
                        path, (long long)number);
    }
    if (peak > curve->peak_memory_bytes)
        curve->peak_memory_bytes = peak;
    if (strcmp(kind, "train") == 0 && skipped)
        curve->skipped++;
    else if (strcmp(kind, "train") == 0)
        curve->points[curve->count++] = (oct_curve_point){
            .step = step,
            .loss = json_is_null(loss) ? (double)NAN : json_number_value(loss),
            .step_seconds = seconds,
            .tokens = tokens,
        };
    json_decref(row);
    return OCT_OK;
}

oct_status oct_curve_read(const char *run_dir, oct_arena *arena, oct_curve *out, oct_err *err)
{
    *out = (oct_curve){.run_dir = run_dir};
    char path[OCT_PATH_MAX];
    oct_status status = read_format(out, arena, err);
    if (status != OCT_OK)
        return OCT_WRAP(err, OCT_E_CONFIG, "not a run directory '%s'", run_dir);
    OCT_TRY(oct_path_join(run_dir, "metrics.jsonl", path, sizeof path, err));
    char *text = NULL;
    size_t bytes = 0;
    OCT_TRY(oct_file_read_all(&oct_file_table_real, path, metrics_limit, &text, &bytes, err));
    int64_t lines = 0;
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    void *points = NULL;
    status = oct_arena_array(arena, lines + 1, sizeof(oct_curve_point), &points, err);
    out->points = points;
    int64_t number = 1;
    for (char *line = text; status == OCT_OK && line < text + bytes; number++) {
        char *end = memchr(line, '\n', (size_t)(text + bytes - line));
        if (!end)
            break; /* a row that is still being written */
        status = read_row(out, line, (size_t)(end - line), path, number, err);
        line = end + 1;
    }
    free(text);
    return status;
}

double oct_curve_tokens_per_second(const oct_curve *curve, oct_arena *scratch, oct_err *err)
{
    const int64_t first = curve->count / 10, count = curve->count - first;
    void *memory = NULL;
    if (count < 1 || oct_arena_array(scratch, count, sizeof(double), &memory, err) != OCT_OK)
        return 0.0;
    double *rates = memory;
    for (int64_t i = 0; i < count; i++) {
        const oct_curve_point *point = &curve->points[first + i];
        rates[i] = (double)point->tokens / point->step_seconds;
    }
    return oct_median(rates, count);
}

const oct_curve_point *oct_curve_at(const oct_curve *curve, int64_t step)
{
    int64_t low = 0, high = curve->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (curve->points[middle].step < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low < curve->count && curve->points[low].step == step ? &curve->points[low] : NULL;
}

/* |mean a - mean b| / |mean b| of `count` points that end at these; NaN if a loss is. */
static double gap_of_window(const oct_curve_point *a, const oct_curve_point *b, int64_t count)
{
    double sum_a = 0.0, sum_b = 0.0;
    for (int64_t i = count - 1; i >= 0; i--) {
        sum_a += a[-i].loss;
        sum_b += b[-i].loss;
    }
    return fabs(sum_a - sum_b) / fabs(sum_b);
}

double oct_curve_largest_gap(const oct_curve *a, const oct_curve *b, int64_t window, int64_t *step)
{
    double largest = -1.0;
    int64_t length = 0; /* consecutive steps that both have, up to the last one looked at */
    *step = -1;
    for (int64_t i = 0, j = 0; i < a->count && j < b->count;) {
        const oct_curve_point *x = &a->points[i], *y = &b->points[j];
        if (x->step != y->step) {
            length = 0;
            if (x->step < y->step)
                i++;
            else
                j++;
            continue;
        }
        length = length > 0 && x[-1].step == x->step - 1 ? length + 1 : 1;
        const double gap = length >= window ? gap_of_window(x, y, window) : -1.0;
        if (gap > largest) {
            largest = gap;
            *step = x->step;
        }
        i++;
        j++;
    }
    return largest;
}

double oct_curve_final_loss(const oct_curve *curve)
{
    const int64_t count = curve->count < 10 ? 1 : curve->count / 10;
    double sum = 0.0;
    if (curve->count == 0)
        return (double)NAN;
    for (int64_t i = curve->count - count; i < curve->count; i++)
        sum += curve->points[i].loss;
    return sum / (double)count;
}

oct_status oct_curve_unigram_entropy(const char *run_dir, oct_arena *arena, double *nats,
                                     oct_err *err)
{
    oct_config config;
    oct_hf_config hf;
    OCT_TRY(read_config(run_dir, arena, &config, err));
    OCT_TRY(oct_hf_config_load(config.model.config_name_or_path, config.model.config_overrides_json,
                               arena, &hf, err));
    const oct_dataset_spec spec = {
        .paths = config.dataset.path.items,
        .path_count = config.dataset.path.count,
        .tokenizer = config.dataset.tokenizer,
        .seq_length = config.training.seq_length,
        .vocab_size = hf.vocab_size, /* one counter each */
    };
    oct_dataset *data = NULL;
    OCT_TRY(oct_dataset_open(&spec, &data, err));
    const oct_status status = oct_dataset_unigram_entropy(data, nats, err);
    oct_dataset_close(data);
    return status;
}
