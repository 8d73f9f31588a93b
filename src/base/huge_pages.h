/* Large memory on large pages: fewer page faults and fewer misses of the TLB where tensors are
 * walked in strides. */
#ifndef OCT_BASE_HUGE_PAGES_H
#define OCT_BASE_HUGE_PAGES_H

#include <stddef.h>

/* Bytes of a huge page, and the size from which memory is worth asking for it. */
enum { OCT_HUGE_PAGE = 2 << 20 };

/* Asks the system to back the huge pages that lie wholly in [memory, memory + bytes) as such.
 * Advice only: contents and errors do not depend on it. OCTET_HUGE_PAGES=0 turns it off. */
void oct_huge_pages_advise(void *memory, size_t bytes);

#endif
