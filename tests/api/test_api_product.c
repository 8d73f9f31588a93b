/* Public products: golden values, every instruction set and number of threads, groups, epilogue,
 * workspace, refusals. */
#include "api_fixture.h"

#include <math.h>

static const octet_groups none = {0, NULL};

enum { MAX_GROUPS = 64 };

/* --- one product with a workspace of just the size that is asked for ---------------------------
 */

static void multiply(const octet_context *context, const octet_operand *left,
                     const octet_operand *right, octet_layout layout, const octet_groups *groups,
                     const octet_output *output, octet_product_report *report)
{
    octet_error error = {0};
    size_t bytes = 0;
    if (octet_product_workspace_bytes(context, left, right, layout, groups, &bytes, &error) !=
        OCTET_OK)
        fail_msg("%s", error.message);
    unsigned char *workspace = take(bytes + GUARD_BYTES + 1);
    const octet_status status =
        groups ? octet_grouped_product(context, left, right, layout, groups, output, report,
                                       workspace + 1, bytes, &error)
               : octet_product(context, left, right, layout, output, report, workspace + 1, bytes,
                               &error);
    if (status != OCTET_OK)
        fail_msg("%s", error.message);
    for (size_t i = 0; i < GUARD_BYTES; i++)
        assert_int_equal(workspace[1 + bytes + i], GUARD);
    free(workspace);
}

static octet_output output_of(octet_dtype dtype, void *data, int64_t rows, int64_t cols)
{
    octet_output output = OCTET_OUTPUT_INIT;
    output.dtype = dtype;
    output.data = data;
    output.data_bytes = (size_t)(rows * cols) * (dtype == OCTET_DTYPE_F32 ? 4 : 2);
    output.ld = cols;
    return output;
}

/* --- golden ----------------------------------------------------------------------------------- */

typedef struct block {
    int64_t rows, cols;
    float *x;     /* of 8 digits */
    double *wide; /* of 16 */
} block;

static block read_block(golden *file, int digits)
{
    char name[16];
    long long rows = 0, cols = 0;
    assert_true(golden_line(file));
    assert_int_equal(sscanf(file->line, "%15s %lld %lld", name, &rows, &cols), 3);
    block b = {rows, cols, take((size_t)(rows * cols) * 4), take((size_t)(rows * cols) * 8)};
    for (int64_t r = 0; r < rows; r++) {
        assert_true(golden_line(file));
        for (int64_t c = 0; c < cols; c++) {
            const char *at = file->line + c * digits;
            if (digits == 8) {
                b.x[r * cols + c] = from_bits(hex_word(at, 8));
                continue;
            }
            const uint64_t bits = (uint64_t)hex_word(at, 8) << 32 | hex_word(at + 8, 8);
            memcpy(&b.wide[r * cols + c], &bits, sizeof bits);
        }
    }
    return b;
}

static void free_block(block *b)
{
    free(b->x);
    free(b->wide);
}

/* Quantizes both operands of a golden case and multiplies them. */
static void run_case(const octet_context *context, octet_format format, octet_layout layout,
                     const block *l, const block *r, const octet_groups *groups, octet_dtype dtype,
                     void *y, int64_t y_rows, int64_t y_cols)
{
    const bool tn = layout == OCTET_LAYOUT_TN, nt = layout == OCTET_LAYOUT_NT;
    const bool stacked = groups && !tn;
    const int64_t matrices = stacked ? groups->count : 0;
    octet_operand left = new_operand(format, tn ? OCTET_ORIENTATION_COL : OCTET_ORIENTATION_ROW, 0,
                                     l->rows, l->cols, groups ? *groups : none);
    octet_operand right =
        new_operand(format, nt ? OCTET_ORIENTATION_ROW : OCTET_ORIENTATION_COL, matrices,
                    stacked ? r->rows / matrices : r->rows, r->cols, groups && tn ? *groups : none);
    const octet_quantize_settings gradient =
        settings_of(OCTET_MX_RULE_ROUND_UP, OCTET_ROLE_GRADIENT, 0);
    quantize(context, OCTET_DTYPE_F32, l->x, nt ? NULL : &gradient, tn ? NULL : &left,
             tn ? &left : NULL);
    quantize(context, OCTET_DTYPE_F32, r->x, NULL, nt ? &right : NULL, nt ? NULL : &right);
    const octet_output output = output_of(dtype, y, y_rows, y_cols);
    octet_product_report report = OCTET_PRODUCT_REPORT_INIT;
    multiply(context, &left, &right, layout, groups, &output, &report);
    assert_true(report.block_integer + report.fma > 0);
    free_operand(&left);
    free_operand(&right);
}

