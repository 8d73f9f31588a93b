/* Public quantization: golden rows, orientations together and apart, groups and stacks, layouts of
 * scales, dequantization, refusals. */
#include "api_fixture.h"

#include <fenv.h>
#include <math.h>

static const octet_groups none = {0, NULL};

static const char function[] = "octet_quantize";

/* --- golden rows ------------------------------------------------------------------------------ */

static void check_same(const char *name, int64_t line, const void *found, const void *wanted,
                       size_t bytes)
{
    if (bytes > 0 && memcmp(found, wanted, bytes) != 0)
        fail_msg("%s, line %lld: other bytes", name, (long long)line);
}

static char *case_line(golden *file, const char *tag)
{
    assert_true(golden_line(file));
    assert_int_equal(strncmp(file->line, tag, strlen(tag)), 0);
    return file->line + strlen(tag);
}

static void mx__golden_tensors__same_bytes(void **state)
{
    (void)state;
    golden file;
    test_context test;
    if (!golden_open(&file, "mx_tensors.txt"))
        return;
    while (golden_line(&file)) {
        long long rows = 0, cols = 0;
        int axis = 0, rule = 0;
        assert_int_equal(sscanf(file.line, "case rows %lld cols %lld axis %d alg %d", &rows, &cols,
                                &axis, &rule),
                         4);
        const octet_orientation orientation =
            axis == -1 ? OCTET_ORIENTATION_ROW : OCTET_ORIENTATION_COL;
        octet_operand o = new_operand(OCTET_FORMAT_MXFP8, orientation, 0, rows, cols, none);
        float *x = take((size_t)(rows * cols) * sizeof *x);
        uint8_t *codes = take(o.codes_bytes), *scales = take(o.scales_bytes);
        for (int64_t r = 0; r < rows; r++)
            hex_floats(case_line(&file, "x "), cols, x + r * cols);
        for (int64_t r = 0; r < rows; r++)
            hex_bytes(case_line(&file, "c "), cols, codes + r * cols);
        hex_bytes(case_line(&file, "s "), (int64_t)o.scales_bytes, scales);
        (void)case_line(&file, "end");
        const octet_quantize_settings settings =
            settings_of((octet_mx_rule)rule, OCTET_ROLE_INPUT, 0);
        for (int isa = OCTET_ISA_REF; isa <= OCTET_ISA_AVX512; isa++) {
            if (!open_context(&test, (octet_isa)isa, 2))
                continue;
            quantize(test.context, OCTET_DTYPE_F32, x, &settings, axis == -1 ? &o : NULL,
                     axis == -1 ? NULL : &o);
            check_same("codes", file.number, o.codes, codes, o.codes_bytes);
            check_same("scales", file.number, o.scales, scales, o.scales_bytes);
        }
        free(x);
        free(codes);
        free(scales);
        free_operand(&o);
    }
    golden_close(&file);
}

static void hif8__golden_tensors__same_bytes(void **state)
{
    (void)state;
    golden file;
    test_context test;
    if (!golden_open(&file, "hif8_quant.csv"))
        return;
    assert_true(golden_line(&file));
    while (golden_row(&file)) {
        const int64_t n = strtoll(file.fields[3], NULL, 10);
        const bool gradient = strcmp(file.fields[2], "224") == 0;
        octet_operand o =
            new_operand(OCTET_FORMAT_HIF8, OCTET_ORIENTATION_ROW, 0, n > 0 ? 1 : 0, n, none);
        float *x = take((size_t)n * sizeof *x), amax = -1.0f;
        uint8_t *codes = take((size_t)n);
        hex_floats(file.fields[4], n, x);
        for (int isa = OCTET_ISA_REF; isa <= OCTET_ISA_AVX512; isa++)
            for (int saturate = 0; saturate < 2 && open_context(&test, (octet_isa)isa, 1);
                 saturate++) {
                hex_bytes(file.fields[7 + saturate], n, codes);
                const octet_quantize_settings settings =
                    settings_of(OCTET_MX_RULE_ROUND_UP,
                                gradient ? OCTET_ROLE_GRADIENT : OCTET_ROLE_WEIGHT, saturate);
                quantize(test.context, OCTET_DTYPE_F32, x, &settings, &o, NULL);
                check_same("codes", file.number, o.codes, codes, (size_t)n);
                assert_int_equal(bits_of(*(float *)o.scales), hex_word(file.fields[6], 8));
            }
        size_t bytes = 0;
        assert_int_equal(octet_quantize_workspace_bytes(&o, &bytes, NULL), OCTET_OK);
        void *workspace = take(bytes);
        assert_int_equal(octet_amax(test.context, OCTET_DTYPE_F32, x, (size_t)n * 4, &o, &amax, 4,
                                    workspace, bytes, NULL),
                         OCTET_OK);
        if (!isnan(amax))
            assert_int_equal(bits_of(amax), hex_word(file.fields[5], 8));
        free(workspace);
        free(x);
        free(codes);
        free_operand(&o);
    }
    golden_close(&file);
}

