/* The pickle writer and the safe pickle reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "checkpoint/pickle.h"

#define BYTES(text) (const unsigned char *)(text), sizeof(text) - 1

static oct_arena arena;

static int arena_up(void **state)
{
    (void)state;
    oct_arena_init(&arena, "test");
    return 0;
}

static int arena_down(void **state)
{
    (void)state;
    oct_arena_release(&arena);
    return 0;
}

static const oct_pickle_value *parse(const unsigned char *data, size_t bytes)
{
    oct_err err = {0};
    oct_pickle_value *value = NULL;
    if (oct_pickle_parse(data, bytes, "test", &arena, &value, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    return value;
}

static void refuse(const unsigned char *data, size_t bytes, const char *message)
{
    oct_err err = {0};
    oct_pickle_value *value = NULL;
    assert_int_equal(oct_pickle_parse(data, bytes, "test", &arena, &value, &err), OCT_E_CORRUPT);
    if (!strstr(err.msg, message))
        fail_msg("'%s' is not in '%s'", message, err.msg);
}

static void put_int__every_width__reads_back(void **state)
{
    (void)state;
    static const int64_t values[] = {0,         1,         255,         256,       65535,
                                     65536,     INT32_MAX, -1,          INT32_MIN, 2147483648,
                                     INT64_MAX, INT64_MIN, -2147483649, -256};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        oct_pickle_writer writer;
        oct_pickle_writer_init(&writer);
        oct_pickle_put_int(&writer, values[i]);
        assert_int_equal(oct_pickle_finish(&writer, NULL), OCT_OK);
        const oct_pickle_value *value = parse(writer.data, writer.bytes);
        assert_int_equal(value->kind, OCT_PICKLE_INT);
        assert_true(value->u.integer == values[i]);
        oct_pickle_writer_release(&writer);
    }
}

/* Python writes the shortest form. */
static void parse__long1__sign_extended(void **state)
{
    (void)state;
    assert_true(parse(BYTES("\x80\x02\x8a\x02\x00\xff."))->u.integer == -256);
    assert_true(parse(BYTES("\x80\x02\x8a\x02\xff\x00."))->u.integer == 255);
    assert_true(parse(BYTES("\x80\x02\x8a\x05\x00\x00\x00\x00\xff."))->u.integer ==
                -((int64_t)1 << 32));
    assert_true(parse(BYTES("\x80\x02\x8a\x00."))->u.integer == 0);
}

static void put_float_string_bytes__read_back(void **state)
{
    (void)state;
    oct_pickle_writer writer;
    oct_pickle_writer_init(&writer);
    oct_pickle_put_op(&writer, '(');
    oct_pickle_put_float(&writer, -0.1);
    oct_pickle_put_string(&writer, "abc", 3);
    oct_pickle_put_bytes(&writer, "\0\1", 2);
    oct_pickle_put_name(&writer, "name");
    oct_pickle_put_name(&writer, "name");
    oct_pickle_put_op(&writer, 't');
    assert_int_equal(oct_pickle_finish(&writer, NULL), OCT_OK);
    const oct_pickle_value *value = parse(writer.data, writer.bytes);
    assert_int_equal(value->kind, OCT_PICKLE_TUPLE);
    assert_int_equal(value->u.list.count, 5);
    oct_pickle_value *const *items = value->u.list.items;
    assert_true(items[0]->u.real == -0.1);
    assert_string_equal(items[1]->u.text.data, "abc");
    assert_int_equal(items[2]->u.text.bytes, 2);
    assert_memory_equal(items[2]->u.text.data, "\0\1", 2);
    assert_ptr_equal(items[3], items[4]); /* the memo */
    oct_pickle_writer_release(&writer);
}

/* What Python 3.11 writes for {'a': (1, -2, 3.5), 'b': [True, None, b'x'], 'c': 2**40} with
 * protocol 4: FRAME, MEMOIZE, SHORT_BINUNICODE, TUPLE3, SHORT_BINBYTES, LONG1. */
static void parse__protocol_4__python_value(void **state)
{
    (void)state;
    static const char data[] = "\x80\x04\x95\x35\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
                               "a\x94K\x01J\xfe\xff\xff\xffG@\x0c\x00\x00\x00\x00\x00\x00\x87\x94"
                               "\x8c\x01"
                               "b\x94]\x94(\x88NC\x01x\x94"
                               "e\x8c\x01"
                               "c\x94\x8a\x06\x00\x00\x00\x00\x00\x01u.";
    const oct_pickle_value *root = parse(BYTES(data));
    const oct_pickle_value *a = oct_pickle_get(root, "a"), *b = oct_pickle_get(root, "b"),
                           *c = oct_pickle_get(root, "c");
    assert_int_equal(a->kind, OCT_PICKLE_TUPLE);
    assert_int_equal(a->u.list.items[1]->u.integer, -2);
    assert_true(a->u.list.items[2]->u.real == 3.5);
    assert_int_equal(b->u.list.count, 3);
    assert_int_equal(b->u.list.items[1]->kind, OCT_PICKLE_NONE);
    assert_true(c->u.integer == (int64_t)1 << 40);
    assert_null(oct_pickle_get(root, "d"));
    assert_null(oct_pickle_get(a, "d"));
}