static void check_golden(const char *name)
{
    golden file;
    test_context test;
    if (!golden_open(&file, name))
        return;
    while (golden_line(&file)) {
        char format[16], kind[32], text[1024] = "";
        int64_t ends[MAX_GROUPS], count = 0;
        const bool grouped = strstr(file.line, "group_ends") != NULL;
        assert_true(sscanf(file.line, "case %15s %31s group_ends %1023s", format, kind, text) >= 2);
        for (char *at = grouped ? text : NULL; at;
             at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
            ends[count++] = strtoll(at, NULL, 10);
        const octet_groups groups = {count, ends};
        const octet_layout layout = strstr(kind, "fprop")   ? OCTET_LAYOUT_NT
                                    : strstr(kind, "dgrad") ? OCTET_LAYOUT_NN
                                                            : OCTET_LAYOUT_TN;
        const octet_format f = strcmp(format, "hif8") == 0 ? OCTET_FORMAT_HIF8 : OCTET_FORMAT_MXFP8;
        block left = read_block(&file, 8), right = read_block(&file, 8);
        block wanted = read_block(&file, 16), abs = read_block(&file, 8);
        assert_true(golden_line(&file));
        const int64_t n = wanted.rows * wanted.cols;
        const int64_t k = layout == OCTET_LAYOUT_TN ? left.rows : left.cols;
        float *first = take((size_t)n * 4), *y = take((size_t)n * 4);
        uint16_t *rounded = take((size_t)n * 2);
        int contexts = 0;
        for (int isa = OCTET_ISA_REF; isa <= OCTET_ISA_AVX512; isa++)
            for (int threads = 1; threads <= 2; threads++) {
                if (!open_context(&test, (octet_isa)isa, threads))
                    continue;
                run_case(test.context, f, layout, &left, &right, grouped ? &groups : NULL,
                         OCTET_DTYPE_F32, y, wanted.rows, wanted.cols);
                if (contexts++ == 0)
                    memcpy(first, y, (size_t)n * 4);
                assert_memory_equal(first, y, (size_t)n * 4);
            }
        run_case(test.context, f, layout, &left, &right, grouped ? &groups : NULL, OCTET_DTYPE_BF16,
                 rounded, wanted.rows, wanted.cols);
        for (int64_t i = 0; i < n; i++) {
            const double bound = (double)(k + 4) * 0x1p-24 * (double)abs.x[i];
            if (!(fabs((double)first[i] - wanted.wide[i]) <= bound))
                fail_msg("%s, line %lld, element %lld: %a, wanted %a +- %a", name,
                         (long long)file.number, (long long)i, (double)first[i], wanted.wide[i],
                         bound);
            assert_int_equal(rounded[i], octet_bf16_encode(first[i]));
        }
        free(first);
        free(y);
        free(rounded);
        free_block(&left);
        free_block(&right);
        free_block(&wanted);
        free_block(&abs);
    }
    golden_close(&file);
}

static void product__golden__within_the_bound_and_the_same_everywhere(void **state)
{
    (void)state;
    check_golden("gemm_dense.txt");
    check_golden("gemm_grouped.txt");
}

/* --- groups are products of their own --------------------------------------------------------- */

enum { S = 150, K = 70, N = 45, G = 4 };

/* left [S,K] as codes of one group: rows begin .. end. */
static octet_operand part_of(const octet_context *context, octet_format format,
                             octet_orientation orientation, const float *x, int64_t begin,
                             int64_t end, int64_t cols)
{
    octet_operand part = new_operand(format, orientation, 0, end - begin, cols, none);
    const bool row = orientation == OCTET_ORIENTATION_ROW;
    quantize(context, OCTET_DTYPE_F32, x + begin * cols, NULL, row ? &part : NULL,
             row ? NULL : &part);
    return part;
}

static void grouped_product__every_layout__products_of_the_groups(void **state)
{
    (void)state;
    test_context test;
    static float x[S * K], w[G * N * K], dy[S * N], all[G * N * K + S * N], one[S * K + N * K];
    const int64_t ends[G] = {33, 33, 131, S};
    const octet_groups groups = {G, ends};
    fill_numbers(x, S * K, 1);
    fill_numbers(w, G * N * K, 2);
    fill_numbers(dy, S * N, 3);
    assert_true(open_context(&test, OCTET_ISA_AUTO, 2));
    const octet_context *c = test.context;
    for (int f = OCTET_FORMAT_MXFP8; f <= OCTET_FORMAT_HIF8; f++)
        for (int layout = OCTET_LAYOUT_NN; layout <= OCTET_LAYOUT_TN; layout++) {
            const octet_format format = (octet_format)f;
            const bool tn = layout == OCTET_LAYOUT_TN, nt = layout == OCTET_LAYOUT_NT;
            const octet_orientation l = tn ? OCTET_ORIENTATION_COL : OCTET_ORIENTATION_ROW;
            const octet_orientation r = nt ? OCTET_ORIENTATION_ROW : OCTET_ORIENTATION_COL;
            /* NT: x w^T, NN: dy w, TN: dy^T x */
            const float *left_x = nt ? x : dy, *right_x = tn ? x : w;
            const int64_t left_cols = nt ? K : N, out_cols = nt ? N : K;
            const int64_t out_rows = tn ? G * N : S;
            octet_operand left = new_operand(format, l, 0, S, left_cols, groups);
            octet_operand right = tn ? new_operand(format, r, 0, S, K, groups)
                                     : new_operand(format, r, G, N, K, none);
            quantize(c, OCTET_DTYPE_F32, left_x, NULL, tn ? NULL : &left, tn ? &left : NULL);
            quantize(c, OCTET_DTYPE_F32, right_x, NULL, nt ? &right : NULL, nt ? NULL : &right);
            octet_output output = output_of(OCTET_DTYPE_F32, all, out_rows, out_cols);
            octet_product_report report = OCTET_PRODUCT_REPORT_INIT;
            multiply(c, &left, &right, (octet_layout)layout, &groups, &output, &report);
            assert_int_equal(report.block_integer + report.fma, tn ? G : G - 1);
            for (int g = 0; g < G; g++) {
                const int64_t begin = g ? ends[g - 1] : 0, end = ends[g];
                octet_operand a = part_of(c, format, l, left_x, begin, end, left_cols);
                octet_operand b = tn ? part_of(c, format, r, right_x, begin, end, K)
                                     : part_of(c, format, r, right_x, g * N, (g + 1) * N, K);
                const int64_t rows = tn ? N : end - begin;
                output = output_of(OCTET_DTYPE_F32, one, rows, out_cols);
                multiply(c, &a, &b, (octet_layout)layout, NULL, &output, NULL);
                if (rows > 0)
                    assert_memory_equal(one, all + (tn ? g * N : begin) * out_cols,
                                        output.data_bytes);
                free_operand(&a);
                free_operand(&b);
            }
            free_operand(&left);
            free_operand(&right);
        }
}

/* --- the epilogue and the edges --------------------------------------------------------------- */

static void product__bias_and_wide_rows__added_once_and_gaps_kept(void **state)
{
    (void)state;
    enum { M = 19, LD = N + 3 };
    test_context test;
    static float x[M * K], w[N * K], plain[M * N], wide[M * LD], bias[N];
    fill_numbers(x, M * K, 5);
    fill_numbers(w, N * K, 6);
    fill_numbers(bias, N, 7);
    assert_true(open_context(&test, OCTET_ISA_AUTO, 1));
    const octet_orientation row = OCTET_ORIENTATION_ROW;
    for (int f = OCTET_FORMAT_MXFP8; f <= OCTET_FORMAT_HIF8; f++) {
        octet_operand left = part_of(test.context, (octet_format)f, row, x, 0, M, K);
        octet_operand right = part_of(test.context, (octet_format)f, row, w, 0, N, K);
        octet_output output = output_of(OCTET_DTYPE_F32, plain, M, N);
        multiply(test.context, &left, &right, OCTET_LAYOUT_NT, NULL, &output, NULL);
        memset(wide, GUARD, sizeof wide);
        output = output_of(OCTET_DTYPE_F32, wide, M, LD);
        output.data_bytes -= 3 * sizeof(float); /* the last row needs no gap */
        output.bias = bias;
        multiply(test.context, &left, &right, OCTET_LAYOUT_NT, NULL, &output, NULL);
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < LD; j++) {
                const uint32_t wanted =
                    j < N ? bits_of(plain[i * N + j] + bias[j]) : GUARD * 0x01010101u;
                assert_int_equal(bits_of(wide[i * LD + j]), wanted);
            }
        free_operand(&left);
        free_operand(&right);
    }
}

