#include "verify/failure_run.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "verify/process.h"
#include "verify/quote.h"
#include "verify/trace.h"

const char *const oct_failure_small_words[] = {
    "low_precision.enabled=true",
    "low_precision.format=mxfp8_e4m3",
    "low_precision.scaling=mx_block",
    "training.train_iters=4",
    "training.seq_length=32",
    "training.global_batch_size=4",
    "training.micro_batch_size=1",
    "training.threads=1",
    "gradient_accumulation_steps=null",
    "lr_scheduler.warmup_steps=0",
    "checkpoint.save_steps=1",
    "trace=true",
    "model.config_overrides.hidden_size=128",
    "model.config_overrides.intermediate_size=192",
    "model.config_overrides.moe_intermediate_size=32",
    "model.config_overrides.num_hidden_layers=2",
    "model.config_overrides.n_routed_experts=4",
    "model.config_overrides.num_experts_per_tok=2",
    "model.config_overrides.kv_lora_rank=160",
    NULL,
};

const char *const oct_failure_toml_words[] = {
    "training.steps=4",
    "training.seq_len=32",
    "training.local_batch_size=1",
    "lr_scheduler.warmup_steps=0",
    NULL,
};

/* --- what a run left ------------------------------------------------------------------------- */

static void set_why(char why[OCT_FAILURE_TEXT], const char *fmt, ...) OCT_PRINTF(2, 3);
static void set_why(char why[OCT_FAILURE_TEXT], const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(why, OCT_FAILURE_TEXT, fmt, args);
    va_end(args);
}

/* -1: no such file. */
static int count_rows(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    int rows = 0;
    for (int c = getc(file); c != EOF; c = getc(file))
        rows += c == '\n';
    fclose(file);
    return rows;
}

/* Does the FQN of an event belong to the module? Experts name the parameter. */
static bool is_of(const char *fqn, const char *module)
{
    const size_t length = strlen(module);
    return strncmp(fqn, module, length) == 0 && (fqn[length] == '\0' || fqn[length] == '.');
}

/* A product in high precision at a module that was replaced. */
static void find_fallback(const oct_verify_trace *trace, char why[OCT_FAILURE_TEXT])
{
    int64_t replaced = 0;
    for (int64_t i = 0; i < trace->count && !why[0]; i++) {
        const oct_trace_event *target = &trace->events[i].fields;
        if (target->kind != OCT_TRACE_REPLACE)
            continue;
        replaced++;
        for (int64_t j = 0; j < trace->count && !why[0]; j++) {
            const oct_trace_event *product = &trace->events[j].fields;
            if (product->kind == OCT_TRACE_MATMUL && is_of(product->fqn, target->fqn) &&
                (strcmp(product->format, "bf16") == 0 || strcmp(product->format, "float32") == 0))
                set_why(why, "the %s product of '%s' was computed in %s, 8 bits are required",
                        product->phase, product->fqn, product->format);
        }
    }
    if (replaced == 0 && !why[0])
        set_why(why, "the trace names no replaced module, at least one is required");
}

/* A rank that is ended because another one failed may be in the middle of a line: it is cut away.
 */
static oct_status cut_last_line(const char *path, oct_err *err)
{
    FILE *file = fopen(path, "r");
    long end = 0;
    for (int c = file ? getc(file) : EOF; c != EOF; c = getc(file))
        if (c == '\n')
            end = ftell(file);
    if (file)
        fclose(file);
    if (!file || truncate(path, end) != 0)
        return OCT_FAIL(err, OCT_E_IO, "cannot read trace: %s (%s)", strerror(errno), path);
    return OCT_OK;
}

static oct_status check_traces(const oct_failure *failure, const char *run_dir,
                               char why[OCT_FAILURE_TEXT], oct_err *err)
{
    const int ranks = failure->ranks ? failure->ranks : 1;
    for (int r = 0; r < ranks && !why[0]; r++) {
        char path[OCT_PATH_BYTES];
        oct_verify_trace *trace = NULL;
        (void)snprintf(path, sizeof path, "%s/trace-%d.jsonl", run_dir, r);
        if (ranks > 1)
            OCT_TRY(cut_last_line(path, err));
        OCT_TRY(oct_verify_trace_read(path, &trace, err));
        find_fallback(trace, why);
        oct_verify_trace_release(trace);
    }
    return OCT_OK;
}

