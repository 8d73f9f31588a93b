/* Messages between ranks that share no memory, behind a small table: MPI, or an imitation for
 * tests. Everything starts at once and is finished by polling, so that no wait is without end. */
#ifndef OCT_COMM_NETWORK_H
#define OCT_COMM_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/comm.h"

/* A word between exchanges: that a rank is at work, or that it ends. */
typedef struct oct_told {
    int32_t code; /* OCT_OK: at work */
    int32_t rank; /* where the error began */
    uint64_t progress;
    char text[sizeof((oct_err *)0)->msg]; /* the error, or the phase */
} oct_told;

typedef struct oct_network {
    /* Start a message of this exchange. Between two ranks there is at most one per direction. The
     * memory stays untouched until poll says done. */
    oct_status (*send)(void *self, int rank, const void *data, size_t bytes, oct_err *err);
    oct_status (*receive)(void *self, int rank, void *data, size_t bytes, oct_err *err);
    /* *waits_for = -1 when all that was started is done, else a rank that is awaited. */
    oct_status (*poll)(void *self, int *waits_for, oct_err *err);
    /* Starts sending a word; one that is still under way to this rank suppresses another that says
     * "at work". */
    void (*tell)(void *self, int rank, const oct_told *word);
    /* Takes one word that came; false if none did. */
    bool (*hear)(void *self, int *rank, oct_told *word);
    void (*end_all)(void *self, int exit_code);
    /* false: messages are still under way, the memory they use must stay */
    bool (*destroy)(void *self, bool broken);
} oct_network;

#endif
