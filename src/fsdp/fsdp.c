#include "fsdp/fsdp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/size.h"

enum { PHASES = 2, NO_WINDOW = -1 };

/* How one physical tensor of a parameter travels in one phase. */
typedef struct flow {
    const char *name;
    oct_tensor shard;    /* this rank's part: dtype and shape, no data */
    const size_t *bytes; /* of each rank's part */
    size_t total_bytes;
    int64_t total_rows; /* of dim 0, all parts together */
} flow;

typedef struct traffic {
    int count;
    flow flows[OCT_FSDP_MAX_TENSORS];
} traffic;

typedef struct fsdp_param {
    oct_param *param;
    const oct_fsdp_extension *extension; /* NULL: one plain tensor */
    void *self;
    oct_tensor shard;            /* plain: this rank's rows */
    oct_weight_storage *logical; /* extended: what post made */
    traffic traffic[PHASES];
    const int64_t *counts; /* elements of the gradient that each rank folds */
    /* Replicated: first of them in the whole gradient, and the bytes of each rank's sums. */
    int64_t own_begin;
    const size_t *sum_bytes;
    /* The gather in progress. */
    oct_fsdp_tensors outputs;
    oct_fsdp_metadata metadata;
} fsdp_param;

typedef struct fsdp_unit {
    oct_fsdp_unit given;
    int window;
    bool is_gathered;
    bool has_all; /* what the backward pass needs, too */
} fsdp_unit;

/* Memory of the unit that is gathered into it. */
typedef struct window {
    oct_arena tensors;
    int64_t unit; /* NO_WINDOW: free */
} window;

struct oct_fsdp {
    oct_fsdp_options options;
    oct_arena memory;
    fsdp_param *params; /* in tree order */
    int64_t param_count;
    fsdp_unit *units;
    window *windows;
    int64_t window_count;
    oct_comm_part *parts; /* of the unit with most tensors */
    oct_unit_hooks hooks;
    void *staging; /* one gradient of a whole parameter in reduce_dtype */
    const oct_param *open;
    bool is_sealed;
};

const char *oct_fsdp_phase_name(oct_fsdp_phase phase)
{
    return phase == OCT_FSDP_FORWARD ? "forward" : "backward";
}

/* --- life ------------------------------------------------------------------------------------ */

static oct_status new_array(oct_fsdp *fsdp, int64_t count, size_t size, void *out, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_array(&fsdp->memory, count, size, &memory, err));
    memset(memory, 0, (size_t)count * size);
    memcpy(out, &memory, sizeof memory);
    return OCT_OK;
}

/* A unit that stays gathered has a window of its own; the others take turns. */
static void assign_windows(oct_fsdp *fsdp)
{
    const bool reshards = fsdp->options.reshard_after_forward;
    const int turns = fsdp->options.prefetch ? 2 : 1;
    int next = reshards ? turns : 0;
    for (int64_t u = 0; u < fsdp->options.unit_count; u++) {
        fsdp_unit *unit = &fsdp->units[u];
        unit->window = reshards && !unit->given.is_last ? (int)(u % turns) : next++;
    }
    fsdp->window_count = next;
}

static oct_status on_unit(void *arg, int64_t unit, oct_unit_event event, oct_err *err);
static oct_status open_grad(void *arg, const oct_param *param, oct_gemm_out *out, oct_err *err);
static oct_status close_grad(void *arg, const oct_param *param, oct_err *err);

