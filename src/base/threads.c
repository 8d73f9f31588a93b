#include "base/threads.h"

#include <omp.h>
#include <stdatomic.h>

#include "base/size.h"

/* The items that one thread begins with. Ranges are counted up by those who take from them. */
typedef struct range {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
} range;

enum { MAX_RANGES = 64 }; /* more threads than that share ranges */

typedef struct loop {
    oct_parallel_fn fn;
    void *arg;
    int64_t count;
    range ranges[MAX_RANGES];
} loop;

static void run_thread(loop *l, int thread)
{
    for (int64_t i = 0; i < l->count; i++) {
        range *r = &l->ranges[(thread + i) % l->count];
        while (atomic_load_explicit(&r->next, memory_order_relaxed) < r->end) {
            const int64_t item = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
            if (item < r->end)
                l->fn(l->arg, item, thread);
        }
    }
}

void oct_parallel_for(int threads, int64_t items, oct_parallel_fn fn, void *arg)
{
    if (threads <= 1 || items <= 1) {
        for (int64_t i = 0; i < items; i++)
            fn(arg, i, 0);
        return;
    }
    loop l; /* only the ranges in use are written: loops are many and short */
    l.fn = fn;
    l.arg = arg;
    l.count = oct_min_i64(items, oct_min_i64(threads, MAX_RANGES));
    const int64_t each = items / l.count, longer = items % l.count;
    int64_t first = 0;
    for (int64_t i = 0; i < l.count; i++) {
        atomic_init(&l.ranges[i].next, first);
        first += each + (i < longer);
        l.ranges[i].end = first;
    }
#pragma omp parallel num_threads(threads)
    run_thread(&l, omp_get_thread_num());
}
