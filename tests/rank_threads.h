/* Ranks as threads of a test program. Include after cmocka.h. */
#ifndef OCT_TESTS_RANK_THREADS_H
#define OCT_TESTS_RANK_THREADS_H

#include <pthread.h>

#include "comm/comm.h"
#include "expect.h"

enum { RANK_THREADS_MAX = 16 };

/* What one rank does; returns how much did not hold. Its comm stays: it is destroyed after it. */
typedef int (*rank_run)(oct_comm *comm, void *arg);

typedef struct rank_thread {
    oct_comm *comm;
    rank_run run;
    void *arg;
    int failures;
} rank_thread;

static void *rank_thread_main(void *arg)
{
    rank_thread *t = arg;
    t->failures = t->run(t->comm, t->arg);
    oct_comm_destroy(t->comm);
    return NULL;
}

/* Runs `run` on every rank of a team; returns how much did not hold on all of them. */
static inline int count_failures(int size, const oct_comm_options *options, rank_run run, void *arg)
{
    oct_comm *comms[RANK_THREADS_MAX];
    rank_thread ranks[RANK_THREADS_MAX];
    pthread_t threads[RANK_THREADS_MAX];
    oct_err err = {0};
    assert_int_equal(oct_comm_create_team(size, options, comms, &err), OCT_OK);
    for (int r = 0; r < size; r++) {
        ranks[r] = (rank_thread){.comm = comms[r], .run = run, .arg = arg};
        assert_int_equal(pthread_create(&threads[r], NULL, rank_thread_main, &ranks[r]), 0);
    }
    int failures = 0;
    for (int r = 0; r < size; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
        failures += ranks[r].failures;
    }
    return failures;
}

/* Everything that every rank expects has to hold. options NULL: 20 s without progress end it. */
static inline void run_ranks(int size, const oct_comm_options *options, rank_run run, void *arg)
{
    const oct_comm_options plain = {.timeout_seconds = 20.0};
    assert_int_equal(count_failures(size, options ? options : &plain, run, arg), 0);
}

#endif
