#include "trainer/train.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/memory.h"
#include "base/size.h"
#include "comm/binding.h"
#include "optim/schedule.h"
#include "trainer/plan_report.h"
#include "trainer/ranks.h"
#include "trainer/run_dir.h"
#include "trainer/signals.h"

/* What a rank tells of a step before its losses and its tokens per expert. */
enum { PEAK_WORD, FMA_WORD, STEP_WORDS };

/* One run. Everything in here has one owner: oct_train. */
typedef struct trainer {
    const oct_config *config;
    const oct_train_options *options;
    oct_ranks ranks;
    oct_run_dir dir; /* only rank 0 holds it */
    oct_build build;
    oct_dataset *data, *validation;
    oct_arena memory;       /* configuration text, identity, batch buffers */
    int32_t *ids, *targets; /* one micro-batch */
    double *sums;           /* of the losses of this rank's micro-batches in a step */
    int64_t *own, *all;     /* what ranks tell each other of a pass: a share, [ranks][share] */
    oct_identity identity;
    char config_hash[20];
    oct_metrics *metrics; /* rank 0 */
    oct_trace_file *trace_file;
    oct_checkpoint_writer *writer;
    oct_item_list items;
    oct_lr_schedule schedule;
    oct_train_state state;
    int64_t peak_memory_bytes; /* of the largest rank, up to the last step */
    int64_t last_step;         /* where this run ends */
    int64_t saved_step;        /* newest checkpoint that was reported saved, -1 if none */
    bool saving;               /* a checkpoint is on its way */
    bool last_save_failed;
    int signal;    /* that stops the run, on every rank; 0: none so far */
    bool row_lost; /* metrics could not be written; the state is that of a whole step */
    bool reserved; /* the first step has shown how much memory a step needs */
} trainer;

static void tell(const trainer *t, void (*sink)(void *arg, const char *line), const char *fmt, ...)
    OCT_PRINTF(3, 4);
static void tell(const trainer *t, void (*sink)(void *arg, const char *line), const char *fmt, ...)
{
    if (!sink || t->ranks.rank != 0)
        return;
    char line[1200];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    sink(t->options->observer.arg, line);
}

static void on_checkpoint_warning(void *arg, const char *line)
{
    const trainer *t = arg;
    tell(t, t->options->observer.warning, "%s", line);
}

/* A checkpoint failure keeps its text and gets the code that callers tell it by. */
static oct_status checkpoint_status(oct_status status, oct_err *err)
{
    if (status == OCT_OK || status == OCT_E_NOMEM)
        return status;
    if (err)
        err->code = OCT_E_CHECKPOINT;
    return OCT_E_CHECKPOINT;
}

/* --- setting up ---------------------------------------------------------------------------- */

/* Values that follow from others and from the number of ranks stand in a configuration as comments
 * and do not make it another one: the next line of `text` that is none, NULL at the end. */
static const char *next_line(const char *text, size_t *length)
{
    while (*text) {
        *length = strcspn(text, "\n") + 1;
        if (text[*length - 1] == '\0')
            (*length)--;
        if (text[strspn(text, " ")] != '#')
            return text;
        text += *length;
    }
    return NULL;
}

static bool same_config(const char *a, const char *b)
{
    size_t of_a = 0, of_b = 0;
    a = next_line(a, &of_a);
    b = next_line(b, &of_b);
    while (a && b && of_a == of_b && memcmp(a, b, of_a) == 0) {
        a = next_line(a + of_a, &of_a);
        b = next_line(b + of_b, &of_b);
    }
    return !a && !b;
}

static uint64_t hash_config(const char *text)
{
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a, 64 bits */
    size_t length = 0;
    for (text = next_line(text, &length); text; text = next_line(text + length, &length))
        for (size_t i = 0; i < length; i++)
            hash = (hash ^ (unsigned char)text[i]) * 0x100000001B3u;
    return hash;
}

static oct_status open_dataset(const trainer *t, const oct_string_list *paths, bool shuffle,
                               oct_dataset **out, oct_err *err)
{
    const oct_dataset_spec spec = {
        .paths = paths->items,
        .path_count = paths->count,
        .tokenizer = t->config->dataset.tokenizer,
        .seq_length = t->config->training.seq_length,
        .vocab_size = t->build.hf.vocab_size,
        .seed = (uint64_t)t->config->seed,
        .shuffle = shuffle,
    };
    return oct_dataset_open(&spec, out, err);
}

/* Ids of another tokenizer mean other text. */
static oct_status open_validation(trainer *t, oct_err *err)
{
    OCT_TRY(open_dataset(t, &t->config->dataset.validation.path, false, &t->validation, err));
    const char *required = oct_dataset_tokenizer(t->data);
    const char *found = oct_dataset_tokenizer(t->validation);
    if (strcmp(found, required) != 0)
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot validate on data of another tokenizer: found '%s', '%s' is "
                        "required as in the training data (dataset.validation.path)",
                        found, required);
    return OCT_OK;
}

