/* NPY headers, orders, dtypes and damage. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "data/npy.h"
#include "numeric/bf16.h"
#include "temp_dir.h"

static temp_dir dir;

static int make_dir(void **state)
{
    (void)state;
    dir = temp_dir_create();
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    temp_dir_remove(&dir);
    return 0;
}

/* A file of version `major` with a header text and elements. */
static const char *write_npy(int major, const char *header, const void *data, size_t bytes)
{
    static unsigned char file[4096];
    const size_t length = strlen(header), start = major == 1 ? 10 : 12;
    memset(file, 0, sizeof file);
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (unsigned char)major;
    file[8] = (unsigned char)(length & 255);
    file[9] = (unsigned char)(length >> 8);
    memcpy(file + start, header, length);
    if (bytes)
        memcpy(file + start + length, data, bytes);
    return temp_dir_write_bytes(&dir, "x.npy", file, start + length + bytes);
}

static void expect_failure(const char *header, size_t bytes, const char *text)
{
    static const unsigned char zeros[512];
    oct_npy npy;
    oct_err err = {0};
    assert_int_equal(oct_npy_open(write_npy(1, header, zeros, bytes), &npy, &err), OCT_E_DATA);
    if (!strstr(err.msg, text) || !strstr(err.msg, "x.npy"))
        fail_msg("header %s: found message '%s', wanted '%s' and the file", header, err.msg, text);
}

static void open__versions_1_to_3__the_same_elements(void **state)
{
    (void)state;
    const uint8_t data[6] = {1, 2, 3, 4, 5, 6};
    for (int major = 1; major <= 3; major++) {
        oct_npy npy;
        oct_err err = {0};
        const char *path = write_npy(
            major, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }\n", data, 6);
        assert_int_equal(oct_npy_open(path, &npy, &err), OCT_OK);
        assert_int_equal(npy.shape.ndim, 2);
        assert_int_equal(npy.shape.dims[0], 2);
        assert_int_equal(npy.shape.dims[1], 3);
        uint8_t out[4];
        assert_int_equal(oct_npy_read(&npy, 2, 4, out, &err), OCT_OK);
        assert_memory_equal(out, data + 2, 4);
        assert_int_equal(oct_npy_read(&npy, 2, 5, out, &err), OCT_E_API);
        assert_int_equal(oct_npy_read(&npy, INT64_MAX, 1, out, &err), OCT_E_API);
        oct_npy_close(&npy);
    }
    oct_npy npy;
    oct_err err = {0};
    assert_int_equal(oct_npy_open(write_npy(4, "{}", NULL, 0), &npy, &err), OCT_E_DATA);
    assert_non_null(strstr(err.msg, "version 4.0"));
}

static void open__other_spellings__are_read(void **state)
{
    (void)state;
    const char *const headers[] = {
        "{\"shape\":(),\"descr\":\"<f4\",\"fortran_order\":True}",
        "{'shape': (1,), 'fortran_order': False, 'descr': '<f4'}   \n",
        "{ 'fortran_order' : False , 'descr' : '<f4' , 'shape' : ( 1 , 1 , ) , }\n",
    };
    const float data = 1.5f;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        oct_npy npy;
        oct_err err = {0};
        float out = 0.0f;
        assert_int_equal(oct_npy_open(write_npy(1, headers[i], &data, 4), &npy, &err), OCT_OK);
        assert_int_equal(npy.count, 1);
        assert_int_equal(oct_npy_read(&npy, 0, 1, &out, &err), OCT_OK);
        assert_true(out == data);
        oct_npy_close(&npy);
    }
}

static void read__fortran_order_big_endian__c_order(void **state)
{
    (void)state;
    /* Element (i, j, k) is 100 i + 10 j + k, dims 2, 3, 4: first index fastest in the file. */
    uint8_t data[48];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++) {
                data[2 * (i + 2 * j + 6 * k)] = 0;
                data[2 * (i + 2 * j + 6 * k) + 1] = (uint8_t)(100 * i + 10 * j + k);
            }
    oct_npy npy;
    oct_err err = {0};
    const char *path =
        write_npy(1, "{'descr': '>u2', 'fortran_order': True, 'shape': (2, 3, 4), }\n", data, 48);
    assert_int_equal(oct_npy_open(path, &npy, &err), OCT_OK);
    for (int64_t first = 0; first < 24; first++)
        for (int64_t count = 0; first + count <= 24; count++) {
            uint16_t out[24];
            assert_int_equal(oct_npy_read(&npy, first, count, out, &err), OCT_OK);
            for (int64_t n = 0; n < count; n++) {
                const int64_t at = first + n;
                assert_int_equal(out[n], 100 * (at / 12) + 10 * (at / 4 % 3) + at % 4);
            }
        }
    oct_npy_close(&npy);
}

static void value__float16__its_number(void **state)
{
    (void)state;
    const uint16_t codes[] = {0x3c00, 0xc000, 0x0001, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0xfc00};
    const double wanted[] = {1.0,     -2.0,    0x1p-24,          0x3ffp-24,
                             0x1p-14, 65504.0, (double)INFINITY, -(double)INFINITY};
    for (int64_t i = 0; i < 8; i++)
        assert_true(oct_npy_value(OCT_NPY_F16, false, codes, i) == wanted[i]);
    const uint16_t special[] = {0x7e00, 0x8000};
    assert_true(oct_npy_value(OCT_NPY_F16, false, special, 0) !=
                oct_npy_value(OCT_NPY_F16, false, special, 0));
    assert_int_equal(oct_f32_bits((float)oct_npy_value(OCT_NPY_F16, false, special, 1)),
                     0x80000000u);
}

