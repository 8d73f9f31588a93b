/* The optimizer over ranks that are threads: the bits of one rank, norms counted once, a NaN of one
 * rank, and failures of one rank that are those of all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "fsdp/shard.h"
#include "numeric/bf16.h"
#include "optim/optimizer.h"

enum { PARAMS = 8, STEPS = 5, MAX_RANKS = 8 };

static const struct {
    const char *fqn, *module;
    int ndim;
    int64_t shape[3];
    bool replicated, frozen, keep_float32;
} specs[PARAMS] = {
    {"embed.weight", "embed", 2, {200, 33}, false, false, false},
    {"experts.weight", "experts", 3, {5, 4, 21}, false, false, false},
    {"norm.weight", "norm", 1, {19}, false, false, false},
    {"odd.weight", "odd", 2, {10, 7}, true, false, false},
    {"scale.weight", "scale", 1, {3}, true, false, false},
    {"frozen.weight", "frozen", 2, {70, 5}, false, true, false},
    {"bias.weight", "bias", 1, {130}, false, false, false},
    {"router.weight", "router", 2, {66, 9}, false, false, true},
};

static const oct_adamw_config config = {.lr = 1e-2,
                                        .beta1 = 0.9,
                                        .beta2 = 0.95,
                                        .eps = 1e-8,
                                        .weight_decay = 0.1,
                                        .max_grad_norm = 1.0};

static const oct_module_type module_type = {.name = "test.Module"};

/* Element i of parameter p in -1 .. 1. */
static float element(uint32_t seed, int p, int64_t i)
{
    uint32_t x = seed * 0x9e3779b9u + (uint32_t)p * 0x85ebca6bu + (uint32_t)i;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    x ^= x >> 16;
    return (float)(int32_t)x * 4.6566129e-10f;
}

/* --- one rank -----------------------------------------------------------------------------------
 */

/* What does not hold is told and counted: asserts of cmocka belong to the main thread. */
#define HOLDS(who, condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (who)->failures++;                                                                     \
            (void)fprintf(stderr, "%s:%d: rank %d of %d: %s (%s)\n", __FILE__, __LINE__,           \
                          (who)->rank, (who)->ranks, #condition, (who)->err.msg);                  \
        }                                                                                          \
    } while (0)

typedef struct member {
    int rank, ranks;
    oct_comm *comm; /* NULL: alone */
    oct_module_tree tree;
    oct_kernels kernels;
    oct_arena scratch;
    oct_exec exec;
    oct_ledger ledger;
    oct_optimizer *optimizer;
    oct_err err;
    oct_status status;
    int failures;
} member;

static int64_t first_element(const oct_param *param)
{
    return param->row_begin * oct_param_row_numel(param);
}

static void fill_gradients(member *m, uint32_t seed)
{
    for (int p = 0; p < PARAMS; p++) {
        oct_param *param = m->tree.params[p];
        for (int64_t i = 0; i < oct_param_own_numel(param); i++)
            param->grad[i] = element(seed, p, first_element(param) + i);
        /* No rows, no gradient to finish. */
        param->grad_started = oct_param_own_numel(param) > 0;
    }
}

/* A tree cut for the rank, with initial values and gradients of its rows. */
static void member_init(member *m, int ranks, int rank, oct_comm *comm)
{
    const oct_sharding sharding = {.rule = OCT_SHARD_TILE, .ranks = ranks};
    oct_module *root = NULL, *child = NULL;
    *m = (member){.rank = rank, .ranks = ranks, .comm = comm};
    oct_module_tree_init(&m->tree);
    oct_kernels_init(&m->kernels, rank % 2 ? OCT_ISA_REF : oct_cpu_isa());
    oct_arena_init(&m->scratch, "scratch");
    m->exec = (oct_exec){.kernels = &m->kernels, .threads = 1, .scratch = &m->scratch};
    HOLDS(m, oct_module_add(&m->tree, NULL, "", &module_type, PARAMS, &root, &m->err) == OCT_OK);
    for (int p = 0; p < PARAMS; p++) {
        oct_param *param = NULL;
        HOLDS(m, oct_module_add(&m->tree, root, specs[p].module, &module_type, 1, &child,
                                &m->err) == OCT_OK);
        HOLDS(m, oct_module_add_param(&m->tree, child, "weight", specs[p].ndim, specs[p].shape,
                                      &param, &m->err) == OCT_OK);
        param->replicated = specs[p].replicated;
        param->requires_grad = !specs[p].frozen;
        param->keep_float32 = specs[p].keep_float32;
        const oct_shard shard = oct_shard_of_param(&sharding, param, param->replicated, rank);
        param->row_begin = shard.row_begin;
        param->rows = shard.rows;
        const size_t bytes = (size_t)oct_param_own_numel(param) * sizeof(float);
        param->init = malloc(bytes + 1);
        param->grad = malloc(bytes + 1);
        for (int64_t i = 0; i < oct_param_own_numel(param); i++)
            param->init[i] = element(1, p, first_element(param) + i);
    }
    fill_gradients(m, 100);
}