static oct_status open_files(trainer *t, oct_err *err)
{
    const oct_config *config = t->config;
    if (oct_fault("trainer.data"))
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot read training data: a fault is planted, none is required");
    OCT_TRY(open_dataset(t, &config->dataset.path, config->dataset.shuffle, &t->data, err));
    if (config->dataset.validation.path.count && config->dataset.validation.every)
        OCT_TRY(open_validation(t, err));
    const int64_t tokens = config->training.micro_batch_size * config->training.seq_length;
    void *memory = NULL;
    OCT_TRY(oct_arena_array(&t->memory, tokens, sizeof(int32_t), &memory, err));
    t->ids = memory;
    OCT_TRY(oct_arena_array(&t->memory, tokens, sizeof(int32_t), &memory, err));
    t->targets = memory;
    return oct_identity_make(&t->build, t->data, &t->memory, &t->identity, err);
}

static oct_status open_data(trainer *t, oct_err *err)
{
    oct_ranks_phase(&t->ranks, "opening data", NULL);
    OCT_TRY(oct_ranks_agree(&t->ranks, open_files(t, err), err));
    return oct_ranks_require_same(&t->ranks, "training data (fingerprint)",
                                  t->identity.data_fingerprint, err);
}

/* A checkpoint by its name, or by its contents: PyTorch's may have any name. */
static bool is_checkpoint(const char *path)
{
    char metadata[OCT_PATH_MAX + 16];
    const char *slash = strrchr(path, '/');
    (void)snprintf(metadata, sizeof metadata, "%s/.metadata", path);
    return oct_checkpoint_step_of_name(slash ? slash + 1 : path) >= 0 ||
           access(metadata, F_OK) == 0;
}

/* Where a run goes on from. Rank 0 chooses. */
typedef struct start {
    enum { START_AFRESH, START_STEP, START_LATEST, START_PATH, START_FOLDER } from;
    int64_t step;      /* START_STEP */
    bool with_moments; /* as checkpoint.restore_optimizer says */
    bool required;     /* START_LATEST: one must be there */
} start;

static oct_status choose_start(trainer *t, start *out, oct_err *err)
{
    const oct_config *config = t->config;
    const char *word = t->options->resume;
    const char *from = config->checkpoint.restore_from;
    int64_t *steps = NULL, count = 0;
    *out = (start){.with_moments = true};
    OCT_TRY(oct_checkpoint_list(NULL, t->dir.checkpoints, &t->memory, &steps, &count, err));

    const bool from_is_word =
        from && (strcmp(from, "latest") == 0 || oct_checkpoint_step_of_name(from) >= 0);
    if (!word && from && (from_is_word || count == 0)) {
        out->with_moments = config->checkpoint.restore_optimizer;
        if (!from_is_word) {
            const bool one = is_checkpoint(from) || access(from, F_OK) != 0;
            out->from = one ? START_PATH : START_FOLDER;
            return OCT_OK;
        }
        word = from;
    }
    if (word && strcmp(word, "none") == 0) {
        if (count)
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "cannot start afresh: the run directory has %lld checkpoints, a "
                            "directory without any is required (--resume none, %s)",
                            (long long)count, t->dir.path);
        return OCT_OK;
    }
    out->step = word ? oct_checkpoint_step_of_name(word) : -1;
    out->from = out->step >= 0 ? START_STEP : START_LATEST;
    out->required = word != NULL;
    if (out->from == START_LATEST && word && strcmp(word, "latest") != 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "wrong word to resume from: found '%s', latest, none or step-N is required "
                        "(--resume)",
                        word);
    return OCT_OK;
}

/* On all ranks together; *out = NULL for a fresh start. */
static oct_status open_start(trainer *t, const start *s, oct_checkpoint **out, oct_err *err)
{
    oct_comm *comm = t->ranks.comm;
    const oct_checkpoint_verify_level level =
        t->config->checkpoint.verify_crc ? OCT_VERIFY_CRC : OCT_VERIFY_SIZE;
    const char *path = t->config->checkpoint.restore_from;
    switch (s->from) {
    case START_AFRESH:
        return OCT_OK;
    case START_STEP:
        return oct_checkpoint_open_step_together(comm, NULL, t->dir.checkpoints, s->step, level,
                                                 out, err);
    case START_PATH:
        return oct_checkpoint_open_together(comm, NULL, path, level, on_checkpoint_warning, t, out,
                                            err);
    case START_FOLDER:
        OCT_TRY(oct_checkpoint_open_latest_together(comm, NULL, path, level, on_checkpoint_warning,
                                                    t, out, err));
        if (!*out)
            return OCT_FAIL(err, OCT_E_CHECKPOINT,
                            "cannot restore: no checkpoint in '%s', a checkpoint or a folder of "
                            "checkpoints is required (checkpoint.restore_from)",
                            path);
        return OCT_OK;
    case START_LATEST:
        break;
    }
    OCT_TRY(oct_checkpoint_open_latest_together(comm, NULL, t->dir.checkpoints, level,
                                                on_checkpoint_warning, t, out, err));
    if (s->required && !*out)
        return OCT_FAIL(err, OCT_E_CHECKPOINT,
                        "cannot resume: no checkpoint found, one is required (%s)",
                        t->dir.checkpoints);
    return OCT_OK;
}

/* A fresh start never mixes with the rows of another configuration. */
static oct_status check_same_config(const trainer *t, const char *text, oct_err *err)
{
    char *before = NULL;
    OCT_TRY(oct_run_dir_read_config(&t->dir, &before, err));
    const bool same = !before || same_config(before, text);
    free(before);
    if (!same)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot start in the run directory: it belongs to another configuration, "
                        "the same one or an empty directory is required (%s)",
                        t->dir.config);
    return OCT_OK;
}

