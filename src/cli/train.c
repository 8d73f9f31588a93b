/* octet train: runs a job and shows how it goes, a live line on a terminal, plain lines elsewhere.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "cli/cli.h"
#include "cli/console.h"
#include "cli/job.h"
#include "comm/binding.h"
#include "trainer/train.h"

static const char name[] = "train";

/* What is shown while training. */
typedef struct display {
    const oct_config *config;
    bool terminal;
    bool output_lost;    /* told once */
    bool line_open;      /* a live line stands without its newline */
    oct_json json;       /* of one row, for logging.format: json */
    oct_console console; /* of torchtitan jobs */
    int64_t rows;        /* seen so far */
    double step_seconds; /* mean of the last steps, for the time left; leaves out the first */
} display;

/* A reader that went away, or a full disk behind stdout, does not cost the run. */
static void check_output(display *show)
{
    if (fflush(stdout) == 0 || show->output_lost)
        return;
    show->output_lost = true;
    fprintf(stderr, "octet: warning: training goes on without its output: %s\n", strerror(errno));
}

static void end_line(display *show)
{
    if (show->line_open)
        fputc('\n', stdout);
    show->line_open = false;
}

static void on_message(void *arg, const char *line)
{
    display *show = arg;
    if (show->config->logging.json)
        return;
    end_line(show);
    printf("%s\n", line);
    check_output(show);
}

static void on_warning(void *arg, const char *line)
{
    end_line(arg);
    oct_cli_line("octet: warning: ", line);
}

static void on_saved(void *arg, int64_t step)
{
    char line[64];
    (void)snprintf(line, sizeof line, "saved checkpoint step-%lld", (long long)step);
    on_message(arg, line);
}

