/* Ranks that share memory: a barrier, who is where, and buffers to read from. The memory is one
 * zeroed region, mapped by each process of a node or shared by threads. */
#ifndef OCT_COMM_NODE_H
#define OCT_COMM_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/comm.h"

/* Patience of one wait: it ends when nothing at all moved for `timeout` seconds. */
typedef struct oct_wait {
    double timeout;
    double since;   /* when the stamp changed last */
    uint64_t stamp; /* sum of the progress of all others */
    int turns;
} oct_wait;

oct_wait oct_wait_begin(double timeout);
/* true if `stamp` did not change for too long. */
bool oct_wait_expired(oct_wait *wait, uint64_t stamp);

/* One member's view. */
typedef struct oct_node {
    unsigned char *region;
    int index, members;
    int slots; /* buffers per member and turn */
    size_t slot_bytes;
    uint32_t turn; /* barriers passed: picks one of two sets of buffers */
} oct_node;

/* Bytes of a region, or 0 on overflow. */
size_t oct_node_region_bytes(int members, int slots, size_t slot_bytes);

/* Buffer `slot` of a member in the present turn. Written by its owner before the barrier is
 * entered, read by all between that barrier and the next, at the address it had before entering. */
unsigned char *oct_node_buffer(const oct_node *node, int member, int slot);

void oct_node_publish(oct_node *node, uint64_t progress, const char *phase);
uint64_t oct_node_progress(const oct_node *node, int member);
void oct_node_phase(const oct_node *node, int member, char phase[OCT_COMM_PHASE_BYTES]);

/* The first failure told in this node; later ones are replaced by it. */
void oct_node_fail(oct_node *node, oct_err *err);
oct_status oct_node_failure(const oct_node *node, oct_err *err);

/* A barrier in two halves, so that the waiting can be mixed with other work: enter once, then wait
 * until it returns true. `slice` seconds: longest sleep of one call. */
void oct_node_enter(oct_node *node);
bool oct_node_wait(oct_node *node, double slice);
/* Has this member entered the barrier that this one waits in? */
bool oct_node_entered(const oct_node *node, int member);

#endif
