#include "trainer/signals.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t pending;
static struct sigaction old_int, old_term;

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
    sigaction(SIGINT, &action, &old_int);
    sigaction(SIGTERM, &action, &old_term);
}

void oct_signals_restore(void)
{
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGTERM, &old_term, NULL);
}

int oct_signals_pending(void)
{
    return (int)pending;
}
