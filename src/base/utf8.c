#include "base/utf8.h"

bool oct_utf8_is_valid(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    while (*c) {
        const int more = *c < 0x80 ? 0 : *c < 0xc2 ? -1 : *c < 0xe0 ? 1 : *c < 0xf0 ? 2 : 3;
        if (more < 0 || *c > 0xf4)
            return false;
        const unsigned char lead = *c++;
        for (int i = 0; i < more; i++, c++) {
            unsigned low = 0x80, high = 0xbf;
            if (i == 0 && lead == 0xe0)
                low = 0xa0;
            if (i == 0 && lead == 0xed)
                high = 0x9f;
            if (i == 0 && lead == 0xf0)
                low = 0x90;
            if (i == 0 && lead == 0xf4)
                high = 0x8f;
            if (*c < low || *c > high)
                return false;
        }
    }
    return true;
}
