/* octet bench NAME: speed on this machine, as ratios from one interleaved run. */
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "cli/bench_harness.h"
#include "cli/cli.h"
#include "cli/job.h"

static const char name[] = "bench";

static const struct {
    const char *name, *measures;
    oct_status (*run)(oct_bench *bench, oct_err *err);
} benches[] = {
    {"gemm", "y = x W^T; 8-bit operands quantized and weights packed beforehand", oct_bench_gemm},
    {"layer", "fprop, dgrad and wgrad with all but the weight quantized and packed in them",
     oct_bench_layer},
    {"attention", "the causal core, forward and backward, BF16", oct_bench_attention},
    {"quantize", "BF16 to 8 bits; input elements", oct_bench_quantize},
    {"pack", "8-bit operands into panels; elements", oct_bench_pack},
    {"step", "whole training steps on random ids, a process for each turn", oct_bench_step},
};

static int read_shape(const char *text, int64_t shape[3])
{
    enum { LARGEST = 1 << 16 };
    long long t = 0, i = 0, o = 0;
    int end = 0;
    const bool good = sscanf(text, "%lldx%lldx%lld%n", &t, &i, &o, &end) == 3 &&
                      text[end] == '\0' && t > 0 && i > 0 && o > 0 && t <= LARGEST &&
                      i <= LARGEST && o <= LARGEST;
    if (!good) {
        (void)oct_cli_usage(name, "wrong --shape: found '%s', TxIxO with 1 to %d each is required",
                            text, LARGEST);
        return -1;
    }
    shape[0] = t;
    shape[1] = i;
    shape[2] = o;
    return 0;
}

/* The texts of the options that take a value. */
typedef struct words {
    const char *threads, *turns, *shape, *shrink, *steps;
} words;

static int take_option(int argc, char **argv, int *i, words *w, oct_bench_options *options)
{
    const struct {
        const char *name;
        const char **value;
    } known[] = {
        {"--threads", &w->threads},       {"--turns", &w->turns},
        {"--shape", &w->shape},           {"--shrink", &w->shrink},
        {"--steps", &w->steps},           {"--case", &options->only},
        {"--layouts", &options->layouts}, {"--formats", &options->formats},
    };
    int taken = 0;
    for (size_t o = 0; o < sizeof known / sizeof known[0] && taken == 0; o++)
        taken = oct_cli_option(name, argc, argv, i, known[o].name, known[o].value);
    return taken;
}

static bool take_flag(const char *argument, oct_bench_options *options)
{
    if (strcmp(argument, "--json") == 0)
        options->json = true;
    else if (strcmp(argument, "--no-peers") == 0)
        options->no_peers = true;
    else if (strcmp(argument, "--child") == 0)
        options->child = true;
    else
        return false;
    return true;
}

static int read_numbers(const words *w, const char *what, oct_bench_options *options)
{
    long long threads = 0, turns = 0, shrink = 0, steps = 0;
    if (oct_cli_integer(name, "--threads", w->threads, 1, 1024, &threads) != 0 ||
        oct_cli_integer(name, "--turns", w->turns, 1, OCT_BENCH_MAX_TURNS, &turns) != 0 ||
        oct_cli_integer(name, "--shrink", w->shrink, 1, 4096, &shrink) != 0 ||
        oct_cli_integer(name, "--steps", w->steps, 1, 1000, &steps) != 0)
        return -1;
    options->threads = (int)threads;
    options->turns = (int)turns;
    options->shrink = shrink;
    options->steps = (int)steps;
    if (!w->shape)
        return 0;
    if (strcmp(what, "gemm") != 0) {
        (void)oct_cli_usage(name, "--shape is for gemm, found '%s'", what);
        return -1;
    }
    return read_shape(w->shape, options->shape);
}

/* A bench of kernels, in this process. */
static int run_bench(int b, const oct_bench_options *options)
{
    static oct_bench bench;
    oct_err err = {0};
    oct_status status = oct_bench_open(options, &bench, &err);
    const bool by_clock = options->threads > 1 || benches[b].run == oct_bench_step;
    if (status == OCT_OK && !options->json)
        printf("%s\nkernels: %s, %d thread%s by %s, medians of %d turns\n", benches[b].measures,
               oct_isa_name(bench.kernels.isa), options->threads, options->threads == 1 ? "" : "s",
               by_clock ? "the clock" : "CPU time", options->turns);
    const bool has_peers = benches[b].run == oct_bench_gemm || benches[b].run == oct_bench_layer;
    if (status == OCT_OK && has_peers && !options->no_peers)
        oct_bench_peers_load(&bench.peers, !options->json);
    if (status == OCT_OK)
        status = benches[b].run(&bench, &err);
    if (status == OCT_OK && bench.cases == 0)
        status = OCT_FAIL(&err, OCT_E_CONFIG,
                          "no case of bench %s is called so: found '%s', part of a name is "
                          "required (--case)",
                          benches[b].name, options->only ? options->only : "");
    oct_bench_close(&bench);
    return status == OCT_OK ? OCT_EXIT_OK : oct_cli_fail(status, &err);
}

int oct_command_bench(int argc, char **argv)
{
    static oct_job job; /* its files and words only: bench step reads them itself */
    oct_bench_options options = {0};
    words w = {.threads = "1", .turns = "5", .shrink = "1", .steps = "3"};
    const char *what = NULL;
    for (int i = 1; i < argc; i++) {
        const int taken = take_option(argc, argv, &i, &w, &options);
        if (taken < 0)
            return OCT_EXIT_USAGE;
        if (taken || take_flag(argv[i], &options))
            continue;
        if (!what)
            what = argv[i];
        else if (oct_job_argument(&job, name, argc, argv, &i) != 0)
            return OCT_EXIT_USAGE;
    }
    if (read_numbers(&w, what ? what : "", &options) != 0)
        return OCT_EXIT_USAGE;
    options.file_count = job.file_count;
    options.files = job.files;
    options.word_count = job.word_count;
    options.words = job.words;
    for (int b = 0; what && b < (int)(sizeof benches / sizeof benches[0]); b++)
        if (strcmp(what, benches[b].name) == 0)
            return run_bench(b, &options);
    return oct_cli_usage(
        name, "unknown bench '%s', gemm, layer, attention, quantize, pack or step is required",
        what ? what : "");
}
