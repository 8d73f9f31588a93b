/* The case Q3-11 with 17.4: the formats take turns in runs of their own, nothing is traced, and
 * each 8-bit format is judged alone. Then what resharding and recomputation change, and what low
 * precision costs while it is off. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/median.h"
#include "base/size.h"
#include "verify/low_precision_off.h"
#include "verify/performance.h"
#include "verify/verify.h"

enum { FORMATS = OCT_VERIFY_FORMAT_COUNT, MAX_TURNS = 2, MOST_RANKS = 2, WORD_BYTES = 64 };

/* How the runs are made. */
typedef struct plan {
    const char *config;
    int ranks;
    int64_t warmup, steps, switch_steps;
    int turns;
    char iterations[WORD_BYTES], switch_iterations[WORD_BYTES], threads[WORD_BYTES];
    const char *more; /* another word, or NULL */
} plan;

typedef struct bench {
    oct_verify *v;
    json_t *result;
    plan plan;
    oct_performance sums[FORMATS];
    int64_t peaks[FORMATS][MOST_RANKS]; /* bytes of each rank, the most of all turns */
    const oct_verify_run *runs[MAX_TURNS][FORMATS];
    const oct_verify_run *bare; /* BF16 without the section, right after the first BF16 run */
    double load; /* processes that wanted to run in the minute before the first turn */
    json_t *switches;
    char *csv;
    FILE *rows; /* writes csv */
} bench;

static plan plan_of(const oct_verify *v)
{
    plan p = {.config = "configs/speed.yaml",
              .ranks = v->ranks < MOST_RANKS ? v->ranks : MOST_RANKS,
              .warmup = OCT_PERFORMANCE_WARMUP,
              .steps = OCT_PERFORMANCE_STEPS,
              .switch_steps = 4,
              .turns = MAX_TURNS};
    if (v->quick) { /* says something about the machinery, nothing about speed */
        p.config = "configs/demo.yaml";
        p.steps = 4;
        p.turns = 1;
        p.more = "training.micro_batch_size=4";
    }
    (void)snprintf(p.iterations, sizeof p.iterations, "training.train_iters=%lld",
                   (long long)(p.warmup + p.steps));
    (void)snprintf(p.switch_iterations, sizeof p.switch_iterations, "training.train_iters=%lld",
                   (long long)(p.warmup + p.switch_steps));
    (void)snprintf(p.threads, sizeof p.threads, "training.threads=%lld",
                   (long long)oct_max_i64(1, oct_cpu_count() / p.ranks));
    return p;
}

/* --- runs ------------------------------------------------------------------------------------- */

/* A run's raw steps into the evidence. */
static void write_rows(bench *b, const oct_verify_run *run, int turn, const char *what)
{
    for (size_t i = 0; i < json_array_size(run->metrics); i++) {
        const json_t *row = json_array_get(run->metrics, i);
        const json_t *parts = json_object_get(row, "seconds");
        fprintf(b->rows, "%s,%s,%d,%lld,%s,%lld,%.9g,%.9g,%lld", what,
                oct_verify_formats[run->format], turn,
                (long long)json_integer_value(json_object_get(row, "step")),
                (int64_t)i < b->plan.warmup ? "warm-up" : "steady",
                (long long)json_integer_value(json_object_get(row, "tokens")),
                json_number_value(json_object_get(row, "step_seconds")),
                json_number_value(json_object_get(row, "tokens_per_second")),
                (long long)json_integer_value(json_object_get(row, "peak_memory_bytes")));
        for (int p = 0; p < OCT_PERFORMANCE_PARTS; p++)
            fprintf(b->rows, ",%.9g",
                    json_number_value(json_object_get(parts, oct_performance_parts[p])));
        fprintf(b->rows, "\n");
    }
}

static oct_status train(bench *b, const char *name, oct_verify_job job, const char *iterations,
                        const char *word, int turn, const oct_verify_run **run, oct_err *err)
{
    int n = 0;
    job.name = name;
    job.config = b->plan.config;
    job.ranks = b->plan.ranks;
    job.is_silent = true;
    job.turn = turn + 1;
    job.words[n++] = iterations;
    job.words[n++] = b->plan.threads;
    job.words[n++] = "lr_scheduler.warmup_steps=1";
    if (b->plan.more)
        job.words[n++] = b->plan.more;
    if (word)
        job.words[n++] = word;
    return oct_verify_train(b->v, b->result, &job, run, err);
}

