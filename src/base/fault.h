/* Named fault points: a test arms a point, the n-th time the code passes it the point reports a
 * failure (or signals the process). A point may be armed for one rank or one training step: only
 * passes of threads that said they work for it count. With nothing armed a point costs one relaxed
 * load. */
#ifndef OCT_BASE_FAULT_H
#define OCT_BASE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum oct_fault_action {
    OCT_FAULT_FAIL, /* the point reports true once */
    OCT_FAULT_KILL, /* SIGKILL, as a power cut would */
    OCT_FAULT_TERM  /* SIGTERM; the point reports false */
} oct_fault_action;

/* The environment variable read by oct_fault_arm_from_environment. */
#define OCT_FAULT_ENV "OCTET_FAULT"

extern atomic_int oct_fault_armed; /* number of armed points */

/* Arms `point`: its nth pass from now on (1 = the next) acts. `point` is copied. At most 8 points.
 * Errors: OCT_E_API for nth < 1, an empty or too long name, or no room. Not for use while other
 * threads pass fault points. */
oct_status oct_fault_arm(const char *point, int64_t nth, oct_fault_action action,
                         oct_err *err) OCT_MUST_CHECK;

/* As oct_fault_arm, for passes on one rank >= 0 only. */
oct_status oct_fault_arm_rank(const char *point, int64_t nth, int rank, oct_fault_action action,
                              oct_err *err) OCT_MUST_CHECK;

/* The calling thread works for this rank from now on; before, for rank 0. */
void oct_fault_set_rank(int rank);
int oct_fault_rank(void);

/* The calling thread works on this training step from now on, the first is 1; 0: on none. */
void oct_fault_set_step(int64_t step);

/* Arms what OCTET_FAULT says: `point:n[:rank=R][:step=S][:kill|:term]`, several separated by commas; unset
 * arms nothing. Errors: OCT_E_CONFIG naming the word. */
oct_status oct_fault_arm_from_environment(oct_err *err) OCT_MUST_CHECK;

/* No point fails from here on. */
void oct_fault_disarm_all(void);

/* The slow path of oct_fault. */
bool oct_fault_pass(const char *point);

/* true if the caller has to act as if the operation behind `point` had failed. Thread-safe. */
static inline bool oct_fault(const char *point)
{
    return atomic_load_explicit(&oct_fault_armed, memory_order_relaxed) != 0 &&
           oct_fault_pass(point);
}

#endif
