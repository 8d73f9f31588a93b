/* The FP32-FMA product against a chain of fmaf in test code. */
#include "gemm_fixture.h"

#include <stdatomic.h>

#include "kernels/gemm_blocks.h"

typedef struct dense {
    oct_matrix matrix;
    void *buffer;
} dense;

static dense dense_random(int64_t rows, int64_t cols, bool special)
{
    dense d = {.matrix = {.dtype = random_below(2) ? OCT_DTYPE_BF16 : OCT_DTYPE_F32,
                          .rows = rows,
                          .cols = cols,
                          .ld = cols + random_below(4)}};
    const size_t width = d.matrix.dtype == OCT_DTYPE_BF16 ? 2 : 4;
    const size_t lead = width * (size_t)random_below(5);
    d.buffer = malloc(lead + width * (size_t)(rows * d.matrix.ld) + 1);
    assert_non_null(d.buffer);
    unsigned char *at = (unsigned char *)d.buffer + lead;
    d.matrix.data = at;
    for (int64_t i = 0; i < rows * d.matrix.ld; i++) {
        float x = (float)random_normal();
        if (special && random_below(40) == 0) {
            static const uint32_t odd[] = {0x7f800000u, 0xff800000u, 0x7fc12345u,
                                           0xffc00001u, 0x00000000u, 0x80000000u,
                                           0x00010000u, 0x80700000u, 0x7f7f0000u};
            x = oct_f32_from_bits(odd[random_below((int64_t)(sizeof odd / sizeof odd[0]))]);
        }
        if (i % d.matrix.ld >= cols)
            x = NAN; /* never read */
        const uint16_t h = oct_bf16_from_f32(x);
        memcpy(at + (size_t)i * width, width == 2 ? (const void *)&h : (const void *)&x, width);
    }
    return d;
}

static float dense_at(const oct_matrix *m, int64_t row, int64_t col)
{
    if (m->dtype == OCT_DTYPE_F32)
        return ((const float *)m->data)[row * m->ld + col];
    return oct_bf16_to_f32(((const uint16_t *)m->data)[row * m->ld + col]);
}

/* FP32 value in C before the product, for chains that start there. */
static float out_start(const fixture_out *f, int64_t i, int64_t j)
{
    float x = 0.0f;
    const unsigned char *before = f->before + ((const unsigned char *)f->out.data - f->buffer);
    if (f->out.store == OCT_GEMM_CONTINUE)
        memcpy(&x, before + (size_t)(i * f->out.ld + j) * 4, 4);
    return x;
}

static void check_product(fixture_exec *execs[EXECS], int64_t m, int64_t n, int64_t k,
                          oct_layout layout, bool special)
{
    const bool tn = layout == OCT_LAYOUT_TN, nt = layout == OCT_LAYOUT_NT;
    dense a = dense_random(tn ? k : m, tn ? m : k, special);
    dense b = dense_random(nt ? n : k, nt ? k : n, special);
    fixture_out c;
    out_random(&c, m, n, OUT_ANY);
    float *sums = malloc((size_t)(m * n) * sizeof *sums + 1);
    assert_non_null(sums);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = out_start(&c, i, j);
            for (int64_t l = 0; l < k; l++)
                sum = fmaf(tn ? dense_at(&a.matrix, l, i) : dense_at(&a.matrix, i, l),
                           nt ? dense_at(&b.matrix, j, l) : dense_at(&b.matrix, l, j), sum);
            sums[i * n + j] = sum;
        }
    for (int e = 0; e < EXECS; e++) {
        out_reset(&c);
        oct_err err = {0};
        assert_int_equal(oct_gemm(&execs[e]->exec, &a.matrix, &b.matrix, layout, &c.out, &err),
                         OCT_OK);
        out_check(&c, sums);
    }
    free(sums);
    out_free(&c);
    free(a.buffer);
    free(b.buffer);
}

