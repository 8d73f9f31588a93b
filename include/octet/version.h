/* Version of the headers (macros) and of the library that runs (functions). What is added gets a
 * symbol version of its own, OCTET_<major>.<minor>; what would break a program that is linked
 * already gets another SONAME (docs/adr/0036-c-api.md). */
#ifndef OCTET_VERSION_H
#define OCTET_VERSION_H

#include <octet/export.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OCTET_VERSION_MAJOR 0
#define OCTET_VERSION_MINOR 1
#define OCTET_VERSION_PATCH 0

/* major * 1000000 + minor * 1000 + patch. */
#define OCTET_VERSION_NUMBER                                                                       \
    (OCTET_VERSION_MAJOR * 1000000 + OCTET_VERSION_MINOR * 1000 + OCTET_VERSION_PATCH)

/* OCTET_VERSION_NUMBER of the library. Cannot fail. Any thread. */
OCTET_API uint32_t octet_version_number(void);

/* "0.1.0", static. Cannot fail. Any thread. */
OCTET_API const char *octet_version(void);

#ifdef __cplusplus
}
#endif

#endif
