/* Guarded, unaligned buffers and deterministic inputs for the tests of elementwise operators.
 * Include cmocka.h before. */
#ifndef OCT_TESTS_ELEMENTWISE_FIXTURE_H
#define OCT_TESTS_ELEMENTWISE_FIXTURE_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/exec.h"
#include "numeric/bf16.h"

/* How an input is filled. */
typedef enum fill {
    FILL_PLAIN,    /* bell shaped, exponents -8 .. 2 */
    FILL_EXTREME,  /* with zeros of both signs, subnormals, tiny and huge values */
    FILL_NONFINITE /* now and then NaN or Inf */
} fill;

enum { GUARD = 64, MAX_BUFFERS = 16, CANARY = 0xa5 };

typedef struct guarded {
    unsigned char *base;
    size_t offset, bytes;
    oct_dtype dtype; /* of an output; U8 for an input, which is not compared */
    bool is_f64;
} guarded;

/* One run of an operator on one instruction set and thread count. Owner of its buffers. */
typedef struct op_run {
    oct_exec exec;
    oct_kernels kernels;
    oct_arena scratch;
    oct_err err;
    oct_dtype dtype; /* of activations */
    int64_t T, n;
    fill fill;
    int count;
    guarded buffers[MAX_BUFFERS];
    unsigned char *memory; /* of the buffers */
    size_t used_bytes;
} op_run;

/* Memory of the runs that are over, for the next ones: fresh pages cost more than most runs. */
typedef struct run_memory {
    unsigned char *buffers;
    oct_arena scratch;
} run_memory;

enum { RUN_BYTES = 1 << 24, MAX_RUNS = 2 };
static run_memory idle_memory[MAX_RUNS];
static int idle_count;

static inline void run_init(op_run *run, oct_isa isa, int threads)
{
    memset(run, 0, sizeof *run);
    oct_kernels_init(&run->kernels, isa);
    if (idle_count > 0) {
        const run_memory *idle = &idle_memory[--idle_count];
        run->memory = idle->buffers;
        run->scratch = idle->scratch;
    } else {
        run->memory = malloc(RUN_BYTES);
        assert_non_null(run->memory);
        oct_arena_init(&run->scratch, "scratch");
    }
    run->exec = (oct_exec){.kernels = &run->kernels, .threads = threads, .scratch = &run->scratch};
    run->dtype = OCT_DTYPE_F32;
}

static inline void run_release(op_run *run)
{
    assert_int_equal(run->scratch.used_bytes, 0);
    for (int i = 0; i < run->count; i++) {
        const guarded *buffer = &run->buffers[i];
        for (size_t at = 0; at < GUARD; at++) {
            assert_int_equal(buffer->base[buffer->offset - GUARD + at], CANARY);
            assert_int_equal(buffer->base[buffer->offset + buffer->bytes + at], CANARY);
        }
    }
    run->count = 0;
    assert_true(idle_count < MAX_RUNS);
    idle_memory[idle_count++] = (run_memory){.buffers = run->memory, .scratch = run->scratch};
}

/* `count` elements of `dtype`, off any larger alignment than the element's, between canaries. */
static inline void *run_buffer(op_run *run, oct_dtype dtype, int64_t count, bool is_output)
{
    assert_true(run->count < MAX_BUFFERS);
    guarded *buffer = &run->buffers[run->count++];
    const size_t size = oct_dtype_bytes(dtype);
    *buffer = (guarded){.offset = GUARD + size, .bytes = (size_t)count * size};
    buffer->dtype = is_output ? dtype : OCT_DTYPE_U8;
    const size_t bytes = buffer->offset + buffer->bytes + GUARD;
    assert_true(bytes <= RUN_BYTES - run->used_bytes);
    buffer->base = memset(run->memory + run->used_bytes, CANARY, bytes);
    run->used_bytes += (bytes + 63) / 64 * 64;
    return buffer->base + buffer->offset;
}

static inline void *run_output(op_run *run, oct_dtype dtype, int64_t count)
{
    return run_buffer(run, dtype, count, true);
}

static inline double *run_output_f64(op_run *run, int64_t count)
{
    double *data = run_buffer(run, OCT_DTYPE_I64, count, true);
    run->buffers[run->count - 1].is_f64 = true;
    return data;
}

