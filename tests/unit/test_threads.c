#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "base/threads.h"

typedef struct visits {
    atomic_int items[1000];
    atomic_int wrong_thread;
    int threads;
} visits;

static void visit(void *arg, int64_t item, int thread)
{
    visits *log = arg;
    atomic_fetch_add(&log->items[item], 1);
    if (thread < 0 || thread >= log->threads)
        atomic_fetch_add(&log->wrong_thread, 1);
}

static void parallel_for__any_threads_and_items__each_item_once(void **state)
{
    (void)state;
    static visits log;
    const int64_t counts[] = {0, 1, 2, 3, 7, 1000};
    const int thread_counts[] = {1, 2, 3, 4, 5, 70}; /* the last: more than there are ranges */
    for (int t = 0; t < 6; t++) {
        const int threads = thread_counts[t];
        for (int c = 0; c < 6; c++) {
            for (int i = 0; i < 1000; i++)
                atomic_store(&log.items[i], 0);
            log.threads = threads;
            oct_parallel_for(threads, counts[c], visit, &log);
            for (int i = 0; i < 1000; i++)
                assert_int_equal(atomic_load(&log.items[i]), i < counts[c] ? 1 : 0);
        }
    }
    assert_int_equal(atomic_load(&log.wrong_thread), 0);
}

enum { ITEMS = 100, THREADS = 4, RUN = ITEMS / THREADS };

typedef struct starts {
    atomic_int started, done;
    int first[THREADS]; /* item of each thread */
    atomic_bool has_first[THREADS];
} starts;

/* Waits for a number to be reached; not for ever. */
static void wait_for(atomic_int *value, int wanted)
{
    for (int i = 0; i < 20000 && atomic_load(value) < wanted; i++)
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

/* No thread goes on before each has an item. */
static void start_together(void *arg, int64_t item, int thread)
{
    starts *s = arg;
    if (atomic_exchange(&s->has_first[thread], true))
        return;
    s->first[thread] = (int)item;
    atomic_fetch_add(&s->started, 1);
    wait_for(&s->started, THREADS);
}

static void parallel_for__each_thread__begins_with_its_own_items(void **state)
{
    (void)state;
    static starts s;
    oct_parallel_for(THREADS, ITEMS, start_together, &s);
    assert_int_equal(atomic_load(&s.started), THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(s.first[i], i * RUN);
}

/* The first item ends when all others are done. */
static void first_waits(void *arg, int64_t item, int thread)
{
    (void)thread;
    starts *s = arg;
    if (item > 0) {
        atomic_fetch_add(&s->done, 1);
        return;
    }
    wait_for(&s->done, ITEMS - 1);
    s->first[0] = atomic_load(&s->done);
}

static void parallel_for__a_thread_that_is_held_up__others_take_its_items(void **state)
{
    (void)state;
    static starts s;
    oct_parallel_for(THREADS, ITEMS, first_waits, &s);
    assert_int_equal(s.first[0], ITEMS - 1);
}

static void nest(void *arg, int64_t item, int thread)
{
    (void)item;
    (void)thread;
    oct_parallel_for(2, 10, visit, arg);
}

static void parallel_for__inside_another__still_each_item(void **state)
{
    (void)state;
    static visits log;
    log.threads = 2;
    oct_parallel_for(2, 8, nest, &log);
    for (int i = 0; i < 10; i++)
        assert_int_equal(atomic_load(&log.items[i]), 8);
    assert_int_equal(atomic_load(&log.wrong_thread), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parallel_for__any_threads_and_items__each_item_once),
        cmocka_unit_test(parallel_for__each_thread__begins_with_its_own_items),
        cmocka_unit_test(parallel_for__a_thread_that_is_held_up__others_take_its_items),
        cmocka_unit_test(parallel_for__inside_another__still_each_item),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
