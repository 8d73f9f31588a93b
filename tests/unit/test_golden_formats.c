/* Every row of golden/formats except the products (gemm_*), with the scalar codecs and with the
 * quantizers of every instruction set this CPU has. tests/golden/formats/README.md is the file
 * format. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "kernels/exec.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/e8m0.h"
#include "numeric/hif8.h"

enum { MAX_FIELDS = 16 };

/* One golden file, read line by line. */
typedef struct golden {
    FILE *stream;
    char *line;
    size_t capacity;
    int64_t number;
    char *fields[MAX_FIELDS];
    int count;
} golden;

static int64_t rows_checked;

static const char *golden_directory(void)
{
    const char *directory = getenv("OCTET_GOLDEN");
    return directory && *directory ? directory : "tests/golden";
}

/* false if the directory does not hold the file: it may hold any part of the set. */
static bool golden_open(golden *file, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/formats/%s", golden_directory(), name);
    *file = (golden){.stream = fopen(path, "re")};
    if (!file->stream)
        print_message("absent: %s\n", path);
    return file->stream != NULL;
}

static bool golden_line(golden *file)
{
    const ssize_t length = getline(&file->line, &file->capacity, file->stream);
    if (length < 0)
        return false;
    file->number++;
    file->line[strcspn(file->line, "\r\n")] = '\0';
    return true;
}

/* The next line, cut at `separator`; empty fields count. */
static bool golden_row(golden *file, char separator)
{
    if (!golden_line(file))
        return false;
    file->count = 0;
    char *rest = file->line;
    while (rest && file->count < MAX_FIELDS) {
        file->fields[file->count++] = rest;
        rest = strchr(rest, separator);
        if (rest)
            *rest++ = '\0';
    }
    return true;
}

static void golden_close(golden *file, int64_t rows)
{
    assert_true(rows > 0);
    rows_checked += rows;
    free(file->line);
    (void)fclose(file->stream);
}

static uint32_t hex_word(const char *text, int digits)
{
    uint32_t word = 0;
    for (int i = 0; i < digits; i++) {
        const char c = text[i];
        assert_true((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'));
        word = word << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return word;
}

static void hex_floats(const char *text, int64_t n, float *out)
{
    assert_int_equal(strlen(text), 8 * n);
    for (int64_t i = 0; i < n; i++)
        out[i] = oct_f32_from_bits(hex_word(text + 8 * i, 8));
}

static void hex_bytes(const char *text, int64_t n, uint8_t *out)
{
    assert_int_equal(strlen(text), 2 * n);
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint8_t)hex_word(text + 2 * i, 2);
}

static void check_word(const golden *file, const char *what, uint32_t found, uint32_t wanted)
{
    if (found != wanted)
        fail_msg("line %lld, %s: found %x, wanted %x", (long long)file->number, what, found,
                 wanted);
}

static void check_bytes(const golden *file, const char *what, const uint8_t *found,
                        const uint8_t *wanted, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (found[i] != wanted[i])
            fail_msg("line %lld, %s[%lld]: found %02x, wanted %02x", (long long)file->number, what,
                     (long long)i, found[i], wanted[i]);
    }
}

/* --- running the quantizers ------------------------------------------------------------------ */

static oct_kernels kernels[OCT_ISA_AVX512 + 1];
static oct_arena scratch;

static int setup(void **state)
{
    (void)state;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
        oct_kernels_init(&kernels[isa], (oct_isa)isa);
    oct_arena_init(&scratch, "scratch");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    oct_arena_release(&scratch);
    return 0;
}

/* BF16 words of x if every value is one. */
static bool to_bf16(const float *x, int64_t n, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = oct_f32_bits(x[i]);
        if (bits & 0xffffu)
            return false;
        out[i] = (uint16_t)(bits >> 16);
    }
    return true;
}

/* Calls `run` for every instruction set, both dtypes (BF16 where x is BF16) and 1 and 2 threads. */
typedef void (*variant_fn)(const golden *file, const oct_exec *exec, const oct_tensor *x,
                           const void *arg);
