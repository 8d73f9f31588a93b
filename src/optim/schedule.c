#include "optim/schedule.h"

#include <math.h>

oct_lr_schedule oct_lr_schedule_from_config(const oct_config *config)
{
    return (oct_lr_schedule){.total_steps = config->training.train_iters,
                             .warmup_steps = config->lr_scheduler.warmup_steps,
                             .decay_ratio = config->lr_scheduler.decay_ratio,
                             .decay_type = config->lr_scheduler.decay_type,
                             .min_factor = config->lr_scheduler.min_lr_factor};
}

/* Horner form of a Taylor polynomial in z = y^2, coefficients highest first. */
static double polynomial(const double *coefficients, int count, double z)
{
    double sum = coefficients[0];
    for (int i = 1; i < count; i++)
        sum = fma(sum, z, coefficients[i]);
    return sum;
}

/* cos y and sin y for |y| <= pi/4: the first term left out is below 1e-19. */
static double cos_small(double y)
{
    static const double terms[] = {1.0 / 20922789888000.0,
                                   -1.0 / 87178291200.0,
                                   1.0 / 479001600.0,
                                   -1.0 / 3628800.0,
                                   1.0 / 40320.0,
                                   -1.0 / 720.0,
                                   1.0 / 24.0,
                                   -1.0 / 2.0,
                                   1.0};
    return polynomial(terms, (int)(sizeof terms / sizeof *terms), y * y);
}

static double sin_small(double y)
{
    static const double terms[] = {1.0 / 355687428096000.0,
                                   -1.0 / 1307674368000.0,
                                   1.0 / 6227020800.0,
                                   -1.0 / 39916800.0,
                                   1.0 / 362880.0,
                                   -1.0 / 5040.0,
                                   1.0 / 120.0,
                                   -1.0 / 6.0,
                                   1.0};
    return y * polynomial(terms, (int)(sizeof terms / sizeof *terms), y * y);
}

double oct_cos_pi(double x)
{
    static const double pi = 3.14159265358979323846;
    if (x > 0.5)
        return -oct_cos_pi(1.0 - x); /* exact for x in [0.5, 1] */
    if (x > 0.25)
        return sin_small(pi * (0.5 - x));
    return cos_small(pi * x);
}

/* Nearest integer, ties to even, of x in [0, 2^52): Python's round. */
static int64_t round_half_even(double x)
{
    const double shift = 4503599627370496.0; /* 2^52: the sum has no fraction bits */
    return (int64_t)((x + shift) - shift);
}

static double decay(oct_decay_type type, double p)
{
    switch (type) {
    case OCT_DECAY_LINEAR:
        return 1.0 - p;
    case OCT_DECAY_SQRT:
        return 1.0 - sqrt(p);
    case OCT_DECAY_COSINE:
        return 0.5 * (1.0 + oct_cos_pi(p));
    case OCT_DECAY_CONSTANT:
        break;
    }
    return 1.0;
}

double oct_lr_factor(const oct_lr_schedule *schedule, int64_t step)
{
    const int64_t total = schedule->total_steps;
    const int64_t warmup = schedule->warmup_steps < total ? schedule->warmup_steps : total;
    int64_t decay_steps = total - warmup;
    if (schedule->decay_ratio >= 0.0) {
        const int64_t wanted = round_half_even((double)total * schedule->decay_ratio);
        if (wanted < decay_steps)
            decay_steps = wanted;
    }
    const int64_t stable = total + 1 - warmup - decay_steps;
    if (step < warmup)
        return (double)(step + 1) / (double)warmup;
    if (step < warmup + stable || decay_steps == 0)
        return 1.0;
    const double p = (double)(step + 1 - warmup - stable) / (double)decay_steps;
    if (schedule->decay_type == OCT_DECAY_CONSTANT)
        return 1.0;
    return schedule->min_factor +
           (1.0 - schedule->min_factor) * decay(schedule->decay_type, p < 1.0 ? p : 1.0);
}