/* The checkpoint to go on from, NULL where the run starts afresh and may. */
static oct_status find_start(trainer *t, const char *config_text, oct_checkpoint **checkpoint,
                             bool *with_moments, oct_err *err)
{
    start chosen = {0};
    oct_status status = OCT_OK;
    oct_ranks_phase(&t->ranks, "choosing a checkpoint", NULL);
    if (t->ranks.rank == 0)
        status = choose_start(t, &chosen, err);
    if (status != OCT_OK && status != OCT_E_CONFIG)
        status = checkpoint_status(status, err);
    OCT_TRY(oct_ranks_agree(&t->ranks, status, err));
    OCT_TRY(oct_ranks_broadcast(&t->ranks, &chosen, sizeof chosen, err));
    *with_moments = chosen.with_moments;
    status = checkpoint_status(open_start(t, &chosen, checkpoint, err), err);
    OCT_TRY(oct_ranks_settled(&t->ranks, status));
    if (!*checkpoint && t->ranks.rank == 0)
        status = check_same_config(t, config_text, err);
    oct_ranks_phase(&t->ranks, "comparing with the run directory", NULL);
    return oct_ranks_agree(&t->ranks, status, err);
}

/* Opened before the model is built, so that it holds the replacements. */
static oct_status open_trace(trainer *t, bool afresh, oct_err *err)
{
    if (!t->config->trace)
        return OCT_OK;
    char path[OCT_PATH_MAX + 32];
    (void)snprintf(path, sizeof path, "%s/trace-%d.jsonl", t->dir.path, t->ranks.rank);
    if (afresh && unlink(path) != 0 && errno != ENOENT)
        return OCT_FAIL(err, OCT_E_IO, "cannot start the trace afresh: %s (%s)", strerror(errno),
                        path);
    OCT_TRY(oct_trace_file_open(path, &t->trace_file, err));
    t->build.trace.sink = oct_trace_file_sink;
    t->build.trace.sink_arg = t->trace_file;
    return OCT_OK;
}

static oct_status restore(trainer *t, const oct_checkpoint *checkpoint, bool with_moments,
                          oct_err *err)
{
    oct_ranks_phase(&t->ranks, "restoring a checkpoint", NULL);
    const oct_status restored = checkpoint_status(
        oct_state_restore(&t->build, checkpoint, &t->identity, with_moments, &t->state, err), err);
    OCT_TRY(oct_ranks_agree(&t->ranks, restored, err));
    int64_t refreshed = 0;
    OCT_TRY(oct_build_refresh(&t->build, &refreshed, err));
    t->saved_step = with_moments ? t->state.step : -1;
    const int64_t step = oct_checkpoint_step(checkpoint);
    if (step >= 0)
        tell(t, t->options->observer.message, "resumed from the checkpoint of step %lld%s",
             (long long)step, with_moments ? "" : ", weights only");
    else
        tell(t, t->options->observer.message,
             "started from a checkpoint of PyTorch, %lld updates%s", (long long)t->state.step,
             with_moments ? "" : ", weights only");
    return OCT_OK;
}

/* Runs the stages up to `last`; each shows other ranks that this one gets on. */
static oct_status build_through(trainer *t, oct_stage last, oct_err *err)
{
    while (t->build.next_stage <= (int)last) {
        const oct_stage stage = (oct_stage)t->build.next_stage;
        oct_ranks_phase(&t->ranks, "build", oct_stage_name(stage));
        if (oct_fault("trainer.build"))
            return OCT_FAIL(err, OCT_E_NOMEM,
                            "cannot build the model: a fault is planted, none is required");
        OCT_TRY(oct_build_stage(&t->build, stage, err));
    }
    return OCT_OK;
}

/* What a rank does by itself: most of the memory is asked for here. */
static oct_status build_alone(trainer *t, bool afresh, oct_err *err)
{
    OCT_TRY(open_trace(t, afresh, err));
    return build_through(t, OCT_STAGE_REPLACE, err);
}

static oct_status build_and_restore(trainer *t, const oct_checkpoint *checkpoint, bool with_moments,
                                    oct_err *err)
{
    OCT_TRY(oct_ranks_agree(&t->ranks, build_alone(t, !checkpoint || !with_moments, err), err));
    OCT_TRY(build_through(t, OCT_STAGE_MASTERS, err));
    return checkpoint ? restore(t, checkpoint, with_moments, err) : OCT_OK;
}

static void describe(const trainer *t)
{
    void (*sink)(void *, const char *) = t->options->observer.message;
    const oct_build *build = &t->build;
    const oct_dsv3_size size = oct_dsv3_size_of(&build->hf, t->config->training.seq_length);
    tell(t, sink, "model: %.2f M parameters (%.2f M active), %lld layers, %s activations",
         1e-6 * (double)size.parameters_total, 1e-6 * (double)size.parameters_active,
         (long long)build->hf.num_hidden_layers, oct_dtype_name(build->act_dtype));
    if (build->policy.enabled) {
        tell(t, sink, "low precision: %s with %s scaling, %lld weights in 8 bits",
             build->policy.format->name, build->policy.format->scaling,
             (long long)build->weights.count);
        for (int64_t r = 0; r < oct_plan_rule_count(build->plan); r++)
            for (int64_t p = 0; p < oct_plan_rule_at(build->plan, r)->pattern_count; p++)
                tell(t, sink, "  %s: %lld hits", oct_plan_rule_at(build->plan, r)->patterns[p],
                     (long long)oct_plan_hits(build->plan, r, p));
    } else {
        tell(t, sink, "low precision: off");
    }
    tell(t, sink, "data: %lld files, %lld tokens, %lld samples of %lld",
         (long long)oct_dataset_files(t->data), (long long)oct_dataset_tokens(t->data),
         (long long)oct_dataset_samples(t->data), (long long)t->config->training.seq_length);
    tell(t, sink, "kernels: %s, %d threads", oct_isa_name(build->kernels.isa), build->exec.threads);
    if (t->ranks.count > 1)
        tell(t, sink, "ranks: %s, %lld micro-batches of a step on each",
             oct_comm_describe(t->ranks.comm), (long long)t->config->gradient_accumulation_steps);
}

