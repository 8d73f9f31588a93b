/* How `octet bench` measures: all variants of a case take turns in one process, so that what
 * disturbs one disturbs all; each figure is a median over the turns. One thread is timed by its CPU
 * time, several by the wall clock. */
#ifndef OCT_CLI_BENCH_HARNESS_H
#define OCT_CLI_BENCH_HARNESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "kernels/exec.h"
#include "tensor/tensor.h"

enum { OCT_BENCH_MAX_VARIANTS = 6, OCT_BENCH_MAX_TURNS = 64 };

/* What the command line says. */
typedef struct oct_bench_options {
    int threads;
    int turns;
    bool json;
    int64_t shape[3]; /* bench gemm: T, I, O of the one case; 0: the usual ones */
    int file_count;   /* bench step: its configuration */
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
} oct_bench;

oct_status oct_bench_open(const oct_bench_options *options, oct_bench *bench,
                          oct_err *err) OCT_MUST_CHECK;
void oct_bench_close(oct_bench *bench);

/* One thing to measure. `run` does `work` units of it. */
typedef struct oct_bench_variant {
    const char *format; /* "bf16" or the name of a format, printed up to its first '_' */
    const char *peer;   /* NULL, or the name of a peer that others are compared with: memcpy */
    double work;
    bool is_limit;     /* not shown itself: what the machine can do at most */
    int limit;         /* 1 + index of the variant that limits this one; 0: none is measured */
    double limit_work; /* one call in the units of that limit, for share_of_limit */
    oct_status (*run)(void *arg, oct_err *err);
    void *arg;
} oct_bench_variant;

/* Measures the variants of one case in turns and prints a row (or, without the peers, a JSON
 * line) for each. value = work per second / scale in `unit`. The variant of format bf16, if there
 * is one, is the base of ratio_to_bf16; a peer is reported in ratio_to_peer (rate over the peer's
 * rate). share_of_limit is the rate of a variant over that of its limit, which takes its turn like
 * the others; null if it has none. */
oct_status oct_bench_case(oct_bench *bench, const char *name, const char *case_name,
                          const oct_bench_variant *variants, int count, double scale,
                          const char *unit, oct_err *err) OCT_MUST_CHECK;

/* normal(0, std) BF16 [rows, cols] in bench->memory, keyed by name. */
oct_status oct_bench_gaussian(oct_bench *bench, const char *name, int64_t rows, int64_t cols,
                              float std, oct_tensor *out, oct_err *err) OCT_MUST_CHECK;

oct_status oct_bench_gemm(oct_bench *bench, oct_err *err) OCT_MUST_CHECK;
oct_status oct_bench_layer(oct_bench *bench, oct_err *err) OCT_MUST_CHECK;
oct_status oct_bench_quantize(oct_bench *bench, oct_err *err) OCT_MUST_CHECK;
oct_status oct_bench_step(oct_bench *bench, oct_err *err) OCT_MUST_CHECK;

#endif
