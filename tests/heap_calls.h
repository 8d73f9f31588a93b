/* Counts what a program asks of the heap: one that includes this is linked with --wrap for these
 * allocators of libc (tests/CMakeLists.txt). */
#ifndef OCT_TESTS_HEAP_CALLS_H
#define OCT_TESTS_HEAP_CALLS_H

#include <stdatomic.h>
#include <stddef.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);

static atomic_long heap_calls;

void *__wrap_malloc(size_t bytes)
{
    atomic_fetch_add(&heap_calls, 1);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&heap_calls, 1);
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *block, size_t bytes)
{
    atomic_fetch_add(&heap_calls, 1);
    return __real_realloc(block, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&heap_calls, 1);
    return __real_aligned_alloc(alignment, bytes);
}

char *__wrap_strdup(const char *text)
{
    atomic_fetch_add(&heap_calls, 1);
    return __real_strdup(text);
}

#endif
