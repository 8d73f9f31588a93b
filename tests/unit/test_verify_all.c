/* octet verify from case to case: what the report says of those that have not ended. The table of
 * cases is this file's own, in place of src/verify/cases.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "temp_dir.h"
#include "verify/cases.h"

static volatile sig_atomic_t stop;
static bool stops_in_second;
static char seen[256]; /* statuses in the file while the second case runs */

/* "passed not_run ..." of OUT/report.json. */
static void read_statuses(const oct_verify *v, char *out, size_t size)
{
    char path[OCT_PATH_BYTES];
    assert_int_equal(oct_path_join(v->out, "report.json", path, sizeof path, NULL), OCT_OK);
    json_t *report = json_load_file(path, 0, NULL);
    const json_t *cases = json_object_get(report, "cases");
    out[0] = '\0';
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const size_t used = strlen(out);
        (void)snprintf(
            out + used, size - used, "%s%s", i ? " " : "",
            json_string_value(json_object_get(json_array_get(cases, i), "status")));
    }
    json_decref(report);
}

static bool page_says(const oct_verify *v, const char *text)
{
    static char page[1 << 18];
    char path[OCT_PATH_BYTES];
    assert_int_equal(oct_path_join(v->out, "report.html", path, sizeof path, NULL), OCT_OK);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    return strstr(page, text) != NULL;
}

static oct_status good(oct_verify *v, json_t *result, oct_err *err)
{
    (void)oct_verify_check(result, true, "it holds", "it does", "it does");
    return oct_verify_evidence_text(v, result, "note", "evidence", err);
}

static oct_status second(oct_verify *v, json_t *result, oct_err *err)
{
    read_statuses(v, seen, sizeof seen);
    assert_true(page_says(v, "2 not run"));
    if (stops_in_second) {
        stop = 1;
        return OCT_FAIL(err, OCT_E_INTERRUPTED, "stopped by a signal");
    }
    return good(v, result, err);
}

const oct_verify_case oct_verify_cases[] = {
    {"A", "first", good, true},
    {"B", "second", second, true},
    {"C", "third", good, true},
    {"D", "not asked for", good, false},
    {NULL, NULL, NULL, false},
};

static oct_status verify_all(const char *out, bool *passed, char statuses[256])
{
    oct_err err = {0};
    oct_verify v = {
        .program = "octet", .commit = "none", .mpirun = "", .out = out, .ranks = 1, .stop = &stop};
    stop = 0;
    const oct_status status = oct_verify_all(&v, NULL, 0, passed, &err);
    read_statuses(&v, statuses, 256);
    oct_verify_release(&v);
    return status;
}

static void cases_that_have_not_ended_are_not_run(void **state)
{
    (void)state;
    char statuses[256];
    bool passed = false;
    temp_dir dir = temp_dir_create();
    stops_in_second = false;
    assert_int_equal(verify_all(dir.path, &passed, statuses), OCT_OK);
    assert_true(passed);
    assert_string_equal(seen, "passed not_run not_run");
    assert_string_equal(statuses, "passed passed passed");
    temp_dir_remove(&dir);
}

static void a_signal_leaves_the_rest_not_run(void **state)
{
    (void)state;
    char statuses[256];
    bool passed = true;
    temp_dir dir = temp_dir_create();
    stops_in_second = true;
    assert_int_equal(verify_all(dir.path, &passed, statuses), OCT_E_INTERRUPTED);
    assert_false(passed);
    assert_string_equal(statuses, "passed not_run not_run");
    temp_dir_remove(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_that_have_not_ended_are_not_run),
        cmocka_unit_test(a_signal_leaves_the_rest_not_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
