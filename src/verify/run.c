/* Training runs as child processes, each made once. */
#include "verify/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/process.h"
#include "verify/trace.h"

enum { FIXED_WORDS = 24 };
static const double TIME_LIMIT = 1500.0; /* seconds; a run that hangs is a failure, not a wait */

static const char *const format_words[OCT_VERIFY_FORMAT_COUNT][4] = {
    {"low_precision.enabled=false"},
    {"low_precision.enabled=true", "low_precision.format=mxfp8_e4m3",
     "low_precision.scaling=mx_block"},
    {"low_precision.enabled=true", "low_precision.format=hif8", "low_precision.scaling=current"},
};

const char *const *oct_verify_format_words(oct_verify_format format)
{
    return format_words[format];
}

const char *oct_verify_config(const oct_verify *v)
{
    static const char *const of_model[OCT_VERIFY_MODEL_COUNT] = {
        "configs/verify.yaml", "configs/slice.yaml", "configs/deepseek_v3_16b/common.yaml"};
    return v->config ? v->config : of_model[v->model];
}

/* --- one run --------------------------------------------------------------------------------- */

typedef struct command {
    const char *argv[FIXED_WORDS + OCT_VERIFY_MAX_WORDS];
    int count;
    char ranks[16];
} command;

static void add(command *c, const char *word)
{
    c->argv[c->count++] = word;
}

static void make_command(const oct_verify *v, const oct_verify_job *job, oct_verify_run *run,
                         command *c)
{
    add(c, v->program);
    if (run->ranks > 1) {
        (void)snprintf(c->ranks, sizeof c->ranks, "%d", run->ranks);
        add(c, "launch");
        add(c, "-n");
        add(c, c->ranks);
        add(c, "--");
    }
    add(c, "train");
    add(c, job->config ? job->config : oct_verify_config(v));
    for (int i = 0; !job->is_bare && i < 4 && format_words[job->format][i]; i++)
        add(c, format_words[job->format][i]);
    add(c, job->is_silent ? "trace=false" : "trace=true");
    for (int i = 0; i < OCT_VERIFY_MAX_WORDS && job->words[i]; i++)
        add(c, job->words[i]);
}

/* Everything that decides what the run computes, and its turn; malloc'ed, NULL without memory. */
static char *make_key(const command *c, int turn)
{
    enum { TURN_BYTES = 24 };
    size_t bytes = TURN_BYTES;
    for (int i = 1; i < c->count; i++)
        bytes += strlen(c->argv[i]) + 1;
    char *key = malloc(bytes);
    char *end = key;
    for (int i = 1; key && i < c->count; i++) {
        const size_t length = strlen(c->argv[i]);
        memcpy(end, c->argv[i], length);
        end += length;
        *end++ = ' ';
    }
    if (key)
        *end = '\0';
    if (key && turn > 0)
        (void)snprintf(end, TURN_BYTES, "(turn %d)", turn);
    return key;
}

static void read_rows(oct_verify_run *run)
{
    char path[OCT_PATH_BYTES];
    char line[4096];
    run->metrics = json_array();
    FILE *file = oct_path_join(run->dir, "metrics.jsonl", path, sizeof path, NULL) == OCT_OK
                     ? fopen(path, "re")
                     : NULL;
    while (file && fgets(line, sizeof line, file)) {
        json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const char *kind = json_string_value(json_object_get(row, "kind"));
        if (kind && strcmp(kind, "train") == 0)
            (void)json_array_append(run->metrics, row);
        json_decref(row);
    }
    if (file)
        fclose(file);
}

static void put_column(json_t *report, const json_t *rows, const char *key, const char *as)
{
    json_t *column = json_array();
    for (size_t i = 0; i < json_array_size(rows); i++)
        (void)json_array_append(column, json_object_get(json_array_get(rows, i), key));
    (void)json_object_set_new(report, as, column);
}

