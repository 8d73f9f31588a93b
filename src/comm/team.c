/* Ranks as threads of one process, with an imitated network between their nodes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/node.h"
#include "comm/ranks.h"

typedef struct letter {
    struct letter *next;
    size_t bytes;
    unsigned char data[];
} letter;

typedef struct letters {
    letter *first, **end;
} letters;

/* What one rank sent another and has not been taken. */
typedef struct channel {
    pthread_mutex_t lock;
    letters data, words;
} channel;

typedef struct team {
    int size;
    atomic_int left;         /* ranks that did not destroy their comm yet, and regions' users */
    channel *channels;       /* [from][to] */
    unsigned char **regions; /* [size], of the node that begins with this rank, else NULL */
} team;

typedef struct awaited {
    int rank;
    void *data;
    size_t bytes;
} awaited;

/* The network as one rank sees it. */
typedef struct station {
    team *team;
    int rank, count;
    awaited *receives; /* [size] */
} station;

static void put(channel *c, letters *list, const void *data, size_t bytes)
{
    letter *l = malloc(sizeof *l + bytes);
    if (!l)
        return; /* a lost message, which the watchdog finds */
    l->next = NULL;
    l->bytes = bytes;
    memcpy(l->data, data, bytes);
    pthread_mutex_lock(&c->lock);
    *list->end = l;
    list->end = &l->next;
    pthread_mutex_unlock(&c->lock);
}

static letter *take(channel *c, letters *list)
{
    pthread_mutex_lock(&c->lock);
    letter *l = list->first;
    if (l) {
        list->first = l->next;
        if (!list->first)
            list->end = &list->first;
    }
    pthread_mutex_unlock(&c->lock);
    return l;
}

static oct_status station_send(void *self, int rank, const void *data, size_t bytes, oct_err *err)
{
    (void)err;
    station *s = self;
    channel *c = &s->team->channels[s->rank * s->team->size + rank];
    put(c, &c->data, data, bytes);
    return OCT_OK;
}

static oct_status station_receive(void *self, int rank, void *data, size_t bytes, oct_err *err)
{
    (void)err;
    station *s = self;
    s->receives[s->count++] = (awaited){.rank = rank, .data = data, .bytes = bytes};
    return OCT_OK;
}

static oct_status station_poll(void *self, int *waits_for, oct_err *err)
{
    station *s = self;
    for (int i = 0; i < s->count;) {
        const awaited *a = &s->receives[i];
        channel *c = &s->team->channels[a->rank * s->team->size + s->rank];
        letter *l = take(c, &c->data);
        if (!l) {
            i++;
            continue;
        }
        const size_t found = l->bytes;
        if (found == a->bytes)
            memcpy(a->data, l->data, found);
        free(l);
        if (found != a->bytes)
            return OCT_FAIL(err, OCT_E_COMM,
                            "ranks disagree: a message of %zu bytes came from rank %d, %zu are "
                            "required",
                            found, a->rank, a->bytes);
        s->receives[i] = s->receives[--s->count];
    }
    *waits_for = s->count > 0 ? s->receives[0].rank : -1;
    return OCT_OK;
}

static void station_tell(void *self, int rank, const oct_told *word)
{
    station *s = self;
    channel *c = &s->team->channels[s->rank * s->team->size + rank];
    put(c, &c->words, word, sizeof *word);
}

static bool station_hear(void *self, int *rank, oct_told *word)
{
    station *s = self;
    for (int r = 0; r < s->team->size; r++) {
        channel *c = &s->team->channels[r * s->team->size + s->rank];
        letter *l = take(c, &c->words);
        if (!l)
            continue;
        memcpy(word, l->data, sizeof *word);
        free(l);
        *rank = r;
        return true;
    }
    return false;
}

static void station_end_all(void *self, int exit_code)
{
    (void)self;
    (void)exit_code;
}

static bool station_destroy(void *self, bool broken)
{
    (void)broken;
    station *s = self;
    free(s->receives);
    free(s);
    return true;
}

static const oct_network network = {
    .send = station_send,
    .receive = station_receive,
    .poll = station_poll,
    .tell = station_tell,
    .hear = station_hear,
    .end_all = station_end_all,
    .destroy = station_destroy,
};

