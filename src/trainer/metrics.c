#include "trainer/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"

static char newline[] = "\n";

struct oct_metrics {
    int fd;
    char *path;
    oct_json row; /* keeps its memory from row to row */
};

/* The keys are a file format: every product is one "matmul" in it, packing included. */
static void put_seconds(oct_json *json, const oct_profile *profile)
{
    static const oct_part parts[] = {
        OCT_PART_FORWARD,        OCT_PART_BACKWARD,  OCT_PART_QUANTIZE,
        OCT_PART_FPROP,          OCT_PART_ATTENTION, OCT_PART_ALL_GATHER,
        OCT_PART_REDUCE_SCATTER, OCT_PART_OPTIMIZER, OCT_PART_CHECKPOINT,
    };
    const double *seconds = profile->seconds;
    oct_json_object(json, "seconds");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i] == OCT_PART_FPROP)
            oct_json_double(json, "matmul",
                            seconds[OCT_PART_PACK] + seconds[OCT_PART_FPROP] +
                                seconds[OCT_PART_DGRAD] + seconds[OCT_PART_WGRAD]);
        else
            oct_json_double(json, oct_part_name(parts[i]), seconds[parts[i]]);
    oct_json_end(json);
}

oct_status oct_metrics_format(const oct_step_metrics *m, oct_json *json, oct_err *err)
{
    oct_json_clear(json);
    oct_json_object(json, NULL);
    oct_json_int(json, "schema", 1);
    oct_json_string(json, "kind", m->validation ? "validation" : "train");
    oct_json_int(json, "attempt", m->attempt);
    oct_json_int(json, "step", m->step);
    oct_json_double(json, "loss", m->loss);
    if (!m->validation) {
        oct_json_double(json, "grad_norm", m->grad_norm);
        oct_json_double(json, "lr", m->lr);
    }
    oct_json_int(json, "tokens", m->tokens);
    oct_json_double(json, "tokens_per_second", m->tokens_per_second);
    oct_json_double(json, "step_seconds", m->step_seconds);
    oct_json_int(json, "peak_memory_bytes", m->peak_memory_bytes);
    if (!m->validation) {
        oct_json_bool(json, "skipped", m->skipped);
        oct_json_int(json, "refreshed_weights", m->refreshed_weights);
        oct_json_int(json, "fma_matmuls", m->fma_matmuls);
        oct_json_int(json, "expert_load_max", m->expert_load_max);
        put_seconds(json, &m->profile);
    }
    oct_json_end(json);
    return oct_json_finish(json, err);
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
    (void)unlink(tmp); /* whatever it is: a pipe would wait for a reader */
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
    OCT_TRY(oct_file_require_regular(&oct_file_table_real, "metrics", path, err));
    if (keep_attempt >= 0)
        OCT_TRY(cut_rows(path, keep_attempt, err));
    oct_metrics *metrics = malloc(sizeof *metrics);
    if (!metrics)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot open metrics: out of memory (%s)", path);
    *metrics = (oct_metrics){.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666),
                             .path = strdup(path)};
    oct_json_init(&metrics->row);
    if (metrics->fd < 0 || !metrics->path) {
        const int error = errno;
        oct_metrics_close(metrics);
        return OCT_FAIL(err, OCT_E_IO, "cannot open metrics: %s (%s)", strerror(error), path);
    }
    *out = metrics;
    return OCT_OK;
}

/* The newline goes out with the row: one write, so that no reader sees half a row. */
oct_status oct_metrics_write(oct_metrics *metrics, const oct_step_metrics *row, oct_err *err)
{
    OCT_TRY(oct_metrics_format(row, &metrics->row, err));
    const struct iovec parts[] = {
        {.iov_base = metrics->row.text, .iov_len = metrics->row.bytes},
        {.iov_base = newline, .iov_len = 1},
    };
    const ssize_t wanted = (ssize_t)metrics->row.bytes + 1;
    errno = EIO; /* of the fault */
    const ssize_t written = oct_fault("metrics.write") ? -1 : writev(metrics->fd, parts, 2);
    if (written != wanted)
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
    oct_json_release(&metrics->row);
    free(metrics->path);
    free(metrics);
}
