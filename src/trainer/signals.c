#include "trainer/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_int pending; /* lock-free: a handler may store, every rank may look */
static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
enum { SIGNALS = sizeof numbers / sizeof numbers[0] };
static struct sigaction old[SIGNALS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int listeners; /* runs in this process: ranks of a team are several */

static void on_signal(int number)
{
    atomic_store(&pending, number);
}

static void install(void)
{
    atomic_store(&pending, 0);
    /* RESETHAND: the default action, ending the process, is back for the second signal. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNALS; i++) {
        sigaction(numbers[i], &action, &old[i]);
        if (numbers[i] == SIGHUP && old[i].sa_handler == SIG_IGN) /* nohup */
            sigaction(SIGHUP, &old[i], NULL);
    }
}

void oct_signals_install(void)
{
    pthread_mutex_lock(&lock);
    if (listeners++ == 0)
        install();
    pthread_mutex_unlock(&lock);
}

void oct_signals_restore(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; listeners == 1 && i < SIGNALS; i++)
        sigaction(numbers[i], &old[i], NULL);
    listeners--;
    pthread_mutex_unlock(&lock);
}

int oct_signals_pending(void)
{
    return atomic_load(&pending);
}
