/* A writer of HTML text. Everything that is not markup goes through oct_html_text. */
#ifndef OCT_VERIFY_HTML_H
#define OCT_VERIFY_HTML_H

#include <stddef.h>

#include "base/status.h"

/* Owner of its text. Calls never fail one by one: the first failure is kept in `status`. Begin with
 * zeros; free(text) at the end. */
typedef struct oct_html {
    char *text; /* 0-terminated once something was written */
    size_t bytes, capacity;
    oct_status status; /* OCT_OK or OCT_E_NOMEM */
} oct_html;

/* Markup and numbers, as printf. A string among the arguments must be the program's own. */
void oct_html_put(oct_html *html, const char *fmt, ...) OCT_PRINTF(2, 3);

/* Text of any origin, escaped for elements and for quoted attributes; bytes that HTML forbids
 * become U+FFFD. NULL writes nothing. */
void oct_html_text(oct_html *html, const char *text);

#endif
