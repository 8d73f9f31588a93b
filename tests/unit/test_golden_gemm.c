/* Quantize-then-multiply against golden/formats/gemm_dense.txt and gemm_grouped.txt, for every
 * instruction set this CPU has. tests/golden/formats/README.md is the file format. */
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

enum { MAX_GROUPS = 64 };

typedef enum kind { KIND_FPROP, KIND_DGRAD, KIND_WGRAD } kind;

typedef struct block { /* a named matrix of words */
    int64_t rows, cols;
    uint64_t *words;
} block;

typedef struct product {
    oct_format format;
    kind kind;
    int64_t groups, ends[MAX_GROUPS];
    int64_t n, k;
    block left, right, y, abs;
} product;

static char *line;
static size_t line_capacity;

static block read_block(FILE *file, int digits)
{
    block b = {0};
    char name[16];
    long long rows = 0, cols = 0;
    assert_true(getline(&line, &line_capacity, file) > 0);
    assert_int_equal(sscanf(line, "%15s %lld %lld", name, &rows, &cols), 3);
    b.rows = rows;
    b.cols = cols;
    b.words = calloc((size_t)(rows * cols) + 1, sizeof *b.words);
    assert_non_null(b.words);
    for (int64_t r = 0; r < rows; r++) {
        assert_true(getline(&line, &line_capacity, file) > 0);
        for (int64_t c = 0; c < cols; c++) {
            char word[17] = {0};
            memcpy(word, line + c * digits, (size_t)digits);
            b.words[r * cols + c] = strtoull(word, NULL, 16);
        }
    }
    return b;
}

