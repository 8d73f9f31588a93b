/* What travels: ranks compare their shards once and plan every gather and reduction from that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "fsdp/state.h"

oct_status oct_fsdp_collect(const oct_fsdp *fsdp, fsdp_param *p, const fsdp_unit *unit,
                            oct_fsdp_phase phase, oct_fsdp_tensors *out, oct_err *err)
{
    *out = (oct_fsdp_tensors){0};
    p->metadata.bytes = 0;
    if (!p->extension) {
        *out = (oct_fsdp_tensors){.count = 1, .names = {"value"}, .tensors = {p->shard}};
        return OCT_OK;
    }
    const oct_fsdp_context context = {.phase = phase,
                                      .reshard_after_forward = oct_fsdp_reshards(fsdp, unit),
                                      .param_fqn = p->param->fqn};
    OCT_TRY(p->extension->pre_all_gather(p->self, &context, out, &p->metadata, err));
    if (out->count < 1 || out->count > OCT_FSDP_MAX_TENSORS)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot gather '%s': its extension gave %d tensors, 1 to %d are required",
                        p->param->fqn, out->count, OCT_FSDP_MAX_TENSORS);
    for (int i = 0; i < out->count; i++)
        if (out->tensors[i].ndim < 1)
            return OCT_FAIL(err, OCT_E_SHAPE,
                            "cannot gather '%s': its tensor '%s' has %d dimensions, at least 1 is "
                            "required",
                            p->param->fqn, out->names[i], out->tensors[i].ndim);
    return OCT_OK;
}

enum { NAME_BYTES = 32 };

/* What ranks compare of one parameter in one phase. */
typedef struct record {
    int64_t row_begin, rows;
    int32_t is_replicated, count;
    struct {
        char name[NAME_BYTES]; /* as much of it as there is room */
        int32_t dtype, ndim;
        int64_t shape[OCT_MAX_NDIM];
    } tensors[OCT_FSDP_MAX_TENSORS];
} record;

static oct_status make_record(const oct_fsdp *fsdp, fsdp_param *p, const fsdp_unit *unit,
                              oct_fsdp_phase phase, record *out, oct_err *err)
{
    oct_fsdp_tensors tensors;
    *out = (record){.row_begin = p->param->row_begin,
                    .rows = p->param->rows,
                    .is_replicated = p->param->replicated};
    if (p->param->replicated)
        return OCT_OK;
    OCT_TRY(oct_fsdp_collect(fsdp, p, unit, phase, &tensors, err));
    out->count = tensors.count;
    p->traffic[phase].count = tensors.count;
    for (int i = 0; i < tensors.count; i++) {
        const oct_tensor *tensor = &tensors.tensors[i];
        p->traffic[phase].flows[i].name = tensors.names[i];
        p->traffic[phase].flows[i].shard = *tensor;
        (void)snprintf(out->tensors[i].name, NAME_BYTES, "%s", tensors.names[i]);
        out->tensors[i].dtype = (int32_t)tensor->dtype;
        out->tensors[i].ndim = tensor->ndim;
        memcpy(out->tensors[i].shape, tensor->shape,
               (size_t)tensor->ndim * sizeof tensor->shape[0]);
    }
    return OCT_OK;
}

static oct_tensor tensor_of(const record *r, int i)
{
    oct_tensor tensor = {.dtype = (oct_dtype)r->tensors[i].dtype, .ndim = r->tensors[i].ndim};
    memcpy(tensor.shape, r->tensors[i].shape, sizeof tensor.shape);
    return tensor;
}

/* Can two ranks' tensors stand one after another along dim 0? */
static bool fit(const record *a, const record *b, int i)
{
    bool same = strcmp(a->tensors[i].name, b->tensors[i].name) == 0 &&
                a->tensors[i].dtype == b->tensors[i].dtype &&
                a->tensors[i].ndim == b->tensors[i].ndim;
    for (int d = 1; same && d < a->tensors[i].ndim; d++)
        same = a->tensors[i].shape[d] == b->tensors[i].shape[d];
    return same;
}

enum { TEXT_BYTES = 128 };

