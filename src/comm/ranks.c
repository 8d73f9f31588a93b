#include "comm/ranks.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/profile.h"
#include "comm/node.h"

/* How a rank is reached. */
typedef struct peer {
    bool local;
    int local_index; /* in its node */
    int node_size;   /* of its node */
    /* Where its bytes lie when all ranks receive the same: one member of each node takes them for
     * the whole node, so that they cross the network once. */
    int same_member, same_slot;
    int own_slot;      /* where its bytes for this rank alone lie: its buffer, or ours */
    int sends_same_to; /* of the first rank of each foreign node: the rank there that takes ours;
                          else -1 */
    uint64_t progress; /* foreign: as last told */
    char phase[OCT_COMM_PHASE_BYTES];
} peer;

typedef struct ranks {
    int rank, size;
    peer *peers;
    oct_node node;
    double timeout;
    double grace;      /* added to it: ranks of different nodes do not all give up at once */
    uint64_t progress; /* of this rank */
    double beat;       /* when foreign ranks were told last */
    const oct_network *network;
    void *network_self;
    oct_err told; /* a foreign rank's end */
    char phase[OCT_COMM_PHASE_BYTES];
    void (*release)(void *arg, unsigned char *region);
    void *release_arg;
} ranks;

/* --- progress and failures ---------------------------------------------------------------------
 */

static void tell_others(ranks *t, const oct_told *word)
{
    for (int r = 0; r < t->size; r++)
        if (!t->peers[r].local)
            t->network->tell(t->network_self, r, word);
}

static void count_progress(ranks *t)
{
    t->progress++;
    oct_node_publish(&t->node, t->progress, t->phase);
    if (!t->network)
        return;
    const double now = oct_clock_seconds();
    const double every = t->timeout < 20.0 ? t->timeout / 4.0 : 5.0; /* seconds */
    if (now - t->beat < every)
        return;
    t->beat = now;
    oct_told word = {.code = OCT_OK, .rank = t->rank, .progress = t->progress};
    memcpy(word.text, t->phase, sizeof t->phase);
    tell_others(t, &word);
}

static void ranks_progress(void *self, const char *phase)
{
    ranks *t = self;
    if (phase != t->phase)
        memcpy(t->phase, phase, sizeof t->phase);
    count_progress(t);
}

static void listen(ranks *t)
{
    oct_told word;
    int rank = 0;
    while (t->network && t->network->hear(t->network_self, &rank, &word)) {
        if (word.code == OCT_OK) {
            t->peers[rank].progress = word.progress;
            memcpy(t->peers[rank].phase, word.text, sizeof t->peers[rank].phase);
        } else if (t->told.code == OCT_OK) {
            (void)OCT_FAIL(&t->told, (oct_status)word.code, "%s", word.text);
            t->told.rank = word.rank;
            oct_node_fail(&t->node, &t->told);
        }
    }
}

static oct_status ranks_failure(void *self, oct_err *err)
{
    ranks *t = self;
    listen(t);
    return oct_node_failure(&t->node, err);
}

static void ranks_fail(void *self, oct_err *err)
{
    ranks *t = self;
    const int origin = err->rank;
    oct_node_fail(&t->node, err);
    if (!t->network || err->rank != origin)
        return;
    oct_told word = {.code = err->code, .rank = err->rank, .progress = t->progress};
    memcpy(word.text, err->msg, sizeof word.text);
    tell_others(t, &word);
}

static uint64_t progress_of_others(const ranks *t)
{
    uint64_t sum = 0;
    for (int r = 0; r < t->size; r++)
        if (r != t->rank)
            sum += t->peers[r].local ? oct_node_progress(&t->node, t->peers[r].local_index)
                                     : t->peers[r].progress;
    return sum;
}

/* The watchdog's error: who waits for whom, and where both are. */
static oct_status hangs(const ranks *t, int waits_for, oct_err *err)
{
    char phase[OCT_COMM_PHASE_BYTES] = "";
    if (t->peers[waits_for].local)
        oct_node_phase(&t->node, t->peers[waits_for].local_index, phase);
    else
        memcpy(phase, t->peers[waits_for].phase, sizeof phase);
    return OCT_FAIL(err, OCT_E_COMM,
                    "communication hangs in phase '%s' on rank %d: no progress of any rank for %g "
                    "s, rank %d is awaited, last seen in phase '%s' (OCTET_COMM_TIMEOUT)",
                    t->phase, t->rank, t->timeout, waits_for, phase);
}

