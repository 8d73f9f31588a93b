/* What carries bytes between ranks; comm.c builds every operation on these few calls. */
#ifndef OCT_COMM_TRANSPORT_H
#define OCT_COMM_TRANSPORT_H

#include "comm/comm.h"

/* One exchange of at most piece_bytes between any two ranks. */
typedef struct oct_exchange {
    const void *const *send; /* [size] to each rank; all the same if `same` */
    const size_t *send_bytes;
    const size_t *recv_bytes; /* [size] from each rank */
    const void **from;        /* [size] out: where what came lies, valid until the next exchange;
                                 undefined where recv_bytes is 0. Own data are not exchanged. */
    bool same;                /* every rank receives the same bytes of a sender */
} oct_exchange;

typedef struct oct_transport {
    /* Collective. On a failure of its own it returns OCT_E_COMM; the error of another rank as it
     * was told. */
    oct_status (*exchange)(void *self, const oct_exchange *exchange, oct_err *err);
    /* Makes others see this rank's progress and phase. */
    void (*progress)(void *self, const char *phase);
    /* Tells all ranks about the end; if another was first, err becomes its error. */
    void (*fail)(void *self, oct_err *err);
    /* Another rank's end, if it was told; else OCT_OK. */
    oct_status (*failure)(void *self, oct_err *err);
    /* first: the error began on this rank */
    void (*end_all)(void *self, int exit_code, bool first);
    void (*destroy)(void *self, bool broken);
} oct_transport;

/* What every transport fills at creation. */
struct oct_comm {
    int rank, size, node_rank, node_size;
    const oct_transport *transport;
    void *self;
    size_t piece_bytes;
    oct_comm_hook hook;
    void *hook_arg;
    char phase[OCT_COMM_PHASE_BYTES];
    char description[96];
    oct_comm_stats stats;
    oct_err broken; /* code is OCT_OK while healthy */
    oct_err agreed; /* what the last exchange was about, if it was a failure that all have */
    /* [size] each, of the exchange in work */
    const void **send;
    size_t *send_bytes, *recv_bytes;
    const void **from;
    unsigned char *record; /* [size] agreement records and other small words */
    unsigned char *pack; /* [piece_bytes] small tensors on their way together; NULL for one rank */
};

enum { OCT_COMM_SMALL_BYTES = 128 }; /* of `record`, per rank */

/* Allocates a comm with its arrays. Errors: OCT_E_NOMEM. */
oct_status oct_comm_allocate(int size, oct_comm **out, oct_err *err) OCT_MUST_CHECK;
void oct_comm_free(oct_comm *comm);

/* Checks bounds and fills defaults for `size` ranks. */
oct_status oct_comm_options_check(const oct_comm_options *given, int size, oct_comm_options *out,
                                  oct_err *err) OCT_MUST_CHECK;

/* The ranks of MPI_COMM_WORLD; initialises MPI if need be. */
oct_status oct_comm_create_mpi(const oct_comm_options *options, oct_comm **out,
                               oct_err *err) OCT_MUST_CHECK;

#endif
