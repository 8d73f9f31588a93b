#include "verify/setting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "verify/process.h"
#include "verify/quote.h"

enum { WORD_BYTES = 96 };

oct_verify_setting oct_verify_main_setting(const oct_verify *v, oct_verify_format format)
{
    const bool large = v->model != OCT_VERIFY_SCALED;
    const int64_t steps = large ? 1 : v->quick ? 2 : 20, more = v->quick || large ? 1 : 5;
    return (oct_verify_setting){.format = format, .steps = steps + more, .save_at = steps};
}

oct_verify_setting oct_verify_short_setting(const oct_verify *v, oct_verify_format format)
{
    if (v->model != OCT_VERIFY_SCALED)
        return (oct_verify_setting){.format = format, .steps = 2};
    return v->quick ? oct_verify_main_setting(v, format)
                    : (oct_verify_setting){.format = format, .steps = 5};
}

/* --- training -------------------------------------------------------------------------------- */

/* Words that were written into `text` one after another. */
typedef struct word_list {
    char text[16][WORD_BYTES];
    int count;
} word_list;

static void add(word_list *list, oct_verify_job *job, const char *format, const char *value)
{
    char *text = list->text[list->count];
    (void)snprintf(text, sizeof list->text[0], format, value);
    job->words[list->count++] = text;
}

static void add_number(word_list *list, oct_verify_job *job, const char *format, int64_t value)
{
    char number[32];
    (void)snprintf(number, sizeof number, "%lld", (long long)value);
    add(list, job, format, number);
}

static const char *truth(bool value)
{
    return value ? "true" : "false";
}

/* Sequences per rank and micro-step of the configuration: the batch of a step follows from it. */
static oct_status micro_batch_of(const oct_verify *v, int64_t *out, oct_err *err)
{
    oct_arena arena;
    oct_config config;
    const char *files[1] = {oct_verify_config(v)};
    oct_arena_init(&arena, "verify");
    const oct_status status = oct_config_load(files, 1, NULL, 0, &arena, NULL, NULL, &config, err);
    if (status == OCT_OK)
        *out = config.training.micro_batch_size;
    oct_arena_release(&arena);
    return status;
}

static void name_of(const oct_verify *v, const oct_verify_setting *s, int ranks, char *name)
{
    char more[64] = "";
    if (s->resumes)
        (void)snprintf(more, sizeof more, "-resumed-%lld", (long long)s->resume_at);
    if (ranks != v->ranks)
        (void)snprintf(more + strlen(more), sizeof more - strlen(more), "-ranks-%d", ranks);
    (void)snprintf(name, OCT_VERIFY_NAME_BYTES, "%s-steps-%lld%s%s%s-accumulation-%d%s",
                   oct_verify_formats[s->format], (long long)s->steps, s->keeps ? "-keep" : "",
                   s->recompute ? "-recompute" : "", s->fallback ? "-fallback" : "",
                   s->accumulation, more);
}

