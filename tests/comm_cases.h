/* What every comm must do, whatever carries its bytes: run by threads of a team and under mpirun.
 */
#ifndef COMM_CASES_H
#define COMM_CASES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "expect.h"
#include "numeric/bf16.h"

enum { CASES_MAX_RANKS = 16 };

static uint32_t cases_mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* A number whose magnitude varies by 2^40, so that another order of a sum gives other bits. */
static float cases_value(uint32_t rank, uint32_t i)
{
    const uint32_t bits = cases_mix(rank * 7919u + i);
    return ldexpf((float)(int32_t)(bits & 0xffffffu) - 8388608.0f, (int)(bits >> 24) % 40 - 20);
}

static uint8_t cases_byte(int rank, size_t i)
{
    return (uint8_t)cases_mix((uint32_t)rank * 31u + (uint32_t)i);
}

static int case_all_gather(oct_comm *comm)
{
    int failures = 0;
    const int size = oct_comm_size(comm), rank = oct_comm_rank(comm);
    oct_err err = {0};
    size_t bytes[CASES_MAX_RANKS], start[CASES_MAX_RANKS], total = 0;
    for (int r = 0; r < size; r++) {
        bytes[r] = r % 3 == 1 ? 0 : (size_t)(200 * r + 61); /* uneven, some without any */
        start[r] = total;
        total += bytes[r];
    }
    uint8_t send[200 * CASES_MAX_RANKS + 61], recv[61 * CASES_MAX_RANKS + 100 * 16 * 16];
    for (int in_place = 0; in_place < 2; in_place++) {
        memset(recv, 0xff, sizeof recv);
        uint8_t *from = in_place ? recv + start[rank] : send;
        for (size_t i = 0; i < bytes[rank]; i++)
            from[i] = cases_byte(rank, i);
        EXPECT(comm, oct_comm_all_gather(comm, from, bytes, recv, &err) == OCT_OK);
        int wrong = 0;
        for (int r = 0; r < size; r++)
            for (size_t i = 0; i < bytes[r]; i++)
                wrong += recv[start[r] + i] != cases_byte(r, i);
        EXPECT(comm, wrong == 0);
        EXPECT(comm, recv[total] == 0xff);
    }
    memset(bytes, 0, sizeof bytes);
    EXPECT(comm, oct_comm_all_gather(comm, send, bytes, recv, &err) == OCT_OK);
    return failures;
}

/* Tensors of very different sizes, in runs that fill pieces and go beyond them. */
static int case_all_gather_many(oct_comm *comm)
{
    enum { TENSORS = 40, MOST = 700 };
    int failures = 0;
    const int size = oct_comm_size(comm), rank = oct_comm_rank(comm);
    oct_err err = {0};
    static _Thread_local size_t bytes[TENSORS][CASES_MAX_RANKS];
    static _Thread_local uint8_t send[TENSORS][MOST], recv[TENSORS][MOST * CASES_MAX_RANKS + 1];
    oct_comm_part parts[TENSORS];
    for (int t = 0; t < TENSORS; t++) {
        for (int r = 0; r < size; r++)
            bytes[t][r] =
                cases_mix((uint32_t)(t * 64 + r)) % (uint32_t)(t % 5 == 0 ? MOST : 1 + t % 7);
        for (size_t i = 0; i < bytes[t][rank]; i++)
            send[t][i] = cases_byte(rank + t, i);
        memset(recv[t], 0xff, sizeof recv[t]);
        parts[t] = (oct_comm_part){.send = send[t], .bytes = bytes[t], .recv = recv[t]};
    }
    EXPECT(comm, oct_comm_all_gather_many(comm, parts, TENSORS, &err) == OCT_OK);
    int wrong = 0;
    for (int t = 0; t < TENSORS; t++) {
        size_t at = 0;
        for (int r = 0; r < size; r++)
            for (size_t i = 0; i < bytes[t][r]; i++)
                wrong += recv[t][at++] != cases_byte(r + t, i);
        wrong += recv[t][at] != 0xff;
    }
    EXPECT(comm, wrong == 0);
    return failures;
}

static int case_broadcast_and_gather(oct_comm *comm)
{
    int failures = 0;
    const int size = oct_comm_size(comm), rank = oct_comm_rank(comm);
    oct_err err = {0};
    for (int root = 0; root < size; root++) {
        uint8_t data[333];
        for (size_t i = 0; i < sizeof data; i++)
            data[i] = rank == root ? cases_byte(root + 100, i) : 0;
        EXPECT(comm, oct_comm_broadcast(comm, root, data, sizeof data, &err) == OCT_OK);
        int wrong = 0;
        for (size_t i = 0; i < sizeof data; i++)
            wrong += data[i] != cases_byte(root + 100, i);
        EXPECT(comm, wrong == 0);
    }
    EXPECT(comm, oct_comm_broadcast(comm, size, NULL, 0, &err) == OCT_E_API);

    size_t bytes[CASES_MAX_RANKS], total = 0;
    for (int r = 0; r < size; r++)
        total += bytes[r] = (size_t)(150 * ((r + 1) % 3) + 7 * r);
    uint8_t own[1024], all[1024 * CASES_MAX_RANKS];
    for (size_t i = 0; i < bytes[rank]; i++)
        own[i] = cases_byte(rank + 50, i);
    memset(all, 0xee, sizeof all);
    EXPECT(comm, oct_comm_gather(comm, own, bytes, rank == 0 ? all : NULL, &err) == OCT_OK);
    int wrong = 0;
    size_t at = 0;
    for (int r = 0; rank == 0 && r < size; r++)
        for (size_t i = 0; i < bytes[r]; i++)
            wrong += all[at++] != cases_byte(r + 50, i);
    EXPECT(comm, wrong == 0);
    EXPECT(comm, all[rank == 0 ? total : 0] == 0xee);
    return failures;
}