/* "peak memory of each rank, MiB: 711 712" of the run's output; one rank: of its rows. */
static void read_peaks(const oct_verify_run *run, int ranks, int64_t *peaks, int64_t largest)
{
    static const char mark[] = "peak memory of each rank, MiB:";
    char path[OCT_PATH_BYTES], line[2048];
    (void)snprintf(path, sizeof path, "%.*s.stdout",
                   (int)(strlen(run->stderr_path) - strlen(".stderr")), run->stderr_path);
    if (ranks == 1)
        peaks[0] = oct_max_i64(peaks[0], largest);
    FILE *file = ranks > 1 ? fopen(path, "re") : NULL;
    while (file && fgets(line, sizeof line, file)) {
        char *at = strstr(line, mark);
        if (!at)
            continue;
        at += sizeof mark - 1;
        for (int r = 0; r < ranks; r++)
            peaks[r] = oct_max_i64(peaks[r], (int64_t)strtoll(at, &at, 10) << 20);
    }
    if (file)
        fclose(file);
}

/* One turn of every format; forward in even turns, backward in odd ones: what drifts steadily then
 * falls on all alike. */
static oct_status run_turn(bench *b, int turn, oct_err *err)
{
    for (int i = 0; i < FORMATS; i++) {
        if (turn == 0 && i == 1)
            OCT_TRY(train(b, "speed-bf16-bare",
                          (oct_verify_job){.format = OCT_VERIFY_BF16, .is_bare = true},
                          b->plan.iterations, NULL, turn, &b->bare, err));
        const int f = turn % 2 == 0 ? i : FORMATS - 1 - i;
        const oct_verify_run **run = &b->runs[turn][f];
        char name[WORD_BYTES];
        (void)snprintf(name, sizeof name, "speed-%s-turn-%d", oct_verify_formats[f], turn + 1);
        OCT_TRY(train(b, name, (oct_verify_job){.format = (oct_verify_format)f}, b->plan.iterations,
                      NULL, turn, run, err));
        if (!oct_verify_check_trained(b->result, *run, b->plan.warmup + b->plan.steps))
            continue;
        write_rows(b, *run, turn + 1, "speed");
        OCT_TRY(oct_performance_add(&b->sums[f], (*run)->name, (*run)->metrics, b->plan.warmup,
                                    b->plan.steps, err));
        read_peaks(*run, b->plan.ranks, b->peaks[f], b->sums[f].peak_memory_bytes);
    }
    return OCT_OK;
}

/* --- equal configurations --------------------------------------------------------------------- */

static oct_status read_config(const oct_verify_run *run, char **text, oct_err *err)
{
    char path[OCT_PATH_BYTES];
    size_t bytes = 0;
    OCT_TRY(oct_path_join(run->dir, "config.yaml", path, sizeof path, err));
    return oct_file_read_all(&oct_file_table_real, path, 1 << 20, text, &bytes, err);
}

static oct_status check_configs(bench *b, const oct_verify_run *bf16, const oct_verify_run *low,
                                oct_err *err)
{
    char *a = NULL, *c = NULL, what[2 * OCT_VERIFY_NAME_BYTES];
    oct_err differs = {0};
    oct_status status = read_config(bf16, &a, err);
    if (status == OCT_OK)
        status = read_config(low, &c, err);
    if (status == OCT_OK) {
        const bool same =
            oct_performance_same_config(a, bf16->name, c, low->name, &differs) == OCT_OK;
        (void)snprintf(what, sizeof what, "%.80s is configured as %.80s", low->name, bf16->name);
        (void)oct_verify_check(b->result, same, what, "no key outside of low_precision differs",
                               "%s", same ? "none differs" : differs.msg);
    }
    free(a);
    free(c);
    return status;
}

/* --- verdicts --------------------------------------------------------------------------------- */

static void judge(bench *b)
{
    const oct_performance *bf16 = &b->sums[OCT_VERIFY_BF16];
    for (int f = OCT_VERIFY_BF16 + 1; f < FORMATS; f++) {
        const oct_performance *low = &b->sums[f];
        const double rate = oct_performance_throughput_ratio(low, bf16);
        const double time = oct_performance_step_time_ratio(low, bf16);
        char what[96], line[160];
        (void)snprintf(line, sizeof line,
                       "  %-6s %.3f x the tokens/s of BF16, %.3f x its step time%s",
                       oct_verify_formats[f], rate, time, b->v->quick ? " (no verdict)" : "");
        if (b->v->say)
            b->v->say(line);
        (void)snprintf(what, sizeof what, "%s is not slower than BF16", oct_verify_formats[f]);
        if (b->v->quick)
            (void)oct_verify_check(b->result, isfinite(rate) && isfinite(time), what,
                                   "it is measured; the quick form gives no verdict",
                                   "throughput %.3f, step time %.3f of BF16's", rate, time);
        else
            (void)oct_verify_check(
                b->result, oct_performance_holds(low, bf16), what,
                "throughput >= 1 and mean step time <= 1 of BF16's, the same tokens a step",
                "throughput %.3f, step time %.3f, %lld and %lld tokens a step, %lld steps each; "
                "load "
                "of the machine before: %.1f on %d cores",
                rate, time, (long long)low->tokens_per_step, (long long)bf16->tokens_per_step,
                (long long)low->steps, b->load, oct_cpu_count());
    }
    for (int f = 0; f < FORMATS; f++) {
        char what[96];
        bool known = true;
        for (int r = 0; r < b->plan.ranks; r++)
            known = known && b->peaks[f][r] > 0;
        (void)snprintf(what, sizeof what, "the memory of %s is recorded", oct_verify_formats[f]);
        (void)oct_verify_check(b->result, known, what, "a peak of every rank",
                               "rank 0: %.0f MiB, rank %d: %.0f MiB",
                               (double)b->peaks[f][0] * 0x1p-20, b->plan.ranks - 1,
                               (double)b->peaks[f][b->plan.ranks - 1] * 0x1p-20);
    }
}

