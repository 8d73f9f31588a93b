#include "base/profile.h"

#include <stdbool.h>
#include <time.h>

const char *oct_part_name(oct_part part)
{
    static const char *const names[OCT_PART_COUNT] = {
        [OCT_PART_REST] = "rest",
        [OCT_PART_FORWARD] = "forward",
        [OCT_PART_BACKWARD] = "backward",
        [OCT_PART_QUANTIZE] = "quantize",
        [OCT_PART_PACK] = "pack",
        [OCT_PART_FPROP] = "fprop",
        [OCT_PART_DGRAD] = "dgrad",
        [OCT_PART_WGRAD] = "wgrad",
        [OCT_PART_HEAD] = "head",
        [OCT_PART_ATTENTION] = "attention",
        [OCT_PART_ELEMENTWISE] = "elementwise",
        [OCT_PART_ROUTING] = "routing",
        [OCT_PART_ALL_GATHER] = "all_gather",
        [OCT_PART_REDUCE_SCATTER] = "reduce_scatter",
        [OCT_PART_OPTIMIZER] = "optimizer",
        [OCT_PART_CHECKPOINT] = "checkpoint",
    };
    return names[part];
}

double oct_clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool owns_what_is_nested(oct_part part)
{
    return part == OCT_PART_HEAD || part == OCT_PART_ROUTING || part == OCT_PART_OPTIMIZER ||
           part == OCT_PART_CHECKPOINT;
}

static bool is_communication(oct_part part)
{
    return part == OCT_PART_ALL_GATHER || part == OCT_PART_REDUCE_SCATTER;
}

/* From `now` on time is `owner`'s. Outside every span nothing is booked: a profile starts there,
 * at no known time. */
static void pass_on(oct_profile *profile, oct_part owner, double now)
{
    if (profile->owner != OCT_PART_REST)
        profile->own[profile->owner] += now - profile->since;
    profile->owner = owner;
    profile->since = now;
}

oct_span oct_profile_begin(oct_profile *profile, oct_part part)
{
    oct_span span = {.part = part, .owner = part};
    if (!profile)
        return span;
    span.started = oct_clock_seconds();
    span.previous = profile->owner;
    if (owns_what_is_nested(profile->owner) && !is_communication(part))
        span.owner = profile->owner;
    pass_on(profile, span.owner, span.started);
    return span;
}

void oct_profile_end(oct_profile *profile, oct_span span)
{
    if (!profile)
        return;
    const double now = oct_clock_seconds();
    profile->seconds[span.part] += now - span.started;
    pass_on(profile, span.previous, now);
}

void oct_profile_move(oct_profile *profile, oct_span span, oct_part part, double seconds)
{
    if (!profile)
        return;
    profile->seconds[span.part] -= seconds;
    profile->seconds[part] += seconds;
    if (span.owner != span.part)
        return;
    profile->own[span.part] -= seconds;
    profile->own[part] += seconds;
}