static int case_smallest_and_largest(oct_comm *comm)
{
    int failures = 0;
    const int size = oct_comm_size(comm), rank = oct_comm_rank(comm);
    oct_err err = {0};
    int64_t low[40], high[40];
    for (int i = 0; i < 40; i++)
        low[i] = high[i] = (int64_t)((rank + i) % size) * 5000000000 - 7;
    EXPECT(comm, oct_comm_min_i64(comm, low, 40, &err) == OCT_OK);
    EXPECT(comm, oct_comm_max_i64(comm, high, 40, &err) == OCT_OK);
    for (int i = 0; i < 40; i++)
        EXPECT(comm, low[i] == -7 && high[i] == (int64_t)(size - 1) * 5000000000 - 7);

    /* Largest on a different rank each; zeros of both signs; Inf over numbers; NaN over Inf, and
     * the larger payload of two. */
    float amax[40];
    for (int i = 0; i < 40; i++)
        amax[i] = (float)((rank + i) % size) * 1.5f;
    amax[36] = rank % 2 == 0 ? -0.0f : 0.0f;
    amax[37] = rank == size - 1 ? INFINITY : 3e38f;
    amax[38] = rank == 0 ? oct_f32_from_bits(0x7fc00001u) : INFINITY;
    amax[39] = oct_f32_from_bits(0x7fc00000u + (uint32_t)rank);
    EXPECT(comm, oct_comm_max_amax(comm, amax, 40, &err) == OCT_OK);
    for (int i = 0; i < 36; i++)
        EXPECT(comm, oct_f32_bits(amax[i]) == oct_f32_bits((float)(size - 1) * 1.5f));
    EXPECT(comm, oct_f32_bits(amax[36]) == 0);
    EXPECT(comm, oct_f32_bits(amax[37]) == 0x7f800000u);
    EXPECT(comm, oct_f32_bits(amax[38]) == 0x7fc00001u);
    EXPECT(comm, oct_f32_bits(amax[39]) == 0x7fc00000u + (uint32_t)(size - 1));
    return failures;
}

/* One fold against the same sum written down, for both dtypes, empty and started accumulators. */
static int case_fold(oct_comm *comm)
{
    int failures = 0;
    enum { MOST = 70 * CASES_MAX_RANKS };
    const int size = oct_comm_size(comm), rank = oct_comm_rank(comm);
    oct_err err = {0};
    int64_t counts[CASES_MAX_RANKS], begin = 0, total = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = r % 4 == 2 ? 0 : 17 + 5 * r; /* never whole pieces */
        begin += r < rank ? counts[r] : 0;
        total += counts[r];
    }
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (int started = 0; started < 2; started++) {
            float f32[MOST], acc[MOST];
            uint16_t half[MOST];
            for (int64_t i = 0; i < total; i++) {
                f32[i] = i % 11 == 0 ? -0.0f : cases_value((uint32_t)rank, (uint32_t)i);
                half[i] = oct_bf16_from_f32(f32[i]);
            }
            for (int64_t i = 0; i < counts[rank]; i++)
                acc[i] = started ? cases_value(99, (uint32_t)(begin + i)) : NAN;
            const void *grad = bf16 ? (const void *)half : (const void *)f32;
            EXPECT(comm, oct_comm_fold(comm, bf16 ? OCT_DTYPE_BF16 : OCT_DTYPE_F32, grad, counts,
                                       acc, started, &err) == OCT_OK);
            int wrong = 0;
            for (int64_t i = 0; i < counts[rank]; i++) {
                float sum = started ? cases_value(99, (uint32_t)(begin + i)) : 0.0f;
                for (int r = 0; r < size; r++) {
                    float g = (begin + i) % 11 == 0
                                  ? -0.0f
                                  : cases_value((uint32_t)r, (uint32_t)(begin + i));
                    g = bf16 ? oct_bf16_round(g) : g;
                    sum = !started && r == 0 ? g : sum + g;
                }
                wrong += oct_f32_bits(sum) != oct_f32_bits(acc[i]);
            }
            EXPECT(comm, wrong == 0);
        }
    }
    EXPECT(comm, oct_comm_fold(comm, OCT_DTYPE_U8, NULL, counts, NULL, false, &err) == OCT_E_API);
    return failures;
}

/* A step of 24 micro-batches, k*R + r on rank r: the bits of the sum on every number of ranks that
 * divides them are those of one rank's. */
