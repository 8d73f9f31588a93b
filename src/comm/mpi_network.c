/* MPI between nodes, and the ranks that an MPI launcher started. Compiled only with MPI. */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/fault.h"
#include "base/profile.h"
#include "comm/node.h"
#include "comm/ranks.h"

enum { TAG_DATA = 1, TAG_WORD = 2 };

typedef struct message {
    MPI_Request request;
    int rank;
    int bytes; /* expected; -1: ours */
} message;

/* Two words can be under way to a rank: one that it works, one that it ends. */
typedef struct words_out {
    MPI_Request work, end;
    oct_told work_word, end_word;
} words_out;

typedef struct mpi_network {
    MPI_Comm comm;
    int size, count;
    bool finalize;
    message *messages; /* [2 * size] */
    words_out *words;  /* [size] */
} mpi_network;

static oct_status check(int code, const char *what, oct_err *err)
{
    if (code == MPI_SUCCESS)
        return OCT_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    (void)MPI_Error_string(code, text, &length);
    return OCT_FAIL(err, OCT_E_COMM, "%s failed: MPI says '%s'", what, text);
}

static oct_status network_send(void *self, int rank, const void *data, size_t bytes, oct_err *err)
{
    mpi_network *n = self;
    message *m = &n->messages[n->count];
    *m = (message){.rank = rank, .bytes = -1};
    OCT_TRY(check(MPI_Isend(data, (int)bytes, MPI_BYTE, rank, TAG_DATA, n->comm, &m->request),
                  "MPI_Isend", err));
    n->count++;
    return OCT_OK;
}

static oct_status network_receive(void *self, int rank, void *data, size_t bytes, oct_err *err)
{
    mpi_network *n = self;
    message *m = &n->messages[n->count];
    *m = (message){.rank = rank, .bytes = (int)bytes};
    OCT_TRY(check(MPI_Irecv(data, (int)bytes, MPI_BYTE, rank, TAG_DATA, n->comm, &m->request),
                  "MPI_Irecv", err));
    n->count++;
    return OCT_OK;
}

static oct_status network_poll(void *self, int *waits_for, oct_err *err)
{
    mpi_network *n = self;
    for (int i = 0; i < n->count;) {
        message *m = &n->messages[i];
        int done = 0, found = m->bytes;
        MPI_Status status;
        OCT_TRY(check(MPI_Test(&m->request, &done, &status), "MPI_Test", err));
        if (!done) {
            i++;
            continue;
        }
        if (m->bytes >= 0)
            OCT_TRY(check(MPI_Get_count(&status, MPI_BYTE, &found), "MPI_Get_count", err));
        if (found != m->bytes)
            return OCT_FAIL(err, OCT_E_COMM,
                            "ranks disagree: a message of %d bytes came from rank %d, %d are "
                            "required",
                            found, m->rank, m->bytes);
        *m = n->messages[--n->count];
    }
    *waits_for = n->count > 0 ? n->messages[0].rank : -1;
    return OCT_OK;
}

static bool is_free(MPI_Request *request)
{
    int done = 1;
    return *request == MPI_REQUEST_NULL ||
           (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done);
}

/* A word that cannot be sent is lost: the watchdog of the other side is there for that. */
static void network_tell(void *self, int rank, const oct_told *word)
{
    mpi_network *n = self;
    words_out *out = &n->words[rank];
    MPI_Request *request = word->code == OCT_OK ? &out->work : &out->end;
    oct_told *copy = word->code == OCT_OK ? &out->work_word : &out->end_word;
    if (!is_free(request))
        return;
    *copy = *word;
    if (MPI_Isend(copy, (int)sizeof *copy, MPI_BYTE, rank, TAG_WORD, n->comm, request) !=
        MPI_SUCCESS)
        *request = MPI_REQUEST_NULL;
}

