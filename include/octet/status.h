/* Status codes and the error record. */
#ifndef OCTET_STATUS_H
#define OCTET_STATUS_H

#include <octet/export.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 0 is success, every failure is negative. Numbers are never given another meaning. */
typedef enum octet_status {
    OCTET_OK = 0,
    OCTET_E_ARGUMENT = -1,    /* NULL, out of range, too few bytes, overlapping memory */
    OCTET_E_WORKSPACE = -2,   /* the workspace is smaller than the *_bytes function says */
    OCTET_E_ENVIRONMENT = -5, /* OCTET_ISA or the floating-point environment of the thread */
    OCTET_E_SHAPE = -6,       /* shapes, formats, orientations or groups do not fit together */
    OCTET_E_UNSUPPORTED = -7, /* this CPU or this version of the library cannot do it */
    OCTET_E_INTERNAL = -13    /* a defect of octet; outputs are undefined */
} octet_status;

/* The caller's record of a failure. The last parameter of every function that can fail points at
 * one or is NULL. A success leaves it alone. 1024 bytes, a layout that does not change.
 * message: UTF-8, NUL-terminated: "<function>: <argument> is <found>, <what is required>". */
typedef struct octet_error {
    int32_t status; /* octet_status */
    char message[1020];
} octet_error;

/* A word for a code: "ok", "argument", "workspace", ... "unknown" for another number. Static
 * string, never NULL. Any thread. */
OCTET_API const char *octet_status_name(octet_status status);

#ifdef __cplusplus
}
#endif

#endif
