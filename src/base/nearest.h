/* Edit distance, for messages that name what was probably meant. */
#ifndef OCT_BASE_NEAREST_H
#define OCT_BASE_NEAREST_H

#include <stddef.h>

/* Insertions, deletions and substitutions of bytes that turn a into b. Only the first 255 bytes of
 * either string count. */
size_t oct_edit_distance(const char *a, const char *b);

#endif
