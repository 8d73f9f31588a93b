/* What `octet plan` says against what a build takes: masters, moments, gradients and compute copies
 * to the byte, of one rank while it trains and of every rank of a team. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "train_fixture.h"
#include "trainer/plan_report.h"

enum { MAX_RANKS = 4 };

static oct_plan_bytes plan_bytes(const oct_config *config, int ranks)
{
    oct_build build;
    oct_plan_report report;
    oct_err err = {0};
    oct_build_init(&build, config, NULL);
    if (oct_build_through(&build, OCT_STAGE_PLAN, &err) != OCT_OK ||
        oct_plan_report_make(&build, ranks, &report, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    oct_build_release(&build);
    return report.bytes;
}

/* --- one rank -----------------------------------------------------------------------------------
 */

static void copy_ledger(record *r, oct_build *build)
{
    *(oct_ledger *)r->arg = build->ledger;
}

static void plan__one_rank__bytes_of_the_run(void **state)
{
    (void)state;
    for (int format = 0; format < FORMATS; format++) {
        const char *const *words = WORDS(format == 2 ? "model.torch_dtype=float32" : "seed=3");
        oct_arena arena;
        oct_config config;
        oct_arena_init(&arena, "test configuration");
        load_config(&files, format, words, &arena, &config);
        const oct_plan_bytes plan = plan_bytes(&config, 1);
        oct_arena_release(&arena);
        oct_ledger ledger = {0};
        record r = {.stepped = copy_ledger, .arg = &ledger};
        train(&files, word("run-%d", format), format, NULL, words, &r);
        assert_trained(&r);
        assert_true(plan.master > 0);
        assert_int_equal(ledger.peak_bytes[OCT_LEDGER_MASTER], plan.master);
        assert_int_equal(ledger.peak_bytes[OCT_LEDGER_MOMENTS], plan.moments);
        assert_int_equal(ledger.peak_bytes[OCT_LEDGER_GRADIENTS], plan.gradients);
        assert_int_equal(ledger.peak_bytes[OCT_LEDGER_HIGH_PRECISION], plan.high_precision);
        assert_int_equal(plan.high_precision > 0, format != 2);
        assert_int_equal(ledger.peak_bytes[OCT_LEDGER_STAGING], plan.staging);
        assert_int_equal(ledger.peak_bytes[OCT_LEDGER_UNSHARDED], plan.unsharded);
    }
}

/* --- a team -------------------------------------------------------------------------------------
 */

typedef struct seat {
    oct_comm *comm;
    const oct_config *config;
    oct_ledger ledger;
    int64_t low_precision_bytes, left_bytes;
    int64_t unsharded; /* the most of a training pass */
    int64_t gathered;  /* what is left of it afterwards */
    oct_status status;
    oct_err err;
} seat;

/* One micro-batch, forward and backward. */
static oct_status run_pass(seat *s, oct_build *build)
{
    enum { TOKENS = 32 };
    int32_t ids[TOKENS + 1];
    for (int i = 0; i <= TOKENS; i++)
        ids[i] = (i * 37 + 11) % 257;
    const oct_batch batch = {.ids = ids, .targets = ids + 1, .batch = 1, .seq = TOKENS};
    const oct_run run = oct_build_run(build, true);
    double loss = 0.0;
    OCT_TRY(oct_dsv3_forward_backward(build->model, &run, &batch, 1.0f / TOKENS,
                                      s->config->activation_checkpoint.full, &loss, &s->err));
    if (!build->fsdp)
        return OCT_OK;
    oct_build_settle(build);
    s->unsharded = oct_fsdp_peak_bytes(build->fsdp);
    s->gathered = oct_fsdp_gathered_bytes(build->fsdp);
    return OCT_OK;
}

static void *build_rank(void *arg)
{
    seat *s = arg;
    oct_build build;
    oct_build_init(&build, s->config, s->comm);
    s->status = oct_build_through(&build, OCT_STAGE_MASTERS, &s->err);
    if (s->status == OCT_OK)
        s->status = run_pass(s, &build);
    s->ledger = build.ledger;
    s->low_precision_bytes = oct_quantized_weights_bytes(&build.weights);
    if (s->status != OCT_OK)
        oct_comm_leave(s->comm, &s->err);
    oct_build_release(&build);
    s->left_bytes = build.ledger.live_bytes_all;
    oct_comm_destroy(s->comm);
    return NULL;
}