static void clear(letters *list)
{
    while (list->first) {
        letter *l = list->first;
        list->first = l->next;
        free(l);
    }
}

static void free_team(team *t)
{
    for (int i = 0; t->channels && i < t->size * t->size; i++) {
        clear(&t->channels[i].data);
        clear(&t->channels[i].words);
        pthread_mutex_destroy(&t->channels[i].lock);
    }
    for (int r = 0; t->regions && r < t->size; r++)
        free(t->regions[r]);
    free(t->channels);
    free(t->regions);
    free(t);
}

/* The last rank that goes takes the team with it. */
static void release(void *arg, unsigned char *region)
{
    (void)region;
    team *t = arg;
    if (atomic_fetch_sub(&t->left, 1) == 1)
        free_team(t);
}

static team *create_team(int size, int node_ranks, size_t piece_bytes)
{
    team *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->size = size;
    atomic_init(&t->left, size);
    t->channels = calloc((size_t)size * (size_t)size, sizeof *t->channels);
    t->regions = calloc((size_t)size, sizeof *t->regions);
    bool complete = t->channels && t->regions;
    for (int i = 0; t->channels && i < size * size; i++) {
        (void)pthread_mutex_init(&t->channels[i].lock, NULL);
        t->channels[i].data.end = &t->channels[i].data.first;
        t->channels[i].words.end = &t->channels[i].words.first;
    }
    for (int r = 0; complete && r < size; r += node_ranks) {
        const int members = size - r < node_ranks ? size - r : node_ranks;
        const size_t bytes = (oct_node_region_bytes(members, size, piece_bytes) + 63) / 64 * 64;
        t->regions[r] = aligned_alloc(64, bytes);
        complete = t->regions[r] != NULL;
        if (complete)
            memset(t->regions[r], 0, bytes);
    }
    if (complete)
        return t;
    free_team(t);
    return NULL;
}

/* One rank of the team; NULL without memory. */
static oct_comm *join(team *t, int rank, int node_ranks, const int *node,
                      const oct_comm_options *options)
{
    station *s = calloc(1, sizeof *s);
    awaited *receives = calloc((size_t)t->size, sizeof *receives);
    oct_comm *comm = NULL;
    if (s && receives) {
        *s = (station){.team = t, .rank = rank, .receives = receives};
        const oct_ranks_plan plan = {
            .rank = rank,
            .size = t->size,
            .node = node,
            .piece_bytes = options->piece_bytes,
            .timeout_seconds = options->timeout_seconds,
            .region = t->regions[rank / node_ranks * node_ranks],
            .release = release,
            .release_arg = t,
            .network = &network,
            .network_self = s,
        };
        if (oct_ranks_create(&plan, &comm, NULL) == OCT_OK) {
            comm->hook = options->hook;
            comm->hook_arg = options->hook_arg;
            (void)snprintf(comm->description, sizeof comm->description, "%d ranks, threads",
                           t->size);
            return comm;
        }
    }
    free(receives);
    free(s);
    return NULL;
}

oct_status oct_comm_create_team(int size, const oct_comm_options *given, oct_comm **comms,
                                oct_err *err)
{
    oct_comm_options options;
    OCT_TRY(oct_comm_options_check(given, size, &options, err));
    const int node_ranks =
        options.node_ranks == 0 || options.node_ranks > size ? size : options.node_ranks;
    team *t = create_team(size, node_ranks, options.piece_bytes);
    int *node = calloc((size_t)size, sizeof *node);
    int joined = 0;
    for (int r = 0; node && r < size; r++)
        node[r] = r / node_ranks;
    while (t && node && joined < size &&
           (comms[joined] = join(t, joined, node_ranks, node, &options)))
        joined++;
    free(node);
    if (joined == size)
        return OCT_OK;
    if (t && joined == 0)
        free_team(t);
    for (int r = 0; r < joined; r++) { /* none of them can wait for the ranks that never came */
        atomic_store(&t->left, joined - r);
        comms[r]->transport->destroy(comms[r]->self, false);
        oct_comm_free(comms[r]);
    }
    return OCT_FAIL(err, OCT_E_NOMEM, "cannot set up communication: no memory for %d ranks", size);
}
