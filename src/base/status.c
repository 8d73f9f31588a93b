#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

oct_status oct_err_set(oct_err *err, oct_status code, const char *file, int line, const char *fmt,
                       ...)
{
    if (!err)
        return code;
    va_list args;
    va_start(args, fmt);
    err->code = code;
    err->file = file;
    err->line = line;
    (void)vsnprintf(err->msg, sizeof err->msg, fmt, args);
    va_end(args);
    return code;
}

oct_status oct_err_wrap(oct_err *err, oct_status code, const char *fmt, ...)
{
    if (!err)
        return code;
    char tail[sizeof err->msg];
    memcpy(tail, err->msg, sizeof tail);
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n + 2 >= sizeof err->msg)
        return code;
    err->msg[n] = ':';
    err->msg[n + 1] = ' ';
    const size_t room = sizeof err->msg - (size_t)n - 3;
    const size_t length = strnlen(tail, sizeof tail - 1);
    const size_t kept = length < room ? length : room;
    memcpy(err->msg + n + 2, tail, kept);
    err->msg[(size_t)n + 2 + kept] = '\0';
    return code;
}

const char *oct_status_name(oct_status code)
{
    switch (code) {
    case OCT_OK:
        return "ok";
    case OCT_E_API:
        return "api";
    case OCT_E_NOMEM:
        return "out of memory";
    case OCT_E_IO:
        return "io";
    case OCT_E_CORRUPT:
        return "corrupt";
    case OCT_E_CONFIG:
        return "config";
    case OCT_E_SHAPE:
        return "shape";
    case OCT_E_UNSUPPORTED:
        return "unsupported";
    case OCT_E_PLAN:
        return "plan";
    case OCT_E_NONFINITE:
        return "non-finite";
    case OCT_E_COMM:
        return "communication";
    case OCT_E_DATA:
        return "data";
    case OCT_E_INTERRUPTED:
        return "interrupted";
    case OCT_E_KERNEL:
        return "kernel";
    case OCT_E_CHECKPOINT:
        return "checkpoint";
    }
    return "unknown";
}
