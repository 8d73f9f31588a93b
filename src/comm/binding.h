/* Which cores the ranks of a machine may use, and how many threads that makes. */
#ifndef OCT_COMM_BINDING_H
#define OCT_COMM_BINDING_H

#include <stdbool.h>

#include "comm/comm.h"

typedef struct oct_binding {
    int allowed; /* cores that this rank may run on */
    int cores;   /* cores that the launcher may run on: what an unbound rank could use */
    int sharers; /* ranks of this machine, this one included, that may run on one of `allowed` */
    int ranks;   /* of this machine */
} oct_binding;

/* Reads where the ranks may run. A rank without launcher is not bound. Collective. */
oct_status oct_binding_read(oct_comm *comm, oct_binding *out, oct_err *err) OCT_MUST_CHECK;

/* Threads per rank that keep its cores busy: allowed / sharers, at least 1. */
int oct_binding_threads(const oct_binding *binding);

/* true if a binding leaves this rank fewer cores than its part of the machine, or fewer than the
 * `threads` that it will start (0: as oct_binding_threads): threads would share a core while others
 * idle. */
bool oct_binding_is_narrow(const oct_binding *binding, int threads);

#endif
