/* Heap memory of a rank by what it is for: what lives, and the most that ever lived. The categories
 * are those of `octet plan`, so that a plan can be compared with what was used. */
#ifndef OCT_BASE_LEDGER_H
#define OCT_BASE_LEDGER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum oct_ledger_category {
    OCT_LEDGER_MASTER,         /* FP32 masters of the owned rows */
    OCT_LEDGER_MOMENTS,        /* FP32 moments of the owned rows */
    OCT_LEDGER_GRADIENTS,      /* FP32 accumulators of the owned rows */
    OCT_LEDGER_LOW_PRECISION,  /* 8-bit storage of the owned rows */
    OCT_LEDGER_HIGH_PRECISION, /* BF16 compute copies of the owned rows of the others */
    OCT_LEDGER_STAGING,        /* gradients on their way to their owners */
    OCT_LEDGER_UNSHARDED,      /* gathered weights */
    OCT_LEDGER_PANELS,         /* packed forms of gathered weights */
    OCT_LEDGER_ACTIVATIONS,    /* of one micro-batch, and temporaries of products */
    OCT_LEDGER_OTHER,          /* tree, plan, tables */
    OCT_LEDGER_CATEGORIES
} oct_ledger_category;

/* One per rank: several ranks may be threads of one process. Used by one thread at a time. All zero
 * is an empty ledger; it owns nothing and needs no release. Bytes are those asked for, without what
 * alignment and the heap add. */
typedef struct oct_ledger {
    int64_t live_bytes[OCT_LEDGER_CATEGORIES];
    int64_t peak_bytes[OCT_LEDGER_CATEGORIES]; /* each at its own moment */
    int64_t live_bytes_all;
    int64_t peak_bytes_all; /* most that lived at one moment: at most the sum of the peaks */
} oct_ledger;

/* "master", "moments", ...: the key of the category in the plan. */
const char *oct_ledger_category_name(oct_ledger_category category);

/* In all functions below `ledger` may be NULL: then nothing is counted. */

/* *out = `bytes` uninitialised bytes for `what` (an FQN or a name, for messages), aligned to 64;
 * bytes 0 gives a valid pointer. To be freed with oct_ledger_free and the same ledger. Errors:
 * OCT_E_NOMEM naming category, `what` and bytes; nothing is counted. Fault point: "ledger.alloc".
 */
oct_status oct_ledger_alloc(oct_ledger *ledger, oct_ledger_category category, size_t bytes,
                            const char *what, void **out, oct_err *err) OCT_MUST_CHECK;

/* The same with zeroed bytes. Pages that nobody writes cost no memory. */
oct_status oct_ledger_zalloc(oct_ledger *ledger, oct_ledger_category category, size_t bytes,
                             const char *what, void **out, oct_err *err) OCT_MUST_CHECK;

/* Frees what alloc or zalloc gave. NULL is fine. */
void oct_ledger_free(oct_ledger *ledger, void *memory);

/* Counts memory that came from elsewhere: `add` when it begins to serve this purpose, `remove` when
 * it ends to, with the same bytes. */
void oct_ledger_add(oct_ledger *ledger, oct_ledger_category category, size_t bytes);
void oct_ledger_remove(oct_ledger *ledger, oct_ledger_category category, size_t bytes);

#endif
