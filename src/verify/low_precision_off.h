/* What a disabled low_precision section leaves in a run (design document, 17.4): nothing. */
#ifndef OCT_VERIFY_LOW_PRECISION_OFF_H
#define OCT_VERIFY_LOW_PRECISION_OFF_H

#include <stdint.h>

#include "base/status.h"

typedef struct oct_off_objects {
    int64_t extra;  /* modules, weights and bytes that are there beside those of a bare run */
    char text[256]; /* what was looked at and found */
} oct_off_objects;

/* Builds configs/verify.yaml on one rank twice, without the section and with a disabled one that
 * names a format, and compares modules, weights and every category of memory. Errors: those of the
 * build. */
oct_status oct_low_precision_off_objects(oct_off_objects *out, oct_err *err) OCT_MUST_CHECK;

#endif