static bool read_product(FILE *file, product *p)
{
    char format[16] = "", name[32] = "", ends[1024] = "";
    long long m = 0, n = 0, k = 0;
    do
        if (getline(&line, &line_capacity, file) <= 0)
            return false;
    while (strncmp(line, "case ", 5) != 0);
    memset(p, 0, sizeof *p);
    if (strstr(line, "group_ends")) {
        assert_int_equal(sscanf(line, "case %15s %31s group_ends %1023s m %lld n %lld k %lld",
                                format, name, ends, &m, &n, &k),
                         6);
        for (char *at = ends; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
            p->ends[p->groups++] = strtoll(at, NULL, 10);
    } else {
        assert_int_equal(
            sscanf(line, "case %15s %31s m %lld n %lld k %lld", format, name, &m, &n, &k), 5);
        p->ends[p->groups++] = m;
    }
    p->format = strcmp(format, "hif8") == 0 ? OCT_FORMAT_HIF8 : OCT_FORMAT_MXFP8;
    p->kind = strstr(name, "fprop") ? KIND_FPROP : strstr(name, "dgrad") ? KIND_DGRAD : KIND_WGRAD;
    p->n = n;
    p->k = k;
    p->left = read_block(file, 8);
    p->right = read_block(file, 8);
    p->y = read_block(file, 16);
    p->abs = read_block(file, 8);
    return true;
}

static void product_free(product *p)
{
    free(p->left.words);
    free(p->right.words);
    free(p->y.words);
    free(p->abs.words);
}

/* Quantizes rows begin .. end of a block, blocks along its columns (row) or its rows. */
static oct_panels *quantize_and_pack(const oct_exec *exec, oct_arena *arena, oct_format format,
                                     const block *b, int64_t begin, int64_t end, bool row,
                                     float format_max, oct_side side)
{
    const int64_t rows = end - begin, cols = b->cols;
    oct_err err = {0};
    oct_tensor x;
    void *codes = NULL, *scales = NULL, *source = NULL;
    assert_int_equal(oct_tensor_new_2d(arena, OCT_DTYPE_F32, rows, cols, &x, &err), OCT_OK);
    for (int64_t i = 0; i < rows * cols; i++) {
        const uint32_t word = (uint32_t)b->words[begin * cols + i];
        memcpy((float *)x.data + i, &word, sizeof word);
    }
    const size_t pairs =
        (size_t)(row ? rows * oct_ceil_div(cols, 64) : oct_ceil_div(rows, 64) * cols);
    assert_int_equal(oct_arena_alloc(arena, (size_t)(rows * cols), &codes, &err), OCT_OK);
    assert_int_equal(oct_arena_alloc(arena, pairs * 2, &scales, &err), OCT_OK);
    assert_int_equal(oct_arena_alloc(arena, sizeof(oct_quantized_matrix), &source, &err), OCT_OK);
    oct_quantized_matrix *q = source;
    *q = (oct_quantized_matrix){.format = format,
                                .codes = codes,
                                .ld = cols,
                                .k_contiguous = row,
                                .rows = row ? rows : cols,
                                .k = row ? cols : rows,
                                .scale = 1.0f};
    if (format == OCT_FORMAT_MXFP8) {
        const oct_mx_out out = {.row_codes = row ? codes : NULL,
                                .row_scales = row ? scales : NULL,
                                .col_codes = row ? NULL : codes,
                                .col_scales = row ? NULL : scales};
        assert_int_equal(oct_mx_quantize(exec, &x, NULL, OCT_MX_RULE_ROUND_UP, &out, &err), OCT_OK);
        q->scales = scales;
        q->scale_ld = cols;
    } else {
        float amax = 0.0f;
        assert_int_equal(oct_hif8_amax(exec, &x, NULL, &amax, &err), OCT_OK);
        q->scale = oct_hif8_scale(amax, format_max);
        assert_int_equal(oct_hif8_quantize(exec, &x, NULL, &q->scale, false, codes, &err), OCT_OK);
    }
    oct_panels *panels = NULL;
    assert_int_equal(oct_pack(exec, q, side, arena, &panels, &err), OCT_OK);
    return panels;
}

static void check_group(const oct_exec *exec, const product *p, int64_t g)
{
    const int64_t begin = g ? p->ends[g - 1] : 0, end = p->ends[g];
    const bool left_row = p->kind != KIND_WGRAD, right_row = p->kind == KIND_FPROP;
    const int64_t right_begin = p->kind == KIND_WGRAD ? begin : g * p->n;
    const int64_t right_end = p->kind == KIND_WGRAD ? end : (g + 1) * p->n;
    const int64_t rows = p->kind == KIND_WGRAD ? p->n : end - begin;
    const int64_t first = p->kind == KIND_WGRAD ? g * p->n : begin;
    const int64_t cols = p->y.cols;
    const int64_t depth = p->kind == KIND_FPROP ? p->k : p->kind == KIND_DGRAD ? p->n : end - begin;
    oct_arena arena;
    oct_arena_init(&arena, "golden");
    oct_panels *left = quantize_and_pack(exec, &arena, p->format, &p->left, begin, end, left_row,
                                         p->kind == KIND_FPROP ? 15.0f : 224.0f, OCT_SIDE_LEFT);
    oct_panels *right = quantize_and_pack(exec, &arena, p->format, &p->right, right_begin,
                                          right_end, right_row, 15.0f, OCT_SIDE_RIGHT);
    oct_err err = {0};
    void *c = NULL;
    assert_int_equal(oct_arena_alloc(&arena, (size_t)(rows * cols) * sizeof(float), &c, &err),
                     OCT_OK);
    const oct_gemm_out out = {.data = c, .ld = cols, .dtype = OCT_DTYPE_F32};
    assert_int_equal(oct_block_integer_gemm(exec, left, right, &out, NULL, &err), OCT_OK);
    for (int64_t i = 0; i < rows * cols; i++) {
        double y;
        float abs;
        const uint32_t abs_word = (uint32_t)p->abs.words[first * cols + i];
        memcpy(&y, &p->y.words[first * cols + i], sizeof y);
        memcpy(&abs, &abs_word, sizeof abs);
        const double bound = ((double)depth + 4) * 0x1p-24 * (double)abs;
        const double found = (double)((const float *)c)[i];
        if (!(fabs(found - y) <= bound))
            fail_msg("element %lld of group %lld: %.9g, %.9g +- %.3g required", (long long)i,
                     (long long)g, found, y, bound);
    }
    oct_arena_release(&arena);
}

static void check_file(const char *name)
{
    const char *directory = getenv("OCTET_GOLDEN");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/formats/%s", directory ? directory : "tests/golden",
                   name);
    FILE *file = fopen(path, "re");
    if (!file) {
        print_message("absent: %s\n", path);
        return; /* the directory may hold any part of the set */
    }
    oct_arena scratch;
    oct_arena_init(&scratch, "scratch");
    int64_t cases = 0;
    product p;
    while (read_product(file, &p)) {
        for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
            oct_kernels kernels;
            oct_kernels_init(&kernels, (oct_isa)isa);
            const oct_exec exec = {.kernels = &kernels, .threads = 1, .scratch = &scratch};
            for (int64_t g = 0; g < p.groups; g++)
                check_group(&exec, &p, g);
        }
        product_free(&p);
        cases++;
    }
    print_message("%s: %lld products\n", name, (long long)cases);
    assert_true(cases > 0);
    oct_arena_release(&scratch);
    (void)fclose(file);
}

static void block_integer_gemm__golden_dense__within_bound(void **state)
{
    (void)state;
    check_file("gemm_dense.txt");
}

static void block_integer_gemm__golden_grouped__within_bound(void **state)
{
    (void)state;
    check_file("gemm_grouped.txt");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_integer_gemm__golden_dense__within_bound),
        cmocka_unit_test(block_integer_gemm__golden_grouped__within_bound),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(line);
    return failed;
}
