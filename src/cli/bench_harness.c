#include "cli/bench_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/median.h"
#include "base/size.h"

oct_status oct_bench_open(const oct_bench_options *options, oct_bench *bench, oct_err *err)
{
    oct_isa isa = OCT_ISA_REF;
    *bench = (oct_bench){.options = options};
    oct_arena_init(&bench->memory, "bench");
    oct_arena_init(&bench->scratch, "scratch");
    oct_arena_init(&bench->step, "step");
    OCT_TRY(oct_isa_choose(&isa, err));
    oct_kernels_init(&bench->kernels, isa);
    bench->exec = (oct_exec){
        .kernels = &bench->kernels, .threads = options->threads, .scratch = &bench->scratch};
    return OCT_OK;
}

void oct_bench_close(oct_bench *bench)
{
    oct_arena_release(&bench->memory);
    oct_arena_release(&bench->scratch);
    oct_arena_release(&bench->step);
}

static double seconds_now(int threads)
{
    struct timespec now;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Rates of one variant over all turns. */
typedef struct measurement {
    double rates[OCT_BENCH_MAX_TURNS]; /* by turn */
    double median, best;
    double spread; /* (best - slowest) / median */
} measurement;

static void summarise(measurement *m, int turns)
{
    double sorted[OCT_BENCH_MAX_TURNS];
    memcpy(sorted, m->rates, (size_t)turns * sizeof *sorted);
    m->median = oct_median(sorted, turns);
    m->best = sorted[turns - 1];
    m->spread = (sorted[turns - 1] - sorted[0]) / m->median;
}

/* One finished case. */
typedef struct case_result {
    const char *name, *case_name, *unit;
    const oct_bench_variant *variants;
    const measurement *measurements;
    const int64_t *checked;
    int count, turns;
    double scale;
} case_result;

/* Formats go by their short names here: "mxfp8" of "mxfp8_e4m3". */
static int short_length(const char *format)
{
    return (int)strcspn(format, "_");
}

/* Median over the turns of the ratio of two variants, which ran in each turn one soon after the
 * other: what slows a machine down for a while slows both. */
static double median_ratio(const case_result *result, int v, int base)
{
    double work[OCT_BENCH_MAX_TURNS];
    return oct_median_ratio(result->measurements[v].rates, result->measurements[base].rates,
                            result->turns, work);
}

/* Rate over that of our own variant of `format`, or of `peer` unless NULL; 0 if there is none. */
static double ratio_to(const case_result *result, int v, const char *format, const char *peer)
{
    for (int b = 0; b < result->count; b++) {
        const oct_bench_variant *base = &result->variants[b];
        if (base->is_limit)
            continue;
        const bool wanted = peer ? base->peer && strcmp(base->peer, peer) == 0
                                 : !base->peer && strcmp(base->format, format) == 0;
        if (wanted)
            return median_ratio(result, v, b);
    }
    return 0.0;
}

/* Seconds of the floor over seconds of a call; 0 if there is no floor. */
static double share_of_limit(const case_result *result, int v)
{
    const oct_bench_variant *variant = &result->variants[v];
    double seconds = 0.0;
    for (int f = 0; f < 2; f++)
        if (variant->floor[f].limit)
            seconds +=
                variant->floor[f].work / result->measurements[variant->floor[f].limit - 1].median;
    return seconds * result->measurements[v].median / variant->work;
}

static void put_ratio(oct_json *json, const char *key, double ratio)
{
    if (ratio > 0.0)
        oct_json_double(json, key, ratio);
    else
        oct_json_null(json, key);
}

static void put_json_peers(oct_json *json, const case_result *result, int v)
{
    oct_json_object(json, "ratio_to_peer");
    for (int p = 0; p < result->count; p++)
        if (result->variants[p].peer && p != v)
            oct_json_double(json, result->variants[p].peer,
                            ratio_to(result, v, NULL, result->variants[p].peer));
    oct_json_end(json);
}

static oct_status print_json(const oct_bench *bench, const case_result *result, oct_err *err)
{
    oct_json json;
    oct_json_init(&json);
    oct_status status = OCT_OK;
    for (int v = 0; v < result->count && status == OCT_OK; v++) {
        const oct_bench_variant *variant = &result->variants[v];
        if (variant->peer || variant->is_limit) /* they show in the ratios of the formats */
            continue;
        char format[32];
        (void)snprintf(format, sizeof format, "%.*s", short_length(variant->format),
                       variant->format);
        oct_json_clear(&json);
        oct_json_object(&json, NULL);
        oct_json_int(&json, "schema", 1);
        oct_json_string(&json, "bench", result->name);
        oct_json_string(&json, "case", result->case_name);
        oct_json_string(&json, "format", format);
        oct_json_int(&json, "threads", bench->options->threads);
        oct_json_double(&json, "value", result->measurements[v].median / result->scale);
        oct_json_string(&json, "unit", result->unit);
        put_ratio(&json, "ratio_to_bf16", ratio_to(result, v, "bf16", NULL));
        put_json_peers(&json, result, v);
        put_ratio(&json, "share_of_limit", share_of_limit(result, v));
        oct_json_double(&json, "spread", result->measurements[v].spread);
        oct_json_int(&json, "checked", result->checked[v]);
        oct_json_end(&json);
        status = oct_json_finish(&json, err);
        if (status == OCT_OK)
            puts(json.text);
    }
    oct_json_release(&json);
    return status;
}

static void print_text(const case_result *result)
{
    for (int v = 0; v < result->count; v++) {
        const oct_bench_variant *variant = &result->variants[v];
        if (variant->is_limit)
            continue;
        const char *format = variant->peer ? variant->peer : variant->format;
        printf("%-9s %-26s %-12.*s %10.1f %-9s spread %3.0f %%", result->name, result->case_name,
               variant->peer ? (int)strlen(format) : short_length(format), format,
               result->measurements[v].median / result->scale, result->unit,
               100.0 * result->measurements[v].spread);
        const double to_bf16 = ratio_to(result, v, "bf16", NULL);
        if (to_bf16 > 0.0 && !variant->peer)
            printf("  %5.2f x bf16", to_bf16);
        for (int p = 0; p < result->count; p++)
            if (result->variants[p].peer && p != v)
                printf("  %5.2f x %s", ratio_to(result, v, NULL, result->variants[p].peer),
                       result->variants[p].peer);
        const double share = share_of_limit(result, v);
        if (share > 0.0)
            printf("  %3.0f %% of the limit", 100.0 * share);
        putchar('\n');
    }
    fflush(stdout);
}

bool oct_bench_wanted(const oct_bench *bench, const char *case_name)
{
    return !bench->options->only || strstr(case_name, bench->options->only);
}

int64_t oct_bench_dim(const oct_bench *bench, int64_t dim)
{
    return oct_max_i64(1, dim / bench->options->shrink);
}

static oct_status run_often(const oct_bench_variant *variant, int calls, oct_err *err)
{
    for (int c = 0; c < calls; c++)
        OCT_TRY(variant->run(variant->arg, err));
    return OCT_OK;
}

/* How many calls make a turn of 10 ms; warms caches and arenas up on the way. */
static oct_status calibrate(const oct_bench_variant *variant, int threads, int *calls, oct_err *err)
{
    static const double long_enough = 10e-3;
    enum { MOST_CALLS = 4096 };
    OCT_TRY(variant->run(variant->arg, err));
    const double started = seconds_now(threads);
    OCT_TRY(variant->run(variant->arg, err));
    const double seconds = seconds_now(threads) - started;
    *calls = seconds * MOST_CALLS <= long_enough ? MOST_CALLS : (int)(long_enough / seconds) + 1;
    return OCT_OK;
}

static oct_status measure(oct_bench *bench, const oct_bench_variant *variants, int count,
                          measurement *measurements, oct_err *err)
{
    const int turns = bench->options->turns, threads = bench->options->threads;
    int calls[OCT_BENCH_MAX_VARIANTS];
    for (int v = 0; v < count; v++)
        OCT_TRY(calibrate(&variants[v], threads, &calls[v], err));
    for (int turn = 0; turn < turns; turn++) {
        for (int v = 0; v < count; v++) {
            const double started = seconds_now(threads);
            OCT_TRY(run_often(&variants[v], calls[v], err));
            const double seconds = seconds_now(threads) - started;
            measurements[v].rates[turn] = variants[v].work * calls[v] / seconds;
        }
    }
    for (int v = 0; v < count; v++)
        summarise(&measurements[v], turns);
    return OCT_OK;
}

/* The share again with the best turn of each: on a busy machine a median of few may be far off. */
static double best_share(const case_result *result, int v)
{
    const oct_bench_variant *variant = &result->variants[v];
    double seconds = 0.0;
    for (int f = 0; f < 2; f++)
        if (variant->floor[f].limit)
            seconds +=
                variant->floor[f].work / result->measurements[variant->floor[f].limit - 1].best;
    return seconds * result->measurements[v].best / variant->work;
}

static oct_status check_shares(const case_result *result, int turns, oct_err *err)
{
    const double most = OCT_BENCH_MOST_SHARE;
    for (int v = 0; v < result->count; v++) {
        const double share = best_share(result, v);
        if (share > most && turns >= 3)
            return OCT_FAIL(err, OCT_E_API,
                            "a defect of bench %s, case %s, %s: %.2f of its limit, at most %.1f "
                            "is possible",
                            result->name, result->case_name,
                            result->variants[v].peer ? result->variants[v].peer
                                                     : result->variants[v].format,
                            share, most);
    }
    return OCT_OK;
}

oct_status oct_bench_case(oct_bench *bench, const char *name, const char *case_name,
                          const oct_bench_variant *variants, int count, double scale,
                          const char *unit, oct_err *err)
{
    int64_t checked[OCT_BENCH_MAX_VARIANTS] = {0};
    measurement measurements[OCT_BENCH_MAX_VARIANTS];
    for (int v = 0; v < count; v++) {
        const char *who = variants[v].peer ? variants[v].peer : variants[v].format;
        if (variants[v].is_limit)
            continue;
        const oct_status status = variants[v].check(variants[v].arg, &checked[v], err);
        if (status != OCT_OK)
            return OCT_WRAP(err, status, "bench %s, case %s, %s", name, case_name, who);
    }
    OCT_TRY(measure(bench, variants, count, measurements, err));
    bench->cases++;
    const case_result result = {.name = name,
                                .case_name = case_name,
                                .unit = unit,
                                .variants = variants,
                                .measurements = measurements,
                                .checked = checked,
                                .count = count,
                                .turns = bench->options->turns,
                                .scale = scale};
    if (bench->options->json)
        OCT_TRY(print_json(bench, &result, err));
    else
        print_text(&result);
    return check_shares(&result, bench->options->turns, err);
}