static void gemm__random_sizes__equals_the_chain(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    for (int i = 0; i < 60; i++)
        check_product(execs, 1 + random_below(130), 1 + random_below(130), 1 + random_below(130),
                      (oct_layout)(i % 3), false);
    execs_close(execs);
}

static void gemm__nonfinite_and_tiny_elements__equals_the_chain(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    for (int i = 0; i < 30; i++)
        check_product(execs, 1 + random_below(50), 1 + random_below(50), 1 + random_below(20),
                      (oct_layout)(i % 3), true);
    execs_close(execs);
}

static void gemm__k_beyond_a_chunk__continues_the_chain(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    for (int i = 0; i < 3; i++) {
        check_product(execs, 3, 35, 1025, (oct_layout)i, false);
        check_product(execs, 17, 32 * 4 + 1, 1025, (oct_layout)i, false); /* columns in an item */
        check_product(execs, 127, 300, 1025, (oct_layout)i, false); /* in items of every thread */
        check_product(execs, 1, 1, 4099, (oct_layout)i, false);
    }
    execs_close(execs);
}

static void gemm__more_panels_than_an_item__fills_all(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    check_product(execs, 14 * 9 + 1, 32 * 17 + 3, 7, OCT_LAYOUT_NT, false);
    execs_close(execs);
}

/* Operands of more than 2^23 elements are packed a part at a time, and a part serves as long as it
 * is the one that is needed: with three parts of rows and of columns none may be taken for another.
 * A has two elements per row, so that every sum is exact and cheap to know. */
static void gemm__operands_packed_in_parts__each_part_is_its_own(void **state)
{
    (void)state;
    enum { PART = 8, K = 75001, M = 2 * PART * OCT_GEMM_MR + 3, N = PART * OCT_GEMM_NR + 5 };
    uint16_t *a = calloc((size_t)M * K, sizeof *a), *b = malloc((size_t)N * K * sizeof *b);
    float *c = malloc((size_t)M * N * sizeof *c);
    assert_true(a && b && c);
    for (int64_t j = 0; j < N; j++)
        for (int64_t l = 0; l < K; l++)
            b[j * K + l] = oct_bf16_from_f32((float)((31 * j + 17 * l) % 101 - 50));
    for (int64_t i = 0; i < M; i++) {
        a[i * K + 7 * i] = oct_bf16_from_f32((float)(1 + i % 100));
        a[i * K + K - 1 - i] = oct_bf16_from_f32(3.0f);
    }
    const oct_matrix left = {.data = a, .dtype = OCT_DTYPE_BF16, .rows = M, .cols = K, .ld = K};
    const oct_matrix right = {.data = b, .dtype = OCT_DTYPE_BF16, .rows = N, .cols = K, .ld = K};
    const oct_gemm_out out = {.data = c, .ld = N, .dtype = OCT_DTYPE_F32};
    fixture_exec *f = exec_new(oct_cpu_isa(), 1); /* the parts are the same for every kernel */
    oct_err err = {0};
    assert_int_equal(oct_gemm(&f->exec, &left, &right, OCT_LAYOUT_NT, &out, &err), OCT_OK);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            const float *row = c + i * N;
            const float required =
                (float)(1 + i % 100) * (float)((31 * j + 17 * 7 * i) % 101 - 50) +
                3.0f * (float)((31 * j + 17 * (K - 1 - i)) % 101 - 50);
            if (row[j] != required)
                fail_msg("C[%lld, %lld] is %g, required %g", (long long)i, (long long)j,
                         (double)row[j], (double)required);
        }
    exec_free(f);
    free(a);
    free(b);
    free(c);
}

static void gemm__empty_sizes__gives_zero_or_nothing(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    for (int i = 0; i < 12; i++)
        check_product(execs, 1 + random_below(20), 1 + random_below(40), 0, (oct_layout)(i % 3),
                      false);
    for (int i = 0; i < 3; i++) {
        check_product(execs, 0, 5, 3, (oct_layout)i, false);
        check_product(execs, 5, 0, 3, (oct_layout)i, false);
    }
    execs_close(execs);
}