static oct_status check_checkpoints(const oct_failure *failure, const char *run_dir,
                                    char why[OCT_FAILURE_TEXT], oct_err *err)
{
    oct_arena arena;
    int64_t *steps = NULL, count = 0;
    char path[OCT_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/checkpoints", run_dir);
    oct_arena_init(&arena, "names of checkpoints");
    const oct_status status = oct_checkpoint_list(NULL, path, &arena, &steps, &count, err);
    const int first_bad = failure->stage == oct_failure_step ? failure->step : 0;
    if (status == OCT_OK && count > 0 && steps[count - 1] >= first_bad)
        set_why(why, "there is a checkpoint of step %lld, none %s is required",
                (long long)steps[count - 1], first_bad ? "of the failed step" : "");
    oct_arena_release(&arena);
    return status;
}

oct_status oct_failure_left(const oct_failure *failure, const char *run_dir,
                            char why[OCT_FAILURE_TEXT], oct_err *err)
{
    const bool stepped = failure->stage == oct_failure_step;
    char path[OCT_PATH_BYTES];
    why[0] = '\0';
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    const int rows = count_rows(path), required = stepped ? failure->step - 1 : 0;
    if ((rows < 0 ? 0 : rows) != required) {
        set_why(why, "metrics.jsonl has %d rows, %d are required", rows, required);
        return OCT_OK;
    }
    OCT_TRY(check_checkpoints(failure, run_dir, why, err));
    return stepped && !why[0] ? check_traces(failure, run_dir, why, err) : OCT_OK;
}

/* --- one run of the program ------------------------------------------------------------------ */

typedef struct command {
    const char *argv[OCT_FAILURE_MAX_ARGUMENTS];
    int count;
    char ranks[16];
    char run_dir[OCT_PATH_BYTES], yaml[OCT_PATH_BYTES], toml[OCT_PATH_BYTES];
    char text[2 * OCT_PATH_BYTES + 64]; /* key=["path"] */
    char isa[32], fault[96];
    const char *environment[4];
} command;

static void add(command *c, const char *word)
{
    if (c->count < OCT_FAILURE_MAX_ARGUMENTS - 1)
        c->argv[c->count++] = word;
}

static void add_all(command *c, const char *const *words, int most)
{
    for (int i = 0; i < most && words[i]; i++)
        add(c, words[i]);
}

static oct_status make_command(const oct_failure_program *p, const oct_failure *f, command *c,
                               oct_err *err)
{
    const bool frozen = f->base == OCT_FAILURE_16B;
    char path[OCT_PATH_BYTES], quoted[2 * OCT_PATH_BYTES];
    *c = (command){0};
    (void)snprintf(c->run_dir, sizeof c->run_dir, "%s/run", p->folder);
    (void)snprintf(c->yaml, sizeof c->yaml, "%s/row.yaml", p->folder);
    (void)snprintf(c->toml, sizeof c->toml, "%s/row.toml", p->folder);
    (void)snprintf(path, sizeof path, "%s/text.txt", p->folder);
    OCT_TRY(oct_verify_quote(path, quoted, sizeof quoted, err));
    (void)snprintf(c->text, sizeof c->text, "%s=[%s]",
                   f->toml ? "training.dataset_path" : "dataset.path", quoted);
    (void)snprintf(c->ranks, sizeof c->ranks, "%d", f->ranks ? f->ranks : frozen ? 8 : 1);
    add(c, p->program);
    if (frozen) {
        add_all(c, (const char *const[]){"plan", p->frozen, "--ranks", c->ranks}, 4);
    } else {
        if (f->ranks > 1)
            add_all(c, (const char *const[]){"launch", "-n", c->ranks, "--"}, 4);
        add_all(c, (const char *const[]){"train", f->toml ? c->toml : p->small}, 2);
        if (f->yaml)
            add(c, c->yaml);
        add_all(c, (const char *const[]){"--run-dir", c->run_dir, c->text}, 3);
        add_all(c, f->toml ? oct_failure_toml_words : oct_failure_small_words,
                OCT_FAILURE_MAX_ARGUMENTS);
    }
    add_all(c, f->words, OCT_FAILURE_WORDS);
    int e = 0;
    (void)snprintf(c->isa, sizeof c->isa, "OCTET_ISA=%s", f->isa ? f->isa : "");
    (void)snprintf(c->fault, sizeof c->fault, "%s=%s", OCT_FAULT_ENV, f->fault ? f->fault : "");
    if (f->isa)
        c->environment[e++] = c->isa;
    c->environment[e++] = c->fault;
    return OCT_OK;
}

oct_status oct_failure_job(const oct_failure *failure, const char *base, const char *model,
                           char *out, size_t bytes, oct_err *err)
{
    char base_text[2 * OCT_PATH_BYTES], model_text[2 * OCT_PATH_BYTES];
    OCT_TRY(oct_verify_quote(base, base_text, sizeof base_text, err));
    OCT_TRY(oct_verify_quote(model, model_text, sizeof model_text, err));
    (void)snprintf(out, bytes, "base = %s\n[model]\nhf_config = %s\n%s", base_text, model_text,
                   failure->toml);
    return OCT_OK;
}

static oct_status write_text(const char *folder, const char *name, const char *text, oct_err *err)
{
    char path[OCT_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return oct_file_replace(&oct_file_table_real, path, text, strlen(text), err);
}

static oct_status write_files(const oct_failure_program *p, const oct_failure *f, oct_err *err)
{
    enum { BYTES = 4000 };
    char text[BYTES + 1];
    for (int i = 0; i < BYTES; i++)
        text[i] = (char)('a' + (i * i + i / 7) % 26);
    text[BYTES] = '\0';
    OCT_TRY(write_text(p->folder, "text.txt", text, err));
    if (f->toml) {
        char job[4 * OCT_PATH_BYTES];
        OCT_TRY(oct_failure_job(f, p->toml, p->model, job, sizeof job, err));
        OCT_TRY(write_text(p->folder, "row.toml", job, err));
    }
    return f->yaml ? write_text(p->folder, "row.yaml", f->yaml, err) : OCT_OK;
}

/* The line of error; false if there is not exactly one. */
static bool read_message(const char *path, char message[OCT_FAILURE_TEXT])
{
    static const char start[] = "octet: ", warning[] = "octet: warning: ";
    FILE *file = fopen(path, "r");
    char line[2 * OCT_FAILURE_TEXT];
    int found = 0;
    message[0] = '\0';
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, start, sizeof start - 1) != 0 ||
            strncmp(line, warning, sizeof warning - 1) == 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(message, OCT_FAILURE_TEXT, "%.*s", OCT_FAILURE_TEXT - 1,
                       line + sizeof start - 1);
        found++;
    }
    if (file)
        fclose(file);
    return found == 1;
}

