#include "config/text_buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static oct_status reserve(oct_text_buffer *buffer, size_t more, oct_err *err)
{
    if (buffer->capacity - buffer->length > more)
        return OCT_OK;
    const size_t capacity = 2 * buffer->capacity + more + 256;
    void *data = NULL;
    OCT_TRY(oct_arena_alloc(buffer->arena, capacity, &data, err));
    if (buffer->length)
        memcpy(data, buffer->data, buffer->length + 1);
    buffer->data = data;
    buffer->capacity = capacity;
    return OCT_OK;
}

oct_status oct_text_append(oct_text_buffer *buffer, oct_err *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (length < 0)
        return OCT_FAIL(err, OCT_E_API, "cannot format text: bad format '%s'", fmt);
    OCT_TRY(reserve(buffer, (size_t)length, err));
    va_start(args, fmt);
    (void)vsnprintf(buffer->data + buffer->length, (size_t)length + 1, fmt, args);
    va_end(args);
    buffer->length += (size_t)length;
    return OCT_OK;
}

oct_status oct_text_append_quoted(oct_text_buffer *buffer, const char *string, oct_err *err)
{
    OCT_TRY(oct_text_append(buffer, err, "\""));
    for (const char *c = string; *c; c++) {
        const unsigned char byte = (unsigned char)*c;
        if (byte == '"' || byte == '\\')
            OCT_TRY(oct_text_append(buffer, err, "\\%c", *c));
        else if (byte < 0x20 || byte == 0x7f)
            OCT_TRY(oct_text_append(buffer, err, "\\u%04x", byte));
        else
            OCT_TRY(oct_text_append(buffer, err, "%c", *c));
    }
    return oct_text_append(buffer, err, "\"");
}

oct_status oct_text_append_float(oct_text_buffer *buffer, double number, oct_err *err)
{
    char digits[40];
    for (int precision = 1; precision <= 17; precision++) {
        (void)snprintf(digits, sizeof digits, "%.*g", precision, number);
        if (strtod(digits, NULL) == number)
            break;
    }
    return oct_text_append(buffer, err, strpbrk(digits, ".e") ? "%s" : "%s.0", digits);
}

oct_status oct_text_copy(oct_arena *arena, const char *start, size_t length, const char **out,
                         oct_err *err)
{
    void *copy = NULL;
    OCT_TRY(oct_arena_alloc(arena, length + 1, &copy, err));
    if (length)
        memcpy(copy, start, length);
    ((char *)copy)[length] = '\0';
    *out = copy;
    return OCT_OK;
}