/* The system grants more memory than there is and kills the process when it is touched: what can
 * be told from shapes is refused here. The first look bounds what the second one multiplies. The
 * ranks of a machine share it. */
static oct_status check_memory(oct_build *build, const oct_ranks *ranks, oct_err *err)
{
    enum { STATE_BYTES = 16 }; /* of a parameter: master, two moments, gradient */
    const oct_config *config = build->config;
    const double limit = (double)oct_memory_limit();
    double parameters = 0.0;
    for (int64_t p = 0; p < build->tree.param_count; p++)
        parameters += (double)oct_param_numel(build->tree.params[p]);
    const double hidden = (double)config->training.micro_batch_size *
                          (double)config->training.seq_length * (double)build->hf.hidden_size;
    const int here = ranks->comm ? oct_comm_node_size(ranks->comm) : 1;
    double needed =
        here * (STATE_BYTES * parameters / ranks->count + (double)sizeof(float) * hidden);
    if (needed <= limit) {
        oct_plan_report report;
        OCT_TRY(oct_plan_report_make(build, ranks->count, &report, err));
        needed = here * (double)report.bytes.peak;
    }
    if (needed <= limit)
        return OCT_OK;
    char where[64] = "";
    if (here > 1)
        (void)snprintf(where, sizeof where, " on the %d ranks here", here);
    return OCT_FAIL(err, OCT_E_NOMEM,
                    "out of memory: training needs %.4g GB%s, at most the %.4g GB of this "
                    "machine are required (octet plan shows the parts)",
                    1e-9 * needed, where, 1e-9 * limit);
}

/* training.threads, or as many as keep this rank's cores busy. */
static oct_status choose_threads(trainer *t, oct_err *err)
{
    if (t->config->training.threads || t->ranks.count == 1)
        return OCT_OK;
    oct_binding binding;
    OCT_TRY(oct_binding_read(t->ranks.comm, &binding, err));
    t->build.exec.threads = oct_binding_threads(&binding);
    return OCT_OK;
}

/* Everything that can be refused from shapes alone. */
static oct_status plan(trainer *t, oct_err *err)
{
    OCT_TRY(build_through(t, OCT_STAGE_PLAN, err));
    return check_memory(&t->build, &t->ranks, err);
}

/* Rank 0 opens and locks the directory; the others read checkpoints and write traces there. */
static oct_status open_run_dir(trainer *t, oct_err *err)
{
    oct_ranks_phase(&t->ranks, "opening the run directory", NULL);
    const oct_status status = t->ranks.rank == 0
                                  ? oct_run_dir_open(t->options->run_dir, &t->dir, err)
                                  : oct_run_dir_name(t->options->run_dir, &t->dir, err);
    return oct_ranks_agree(&t->ranks, status, err);
}

static oct_status open_writer(trainer *t, oct_err *err)
{
    const oct_checkpoint_options checkpoints = {
        .comm = t->ranks.comm,
        .root = t->dir.checkpoints,
        .keep_latest_k = t->config->checkpoint.keep_latest_k,
        .warn = on_checkpoint_warning,
        .warn_arg = t,
    };
    oct_ranks_phase(&t->ranks, "opening the checkpoints", NULL);
    const oct_status status = oct_checkpoint_writer_create(&checkpoints, &t->writer, err);
    return oct_ranks_settled(&t->ranks, checkpoint_status(status, err));
}

/* The files that rank 0 writes. */
static oct_status open_rows(trainer *t, const char *config_text, oct_err *err)
{
    if (t->ranks.rank != 0)
        return OCT_OK;
    OCT_TRY(oct_run_dir_write_config(&t->dir, config_text, err));
    return oct_metrics_open(t->dir.metrics, t->state.attempt, &t->metrics, err);
}

static int64_t micro_batches_of_validation(const trainer *t)
{
    return t->config->dataset.validation.steps * t->config->gradient_accumulation_steps;
}

/* Memory for what the ranks tell each other of a step or a validation. */
static oct_status allocate_shares(trainer *t, oct_err *err)
{
    int64_t counts = 0;
    (void)oct_dsv3_counts(t->build.model, &counts);
    const int64_t of_step = STEP_WORDS + t->config->gradient_accumulation_steps + counts;
    const int64_t of_validation = t->validation ? micro_batches_of_validation(t) : 0;
    const int64_t share = oct_max_i64(of_step, of_validation);
    void *memory = NULL;
    OCT_TRY(oct_arena_array(&t->memory, t->config->gradient_accumulation_steps, sizeof(double),
                            &memory, err));
    t->sums = memory;
    OCT_TRY(oct_arena_array(&t->memory, share, sizeof(int64_t), &memory, err));
    t->own = memory;
    OCT_TRY(oct_arena_array(&t->memory, share * t->ranks.count, sizeof(int64_t), &memory, err));
    t->all = memory;
    return OCT_OK;
}

