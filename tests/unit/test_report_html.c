/* report.html: structure, escaping, what a broken report gets. With two arguments, JSON and HTML:
 * writes the page of a report file. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "unit/temp_dir.h"
#include "verify/report_html.h"

static const char sample_path[] = OCTET_SOURCE_DIR "/tests/unit/fixtures/verify_report.json";

static json_t *load(const char *path)
{
    json_error_t problem;
    json_t *report = json_load_file(path, JSON_REJECT_DUPLICATES, &problem);
    if (!report)
        fail_msg("%s:%d: %s", path, problem.line, problem.text);
    return report;
}

/* The page of a report; free() it. */
static char *page_of(const json_t *report)
{
    const temp_dir dir = temp_dir_create();
    const char *path = temp_dir_name(&dir, "report.html");
    char *text = NULL;
    size_t bytes = 0;
    oct_err err = {0};
    if (oct_verify_report_html(report, path, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    if (oct_file_read_all(&oct_file_table_real, path, 1 << 24, &text, &bytes, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(strlen(text), bytes);
    temp_dir_remove(&dir);
    return text;
}

static int count(const char *text, const char *word)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word))
        found++;
    return found;
}

static void page__sample__every_section_and_case(void **state)
{
    (void)state;
    json_t *report = load(sample_path);
    char *page = page_of(report);
    static const char *const sections[] = {"curves", "performance", "numerics",   "scales",
                                           "cases",  "runs",        "environment"};
    for (size_t s = 0; s < sizeof sections / sizeof sections[0]; s++) {
        char mark[40];
        (void)snprintf(mark, sizeof mark, "<section id=\"%s\">", sections[s]);
        assert_int_equal(count(page, mark), 1);
    }
    assert_int_equal(count(page, "<details class=\"case "), 3);
    assert_int_equal(count(page, "class=\"tile passed\""), 1);
    assert_int_equal(count(page, "class=\"tile failed\""), 1);
    assert_int_equal(count(page, "class=\"tile not-run\""), 1);
    assert_non_null(strstr(page, "octet verify: not passed"));
    assert_non_null(strstr(page, "1 of 3 cases passed, <b>1 failed</b>, <b>1 not run</b>"));
    assert_int_equal(count(page, "<figure>"), 9); /* 4 curves, 2 bars, 2 errors, 1 scales */
    assert_int_equal(count(page, "<figure>"), count(page, "role=\"img\"><title>"));
    assert_int_equal(count(page, "<svg"), count(page, "</svg>"));
    assert_int_equal(count(page, "<details"), count(page, "</details>"));
    assert_int_equal(count(page, "<table"), count(page, "</table>"));
    free(page);
    json_decref(report);
}

/* Nothing is fetched from anywhere. */
static void page__sample__needs_no_other_file(void **state)
{
    (void)state;
    json_t *report = load(sample_path);
    char *page = page_of(report);
    static const char *const words[] = {"<script", "<link", "<img", "<iframe",
                                        "@import", "url(",  " src="};
    for (size_t w = 0; w < sizeof words / sizeof words[0]; w++)
        if (strstr(page, words[w]))
            fail_msg("the page has '%s'", words[w]);
    assert_non_null(strstr(page, "default-src 'none'"));
    assert_null(strstr(page, "href=\"http"));
    assert_null(strstr(page, "href=\"/"));
    free(page);
    json_decref(report);
}

static void page__failing_cases__open_the_others_folded(void **state)
{
    (void)state;
    json_t *report = load(sample_path);
    char *page = page_of(report);
    assert_int_equal(count(page, "<details class=\"case passed\" id=\"case-0\"><"), 1);
    assert_int_equal(count(page, "<details class=\"case failed\" id=\"case-1\" open>"), 1);
    assert_int_equal(count(page, "<details class=\"case not-run\" id=\"case-2\" open>"), 1);
    free(page);
    json_decref(report);
}

/* Every text of the report that could be markup stays text. */
static void page__hostile_text__escaped(void **state)
{
    (void)state;
    static const char evil[] = "<b onclick=\"x\">'&\x01</b>";
    static const char safe[] = "&lt;b onclick=&quot;x&quot;&gt;&#39;&amp;&#xFFFD;&lt;/b&gt;";
    json_t *report = load(sample_path);
    json_t *first = json_array_get(json_object_get(report, "cases"), 0);
    json_t *check = json_array_get(json_object_get(first, "checks"), 0);
    json_t *run = json_array_get(json_object_get(report, "runs"), 0);
    json_t *environment = json_object_get(report, "environment");
    json_t *scale = json_array_get(json_object_get(report, "scales"), 0);
    json_t *error = json_array_get(json_object_get(json_object_get(report, "numerics"), "rows"), 0);
    json_t *formats = json_object_get(json_object_get(report, "performance"), "formats");
    const char *const case_keys[] = {"id", "title", "status"};
    const char *const check_keys[] = {"what", "required", "found"};
    for (int k = 0; k < 3; k++) {
        (void)json_object_set_new(first, case_keys[k], json_string(evil));
        (void)json_object_set_new(check, check_keys[k], json_string(evil));
    }
    (void)json_object_set_new(run, "name", json_string(evil));
    (void)json_object_set_new(run, "words", json_string(evil));
    (void)json_object_set_new(environment, evil, json_string(evil));
    (void)json_object_set_new(scale, "role", json_string(evil));
    (void)json_object_set_new(error, "shape", json_string(evil));
    (void)json_object_set_new(json_array_get(formats, 0), "format", json_string(evil));
    (void)json_array_append_new(json_object_get(first, "evidence"), json_string(evil));
    (void)json_array_append_new(json_object_get(first, "runs"), json_string(evil));
    char *page = page_of(report);
    assert_null(strstr(page, "<b onclick"));
    assert_null(strchr(page, '\x01'));
    assert_true(count(page, safe) >= 15);
    free(page);
    json_decref(report);
}

static void evidence__path_outside_of_the_report__is_no_link(void **state)
{
    (void)state;
    json_t *report = load(sample_path);
    json_t *first = json_array_get(json_object_get(report, "cases"), 0);
    json_t *evidence = json_array();
    static const char *const paths[] = {"javascript:alert(1)", "/etc/passwd", "../x",
                                        "http://example.org", "cases/Q3-01/ok.json"};
    for (int i = 0; i < 5; i++)
        (void)json_array_append_new(evidence, json_string(paths[i]));
    (void)json_object_set_new(first, "evidence", evidence);
    char *page = page_of(report);
    for (int i = 0; i < 4; i++) {
        char link[64];
        (void)snprintf(link, sizeof link, "href=\"%s\"", paths[i]);
        assert_null(strstr(page, link));
        assert_non_null(strstr(page, paths[i]));
    }
    assert_non_null(strstr(page, "href=\"cases/Q3-01/ok.json\""));
    free(page);
    json_decref(report);
}

/* What is optional may be missing; a report of no case is not passed. */
static void page__smallest_report__still_a_page(void **state)
{
    (void)state;
    json_t *report =
        json_loads("{\"schema\": 1, \"environment\": {}, \"cases\": [], \"runs\": []}", 0, NULL);
    char *page = page_of(report);
    assert_non_null(strstr(page, "octet verify: not passed"));
    assert_int_equal(count(page, "<figure>"), 0);
    free(page);
    json_decref(report);
}

static void curve__values_that_are_not_finite__named(void **state)
{
    (void)state;
    json_t *report = load(sample_path);
    json_t *loss = json_object_get(json_array_get(json_object_get(report, "runs"), 1), "loss");
    (void)json_array_set_new(loss, 2, json_null());
    char *page = page_of(report);
    assert_int_equal(count(page, "(1 values are not finite)"), 2); /* the curve, and its distance */
    assert_null(strstr(page, "nan"));
    free(page);
    json_decref(report);
}

static void page__broken_report__refused_by_member(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"{\"schema\": 2}", "schema"},
        {"{\"schema\": 1, \"cases\": [], \"runs\": []}", "'environment'"},
        {"{\"schema\": 1, \"environment\": {}, \"runs\": []}", "'cases'"},
        {"{\"schema\": 1, \"environment\": {}, \"cases\": []}", "'runs'"},
        {"{\"schema\": 1, \"environment\": {}, \"cases\": [{\"id\": \"x\", \"title\": \"t\", "
         "\"status\": \"passed\"}], \"runs\": []}",
         "'checks' of cases[0]"},
        {"{\"schema\": 1, \"environment\": {}, \"cases\": [{\"id\": 4}], \"runs\": []}",
         "'id' of cases[0]"},
        {"{\"schema\": 1, \"environment\": {}, \"cases\": [], \"runs\": [{\"name\": \"a\", "
         "\"format\": \"hif8\", \"steps\": [], \"loss\": []}]}",
         "'grad_norm' of runs[0]"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_t *report = json_loads(bad[i].text, 0, NULL);
        oct_err err = {0};
        assert_non_null(report);
        assert_int_equal(oct_verify_report_html(report, "/nonexistent/x.html", &err), OCT_E_API);
        if (!strstr(err.msg, bad[i].message))
            fail_msg("'%s' is not in '%s'", bad[i].message, err.msg);
        json_decref(report);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        oct_err err = {0};
        json_t *report = json_load_file(argv[1], JSON_REJECT_DUPLICATES, NULL);
        const int failed = oct_verify_report_html(report, argv[2], &err) != OCT_OK;
        json_decref(report);
        if (failed)
            fprintf(stderr, "%s\n", err.msg);
        return failed;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page__sample__every_section_and_case),
        cmocka_unit_test(page__sample__needs_no_other_file),
        cmocka_unit_test(page__failing_cases__open_the_others_folded),
        cmocka_unit_test(page__hostile_text__escaped),
        cmocka_unit_test(evidence__path_outside_of_the_report__is_no_link),
        cmocka_unit_test(page__smallest_report__still_a_page),
        cmocka_unit_test(curve__values_that_are_not_finite__named),
        cmocka_unit_test(page__broken_report__refused_by_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