/* What the program says last of where it stopped; "" if nothing. */
static void read_stage(const char *path, char stage[OCT_FAILURE_TEXT])
{
    static const char start[] = "stopped at: ";
    FILE *file = fopen(path, "r");
    char line[256];
    stage[0] = '\0';
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, start, sizeof start - 1) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(stage, OCT_FAILURE_TEXT, "%s", line + sizeof start - 1);
    }
    if (file)
        fclose(file);
}

static void judge_message(const oct_failure *f, oct_failure_outcome *out)
{
    if (strcmp(out->stage, f->stage) != 0)
        set_why(out->why, "stopped at '%s', '%s' is required", out->stage, f->stage);
    if (out->exit_code != f->exit_code)
        set_why(out->why, "exit code %d, %d is required", out->exit_code, f->exit_code);
    for (int i = 0; i < OCT_FAILURE_HOLDS && f->holds[i] && !out->why[0]; i++)
        if (!strstr(out->message, f->holds[i]))
            set_why(out->why, "the message has no '%s', which is required", f->holds[i]);
}

oct_status oct_failure_run(const oct_failure_program *program, const oct_failure *failure,
                           oct_failure_outcome *out, oct_err *err)
{
    enum { TIME_LIMIT = 120 };
    command c;
    char errors[OCT_PATH_BYTES], output[OCT_PATH_BYTES];
    *out = (oct_failure_outcome){0};
    OCT_TRY(make_command(program, failure, &c, err));
    OCT_TRY(write_files(program, failure, err));
    (void)snprintf(errors, sizeof errors, "%s/stderr.txt", program->folder);
    (void)snprintf(output, sizeof output, "%s/stdout.txt", program->folder);
    const oct_process_options options = {.argv = c.argv,
                                         .environment = c.environment,
                                         .stdout_path = output,
                                         .stderr_path = errors,
                                         .timeout_seconds = TIME_LIMIT};
    oct_process_result result;
    OCT_TRY(oct_process_run(&options, &result, err));
    out->exit_code = result.exit_code;
    out->seconds = result.seconds;
    read_stage(output, out->stage);
    if (!read_message(errors, out->message))
        set_why(out->why, "not one line of error, one is required (%.900s)", errors);
    else
        judge_message(failure, out);
    if (out->why[0] || failure->base == OCT_FAILURE_16B)
        return OCT_OK;
    return oct_failure_left(failure, c.run_dir, out->why, err);
}
