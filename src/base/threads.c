#include "base/threads.h"

#include <omp.h>

void oct_parallel_for(int threads, int64_t items, oct_parallel_fn fn, void *arg)
{
    if (threads <= 1 || items <= 1) {
        for (int64_t i = 0; i < items; i++)
            fn(arg, i, 0);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t i = 0; i < items; i++)
        fn(arg, i, omp_get_thread_num());
}
