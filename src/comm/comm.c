#include "comm/comm.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/profile.h"
#include "base/size.h"
#include "comm/transport.h"
#include "numeric/bf16.h"

/* --- life ----------------------------------------------------------------------------------- */

oct_status oct_comm_allocate(int size, oct_comm **out, oct_err *err)
{
    const size_t n = (size_t)size;
    oct_comm *comm = calloc(1, sizeof *comm);
    if (comm) {
        comm->size = size;
        comm->node_size = 1;
        comm->piece_bytes = OCT_COMM_PIECE_BYTES;
        comm->send = calloc(n, sizeof *comm->send);
        comm->send_bytes = calloc(n, sizeof *comm->send_bytes);
        comm->recv_bytes = calloc(n, sizeof *comm->recv_bytes);
        comm->from = calloc(n, sizeof *comm->from);
        comm->record = calloc(n, OCT_COMM_SMALL_BYTES);
        if (comm->send && comm->send_bytes && comm->recv_bytes && comm->from && comm->record) {
            *out = comm;
            return OCT_OK;
        }
    }
    oct_comm_free(comm);
    return OCT_FAIL(err, OCT_E_NOMEM, "cannot set up communication: no memory for %d ranks", size);
}

void oct_comm_free(oct_comm *comm)
{
    if (!comm)
        return;
    free(comm->send);
    free(comm->send_bytes);
    free(comm->recv_bytes);
    free(comm->from);
    free(comm->record);
    free(comm->pack);
    free(comm);
}

oct_status oct_comm_options_check(const oct_comm_options *given, int size, oct_comm_options *out,
                                  oct_err *err)
{
    *out = given ? *given : (oct_comm_options){0};
    if (size < 1 || out->node_ranks < 0 || !(out->timeout_seconds >= 0.0) ||
        out->piece_bytes % 64 != 0 || out->piece_bytes > INT_MAX)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot set up communication: %d ranks, %d per node, pieces of %zu bytes, "
                        "timeout %g s; at least 1 rank and pieces of a multiple of 64 up to %d "
                        "bytes are required",
                        size, out->node_ranks, out->piece_bytes, out->timeout_seconds, INT_MAX);
    if (out->timeout_seconds == 0.0)
        out->timeout_seconds = 600.0;
    if (out->piece_bytes == 0) {
        /* Every rank has two buffers per peer: 64 MiB in all at most, if that leaves 64 KiB each.
         */
        size_t piece = OCT_COMM_PIECE_BYTES;
        while (piece > (64u << 10) && piece * (size_t)size > (32u << 20))
            piece /= 2;
        out->piece_bytes = piece;
    }
    return OCT_OK;
}

oct_status oct_comm_create_one(oct_comm **out, oct_err *err)
{
    OCT_TRY(oct_comm_allocate(1, out, err));
    memcpy((*out)->description, "1 rank", sizeof "1 rank");
    return OCT_OK;
}

void oct_comm_destroy(oct_comm *comm)
{
    if (!comm)
        return;
    if (comm->transport) {
        if (comm->broken.code == OCT_OK) {
            oct_comm_phase(comm, "the end", NULL);
            const oct_status status = oct_comm_barrier(comm, NULL);
            (void)status; /* the comm knows whether it broke */
        }
        comm->transport->destroy(comm->self, comm->broken.code != OCT_OK);
    }
    oct_comm_free(comm);
}

void oct_comm_abort(oct_comm *comm, int exit_code)
{
    if (comm && comm->transport)
        comm->transport->end_all(comm->self, exit_code, comm->broken.rank == comm->rank);
}

int oct_comm_rank(const oct_comm *comm)
{
    return comm->rank;
}

int oct_comm_size(const oct_comm *comm)
{
    return comm->size;
}

int oct_comm_node_rank(const oct_comm *comm)
{
    return comm->node_rank;
}

int oct_comm_node_size(const oct_comm *comm)
{
    return comm->node_size;
}

bool oct_comm_is_broken(const oct_comm *comm)
{
    return comm->broken.code != OCT_OK;
}

bool oct_comm_is_launched(const oct_comm *comm)
{
    return comm->transport != NULL;
}

const char *oct_comm_describe(const oct_comm *comm)
{
    return comm->description;
}

oct_comm_stats oct_comm_stats_of(const oct_comm *comm)
{
    return comm->stats;
}

/* --- phases and failures ---------------------------------------------------------------------- */

static void append(char *text, size_t size, const char *more)
{
    const size_t used = strlen(text);
    const size_t length = strnlen(more, size - 1 - used);
    memcpy(text + used, more, length);
    text[used + length] = '\0';
}