static oct_status member_create(member *m)
{
    m->status =
        oct_optimizer_create(&m->tree, &config, m->comm, &m->ledger, &m->optimizer, &m->err);
    return m->status;
}

static void member_release(member *m)
{
    oct_optimizer_destroy(m->optimizer);
    HOLDS(m, m->ledger.live_bytes_all == 0);
    for (int64_t p = 0; p < m->tree.param_count; p++)
        free(m->tree.params[p]->grad);
    oct_arena_release(&m->scratch);
    oct_module_tree_release(&m->tree);
}

/* --- a team --------------------------------------------------------------------------------------
 */

typedef void (*rank_fn)(member *m, void *arg);

typedef struct seat {
    oct_comm *comm;
    int rank, ranks, failures;
    rank_fn run;
    void *arg;
} seat;

static void *take_seat(void *arg)
{
    seat *s = arg;
    member m;
    member_init(&m, s->ranks, s->rank, s->comm);
    s->run(&m, s->arg);
    member_release(&m);
    oct_comm_destroy(s->comm);
    s->failures = m.failures;
    return NULL;
}

static void run_team(int ranks, rank_fn run, void *arg)
{
    const oct_comm_options options = {.piece_bytes = 256, .node_ranks = 3, .timeout_seconds = 60.0};
    oct_comm *comms[MAX_RANKS];
    seat seats[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    oct_err err = {0};
    int failures = 0;
    assert_int_equal(oct_comm_create_team(ranks, &options, comms, &err), OCT_OK);
    for (int r = 0; r < ranks; r++) {
        seats[r] = (seat){.comm = comms[r], .rank = r, .ranks = ranks, .run = run, .arg = arg};
        assert_int_equal(pthread_create(&threads[r], NULL, take_seat, &seats[r]), 0);
    }
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
        failures += seats[r].failures;
    }
    assert_int_equal(failures, 0);
}

static const int teams[] = {1, 2, 3, 4, 8};
enum { TEAMS = sizeof teams / sizeof teams[0] };

/* --- the bits of one rank ------------------------------------------------------------------------
 */

/* What one rank without a comm computes. */
typedef struct reference {
    double norms[STEPS];
    member alone;
} reference;

/* Points what the parameters offer to others elsewhere: the optimizer has its own. */
static void take_values_over(member *m)
{
    for (int p = 0; p < PARAMS; p++) {
        m->tree.params[p]->value = (oct_tensor){.data = NULL, .dtype = OCT_DTYPE_U8};
        m->tree.params[p]->storage = (oct_weight_storage *)(void *)m;
    }
}

static void one_step(member *m, int step, oct_grad_norm *norm, bool *updated)
{
    HOLDS(m, oct_optimizer_grad_norm(m->optimizer, &m->exec, norm, &m->err) == OCT_OK);
    HOLDS(m, oct_optimizer_update(m->optimizer, &m->exec, norm, 1.0 / (step + 1), updated,
                                  &m->err) == OCT_OK);
}

/* Norms of all steps; masters, moments and BF16 values as the last of them leaves them. */
static void train(member *m, double norms[STEPS])
{
    HOLDS(m, member_create(m) == OCT_OK);
    HOLDS(m,
          oct_optimizer_attach_values(m->optimizer, &m->exec, OCT_DTYPE_BF16, &m->err) == OCT_OK);
    take_values_over(m);
    for (int step = 0; step < STEPS; step++) {
        oct_grad_norm norm = {0};
        bool updated = false;
        fill_gradients(m, 200 + (uint32_t)step);
        one_step(m, step, &norm, &updated);
        HOLDS(m, norm.finite && updated && !norm.nonfinite_fqn);
        HOLDS(m, oct_clip_factor(norm.norm, config.max_grad_norm) < 0.1f); /* clipping is active */
        norms[step] = norm.norm;
    }
    HOLDS(m, m->optimizer->step == STEPS);
    HOLDS(m, oct_optimizer_refresh_values(m->optimizer, &m->exec, &m->err) == OCT_OK);
}

static bool same_rows(const oct_optim_slot *slot, const void *own, const void *whole, size_t size)
{
    const size_t begin = (size_t)first_element(slot->param) * size;
    return memcmp(own, (const char *)whole + begin, (size_t)slot->numel * size) == 0;
}

