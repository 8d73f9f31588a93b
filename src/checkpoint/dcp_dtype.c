#include "checkpoint/dcp_dtype.h"

#include <string.h>

static const oct_dcp_dtype known_dtypes[] = {
    {"float32", "FloatStorage", 4},
    {"bfloat16", "BFloat16Storage", 2},
    {"float64", "DoubleStorage", 8},
    {"float16", "HalfStorage", 2},
    {"int64", "LongStorage", 8},
    {"int32", "IntStorage", 4},
    {"int16", "ShortStorage", 2},
    {"int8", "CharStorage", 1},
    {"uint8", "ByteStorage", 1},
    {"bool", "BoolStorage", 1},
    /* listed, never read: their storage has no class of its own or octet has no use for it */
    {"uint16", "", 2},
    {"uint32", "", 4},
    {"uint64", "", 8},
    {"float8_e4m3fn", "", 1},
    {"float8_e4m3fnuz", "", 1},
    {"float8_e5m2", "", 1},
    {"float8_e5m2fnuz", "", 1},
    {"complex64", "", 8},
    {"complex128", "", 16},
};

const oct_dcp_dtype *oct_dcp_dtype_find(const char *name)
{
    for (size_t i = 0; i < sizeof known_dtypes / sizeof *known_dtypes; i++)
        if (strcmp(known_dtypes[i].name, name) == 0)
            return &known_dtypes[i];
    return NULL;
}
