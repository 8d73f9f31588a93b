/* The part of Python's pickle format that distributed checkpoints use. Reading never resolves a
 * name: globals are compared with a fixed list and kept as records, so no code can run. */
#ifndef OCT_CHECKPOINT_PICKLE_H
#define OCT_CHECKPOINT_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* --- writing ------------------------------------------------------------------------------- */

enum { OCT_PICKLE_MAX_MEMO = 64 };

/* Protocol 2. Owner of its bytes. The first failure (memory) is kept until oct_pickle_finish. */
typedef struct oct_pickle_writer {
    unsigned char *data;
    size_t bytes, capacity;
    bool failed;
    const char *memo[OCT_PICKLE_MAX_MEMO]; /* borrowed static strings, by memo number */
    int memo_count;
} oct_pickle_writer;

void oct_pickle_writer_init(oct_pickle_writer *writer); /* emits the protocol byte */
void oct_pickle_writer_release(oct_pickle_writer *writer);

/* `path` = "module\nname\n", a string that lives as long as the writer; the second use is a memo
 * reference. */
void oct_pickle_put_global(oct_pickle_writer *writer, const char *path);
/* A string constant that is memoised the same way. */
void oct_pickle_put_name(oct_pickle_writer *writer, const char *text);
void oct_pickle_put_string(oct_pickle_writer *writer, const char *text, size_t bytes);
void oct_pickle_put_bytes(oct_pickle_writer *writer, const void *data, size_t bytes);
void oct_pickle_put_int(oct_pickle_writer *writer, int64_t value);
void oct_pickle_put_float(oct_pickle_writer *writer, double value);
/* One opcode without operand, for instance '(' MARK, 't' TUPLE, 'u' SETITEMS. */
void oct_pickle_put_op(oct_pickle_writer *writer, char opcode);

/* Emits STOP. Errors: OCT_E_NOMEM. */
oct_status oct_pickle_finish(oct_pickle_writer *writer, oct_err *err) OCT_MUST_CHECK;

/* --- reading ------------------------------------------------------------------------------- */

/* The names that may appear, and nothing else. */
typedef enum oct_pickle_global {
    OCT_PICKLE_METADATA,
    OCT_PICKLE_TENSOR_STORAGE_METADATA,
    OCT_PICKLE_BYTES_STORAGE_METADATA,
    OCT_PICKLE_CHUNK_STORAGE_METADATA,
    OCT_PICKLE_TENSOR_PROPERTIES,
    OCT_PICKLE_METADATA_INDEX,
    OCT_PICKLE_STORAGE_META,
    OCT_PICKLE_MEM_FORMAT,
    OCT_PICKLE_STORAGE_INFO,
    OCT_PICKLE_SIZE,
    OCT_PICKLE_GET_LAYOUT,
    OCT_PICKLE_REBUILD_TENSOR,
    OCT_PICKLE_ORDERED_DICT,
    OCT_PICKLE_POSIX_PATH,
    OCT_PICKLE_DTYPE,  /* torch.float32, ...: text says which */
    OCT_PICKLE_STORAGE /* torch.FloatStorage, ...: text says which */
} oct_pickle_global;

typedef enum oct_pickle_kind {
    OCT_PICKLE_NONE,
    OCT_PICKLE_BOOL,
    OCT_PICKLE_INT,
    OCT_PICKLE_FLOAT,
    OCT_PICKLE_STRING,
    OCT_PICKLE_BYTES,
    OCT_PICKLE_TUPLE,
    OCT_PICKLE_LIST,
    OCT_PICKLE_DICT,
    OCT_PICKLE_NAME,   /* a global */
    OCT_PICKLE_OBJECT, /* NEWOBJ of a class, with its BUILD state or NULL */
    OCT_PICKLE_CALL,   /* REDUCE: callable and arguments, kept unevaluated */
    OCT_PICKLE_PERSID
} oct_pickle_kind;

typedef struct oct_pickle_value oct_pickle_value;
struct oct_pickle_value {
    oct_pickle_kind kind;
    oct_pickle_global global; /* NAME; of the class or callable of OBJECT and CALL */
    union {
        int64_t integer; /* INT, BOOL */
        double real;
        struct {
            const char *data; /* STRING (0-terminated as well), BYTES, NAME (last part) */
            int64_t bytes;
        } text;
        struct { /* TUPLE, LIST; DICT: key, value, key, value, ... */
            oct_pickle_value **items;
            int64_t count, capacity;
        } list;
        struct {
            oct_pickle_value *args; /* CALL, OBJECT: a tuple; PERSID: the id */
            oct_pickle_value *state;
        } object;
    } u;
};

enum {
    OCT_PICKLE_MAX_BYTES = 64 << 20,
    OCT_PICKLE_MAX_VALUES = 8 << 20,
    OCT_PICKLE_MAX_STACK = 1 << 20
};

/* Parses one pickle that fills `data` exactly. Values live in `arena`. `where` names it in
 * messages. Errors: OCT_E_CORRUPT (opcode, name, bound, with the byte offset), OCT_E_NOMEM. */
oct_status oct_pickle_parse(const unsigned char *data, size_t bytes, const char *where,
                            oct_arena *arena, oct_pickle_value **out, oct_err *err) OCT_MUST_CHECK;

/* The value of a string key of a DICT, or NULL (also if `dict` is NULL or no dict). */
const oct_pickle_value *oct_pickle_get(const oct_pickle_value *dict, const char *key);

/* true and the numbers, if `value` is torch.Size(...), a tuple or a list of at most `max` ints. */
bool oct_pickle_ints(const oct_pickle_value *value, int max, int64_t *out, int *count);

#endif