static void product__no_contraction__zeros_and_bias(void **state)
{
    (void)state;
    test_context test;
    const float bias[3] = {1.0f, -0.0f, from_bits(0x7f800001)};
    float y[6];
    assert_true(open_context(&test, OCTET_ISA_AUTO, 1));
    for (int f = OCTET_FORMAT_MXFP8; f <= OCTET_FORMAT_HIF8; f++) {
        const octet_orientation row = OCTET_ORIENTATION_ROW;
        octet_operand left = part_of(test.context, (octet_format)f, row, y, 0, 2, 0);
        octet_operand right = part_of(test.context, (octet_format)f, row, y, 0, 3, 0);
        octet_output output = output_of(OCTET_DTYPE_F32, y, 2, 3);
        output.bias = bias;
        memset(y, GUARD, sizeof y);
        multiply(test.context, &left, &right, OCTET_LAYOUT_NT, NULL, &output, NULL);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(bits_of(y[3 * i]), bits_of(1.0f));
            assert_int_equal(bits_of(y[3 * i + 1]), 0);
            assert_int_equal(bits_of(y[3 * i + 2]), 0x7fc00000);
        }
        free_operand(&left);
        free_operand(&right);
        octet_operand nothing = new_operand((octet_format)f, row, 0, 0, 5, none);
        octet_operand some = new_operand((octet_format)f, row, 0, 3, 5, none);
        output = output_of(OCTET_DTYPE_F32, NULL, 0, 3);
        multiply(test.context, &nothing, &some, OCTET_LAYOUT_NT, NULL, &output, NULL);
        free_operand(&nothing);
        free_operand(&some);
    }
}

