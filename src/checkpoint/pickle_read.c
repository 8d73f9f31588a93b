#include "checkpoint/pickle.h"

#include <stdlib.h>
#include <string.h>

/* --- names --------------------------------------------------------------------------------- */

typedef struct known_global {
    const char *module, *name;
    oct_pickle_global global;
} known_global;

static const char DCP[] = "torch.distributed.checkpoint.metadata";

static const known_global known_globals[] = {
    {DCP, "Metadata", OCT_PICKLE_METADATA},
    {DCP, "TensorStorageMetadata", OCT_PICKLE_TENSOR_STORAGE_METADATA},
    {DCP, "BytesStorageMetadata", OCT_PICKLE_BYTES_STORAGE_METADATA},
    {DCP, "ChunkStorageMetadata", OCT_PICKLE_CHUNK_STORAGE_METADATA},
    {DCP, "TensorProperties", OCT_PICKLE_TENSOR_PROPERTIES},
    {DCP, "MetadataIndex", OCT_PICKLE_METADATA_INDEX},
    {DCP, "StorageMeta", OCT_PICKLE_STORAGE_META},
    {DCP, "_MEM_FORMAT_ENCODING", OCT_PICKLE_MEM_FORMAT},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo", OCT_PICKLE_STORAGE_INFO},
    {"torch", "Size", OCT_PICKLE_SIZE},
    {"torch.serialization", "_get_layout", OCT_PICKLE_GET_LAYOUT},
    {"torch._utils", "_rebuild_tensor_v2", OCT_PICKLE_REBUILD_TENSOR},
    {"collections", "OrderedDict", OCT_PICKLE_ORDERED_DICT},
    {"pathlib", "PosixPath", OCT_PICKLE_POSIX_PATH},
    {"pathlib._local", "PosixPath", OCT_PICKLE_POSIX_PATH},
    {"torch", "float64", OCT_PICKLE_DTYPE},
    {"torch", "float32", OCT_PICKLE_DTYPE},
    {"torch", "float16", OCT_PICKLE_DTYPE},
    {"torch", "bfloat16", OCT_PICKLE_DTYPE},
    {"torch", "int64", OCT_PICKLE_DTYPE},
    {"torch", "int32", OCT_PICKLE_DTYPE},
    {"torch", "int16", OCT_PICKLE_DTYPE},
    {"torch", "int8", OCT_PICKLE_DTYPE},
    {"torch", "uint8", OCT_PICKLE_DTYPE},
    {"torch", "bool", OCT_PICKLE_DTYPE},
    {"torch", "uint16", OCT_PICKLE_DTYPE},
    {"torch", "uint32", OCT_PICKLE_DTYPE},
    {"torch", "uint64", OCT_PICKLE_DTYPE},
    {"torch", "float8_e4m3fn", OCT_PICKLE_DTYPE},
    {"torch", "float8_e4m3fnuz", OCT_PICKLE_DTYPE},
    {"torch", "float8_e5m2", OCT_PICKLE_DTYPE},
    {"torch", "float8_e5m2fnuz", OCT_PICKLE_DTYPE},
    {"torch", "complex64", OCT_PICKLE_DTYPE},
    {"torch", "complex128", OCT_PICKLE_DTYPE},
    {"torch", "DoubleStorage", OCT_PICKLE_STORAGE},
    {"torch", "FloatStorage", OCT_PICKLE_STORAGE},
    {"torch", "HalfStorage", OCT_PICKLE_STORAGE},
    {"torch", "BFloat16Storage", OCT_PICKLE_STORAGE},
    {"torch", "LongStorage", OCT_PICKLE_STORAGE},
    {"torch", "IntStorage", OCT_PICKLE_STORAGE},
    {"torch", "ShortStorage", OCT_PICKLE_STORAGE},
    {"torch", "CharStorage", OCT_PICKLE_STORAGE},
    {"torch", "ByteStorage", OCT_PICKLE_STORAGE},
    {"torch", "BoolStorage", OCT_PICKLE_STORAGE},
};

/* What NEWOBJ may make and REDUCE may call. */
static bool is_class(oct_pickle_global global)
{
    return global <= OCT_PICKLE_STORAGE_META || global == OCT_PICKLE_STORAGE_INFO;
}