static oct_status fill(oct_fsdp *fsdp, oct_err *err)
{
    const oct_fsdp_options *options = &fsdp->options;
    int64_t most = 0;
    fsdp->param_count = options->tree->param_count;
    OCT_TRY(new_array(fsdp, fsdp->param_count, sizeof *fsdp->params, &fsdp->params, err));
    OCT_TRY(new_array(fsdp, options->unit_count, sizeof *fsdp->units, &fsdp->units, err));
    for (int64_t p = 0; p < fsdp->param_count; p++)
        fsdp->params[p].param = options->tree->params[p];
    for (int64_t u = 0; u < options->unit_count; u++) {
        fsdp->units[u].given = options->units[u];
        most = oct_max_i64(most, options->units[u].count);
    }
    assign_windows(fsdp);
    OCT_TRY(new_array(fsdp, fsdp->window_count, sizeof *fsdp->windows, &fsdp->windows, err));
    for (int64_t w = 0; w < fsdp->window_count; w++) {
        fsdp->windows[w].unit = NO_WINDOW;
        oct_arena_init(&fsdp->windows[w].tensors, "gathered weights");
        oct_arena_attach(&fsdp->windows[w].tensors, options->ledger, OCT_LEDGER_UNSHARDED);
    }
    return new_array(fsdp, most * OCT_FSDP_MAX_TENSORS, sizeof *fsdp->parts, &fsdp->parts, err);
}

oct_status oct_fsdp_create(const oct_fsdp_options *options, oct_fsdp **out, oct_err *err)
{
    oct_fsdp *fsdp = calloc(1, sizeof *fsdp);
    if (!fsdp)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot set up sharding: out of memory");
    fsdp->options = *options;
    fsdp->hooks = (oct_unit_hooks){
        .on_unit = on_unit, .open_grad = open_grad, .close_grad = close_grad, .arg = fsdp};
    oct_arena_init(&fsdp->memory, "sharding");
    const oct_status status = fill(fsdp, err);
    fsdp->options.units = NULL; /* the caller's; copied */
    if (status == OCT_OK)
        *out = fsdp;
    else
        oct_fsdp_destroy(fsdp);
    return status;
}

void oct_fsdp_destroy(oct_fsdp *fsdp)
{
    if (!fsdp)
        return;
    oct_fsdp_settle(fsdp);
    for (int64_t w = 0; w < fsdp->window_count && fsdp->windows; w++)
        oct_arena_release(&fsdp->windows[w].tensors);
    oct_ledger_free(fsdp->options.ledger, fsdp->staging);
    oct_arena_release(&fsdp->memory);
    free(fsdp);
}

static fsdp_param *find(const oct_fsdp *fsdp, const oct_param *param)
{
    for (int64_t p = 0; p < fsdp->param_count; p++)
        if (fsdp->params[p].param == param)
            return &fsdp->params[p];
    return NULL;
}

oct_status oct_fsdp_extend(oct_fsdp *fsdp, oct_param *param, const oct_fsdp_extension *extension,
                           void *self, oct_err *err)
{
    fsdp_param *p = find(fsdp, param);
    if (!extension->pre_all_gather || !extension->post_all_gather)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot shard '%s': its extension has no %s, pre_all_gather and "
                        "post_all_gather are required",
                        param->fqn,
                        extension->pre_all_gather ? "post_all_gather" : "pre_all_gather");
    if (!p || param->replicated || p->extension || fsdp->is_sealed)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot extend the sharding of '%s': it is %s, a sharded parameter without "
                        "extension is required before the shards are taken over",
                        param->fqn,
                        !p                  ? "unknown"
                        : param->replicated ? "replicated"
                        : p->extension      ? "extended already"
                                            : "taken over already");
    p->extension = extension;
    p->self = self;
    return OCT_OK;
}

/* --- what travels ---------------------------------------------------------------------------- */

static bool reshards(const oct_fsdp *fsdp, const fsdp_unit *unit)
{
    return fsdp->options.reshard_after_forward && !unit->given.is_last;
}

