#include "verify/html.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *reserve(oct_html *html, size_t more)
{
    if (html->status != OCT_OK)
        return NULL;
    if (html->capacity - html->bytes <= more) {
        const size_t capacity = 2 * html->capacity + more + 4096;
        char *text = realloc(html->text, capacity);
        if (!text) {
            html->status = OCT_E_NOMEM;
            return NULL;
        }
        html->text = text;
        html->capacity = capacity;
    }
    return html->text + html->bytes;
}

void oct_html_put(oct_html *html, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *end = length < 0 ? NULL : reserve(html, (size_t)length);
    if (!end)
        return;
    va_start(args, fmt);
    (void)vsnprintf(end, (size_t)length + 1, fmt, args);
    va_end(args);
    html->bytes += (size_t)length;
}

static const char *escaped(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void oct_html_text(oct_html *html, const char *text)
{
    for (const char *c = text; c && *c; c++) {
        const unsigned char byte = (unsigned char)*c;
        const char *word = escaped(*c);
        if (!word && (byte == 0x7f || (byte < 0x20 && byte != '\n' && byte != '\t')))
            word = "&#xFFFD;";
        const size_t length = word ? strlen(word) : 1;
        char *end = reserve(html, length);
        if (!end)
            return;
        memcpy(end, word ? word : c, length);
        end[length] = '\0';
        html->bytes += length;
    }
}