static void parse__code_execution__refused(void **state)
{
    (void)state;
    refuse(BYTES("\x80\x02"
                 "cos\nsystem\n(X\x02\x00\x00\x00ls\x74R."),
           "global 'os.system'");
    refuse(BYTES("\x80\x04\x8c\x08"
                 "builtins\x8c\x04"
                 "eval\x93."),
           "global 'builtins.eval'");
    refuse(BYTES("\x80\x02"
                 "ctorc\nSize\n."),
           "global 'torc.Size'");
    refuse(BYTES("\x80\x02"
                 "ctorch\nSiz\n."),
           "global 'torch.Siz'");
    /* An allowed name in a place where it is not called by torch. */
    refuse(BYTES("\x80\x02"
                 "ctorch\nfloat32\n)R."),
           "calls what may not be called");
    refuse(BYTES("\x80\x02"
                 "ctorch\nSize\n)\x81."),
           "calls what may not be called");
    refuse(BYTES("\x80\x02i"), "opcode 69 is not allowed"); /* INST */
    refuse(BYTES("\x80\x02\x82\x01."), "opcode 82");        /* EXT1 */
}

static void parse__damaged__refused(void **state)
{
    (void)state;
    refuse(BYTES(""), "ends inside an operand");
    refuse(BYTES("\x80\x01N."), "protocol 2 to 5");
    refuse(BYTES("\x80\x02N"), "ends inside an operand");
    refuse(BYTES("\x80\x02N.."), "left over");
    refuse(BYTES("\x80\x02NN."), "left over");
    refuse(BYTES("\x80\x02."), "missing on the stack");
    refuse(BYTES("\x80\x02(."), "missing on the stack");
    refuse(BYTES("\x80\x02t."), "no mark");
    refuse(BYTES("\x80\x02h\x00."), "memo number is not in use");
    refuse(BYTES("\x80\x02Nq\x05."), "memo number is out of order");
    refuse(BYTES("\x80\x02X\xff\xff\xff\xff"
                 "a."),
           "longer than the pickle");
    refuse(BYTES("\x80\x02X\x03\x00\x00\x00"
                 "a\0b."),
           "zero byte");
    refuse(BYTES("\x80\x02\x8a\x09"
                 "123456789."),
           "more than 64 bits");
    refuse(BYTES("\x80\x02}(Nu."), "no dict");
    refuse(BYTES("\x80\x02](Nu."), "no dict");
    refuse(BYTES("\x80\x02}Na."), "no list");
    refuse(BYTES("\x80\x02NNb."), "no new object");
    refuse(BYTES("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xffN."), "frame is too long");
}

static void parse__deep_or_many__bounded(void **state)
{
    (void)state;
    const size_t bytes = (size_t)OCT_PICKLE_MAX_STACK + 16;
    unsigned char *data = malloc(bytes);
    memset(data, '(', bytes);
    memcpy(data, "\x80\x02", 2);
    refuse(data, bytes, "stack is too deep");
    free(data);
}

/* Any bytes at all: no crash, no endless loop, and memory in proportion. */
static void parse__mutated_and_random__never_breaks(void **state)
{
    (void)state;
    oct_pickle_writer writer;
    oct_pickle_writer_init(&writer);
    oct_pickle_put_op(&writer, '}');
    oct_pickle_put_op(&writer, '(');
    for (int i = 0; i < 20; i++) {
        oct_pickle_put_name(&writer, i % 2 ? "odd" : "even");
        oct_pickle_put_global(&writer, "torch\nSize\n");
        oct_pickle_put_op(&writer, '(');
        oct_pickle_put_op(&writer, '(');
        oct_pickle_put_int(&writer, (int64_t)i << 3 * i % 40);
        oct_pickle_put_op(&writer, 't');
        oct_pickle_put_op(&writer, 't');
        oct_pickle_put_op(&writer, 'R');
    }
    oct_pickle_put_op(&writer, 'u');
    assert_int_equal(oct_pickle_finish(&writer, NULL), OCT_OK);
    static const unsigned char opcodes[] = "(N\x88\x89)}]KMJX\x8c"
                                           "BCqrhj\x95\x8aGtue\x85\x86\x87"
                                           "asc\x93\x81RbQ\x94.";
    uint32_t random = 1;
    int accepted = 0;
    for (int round = 0; round < 40000; round++) {
        unsigned char *mutant = malloc(writer.bytes); /* exact: a read past the end is caught */
        size_t bytes = writer.bytes;
        memcpy(mutant, writer.data, bytes);
        for (int k = 0; k <= round % 6; k++) {
            random = random * 1664525u + 1013904223u;
            const size_t at = (random >> 5) % bytes;
            mutant[at] = round % 2 ? opcodes[(random >> 20) % (sizeof opcodes - 1)]
                                   : (unsigned char)(random >> 24);
        }
        if (round % 10 == 0) {
            bytes = (random >> 7) % bytes;
            mutant = realloc(mutant, bytes + !bytes);
        }
        oct_pickle_value *value = NULL;
        accepted += oct_pickle_parse(mutant, bytes, "test", &arena, &value, NULL) == OCT_OK;
        free(mutant);
        oct_arena_reset(&arena);
    }
    assert_true(accepted > 100 && accepted < 20000);
    oct_pickle_writer_release(&writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(put_int__every_width__reads_back),
        cmocka_unit_test(parse__long1__sign_extended),
        cmocka_unit_test(put_float_string_bytes__read_back),
        cmocka_unit_test(parse__protocol_4__python_value),
        cmocka_unit_test(parse__code_execution__refused),
        cmocka_unit_test(parse__damaged__refused),
        cmocka_unit_test(parse__deep_or_many__bounded),
        cmocka_unit_test(parse__mutated_and_random__never_breaks),
    };
    return cmocka_run_group_tests(tests, arena_up, arena_down);
}