oct_status oct_verify_train_setting(oct_verify *v, json_t *result,
                                    const oct_verify_setting *setting, const oct_verify_run **run,
                                    oct_err *err)
{
    oct_verify_setting s = *setting;
    char name[OCT_VERIFY_NAME_BYTES], path[OCT_PATH_BYTES + WORD_BYTES];
    char quoted[2 * sizeof path], from[sizeof quoted + WORD_BYTES];
    int64_t micro_batch = 1;
    oct_status status = OCT_OK;
    OCT_TRY(micro_batch_of(v, &micro_batch, err));
    word_list *list = calloc(1, sizeof *list);
    if (!list)
        return OCT_FAIL(err, OCT_E_NOMEM, "no memory for a run");
    s.accumulation = s.accumulation ? s.accumulation : 1;
    const int ranks = s.ranks ? s.ranks : v->ranks;
    name_of(v, &s, ranks, name);
    oct_verify_job job = {.name = name, .format = s.format, .ranks = ranks};
    job.keeps_checkpoints = s.save_at > 0 || s.resumes != NULL;
    add_number(list, &job, "training.stop_at_step=%s", s.steps);
    add_number(list, &job, "gradient_accumulation_steps=%s", s.accumulation);
    add_number(list, &job, "training.global_batch_size=%s", micro_batch * ranks * s.accumulation);
    add(list, &job, "fsdp_config.reshard_after_forward=%s", truth(!s.keeps));
    add(list, &job, "fsdp_config.fallback_to_unsharded=%s", truth(s.fallback));
    add(list, &job, "fsdp_config.shard=%s", s.fallback ? "even" : "tile");
    add(list, &job, "gradient_checkpointing.activation_checkpoint=%s",
        s.recompute ? "full" : "off");
    add_number(list, &job, "checkpoint.save_steps=%s", s.save_at);
    add(list, &job, "checkpoint.keep_latest_k=%s", "0");
    if (v->config) /* its forward passes are traced among those of training */
        add(list, &job, "dataset.validation.every=%s", "0");
    if (!v->config && v->model != OCT_VERIFY_SCALED) {
        add(list, &job, "dataset.path=%s", "LICENSE");
        add(list, &job, "training.seq_length=%s", "64");
    }
    if (s.resumes) {
        (void)snprintf(path, sizeof path, "%s/checkpoints/step-%lld", s.resumes->dir,
                       (long long)s.resume_at);
        status = oct_verify_quote(path, quoted, sizeof quoted, err);
        (void)snprintf(from, sizeof from, "checkpoint.restore_from=%s",
                       status == OCT_OK ? quoted : "");
        job.words[list->count] = from; /* the last one */
    }
    if (status == OCT_OK)
        status = oct_verify_train(v, result, &job, run, err);
    free(list);
    return status;
}

static void name_evidence(json_t *result, const oct_verify_run *run)
{
    static const char *const files[] = {"runs/%s/metrics.jsonl", "runs/%s/trace-0.jsonl",
                                        "runs/%s/config.yaml", "logs/%s.stderr"};
    char path[OCT_VERIFY_NAME_BYTES + 32];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        (void)snprintf(path, sizeof path, files[i], run->name);
        oct_verify_evidence(result, path);
    }
}

oct_status oct_verify_judge_setting(oct_verify *v, json_t *result,
                                    const oct_verify_setting *setting, unsigned judges,
                                    const oct_verify_run **run, bool *ok, oct_err *err)
{
    OCT_TRY(oct_verify_train_setting(v, result, setting, run, err));
    name_evidence(result, *run);
    *ok = oct_verify_check_trained(result, *run, setting->steps - setting->resume_at);
    return *ok && judges ? oct_judge_run(*run, judges, result, err) : OCT_OK;
}

/* --- records --------------------------------------------------------------------------------- */

static const json_t *row_of_step(const oct_verify_run *run, json_int_t step)
{
    for (size_t i = 0; i < json_array_size(run->metrics); i++) {
        const json_t *row = json_array_get(run->metrics, i);
        if (json_integer_value(json_object_get(row, "step")) == step)
            return row;
    }
    return NULL;
}

bool oct_verify_check_same_records(json_t *result, const char *what, const oct_verify_run *a,
                                   const oct_verify_run *b)
{
    static const char *const keys[] = {"loss", "grad_norm", "lr", "tokens", "expert_load_max"};
    char first[256] = "";
    int64_t compared = 0, different = 0;
    for (size_t i = 0; i < json_array_size(b->metrics); i++) {
        const json_t *row = json_array_get(b->metrics, i);
        const json_int_t step = json_integer_value(json_object_get(row, "step"));
        const json_t *other = row_of_step(a, step);
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            const json_t *x = json_object_get(other, keys[k]), *y = json_object_get(row, keys[k]);
            compared++;
            if (json_equal(x, y) || different++ > 0)
                continue;
            (void)snprintf(first, sizeof first, ", first: %s of step %lld is %.17g and %.17g",
                           keys[k], (long long)step, json_number_value(x), json_number_value(y));
        }
    }
    return oct_verify_check(result, compared > 0 && different == 0, what,
                            "loss, gradient norm, learning rate, tokens and expert load equal in "
                            "every bit",
                            "%s and %s: %lld values, %lld differ%s", a->name, b->name,
                            (long long)compared, (long long)different, first);
}