/* The physical tensors of this rank's shard for one phase. */
static oct_status collect(const oct_fsdp *fsdp, fsdp_param *p, const fsdp_unit *unit,
                          oct_fsdp_phase phase, oct_fsdp_tensors *out, oct_err *err)
{
    *out = (oct_fsdp_tensors){0};
    p->metadata.bytes = 0;
    if (!p->extension) {
        *out = (oct_fsdp_tensors){.count = 1, .names = {"value"}, .tensors = {p->shard}};
        return OCT_OK;
    }
    const oct_fsdp_context context = {
        .phase = phase, .reshard_after_forward = reshards(fsdp, unit), .param_fqn = p->param->fqn};
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
    OCT_TRY(collect(fsdp, p, unit, phase, &tensors, err));
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
        OCT_TRY(new_array(fsdp, ranks, sizeof *bytes, &bytes, err));
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
    OCT_TRY(new_array(fsdp, ranks, sizeof *counts, &counts, err));
    for (int r = 0; r < ranks; r++)
        counts[r] = p->param->replicated ? numel * (r + 1) / ranks - numel * r / ranks
                                         : records[r * stride].rows * row;
    size_t *bytes = NULL;
    if (p->param->replicated)
        OCT_TRY(new_array(fsdp, ranks, sizeof *bytes, &bytes, err));
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
    const int64_t count = unit->given.count, stride = count * PHASES;
    size_t bytes = (size_t)stride * sizeof *own;
    oct_status status = OCT_OK;
    fsdp_param *params = &fsdp->params[unit->given.first];
    for (int64_t i = 0; status == OCT_OK && i < stride; i++)
        status = make_record(fsdp, &params[i / PHASES], unit, (oct_fsdp_phase)(i % PHASES), &own[i],
                             err);
    OCT_TRY(oct_comm_agree(comm, status, err));
    size_t *each = NULL;
    OCT_TRY(new_array(fsdp, oct_comm_size(comm), sizeof *each, &each, err));
    for (int r = 0; r < oct_comm_size(comm); r++)
        each[r] = bytes;
    OCT_TRY(oct_comm_all_gather(comm, own, each, all, err));
    for (int64_t i = 0; i < stride; i++) {
        fsdp_param *p = &params[i / PHASES];
        OCT_TRY(compare(fsdp, p, &all[i], stride, err));
        OCT_TRY(plan_traffic(fsdp, &p->traffic[i % PHASES], &all[i], stride, err));
        if (i % PHASES == 0)
            OCT_TRY(plan_gradient(fsdp, p, &all[i], stride, err));
    }
    return OCT_OK;
}

/* value becomes the form that products read: the whole shape, no data outside the window. */
static oct_status take_over(oct_fsdp *fsdp, oct_err *err)
{
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < fsdp->param_count && status == OCT_OK; i++) {
        fsdp_param *p = &fsdp->params[i];
        oct_param *param = p->param;
        if (param->replicated)
            continue;
        if (!p->extension && !param->value.data && param->rows > 0)
            status = OCT_FAIL(err, OCT_E_API,
                              "cannot shard '%s': it has neither a value nor an extension, one of "
                              "them is required",
                              param->fqn);
        p->shard = param->value;
        p->shard.shape[0] = param->rows;
        param->value.data = NULL;
        param->value.shape[0] = param->shape[0];
        param->storage = NULL;
    }
    return status;
}

static oct_status make_staging(oct_fsdp *fsdp, oct_err *err)
{
    int64_t most = 0;
    for (int64_t i = 0; i < fsdp->param_count; i++)
        most = oct_max_i64(most, oct_param_numel(fsdp->params[i].param));
    return oct_ledger_alloc(fsdp->options.ledger, OCT_LEDGER_STAGING,
                            (size_t)most * oct_dtype_bytes(fsdp->options.reduce_dtype),
                            "gradient staging", &fsdp->staging, err);
}

