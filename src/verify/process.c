#include "verify/process.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static const double GRACE_SECONDS = 5.0;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(long milliseconds)
{
    const struct timespec t = {.tv_nsec = milliseconds * 1000000L};
    (void)nanosleep(&t, NULL);
}

static bool names_same(const char *a, const char *b)
{
    const size_t length = strcspn(a, "=");
    return strncmp(a, b, length) == 0 && b[length] == '=';
}

/* This process's environment with the given words in place of those of the same name; free() it. */
static const char **merge(const char *const *extra)
{
    size_t own = 0, more = 0;
    while (environ[own])
        own++;
    while (extra && extra[more])
        more++;
    const char **out = calloc(own + more + 1, sizeof *out);
    if (!out)
        return NULL;
    size_t n = 0;
    for (size_t i = 0; i < own; i++) {
        bool replaced = false;
        for (size_t j = 0; j < more; j++)
            replaced = replaced || names_same(extra[j], environ[i]);
        if (!replaced)
            out[n++] = environ[i];
    }
    for (size_t j = 0; j < more; j++)
        out[n++] = extra[j];
    return out;
}

static int prepare(const oct_process_options *o, posix_spawn_file_actions_t *actions,
                   posix_spawnattr_t *attributes)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    const char *out = o->stdout_path ? o->stdout_path : "/dev/null";
    const char *errors = o->stderr_path ? o->stderr_path : "/dev/null";
    int e = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (e == 0)
        e = posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, out, flags, 0666);
    if (e == 0)
        e = posix_spawn_file_actions_addopen(actions, STDERR_FILENO, errors, flags, 0666);
    if (e == 0 && o->folder) /* last: the paths above are relative to this process */
        e = posix_spawn_file_actions_addchdir_np(actions, o->folder);
    if (e == 0)
        e = posix_spawnattr_setpgroup(attributes, 0);
    if (e == 0)
        e = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP);
    return e;
}

static oct_status start(const oct_process_options *o, pid_t *pid, oct_err *err)
{
    const char **environment = merge(o->environment);
    if (!environment)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot run '%s': out of memory", o->argv[0]);
    char **arguments, **variables; /* only read, but they have no const form */
    memcpy(&arguments, &o->argv, sizeof arguments);
    memcpy(&variables, &environment, sizeof variables);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawnattr_init(&attributes);
    int e = prepare(o, &actions, &attributes);
    if (e == 0)
        e = posix_spawnp(pid, o->argv[0], &actions, &attributes, arguments, variables);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    free(environment);
    if (e != 0)
        return OCT_FAIL(err, OCT_E_IO,
                        "cannot run '%s': %s, a program that starts and output files that can be "
                        "written are required",
                        o->argv[0], strerror(e));
    return OCT_OK;
}

/* The end of the whole group: first politely, so that a launcher ends its ranks, then surely. */
static void end_group(pid_t pid, double *ended_at)
{
    if (*ended_at == 0.0) {
        *ended_at = now();
        (void)kill(-pid, SIGTERM);
    } else if (now() - *ended_at > GRACE_SECONDS) {
        (void)kill(-pid, SIGKILL);
    }
}

oct_status oct_process_run(const oct_process_options *options, oct_process_result *result,
                           oct_err *err)
{
    *result = (oct_process_result){.exit_code = -1};
    const double begin = now();
    pid_t pid = 0;
    OCT_TRY(start(options, &pid, err));
    int status = 0;
    double ended_at = 0.0;
    for (long pause = 1;; pause = pause < 20 ? pause + 1 : 20) {
        const pid_t done = waitpid(pid, &status, WNOHANG);
        if (done == pid)
            break;
        if (done < 0 && errno != EINTR)
            return OCT_FAIL(err, OCT_E_IO, "cannot wait for '%s': %s", options->argv[0],
                            strerror(errno));
        const double passed = now() - begin;
        if (options->timeout_seconds > 0.0 && passed > options->timeout_seconds)
            result->timed_out = true;
        if (options->stop && *options->stop)
            result->stopped = true;
        if (result->timed_out || result->stopped)
            end_group(pid, &ended_at);
        nap(pause);
    }
    if (result->timed_out || result->stopped)
        (void)kill(-pid, SIGKILL); /* whoever of the group is left */
    result->seconds = now() - begin;
    if (WIFEXITED(status))
        result->exit_code = WEXITSTATUS(status);
    else
        result->signal = WTERMSIG(status);
    return OCT_OK;
}
