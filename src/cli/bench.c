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
    {"quantize", "BF16 to 8 bits; input elements", oct_bench_quantize},
    {"step", "whole training steps on random ids", oct_bench_step},
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

int oct_command_bench(int argc, char **argv)
{
    static oct_job job; /* its files and words only: bench step reads them itself */
    oct_bench_options options = {0};
    const char *threads = "1", *turns = "7", *shape = NULL, *what = NULL;
    for (int i = 1; i < argc; i++) {
        int taken = oct_cli_option(name, argc, argv, &i, "--threads", &threads);
        if (!taken)
            taken = oct_cli_option(name, argc, argv, &i, "--turns", &turns);
        if (!taken)
            taken = oct_cli_option(name, argc, argv, &i, "--shape", &shape);
        if (taken < 0)
            return OCT_EXIT_USAGE;
        if (taken)
            continue;
        if (strcmp(argv[i], "--json") == 0)
            options.json = true;
        else if (!what)
            what = argv[i];
        else if (oct_job_argument(&job, name, argv[i]) != 0)
            return OCT_EXIT_USAGE;
    }
    long long thread_count = 0, turn_count = 0;
    if (oct_cli_integer(name, "--threads", threads, 1, 1024, &thread_count) != 0 ||
        oct_cli_integer(name, "--turns", turns, 1, OCT_BENCH_MAX_TURNS, &turn_count) != 0)
        return OCT_EXIT_USAGE;
    if (shape && (!what || strcmp(what, "gemm") != 0))
        return oct_cli_usage(name, "--shape is for gemm, found '%s'", what ? what : "");
    if (shape && read_shape(shape, options.shape) != 0)
        return OCT_EXIT_USAGE;
    options.threads = (int)thread_count;
    options.turns = (int)turn_count;
    options.file_count = job.file_count;
    options.files = job.files;
    options.word_count = job.word_count;
    options.words = job.words;

    for (size_t b = 0; what && b < sizeof benches / sizeof benches[0]; b++) {
        if (strcmp(what, benches[b].name) != 0)
            continue;
        static oct_bench bench;
        oct_err err = {0};
        oct_status status = oct_bench_open(&options, &bench, &err);
        if (status == OCT_OK && !options.json)
            printf("%s\nkernels: %s, %d threads by %s, medians of %d turns\n", benches[b].measures,
                   oct_isa_name(bench.kernels.isa), options.threads,
                   options.threads == 1 ? "CPU time" : "the clock", options.turns);
        if (status == OCT_OK)
            status = benches[b].run(&bench, &err);
        oct_bench_close(&bench);
        return status == OCT_OK ? OCT_EXIT_OK : oct_cli_fail(status, &err);
    }
    return oct_cli_usage(name, "unknown bench '%s', gemm, layer, quantize or step is required",
                         what ? what : "");
}
