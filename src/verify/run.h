/* What the parts of verify share among themselves. */
#ifndef OCT_VERIFY_RUN_H
#define OCT_VERIFY_RUN_H

#include "verify/verify.h"

/* Adds the name of a run to result["runs"], once. */
void oct_verify_name_run(json_t *result, const char *name);

/* Gives a case its "status" after it ran: not_run if status is a failure; failed if a check does
 * not hold, evidence is missing or nothing was checked; else passed. */
void oct_verify_settle(const oct_verify *v, json_t *result, oct_status status, const oct_err *err);

/* The file of the model's configuration, or --config. */
const char *oct_verify_config(const oct_verify *v);

/* Puts the resolved configuration of every run into the report's environment. */
void oct_verify_add_configs(oct_verify *v);

/* Removes a directory with all that it holds; nothing there is fine. Errors: OCT_E_IO. */
oct_status oct_verify_remove_tree(const char *path, oct_err *err) OCT_MUST_CHECK;

/* The words that choose a format, up to NULL. */
const char *const *oct_verify_format_words(oct_verify_format format);

/* The error line of a log, else its first line; empty without any. */
void oct_verify_last_line(const char *path, char *out, size_t size);

void oct_verify_run_release(oct_verify_run *run);

#endif