static bool is_callable(oct_pickle_global global)
{
    return global == OCT_PICKLE_SIZE || global == OCT_PICKLE_GET_LAYOUT ||
           global == OCT_PICKLE_REBUILD_TENSOR || global == OCT_PICKLE_ORDERED_DICT ||
           global == OCT_PICKLE_POSIX_PATH || global == OCT_PICKLE_MEM_FORMAT;
}

/* --- the machine --------------------------------------------------------------------------- */

typedef struct parser {
    const unsigned char *data;
    size_t bytes, at;
    size_t op_at; /* offset of the current opcode, for messages */
    const char *where;
    oct_arena *arena;
    int64_t values;
    oct_pickle_value **stack; /* NULL is a MARK */
    int64_t depth, stack_capacity;
    oct_pickle_value **memo;
    int64_t memo_count, memo_capacity;
    oct_pickle_value *none, *yes, *no;
} parser;

static oct_status bad(const parser *p, const char *what, oct_err *err)
{
    return OCT_FAIL(err, OCT_E_CORRUPT, "cannot read the pickle of '%s': %s (byte %zu)", p->where,
                    what, p->op_at);
}

static oct_status take(parser *p, size_t bytes, const unsigned char **out, oct_err *err)
{
    if (bytes > p->bytes - p->at)
        return bad(p, "it ends inside an operand", err);
    *out = p->data + p->at;
    p->at += bytes;
    return OCT_OK;
}

/* A little-endian operand of 1, 2, 4 or 8 bytes. */
static oct_status take_uint(parser *p, size_t width, uint64_t *out, oct_err *err)
{
    const unsigned char *from = NULL;
    OCT_TRY(take(p, width, &from, err));
    *out = 0;
    for (size_t i = 0; i < width; i++)
        *out |= (uint64_t)from[i] << 8 * i;
    return OCT_OK;
}

static oct_status new_value(parser *p, oct_pickle_kind kind, oct_pickle_value **out, oct_err *err)
{
    if (++p->values > OCT_PICKLE_MAX_VALUES)
        return bad(p, "more values than are allowed", err);
    void *memory = NULL;
    OCT_TRY(oct_arena_zalloc(p->arena, sizeof **out, &memory, err));
    *out = memory;
    (*out)->kind = kind;
    return OCT_OK;
}

/* Room for one more pointer in an array on the heap. */
static oct_status grow(const parser *p, oct_pickle_value ***array, int64_t count, int64_t *capacity,
                       oct_err *err)
{
    if (count < *capacity)
        return OCT_OK;
    const int64_t wanted = *capacity * 2 + 256;
    oct_pickle_value **grown = realloc(*array, (size_t)wanted * sizeof *grown);
    if (!grown)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot read the pickle of '%s': no memory", p->where);
    *array = grown;
    *capacity = wanted;
    return OCT_OK;
}

static oct_status push(parser *p, oct_pickle_value *value, oct_err *err)
{
    if (p->depth == OCT_PICKLE_MAX_STACK)
        return bad(p, "the stack is too deep", err);
    OCT_TRY(grow(p, &p->stack, p->depth, &p->stack_capacity, err));
    p->stack[p->depth++] = value;
    return OCT_OK;
}

static oct_status pop(parser *p, oct_pickle_value **out, oct_err *err)
{
    if (p->depth == 0 || !p->stack[p->depth - 1])
        return bad(p, "a value is missing on the stack", err);
    *out = p->stack[--p->depth];
    return OCT_OK;
}

static oct_status top(const parser *p, oct_pickle_value **out, oct_err *err)
{
    if (p->depth == 0 || !p->stack[p->depth - 1])
        return bad(p, "a value is missing on the stack", err);
    *out = p->stack[p->depth - 1];
    return OCT_OK;
}

/* Pops down to the last MARK; the items stay readable above the new top until the next push. */
static oct_status pop_mark(parser *p, oct_pickle_value ***items, int64_t *count, oct_err *err)
{
    int64_t mark = p->depth - 1;
    while (mark >= 0 && p->stack[mark])
        mark--;
    if (mark < 0)
        return bad(p, "no mark on the stack", err);
    *items = p->stack + mark + 1;
    *count = p->depth - mark - 1;
    p->depth = mark;
    return OCT_OK;
}