static oct_status set_up(trainer *t, oct_err *err)
{
    const oct_config *config = t->config;
    char *config_text = NULL;
    OCT_TRY(oct_config_print(config, &t->memory, &config_text, err));
    const uint64_t hash = hash_config(config_text);
    (void)snprintf(t->config_hash, sizeof t->config_hash, "%016" PRIx64, hash);
    oct_ranks_phase(&t->ranks, "comparing configurations", NULL);
    OCT_TRY(oct_ranks_require_same(&t->ranks, "configurations", hash, err));
    /* Everything that can be refused cheaply is refused before weights are made. */
    OCT_TRY(oct_ranks_agree(&t->ranks, build_through(t, OCT_STAGE_POLICY, err), err));
    OCT_TRY(choose_threads(t, err));
    OCT_TRY(oct_ranks_agree(&t->ranks, plan(t, err), err));
    OCT_TRY(open_data(t, err));
    OCT_TRY(open_run_dir(t, err));
    OCT_TRY(open_writer(t, err));
    oct_checkpoint *checkpoint = NULL;
    bool with_moments = true;
    oct_status status = find_start(t, config_text, &checkpoint, &with_moments, err);
    if (status == OCT_OK)
        status = build_and_restore(t, checkpoint, with_moments, err);
    oct_checkpoint_close(checkpoint);
    OCT_TRY(status);
    OCT_TRY(allocate_shares(t, err));
    oct_ranks_phase(&t->ranks, "opening metrics", NULL);
    OCT_TRY(oct_ranks_agree(&t->ranks, open_rows(t, config_text, err), err));

    t->schedule = oct_lr_schedule_from_config(config);
    t->last_step = config->training.train_iters;
    if (config->training.stop_at_step >= 0 && config->training.stop_at_step < t->last_step)
        t->last_step = config->training.stop_at_step;
    describe(t);
    return OCT_OK;
}

static void tear_down(trainer *t)
{
    oct_checkpoint_writer_destroy(t->writer);
    oct_item_list_release(&t->items);
    oct_metrics_close(t->metrics);
    oct_trace_file_close(t->trace_file);
    oct_dataset_close(t->validation);
    oct_dataset_close(t->data);
    oct_build_release(&t->build);
    oct_arena_release(&t->memory);
    oct_run_dir_close(&t->dir);
    oct_ranks_release(&t->ranks);
}

/* --- checkpoints ---------------------------------------------------------------------------- */

/* on_failure: continue turns a failed save into a warning while training does go on. */
static oct_status judge_save(trainer *t, oct_status status, oct_err *err)
{
    if (status == OCT_OK) {
        t->last_save_failed = false;
        return OCT_OK;
    }
    t->last_save_failed = true;
    if (t->config->checkpoint.stop_on_failure || t->row_lost)
        return checkpoint_status(status, err);
    t->ranks.agreed = false; /* nobody ends for it */
    tell(t, t->options->observer.warning, "training goes on without this checkpoint: %s",
         err ? err->msg : oct_status_name(status));
    return OCT_OK;
}

/* Ends a save in flight: before anything that it reads is changed. */
static oct_status finish_save(trainer *t, oct_err *err)
{
    if (!t->saving)
        return OCT_OK;
    const double started = oct_clock_seconds();
    int64_t saved = -1;
    oct_ranks_phase(&t->ranks, "finishing a checkpoint", NULL);
    const oct_status status =
        oct_ranks_settled(&t->ranks, oct_checkpoint_wait(t->writer, &saved, err));
    t->saving = false;
    oct_profile_add(&t->build.profile, OCT_PART_CHECKPOINT, started);
    if (status == OCT_OK && saved >= 0) {
        t->saved_step = saved;
        const oct_trace_event event = {.kind = OCT_TRACE_SAVE};
        oct_trace_emit(&t->build.trace, &event);
        if (t->options->observer.saved && t->ranks.rank == 0)
            t->options->observer.saved(t->options->observer.arg, saved);
    }
    return judge_save(t, status, err);
}

static oct_status save(trainer *t, bool in_background, oct_err *err)
{
    OCT_TRY(finish_save(t, err));
    const oct_checkpoint_meta meta = {.config_hash = t->config_hash,
                                      .model_json = t->identity.model_json};
    OCT_TRY(oct_state_items(&t->build, &t->state, &t->identity, &t->items, err));
    oct_ranks_phase(&t->ranks, "saving a checkpoint", NULL);
    const oct_status status = oct_ranks_settled(
        &t->ranks, oct_checkpoint_start(t->writer, t->state.step, &t->items, &meta, err));
    if (status != OCT_OK)
        return judge_save(t, status, err);
    t->saving = true;
    (void)oct_fault("trainer.saving"); /* a place for signals */
    return in_background ? OCT_OK : finish_save(t, err);
}

/* --- one step ------------------------------------------------------------------------------- */

