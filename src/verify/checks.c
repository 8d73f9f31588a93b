#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "verify/run.h"

enum { FOUND_BYTES = 600 };

/* The array `key` of an object, made when it is not there. */
static json_t *list(json_t *object, const char *key)
{
    json_t *array = json_object_get(object, key);
    if (!array) {
        array = json_array();
        (void)json_object_set_new(object, key, array);
    }
    return array;
}

bool oct_verify_check(json_t *result, bool ok, const char *what, const char *required,
                      const char *found, ...)
{
    char text[FOUND_BYTES];
    va_list args;
    va_start(args, found);
    (void)vsnprintf(text, sizeof text, found, args);
    va_end(args);
    oct_utf8_repair(text);
    json_t *check = json_object();
    (void)json_object_set_new(check, "what", json_string(what));
    (void)json_object_set_new(check, "required", json_string(required));
    (void)json_object_set_new(check, "found", json_string(text));
    (void)json_object_set_new(check, "ok", json_boolean(ok));
    (void)json_array_append_new(list(result, "checks"), check);
    return ok;
}

static void add_once(json_t *array, const char *text)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (strcmp(json_string_value(json_array_get(array, i)), text) == 0)
            return;
    (void)json_array_append_new(array, json_string(text));
}

void oct_verify_evidence(json_t *result, const char *path)
{
    add_once(list(result, "evidence"), path);
}

void oct_verify_name_run(json_t *result, const char *name)
{
    add_once(list(result, "runs"), name);
}

oct_status oct_verify_evidence_text(oct_verify *v, json_t *result, const char *name,
                                    const char *text, oct_err *err)
{
    char path[OCT_PATH_BYTES], full[OCT_PATH_BYTES];
    const char *id = json_string_value(json_object_get(result, "id"));
    (void)snprintf(path, sizeof path, "cases/%s", id);
    OCT_TRY(oct_path_join(v->out, path, full, sizeof full, err));
    OCT_TRY(oct_file_make_dirs(&oct_file_table_real, full, err));
    (void)snprintf(path, sizeof path, "cases/%s/%s", id, name);
    OCT_TRY(oct_path_join(v->out, path, full, sizeof full, err));
    OCT_TRY(oct_file_replace(&oct_file_table_real, full, text, strlen(text), err));
    oct_verify_evidence(result, path);
    return OCT_OK;
}

oct_status oct_verify_evidence_json(oct_verify *v, json_t *result, const char *name,
                                    const json_t *value, oct_err *err)
{
    char *text = json_dumps(value, JSON_INDENT(1) | JSON_ENCODE_ANY);
    if (!text)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot write '%s': out of memory", name);
    const oct_status status = oct_verify_evidence_text(v, result, name, text, err);
    free(text);
    return status;
}

/* Evidence that is missing or empty is a check that does not hold. */
static void check_evidence(const oct_verify *v, json_t *result)
{
    const json_t *evidence = json_object_get(result, "evidence");
    size_t missing = 0;
    const char *first = "";
    for (size_t i = 0; i < json_array_size(evidence); i++) {
        char path[OCT_PATH_BYTES];
        oct_file_info info = {0};
        const char *name = json_string_value(json_array_get(evidence, i));
        const bool there = oct_path_join(v->out, name, path, sizeof path, NULL) == OCT_OK &&
                           oct_file_stat(&oct_file_table_real, path, &info, NULL) == OCT_OK &&
                           info.kind == OCT_FILE_REGULAR && info.bytes > 0;
        if (!there && missing++ == 0)
            first = name;
    }
    (void)oct_verify_check(result, missing == 0 && json_array_size(evidence) > 0,
                           "evidence is written", "at least one file, none missing or empty",
                           "%zu files, %zu missing%s%s", json_array_size(evidence), missing,
                           missing ? ": " : "", first);
}

void oct_verify_settle(const oct_verify *v, json_t *result, oct_status status, const oct_err *err)
{
    (void)list(result, "checks");
    (void)list(result, "evidence");
    (void)list(result, "runs");
    if (status != OCT_OK) {
        (void)oct_verify_check(result, false, "the case runs", "it can be run to its end", "%s",
                               err->msg[0] ? err->msg : oct_status_name(status));
        (void)json_object_set_new(result, "status", json_string("not_run"));
        return;
    }
    check_evidence(v, result);
    const json_t *checks = json_object_get(result, "checks");
    bool passed = json_array_size(checks) > 1; /* evidence alone proves nothing */
    for (size_t i = 0; i < json_array_size(checks); i++)
        passed = passed && json_is_true(json_object_get(json_array_get(checks, i), "ok"));
    (void)json_object_set_new(result, "status", json_string(passed ? "passed" : "failed"));
}