static inline uint64_t test_mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline float test_value(uint64_t seed, int64_t i, fill how)
{
    static const uint32_t extreme[] = {0x00000000u, 0x80000000u, 0x00000001u, 0x807fffffu,
                                       0x00800000u, 0x7f7fffffu, 0xff7fffffu, 0x2f800000u,
                                       0x5f800000u, 0x00012345u, 0x42b17218u, 0xc2cff1b5u};
    static const uint32_t nonfinite[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc12345u,
                                         0x7f800001u, 0x7fffffffu, 0x7f812345u};
    const uint64_t u = test_mix(test_mix(seed) + (uint64_t)i);
    if (how == FILL_EXTREME && u % 6 == 0)
        return oct_f32_from_bits(extreme[(u >> 32) % (sizeof extreme / sizeof *extreme)]);
    if (how == FILL_NONFINITE && u % 97 == 0)
        return oct_f32_from_bits(nonfinite[(u >> 32) % (sizeof nonfinite / sizeof *nonfinite)]);
    const int32_t v =
        (int32_t)((u & 0xffffu) + (u >> 16 & 0xffffu) + (u >> 32 & 0xffffu) + (u >> 48)) - 131070;
    return (float)v * 0x1p-16f * oct_f32_from_bits((uint32_t)(119 + u % 11) << 23);
}

/* Inputs are windows of one sequence of values, made once: sanitizers make its making slow. */
enum { POOL = 1 << 14 };

static inline const void *test_pool(oct_dtype dtype, fill how)
{
    static float f32[3][POOL];
    static uint16_t bf16[3][POOL];
    static bool is_filled[3];
    for (int i = 0; i < POOL && !is_filled[how]; i++) {
        f32[how][i] = test_value(0, i, how);
        bf16[how][i] = oct_bf16_from_f32(f32[how][i]);
    }
    is_filled[how] = true;
    return dtype == OCT_DTYPE_BF16 ? (const void *)bf16[how] : (const void *)f32[how];
}

static inline void *run_input(op_run *run, oct_dtype dtype, uint64_t seed, int64_t count)
{
    unsigned char *data = run_buffer(run, dtype, count, false);
    const unsigned char *pool = test_pool(dtype, run->fill);
    const size_t size = oct_dtype_bytes(dtype), end = (size_t)count * size;
    size_t from = test_mix(seed) % POOL * size;
    for (size_t at = 0; at < end;) {
        const size_t left = end - at, part = POOL * size - from < left ? POOL * size - from : left;
        memcpy(data + at, pool + from, part);
        at += part;
        from = 0;
    }
    return data;
}

/* Bits equal, or both NaN: where several NaN meet, which one comes out is not defined. */
static inline void assert_same_outputs(const char *what, const op_run *run, const op_run *want)
{
    assert_int_equal(run->count, want->count);
    for (int b = 0; b < run->count; b++) {
        const guarded *x = &run->buffers[b], *y = &want->buffers[b];
        if (x->dtype == OCT_DTYPE_U8)
            continue;
        const size_t size = oct_dtype_bytes(x->dtype);
        if (memcmp(x->base + x->offset, y->base + y->offset, x->bytes) == 0)
            continue;
        for (size_t at = 0; at < x->bytes; at += size) {
            uint64_t got = 0, ref = 0;
            memcpy(&got, x->base + x->offset + at, size);
            memcpy(&ref, y->base + y->offset + at, size);
            if (got == ref)
                continue;
            const uint64_t infinity = x->is_f64                    ? 0x7ff0000000000000u
                                      : x->dtype == OCT_DTYPE_BF16 ? 0x7f80u
                                                                   : 0x7f800000u;
            const uint64_t sign = (uint64_t)1 << (8 * size - 1);
            const bool is_float =
                x->is_f64 || x->dtype == OCT_DTYPE_F32 || x->dtype == OCT_DTYPE_BF16;
            if (!is_float || (got & ~sign) <= infinity || (ref & ~sign) <= infinity)
                fail_msg("%s, %s, %s, %d threads, T=%lld n=%lld fill=%d: output %d [%zu] is %llx, "
                         "ref %llx",
                         what, oct_isa_name(run->kernels.isa), oct_dtype_name(run->dtype),
                         run->exec.threads, (long long)run->T, (long long)run->n, (int)run->fill, b,
                         at / size, (unsigned long long)got, (unsigned long long)ref);
        }
    }
}

#endif
