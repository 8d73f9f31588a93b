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

static int print_config(oct_job *job)
{
    char *text = NULL;
    oct_err err = {0};
    const oct_status status = oct_config_print(&job->config, &job->arena, &text, &err);
    if (status != OCT_OK)
        return oct_cli_fail(status, &err);
    fputs(text, stdout);
    return OCT_EXIT_OK;
}

static int run(const oct_job *job, const char *run_dir, const char *resume)
{
    display show = {.config = &job->config, .terminal = isatty(STDOUT_FILENO) != 0};
    const oct_train_options options = {
        .run_dir = run_dir,
        .resume = resume,
        .observer = {.arg = &show,
                     .message = on_message,
                     .warning = on_warning,
                     .row = on_row,
                     .saved = on_saved},
    };
    oct_json_init(&show.json);
    oct_train_result result;
    oct_err err = {0};
    (void)signal(SIGPIPE, SIG_IGN);
    oct_status status = oct_fault_arm_from_environment(&err);
    if (status == OCT_OK)
        status = oct_train(&job->config, &options, &result, &err);
    end_line(&show);
    oct_json_release(&show.json);
    if (status != OCT_OK)
        return oct_cli_fail(status, &err);
    if (result.signal)
        return OCT_EXIT_SIGNAL + result.signal;
    if (result.last_save_failed) {
        (void)snprintf(err.msg, sizeof err.msg,
                       "the last checkpoint could not be saved: step %lld is in none, the last "
                       "step is required to be (%.256s)",
                       (long long)result.state.step, run_dir);
        return oct_cli_fail(OCT_E_CHECKPOINT, &err);
    }
    return OCT_EXIT_OK;
}

static int train(int argc, char **argv)
{
    static oct_job job;
    char fallback[4096];
    const char *run_dir = NULL, *resume = NULL;
    bool print = false;
    for (int i = 1; i < argc; i++) {
        int taken = oct_cli_option(name, argc, argv, &i, "--run-dir", &run_dir);
        if (!taken)
            taken = oct_cli_option(name, argc, argv, &i, "--resume", &resume);
        if (taken < 0)
            return OCT_EXIT_USAGE;
        if (taken)
            continue;
        if (strcmp(argv[i], "--print-config") == 0)
            print = true;
        else if (oct_job_argument(&job, name, argv[i]) != 0)
            return OCT_EXIT_USAGE;
    }
    int code = oct_job_load(&job, name, 1);
    if (code == 0 && print) {
        code = print_config(&job);
    } else if (code == 0) {
        if (!run_dir) {
            default_run_dir(&job, fallback, sizeof fallback);
            run_dir = fallback;
        }
        code = run(&job, run_dir, resume);
    }
    oct_job_release(&job);
    return code;
}

/* Warns once if a launcher's binding makes threads share a core. */
static oct_status check_binding(oct_comm *comm, oct_err *err)
{
    oct_binding binding;
    OCT_TRY(oct_binding_read(comm, &binding, err));
    const int rank = oct_comm_rank(comm);
    int64_t first = oct_binding_is_narrow(&binding, 0) ? rank : oct_comm_size(comm);
    OCT_TRY(oct_comm_min_i64(comm, &first, 1, err));
    if (first != rank)
        return OCT_OK;
    char line[256];
    (void)snprintf(
        line, sizeof line,
        "rank %d may use %d of %d cores, and %d of %d ranks share them: its threads wait "
        "for each other (mpirun --bind-to none, or octet launch)",
        rank, binding.allowed, binding.cores, binding.sharers, binding.ranks);
    oct_cli_line("octet: warning: ", line);
    return OCT_OK;
}

/* Finds the ranks. Several would each train the whole model and write the same files. */
static oct_status join_ranks(oct_comm **comm, oct_err *err)
{
    oct_comm_options options;
    OCT_TRY(oct_comm_options_from_environment(&options, err));
    OCT_TRY(oct_comm_create(&options, comm, err));
    OCT_TRY(check_binding(*comm, err));
    oct_comm_phase(*comm, "counting ranks", NULL);
    oct_status status = OCT_OK;
    if (oct_comm_size(*comm) > 1)
        status = OCT_FAIL(err, OCT_E_UNSUPPORTED,
                          "cannot train on several ranks: found %d ranks, 1 is required until "
                          "weights can be sharded",
                          oct_comm_size(*comm));
    return oct_comm_agree(*comm, status, err);
}

int oct_command_train(int argc, char **argv)
{
    oct_comm *comm = NULL;
    oct_err err = {0};
    const oct_status status = join_ranks(&comm, &err);
    int code;
    if (status == OCT_OK)
        code = train(argc, argv);
    else if (comm && err.rank != oct_comm_rank(comm))
        code = oct_exit_code(status);
    else
        code = oct_cli_fail(status, &err);
    if (comm && oct_comm_is_broken(comm))
        oct_comm_abort(comm, code);
    oct_comm_destroy(comm);
    return code;
}