void oct_comm_phase(oct_comm *comm, const char *what, const char *fqn)
{
    char text[OCT_COMM_PHASE_BYTES] = "";
    append(text, sizeof text, what);
    if (fqn) {
        append(text, sizeof text, " ");
        append(text, sizeof text, fqn);
    }
    memcpy(comm->phase, text, sizeof text);
    oct_comm_progress(comm);
}

void oct_comm_progress(oct_comm *comm)
{
    if (comm->transport)
        comm->transport->progress(comm->self, comm->phase);
}

/* What every call on a broken comm returns. */
static oct_status broken_status(const oct_comm *comm, oct_err *err)
{
    if (err)
        *err = comm->broken;
    return comm->broken.code;
}

/* Ends communication with `err`, or with the error of the rank that failed first. */
static oct_status break_comm(oct_comm *comm, oct_err *err)
{
    if (comm->transport->failure(comm->self, err) == OCT_OK) {
        err->rank = comm->rank;
        comm->transport->fail(comm->self, err);
    }
    comm->broken = *err;
    return err->code;
}

/* Did all ranks agree on this failure and exchange nothing since? Context may stand before it. */
static bool knows_all(const oct_comm *comm, const oct_err *err)
{
    const size_t whole = strlen(err->msg), agreed = strlen(comm->agreed.msg);
    return comm->agreed.code != OCT_OK && err->code == comm->agreed.code && whole >= agreed &&
           strcmp(err->msg + whole - agreed, comm->agreed.msg) == 0;
}

void oct_comm_leave(oct_comm *comm, oct_err *err)
{
    if (comm->broken.code != OCT_OK) {
        *err = comm->broken;
        return;
    }
    if (knows_all(comm, err)) {
        err->rank = comm->agreed.rank;
        return;
    }
    err->rank = comm->rank;
    if (err->code == OCT_OK)
        (void)OCT_FAIL(err, OCT_E_COMM,
                       "rank %d left in phase '%s': no error was given, one is required",
                       comm->rank, comm->phase);
    if (comm->transport)
        (void)break_comm(comm, err);
}

/* One exchange of the arrays of `comm`; sizes above are cut before. */
static oct_status exchange(oct_comm *comm, bool same, oct_err *err)
{
    oct_err unread;
    if (!err)
        err = &unread;
    if (comm->broken.code != OCT_OK)
        return broken_status(comm, err);
    comm->agreed.code = OCT_OK;
    const double started = oct_clock_seconds();
    const oct_exchange job = {.send = comm->send,
                              .send_bytes = comm->send_bytes,
                              .recv_bytes = comm->recv_bytes,
                              .from = comm->from,
                              .same = same};
    oct_status status = OCT_OK;
    if (comm->hook)
        status = comm->hook(comm->hook_arg, comm->rank, comm->stats.exchanges, err);
    comm->stats.exchanges++;
    if (status == OCT_OK)
        status = comm->transport->exchange(comm->self, &job, err);
    if (status != OCT_OK)
        return break_comm(comm, err);
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank)
            comm->stats.bytes += (int64_t)comm->recv_bytes[r];
    comm->stats.seconds += oct_clock_seconds() - started;
    return OCT_OK;
}

/* Bytes of a message of `bytes` that belong to the piece at `offset`. */
static size_t piece_at(const oct_comm *comm, size_t bytes, size_t offset)
{
    const size_t left = bytes > offset ? bytes - offset : 0;
    return left < comm->piece_bytes ? left : comm->piece_bytes;
}

/* Sends `bytes` of every rank to all, the piece at `offset` of each. */
static oct_status exchange_same(oct_comm *comm, const void *send, const size_t *bytes,
                                size_t offset, oct_err *err)
{
    for (int r = 0; r < comm->size; r++) {
        comm->send[r] = (const unsigned char *)send + offset;
        comm->send_bytes[r] = piece_at(comm, bytes[comm->rank], offset);
        comm->recv_bytes[r] = piece_at(comm, bytes[r], offset);
    }
    return exchange(comm, true, err);
}

static size_t longest(const oct_comm *comm, const size_t *bytes)
{
    size_t most = 0;
    for (int r = 0; r < comm->size; r++)
        most = bytes[r] > most ? bytes[r] : most;
    return most;
}

/* --- operations ------------------------------------------------------------------------------- */

oct_status oct_comm_barrier(oct_comm *comm, oct_err *err)
{
    if (!comm->transport)
        return OCT_OK;
    const unsigned char nothing = 0;
    for (int r = 0; r < comm->size; r++) {
        comm->send[r] = &nothing;
        comm->send_bytes[r] = comm->recv_bytes[r] = 1;
    }
    return exchange(comm, true, err);
}

