#include "base/profile.h"

#include <time.h>

const char *oct_part_name(oct_part part)
{
    static const char *const names[OCT_PART_COUNT] = {
        "forward",    "backward",       "quantize",  "matmul",     "attention",
        "all_gather", "reduce_scatter", "optimizer", "checkpoint",
    };
    return names[part];
}

double oct_clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void oct_profile_add(oct_profile *profile, oct_part part, double started)
{
    if (profile)
        profile->seconds[part] += oct_clock_seconds() - started;
}