static void check_bits(member *m, void *arg)
{
    const reference *required = arg;
    double norms[STEPS];
    train(m, norms);
    HOLDS(m, memcmp(norms, required->norms, sizeof norms) == 0);
    for (int p = 0; p < PARAMS; p++) {
        const oct_optim_slot *slot = &m->optimizer->slots[p];
        const oct_optim_slot *whole = &required->alone.optimizer->slots[p];
        HOLDS(m, same_rows(slot, slot->master, whole->master, sizeof(float)));
        HOLDS(m, !slot->exp_avg == specs[p].frozen);
        if (slot->exp_avg) {
            HOLDS(m, same_rows(slot, slot->exp_avg, whole->exp_avg, sizeof(float)));
            HOLDS(m, same_rows(slot, slot->exp_avg_sq, whole->exp_avg_sq, sizeof(float)));
        }
        HOLDS(m, slot->value.shape[0] == slot->rows);
        if (specs[p].keep_float32)
            HOLDS(m, slot->value.data == slot->master && slot->value.dtype == OCT_DTYPE_F32);
        else
            HOLDS(m, same_rows(slot, slot->value.data, whole->value.data, sizeof(uint16_t)));
    }
}

/* One rank against definitions: partials in order, and every value rounded from its master. */
static void check_reference(reference *required)
{
    member *m = &required->alone;
    double sum = 0.0;
    for (int p = 0; p < PARAMS; p++) {
        const oct_param *param = m->tree.params[p];
        const int64_t width = oct_param_row_numel(param);
        for (int64_t r = 0; r < param->rows && !specs[p].frozen; r++)
            sum += oct_sum_squares(&m->exec, param->grad + r * width, width);
        const oct_optim_slot *slot = &m->optimizer->slots[p];
        const uint16_t *bits = slot->value.data;
        for (int64_t i = 0; i < slot->numel && !specs[p].keep_float32; i++)
            assert_int_equal(bits[i], oct_bf16_from_f32(slot->master[i]));
    }
    assert_true(sqrt(sum) == required->norms[STEPS - 1]);
    assert_int_equal(m->failures, 0);
}

static void ranks__same_gradients__bits_of_one_rank(void **state)
{
    (void)state;
    reference required;
    member_init(&required.alone, 1, 0, NULL);
    train(&required.alone, required.norms);
    check_reference(&required);
    for (int t = 0; t < TEAMS; t++)
        run_team(teams[t], check_bits, &required);
    member_release(&required.alone);
}

/* --- counted once -------------------------------------------------------------------------------
 */

/* Ones in the replicated [10,7] and [3] only: 73 of them, however many ranks hold them. */
static void check_once(member *m, void *arg)
{
    (void)arg;
    HOLDS(m, member_create(m) == OCT_OK);
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < m->optimizer->slots[p].numel; i++)
            m->tree.params[p]->grad[i] = specs[p].replicated ? 1.0f : 0.0f;
    oct_grad_norm norm = {0};
    HOLDS(m, oct_optimizer_grad_norm(m->optimizer, &m->exec, &norm, &m->err) == OCT_OK);
    HOLDS(m, norm.norm == sqrt(73.0));
}

static void grad_norm__replicated_parameters__counted_once(void **state)
{
    (void)state;
    for (int t = 0; t < TEAMS; t++)
        run_team(teams[t], check_once, NULL);
}

/* --- not finite ---------------------------------------------------------------------------------
 */

typedef struct saved {
    float *memory[PARAMS * 3];
} saved;

static float *state_of(const oct_optim_slot *slot, int which)
{
    return which == 0 ? slot->master : which == 1 ? slot->exp_avg : slot->exp_avg_sq;
}

static saved save(const member *m)
{
    saved s = {{0}};
    for (int i = 0; i < PARAMS * 3; i++) {
        const oct_optim_slot *slot = &m->optimizer->slots[i / 3];
        if (!state_of(slot, i % 3))
            continue;
        const size_t bytes = (size_t)slot->numel * sizeof(float);
        s.memory[i] = malloc(bytes + 1);
        memcpy(s.memory[i], state_of(slot, i % 3), bytes);
    }
    return s;
}

static bool is_unchanged(const member *m, saved *s)
{
    bool same = true;
    for (int i = 0; i < PARAMS * 3; i++) {
        const oct_optim_slot *slot = &m->optimizer->slots[i / 3];
        const size_t bytes = (size_t)slot->numel * sizeof(float);
        same = same && (!s->memory[i] || memcmp(s->memory[i], state_of(slot, i % 3), bytes) == 0);
        free(s->memory[i]);
    }
    return same;
}

