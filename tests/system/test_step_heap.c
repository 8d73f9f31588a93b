/* The heap is left alone after the first step. This program is linked with --wrap for the
 * allocators of libc: what octet calls is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "heap_calls.h"
#include "train_fixture.h"

static void count_heap_calls(record *r, oct_build *build)
{
    (void)build;
    ((long *)r->arg)[r->attempts - 1] = atomic_load(&heap_calls);
}

/* Big enough that the arenas of the first step need several blocks. */
static void assert_no_heap_call_after_step_1(int format, const char *batch, const char *recompute)
{
    static int run;
    long calls[MAX_ROWS] = {0};
    record *r = record_create();
    r->stepped = count_heap_calls;
    r->arg = calls;
    train(&files, word("run-%d", run++), format, NULL,
          WORDS("training.seq_length=200", "training.micro_batch_size=4", batch, recompute,
                "training.train_iters=5", "training.threads=2"),
          r);
    assert_trained(r);
    assert_int_equal(r->attempts, 5);
    assert_true(calls[0] > 0);
    for (int i = 1; i < 5; i++)
        if (calls[i] != calls[0])
            fail_msg("%s, %s, %s: %ld heap calls in step %d", format_names[format], batch,
                     recompute, calls[i] - calls[i - 1], i + 1);
    free(r);
}

static void train__after_the_first_step__makes_no_heap_call(void **state)
{
    (void)state;
    for (int format = 0; format < FORMATS; format++) {
        assert_no_heap_call_after_step_1(format, "training.global_batch_size=8",
                                         "gradient_checkpointing.activation_checkpoint=full");
        assert_no_heap_call_after_step_1(format, "training.global_batch_size=4",
                                         "gradient_checkpointing.activation_checkpoint=off");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train__after_the_first_step__makes_no_heap_call),
    };
    return cmocka_run_group_tests(tests, make_train_files, remove_train_files);
}