oct_status oct_comm_all_gather(oct_comm *comm, const void *send, const size_t *bytes, void *recv,
                               oct_err *err)
{
    unsigned char *out = recv;
    size_t own = 0;
    for (int r = 0; r < comm->rank; r++)
        own += bytes[r];
    const size_t most = comm->transport ? longest(comm, bytes) : 0;
    for (size_t offset = 0; offset < most; offset += comm->piece_bytes) {
        OCT_TRY(exchange_same(comm, send, bytes, offset, err));
        size_t start = 0;
        for (int r = 0; r < comm->size; r++) {
            if (r != comm->rank && comm->recv_bytes[r] > 0)
                memcpy(out + start + offset, comm->from[r], comm->recv_bytes[r]);
            start += bytes[r];
        }
    }
    if (bytes[comm->rank] > 0 && out + own != send)
        memmove(out + own, send, bytes[comm->rank]);
    return OCT_OK;
}

/* How many of the next parts fit into one piece of every rank together; 0 if not even the first. */
static int64_t parts_of_a_piece(const oct_comm *comm, const oct_comm_part *parts, int64_t count)
{
    size_t used = 0;
    int64_t n = 0;
    while (n < count && longest(comm, parts[n].bytes) <= comm->piece_bytes - used)
        used += longest(comm, parts[n++].bytes);
    return n;
}

/* Gathers parts that fit into one piece together. */
static oct_status gather_packed(oct_comm *comm, const oct_comm_part *parts, int64_t count,
                                oct_err *err)
{
    size_t packed = 0;
    memset(comm->recv_bytes, 0, (size_t)comm->size * sizeof *comm->recv_bytes);
    for (int64_t i = 0; i < count; i++) {
        const size_t own = parts[i].bytes[comm->rank];
        if (own > 0)
            memcpy(comm->pack + packed, parts[i].send, own);
        packed += own;
        for (int r = 0; r < comm->size; r++)
            comm->recv_bytes[r] += parts[i].bytes[r];
    }
    for (int r = 0; r < comm->size; r++) {
        comm->send[r] = comm->pack;
        comm->send_bytes[r] = packed;
    }
    OCT_TRY(exchange(comm, true, err));
    comm->from[comm->rank] = comm->pack;
    for (int r = 0; r < comm->size; r++) {
        const unsigned char *from = comm->from[r];
        for (int64_t i = 0; i < count; i++) {
            unsigned char *to = parts[i].recv;
            for (int before = 0; before < r; before++)
                to += parts[i].bytes[before];
            if (parts[i].bytes[r] > 0)
                memcpy(to, from, parts[i].bytes[r]);
            from += parts[i].bytes[r];
        }
    }
    return OCT_OK;
}

oct_status oct_comm_all_gather_many(oct_comm *comm, const oct_comm_part *parts, int64_t count,
                                    oct_err *err)
{
    for (int64_t i = 0; i < count;) {
        const int64_t together = comm->transport ? parts_of_a_piece(comm, parts + i, count - i) : 0;
        if (together > 1)
            OCT_TRY(gather_packed(comm, parts + i, together, err));
        else
            OCT_TRY(oct_comm_all_gather(comm, parts[i].send, parts[i].bytes, parts[i].recv, err));
        i += together > 1 ? together : 1;
    }
    return OCT_OK;
}

oct_status oct_comm_broadcast(oct_comm *comm, int root, void *data, size_t bytes, oct_err *err)
{
    if (root < 0 || root >= comm->size)
        return OCT_FAIL(err, OCT_E_API, "cannot broadcast: root %d, a rank below %d is required",
                        root, comm->size);
    if (!comm->transport)
        return OCT_OK;
    unsigned char *out = data;
    for (size_t offset = 0; offset < bytes; offset += comm->piece_bytes) {
        const size_t piece = piece_at(comm, bytes, offset);
        for (int r = 0; r < comm->size; r++) {
            comm->send[r] = out + offset;
            comm->send_bytes[r] = comm->rank == root ? piece : 0;
            comm->recv_bytes[r] = r == root ? piece : 0;
        }
        OCT_TRY(exchange(comm, true, err));
        if (comm->rank != root)
            memcpy(out + offset, comm->from[root], piece);
    }
    return OCT_OK;
}