/* Plants a value in the last element of a parameter, wherever that lives. */
static void plant(member *m, int p, float value)
{
    oct_param *param = m->tree.params[p];
    if (param->rows > 0 && param->row_begin + param->rows == param->shape[0])
        param->grad[oct_param_own_numel(param) - 1] = value;
}

/* One NaN on the last rank, and an Inf later in the tree on the first. */
static void check_nonfinite(member *m, void *arg)
{
    const float bad = *(const float *)arg;
    oct_grad_norm norm = {0};
    bool updated = false;
    HOLDS(m, member_create(m) == OCT_OK);
    one_step(m, 0, &norm, &updated);
    HOLDS(m, updated && m->optimizer->step == 1);
    for (int p = 0; p < PARAMS; p++) {
        if (specs[p].frozen)
            continue;
        fill_gradients(m, 300);
        plant(m, p, bad);
        if (p < 3)
            m->tree.params[3]->grad[0] = INFINITY; /* replicated: on every rank */
        saved before = save(m);
        updated = true;
        one_step(m, 1, &norm, &updated);
        HOLDS(m, !norm.finite && !isfinite(norm.norm) && !updated && m->optimizer->step == 1);
        HOLDS(m, norm.nonfinite_fqn && strcmp(norm.nonfinite_fqn, specs[p].fqn) == 0);
        HOLDS(m, is_unchanged(m, &before));
    }
    fill_gradients(m, 300);
    if (m->rank == m->ranks - 1)
        plant(m, 3, bad); /* a replica that differs */
    one_step(m, 1, &norm, &updated);
    HOLDS(m, !norm.finite && !isfinite(norm.norm) && !updated && m->optimizer->step == 1);
    HOLDS(m, norm.nonfinite_fqn && strcmp(norm.nonfinite_fqn, specs[3].fqn) == 0);
    fill_gradients(m, 300);
    one_step(m, 1, &norm, &updated);
    HOLDS(m, norm.finite && updated && m->optimizer->step == 2);
}

static void update__nonfinite_element_on_last_rank__all_skip_and_name_it(void **state)
{
    (void)state;
    static float bad[] = {NAN, INFINITY};
    for (int t = 0; t < TEAMS; t++)
        for (int b = 0; b < 2; b++)
            run_team(teams[t], check_nonfinite, &bad[b]);
}

/* --- failures of one rank ------------------------------------------------------------------------
 */

/* An unfinished gradient of the last rank ends the norm on all, and nothing is broken. */
static void check_unfinished(member *m, void *arg)
{
    (void)arg;
    oct_grad_norm norm = {0};
    HOLDS(m, member_create(m) == OCT_OK);
    if (m->rank == m->ranks - 1)
        m->tree.params[0]->grad_started = false;
    HOLDS(m, oct_optimizer_grad_norm(m->optimizer, &m->exec, &norm, &m->err) == OCT_E_API);
    HOLDS(m, strstr(m->err.msg, "'embed.weight'") != NULL);
    HOLDS(m, m->err.rank == m->ranks - 1);
    m->tree.params[0]->grad_started = true;
    HOLDS(m, oct_optimizer_grad_norm(m->optimizer, &m->exec, &norm, &m->err) == OCT_OK);
}

static void grad_norm__unfinished_on_one_rank__error_of_all(void **state)
{
    (void)state;
    for (int t = 0; t < TEAMS; t++)
        run_team(teams[t], check_unfinished, NULL);
}

static void expect_refused(member *m, oct_status status, const char *word)
{
    HOLDS(m, member_create(m) == status);
    HOLDS(m, m->optimizer == NULL);
    HOLDS(m, strstr(m->err.msg, word) != NULL);
    HOLDS(m, m->ledger.live_bytes_all == 0);
}

static void check_missing_init(member *m, void *arg)
{
    (void)arg;
    oct_param *param = m->tree.params[3];
    float *init = param->init;
    if (m->rank == m->ranks - 1)
        param->init = NULL;
    expect_refused(m, OCT_E_API, "'odd.weight'");
    HOLDS(m, m->tree.params[0]->init && m->tree.params[PARAMS - 1]->init);
    param->init = init;
    HOLDS(m, member_create(m) == OCT_OK);
}

static void create__init_missing_on_one_rank__error_of_all(void **state)
{
    (void)state;
    for (int t = 0; t < TEAMS; t++)
        run_team(teams[t], check_missing_init, NULL);
}