static bool network_hear(void *self, int *rank, oct_told *word)
{
    mpi_network *n = self;
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_WORD, n->comm, &there, &status) != MPI_SUCCESS || !there)
        return false;
    *rank = status.MPI_SOURCE;
    return MPI_Recv(word, (int)sizeof *word, MPI_BYTE, *rank, TAG_WORD, n->comm,
                    MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

/* Gives words under way a moment to leave. */
static void flush_words(mpi_network *n, double seconds)
{
    const double until = oct_clock_seconds() + seconds;
    bool all = false;
    while (!all && oct_clock_seconds() < until) {
        all = true;
        for (int r = 0; r < n->size; r++)
            all = is_free(&n->words[r].work) && is_free(&n->words[r].end) && all;
    }
}

static void network_end_all(void *self, int exit_code)
{
    mpi_network *n = self;
    flush_words(n, 1.0);
    (void)MPI_Abort(MPI_COMM_WORLD, exit_code);
}

static bool network_destroy(void *self, bool broken)
{
    mpi_network *n = self;
    flush_words(n, 1.0);
    if (broken) /* the others may never come to MPI_Finalize, and messages may be under way */
        return false;
    (void)MPI_Comm_free(&n->comm);
    if (n->finalize)
        (void)MPI_Finalize();
    free(n->messages);
    free(n->words);
    free(n);
    return true;
}

static const oct_network network = {
    .send = network_send,
    .receive = network_receive,
    .poll = network_poll,
    .tell = network_tell,
    .hear = network_hear,
    .end_all = network_end_all,
    .destroy = network_destroy,
};

static oct_status create_network(int size, bool finalize, mpi_network **out, oct_err *err)
{
    mpi_network *n = calloc(1, sizeof *n);
    message *messages = calloc(2 * (size_t)size, sizeof *messages);
    words_out *words = calloc((size_t)size, sizeof *words);
    if (!n || !messages || !words) {
        free(n);
        free(messages);
        free(words);
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot set up communication: no memory for %d ranks",
                        size);
    }
    for (int r = 0; r < size; r++)
        words[r].work = words[r].end = MPI_REQUEST_NULL;
    *n = (mpi_network){.comm = MPI_COMM_NULL,
                       .size = size,
                       .finalize = finalize,
                       .messages = messages,
                       .words = words};
    *out = n;
    return OCT_OK;
}

/* --- shared memory ------------------------------------------------------------------------------
 */

/* The ranks that share memory, and the memory. */
typedef struct neighbours {
    int *node; /* [size] smallest rank of each rank's group */
    int members, index, host_rank, host_size;
    MPI_Comm comm;
    size_t region_bytes;
    unsigned char *region; /* NULL: could not be mapped */
} neighbours;

static void unmap(void *arg, unsigned char *region)
{
    (void)munmap(region, *(size_t *)arg);
    free(arg);
}

static oct_status find_neighbours(int rank, int node_ranks, neighbours *out, oct_err *err)
{
    MPI_Comm host;
    OCT_TRY(
        check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host),
              "MPI_Comm_split_type", err));
    (void)MPI_Comm_rank(host, &out->host_rank);
    (void)MPI_Comm_size(host, &out->host_size);
    const int group = node_ranks > 0 ? out->host_rank / node_ranks : 0;
    const int code = MPI_Comm_split(host, group, rank, &out->comm);
    (void)MPI_Comm_free(&host);
    OCT_TRY(check(code, "MPI_Comm_split", err));
    (void)MPI_Comm_rank(out->comm, &out->index);
    (void)MPI_Comm_size(out->comm, &out->members);
    int leader = rank;
    OCT_TRY(check(MPI_Bcast(&leader, 1, MPI_INT, 0, out->comm), "MPI_Bcast", err));
    return check(MPI_Allgather(&leader, 1, MPI_INT, out->node, 1, MPI_INT, MPI_COMM_WORLD),
                 "MPI_Allgather", err);
}

/* Memory without a name: /dev/shm is tiny in containers, and nothing is left behind by a kill. The
 * others reach it through /proc, as they reach the process. */