static void format_time(double seconds, char *out, size_t size)
{
    const long long s = (long long)(seconds + 0.5);
    if (s >= 3600)
        (void)snprintf(out, size, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        (void)snprintf(out, size, "%lld:%02lld", s / 60, s % 60);
}

static void on_built(void *arg, const oct_build *build)
{
    display *show = arg;
    oct_err err;
    if (show->config->torchtitan && oct_console_open(&show->console, build, &err) != OCT_OK)
        show->console.peak_flops = 0.0; /* a line without it is better than no run */
}

/* torchtitan's line in place of ours. */
static void show_console_line(display *show, const oct_step_metrics *row, bool due)
{
    char line[OCT_CONSOLE_LINE];
    oct_console_count(&show->console, row);
    if (!due)
        return;
    oct_console_format(&show->console, row, line);
    printf("%s\n", line);
    check_output(show);
}

static void on_row(void *arg, const oct_step_metrics *row, int64_t last_step)
{
    display *show = arg;
    if (show->config->logging.json) {
        oct_err err;
        if (oct_metrics_format(row, &show->json, &err) == OCT_OK)
            printf("%s\n", show->json.text);
        check_output(show);
        return;
    }
    if (row->validation) {
        end_line(show);
        printf("step %lld  validation loss %.4f\n", (long long)row->step, row->loss);
        check_output(show);
        return;
    }
    show->step_seconds =
        show->rows++ < 2 ? row->step_seconds : 0.9 * show->step_seconds + 0.1 * row->step_seconds;
    const bool last = row->step >= last_step;
    const bool due =
        row->step % show->config->logging.every == 0 || row->step == 1 || last || row->skipped;
    if (show->config->torchtitan) {
        show_console_line(show, row, due);
        return;
    }
    if (!due && !show->terminal)
        return;
    char left[32];
    format_time(show->step_seconds * (double)(last_step - row->step), left, sizeof left);
    printf("%sstep %lld/%lld  loss %.4f  grad_norm %.3f  lr %.2e  %.0f tok/s  %s left%s",
           show->terminal ? "\r\033[K" : "", (long long)row->step, (long long)last_step, row->loss,
           row->grad_norm, row->lr, row->tokens_per_second, left, row->skipped ? "  SKIPPED" : "");
    show->line_open = true;
    if (!show->terminal)
        end_line(show);
    check_output(show);
}

/* runs/NAME, NAME being the last configuration file without folder and ending. */
static void default_run_dir(const oct_job *job, char *out, size_t size)
{
    const char *file = job->files[job->file_count - 1];
    const char *slash = strrchr(file, '/');
    const char *base = slash ? slash + 1 : file;
    const char *dot = strrchr(base, '.');
    const int length = dot && dot > base ? (int)(dot - base) : (int)strlen(base);
    (void)snprintf(out, size, "runs/%.*s", length, base);
}

/* What the command line asks for. */
typedef struct request {
    oct_job job;
    const char *run_dir, *resume;
    bool print_config;
    char default_dir[4096];
} request;

static oct_status print_config(oct_job *job, oct_err *err)
{
    char *text = NULL;
    OCT_TRY(oct_config_print(&job->config, &job->arena, &text, err));
    fputs(text, stdout);
    return OCT_OK;
}

/* A failure is told by the rank where it began, with the stage of the run that it ended; NULL:
 * before the first one. */
static int tell_failure(const oct_comm *comm, oct_status status, const char *stage,
                        const oct_err *err)
{
    if (comm && oct_comm_size(comm) > 1 && err->rank != oct_comm_rank(comm))
        return oct_exit_code(status);
    oct_cli_mute(false);
    if (stage)
        oct_cli_stopped(stage);
    return oct_cli_fail(status, err);
}

/* Whether a line can be written over. */
static bool has_live_lines(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(kind && strcmp(kind, "dumb") == 0);
}

static int run(oct_comm *comm, const request *r)
{
    const oct_job *job = &r->job;
    display show = {.config = &job->config, .terminal = has_live_lines()};
    const oct_train_options options = {
        .run_dir = r->run_dir,
        .resume = r->resume,
        .comm = comm,
        .observer = {.arg = &show,
                     .message = on_message,
                     .warning = on_warning,
                     .built = on_built,
                     .row = on_row,
                     .saved = on_saved},
    };
    oct_json_init(&show.json);
    oct_train_result result;
    oct_err err = {0};
    (void)signal(SIGPIPE, SIG_IGN);
    const oct_status status = oct_train(&job->config, &options, &result, &err);
    end_line(&show);
    oct_json_release(&show.json);
    if (status != OCT_OK)
        return tell_failure(comm, status, job->config.logging.json ? NULL : result.failed_at, &err);
    if (result.signal)
        return OCT_EXIT_SIGNAL + result.signal;
    if (result.last_save_failed) {
        (void)snprintf(err.msg, sizeof err.msg,
                       "the last checkpoint could not be saved: step %lld is in none, the last "
                       "step is required to be (%.256s)",
                       (long long)result.state.step, r->run_dir);
        err.rank = 0;
        return tell_failure(comm, OCT_E_CHECKPOINT, NULL, &err);
    }
    return OCT_EXIT_OK;
}

/* 0, or the exit code of a usage error that was printed. */
static int parse(int argc, char **argv, request *r)
{
    for (int i = 1; i < argc; i++) {
        int taken = oct_cli_option(name, argc, argv, &i, "--run-dir", &r->run_dir);
        if (!taken)
            taken = oct_cli_option(name, argc, argv, &i, "--resume", &r->resume);
        if (taken < 0)
            return OCT_EXIT_USAGE;
        if (taken)
            continue;
        if (strcmp(argv[i], "--print-config") == 0)
            r->print_config = true;
        else if (oct_job_argument(&r->job, name, argc, argv, &i) != 0)
            return OCT_EXIT_USAGE;
    }
    const int missing = oct_job_missing(&r->job, name);
    if (missing)
        return missing;
    if (!r->run_dir) {
        default_run_dir(&r->job, r->default_dir, sizeof r->default_dir);
        r->run_dir = r->default_dir;
    }
    return 0;
}

/* Warns once if a launcher's binding makes threads share a core. threads: 0 = automatic. */
static oct_status check_binding(oct_comm *comm, int threads, oct_err *err)
{
    oct_binding binding;
    OCT_TRY(oct_binding_read(comm, &binding, err));
    const int rank = oct_comm_rank(comm);
    int64_t first = oct_binding_is_narrow(&binding, threads) ? rank : oct_comm_size(comm);
    OCT_TRY(oct_comm_min_i64(comm, &first, 1, err));
    if (first != rank)
        return OCT_OK;
    char line[256];
    (void)snprintf(
        line, sizeof line,
        "rank %d may use %d of %d cores, and %d of %d ranks share them: its threads wait "
        "for each other (mpirun --bind-to none, or octet launch)",
        rank, binding.allowed, binding.cores, binding.sharers, binding.ranks);
    oct_cli_mute(false);
    oct_cli_line("octet: warning: ", line);
    oct_cli_mute(rank != 0);
    return OCT_OK;
}

static oct_status join_ranks(oct_comm **comm, oct_err *err)
{
    oct_comm_options options;
    OCT_TRY(oct_comm_options_from_environment(&options, err));
    return oct_comm_create(&options, comm, err);
}

/* What this rank is asked to do. Mistakes that all ranks make are those of rank 0. */
static oct_status read_request(oct_comm *comm, int argc, char **argv, request *r, bool *told,
                               oct_err *err)
{
    oct_comm_phase(comm, "reading the command line", NULL);
    oct_status status = OCT_OK;
    if (parse(argc, argv, r) != 0) {
        status = OCT_FAIL(err, OCT_E_CONFIG, "wrong command line on rank %d", oct_comm_rank(comm));
        *told = oct_comm_rank(comm) == 0;
    }
    OCT_TRY(oct_comm_agree(comm, status, err));
    oct_comm_phase(comm, "reading the configuration", NULL);
    status = oct_fault_arm_from_environment(err);
    if (status == OCT_OK)
        status = oct_job_read(&r->job, oct_comm_size(comm), err);
    return oct_comm_agree(comm, status, err);
}

static int train(oct_comm *comm, int argc, char **argv, request *r)
{
    oct_err err = {0};
    bool told = false;
    oct_cli_mute(oct_comm_rank(comm) != 0);
    oct_status status = read_request(comm, argc, argv, r, &told, &err);
    if (status == OCT_OK)
        status = check_binding(comm, (int)r->job.config.training.threads, &err);
    if (status == OCT_OK && r->print_config) {
        if (oct_comm_rank(comm) == 0)
            status = print_config(&r->job, &err);
        return status == OCT_OK ? OCT_EXIT_OK : tell_failure(comm, status, NULL, &err);
    }
    if (status == OCT_OK)
        return run(comm, r);
    return told ? oct_exit_code(status) : tell_failure(comm, status, r->job.stage, &err);
}

int oct_command_train(int argc, char **argv)
{
    static request r;
    oct_comm *comm = NULL;
    oct_err err = {0};
    const oct_status status = join_ranks(&comm, &err);
    const int code =
        status == OCT_OK ? train(comm, argc, argv, &r) : tell_failure(comm, status, NULL, &err);
    oct_job_release(&r.job);
    if (comm && oct_comm_is_broken(comm))
        oct_comm_abort(comm, code);
    oct_comm_destroy(comm);
    return code;
}
