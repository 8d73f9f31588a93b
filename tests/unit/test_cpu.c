#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"

static void isa_choose__no_word__is_the_best_of_the_cpu(void **state)
{
    (void)state;
    oct_isa isa = OCT_ISA_REF;
    oct_err err = {0};
    assert_int_equal(unsetenv("OCTET_ISA"), 0);
    assert_int_equal(oct_isa_choose(&isa, &err), OCT_OK);
    assert_int_equal(isa, oct_cpu_isa());
    assert_int_equal(setenv("OCTET_ISA", "", 1), 0);
    assert_int_equal(oct_isa_choose(&isa, &err), OCT_OK);
    assert_int_equal(isa, oct_cpu_isa());
}

static void isa_choose__each_level__lowers_or_is_refused(void **state)
{
    (void)state;
    for (int level = OCT_ISA_REF; level <= OCT_ISA_AVX512; level++) {
        oct_isa isa = OCT_ISA_REF;
        oct_err err = {0};
        assert_int_equal(setenv("OCTET_ISA", oct_isa_name((oct_isa)level), 1), 0);
        const oct_status status = oct_isa_choose(&isa, &err);
        if (level <= (int)oct_cpu_isa()) {
            assert_int_equal(status, OCT_OK);
            assert_int_equal(isa, level);
        } else {
            assert_int_equal(status, OCT_E_UNSUPPORTED);
            assert_non_null(strstr(err.msg, oct_isa_name((oct_isa)level)));
        }
    }
}

static void isa_choose__unknown_word__refused_with_the_choices(void **state)
{
    (void)state;
    oct_isa isa = OCT_ISA_REF;
    oct_err err = {0};
    assert_int_equal(setenv("OCTET_ISA", "AVX512", 1), 0);
    assert_int_equal(oct_isa_choose(&isa, &err), OCT_E_CONFIG);
    assert_non_null(strstr(err.msg, "'AVX512'"));
    assert_non_null(strstr(err.msg, "ref, avx2, avx512"));
    assert_non_null(strstr(err.msg, "OCTET_ISA"));
    assert_int_equal(unsetenv("OCTET_ISA"), 0);
}

static void cpu_count__here__at_least_one(void **state)
{
    (void)state;
    assert_true(oct_cpu_count() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(isa_choose__no_word__is_the_best_of_the_cpu),
        cmocka_unit_test(isa_choose__each_level__lowers_or_is_refused),
        cmocka_unit_test(isa_choose__unknown_word__refused_with_the_choices),
        cmocka_unit_test(cpu_count__here__at_least_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
