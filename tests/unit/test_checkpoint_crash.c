/* One rank saves, with a fault at every I/O call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/crash_story.h"

static void save__first_of_a_run__start_is_safe(void **state)
{
    (void)state;
    check_story(&(story){.name = "first save", .next = {1, 11}});
}

static void save__beside_an_older_one__older_or_newer_is_whole(void **state)
{
    (void)state;
    check_story(
        &(story){.name = "second save", .before = {{1, 11}}, .before_count = 1, .next = {2, 22}});
}

static void save__over_the_same_step__one_of_both_is_whole(void **state)
{
    (void)state;
    check_story(&(story){.name = "save over an existing step",
                         .before = {{3, 9}, {4, 11}},
                         .before_count = 2,
                         .next = {4, 22}});
}

static void save__keep_two__two_are_always_there(void **state)
{
    (void)state;
    check_story(&(story){.name = "keep_latest_k: 2",
                         .keep = 2,
                         .before = {{1, 11}, {2, 22}},
                         .before_count = 2,
                         .next = {3, 33}});
}

static void save__keep_one__one_is_always_there(void **state)
{
    (void)state;
    check_story(&(story){.name = "keep_latest_k: 1",
                         .keep = 1,
                         .before = {{1, 11}},
                         .before_count = 1,
                         .next = {2, 22}});
}

/* --- faults while the leftovers of a fault are swept --------------------------------------- */

/* Crashes the start after a crash, at every one of its calls. Returns the number of them. */
static int64_t crash_the_start(const story *s, const crash_files *crashed, int m, bool reported,
                               const char *text)
{
    for (int64_t n = 1;; n += STRIDE) {
        crash_files fs;
        oct_err err = {0};
        crash_files_copy(&fs, crashed);
        crash_files_arm(&fs, modes[m].mode, n);
        (void)!start(&fs, s->keep, &err);
        const bool reached = fs.fault[0];
        place at = {.story = s};
        (void)snprintf(at.text, sizeof at.text,
                       "%.250s, then %s at call %lld of the start (%.100s)", text, modes[m].name,
                       (long long)n, fs.fault);
        for (int loss = CRASH_LOSE_NOTHING; loss <= CRASH_LOSE_SOME; loss++) {
            if (!can_lose(modes[m].mode, (crash_loss)loss))
                continue;
            crash_files copy;
            crash_files_copy(&copy, &fs);
            crash_files_reboot(&copy, (crash_loss)loss, (uint64_t)n);
            at.fs = &copy;
            check_restart(&at, reported, !goes_on(modes[m].mode));
            crash_files_release(&copy);
        }
        crash_files_release(&fs);
        if (!reached)
            return (n - 1) / STRIDE;
    }
}

/* A crash at every call of a save, and one at every call of the start that finds something left. */
static void check_sweep(const story *s, crash_mode first, crash_loss loss)
{
    crash_files before;
    int64_t points = 0;
    make_before(&before, s);
    violations = 0;
    for (int64_t n = 1, reached = 1; reached; n += STRIDE) {
        crash_files after;
        oct_err err = {0};
        char text[320], leftover[CRASH_NAME_BYTES] = "";
        crash_files_copy(&after, &before);
        crash_files_arm(&after, first, n);
        process p = {.fs = &after, .keep = s->keep, .saves = &s->next, .save_count = 1};
        run(&p);
        const bool reported = p.status[0] == OCT_OK;
        (void)snprintf(text, sizeof text, "%s at call %lld (%s)",
                       first == CRASH_KILL ? "kill" : "lost data", (long long)n, after.fault);
        reached = after.fault[0];
        crash_files_reboot(&after, loss, (uint64_t)n);
        (void)!oct_file_list(&after.table, crash_root, note_leftover, leftover, &err);
        for (int m = 0; m < MODES && leftover[0]; m++)
            if (modes[m].mode != CRASH_ENOSPC) /* for what a start does, the same as EIO */
                points += crash_the_start(s, &after, m, reported, text);
        crash_files_release(&after);
    }
    crash_files_release(&before);
    print_message("%s: %lld fault points in the starts after it, %lld violations\n", s->name,
                  (long long)points, (long long)violations);
    assert_int_equal(violations, 0);
    assert_true(points >= 500 / STRIDE / STRIDE);
}

static void start__after_a_kill_in_a_replacing_save__crash_safe(void **state)
{
    (void)state;
    const story s = {.name = "save over an existing step, killed",
                     .keep = 2,
                     .before = {{3, 9}, {4, 11}},
                     .before_count = 2,
                     .next = {4, 22}};
    check_sweep(&s, CRASH_KILL, CRASH_LOSE_NOTHING);
}

static void start__after_a_power_loss_with_pruning__crash_safe(void **state)
{
    (void)state;
    const story s = {.name = "keep_latest_k: 2, power lost",
                     .keep = 2,
                     .before = {{1, 11}, {2, 22}},
                     .before_count = 2,
                     .next = {3, 33}};
    check_sweep(&s, CRASH_LOST, CRASH_LOSE_SOME);
}

int main(void)
{
    keep_heap();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(save__first_of_a_run__start_is_safe),
        cmocka_unit_test(save__beside_an_older_one__older_or_newer_is_whole),
        cmocka_unit_test(save__over_the_same_step__one_of_both_is_whole),
        cmocka_unit_test(save__keep_two__two_are_always_there),
        cmocka_unit_test(save__keep_one__one_is_always_there),
        cmocka_unit_test(start__after_a_kill_in_a_replacing_save__crash_safe),
        cmocka_unit_test(start__after_a_power_loss_with_pruning__crash_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