static int case_fold_of_a_step(oct_comm *comm)
{
    int failures = 0;
    enum { ELEMENTS = 150, BATCHES = 24 };
    const int size = oct_comm_size(comm), rank = oct_comm_rank(comm);
    if (BATCHES % size != 0)
        return 0;
    oct_err err = {0};
    int64_t counts[CASES_MAX_RANKS], begin = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = (int64_t)ELEMENTS * (r + 1) / size - (int64_t)ELEMENTS * r / size;
        begin += r < rank ? counts[r] : 0;
    }
    float acc[ELEMENTS], grad[ELEMENTS];
    for (int k = 0; k < BATCHES / size; k++) {
        for (uint32_t i = 0; i < ELEMENTS; i++)
            grad[i] = cases_value((uint32_t)(k * size + rank), i);
        EXPECT(comm, oct_comm_fold(comm, OCT_DTYPE_F32, grad, counts, acc, k > 0, &err) == OCT_OK);
    }
    int wrong = 0;
    for (int64_t i = 0; i < counts[rank]; i++) {
        float sum = cases_value(0, (uint32_t)(begin + i));
        for (uint32_t b = 1; b < BATCHES; b++)
            sum += cases_value(b, (uint32_t)(begin + i));
        wrong += oct_f32_bits(sum) != oct_f32_bits(acc[i]);
    }
    EXPECT(comm, wrong == 0);
    return failures;
}

/* Every rank learns the first failing rank's status and message, and all go on. */
static int case_agree(oct_comm *comm)
{
    int failures = 0;
    const int size = oct_comm_size(comm), rank = oct_comm_rank(comm);
    oct_comm_phase(comm, "loading", "model.layers.0");
    for (int first = 0; first <= size; first++) {
        oct_err err = {0};
        oct_status status = OCT_OK;
        if (rank == first || (rank > first && rank % 2 == 0))
            status = OCT_FAIL(&err, rank == first ? OCT_E_DATA : OCT_E_IO,
                              "token 70000 on rank %d: below 65536 is required", rank);
        status = oct_comm_agree(comm, status, &err);
        if (first == size) {
            EXPECT(comm, status == OCT_OK);
            continue;
        }
        char wanted[100];
        (void)snprintf(wanted, sizeof wanted, "token 70000 on rank %d: below 65536 is required",
                       first);
        EXPECT(comm, status == OCT_E_DATA && err.code == OCT_E_DATA);
        EXPECT(comm, err.rank == first);
        EXPECT(comm, strcmp(err.msg, wanted) == 0);
        EXPECT(comm, !oct_comm_is_broken(comm));
    }
    oct_err err = {0};
    oct_comm_phase(comm, rank == size - 1 && size > 1 ? "saving" : "loading", NULL);
    const oct_status status = oct_comm_agree(comm, OCT_OK, &err);
    EXPECT(comm, status == (size > 1 ? OCT_E_COMM : OCT_OK));
    EXPECT(comm, size == 1 || (strstr(err.msg, "'loading'") && strstr(err.msg, "'saving'")));
    return failures;
}

/* All know an agreed failure: whoever leaves with it, context in front of it or not, tells nobody.
 */
static int case_leave_with_an_agreed_failure(oct_comm *comm)
{
    int failures = 0;
    const int last = oct_comm_size(comm) - 1;
    for (int wrapped = 0; wrapped < 2; wrapped++) {
        oct_err err = {0};
        oct_status status = OCT_OK;
        oct_comm_phase(comm, "building", NULL);
        if (oct_comm_rank(comm) == last)
            status = OCT_FAIL(&err, OCT_E_API, "no master on the last rank");
        status = oct_comm_agree(comm, status, &err);
        EXPECT(comm, status == OCT_E_API);
        if (wrapped)
            status = OCT_WRAP(&err, status, "building the optimizer");
        if (last > 0)
            oct_comm_leave(comm, &err);
        EXPECT(comm, err.rank == last && strstr(err.msg, "no master on the last rank"));
        EXPECT(comm, !oct_comm_is_broken(comm));
        EXPECT(comm, oct_comm_barrier(comm, &err) == OCT_OK);
    }
    return failures;
}

static int comm_cases(oct_comm *comm)
{
    int failures = 0;
    oct_err err = {0};
    EXPECT(comm, oct_comm_rank(comm) >= 0 && oct_comm_rank(comm) < oct_comm_size(comm));
    EXPECT(comm, oct_comm_node_rank(comm) < oct_comm_node_size(comm));
    EXPECT(comm, oct_comm_node_size(comm) <= oct_comm_size(comm));
    for (int i = 0; i < 5; i++)
        EXPECT(comm, oct_comm_barrier(comm, &err) == OCT_OK);
    failures += case_all_gather(comm);
    failures += case_all_gather_many(comm);
    failures += case_broadcast_and_gather(comm);
    failures += case_smallest_and_largest(comm);
    failures += case_fold(comm);
    failures += case_fold_of_a_step(comm);
    failures += case_agree(comm);
    failures += case_leave_with_an_agreed_failure(comm);
    return failures;
}

#endif