static void for_each_variant(const golden *file, float *x, int64_t rows, int64_t cols,
                             variant_fn run, const void *arg)
{
    uint16_t *words = malloc((size_t)(rows * cols) * sizeof *words + 1);
    const bool is_bf16 = to_bf16(x, rows * cols, words);
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        for (int threads = 1; threads <= 2; threads++) {
            const oct_exec exec = {
                .kernels = &kernels[isa], .threads = threads, .scratch = &scratch};
            const oct_tensor f32 = oct_tensor_2d(x, OCT_DTYPE_F32, rows, cols);
            run(file, &exec, &f32, arg);
            const oct_tensor bf16 = oct_tensor_2d(words, OCT_DTYPE_BF16, rows, cols);
            if (is_bf16)
                run(file, &exec, &bf16, arg);
        }
    }
    free(words);
}

/* --- code tables ------------------------------------------------------------------------------ */

static const char *class_of(float value, float min_normal)
{
    if (isnan(value))
        return "nan";
    if (isinf(value))
        return "inf";
    if (value == 0.0f)
        return "zero";
    return fabsf(value) < min_normal ? "subnormal" : "normal";
}

static void check_codes(const char *name, float (*decode)(uint8_t), float min_normal)
{
    golden file;
    if (!golden_open(&file, name))
        return;
    int64_t rows = 0;
    assert_true(golden_line(&file));
    while (golden_row(&file, ',')) {
        assert_int_equal(file.count, 3);
        const float found = decode((uint8_t)hex_word(file.fields[0], 2));
        const float wanted = strtof(file.fields[1], NULL);
        if (isnan(wanted))
            assert_true(isnan(found));
        else
            check_word(&file, "value", oct_f32_bits(found), oct_f32_bits(wanted));
        assert_string_equal(class_of(found, min_normal), file.fields[2]);
        rows++;
    }
    golden_close(&file, rows);
}

static void e4m3_codes(void **state)
{
    (void)state;
    check_codes("e4m3_codes.csv", oct_e4m3_decode, 0x1p-6f);
}

static void e8m0_codes(void **state)
{
    (void)state;
    check_codes("e8m0_codes.csv", oct_e8m0_decode, 0x1p-127f);
}

static void hif8_codes(void **state)
{
    (void)state;
    check_codes("hif8_codes.csv", oct_hif8_decode, 0x1p-15f);
}

/* --- lone encoding -----------------------------------------------------------------------------
 */

/* hif8_encode of one value by every kernel: scale 1 leaves it alone. */
static void check_hif8_kernels(const golden *file, float x, bool saturate, uint8_t wanted)
{
    const uint16_t word = (uint16_t)(oct_f32_bits(x) >> 16);
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        const oct_quantize_kernels *quantize = &kernels[isa].quantize;
        uint8_t code = 0x55;
        quantize->hif8_encode(&x, OCT_DTYPE_F32, 1, 1.0f, saturate, &code);
        check_word(file, oct_isa_name((oct_isa)isa), code, wanted);
        if (oct_f32_bits(x) & 0xffffu)
            continue;
        code = 0x55;
        quantize->hif8_encode(&word, OCT_DTYPE_BF16, 1, 1.0f, saturate, &code);
        check_word(file, oct_isa_name((oct_isa)isa), code, wanted);
    }
}

static void check_encode(const char *name, uint8_t (*encode)(float, bool), bool is_hif8)
{
    golden file;
    if (!golden_open(&file, name))
        return;
    int64_t rows = 0;
    assert_true(golden_line(&file));
    while (golden_row(&file, ',')) {
        assert_int_equal(file.count, 3);
        const float x = oct_f32_from_bits(hex_word(file.fields[0], 8));
        for (int saturate = 0; saturate < 2; saturate++) {
            const uint8_t wanted = (uint8_t)hex_word(file.fields[1 + saturate], 2);
            check_word(&file, saturate ? "sat" : "nosat", encode(x, saturate), wanted);
            if (is_hif8)
                check_hif8_kernels(&file, x, saturate, wanted);
        }
        rows++;
    }
    golden_close(&file, rows);
}

static void e4m3_encode(void **state)
{
    (void)state;
    check_encode("e4m3_encode.csv", oct_e4m3_encode, false);
}

static void hif8_encode(void **state)
{
    (void)state;
    check_encode("hif8_encode.csv", oct_hif8_encode, true);
}

