/* Ranks and what they tell each other. One interface over shared memory inside a node, MPI between
 * nodes, threads of one process (tests), or nothing at all (one rank).
 *
 * "Collective" means: every rank calls the same functions in the same order with the same sizes.
 * Only one thread of a rank calls in here (MPI_THREAD_FUNNELED). Where one rank can fail alone, the
 * phase ends in oct_comm_agree; a rank that fails anywhere else calls oct_comm_leave, and what the
 * others wait for ends with that rank's message. After OCT_E_COMM, or after a rank left, a comm is
 * broken: every later call returns the same error at once. */
#ifndef OCT_COMM_COMM_H
#define OCT_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/tensor.h"

typedef struct oct_comm oct_comm;

enum {
    OCT_COMM_PHASE_BYTES = 96, /* longest name of a phase, with its NUL */
    OCT_COMM_PIECE_BYTES = 1 << 20
};

/* Called before this rank takes part in its op-th exchange (0, 1, ...). It may wait; a status other
 * than OCT_OK is a failure of the exchange on this rank. For tests. */
typedef oct_status (*oct_comm_hook)(void *arg, int rank, int64_t op, oct_err *err);

typedef struct oct_comm_options {
    size_t piece_bytes; /* a message is cut into pieces of at most so many bytes: a multiple of 64
                           up to INT_MAX; 0: OCT_COMM_PIECE_BYTES, less with many ranks */
    double timeout_seconds; /* without any progress of any other rank, a wait fails after this long;
                               0: 600 */
    int node_ranks;         /* at most so many ranks of a node share memory; 1: none; 0: all */
    oct_comm_hook hook;     /* or NULL */
    void *hook_arg;
} oct_comm_options;

/* From the environment: OCTET_SHM = 0 (no shared memory) | 1 (default) | k (groups of k ranks),
 * OCTET_COMM_TIMEOUT = seconds, OCTET_COMM_PIECE = bytes. Errors: OCT_E_CONFIG with the variable.
 */
oct_status oct_comm_options_from_environment(oct_comm_options *options,
                                             oct_err *err) OCT_MUST_CHECK;

/* The ranks that a launcher started (mpirun, srun); one rank, without MPI, if none did. Initialises
 * MPI unless the program did. At most one per process. Collective.
 * Errors: OCT_E_UNSUPPORTED if a launcher started several ranks that cannot find each other (built
 * without MPI, or with another MPI than the launcher's): they would each do the whole work;
 * OCT_E_API for options out of bounds, OCT_E_COMM, OCT_E_NOMEM. */
oct_status oct_comm_create(const oct_comm_options *options, oct_comm **out,
                           oct_err *err) OCT_MUST_CHECK;

/* One rank, without MPI. */
oct_status oct_comm_create_one(oct_comm **out, oct_err *err) OCT_MUST_CHECK;

/* comms[size]: one per rank of a team inside this process, for tests; each is used and destroyed by
 * a thread of its own. options->node_ranks cuts the team into nodes: ranks of a node exchange
 * through shared buffers, nodes through an imitated network. Errors: OCT_E_API, OCT_E_NOMEM. */
oct_status oct_comm_create_team(int size, const oct_comm_options *options, oct_comm **comms,
                                oct_err *err) OCT_MUST_CHECK;

/* Collective unless broken. A healthy comm finalises MPI if it initialised it; a broken one leaves
 * that to the launcher. NULL is fine. */
void oct_comm_destroy(oct_comm *comm);

/* Ends all ranks at once with this exit code, also those that hang, through MPI_Abort; returns if
 * there is no MPI. Only for a broken comm, by the program, after it told the error. On another rank
 * than the one where the error began it waits a moment first, so that the message gets out. */
void oct_comm_abort(oct_comm *comm, int exit_code);

int oct_comm_rank(const oct_comm *comm);
int oct_comm_size(const oct_comm *comm);
int oct_comm_node_rank(const oct_comm *comm); /* among the ranks of this machine */
int oct_comm_node_size(const oct_comm *comm);
bool oct_comm_is_broken(const oct_comm *comm);
bool oct_comm_is_launched(const oct_comm *comm); /* false: one rank without MPI */

/* "1 rank", "8 ranks, shared memory", "8 ranks, Open MPI, shared memory in groups of 4". */
const char *oct_comm_describe(const oct_comm *comm);

