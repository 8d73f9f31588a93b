#include "trainer/signals.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t pending;
static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
enum { SIGNALS = sizeof numbers / sizeof numbers[0] };
static struct sigaction old[SIGNALS];

static void on_signal(int number)
{
    pending = number;
}

void oct_signals_install(void)
{
    pending = 0;
    /* RESETHAND: the default action, ending the process, is back for the second signal. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNALS; i++) {
        sigaction(numbers[i], &action, &old[i]);
        if (numbers[i] == SIGHUP && old[i].sa_handler == SIG_IGN) /* nohup */
            sigaction(SIGHUP, &old[i], NULL);
    }
}

void oct_signals_restore(void)
{
    for (int i = 0; i < SIGNALS; i++)
        sigaction(numbers[i], &old[i], NULL);
}

int oct_signals_pending(void)
{
    return (int)pending;
}
