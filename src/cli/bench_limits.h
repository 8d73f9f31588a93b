/* What this machine can do at most, measured beside what is limited by it. */
#ifndef OCT_CLI_BENCH_LIMITS_H
#define OCT_CLI_BENCH_LIMITS_H

#include "cli/bench_harness.h"

typedef enum oct_bench_limit_kind {
    OCT_BENCH_LIMIT_FMA,     /* operations of the FP32-FMA inner loop on one tile */
    OCT_BENCH_LIMIT_INTEGER, /* operations of the block-integer inner loop */
    OCT_BENCH_LIMIT_COPY,    /* bytes read and written by memcpy of memory that no cache holds */
    OCT_BENCH_LIMIT_COUNT
} oct_bench_limit_kind;

typedef struct oct_bench_limit {
    oct_bench *bench;
    oct_bench_limit_kind kind;
    const struct oct_bench_tile *tile; /* FMA, INTEGER: operands */
    unsigned char *from, *to;          /* COPY */
} oct_bench_limit;

/* All three on every thread of the bench, with memory from bench->memory. */
oct_status oct_bench_limits_open(oct_bench *bench, oct_bench_limit limits[OCT_BENCH_LIMIT_COUNT],
                                 oct_err *err) OCT_MUST_CHECK;

/* The limit as a variant of a case. */
oct_bench_variant oct_bench_limit_variant(oct_bench_limit *limit);

/* The best of a few calls, per second; several threads by the clock. */
oct_status oct_bench_limit_rate(oct_bench_limit *limit, double *rate, oct_err *err) OCT_MUST_CHECK;

#endif