/* Names what this rank does from here on, "<what> <fqn>" (fqn may be NULL), and counts as progress.
 * Not collective. Errors and the watchdog tell it, agreements compare it. */
void oct_comm_phase(oct_comm *comm, const char *what, const char *fqn);

/* Progress inside a phase (a layer done, a file read): the ranks that wait go on waiting. */
void oct_comm_progress(oct_comm *comm);

/* Collective; returns when every rank came. */
oct_status oct_comm_barrier(oct_comm *comm, oct_err *err) OCT_MUST_CHECK;

/* Every rank gives its status and, if it failed, its error. OCT_OK if all were; otherwise all
 * return the status and message of the lowest rank that failed, err->rank set to it. Ranks in
 * different phases are an error too (OCT_E_COMM naming two of them). Collective. err must not be
 * NULL. */
oct_status oct_comm_agree(oct_comm *comm, oct_status status, oct_err *err) OCT_MUST_CHECK;

/* This rank failed outside any agreement and will not come back: all others fail with `err` in
 * what they wait for or do next. err->rank becomes this rank; if another rank had failed before,
 * err becomes its error. An agreement that ended in this failure, with nothing exchanged since, is
 * known to all: then only err->rank is put right. Not collective. */
void oct_comm_leave(oct_comm *comm, oct_err *err);

/* recv = the bytes of all ranks one after another, bytes[r] (known to all) from rank r; any may be
 * 0. send may lie at its place in recv. Collective. */
oct_status oct_comm_all_gather(oct_comm *comm, const void *send, const size_t *bytes, void *recv,
                               oct_err *err) OCT_MUST_CHECK;

/* One tensor of an all_gather_many, as the arguments of oct_comm_all_gather. */
typedef struct oct_comm_part {
    const void *send;
    const size_t *bytes;
    void *recv;
} oct_comm_part;

/* Gathers several tensors: what is small travels together. Collective. */
oct_status oct_comm_all_gather_many(oct_comm *comm, const oct_comm_part *parts, int64_t count,
                                    oct_err *err) OCT_MUST_CHECK;

/* data[0..bytes) of rank root, on all. Collective. */
oct_status oct_comm_broadcast(oct_comm *comm, int root, void *data, size_t bytes,
                              oct_err *err) OCT_MUST_CHECK;

/* As all_gather, but only rank 0 receives (recv is NULL elsewhere). Collective. */
oct_status oct_comm_gather(oct_comm *comm, const void *send, const size_t *bytes, void *recv,
                           oct_err *err) OCT_MUST_CHECK;

/* values[i] = the largest (smallest) of all ranks. Collective. */
oct_status oct_comm_max_i64(oct_comm *comm, int64_t *values, int64_t count,
                            oct_err *err) OCT_MUST_CHECK;
oct_status oct_comm_min_i64(oct_comm *comm, int64_t *values, int64_t count,
                            oct_err *err) OCT_MUST_CHECK;

/* MAX of absolute values by their bit patterns: exact, independent of order, and NaN > Inf >
 * numbers, so that a NaN of any rank stays and the largest payload wins. -0 counts as 0.
 * Collective. */
oct_status oct_comm_max_amax(oct_comm *comm, float *values, int64_t count,
                             oct_err *err) OCT_MUST_CHECK;

/* The ordered fold of gradients (docs/distributed.md). The tensor is cut into shards one after
 * another, counts[r] elements owned by rank r (known to all). grad: this rank's finished gradient
 * of the whole tensor, F32 or BF16. Afterwards acc [counts[rank]], FP32, of the owner is started ?
 * ((acc + g_0) + g_1) + ... + g_{R-1} : (g_0 + g_1) + ... + g_{R-1} element by element in FP32, g_r
 * from rank r: called once per micro-step k, the sum runs over micro-batches k*R + r in ascending
 * order, whatever R is. acc must not overlap grad. Errors: OCT_E_API for another dtype. Collective.
 */
oct_status oct_comm_fold(oct_comm *comm, oct_dtype dtype, const void *grad, const int64_t *counts,
                         float *acc, bool started, oct_err *err) OCT_MUST_CHECK;

/* What was moved so far by this rank: bytes that came from other ranks, exchanges, seconds spent in
 * them. */
typedef struct oct_comm_stats {
    int64_t bytes, exchanges;
    double seconds;
} oct_comm_stats;
oct_comm_stats oct_comm_stats_of(const oct_comm *comm);

#endif
