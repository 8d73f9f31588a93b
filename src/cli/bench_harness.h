/* How `octet bench` measures: all variants of a case take turns in one process, so that what
 * disturbs one disturbs all; each figure is a median over the turns. One thread is timed by its CPU
 * time, several by the wall clock. What is measured is checked before the first turn. */
#ifndef OCT_CLI_BENCH_HARNESS_H
#define OCT_CLI_BENCH_HARNESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "cli/bench_peers.h"
#include "kernels/exec.h"
#include "tensor/tensor.h"

enum { OCT_BENCH_MAX_VARIANTS = 12, OCT_BENCH_MAX_TURNS = 64 };

/* No share of a limit above this is believed; limit and variant are disturbed apart. */
#define OCT_BENCH_MOST_SHARE 1.1

/* What the command line says. */
typedef struct oct_bench_options {
    int threads;
    int turns;
    bool json;
    bool no_peers;
    const char *only;    /* part of the names of the cases to run; NULL: all */
    int64_t shape[3];    /* bench gemm: T, I, O of the one case; 0: the usual ones */
    int64_t shrink;      /* divides every dimension: to try a bench, not to measure */
    int steps;           /* bench step: measured steps of a turn */
    const char *layouts; /* bench step: RANKSxTHREADS,...; NULL: 1 x threads */
    const char *formats; /* bench step: names with commas between; NULL: all */
    bool child;          /* bench step: one process of a turn */
    int file_count;      /* bench step: its configuration */
    const char *const *files;
    int word_count;
    const char *const *words;
} oct_bench_options;

/* Kernels, threads and memory of one bench. Must stay where it is. */
typedef struct oct_bench {
    const oct_bench_options *options;
    oct_kernels kernels;
    oct_arena memory, scratch, step;
    oct_exec exec;
    oct_bench_peers peers;
    int64_t cases; /* that were run */
} oct_bench;

oct_status oct_bench_open(const oct_bench_options *options, oct_bench *bench,
                          oct_err *err) OCT_MUST_CHECK;
void oct_bench_close(oct_bench *bench);

/* A part of the least time that a call can take: `work` in the units of a limit that takes its turn
 * like the others. */
typedef struct oct_bench_floor {
    int limit; /* 1 + index of its variant; 0: none */
    double work;
} oct_bench_floor;

/* One way to do the work of a case. */
typedef struct oct_bench_variant {
    const char *format;       /* "bf16", "mxfp8", "hif8"; NULL for a peer or a limit */
    const char *peer;         /* name of a peer, or NULL */
    bool is_limit;            /* measured only as the limit of others; not printed */
    double work;              /* operations, elements or bytes of one call */
    oct_bench_floor floor[2]; /* their sum is the floor */
    oct_status (*run)(void *arg, oct_err *err);
    /* Runs once more into poisoned outputs and compares them with what they must be; *checked =
     * how many values were compared. Fails if any is wrong. NULL for limits only. */
    oct_status (*check)(void *arg, int64_t *checked, oct_err *err);
    void *arg;
} oct_bench_variant;

/* Is this case asked for (--case)? */
bool oct_bench_wanted(const oct_bench *bench, const char *case_name);

/* A dimension after --shrink, at least 1. */
int64_t oct_bench_dim(const oct_bench *bench, int64_t dim);

/* Checks the variants of one case, then measures them in turns and prints a row (a JSON line for
 * each format) for each. A call that is short is repeated within its turn. value = work per second
 * / scale in `unit`. The variant of format bf16, if there is one, is the base of ratio_to_bf16; a
 * peer is reported in ratio_to_peer (rate over the peer's rate). share_of_limit is the floor over
 * the time of a call. Errors: those of the variants; a share above 1.1 over three or more turns,
 * which is a defect of the bench. */
oct_status oct_bench_case(oct_bench *bench, const char *name, const char *case_name,
                          const oct_bench_variant *variants, int count, double scale,
                          const char *unit, oct_err *err) OCT_MUST_CHECK;

oct_status oct_bench_gemm(oct_bench *bench, oct_err *err) OCT_MUST_CHECK;
oct_status oct_bench_layer(oct_bench *bench, oct_err *err) OCT_MUST_CHECK;
oct_status oct_bench_quantize(oct_bench *bench, oct_err *err) OCT_MUST_CHECK;
oct_status oct_bench_pack(oct_bench *bench, oct_err *err) OCT_MUST_CHECK;
oct_status oct_bench_attention(oct_bench *bench, oct_err *err) OCT_MUST_CHECK;
oct_status oct_bench_step(oct_bench *bench, oct_err *err) OCT_MUST_CHECK;

#endif