static void check_bf16_codes(const char *name, uint8_t (*encode)(float, bool), bool saturate,
                             bool is_hif8)
{
    golden file;
    if (!golden_open(&file, name))
        return;
    uint32_t word = 0;
    while (golden_line(&file)) {
        for (const char *text = file.line; *text; text += 2, word++) {
            assert_true(word < 0x10000u);
            const float x = oct_bf16_to_f32((uint16_t)word);
            const uint8_t wanted = (uint8_t)hex_word(text, 2);
            check_word(&file, "code", encode(x, saturate), wanted);
            if (is_hif8)
                check_hif8_kernels(&file, x, saturate, wanted);
        }
    }
    assert_int_equal(word, 0x10000);
    golden_close(&file, file.number);
}

static void e4m3_bf16(void **state)
{
    (void)state;
    check_bf16_codes("e4m3_bf16.hex", oct_e4m3_encode, true, false);
}

static void hif8_bf16(void **state)
{
    (void)state;
    check_bf16_codes("hif8_bf16.hex", oct_hif8_encode, false, true);
}

/* --- MX --------------------------------------------------------------------------------------- */

/* What one MX quantization must give. */
typedef struct mx_wanted {
    oct_mx_rule rule;
    bool is_col;
    const uint8_t *codes, *scales;
    int64_t scale_bytes;
} mx_wanted;

static void check_mx(const golden *file, const oct_exec *exec, const oct_tensor *x, const void *arg)
{
    const mx_wanted *wanted = arg;
    const int64_t n = oct_tensor_numel(x);
    uint8_t *codes = malloc((size_t)n + 1), *scales = malloc((size_t)wanted->scale_bytes + 1);
    memset(codes, 0x55, (size_t)n);
    memset(scales, 0x55, (size_t)wanted->scale_bytes);
    const oct_mx_out out = wanted->is_col ? (oct_mx_out){.col_codes = codes, .col_scales = scales}
                                          : (oct_mx_out){.row_codes = codes, .row_scales = scales};
    oct_err err = {0};
    assert_int_equal(oct_mx_quantize(exec, x, NULL, wanted->rule, &out, &err), OCT_OK);
    check_bytes(file, "scale", scales, wanted->scales, wanted->scale_bytes);
    check_bytes(file, "code", codes, wanted->codes, n);
    free(codes);
    free(scales);
}

static void mx_amax(void **state)
{
    (void)state;
    golden file;
    if (!golden_open(&file, "mx_amax.csv"))
        return;
    int64_t rows = 0;
    assert_true(golden_line(&file));
    while (golden_row(&file, ',')) {
        assert_int_equal(file.count, 3);
        const float amax = oct_f32_from_bits(hex_word(file.fields[0], 8));
        for (int rule = 0; rule < 2; rule++) {
            const uint8_t wanted = (uint8_t)hex_word(file.fields[1 + rule], 2);
            check_word(&file, "byte", oct_mx_scale_byte(amax, (oct_mx_rule)rule), wanted);
            for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
                uint8_t code, row[2], col[2];
                kernels[isa].quantize.mx_rows(&amax, OCT_DTYPE_F32, 1, 1, 1, (oct_mx_rule)rule,
                                              &code, 1, row, 2);
                kernels[isa].quantize.mx_cols(&amax, OCT_DTYPE_F32, 1, 1, 1, (oct_mx_rule)rule,
                                              &code, 1, col);
                check_word(&file, "row byte", row[0], wanted);
                check_word(&file, "col byte", col[0], wanted);
            }
        }
        rows++;
    }
    golden_close(&file, rows);
}

static void mx_blocks(void **state)
{
    (void)state;
    golden file;
    if (!golden_open(&file, "mx_blocks.csv"))
        return;
    int64_t rows = 0;
    assert_true(golden_line(&file));
    while (golden_row(&file, ',')) {
        assert_int_equal(file.count, 8);
        const int64_t n = strtoll(file.fields[2], NULL, 10);
        assert_in_range(n, 1, 32);
        float x[32];
        hex_floats(file.fields[3], n, x);
        for (int rule = 0; rule < 2; rule++) {
            uint8_t codes[32], scales[2] = {0, 0};
            hex_bytes(file.fields[4 + 2 * rule], 1, scales);
            hex_bytes(file.fields[5 + 2 * rule], n, codes);
            mx_wanted wanted = {
                .rule = (oct_mx_rule)rule, .codes = codes, .scales = scales, .scale_bytes = 2};
            for_each_variant(&file, x, 1, n, check_mx, &wanted);
            wanted.is_col = true;
            for_each_variant(&file, x, n, 1, check_mx, &wanted);
        }
        rows++;
    }
    golden_close(&file, rows);
}

