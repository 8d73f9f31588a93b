/* Sharded 8-bit weights: what ranks put together is, byte for byte, the weight quantized whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/shard.h"
#include "lifecycle/gathered_weight.h"
#include "lifecycle/quantized_weights.h"
#include "low_precision/functional/grouped_linear.h"
#include "low_precision/functional/linear.h"
#include "low_precision/hif8/hif8.h"
#include "low_precision/mxfp8/mxfp8.h"
#include "rank_threads.h"

enum { WEIGHTS = 5, ROWS = 7, MAX_NAMES = 512, MOST = 5 * 64 * 40 };

/* Four tiles with a short last one; one tile, so that most ranks have no rows; columns that no
 * block divides; whole experts, and experts whose cuts MXFP8 forbids. */
static const struct {
    const char *name;
    int ndim;
    int64_t shape[3];
} shapes[WEIGHTS] = {
    {"a", 2, {200, 40, 0}}, {"b", 2, {64, 96, 0}}, {"c", 2, {330, 33, 0}},
    {"e", 3, {5, 64, 40}},  {"f", 3, {3, 70, 33}},
};

/* Values of the masters. */
typedef enum variant { FIRST, SECOND, WITH_NAN, WITH_INF, ZEROS, ONE_AND_100 } variant;

static float value_at(variant v, int w, int64_t i)
{
    uint32_t x = (uint32_t)(w * 1000003 + (int)v * 7919) + (uint32_t)i;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    const float unit = (float)((int32_t)(x >> 8) - (1 << 23)) * 0x1p-23f;
    const int64_t cols = shapes[w].shape[shapes[w].ndim - 1], row = i / cols;
    const int64_t last = shapes[w].shape[0] * shapes[w].shape[1] * (shapes[w].ndim == 3 ? cols : 1);
    if (v == ZEROS)
        return 0.0f;
    if (v == WITH_NAN && i == 3)
        return NAN;
    if (v == WITH_INF && i == last - 2)
        return -INFINITY;
    if (v == ONE_AND_100)
        return row == 0 ? 1.0f : row == 150 ? -100.0f : row < 128 ? unit : 100.0f * unit;
    return unit * (row % 3 == 0 ? 0x1p-12f : row % 3 == 1 ? 1.0f : 0x1p5f);
}

/* One rank: a tree of modules with one weight each, replaced in a plan that is never applied. */
typedef struct rig {
    oct_comm *comm;
    oct_kernels kernels;
    oct_arena scratch, step, persist;
    oct_exec exec;
    oct_trace trace;
    oct_run run;
    oct_module_tree tree;
    oct_plan *plan;
    oct_low_precision_policy policy;
    oct_quantized_weights weights;
    oct_param *params[WEIGHTS], *bias;
    float bias_data[200];
    float *masters[WEIGHTS]; /* of the owned rows */
    oct_optim_slot slots[WEIGHTS];
    oct_optimizer optimizer;
    oct_weight_storage *whole[WEIGHTS];
    oct_fsdp *fsdp;
    char names[MAX_NAMES]; /* of the tensors of each gather */
} rig;

static void note_gather(void *arg, const struct oct_trace *trace, const oct_trace_event *event)
{
    (void)trace;
    rig *r = arg;
    if (event->kind != OCT_TRACE_GATHER || strcmp(event->tensors[0], "value") == 0)
        return;
    const size_t used = strlen(r->names);
    (void)snprintf(r->names + used, sizeof r->names - used, "%s%s", used ? " " : "",
                   strrchr(event->fqn, '.') - 1);
    for (int i = 0; i < 4 && event->tensors[i]; i++) {
        const size_t now = strlen(r->names);
        (void)snprintf(r->names + now, sizeof r->names - now, "%c%s", i == 0 ? ':' : '+',
                       event->tensors[i]);
    }
}