oct_status oct_comm_gather(oct_comm *comm, const void *send, const size_t *bytes, void *recv,
                           oct_err *err)
{
    unsigned char *out = recv;
    const size_t most = comm->transport ? longest(comm, bytes) : 0;
    for (size_t offset = 0; offset < most; offset += comm->piece_bytes) {
        for (int r = 0; r < comm->size; r++) {
            comm->send[r] = (const unsigned char *)send + offset;
            comm->send_bytes[r] = r == 0 ? piece_at(comm, bytes[comm->rank], offset) : 0;
            comm->recv_bytes[r] = comm->rank == 0 ? piece_at(comm, bytes[r], offset) : 0;
        }
        OCT_TRY(exchange(comm, false, err));
        size_t start = bytes[0];
        for (int r = 1; comm->rank == 0 && r < comm->size; r++) {
            if (comm->recv_bytes[r] > 0)
                memcpy(out + start + offset, comm->from[r], comm->recv_bytes[r]);
            start += bytes[r];
        }
    }
    if (comm->rank == 0 && bytes[0] > 0 && send != recv)
        memmove(out, send, bytes[0]);
    return OCT_OK;
}

/* into[i] = the one of into[i] and from[i] that stays; both of `bytes` bytes. */
typedef void (*keep_fn)(void *into, const void *from, size_t bytes);

static void keep_larger_i64(void *into, const void *from, size_t bytes)
{
    int64_t *a = into;
    const int64_t *b = from;
    for (size_t i = 0; i < bytes / sizeof *a; i++)
        a[i] = b[i] > a[i] ? b[i] : a[i];
}

static void keep_smaller_i64(void *into, const void *from, size_t bytes)
{
    int64_t *a = into;
    const int64_t *b = from;
    for (size_t i = 0; i < bytes / sizeof *a; i++)
        a[i] = b[i] < a[i] ? b[i] : a[i];
}

/* Patterns of numbers without sign are ordered as the numbers are. */
static void keep_larger_amax(void *into, const void *from, size_t bytes)
{
    float *a = into;
    const float *b = from;
    for (size_t i = 0; i < bytes / sizeof *a; i++) {
        const uint32_t x = oct_f32_bits(a[i]) & 0x7fffffffu;
        const uint32_t y = oct_f32_bits(b[i]) & 0x7fffffffu;
        a[i] = oct_f32_from_bits(x > y ? x : y);
    }
}

static oct_status reduce_small(oct_comm *comm, void *values, size_t bytes, keep_fn keep,
                               oct_err *err)
{
    unsigned char *out = values;
    for (size_t offset = 0; comm->transport && offset < bytes; offset += comm->piece_bytes) {
        for (int r = 0; r < comm->size; r++) {
            comm->send[r] = out + offset;
            comm->send_bytes[r] = comm->recv_bytes[r] = piece_at(comm, bytes, offset);
        }
        OCT_TRY(exchange(comm, true, err));
        for (int r = 0; r < comm->size; r++)
            if (r != comm->rank)
                keep(out + offset, comm->from[r], comm->recv_bytes[r]);
    }
    return OCT_OK;
}

oct_status oct_comm_max_i64(oct_comm *comm, int64_t *values, int64_t count, oct_err *err)
{
    return reduce_small(comm, values, (size_t)count * sizeof *values, keep_larger_i64, err);
}

oct_status oct_comm_min_i64(oct_comm *comm, int64_t *values, int64_t count, oct_err *err)
{
    return reduce_small(comm, values, (size_t)count * sizeof *values, keep_smaller_i64, err);
}

oct_status oct_comm_max_amax(oct_comm *comm, float *values, int64_t count, oct_err *err)
{
    keep_larger_amax(values, values, (size_t)count * sizeof *values);
    return reduce_small(comm, values, (size_t)count * sizeof *values, keep_larger_amax, err);
}

/* acc = grad, or acc + grad, n elements. */
static void fold_piece(float *acc, const void *grad, oct_dtype dtype, int64_t n, bool first)
{
    if (dtype == OCT_DTYPE_F32 && first) {
        memcpy(acc, grad, (size_t)n * sizeof *acc);
    } else if (dtype == OCT_DTYPE_F32) {
        const float *g = grad;
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            acc[i] = acc[i] + g[i];
    } else if (first) {
        const uint16_t *g = grad;
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            acc[i] = oct_bf16_to_f32(g[i]);
    } else {
        const uint16_t *g = grad;
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            acc[i] = acc[i] + oct_bf16_to_f32(g[i]);
    }
}