static oct_status append(parser *p, oct_pickle_value *list, oct_pickle_value *item, oct_err *err)
{
    if (list->u.list.count == list->u.list.capacity) {
        const int64_t capacity = list->u.list.capacity * 2 + 4;
        void *memory = NULL;
        OCT_TRY(oct_arena_array(p->arena, capacity, sizeof item, &memory, err));
        if (list->u.list.count > 0)
            memcpy(memory, list->u.list.items, (size_t)list->u.list.count * sizeof item);
        list->u.list.items = memory;
        list->u.list.capacity = capacity;
    }
    list->u.list.items[list->u.list.count++] = item;
    return OCT_OK;
}

static oct_status push_text(parser *p, oct_pickle_kind kind, uint64_t bytes, oct_err *err)
{
    const unsigned char *from = NULL;
    oct_pickle_value *value = NULL;
    void *copy = NULL;
    if (bytes > p->bytes)
        return bad(p, "a string is longer than the pickle", err);
    OCT_TRY(take(p, (size_t)bytes, &from, err));
    OCT_TRY(new_value(p, kind, &value, err));
    OCT_TRY(oct_arena_alloc(p->arena, (size_t)bytes + 1, &copy, err));
    memcpy(copy, from, (size_t)bytes);
    ((char *)copy)[bytes] = '\0';
    if (kind == OCT_PICKLE_STRING && strlen(copy) != bytes)
        return bad(p, "a string holds a zero byte", err);
    value->u.text.data = copy;
    value->u.text.bytes = (int64_t)bytes;
    return push(p, value, err);
}

static oct_status push_int(parser *p, int64_t integer, oct_err *err)
{
    oct_pickle_value *value = NULL;
    OCT_TRY(new_value(p, OCT_PICKLE_INT, &value, err));
    value->u.integer = integer;
    return push(p, value, err);
}

static oct_status push_tuple(parser *p, oct_pickle_value **items, int64_t count, oct_err *err)
{
    oct_pickle_value *value = NULL;
    OCT_TRY(new_value(p, OCT_PICKLE_TUPLE, &value, err));
    for (int64_t i = 0; i < count; i++)
        OCT_TRY(append(p, value, items[i], err));
    return push(p, value, err);
}

static oct_status push_global(parser *p, const char *module, size_t module_bytes, const char *name,
                              size_t name_bytes, oct_err *err)
{
    for (size_t i = 0; i < sizeof known_globals / sizeof *known_globals; i++) {
        const known_global *known = &known_globals[i];
        if (strlen(known->module) != module_bytes || strlen(known->name) != name_bytes ||
            memcmp(known->module, module, module_bytes) != 0 ||
            memcmp(known->name, name, name_bytes) != 0)
            continue;
        oct_pickle_value *value = NULL;
        OCT_TRY(new_value(p, OCT_PICKLE_NAME, &value, err));
        value->global = known->global;
        value->u.text.data = known->name;
        value->u.text.bytes = (int64_t)name_bytes;
        return push(p, value, err);
    }
    return OCT_FAIL(err, OCT_E_CORRUPT,
                    "cannot read the pickle of '%s': global '%.*s.%.*s', only the classes of a "
                    "checkpoint are allowed (byte %zu)",
                    p->where, (int)(module_bytes < 80 ? module_bytes : 80), module,
                    (int)(name_bytes < 80 ? name_bytes : 80), name, p->op_at);
}

/* GLOBAL: two lines of text. */
static oct_status op_global(parser *p, oct_err *err)
{
    const char *lines[2];
    size_t lengths[2];
    for (int i = 0; i < 2; i++) {
        const unsigned char *from = p->data + p->at;
        const unsigned char *newline = memchr(from, '\n', p->bytes - p->at);
        if (!newline)
            return bad(p, "a global's name does not end", err);
        lines[i] = (const char *)from;
        lengths[i] = (size_t)(newline - from);
        p->at += lengths[i] + 1;
    }
    return push_global(p, lines[0], lengths[0], lines[1], lengths[1], err);
}