static void gemm__bad_arguments__are_refused(void **state)
{
    (void)state;
    fixture_exec *f = exec_new(OCT_ISA_REF, 1);
    float data[16] = {0};
    const oct_tensor at = oct_tensor_2d(data, OCT_DTYPE_F32, 2, 3);
    const oct_tensor bt = oct_tensor_2d(data, OCT_DTYPE_F32, 2, 2);
    const oct_tensor u8t = oct_tensor_2d(data, OCT_DTYPE_U8, 3, 2);
    const oct_tensor goodt = oct_tensor_2d(data, OCT_DTYPE_F32, 3, 2);
    const oct_matrix a = oct_matrix_of(&at), b = oct_matrix_of(&bt), u8 = oct_matrix_of(&u8t),
                     good = oct_matrix_of(&goodt);
    oct_gemm_out out = {.data = data, .ld = 2, .dtype = OCT_DTYPE_F32};
    oct_err err = {0};
    assert_int_equal(oct_gemm(&f->exec, &a, &b, OCT_LAYOUT_NN, &out, &err), OCT_E_SHAPE);
    assert_int_equal(oct_gemm(&f->exec, &a, &u8, OCT_LAYOUT_NN, &out, &err), OCT_E_SHAPE);
    out.dtype = OCT_DTYPE_BF16;
    out.store = OCT_GEMM_FOLD;
    assert_int_equal(oct_gemm(&f->exec, &a, &good, OCT_LAYOUT_NN, &out, &err), OCT_E_SHAPE);
    out.dtype = OCT_DTYPE_F32;
    out.store = OCT_GEMM_CONTINUE;
    out.round_bf16 = true;
    assert_int_equal(oct_gemm(&f->exec, &a, &good, OCT_LAYOUT_NN, &out, &err), OCT_E_API);
    out.round_bf16 = false;
    out.ld = 1;
    assert_int_equal(oct_gemm(&f->exec, &a, &good, OCT_LAYOUT_NN, &out, &err), OCT_E_SHAPE);
    exec_free(f);
}

static void gemm_grouped__ragged_groups__equals_products_of_groups(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    const int64_t ends[] = {0, 3, 3, 40, 57};
    const oct_groups groups = {5, ends};
    const int64_t s = 57, n = 33, k = 21;
    for (int layout = 0; layout < 3; layout++) {
        const bool tn = layout == OCT_LAYOUT_TN, nt = layout == OCT_LAYOUT_NT;
        dense a = dense_random(s, k, false);
        dense b = dense_random(tn ? s : 5 * (nt ? n : k), nt ? k : n, false);
        const int64_t c_rows = tn ? 5 * k : s;
        fixture_out c;
        out_random(&c, c_rows, n, OUT_ANY);
        float *sums = calloc((size_t)(c_rows * n), sizeof *sums);
        assert_non_null(sums);
        for (int64_t i = 0; i < c_rows; i++)
            for (int64_t j = 0; j < n; j++) {
                float sum = out_start(&c, i, j);
                int64_t g = tn ? i / k : 0;
                while (!tn && ends[g] <= i)
                    g++;
                const int64_t begin = g ? ends[g - 1] : 0;
                if (tn)
                    for (int64_t l = begin; l < ends[g]; l++)
                        sum = fmaf(dense_at(&a.matrix, l, i % k), dense_at(&b.matrix, l, j), sum);
                else
                    for (int64_t l = 0; l < k; l++)
                        sum = fmaf(dense_at(&a.matrix, i, l),
                                   nt ? dense_at(&b.matrix, g * n + j, l)
                                      : dense_at(&b.matrix, g * k + l, j),
                                   sum);
                sums[i * n + j] = sum;
            }
        for (int e = 0; e < EXECS; e++) {
            out_reset(&c);
            oct_err err = {0};
            assert_int_equal(oct_gemm_grouped(&execs[e]->exec, &a.matrix, &b.matrix, &groups,
                                              (oct_layout)layout, &c.out, &err),
                             OCT_OK);
            out_check(&c, sums);
        }
        const oct_groups wrong = {4, ends};
        oct_err err = {0};
        assert_int_equal(oct_gemm_grouped(&execs[0]->exec, &a.matrix, &b.matrix, &wrong,
                                          (oct_layout)layout, &c.out, &err),
                         OCT_E_SHAPE);
        free(sums);
        out_free(&c);
        free(a.buffer);
        free(b.buffer);
    }
    execs_close(execs);
}

