#include "cli/job.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "config/text_buffer.h"
#include "config/torchtitan.h"
#include "trainer/converters.h"

static int add(oct_job *job, const char *command, bool is_word, const char *argument)
{
    int *count = is_word ? &job->word_count : &job->file_count;
    if (*count == OCT_JOB_MAX_WORDS) {
        (void)oct_cli_usage(command,
                            "too many arguments: at most %d files and %d words are allowed",
                            OCT_JOB_MAX_WORDS, OCT_JOB_MAX_WORDS);
        return -1;
    }
    (is_word ? job->words : job->files)[(*count)++] = argument;
    return 0;
}

static oct_arena *arena_of(oct_job *job)
{
    if (!job->arena.name)
        oct_arena_init(&job->arena, "configuration");
    return &job->arena;
}

/* "section.key=value" of its parts. */
static int add_word(oct_job *job, const char *command, const char *key, const char *value)
{
    oct_err err = {0};
    oct_text_buffer word = {.arena = arena_of(job)};
    if (oct_text_append(&word, &err, "%s=%s", key, value) != OCT_OK) {
        (void)oct_cli_usage(command, "%s", err.msg);
        return -1;
    }
    return add(job, command, true, word.data);
}

/* `key` without the `no_` before its last name, into out: a flag that is turned off. */
static bool is_flag_off(const char *key, char out[OCT_JOB_MAX_KEY])
{
    const char *name = strrchr(key, '.') + 1;
    if (strncmp(name, "no_", 3) != 0)
        return false;
    (void)snprintf(out, OCT_JOB_MAX_KEY, "%.*s%s", (int)(name - key), key, name + 3);
    return oct_torchtitan_is_flag(out);
}

static bool is_boolean(const char *text)
{
    return strcmp(text, "true") == 0 || strcmp(text, "false") == 0 || strcmp(text, "True") == 0 ||
           strcmp(text, "False") == 0;
}

/* --section.key [value] */
static int take_dashed(oct_job *job, const char *command, int argc, char **argv, int *i)
{
    const char *equals = strchr(argv[*i], '=');
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    char key[OCT_JOB_MAX_KEY], off[OCT_JOB_MAX_KEY];
    const size_t length = equals ? (size_t)(equals - argv[*i]) : strlen(argv[*i]);
    (void)snprintf(key, sizeof key, "%.*s", (int)(length - 2), argv[*i] + 2);
    for (char *c = key; *c; c++) /* --training.seq-len is --training.seq_len */
        if (*c == '-')
            *c = '_';
    if (!job->dashed)
        job->dashed = argv[*i];
    if (strcmp(key, "job.config_file") == 0 && (equals || next)) {
        *i += !equals;
        return add(job, command, false, equals ? equals + 1 : next);
    }
    if (equals)
        return add_word(job, command, key, equals + 1);
    if (is_flag_off(key, off))
        return add_word(job, command, off, "false");
    if (oct_torchtitan_is_flag(key) && !(next && is_boolean(next)))
        return add_word(job, command, key, "true");
    if (!next || strncmp(next, "--", 2) == 0) { /* the next option is no value */
        (void)oct_cli_usage(command, "option '%s' needs a value", argv[*i]);
        return -1;
    }
    ++*i;
    return add_word(job, command, key, next);
}

int oct_job_argument(oct_job *job, const char *command, int argc, char **argv, int *i)
{
    const char *argument = argv[*i];
    const size_t key = strcspn(argument, "=");
    const bool dashed =
        strncmp(argument, "--", 2) == 0 && memchr(argument, '.', key) && key < OCT_JOB_MAX_KEY;
    if (dashed)
        return take_dashed(job, command, argc, argv, i);
    if (argument[0] == '-' && argument[1] != '\0') {
        (void)oct_cli_usage(command, "unknown option '%s'", argument);
        return -1;
    }
    const bool is_word = argument[key] == '=' && !memchr(argument, '/', key); /* no key has a / */
    return add(job, command, is_word, argument);
}

static void print_note(void *arg, const char *line)
{
    static const char warning[] = "warning: ";
    (void)arg;
    oct_cli_line(strncmp(line, warning, sizeof warning - 1) == 0 ? "octet: " : "", line);
}

oct_status oct_job_read(oct_job *job, int ranks, oct_err *err)
{
    job->stage = "parse";
    bool torchtitan = false;
    OCT_TRY(oct_torchtitan_is_dialect_of(job->files, job->file_count, &torchtitan, err));
    if (job->dashed && !torchtitan)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot read override: '%.100s' belongs to torchtitan jobs (*.toml), "
                        "key.path=value is required",
                        job->dashed);
    OCT_TRY(oct_config_load(job->files, job->file_count, job->words, job->word_count, arena_of(job),
                            print_note, NULL, &job->config, err));
    OCT_TRY(oct_converters_expand(&job->config, &job->arena, print_note, NULL, err));
    job->stage = "resolve";
    return oct_config_resolve(&job->config, ranks, err);
}

int oct_job_missing(const oct_job *job, const char *command)
{
    if (job->file_count > 0)
        return 0;
    return oct_cli_usage(command, "no configuration given, at least one file is required");
}

int oct_job_load(oct_job *job, const char *command, int ranks)
{
    const int missing = oct_job_missing(job, command);
    if (missing)
        return missing;
    oct_err err = {0};
    const oct_status status = oct_job_read(job, ranks, &err);
    return status == OCT_OK ? 0 : oct_cli_fail(status, &err);
}

void oct_job_release(oct_job *job)
{
    oct_arena_release(&job->arena);
}