static oct_status op_stack_global(parser *p, oct_err *err)
{
    oct_pickle_value *name = NULL, *module = NULL;
    OCT_TRY(pop(p, &name, err));
    OCT_TRY(pop(p, &module, err));
    if (name->kind != OCT_PICKLE_STRING || module->kind != OCT_PICKLE_STRING)
        return bad(p, "a global's name is no string", err);
    return push_global(p, module->u.text.data, (size_t)module->u.text.bytes, name->u.text.data,
                       (size_t)name->u.text.bytes, err);
}

/* NEWOBJ and REDUCE: class or callable, then a tuple. */
static oct_status op_apply(parser *p, oct_pickle_kind kind, oct_err *err)
{
    oct_pickle_value *args = NULL, *callee = NULL, *value = NULL;
    OCT_TRY(pop(p, &args, err));
    OCT_TRY(pop(p, &callee, err));
    if (callee->kind != OCT_PICKLE_NAME || args->kind != OCT_PICKLE_TUPLE ||
        !(kind == OCT_PICKLE_OBJECT ? is_class(callee->global) : is_callable(callee->global)))
        return bad(p, "it calls what may not be called", err);
    OCT_TRY(new_value(p, kind, &value, err));
    value->global = callee->global;
    value->u.object.args = args;
    return push(p, value, err);
}

static oct_status op_build(parser *p, oct_err *err)
{
    oct_pickle_value *state = NULL, *object = NULL;
    OCT_TRY(pop(p, &state, err));
    OCT_TRY(top(p, &object, err));
    if (object->kind != OCT_PICKLE_OBJECT || object->u.object.state)
        return bad(p, "state for what is no new object", err);
    object->u.object.state = state;
    return OCT_OK;
}

static oct_status set_items(parser *p, oct_pickle_value **items, int64_t count, oct_err *err)
{
    oct_pickle_value *dict = NULL;
    OCT_TRY(top(p, &dict, err));
    if (dict->kind != OCT_PICKLE_DICT || count % 2 != 0)
        return bad(p, "items for what is no dict", err);
    for (int64_t i = 0; i < count; i++)
        OCT_TRY(append(p, dict, items[i], err));
    return OCT_OK;
}

static oct_status append_items(parser *p, oct_pickle_value **items, int64_t count, oct_err *err)
{
    oct_pickle_value *list = NULL;
    OCT_TRY(top(p, &list, err));
    if (list->kind != OCT_PICKLE_LIST)
        return bad(p, "items for what is no list", err);
    for (int64_t i = 0; i < count; i++)
        OCT_TRY(append(p, list, items[i], err));
    return OCT_OK;
}

/* Memo numbers are dense: every pickler uses the current size of its memo. */
static oct_status memo_put(parser *p, uint64_t index, oct_err *err)
{
    oct_pickle_value *value = NULL;
    OCT_TRY(top(p, &value, err));
    if (index > (uint64_t)p->memo_count)
        return bad(p, "a memo number is out of order", err);
    if (index < (uint64_t)p->memo_count) {
        p->memo[index] = value;
        return OCT_OK;
    }
    OCT_TRY(grow(p, &p->memo, p->memo_count, &p->memo_capacity, err));
    p->memo[p->memo_count++] = value;
    return OCT_OK;
}

static oct_status memo_get(parser *p, uint64_t index, oct_err *err)
{
    if (index >= (uint64_t)p->memo_count)
        return bad(p, "a memo number is not in use", err);
    return push(p, p->memo[index], err);
}

static oct_status op_long1(parser *p, oct_err *err)
{
    uint64_t width = 0, bits = 0;
    OCT_TRY(take_uint(p, 1, &width, err));
    if (width > 8)
        return bad(p, "an integer of more than 64 bits", err);
    OCT_TRY(take_uint(p, (size_t)width, &bits, err));
    if (width > 0 && width < 8 && (bits >> (8 * width - 1) & 1))
        bits |= ~(uint64_t)0 << 8 * width;
    return push_int(p, (int64_t)bits, err);
}

static oct_status op_float(parser *p, oct_err *err)
{
    const unsigned char *from = NULL;
    oct_pickle_value *value = NULL;
    OCT_TRY(take(p, 8, &from, err));
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | from[i];
    OCT_TRY(new_value(p, OCT_PICKLE_FLOAT, &value, err));
    memcpy(&value->u.real, &bits, sizeof bits);
    return push(p, value, err);
}

