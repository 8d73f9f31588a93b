#include <string.h>

#include "base/size.h"
#include "plan/plan.h"

bool oct_pattern_match(const char *pattern, const char *name)
{
    /* Greedy with one point to come back to: the last star of the segment. */
    const char *star = NULL, *resume = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            resume = name;
        } else if (*pattern == *name) {
            if (*name == '.')
                star = NULL; /* a star never takes a dot, so earlier choices are final */
            pattern++;
            name++;
        } else if (star && *resume != '.') {
            pattern = star + 1;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

enum { MAX_COMPARED = 256 }; /* characters of a name that count for the distance */

int64_t oct_pattern_distance(const char *pattern, const char *name)
{
    /* Levenshtein distance by rows of the pattern; in a star's row taking one more character of the
     * name is free unless it is a dot. */
    int64_t row[MAX_COMPARED + 1];
    const size_t length = strlen(name);
    const size_t n = length < MAX_COMPARED ? length : MAX_COMPARED;
    for (size_t j = 0; j <= n; j++)
        row[j] = (int64_t)j;
    for (; *pattern; pattern++) {
        const bool star = *pattern == '*';
        int64_t diagonal = row[0];
        row[0] += star ? 0 : 1;
        for (size_t j = 1; j <= n; j++) {
            const int64_t above = row[j];
            int64_t best = above + (star ? 0 : 1);
            best = oct_min_i64(best, row[j - 1] + (star && name[j - 1] != '.' ? 0 : 1));
            if (!star)
                best = oct_min_i64(best, diagonal + (*pattern == name[j - 1] ? 0 : 1));
            row[j] = best;
            diagonal = above;
        }
    }
    return row[n];
}
