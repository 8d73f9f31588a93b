/* Memory that a run does not give back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/judge.h"

static double peak_of(const oct_verify_run *run, size_t row)
{
    return json_number_value(
        json_object_get(json_array_get(run->metrics, row), "peak_memory_bytes"));
}

/* The step after which a run saves for the first time; 0: only at its end. */
static size_t first_save(const oct_verify_run *run)
{
    static const char word[] = "checkpoint.save_steps=";
    const char *at = strstr(run->key, word);
    return at ? (size_t)strtoul(at + strlen(word), NULL, 10) : 0;
}

void oct_judge_growth(const oct_verify_run *run, json_t *result)
{
    const size_t rows = json_array_size(run->metrics);
    if (rows < 10)
        return;
    char what[OCT_VERIFY_NAME_BYTES + 64];
    const size_t save = first_save(run);
    const size_t end = save > 0 && save < rows ? save : rows;
    const double middle = peak_of(run, end / 2), last = peak_of(run, end - 1);
    const double saved = end < rows ? peak_of(run, end) : last, after = peak_of(run, rows - 1);
    (void)snprintf(what, sizeof what, "%s: peak memory", run->name);
    (void)oct_verify_check(result, last <= 1.05 * middle && (end == rows || after <= 1.05 * saved),
                           what,
                           "grows by 5 % at most in the second half of the run, and after a save",
                           "%.1f MB in the middle, %.1f MB before a save or the end, %.1f MB after "
                           "it, %.1f MB at the end",
                           1e-6 * middle, 1e-6 * last, 1e-6 * saved, 1e-6 * after);
}
