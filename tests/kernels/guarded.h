/* Memory that notices every stray access. */
#ifndef GUARDED_H
#define GUARDED_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { CANARY = 0xa5, PAGE = 4096 };

/* `bytes` usable bytes at the end (or the start) of pages between two forbidden ones; the rest of
 * the pages holds canaries. Either way nothing is aligned beyond what the size leaves. */
typedef struct guarded {
    uint8_t *map, *data;
    size_t pages_bytes, bytes;
} guarded;

static guarded guarded_new(size_t bytes, bool at_end)
{
    guarded memory = {.bytes = bytes, .pages_bytes = (bytes + PAGE) / PAGE * PAGE};
    memory.map = mmap(NULL, memory.pages_bytes + 2 * PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory.map != MAP_FAILED);
    assert_int_equal(mprotect(memory.map, PAGE, PROT_NONE), 0);
    assert_int_equal(mprotect(memory.map + PAGE + memory.pages_bytes, PAGE, PROT_NONE), 0);
    memory.data = memory.map + PAGE + (at_end ? memory.pages_bytes - bytes : 0);
    memset(memory.map + PAGE, CANARY, memory.pages_bytes);
    return memory;
}

static void guarded_free(guarded *memory)
{
    const uint8_t *start = memory->map + PAGE;
    for (size_t i = 0; i < memory->pages_bytes; i++) {
        const uint8_t *byte = start + i;
        if ((byte < memory->data || byte >= memory->data + memory->bytes) && *byte != CANARY)
            fail_msg("a byte %td from the start of %zu was written", byte - memory->data,
                     memory->bytes);
    }
    assert_int_equal(munmap(memory->map, memory->pages_bytes + 2 * PAGE), 0);
}

#endif
