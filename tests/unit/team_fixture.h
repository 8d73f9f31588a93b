/* Ranks as threads of a test program. Include after cmocka.h. */
#ifndef OCT_TESTS_TEAM_FIXTURE_H
#define OCT_TESTS_TEAM_FIXTURE_H

#include <pthread.h>
#include <stdio.h>

#include "comm/comm.h"

enum { TEAM_MAX_RANKS = 8 };

/* What one rank does; returns how much did not hold. Its comm stays: run_team destroys it. */
typedef int (*rank_run)(oct_comm *comm, void *arg);

/* Counts and tells what does not hold; a rank never leaves a case early, the others wait for it. */
#define EXPECT(comm, condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: rank %d of %d: not true: %s\n", __FILE__, __LINE__,            \
                    oct_comm_rank(comm), oct_comm_size(comm), #condition);                         \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

/* EXPECT that a call is fine; else its message is told. */
#define EXPECT_OK(comm, call)                                                                      \
    do {                                                                                           \
        err = (oct_err){0};                                                                        \
        if ((call) != OCT_OK) {                                                                    \
            fprintf(stderr, "%s:%d: rank %d of %d: %s: %s\n", __FILE__, __LINE__,                  \
                    oct_comm_rank(comm), oct_comm_size(comm), #call, err.msg);                     \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

/* EXPECT that a call fails with this code and a message with this text in it. */
#define EXPECT_FAILS(comm, call, code, text)                                                       \
    do {                                                                                           \
        err = (oct_err){0};                                                                        \
        EXPECT(comm, (call) == (code));                                                            \
        if (!strstr(err.msg, (text))) {                                                            \
            fprintf(stderr, "%s:%d: rank %d of %d: '%s' is not in '%s'\n", __FILE__, __LINE__,     \
                    oct_comm_rank(comm), oct_comm_size(comm), (text), err.msg);                    \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

typedef struct team_member {
    oct_comm *comm;
    rank_run run;
    void *arg;
    int failures;
} team_member;

static void *team_member_run(void *arg)
{
    team_member *m = arg;
    m->failures = m->run(m->comm, m->arg);
    oct_comm_destroy(m->comm);
    return NULL;
}

/* Runs `run` on every rank of a team. */
static inline void run_team(int size, const oct_comm_options *options, rank_run run, void *arg)
{
    oct_comm *comms[TEAM_MAX_RANKS];
    team_member members[TEAM_MAX_RANKS];
    pthread_t threads[TEAM_MAX_RANKS];
    oct_err err = {0};
    const oct_comm_options plain = {.timeout_seconds = 20.0};
    assert_int_equal(oct_comm_create_team(size, options ? options : &plain, comms, &err), OCT_OK);
    for (int r = 0; r < size; r++) {
        members[r] = (team_member){.comm = comms[r], .run = run, .arg = arg};
        assert_int_equal(pthread_create(&threads[r], NULL, team_member_run, &members[r]), 0);
    }
    int failures = 0;
    for (int r = 0; r < size; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
        failures += members[r].failures;
    }
    assert_int_equal(failures, 0);
}

#endif