static void product__nan_inf_and_extremes__fma_route(void **state)
{
    (void)state;
    test_context test;
    float x[64], y[1];
    for (int i = 0; i < 64; i++)
        x[i] = 1.0f;
    x[3] = INFINITY;
    octet_product_report report = OCTET_PRODUCT_REPORT_INIT;
    assert_true(open_context(&test, OCTET_ISA_AUTO, 1));
    octet_operand left =
        part_of(test.context, OCTET_FORMAT_MXFP8, OCTET_ORIENTATION_ROW, x, 0, 1, 64);
    octet_output output = output_of(OCTET_DTYPE_F32, y, 1, 1);
    multiply(test.context, &left, &left, OCTET_LAYOUT_NT, NULL, &output, &report);
    assert_int_equal(bits_of(y[0]), 0x7fc00000);
    assert_int_equal(report.fma, 1);
    assert_int_equal(report.block_integer, 0);
    free_operand(&left);
}

static void product__many_remainders__workspace_is_enough(void **state)
{
    (void)state;
    enum { M = 37, KK = 2200, NN = 70 };
    test_context test;
    float *y = take(M * NN * 4);
    assert_true(open_context(&test, OCTET_ISA_AUTO, 2));
    for (int f = OCTET_FORMAT_MXFP8; f <= OCTET_FORMAT_HIF8; f++)
        for (int every = 5; every < 4000; every *= 3) {
            octet_operand left =
                new_operand((octet_format)f, OCTET_ORIENTATION_ROW, 0, M, KK, none);
            octet_operand right =
                new_operand((octet_format)f, OCTET_ORIENTATION_ROW, 0, NN, KK, none);
            octet_operand *sides[] = {&left, &right};
            for (int s = 0; s < 2; s++) {
                uint8_t *c = sides[s]->codes;
                /* Large values, and now and then the least odd one: a remainder. */
                for (size_t i = 0; i < sides[s]->codes_bytes; i++)
                    c[i] = (int64_t)i % every == s ? 0x01 : f == OCTET_FORMAT_HIF8 ? 0x6e : 0x7d;
                if (f == OCTET_FORMAT_HIF8)
                    *(float *)sides[s]->scales = 1.0f;
                else
                    memset(sides[s]->scales, 127, sides[s]->scales_bytes);
            }
            const octet_output output = output_of(OCTET_DTYPE_F32, y, M, NN);
            multiply(test.context, &left, &right, OCTET_LAYOUT_NT, NULL, &output, NULL);
            free_operand(&left);
            free_operand(&right);
        }
    free(y);
}