static oct_status make_tree(rig *r, oct_err *err)
{
    static const oct_module_type type = {.name = "fake.Linear"};
    static const oct_module_type *const types[] = {&type};
    static const oct_plan_factory factory = {.target = "fake.LowPrecision"};
    static const oct_plan_registry registry = {
        .factory_count = 1, .factories = &factory, .type_count = 1, .types = types};
    static const char *const patterns[] = {"m.*"};
    const oct_plan_rule rule = {.pattern_count = 1,
                                .patterns = patterns,
                                .module_type = "fake.Linear",
                                .exact_type = true,
                                .target = "fake.LowPrecision"};
    static const int64_t bias_shape[3] = {200, 0, 0};
    oct_module *root = NULL, *module = NULL;
    oct_param **params = r->params;
    OCT_TRY(oct_module_add(&r->tree, NULL, "m", &type, WEIGHTS, &root, err));
    for (int w = 0; w < WEIGHTS; w++) {
        OCT_TRY(oct_module_add(&r->tree, root, shapes[w].name, &type, 0, &module, err));
        OCT_TRY(oct_module_add_param(&r->tree, module, "w", shapes[w].ndim, shapes[w].shape,
                                     &params[w], err));
        if (w == 0)
            OCT_TRY(oct_module_add_param(&r->tree, module, "bias", 1, bias_shape, &r->bias, err));
    }
    return oct_plan_compile(&r->tree, &rule, 1, &registry, &r->persist, &r->plan, err);
}

static void fill_masters(rig *r, variant v)
{
    for (int w = 0; w < WEIGHTS; w++) {
        const oct_param *param = r->params[w];
        for (int64_t i = 0; i < oct_param_own_numel(param); i++)
            r->masters[w][i] = value_at(v, w, param->row_begin * oct_param_row_numel(param) + i);
    }
}

/* The rows of this rank. */
static oct_status cut(rig *r, oct_err *err)
{
    const oct_sharding sharding = {
        .rule = OCT_SHARD_TILE, .ranks = oct_comm_size(r->comm), .fallback_to_unsharded = true};
    const oct_shard_law law = {.rows_legal = r->policy.format->shard_rows_legal,
                               .required = r->policy.format->shard_rule};
    for (int64_t p = 0; p < r->tree.param_count; p++) {
        oct_param *param = r->tree.params[p];
        const bool quantized = param != r->bias;
        OCT_TRY(
            oct_shard_decide(&sharding, param, quantized ? &law : NULL, &param->replicated, err));
        const oct_shard shard =
            oct_shard_of_param(&sharding, param, param->replicated, oct_comm_rank(r->comm));
        param->row_begin = shard.row_begin;
        param->rows = shard.rows;
    }
    for (int w = 0; w < WEIGHTS; w++) {
        const size_t bytes = (size_t)oct_param_own_numel(r->params[w]) * sizeof(float) + 4;
        r->masters[w] = malloc(bytes);
        r->params[w]->init = r->masters[w];
        r->slots[WEIGHTS - 1 - w] =
            (oct_optim_slot){.param = r->params[w], .master = r->masters[w]};
    }
    r->optimizer = (oct_optimizer){.slots = r->slots, .slot_count = WEIGHTS};
    return OCT_OK;
}

/* The weights quantized whole, without ranks. */
static oct_status quantize_whole(rig *r, variant v, oct_err *err)
{
    float *master = malloc(MOST * sizeof *master);
    oct_status status = OCT_OK;
    for (int w = 0; w < WEIGHTS && status == OCT_OK; w++) {
        oct_param param = *r->params[w];
        param.row_begin = 0;
        param.rows = param.shape[0];
        for (int64_t i = 0; i < oct_param_numel(&param); i++)
            master[i] = value_at(v, w, i);
        if (!r->whole[w])
            status = oct_weight_create(&r->persist, &r->policy, &param, OCT_DTYPE_F32, &r->whole[w],
                                       err);
        if (status == OCT_OK)
            status = oct_weight_refresh(&r->exec, NULL, r->whole[w], master, NULL, err);
    }
    free(master);
    return status;
}