/* `tag` and the rest of one line of a case. */
static char *case_line(golden *file, const char *tag)
{
    assert_true(golden_line(file));
    assert_int_equal(strncmp(file->line, tag, strlen(tag)), 0);
    return file->line + strlen(tag);
}

static void mx_tensors(void **state)
{
    (void)state;
    golden file;
    if (!golden_open(&file, "mx_tensors.txt"))
        return;
    int64_t cases = 0;
    while (golden_row(&file, ' ')) {
        assert_int_equal(file.count, 11);
        const int64_t m = strtoll(file.fields[2], NULL, 10), n = strtoll(file.fields[4], NULL, 10);
        const bool is_col = strcmp(file.fields[6], "-2") == 0;
        const oct_mx_rule rule = (oct_mx_rule)strtol(file.fields[8], NULL, 10);
        const int64_t scale_bytes =
            is_col ? oct_ceil_div(m, 64) * n * 2 : m * oct_ceil_div(n, 64) * 2;
        float *x = malloc((size_t)(m * n) * sizeof *x + 1);
        uint8_t *codes = malloc((size_t)(m * n) + 1), *scales = malloc((size_t)scale_bytes + 1);
        for (int64_t row = 0; row < m; row++)
            hex_floats(case_line(&file, "x "), n, x + row * n);
        for (int64_t row = 0; row < m; row++)
            hex_bytes(case_line(&file, "c "), n, codes + row * n);
        hex_bytes(case_line(&file, "s "), scale_bytes, scales);
        (void)case_line(&file, "end");
        const mx_wanted wanted = {.rule = rule,
                                  .is_col = is_col,
                                  .codes = codes,
                                  .scales = scales,
                                  .scale_bytes = scale_bytes};
        for_each_variant(&file, x, m, n, check_mx, &wanted);
        free(x);
        free(codes);
        free(scales);
        cases++;
    }
    golden_close(&file, cases);
}

/* --- HiF8 ------------------------------------------------------------------------------------- */

static void hif8_scale(void **state)
{
    (void)state;
    golden file;
    if (!golden_open(&file, "hif8_scale.csv"))
        return;
    int64_t rows = 0;
    assert_true(golden_line(&file));
    while (golden_row(&file, ',')) {
        assert_int_equal(file.count, 3);
        const float amax = oct_f32_from_bits(hex_word(file.fields[0], 8));
        const float found = oct_hif8_scale(amax, strtof(file.fields[1], NULL));
        check_word(&file, "scale", oct_f32_bits(found), hex_word(file.fields[2], 8));
        rows++;
    }
    golden_close(&file, rows);
}

/* What one HiF8 quantization must give; one entry of amax and scales for each group. */
typedef struct hif8_wanted {
    const oct_groups *groups;
    float format_max;
    const float *amax; /* NULL: not given */
    const float *scales;
    const uint8_t *codes[2]; /* nosat, sat; NULL: not given */
} hif8_wanted;

static void check_hif8(const golden *file, const oct_exec *exec, const oct_tensor *x,
                       const void *arg)
{
    const hif8_wanted *wanted = arg;
    const int64_t n = oct_tensor_numel(x), groups = oct_max_i64(wanted->groups->count, 1);
    float *amax = malloc((size_t)groups * sizeof *amax);
    float *scales = malloc((size_t)groups * sizeof *scales);
    uint8_t *codes = malloc((size_t)n + 1);
    oct_err err = {0};
    assert_int_equal(oct_hif8_amax(exec, x, wanted->groups, amax, &err), OCT_OK);
    for (int64_t g = 0; g < groups; g++) {
        scales[g] = oct_hif8_scale(amax[g], wanted->format_max);
        if (wanted->amax && isnan(wanted->amax[g]))
            assert_true(isnan(amax[g]));
        else if (wanted->amax)
            check_word(file, "amax", oct_f32_bits(amax[g]), oct_f32_bits(wanted->amax[g]));
        check_word(file, "scale", oct_f32_bits(scales[g]), oct_f32_bits(wanted->scales[g]));
    }
    for (int saturate = 0; saturate < 2; saturate++) {
        if (!wanted->codes[saturate])
            continue;
        memset(codes, 0x55, (size_t)n);
        assert_int_equal(oct_hif8_quantize(exec, x, wanted->groups, scales, saturate, codes, &err),
                         OCT_OK);
        check_bytes(file, saturate ? "code sat" : "code nosat", codes, wanted->codes[saturate], n);
    }
    free(amax);
    free(scales);
    free(codes);
}

