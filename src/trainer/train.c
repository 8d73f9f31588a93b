#include "trainer/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/fault.h"
#include "base/size.h"
#include "trainer/signals.h"
#include "trainer/trainer.h"

/* --- checkpoints ---------------------------------------------------------------------------- */

/* on_failure: continue turns a failed save into a warning while training does go on. */
static oct_status judge_save(oct_trainer *t, oct_status status, oct_err *err)
{
    if (status == OCT_OK) {
        t->last_save_failed = false;
        return OCT_OK;
    }
    t->last_save_failed = true;
    if (t->config->checkpoint.stop_on_failure || t->row_lost)
        return oct_trainer_checkpoint_status(status, err);
    t->ranks.agreed = false; /* nobody ends for it */
    oct_trainer_tell(t, t->options->observer.warning,
                     "training goes on without this checkpoint: %s",
                     err ? err->msg : oct_status_name(status));
    return OCT_OK;
}

/* Ends a save in flight: before anything that it reads is changed. */
static oct_status finish_save(oct_trainer *t, oct_err *err)
{
    if (!t->saving)
        return OCT_OK;
    const oct_span span = oct_profile_begin(&t->build.profile, OCT_PART_CHECKPOINT);
    int64_t saved = -1;
    oct_ranks_phase(&t->ranks, "finishing a checkpoint", NULL);
    const oct_status status =
        oct_ranks_settled(&t->ranks, oct_checkpoint_wait(t->writer, &saved, err));
    t->saving = false;
    oct_profile_end(&t->build.profile, span);
    if (status == OCT_OK && saved >= 0) {
        t->saved_step = saved;
        const oct_trace_event event = {.kind = OCT_TRACE_SAVE};
        oct_trace_emit(&t->build.trace, &event);
        if (t->options->observer.saved && t->ranks.rank == 0)
            t->options->observer.saved(t->options->observer.arg, saved);
    }
    return judge_save(t, status, err);
}

static oct_status save(oct_trainer *t, bool in_background, oct_err *err)
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
static oct_status read_batch(oct_trainer *t, const oct_dataset *data, int64_t position, int64_t k,
                             oct_err *err)
{
    const int64_t seq = t->config->training.seq_length;
    const int64_t micro = t->config->training.micro_batch_size;
    const int64_t first = position + (k * t->ranks.count + t->ranks.rank) * micro;
    for (int64_t i = 0; i < micro; i++)
        OCT_TRY(oct_dataset_fill(data, first + i, t->ids + i * seq, t->targets + i * seq, err));
    return OCT_OK;
}

static oct_status fill_batch(oct_trainer *t, const oct_dataset *data, int64_t position, int64_t k,
                             oct_err *err)
{
    oct_ranks_phase(&t->ranks, "reading data", NULL);
    return oct_ranks_agree(&t->ranks, read_batch(t, data, position, k, err), err);
}

static oct_batch batch_of(const oct_trainer *t)
{
    return (oct_batch){.ids = t->ids,
                       .targets = t->targets,
                       .batch = t->config->training.micro_batch_size,
                       .seq = t->config->training.seq_length};
}

/* This rank's part of a step: forward and backward pass of its micro-batches; sums [count]. */
static oct_status run_micro_batches(oct_trainer *t, int64_t tokens, double *sums, oct_err *err)
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
static double add_micro_batches(const oct_trainer *t, int64_t first, int64_t count, int64_t share)
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
static oct_status share_step(oct_trainer *t, const double *sums, int64_t fma_matmuls,
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
        t->peaks[r] = of_rank[PEAK_WORD];
        t->peak_memory_bytes = oct_max_i64(t->peak_memory_bytes, t->peaks[r]);
        row->fma_matmuls += of_rank[FMA_WORD];
        for (int64_t e = 0; e < experts; e++) {
            counts[e] = (r == 0 ? 0 : counts[e]) + of_rank[STEP_WORDS + steps + e];
            row->expert_load_max = oct_max_i64(row->expert_load_max, counts[e]);
        }
    }
    return OCT_OK;
}

/* Everything that a finite gradient changes, in order: balance bias, masters, compute forms. */
static oct_status update(oct_trainer *t, const oct_grad_norm *norm, double lr_factor,
                         oct_step_metrics *row, oct_err *err)
{
    oct_build *build = &t->build;
    OCT_TRY(finish_save(t, err));
    const oct_span span = oct_profile_begin(&build->profile, OCT_PART_OPTIMIZER);
    if (t->config->moe.bias_update_rate > 0.0)
        oct_dsv3_update_bias(build->model, t->config->moe.bias_update_rate);
    bool updated = false;
    OCT_TRY(oct_optimizer_update(build->optimizer, &build->exec, norm, lr_factor, &updated, err));
    if (!updated)
        return OCT_FAIL(err, OCT_E_API, "the optimizer refused a finite gradient norm of %g",
                        norm->norm);
    OCT_TRY(oct_build_refresh(build, &row->refreshed_weights, err));
    oct_profile_end(&build->profile, span);
    t->state.step++;
    t->state.consecutive_skips = 0;
    return OCT_OK;
}

