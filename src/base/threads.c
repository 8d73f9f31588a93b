#include "base/threads.h"

#include <omp.h>

static void serial_for(int64_t items, oct_parallel_fn fn, void *arg)
{
    for (int64_t i = 0; i < items; i++)
        fn(arg, i, 0);
}

void oct_parallel_for(int threads, int64_t items, oct_parallel_fn fn, void *arg)
{
    if (threads <= 1 || items <= 1) {
        serial_for(items, fn, arg);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t i = 0; i < items; i++)
        fn(arg, i, omp_get_thread_num());
}

void oct_parallel_runs(int threads, int64_t items, oct_parallel_fn fn, void *arg)
{
    if (threads <= 1 || items <= 1) {
        serial_for(items, fn, arg);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < items; i++)
        fn(arg, i, omp_get_thread_num());
}