/* --- refusals --------------------------------------------------------------------------------- */

static void product__wrong_arguments__are_named(void **state)
{
    (void)state;
    enum { M = 8, KK = 40, NN = 6 };
    static const char function[] = "octet_product", grouped[] = "octet_grouped_product";
    octet_error error = {0};
    test_context t;
    static _Alignas(16) uint8_t workspace[1 << 20];
    float y[M * NN];
    void *w = workspace;
    const size_t room = sizeof workspace;
    const octet_layout nt = OCTET_LAYOUT_NT;
    assert_true(open_context(&t, OCTET_ISA_REF, 1));
    const octet_context *c = t.context;
    octet_operand l = new_operand(OCTET_FORMAT_MXFP8, OCTET_ORIENTATION_ROW, 0, M, KK, none);
    octet_operand r = new_operand(OCTET_FORMAT_MXFP8, OCTET_ORIENTATION_ROW, 0, NN, KK, none);
    memset(l.scales, 127, l.scales_bytes);
    memset(r.scales, 127, r.scales_bytes);
    const octet_output o = output_of(OCTET_DTYPE_F32, y, M, NN);
    assert_int_equal(octet_product(c, &l, &r, nt, &o, NULL, w, room, NULL), OCTET_OK);

    octet_status s = octet_product(NULL, &l, &r, nt, &o, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "context is NULL");
    s = octet_product(c, NULL, &r, nt, &o, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "left is NULL");
    s = octet_product(c, &l, NULL, nt, &o, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "right is NULL");
    s = octet_product(c, &l, &r, (octet_layout)3, &o, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "layout is 3");
    s = octet_product(c, &l, &r, nt, NULL, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "output is NULL");
    s = octet_product(c, &l, &r, nt, &o, NULL, NULL, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "workspace is NULL");
    s = octet_product(c, &l, &r, nt, &o, NULL, w, 100, &error);
    check_refused(s, OCTET_E_WORKSPACE, &error, function, "workspace_bytes is 100");
    s = octet_product(c, &l, &r, nt, &o, NULL, l.codes, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "workspace overlaps left->codes");
    s = octet_product(c, &l, &r, OCTET_LAYOUT_NN, &o, NULL, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, function, "right->orientation is row");
    s = octet_product(c, &l, &r, OCTET_LAYOUT_TN, &o, NULL, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, function, "left->orientation is row");

    octet_output bad = o;
    bad.struct_bytes = 4;
    s = octet_product(c, &l, &r, nt, &bad, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "output->struct_bytes is 4");
    bad = o;
    bad.dtype = (octet_dtype)2;
    s = octet_product(c, &l, &r, nt, &bad, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "output->dtype is 2");
    bad = o;
    bad.data = NULL;
    s = octet_product(c, &l, &r, nt, &bad, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "output->data is NULL");
    bad = o;
    bad.data = (uint8_t *)workspace + 1;
    s = octet_product(c, &l, &r, nt, &bad, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "output->data is at an address");
    bad = o;
    bad.data_bytes--;
    s = octet_product(c, &l, &r, nt, &bad, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "output->data has 191 bytes");
    bad = o;
    bad.ld = NN - 1;
    s = octet_product(c, &l, &r, nt, &bad, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "output->ld is 5");
    bad.ld = INT64_MAX;
    s = octet_product(c, &l, &r, nt, &bad, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "output->ld is 9223372036854775807");
    bad = o;
    bad.bias = y;
    s = octet_product(c, &l, &r, nt, &bad, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "output->data overlaps output->bias");
    octet_product_report report = {1, 0, 0};
    s = octet_product(c, &l, &r, nt, &o, &report, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "report->struct_bytes is 1");

    octet_operand other = r;
    other.cols = KK + 1;
    s = octet_product(c, &l, &other, nt, &o, NULL, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, function, "right->cols is 41");
    other = r;
    other.format = OCTET_FORMAT_HIF8;
    s = octet_product(c, &l, &other, nt, &o, NULL, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, function, "right->format is hif8");
    other = r;
    other.codes_bytes = 3;
    s = octet_product(c, &l, &other, nt, &o, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, function, "right->codes has 3 bytes");
    other = r;
    other.matrices = 1;
    s = octet_product(c, &l, &other, nt, &o, NULL, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, function, "right->matrices is 1");
    octet_operand huge_l = l, huge_r = r;
    huge_l.rows = huge_r.rows = INT64_C(1) << 27;
    s = octet_product(c, &huge_l, &huge_r, nt, &o, NULL, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, function, "left and right give a product");

    const int64_t ends[] = {3, M}, wrong[] = {3, M - 1};
    octet_groups groups = {2, ends};
    octet_operand stack = r;
    stack.matrices = 2;
    stack.rows = NN / 2;
    octet_output go = output_of(OCTET_DTYPE_F32, y, M, NN / 2);
    assert_int_equal(octet_operand_bytes(&stack, NULL, &stack.scales_bytes, NULL), OCTET_OK);
    assert_int_equal(octet_grouped_product(c, &l, &stack, nt, &groups, &go, NULL, w, room, NULL),
                     OCTET_OK);
    s = octet_grouped_product(c, &l, &stack, nt, NULL, &go, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, grouped, "groups is NULL");
    groups.count = 0;
    s = octet_grouped_product(c, &l, &stack, nt, &groups, &go, NULL, w, room, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, grouped, "groups->count is 0");
    groups = (octet_groups){2, wrong};
    s = octet_grouped_product(c, &l, &stack, nt, &groups, &go, NULL, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, grouped, "groups->ends[1] is 7");
    groups = (octet_groups){1, ends + 1};
    s = octet_grouped_product(c, &l, &stack, nt, &groups, &go, NULL, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, grouped, "right->matrices is 2");
    s = octet_grouped_product(c, &l, &r, nt, &groups, &go, NULL, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, grouped, "right->matrices is 0");
    groups = (octet_groups){2, ends};
    go.bias = NULL;
    octet_operand hif8 = new_operand(OCTET_FORMAT_HIF8, OCTET_ORIENTATION_ROW, 0, M, KK, none);
    octet_operand hif8_stack =
        new_operand(OCTET_FORMAT_HIF8, OCTET_ORIENTATION_ROW, 2, 3, KK, none);
    s = octet_grouped_product(c, &hif8, &hif8_stack, nt, &groups, &go, NULL, w, room, &error);
    check_refused(s, OCTET_E_SHAPE, &error, grouped, "left->groups.count is 0");
    size_t bytes = 0;
    s = octet_product_workspace_bytes(c, &l, &r, nt, NULL, NULL, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_product_workspace_bytes", "bytes is NULL");
    s = octet_product_workspace_bytes(NULL, &l, &r, nt, NULL, &bytes, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_product_workspace_bytes", "context is NULL");
    free_operand(&l);
    free_operand(&r);
    free_operand(&hif8);
    free_operand(&hif8_stack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(product__golden__within_the_bound_and_the_same_everywhere),
        cmocka_unit_test(grouped_product__every_layout__products_of_the_groups),
        cmocka_unit_test(product__bias_and_wide_rows__added_once_and_gaps_kept),
        cmocka_unit_test(product__no_contraction__zeros_and_bias),
        cmocka_unit_test(product__nan_inf_and_extremes__fma_route),
        cmocka_unit_test(product__many_remainders__workspace_is_enough),
        cmocka_unit_test(product__wrong_arguments__are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
