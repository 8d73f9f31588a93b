/* The event log of the engine. An event comes from the function that does the work; tests, metrics
 * and `octet verify` read it. With no sink attached an event only raises its counter. */
#ifndef OCT_BASE_TRACE_H
#define OCT_BASE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum oct_trace_kind {
    OCT_TRACE_REPLACE,
    OCT_TRACE_QUANTIZE,
    OCT_TRACE_MATMUL,
    OCT_TRACE_GATHER,
    OCT_TRACE_REDUCE,
    OCT_TRACE_REFRESH,
    OCT_TRACE_SAVE,
    OCT_TRACE_SKIP,
    OCT_TRACE_KIND_COUNT
} oct_trace_kind;

/* One physical tensor of a gather: the part that this rank gave and what came back. */
typedef struct oct_trace_tensor {
    const char *name, *dtype;
    int ndim;
    const int64_t *shard, *whole; /* shapes */
    const float *values;          /* of a gathered FP32 tensor that goes with data (scales) */
    int64_t value_count;
} oct_trace_tensor;

/* Fields that do not apply stay NULL, 0 or ndim 0. Strings are borrowed for the call. */
typedef struct oct_trace_event {
    oct_trace_kind kind;
    const char *fqn;
    const char *role;        /* input_fwd, weight_fwd, grad_output, input_bwd, weight_bwd */
    const char *phase;       /* fprop, dgrad, wgrad */
    const char *format;      /* mxfp8_e4m3, hif8, bf16, float32 */
    const char *orientation; /* row, col */
    const char *dtype;       /* of the data (quantize) or the output (matmul) */
    const char *scale_dtype; /* e8m0, float32 */
    const char *layout;      /* NN, NT, TN */
    const char *kernel;      /* block_integer, fma */
    const char *store;      /* matmul: store, fold (into the FP32 sum of a gradient, tile by tile as
                               they are finished), continue (the chain of the chunk before) */
    int64_t scratch_bytes;  /* low-precision matmul: temporary memory at its fullest */
    const char *from, *to;  /* replace: module types */
    const char *tensors[4]; /* gather, refresh: names of the physical tensors */
    const oct_trace_tensor *physical; /* gather: the same tensors, physical_count of them */
    int physical_count;
    bool grouped;
    bool has_scale; /* HiF8: amax and scale are meant */
    float amax, scale;
    int64_t group; /* of a grouped HiF8 scale */
    int ndim[3];   /* operand or left, right, output */
    int64_t shape[3][3];
} oct_trace_event;

struct oct_trace;
typedef void (*oct_trace_sink)(void *arg, const struct oct_trace *trace,
                               const oct_trace_event *event);

/* One per rank. The trainer sets step and micro_step. */
typedef struct oct_trace {
    int64_t step, micro_step;
    int64_t count[OCT_TRACE_KIND_COUNT];
    int64_t fma_matmuls; /* 8-bit products that took the FP32-FMA route */
    oct_trace_sink sink; /* NULL: count only */
    void *sink_arg;
} oct_trace;

/* The `event` of a trace row. Never NULL. */
const char *oct_trace_kind_name(oct_trace_kind kind);

/* trace may be NULL. */
void oct_trace_emit(oct_trace *trace, const oct_trace_event *event);

/* A sink that appends JSON lines to a file (trace-R.jsonl). */
typedef struct oct_trace_file oct_trace_file;
oct_status oct_trace_file_open(const char *path, oct_trace_file **out, oct_err *err) OCT_MUST_CHECK;
void oct_trace_file_close(oct_trace_file *file);
void oct_trace_file_sink(void *arg, const struct oct_trace *trace, const oct_trace_event *event);

#endif
