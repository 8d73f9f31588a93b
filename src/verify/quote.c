#include "verify/quote.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

oct_status oct_verify_quote(const char *text, char *out, size_t bytes, oct_err *err)
{
    json_t *string = json_string(text);
    char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    const bool fits = quoted && strlen(quoted) < bytes;
    if (fits)
        (void)snprintf(out, bytes, "%s", quoted);
    free(quoted);
    json_decref(string);
    return fits ? OCT_OK
                : OCT_FAIL(err, OCT_E_CONFIG,
                           "cannot name '%s' in a configuration: UTF-8 of less than %zu bytes is "
                           "required",
                           text, bytes);
}
