#include "verify/curves.h"

#include <math.h>
#include <stdbool.h>

static double value_of(const json_t *rows, size_t at, const char *key)
{
    const json_t *value = json_object_get(json_array_get(rows, at), key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static double mean(const json_t *rows, size_t first, const char *key)
{
    double sum = 0.0;
    for (size_t i = first; i < first + OCT_CURVE_WINDOW; i++)
        sum += value_of(rows, i, key);
    return sum / OCT_CURVE_WINDOW;
}

const char *oct_curve_fault(const json_t *rows)
{
    const size_t count = json_array_size(rows);
    bool moves = false;
    if (count < 2 * OCT_CURVE_WINDOW)
        return OCT_CURVE_SHORT;
    for (size_t i = 0; i < count; i++) {
        const double loss = value_of(rows, i, "loss"), norm = value_of(rows, i, "grad_norm");
        if (!isfinite(loss) || !isfinite(norm))
            return OCT_CURVE_NONFINITE;
        moves = moves || loss != value_of(rows, 0, "loss");
    }
    const size_t last = count - OCT_CURVE_WINDOW;
    if (!moves)
        return OCT_CURVE_FROZEN;
    if (mean(rows, last, "grad_norm") > 10.0 * mean(rows, 0, "grad_norm"))
        return OCT_CURVE_NORM_UP;
    if (mean(rows, last, "loss") >= mean(rows, 0, "loss"))
        return OCT_CURVE_LOSS_UP;
    return NULL;
}
