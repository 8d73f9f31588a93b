/* Parallel loops. Results never depend on the number of threads: an item of a loop writes its own
 * outputs and reduces nothing across items. */
#ifndef OCT_BASE_THREADS_H
#define OCT_BASE_THREADS_H

#include <stdint.h>

/* Calls fn(arg, item, thread) once for every item in [0, items), on up to `threads` threads. Each
 * begins with a run of neighbouring items of its own, in order, and takes from those of others when
 * it is done: loops that number the same memory alike find it in the caches of their core. thread
 * is in [0, threads). Returns when all are done. */
typedef void (*oct_parallel_fn)(void *arg, int64_t item, int thread);
void oct_parallel_for(int threads, int64_t items, oct_parallel_fn fn, void *arg);

#endif
