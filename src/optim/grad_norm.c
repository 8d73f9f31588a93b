#include "optim/grad_norm.h"

#include <math.h>
#include <string.h>

#include "base/size.h"
#include "base/threads.h"

static int rank_of(const oct_optimizer *optimizer)
{
    return optimizer->comm ? oct_comm_rank(optimizer->comm) : 0;
}

static int rank_count(const oct_optimizer *optimizer)
{
    return optimizer->comm ? oct_comm_size(optimizer->comm) : 1;
}

/* Makes a failure of one rank that of all. */
static oct_status agree(const oct_optimizer *optimizer, oct_status status, oct_err *err)
{
    return optimizer->comm ? oct_comm_agree(optimizer->comm, status, err) : status;
}

/* --- which rank has which partials ------------------------------------------------------------ */

/* What a rank owns of a slot. */
typedef struct owned {
    int64_t row_begin, rows;
} owned;

/* What all ranks own: of[rank * slot_count + slot]; where the next partial of each rank lies. */
typedef struct ownership {
    owned *of;
    int64_t *next;
} ownership;

static oct_status new_array(const oct_optimizer *optimizer, int64_t count, size_t size, void *out,
                            oct_err *err)
{
    size_t bytes = 0;
    void *memory = NULL;
    if (!oct_size_mul((size_t)count, size, &bytes))
        return OCT_FAIL(err, OCT_E_NOMEM,
                        "cannot get memory for the gradient norm: %lld items of %zu bytes are "
                        "required",
                        (long long)count, size);
    OCT_TRY(oct_ledger_zalloc(optimizer->ledger, OCT_LEDGER_OTHER, bytes, "gradient norm", &memory,
                              err));
    memcpy(out, &memory, sizeof memory);
    return OCT_OK;
}

static oct_status new_tables(oct_optimizer *optimizer, ownership *ranks, oct_err *err)
{
    const int64_t size = rank_count(optimizer), slots = optimizer->slot_count;
    OCT_TRY(new_array(optimizer, size * slots, sizeof *ranks->of, &ranks->of, err));
    OCT_TRY(new_array(optimizer, size, sizeof *ranks->next, &ranks->next, err));
    OCT_TRY(new_array(optimizer, size, sizeof *optimizer->partial_bytes, &optimizer->partial_bytes,
                      err));
    return new_array(optimizer, size * slots, sizeof *optimizer->runs, &optimizer->runs, err);
}

static oct_status gather_ownership(const oct_optimizer *optimizer, const ownership *ranks,
                                   oct_err *err)
{
    const int64_t slots = optimizer->slot_count;
    owned *own = ranks->of + rank_of(optimizer) * slots;
    for (int64_t s = 0; s < slots; s++)
        own[s] = (owned){optimizer->slots[s].row_begin, optimizer->slots[s].rows};
    if (!optimizer->comm)
        return OCT_OK;
    for (int r = 0; r < rank_count(optimizer); r++)
        optimizer->partial_bytes[r] = (size_t)slots * sizeof *own;
    return oct_comm_all_gather(optimizer->comm, own, optimizer->partial_bytes, ranks->of, err);
}

/* Every row of slot s on one rank, ascending; or all on each. All ranks see the same. */
static oct_status check_ownership(const oct_optimizer *optimizer, const ownership *ranks, int64_t s,
                                  oct_err *err)
{
    const oct_param *param = optimizer->slots[s].param;
    const int size = rank_count(optimizer);
    int64_t next = 0;
    for (int r = 0; r < size; r++) {
        const owned *own = &ranks->of[r * optimizer->slot_count + s];
        const int64_t begin = param->replicated ? 0 : next;
        const bool is_last = param->replicated || r + 1 == size;
        next = begin + own->rows;
        if (own->row_begin != begin || own->rows < 0 || (is_last && next != param->shape[0]))
            return OCT_FAIL(err, OCT_E_API,
                            "cannot build the optimizer: rank %d owns rows %lld to %lld of '%s', "
                            "rows from %lld%s on are required of %lld",
                            r, (long long)own->row_begin,
                            (long long)(own->row_begin + own->rows - 1), param->fqn,
                            (long long)begin, is_last ? " to the last" : "",
                            (long long)param->shape[0]);
    }
    return OCT_OK;
}

/* Partials lie rank after rank, and of one rank slot after slot, rows ascending. Returns how many
 * there are. */
static int64_t place_partials(oct_optimizer *optimizer, const ownership *ranks)
{
    const int64_t slots = optimizer->slot_count;
    int64_t total = 0;
    for (int r = 0; r < rank_count(optimizer); r++) {
        int64_t count = 0;
        for (int64_t s = 0; s < slots; s++) {
            if (r == rank_of(optimizer))
                optimizer->slots[s].partial_begin = count;
            count += optimizer->slots[s].exp_avg ? ranks->of[r * slots + s].rows : 0;
        }
        ranks->next[r] = total;
        total += count;
        optimizer->partial_bytes[r] = (size_t)count * sizeof(double);
        if (r == rank_of(optimizer))
            optimizer->partial_count = count;
    }
    return total;
}

/* Partials are added in the order of slots and rows. A replicated parameter is added once, as rank
 * 0 has it; that its gradient is not finite on another rank must be seen all the same. */