static oct_status op_persid(parser *p, oct_err *err)
{
    oct_pickle_value *id = NULL, *value = NULL;
    OCT_TRY(pop(p, &id, err));
    OCT_TRY(new_value(p, OCT_PICKLE_PERSID, &value, err));
    value->u.object.args = id;
    return push(p, value, err);
}

static oct_status push_new(parser *p, oct_pickle_kind kind, oct_err *err)
{
    oct_pickle_value *value = NULL;
    OCT_TRY(new_value(p, kind, &value, err));
    return push(p, value, err);
}

/* TUPLE1, TUPLE2, TUPLE3. */
static oct_status op_short_tuple(parser *p, int64_t count, oct_err *err)
{
    oct_pickle_value *items[3] = {NULL};
    for (int64_t i = count; i-- > 0;)
        OCT_TRY(pop(p, &items[i], err));
    return push_tuple(p, items, count, err);
}

static oct_status op_single(parser *p, bool is_dict, oct_err *err)
{
    oct_pickle_value *items[2] = {NULL};
    const int64_t count = is_dict ? 2 : 1;
    for (int64_t i = count; i-- > 0;)
        OCT_TRY(pop(p, &items[i], err));
    return is_dict ? set_items(p, items, count, err) : append_items(p, items, count, err);
}

/* Opcodes with a little-endian number as operand. */
static oct_status op_number(parser *p, unsigned char opcode, size_t width, oct_err *err)
{
    uint64_t number = 0;
    OCT_TRY(take_uint(p, width, &number, err));
    switch (opcode) {
    case 'K': /* BININT1 */
    case 'M': /* BININT2 */
        return push_int(p, (int64_t)number, err);
    case 'J': /* BININT */
        return push_int(p, (int32_t)(uint32_t)number, err);
    case 'X':  /* BINUNICODE */
    case 0x8c: /* SHORT_BINUNICODE */
        return push_text(p, OCT_PICKLE_STRING, number, err);
    case 'B': /* BINBYTES */
    case 'C': /* SHORT_BINBYTES */
        return push_text(p, OCT_PICKLE_BYTES, number, err);
    case 'q': /* BINPUT */
    case 'r': /* LONG_BINPUT */
        return memo_put(p, number, err);
    case 'h': /* BINGET */
    case 'j': /* LONG_BINGET */
        return memo_get(p, number, err);
    default: /* FRAME: a length that only helps streaming */
        return number <= p->bytes - p->at ? OCT_OK : bad(p, "a frame is too long", err);
    }
}

static oct_status op_marked(parser *p, unsigned char opcode, oct_err *err)
{
    oct_pickle_value **items = NULL;
    int64_t count = 0;
    OCT_TRY(pop_mark(p, &items, &count, err));
    if (opcode == 't') /* TUPLE */
        return push_tuple(p, items, count, err);
    if (opcode == 'u') /* SETITEMS */
        return set_items(p, items, count, err);
    return append_items(p, items, count, err); /* APPENDS */
}

static oct_status run_opcode(parser *p, unsigned char opcode, oct_err *err)
{
    switch (opcode) {
    case '(': /* MARK */
        return push(p, NULL, err);
    case 'N':
        return push(p, p->none, err);
    case 0x88: /* NEWTRUE */
        return push(p, p->yes, err);
    case 0x89: /* NEWFALSE */
        return push(p, p->no, err);
    case ')':
        return push_new(p, OCT_PICKLE_TUPLE, err);
    case '}':
        return push_new(p, OCT_PICKLE_DICT, err);
    case ']':
        return push_new(p, OCT_PICKLE_LIST, err);
    case 'K':
    case 'h':
    case 'q':
    case 'C':
    case 0x8c:
        return op_number(p, opcode, 1, err);
    case 'M':
        return op_number(p, opcode, 2, err);
    case 'J':
    case 'X':
    case 'B':
    case 'j':
    case 'r':
        return op_number(p, opcode, 4, err);
    case 0x95: /* FRAME */
        return op_number(p, opcode, 8, err);
    case 0x8a: /* LONG1 */
        return op_long1(p, err);
    case 'G': /* BINFLOAT */
        return op_float(p, err);
    case 't':
    case 'u':
    case 'e':
        return op_marked(p, opcode, err);
    case 0x85: /* TUPLE1 */
    case 0x86: /* TUPLE2 */
    case 0x87: /* TUPLE3 */
        return op_short_tuple(p, opcode - 0x84, err);
    case 'a': /* APPEND */
        return op_single(p, false, err);
    case 's': /* SETITEM */
        return op_single(p, true, err);
    case 'c': /* GLOBAL */
        return op_global(p, err);
    case 0x93: /* STACK_GLOBAL */
        return op_stack_global(p, err);
    case 0x81: /* NEWOBJ */
        return op_apply(p, OCT_PICKLE_OBJECT, err);
    case 'R': /* REDUCE */
        return op_apply(p, OCT_PICKLE_CALL, err);
    case 'b': /* BUILD */
        return op_build(p, err);
    case 'Q': /* BINPERSID */
        return op_persid(p, err);
    case 0x94: /* MEMOIZE */
        return memo_put(p, (uint64_t)p->memo_count, err);
    default:
        break;
    }
    return OCT_FAIL(err, OCT_E_CORRUPT,
                    "cannot read the pickle of '%s': opcode %02x is not allowed (byte %zu)",
                    p->where, opcode, p->op_at);
}