static void hif8__golden_groups__same_bytes(void **state)
{
    (void)state;
    golden file;
    test_context test;
    if (!golden_open(&file, "hif8_groups.txt"))
        return;
    assert_true(open_context(&test, OCTET_ISA_AUTO, 2));
    while (golden_line(&file)) {
        long long rows = 0, cols = 0;
        int format_max = 0;
        char text[512];
        int64_t ends[64], count = 0;
        assert_int_equal(sscanf(file.line,
                                "case rows %lld cols %lld format_max %d group_ends %511s", &rows,
                                &cols, &format_max, text),
                         4);
        for (char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
            ends[count++] = strtoll(at, NULL, 10);
        const octet_groups groups = {count, ends};
        octet_operand o =
            new_operand(OCTET_FORMAT_HIF8, OCTET_ORIENTATION_COL, 0, rows, cols, groups);
        float *x = take((size_t)(rows * cols) * sizeof *x), *scales = take(o.scales_bytes);
        uint8_t *codes = take(o.codes_bytes);
        for (int64_t r = 0; r < rows; r++)
            hex_floats(case_line(&file, "x "), cols, x + r * cols);
        for (int64_t r = 0; r < rows; r++)
            hex_bytes(case_line(&file, "c "), cols, codes + r * cols);
        hex_floats(case_line(&file, "s "), count, scales);
        (void)case_line(&file, "end");
        const octet_quantize_settings settings = settings_of(
            OCTET_MX_RULE_ROUND_UP, format_max == 224 ? OCTET_ROLE_GRADIENT : OCTET_ROLE_INPUT, 0);
        quantize(test.context, OCTET_DTYPE_F32, x, &settings, NULL, &o);
        check_same("codes", file.number, o.codes, codes, o.codes_bytes);
        check_same("scales", file.number, o.scales, scales, o.scales_bytes);
        free(x);
        free(scales);
        free(codes);
        free_operand(&o);
    }
    golden_close(&file);
}

/* --- one pass, groups, stacks ----------------------------------------------------------------- */

enum { ROWS = 167, COLS = 71 };

static void quantize__both_orientations__bytes_of_each_alone(void **state)
{
    (void)state;
    test_context test;
    static float x[ROWS * COLS];
    static uint16_t words[ROWS * COLS];
    const int64_t ends[] = {33, 33, 130, ROWS};
    fill_numbers(x, ROWS * COLS, 1);
    for (int i = 0; i < ROWS * COLS; i++)
        words[i] = octet_bf16_encode(x[i]);
    assert_true(open_context(&test, OCTET_ISA_AUTO, 2));
    for (int f = OCTET_FORMAT_MXFP8; f <= OCTET_FORMAT_HIF8; f++)
        for (int grouped = 0; grouped < 2; grouped++) {
            const octet_groups groups = {grouped ? 4 : 0, ends};
            octet_operand o[4];
            for (int i = 0; i < 4; i++)
                o[i] =
                    new_operand((octet_format)f, (octet_orientation)(i % 2), 0, ROWS, COLS, groups);
            quantize(test.context, OCTET_DTYPE_BF16, words, NULL, &o[0], &o[1]);
            quantize(test.context, OCTET_DTYPE_BF16, words, NULL, &o[2], NULL);
            quantize(test.context, OCTET_DTYPE_BF16, words, NULL, NULL, &o[3]);
            for (int i = 0; i < 2; i++) {
                assert_memory_equal(o[i].codes, o[i + 2].codes, o[i].codes_bytes);
                assert_memory_equal(o[i].scales, o[i + 2].scales, o[i].scales_bytes);
            }
            for (int i = 0; i < 4; i++)
                free_operand(&o[i]);
        }
}

static void quantize__groups__bytes_of_each_group_alone(void **state)
{
    (void)state;
    test_context test;
    static float x[ROWS * COLS];
    const int64_t ends[] = {33, 33, 130, ROWS};
    const octet_groups groups = {4, ends};
    fill_numbers(x, ROWS * COLS, 2);
    assert_true(open_context(&test, OCTET_ISA_AUTO, 2));
    for (int f = OCTET_FORMAT_MXFP8; f <= OCTET_FORMAT_HIF8; f++) {
        octet_operand all =
            new_operand((octet_format)f, OCTET_ORIENTATION_COL, 0, ROWS, COLS, groups);
        quantize(test.context, OCTET_DTYPE_F32, x, NULL, NULL, &all);
        size_t codes = 0, scales = 0;
        for (int g = 0; g < 4; g++) {
            const int64_t start = g ? ends[g - 1] : 0;
            octet_operand one =
                new_operand((octet_format)f, OCTET_ORIENTATION_COL, 0, ends[g] - start, COLS, none);
            quantize(test.context, OCTET_DTYPE_F32, x + start * COLS, NULL, NULL, &one);
            check_same("codes", g, (uint8_t *)all.codes + codes, one.codes, one.codes_bytes);
            check_same("scales", g, (uint8_t *)all.scales + scales, one.scales, one.scales_bytes);
            codes += one.codes_bytes;
            scales += one.scales_bytes;
            free_operand(&one);
        }
        assert_int_equal(scales, all.scales_bytes);
        free_operand(&all);
    }
}

static void quantize__stack__bytes_of_each_matrix_alone(void **state)
{
    (void)state;
    enum { E = 3, R = 45, K = 37 };
    test_context test;
    static float x[E * R * K];
    fill_numbers(x, E * R * K, 3);
    assert_true(open_context(&test, OCTET_ISA_AUTO, 2));
    for (int f = OCTET_FORMAT_MXFP8; f <= OCTET_FORMAT_HIF8; f++)
        for (int side = 0; side < 2; side++) {
            const octet_orientation orientation = (octet_orientation)side;
            octet_operand all = new_operand((octet_format)f, orientation, E, R, K, none);
            quantize(test.context, OCTET_DTYPE_F32, x, NULL, side ? NULL : &all,
                     side ? &all : NULL);
            for (int e = 0; e < E; e++) {
                octet_operand one = new_operand((octet_format)f, orientation, 0, R, K, none);
                quantize(test.context, OCTET_DTYPE_F32, x + e * R * K, NULL, side ? NULL : &one,
                         side ? &one : NULL);
                check_same("codes", e, (uint8_t *)all.codes + (size_t)e * one.codes_bytes,
                           one.codes, one.codes_bytes);
                check_same("scales", e, (uint8_t *)all.scales + (size_t)e * one.scales_bytes,
                           one.scales, one.scales_bytes);
                free_operand(&one);
            }
            free_operand(&all);
        }
}

static void quantize__amax_of_a_larger_tensor__its_scale(void **state)
{
    (void)state;
    test_context test;
    const float x[4] = {1.0f, -2.0f, 0.5f, 3.0f}, amax = 30.0f;
    assert_true(open_context(&test, OCTET_ISA_REF, 1));
    octet_operand o = new_operand(OCTET_FORMAT_HIF8, OCTET_ORIENTATION_ROW, 0, 2, 2, none);
    octet_quantize_settings settings = OCTET_QUANTIZE_SETTINGS_INIT;
    settings.amax = &amax;
    quantize(test.context, OCTET_DTYPE_F32, x, &settings, &o, NULL);
    assert_int_equal(bits_of(*(float *)o.scales), bits_of(2.0f));
    for (int i = 0; i < 4; i++)
        assert_int_equal(((uint8_t *)o.codes)[i], octet_hif8_encode(x[i] / 2.0f, false));
    free_operand(&o);
}

static void quantize__nothing__scales_of_nothing(void **state)
{
    (void)state;
    test_context test;
    assert_true(open_context(&test, OCTET_ISA_AUTO, 2));
    const int64_t shapes[][2] = {{0, 0}, {0, 40}, {40, 0}, {INT64_C(1) << 40, 0}};
    for (size_t i = 0; i < 4; i++)
        for (int f = OCTET_FORMAT_MXFP8; f <= OCTET_FORMAT_HIF8; f++) {
            octet_operand o = new_operand((octet_format)f, OCTET_ORIENTATION_COL, 0, shapes[i][0],
                                          shapes[i][1], none);
            assert_int_equal(o.codes_bytes, 0);
            assert_int_equal(o.scales_bytes, f == OCTET_FORMAT_HIF8 ? 4 : 0);
            free(o.codes);
            o.codes = NULL;
            quantize(test.context, OCTET_DTYPE_F32, NULL, NULL, NULL, &o);
            if (f == OCTET_FORMAT_HIF8)
                assert_int_equal(bits_of(*(float *)o.scales), bits_of(1.0f));
            assert_int_equal(octet_dequantize(test.context, &o, NULL, 0, NULL), OCTET_OK);
            free_operand(&o);
        }
}

/* --- layouts of scales, dequantization -------------------------------------------------------- */

/* The byte of one block by the formulas of docs/spec/mxfp8.md. */
static uint8_t scale_at(const octet_operand *o, int64_t row, int64_t col)
{
    const uint8_t *scales = o->scales;
    if (o->orientation == OCTET_ORIENTATION_ROW) {
        const int64_t b = col / 32;
        return scales[(row * ((o->cols + 63) / 64) + b / 2) * 2 + b % 2];
    }
    int64_t start = 0, pair = 0;
    if (o->matrices > 0) {
        start = row / o->rows * o->rows;
        pair = row / o->rows * ((o->rows + 63) / 64);
    }
    for (int64_t g = 0; g < o->groups.count && o->groups.ends[g] <= row; g++) {
        pair += (o->groups.ends[g] - start + 63) / 64;
        start = o->groups.ends[g];
    }
    const int64_t b = (row - start) / 32;
    return scales[((pair + b / 2) * o->cols + col) * 2 + b % 2];
}

static void check_dequantized(const octet_context *context, const octet_operand *o)
{
    const int64_t rows = o->rows * (o->matrices > 0 ? o->matrices : 1);
    const size_t bytes = (size_t)(rows * o->cols) * sizeof(float);
    float *y = take(bytes);
    assert_int_equal(octet_dequantize(context, o, y, bytes, NULL), OCTET_OK);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < o->cols; c++) {
            const uint8_t code = ((const uint8_t *)o->codes)[r * o->cols + c];
            float wanted = 0.0f;
            if (o->format == OCTET_FORMAT_MXFP8) {
                wanted = octet_e4m3_decode(code) * octet_e8m0_decode(scale_at(o, r, c));
            } else {
                int64_t g = o->matrices > 0 ? r / o->rows : 0;
                while (o->groups.count > 0 && o->groups.ends[g] <= r)
                    g++;
                wanted = octet_hif8_decode(code) * ((const float *)o->scales)[g];
            }
            const uint32_t bits = isnan(wanted) ? 0x7fc00000u : bits_of(wanted);
            assert_int_equal(bits_of(y[r * o->cols + c]), bits);
        }
    free(y);
}