static rig *rig_new(oct_comm *comm, const oct_low_precision_format *format, variant v)
{
    rig *r = calloc(1, sizeof *r);
    oct_err err = {0};
    r->comm = comm;
    oct_kernels_init(&r->kernels, oct_cpu_isa());
    oct_arena_init(&r->scratch, "scratch");
    oct_arena_init(&r->step, "step");
    oct_arena_init(&r->persist, "persist");
    r->exec = (oct_exec){.kernels = &r->kernels, .threads = 1, .scratch = &r->scratch};
    r->trace = (oct_trace){.sink = note_gather, .sink_arg = r};
    r->run = (oct_run){.exec = &r->exec,
                       .step = &r->step,
                       .act_dtype = OCT_DTYPE_F32,
                       .reduce_dtype = OCT_DTYPE_F32,
                       .training = true};
    r->policy = oct_low_precision_policy_of(format->recipe);
    oct_module_tree_init(&r->tree);
    oct_quantized_weights_init(&r->weights);
    oct_status status = make_tree(r, &err);
    if (status == OCT_OK)
        status = cut(r, &err);
    if (status == OCT_OK) {
        fill_masters(r, v);
        status = quantize_whole(r, v, &err);
    }
    if (status == OCT_OK)
        status = oct_quantized_weights_finalize(&r->weights, r->plan, &r->policy, OCT_DTYPE_F32,
                                                &r->exec, comm, NULL, &err);
    if (status != OCT_OK) {
        fprintf(stderr, "no rig: %s\n", err.msg);
        abort();
    }
    return r;
}

static void rig_free(rig *r)
{
    oct_fsdp_destroy(r->fsdp);
    oct_quantized_weights_release(&r->weights);
    for (int w = 0; w < WEIGHTS; w++)
        oct_weight_release(r->whole[w]);
    oct_module_tree_release(&r->tree); /* with the masters, that are still init */
    oct_arena_release(&r->scratch);
    oct_arena_release(&r->step);
    oct_arena_release(&r->persist);
    free(r);
}

/* All weights are one unit. */
static oct_status seal(rig *r, bool reshard, bool narrow, oct_err *err)
{
    const oct_fsdp_unit unit = {
        .name = "layer", .count = r->tree.param_count, .backward_reads = true};
    const oct_fsdp_options options = {.comm = r->comm,
                                      .tree = &r->tree,
                                      .units = &unit,
                                      .unit_count = 1,
                                      .reshard_after_forward = reshard,
                                      .reduce_dtype = OCT_DTYPE_F32,
                                      .trace = &r->trace};
    oct_fsdp_destroy(r->fsdp);
    r->fsdp = NULL;
    r->bias->value = (oct_tensor){
        .data = r->bias_data, .dtype = OCT_DTYPE_F32, .ndim = 1, .shape = {r->bias->rows}};
    OCT_TRY(oct_fsdp_create(&options, &r->fsdp, err));
    OCT_TRY(oct_quantized_weights_shard(&r->weights, r->fsdp, narrow, err));
    return oct_fsdp_seal(r->fsdp, err);
}

static oct_status play(rig *r, oct_unit_event event, oct_err *err)
{
    const oct_unit_hooks *hooks = oct_fsdp_hooks(r->fsdp);
    return hooks->on_unit(hooks->arg, 0, event, err);
}

/* --- comparisons ------------------------------------------------------------------------------ */

static bool same_tensor(const oct_tensor *a, const oct_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0 &&
           memcmp(a->data, b->data, oct_tensor_bytes(a)) == 0;
}

static bool same_operand(const oct_weight_storage *a, const oct_weight_storage *b,
                         oct_orientation orientation)
{
    oct_operand x, y;
    oct_err err = {0};
    if (oct_weight_select(a, orientation, &x, &err) != OCT_OK ||
        oct_weight_select(b, orientation, &y, &err) != OCT_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return false;
    }
    const bool same_amax = !x.amax || memcmp(x.amax, y.amax, sizeof *x.amax) == 0;
    return same_tensor(&x.data, &y.data) && same_tensor(&x.scales, &y.scales) && same_amax &&
           x.format == y.format && x.transposed == y.transposed &&
           x.logical_dtype == y.logical_dtype && x.orientation == y.orientation;
}

