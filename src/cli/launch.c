/* octet launch: mpirun with what many ranks on few cores need. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu.h"
#include "cli/cli.h"

static const char name[] = "launch";

/* Where the build found it; elsewhere the one of PATH. */
#ifndef OCTET_MPIRUN
#define OCTET_MPIRUN ""
#endif

typedef struct launch {
    const char *ranks; /* as given */
    long long count;
    const char *hostfile;
    const char *mpirun;
    bool open_mpi;
    bool takes_quiet; /* Open MPI before 5; later ones know no such option */
    char **command; /* ends with NULL */
    int command_words;
    char shown[1024]; /* variables that are set, as a shell takes them */
} launch;

/* The launcher's name for itself: the start of what it prints for --version. Empty if it does not
 * run. */
static void ask_version(const char *mpirun, char *out, size_t size)
{
    out[0] = '\0';
    int ends[2];
    if (pipe(ends) != 0)
        return;
    const pid_t child = fork();
    if (child == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)close(ends[0]);
        execlp(mpirun, mpirun, "--version", (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    size_t used = 0;
    ssize_t got = 0;
    while (child > 0 && used + 1 < size && (got = read(ends[0], out + used, size - 1 - used)) > 0)
        used += (size_t)got;
    out[used] = '\0';
    char rest[256]; /* a pipe that closes early would kill the child */
    while (child > 0 && read(ends[0], rest, sizeof rest) > 0)
        ;
    (void)close(ends[0]);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status) ||
        WEXITSTATUS(status) == 127)
        out[0] = '\0';
}

/* Sets a variable unless the user did, and notes it. */
static void set(launch *l, const char *variable, const char *value)
{
    if (getenv(variable))
        return;
    (void)setenv(variable, value, 0);
    const size_t used = strlen(l->shown);
    (void)snprintf(l->shown + used, sizeof l->shown - used, "%s=%s ", variable, value);
}

