/* The measured rates of a machine, from a file. */
#ifndef OCT_TRAINER_MACHINE_H
#define OCT_TRAINER_MACHINE_H

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* What products compute in: BF16, or an 8-bit format by the name that low_precision.format has. */
enum { OCT_MACHINE_FORMATS = 3 };
extern const char *const oct_machine_formats[OCT_MACHINE_FORMATS];

/* One rate for each of them. */
typedef struct oct_format_rates {
    double of[OCT_MACHINE_FORMATS];
} oct_format_rates;

/* Between two ranks of one node, or between two nodes. */
typedef struct oct_link_rates {
    double gbytes;       /* per second and direction: into a rank, or into a node */
    double microseconds; /* of one message */
} oct_link_rates;

/* A file of rates. Those of computation are of one thread. */
typedef struct oct_machine {
    const char *cpu;
    int64_t threads_per_rank, ranks_per_node;
    double thread_efficiency;   /* rate of a thread beside all others of its node over that alone */
    oct_format_rates products;  /* GFLOP/s of a linear layer, quantization included, forward and
                                 * backward, with many rows */
    oct_format_rates experts;   /* the same, with the rows of one expert */
    oct_format_rates optimizer; /* million parameters a second: norm, AdamW and refresh */
    double attention;           /* GFLOP/s, causal half counted */
    double pack;                /* million elements a second: an 8-bit weight to panels */
    double copy;                /* GB/s, read and written both counted */
    double node_copy;           /* the same of all threads of a node together: the most */
    oct_link_rates local, remote;
} oct_machine;

/* Reads a YAML file with exactly the keys of configs/machines. Strings live in `arena`. Errors:
 * OCT_E_IO if there is no such file; OCT_E_CONFIG with file:line for a key that is unknown, twice
 * there or not there, and for a value of the wrong kind or range. */
oct_status oct_machine_read(const char *path, oct_arena *arena, oct_machine *out,
                            oct_err *err) OCT_MUST_CHECK;

#endif
