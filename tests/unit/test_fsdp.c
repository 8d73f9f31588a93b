/* Units gathered and released, gradients folded: a small module tree on ranks that are threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "fsdp/fsdp.h"
#include "fsdp/shard.h"
#include "heap_calls.h"
#include "numeric/bf16.h"
#include "rank_threads.h"

/* --- the tree --------------------------------------------------------------------------------- */

enum { UNITS = 5, PARAMS = 12, WIDE = 5, MAX_LOG = 64 };

typedef struct layout_row {
    const char *name;
    int unit, ndim;
    int64_t shape[3];
    enum { PLAIN, REPLICATED, EXTENDED } kind;
} layout_row;

/* Rows of dim 0 that no number of ranks divides, less tiles than ranks, one parameter that is
 * everywhere, and one in each unit that computes in several tensors. */
static const layout_row layout[PARAMS] = {
    {"embed", 0, 2, {130, 6, 0}, PLAIN},    {"embed_x", 0, 2, {64, 1, 0}, EXTENDED},
    {"l0_norm", 1, 1, {6, 0, 0}, PLAIN},    {"l0_w", 1, 2, {200, 5, 0}, PLAIN},
    {"l0_experts", 1, 3, {3, 4, 5}, PLAIN}, {"l0_copy", 1, 2, {23, 1, 0}, REPLICATED},
    {"l0_x", 1, 2, {192, 4, 0}, EXTENDED},  {"l1_norm", 2, 1, {100, 0, 0}, PLAIN},
    {"l1_x", 2, 2, {320, 4, 0}, EXTENDED},  {"l2_x", 3, 2, {70, 4, 0}, EXTENDED},
    {"head_w", 4, 2, {70, 6, 0}, PLAIN},    {"head_x", 4, 3, {4, 3, 3}, EXTENDED},
};
static const int64_t first_of_unit[UNITS + 1] = {0, 2, 7, 9, 10, 12};
static const char *const unit_names[UNITS] = {"embed", "l0", "l1", "l2", "head"};

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

typedef struct world world;

/* What a rank's extension does wrong. */
typedef enum fault_kind {
    NO_FAULT,
    FAILS,
    OTHER_COUNT,
    OTHER_ORDER,
    OTHER_DTYPE,
    OTHER_NDIM,
    OTHER_SHAPE,
    NO_TENSOR,
    TOO_MANY,
    SCALAR,
    POST_FAILS
} fault_kind;

/* A tensor that computes in several others: the `self` of the fake extension. */
typedef struct fake {
    world *w;
    int param;
    fault_kind fault;
    int fault_phase; /* -1: both */
    int pre_calls, post_calls, problems;
    oct_fsdp_context context; /* of the last pre */
    oct_fsdp_metadata sent;   /* by the last pre */
    oct_weight_storage *logical;
    unsigned char codes[320 * 4];
    uint16_t pairs[5 * 6 + 1];
    float scale;
} fake;

struct world {
    oct_comm *comm;
    oct_module_tree tree;
    oct_fsdp_unit units[UNITS];
    oct_fsdp *fsdp;
    oct_dtype dtype;
    oct_ledger ledger;
    oct_trace trace;
    oct_fsdp_options options;
    void *values[PARAMS]; /* the shards */
    fake fakes[PARAMS];
    char log[MAX_LOG * 8];
    int gather_events, reduce_events, event_problems;
};

/* --- the extension ---------------------------------------------------------------------------- */

static unsigned char code_at(int param, int64_t row, int64_t col)
{
    return (unsigned char)mix((uint32_t)(param * 100000 + row * 10 + col));
}

static uint16_t pair_at(int param, int64_t tile, int64_t i)
{
    return (uint16_t)mix((uint32_t)(param * 1000 + tile * 6 + i + 77));
}

static float scale_of(int param, int rank)
{
    return (float)(param * 10 + rank) + 0.25f;
}

static int64_t tiles_of(int64_t rows)
{
    return (rows + 63) / 64;
}

static const layout_row *row_of(const fake *f)
{
    return &layout[f->param];
}

/* Codes as the parameter is, one scale per rank, and in a backward pass one [3, 2] per tile. */
static oct_status fake_pre(void *self, const oct_fsdp_context *context, oct_fsdp_tensors *tensors,
                           oct_fsdp_metadata *metadata, oct_err *err)
{
    fake *f = self;
    const oct_param *param = f->w->tree.params[f->param];
    f->pre_calls++;
    f->context = *context;
    f->problems += strcmp(context->param_fqn, param->fqn) != 0;
    const size_t length = strlen(f->w->log);
    (void)snprintf(f->w->log + length, sizeof f->w->log - length, "%s%c%d%c", length ? " " : "",
                   context->phase == OCT_FSDP_FORWARD ? 'f' : 'b', row_of(f)->unit,
                   context->reshard_after_forward ? 't' : 'f');
    const bool wrong = f->fault_phase < 0 || f->fault_phase == (int)context->phase;
    const fault_kind fault = wrong ? f->fault : NO_FAULT;
    if (fault == FAILS)
        return OCT_FAIL(err, OCT_E_NOMEM, "no room for '%s'", context->param_fqn);
    metadata->bytes = 11 + (size_t)f->pre_calls % 40;
    for (size_t i = 0; i < metadata->bytes; i++)
        metadata->data[i] = (unsigned char)mix((uint32_t)(f->pre_calls * 1000 + (int)i + f->param));
    f->sent = *metadata;
    oct_tensor codes = {
        .data = f->codes, .dtype = OCT_DTYPE_U8, .ndim = param->ndim, .shape = {param->rows}};
    for (int d = 1; d < param->ndim; d++)
        codes.shape[d] = param->shape[d];
    const oct_tensor scale = {.data = &f->scale, .dtype = OCT_DTYPE_F32, .ndim = 1, .shape = {1}};
    const oct_tensor pairs = {.data = f->pairs,
                              .dtype = OCT_DTYPE_BF16,
                              .ndim = 3,
                              .shape = {tiles_of(param->rows), 3, 2}};
    *tensors = (oct_fsdp_tensors){.count = context->phase == OCT_FSDP_FORWARD ? 2 : 3,
                                  .names = {"codes", "scale", "pairs"},
                                  .tensors = {codes, scale, pairs}};
    switch (fault) {
    case OTHER_COUNT:
        tensors->count = 5 - tensors->count;
        break;
    case OTHER_ORDER:
        tensors->names[0] = "scale";
        tensors->names[1] = "codes";
        break;
    case OTHER_DTYPE:
        tensors->tensors[0].dtype = OCT_DTYPE_E4M3;
        break;
    case OTHER_NDIM:
        tensors->tensors[0].ndim++;
        tensors->tensors[0].shape[param->ndim] = 1;
        break;
    case OTHER_SHAPE:
        tensors->tensors[0].shape[1]++;
        break;
    case NO_TENSOR:
        tensors->count = 0;
        break;
    case TOO_MANY:
        tensors->count = OCT_FSDP_MAX_TENSORS + 1;
        break;
    case SCALAR:
        tensors->tensors[1].ndim = 0;
        break;
    default:
        break;
    }
    return OCT_OK;
}

