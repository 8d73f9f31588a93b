#include "base/nearest.h"

#include <string.h>

enum { MAX_LENGTH = 255 };

size_t oct_edit_distance(const char *a, const char *b)
{
    const size_t length_a = strnlen(a, MAX_LENGTH), length_b = strnlen(b, MAX_LENGTH);
    size_t row[MAX_LENGTH + 1]; /* distances of the prefix of a to every prefix of b */
    for (size_t j = 0; j <= length_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= length_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            const size_t change = diagonal + (a[i - 1] != b[j - 1]);
            const size_t edge = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < edge ? change : edge;
        }
    }
    return row[length_b];
}