/* "'row_scale' float8_e8m0 [64, 4, 2]" */
static void describe(const record *r, int i, char text[TEXT_BYTES])
{
    int used = snprintf(text, TEXT_BYTES, "'%s' %s [", r->tensors[i].name,
                        oct_dtype_name((oct_dtype)r->tensors[i].dtype));
    for (int d = 0; d < r->tensors[i].ndim && used < TEXT_BYTES; d++)
        used += snprintf(text + used, (size_t)(TEXT_BYTES - used), "%s%lld", d > 0 ? ", " : "",
                         (long long)r->tensors[i].shape[d]);
    if (used < TEXT_BYTES)
        (void)snprintf(text + used, (size_t)(TEXT_BYTES - used), "]");
}

/* The record of a rank against that of rank 0. */
static oct_status compare_with_first(const oct_param *param, const record *first,
                                     const record *other, int rank, oct_err *err)
{
    if (other->is_replicated != first->is_replicated)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot gather '%s': it is %s on rank 0 and %s on rank %d, the same on "
                        "every rank is required",
                        param->fqn, first->is_replicated ? "replicated" : "sharded",
                        other->is_replicated ? "replicated" : "sharded", rank);
    if (other->count != first->count)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot gather '%s': rank 0 has %d physical tensors and rank %d has %d, "
                        "the same number is required",
                        param->fqn, first->count, rank, other->count);
    for (int i = 0; i < first->count; i++) {
        if (fit(first, other, i))
            continue;
        char a[TEXT_BYTES], b[TEXT_BYTES];
        describe(first, i, a);
        describe(other, i, b);
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot gather '%s': physical tensor %d is %s on rank 0 and %s on rank %d, "
                        "the same name, dtype and dims after the first are required",
                        param->fqn, i, a, b, rank);
    }
    return OCT_OK;
}

/* records[r * stride] is that of rank r. */
static oct_status compare(const oct_fsdp *fsdp, const fsdp_param *p, const record *records,
                          int64_t stride, oct_err *err)
{
    const oct_param *param = p->param;
    int64_t next = 0;
    for (int r = 0; r < oct_comm_size(fsdp->options.comm); r++) {
        const record *other = &records[r * stride];
        OCT_TRY(compare_with_first(param, records, other, r, err));
        if (!records->is_replicated && other->row_begin != next)
            return OCT_FAIL(err, OCT_E_SHAPE,
                            "cannot gather '%s': the rows of rank %d begin at %lld, %lld is "
                            "required",
                            param->fqn, r, (long long)other->row_begin, (long long)next);
        next += other->rows;
    }
    if (!records->is_replicated && next != param->shape[0])
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot gather '%s': ranks own %lld rows, %lld is required", param->fqn,
                        (long long)next, (long long)param->shape[0]);
    return OCT_OK;
}

static oct_status plan_traffic(oct_fsdp *fsdp, traffic *out, const record *records, int64_t stride,
                               oct_err *err)
{
    const int ranks = oct_comm_size(fsdp->options.comm);
    for (int i = 0; i < out->count; i++) {
        flow *f = &out->flows[i];
        size_t *bytes = NULL;
        OCT_TRY(oct_fsdp_array(fsdp, ranks, sizeof *bytes, &bytes, err));
        f->shard.data = NULL;
        f->total_rows = 0;
        f->total_bytes = 0;
        for (int r = 0; r < ranks; r++) {
            const oct_tensor part = tensor_of(&records[r * stride], i);
            bytes[r] = oct_tensor_bytes(&part);
            f->total_bytes += bytes[r];
            f->total_rows += part.shape[0];
        }
        f->bytes = bytes;
    }
    return OCT_OK;
}

/* Who folds what of the gradient: the owners their rows; of a replicated one, each rank a part. */
static oct_status plan_gradient(oct_fsdp *fsdp, fsdp_param *p, const record *records,
                                int64_t stride, oct_err *err)
{
    const int ranks = oct_comm_size(fsdp->options.comm), rank = oct_comm_rank(fsdp->options.comm);
    const int64_t numel = oct_param_numel(p->param), row = oct_param_row_numel(p->param);
    int64_t *counts = NULL;
    OCT_TRY(oct_fsdp_array(fsdp, ranks, sizeof *counts, &counts, err));
    for (int r = 0; r < ranks; r++)
        counts[r] = p->param->replicated ? numel * (r + 1) / ranks - numel * r / ranks
                                         : records[r * stride].rows * row;
    size_t *bytes = NULL;
    if (p->param->replicated)
        OCT_TRY(oct_fsdp_array(fsdp, ranks, sizeof *bytes, &bytes, err));
    for (int r = 0; bytes && r < ranks; r++)
        bytes[r] = (size_t)counts[r] * sizeof(float);
    p->sum_bytes = bytes;
    p->counts = counts;
    p->own_begin = p->param->replicated ? numel * rank / ranks : 0;
    return OCT_OK;
}