/* x W^T if fprop, else dy W, of ROWS rows, into out. */
static oct_status product(rig *r, oct_weight_storage *weight, bool fprop, float *out, oct_err *err)
{
    const int64_t n = weight->shape[weight->ndim - 2], k = weight->shape[weight->ndim - 1];
    static const int64_t ends[] = {2, 2, 3, 6, 7}, three_ends[] = {0, 4, 7};
    const oct_groups groups = {.count = weight->shape[0],
                               .ends = weight->shape[0] == 3 ? three_ends : ends};
    float left[ROWS * 330];
    for (int64_t i = 0; i < ROWS * (fprop ? k : n); i++)
        left[i] = value_at(SECOND, 0, i % 8000) / 32.0f;
    const oct_tensor x = oct_tensor_2d(left, OCT_DTYPE_F32, ROWS, fprop ? k : n);
    const oct_tensor y = oct_tensor_2d(out, OCT_DTYPE_F32, ROWS, fprop ? n : k);
    const oct_arena_mark mark = oct_arena_save(&r->scratch);
    const oct_lazy rows = oct_lazy_of(&x);
    oct_status status;
    if (weight->ndim == 2 && fprop)
        status = oct_low_precision_linear_forward(&r->run, "m", weight, NULL, &x, &y, NULL, err);
    else if (weight->ndim == 2)
        status = oct_low_precision_linear_backward(&r->run, "m", weight, NULL, &x, &y, NULL, err);
    else if (fprop)
        status = oct_low_precision_grouped_linear_forward(&r->run, weight, &rows, &groups, &y, NULL,
                                                          err);
    else
        status = oct_low_precision_grouped_linear_backward(&r->run, weight, NULL, &groups, &rows,
                                                           &y, NULL, err);
    oct_arena_rewind(&r->scratch, mark);
    return status;
}

static int same_products(rig *r, int w, bool fprop)
{
    int failures = 0;
    oct_err err;
    float gathered[ROWS * 330], whole[ROWS * 330];
    const int64_t n = ROWS * shapes[w].shape[shapes[w].ndim - (fprop ? 2 : 1)];
    memset(gathered, 0x55, sizeof gathered);
    memset(whole, 0xaa, sizeof whole);
    const oct_weight_storage *storage = r->params[w]->storage;
    const int64_t before = oct_fsdp_gathered_bytes(r->fsdp);
    EXPECT_OK(r->comm, product(r, r->params[w]->storage, fprop, gathered, &err));
    EXPECT_OK(r->comm, product(r, r->whole[w], fprop, whole, &err));
    EXPECT(r->comm, memcmp(gathered, whole, (size_t)n * sizeof *whole) == 0);
    EXPECT(r->comm, oct_fsdp_gathered_bytes(r->fsdp) == before); /* no panels are left */
    EXPECT(r->comm, r->params[w]->replicated || (!storage->panels[0] && !storage->panels[1]));
    return failures;
}

/* What is gathered of one weight: fprop's operand, dgrad's. */
static int check_weight(rig *r, int w, bool fprop, bool dgrad)
{
    int failures = 0;
    oct_err err;
    float out[ROWS * 330];
    oct_weight_storage *storage = r->params[w]->storage;
    EXPECT(r->comm, storage && !r->params[w]->value.data);
    if (!storage)
        return failures;
    if (r->params[w]->replicated || r->policy.format->orientations_share)
        fprop = dgrad = true;
    EXPECT(r->comm, storage->ndim == shapes[w].ndim &&
                        memcmp(storage->shape, shapes[w].shape,
                               (size_t)storage->ndim * sizeof storage->shape[0]) == 0);
    for (int pass = 0; pass < 2; pass++) {
        const bool there = pass == 0 ? fprop : dgrad;
        const oct_orientation o = pass == 0 ? oct_weight_fprop_orientation(storage)
                                            : oct_weight_dgrad_orientation(storage);
        if (there) {
            EXPECT(r->comm, same_operand(storage, r->whole[w], o));
            failures += same_products(r, w, pass == 0);
            continue;
        }
        oct_operand operand;
        char text[80];
        (void)snprintf(text, sizeof text, "'m.%s.w': its %s orientation was not gathered",
                       shapes[w].name, oct_orientation_name(o));
        EXPECT_FAILS(r->comm, oct_weight_select(storage, o, &operand, &err), OCT_E_API, text);
        EXPECT_FAILS(r->comm, product(r, storage, pass == 0, out, &err), OCT_E_API, text);
    }
    if (failures)
        fprintf(stderr, "of '%s'\n", shapes[w].name);
    return failures;
}

