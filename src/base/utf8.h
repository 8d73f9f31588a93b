/* Text from outside. */
#ifndef OCT_BASE_UTF8_H
#define OCT_BASE_UTF8_H

#include <stdbool.h>

/* Well-formed UTF-8 (RFC 3629): Python refuses anything else inside a str. */
bool oct_utf8_is_valid(const char *text);

/* Writes '?' over every byte that is in no well-formed character, such as those of a character that
 * was cut off: JSON holds nothing else than UTF-8. */
void oct_utf8_repair(char *text);

#endif
