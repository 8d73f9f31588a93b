/* The events of trace-R.jsonl, as the trainer wrote them. */
#ifndef OCT_VERIFY_TRACE_H
#define OCT_VERIFY_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/trace.h"
#include "verify/verify.h"

enum { OCT_VERIFY_MAX_PHYSICAL = 4 };

/* One physical tensor of a gather: what this rank gave and what came back. */
typedef struct oct_verify_physical {
    const char *name, *dtype;
    int ndim;
    int64_t shard[4], whole[4];
    float *values; /* of scales */
    int64_t value_count;
} oct_verify_physical;

typedef struct oct_verify_event {
    oct_trace_event fields; /* a string that the row lacks is "", never NULL */
    int64_t step, micro_step;
    bool is_finite; /* amax and scale are numbers */
    int physical_count;
    oct_verify_physical physical[OCT_VERIFY_MAX_PHYSICAL];
} oct_verify_event;

struct oct_verify_trace {
    oct_verify_event *events;
    int64_t count, room;
    char **strings; /* each once: equal strings are equal pointers */
    int64_t string_count, string_room;
};

/* Reads a whole file; *out is to be released. Errors: OCT_E_IO; OCT_E_DATA naming file and line for
 * a row that is not an event of schema 1; OCT_E_NOMEM. */
oct_status oct_verify_trace_read(const char *path, oct_verify_trace **out,
                                 oct_err *err) OCT_MUST_CHECK;
void oct_verify_trace_release(oct_verify_trace *trace);

/* Of one rank of a run, read when first asked for and kept until oct_verify_forget. Errors: as
 * oct_verify_trace_read. */
oct_status oct_verify_run_trace(const oct_verify_run *run, int rank, const oct_verify_trace **out,
                                oct_err *err) OCT_MUST_CHECK;

/* Frees the traces of a run: there are many events. */
void oct_verify_forget(const oct_verify_run *run);

#endif