/* How many of the gathered values are not those of all ranks one after another. */
static int wrong_outputs(const fake *f, const oct_fsdp_tensors *outputs)
{
    const layout_row *row = row_of(f);
    const int ranks = oct_comm_size(f->w->comm);
    const int64_t inner = row->ndim == 3 ? row->shape[1] * row->shape[2] : row->shape[1];
    const bool backward = f->context.phase == OCT_FSDP_BACKWARD;
    int wrong = outputs->count != (backward ? 3 : 2);
    static const char *const names[] = {"codes", "scale", "pairs"};
    static const oct_dtype dtypes[] = {OCT_DTYPE_U8, OCT_DTYPE_F32, OCT_DTYPE_BF16};
    for (int i = 0; i < outputs->count && i < 3; i++)
        wrong += strcmp(outputs->names[i], names[i]) != 0 || outputs->tensors[i].dtype != dtypes[i];
    const oct_tensor *codes = &outputs->tensors[0];
    wrong += codes->ndim != row->ndim ||
             memcmp(codes->shape, row->shape, (size_t)row->ndim * sizeof row->shape[0]) != 0;
    for (int64_t i = 0; i < row->shape[0] * inner; i++)
        wrong += ((const unsigned char *)codes->data)[i] != code_at(f->param, i / inner, i % inner);
    wrong += outputs->tensors[1].ndim != 1 || outputs->tensors[1].shape[0] != ranks;
    for (int r = 0; r < ranks; r++)
        wrong += ((const float *)outputs->tensors[1].data)[r] != scale_of(f->param, r);
    if (!backward)
        return wrong;
    int64_t tile = 0;
    for (int r = 0; r < ranks; r++) {
        const int64_t rows = oct_shard_of(OCT_SHARD_TILE, row->ndim, row->shape, ranks, r).rows;
        for (int64_t t = 0; t < tiles_of(rows); t++, tile++)
            for (int64_t i = 0; i < 6; i++)
                wrong += ((const uint16_t *)outputs->tensors[2].data)[tile * 6 + i] !=
                         pair_at(f->param, t, i);
    }
    wrong += outputs->tensors[2].ndim != 3 || outputs->tensors[2].shape[0] != tile ||
             outputs->tensors[2].shape[1] != 3 || outputs->tensors[2].shape[2] != 2;
    return wrong;
}

static oct_status fake_post(void *self, const oct_fsdp_tensors *outputs,
                            const oct_fsdp_metadata *metadata, oct_weight_storage **logical,
                            oct_err *err)
{
    fake *f = self;
    f->post_calls++;
    if (f->fault == POST_FAILS)
        return OCT_FAIL(err, OCT_E_CORRUPT, "'%s' does not fit together", f->context.param_fqn);
    f->problems += metadata->bytes != f->sent.bytes ||
                   memcmp(metadata->data, f->sent.data, f->sent.bytes) != 0;
    f->problems += *logical != f->logical;
    f->problems += wrong_outputs(f, outputs);
    *logical = f->logical = (oct_weight_storage *)(void *)f; /* nobody looks into it */
    return OCT_OK;
}

static const oct_fsdp_extension fake_extension = {.pre_all_gather = fake_pre,
                                                  .post_all_gather = fake_post};

/* --- a world ---------------------------------------------------------------------------------- */

static size_t dtype_bytes(const world *w)
{
    return oct_dtype_bytes(w->dtype);
}

/* Bytes of element i of a plain parameter: any bits, NaN among them. */
static void value_bytes(const world *w, int param, int64_t i, unsigned char *out)
{
    const uint32_t bits = mix((uint32_t)(param * 65536) + (uint32_t)i);
    memcpy(out, &bits, dtype_bytes(w));
}

static void count_event(void *arg, const struct oct_trace *trace, const oct_trace_event *event)
{
    (void)trace;
    world *w = arg;
    if (event->kind == OCT_TRACE_REDUCE) {
        w->reduce_events++;
        w->event_problems += strcmp(event->dtype, oct_dtype_name(w->options.reduce_dtype)) != 0;
        return;
    }
    w->gather_events += event->kind == OCT_TRACE_GATHER;
    const bool extended = strstr(event->fqn, "_x.") != NULL;
    const bool backward = strcmp(event->phase, "backward") == 0;
    w->event_problems += !backward && strcmp(event->phase, "forward") != 0;
    w->event_problems += strcmp(event->tensors[0], extended ? "codes" : "value") != 0;
    w->event_problems += (event->tensors[2] != NULL) != (extended && backward);
}

static oct_status add_param(world *w, oct_module *root, int i, oct_err *err)
{
    static const oct_module_type type = {.name = "fake"};
    const layout_row *row = &layout[i];
    oct_module *module = NULL;
    oct_param *param = NULL;
    OCT_TRY(oct_module_add(&w->tree, root, row->name, &type, 0, &module, err));
    OCT_TRY(oct_module_add_param(&w->tree, module, "w", row->ndim, row->shape, &param, err));
    const oct_sharding sharding = {
        .rule = OCT_SHARD_TILE, .ranks = oct_comm_size(w->comm), .fallback_to_unsharded = false};
    param->replicated = row->kind == REPLICATED;
    const oct_shard shard =
        oct_shard_of_param(&sharding, param, param->replicated, oct_comm_rank(w->comm));
    param->row_begin = shard.row_begin;
    param->rows = shard.rows;
    param->grad = calloc((size_t)oct_param_own_numel(param) + 1, sizeof(float));
    const int64_t own = oct_param_own_numel(param), row_numel = oct_param_row_numel(param);
    if (row->kind != EXTENDED) {
        unsigned char *value = calloc((size_t)own + 1, dtype_bytes(w));
        for (int64_t j = 0; j < own; j++)
            value_bytes(w, i, shard.row_begin * row_numel + j, value + (size_t)j * dtype_bytes(w));
        w->values[i] = value;
        param->value = (oct_tensor){.data = own > 0 ? value : NULL,
                                    .dtype = w->dtype,
                                    .ndim = row->ndim,
                                    .shape = {shard.rows}};
        for (int d = 1; d < row->ndim; d++)
            param->value.shape[d] = row->shape[d];
    }
    fake *f = &w->fakes[i];
    *f = (fake){.w = w, .param = i, .scale = scale_of(i, oct_comm_rank(w->comm))};
    if (row->kind == EXTENDED) {
        for (int64_t j = 0; j < own; j++)
            f->codes[j] = code_at(i, shard.row_begin + j / row_numel, j % row_numel);
        for (int64_t t = 0; t < tiles_of(shard.rows) * 6; t++)
            f->pairs[t] = pair_at(i, t / 6, t % 6);
    }
    return OCT_OK;
}

