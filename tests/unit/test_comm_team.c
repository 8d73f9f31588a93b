/* Ranks as threads: every operation with delays, with a failure of every rank in every exchange,
 * with a rank that hangs, and without memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <time.h>

#include "comm_cases.h"
#include "rank_threads.h"

static void sleep_seconds(double seconds)
{
    const struct timespec time = {.tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)nanosleep(&time, NULL);
}

static int run_cases(oct_comm *comm, void *arg)
{
    (void)arg;
    return comm_cases(comm);
}

static void comm_team__every_size_and_grouping__all_cases_hold(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int node_ranks = 0; node_ranks <= 3; node_ranks++) {
            const oct_comm_options options = {
                .piece_bytes = 64, .node_ranks = node_ranks, .timeout_seconds = 20.0};
            assert_int_equal(count_failures(sizes[i], &options, run_cases, NULL), 0);
        }
}

static void comm_team__whole_pieces__all_cases_hold(void **state)
{
    (void)state;
    assert_int_equal(count_failures(3, NULL, run_cases, NULL), 0);
}

static void comm_one__all_cases_hold(void **state)
{
    (void)state;
    oct_comm *comm = NULL;
    oct_err err = {0};
    assert_int_equal(oct_comm_create_one(&comm, &err), OCT_OK);
    assert_int_equal(oct_comm_size(comm), 1);
    assert_string_equal(oct_comm_describe(comm), "1 rank");
    assert_int_equal(comm_cases(comm), 0);
    oct_comm_destroy(comm);
}

static oct_status delay(void *arg, int rank, int64_t op, oct_err *err)
{
    (void)arg;
    (void)err;
    const uint32_t dice = cases_mix((uint32_t)rank * 977u + (uint32_t)op);
    if (dice % 5 == 0)
        sleep_seconds((double)(dice % 400) * 1e-6);
    return OCT_OK;
}

static void comm_team__delays__all_cases_hold(void **state)
{
    (void)state;
    for (int node_ranks = 0; node_ranks <= 2; node_ranks++) {
        const oct_comm_options options = {
            .piece_bytes = 64, .node_ranks = node_ranks, .timeout_seconds = 20.0, .hook = delay};
        assert_int_equal(count_failures(4, &options, run_cases, NULL), 0);
    }
}

/* --- failures -----------------------------------------------------------------------------------
 */

typedef struct fault {
    int rank;
    int64_t op;
} fault;

static oct_status fail_once(void *arg, int rank, int64_t op, oct_err *err)
{
    const fault *f = arg;
    if (rank != f->rank || op != f->op)
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_COMM, "cable of rank %d cut before exchange %lld", rank,
                    (long long)op);
}

/* A piece of a step with every operation; returns where it ended. */
static oct_status small_step(oct_comm *comm, oct_err *err)
{
    const int size = oct_comm_size(comm);
    size_t bytes[CASES_MAX_RANKS];
    int64_t counts[CASES_MAX_RANKS], number = 3;
    uint8_t all[CASES_MAX_RANKS * 16], own[16] = {1};
    float grad[CASES_MAX_RANKS * 4] = {0}, acc[4] = {0}, amax = 1.0f;
    for (int r = 0; r < size; r++) {
        bytes[r] = 16;
        counts[r] = 4;
    }
    oct_comm_phase(comm, "step", NULL);
    OCT_TRY(oct_comm_barrier(comm, err));
    OCT_TRY(oct_comm_all_gather(comm, own, bytes, all, err));
    OCT_TRY(oct_comm_broadcast(comm, size - 1, own, sizeof own, err));
    OCT_TRY(oct_comm_max_amax(comm, &amax, 1, err));
    OCT_TRY(oct_comm_fold(comm, OCT_DTYPE_F32, grad, counts, acc, false, err));
    OCT_TRY(oct_comm_min_i64(comm, &number, 1, err));
    OCT_TRY(oct_comm_gather(comm, own, bytes, oct_comm_rank(comm) == 0 ? all : NULL, err));
    return oct_comm_agree(comm, OCT_OK, err);
}

enum { SMALL_STEP_OPS = 8 };

static int ends_in_the_agreed_error(oct_comm *comm, void *arg)
{
    int failures = 0;
    const fault *f = arg;
    oct_err err = {0};
    char wanted[100];
    (void)snprintf(wanted, sizeof wanted, "cable of rank %d cut before exchange %lld", f->rank,
                   (long long)f->op);
    EXPECT(comm, small_step(comm, &err) == OCT_E_COMM);
    EXPECT(comm, err.rank == f->rank && strcmp(err.msg, wanted) == 0);
    EXPECT(comm, oct_comm_is_broken(comm));
    oct_err again = {0}; /* at once, and the same */
    EXPECT(comm, oct_comm_barrier(comm, &again) == OCT_E_COMM);
    EXPECT(comm, strcmp(again.msg, wanted) == 0 && again.rank == f->rank);
    return failures;
}

