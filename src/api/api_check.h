/* What the functions of the public interface share: the context, versioned structures, and checks
 * that name the argument, what was found and what is required. */
#ifndef OCT_API_API_CHECK_H
#define OCT_API_API_CHECK_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/exec.h"
#include "low_precision/format.h"
#include "octet/octet.h"

/* Lives in memory of the caller. */
struct octet_context {
    const octet_context *self; /* of the place where it was made: tells copies and garbage */
    int32_t threads;
    oct_kernels kernels; /* quantize and gemm only */
};

/* A message "<function>: ..." and the code; the public twin of OCT_FAIL. */
octet_status oct_api_fail(octet_error *error, octet_status status, const char *function,
                          const char *fmt, ...) OCT_PRINTF(4, 5) OCT_MUST_CHECK;

/* A failure from inside, `failed` with the message in err, as one of the public codes. */
octet_status oct_api_wrap(octet_error *error, const char *function, oct_status failed,
                          const oct_err *err) OCT_MUST_CHECK;

#define OCT_API_TRY(call)                                                                          \
    do {                                                                                           \
        octet_status oct_api_try_ = (call);                                                        \
        if (oct_api_try_ != OCTET_OK)                                                              \
            return oct_api_try_;                                                                   \
    } while (0)

/* E_ARGUMENT unless pointer is set. */
octet_status oct_api_check_pointer(const void *pointer, const char *function, const char *argument,
                                   octet_error *error) OCT_MUST_CHECK;

/* E_ARGUMENT unless low <= value <= high. */
octet_status oct_api_check_range(int64_t value, int64_t low, int64_t high, const char *function,
                                 const char *argument, octet_error *error) OCT_MUST_CHECK;

/* Copies a structure of the caller, which begins with a size_t: its size. A smaller (older) one is
 * completed with zeros, but holds at least `least` bytes; of a larger (newer) one the rest must be
 * zero. */
octet_status oct_api_read_struct(const void *from, void *to, size_t bytes, size_t least,
                                 const char *function, const char *argument,
                                 octet_error *error) OCT_MUST_CHECK;

/* The context is one. */
octet_status oct_api_check_context(const octet_context *context, const char *function,
                                   octet_error *error) OCT_MUST_CHECK;

/* And the thread computes in IEEE arithmetic (E_ENVIRONMENT). */
octet_status oct_api_check_compute(const octet_context *context, const char *function,
                                   octet_error *error) OCT_MUST_CHECK;

/* Memory that a call reads or writes. */
typedef struct oct_api_region {
    const char *name;
    const void *data;
    size_t bytes; /* that are used */
    size_t given; /* that the caller has there */
    size_t align; /* of an element; 1: any */
    bool written;
} oct_api_region;

/* Each is there, large enough and aligned, and none that is written overlaps another one. */
octet_status oct_api_check_regions(const oct_api_region *regions, int count, const char *function,
                                   octet_error *error) OCT_MUST_CHECK;

/* The workspace holds at least `bytes` (E_WORKSPACE). */
octet_status oct_api_check_workspace(const void *workspace, size_t given, size_t bytes,
                                     const char *function, octet_error *error) OCT_MUST_CHECK;

/* A checked copy of an operand with what follows from it. */
typedef struct oct_api_operand {
    octet_operand about;
    int64_t all_rows; /* max(1, matrices) * rows */
    bool stacked;
    size_t codes_bytes, scales_bytes; /* required */
    const oct_low_precision_format *format;
} oct_api_operand;

/* Checks format, orientation, shape and groups (E_ARGUMENT, E_SHAPE); not the buffers. */
octet_status oct_api_read_operand(const octet_operand *operand, const char *function,
                                  const char *argument, oct_api_operand *out,
                                  octet_error *error) OCT_MUST_CHECK;

/* count >= 0 and ends that reach `rows`. argument: what stands before "count" in messages. */
octet_status oct_api_check_groups(const octet_groups *groups, int64_t rows, const char *function,
                                  const char *argument, octet_error *error) OCT_MUST_CHECK;

/* The regions of the codes and scales of an operand; names are "<argument>->codes", static. */
void oct_api_operand_regions(const oct_api_operand *operand, const char *codes_name,
                             const char *scales_name, bool written, oct_api_region out[2]);

/* The operand as the layers below take it. What is empty points at the operand itself. */
oct_operand oct_api_view(oct_api_operand *operand);

/* The rows of all matrices in runs that have scales of their own: groups, or the matrices of a
 * stack, or one of all rows. */
int64_t oct_api_segment_count(const oct_api_operand *operand);
int64_t oct_api_segment_end(const oct_api_operand *operand, int64_t index); /* -1 gives 0 */

/* The computation of one call: kernels and threads of the context, the workspace as scratch. The
 * caller gives the arena. */
oct_exec oct_api_exec(const octet_context *context, oct_arena *scratch);

#endif
