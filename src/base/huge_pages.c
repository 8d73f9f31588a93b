#include "base/huge_pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void oct_huge_pages_advise(void *memory, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    const char *setting = getenv("OCTET_HUGE_PAGES");
    const size_t skipped = -(uintptr_t)memory & (OCT_HUGE_PAGE - 1);
    if (bytes < skipped + OCT_HUGE_PAGE || (setting && strcmp(setting, "0") == 0))
        return;
    const size_t whole = (bytes - skipped) & ~(size_t)(OCT_HUGE_PAGE - 1);
    (void)madvise((unsigned char *)memory + skipped, whole, MADV_HUGEPAGE);
#else
    (void)memory;
    (void)bytes;
#endif
}