static int passes(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err = {0};
    EXPECT(comm, small_step(comm, &err) == OCT_OK);
    EXPECT(comm, oct_comm_stats_of(comm).exchanges == SMALL_STEP_OPS);
    return failures;
}

static void comm_team__each_rank_fails_in_each_exchange__all_end_in_its_error(void **state)
{
    (void)state;
    for (int node_ranks = 0; node_ranks <= 2; node_ranks++) {
        oct_comm_options options = {
            .piece_bytes = 64, .node_ranks = node_ranks, .timeout_seconds = 20.0};
        assert_int_equal(count_failures(4, &options, passes, NULL), 0);
        for (int rank = 0; rank < 4; rank++)
            for (int64_t op = 0; op < SMALL_STEP_OPS; op++) {
                fault f = {.rank = rank, .op = op};
                options.hook = fail_once;
                options.hook_arg = &f;
                assert_int_equal(count_failures(4, &options, ends_in_the_agreed_error, &f), 0);
            }
    }
}

static int one_leaves(oct_comm *comm, void *arg)
{
    int failures = 0;
    const int leaver = *(const int *)arg;
    oct_err err = {0};
    oct_status status = oct_comm_barrier(comm, &err);
    if (oct_comm_rank(comm) == leaver) {
        EXPECT(comm, status == OCT_OK);
        (void)OCT_FAIL(&err, OCT_E_NOMEM, "no memory for layer 3");
        oct_comm_leave(comm, &err);
    } else {
        if (status == OCT_OK) /* a rank still waking up in the barrier may hear of it there */
            status = small_step(comm, &err);
        EXPECT(comm, status == OCT_E_NOMEM);
    }
    EXPECT(comm, err.rank == leaver && strcmp(err.msg, "no memory for layer 3") == 0);
    return failures;
}

/* After an agreed failure and one more exchange the same words are news again. */
static int one_leaves_in_old_words(oct_comm *comm, void *arg)
{
    int failures = 0;
    const int leaver = *(const int *)arg;
    oct_err err = {0};
    oct_status status = OCT_OK;
    oct_comm_phase(comm, "saving", NULL);
    if (oct_comm_rank(comm) == 0)
        status = OCT_FAIL(&err, OCT_E_NOMEM, "no memory for layer 3");
    EXPECT(comm, oct_comm_agree(comm, status, &err) == OCT_E_NOMEM);
    err = (oct_err){0};
    return failures + one_leaves(comm, (void *)(uintptr_t)&leaver);
}

static void comm_leave__in_the_words_of_an_old_agreement__all_others_get_its_error(void **state)
{
    (void)state;
    for (int leaver = 0; leaver < 4; leaver++) {
        const oct_comm_options options = {.timeout_seconds = 20.0};
        assert_int_equal(count_failures(4, &options, one_leaves_in_old_words, &leaver), 0);
    }
}

static void comm_leave__each_rank__all_others_get_its_error(void **state)
{
    (void)state;
    for (int node_ranks = 0; node_ranks <= 2; node_ranks++)
        for (int leaver = 0; leaver < 4; leaver++) {
            const oct_comm_options options = {.node_ranks = node_ranks, .timeout_seconds = 20.0};
            assert_int_equal(count_failures(4, &options, one_leaves, &leaver), 0);
        }
}

/* --- the watchdog -------------------------------------------------------------------------------
 */

static int one_never_comes(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err = {0};
    oct_comm_phase(comm, "backward", "model.layers.7");
    EXPECT(comm, oct_comm_barrier(comm, &err) == OCT_OK);
    if (oct_comm_rank(comm) == 1) { /* alive, but it comes too late */
        oct_comm_phase(comm, "lost in", "model.layers.6");
        sleep_seconds(1.2);
        EXPECT(comm, oct_comm_barrier(comm, &err) == OCT_E_COMM);
        return failures;
    }
    sleep_seconds(0.1); /* let it say where it is */
    EXPECT(comm, oct_comm_barrier(comm, &err) == OCT_E_COMM);
    EXPECT(comm, strstr(err.msg, "communication hangs in phase 'backward model.layers.7'"));
    EXPECT(comm, strstr(err.msg, "rank 1 is awaited"));
    EXPECT(comm, strstr(err.msg, "for 0.4 s"));
    return failures;
}