static void check_layouts(const octet_operand *o)
{
    const int64_t rows = o->rows * (o->matrices > 0 ? o->matrices : 1);
    for (int layout = OCTET_SCALE_LAYOUT_PLAIN; layout <= OCTET_SCALE_LAYOUT_NPU; layout++) {
        size_t bytes = 0;
        assert_int_equal(octet_mx_scales_bytes(o, (octet_scale_layout)layout, &bytes, NULL),
                         OCTET_OK);
        uint8_t *other = take(bytes), *kept = take(o->scales_bytes);
        assert_int_equal(octet_mx_scales_store(o, (octet_scale_layout)layout, other, bytes, NULL),
                         OCTET_OK);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < o->cols; c++) {
                int64_t start = o->matrices > 0 ? r / o->rows * o->rows : 0, g = 0, plain = 0;
                if (o->matrices > 0)
                    plain = r / o->rows * ((o->rows + 31) / 32);
                for (; g < o->groups.count && o->groups.ends[g] <= r; g++) {
                    plain += (o->groups.ends[g] - start + 31) / 32;
                    start = o->groups.ends[g];
                }
                const int64_t b = (r - start) / 32;
                int64_t at = r * ((o->cols + 31) / 32) + c / 32;
                if (o->orientation == OCTET_ORIENTATION_COL)
                    at = (plain + b) * o->cols + c;
                if (layout == OCTET_SCALE_LAYOUT_NPU) {
                    if (o->orientation == OCTET_ORIENTATION_ROW || o->groups.count == 0)
                        break;
                    at = ((start / 64 + g + b / 2) * o->cols + c) * 2 + b % 2;
                }
                assert_int_equal(other[at], scale_at(o, r, c));
            }
        memcpy(kept, o->scales, o->scales_bytes);
        memset(o->scales, GUARD, o->scales_bytes);
        assert_int_equal(octet_mx_scales_load(o, (octet_scale_layout)layout, other, bytes, NULL),
                         OCTET_OK);
        assert_memory_equal(kept, o->scales, o->scales_bytes);
        free(other);
        free(kept);
    }
}

