/* Wall seconds by part of a step, for metrics and octet bench step; never an input of any
 * computation. One thread books: the one that drives the step. */
#ifndef OCT_BASE_PROFILE_H
#define OCT_BASE_PROFILE_H

typedef enum oct_part {
    OCT_PART_REST, /* outside every span */
    OCT_PART_FORWARD,
    OCT_PART_BACKWARD,
    OCT_PART_QUANTIZE,
    OCT_PART_PACK,  /* 8-bit operands into panels; a BF16 or FP32 product packs within itself */
    OCT_PART_FPROP, /* products by role */
    OCT_PART_DGRAD,
    OCT_PART_WGRAD,
    OCT_PART_HEAD, /* head and loss */
    OCT_PART_ATTENTION,
    OCT_PART_ELEMENTWISE, /* what else a layer does: norms, SwiGLU, RoPE, sums, copies */
    OCT_PART_ROUTING,     /* router, its products, permutation of rows */
    OCT_PART_ALL_GATHER,
    OCT_PART_REDUCE_SCATTER,
    OCT_PART_OPTIMIZER, /* update and refresh */
    OCT_PART_CHECKPOINT,
    OCT_PART_COUNT
} oct_part;

/* Spans nest. Head, routing, optimizer and checkpoint own all that is done for them, but for
 * communication. */
typedef struct oct_profile {
    double seconds[OCT_PART_COUNT]; /* of a part's spans, with what is nested in them */
    double own[OCT_PART_COUNT];     /* each instant belongs to one part: the innermost span's, or
                                       that of the owner around it */
    oct_part owner;                 /* of the present instant */
    double since;                   /* when it became that */
} oct_profile;

/* "rest", "forward", "fprop", ...; for the parts that metrics.jsonl has, the key there. */
const char *oct_part_name(oct_part part);

/* Monotonic seconds. */
double oct_clock_seconds(void);

/* One stretch of a part. */
typedef struct oct_span {
    oct_part part;
    oct_part owner;    /* whose own seconds it adds to */
    oct_part previous; /* owner around it */
    double started;
} oct_span;

/* Opens a span; end it before the one around it. An error may leave spans open. NULL: nothing. */
oct_span oct_profile_begin(oct_profile *profile, oct_part part);
void oct_profile_end(oct_profile *profile, oct_span span);

/* `seconds` of the span that has just ended were those of `part`. */
void oct_profile_move(oct_profile *profile, oct_span span, oct_part part, double seconds);

#endif
