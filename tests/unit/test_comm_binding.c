/* Which bindings are told as narrow, and how many threads they make. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cpu.h"
#include "comm/binding.h"

static void binding_judgement__known_situations__threads_and_narrow(void **state)
{
    (void)state;
    static const struct {
        oct_binding binding; /* allowed, cores, sharers, ranks */
        int wanted, threads;
        bool narrow;
    } cases[] = {
        {{4, 4, 1, 1}, 0, 4, false}, /* alone, not bound */
        {{1, 4, 1, 1}, 0, 1, true},  /* mpirun -n 1 binds to a core */
        {{1, 4, 1, 2}, 0, 1, true},  /* mpirun -n 2 too: two cores idle */
        {{2, 4, 1, 2}, 0, 2, false}, /* its half each */
        {{2, 4, 1, 2}, 3, 2, true},  /* three threads on two cores */
        {{2, 4, 2, 2}, 0, 1, true},  /* both on the same half */
        {{4, 4, 2, 2}, 0, 2, false}, /* not bound */
        {{4, 4, 2, 2}, 9, 2, false}, /* the user's wish, no binding's fault */
        {{2, 2, 8, 8}, 0, 1, false}, /* more ranks than cores */
        {{1, 2, 4, 8}, 0, 1, false}, /* the same, spread over the cores */
        {{16, 64, 1, 4}, 0, 16, false}, {{8, 64, 1, 4}, 0, 8, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(oct_binding_threads(&cases[i].binding), cases[i].threads);
        assert_int_equal(oct_binding_is_narrow(&cases[i].binding, cases[i].wanted),
                         cases[i].narrow);
    }
}

static void binding_read__without_launcher__not_narrow(void **state)
{
    (void)state;
    oct_comm *comm = NULL;
    oct_binding binding;
    oct_err err = {0};
    assert_int_equal(oct_comm_create_one(&comm, &err), OCT_OK);
    assert_int_equal(oct_binding_read(comm, &binding, &err), OCT_OK);
    assert_int_equal(binding.allowed, oct_cpu_count());
    assert_int_equal(oct_binding_threads(&binding), oct_cpu_count());
    assert_false(oct_binding_is_narrow(&binding, 0));
    oct_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binding_judgement__known_situations__threads_and_narrow),
        cmocka_unit_test(binding_read__without_launcher__not_narrow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
