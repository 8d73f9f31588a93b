#include "checkpoint/pickle.h"

#include <stdlib.h>
#include <string.h>

static void put(oct_pickle_writer *writer, const void *data, size_t bytes)
{
    if (writer->failed)
        return;
    if (writer->capacity - writer->bytes < bytes) {
        const size_t capacity = (writer->bytes + bytes) * 2 + 4096;
        unsigned char *grown = realloc(writer->data, capacity);
        if (!grown) {
            writer->failed = true;
            return;
        }
        writer->data = grown;
        writer->capacity = capacity;
    }
    memcpy(writer->data + writer->bytes, data, bytes);
    writer->bytes += bytes;
}

/* An opcode and a little-endian operand of `width` bytes. */
static void put_op_int(oct_pickle_writer *writer, char opcode, uint64_t operand, int width)
{
    unsigned char code[9] = {(unsigned char)opcode};
    for (int i = 0; i < width; i++)
        code[1 + i] = (unsigned char)(operand >> 8 * i);
    put(writer, code, 1 + (size_t)width);
}

void oct_pickle_writer_init(oct_pickle_writer *writer)
{
    *writer = (oct_pickle_writer){0};
    put(writer, "\x80\x02", 2);
}

void oct_pickle_writer_release(oct_pickle_writer *writer)
{
    free(writer->data);
    *writer = (oct_pickle_writer){0};
}

/* true if `text` was emitted before: a memo reference stands for it then. */
static bool put_memoised(oct_pickle_writer *writer, const char *text)
{
    for (int i = 0; i < writer->memo_count; i++) {
        if (strcmp(writer->memo[i], text) == 0) {
            put_op_int(writer, 'h', (uint64_t)i, 1); /* BINGET */
            return true;
        }
    }
    return false;
}

static void memoise(oct_pickle_writer *writer, const char *text)
{
    if (writer->memo_count == OCT_PICKLE_MAX_MEMO)
        return;
    put_op_int(writer, 'q', (uint64_t)writer->memo_count, 1); /* BINPUT */
    writer->memo[writer->memo_count++] = text;
}

void oct_pickle_put_global(oct_pickle_writer *writer, const char *path)
{
    if (put_memoised(writer, path))
        return;
    put(writer, "c", 1);
    put(writer, path, strlen(path));
    memoise(writer, path);
}

void oct_pickle_put_name(oct_pickle_writer *writer, const char *text)
{
    if (put_memoised(writer, text))
        return;
    oct_pickle_put_string(writer, text, strlen(text));
    memoise(writer, text);
}

void oct_pickle_put_string(oct_pickle_writer *writer, const char *text, size_t bytes)
{
    put_op_int(writer, 'X', bytes, 4); /* BINUNICODE */
    put(writer, text, bytes);
}

void oct_pickle_put_bytes(oct_pickle_writer *writer, const void *data, size_t bytes)
{
    put_op_int(writer, 'B', bytes,
               4); /* BINBYTES: newer than protocol 2, known to every Python 3 */
    put(writer, data, bytes);
}

void oct_pickle_put_int(oct_pickle_writer *writer, int64_t value)
{
    if (value >= 0 && value <= 0xff)
        put_op_int(writer, 'K', (uint64_t)value, 1); /* BININT1 */
    else if (value >= 0 && value <= 0xffff)
        put_op_int(writer, 'M', (uint64_t)value, 2); /* BININT2 */
    else if (value >= INT32_MIN && value <= INT32_MAX)
        put_op_int(writer, 'J', (uint64_t)value, 4); /* BININT */
    else {
        put(writer, "\x8a\x08", 2); /* LONG1 of 8 bytes, two's complement */
        unsigned char bytes[8];
        for (int i = 0; i < 8; i++)
            bytes[i] = (unsigned char)((uint64_t)value >> 8 * i);
        put(writer, bytes, sizeof bytes);
    }
}

void oct_pickle_put_float(oct_pickle_writer *writer, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    unsigned char code[9] = {'G'}; /* BINFLOAT: big endian */
    for (int i = 0; i < 8; i++)
        code[1 + i] = (unsigned char)(bits >> (56 - 8 * i));
    put(writer, code, sizeof code);
}

void oct_pickle_put_op(oct_pickle_writer *writer, char opcode)
{
    put(writer, &opcode, 1);
}

oct_status oct_pickle_finish(oct_pickle_writer *writer, oct_err *err)
{
    oct_pickle_put_op(writer, '.');
    if (writer->failed)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot write a pickle: no memory after %zu bytes",
                        writer->bytes);
    return OCT_OK;
}
