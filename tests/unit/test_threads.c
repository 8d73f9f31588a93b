#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>

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

typedef void loop_fn(int threads, int64_t items, oct_parallel_fn fn, void *arg);

static void check_each_item_once(loop_fn *loop)
{
    static visits log;
    const int64_t counts[] = {0, 1, 2, 3, 7, 1000};
    for (int threads = 1; threads <= 5; threads++) {
        for (int c = 0; c < 6; c++) {
            for (int i = 0; i < 1000; i++)
                atomic_store(&log.items[i], 0);
            log.threads = threads;
            loop(threads, counts[c], visit, &log);
            for (int i = 0; i < 1000; i++)
                assert_int_equal(atomic_load(&log.items[i]), i < counts[c] ? 1 : 0);
        }
    }
    assert_int_equal(atomic_load(&log.wrong_thread), 0);
}

static void parallel_loops__any_threads_and_items__each_item_once(void **state)
{
    (void)state;
    check_each_item_once(oct_parallel_for);
    check_each_item_once(oct_parallel_runs);
}

static void note_thread(void *arg, int64_t item, int thread)
{
    int *threads = arg;
    threads[item] = thread;
}

static void parallel_runs__items__neighbours_on_one_thread(void **state)
{
    (void)state;
    enum { ITEMS = 100, THREADS = 4 };
    int threads[ITEMS];
    oct_parallel_runs(THREADS, ITEMS, note_thread, threads);
    for (int i = 0; i < ITEMS; i++)
        assert_int_equal(threads[i], i / (ITEMS / THREADS));
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
        cmocka_unit_test(parallel_loops__any_threads_and_items__each_item_once),
        cmocka_unit_test(parallel_runs__items__neighbours_on_one_thread),
        cmocka_unit_test(parallel_for__inside_another__still_each_item),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