/* --- other commands -------------------------------------------------------------------------- */

static oct_status ask(oct_verify *v, const char *name, const char *const *words, char **text,
                      oct_err *err)
{
    const char *argv[40] = {v->program};
    char out[OCT_PATH_BYTES], errors[OCT_PATH_BYTES], relative[OCT_VERIFY_NAME_BYTES + 16];
    size_t bytes = 0;
    for (int i = 0; words[i] && i < 38; i++)
        argv[i + 1] = words[i];
    OCT_TRY(oct_path_join(v->out, "logs", out, sizeof out, err));
    OCT_TRY(oct_file_make_dirs(&oct_file_table_real, out, err));
    (void)snprintf(relative, sizeof relative, "logs/%s", name);
    OCT_TRY(oct_path_join(v->out, relative, out, sizeof out, err));
    (void)snprintf(relative, sizeof relative, "logs/%s.stderr", name);
    OCT_TRY(oct_path_join(v->out, relative, errors, sizeof errors, err));
    const oct_process_options options = {.argv = argv,
                                         .stdout_path = out,
                                         .stderr_path = errors,
                                         .timeout_seconds = 300.0,
                                         .stop = v->stop};
    oct_process_result result;
    OCT_TRY(oct_process_run(&options, &result, err));
    if (result.exit_code != 0) {
        char line[512];
        oct_verify_last_line(errors, line, sizeof line);
        return OCT_FAIL(err, OCT_E_CONFIG, "'octet %s' ended with exit code %d: %s", words[0],
                        result.exit_code, line);
    }
    return oct_file_read_all(&oct_file_table_real, out, 1 << 24, text, &bytes, err);
}

oct_status oct_verify_ask(oct_verify *v, const char *name, const char *const *words, json_t **out,
                          oct_err *err)
{
    char *text = NULL;
    OCT_TRY(ask(v, name, words, &text, err));
    *out = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    return *out ? OCT_OK
                : OCT_FAIL(err, OCT_E_DATA, "'octet %s' printed no JSON, one object is required",
                           words[0]);
}

oct_status oct_verify_ask_line(oct_verify *v, const char *name, const char *const *words,
                               char *line, size_t size, oct_err *err)
{
    char *text = NULL;
    OCT_TRY(ask(v, name, words, &text, err));
    (void)snprintf(line, size, "%.*s", (int)strcspn(text, "\n"), text);
    free(text);
    return OCT_OK;
}

oct_status oct_verify_ask_plan(oct_verify *v, oct_verify_format format, const char *config,
                               int ranks, const char *const *more, json_t **out, oct_err *err)
{
    char number[16], name[64], batch[WORD_BYTES];
    const char *words[20] = {"plan", config};
    int count = 2;
    int64_t micro_batch = 1;
    OCT_TRY(micro_batch_of(v, &micro_batch, err));
    (void)snprintf(number, sizeof number, "%d", ranks);
    (void)snprintf(name, sizeof name, "plan-%s-%d.json", oct_verify_formats[format], ranks);
    const char *const *of_format = oct_verify_format_words(format);
    for (int i = 0; of_format[i]; i++)
        words[count++] = of_format[i];
    (void)snprintf(batch, sizeof batch, "training.global_batch_size=%lld",
                   (long long)micro_batch * ranks);
    /* The file's own batch may not divide by the ranks. */
    words[count++] = "gradient_accumulation_steps=1";
    words[count++] = batch;
    for (int i = 0; more && more[i] && i < 4; i++)
        words[count++] = more[i];
    words[count++] = "--ranks";
    words[count++] = number;
    words[count++] = "--json";
    return oct_verify_ask(v, name, words, out, err);
}
