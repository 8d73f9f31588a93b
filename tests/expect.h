/* What a rank of a test expects. `failures` counts it and `err` is filled by calls: variables of
 * the function around. */
#ifndef OCT_TESTS_EXPECT_H
#define OCT_TESTS_EXPECT_H

#include <stdio.h>
#include <string.h>

#include "comm/comm.h"

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

#endif