static void open__damage__is_named(void **state)
{
    (void)state;
#define HEAD "{'descr': '<f4', 'fortran_order': False, 'shape': "
    expect_failure(HEAD "(2, 3), }", 23, "holds 23 bytes of elements, 24 are required");
    expect_failure(HEAD "(2, 3), }", 25, "holds 25 bytes of elements, 24 are required");
    expect_failure(HEAD "(9223372036854775807, 3), }", 8, "more than 2^63");
    expect_failure(HEAD "(9223372036854775808,), }", 8, "a dim below 2^63");
    expect_failure(HEAD "(4611686018427387904,), }", 8, "more than 2^63");
    expect_failure(HEAD "(-1,), }", 4, "a dim");
    expect_failure(HEAD "(1), }", 4, "','");
    expect_failure(HEAD "(1,,), }", 4, "a dim");
    expect_failure(HEAD "1, }", 4, "a tuple");
    expect_failure(HEAD "(1,1,1,1,1,1,1,1,1), }", 4, "at most 8 dims");
    expect_failure(HEAD "(1,), } x", 4, "the end of the header");
    expect_failure(HEAD "(1,), 'shape': (1,), }", 4, "each once");
    expect_failure(HEAD "(1,), 'more': (1,), }", 4, "each once");
    expect_failure(HEAD "(1,), ", 4, "a string");
    expect_failure(HEAD "(1,)", 4, "'}'");
    expect_failure("{'descr': '<f4', 'shape': (1,), }", 4, "each once");
    expect_failure("{'descr': '<f4", 4, "a short string");
    expect_failure("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4,
                   "structured");
    expect_failure("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", 8, "'<c8'");
    expect_failure("{'descr': 'f4', 'fortran_order': False, 'shape': (1,), }", 4, "'f4'");
    expect_failure("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", 4, "True or False");
    expect_failure("", 0, "first bytes");
#undef HEAD
}

static void open__header_cut_at_every_byte__is_an_error(void **state)
{
    (void)state;
    const float data = 1.0f;
    const char *path =
        write_npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", &data, 4);
    unsigned char whole[128];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t bytes = fread(whole, 1, sizeof whole, file);
    assert_int_equal(fclose(file), 0);
    for (size_t cut = 0; cut < bytes; cut++) {
        oct_npy npy;
        oct_err err = {0};
        path = temp_dir_write_bytes(&dir, "x.npy", whole, cut);
        assert_int_equal(oct_npy_open(path, &npy, &err), OCT_E_DATA);
    }
}

static void write__any_shape__reads_back(void **state)
{
    (void)state;
    const float data[6] = {1.0f, -2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
    const oct_npy_shape shapes[] = {{.ndim = 0},
                                    {.ndim = 1, .dims = {6}},
                                    {.ndim = 2, .dims = {2, 3}},
                                    {.ndim = 2, .dims = {0, 3}}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int64_t count = i == 0 ? 1 : i == 3 ? 0 : 6;
        char path[512];
        (void)snprintf(path, sizeof path, "%s", temp_dir_name(&dir, "out.npy"));
        oct_npy_writer writer;
        oct_err err = {0};
        assert_int_equal(oct_npy_create(path, OCT_NPY_F32, &shapes[i], &writer, &err), OCT_OK);
        assert_int_equal(oct_npy_append(&writer, data, count, &err), OCT_OK);
        assert_int_equal(oct_npy_append(&writer, data, 1, &err), OCT_E_API);
        assert_int_equal(oct_npy_finish(&writer, &err), OCT_OK);
        oct_npy_discard(&writer);
        oct_npy npy;
        float out[6] = {0};
        assert_int_equal(oct_npy_open(path, &npy, &err), OCT_OK);
        assert_int_equal(npy.offset % 64, 0);
        assert_true(oct_npy_shape_equal(&npy.shape, &shapes[i]));
        assert_int_equal(oct_npy_read(&npy, 0, count, out, &err), OCT_OK);
        assert_memory_equal(out, data, (size_t)count * sizeof(float));
        oct_npy_close(&npy);
    }
}

static void write__unfinished__leaves_the_old_file(void **state)
{
    (void)state;
    char path[512];
    (void)snprintf(path, sizeof path, "%s", temp_dir_write(&dir, "old.npy", "old"));
    const oct_npy_shape shape = {.ndim = 1, .dims = {2}};
    oct_npy_writer writer;
    oct_err err = {0};
    assert_int_equal(oct_npy_create(path, OCT_NPY_U8, &shape, &writer, &err), OCT_OK);
    assert_int_equal(oct_npy_append(&writer, "a", 1, &err), OCT_OK);
    assert_int_equal(oct_npy_finish(&writer, &err), OCT_E_API);
    oct_npy_discard(&writer);
    char text[8] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text, file), 3);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, "old");
    assert_int_not_equal(access(temp_dir_name(&dir, "old.npy.tmp"), F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open__versions_1_to_3__the_same_elements),
        cmocka_unit_test(open__other_spellings__are_read),
        cmocka_unit_test(read__fortran_order_big_endian__c_order),
        cmocka_unit_test(value__float16__its_number),
        cmocka_unit_test(open__damage__is_named),
        cmocka_unit_test(open__header_cut_at_every_byte__is_an_error),
        cmocka_unit_test(write__any_shape__reads_back),
        cmocka_unit_test(write__unfinished__leaves_the_old_file),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
