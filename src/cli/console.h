/* The progress line that torchtitan prints, for its jobs. */
#ifndef OCT_CLI_CONSOLE_H
#define OCT_CLI_CONSOLE_H

#include "trainer/build.h"
#include "trainer/metrics.h"

/* What a line is made of besides its row. Tokens, operations and their peak are those of one rank,
 * as there. */
typedef struct oct_console {
    int ranks;
    double flops_per_token; /* forward and backward, as torchtitan counts them */
    double peak_flops;      /* of BF16 products on this rank, per second: what MFU is a share of;
                             * 0: not measured */
    int64_t steps, tokens;  /* since the last line, of all ranks */
    double seconds;
} oct_console;

/* Before the first step: takes what it needs of the build, and measures BF16 products on its
 * threads for about a quarter of a second. */
oct_status oct_console_open(oct_console *console, const oct_build *build, oct_err *err);

/* Counts a row, shown or not. */
void oct_console_count(oct_console *console, const oct_step_metrics *row);

/* The line of the rows since the last one, without a newline; `row` is the newest. MFU is "n/a"
 * where the peak was not measured or is exceeded. */
enum { OCT_CONSOLE_LINE = 320 };
void oct_console_format(oct_console *console, const oct_step_metrics *row,
                        char out[OCT_CONSOLE_LINE]);

#endif