static oct_status plan_units(oct_fsdp *fsdp, oct_err *err)
{
    int64_t most = 0;
    for (int64_t u = 0; u < fsdp->options.unit_count; u++)
        most = oct_max_i64(most, fsdp->units[u].given.count);
    const size_t bytes = (size_t)(most * PHASES) * sizeof(record);
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

oct_status oct_fsdp_seal(oct_fsdp *fsdp, oct_err *err)
{
    oct_comm_phase(fsdp->options.comm, "comparing shards", NULL);
    oct_status status = take_over(fsdp, err);
    if (status == OCT_OK)
        status = make_staging(fsdp, err);
    OCT_TRY(oct_comm_agree(fsdp->options.comm, status, err));
    OCT_TRY(plan_units(fsdp, err));
    fsdp->is_sealed = true;
    return OCT_OK;
}

/* --- gather and release ---------------------------------------------------------------------- */

/* A tensor that is not what the ranks compared would be put together from the wrong bytes. */
static oct_status check_shard(const fsdp_param *p, const traffic *planned,
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

/* Gives every output its memory in the window and adds what has to travel. */
static oct_status prepare(oct_fsdp *fsdp, fsdp_param *p, const fsdp_unit *unit,
                          oct_fsdp_phase phase, int64_t *part_count, oct_err *err)
{
    oct_fsdp_tensors tensors;
    const traffic *planned = &p->traffic[phase];
    OCT_TRY(collect(fsdp, p, unit, phase, &tensors, err));
    OCT_TRY(check_shard(p, planned, &tensors, err));
    p->outputs = tensors;
    for (int i = 0; i < tensors.count; i++) {
        const flow *f = &planned->flows[i];
        oct_tensor *output = &p->outputs.tensors[i];
        OCT_TRY(oct_arena_alloc(&fsdp->windows[unit->window].tensors, f->total_bytes, &output->data,
                                err));
        output->shape[0] = f->total_rows;
        fsdp->parts[(*part_count)++] = (oct_comm_part){
            .send = tensors.tensors[i].data, .bytes = f->bytes, .recv = output->data};
    }
    return OCT_OK;
}

static void trace_gather(const oct_fsdp *fsdp, const fsdp_param *p, oct_fsdp_phase phase)
{
    const oct_param *param = p->param;
    oct_trace_tensor physical[OCT_FSDP_MAX_TENSORS];
    oct_trace_event event = {.kind = OCT_TRACE_GATHER,
                             .fqn = param->fqn,
                             .phase = oct_fsdp_phase_name(phase),
                             .dtype = oct_dtype_name(p->outputs.tensors[0].dtype),
                             .grouped = param->ndim == 3,
                             .physical = physical,
                             .physical_count = p->outputs.count,
                             .ndim = {param->ndim}};
    memcpy(event.shape[0], param->shape, sizeof param->shape);
    for (int i = 0; i < p->outputs.count; i++) {
        const oct_tensor *whole = &p->outputs.tensors[i];
        const bool has_values = p->extension && whole->dtype == OCT_DTYPE_F32;
        event.tensors[i] = p->outputs.names[i];
        physical[i] = (oct_trace_tensor){
            .name = p->outputs.names[i],
            .dtype = oct_dtype_name(whole->dtype),
            .ndim = whole->ndim,
            .shard = p->traffic[phase].flows[i].shard.shape,
            .whole = whole->shape,
            .values = has_values ? whole->data : NULL,
            .value_count = has_values ? oct_tensor_numel(whole) : 0,
        };
    }
    oct_trace_emit(fsdp->options.trace, &event);
}

static oct_status finish(oct_fsdp *fsdp, fsdp_param *p, oct_fsdp_phase phase, oct_err *err)
{
    oct_param *param = p->param;
    if (p->extension) {
        OCT_TRY(
            p->extension->post_all_gather(p->self, &p->outputs, &p->metadata, &p->logical, err));
        param->storage = p->logical;
    } else {
        param->value.data = p->outputs.tensors[0].data;
    }
    trace_gather(fsdp, p, phase);
    return OCT_OK;
}

static void release(oct_fsdp *fsdp, int64_t u)
{
    fsdp_unit *unit = &fsdp->units[u];
    if (!unit->is_gathered)
        return;
    for (int64_t i = 0; i < unit->given.count; i++) {
        oct_param *param = fsdp->params[unit->given.first + i].param;
        if (param->replicated)
            continue;
        param->value.data = NULL;
        param->storage = NULL;
    }
    window *w = &fsdp->windows[unit->window];
    oct_arena_reset(&w->tensors);
    w->unit = NO_WINDOW;
    unit->is_gathered = false;
}

static oct_status gather(oct_fsdp *fsdp, int64_t u, oct_fsdp_phase phase, oct_err *err)
{
    fsdp_unit *unit = &fsdp->units[u];
    window *w = &fsdp->windows[unit->window];
    if (w->unit != NO_WINDOW)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot gather '%s': '%s' is still gathered, it must be released before",
                        unit->given.name, fsdp->units[w->unit].given.name);
    const oct_span span = oct_profile_begin(fsdp->options.profile, OCT_PART_ALL_GATHER);
    fsdp_param *params = &fsdp->params[unit->given.first];
    int64_t part_count = 0;
    w->unit = u;
    unit->is_gathered = true;
    unit->has_all = phase == OCT_FSDP_BACKWARD || !reshards(fsdp, unit);
    for (int64_t i = 0; i < unit->given.count; i++)
        if (!params[i].param->replicated)
            OCT_TRY(prepare(fsdp, &params[i], unit, phase, &part_count, err));
    if (oct_fault("fsdp.gather"))
        return OCT_FAIL(err, OCT_E_COMM, "the all-gather failed: a fault is planted");
    OCT_TRY(oct_comm_all_gather_many(fsdp->options.comm, fsdp->parts, part_count, err));
    for (int64_t i = 0; i < unit->given.count; i++)
        if (!params[i].param->replicated)
            OCT_TRY(finish(fsdp, &params[i], phase, err));
    oct_profile_end(fsdp->options.profile, span);
    return OCT_OK;
}

/* Gathers unless what the phase needs is there already. */
static oct_status need(oct_fsdp *fsdp, int64_t u, oct_fsdp_phase phase, oct_err *err)
{
    const fsdp_unit *unit = &fsdp->units[u];
    if (unit->is_gathered && (phase == OCT_FSDP_FORWARD || unit->has_all))
        return OCT_OK;
    release(fsdp, u);
    const oct_status status = gather(fsdp, u, phase, err);
    return status == OCT_OK ? status
                            : OCT_WRAP(err, status, "gathering '%s' for its %s pass",
                                       unit->given.name, oct_fsdp_phase_name(phase));
}

static oct_status before_forward(oct_fsdp *fsdp, int64_t u, oct_err *err)
{
    OCT_TRY(need(fsdp, u, OCT_FSDP_FORWARD, err));
    const bool has_next = fsdp->options.prefetch && u + 1 < fsdp->options.unit_count;
    return has_next ? need(fsdp, u + 1, OCT_FSDP_FORWARD, err) : OCT_OK;
}

static oct_status before_backward(oct_fsdp *fsdp, int64_t u, oct_err *err)
{
    if (fsdp->units[u].given.backward_reads)
        OCT_TRY(need(fsdp, u, OCT_FSDP_BACKWARD, err));
    const bool has_next =
        fsdp->options.prefetch && u > 0 && fsdp->units[u - 1].given.backward_reads;
    return has_next ? need(fsdp, u - 1, OCT_FSDP_BACKWARD, err) : OCT_OK;
}

static oct_status on_unit(void *arg, int64_t u, oct_unit_event event, oct_err *err)
{
    oct_fsdp *fsdp = arg;
    const fsdp_unit *unit = &fsdp->units[u];
    switch (event) {
    case OCT_UNIT_PRE_FORWARD:
        oct_comm_phase(fsdp->options.comm, "forward", unit->given.name);
        return before_forward(fsdp, u, err);
    case OCT_UNIT_POST_FORWARD:
        if (reshards(fsdp, unit))
            release(fsdp, u);
        return OCT_OK;
    case OCT_UNIT_PRE_BACKWARD:
        oct_comm_phase(fsdp->options.comm, "backward", unit->given.name);
        return before_backward(fsdp, u, err);
    case OCT_UNIT_POST_BACKWARD:
        release(fsdp, u);
        return OCT_OK;
    }
    return OCT_OK;
}

const oct_unit_hooks *oct_fsdp_hooks(oct_fsdp *fsdp)
{
    return &fsdp->hooks;
}

void oct_fsdp_settle(oct_fsdp *fsdp)
{
    for (int64_t u = 0; fsdp->units && u < fsdp->options.unit_count; u++)
        release(fsdp, u);
    fsdp->open = NULL;
}

bool oct_fsdp_is_gathered(const oct_fsdp *fsdp, int64_t unit)
{
    return fsdp->units[unit].is_gathered;
}

int64_t oct_fsdp_gathered_bytes(const oct_fsdp *fsdp)
{
    size_t bytes = 0;
    for (int64_t w = 0; w < fsdp->window_count; w++)
        bytes += fsdp->windows[w].tensors.used_bytes;
    return (int64_t)bytes;
}

int64_t oct_fsdp_peak_bytes(const oct_fsdp *fsdp)
{
    size_t bytes = 0;
    for (int64_t w = 0; w < fsdp->window_count; w++)
        bytes += fsdp->windows[w].tensors.peak_bytes;
    return (int64_t)bytes;
}

/* --- gradients ------------------------------------------------------------------------------- */

static oct_status open_grad(void *arg, const oct_param *param, oct_gemm_out *out, oct_err *err)
{
    oct_fsdp *fsdp = arg;
    if (fsdp->open)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot stage the gradient of '%s': that of '%s' is not closed, one at a "
                        "time is required",
                        param->fqn, fsdp->open->fqn);
    fsdp->open = param;
    *out = (oct_gemm_out){.data = fsdp->staging,
                          .ld = oct_param_cols(param),
                          .dtype = fsdp->options.reduce_dtype,
                          .store = OCT_GEMM_STORE};
    return OCT_OK;
}

