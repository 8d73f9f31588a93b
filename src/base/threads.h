/* Parallel loops. Results never depend on the number of threads: an item of a loop writes its own
 * outputs and reduces nothing across items. */
#ifndef OCT_BASE_THREADS_H
#define OCT_BASE_THREADS_H

#include <stdint.h>

/* Calls fn(arg, item, thread) once for every item in [0, items), on up to `threads` threads, items
 * handed out dynamically. thread is in [0, threads). Returns when all are done. */
typedef void (*oct_parallel_fn)(void *arg, int64_t item, int thread);
void oct_parallel_for(int threads, int64_t items, oct_parallel_fn fn, void *arg);

/* The same with equal runs of neighbouring items for each thread: loops over memory whose items cost
 * alike keep to the cache lines that their thread has. */
void oct_parallel_runs(int threads, int64_t items, oct_parallel_fn fn, void *arg);

#endif