static void comm_watchdog__rank_that_never_comes__named_with_both_phases(void **state)
{
    (void)state;
    for (int node_ranks = 0; node_ranks <= 1; node_ranks++) {
        const oct_comm_options options = {.node_ranks = node_ranks, .timeout_seconds = 0.4};
        assert_int_equal(count_failures(3, &options, one_never_comes, NULL), 0);
    }
}

static int one_is_slow(oct_comm *comm, void *arg)
{
    (void)arg;
    int failures = 0;
    oct_err err = {0};
    oct_comm_phase(comm, "forward", NULL);
    for (int i = 0; i < 12 && oct_comm_rank(comm) == 1; i++) {
        sleep_seconds(0.1);
        oct_comm_progress(comm);
    }
    EXPECT(comm, oct_comm_barrier(comm, &err) == OCT_OK);
    return failures;
}

static void comm_watchdog__slow_rank_with_progress__others_wait(void **state)
{
    (void)state;
    for (int node_ranks = 0; node_ranks <= 1; node_ranks++) {
        const oct_comm_options options = {.node_ranks = node_ranks, .timeout_seconds = 0.5};
        assert_int_equal(count_failures(3, &options, one_is_slow, NULL), 0);
    }
}

/* --- arguments ----------------------------------------------------------------------------------
 */

static void comm_options__out_of_bounds__refused(void **state)
{
    (void)state;
    oct_comm *comms[4];
    oct_err err = {0};
    static const oct_comm_options bad[] = {{.piece_bytes = 65},
                                           {.piece_bytes = 1ull << 31},
                                           {.timeout_seconds = -1.0},
                                           {.node_ranks = -1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(oct_comm_create_team(2, &bad[i], comms, &err), OCT_E_API);
    assert_int_equal(oct_comm_create_team(0, NULL, comms, &err), OCT_E_API);
}

static void comm_options_from_environment__words__read_or_refused(void **state)
{
    (void)state;
    oct_comm_options options;
    oct_err err = {0};
    static const char *const names[] = {"OCTET_SHM", "OCTET_COMM_TIMEOUT", "OCTET_COMM_PIECE"};
    static const char *const wrong[] = {"yes", "-1", "100"};
    for (int i = 0; i < 3; i++)
        (void)unsetenv(names[i]);
    assert_int_equal(oct_comm_options_from_environment(&options, &err), OCT_OK);
    assert_int_equal(options.node_ranks, 0);
    for (int i = 0; i < 3; i++) {
        (void)setenv(names[i], wrong[i], 1);
        assert_int_equal(oct_comm_options_from_environment(&options, &err), OCT_E_CONFIG);
        assert_non_null(strstr(err.msg, names[i]));
        (void)unsetenv(names[i]);
    }
    (void)setenv("OCTET_SHM", "0", 1);
    (void)setenv("OCTET_COMM_TIMEOUT", "2.5", 1);
    (void)setenv("OCTET_COMM_PIECE", "128", 1);
    assert_int_equal(oct_comm_options_from_environment(&options, &err), OCT_OK);
    assert_int_equal(options.node_ranks, 1);
    assert_true(options.timeout_seconds == 2.5);
    assert_int_equal(options.piece_bytes, 128);
    for (int i = 0; i < 3; i++)
        (void)unsetenv(names[i]);
}

static void comm_create__launcher_of_more_ranks_than_found__refused(void **state)
{
    (void)state;
    oct_comm *comm = NULL;
    oct_err err = {0};
    for (int i = 0; i < 3; i++)
        (void)unsetenv((const char *const[]){"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}[i]);
    (void)unsetenv("SLURM_STEP_NUM_TASKS");
    assert_int_equal(oct_comm_create(NULL, &comm, &err), OCT_OK);
    assert_int_equal(oct_comm_size(comm), 1);
    oct_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comm_one__all_cases_hold),
        cmocka_unit_test(comm_team__every_size_and_grouping__all_cases_hold),
        cmocka_unit_test(comm_team__whole_pieces__all_cases_hold),
        cmocka_unit_test(comm_team__delays__all_cases_hold),
        cmocka_unit_test(comm_team__each_rank_fails_in_each_exchange__all_end_in_its_error),
        cmocka_unit_test(comm_leave__each_rank__all_others_get_its_error),
        cmocka_unit_test(comm_leave__in_the_words_of_an_old_agreement__all_others_get_its_error),
        cmocka_unit_test(comm_watchdog__rank_that_never_comes__named_with_both_phases),
        cmocka_unit_test(comm_watchdog__slow_rank_with_progress__others_wait),
        cmocka_unit_test(comm_options__out_of_bounds__refused),
        cmocka_unit_test(comm_options_from_environment__words__read_or_refused),
        cmocka_unit_test(comm_create__launcher_of_more_ranks_than_found__refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