/* --- exchange -----------------------------------------------------------------------------------
 */

/* Lets others run; longer the longer nothing comes. */
static void rest(int turn)
{
    if (turn < 200) {
        (void)sched_yield();
        return;
    }
    const struct timespec time = {.tv_nsec = turn < 2000 ? 50000 : 500000};
    (void)nanosleep(&time, NULL);
}

static oct_status wait_network(ranks *t, oct_err *err)
{
    oct_wait wait = oct_wait_begin(t->timeout + t->grace);
    for (int turn = 0;; turn += turn < 2000) {
        int waits_for = -1;
        OCT_TRY(t->network->poll(t->network_self, &waits_for, err));
        if (waits_for < 0)
            return OCT_OK;
        OCT_TRY(ranks_failure(t, err));
        if (oct_wait_expired(&wait, progress_of_others(t)))
            return hangs(t, waits_for, err);
        rest(turn);
    }
}

static oct_status wait_node(ranks *t, oct_err *err)
{
    oct_wait wait = oct_wait_begin(t->timeout + t->grace);
    const double most = t->network ? 0.002 : 0.1; /* foreign words are heard only by asking */
    const double slice = t->timeout / 8.0 < most ? t->timeout / 8.0 : most;
    while (!oct_node_wait(&t->node, slice)) {
        OCT_TRY(ranks_failure(t, err));
        if (!oct_wait_expired(&wait, progress_of_others(t)))
            continue;
        for (int r = 0; r < t->size; r++)
            if (t->peers[r].local && !oct_node_entered(&t->node, t->peers[r].local_index))
                return hangs(t, r, err);
    }
    return OCT_OK;
}

static void fill_buffer(const ranks *t, int slot, const void *data, size_t bytes)
{
    if (bytes > 0)
        memcpy(oct_node_buffer(&t->node, t->node.index, slot), data, bytes);
}

/* The same bytes to every rank: once into the own buffer, once to each foreign node. */
static oct_status start_same(ranks *t, const oct_exchange *x, oct_err *err)
{
    for (int r = 0; r < t->size; r++) {
        const peer *p = &t->peers[r];
        if (r == t->rank)
            continue;
        x->from[r] = oct_node_buffer(&t->node, p->same_member, p->same_slot);
        if (!p->local && p->same_member == t->node.index && x->recv_bytes[r] > 0)
            OCT_TRY(t->network->receive(t->network_self, r,
                                        oct_node_buffer(&t->node, t->node.index, p->same_slot),
                                        x->recv_bytes[r], err));
        if (p->sends_same_to >= 0 && x->send_bytes[r] > 0)
            OCT_TRY(t->network->send(t->network_self, p->sends_same_to, x->send[r],
                                     x->send_bytes[r], err));
    }
    if (t->node.members > 1)
        fill_buffer(t, 0, x->send[t->rank], x->send_bytes[t->rank]);
    return OCT_OK;
}

/* Other bytes to every rank. */
static oct_status start_own(ranks *t, const oct_exchange *x, oct_err *err)
{
    for (int r = 0; r < t->size; r++) {
        const peer *p = &t->peers[r];
        if (r == t->rank)
            continue;
        if (p->local) {
            x->from[r] = oct_node_buffer(&t->node, p->local_index, t->node.index);
            fill_buffer(t, p->local_index, x->send[r], x->send_bytes[r]);
            continue;
        }
        unsigned char *into = oct_node_buffer(&t->node, t->node.index, p->own_slot);
        x->from[r] = into;
        if (x->recv_bytes[r] > 0)
            OCT_TRY(t->network->receive(t->network_self, r, into, x->recv_bytes[r], err));
        if (x->send_bytes[r] > 0)
            OCT_TRY(t->network->send(t->network_self, r, x->send[r], x->send_bytes[r], err));
    }
    return OCT_OK;
}

