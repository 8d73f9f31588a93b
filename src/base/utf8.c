#include "base/utf8.h"

/* The bytes of the well-formed character that begins here; 0: none does. */
static int character(const unsigned char *c)
{
    const unsigned char lead = *c;
    const int more = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    if (more > 0 && (lead < 0xc2 || lead > 0xf4))
        return 0;
    for (int i = 1; i <= more; i++) {
        unsigned low = 0x80, high = 0xbf;
        if (i == 1 && lead == 0xe0)
            low = 0xa0;
        if (i == 1 && lead == 0xed)
            high = 0x9f;
        if (i == 1 && lead == 0xf0)
            low = 0x90;
        if (i == 1 && lead == 0xf4)
            high = 0x8f;
        if (c[i] < low || c[i] > high)
            return 0;
    }
    return more + 1;
}

bool oct_utf8_is_valid(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    while (*c) {
        const int bytes = character(c);
        if (bytes == 0)
            return false;
        c += bytes;
    }
    return true;
}

void oct_utf8_repair(char *text)
{
    unsigned char *c = (unsigned char *)text;
    while (*c) {
        const int bytes = character(c);
        if (bytes == 0)
            *c = '?';
        c += bytes ? bytes : 1;
    }
}