static oct_status world_build(world *w, oct_err *err)
{
    oct_module *root = NULL;
    static const oct_module_type type = {.name = "fake"};
    OCT_TRY(oct_module_add(&w->tree, NULL, "m", &type, PARAMS, &root, err));
    for (int i = 0; i < PARAMS; i++)
        OCT_TRY(add_param(w, root, i, err));
    OCT_TRY(oct_fsdp_create(&w->options, &w->fsdp, err));
    for (int i = 0; i < PARAMS; i++)
        if (layout[i].kind == EXTENDED)
            OCT_TRY(
                oct_fsdp_extend(w->fsdp, w->tree.params[i], &fake_extension, &w->fakes[i], err));
    return OCT_OK;
}

/* Not sealed yet. */
static world *world_new(oct_comm *comm, oct_dtype dtype, bool reshard, bool prefetch, bool tied)
{
    world *w = calloc(1, sizeof *w);
    oct_err err = {0};
    w->comm = comm;
    w->dtype = dtype;
    w->trace = (oct_trace){.sink = count_event, .sink_arg = w};
    for (int u = 0; u < UNITS; u++)
        w->units[u] = (oct_fsdp_unit){.name = unit_names[u],
                                      .first = first_of_unit[u],
                                      .count = first_of_unit[u + 1] - first_of_unit[u],
                                      .backward_reads = u > 0 || tied,
                                      .is_last = u == UNITS - 1 || (u == 0 && tied)};
    w->options = (oct_fsdp_options){.comm = comm,
                                    .tree = &w->tree,
                                    .units = w->units,
                                    .unit_count = UNITS,
                                    .reshard_after_forward = reshard,
                                    .prefetch = prefetch,
                                    .reduce_dtype = OCT_DTYPE_F32,
                                    .trace = &w->trace,
                                    .ledger = &w->ledger};
    oct_module_tree_init(&w->tree);
    if (world_build(w, &err) != OCT_OK) {
        fprintf(stderr, "no world: %s\n", err.msg);
        abort();
    }
    return w;
}

static void world_free(world *w)
{
    oct_fsdp_destroy(w->fsdp);
    for (int i = 0; i < PARAMS; i++) {
        free(w->tree.params[i]->grad);
        w->tree.params[i]->grad = NULL;
        free(w->values[i]);
    }
    oct_module_tree_release(&w->tree);
    free(w);
}

static fake *fake_of(world *w, const char *name)
{
    for (int i = 0; i < PARAMS; i++)
        if (strcmp(layout[i].name, name) == 0)
            return &w->fakes[i];
    abort();
}

static oct_param *param_of(world *w, const char *name)
{
    return w->tree.params[fake_of(w, name)->param];
}

/* --- what is there ---------------------------------------------------------------------------- */

static int wrong_values(const world *w, int i)
{
    const oct_param *param = w->tree.params[i];
    int wrong = 0;
    unsigned char expected[8];
    for (int64_t j = 0; j < oct_param_numel(param); j++) {
        value_bytes(w, i, j, expected);
        wrong += memcmp((const unsigned char *)param->value.data + (size_t)j * dtype_bytes(w),
                        expected, dtype_bytes(w)) != 0;
    }
    return wrong;
}

/* Exactly the parameters of the gathered units are there, whole. Returns what does not hold. */
static int check_params(world *w, const char *gathered)
{
    int failures = 0;
    for (int i = 0; i < PARAMS; i++) {
        const oct_param *param = w->tree.params[i];
        const bool here = strchr(gathered, '0' + layout[i].unit) != NULL;
        if (layout[i].kind == REPLICATED) {
            EXPECT(w->comm, param->value.data == w->values[i] && !param->storage);
            continue;
        }
        const bool extended = layout[i].kind == EXTENDED;
        EXPECT(w->comm, (param->value.data != NULL) == (here && !extended));
        EXPECT(w->comm, (param->storage != NULL) == (here && extended));
        if (!here)
            continue;
        if (extended) {
            const fake *f = &w->fakes[i];
            EXPECT(w->comm, param->storage == f->logical);
            continue;
        }
        EXPECT(w->comm, param->value.ndim == param->ndim && param->value.dtype == w->dtype);
        EXPECT(w->comm, memcmp(param->value.shape, param->shape,
                               (size_t)param->ndim * sizeof param->shape[0]) == 0);
        EXPECT(w->comm, wrong_values(w, i) == 0);
    }
    return failures;
}

static int check_units(world *w, const char *gathered)
{
    int failures = 0;
    for (int u = 0; u < UNITS; u++)
        EXPECT(w->comm, oct_fsdp_is_gathered(w->fsdp, u) == (strchr(gathered, '0' + u) != NULL));
    EXPECT(w->comm, (oct_fsdp_gathered_bytes(w->fsdp) > 0) == (gathered[0] != '-'));
    if (failures)
        fprintf(stderr, "units '%s' were expected\n", gathered);
    return failures + check_params(w, gathered);
}

static int check_fakes(world *w)
{
    int failures = 0;
    for (int i = 0; i < PARAMS; i++) {
        EXPECT(w->comm, w->fakes[i].problems == 0);
        EXPECT(w->comm, (w->fakes[i].post_calls > 0) == (layout[i].kind == EXTENDED));
    }
    EXPECT(w->comm, w->event_problems == 0);
    return failures;
}

/* --- passes ----------------------------------------------------------------------------------- */

/* "F0" before the forward pass of unit 0, "f0" after it, "B0" and "b0" backward: in the order of
 * model/deepseek_v3/pass.c. A tied embedding is open from its lookup to the head's product. */