static oct_status ranks_exchange(void *self, const oct_exchange *x, oct_err *err)
{
    ranks *t = self;
    OCT_TRY(ranks_failure(t, err));
    OCT_TRY(x->same ? start_same(t, x, err) : start_own(t, x, err));
    if (t->network)
        OCT_TRY(wait_network(t, err));
    oct_node_enter(&t->node);
    OCT_TRY(wait_node(t, err));
    count_progress(t);
    return OCT_OK;
}

/* --- life --------------------------------------------------------------------------------------
 */

static void ranks_end_all(void *self, int exit_code, bool first)
{
    ranks *t = self;
    if (!t->network)
        return;
    const struct timespec moment = {.tv_sec = 1};
    if (!first)
        (void)nanosleep(&moment, NULL);
    t->network->end_all(t->network_self, exit_code);
}

static void ranks_destroy(void *self, bool broken)
{
    ranks *t = self;
    bool quiet = true;
    if (t->network) {
        listen(t); /* words that came before the last barrier */
        quiet = t->network->destroy(t->network_self, broken);
    }
    if (quiet)
        t->release(t->release_arg, t->node.region);
    free(t->peers);
    free(t);
}

static const oct_transport transport = {
    .exchange = ranks_exchange,
    .progress = ranks_progress,
    .fail = ranks_fail,
    .failure = ranks_failure,
    .end_all = ranks_end_all,
    .destroy = ranks_destroy,
};

/* The rank of member `index` of the node of `of`. */
static int member_rank(const oct_ranks_plan *plan, int of, int index)
{
    for (int r = 0; r < plan->size; r++)
        if (plan->node[r] == plan->node[of] && index-- == 0)
            return r;
    return -1;
}

static void place_peers(ranks *t, const oct_ranks_plan *plan)
{
    for (int r = 0; r < t->size; r++) {
        peer *p = &t->peers[r];
        p->local = plan->node[r] == plan->node[t->rank];
        for (int q = 0; q < t->size; q++) {
            if (plan->node[q] != plan->node[r])
                continue;
            p->node_size++;
            p->local_index += q < r;
        }
    }
    const peer *own = &t->peers[t->rank];
    t->node.index = own->local_index;
    t->node.members = own->node_size;
    int foreign = 0;
    for (int r = 0; r < t->size; r++) {
        peer *p = &t->peers[r];
        p->sends_same_to = -1;
        p->same_member = p->local_index;
        if (p->local)
            continue;
        p->own_slot = own->node_size + foreign++;
        p->same_member = p->local_index % own->node_size;
        p->same_slot = 1;
        for (int q = 0; q < r; q++)
            p->same_slot += !t->peers[q].local && t->peers[q].same_member == p->same_member;
        if (p->local_index == 0)
            p->sends_same_to = member_rank(plan, r, own->local_index % p->node_size);
    }
}

oct_status oct_ranks_create(const oct_ranks_plan *plan, oct_comm **out, oct_err *err)
{
    oct_comm *comm = NULL;
    OCT_TRY(oct_comm_allocate(plan->size, &comm, err));
    ranks *t = calloc(1, sizeof *t);
    peer *peers = calloc((size_t)plan->size, sizeof *peers);
    comm->pack = malloc(plan->piece_bytes);
    if (!t || !peers || !comm->pack) {
        free(t);
        free(peers);
        oct_comm_free(comm);
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot set up communication: no memory for %d ranks",
                        plan->size);
    }
    t->rank = plan->rank;
    t->size = plan->size;
    t->peers = peers;
    t->timeout = plan->timeout_seconds;
    t->grace = 0.1 * (plan->rank < 20 ? plan->rank : 20);
    t->network = plan->network;
    t->network_self = plan->network_self;
    t->release = plan->release;
    t->release_arg = plan->release_arg;
    t->node.region = plan->region;
    t->node.slots = plan->size;
    t->node.slot_bytes = plan->piece_bytes;
    place_peers(t, plan);
    comm->rank = plan->rank;
    comm->node_rank = t->node.index;
    comm->node_size = t->node.members;
    comm->piece_bytes = plan->piece_bytes;
    comm->transport = &transport;
    comm->self = t;
    *out = comm;
    return OCT_OK;
}
