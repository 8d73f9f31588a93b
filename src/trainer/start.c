#include "trainer/trainer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dir_lock.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/size.h"
#include "comm/binding.h"
#include "trainer/converters.h"
#include "trainer/high_precision.h"
#include "trainer/plan_report.h"

void oct_trainer_tell(const oct_trainer *t, void (*sink)(void *arg, const char *line),
                      const char *fmt, ...)
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
    const oct_trainer *t = arg;
    oct_trainer_tell(t, t->options->observer.warning, "%s", line);
}

oct_status oct_trainer_checkpoint_status(oct_status status, oct_err *err)
{
    if (status == OCT_OK || status == OCT_E_NOMEM)
        return status;
    if (err)
        err->code = OCT_E_CHECKPOINT;
    return OCT_E_CHECKPOINT;
}

int64_t oct_trainer_validation_steps(const oct_trainer *t)
{
    return t->config->dataset.validation.steps * t->config->gradient_accumulation_steps;
}

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

static oct_status open_dataset(const oct_trainer *t, const oct_string_list *paths, bool shuffle,
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
static oct_status open_validation(oct_trainer *t, oct_err *err)
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

static oct_status open_files(oct_trainer *t, oct_err *err)
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

static oct_status open_data(oct_trainer *t, oct_err *err)
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

static oct_status choose_start(oct_trainer *t, start *out, oct_err *err)
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
static oct_status open_start(oct_trainer *t, const start *s, oct_checkpoint **out, oct_err *err)
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
static oct_status check_same_config(const oct_trainer *t, const char *text, oct_err *err)
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
static oct_status find_start(oct_trainer *t, const char *config_text, oct_checkpoint **checkpoint,
                             bool *with_moments, oct_err *err)
{
    start chosen = {0};
    oct_status status = OCT_OK;
    oct_ranks_phase(&t->ranks, "choosing a checkpoint", NULL);
    if (t->ranks.rank == 0)
        status = choose_start(t, &chosen, err);
    if (status != OCT_OK && status != OCT_E_CONFIG)
        status = oct_trainer_checkpoint_status(status, err);
    OCT_TRY(oct_ranks_agree(&t->ranks, status, err));
    OCT_TRY(oct_ranks_broadcast(&t->ranks, &chosen, sizeof chosen, err));
    *with_moments = chosen.with_moments;
    status = oct_trainer_checkpoint_status(open_start(t, &chosen, checkpoint, err), err);
    OCT_TRY(oct_ranks_settled(&t->ranks, status));
    if (!*checkpoint && t->ranks.rank == 0)
        status = check_same_config(t, config_text, err);
    oct_ranks_phase(&t->ranks, "comparing with the run directory", NULL);
    return oct_ranks_agree(&t->ranks, status, err);
}

/* Opened before the model is built, so that it holds the replacements. */
static oct_status open_trace(oct_trainer *t, bool afresh, oct_err *err)
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

static oct_status restore(oct_trainer *t, const oct_checkpoint *checkpoint, bool with_moments,
                          oct_err *err)
{
    oct_ranks_phase(&t->ranks, "restoring a checkpoint", NULL);
    const oct_status restored = oct_trainer_checkpoint_status(
        oct_state_restore(&t->build, checkpoint, &t->identity, with_moments, &t->state, err), err);
    OCT_TRY(oct_ranks_agree(&t->ranks, restored, err));
    int64_t refreshed = 0;
    OCT_TRY(oct_build_refresh(&t->build, &refreshed, err));
    t->saved_step = with_moments ? t->state.step : -1;
    const int64_t step = oct_checkpoint_step(checkpoint);
    if (step >= 0)
        oct_trainer_tell(t, t->options->observer.message,
                         "resumed from the checkpoint of step %lld%s", (long long)step,
                         with_moments ? "" : ", weights only");
    else
        oct_trainer_tell(t, t->options->observer.message,
                         "started from a checkpoint of PyTorch, %lld updates%s",
                         (long long)t->state.step, with_moments ? "" : ", weights only");
    return OCT_OK;
}

/* Runs the stages up to `last`; each shows other ranks that this one gets on. */
static oct_status build_through(oct_trainer *t, oct_stage last, oct_err *err)
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
static oct_status build_alone(oct_trainer *t, bool afresh, oct_err *err)
{
    OCT_TRY(open_trace(t, afresh, err));
    return build_through(t, OCT_STAGE_REPLACE, err);
}

static oct_status build_and_restore(oct_trainer *t, const oct_checkpoint *checkpoint,
                                    bool with_moments, oct_err *err)
{
    OCT_TRY(oct_ranks_agree(&t->ranks, build_alone(t, !checkpoint || !with_moments, err), err));
    OCT_TRY(build_through(t, OCT_STAGE_MASTERS, err));
    return checkpoint ? restore(t, checkpoint, with_moments, err) : OCT_OK;
}

static void tell_message(void *arg, const char *line)
{
    const oct_trainer *t = arg;
    oct_trainer_tell(t, t->options->observer.message, "%s", line);
}

/* Products that a forward function computes itself cannot be replaced: they are told. */
static oct_status describe_high_precision(oct_trainer *t, oct_err *err)
{
    oct_high_precision kept;
    OCT_TRY(oct_high_precision_of(&t->build, &kept, err));
    oct_trainer_tell(t, t->options->observer.message,
                     "  in high precision: %lld Linear, %lld experts, and the products inside "
                     "%lld routers and %lld attentions",
                     (long long)kept.linear, (long long)kept.experts, (long long)kept.router,
                     (long long)kept.attention / 2);
    return OCT_OK;
}

static oct_status describe(oct_trainer *t, oct_err *err)
{
    void (*sink)(void *, const char *) = t->options->observer.message;
    const oct_build *build = &t->build;
    const oct_dsv3_size size = oct_dsv3_size_of(&build->hf, t->config->training.seq_length);
    oct_trainer_tell(t, sink,
                     "model: %.2f M parameters (%.2f M active), %lld layers, %s activations",
                     1e-6 * (double)size.parameters_total, 1e-6 * (double)size.parameters_active,
                     (long long)build->hf.num_hidden_layers, oct_dtype_name(build->act_dtype));
    if (build->policy.enabled) {
        oct_trainer_tell(t, sink, "low precision: %s with %s scaling, %lld weights in 8 bits",
                         build->policy.format->name, build->policy.format->scaling,
                         (long long)build->weights.count);
        for (int64_t r = 0; r < oct_plan_rule_count(build->plan); r++)
            for (int64_t p = 0; p < oct_plan_rule_at(build->plan, r)->pattern_count; p++)
                oct_trainer_tell(t, sink, "  %s: %lld hits",
                                 oct_plan_rule_at(build->plan, r)->patterns[p],
                                 (long long)oct_plan_hits(build->plan, r, p));
        OCT_TRY(describe_high_precision(t, err));
    } else {
        oct_trainer_tell(t, sink, "low precision: off");
    }
    OCT_TRY(oct_converters_tell(t->config, &t->build, tell_message, t, err));
    oct_trainer_tell(t, sink, "data: %lld files, %lld tokens, %lld samples of %lld",
                     (long long)oct_dataset_files(t->data), (long long)oct_dataset_tokens(t->data),
                     (long long)oct_dataset_samples(t->data),
                     (long long)t->config->training.seq_length);
    oct_trainer_tell(t, sink, "kernels: %s, %d threads", oct_isa_name(build->kernels.isa),
                     build->exec.threads);
    if (t->ranks.count > 1)
        oct_trainer_tell(t, sink, "ranks: %s, %lld micro-batches of a step on each",
                         oct_comm_describe(t->ranks.comm),
                         (long long)t->config->gradient_accumulation_steps);
    if (t->options->observer.built && t->ranks.rank == 0)
        t->options->observer.built(t->options->observer.arg, &t->build);
    return OCT_OK;
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
static oct_status choose_threads(oct_trainer *t, oct_err *err)
{
    if (t->config->training.threads || t->ranks.count == 1)
        return OCT_OK;
    oct_binding binding;
    OCT_TRY(oct_binding_read(t->ranks.comm, &binding, err));
    t->build.exec.threads = oct_binding_threads(&binding);
    return OCT_OK;
}

/* Everything that can be refused from shapes alone. */
static oct_status plan(oct_trainer *t, oct_err *err)
{
    OCT_TRY(build_through(t, OCT_STAGE_PLAN, err));
    oct_ranks_phase(&t->ranks, "build", oct_stage_name(OCT_STAGE_CUT)); /* as it will be cut */
    return check_memory(&t->build, &t->ranks, err);
}

/* A directory of the same name on another machine is another one, unless both share a disk. */
static oct_status check_shared(const oct_trainer *t, const char *required, oct_err *err)
{
    char found[OCT_DIR_LOCK_HOLDER];
    oct_dir_lock_holder(t->dir.path, found);
    if (strcmp(found, required) != 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot share the run directory: %s on rank %d, one held by %s is required "
                        "(%s)",
                        found[0] ? found : "there is none", t->ranks.rank, required, t->dir.path);
    return OCT_OK;
}

/* Rank 0 opens and locks the directory; the others read and write checkpoints and traces there. */
static oct_status open_run_dir(oct_trainer *t, oct_err *err)
{
    oct_ranks_phase(&t->ranks, "opening the run directory", NULL);
    const oct_status status = t->ranks.rank == 0
                                  ? oct_run_dir_open(t->options->run_dir, &t->dir, err)
                                  : oct_run_dir_name(t->options->run_dir, &t->dir, err);
    OCT_TRY(oct_ranks_agree(&t->ranks, status, err));
    char holder[OCT_DIR_LOCK_HOLDER] = {0};
    oct_dir_lock_holder(t->dir.path, holder);
    OCT_TRY(oct_ranks_broadcast(&t->ranks, holder, sizeof holder, err));
    return oct_ranks_agree(&t->ranks, check_shared(t, holder, err), err);
}

static oct_status open_writer(oct_trainer *t, oct_err *err)
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
    return oct_ranks_settled(&t->ranks, oct_trainer_checkpoint_status(status, err));
}

/* The files that rank 0 writes. */
static oct_status open_rows(oct_trainer *t, const char *config_text, oct_err *err)
{
    if (t->ranks.rank != 0)
        return OCT_OK;
    OCT_TRY(oct_run_dir_write_config(&t->dir, config_text, err));
    return oct_metrics_open(t->dir.metrics, t->state.attempt, &t->metrics, err);
}

/* Memory for what the ranks tell each other of a step or a validation. */
static oct_status allocate_shares(oct_trainer *t, oct_err *err)
{
    int64_t counts = 0;
    (void)oct_dsv3_counts(t->build.model, &counts);
    const int64_t of_step = STEP_WORDS + t->config->gradient_accumulation_steps + counts;
    const int64_t of_validation = t->validation ? oct_trainer_validation_steps(t) : 0;
    const int64_t share = oct_max_i64(of_step, of_validation);
    void *memory = NULL;
    OCT_TRY(oct_arena_array(&t->memory, t->config->gradient_accumulation_steps, sizeof(double),
                            &memory, err));
    t->sums = memory;
    OCT_TRY(oct_arena_array(&t->memory, share, sizeof(int64_t), &memory, err));
    t->own = memory;
    OCT_TRY(oct_arena_array(&t->memory, share * t->ranks.count, sizeof(int64_t), &memory, err));
    t->all = memory;
    OCT_TRY(oct_arena_array(&t->memory, t->ranks.count, sizeof *t->peaks, &memory, err));
    memset(memory, 0, (size_t)t->ranks.count * sizeof *t->peaks);
    t->peaks = memory;
    return OCT_OK;
}

oct_status oct_trainer_set_up(oct_trainer *t, oct_err *err)
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
    OCT_TRY(oct_build_prepare(&t->build, err));
    oct_ranks_phase(&t->ranks, "opening metrics", NULL);
    OCT_TRY(oct_ranks_agree(&t->ranks, open_rows(t, config_text, err), err));

    t->schedule = oct_lr_schedule_from_config(config);
    t->last_step = config->training.train_iters;
    if (config->training.stop_at_step >= 0 && config->training.stop_at_step < t->last_step)
        t->last_step = config->training.stop_at_step;
    return oct_ranks_agree(&t->ranks, describe(t, err), err);
}

void oct_trainer_tear_down(oct_trainer *t)
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