static const char *const order_untied = "F0f0F1f1F2f2F3f3F4f4B4b4B3b3B2b2B1b1B0b0";
static const char *const order_tied = "F0F1f1F2f2F3f3F4f4f0B0B4b4B3b3B2b2B1b1b0";

static oct_status play(world *w, const char *event, oct_err *err)
{
    static const char letters[] = "FfBb";
    const oct_unit_hooks *hooks = oct_fsdp_hooks(w->fsdp);
    return hooks->on_unit(hooks->arg, event[1] - '0',
                          (oct_unit_event)(strchr(letters, event[0]) - letters), err);
}

/* One pass; `moments`: which units are gathered after each event, a word each. */
static int play_checked(world *w, const char *order, const char *moments)
{
    int failures = 0;
    oct_err err;
    const char *word = moments;
    for (const char *event = order; *event; event += 2) {
        char gathered[UNITS + 1] = {0};
        (void)sscanf(word, "%5s", gathered);
        word += strlen(gathered) + (word[strlen(gathered)] == ' ');
        EXPECT_OK(w->comm, play(w, event, &err));
        failures += check_units(w, gathered);
        if (failures) {
            fprintf(stderr, "after %.2s\n", event);
            break;
        }
    }
    return failures;
}

/* A whole pass, up to the first failure. */
static oct_status play_all(world *w, const char *order, oct_err *err)
{
    for (const char *event = order; *event; event += 2)
        OCT_TRY(play(w, event, err));
    return OCT_OK;
}

typedef struct schedule {
    bool tied, reshard, prefetch;
    const char *moments;
    const char *contexts; /* of each gather: phase, unit, reshard_after_forward */
} schedule;

/* Counted by hand. */
static const schedule schedules[] = {
    {false, true, false, "0 - 1 - 2 - 3 - 4 4 4 - 3 - 2 - 1 - - -",
     "f0t f1t f2t f3t f4f b3t b2t b1t"},
    {false, true, true, "01 1 12 2 23 3 34 4 4 4 34 3 23 2 12 1 1 - - -",
     "f0t f1t f2t f3t f4f b3t b2t b1t"},
    {false, false, false,
     "0 0 01 01 012 012 0123 0123 01234 01234 01234 0123 0123 012 012 01 01 0 0 -",
     "f0f f1f f2f f3f f4f"},
    {false, false, true,
     "01 01 012 012 0123 0123 01234 01234 01234 01234 01234 0123 0123 012 012 01 01 0 0 -",
     "f0f f1f f2f f3f f4f"},
    {true, true, false, "0 01 0 02 0 03 0 04 04 04 04 04 0 03 0 02 0 01 0 -",
     "f0f f1t f2t f3t f4f b3t b2t b1t"},
    {true, true, true, "01 012 02 023 03 034 04 04 04 04 04 034 03 023 02 012 01 01 0 -",
     "f0f f1t f2t f3t f4f b3t b2t b1t"},
    {true, false, false,
     "0 01 01 012 012 0123 0123 01234 01234 01234 01234 01234 0123 0123 012 012 01 01 0 -",
     "f0f f1f f2f f3f f4f"},
    {true, false, true,
     "01 012 012 0123 0123 01234 01234 01234 01234 01234 01234 01234 0123 0123 012 012 01 01 0 -",
     "f0f f1f f2f f3f f4f"},
};

static int passes_as_scheduled(oct_comm *comm, void *arg)
{
    int failures = 0;
    oct_err err;
    const schedule *s = arg;
    const int last = s->prefetch ? OCT_DTYPE_BF16 : OCT_DTYPE_F32;
    for (int dtype = OCT_DTYPE_F32; dtype <= last; dtype++) {
        world *w = world_new(comm, (oct_dtype)dtype, s->reshard, s->prefetch, s->tied);
        EXPECT_OK(comm, oct_fsdp_seal(w->fsdp, &err));
        failures += check_units(w, "-");
        const char *order = s->tied ? order_tied : order_untied;
        for (int pass = 0; pass < 2 && !failures; pass++) {
            w->log[0] = '\0';
            failures += play_checked(w, order, s->moments);
            EXPECT(comm, strcmp(w->log, s->contexts) == 0);
            if (failures)
                fprintf(stderr, "contexts: %s\n", w->log);
        }
        failures += check_fakes(w);
        world_free(w);
    }
    return failures;
}

static void pass__every_policy__units_and_contexts_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        schedule s = schedules[i];
        run_ranks(3, NULL, passes_as_scheduled, &s);
    }
}

static void pass__every_number_of_ranks__gathers_the_whole(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 4, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int node_ranks = 0; node_ranks <= 2; node_ranks += 2) {
            const oct_comm_options options = {
                .piece_bytes = 256, .node_ranks = node_ranks, .timeout_seconds = 20.0};
            schedule s = schedules[1];
            run_ranks(sizes[i], &options, passes_as_scheduled, &s);
        }
}

/* An evaluation ends after the head; what stays gathered for a backward pass is settled. */
static int evaluates(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err;
    for (int reshard = 0; reshard <= 1; reshard++) {
        world *w = world_new(comm, OCT_DTYPE_F32, reshard, true, true);
        EXPECT_OK(comm, oct_fsdp_seal(w->fsdp, &err));
        for (int pass = 0; pass < 2; pass++) {
            EXPECT_OK(comm, play_all(w, "F0F1f1F2f2F3f3F4f4f0", &err));
            EXPECT(comm, oct_fsdp_gathered_bytes(w->fsdp) > 0);
            oct_fsdp_settle(w->fsdp);
            failures += check_units(w, "-");
        }
        EXPECT_OK(comm, play_all(w, order_tied, &err));
        failures += check_units(w, "-") + check_fakes(w);
        world_free(w);
    }
    return failures;
}

/* A unit that was gathered for a forward pass lacks what its backward pass reads. */
static int turns_back(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err;
    world *w = world_new(comm, OCT_DTYPE_F32, true, false, false);
    EXPECT_OK(comm, oct_fsdp_seal(w->fsdp, &err));
    w->log[0] = '\0';
    EXPECT_OK(comm, play_all(w, "F1F1B1", &err));
    EXPECT(comm, strcmp(w->log, "f1t b1t") == 0); /* once for the first two */
    failures += check_units(w, "1");
    EXPECT_OK(comm, play_all(w, "F1b1", &err)); /* a replay finds what it needs */
    EXPECT(comm, strcmp(w->log, "f1t b1t") == 0);
    failures += check_units(w, "-");
    EXPECT_OK(comm, play_all(w, "F0", &err)); /* units that take turns in one window */
    EXPECT_FAILS(comm, play_all(w, "F1", &err), OCT_E_API, "'embed' is still gathered");
    world_free(w);
    return failures;
}