static int check_all(rig *r, bool fprop, bool dgrad)
{
    int failures = 0;
    for (int w = 0; w < WEIGHTS; w++)
        failures += check_weight(r, w, fprop, dgrad);
    return failures;
}

static int check_released(rig *r)
{
    int failures = 0;
    EXPECT(r->comm, oct_fsdp_gathered_bytes(r->fsdp) == 0);
    for (int w = 0; w < WEIGHTS; w++)
        EXPECT(r->comm, (r->params[w]->storage != NULL) == r->params[w]->replicated);
    return failures;
}

static uint64_t hash_shards(const rig *r)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (int64_t i = 0; i < r->weights.count; i++)
        for (int t = 0; t < r->weights.shards[i]->tensor_count; t++) {
            const oct_tensor *tensor = &r->weights.shards[i]->tensors[t].tensor;
            const unsigned char *bytes = tensor->data;
            for (size_t b = 0; b < oct_tensor_bytes(tensor); b++)
                hash = (hash ^ bytes[b]) * 0x100000001B3u;
        }
    return hash;
}

/* --- passes ----------------------------------------------------------------------------------- */

typedef struct plan_of_case {
    const oct_low_precision_format *format;
    variant v;
} plan_of_case;

/* Forward, backward; each with what the design document's table 9.1 says is there. */
static int check_pass(rig *r, bool reshard, bool narrow)
{
    int failures = 0;
    oct_err err;
    const uint64_t before = hash_shards(r);
    EXPECT_OK(r->comm, play(r, OCT_UNIT_PRE_FORWARD, &err));
    failures += check_all(r, true, !reshard);
    EXPECT_OK(r->comm, play(r, OCT_UNIT_POST_FORWARD, &err));
    if (reshard)
        failures += check_released(r);
    EXPECT_OK(r->comm, play(r, OCT_UNIT_PRE_BACKWARD, &err));
    failures += check_all(r, !reshard || !narrow, true);
    EXPECT_OK(r->comm, play(r, OCT_UNIT_POST_BACKWARD, &err));
    failures += check_released(r);
    EXPECT(r->comm, hash_shards(r) == before); /* neither frees or changes the other */
    return failures;
}

static int refresh_as(rig *r, variant v)
{
    int failures = 0;
    oct_err err;
    fill_masters(r, v);
    EXPECT_OK(r->comm, quantize_whole(r, v, &err));
    const int64_t count = r->weights.shards[0]->refresh_count;
    EXPECT_OK(r->comm,
              oct_quantized_weights_refresh(&r->weights, &r->optimizer, &r->exec, &r->trace, &err));
    for (int64_t i = 0; i < r->weights.count; i++)
        EXPECT(r->comm, r->weights.shards[i]->refresh_count == count + 1);
    return failures;
}

static int equals_the_whole(oct_comm *comm, void *arg)
{
    const plan_of_case *c = arg;
    int failures = 0;
    oct_err err;
    rig *r = rig_new(comm, c->format, c->v);
    EXPECT(comm, r->weights.count == WEIGHTS); /* a bias stays high precision */
    static const struct {
        bool reshard, narrow;
    } policies[] = {{false, false}, {true, false}, {true, true}};
    for (size_t p = 0; p < sizeof policies / sizeof policies[0] && !failures; p++) {
        const bool reshard = policies[p].reshard, narrow = policies[p].narrow;
        failures += refresh_as(r, c->v);
        EXPECT_OK(comm, seal(r, reshard, narrow, &err));
        failures += check_released(r);
        failures += check_pass(r, reshard, narrow);
        failures += refresh_as(r, SECOND); /* nothing of the first is left */
        failures += check_pass(r, reshard, narrow);
        if (failures)
            fprintf(stderr, "reshard %d, narrow %d\n", reshard, narrow);
    }
    rig_free(r);
    return failures;
}