/* Rows twice, rows of nobody, and a replicated parameter that is not whole. */
static void check_wrong_cut(member *m, void *arg)
{
    (void)arg;
    static const int whose[] = {0, 1, 3};
    const bool is_last = m->rank == m->ranks - 1;
    for (int i = 0; i < 3; i++) {
        oct_param *param = m->tree.params[whose[i]];
        const int64_t begin = param->row_begin, rows = param->rows;
        param->row_begin -= is_last && i == 0;
        param->rows -= is_last && i > 0;
        expect_refused(m, OCT_E_API, specs[whose[i]].fqn);
        HOLDS(m, m->tree.params[0]->init != NULL);
        param->row_begin = begin;
        param->rows = rows;
    }
    HOLDS(m, member_create(m) == OCT_OK);
}

static void create__rows_twice_or_of_nobody__error_of_all(void **state)
{
    (void)state;
    for (int t = 0; t < TEAMS; t++)
        run_team(teams[t], check_wrong_cut, NULL);
    member alone; /* the rows of one rank of two, without the other */
    member_init(&alone, 2, 1, NULL);
    expect_refused(&alone, OCT_E_API, "'embed.weight'");
    assert_int_equal(alone.failures, 0);
    member_release(&alone);
}

/* All fail or none. *arg counts the ranks that did not get memory. */
static void check_no_memory(member *m, void *arg)
{
    (void)member_create(m);
    HOLDS(m, m->status == OCT_OK || m->status == OCT_E_NOMEM);
    HOLDS(m, (m->status == OCT_OK) == (m->optimizer != NULL));
    if (m->status == OCT_OK)
        return;
    __atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
    HOLDS(m, m->ledger.live_bytes_all == 0);
    for (int p = 0; p < PARAMS; p++)
        HOLDS(m, m->tree.params[p]->init != NULL);
}

static void create__no_memory_on_one_rank__error_of_all(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    oct_err err = {0};
    int failed = RANKS, tries = 0;
    while (failed > 0) {
        failed = 0;
        assert_int_equal(oct_fault_arm("ledger.alloc", ++tries, OCT_FAULT_FAIL, &err), OCT_OK);
        run_team(RANKS, check_no_memory, &failed);
        oct_fault_disarm_all();
        assert_true(failed == 0 || failed == RANKS);
    }
    assert_true(tries > RANKS * 2 * (PARAMS - 1)); /* at least every moment */
}

/* --- ledger -------------------------------------------------------------------------------------
 */

static void check_ledger(member *m, void *arg)
{
    (void)arg;
    int64_t master = 0, moments = 0, values = 0;
    for (int p = 0; p < PARAMS; p++) {
        const int64_t numel = oct_param_own_numel(m->tree.params[p]);
        master += 4 * numel;
        moments += specs[p].frozen ? 0 : 8 * numel;
        values += specs[p].keep_float32 ? 0 : 2 * numel;
    }
    HOLDS(m, member_create(m) == OCT_OK);
    HOLDS(m,
          oct_optimizer_attach_values(m->optimizer, &m->exec, OCT_DTYPE_BF16, &m->err) == OCT_OK);
    HOLDS(m, m->ledger.live_bytes[OCT_LEDGER_MASTER] == master);
    HOLDS(m, m->ledger.live_bytes[OCT_LEDGER_MOMENTS] == moments);
    HOLDS(m, m->ledger.live_bytes[OCT_LEDGER_HIGH_PRECISION] == values);
    HOLDS(m, m->ledger.peak_bytes[OCT_LEDGER_MASTER] == master);
    oct_optimizer_destroy(m->optimizer);
    m->optimizer = NULL;
    HOLDS(m, m->ledger.live_bytes_all == 0);
    HOLDS(m, m->ledger.peak_bytes[OCT_LEDGER_MOMENTS] == moments);
}

static void ledger__of_a_rank__bytes_of_its_rows(void **state)
{
    (void)state;
    for (int t = 0; t < TEAMS; t++)
        run_team(teams[t], check_ledger, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks__same_gradients__bits_of_one_rank),
        cmocka_unit_test(grad_norm__replicated_parameters__counted_once),
        cmocka_unit_test(update__nonfinite_element_on_last_rank__all_skip_and_name_it),
        cmocka_unit_test(grad_norm__unfinished_on_one_rank__error_of_all),
        cmocka_unit_test(create__init_missing_on_one_rank__error_of_all),
        cmocka_unit_test(create__rows_twice_or_of_nobody__error_of_all),
        cmocka_unit_test(create__no_memory_on_one_rank__error_of_all),
        cmocka_unit_test(ledger__of_a_rank__bytes_of_its_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