static int open_region(const neighbours *n)
{
    int place[2] = {-1, -1}; /* pid, descriptor */
    int fd = -1;
    if (n->index == 0 && !oct_fault("comm.memfd")) {
        fd = memfd_create("octet", MFD_CLOEXEC);
        if (fd >= 0 && ftruncate(fd, (off_t)n->region_bytes) != 0) {
            (void)close(fd);
            fd = -1;
        }
        place[0] = (int)getpid();
        place[1] = fd;
    }
    (void)MPI_Bcast(place, 2, MPI_INT, 0, n->comm);
    if (n->index > 0 && place[1] >= 0) {
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", place[0], place[1]);
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    (void)MPI_Barrier(n->comm); /* the first keeps it open until all have it */
    return fd;
}

static unsigned char *map_region(int fd, size_t bytes)
{
    const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    return region == MAP_FAILED ? NULL : region;
}

/* Maps the groups' memory; where any rank cannot, every rank stands alone. */
static oct_status share_memory(int rank, int size, size_t piece_bytes, neighbours *n, oct_err *err)
{
    n->region_bytes = oct_node_region_bytes(n->members, size, piece_bytes);
    if (n->members > 1) {
        const int fd = open_region(n);
        n->region = fd < 0 ? NULL : map_region(fd, n->region_bytes);
        if (fd >= 0)
            (void)close(fd);
    } else {
        n->region = map_region(-1, n->region_bytes);
    }
    int shared = n->region != NULL, all = 0;
    OCT_TRY(check(MPI_Allreduce(&shared, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD),
                  "MPI_Allreduce", err));
    if (all)
        return OCT_OK;
    if (n->region)
        (void)munmap(n->region, n->region_bytes);
    for (int r = 0; r < size; r++)
        n->node[r] = r;
    n->members = 1;
    n->index = 0;
    n->region_bytes = oct_node_region_bytes(1, size, piece_bytes);
    n->region = map_region(-1, n->region_bytes);
    if (!n->region)
        return OCT_FAIL(err, OCT_E_NOMEM,
                        "cannot set up communication: no memory for %zu bytes of buffers on rank "
                        "%d",
                        n->region_bytes, rank);
    return OCT_OK;
}

/* --- setup ------------------------------------------------------------------------------------ */

/* More ranks than cores: whoever waits inside MPI yields. Open MPI decides so only under its own
 * launcher. Its search for displays costs seconds where no name server answers. */
static void prepare_environment(void)
{
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (!local)
        local = getenv("SLURM_NTASKS_PER_NODE");
    if (local && strtol(local, NULL, 10) > oct_cpu_count())
        (void)setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    (void)setenv("HWLOC_COMPONENTS", "-gl", 0);
}

static const char *library_name(void)
{
#if defined(OPEN_MPI)
    return "Open MPI";
#elif defined(MPICH)
    return "MPICH";
#else
    return "MPI";
#endif
}

/* Ranks of the largest group that shares memory. */
static int largest_group(const neighbours *n, int size)
{
    int most = 1;
    for (int r = 0; r < size; r++) {
        int members = 0;
        for (int q = 0; q < size; q++)
            members += n->node[q] == n->node[r];
        most = members > most ? members : most;
    }
    return most;
}

static void describe(oct_comm *comm, int size, int members)
{
    char how[48] = "no shared memory";
    if (members == size && size > 1)
        (void)snprintf(how, sizeof how, "shared memory");
    else if (members > 1)
        (void)snprintf(how, sizeof how, "shared memory in groups of %d", members);
    (void)snprintf(comm->description, sizeof comm->description, "%d rank%s, %s, %s", size,
                   size == 1 ? "" : "s", library_name(), how);
}

/* Rank 0's options hold for all: the pieces of all ranks must match. */
static oct_status same_options(oct_comm_options *options, oct_err *err)
{
    double words[3] = {(double)options->piece_bytes, options->timeout_seconds,
                       (double)options->node_ranks};
    OCT_TRY(check(MPI_Bcast(words, 3, MPI_DOUBLE, 0, MPI_COMM_WORLD), "MPI_Bcast", err));
    options->piece_bytes = (size_t)words[0];
    options->timeout_seconds = words[1];
    options->node_ranks = (int)words[2];
    return OCT_OK;
}

/* One rank's failure is everyone's, before there is a comm to agree in. */
static oct_status vote(oct_status status, oct_err *err)
{
    int mine = (int)status, worst = 0;
    OCT_TRY(check(MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD),
                  "MPI_Allreduce", err));
    if (status == OCT_OK && worst != OCT_OK)
        return OCT_FAIL(err, OCT_E_COMM,
                        "cannot set up communication: another rank failed with status %d, all "
                        "ranks are required",
                        worst);
    return status;
}