static void gather__every_number_of_ranks__equals_the_whole_weight(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int f = 0; oct_low_precision_formats[f]; f++) {
            plan_of_case c = {.format = oct_low_precision_formats[f], .v = FIRST};
            run_ranks(sizes[i], NULL, equals_the_whole, &c);
        }
}

static void gather__nan_inf_or_zeros_on_one_rank__equals_the_whole_weight(void **state)
{
    (void)state;
    for (int v = WITH_NAN; v <= ZEROS; v++)
        for (int f = 0; oct_low_precision_formats[f]; f++) {
            plan_of_case c = {.format = oct_low_precision_formats[f], .v = (variant)v};
            run_ranks(3, NULL, equals_the_whole, &c);
        }
}

/* --- which tensors travel --------------------------------------------------------------------- */

static int gathers_as_the_table(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err;
    static const char *const row = ":row_data+row_scale", *const col = ":col_data+col_scale";
    static const char *const row_col = ":row_data+row_scale+col_data+col_scale";
    static const char *const col_row = ":col_data+col_scale+row_data+row_scale";
    static const struct {
        bool reshard, narrow;
        int forward, backward; /* 1: what fprop reads, 2: what dgrad reads, 3: both, 0: nothing */
    } table[] = {
        {true, false, 1, 3},
        {true, true, 1, 2},
        {false, false, 3, 0},
        {false, true, 3, 0},
    };
    const char *const dense[] = {"", row, col, row_col}, *const grouped[] = {"", col, row, col_row};
    rig *r = rig_new(comm, &oct_mxfp8_format, FIRST);
    EXPECT(comm, r->params[4]->replicated); /* a cut between its experts is not one of tiles */
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        EXPECT_OK(comm, seal(r, table[i].reshard, table[i].narrow, &err));
        for (int pass = 0; pass < 2; pass++) {
            const int what = pass == 0 ? table[i].forward : table[i].backward;
            char expected[MAX_NAMES] = "";
            if (what)
                (void)snprintf(expected, sizeof expected, "a.w%s b.w%s c.w%s e.w%s", dense[what],
                               dense[what], dense[what], grouped[what]);
            r->names[0] = '\0';
            EXPECT_OK(comm,
                      play(r, pass == 0 ? OCT_UNIT_PRE_FORWARD : OCT_UNIT_PRE_BACKWARD, &err));
            EXPECT(comm, strcmp(r->names, expected) == 0);
            if (failures)
                fprintf(stderr, "'%s' instead of '%s'\n", r->names, expected);
            EXPECT_OK(comm,
                      play(r, pass == 0 ? OCT_UNIT_POST_FORWARD : OCT_UNIT_POST_BACKWARD, &err));
        }
    }
    rig_free(r);
    r = rig_new(comm, &oct_hif8_format, FIRST);
    EXPECT(comm, !r->params[4]->replicated);
    EXPECT_OK(comm, seal(r, true, true, &err));
    r->names[0] = '\0';
    EXPECT_OK(comm, play(r, OCT_UNIT_PRE_FORWARD, &err));
    EXPECT(comm, strcmp(r->names, "a.w:data+scale b.w:data+scale c.w:data+scale e.w:data+scale "
                                  "f.w:data+scale") == 0);
    rig_free(r);
    return failures;
}

static void gather__mxfp8_and_hif8__tensors_of_tables_9_1_and_9_2(void **state)
{
    (void)state;
    run_ranks(2, NULL, gathers_as_the_table, NULL);
}

/* --- one scale for all ranks ------------------------------------------------------------------ */