/* Which thread accumulated in which tiles: `tile_owner` is what fma_tile is replaced with. */
enum { NOTES = 4096 };
static struct {
    const float *tile;
    const int *thread;
} notes[NOTES];
static _Atomic int note_count;
static _Thread_local int me;
static void (*real_tile)(int64_t kc, const float *a, const float *b, float *c);

static void noted_tile(int64_t kc, const float *a, const float *b, float *c)
{
    const int i = atomic_fetch_add(&note_count, 1);
    assert_true(i < NOTES);
    notes[i].tile = c;
    notes[i].thread = &me;
    real_tile(kc, a, b, c);
}

/* Whether two threads took part; none may have used a tile of another. */
static bool tiles_are_apart(void)
{
    bool two = false;
    for (int i = 0; i < note_count; i++)
        for (int j = 0; j < i; j++) {
            if (notes[i].thread == notes[j].thread)
                continue;
            two = true;
            assert_true(notes[i].tile >= notes[j].tile + OCT_GEMM_TILE ||
                        notes[j].tile >= notes[i].tile + OCT_GEMM_TILE);
        }
    return two;
}

static void gemm__two_threads__no_tile_of_another(void **state)
{
    (void)state;
    enum { M = 14 * 16, N = 32 * 16, K = 400 };
    fixture_exec *f = exec_new(OCT_ISA_REF, 2);
    real_tile = f->kernels.gemm.fma_tile;
    f->kernels.gemm.fma_tile = noted_tile;
    float *a = calloc((size_t)M * K, sizeof *a), *b = calloc((size_t)N * K, sizeof *b);
    float *c = malloc((size_t)M * N * sizeof *c);
    assert_true(a && b && c);
    const oct_tensor at = oct_tensor_2d(a, OCT_DTYPE_F32, M, K);
    const oct_tensor bt = oct_tensor_2d(b, OCT_DTYPE_F32, N, K);
    const oct_matrix left = oct_matrix_of(&at), right = oct_matrix_of(&bt);
    const oct_gemm_out out = {.data = c, .ld = N, .dtype = OCT_DTYPE_F32};
    bool two = false;
    for (int turn = 0; turn < 50 && !two; turn++) { /* one may do all where cores are busy */
        oct_err err = {0};
        note_count = 0;
        assert_int_equal(oct_gemm(&f->exec, &left, &right, OCT_LAYOUT_NT, &out, &err), OCT_OK);
        assert_int_equal(note_count, 16 * 16);
        two = tiles_are_apart();
    }
    assert_true(two);
    free(a);
    free(b);
    free(c);
    exec_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm__two_threads__no_tile_of_another),
        cmocka_unit_test(gemm__random_sizes__equals_the_chain),
        cmocka_unit_test(gemm__nonfinite_and_tiny_elements__equals_the_chain),
        cmocka_unit_test(gemm__k_beyond_a_chunk__continues_the_chain),
        cmocka_unit_test(gemm__more_panels_than_an_item__fills_all),
        cmocka_unit_test(gemm__operands_packed_in_parts__each_part_is_its_own),
        cmocka_unit_test(gemm__empty_sizes__gives_zero_or_nothing),
        cmocka_unit_test(gemm__bad_arguments__are_refused),
        cmocka_unit_test(gemm_grouped__ragged_groups__equals_products_of_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