static oct_status plan_unit(oct_fsdp *fsdp, const fsdp_unit *unit, record *own, record *all,
                            oct_err *err)
{
    oct_comm *comm = fsdp->options.comm;
    const int64_t count = unit->given.count, stride = count * OCT_FSDP_PHASES;
    size_t bytes = (size_t)stride * sizeof *own;
    oct_status status = OCT_OK;
    fsdp_param *params = &fsdp->params[unit->given.first];
    for (int64_t i = 0; status == OCT_OK && i < stride; i++)
        status = make_record(fsdp, &params[i / OCT_FSDP_PHASES], unit,
                             (oct_fsdp_phase)(i % OCT_FSDP_PHASES), &own[i], err);
    OCT_TRY(oct_comm_agree(comm, status, err));
    size_t *each = NULL;
    OCT_TRY(oct_fsdp_array(fsdp, oct_comm_size(comm), sizeof *each, &each, err));
    for (int r = 0; r < oct_comm_size(comm); r++)
        each[r] = bytes;
    OCT_TRY(oct_comm_all_gather(comm, own, each, all, err));
    for (int64_t i = 0; i < stride; i++) {
        fsdp_param *p = &params[i / OCT_FSDP_PHASES];
        OCT_TRY(compare(fsdp, p, &all[i], stride, err));
        OCT_TRY(plan_traffic(fsdp, &p->traffic[i % OCT_FSDP_PHASES], &all[i], stride, err));
        if (i % OCT_FSDP_PHASES == 0)
            OCT_TRY(plan_gradient(fsdp, p, &all[i], stride, err));
    }
    return OCT_OK;
}

oct_status oct_fsdp_plan(oct_fsdp *fsdp, oct_err *err)
{
    int64_t most = 0;
    for (int64_t u = 0; u < fsdp->options.unit_count; u++)
        most = oct_max_i64(most, fsdp->units[u].given.count);
    const size_t bytes = (size_t)(most * OCT_FSDP_PHASES) * sizeof(record);
    record *own = calloc(1, bytes);
    record *all = malloc(bytes * (size_t)oct_comm_size(fsdp->options.comm));
    oct_status status = OCT_OK;
    if (!own || !all)
        status =
            OCT_FAIL(err, OCT_E_NOMEM, "cannot compare shards: %zu bytes for each rank", bytes);
    status = oct_comm_agree(fsdp->options.comm, status, err);
    for (int64_t u = 0; status == OCT_OK && u < fsdp->options.unit_count; u++)
        status = plan_unit(fsdp, &fsdp->units[u], own, all, err);
    free(own);
    free(all);
    return status;
}

oct_status oct_fsdp_check_shard(const fsdp_param *p, const traffic *planned,
                                const oct_fsdp_tensors *tensors, oct_err *err)
{
    if (tensors->count != planned->count)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot gather '%s': its extension gave %d tensors, %d are required as "
                        "before",
                        p->param->fqn, tensors->count, planned->count);
    for (int i = 0; i < tensors->count; i++) {
        const oct_tensor *a = &tensors->tensors[i], *b = &planned->flows[i].shard;
        if (strcmp(tensors->names[i], planned->flows[i].name) != 0)
            return OCT_FAIL(err, OCT_E_SHAPE,
                            "cannot gather '%s': tensor %d is '%s', '%s' is required as before",
                            p->param->fqn, i, tensors->names[i], planned->flows[i].name);
        if (a->dtype != b->dtype || a->ndim != b->ndim ||
            memcmp(a->shape, b->shape, (size_t)b->ndim * sizeof b->shape[0]) != 0)
            return OCT_FAIL(
                err, OCT_E_SHAPE,
                "cannot gather '%s': tensor %d ('%s') has another dtype or shape, those "
                "of its first gather are required",
                p->param->fqn, i, tensors->names[i]);
    }
    return OCT_OK;
}