static int shares_its_scale(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err;
    rig *r = rig_new(comm, &oct_hif8_format, FIRST);
    EXPECT_OK(comm, seal(r, true, false, &err));
    for (int step = 0; step < 3; step++) {
        fill_masters(r, ONE_AND_100);
        EXPECT_OK(comm, quantize_whole(r, ONE_AND_100, &err));
        const int64_t before = oct_comm_stats_of(comm).exchanges;
        EXPECT_OK(comm,
                  oct_quantized_weights_refresh(&r->weights, &r->optimizer, &r->exec, NULL, &err));
        EXPECT(comm, oct_comm_stats_of(comm).exchanges == before + 1); /* for all three */
        const float expected = 100.0f / 15.0f;
        const oct_physical_tensor *scale = &r->weights.shards[0]->tensors[1];
        EXPECT(comm, scale->replicated && scale->tensor.ndim == 0);
        EXPECT(comm, memcmp(scale->tensor.data, &expected, sizeof expected) == 0);
        failures += check_pass(r, true, false);
    }
    /* A scale that went astray on one rank. */
    float astray = 100.0f / 15.0f;
    char text[160];
    (void)snprintf(text, sizeof text,
                   "'m.a.w' together: its scale is %.9g on rank 0 and %.9g on rank 1",
                   (double)astray, (double)nextafterf(astray, 0.0f));
    if (oct_comm_rank(comm) == 1) {
        astray = nextafterf(astray, 0.0f);
        memcpy(r->weights.shards[0]->tensors[1].tensor.data, &astray, sizeof astray);
    }
    EXPECT_FAILS(comm, play(r, OCT_UNIT_PRE_FORWARD, &err), OCT_E_COMM, text);
    oct_fsdp_settle(r->fsdp);
    failures += check_released(r);
    rig_free(r);

    r = rig_new(comm, &oct_mxfp8_format, FIRST); /* block scales need no word from others */
    const int64_t before = oct_comm_stats_of(comm).exchanges;
    EXPECT_OK(comm,
              oct_quantized_weights_refresh(&r->weights, &r->optimizer, &r->exec, NULL, &err));
    EXPECT(comm, oct_comm_stats_of(comm).exchanges == before);
    rig_free(r);
    return failures;
}

static void refresh__hif8_dense__one_max_for_all_and_one_scale_on_all_ranks(void **state)
{
    (void)state;
    run_ranks(2, NULL, shares_its_scale, NULL);
}

/* --- what is missing -------------------------------------------------------------------------- */

static int names_what_is_missing(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err;
    rig *r = rig_new(comm, &oct_hif8_format, FIRST);
    r->optimizer.slot_count = WEIGHTS - 1;
    EXPECT_FAILS(comm,
                 oct_quantized_weights_refresh(&r->weights, &r->optimizer, &r->exec, NULL, &err),
                 OCT_E_API, "'m.a.w'");
    for (int64_t i = 0; i < r->weights.count; i++)
        EXPECT(comm, r->weights.shards[i]->refresh_count == 1);
    oct_quantized_weights_release(&r->weights);
    for (int w = 0; w < WEIGHTS; w++)
        EXPECT(comm, !r->params[w]->storage);
    oct_quantized_weights_init(&r->weights);
    r->params[2]->init = NULL;
    EXPECT_FAILS(comm,
                 oct_quantized_weights_finalize(&r->weights, r->plan, &r->policy, OCT_DTYPE_F32,
                                                &r->exec, comm, NULL, &err),
                 OCT_E_API, "'m.c.w'");
    r->params[2]->init = r->masters[2];
    rig_free(r);
    return failures;
}

static void refresh__no_master_or_initial_values__refused_by_name(void **state)
{
    (void)state;
    run_ranks(2, NULL, names_what_is_missing, NULL);
}

/* --- outputs that are not what was asked for -------------------------------------------------- */