/* This rank's micro-batch of micro-step k: micro-batches go round the ranks from `position` on. */
static oct_status read_batch(trainer *t, const oct_dataset *data, int64_t position, int64_t k,
                             oct_err *err)
{
    const int64_t seq = t->config->training.seq_length;
    const int64_t micro = t->config->training.micro_batch_size;
    const int64_t first = position + (k * t->ranks.count + t->ranks.rank) * micro;
    for (int64_t i = 0; i < micro; i++)
        OCT_TRY(oct_dataset_fill(data, first + i, t->ids + i * seq, t->targets + i * seq, err));
    return OCT_OK;
}

static oct_status fill_batch(trainer *t, const oct_dataset *data, int64_t position, int64_t k,
                             oct_err *err)
{
    oct_ranks_phase(&t->ranks, "reading data", NULL);
    return oct_ranks_agree(&t->ranks, read_batch(t, data, position, k, err), err);
}

static oct_batch batch_of(const trainer *t)
{
    return (oct_batch){.ids = t->ids,
                       .targets = t->targets,
                       .batch = t->config->training.micro_batch_size,
                       .seq = t->config->training.seq_length};
}

/* This rank's part of a step: forward and backward pass of its micro-batches; sums [count]. */
static oct_status run_micro_batches(trainer *t, int64_t tokens, double *sums, oct_err *err)
{
    oct_build *build = &t->build;
    const int64_t count = t->config->gradient_accumulation_steps;
    /* fl32(1/N): the FP64 quotient of an integer below 2^28 lies too far from any tie of FP32 for
     * the second rounding to differ from a single one. */
    const float scale = (float)(1.0 / (double)tokens);
    const oct_run run = oct_build_run(build, true);
    for (int64_t k = 0; k < count; k++) {
        build->trace.micro_step = k;
        OCT_TRY(fill_batch(t, t->data, t->state.samples, k, err));
        const oct_batch batch = batch_of(t);
        if (oct_fault("trainer.pass"))
            return OCT_FAIL(err, OCT_E_NOMEM,
                            "cannot get memory for a pass: a fault is planted, none is required");
        OCT_TRY(oct_dsv3_forward_backward(build->model, &run, &batch, scale,
                                          t->config->activation_checkpoint.full, &sums[k], err));
        oct_build_settle(build);
        for (int64_t p = 0; p < build->tree.param_count; p++)
            build->tree.params[p]->grad_started = true;
    }
    return oct_build_finish_gradients(build, err);
}

/* The sum of the micro-batches of all ranks, in their global order, whatever the number of ranks:
 * word `first + k` of a rank's share is that of its micro-step k. */
static double add_micro_batches(const trainer *t, int64_t first, int64_t count, int64_t share)
{
    double sum = 0.0;
    for (int64_t k = 0; k < count; k++)
        for (int r = 0; r < t->ranks.count; r++) {
            double micro = 0.0;
            memcpy(&micro, &t->all[r * share + first + k], sizeof micro);
            sum += micro;
        }
    return sum;
}

static int64_t peak_memory_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

/* A step of one rank becomes that of all, in one exchange: losses, tokens per expert, products on
 * the FP32-FMA route, memory. sums: of this rank's micro-batches. */
static oct_status share_step(trainer *t, const double *sums, int64_t fma_matmuls,
                             oct_step_metrics *row, oct_err *err)
{
    const int64_t steps = t->config->gradient_accumulation_steps;
    int64_t experts = 0;
    int64_t *counts = oct_dsv3_counts(t->build.model, &experts);
    const int64_t share = STEP_WORDS + steps + experts;
    t->own[PEAK_WORD] = peak_memory_bytes();
    t->own[FMA_WORD] = fma_matmuls;
    memcpy(t->own + STEP_WORDS, sums, (size_t)steps * sizeof *sums);
    if (experts)
        memcpy(t->own + STEP_WORDS + steps, counts, (size_t)experts * sizeof *counts);
    oct_ranks_phase(&t->ranks, "sharing a step", NULL);
    OCT_TRY(oct_ranks_gather(&t->ranks, t->own, (size_t)share * sizeof *t->own, t->all, err));

    t->peak_memory_bytes = 0;
    row->loss = add_micro_batches(t, STEP_WORDS, steps, share) / (double)row->tokens;
    for (int r = 0; r < t->ranks.count; r++) {
        const int64_t *of_rank = t->all + r * share;
        t->peak_memory_bytes = oct_max_i64(t->peak_memory_bytes, of_rank[PEAK_WORD]);
        row->fma_matmuls += of_rank[FMA_WORD];
        for (int64_t e = 0; e < experts; e++) {
            counts[e] = (r == 0 ? 0 : counts[e]) + of_rank[STEP_WORDS + steps + e];
            row->expert_load_max = oct_max_i64(row->expert_load_max, counts[e]);
        }
    }
    return OCT_OK;
}

/* Everything that a finite gradient changes, in order: balance bias, masters, compute forms. */
static oct_status update(trainer *t, const oct_grad_norm *norm, double lr_factor,
                         oct_step_metrics *row, oct_err *err)
{
    oct_build *build = &t->build;
    OCT_TRY(finish_save(t, err));
    const double started = oct_clock_seconds();
    if (t->config->moe.bias_update_rate > 0.0)
        oct_dsv3_update_bias(build->model, t->config->moe.bias_update_rate);
    bool updated = false;
    OCT_TRY(oct_optimizer_update(build->optimizer, &build->exec, norm, lr_factor, &updated, err));
    if (!updated)
        return OCT_FAIL(err, OCT_E_API, "the optimizer refused a finite gradient norm of %g",
                        norm->norm);
    OCT_TRY(oct_build_refresh(build, &row->refreshed_weights, err));
    oct_profile_add(&build->profile, OCT_PART_OPTIMIZER, started);
    t->state.step++;
    t->state.consecutive_skips = 0;
    return OCT_OK;
}

