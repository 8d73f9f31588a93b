#include "cli/job.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

int oct_job_argument(oct_job *job, const char *command, const char *argument)
{
    if (argument[0] == '-' && argument[1] != '\0') {
        (void)oct_cli_usage(command, "unknown option '%s'", argument);
        return -1;
    }
    const bool word = strchr(argument, '=') != NULL;
    int *count = word ? &job->word_count : &job->file_count;
    if (*count == OCT_JOB_MAX_WORDS) {
        (void)oct_cli_usage(command,
                            "too many arguments: at most %d files and %d words are allowed",
                            OCT_JOB_MAX_WORDS, OCT_JOB_MAX_WORDS);
        return -1;
    }
    (word ? job->words : job->files)[(*count)++] = argument;
    return 0;
}

static void print_note(void *arg, const char *line)
{
    (void)arg;
    oct_cli_line("", line);
}

oct_status oct_job_read(oct_job *job, int ranks, oct_err *err)
{
    oct_arena_init(&job->arena, "configuration");
    OCT_TRY(oct_config_load(job->files, job->file_count, job->words, job->word_count, &job->arena,
                            print_note, NULL, &job->config, err));
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