static json_t *make_report(const oct_verify_run *run)
{
    static const char *const columns[] = {"loss", "grad_norm", "tokens_per_second", "step_seconds",
                                          "peak_memory_bytes"};
    json_t *report = json_object(), *seconds = json_object();
    (void)json_object_set_new(report, "name", json_string(run->name));
    (void)json_object_set_new(report, "format", json_string(oct_verify_formats[run->format]));
    (void)json_object_set_new(report, "ranks", json_integer(run->ranks));
    (void)json_object_set_new(report, "words", json_string(run->key));
    (void)json_object_set_new(report, "exit_code", json_integer(run->exit_code));
    put_column(report, run->metrics, "step", "steps");
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        put_column(report, run->metrics, columns[i], columns[i]);
    const char *part = NULL;
    json_t *of_part = NULL;
    json_t *first = json_object_get(json_array_get(run->metrics, 0), "seconds");
    json_object_foreach(first, part, of_part)
    {
        json_t *column = json_array();
        for (size_t i = 0; i < json_array_size(run->metrics); i++)
            (void)json_array_append(
                column,
                json_object_get(json_object_get(json_array_get(run->metrics, i), "seconds"), part));
        (void)json_object_set_new(seconds, part, column);
    }
    (void)json_object_set_new(report, "seconds", seconds);
    return report;
}

/* A checkpoint takes room and most cases look at none. */
static oct_status remove_checkpoints(const oct_verify_run *run, oct_err *err)
{
    char path[OCT_PATH_BYTES];
    OCT_TRY(oct_path_join(run->dir, "checkpoints", path, sizeof path, err));
    return oct_verify_remove_tree(path, err);
}

static oct_status train(oct_verify *v, oct_verify_run *run, bool keeps_checkpoints, command *c,
                        oct_err *err)
{
    char logs[OCT_PATH_BYTES], name[OCT_VERIFY_NAME_BYTES + 16], out[OCT_PATH_BYTES];
    OCT_TRY(oct_path_join(v->out, "logs", logs, sizeof logs, err));
    OCT_TRY(oct_file_make_dirs(&oct_file_table_real, logs, err));
    (void)snprintf(name, sizeof name, "%s.stderr", run->name);
    OCT_TRY(oct_path_join(logs, name, run->stderr_path, sizeof run->stderr_path, err));
    (void)snprintf(name, sizeof name, "%s.stdout", run->name);
    OCT_TRY(oct_path_join(logs, name, out, sizeof out, err));
    add(c, "--run-dir");
    add(c, run->dir);
    const oct_process_options options = {
        .argv = c->argv,
        .stdout_path = out,
        .stderr_path = run->stderr_path,
        .timeout_seconds = TIME_LIMIT,
        .stop = v->stop,
    };
    oct_process_result result;
    OCT_TRY(oct_process_run(&options, &result, err));
    if (!keeps_checkpoints)
        OCT_TRY(remove_checkpoints(run, err));
    run->exit_code = result.exit_code;
    run->seconds = result.seconds;
    read_rows(run);
    run->report = make_report(run);
    (void)json_array_append(json_object_get(v->report, "runs"), run->report);
    return result.stopped
               ? OCT_FAIL(err, OCT_E_INTERRUPTED, "stopped by a signal during run '%s'", run->name)
               : OCT_OK;
}

static const oct_verify_run *find(const oct_verify *v, const char *key)
{
    for (int i = 0; i < v->run_count; i++)
        if (strcmp(v->runs[i]->key, key) == 0)
            return v->runs[i];
    return NULL;
}

/* A name that no other run has: NAME, NAME-2, ... */
static void choose_name(const oct_verify *v, const char *name, char *out)
{
    for (int n = 1;; n++) {
        bool taken = false;
        if (n == 1)
            (void)snprintf(out, OCT_VERIFY_NAME_BYTES, "%s", name);
        else
            (void)snprintf(out, OCT_VERIFY_NAME_BYTES, "%.140s-%d", name, n);
        for (int i = 0; i < v->run_count; i++)
            taken = taken || strcmp(v->runs[i]->name, out) == 0;
        if (!taken)
            return;
    }
}

