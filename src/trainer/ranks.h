/* What the ranks of a run tell each other besides weights and gradients. */
#ifndef OCT_TRAINER_RANKS_H
#define OCT_TRAINER_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/comm.h"

typedef struct oct_ranks {
    oct_comm *comm; /* borrowed; NULL: one rank */
    int rank, count;
    bool agreed;   /* the last agreement was a failure, which every rank has */
    const char *phase; /* what this rank does; NULL: nothing yet */
    size_t *bytes; /* [count], for all-gathers */
} oct_ranks;

/* comm NULL: one rank. Errors: OCT_E_NOMEM. */
oct_status oct_ranks_init(oct_ranks *ranks, oct_comm *comm, oct_err *err) OCT_MUST_CHECK;
void oct_ranks_release(oct_ranks *ranks);

/* Names what this rank does from here on; what (and fqn, or NULL) as in oct_comm_phase. Both are
 * borrowed. */
void oct_ranks_phase(oct_ranks *ranks, const char *what, const char *fqn);

/* Ends a phase without collectives that can fail on one rank: every rank goes on, or all return the
 * first failure. Collective. err must not be NULL. */
oct_status oct_ranks_agree(oct_ranks *ranks, oct_status status, oct_err *err) OCT_MUST_CHECK;

/* The status of a collective that ended in an agreement of its own. Returns it. */
oct_status oct_ranks_settled(oct_ranks *ranks, oct_status status);

/* The failure of a run ends here: ranks that do not know it yet are told. Returns the status that
 * holds for all, with err. */
oct_status oct_ranks_leave(oct_ranks *ranks, oct_status status, oct_err *err);

/* all = [count][bytes], `own` of each rank, ascending. Collective. */
oct_status oct_ranks_gather(const oct_ranks *ranks, const void *own, size_t bytes, void *all,
                            oct_err *err) OCT_MUST_CHECK;

/* data of rank 0, on all. Collective. */
oct_status oct_ranks_broadcast(const oct_ranks *ranks, void *data, size_t bytes,
                               oct_err *err) OCT_MUST_CHECK;

/* *value = the largest of all ranks. Collective. */
oct_status oct_ranks_max(const oct_ranks *ranks, int64_t *value, oct_err *err) OCT_MUST_CHECK;

/* Errors: OCT_E_CONFIG naming `what` and two ranks, on every rank, if the values differ.
 * Collective. */
oct_status oct_ranks_require_same(oct_ranks *ranks, const char *what, uint64_t value,
                                  oct_err *err) OCT_MUST_CHECK;

#endif