/* --- switches --------------------------------------------------------------------------------- */

/* What a switch changes of speed and memory, per format; recorded, not judged. */
static oct_status run_switch(bench *b, const char *name, const char *word, oct_err *err)
{
    for (int f = 0; f < FORMATS; f++) {
        const oct_verify_run *run = NULL;
        const oct_performance *base = &b->sums[f];
        oct_performance sum = {0};
        char full[WORD_BYTES];
        (void)snprintf(full, sizeof full, "speed-%s-%s", oct_verify_formats[f], name);
        OCT_TRY(train(b, full, (oct_verify_job){.format = (oct_verify_format)f},
                      b->plan.switch_iterations, word, 0, &run, err));
        if (!oct_verify_check_trained(b->result, run, b->plan.warmup + b->plan.switch_steps))
            continue;
        write_rows(b, run, 1, name);
        OCT_TRY(oct_performance_add(&sum, run->name, run->metrics, b->plan.warmup,
                                    b->plan.switch_steps, err));
        (void)json_array_append_new(
            b->switches,
            json_pack("{s:s,s:s,s:f,s:f,s:I,s:f}", "switch", word, "format", oct_verify_formats[f],
                      "tokens_per_second", oct_performance_tokens_per_second(&sum), "speed_ratio",
                      oct_performance_throughput_ratio(&sum, base), "peak_memory_bytes",
                      (json_int_t)sum.peak_memory_bytes, "memory_ratio",
                      (double)sum.peak_memory_bytes / (double)base->peak_memory_bytes));
    }
    return OCT_OK;
}

/* --- low precision off (17.4e) ---------------------------------------------------------------- */

static bool same_bits(const oct_verify_run *a, const oct_verify_run *b)
{
    const size_t count = json_array_size(a->metrics);
    if (count == 0 || count != json_array_size(b->metrics))
        return false;
    for (size_t i = 0; i < count; i++) {
        static const char *const keys[] = {"loss", "grad_norm"};
        for (int k = 0; k < 2; k++) {
            const json_t *x = json_object_get(json_array_get(a->metrics, i), keys[k]);
            const json_t *y = json_object_get(json_array_get(b->metrics, i), keys[k]);
            if (!json_is_real(x) || !json_is_real(y) || json_real_value(x) != json_real_value(y))
                return false;
        }
    }
    return true;
}

/* Of the steady steps: what disturbs a few of them does not matter. */
static double median_seconds(const oct_verify_run *run, int64_t warmup)
{
    enum { MOST_STEPS = 64 };
    double seconds[MOST_STEPS];
    size_t count = 0;
    for (size_t i = (size_t)warmup; i < json_array_size(run->metrics) && count < MOST_STEPS; i++)
        seconds[count++] =
            json_number_value(json_object_get(json_array_get(run->metrics, i), "step_seconds"));
    return count ? oct_median(seconds, (int64_t)count) : (double)NAN;
}

