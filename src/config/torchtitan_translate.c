/* From torchtitan's keys to octet's. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/text_buffer.h"
#include "config/torchtitan_job.h"

/* --- Tools ----------------------------------------------------------------------------------- */

oct_status oct_torchtitan_unsupported(const oct_torchtitan_job *job, const char *path,
                                      const char *required, const char *reason, oct_err *err)
{
    char where[OCT_VALUE_WORDS], found[OCT_VALUE_WORDS];
    const oct_value *value = oct_torchtitan_value(job, path);
    return OCT_FAIL(err, OCT_E_CONFIG, "unsupported value of %s: %s, %s is required: %s (%s)", path,
                    oct_value_describe(value, found), required, reason,
                    oct_value_where(value, where));
}

oct_status oct_torchtitan_put(oct_torchtitan_job *job, const char *from, const char *path,
                              oct_value_kind kind, oct_value **out, oct_err *err)
{
    const oct_value *source = oct_torchtitan_value(job, from);
    OCT_TRY(
        oct_value_create(job->arena, kind, source->file, source->line, source->column, out, err));
    (*out)->origin = strcmp(from, path) == 0 ? NULL : from;
    (*out)->text = source->text;
    OCT_TRY(oct_value_put(job->octet, path, *out, job->arena, err));
    *out = oct_value_at(job->octet, path);
    return OCT_OK;
}

oct_status oct_torchtitan_warn(const oct_torchtitan_job *job, oct_err *err, const char *fmt, ...)
{
    enum { LINE = 900 };
    void *line = NULL;
    OCT_TRY(oct_arena_alloc(job->arena, LINE, &line, err));
    const int used = snprintf(line, LINE, "warning: ");
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf((char *)line + used, LINE - (size_t)used, fmt, args);
    va_end(args);
    if (job->note)
        job->note(job->note_arg, line);
    return OCT_OK;
}

oct_status oct_torchtitan_strings(const oct_torchtitan_job *job, const char *path,
                                  oct_string_list *out, oct_err *err)
{
    const oct_value *value = oct_torchtitan_value(job, path);
    const bool is_list = value->kind == OCT_VALUE_LIST;
    void *items = NULL;
    out->count = is_list ? value->count : value->kind == OCT_VALUE_STRING;
    OCT_TRY(oct_arena_array(job->arena, out->count, sizeof(const char *), &items, err));
    out->items = items;
    int64_t i = 0;
    for (const oct_value *item = is_list ? value->first : value; i < out->count; item = item->next)
        out->items[i++] = item->text;
    return OCT_OK;
}

static oct_status copy_to(oct_torchtitan_job *job, const char *from, const char *path, oct_err *err)
{
    oct_value *copy = NULL;
    OCT_TRY(oct_value_copy(oct_torchtitan_value(job, from), job->arena, &copy, err));
    copy->origin = strcmp(from, path) == 0 ? NULL : from;
    return oct_value_put(job->octet, path, copy, job->arena, err);
}

static oct_status put_bool(oct_torchtitan_job *job, const char *from, const char *path, bool value,
                           oct_err *err)
{
    oct_value *made = NULL;
    OCT_TRY(oct_torchtitan_put(job, from, path, OCT_VALUE_BOOL, &made, err));
    made->boolean = value;
    return OCT_OK;
}

static oct_status put_integer(oct_torchtitan_job *job, const char *from, const char *path,
                              int64_t value, oct_err *err)
{
    oct_value *made = NULL;
    OCT_TRY(oct_torchtitan_put(job, from, path, OCT_VALUE_INT, &made, err));
    oct_text_buffer text = {.arena = job->arena};
    OCT_TRY(oct_text_append(&text, err, "%" PRId64, value));
    made->integer = value;
    made->real = (double)value;
    made->text = text.data;
    return OCT_OK;
}

static oct_status put_word(oct_torchtitan_job *job, const char *from, const char *path,
                           const char *value, oct_err *err)
{
    oct_value *made = NULL;
    OCT_TRY(oct_torchtitan_put(job, from, path, OCT_VALUE_STRING, &made, err));
    made->text = value;
    return OCT_OK;
}

static const char *text_of(const oct_torchtitan_job *job, const char *path)
{
    return oct_torchtitan_value(job, path)->text;
}

static int64_t integer_of(const oct_torchtitan_job *job, const char *path)
{
    return oct_torchtitan_value(job, path)->integer;
}

static bool is_null(const oct_torchtitan_job *job, const char *path)
{
    return oct_torchtitan_value(job, path)->kind == OCT_VALUE_NULL;
}

static bool is_on(const oct_torchtitan_job *job, const char *path)
{
    return oct_torchtitan_value(job, path)->boolean;
}

/* --- Keys that stand alone ------------------------------------------------------------------- */

