/* Paths inside of configurations. */
#ifndef OCT_VERIFY_QUOTE_H
#define OCT_VERIFY_QUOTE_H

#include <stddef.h>

#include "base/status.h"

/* The text as a JSON string, with its quotes: what YAML and TOML read as this text whatever stands
 * in it. Errors: OCT_E_CONFIG if it is no UTF-8 or longer than `bytes`. */
oct_status oct_verify_quote(const char *text, char *out, size_t bytes, oct_err *err) OCT_MUST_CHECK;

#endif
