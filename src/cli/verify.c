/* octet verify: runs the acceptance matrix and says how each case ended. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "verify/verify.h"

static const char name[] = "verify";

#ifndef OCTET_MPIRUN
#define OCTET_MPIRUN ""
#endif

enum { MAX_CASES = 32 };

extern const char octet_commit[]; /* made by the build (cmake/commit.cmake) */

static volatile sig_atomic_t stop;

typedef struct arguments {
    const char *ranks, *model, *config, *out;
    const char *cases[MAX_CASES];
    int case_count;
    bool dry_run;
} arguments;

static void on_signal(int number)
{
    stop = number;
}

static void say(const char *line)
{
    puts(line);
    (void)fflush(stdout);
}

static int word_of(const char *option, const char *text, const char *const *words, int count)
{
    char list[128] = "";
    for (int i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0)
            return i;
        const size_t used = strlen(list);
        (void)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
    }
    (void)oct_cli_usage(name, "unknown %s: found '%.64s', one of %s is required", option, text,
                        list);
    return -1;
}

static int parse(int argc, char **argv, arguments *a, oct_verify *v)
{
    for (int i = 1; i < argc; i++) {
        const char *one = NULL;
        int taken = oct_cli_option(name, argc, argv, &i, "--ranks", &a->ranks);
        if (!taken)
            taken = oct_cli_option(name, argc, argv, &i, "--model", &a->model);
        if (!taken)
            taken = oct_cli_option(name, argc, argv, &i, "--config", &a->config);
        if (!taken)
            taken = oct_cli_option(name, argc, argv, &i, "--out", &a->out);
        if (!taken && (taken = oct_cli_option(name, argc, argv, &i, "--case", &one)) > 0) {
            if (a->case_count == MAX_CASES) {
                (void)oct_cli_usage(name, "more than %d cases were named", MAX_CASES);
                return -1;
            }
            a->cases[a->case_count++] = one;
        }
        if (taken < 0)
            return -1;
        if (taken)
            continue;
        if (strcmp(argv[i], "--quick") == 0) {
            v->quick = true;
        } else if (strcmp(argv[i], "--dry-run") == 0) {
            a->dry_run = true;
        } else {
            (void)oct_cli_usage(name, "unknown argument '%.256s', an option is required", argv[i]);
            return -1;
        }
    }
    return 0;
}

/* Makes the directory and its absolute path. */
static int open_out(const char *path, char *out)
{
    oct_err err = {0};
    int lock; /* held until the program ends */
    const oct_status status = oct_verify_open_out(path, &lock, &err);
    if (status != OCT_OK)
        return oct_cli_fail(status, &err);
    if (!realpath(path, out)) {
        fprintf(stderr, "octet: cannot use '%s': %s (--out)\n", path, strerror(errno));
        return OCT_EXIT_USAGE;
    }
    return 0;
}

static int run(const arguments *a, oct_verify *v)
{
    static char program[OCT_PATH_BYTES], out[OCT_PATH_BYTES];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0) {
        fprintf(stderr, "octet: cannot verify: /proc/self/exe cannot be read: %s\n",
                strerror(errno));
        return OCT_EXIT_FAILED;
    }
    v->program = program;
    v->commit = octet_commit;
    v->mpirun = OCTET_MPIRUN;
    v->say = say;
    v->stop = &stop;
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
    if (signal(SIGHUP, on_signal) == SIG_IGN) /* nohup */
        (void)signal(SIGHUP, SIG_IGN);
    oct_err err = {0};
    bool passed = false;
    oct_status status = oct_verify_check_start(v, a->cases, a->case_count, &err);
    if (status != OCT_OK)
        return oct_cli_fail(status, &err);
    if (stop) { /* earlier evidence stays */
        (void)OCT_FAIL(&err, OCT_E_INTERRUPTED, "stopped by a signal");
        (void)oct_cli_fail(OCT_E_INTERRUPTED, &err);
        return OCT_EXIT_SIGNAL + (int)stop;
    }
    const int code = open_out(a->out, out);
    if (code != 0)
        return code;
    v->out = out;
    status = oct_verify_all(v, a->cases, a->case_count, &passed, &err);
    oct_verify_release(v);
    if (status != OCT_OK) {
        const int failed = oct_cli_fail(status, &err);
        return status == OCT_E_INTERRUPTED ? OCT_EXIT_SIGNAL + (int)stop : failed;
    }
    printf("report: %s/report.json\n", out);
    if (!passed)
        fputs("octet: verification failed: cases did not pass, all are required to pass\n", stderr);
    return passed ? OCT_EXIT_OK : OCT_EXIT_FAILED;
}

int oct_command_verify(int argc, char **argv)
{
    static arguments a = {.ranks = "8", .out = "verify-out"};
    static oct_verify v;
    long long ranks = 0;
    if (parse(argc, argv, &a, &v) != 0 ||
        oct_cli_integer(name, "--ranks", a.ranks, 1, 1024, &ranks) != 0)
        return OCT_EXIT_USAGE;
    if (a.config && a.model)
        return oct_cli_usage(name, "--model and --config were both given, one of them is required");
    const int model =
        word_of("--model", a.model ? a.model : "scaled", oct_verify_models, OCT_VERIFY_MODEL_COUNT);
    if (model < 0)
        return OCT_EXIT_USAGE;
    if (a.config && a.dry_run)
        return oct_cli_usage(name, "--dry-run and --config were both given, a --model is required "
                                   "for a dry run: octet plan shows that of a file");
    v.ranks = (int)ranks;
    v.model = (oct_verify_model)model;
    v.config = a.config;
    if (a.config) { /* one format of one file: the launcher form of chapter 16.6 */
        static const char *const formats[] = {"bf16", "mxfp8", "hif8_current"};
        if (a.case_count != 1)
            return oct_cli_usage(name,
                                 "%d cases with --config, --case bf16, mxfp8 or hif8_current "
                                 "is required",
                                 a.case_count);
        const int format = word_of("--case", a.cases[0], formats, OCT_VERIFY_FORMAT_COUNT);
        if (format < 0)
            return OCT_EXIT_USAGE;
        v.format = (oct_verify_format)format;
        a.cases[0] = "16.6";
    }
    if (a.dry_run) {
        if (a.case_count > 0)
            return oct_cli_usage(name,
                                 "--dry-run is a case of its own, --case beside it is not allowed");
        a.cases[a.case_count++] = "dry-run";
    }
    return run(&a, &v);
}