oct_status oct_comm_fold(oct_comm *comm, oct_dtype dtype, const void *grad, const int64_t *counts,
                         float *acc, bool started, oct_err *err)
{
    if (dtype != OCT_DTYPE_F32 && dtype != OCT_DTYPE_BF16)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot fold gradients: dtype %d, float32 or bfloat16 is required",
                        (int)dtype);
    const unsigned char *in = grad;
    if (!comm->transport) {
        fold_piece(acc, in, dtype, counts[0], !started);
        return OCT_OK;
    }
    const size_t element = oct_dtype_bytes(dtype);
    int64_t most = 0;
    for (int r = 0; r < comm->size; r++)
        most = oct_max_i64(most, counts[r]);
    for (size_t offset = 0; offset < (size_t)most * element; offset += comm->piece_bytes) {
        size_t start = 0;
        const size_t own = piece_at(comm, (size_t)counts[comm->rank] * element, offset);
        for (int r = 0; r < comm->size; r++) {
            const size_t bytes = (size_t)counts[r] * element;
            comm->send_bytes[r] = piece_at(comm, bytes, offset);
            comm->send[r] = comm->send_bytes[r] > 0 ? in + start + offset : in;
            comm->recv_bytes[r] = own;
            start += bytes;
        }
        OCT_TRY(exchange(comm, false, err));
        comm->from[comm->rank] = comm->send[comm->rank];
        for (int r = 0; own > 0 && r < comm->size; r++)
            fold_piece(acc + offset / element, comm->from[r], dtype, (int64_t)(own / element),
                       !started && r == 0);
    }
    return OCT_OK;
}

/* --- agreement -------------------------------------------------------------------------------- */

typedef struct vote {
    int32_t status;
    uint32_t unused;
    uint64_t phase; /* FNV-1a of its name */
} vote;

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u; /* offset basis and prime of FNV-1a, 64 bits */
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        hash = (hash ^ *c) * 0x100000001b3u;
    return hash;
}

/* Every rank gives `bytes` bytes (at most OCT_COMM_SMALL_BYTES); comm->record gets all. */
static oct_status all_gather_small(oct_comm *comm, const void *own, size_t bytes, oct_err *err)
{
    for (size_t offset = 0; offset < bytes; offset += comm->piece_bytes) {
        for (int r = 0; r < comm->size; r++) {
            comm->send[r] = (const unsigned char *)own + offset;
            comm->send_bytes[r] = comm->recv_bytes[r] = piece_at(comm, bytes, offset);
        }
        OCT_TRY(exchange(comm, true, err));
        comm->from[comm->rank] = comm->send[comm->rank];
        for (int r = 0; r < comm->size; r++)
            memcpy(comm->record + (size_t)r * bytes + offset, comm->from[r], comm->recv_bytes[r]);
    }
    return OCT_OK;
}

/* The error of ranks in different phases, the same on all of them. */
static oct_status different_phases(oct_comm *comm, int other, oct_err *err)
{
    OCT_TRY(all_gather_small(comm, comm->phase, sizeof comm->phase, err));
    const char *names = (const char *)comm->record;
    const oct_status status =
        OCT_FAIL(err, OCT_E_COMM,
                 "ranks disagree: rank 0 is in phase '%s', rank %d in phase '%s', the same phase "
                 "is required",
                 names, other, names + (size_t)other * sizeof comm->phase);
    err->rank = 0;
    return status;
}

oct_status oct_comm_agree(oct_comm *comm, oct_status status, oct_err *err)
{
    if (comm->broken.code != OCT_OK)
        return broken_status(comm, err);
    if (!comm->transport) {
        err->rank = 0;
        return status;
    }
    const vote own = {.status = (int32_t)status, .phase = hash_text(comm->phase)};
    oct_err lost; /* err holds this rank's own error until all have voted */
    if (all_gather_small(comm, &own, sizeof own, &lost) != OCT_OK)
        return broken_status(comm, err);
    int origin = -1, other = -1;
    vote first = own, zero, v;
    memcpy(&zero, comm->record, sizeof zero);
    for (int r = comm->size - 1; r >= 0; r--) {
        memcpy(&v, comm->record + (size_t)r * sizeof v, sizeof v);
        if (v.phase != zero.phase)
            other = r;
        if (v.status != OCT_OK) {
            origin = r;
            first = v;
        }
    }
    if (origin < 0)
        return other < 0 ? OCT_OK : different_phases(comm, other, err);
    char msg[sizeof err->msg] = "";
    if (comm->rank == origin)
        memcpy(msg, err->msg, sizeof msg);
    if (oct_comm_broadcast(comm, origin, msg, sizeof msg, &lost) != OCT_OK)
        return broken_status(comm, err);
    if (comm->rank != origin)
        (void)OCT_FAIL(err, (oct_status)first.status, "%s", msg);
    err->code = (oct_status)first.status;
    err->rank = origin;
    comm->agreed = *err;
    return err->code;
}
