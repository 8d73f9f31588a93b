/* The failure rules: chapter 15 of the design document, what its chapters 1 and 14 exclude, and
 * faults of kernels in the middle of training. One row says what is wrong, where a run has to stop,
 * with which exit code, and what its message has to hold. Tests run the rows through the library
 * stage by stage, `octet verify --case Q3-10` runs them through the program. */
#ifndef OCT_VERIFY_FAILURES_H
#define OCT_VERIFY_FAILURES_H

#include <stdbool.h>

enum { OCT_FAILURE_WORDS = 8, OCT_FAILURE_HOLDS = 6 };

/* What a row starts from. */
typedef enum oct_failure_base {
    OCT_FAILURE_SMALL, /* any model with a dense layer 0 and an MoE layer 1, in MXFP8 */
    OCT_FAILURE_16B    /* configs/deepseek_v3_16b/mxfp8.yaml, only planned: no weights */
} oct_failure_base;

/* Stages of a run that are none of the build: of the others, oct_stage_name. */
extern const char oct_failure_parse[];   /* "parse": files and words are read */
extern const char oct_failure_resolve[]; /* "resolve": with the number of ranks */
extern const char oct_failure_step[];    /* "step" */

/* Strings are static. */
typedef struct oct_failure {
    const char *id;    /* of the row, unique: "15.4-hif8-delayed" */
    const char *rows;  /* rows of the requirements that it shows, separated by blanks */
    const char *wrong; /* what is wrong */
    oct_failure_base base;
    const char *words[OCT_FAILURE_WORDS]; /* key=value, on top of the base; up to NULL */
    const char *yaml;                     /* a file merged before the words; NULL: none */
    const char *toml;  /* a torchtitan job in place of the small model's, without its base and its
                          hf_config, which stands right before; NULL: none */
    const char *isa;   /* OCTET_ISA; NULL: as it is */
    const char *fault; /* OCTET_FAULT; NULL: none */
    int ranks;         /* 0: one */
    const char *stage; /* at which it stops */
    int step;          /* of stage "step": steps before it are whole */
    int exit_code;
    const char *holds[OCT_FAILURE_HOLDS]; /* parts of the message: what failed, the value found, the
                                             value required, key or FQN; up to NULL */
} oct_failure;

/* All rows; the last has id NULL. */
extern const oct_failure oct_failures[];

/* Is `row` (as "15.4") one of those that the failure shows? */
bool oct_failure_shows(const oct_failure *failure, const char *row);

#endif