static void list_runs(oct_optimizer *optimizer, const ownership *ranks)
{
    optimizer->partials = optimizer->all_partials + ranks->next[rank_of(optimizer)];
    for (int64_t s = 0; s < optimizer->slot_count; s++) {
        const oct_optim_slot *slot = &optimizer->slots[s];
        if (!slot->exp_avg)
            continue;
        for (int r = 0; r < rank_count(optimizer); r++) {
            const int64_t count = ranks->of[r * optimizer->slot_count + s].rows;
            if (count > 0)
                optimizer->runs[optimizer->run_count++] =
                    (oct_norm_run){.slot = s,
                                   .begin = ranks->next[r],
                                   .count = count,
                                   .is_added = r == 0 || !slot->param->replicated};
            ranks->next[r] += count;
        }
    }
}

static oct_status prepare(oct_optimizer *optimizer, ownership *ranks, oct_err *err)
{
    OCT_TRY(agree(optimizer, new_tables(optimizer, ranks, err), err));
    OCT_TRY(gather_ownership(optimizer, ranks, err));
    for (int64_t s = 0; s < optimizer->slot_count; s++)
        OCT_TRY(check_ownership(optimizer, ranks, s, err));
    const int64_t total = place_partials(optimizer, ranks);
    OCT_TRY(agree(
        optimizer,
        new_array(optimizer, total, sizeof *optimizer->all_partials, &optimizer->all_partials, err),
        err));
    list_runs(optimizer, ranks);
    return OCT_OK;
}

oct_status oct_norm_prepare(oct_optimizer *optimizer, oct_err *err)
{
    ownership ranks = {0};
    const oct_status status = prepare(optimizer, &ranks, err);
    oct_ledger_free(optimizer->ledger, ranks.of);
    oct_ledger_free(optimizer->ledger, ranks.next);
    return status;
}

void oct_norm_release(oct_optimizer *optimizer)
{
    oct_ledger_free(optimizer->ledger, optimizer->all_partials);
    oct_ledger_free(optimizer->ledger, optimizer->partial_bytes);
    oct_ledger_free(optimizer->ledger, optimizer->runs);
}

/* --- one norm --------------------------------------------------------------------------------- */

/* Partials handed to a thread at a time. */
enum { PARTIALS_PER_ITEM = 64 };

typedef struct norm_job {
    oct_optimizer *optimizer;
    oct_exec exec; /* one thread each, no scratch: a sum of squares needs none */
} norm_job;

/* The slot that owns own partial `index`: the last one that begins at or before it. */
static int64_t slot_of_partial(const oct_optimizer *optimizer, int64_t index)
{
    int64_t low = 0, high = optimizer->slot_count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (optimizer->slots[middle].partial_begin <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void norm_item(void *arg, int64_t item, int thread)
{
    (void)thread;
    const norm_job *job = arg;
    oct_optimizer *optimizer = job->optimizer;
    const int64_t begin = item * PARTIALS_PER_ITEM;
    const int64_t end = oct_min_i64(begin + PARTIALS_PER_ITEM, optimizer->partial_count);
    for (int64_t i = begin; i < end; i++) {
        const oct_optim_slot *slot = &optimizer->slots[slot_of_partial(optimizer, i)];
        const int64_t width = slot->numel / slot->rows;
        const float *grad = slot->param->grad + (i - slot->partial_begin) * width;
        optimizer->partials[i] = slot->param->ndim == 1 ? (double)*grad * (double)*grad
                                                        : oct_sum_squares(&job->exec, grad, width);
    }
}

static oct_status check_gradients(const oct_optimizer *optimizer, oct_err *err)
{
    for (int64_t i = 0; i < optimizer->slot_count; i++) {
        const oct_optim_slot *slot = &optimizer->slots[i];
        if (slot->exp_avg && slot->rows > 0 && (!slot->param->grad || !slot->param->grad_started))
            return OCT_FAIL(err, OCT_E_API,
                            "cannot compute the gradient norm: no gradient, a finished one is "
                            "required ('%s')",
                            slot->param->fqn);
    }
    return OCT_OK;
}

static oct_grad_norm sum_runs(const oct_optimizer *optimizer)
{
    double sum = 0.0;
    const char *nonfinite_fqn = NULL;
    for (int64_t i = 0; i < optimizer->run_count; i++) {
        const oct_norm_run *run = &optimizer->runs[i];
        const double *partials = optimizer->all_partials + run->begin;
        for (int64_t k = 0; k < run->count; k++) {
            /* Squares of FP32 values cannot overflow FP64: only from a NaN or Inf element. */
            const bool finite = isfinite(partials[k]);
            if (!finite && !nonfinite_fqn)
                nonfinite_fqn = optimizer->slots[run->slot].param->fqn;
            if (run->is_added || !finite)
                sum += partials[k];
        }
    }
    return (oct_grad_norm){
        .norm = sqrt(sum), .finite = !nonfinite_fqn, .nonfinite_fqn = nonfinite_fqn};
}

oct_status oct_optimizer_grad_norm(oct_optimizer *optimizer, const oct_exec *exec,
                                   oct_grad_norm *out, oct_err *err)
{
    if (optimizer->comm)
        oct_comm_phase(optimizer->comm, "gradient norm", NULL);
    OCT_TRY(agree(optimizer, check_gradients(optimizer, err), err));
    norm_job job = {.optimizer = optimizer, .exec = *exec};
    job.exec.threads = 1;
    job.exec.scratch = NULL;
    oct_parallel_for(exec->threads, oct_ceil_div(optimizer->partial_count, PARTIALS_PER_ITEM),
                     norm_item, &job);
    if (optimizer->comm)
        OCT_TRY(oct_comm_all_gather(optimizer->comm, optimizer->partials, optimizer->partial_bytes,
                                    optimizer->all_partials, err));
    *out = sum_runs(optimizer);
    return OCT_OK;
}
