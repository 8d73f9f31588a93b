/* Windows of gathered weights, gradients that are reduced one at a time. */
#include "fsdp/fsdp.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/size.h"
#include "fsdp/state.h"

const char *oct_fsdp_phase_name(oct_fsdp_phase phase)
{
    return phase == OCT_FSDP_FORWARD ? "forward" : "backward";
}

/* --- life ------------------------------------------------------------------------------------ */

oct_status oct_fsdp_array(oct_fsdp *fsdp, int64_t count, size_t size, void *out, oct_err *err)
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
    OCT_TRY(oct_fsdp_array(fsdp, fsdp->param_count, sizeof *fsdp->params, &fsdp->params, err));
    OCT_TRY(oct_fsdp_array(fsdp, options->unit_count, sizeof *fsdp->units, &fsdp->units, err));
    for (int64_t p = 0; p < fsdp->param_count; p++)
        fsdp->params[p].param = options->tree->params[p];
    for (int64_t u = 0; u < options->unit_count; u++) {
        fsdp->units[u].given = options->units[u];
        most = oct_max_i64(most, options->units[u].count);
    }
    assign_windows(fsdp);
    OCT_TRY(oct_fsdp_array(fsdp, fsdp->window_count, sizeof *fsdp->windows, &fsdp->windows, err));
    for (int64_t w = 0; w < fsdp->window_count; w++) {
        fsdp->windows[w].unit = OCT_FSDP_NO_WINDOW;
        oct_arena_init(&fsdp->windows[w].tensors, "gathered weights");
        oct_arena_attach(&fsdp->windows[w].tensors, options->ledger, OCT_LEDGER_UNSHARDED);
    }
    return oct_fsdp_array(fsdp, most * OCT_FSDP_MAX_TENSORS, sizeof *fsdp->parts, &fsdp->parts,
                          err);
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

/* --- taking over the shards ------------------------------------------------------------------- */

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

oct_status oct_fsdp_seal(oct_fsdp *fsdp, oct_err *err)
{
    oct_comm_phase(fsdp->options.comm, "comparing shards", NULL);
    oct_status status = take_over(fsdp, err);
    if (status == OCT_OK)
        status = make_staging(fsdp, err);
    OCT_TRY(oct_comm_agree(fsdp->options.comm, status, err));
    OCT_TRY(oct_fsdp_plan(fsdp, err));
    fsdp->is_sealed = true;
    return OCT_OK;
}

/* --- gather and release ---------------------------------------------------------------------- */

/* Gives every output its memory in the window and adds what has to travel. */
static oct_status prepare(oct_fsdp *fsdp, fsdp_param *p, const fsdp_unit *unit,
                          oct_fsdp_phase phase, int64_t *part_count, oct_err *err)
{
    oct_fsdp_tensors tensors;
    const traffic *planned = &p->traffic[phase];
    OCT_TRY(oct_fsdp_collect(fsdp, p, unit, phase, &tensors, err));
    OCT_TRY(oct_fsdp_check_shard(p, planned, &tensors, err));
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
    w->unit = OCT_FSDP_NO_WINDOW;
    unit->is_gathered = false;
}

static oct_status gather(oct_fsdp *fsdp, int64_t u, oct_fsdp_phase phase, oct_err *err)
{
    fsdp_unit *unit = &fsdp->units[u];
    window *w = &fsdp->windows[unit->window];
    if (w->unit != OCT_FSDP_NO_WINDOW)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot gather '%s': '%s' is still gathered, it must be released before",
                        unit->given.name, fsdp->units[w->unit].given.name);
    const oct_span span = oct_profile_begin(fsdp->options.profile, OCT_PART_ALL_GATHER);
    fsdp_param *params = &fsdp->params[unit->given.first];
    int64_t part_count = 0;
    w->unit = u;
    unit->is_gathered = true;
    unit->has_all = phase == OCT_FSDP_BACKWARD || !oct_fsdp_reshards(fsdp, unit);
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
        if (oct_fsdp_reshards(fsdp, unit))
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
