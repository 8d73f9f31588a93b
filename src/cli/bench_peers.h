/* Products of other libraries, from shared objects beside the program (bench/peers): nothing of
 * octet depends on them. */
#ifndef OCT_CLI_BENCH_PEERS_H
#define OCT_CLI_BENCH_PEERS_H

#include <stdbool.h>

#include "cli/bench_peer.h"

enum { OCT_BENCH_MAX_PEERS = 4 };

typedef struct oct_bench_peers {
    int count;
    const octet_peer *peers[OCT_BENCH_MAX_PEERS];
    void *objects[OCT_BENCH_MAX_PEERS]; /* of dlopen */
    int object_count;
} oct_bench_peers;

/* Loads what is there; `tell` prints one line on what was found, or that nothing was. */
void oct_bench_peers_load(oct_bench_peers *peers, bool tell);

#endif