static bool same(const oct_value *a, const oct_value *b)
{
    const bool numbers = (a->kind == OCT_VALUE_INT || a->kind == OCT_VALUE_FLOAT) &&
                         (b->kind == OCT_VALUE_INT || b->kind == OCT_VALUE_FLOAT);
    if (numbers)
        return a->real == b->real;
    if (a->kind != b->kind || a->boolean != b->boolean)
        return false;
    if (a->kind == OCT_VALUE_STRING)
        return strcmp(a->text, b->text) == 0;
    const oct_value *x = a->first, *y = b->first;
    for (; x && y && same(x, y); x = x->next)
        y = y->next;
    return !x && !y;
}

static oct_status check_words(const oct_torchtitan_job *job, const oct_torchtitan_key *key,
                              oct_err *err)
{
    const char *text = text_of(job, key->path);
    oct_text_buffer required = {.arena = job->arena};
    for (int i = 0; key->words[i]; i++) {
        if (strcmp(key->words[i], text) == 0)
            return OCT_OK;
        OCT_TRY(oct_text_append(&required, err, "%s\"%s\"",
                                i               ? ", "
                                : key->words[1] ? "one of "
                                                : "",
                                key->words[i]));
    }
    return oct_torchtitan_unsupported(job, key->path, required.data, key->note, err);
}

static oct_status refuse(const oct_torchtitan_job *job, const oct_torchtitan_key *key, oct_err *err)
{
    char where[OCT_VALUE_WORDS], found[OCT_VALUE_WORDS];
    const oct_value *value = oct_torchtitan_value(job, key->path);
    if (key->fallback)
        return oct_torchtitan_unsupported(job, key->path, key->fallback, key->note, err);
    return OCT_FAIL(err, OCT_E_CONFIG, "unsupported key %s: %s, no such key is allowed: %s (%s)",
                    key->path, oct_value_describe(value, found), key->note,
                    oct_value_where(value, where));
}

/* What the table says of a key that was written, or has no default. */
static oct_status judge(oct_torchtitan_job *job, const oct_torchtitan_key *key,
                        const oct_value *fallback, oct_err *err)
{
    char where[OCT_VALUE_WORDS];
    const oct_value *value = oct_torchtitan_value(job, key->path);
    if (!oct_torchtitan_is_given(job, key->path)) {
        if (key->fate == OCT_TT_MAPPED && !key->fallback)
            return OCT_FAIL(err, OCT_E_CONFIG, "missing key %s: not given, %s is required (%s)",
                            key->path, oct_torchtitan_type_name(key->type), job->last_file);
        return OCT_OK;
    }
    if (key->words[0])
        OCT_TRY(check_words(job, key, err));
    const bool changed = !fallback || !same(value, fallback);
    if (key->fate == OCT_TT_REFUSED && changed)
        return refuse(job, key, err);
    if (key->fate == OCT_TT_WARNED && changed)
        return oct_torchtitan_warn(job, err, "%s has no effect: %s (%s)", key->path, key->note,
                                   oct_value_where(value, where));
    return OCT_OK;
}

/* --- Keys that decide together --------------------------------------------------------------- */

static oct_status translate_steps(oct_torchtitan_job *job, oct_err *err)
{
    static const char steps[] = "training.steps", total[] = "lr_scheduler.total_steps";
    if (is_null(job, total))
        return copy_to(job, steps, "training.train_iters", err);
    if (integer_of(job, total) < integer_of(job, steps))
        return oct_torchtitan_unsupported(job, total, "at least training.steps",
                                          "the schedule does not end before training does", err);
    OCT_TRY(copy_to(job, total, "training.train_iters", err));
    return copy_to(job, steps, "training.stop_at_step", err);
}

/* Without a global batch size one micro-batch of each rank makes a step. */
static oct_status translate_batch(oct_torchtitan_job *job, oct_err *err)
{
    static const char global[] = "training.global_batch_size";
    static const char steps[] = "training.gradient_accumulation_steps";
    if (!is_null(job, steps))
        OCT_TRY(copy_to(job, steps, "gradient_accumulation_steps", err));
    if (integer_of(job, global) != -1)
        return copy_to(job, global, "training.global_batch_size", err);
    return is_null(job, steps) ? put_integer(job, global, "gradient_accumulation_steps", 1, err)
                               : OCT_OK;
}

static oct_status translate_optimizer(oct_torchtitan_job *job, oct_err *err)
{
    oct_value *betas = NULL;
    OCT_TRY(put_word(job, "optimizer.name", "optimizer._target_", "adamw", err));
    OCT_TRY(
        oct_torchtitan_put(job, "optimizer.beta1", "optimizer.betas", OCT_VALUE_LIST, &betas, err));
    for (int i = 0; i < 2; i++) {
        oct_value *beta = NULL;
        OCT_TRY(oct_value_copy(oct_torchtitan_value(job, i ? "optimizer.beta2" : "optimizer.beta1"),
                               job->arena, &beta, err));
        beta->origin = i ? "optimizer.beta2" : "optimizer.beta1";
        oct_value_append(betas, beta);
    }
    return OCT_OK;
}