static oct_status append(oct_verify *v, oct_verify_run *run, oct_err *err)
{
    oct_verify_run **runs = realloc(v->runs, (size_t)(v->run_count + 1) * sizeof(oct_verify_run *));
    if (!runs)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot run '%s': out of memory", run->name);
    v->runs = runs;
    v->runs[v->run_count++] = run;
    return OCT_OK;
}

oct_status oct_verify_train(oct_verify *v, json_t *result, const oct_verify_job *job,
                            const oct_verify_run **out, oct_err *err)
{
    command c = {0};
    oct_verify_run *run = calloc(1, sizeof *run);
    if (!run)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot run '%s': out of memory", job->name);
    run->ranks = job->ranks ? job->ranks : v->ranks;
    run->format = job->format;
    run->has_trace = !job->is_silent;
    make_command(v, job, run, &c);
    run->key = make_key(&c, job->turn);
    run->traces = calloc((size_t)run->ranks, sizeof(oct_verify_trace *));
    const oct_verify_run *made = run->key ? find(v, run->key) : NULL;
    if (!run->key || !run->traces || made) {
        oct_verify_run_release(run);
        if (!made)
            return OCT_FAIL(err, OCT_E_NOMEM, "cannot run '%s': out of memory", job->name);
        *out = made;
        oct_verify_name_run(result, made->name);
        return OCT_OK;
    }
    choose_name(v, job->name, run->name);
    char runs[OCT_PATH_BYTES];
    oct_status status = oct_path_join(v->out, "runs", runs, sizeof runs, err);
    if (status == OCT_OK)
        status = oct_path_join(runs, run->name, run->dir, sizeof run->dir, err);
    if (status == OCT_OK)
        status = append(v, run, err);
    if (status != OCT_OK) {
        oct_verify_run_release(run);
        return status;
    }
    oct_verify_name_run(result, run->name);
    *out = run;
    return train(v, run, job->keeps_checkpoints, &c, err);
}

void oct_verify_run_release(oct_verify_run *run)
{
    if (!run)
        return;
    for (int r = 0; run->traces && r < run->ranks; r++)
        oct_verify_trace_release(run->traces[r]);
    free(run->traces);
    json_decref(run->metrics);
    json_decref(run->report);
    free(run->key);
    free(run);
}

/* --- what every run has to hold -------------------------------------------------------------- */

void oct_verify_last_line(const char *path, char *out, size_t size)
{
    out[0] = '\0';
    FILE *file = fopen(path, "re");
    char line[1024];
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "octet: ", 7) == 0 || out[0] == '\0')
            (void)snprintf(out, size, "%.*s", (int)strcspn(line, "\n"), line);
    if (file)
        fclose(file);
}

bool oct_verify_check_trained(json_t *result, const oct_verify_run *run, int64_t steps)
{
    char what[OCT_VERIFY_NAME_BYTES + 64], required[128], line[512];
    int64_t finite = 0, skipped = 0;
    for (size_t i = 0; i < json_array_size(run->metrics); i++) {
        const json_t *row = json_array_get(run->metrics, i);
        const json_t *loss = json_object_get(row, "loss"),
                     *norm = json_object_get(row, "grad_norm");
        skipped += json_is_true(json_object_get(row, "skipped"));
        finite += json_is_number(loss) && json_is_number(norm) &&
                  isfinite(json_number_value(loss)) && isfinite(json_number_value(norm)) &&
                  json_number_value(norm) > 0.0;
    }
    const int64_t rows = (int64_t)json_array_size(run->metrics);
    oct_verify_last_line(run->stderr_path, line, sizeof line);
    (void)snprintf(what, sizeof what, "%s trains", run->name);
    (void)snprintf(required, sizeof required,
                   "exit code 0, %lld steps with finite loss and gradient norm, none skipped",
                   (long long)steps);
    const bool ok = run->exit_code == 0 && rows == steps && finite == steps && skipped == 0;
    return oct_verify_check(result, ok, what, required,
                            "exit code %d, %lld steps, %lld finite, %lld skipped%s%s",
                            run->exit_code, (long long)rows, (long long)finite, (long long)skipped,
                            run->exit_code ? ": " : "", run->exit_code ? line : "");
}
