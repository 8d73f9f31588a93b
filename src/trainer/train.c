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
#include "optim/schedule.h"
#include "trainer/plan_report.h"
#include "trainer/run_dir.h"
#include "trainer/signals.h"

/* One run. Everything in here has one owner: oct_train. */
typedef struct trainer {
    const oct_config *config;
    const oct_train_options *options;
    oct_run_dir dir;
    oct_build build;
    oct_dataset *data, *validation;
    oct_arena memory;       /* configuration text, identity, batch buffers */
    int32_t *ids, *targets; /* one micro-batch */
    oct_identity identity;
    char config_hash[20];
    oct_metrics *metrics;
    oct_trace_file *trace_file;
    oct_checkpoint_writer *writer;
    oct_item_list items;
    oct_lr_schedule schedule;
    oct_train_state state;
    int64_t last_step;  /* where this run ends */
    int64_t saved_step; /* newest checkpoint that was reported saved, -1 if none */
    bool last_save_failed;
    bool row_lost; /* metrics could not be written; the state is that of a whole step */
    bool reserved; /* the first step has shown how much memory a step needs */
} trainer;

static void tell(const trainer *t, void (*sink)(void *arg, const char *line), const char *fmt, ...)
    OCT_PRINTF(3, 4);
static void tell(const trainer *t, void (*sink)(void *arg, const char *line), const char *fmt, ...)
{
    if (!sink)
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

static void hash_text(const char *text, char out[20])
{
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a, 64 bits */
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        hash = (hash ^ *c) * 0x100000001B3u;
    (void)snprintf(out, 20, "%016" PRIx64, hash);
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

static oct_status open_data(trainer *t, oct_err *err)
{
    const oct_config *config = t->config;
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

/* A checkpoint by its name, or by its contents: PyTorch's may have any name. */
static bool is_checkpoint(const char *path)
{
    char metadata[OCT_PATH_MAX + 16];
    const char *slash = strrchr(path, '/');
    (void)snprintf(metadata, sizeof metadata, "%s/.metadata", path);
    return oct_checkpoint_step_of_name(slash ? slash + 1 : path) >= 0 ||
           access(metadata, F_OK) == 0;
}

/* restore_from as a path: a checkpoint, or a folder of checkpoints. */
static oct_status open_path(trainer *t, const char *path, oct_checkpoint_verify_level level,
                            oct_checkpoint **out, oct_err *err)
{
    if (is_checkpoint(path) || access(path, F_OK) != 0)
        return oct_checkpoint_open(NULL, path, level, on_checkpoint_warning, t, out, err);
    OCT_TRY(oct_checkpoint_open_latest(NULL, path, level, on_checkpoint_warning, t, out, err));
    if (!*out)
        return OCT_FAIL(err, OCT_E_CHECKPOINT,
                        "cannot restore: no checkpoint in '%s', a checkpoint or a folder of "
                        "checkpoints is required (checkpoint.restore_from)",
                        path);
    return OCT_OK;
}

/* The checkpoint to go on from, NULL for a fresh start; *with_moments as restore_optimizer says. */
static oct_status find_checkpoint(trainer *t, oct_checkpoint **out, bool *with_moments,
                                  oct_err *err)
{
    const oct_config *config = t->config;
    const char *word = t->options->resume;
    const char *from = config->checkpoint.restore_from;
    const oct_checkpoint_verify_level level =
        config->checkpoint.verify_crc ? OCT_VERIFY_CRC : OCT_VERIFY_SIZE;
    int64_t *steps = NULL, count = 0;
    *out = NULL;
    *with_moments = true;
    OCT_TRY(oct_checkpoint_list(NULL, t->dir.checkpoints, &t->memory, &steps, &count, err));

    const bool from_is_word =
        from && (strcmp(from, "latest") == 0 || oct_checkpoint_step_of_name(from) >= 0);
    if (!word && from && (from_is_word || count == 0)) {
        *with_moments = config->checkpoint.restore_optimizer;
        if (!from_is_word)
            return open_path(t, from, level, out, err);
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
    const int64_t step = word ? oct_checkpoint_step_of_name(word) : -1;
    if (step >= 0)
        return oct_checkpoint_open_step(NULL, t->dir.checkpoints, step, level, out, err);
    if (word && strcmp(word, "latest") != 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "wrong word to resume from: found '%s', latest, none or step-N is required "
                        "(--resume)",
                        word);
    OCT_TRY(oct_checkpoint_open_latest(NULL, t->dir.checkpoints, level, on_checkpoint_warning, t,
                                       out, err));
    if (word && !*out)
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
    const bool same = !before || strcmp(before, text) == 0;
    free(before);
    if (!same)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot start in the run directory: it belongs to another configuration, "
                        "the same one or an empty directory is required (%s)",
                        t->dir.config);
    return OCT_OK;
}

/* The checkpoint to go on from, NULL where the run starts afresh and may. */
static oct_status choose_start(trainer *t, const char *config_text, oct_checkpoint **checkpoint,
                               bool *with_moments, oct_err *err)
{
    const oct_status found = find_checkpoint(t, checkpoint, with_moments, err);
    if (found != OCT_OK)
        return found == OCT_E_CONFIG ? found : checkpoint_status(found, err);
    return *checkpoint ? OCT_OK : check_same_config(t, config_text, err);
}

/* Opened before the model is built, so that it holds the replacements. */
static oct_status open_trace(trainer *t, bool afresh, oct_err *err)
{
    if (!t->config->trace)
        return OCT_OK;
    char path[OCT_PATH_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/trace-0.jsonl", t->dir.path);
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
    OCT_TRY(checkpoint_status(
        oct_state_restore(&t->build, checkpoint, &t->identity, with_moments, &t->state, err), err));
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

static oct_status build_and_restore(trainer *t, const oct_checkpoint *checkpoint, bool with_moments,
                                    oct_err *err)
{
    OCT_TRY(open_trace(t, !checkpoint || !with_moments, err));
    OCT_TRY(oct_build_through(&t->build, OCT_STAGE_MASTERS, err));
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
}

/* The system grants more memory than there is and kills the process when it is touched: what can
 * be told from shapes is refused here. The first look bounds what the second one multiplies. */
static oct_status check_memory(oct_build *build, oct_err *err)
{
    enum { STATE_BYTES = 16 }; /* of a parameter: master, two moments, gradient */
    const oct_config *config = build->config;
    const double limit = (double)oct_memory_limit();
    double parameters = 0.0;
    for (int64_t p = 0; p < build->tree.param_count; p++)
        parameters += (double)oct_param_numel(build->tree.params[p]);
    const double hidden = (double)config->training.micro_batch_size *
                          (double)config->training.seq_length * (double)build->hf.hidden_size;
    double needed = STATE_BYTES * parameters + (double)sizeof(float) * hidden;
    if (needed <= limit) {
        oct_plan_report report;
        OCT_TRY(oct_plan_report_make(build, 1, &report, err));
        needed = (double)report.bytes.peak;
    }
    if (needed > limit)
        return OCT_FAIL(err, OCT_E_NOMEM,
                        "out of memory: training needs %.4g GB, at most the %.4g GB of this "
                        "machine are required (octet plan shows the parts)",
                        1e-9 * needed, 1e-9 * limit);
    return OCT_OK;
}

static oct_status set_up(trainer *t, oct_err *err)
{
    const oct_config *config = t->config;
    char *config_text = NULL;
    OCT_TRY(oct_config_print(config, &t->memory, &config_text, err));
    hash_text(config_text, t->config_hash);
    /* Everything that can be refused cheaply is refused before weights are made. */
    OCT_TRY(oct_build_through(&t->build, OCT_STAGE_PLAN, err));
    OCT_TRY(check_memory(&t->build, err));
    OCT_TRY(open_data(t, err));
    OCT_TRY(oct_run_dir_open(t->options->run_dir, &t->dir, err));
    const oct_checkpoint_options checkpoints = {
        .root = t->dir.checkpoints,
        .keep_latest_k = config->checkpoint.keep_latest_k,
        .warn = on_checkpoint_warning,
        .warn_arg = t,
    };
    OCT_TRY(checkpoint_status(oct_checkpoint_writer_create(&checkpoints, &t->writer, err), err));
    oct_checkpoint *checkpoint = NULL;
    bool with_moments = true;
    OCT_TRY(choose_start(t, config_text, &checkpoint, &with_moments, err));
    const oct_status status = build_and_restore(t, checkpoint, with_moments, err);
    oct_checkpoint_close(checkpoint);
    OCT_TRY(status);
    OCT_TRY(oct_run_dir_write_config(&t->dir, config_text, err));
    OCT_TRY(oct_metrics_open(t->dir.metrics, t->state.attempt, &t->metrics, err));

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
    tell(t, t->options->observer.warning, "training goes on without this checkpoint: %s",
         err ? err->msg : oct_status_name(status));
    return OCT_OK;
}

/* Ends a save in flight: before anything that it reads is changed. */
static oct_status finish_save(trainer *t, oct_err *err)
{
    const double started = oct_clock_seconds();
    int64_t saved = -1;
    const oct_status status = oct_checkpoint_wait(t->writer, &saved, err);
    oct_profile_add(&t->build.profile, OCT_PART_CHECKPOINT, started);
    if (status == OCT_OK && saved >= 0) {
        t->saved_step = saved;
        const oct_trace_event event = {.kind = OCT_TRACE_SAVE};
        oct_trace_emit(&t->build.trace, &event);
        if (t->options->observer.saved)
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
    const oct_status status = oct_checkpoint_start(t->writer, t->state.step, &t->items, &meta, err);
    if (status != OCT_OK)
        return judge_save(t, status, err);
    return in_background ? OCT_OK : finish_save(t, err);
}

/* --- one step ------------------------------------------------------------------------------- */

static oct_status fill_batch(trainer *t, const oct_dataset *data, int64_t position, oct_err *err)
{
    const int64_t seq = t->config->training.seq_length;
    for (int64_t i = 0; i < t->config->training.micro_batch_size; i++)
        OCT_TRY(oct_dataset_fill(data, position + i, t->ids + i * seq, t->targets + i * seq, err));
    return OCT_OK;
}

static oct_batch batch_of(const trainer *t)
{
    return (oct_batch){.ids = t->ids,
                       .targets = t->targets,
                       .batch = t->config->training.micro_batch_size,
                       .seq = t->config->training.seq_length};
}

/* Forward and backward pass of every micro-batch, in their global order. */
static oct_status run_micro_batches(trainer *t, int64_t tokens, double *loss, oct_err *err)
{
    oct_build *build = &t->build;
    const int64_t micro = t->config->training.micro_batch_size;
    const int64_t count = t->config->gradient_accumulation_steps;
    /* fl32(1/N): the FP64 quotient of an integer below 2^28 lies too far from any tie of FP32 for
     * the second rounding to differ from a single one. */
    const float scale = (float)(1.0 / (double)tokens);
    const oct_run run = oct_build_run(build, true);
    double sum = 0.0;
    for (int64_t m = 0; m < count; m++) {
        build->trace.micro_step = m;
        OCT_TRY(fill_batch(t, t->data, t->state.samples + m * micro, err));
        const oct_batch batch = batch_of(t);
        double micro_sum = 0.0;
        OCT_TRY(oct_dsv3_forward_backward(build->model, &run, &batch, scale,
                                          t->config->activation_checkpoint.full, &micro_sum, err));
        oct_build_settle(build);
        for (int64_t p = 0; p < build->tree.param_count; p++)
            build->tree.params[p]->grad_started = true;
        sum += micro_sum;
    }
    *loss = sum / (double)tokens;
    return OCT_OK;
}

static int64_t largest_expert_load(oct_dsv3 *model)
{
    int64_t count = 0, largest = 0;
    const int64_t *counts = oct_dsv3_counts(model, &count);
    for (int64_t i = 0; counts && i < count; i++)
        largest = oct_max_i64(largest, counts[i]);
    return largest;
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

static int64_t peak_memory_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

static oct_status publish(trainer *t, oct_step_metrics *row, oct_err *err)
{
    row->peak_memory_bytes = peak_memory_bytes();
    row->step = t->state.step;
    const oct_status status = oct_metrics_write(t->metrics, row, err);
    t->row_lost = status != OCT_OK;
    if (status == OCT_OK && t->options->observer.row)
        t->options->observer.row(t->options->observer.arg, row, t->last_step);
    return status;
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
    OCT_TRY(run_micro_batches(t, tokens, &row.loss, err));
    t->state.samples += config->training.global_batch_size;
    t->state.tokens += tokens;
    row.expert_load_max = largest_expert_load(build->model);
    if (oct_fault("trainer.gradient"))
        build->tree.params[0]->grad[0] = NAN;
    if (t->options->observer.gradients)
        t->options->observer.gradients(t->options->observer.arg, build, &t->state);

    oct_grad_norm norm = {0};
    OCT_TRY(oct_optimizer_grad_norm(build->optimizer, &build->exec, &norm, err));
    row.grad_norm = norm.norm;
    const oct_status status =
        norm.finite ? update(t, &norm, lr_factor, &row, err) : skip(t, &norm, &row, err);
    if (status != OCT_OK && status != OCT_E_NONFINITE)
        return status;
    if (!t->reserved)
        OCT_TRY(oct_build_reserve(
            build, config->training.micro_batch_size * config->training.seq_length, err));
    t->reserved = true;
    row.step_seconds = oct_clock_seconds() - started;
    row.tokens_per_second = (double)tokens / row.step_seconds;
    row.fma_matmuls = build->trace.fma_matmuls - fma_before;
    row.profile = build->profile;
    oct_status published = publish(t, &row, err);
    if (t->options->observer.stepped)
        t->options->observer.stepped(t->options->observer.arg, build, &t->state);
    return status != OCT_OK ? status : published;
}

static oct_status validate(trainer *t, oct_err *err)
{
    oct_build *build = &t->build;
    const oct_config *config = t->config;
    const double started = oct_clock_seconds();
    const int64_t micro = config->training.micro_batch_size;
    const int64_t samples = config->dataset.validation.steps * config->training.global_batch_size;
    const oct_run run = oct_build_run(build, false);
    double sum = 0.0;
    for (int64_t position = 0; position < samples; position += micro) {
        OCT_TRY(fill_batch(t, t->validation, position, err));
        const oct_batch batch = batch_of(t);
        double micro_sum = 0.0;
        OCT_TRY(oct_dsv3_loss(build->model, &run, &batch, &micro_sum, err));
        oct_build_settle(build);
        sum += micro_sum;
    }
    oct_step_metrics row = {.validation = true,
                            .attempt = t->state.attempt,
                            .tokens = samples * config->training.seq_length};
    row.loss = sum / (double)row.tokens;
    row.step_seconds = oct_clock_seconds() - started;
    row.tokens_per_second = (double)row.tokens / row.step_seconds;
    return publish(t, &row, err);
}

/* --- the run -------------------------------------------------------------------------------- */

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step > 0 && step % every == 0;
}

static oct_status take_steps(trainer *t, oct_err *err)
{
    const oct_config *config = t->config;
    while (t->state.step < t->last_step && !oct_signals_pending()) {
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
        if (t->row_lost)
            save_before_stopping(t);
        return status;
    }
    OCT_TRY(finish_save(t, err));
    if (t->saved_step != t->state.step)
        OCT_TRY(save(t, false, err));
    result->signal = t->state.step < t->last_step ? oct_signals_pending() : 0;
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
    if (oct_signals_pending()) { /* during the build: nothing was trained, nothing is saved */
        result->signal = oct_signals_pending();
        return OCT_OK;
    }
    return run_steps(t, result, err);
}

oct_status oct_train(const oct_config *config, const oct_train_options *options,
                     oct_train_result *result, oct_err *err)
{
    *result = (oct_train_result){0};
    trainer *t = calloc(1, sizeof *t);
    if (!t)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot start training: out of memory");
    t->config = config;
    t->options = options;
    t->dir.lock_fd = -1;
    t->saved_step = -1;
    oct_build_init(&t->build, config, NULL);
    oct_arena_init(&t->memory, "trainer");
    oct_item_list_init(&t->items);

    oct_signals_install();
    const oct_status status = run_all(t, result, err);
    oct_signals_restore();
    result->state = t->state;
    result->last_save_failed = t->last_save_failed;
    tear_down(t);
    free(t);
    return status;
}