static void operands__every_shape__dequantized_and_laid_out_as_specified(void **state)
{
    (void)state;
    test_context test;
    static float x[ROWS * COLS];
    const int64_t ends[] = {33, 33, 130, ROWS};
    fill_numbers(x, ROWS * COLS, 4);
    x[5] = NAN;
    x[COLS * 50 + 3] = INFINITY;
    assert_true(open_context(&test, OCTET_ISA_AUTO, 2));
    const struct {
        int64_t matrices, rows, cols, groups;
    } shapes[] = {{0, ROWS, COLS, 0}, {0, ROWS, COLS, 4}, {4, 41, COLS, 0}, {0, 1, 1, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int f = OCTET_FORMAT_MXFP8; f <= OCTET_FORMAT_HIF8; f++)
            for (int side = 0; side < 2; side++) {
                const octet_groups groups = {shapes[i].groups, ends};
                octet_operand o =
                    new_operand((octet_format)f, (octet_orientation)side, shapes[i].matrices,
                                shapes[i].rows, shapes[i].cols, groups);
                quantize(test.context, OCTET_DTYPE_F32, x, NULL, side ? NULL : &o,
                         side ? &o : NULL);
                check_dequantized(test.context, &o);
                if (f == OCTET_FORMAT_MXFP8)
                    check_layouts(&o);
                free_operand(&o);
            }
}

/* --- refusals --------------------------------------------------------------------------------- */

static void operand_bytes__wrong_fields__are_named(void **state)
{
    (void)state;
    octet_error error = {0};
    size_t bytes = 0;
    const int64_t ends[] = {3, 2, 5};
    const octet_groups bad_ends = {3, ends}, bad_last = {1, ends}, bad_count = {-1, ends},
                       no_ends = {2, NULL}, good = {1, ends + 2};
    const struct {
        octet_operand o;
        octet_status status;
        const char *argument;
    } cases[] = {
        {{sizeof(octet_operand), (octet_format)2, 0, 0, 5, 5, {0, NULL}, NULL, 0, NULL, 0},
         OCTET_E_ARGUMENT,
         "operand->format is 2"},
        {{sizeof(octet_operand), (octet_format)-1, 0, 0, 5, 5, {0, NULL}, NULL, 0, NULL, 0},
         OCTET_E_ARGUMENT,
         "operand->format is -1"},
        {{sizeof(octet_operand), 0, (octet_orientation)2, 0, 5, 5, {0, NULL}, NULL, 0, NULL, 0},
         OCTET_E_ARGUMENT,
         "operand->orientation is 2"},
        {{sizeof(octet_operand), 0, 0, -1, 5, 5, {0, NULL}, NULL, 0, NULL, 0},
         OCTET_E_ARGUMENT,
         "operand->matrices is -1"},
        {{sizeof(octet_operand), 0, 0, 0, -5, 5, {0, NULL}, NULL, 0, NULL, 0},
         OCTET_E_ARGUMENT,
         "operand->rows is -5"},
        {{sizeof(octet_operand), 0, 0, 0, 5, -1, {0, NULL}, NULL, 0, NULL, 0},
         OCTET_E_ARGUMENT,
         "operand->cols is -1"},
        {{sizeof(octet_operand), 0, 0, 0, INT64_MAX, 5, {0, NULL}, NULL, 0, NULL, 0},
         OCTET_E_ARGUMENT,
         "operand has shape"},
        {{sizeof(octet_operand),
          0,
          0,
          0,
          INT64_C(1) << 32,
          INT64_C(1) << 32,
          {0, NULL},
          NULL,
          0,
          NULL,
          0},
         OCTET_E_ARGUMENT,
         "operand has shape"},
        {{sizeof(octet_operand), 0, 0, INT32_MAX, INT64_C(1) << 40, 1, {0, NULL}, NULL, 0, NULL, 0},
         OCTET_E_ARGUMENT,
         "operand has shape"},
        {{sizeof(octet_operand), 0, 0, 0, 5, 5, bad_ends, NULL, 0, NULL, 0},
         OCTET_E_SHAPE,
         "operand->groups.ends[1] is 2"},
        {{sizeof(octet_operand), 0, 0, 0, 5, 5, bad_last, NULL, 0, NULL, 0},
         OCTET_E_SHAPE,
         "operand->groups.ends[0] is 3"},
        {{sizeof(octet_operand), 0, 0, 0, 5, 5, bad_count, NULL, 0, NULL, 0},
         OCTET_E_ARGUMENT,
         "operand->groups.count is -1"},
        {{sizeof(octet_operand), 0, 0, 0, 5, 5, no_ends, NULL, 0, NULL, 0},
         OCTET_E_ARGUMENT,
         "operand->groups.ends is NULL"},
        {{sizeof(octet_operand), 0, 0, 2, 5, 5, good, NULL, 0, NULL, 0},
         OCTET_E_SHAPE,
         "operand->groups.count is 1"},
        {{8, 0, 0, 0, 5, 5, {0, NULL}, NULL, 0, NULL, 0},
         OCTET_E_ARGUMENT,
         "operand->struct_bytes is 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const octet_status s = octet_operand_bytes(&cases[i].o, &bytes, &bytes, &error);
        check_refused(s, cases[i].status, &error, "octet_operand_bytes", cases[i].argument);
        assert_int_equal(octet_quantize_workspace_bytes(&cases[i].o, &bytes, NULL),
                         cases[i].status);
        assert_int_equal(octet_mx_scales_bytes(&cases[i].o, OCTET_SCALE_LAYOUT_PLAIN, &bytes, NULL),
                         cases[i].status);
    }
    octet_status s = octet_operand_bytes(NULL, &bytes, &bytes, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_operand_bytes", "operand is NULL");
    s = octet_quantize_workspace_bytes(&cases[0].o, NULL, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_quantize_workspace_bytes", "bytes is NULL");
}

static void quantize__wrong_arguments__are_named(void **state)
{
    (void)state;
    enum { M = 40, N = 40, SIZE = 4 * M * N };
    octet_error error = {0};
    test_context t;
    static float x[M * N];
    static _Alignas(16) uint8_t workspace[4096];
    assert_true(open_context(&t, OCTET_ISA_REF, 1));
    const octet_context *c = t.context;
    octet_operand row = new_operand(OCTET_FORMAT_MXFP8, OCTET_ORIENTATION_ROW, 0, M, N, none);
    octet_operand col = new_operand(OCTET_FORMAT_MXFP8, OCTET_ORIENTATION_COL, 0, M, N, none);
    octet_quantize_settings settings = OCTET_QUANTIZE_SETTINGS_INIT;
    void *w = workspace;
    const size_t room = sizeof workspace;
    const octet_dtype f32 = OCTET_DTYPE_F32;

    octet_status s = octet_quantize(NULL, f32, x, SIZE, NULL, &row, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "context is NULL");
    s = octet_quantize(c, (octet_dtype)2, x, SIZE, NULL, &row, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "dtype is 2");
    s = octet_quantize(c, f32, NULL, SIZE, NULL, &row, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "x is NULL");
    s = octet_quantize(c, f32, x, SIZE - 1, NULL, &row, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "x has 6399 bytes, at least 6400");
    s = octet_quantize(c, f32, (uint8_t *)x + 1, SIZE, NULL, &row, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "x is at an address");
    s = octet_quantize(c, f32, x, SIZE, NULL, NULL, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "row and col are NULL");
    s = octet_quantize(c, f32, x, SIZE, NULL, &col, NULL, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, function, "row->orientation is 1");
    s = octet_quantize(c, f32, x, SIZE, NULL, NULL, &row, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, function, "col->orientation is 0");
    s = octet_quantize(c, f32, x, SIZE, NULL, &row, NULL, NULL, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "workspace is NULL");
    s = octet_quantize(c, f32, x, SIZE, NULL, &row, NULL, w, 10, &error);
    check_refused(s, OCTET_E_WORKSPACE, &error, function, "workspace_bytes is 10");
    s = octet_quantize(c, f32, x, SIZE, NULL, &row, NULL, x, sizeof x, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "x overlaps workspace");

    settings.mx_rule = (octet_mx_rule)2;
    s = octet_quantize(c, f32, x, SIZE, &settings, &row, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "settings->mx_rule is 2");
    settings = (octet_quantize_settings)OCTET_QUANTIZE_SETTINGS_INIT;
    settings.role = (octet_role)3;
    s = octet_quantize(c, f32, x, SIZE, &settings, &row, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "settings->role is 3");
    settings = (octet_quantize_settings)OCTET_QUANTIZE_SETTINGS_INIT;
    settings.saturate = 2;
    s = octet_quantize(c, f32, x, SIZE, &settings, &row, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "settings->saturate is 2");

    octet_operand other = row;
    other.codes = NULL;
    s = octet_quantize(c, f32, x, SIZE, NULL, &other, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "row->codes is NULL");
    other = row;
    other.codes_bytes--;
    s = octet_quantize(c, f32, x, SIZE, NULL, &other, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "row->codes has 1599 bytes");
    other = row;
    other.scales_bytes--;
    s = octet_quantize(c, f32, x, SIZE, NULL, &other, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "row->scales has 79 bytes");
    other = row;
    other.scales = (uint8_t *)row.codes + 10;
    s = octet_quantize(c, f32, x, SIZE, NULL, &other, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "row->codes overlaps row->scales");
    other = col;
    other.codes = row.codes;
    s = octet_quantize(c, f32, x, SIZE, NULL, &row, &other, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "row->codes overlaps col->codes");
    other = col;
    other.rows--;
    s = octet_quantize(c, f32, x, SIZE, NULL, &row, &other, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, function, "col->rows is 39");
    other = col;
    other.format = OCTET_FORMAT_HIF8;
    s = octet_quantize(c, f32, x, SIZE, NULL, &row, &other, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, function, "col->format is 1");
    const int64_t ends[] = {7, M};
    other = col;
    other.groups = (octet_groups){2, ends};
    s = octet_quantize(c, f32, x, SIZE, NULL, &row, &other, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, function, "col->groups.count is 2");

    float *y = take(SIZE);
    s = octet_dequantize(c, &row, y, SIZE - 1, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_dequantize", "y has 6399 bytes");
    s = octet_dequantize(c, &row, NULL, SIZE, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_dequantize", "y is NULL");
    s = octet_dequantize(c, NULL, y, SIZE, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_dequantize", "operand is NULL");
    s = octet_dequantize(NULL, &row, y, SIZE, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_dequantize", "context is NULL");
    other = row;
    other.scales = y;
    s = octet_dequantize(c, &other, y, SIZE, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_dequantize", "y overlaps operand->scales");

    s = octet_amax(c, f32, x, SIZE, &row, NULL, 4, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_amax", "amax is NULL");
    s = octet_amax(c, f32, x, SIZE, &row, y, 3, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_amax", "amax has 3 bytes");
    s = octet_amax(c, f32, x, SIZE, NULL, y, 4, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_amax", "shape is NULL");
    s = octet_amax(c, f32, x, SIZE, &row, y, 4, w, 1, &error);
    check_refused(s, OCTET_E_WORKSPACE, &error, "octet_amax", "workspace_bytes is 1");

    uint8_t bytes[80];
    s = octet_mx_scales_store(&row, (octet_scale_layout)2, bytes, 80, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_mx_scales_store", "layout is 2");
    s = octet_mx_scales_store(&row, OCTET_SCALE_LAYOUT_PLAIN, NULL, 80, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_mx_scales_store", "out is NULL");
    s = octet_mx_scales_store(&row, OCTET_SCALE_LAYOUT_PLAIN, bytes, 79, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_mx_scales_store", "out has 79 bytes");
    s = octet_mx_scales_load(&row, OCTET_SCALE_LAYOUT_PLAIN, row.scales, 80, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_mx_scales_load",
                  "operand->scales overlaps in");
    other = row;
    other.format = OCTET_FORMAT_HIF8;
    s = octet_mx_scales_load(&other, OCTET_SCALE_LAYOUT_PLAIN, bytes, 80, &error);
    check_refused(s, OCTET_E_UNSUPPORTED, &error, "octet_mx_scales_load",
                  "operand->format is hif8");
    free(y);
    free_operand(&row);
    free_operand(&col);
}

static void quantize__other_rounding_mode__is_refused(void **state)
{
    (void)state;
    octet_error error = {0};
    test_context t;
    const float x[1] = {1.0f};
    uint8_t workspace[512];
    assert_true(open_context(&t, OCTET_ISA_REF, 1));
    octet_operand o = new_operand(OCTET_FORMAT_HIF8, OCTET_ORIENTATION_ROW, 0, 1, 1, none);
    const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(fesetround(modes[i]), 0);
        const octet_status s = octet_quantize(t.context, OCTET_DTYPE_F32, x, sizeof x, NULL, &o,
                                              NULL, workspace, sizeof workspace, &error);
        assert_int_equal(fesetround(FE_TONEAREST), 0);
        check_refused(s, OCTET_E_ENVIRONMENT, &error, function, "floating-point environment");
    }
#if defined(__x86_64__)
    for (unsigned bit = 0x40; bit <= 0x8000; bit *= 0x8000 / 0x40) { /* DAZ, FTZ */
        const unsigned before = __builtin_ia32_stmxcsr();
        __builtin_ia32_ldmxcsr(before | bit);
        const octet_status s = octet_quantize(t.context, OCTET_DTYPE_F32, x, sizeof x, NULL, &o,
                                              NULL, workspace, sizeof workspace, &error);
        __builtin_ia32_ldmxcsr(before);
        check_refused(s, OCTET_E_ENVIRONMENT, &error, function, "FTZ, DAZ");
    }
#endif
    free_operand(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mx__golden_tensors__same_bytes),
        cmocka_unit_test(hif8__golden_tensors__same_bytes),
        cmocka_unit_test(hif8__golden_groups__same_bytes),
        cmocka_unit_test(quantize__both_orientations__bytes_of_each_alone),
        cmocka_unit_test(quantize__groups__bytes_of_each_group_alone),
        cmocka_unit_test(quantize__stack__bytes_of_each_matrix_alone),
        cmocka_unit_test(quantize__amax_of_a_larger_tensor__its_scale),
        cmocka_unit_test(quantize__nothing__scales_of_nothing),
        cmocka_unit_test(operands__every_shape__dequantized_and_laid_out_as_specified),
        cmocka_unit_test(operand_bytes__wrong_fields__are_named),
        cmocka_unit_test(quantize__wrong_arguments__are_named),
        cmocka_unit_test(quantize__other_rounding_mode__is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