static void prepare_environment(launch *l)
{
    const int cores = oct_cpu_count();
    if (!isatty(STDOUT_FILENO)) { /* mpirun makes a terminal of every rank's stdout */
        (void)unsetenv("TERM");
        set(l, "TERM", "dumb");
    }
    set(l, "OMP_WAIT_POLICY", "passive");
    if (!l->hostfile) {
        char threads[16];
        (void)snprintf(threads, sizeof threads, "%lld", l->count < cores ? cores / l->count : 1);
        set(l, "OMP_NUM_THREADS", threads);
    }
    if (!l->open_mpi)
        return;
    if (geteuid() == 0) {
        set(l, "OMPI_ALLOW_RUN_AS_ROOT", "1");
        set(l, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
    set(l, "OMPI_MCA_mpi_yield_when_idle", "1");
    set(l, "HWLOC_COMPONENTS", "-gl"); /* its search for displays waits for name servers */
    if (!l->hostfile) {                /* one machine: no search for networks */
        set(l, "OMPI_MCA_pml", "ob1");
        set(l, "OMPI_MCA_btl", "self,vader");
    }
}

/* Variables that ranks on other machines need as well; Open MPI takes only those that are named. */
static int forward(const launch *l, const char **words)
{
    static const char *const variables[] = {
        "OMP_WAIT_POLICY", "OMP_NUM_THREADS",    "HWLOC_COMPONENTS", "OMPI_MCA_mpi_yield_when_idle",
        "OCTET_SHM",       "OCTET_COMM_TIMEOUT", "OCTET_COMM_PIECE", "OCTET_ISA"};
    int count = 0;
    for (size_t i = 0; l->hostfile && i < sizeof variables / sizeof variables[0]; i++) {
        if (!getenv(variables[i]))
            continue;
        words[count++] = "-x";
        words[count++] = variables[i];
    }
    return count;
}

static int run(launch *l)
{
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) {
        fprintf(stderr, "octet: cannot launch: /proc/self/exe cannot be read: %s\n",
                strerror(errno));
        return OCT_EXIT_COMM;
    }
    self[length] = '\0';
    enum { FIXED_WORDS = 40 };
    const char **words = calloc((size_t)l->command_words + FIXED_WORDS, sizeof *words);
    if (!words) {
        fprintf(stderr, "octet: cannot launch: out of memory\n");
        return OCT_EXIT_NOMEM;
    }
    int n = 0;
    words[n++] = l->mpirun;
    words[n++] = "-n";
    words[n++] = l->ranks;
    if (l->open_mpi) {
        words[n++] = "--oversubscribe";
        words[n++] = "--bind-to";
        words[n++] = "none";
        if (l->takes_quiet)
            words[n++] = "--quiet"; /* octet tells its errors itself */
        n += forward(l, words + n);
    }
    if (l->hostfile) {
        words[n++] = l->open_mpi ? "--hostfile" : "-f";
        words[n++] = l->hostfile;
    }
    words[n++] = self;
    for (int i = 0; i < l->command_words; i++)
        words[n++] = l->command[i];
    fprintf(stderr, "launch: %s", l->shown);
    for (int i = 0; i < n; i++)
        fprintf(stderr, "%s%s", words[i], i + 1 < n ? " " : "\n");
    execvp(words[0], (char **)(void *)words);
    fprintf(stderr, "octet: cannot launch: '%s' cannot be run: %s\n", l->mpirun, strerror(errno));
    free(words);
    return OCT_EXIT_COMM;
}

static int parse(int argc, char **argv, launch *l)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            l->command = argv + i + 1;
            l->command_words = argc - i - 1;
            break;
        }
        int taken = oct_cli_option(name, argc, argv, &i, "-n", &l->ranks);
        if (!taken)
            taken = oct_cli_option(name, argc, argv, &i, "--hostfile", &l->hostfile);
        if (!taken)
            taken = oct_cli_option(name, argc, argv, &i, "--mpirun", &l->mpirun);
        if (taken < 0)
            return -1;
        if (!taken) {
            (void)oct_cli_usage(name, "unknown argument '%.256s', an option is required before --",
                                argv[i]);
            return -1;
        }
    }
    if (!l->ranks) {
        (void)oct_cli_usage(name, "no number of ranks, -n RANKS is required");
        return -1;
    }
    if (oct_cli_integer(name, "-n", l->ranks, 1, 65536, &l->count) != 0)
        return -1;
    if (l->command_words == 0) {
        (void)oct_cli_usage(name, "no command, one is required after --");
        return -1;
    }
    return 0;
}

int oct_command_launch(int argc, char **argv)
{
    launch l = {.mpirun = OCTET_MPIRUN};
    if (parse(argc, argv, &l) != 0)
        return OCT_EXIT_USAGE;
    if (l.hostfile && access(l.hostfile, R_OK) != 0) { /* mpirun would say nothing: --quiet */
        fprintf(stderr, "octet: cannot launch %lld ranks: %s (--hostfile %.512s)\n", l.count,
                strerror(errno), l.hostfile);
        return OCT_EXIT_USAGE;
    }
    if (l.mpirun[0] == '\0') {
        fprintf(stderr,
                "octet: cannot launch %lld ranks: this octet was built without MPI, a build "
                "with OCTET_MPI=ON is required\n",
                l.count);
        return OCT_EXIT_COMM;
    }
    char version[512];
    ask_version(l.mpirun, version, sizeof version);
    if (version[0] == '\0') {
        fprintf(stderr,
                "octet: cannot launch %lld ranks: '%s' cannot be run, mpirun is required "
                "(--mpirun)\n",
                l.count, l.mpirun);
        return OCT_EXIT_COMM;
    }
    l.open_mpi =
        strstr(version, "Open MPI") || strstr(version, "OpenRTE") || strstr(version, "open-mpi");
    const char *number = strpbrk(version, "0123456789");
    l.takes_quiet = number && strtol(number, NULL, 10) < 5;
    prepare_environment(&l);
    return run(&l);
}