static void gather__backward_after_forward_without_release__gathers_again(void **state)
{
    (void)state;
    run_ranks(2, NULL, turns_back, NULL);
}

static void settle__after_a_forward_pass_alone__nothing_stays(void **state)
{
    (void)state;
    run_ranks(3, NULL, evaluates, NULL);
}

/* --- memory ----------------------------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t window_bytes(const world *w, int unit, bool backward)
{
    size_t bytes = 0;
    for (int i = 0; i < PARAMS; i++) {
        const oct_param *param = w->tree.params[i];
        const size_t numel = (size_t)oct_param_numel(param);
        if (layout[i].unit != unit || layout[i].kind == REPLICATED)
            continue;
        if (layout[i].kind == PLAIN) {
            bytes += aligned(numel * dtype_bytes(w));
            continue;
        }
        int64_t tiles = 0;
        for (int r = 0; r < oct_comm_size(w->comm); r++)
            tiles += tiles_of(
                oct_shard_of(OCT_SHARD_TILE, param->ndim, param->shape, oct_comm_size(w->comm), r)
                    .rows);
        bytes += aligned(numel) + aligned(4 * (size_t)oct_comm_size(w->comm)) +
                 (backward ? aligned((size_t)tiles * 12) : 0);
    }
    return bytes;
}

static int uses_what_it_counts(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err;
    for (int dtype = OCT_DTYPE_F32; dtype <= OCT_DTYPE_BF16; dtype++) {
        world *w = world_new(comm, (oct_dtype)dtype, true, true, false);
        oct_fsdp_destroy(w->fsdp); /* reduced in the other dtype */
        w->options.reduce_dtype = dtype == OCT_DTYPE_F32 ? OCT_DTYPE_BF16 : OCT_DTYPE_F32;
        EXPECT_OK(comm, oct_fsdp_create(&w->options, &w->fsdp, &err));
        for (int i = 0; i < PARAMS; i++)
            if (layout[i].kind == EXTENDED)
                EXPECT_OK(comm, oct_fsdp_extend(w->fsdp, w->tree.params[i], &fake_extension,
                                                &w->fakes[i], &err));
        EXPECT_OK(comm, oct_fsdp_seal(w->fsdp, &err));
        const int64_t staging =
            320 * 4 * (int64_t)oct_dtype_bytes(w->options.reduce_dtype); /* of l1_x */
        EXPECT(comm, w->ledger.live_bytes[OCT_LEDGER_STAGING] == staging);
        EXPECT(comm, w->ledger.live_bytes_all == staging);
        EXPECT_OK(comm, play(w, "F1", &err));
        EXPECT(comm, oct_fsdp_gathered_bytes(w->fsdp) ==
                         (int64_t)(window_bytes(w, 1, false) + window_bytes(w, 2, false)));
        EXPECT(comm, w->ledger.live_bytes[OCT_LEDGER_UNSHARDED] > 0);
        EXPECT_OK(comm, play(w, "f1", &err));
        EXPECT(comm, oct_fsdp_gathered_bytes(w->fsdp) == (int64_t)window_bytes(w, 2, false));
        oct_fsdp_settle(w->fsdp);
        EXPECT_OK(comm, play(w, "B2", &err));
        EXPECT(comm, oct_fsdp_gathered_bytes(w->fsdp) ==
                         (int64_t)(window_bytes(w, 1, true) + window_bytes(w, 2, true)));
        oct_fsdp_destroy(w->fsdp);
        w->fsdp = NULL;
        failures += check_params(w, "-");
        for (int c = 0; c < OCT_LEDGER_CATEGORIES; c++)
            EXPECT(comm, w->ledger.live_bytes[c] == 0);
        EXPECT(comm, w->ledger.peak_bytes[OCT_LEDGER_STAGING] == staging);
        world_free(w);
    }
    return failures;
}

static void ledger__gathers_and_staging__counted_and_given_back(void **state)
{
    (void)state;
    run_ranks(3, NULL, uses_what_it_counts, NULL);
}

/* A pass with the gradients of every parameter. */
static oct_status play_step(world *w, const char *order, oct_err *err)
{
    const oct_unit_hooks *hooks = oct_fsdp_hooks(w->fsdp);
    OCT_TRY(play_all(w, order, err));
    for (int i = 0; i < PARAMS; i++) {
        oct_gemm_out out;
        OCT_TRY(hooks->open_grad(hooks->arg, w->tree.params[i], &out, err));
        memset(out.data, 0,
               (size_t)oct_param_numel(w->tree.params[i]) * oct_dtype_bytes(out.dtype));
        OCT_TRY(hooks->close_grad(hooks->arg, w->tree.params[i], err));
    }
    return oct_fsdp_finish_gradients(w->fsdp, err);
}

static int leaves_the_heap_alone(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err = {0};
    for (int reshard = 0; reshard <= 1; reshard++)
        for (int prefetch = 0; prefetch <= 1; prefetch++) {
            world *w = world_new(comm, OCT_DTYPE_F32, reshard, prefetch, false);
            EXPECT_OK(comm, oct_fsdp_seal(w->fsdp, &err));
            EXPECT_OK(comm, play_step(w, order_untied, &err));
            EXPECT_OK(comm, oct_comm_barrier(comm, &err));
            const long before = atomic_load(&heap_calls);
            EXPECT_OK(comm, oct_comm_barrier(comm, &err));
            for (int pass = 0; pass < 3; pass++)
                EXPECT_OK(comm, play_step(w, order_untied, &err));
            EXPECT_OK(comm, oct_comm_barrier(comm, &err));
            EXPECT(comm, atomic_load(&heap_calls) == before);
            EXPECT_OK(comm, oct_comm_barrier(comm, &err));
            world_free(w);
        }
    return failures;
}

static void pass__after_the_first__makes_no_heap_call(void **state)
{
    (void)state;
    const long before = atomic_load(&heap_calls);
    run_ranks(3, NULL, leaves_the_heap_alone, NULL);
    assert_true(atomic_load(&heap_calls) > before); /* the counter counts */
}

/* --- gradients -------------------------------------------------------------------------------- */

enum { MICRO_BATCHES = 60 }; /* every number of ranks up to 5 divides them */