static oct_status check_off(bench *b, oct_err *err)
{
    static const double MOST_TIME = 1.15, MOST_MEMORY = 1.05; /* noise of a run and of its pages */
    const oct_verify_run *bare = b->bare, *off = b->runs[0][OCT_VERIFY_BF16];
    oct_performance with = {0}, without = {0};
    if (!oct_verify_check_trained(b->result, bare, b->plan.warmup + b->plan.steps))
        return OCT_OK;
    write_rows(b, bare, 1, "without the section");
    OCT_TRY(
        oct_performance_add(&with, off->name, off->metrics, b->plan.warmup, b->plan.steps, err));
    OCT_TRY(oct_performance_add(&without, bare->name, bare->metrics, b->plan.warmup, b->plan.steps,
                                err));
    const double time = median_seconds(off, b->plan.warmup) / median_seconds(bare, b->plan.warmup);
    const double memory = (double)with.peak_memory_bytes / (double)without.peak_memory_bytes;
    (void)oct_verify_check(b->result, same_bits(off, bare), "low precision off: bits",
                           "losses and norms of every step as without the section", "%zu steps",
                           json_array_size(bare->metrics));
    (void)oct_verify_check(b->result, memory <= MOST_MEMORY && memory >= 1.0 / MOST_MEMORY,
                           "low precision off: memory", "within 5 % of that without the section",
                           "%.4f of it", memory);
    (void)oct_verify_check(
        b->result, b->v->quick ? isfinite(time) : time <= MOST_TIME, "low precision off: time",
        b->v->quick ? "it is measured; the quick form gives no verdict"
                    : "the median step takes at most 1.15 of one without the section",
        "%.3f of it", time);
    oct_off_objects objects;
    OCT_TRY(oct_low_precision_off_objects(&objects, err));
    (void)oct_verify_check(b->result, objects.extra == 0, "low precision off: resident objects",
                           "no replaced module, no 8-bit weight, every category of memory as "
                           "without the section",
                           "%s", objects.text);
    return OCT_OK;
}

/* --- the case --------------------------------------------------------------------------------- */

static oct_status write_steps(bench *b, oct_err *err)
{
    if (fflush(b->rows) != 0)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot write the steps: out of memory");
    return oct_verify_evidence_text(b->v, b->result, "steps.csv", b->csv, err);
}

static oct_status write_evidence(bench *b, oct_err *err)
{
    json_t *formats = json_array();
    for (int f = 0; f < FORMATS; f++) {
        json_t *peaks = json_array();
        for (int r = 0; r < b->plan.ranks; r++)
            (void)json_array_append_new(peaks, json_integer(b->peaks[f][r]));
        (void)json_array_append_new(formats,
                                    oct_performance_json(oct_verify_formats[f], &b->sums[f],
                                                         &b->sums[OCT_VERIFY_BF16], peaks));
    }
    json_t *all = json_pack("{s:s,s:b,s:i,s:I,s:I,s:i,s:I,s:o,s:O}", "config", b->plan.config,
                            "judged", !b->v->quick, "ranks", b->plan.ranks, "warmup",
                            (json_int_t)b->plan.warmup, "steps", (json_int_t)b->plan.steps, "turns",
                            b->plan.turns, "tokens", (json_int_t)b->sums[0].tokens_per_step,
                            "formats", formats, "switches", b->switches);
    if (!all)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot write the speeds: out of memory");
    (void)json_object_set_new(b->v->report, "performance", all);
    OCT_TRY(oct_verify_evidence_json(b->v, b->result, "performance.json", all, err));
    return write_steps(b, err);
}

static bool all_measured(const bench *b)
{
    for (int f = 0; f < FORMATS; f++)
        if (b->sums[f].steps != b->plan.turns * b->plan.steps)
            return false;
    return true;
}

static oct_status run_case(bench *b, oct_err *err)
{
    if (getloadavg(&b->load, 1) != 1)
        b->load = (double)NAN;
    fprintf(b->rows, "what,format,turn,step,kind,tokens,step_seconds,tokens_per_second,"
                     "peak_memory_bytes");
    for (int p = 0; p < OCT_PERFORMANCE_PARTS; p++)
        fprintf(b->rows, ",%s", oct_performance_parts[p]);
    fprintf(b->rows, "\n");
    for (int turn = 0; turn < b->plan.turns; turn++)
        OCT_TRY(run_turn(b, turn, err));
    if (!all_measured(b)) /* a check that does not hold says which run and why */
        return write_steps(b, err);
    for (int turn = 0; turn < b->plan.turns; turn++)
        for (int f = OCT_VERIFY_BF16 + 1; f < FORMATS; f++)
            OCT_TRY(check_configs(b, b->runs[turn][OCT_VERIFY_BF16], b->runs[turn][f], err));
    judge(b);
    if (!b->v->quick) {
        OCT_TRY(run_switch(b, "kept", "fsdp_config.reshard_after_forward=false", err));
        OCT_TRY(
            run_switch(b, "recompute", "gradient_checkpointing.activation_checkpoint=full", err));
    }
    OCT_TRY(check_off(b, err));
    return write_evidence(b, err);
}

oct_status oct_verify_q3_11(oct_verify *v, json_t *result, oct_err *err)
{
    size_t bytes = 0;
    bench b = {.v = v, .result = result, .plan = plan_of(v), .switches = json_array()};
    b.rows = open_memstream(&b.csv, &bytes);
    const oct_status status =
        b.rows ? run_case(&b, err) : OCT_FAIL(err, OCT_E_NOMEM, "cannot time runs: out of memory");
    if (b.rows)
        fclose(b.rows);
    free(b.csv);
    json_decref(b.switches);
    return status;
}