static oct_status skip(trainer *t, const oct_grad_norm *norm, oct_step_metrics *row, oct_err *err)
{
    const char *fqn = norm->nonfinite_fqn ? norm->nonfinite_fqn : "the norm itself";
    const oct_trace_event event = {.kind = OCT_TRACE_SKIP, .fqn = norm->nonfinite_fqn};
    oct_trace_emit(&t->build.trace, &event);
    row->skipped = true;
    t->state.consecutive_skips++;
    tell(t, t->options->observer.warning,
         "skipped attempt %lld: the gradient norm is not finite, first in %s",
         (long long)t->state.attempt, fqn);
    if (t->state.consecutive_skips < t->config->training.max_consecutive_skips)
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_NONFINITE,
                    "training stops: %lld steps in a row had a non-finite gradient norm, fewer "
                    "than %lld are required (training.max_consecutive_skips, first in %s)",
                    (long long)t->state.consecutive_skips,
                    (long long)t->config->training.max_consecutive_skips, fqn);
}

/* Rank 0 writes the row of all. */
static oct_status publish(trainer *t, oct_step_metrics *row, oct_err *err)
{
    if (t->ranks.rank != 0)
        return OCT_OK;
    row->peak_memory_bytes = oct_max_i64(t->peak_memory_bytes, peak_memory_bytes());
    row->step = t->state.step;
    const oct_status status = oct_metrics_write(t->metrics, row, err);
    if (status == OCT_OK && t->options->observer.row)
        t->options->observer.row(t->options->observer.arg, row, t->last_step);
    return status;
}

/* One element of this rank's gradients, for tests of skipped steps. */
static void spoil_gradient(const oct_module_tree *tree)
{
    for (int64_t p = 0; p < tree->param_count; p++)
        if (tree->params[p]->rows > 0) {
            tree->params[p]->grad[0] = NAN;
            return;
        }
}

/* Whether the gradients of all ranks are finite is one decision; what follows it may fail on one.
 */
static oct_status judge_and_update(trainer *t, double lr_factor, oct_step_metrics *row,
                                   bool *nonfinite, oct_err *err)
{
    oct_build *build = &t->build;
    oct_grad_norm norm = {0};
    OCT_TRY(oct_optimizer_grad_norm(build->optimizer, &build->exec, &norm, err));
    row->grad_norm = norm.norm;
    if (norm.finite) {
        OCT_TRY(update(t, &norm, lr_factor, row, err));
    } else {
        const oct_status status = skip(t, &norm, row, err);
        *nonfinite = status == OCT_E_NONFINITE;
        if (status != OCT_OK && !*nonfinite)
            return status;
    }
    if (!t->reserved)
        OCT_TRY(oct_build_reserve(
            build, t->config->training.micro_batch_size * t->config->training.seq_length, err));
    t->reserved = true;
    return OCT_OK;
}

static oct_status train_step(trainer *t, oct_err *err)
{
    oct_build *build = &t->build;
    const oct_config *config = t->config;
    const double started = oct_clock_seconds();
    const int64_t tokens = config->training.global_batch_size * config->training.seq_length;
    const int64_t fma_before = build->trace.fma_matmuls;
    const double lr_factor = oct_lr_factor(&t->schedule, t->state.step);
    build->profile = (oct_profile){0};
    build->trace.step = t->state.step;
    t->state.attempt++;
    oct_step_metrics row = {
        .attempt = t->state.attempt, .tokens = tokens, .lr = config->optimizer.lr * lr_factor};

    oct_optimizer_zero_grad(build->optimizer);
    oct_dsv3_counts_reset(build->model);
    OCT_TRY(run_micro_batches(t, tokens, t->sums, err));
    OCT_TRY(oct_build_finish_gradients(build, err));
    OCT_TRY(share_step(t, t->sums, build->trace.fma_matmuls - fma_before, &row, err));
    t->state.samples += config->training.global_batch_size;
    t->state.tokens += tokens;
    if (oct_fault("trainer.gradient"))
        spoil_gradient(&build->tree);
    if (t->options->observer.gradients)
        t->options->observer.gradients(t->options->observer.arg, build, &t->state);

    bool nonfinite = false;
    OCT_TRY(judge_and_update(t, lr_factor, &row, &nonfinite, err));
    /* No row of a step that a rank did not end. */
    oct_ranks_phase(&t->ranks, "ending a step", NULL);
    OCT_TRY(oct_ranks_agree(&t->ranks, OCT_OK, err));
    row.step_seconds = oct_clock_seconds() - started;
    row.tokens_per_second = (double)tokens / row.step_seconds;
    row.profile = build->profile;
    oct_err lost = {0};
    oct_status status = publish(t, &row, nonfinite ? &lost : err);
    if (nonfinite)
        status = OCT_E_NONFINITE;
    status = oct_ranks_agree(&t->ranks, status, err);
    t->row_lost = status != OCT_OK && !nonfinite;
    if (t->options->observer.stepped)
        t->options->observer.stepped(t->options->observer.arg, build, &t->state);
    return status;
}

