#include "comm/binding.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct place {
    char host[64];
    cpu_set_t allowed;
} place;

int oct_binding_threads(const oct_binding *binding)
{
    const int threads = binding->allowed / binding->sharers;
    return threads > 0 ? threads : 1;
}

bool oct_binding_is_narrow(const oct_binding *binding, int threads)
{
    const int part = binding->cores / binding->ranks;
    if (binding->allowed == binding->cores)
        return false;
    return threads > binding->allowed || oct_binding_threads(binding) < part;
}

/* What `own` shares with the places of all ranks. */
static void count_sharers(const place *all, int size, const place *own, oct_binding *out)
{
    out->sharers = out->ranks = 0;
    for (int r = 0; r < size; r++) {
        if (strncmp(all[r].host, own->host, sizeof own->host) != 0)
            continue;
        cpu_set_t both;
        CPU_AND(&both, &all[r].allowed, &own->allowed);
        out->ranks++;
        out->sharers += CPU_COUNT(&both) > 0;
    }
}

oct_status oct_binding_read(oct_comm *comm, oct_binding *out, oct_err *err)
{
    place own;
    memset(&own, 0, sizeof own);
    (void)gethostname(own.host, sizeof own.host - 1);
    if (sched_getaffinity(0, sizeof own.allowed, &own.allowed) != 0)
        CPU_SET(0, &own.allowed);
    *out = (oct_binding){.allowed = CPU_COUNT(&own.allowed), .sharers = 1, .ranks = 1};
    out->cores = out->allowed;
    const int size = oct_comm_size(comm);
    if (!oct_comm_is_launched(comm))
        return OCT_OK;
    /* The parent is the launcher's daemon on this machine, which is not bound. */
    cpu_set_t parent;
    if (sched_getaffinity(getppid(), sizeof parent, &parent) == 0 &&
        CPU_COUNT(&parent) > out->cores)
        out->cores = CPU_COUNT(&parent);

    place *all = calloc((size_t)size, sizeof *all);
    size_t *bytes = calloc((size_t)size, sizeof *bytes);
    oct_status status = OCT_OK;
    if (!all || !bytes)
        status = OCT_FAIL(err, OCT_E_NOMEM, "cannot read bindings: no memory for %d ranks", size);
    for (int r = 0; bytes && r < size; r++)
        bytes[r] = sizeof own;
    oct_comm_phase(comm, "reading bindings", NULL);
    status = oct_comm_agree(comm, status, err);
    if (status == OCT_OK)
        status = oct_comm_all_gather(comm, &own, bytes, all, err);
    if (status == OCT_OK)
        count_sharers(all, size, &own, out);
    free(all);
    free(bytes);
    return status;
}
