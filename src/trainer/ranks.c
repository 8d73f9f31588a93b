#include "trainer/ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

oct_status oct_ranks_init(oct_ranks *ranks, oct_comm *comm, oct_err *err)
{
    *ranks = (oct_ranks){.comm = comm,
                         .rank = comm ? oct_comm_rank(comm) : 0,
                         .count = comm ? oct_comm_size(comm) : 1};
    ranks->bytes = calloc((size_t)ranks->count, sizeof *ranks->bytes);
    if (!ranks->bytes)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot start training on %d ranks: out of memory",
                        ranks->count);
    return OCT_OK;
}

void oct_ranks_release(oct_ranks *ranks)
{
    free(ranks->bytes);
    ranks->bytes = NULL;
}

void oct_ranks_phase(oct_ranks *ranks, const char *what, const char *fqn)
{
    ranks->phase = fqn ? fqn : what;
    if (ranks->comm)
        oct_comm_phase(ranks->comm, what, fqn);
}

oct_status oct_ranks_agree(oct_ranks *ranks, oct_status status, oct_err *err)
{
    if (ranks->count == 1)
        return status;
    status = oct_comm_agree(ranks->comm, status, err);
    ranks->agreed = status != OCT_OK;
    return status;
}

oct_status oct_ranks_settled(oct_ranks *ranks, oct_status status)
{
    ranks->agreed = status != OCT_OK;
    return status;
}

oct_status oct_ranks_leave(oct_ranks *ranks, oct_status status, oct_err *err)
{
    if (status == OCT_OK || ranks->count == 1 || ranks->agreed)
        return status;
    oct_comm_leave(ranks->comm, err);
    return err->code;
}

oct_status oct_ranks_gather(const oct_ranks *ranks, const void *own, size_t bytes, void *all,
                            oct_err *err)
{
    if (ranks->count == 1) {
        memcpy(all, own, bytes);
        return OCT_OK;
    }
    for (int r = 0; r < ranks->count; r++)
        ranks->bytes[r] = bytes;
    return oct_comm_all_gather(ranks->comm, own, ranks->bytes, all, err);
}

oct_status oct_ranks_broadcast(const oct_ranks *ranks, void *data, size_t bytes, oct_err *err)
{
    return ranks->count == 1 ? OCT_OK : oct_comm_broadcast(ranks->comm, 0, data, bytes, err);
}

oct_status oct_ranks_max(const oct_ranks *ranks, int64_t *value, oct_err *err)
{
    return ranks->count == 1 ? OCT_OK : oct_comm_max_i64(ranks->comm, value, 1, err);
}

oct_status oct_ranks_require_same(oct_ranks *ranks, const char *what, uint64_t value, oct_err *err)
{
    if (ranks->count == 1)
        return OCT_OK;
    uint64_t first = value;
    OCT_TRY(oct_comm_broadcast(ranks->comm, 0, &first, sizeof first, err));
    oct_status status = OCT_OK;
    if (first != value)
        status = OCT_FAIL(err, OCT_E_CONFIG,
                          "ranks have different %s: rank %d has %016" PRIx64 ", %016" PRIx64
                          " of rank 0 is required",
                          what, ranks->rank, value, first);
    return oct_ranks_agree(ranks, status, err);
}
