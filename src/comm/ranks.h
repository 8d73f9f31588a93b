/* The transport of several ranks: shared memory to the ranks of the same node, a network to the
 * others. */
#ifndef OCT_COMM_RANKS_H
#define OCT_COMM_RANKS_H

#include "comm/network.h"
#include "comm/transport.h"

/* How a transport of this rank is made. All is copied. */
typedef struct oct_ranks_plan {
    int rank, size;
    const int *node; /* [size] node of each rank, any numbers; ranks of a node in ascending order
                        are its members 0, 1, ... */
    size_t piece_bytes;
    double timeout_seconds;
    unsigned char *region; /* of oct_node_region_bytes(members, size, piece_bytes) zero bytes */
    void (*release)(void *arg, unsigned char *region); /* gives the region back */
    void *release_arg;
    const oct_network *network; /* NULL if all are of one node; destroyed with the transport */
    void *network_self;
} oct_ranks_plan;

/* A comm over this transport; description, node_rank and hook are the caller's to fill. On failure
 * region and network stay the caller's. Errors: OCT_E_NOMEM. */
oct_status oct_ranks_create(const oct_ranks_plan *plan, oct_comm **out,
                            oct_err *err) OCT_MUST_CHECK;

#endif