static bool is_planned(const seat *s, const oct_plan_bytes *plan)
{
    const int64_t *peak = s->ledger.peak_bytes;
    return peak[OCT_LEDGER_MASTER] == plan->master && peak[OCT_LEDGER_MOMENTS] == plan->moments &&
           peak[OCT_LEDGER_GRADIENTS] == plan->gradients &&
           peak[OCT_LEDGER_HIGH_PRECISION] == plan->high_precision &&
           peak[OCT_LEDGER_STAGING] == plan->staging &&
           s->low_precision_bytes == plan->low_precision;
}

/* Windows hold what the plan says, and what alignment adds: the same on every rank. No weight keeps
 * panels. */
static void assert_windows(const seat *s, const oct_plan_bytes *plan)
{
    enum { TENSORS = 120, ALIGNED = 64 };
    assert_int_equal(s->gathered, 0);
    assert_in_range(s->unsharded, plan->unsharded, plan->unsharded + TENSORS * ALIGNED);
    assert_int_equal(plan->panels, 0);
    assert_int_equal(s->ledger.peak_bytes[OCT_LEDGER_PANELS], 0);
}

/* The plan tells of the rank that needs most: one has just that. Returns the masters of all. */
static int64_t check_team(int ranks, int format, const char *const *words)
{
    oct_arena arena;
    oct_config config;
    oct_arena_init(&arena, "test configuration");
    load_config(&files, format, words, &arena, &config);
    oct_err err = {0};
    if (oct_config_resolve(&config, ranks, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    const oct_plan_bytes plan = plan_bytes(&config, ranks);
    const oct_comm_options options = {.timeout_seconds = 60.0};
    oct_comm *comms[MAX_RANKS];
    seat seats[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    assert_int_equal(oct_comm_create_team(ranks, &options, comms, &err), OCT_OK);
    for (int r = 0; r < ranks; r++) {
        seats[r] = (seat){.comm = comms[r], .config = &config};
        assert_int_equal(pthread_create(&threads[r], NULL, build_rank, &seats[r]), 0);
    }
    int64_t masters = 0;
    int planned = 0;
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
        if (seats[r].status != OCT_OK)
            fail_msg("%s", seats[r].err.msg);
        assert_int_equal(seats[r].left_bytes, 0);
        masters += seats[r].ledger.peak_bytes[OCT_LEDGER_MASTER];
        planned += is_planned(&seats[r], &plan);
        if (ranks > 1)
            assert_windows(&seats[r], &plan);
    }
    assert_true(planned > 0);
    oct_arena_release(&arena);
    return masters;
}

static void plan__several_ranks__bytes_of_the_rank_that_needs_most(void **state)
{
    (void)state;
    for (int format = 0; format < FORMATS; format++) {
        const char *const *tile = WORDS("training.micro_batch_size=1");
        const int64_t whole = check_team(1, format, tile);
        assert_int_equal(check_team(2, format, tile), whole);
        check_team(2, format,
                   WORDS("training.micro_batch_size=1", "fsdp_config.reshard_after_forward=false"));
        check_team(2, format,
                   WORDS("training.micro_batch_size=1", "fsdp_config.prefetch=true",
                         "gradient_checkpointing.activation_checkpoint=full"));
        check_team(2, format,
                   WORDS("training.micro_batch_size=1", "fsdp_config.narrow_backward_gather=true",
                         "training.reduce_dtype=bfloat16"));
        /* MXFP8 does not allow a cut after one expert of 96 x 64: these are on all four ranks. */
        const int64_t quarters = check_team(
            4, format,
            WORDS("training.micro_batch_size=1", "fsdp_config.fallback_to_unsharded=true"));
        assert_int_equal(quarters, whole + (format == 1 ? 3 * 4 * 4 * 96 * 64 : 0));
        /* The head of 257 rows does not divide: it is on both ranks. */
        const int64_t even =
            check_team(2, format,
                       WORDS("training.micro_batch_size=1", "fsdp_config.shard=even",
                             "fsdp_config.fallback_to_unsharded=true"));
        assert_true(even >= whole + 2 * 4 * 257 * 64);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan__one_rank__bytes_of_the_run),
        cmocka_unit_test(plan__several_ranks__bytes_of_the_rank_that_needs_most),
    };
    return cmocka_run_group_tests(tests, make_train_files, remove_train_files);
}