static oct_status skip(oct_trainer *t, const oct_grad_norm *norm, oct_step_metrics *row,
                       oct_err *err)
{
    const char *fqn = norm->nonfinite_fqn ? norm->nonfinite_fqn : "the norm itself";
    const oct_trace_event event = {.kind = OCT_TRACE_SKIP, .fqn = norm->nonfinite_fqn};
    oct_trace_emit(&t->build.trace, &event);
    row->skipped = true;
    t->state.consecutive_skips++;
    oct_trainer_tell(t, t->options->observer.warning,
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
static oct_status publish(oct_trainer *t, oct_step_metrics *row, oct_err *err)
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
static oct_status judge_and_update(oct_trainer *t, double lr_factor, oct_step_metrics *row,
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

static oct_status train_step(oct_trainer *t, oct_err *err)
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
    t->stepping = true;
    oct_fault_set_step(t->state.attempt);
    oct_step_metrics row = {
        .attempt = t->state.attempt, .tokens = tokens, .lr = config->optimizer.lr * lr_factor};

    oct_optimizer_zero_grad(build->optimizer);
    oct_dsv3_counts_reset(build->model);
    OCT_TRY(run_micro_batches(t, tokens, t->sums, err));
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

static oct_status validate(oct_trainer *t, oct_err *err)
{
    oct_build *build = &t->build;
    const oct_config *config = t->config;
    const double started = oct_clock_seconds();
    const int64_t count = oct_trainer_validation_steps(t);
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
static oct_status look_for_signal(oct_trainer *t, oct_err *err)
{
    int64_t number = oct_signals_pending();
    oct_ranks_phase(&t->ranks, "looking for signals", NULL);
    OCT_TRY(oct_ranks_max(&t->ranks, &number, err));
    t->signal = (int)number;
    return OCT_OK;
}

static oct_status take_steps(oct_trainer *t, oct_err *err)
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

static void warn_of_save(const oct_trainer *t, oct_status status, const oct_err *err)
{
    if (status != OCT_OK)
        oct_trainer_tell(t, t->options->observer.warning, "a checkpoint is lost as well: %s",
                         err->msg);
}

/* A run that stops for want of a row keeps what it has learned, if it can. */
static void save_before_stopping(oct_trainer *t)
{
    oct_err err = {0};
    warn_of_save(t, finish_save(t, &err), &err);
    if (t->saved_step != t->state.step)
        warn_of_save(t, save(t, false, &err), &err);
}

/* What the largest rank needed is in every row; of several ranks each one's is told at the end. */
static void tell_peaks(const oct_trainer *t)
{
    char line[1024] = "";
    size_t used = 0;
    for (int r = 0; r < t->ranks.count && used < sizeof line; r++)
        used += (size_t)snprintf(line + used, sizeof line - used, " %lld",
                                 (long long)(t->peaks[r] / (1 << 20)));
    if (t->ranks.count > 1 && t->peak_memory_bytes > 0)
        oct_trainer_tell(t, t->options->observer.message, "peak memory of each rank, MiB:%s", line);
}

static oct_status run_steps(oct_trainer *t, oct_train_result *result, oct_err *err)
{
    const oct_status status = take_steps(t, err);
    if (status != OCT_OK) {
        const bool agreed = t->ranks.agreed;
        if (t->row_lost)
            save_before_stopping(t);
        t->ranks.agreed = agreed;
        return status;
    }
    tell_peaks(t);
    OCT_TRY(finish_save(t, err));
    if (t->saved_step != t->state.step)
        OCT_TRY(save(t, false, err));
    result->signal = t->signal;
    return OCT_OK;
}

static oct_status run_all(oct_trainer *t, oct_train_result *result, oct_err *err)
{
    OCT_TRY(oct_trainer_set_up(t, err));
    if (t->state.step >= t->last_step) {
        result->nothing_to_do = true;
        oct_trainer_tell(t, t->options->observer.message,
                         "nothing to do: step %lld of %lld is done", (long long)t->state.step,
                         (long long)t->last_step);
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
    oct_trainer *t = calloc(1, sizeof *t);
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
    oct_fault_set_step(0);
    oct_signals_install();
    if (status == OCT_OK)
        status = run_all(t, result, err);
    oct_signals_restore();
    if (status != OCT_OK)
        result->failed_at = t->stepping ? "step" : t->ranks.phase;
    status = oct_ranks_leave(&t->ranks, status, err);
    result->state = t->state;
    result->last_save_failed = t->last_save_failed;
    oct_trainer_tear_down(t);
    free(t);
    return status;
}