/* Element i of the gradient of one micro-batch: magnitudes 2^40 apart, so that another order of the
 * sum has other bits. */
static float gradient(int param, int micro_batch, int64_t i)
{
    const uint32_t bits = mix((uint32_t)(micro_batch * 7919 + param * 104729) + (uint32_t)i);
    const float magnitude = (float)(bits & 0xffffu) + 1.0f;
    const int exponent = (int)(bits >> 16 & 31u) - 20;
    const float scale = exponent < 0 ? 1.0f / (float)(1u << -exponent) : (float)(1u << exponent);
    return (bits >> 31 ? -magnitude : magnitude) * scale;
}

static float reduced_gradient(oct_dtype reduce_dtype, int param, int micro_batch, int64_t i)
{
    const float g = gradient(param, micro_batch, i);
    return reduce_dtype == OCT_DTYPE_BF16 ? oct_bf16_round(g) : g;
}

/* One after another in the global order, whatever ranks there are. */
static float folded(oct_dtype reduce_dtype, int param, int64_t i)
{
    float sum = reduced_gradient(reduce_dtype, param, 0, i);
    for (int m = 1; m < MICRO_BATCHES; m++)
        sum += reduced_gradient(reduce_dtype, param, m, i);
    return sum;
}

static int stage_gradient(world *w, int i, int micro_batch)
{
    int failures = 0;
    oct_err err;
    oct_gemm_out out = {0};
    oct_param *param = w->tree.params[i];
    const oct_dtype dtype = w->options.reduce_dtype;
    const oct_unit_hooks *hooks = oct_fsdp_hooks(w->fsdp);
    EXPECT_OK(w->comm, hooks->open_grad(hooks->arg, param, &out, &err));
    EXPECT(w->comm, out.data && out.dtype == dtype && out.ld == oct_param_cols(param));
    EXPECT(w->comm, out.store == OCT_GEMM_STORE && !out.bias && !out.round_bf16);
    for (int64_t j = 0; out.data && j < oct_param_numel(param); j++) {
        const float g = reduced_gradient(dtype, i, micro_batch, j);
        if (dtype == OCT_DTYPE_BF16)
            ((uint16_t *)out.data)[j] = oct_bf16_from_f32(g);
        else
            ((float *)out.data)[j] = g;
    }
    EXPECT_OK(w->comm, hooks->close_grad(hooks->arg, param, &err));
    return failures;
}

static int folds(oct_comm *comm, void *arg)
{
    int failures = 0;
    oct_err err;
    world *w = world_new(comm, OCT_DTYPE_F32, true, false, false);
    oct_fsdp_destroy(w->fsdp);
    w->options.reduce_dtype = *(const oct_dtype *)arg;
    EXPECT_OK(comm, oct_fsdp_create(&w->options, &w->fsdp, &err));
    for (int i = 0; i < PARAMS; i++)
        if (layout[i].kind == EXTENDED)
            EXPECT_OK(comm, oct_fsdp_extend(w->fsdp, w->tree.params[i], &fake_extension,
                                            &w->fakes[i], &err));
    EXPECT_OK(comm, oct_fsdp_seal(w->fsdp, &err));
    const int ranks = oct_comm_size(comm), rank = oct_comm_rank(comm);
    for (int i = 0; i < PARAMS; i++) /* a sum that has not started takes no part */
        memset(w->tree.params[i]->grad, 0xff,
               (size_t)oct_param_own_numel(w->tree.params[i]) * sizeof(float));
    for (int k = 0; k < MICRO_BATCHES / ranks; k++) {
        for (int i = PARAMS - 1; i >= 0; i--)
            failures += stage_gradient(w, i, k * ranks + rank);
        for (int i = 0; i < PARAMS; i++)
            w->tree.params[i]->grad_started = true;
    }
    EXPECT(comm, w->reduce_events == PARAMS * MICRO_BATCHES / ranks);
    EXPECT_OK(comm, oct_fsdp_finish_gradients(w->fsdp, &err));
    for (int i = 0; i < PARAMS; i++) {
        const oct_param *param = w->tree.params[i];
        const int64_t begin = param->row_begin * oct_param_row_numel(param);
        int wrong = 0;
        for (int64_t j = 0; j < oct_param_own_numel(param); j++) {
            const float expected = folded(w->options.reduce_dtype, i, begin + j);
            wrong += memcmp(&param->grad[j], &expected, sizeof expected) != 0;
        }
        EXPECT(comm, wrong == 0);
        if (wrong)
            fprintf(stderr, "%d wrong sums in '%s'\n", wrong, param->fqn);
    }
    world_free(w);
    return failures;
}

static void gradients__any_number_of_ranks__folded_in_the_global_order(void **state)
{
    (void)state;
    int differ = 0; /* the values tell an order from another */
    for (int64_t i = 0; i < 64; i++) {
        float descending = 0.0f;
        for (int m = MICRO_BATCHES - 1; m >= 0; m--)
            descending += gradient(0, m, i);
        differ += descending != folded(OCT_DTYPE_F32, 0, i);
    }
    assert_true(differ > 32);
    for (int ranks = 1; ranks <= 5; ranks++)
        for (int d = OCT_DTYPE_F32; d <= OCT_DTYPE_BF16; d++) {
            if (d == OCT_DTYPE_BF16 && ranks % 2 == 0)
                continue; /* it takes time */
            oct_dtype dtype = (oct_dtype)d;
            run_ranks(ranks, NULL, folds, &dtype);
        }
}

static int opens_one_at_a_time(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err;
    world *w = world_new(comm, OCT_DTYPE_F32, true, false, false);
    EXPECT_OK(comm, oct_fsdp_seal(w->fsdp, &err));
    const oct_unit_hooks *hooks = oct_fsdp_hooks(w->fsdp);
    oct_param *a = param_of(w, "l0_w"), *b = param_of(w, "l0_x");
    oct_gemm_out out;
    EXPECT_FAILS(comm, hooks->close_grad(hooks->arg, a, &err), OCT_E_API, "'m.l0_w.w'");
    EXPECT_OK(comm, hooks->open_grad(hooks->arg, a, &out, &err));
    EXPECT_FAILS(comm, hooks->open_grad(hooks->arg, b, &out, &err), OCT_E_API, "'m.l0_x.w'");
    EXPECT(comm, strstr(err.msg, "'m.l0_w.w'"));
    EXPECT_FAILS(comm, hooks->open_grad(hooks->arg, a, &out, &err), OCT_E_API, "'m.l0_w.w'");
    EXPECT_FAILS(comm, hooks->close_grad(hooks->arg, b, &err), OCT_E_API, "'m.l0_x.w'");
    memset(out.data, 0, (size_t)oct_param_numel(a) * sizeof(float));
    EXPECT_OK(comm, hooks->close_grad(hooks->arg, a, &err)); /* the refusals changed nothing */
    EXPECT_FAILS(comm, hooks->close_grad(hooks->arg, a, &err), OCT_E_API, "'m.l0_w.w'");
    EXPECT_OK(comm, hooks->open_grad(hooks->arg, a, &out, &err));
    oct_fsdp_settle(w->fsdp); /* the pass failed with an open gradient */
    EXPECT_OK(comm, hooks->open_grad(hooks->arg, b, &out, &err));
    memset(out.data, 0, (size_t)oct_param_numel(b) * sizeof(float));
    EXPECT_OK(comm, hooks->close_grad(hooks->arg, b, &err));
    world_free(w);
    return failures;
}