/* Everything that can be wrong with outputs and metadata. */
static int refuses_outputs(oct_comm *comm, void *arg)
{
    const oct_low_precision_format *format = ((const plan_of_case *)arg)->format;
    int failures = 0;
    oct_err err;
    rig *r = rig_new(comm, format, FIRST); /* of one rank: a shard is the whole */
    const oct_fsdp_extension *extension = &oct_gathered_weight_extension;
    for (int w = 0; w < WEIGHTS; w++) {
        oct_gathered_weight gathered = {
            .param = r->params[w], .shard = r->weights.shards[w], .arena = &r->persist};
        const oct_fsdp_context context = {.phase = OCT_FSDP_BACKWARD,
                                          .param_fqn = r->params[w]->fqn};
        oct_fsdp_tensors good = {0}, bad;
        oct_fsdp_metadata metadata = {0}, wrong;
        oct_weight_storage *logical = NULL;
        char name[16];
        (void)snprintf(name, sizeof name, "'m.%s.w'", shapes[w].name);
        EXPECT_OK(comm, extension->pre_all_gather(&gathered, &context, &good, &metadata, &err));
        EXPECT(comm, good.count == (format->orientations_share ? 2 : 4));
#define REFUSED(outputs, about, code)                                                              \
    EXPECT_FAILS(comm, extension->post_all_gather(&gathered, outputs, about, &logical, &err),      \
                 code, name)
        for (int i = 0; i < good.count; i++) {
            for (int other = 0; other < i; other++) {
                bad = good; /* permuted */
                bad.tensors[i] = good.tensors[other];
                bad.names[i] = good.names[other];
                bad.tensors[other] = good.tensors[i];
                bad.names[other] = good.names[i];
                REFUSED(&bad, &metadata, OCT_E_SHAPE);
            }
            bad = good;
            bad.tensors[i].dtype = OCT_DTYPE_U8;
            REFUSED(&bad, &metadata, OCT_E_SHAPE);
            EXPECT(comm, strstr(err.msg, good.names[i]) && strstr(err.msg, "uint8"));
            bad = good;
            if (good.tensors[i].ndim < OCT_MAX_NDIM)
                bad.tensors[i].shape[bad.tensors[i].ndim++] = 1;
            else
                bad.tensors[i].ndim--;
            REFUSED(&bad, &metadata, OCT_E_SHAPE);
            for (int d = 0; d < good.tensors[i].ndim; d++) {
                bad = good;
                bad.tensors[i].shape[d]--;
                REFUSED(&bad, &metadata, OCT_E_SHAPE);
            }
        }
        for (int count = 0; count < good.count; count++) {
            bad = good; /* truncated */
            bad.count = count;
            REFUSED(&bad, &metadata, OCT_E_SHAPE);
        }
        for (size_t bytes = 0; bytes < metadata.bytes; bytes++) {
            wrong = metadata;
            wrong.bytes = bytes;
            REFUSED(&good, &wrong, OCT_E_API);
        }
        for (size_t byte = 0; byte < metadata.bytes; byte++) { /* an error or no matter */
            wrong = metadata;
            wrong.data[byte] ^= 0x7f;
            oct_weight_storage *unused = NULL;
            (void)extension->post_all_gather(&gathered, &good, &wrong, &unused, &err);
        }
        EXPECT_OK(comm, extension->post_all_gather(&gathered, &good, &metadata, &logical, &err));
        EXPECT(comm, logical && same_operand(logical, r->whole[w], OCT_ORIENTATION_ROW));
        EXPECT(comm, logical && same_operand(logical, r->whole[w], OCT_ORIENTATION_COL));
#undef REFUSED
        r->weights.shards[w]->refresh_count = 0;
        EXPECT_FAILS(comm, extension->pre_all_gather(&gathered, &context, &good, &metadata, &err),
                     OCT_E_API, name);
    }
    rig_free(r);
    return failures;
}

static void post_all_gather__permuted_truncated_or_other_tensors__refused_by_name(void **state)
{
    (void)state;
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        plan_of_case c = {.format = oct_low_precision_formats[f]};
        run_ranks(1, NULL, refuses_outputs, &c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather__every_number_of_ranks__equals_the_whole_weight),
        cmocka_unit_test(gather__nan_inf_or_zeros_on_one_rank__equals_the_whole_weight),
        cmocka_unit_test(gather__mxfp8_and_hif8__tensors_of_tables_9_1_and_9_2),
        cmocka_unit_test(refresh__hif8_dense__one_max_for_all_and_one_scale_on_all_ranks),
        cmocka_unit_test(refresh__no_master_or_initial_values__refused_by_name),
        cmocka_unit_test(post_all_gather__permuted_truncated_or_other_tensors__refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
