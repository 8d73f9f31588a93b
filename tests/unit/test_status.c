#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/status.h"

static void err_set__full_record__keeps_where_and_what(void **state)
{
    (void)state;
    oct_err err = {0};
    assert_int_equal(OCT_FAIL(&err, OCT_E_SHAPE, "found %d, %d is required", 3, 4), OCT_E_SHAPE);
    assert_int_equal(err.code, OCT_E_SHAPE);
    assert_string_equal(err.msg, "found 3, 4 is required");
    assert_non_null(strstr(err.file, "test_status.c"));
    assert_true(err.line > 0);
    assert_int_equal(OCT_FAIL(NULL, OCT_E_IO, "nobody listens"), OCT_E_IO);
}

static void err_set__long_message__is_cut_and_terminated(void **state)
{
    (void)state;
    oct_err err;
    char text[2000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    (void)OCT_FAIL(&err, OCT_E_IO, "%s", text);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
}

static void err_wrap__every_length__puts_the_context_in_front(void **state)
{
    (void)state;
    oct_err err = {0};
    (void)OCT_FAIL(&err, OCT_E_CORRUPT, "bad magic");
    assert_int_equal(OCT_WRAP(&err, OCT_E_CORRUPT, "loading '%s'", "a/b"), OCT_E_CORRUPT);
    assert_string_equal(err.msg, "loading 'a/b': bad magic");
    assert_int_equal(OCT_WRAP(NULL, OCT_E_CORRUPT, "x"), OCT_E_CORRUPT);
    for (int length = 0; length < 1100; length++) { /* around the size of the record */
        struct {
            oct_err err;
            char canary[8];
        } fenced;
        memset(&fenced, 0x5a, sizeof fenced);
        (void)OCT_FAIL(&fenced.err, OCT_E_IO, "%0500d", 7);
        (void)OCT_WRAP(&fenced.err, OCT_E_IO, "%0*d", length + 1, 0);
        assert_true(strnlen(fenced.err.msg, sizeof fenced.err.msg) < sizeof fenced.err.msg);
        assert_int_equal(fenced.canary[0], 0x5a);
        assert_int_equal(fenced.err.msg[0], '0');
        if (length + 1 + 2 + 500 < (int)sizeof fenced.err.msg)
            assert_int_equal(strlen(fenced.err.msg), length + 1 + 2 + 500);
    }
}

static oct_status fails(oct_err *err)
{
    return OCT_FAIL(err, OCT_E_NOMEM, "no");
}

static oct_status tries(oct_err *err, int *reached)
{
    OCT_TRY(OCT_OK);
    *reached = 1;
    OCT_TRY(fails(err));
    *reached = 2;
    return OCT_OK;
}

static void try__failing_call__returns_at_once(void **state)
{
    (void)state;
    oct_err err = {0};
    int reached = 0;
    assert_int_equal(tries(&err, &reached), OCT_E_NOMEM);
    assert_int_equal(reached, 1);
}

static void status__codes__are_pinned_and_named(void **state)
{
    (void)state;
    const oct_status pinned[] = {
        OCT_OK,       OCT_E_API,   OCT_E_NOMEM,       OCT_E_IO,     OCT_E_CORRUPT,
        OCT_E_CONFIG, OCT_E_SHAPE, OCT_E_UNSUPPORTED, OCT_E_PLAN,   OCT_E_NONFINITE,
        OCT_E_COMM,   OCT_E_DATA,  OCT_E_INTERRUPTED, OCT_E_KERNEL,
    };
    for (int i = 0; i < 14; i++) {
        assert_int_equal(pinned[i], -i);
        assert_string_not_equal(oct_status_name(pinned[i]), "unknown");
        for (int j = 0; j < i; j++)
            assert_string_not_equal(oct_status_name(pinned[i]), oct_status_name(pinned[j]));
    }
    assert_string_equal(oct_status_name((oct_status)-99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(err_set__full_record__keeps_where_and_what),
        cmocka_unit_test(err_set__long_message__is_cut_and_terminated),
        cmocka_unit_test(err_wrap__every_length__puts_the_context_in_front),
        cmocka_unit_test(try__failing_call__returns_at_once),
        cmocka_unit_test(status__codes__are_pinned_and_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
