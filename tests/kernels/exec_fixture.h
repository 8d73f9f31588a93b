/* The executors that kernel tests run on. */
#ifndef EXEC_FIXTURE_H
#define EXEC_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "kernels/exec.h"

typedef struct fixture_exec {
    oct_kernels kernels;
    oct_arena scratch;
    oct_exec exec;
} fixture_exec;

static fixture_exec *exec_new(oct_isa isa, int threads)
{
    fixture_exec *f = calloc(1, sizeof *f);
    assert_non_null(f);
    oct_kernels_init(&f->kernels, isa);
    oct_arena_init(&f->scratch, "scratch");
    f->exec = (oct_exec){.kernels = &f->kernels, .threads = threads, .scratch = &f->scratch};
    return f;
}

static void exec_free(fixture_exec *f)
{
    assert_int_equal(f->scratch.used_bytes, 0);
    oct_arena_release(&f->scratch);
    free(f);
}

/* The executors every test runs on: each instruction set of this CPU (the best one again in the
 * place of a missing one), the best also on 2 threads. */
enum { EXECS = OCT_ISA_AVX512 + 2 };

static void execs_open(fixture_exec *execs[EXECS])
{
    for (int i = 0; i < EXECS; i++)
        execs[i] = exec_new(i < (int)oct_cpu_isa() ? (oct_isa)i : oct_cpu_isa(),
                            i > OCT_ISA_AVX512 ? 2 : 1);
}

static void execs_close(fixture_exec *execs[EXECS])
{
    for (int i = 0; i < EXECS; i++)
        exec_free(execs[i]);
}

#endif
