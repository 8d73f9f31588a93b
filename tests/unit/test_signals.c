/* SIGINT, SIGTERM, SIGHUP and SIGUSR1 are remembered while a run listens, and only then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainer/signals.h"

static void install__each_signal__is_pending_until_the_next_run(void **state)
{
    (void)state;
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    for (int i = 0; i < 3; i++) {
        oct_signals_install();
        assert_int_equal(oct_signals_pending(), 0);
        assert_int_equal(raise(numbers[i]), 0);
        assert_int_equal(oct_signals_pending(), numbers[i]);
        oct_signals_restore();
    }
}

/* Ranks of a team are runs of one process: the last one that ends gives the handlers back. */
static void install__twice__listens_until_both_end(void **state)
{
    (void)state;
    oct_signals_install();
    oct_signals_install();
    oct_signals_restore();
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(oct_signals_pending(), SIGTERM);
    oct_signals_restore();
    struct sigaction now;
    assert_int_equal(sigaction(SIGTERM, NULL, &now), 0);
    assert_true(now.sa_handler == SIG_DFL);
}

static volatile sig_atomic_t seen;

static void on_signal(int number)
{
    seen = number;
}

static void restore__earlier_handlers__are_back(void **state)
{
    (void)state;
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    for (int i = 0; i < 3; i++) {
        struct sigaction action = {.sa_handler = on_signal}, now;
        seen = 0;
        assert_int_equal(sigaction(numbers[i], &action, NULL), 0);
        oct_signals_install();
        assert_int_equal(raise(numbers[i]), 0);
        assert_int_equal(seen, 0);
        oct_signals_restore();
        assert_int_equal(sigaction(numbers[i], NULL, &now), 0);
        assert_true(now.sa_handler == on_signal);
        assert_int_equal(raise(numbers[i]), 0);
        assert_int_equal(seen, numbers[i]);
        action.sa_handler = SIG_DFL;
        assert_int_equal(sigaction(numbers[i], &action, NULL), 0);
    }
}

/* Started under nohup. */
static void install__ignored_sighup__stays_ignored(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = SIG_IGN}, now;
    assert_int_equal(sigaction(SIGHUP, &action, NULL), 0);
    oct_signals_install();
    assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(oct_signals_pending(), 0);
    oct_signals_restore();
    assert_int_equal(sigaction(SIGHUP, NULL, &now), 0);
    assert_true(now.sa_handler == SIG_IGN);
    action.sa_handler = SIG_DFL;
    assert_int_equal(sigaction(SIGHUP, &action, NULL), 0);
}

/* Whoever asks twice does not want to wait for the end of the step. */
static void install__second_signal__ends_the_process(void **state)
{
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        oct_signals_install();
        (void)raise(SIGTERM);
        (void)raise(SIGTERM);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(install__each_signal__is_pending_until_the_next_run),
        cmocka_unit_test(install__twice__listens_until_both_end),
        cmocka_unit_test(restore__earlier_handlers__are_back),
        cmocka_unit_test(install__ignored_sighup__stays_ignored),
        cmocka_unit_test(install__second_signal__ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