static oct_status run(parser *p, oct_pickle_value **out, oct_err *err)
{
    const unsigned char *from = NULL;
    OCT_TRY(take(p, 2, &from, err));
    if (from[0] != 0x80 || from[1] < 2 || from[1] > 5)
        return bad(p, "no pickle of protocol 2 to 5", err);
    OCT_TRY(new_value(p, OCT_PICKLE_NONE, &p->none, err));
    OCT_TRY(new_value(p, OCT_PICKLE_BOOL, &p->yes, err));
    OCT_TRY(new_value(p, OCT_PICKLE_BOOL, &p->no, err));
    p->yes->u.integer = 1;
    for (;;) {
        p->op_at = p->at;
        OCT_TRY(take(p, 1, &from, err));
        if (*from == '.') /* STOP */
            break;
        OCT_TRY(run_opcode(p, *from, err));
    }
    OCT_TRY(pop(p, out, err));
    if (p->depth != 0 || p->at != p->bytes)
        return bad(p, "values or bytes are left over at its end", err);
    return OCT_OK;
}

oct_status oct_pickle_parse(const unsigned char *data, size_t bytes, const char *where,
                            oct_arena *arena, oct_pickle_value **out, oct_err *err)
{
    if (bytes > OCT_PICKLE_MAX_BYTES)
        return OCT_FAIL(err, OCT_E_CORRUPT,
                        "cannot read the pickle of '%s': %zu bytes, at most %d are allowed", where,
                        bytes, OCT_PICKLE_MAX_BYTES);
    parser p = {.data = data, .bytes = bytes, .where = where, .arena = arena};
    const oct_status status = run(&p, out, err);
    free(p.stack);
    free(p.memo);
    return status;
}

const oct_pickle_value *oct_pickle_get(const oct_pickle_value *dict, const char *key)
{
    if (!dict || dict->kind != OCT_PICKLE_DICT)
        return NULL;
    for (int64_t i = 0; i + 1 < dict->u.list.count; i += 2) {
        const oct_pickle_value *name = dict->u.list.items[i];
        if (name->kind == OCT_PICKLE_STRING && strcmp(name->u.text.data, key) == 0)
            return dict->u.list.items[i + 1];
    }
    return NULL;
}

bool oct_pickle_ints(const oct_pickle_value *value, int max, int64_t *out, int *count)
{
    if (value && value->kind == OCT_PICKLE_CALL && value->global == OCT_PICKLE_SIZE) {
        const oct_pickle_value *args = value->u.object.args;
        value = args->u.list.count == 1 ? args->u.list.items[0] : NULL;
    }
    if (!value || (value->kind != OCT_PICKLE_TUPLE && value->kind != OCT_PICKLE_LIST) ||
        value->u.list.count > max)
        return false;
    for (int64_t i = 0; i < value->u.list.count; i++) {
        if (value->u.list.items[i]->kind != OCT_PICKLE_INT)
            return false;
        out[i] = value->u.list.items[i]->u.integer;
    }
    *count = (int)value->u.list.count;
    return true;
}
