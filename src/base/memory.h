/* How much memory this process can have. */
#ifndef OCT_BASE_MEMORY_H
#define OCT_BASE_MEMORY_H

#include <stdint.h>

/* Bytes: the smallest of physical memory, the limit of the control group (version 2) and
 * RLIMIT_AS. INT64_MAX where the system tells none. */
int64_t oct_memory_limit(void);

#endif