static oct_status translate_checkpoint(oct_torchtitan_job *job, oct_err *err)
{
    static const char path[] = "checkpoint.initial_load_path", step[] = "checkpoint.load_step";
    const bool enabled = is_on(job, "checkpoint.enable");
    const bool from_path = !is_null(job, path), from_step = integer_of(job, step) != -1;
    if (enabled && integer_of(job, "checkpoint.interval") < 1)
        return oct_torchtitan_unsupported(job, "checkpoint.interval", "a number >= 1",
                                          "these are the steps between two checkpoints", err);
    if (enabled)
        OCT_TRY(copy_to(job, "checkpoint.interval", "checkpoint.save_steps", err));
    else
        OCT_TRY(put_integer(job, "checkpoint.enable", "checkpoint.save_steps", 0, err));
    if ((from_path || from_step) && !enabled)
        return oct_torchtitan_unsupported(job, from_path ? path : step, "checkpoint.enable = true",
                                          "torchtitan loads nothing without it", err);
    if (from_path && from_step)
        return oct_torchtitan_unsupported(job, step, "-1 beside checkpoint.initial_load_path",
                                          "a run starts from one of them", err);
    if (from_path) {
        OCT_TRY(copy_to(job, path, "checkpoint.restore_from", err));
        OCT_TRY(put_bool(job, "checkpoint.initial_load_model_only", "checkpoint.restore_optimizer",
                         !is_on(job, "checkpoint.initial_load_model_only"), err));
    }
    if (from_step) {
        oct_text_buffer name = {.arena = job->arena};
        if (integer_of(job, step) < 0)
            return oct_torchtitan_unsupported(job, step, "-1 or a step", "steps are counted from 0",
                                              err);
        OCT_TRY(oct_text_append(&name, err, "step-%" PRId64, integer_of(job, step)));
        OCT_TRY(put_word(job, step, "checkpoint.restore_from", name.data, err));
    }
    return put_bool(job, "checkpoint.async_mode", "checkpoint.async",
                    strcmp(text_of(job, "checkpoint.async_mode"), "disabled") != 0, err);
}

static oct_status translate_validation(oct_torchtitan_job *job, oct_err *err)
{
    if (!is_on(job, "validation.enable"))
        return OCT_OK;
    if (integer_of(job, "validation.seq_len") != integer_of(job, "training.seq_len"))
        return oct_torchtitan_unsupported(job, "validation.seq_len", "training.seq_len",
                                          "one length serves both", err);
    if (integer_of(job, "validation.local_batch_size") !=
        integer_of(job, "training.local_batch_size"))
        return oct_torchtitan_unsupported(job, "validation.local_batch_size",
                                          "training.local_batch_size", "one size serves both", err);
    if (integer_of(job, "validation.freq") < 1)
        return oct_torchtitan_unsupported(job, "validation.freq", "a number >= 1",
                                          "these are the steps between two validations", err);
    if (integer_of(job, "validation.steps") < 1)
        return oct_torchtitan_unsupported(job, "validation.steps", "a number of batches",
                                          "a validation has a fixed length", err);
    OCT_TRY(copy_to(job, "validation.freq", "dataset.validation.every", err));
    return copy_to(job, "validation.steps", "dataset.validation.steps", err);
}

/* torchtitan's default is selective recompute, which changes no result: unwritten it is none here.
 * Written, it meets the error of a YAML job. */
static oct_status translate_recompute(oct_torchtitan_job *job, oct_err *err)
{
    static const char mode[] = "activation_checkpoint.mode";
    static const char to[] = "gradient_checkpointing.activation_checkpoint";
    return oct_torchtitan_is_given(job, mode) ? copy_to(job, mode, to, err)
                                              : put_word(job, mode, to, "off", err);
}

static oct_status translate_seed(oct_torchtitan_job *job, oct_err *err)
{
    static const char old[] = "training.seed", seed[] = "debug.seed";
    if (is_null(job, old))
        return OCT_OK;
    if (!is_null(job, seed))
        return oct_torchtitan_unsupported(job, old, "debug.seed alone", "a job has one seed", err);
    return copy_to(job, old, "seed", err);
}

oct_status oct_torchtitan_translate(oct_torchtitan_job *job, oct_err *err)
{
    int count = 0;
    const oct_torchtitan_key *keys = oct_torchtitan_keys(&count);
    for (int i = 0; i < count; i++) {
        const oct_torchtitan_key *key = &keys[i];
        oct_value *fallback = NULL;
        if (key->fallback)
            OCT_TRY(oct_torchtitan_default(job, key, &fallback, err));
        OCT_TRY(judge(job, key, fallback, err));
        if (key->fate == OCT_TT_MAPPED && !is_null(job, key->path))
            OCT_TRY(copy_to(job, key->path, key->octet, err));
    }
    OCT_TRY(translate_steps(job, err));
    OCT_TRY(translate_batch(job, err));
    OCT_TRY(translate_optimizer(job, err));
    OCT_TRY(put_bool(
        job, "parallelism.fsdp_reshard_after_forward", "fsdp_config.reshard_after_forward",
        strcmp(text_of(job, "parallelism.fsdp_reshard_after_forward"), "never") != 0, err));
    OCT_TRY(translate_checkpoint(job, err));
    OCT_TRY(translate_validation(job, err));
    OCT_TRY(translate_recompute(job, err));
    return translate_seed(job, err);
}
