#include "config/source_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/text_buffer.h"
#include "config/value.h"

/* Bytes of the well-formed UTF-8 character at `text`, 0 if there is none (Unicode 15, table 3-7).
 */
static size_t utf8_length(const unsigned char *text, size_t bytes)
{
    const unsigned char lead = text[0];
    if (lead < 0x80)
        return 1;
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || length > bytes)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((lead == 0xe0 && text[1] < 0xa0) || (lead == 0xed && text[1] > 0x9f) ||
        (lead == 0xf0 && text[1] < 0x90) || (lead == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

oct_status oct_source_check(const char *language, const char *text, size_t bytes, const char *file,
                            bool has_lines, oct_err *err)
{
    if (bytes > OCT_SOURCE_MAX_BYTES)
        return OCT_FAIL(err, OCT_E_CONFIG, "cannot read %s: %zu bytes, at most %d are allowed (%s)",
                        language, bytes, OCT_SOURCE_MAX_BYTES, file);
    const unsigned char *c = (const unsigned char *)text;
    int line = 1, column = 1;
    for (size_t i = 0; i < bytes;) {
        const size_t length = utf8_length(c + i, bytes - i);
        const bool blank = c[i] == '\t' || c[i] == '\n' || c[i] == '\r';
        if (length == 0 || c[i] == 0x7f || (c[i] < 0x20 && !blank)) {
            char where[OCT_VALUE_WORDS];
            if (has_lines)
                (void)snprintf(where, sizeof where, "%s:%d:%d", file, line, column);
            else
                (void)snprintf(where, sizeof where, "%s", file);
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "cannot read %s: byte 0x%02x %s, printable UTF-8 is required (%s)",
                            language, c[i],
                            length == 0 ? "is not valid UTF-8" : "is a control character", where);
        }
        column = c[i] == '\n' ? 1 : column + 1;
        line += c[i] == '\n';
        i += length;
    }
    return OCT_OK;
}

oct_status oct_source_read(const char *path, oct_arena *arena, const char **text, size_t *bytes,
                           const char **name, oct_err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return OCT_FAIL(err, OCT_E_IO, "cannot open configuration: %s (%s)", strerror(errno), path);
    struct stat about;
    oct_status status = OCT_OK;
    if (fstat(fd, &about) != 0)
        status =
            OCT_FAIL(err, OCT_E_IO, "cannot read configuration: %s (%s)", strerror(errno), path);
    else if (S_ISDIR(about.st_mode))
        status = OCT_FAIL(err, OCT_E_IO,
                          "cannot read configuration: a folder, a file is required (%s)", path);
    /* One byte more than the limit tells an oversized file, also where no size is known (pipes). */
    void *memory = NULL;
    size_t used = 0;
    if (status == OCT_OK)
        status = oct_arena_alloc(arena, OCT_SOURCE_MAX_BYTES + 1, &memory, err);
    while (status == OCT_OK && used <= OCT_SOURCE_MAX_BYTES) {
        const ssize_t got = read(fd, (char *)memory + used, OCT_SOURCE_MAX_BYTES + 1 - used);
        if (got == 0)
            break;
        if (got > 0)
            used += (size_t)got;
        else if (errno != EINTR)
            status = OCT_FAIL(err, OCT_E_IO, "cannot read configuration: %s (%s)", strerror(errno),
                              path);
    }
    (void)close(fd);
    OCT_TRY(status);
    *text = memory;
    *bytes = used;
    return oct_text_copy(arena, path, strlen(path), name, err);
}
