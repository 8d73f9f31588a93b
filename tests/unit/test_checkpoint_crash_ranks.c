/* Two and three ranks save together, with a fault at every I/O call of all of them: a kill or a
 * power failure ends them all, an error meets one of them and all report it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/crash_story.h"

static void save__two_ranks_beside_an_older_one__older_or_newer_is_whole(void **state)
{
    (void)state;
    check_story(&(story){.name = "second save, 2 ranks",
                         .ranks = 2,
                         .before = {{1, 11}},
                         .before_count = 1,
                         .next = {2, 22}});
}

static void save__three_ranks_over_the_same_step__one_of_both_is_whole(void **state)
{
    (void)state;
    check_story(&(story){.name = "save over an existing step, 3 ranks, keep_latest_k: 2",
                         .ranks = 3,
                         .keep = 2,
                         .before = {{3, 9}, {4, 11}},
                         .before_count = 2,
                         .next = {4, 22}});
}

int main(void)
{
    keep_heap();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(save__two_ranks_beside_an_older_one__older_or_newer_is_whole),
        cmocka_unit_test(save__three_ranks_over_the_same_step__one_of_both_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