/* Everything between MPI_Init and the first exchange. */
static oct_status connect(const oct_comm_options *given, bool finalize, oct_comm **out,
                          oct_err *err)
{
    int rank = 0, size = 0;
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    oct_comm_options options;
    OCT_TRY(oct_comm_options_check(given, size, &options, err));
    OCT_TRY(same_options(&options, err));

    mpi_network *net = NULL;
    neighbours n = {.comm = MPI_COMM_NULL, .node = calloc((size_t)size, sizeof *n.node)};
    size_t *region_bytes = malloc(sizeof *region_bytes);
    oct_status status = n.node && region_bytes ? create_network(size, finalize, &net, err)
                                               : OCT_FAIL(err, OCT_E_NOMEM,
                                                          "cannot set up communication: no memory "
                                                          "for %d ranks",
                                                          size);
    status = vote(status, err);
    if (status == OCT_OK)
        status = check(MPI_Comm_dup(MPI_COMM_WORLD, &net->comm), "MPI_Comm_dup", err);
    if (status == OCT_OK)
        status = check(MPI_Comm_set_errhandler(net->comm, MPI_ERRORS_RETURN),
                       "MPI_Comm_set_errhandler", err);
    if (status == OCT_OK)
        status = find_neighbours(rank, options.node_ranks, &n, err);
    if (status == OCT_OK)
        status = share_memory(rank, size, options.piece_bytes, &n, err);
    if (n.comm != MPI_COMM_NULL)
        (void)MPI_Comm_free(&n.comm);
    if (status == OCT_OK) {
        *region_bytes = n.region_bytes;
        const oct_ranks_plan plan = {
            .rank = rank,
            .size = size,
            .node = n.node,
            .piece_bytes = options.piece_bytes,
            .timeout_seconds = options.timeout_seconds,
            .region = n.region,
            .release = unmap,
            .release_arg = region_bytes,
            .network = &network,
            .network_self = net,
        };
        status = oct_ranks_create(&plan, out, err);
    }
    status = vote(status, err);
    const int members = status == OCT_OK ? largest_group(&n, size) : 0;
    free(n.node);
    if (status != OCT_OK) { /* the end of this process is near: MPI keeps what it has */
        free(region_bytes);
        return status;
    }
    (*out)->node_rank = n.host_rank;
    (*out)->node_size = n.host_size;
    (*out)->hook = options.hook;
    (*out)->hook_arg = options.hook_arg;
    describe(*out, size, members);
    return OCT_OK;
}

oct_status oct_comm_create_mpi(const oct_comm_options *options, oct_comm **out, oct_err *err)
{
    int there = 0, provided = MPI_THREAD_SINGLE;
    (void)MPI_Initialized(&there);
    if (there) {
        (void)MPI_Query_thread(&provided);
    } else {
        prepare_environment();
        OCT_TRY(check(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided),
                      "MPI_Init_thread", err));
    }
    if (provided < MPI_THREAD_FUNNELED)
        return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                        "cannot use MPI: it gives thread level %d, MPI_THREAD_FUNNELED (%d) is "
                        "required",
                        provided, MPI_THREAD_FUNNELED);
    return connect(options, !there, out, err);
}