static oct_status close_grad(void *arg, const oct_param *param, oct_err *err)
{
    oct_fsdp *fsdp = arg;
    const fsdp_param *p = find(fsdp, param);
    if (!p || fsdp->open != param)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot reduce the gradient of '%s': it is not open, it is required to be",
                        param->fqn);
    const oct_span span = oct_profile_begin(fsdp->options.profile, OCT_PART_REDUCE_SCATTER);
    const oct_status status =
        oct_fault("fsdp.reduce")
            ? OCT_FAIL(err, OCT_E_COMM, "the reduce-scatter failed: a fault is planted")
            : oct_comm_fold(fsdp->options.comm, fsdp->options.reduce_dtype, fsdp->staging,
                            p->counts, param->grad + p->own_begin, param->grad_started, err);
    if (status != OCT_OK)
        return OCT_WRAP(err, status, "reducing the gradient of '%s'", param->fqn);
    fsdp->open = NULL;
    oct_profile_end(fsdp->options.profile, span);
    oct_trace_event event = {.kind = OCT_TRACE_REDUCE,
                             .fqn = param->fqn,
                             .dtype = oct_dtype_name(fsdp->options.reduce_dtype),
                             .store = param->grad_started ? "fold" : "store",
                             .ndim = {param->ndim}};
    memcpy(event.shape[0], param->shape, sizeof param->shape);
    oct_trace_emit(fsdp->options.trace, &event);
    return OCT_OK;
}

static oct_status share_gradient(const oct_fsdp *fsdp, const fsdp_param *p, oct_err *err)
{
    return oct_comm_all_gather(fsdp->options.comm, p->param->grad + p->own_begin, p->sum_bytes,
                               p->param->grad, err);
}

oct_status oct_fsdp_finish_gradients(oct_fsdp *fsdp, oct_err *err)
{
    const oct_span span = oct_profile_begin(fsdp->options.profile, OCT_PART_REDUCE_SCATTER);
    for (int64_t i = 0; i < fsdp->param_count; i++)
        if (fsdp->params[i].param->replicated)
            OCT_TRY(share_gradient(fsdp, &fsdp->params[i], err));
    oct_profile_end(fsdp->options.profile, span);
    return OCT_OK;
}
