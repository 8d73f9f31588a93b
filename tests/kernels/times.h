/* Times of the inner loops, printed by `test_X --times` after the tests of X; no test asserts one.
 * A test program lists its uses of the loops of a kernel table, tests with times_check that the
 * list leaves out no loop, and ends with times_finish. Include cmocka.h before. */
#ifndef TIMES_H
#define TIMES_H

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "kernels/exec.h"

/* One use of a loop, on data that stay in the first or second cache. */
typedef struct timed_loop {
    const char *name;
    size_t slot; /* byte of its pointer in oct_kernels */
    oct_dtype dtype;
    bool transposed; /* the other layout: k outermost, interleaved pairs */
    int64_t amount;  /* units of work in a call */
    const char *unit;
} timed_loop;

/* `member` of oct_kernels, for example gemm.fma_tile. */
#define TIMED(member, dtype, transposed, amount, unit)                                             \
    {                                                                                              \
#member, offsetof(oct_kernels, member), dtype, transposed, amount, unit                    \
    }

/* The uses of the loops of one table, which is all pointers from byte `first` to before `end` of
 * oct_kernels. `call` runs one use, once. */
typedef struct timed_table {
    const timed_loop *loops;
    size_t count, first, end;
    void (*call)(const timed_loop *loop, const oct_kernels *at);
} timed_table;

enum { TIMED_LEVELS = OCT_ISA_AVX512 + 1 };

static inline const oct_kernels *timed_level(int isa)
{
    static oct_kernels levels[TIMED_LEVELS];
    static bool is_ready[TIMED_LEVELS];
    if (!is_ready[isa])
        oct_kernels_init(&levels[isa], (oct_isa)isa);
    is_ready[isa] = true;
    return &levels[isa];
}

/* Every pointer of the table is in the list, and every call runs on every level. */
static inline void times_check(const timed_table *table)
{
    const size_t size = sizeof(void (*)(void));
    assert_int_equal((table->end - table->first) % size, 0);
    for (size_t slot = table->first; slot < table->end; slot += size) {
        size_t uses = 0;
        for (size_t i = 0; i < table->count; i++)
            uses += table->loops[i].slot == slot;
        if (uses == 0)
            fail_msg("loop %zu of the table is not timed: no TIMED(...) names it",
                     (slot - table->first) / size);
    }
    for (size_t i = 0; i < table->count; i++)
        for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
            table->call(&table->loops[i], timed_level(isa));
}

/* CPU time of this thread for `calls` calls. Other work on the core does not count. */
static inline double timed_ns(const timed_table *table, const timed_loop *loop,
                              const oct_kernels *at, int64_t calls)
{
    struct timespec start, end;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (int64_t i = 0; i < calls; i++)
        table->call(loop, at);
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return (double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec);
}

/* One line: ns per unit on every level, the best of some rounds in turn, and ref over it. */
static inline void times_print(const timed_table *table, const timed_loop *loop)
{
    enum { ROUNDS = 25 };
    const double round_ns = 5e5;
    int64_t calls[TIMED_LEVELS];
    double best[TIMED_LEVELS];
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        best[isa] = 1e30;
        for (calls[isa] = 1; timed_ns(table, loop, timed_level(isa), calls[isa]) < round_ns;)
            calls[isa] *= 2;
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
            const double ns =
                timed_ns(table, loop, timed_level(isa), calls[isa]) / (double)calls[isa];
            best[isa] = ns < best[isa] ? ns : best[isa];
        }
    (void)printf("%-28s %-13s %-10s %-7s %9.4f", loop->name, oct_dtype_name(loop->dtype),
                 loop->transposed ? "transposed" : "", loop->unit, best[0] / (double)loop->amount);
    for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++)
        (void)printf(" %9.4f %6.1fx", best[isa] / (double)loop->amount, best[0] / best[isa]);
    (void)printf("\n");
    (void)fflush(stdout);
}

/* The end of main: `failed` tests, and after none the times if --times is there. */
static inline int times_finish(int failed, int argc, char **argv, const timed_table *table)
{
    if (failed != 0 || argc < 2 || strcmp(argv[1], "--times") != 0)
        return failed;
    (void)printf("%-28s %-24s %-7s", "loop", "operands", "ns per");
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
        (void)printf(isa == OCT_ISA_REF ? " %9s" : " %9s   ratio", oct_isa_name((oct_isa)isa));
    (void)printf("\n");
    for (size_t i = 0; i < table->count; i++)
        times_print(table, &table->loops[i]);
    return 0;
}

#endif