static void hif8_quant(void **state)
{
    (void)state;
    golden file;
    if (!golden_open(&file, "hif8_quant.csv"))
        return;
    int64_t rows = 0;
    assert_true(golden_line(&file));
    while (golden_row(&file, ',')) {
        assert_int_equal(file.count, 9);
        const int64_t n = strtoll(file.fields[3], NULL, 10);
        float *x = malloc((size_t)n * sizeof *x + 1);
        uint8_t *codes = malloc((size_t)n + 1), *codes_sat = malloc((size_t)n + 1);
        hex_floats(file.fields[4], n, x);
        hex_bytes(file.fields[7], n, codes);
        hex_bytes(file.fields[8], n, codes_sat);
        const float amax = oct_f32_from_bits(hex_word(file.fields[5], 8));
        const float scale = oct_f32_from_bits(hex_word(file.fields[6], 8));
        const oct_groups whole = {0};
        const hif8_wanted wanted = {.groups = &whole,
                                    .format_max = strtof(file.fields[2], NULL),
                                    .amax = &amax,
                                    .scales = &scale,
                                    .codes = {codes, codes_sat}};
        for_each_variant(&file, x, 1, n, check_hif8, &wanted);
        for_each_variant(&file, x, n, 1, check_hif8, &wanted);
        free(x);
        free(codes);
        free(codes_sat);
        rows++;
    }
    golden_close(&file, rows);
}

static void hif8_groups(void **state)
{
    (void)state;
    golden file;
    if (!golden_open(&file, "hif8_groups.txt"))
        return;
    int64_t cases = 0;
    while (golden_row(&file, ' ')) {
        assert_int_equal(file.count, 9);
        const int64_t m = strtoll(file.fields[2], NULL, 10), n = strtoll(file.fields[4], NULL, 10);
        const float format_max = strtof(file.fields[6], NULL);
        int64_t ends[256];
        oct_groups groups = {.ends = ends};
        for (char *text = file.fields[8]; *text; text += *text == ',') {
            assert_true(groups.count < 256);
            ends[groups.count++] = strtoll(text, &text, 10);
        }
        float *x = malloc((size_t)(m * n) * sizeof *x + 1), scales[256];
        uint8_t *codes = malloc((size_t)(m * n) + 1);
        for (int64_t row = 0; row < m; row++)
            hex_floats(case_line(&file, "x "), n, x + row * n);
        for (int64_t row = 0; row < m; row++)
            hex_bytes(case_line(&file, "c "), n, codes + row * n);
        hex_floats(case_line(&file, "s "), groups.count, scales);
        (void)case_line(&file, "end");
        const hif8_wanted wanted = {
            .groups = &groups, .format_max = format_max, .scales = scales, .codes = {codes, NULL}};
        for_each_variant(&file, x, m, n, check_hif8, &wanted);
        free(x);
        free(codes);
        cases++;
    }
    golden_close(&file, cases);
}

/* Runs last: a directory without any of the files checks nothing and must not look like success. */
static void golden__rows__some_were_checked(void **state)
{
    (void)state;
    print_message("%lld rows of %s/formats\n", (long long)rows_checked, golden_directory());
    assert_true(rows_checked > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e4m3_codes),  cmocka_unit_test(e8m0_codes),
        cmocka_unit_test(hif8_codes),  cmocka_unit_test(e4m3_encode),
        cmocka_unit_test(hif8_encode), cmocka_unit_test(e4m3_bf16),
        cmocka_unit_test(hif8_bf16),   cmocka_unit_test(mx_amax),
        cmocka_unit_test(mx_blocks),   cmocka_unit_test(mx_tensors),
        cmocka_unit_test(hif8_scale),  cmocka_unit_test(hif8_quant),
        cmocka_unit_test(hif8_groups), cmocka_unit_test(golden__rows__some_were_checked),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
