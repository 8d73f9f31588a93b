/* A torchtitan job between its files and octet's keys. For torchtitan*.c. */
#ifndef OCT_CONFIG_TORCHTITAN_JOB_H
#define OCT_CONFIG_TORCHTITAN_JOB_H

#include "config/torchtitan.h"
#include "config/torchtitan_keys.h"

typedef struct oct_torchtitan_job {
    oct_arena *arena;
    oct_config_note note;
    void *note_arg;
    const char *last_file; /* for what is missing */
    oct_value *keys;       /* torchtitan's, defaults included */
    oct_value *octet;      /* what they mean */
} oct_torchtitan_job;

/* The value of a key: as written, or the default. The key is in the table and has a default. */
const oct_value *oct_torchtitan_value(const oct_torchtitan_job *job, const char *path);

/* The default of a key that has one. */
oct_status oct_torchtitan_default(const oct_torchtitan_job *job, const oct_torchtitan_key *key,
                                  oct_value **out, oct_err *err);

/* Whether it was written anywhere. */
bool oct_torchtitan_is_given(const oct_torchtitan_job *job, const char *path);

/* The strings of a list of strings; one string counts as a list. */
oct_status oct_torchtitan_strings(const oct_torchtitan_job *job, const char *path,
                                  oct_string_list *out, oct_err *err);

/* "unsupported value of KEY: 'x', REQUIRED is required: REASON (file:line)". */
oct_status oct_torchtitan_unsupported(const oct_torchtitan_job *job, const char *path,
                                      const char *required, const char *reason, oct_err *err);

/* Puts a value that torchtitan's `from` decides about under octet's `path`. */
oct_status oct_torchtitan_put(oct_torchtitan_job *job, const char *from, const char *path,
                              oct_value_kind kind, oct_value **out, oct_err *err);

/* One warning line. */
oct_status oct_torchtitan_warn(const oct_torchtitan_job *job, oct_err *err, const char *fmt, ...)
    OCT_PRINTF(3, 4);

/* Fills job->octet from job->keys. */
oct_status oct_torchtitan_translate(oct_torchtitan_job *job, oct_err *err);

/* Checks the converters among themselves and reads their options. */
oct_status oct_torchtitan_read_converters(oct_torchtitan_job *job, oct_torchtitan **out,
                                          oct_err *err);

#endif