static void gradients__two_open_or_another_closed__refused(void **state)
{
    (void)state;
    run_ranks(2, NULL, opens_one_at_a_time, NULL);
}

/* --- extensions that are refused -------------------------------------------------------------- */

static int refuses_extensions(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err;
    world *w = world_new(comm, OCT_DTYPE_F32, true, false, false);
    fake *f = fake_of(w, "l0_w");
    const oct_fsdp_extension no_pre = {.post_all_gather = fake_post};
    const oct_fsdp_extension no_post = {.pre_all_gather = fake_pre};
    EXPECT_FAILS(comm, oct_fsdp_extend(w->fsdp, param_of(w, "l0_w"), &no_pre, f, &err), OCT_E_API,
                 "'m.l0_w.w'");
    EXPECT(comm, strstr(err.msg, "has no pre_all_gather"));
    EXPECT_FAILS(comm, oct_fsdp_extend(w->fsdp, param_of(w, "l0_w"), &no_post, f, &err), OCT_E_API,
                 "'m.l0_w.w'");
    EXPECT(comm, strstr(err.msg, "has no post_all_gather"));
    EXPECT_FAILS(comm, oct_fsdp_extend(w->fsdp, param_of(w, "l0_x"), &fake_extension, f, &err),
                 OCT_E_API, "'m.l0_x.w': it is extended already");
    EXPECT_FAILS(comm, oct_fsdp_extend(w->fsdp, param_of(w, "l0_copy"), &fake_extension, f, &err),
                 OCT_E_API, "'m.l0_copy.w': it is replicated");
    oct_param other = {.fqn = w->tree.params[0]->fqn};
    EXPECT_FAILS(comm, oct_fsdp_extend(w->fsdp, &other, &fake_extension, f, &err), OCT_E_API,
                 "it is unknown");
    EXPECT_OK(comm, oct_fsdp_seal(w->fsdp, &err)); /* the refusals changed nothing */
    EXPECT_FAILS(comm, oct_fsdp_extend(w->fsdp, param_of(w, "l0_w"), &fake_extension, f, &err),
                 OCT_E_API, "'m.l0_w.w': it is taken over already");
    EXPECT_OK(comm, play_all(w, order_untied, &err));
    failures += check_fakes(w);
    world_free(w);
    return failures;
}

static void extend__missing_method_or_wrong_parameter__refused_by_name(void **state)
{
    (void)state;
    run_ranks(2, NULL, refuses_extensions, NULL);
}

/* --- ranks that differ ------------------------------------------------------------------------ */

typedef struct difference {
    fault_kind fault;
    int phase; /* -1: both */
    oct_status status;
    const char *text;
} difference;

static int compares(oct_comm *comm, void *arg)
{
    const difference *d = arg;
    int failures = 0;
    oct_err err;
    world *w = world_new(comm, OCT_DTYPE_F32, true, false, false);
    const int last = oct_comm_size(comm) - 1;
    fake *f = fake_of(w, "l1_x");
    f->fault_phase = d->phase;
    if (oct_comm_rank(comm) == last)
        f->fault = d->fault;
    EXPECT_FAILS(comm, oct_fsdp_seal(w->fsdp, &err), d->status, d->text);
    EXPECT(comm, strstr(err.msg, "'m.l1_x.w'"));
    failures += check_params(w, "-");
    world_free(w);
    return failures;
}

static void seal__ranks_that_differ__refused_on_every_rank(void **state)
{
    (void)state;
    difference differences[] = {
        {OTHER_COUNT, 0, OCT_E_SHAPE, "physical tensors and rank"},
        {OTHER_COUNT, 1, OCT_E_SHAPE, "physical tensors and rank"},
        {OTHER_ORDER, -1, OCT_E_SHAPE, "physical tensor 0 is 'codes' uint8"},
        {OTHER_DTYPE, -1, OCT_E_SHAPE, "uint8 ["},
        {OTHER_DTYPE, 1, OCT_E_SHAPE, "on rank 0 and 'codes' float8_e4m3"},
        {OTHER_NDIM, -1, OCT_E_SHAPE, ", 4, 1] on rank"},
        {OTHER_SHAPE, -1, OCT_E_SHAPE, ", 5] on rank"},
        {NO_TENSOR, -1, OCT_E_SHAPE, "0 tensors"},
        {TOO_MANY, 1, OCT_E_SHAPE, "5 tensors"},
        {SCALAR, 0, OCT_E_SHAPE, "'scale' has 0 dimensions"},
        {FAILS, 1, OCT_E_NOMEM, "no room for"},
    };
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
        for (int ranks = 2; ranks <= 3; ranks++)
            run_ranks(ranks, NULL, compares, &differences[i]);
}

/* What the last rank says of a plain parameter. */
static int compares_plain(oct_comm *comm, void *arg)
{
    const int what = *(const int *)arg;
    static const char *const texts[] = {
        "dtype", "float32 [72, 4] on rank 1", "begin at",
        "own",   "sharded on rank 0",         "neither a value nor an extension"};
    int failures = 0;
    oct_err err;
    world *w = world_new(comm, OCT_DTYPE_F32, true, false, false);
    oct_param *param = param_of(w, "l0_w");
    if (oct_comm_rank(comm) == oct_comm_size(comm) - 1)
        switch (what) {
        case 0:
            param->value.dtype = OCT_DTYPE_BF16;
            break;
        case 1:
            param->value.shape[1]--;
            break;
        case 2:
            param->row_begin -= 8;
            break;
        case 3:
            param->rows--;
            break;
        case 4:
            param->replicated = true;
            break;
        default:
            param->value.data = NULL;
        }
    EXPECT_FAILS(comm, oct_fsdp_seal(w->fsdp, &err), what == 5 ? OCT_E_API : OCT_E_SHAPE,
                 texts[what]);
    EXPECT(comm, strstr(err.msg, "'m.l0_w.w'"));
    world_free(w);
    return failures;
}