static oct_status validate(trainer *t, oct_err *err)
{
    oct_build *build = &t->build;
    const oct_config *config = t->config;
    const double started = oct_clock_seconds();
    const int64_t count = micro_batches_of_validation(t);
    const oct_run run = oct_build_run(build, false);
    for (int64_t k = 0; k < count; k++) {
        OCT_TRY(fill_batch(t, t->validation, 0, k, err));
        const oct_batch batch = batch_of(t);
        double micro_sum = 0.0;
        OCT_TRY(oct_dsv3_loss(build->model, &run, &batch, &micro_sum, err));
        oct_build_settle(build);
        memcpy(&t->own[k], &micro_sum, sizeof micro_sum);
    }
    oct_ranks_phase(&t->ranks, "sharing a validation", NULL);
    OCT_TRY(oct_ranks_gather(&t->ranks, t->own, (size_t)count * sizeof *t->own, t->all, err));
    oct_step_metrics row = {.validation = true,
                            .attempt = t->state.attempt,
                            .tokens = config->dataset.validation.steps *
                                      config->training.global_batch_size *
                                      config->training.seq_length};
    row.loss = add_micro_batches(t, 0, count, count) / (double)row.tokens;
    row.step_seconds = oct_clock_seconds() - started;
    row.tokens_per_second = (double)row.tokens / row.step_seconds;
    const oct_status status = oct_ranks_agree(&t->ranks, publish(t, &row, err), err);
    t->row_lost = status != OCT_OK;
    return status;
}

/* --- the run -------------------------------------------------------------------------------- */

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step > 0 && step % every == 0;
}

/* A signal that reached any rank stops all at the same boundary. */
static oct_status look_for_signal(trainer *t, oct_err *err)
{
    int64_t number = oct_signals_pending();
    oct_ranks_phase(&t->ranks, "looking for signals", NULL);
    OCT_TRY(oct_ranks_max(&t->ranks, &number, err));
    t->signal = (int)number;
    return OCT_OK;
}

static oct_status take_steps(trainer *t, oct_err *err)
{
    const oct_config *config = t->config;
    while (t->state.step < t->last_step) {
        OCT_TRY(look_for_signal(t, err));
        if (t->signal)
            return OCT_OK;
        const int64_t before = t->state.step;
        OCT_TRY(train_step(t, err));
        if (t->state.step == before)
            continue; /* skipped: nothing new to validate or save */
        if (t->validation && due(t->state.step, config->dataset.validation.every))
            OCT_TRY(validate(t, err));
        if (due(t->state.step, config->checkpoint.save_steps) && t->state.step < t->last_step)
            OCT_TRY(save(t, config->checkpoint.async, err));
    }
    return OCT_OK;
}

static void warn_of_save(const trainer *t, oct_status status, const oct_err *err)
{
    if (status != OCT_OK)
        tell(t, t->options->observer.warning, "a checkpoint is lost as well: %s", err->msg);
}

/* A run that stops for want of a row keeps what it has learned, if it can. */
static void save_before_stopping(trainer *t)
{
    oct_err err = {0};
    warn_of_save(t, finish_save(t, &err), &err);
    if (t->saved_step != t->state.step)
        warn_of_save(t, save(t, false, &err), &err);
}

static oct_status run_steps(trainer *t, oct_train_result *result, oct_err *err)
{
    const oct_status status = take_steps(t, err);
    if (status != OCT_OK) {
        const bool agreed = t->ranks.agreed;
        if (t->row_lost)
            save_before_stopping(t);
        t->ranks.agreed = agreed;
        return status;
    }
    OCT_TRY(finish_save(t, err));
    if (t->saved_step != t->state.step)
        OCT_TRY(save(t, false, err));
    result->signal = t->signal;
    return OCT_OK;
}

static oct_status run_all(trainer *t, oct_train_result *result, oct_err *err)
{
    OCT_TRY(set_up(t, err));
    if (t->state.step >= t->last_step) {
        result->nothing_to_do = true;
        tell(t, t->options->observer.message, "nothing to do: step %lld of %lld is done",
             (long long)t->state.step, (long long)t->last_step);
        return OCT_OK;
    }
    OCT_TRY(look_for_signal(t, err));
    if (t->signal) { /* during the build: nothing was trained, nothing is saved */
        result->signal = t->signal;
        return OCT_OK;
    }
    return run_steps(t, result, err);
}

oct_status oct_train(const oct_config *config, const oct_train_options *options,
                     oct_train_result *result, oct_err *err)
{
    *result = (oct_train_result){0};
    oct_err unread = {0};
    if (!err)
        err = &unread;
    trainer *t = calloc(1, sizeof *t);
    if (!t)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot start training: out of memory");
    t->config = config;
    t->options = options;
    t->dir.lock_fd = -1;
    t->saved_step = -1;
    oct_build_init(&t->build, config, options->comm);
    oct_arena_init(&t->memory, "trainer");
    oct_item_list_init(&t->items);

    oct_status status = oct_ranks_init(&t->ranks, options->comm, err);
    oct_fault_set_rank(t->ranks.rank);
    oct_signals_install();
    if (status == OCT_OK)
        status = run_all(t, result, err);
    oct_signals_restore();
    status = oct_ranks_leave(&t->ranks, status, err);
    result->state = t->state;
    result->last_save_failed = t->last_save_failed;
    tear_down(t);
    free(t);
    return status;
}
