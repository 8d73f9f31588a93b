#include "trainer/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROW_MAX = 2048 };

struct oct_metrics {
    int fd;
    char *path;
};

/* Appends to a fixed buffer and keeps counting past its end. */
typedef struct row_text {
    char *data;
    int size, used;
} row_text;

static void put(row_text *row, const char *fmt, ...) OCT_PRINTF(2, 3);
static void put(row_text *row, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int room = row->used < row->size ? row->size - row->used : 0;
    const int n = vsnprintf(room ? row->data + row->used : NULL, (size_t)room, fmt, args);
    va_end(args);
    row->used += n > 0 ? n : 0;
}

/* 17 digits bring every FP64 back to the same bits; jansson needs a '.' or exponent in a real. */
static void put_real(row_text *row, const char *key, double value)
{
    if (!isfinite(value)) {
        put(row, ",\"%s\":null", key);
        return;
    }
    char text[40];
    (void)snprintf(text, sizeof text, "%.17g", value);
    put(row, ",\"%s\":%s%s", key, text, strpbrk(text, ".e") ? "" : ".0");
}

static void put_int(row_text *row, const char *key, int64_t value)
{
    put(row, ",\"%s\":%lld", key, (long long)value);
}

int oct_metrics_format(const oct_step_metrics *m, char *out, int size)
{
    row_text row = {.data = out, .size = size};
    put(&row, "{\"schema\":1,\"kind\":\"%s\"", m->validation ? "validation" : "train");
    put_int(&row, "attempt", m->attempt);
    put_int(&row, "step", m->step);
    put_real(&row, "loss", m->loss);
    put_int(&row, "tokens", m->tokens);
    if (!m->validation) {
        put_real(&row, "grad_norm", m->grad_norm);
        put_real(&row, "lr", m->lr);
    }
    put_real(&row, "tokens_per_second", m->tokens_per_second);
    put_real(&row, "step_seconds", m->step_seconds);
    put_int(&row, "peak_memory_bytes", m->peak_memory_bytes);
    if (!m->validation) {
        put(&row, ",\"skipped\":%s", m->skipped ? "true" : "false");
        put_int(&row, "refreshed_weights", m->refreshed_weights);
        put_int(&row, "fma_matmuls", m->fma_matmuls);
        put_int(&row, "expert_load_max", m->expert_load_max);
        put(&row, ",\"seconds\":{");
        for (int part = 0; part < OCT_PART_COUNT; part++)
            put(&row, "%s\"%s\":%.6f", part ? "," : "", oct_part_name((oct_part)part),
                m->profile.seconds[part]);
        put(&row, "}");
    }
    put(&row, "}");
    return row.used;
}

/* Keeps a complete, valid row of an attempt that the checkpoint knows. */
static bool keep_row(const char *line, size_t length, int64_t keep_attempt)
{
    json_t *row = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
    const json_t *attempt = row ? json_object_get(row, "attempt") : NULL;
    const bool keep = json_is_integer(attempt) && json_integer_value(attempt) <= keep_attempt;
    json_decref(row);
    return keep;
}

static oct_status cut_rows(const char *path, int64_t keep_attempt, oct_err *err)
{
    FILE *in = fopen(path, "re");
    if (!in)
        return errno == ENOENT
                   ? OCT_OK
                   : OCT_FAIL(err, OCT_E_IO, "cannot read metrics: %s (%s)", strerror(errno), path);
    char tmp[4200];
    (void)snprintf(tmp, sizeof tmp, "%s.tmp", path);
    FILE *out = fopen(tmp, "we");
    bool ok = out != NULL;
    char *line = NULL;
    size_t room = 0;
    for (ssize_t n; ok && (n = getline(&line, &room, in)) > 0;) {
        if (line[n - 1] == '\n' && keep_row(line, (size_t)n, keep_attempt))
            ok = fwrite(line, 1, (size_t)n, out) == (size_t)n;
    }
    free(line);
    fclose(in);
    if (out) {
        ok = ok && fflush(out) == 0 && fsync(fileno(out)) == 0;
        ok = fclose(out) == 0 && ok;
    }
    if (!ok || rename(tmp, path) != 0)
        return OCT_FAIL(err, OCT_E_IO, "cannot cut metrics back to attempt %lld: %s (%s)",
                        (long long)keep_attempt, strerror(errno), path);
    return OCT_OK;
}

oct_status oct_metrics_open(const char *path, int64_t keep_attempt, oct_metrics **out, oct_err *err)
{
    if (keep_attempt >= 0)
        OCT_TRY(cut_rows(path, keep_attempt, err));
    oct_metrics *metrics = malloc(sizeof *metrics);
    if (!metrics)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot open metrics: out of memory (%s)", path);
    *metrics = (oct_metrics){.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666),
                             .path = strdup(path)};
    if (metrics->fd < 0 || !metrics->path) {
        const int error = errno;
        oct_metrics_close(metrics);
        return OCT_FAIL(err, OCT_E_IO, "cannot open metrics: %s (%s)", strerror(error), path);
    }
    *out = metrics;
    return OCT_OK;
}

oct_status oct_metrics_write(oct_metrics *metrics, const oct_step_metrics *row, oct_err *err)
{
    char text[ROW_MAX];
    const int n = oct_metrics_format(row, text, ROW_MAX - 1);
    if (n >= ROW_MAX - 1)
        return OCT_FAIL(err, OCT_E_API, "a metrics row needs %d characters, %d are there", n,
                        ROW_MAX - 1);
    text[n] = '\n';
    const ssize_t written = write(metrics->fd, text, (size_t)n + 1);
    if (written != n + 1)
        return OCT_FAIL(err, OCT_E_IO, "cannot write metrics: %s (%s)",
                        written < 0 ? strerror(errno) : "short write", metrics->path);
    return OCT_OK;
}

void oct_metrics_close(oct_metrics *metrics)
{
    if (!metrics)
        return;
    if (metrics->fd >= 0)
        close(metrics->fd);
    free(metrics->path);
    free(metrics);
}