static void seal__plain_parameters_that_differ__refused_on_every_rank(void **state)
{
    (void)state;
    for (int what = 0; what < 6; what++)
        run_ranks(2, NULL, compares_plain, &what);
}

/* --- failures on one rank --------------------------------------------------------------------- */

/* The caller's part: a rank that failed tells the others. */
static oct_status fail_together(world *w, const char *order, oct_err *err)
{
    *err = (oct_err){0};
    const oct_status status = play_all(w, order, err);
    if (status != OCT_OK)
        oct_comm_leave(w->comm, err);
    return status;
}

static int ends_in_one_message(oct_comm *comm, void *arg)
{
    const difference *d = arg;
    int failures = 0;
    oct_err err;
    world *w = world_new(comm, OCT_DTYPE_F32, true, true, false);
    EXPECT_OK(comm, oct_fsdp_seal(w->fsdp, &err));
    EXPECT_OK(comm, play_all(w, order_untied, &err));
    if (oct_comm_rank(comm) == 1) {
        fake_of(w, "l1_x")->fault = d->fault;
        fake_of(w, "l1_x")->fault_phase = d->phase;
    }
    oct_status status = fail_together(w, order_untied, &err);
    if (status == OCT_OK) /* it failed after the last exchange of this rank's pass */
        status = oct_comm_barrier(comm, &err);
    EXPECT(comm, status == d->status);
    EXPECT(comm, strstr(err.msg, d->text) && strstr(err.msg, "'m.l1_x.w'"));
    EXPECT(comm, strstr(err.msg, d->phase == 1 ? "gathering 'l1' for its backward pass"
                                               : "gathering 'l1' for its forward pass"));
    EXPECT(comm, err.rank == 1);
    oct_fsdp_settle(w->fsdp);
    failures += check_units(w, "-");
    world_free(w);
    return failures;
}

static void gather__extension_fails_on_one_rank__all_end_with_its_message(void **state)
{
    (void)state;
    difference differences[] = {
        {FAILS, 0, OCT_E_NOMEM, "no room for"},
        {FAILS, 1, OCT_E_NOMEM, "no room for"},
        {POST_FAILS, 0, OCT_E_CORRUPT, "does not fit together"},
        {OTHER_COUNT, 0, OCT_E_SHAPE, "gave 3 tensors, 2 are required"},
        {OTHER_COUNT, 1, OCT_E_SHAPE, "gave 2 tensors, 3 are required"},
        {OTHER_ORDER, 1, OCT_E_SHAPE, "'scale'"},
        {OTHER_DTYPE, 1, OCT_E_SHAPE, "'codes'"},
        {OTHER_NDIM, 0, OCT_E_SHAPE, "'codes'"},
        {OTHER_SHAPE, 0, OCT_E_SHAPE, "'codes'"},
        {NO_TENSOR, 0, OCT_E_SHAPE, "0 tensors"},
        {TOO_MANY, 0, OCT_E_SHAPE, "5 tensors"},
        {SCALAR, 0, OCT_E_SHAPE, "'scale' has 0 dimensions"},
    };
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
        run_ranks(3, NULL, ends_in_one_message, &differences[i]);
}

static oct_status cut_cable(void *arg, int rank, int64_t op, oct_err *err)
{
    const int64_t *cut = arg;
    return rank != 1 || op != *cut
               ? OCT_OK
               : OCT_FAIL(err, OCT_E_COMM, "cable cut before exchange %lld", (long long)op);
}

static int ends_with_the_cable(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err = {0};
    world *w = world_new(comm, OCT_DTYPE_F32, false, true, false);
    oct_status status = oct_fsdp_seal(w->fsdp, &err);
    if (status == OCT_OK) {
        status = play_all(w, order_untied, &err);
        oct_fsdp_settle(w->fsdp);
        failures += check_units(w, "-");
    }
    EXPECT(comm, status == OCT_E_COMM && strstr(err.msg, "cable cut before exchange"));
    EXPECT(comm, oct_comm_is_broken(comm));
    failures += check_params(w, "-");
    world_free(w);
    return failures;
}

static int counts_exchanges(oct_comm *comm, void *arg)
{
    int failures = 0;
    oct_err err;
    world *w = world_new(comm, OCT_DTYPE_F32, false, true, false);
    EXPECT_OK(comm, oct_fsdp_seal(w->fsdp, &err));
    EXPECT_OK(comm, play_all(w, order_untied, &err));
    if (oct_comm_rank(comm) == 0)
        *(int64_t *)arg = oct_comm_stats_of(comm).exchanges;
    world_free(w);
    return failures;
}

static void exchange__each_one_fails__all_end_with_its_message(void **state)
{
    (void)state;
    int64_t exchanges = 0;
    run_ranks(3, NULL, counts_exchanges, &exchanges);
    assert_true(exchanges > 10);
    for (int64_t op = 0; op < exchanges; op++) {
        const oct_comm_options options = {
            .timeout_seconds = 20.0, .hook = cut_cable, .hook_arg = &op};
        run_ranks(3, &options, ends_with_the_cable, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pass__every_policy__units_and_contexts_of_the_table),
        cmocka_unit_test(pass__every_number_of_ranks__gathers_the_whole),
        cmocka_unit_test(gather__backward_after_forward_without_release__gathers_again),
        cmocka_unit_test(settle__after_a_forward_pass_alone__nothing_stays),
        cmocka_unit_test(ledger__gathers_and_staging__counted_and_given_back),
        cmocka_unit_test(pass__after_the_first__makes_no_heap_call),
        cmocka_unit_test(gradients__any_number_of_ranks__folded_in_the_global_order),
        cmocka_unit_test(gradients__two_open_or_another_closed__refused),
        cmocka_unit_test(extend__missing_method_or_wrong_parameter__refused_by_name),
        cmocka_unit_test(seal__ranks_that_differ__refused_on_every_rank),
        cmocka_unit_test(seal__plain_parameters_that_differ__refused_on_every_rank),
        cmocka_unit_test(gather__extension_fails_on_one_rank__all_end_with_its_message),
        cmocka_unit_test(exchange__each_one_fails__all_end_with_its_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
