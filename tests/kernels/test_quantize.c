/* The quantizers: ref against every instruction set this CPU has on awkward sizes, memory bounds
 * and data, then their contracts. What the bytes mean is checked in
 * tests/unit/test_golden_formats.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "guarded.h"
#include "times.h"

#include "base/rng.h"
#include "base/size.h"
#include "base/threads.h"
#include "kernels/exec.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"

static oct_kernels kernels[OCT_ISA_AVX512 + 1];
static oct_arena scratch;
static unsigned mxcsr_at_start;

static unsigned mxcsr(void)
{
#if defined(__x86_64__)
    return _mm_getcsr();
#else
    return 0;
#endif
}

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

static oct_exec exec_of(int isa, int threads)
{
    return (oct_exec){.kernels = &kernels[isa], .threads = threads, .scratch = &scratch};
}

/* --- data --------------------------------------------------------------------------------------
 */

typedef enum data_kind {
    DATA_ANY_BITS,  /* all FP32 patterns alike: every exponent, NaN payloads */
    DATA_NEAR,      /* exponents within 24 of each other: subnormal codes and ties after scaling */
    DATA_GRID,      /* few mantissa bits: ties everywhere */
    DATA_SUBNORMAL, /* FP32 and BF16 subnormals and the least normals */
    DATA_TINY,      /* around 2^-118 .. 2^-100, where scale bytes come near 00 */
    DATA_HUGE,      /* the top binades */
    DATA_SPARSE,    /* mostly zeros of both signs */
    DATA_NONFINITE, /* now and then NaN or Inf */
    DATA_COUNT
} data_kind;

static uint32_t random_bits(data_kind kind, oct_rng rng, uint64_t index)
{
    uint32_t r[4];
    oct_rng_block(rng, index, r);
    const uint32_t sign = r[0] & 0x80000000u, mantissa = r[1] & 0x7fffffu;
    switch (kind) {
    case DATA_ANY_BITS:
        return r[0];
    case DATA_NEAR:
        return sign | (115u + r[2] % 24u) << 23 | mantissa;
    case DATA_GRID:
        return sign | (115u + r[2] % 16u) << 23 | (mantissa & 0x7e0000u);
    case DATA_SUBNORMAL:
        return sign | (r[2] % 4u) << 23 | (r[3] % 8u ? mantissa : 0);
    case DATA_TINY:
        return sign | (9u + r[2] % 20u) << 23 | (r[3] % 4u ? mantissa : 0x600001u);
    case DATA_HUGE:
        return sign | (235u + r[2] % 20u) << 23 | mantissa;
    case DATA_SPARSE:
        return sign | (r[2] % 40u ? 0 : 120u << 23 | mantissa);
    case DATA_NONFINITE:
        if (r[2] % 200u == 0)
            return sign | 0x7f800000u | (r[3] % 2u ? 0 : mantissa);
        return sign | (118u + r[2] % 8u) << 23 | mantissa;
    case DATA_COUNT:
        break;
    }
    return 0;
}

static void fill(void *x, oct_dtype dtype, int64_t n, data_kind kind, uint64_t seed)
{
    const oct_rng rng = oct_rng_stream(seed, "quantize");
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = random_bits(kind, rng, (uint64_t)i);
        if (dtype == OCT_DTYPE_BF16)
            ((uint16_t *)x)[i] = (uint16_t)(bits >> 16);
        else
            ((float *)x)[i] = oct_f32_from_bits(bits);
    }
}

static const oct_dtype dtypes[] = {OCT_DTYPE_F32, OCT_DTYPE_BF16};

/* --- MX: every instruction set against ref ------------------------------------------------------
 */

typedef struct mx_result {
    guarded row_codes, row_scales, col_codes, col_scales;
} mx_result;

static mx_result mx_run(const oct_exec *exec, const oct_tensor *x, const oct_groups *groups,
                        oct_mx_rule rule, bool row, bool col, bool at_end)
{
    const int64_t m = x->shape[0], n = x->shape[1];
    const size_t elements = (size_t)(m * n);
    mx_result result = {
        .row_codes = guarded_new(elements, at_end),
        .row_scales = guarded_new((size_t)(m * oct_ceil_div(n, 64) * 2), at_end),
        .col_codes = guarded_new(elements, at_end),
        .col_scales = guarded_new((size_t)(oct_mx_col_pairs(groups, m) * n * 2), at_end),
    };
    oct_mx_out out = {0};
    if (row) {
        out.row_codes = result.row_codes.data;
        out.row_scales = result.row_scales.data;
    }
    if (col) {
        out.col_codes = result.col_codes.data;
        out.col_scales = result.col_scales.data;
    }
    oct_err err = {0};
    assert_int_equal(oct_mx_quantize(exec, x, groups, rule, &out, &err), OCT_OK);
    return result;
}

static void mx_free(mx_result *result)
{
    guarded_free(&result->row_codes);
    guarded_free(&result->row_scales);
    guarded_free(&result->col_codes);
    guarded_free(&result->col_scales);
}

static void check_same(const char *what, const guarded *found, const guarded *wanted,
                       const oct_tensor *x, int kind)
{
    assert_int_equal(found->bytes, wanted->bytes);
    for (size_t i = 0; i < found->bytes; i++) {
        if (found->data[i] != wanted->data[i])
            fail_msg("%s of %lld x %lld %s, data %d, byte %zu: found %02x, ref has %02x", what,
                     (long long)x->shape[0], (long long)x->shape[1], oct_dtype_name(x->dtype), kind,
                     i, found->data[i], wanted->data[i]);
    }
}

static void check_mx_same(const mx_result *found, const mx_result *wanted, const oct_tensor *x,
                          int kind)
{
    check_same("row codes", &found->row_codes, &wanted->row_codes, x, kind);
    check_same("row scales", &found->row_scales, &wanted->row_scales, x, kind);
    check_same("col codes", &found->col_codes, &wanted->col_codes, x, kind);
    check_same("col scales", &found->col_scales, &wanted->col_scales, x, kind);
}

static void compare_mx(int64_t m, int64_t n, const oct_groups *groups, oct_dtype dtype,
                       data_kind kind, uint64_t seed)
{
    const bool at_end = seed & 1;
    guarded source = guarded_new((size_t)(m * n) * oct_dtype_bytes(dtype), at_end);
    fill(source.data, dtype, m * n, kind, seed);
    const oct_tensor x = oct_tensor_2d(source.data, dtype, m, n);
    const oct_mx_rule rule = seed & 2 ? OCT_MX_RULE_FLOOR : OCT_MX_RULE_ROUND_UP;
    const bool row = seed % 5 != 3, col = seed % 5 != 4;
    const oct_exec plain = exec_of(OCT_ISA_REF, 1);
    mx_result wanted = mx_run(&plain, &x, groups, rule, row, col, at_end);
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        const int most_threads = seed % 7 == 0 ? 2 : 1;
        for (int threads = isa == OCT_ISA_REF ? 2 : 1; threads <= most_threads; threads++) {
            const oct_exec exec = exec_of(isa, threads);
            mx_result found = mx_run(&exec, &x, groups, rule, row, col, at_end);
            check_mx_same(&found, &wanted, &x, (int)kind);
            mx_free(&found);
        }
    }
    mx_free(&wanted);
    guarded_free(&source);
}

static const int64_t sizes_m[] = {0, 1, 2, 31, 32, 33, 63, 64, 65, 130};
static const int64_t sizes_n[] = {0,  1,  2,   3,   5,   7,   31,  32,  33,  63,
                                  64, 65, 127, 128, 129, 191, 255, 256, 257, 300};
enum { SIZES_M = sizeof sizes_m / sizeof *sizes_m, SIZES_N = sizeof sizes_n / sizeof *sizes_n };

static void mx_quantize__odd_sizes__same_bytes_as_ref(void **state)
{
    (void)state;
    uint64_t seed = 0;
    for (int i = 0; i < SIZES_M; i++) {
        for (int j = 0; j < SIZES_N; j++) {
            for (int kind = (i + j) % 2; kind < DATA_COUNT; kind += 2, seed++)
                compare_mx(sizes_m[i], sizes_n[j], NULL, dtypes[(seed >> 3 ^ seed) & 1],
                           (data_kind)kind, seed);
        }
    }
}

static void mx_quantize__every_kind_dtype_and_rule__same_bytes_as_ref(void **state)
{
    (void)state;
    for (int kind = 0; kind < DATA_COUNT; kind++) {
        for (uint64_t seed = 0; seed < 12; seed++) {
            compare_mx(67, 195, NULL, OCT_DTYPE_F32, (data_kind)kind, seed);
            compare_mx(67, 195, NULL, OCT_DTYPE_BF16, (data_kind)kind, seed);
        }
    }
}

static void mx_quantize__random_groups__same_bytes_as_ref(void **state)
{
    (void)state;
    const oct_rng rng = oct_rng_stream(1, "groups");
    for (uint64_t seed = 0; seed < 60; seed++) {
        int64_t ends[8], row = 0;
        for (uint64_t g = 0; g < 8; g++) {
            row += oct_rng_below(rng, 16 * seed + g, 3) == 0
                       ? 0
                       : (int64_t)oct_rng_below(rng, 16 * seed + g + 8, 80);
            ends[g] = row;
        }
        const oct_groups groups = {.count = 8, .ends = ends};
        compare_mx(row, (int64_t)oct_rng_below(rng, 1u << 20 | seed, 140), &groups,
                   dtypes[seed % 2], (data_kind)(seed % DATA_COUNT), seed);
    }
}

/* Every BF16 word that can stand in a block of each scale byte. */
static void mx_quantize__all_bf16_words_under_all_scales__same_bytes_as_ref(void **state)
{
    (void)state;
    enum { BLOCKS = 2200 };
    uint16_t *x = malloc(32 * BLOCKS * sizeof *x);
    uint8_t *codes = malloc(2 * 32 * BLOCKS), *scales = malloc(4 * BLOCKS);
    for (uint32_t byte = 0; byte <= 246; byte += byte < 40 || byte >= 240 ? 1 : 9) {
        /* The largest word of the byte: exponent field byte + 8, mantissa 1.75. */
        const uint32_t amax = (byte + 8) << 7 | 0x60u;
        int64_t n = 0;
        for (uint32_t word = 0; word < 0x10000u; word++) {
            if ((word & 0x7fffu) > amax)
                continue;
            if (n % 32 == 0)
                x[n++] = (uint16_t)amax;
            x[n++] = (uint16_t)word;
        }
        assert_true(n <= 32 * BLOCKS);
        for (int isa = 0; isa <= (int)oct_cpu_isa(); isa++) {
            const int64_t half = isa ? 1 : 0;
            kernels[isa].quantize.mx_rows(x, OCT_DTYPE_BF16, n, 1, n, OCT_MX_RULE_ROUND_UP,
                                          codes + half * 32 * BLOCKS, n, scales + half * 2 * BLOCKS,
                                          0);
            assert_int_equal(scales[0], byte);
            if (isa == OCT_ISA_REF)
                continue;
            assert_memory_equal(codes, codes + 32 * BLOCKS, (size_t)n);
            assert_memory_equal(scales, scales + 2 * BLOCKS, (size_t)oct_ceil_div(n, 64) * 2);
        }
    }
    free(x);
    free(codes);
    free(scales);
}

/* Every largest magnitude at which a scale steps, and its neighbours, alone in a column. */
static void mx_cols__amax_at_every_step__same_bytes_as_ref(void **state)
{
    (void)state;
    static const uint32_t mantissas[] = {0,        1,        0x5fffff, 0x600000,
                                         0x600001, 0x600002, 0x7fffff, 0x400000};
    enum { COLS = 255 * 8 };
    static float x[COLS];
    static uint8_t codes[2][COLS], scales[2][2 * COLS];
    for (uint32_t i = 0; i < COLS; i++)
        x[i] = oct_f32_from_bits((i / 8) << 23 | mantissas[i % 8]);
    for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++)
        for (int rule = 0; rule < 2; rule++) {
            kernels[OCT_ISA_REF].quantize.mx_cols(x, OCT_DTYPE_F32, COLS, 1, COLS,
                                                  (oct_mx_rule)rule, codes[0], COLS, scales[0]);
            kernels[isa].quantize.mx_cols(x, OCT_DTYPE_F32, COLS, 1, COLS, (oct_mx_rule)rule,
                                          codes[1], COLS, scales[1]);
            assert_memory_equal(codes[1], codes[0], COLS);
            assert_memory_equal(scales[1], scales[0], 2 * COLS);
        }
}

/* --- HiF8: every instruction set against ref ----------------------------------------------------
 */

static void compare_hif8(int64_t n, oct_dtype dtype, data_kind kind, float scale, uint64_t seed)
{
    const bool at_end = seed & 1, saturate = seed & 2;
    guarded source = guarded_new((size_t)n * oct_dtype_bytes(dtype), at_end);
    fill(source.data, dtype, n, kind, seed);
    const oct_tensor x = oct_tensor_2d(source.data, dtype, 1, n);
    guarded wanted = guarded_new((size_t)n, at_end);
    float wanted_amax = 0.0f;
    oct_err err = {0};
    const oct_exec plain = exec_of(OCT_ISA_REF, 1);
    assert_int_equal(oct_hif8_amax(&plain, &x, NULL, &wanted_amax, &err), OCT_OK);
    assert_int_equal(oct_hif8_quantize(&plain, &x, NULL, &scale, saturate, wanted.data, &err), 0);
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        const oct_exec exec = exec_of(isa, seed % 7 == 0 ? 2 : 1);
        guarded found = guarded_new((size_t)n, at_end);
        float amax = -1.0f;
        assert_int_equal(oct_hif8_amax(&exec, &x, NULL, &amax, &err), OCT_OK);
        assert_int_equal(oct_f32_bits(amax), oct_f32_bits(wanted_amax));
        assert_int_equal(oct_hif8_quantize(&exec, &x, NULL, &scale, saturate, found.data, &err), 0);
        check_same("hif8 codes", &found, &wanted, &x, (int)kind);
        guarded_free(&found);
    }
    guarded_free(&wanted);
    guarded_free(&source);
}

static void hif8_quantize__odd_sizes_and_scales__same_bytes_as_ref(void **state)
{
    (void)state;
    const float scales[] = {1.0f, 0x1p-126f, 0.3f, 0x1.fffffep+100f, 1.0f / 15.0f, 3.0f, 0x1p-10f};
    uint64_t seed = 0;
    for (int j = 0; j < SIZES_N; j++) {
        for (int kind = 0; kind < DATA_COUNT; kind++) {
            for (int s = 0; s < 7; s++, seed++)
                compare_hif8(sizes_n[j], dtypes[seed / 3 % 2], (data_kind)kind, scales[s], seed);
        }
    }
    for (seed = 0; seed < 8; seed++)
        compare_hif8(100000, dtypes[seed & 1], DATA_ANY_BITS, 1.0f, seed);
}

/* All FP32 patterns of one stride, so that every binade and both modes are met. */
static void hif8_encode__patterns_over_the_whole_range__same_bytes_as_ref(void **state)
{
    (void)state;
    enum { RUN = 4096 };
    static float x[RUN];
    static uint8_t found[RUN], wanted[RUN];
    uint32_t bits = 12345;
    for (int run = 0; run < 500; run++) {
        for (int i = 0; i < RUN; i++, bits += 2097143u)
            x[i] = oct_f32_from_bits(bits);
        const bool saturate = run & 1;
        kernels[OCT_ISA_REF].quantize.hif8_encode(x, OCT_DTYPE_F32, RUN, 1.0f, saturate, wanted);
        for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++) {
            kernels[isa].quantize.hif8_encode(x, OCT_DTYPE_F32, RUN, 1.0f, saturate, found);
            assert_memory_equal(found, wanted, RUN);
        }
    }
}

static void amax__nan_anywhere__is_nan(void **state)
{
    (void)state;
    float x[300];
    uint16_t words[300];
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        for (int at = 0; at < 300; at++) {
            for (int i = 0; i < 300; i++)
                x[i] = i % 7 ? 1.0f : -INFINITY;
            x[at] = oct_f32_from_bits(at % 2 ? 0x7fc00000u : 0xff810000u);
            for (int i = 0; i < 300; i++)
                words[i] = (uint16_t)(oct_f32_bits(x[i]) >> 16);
            assert_true(isnan(kernels[isa].quantize.amax(x, OCT_DTYPE_F32, 300)));
            assert_true(isnan(kernels[isa].quantize.amax(words, OCT_DTYPE_BF16, 300)));
            x[at] = words[at] = 0;
            assert_true(isinf(kernels[isa].quantize.amax(x, OCT_DTYPE_F32, 300)));
        }
        assert_true(kernels[isa].quantize.amax(x, OCT_DTYPE_F32, 0) == 0.0f);
    }
}

/* A quotient that x * (1/scale) rounds differently, onto the other side of a tie. */
static void hif8_encode__tie_after_division__divides_exactly(void **state)
{
    (void)state;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        int told_apart = 0;
        for (int32_t k = 1; k < 4000; k++) {
            const float scale = (float)k / 15.0f;
            float x[15];
            uint8_t codes[15];
            for (int i = 0; i < 15; i++) /* quotients at and near the mid-points 1 + (2i+1)/16 */
                x[i] = scale * (1.0f + (float)(2 * (i % 8) + 1) / 16.0f);
            kernels[isa].quantize.hif8_encode(x, OCT_DTYPE_F32, 15, scale, false, codes);
            for (int i = 0; i < 15; i++) {
                assert_int_equal(codes[i], oct_hif8_encode(x[i] / scale, false));
                told_apart += codes[i] != oct_hif8_encode(x[i] * (1.0f / scale), false);
            }
        }
        assert_true(told_apart > 100);
    }
}

/* --- contracts ----------------------------------------------------------------------------------
 */

static void mx_quantize__zero_dims__succeeds_and_writes_nothing(void **state)
{
    (void)state;
    const int64_t shapes[3][2] = {{0, 5}, {5, 0}, {0, 0}};
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        const oct_exec exec = exec_of(isa, 2);
        for (int i = 0; i < 3; i++) {
            const oct_tensor x = oct_tensor_2d(NULL, OCT_DTYPE_F32, shapes[i][0], shapes[i][1]);
            uint8_t byte = CANARY;
            float amax = -1.0f, scale = 1.0f;
            const oct_mx_out out = {&byte, &byte, &byte, &byte};
            assert_int_equal(oct_mx_quantize(&exec, &x, NULL, OCT_MX_RULE_ROUND_UP, &out, NULL), 0);
            assert_int_equal(oct_hif8_amax(&exec, &x, NULL, &amax, NULL), OCT_OK);
            assert_true(amax == 0.0f);
            assert_int_equal(oct_hif8_quantize(&exec, &x, NULL, &scale, false, &byte, NULL), 0);
            assert_int_equal(byte, CANARY);
        }
    }
}

static void check_refused(const oct_tensor *x, const oct_groups *groups, const char *words)
{
    const oct_exec exec = exec_of(OCT_ISA_REF, 1);
    uint8_t byte = CANARY;
    float value = -1.0f;
    const oct_mx_out out = {.row_codes = &byte, .row_scales = &byte};
    oct_err err = {0};
    assert_int_equal(oct_mx_quantize(&exec, x, groups, OCT_MX_RULE_ROUND_UP, &out, &err),
                     OCT_E_SHAPE);
    assert_non_null(strstr(err.msg, words));
    err = (oct_err){0};
    assert_int_equal(oct_hif8_amax(&exec, x, groups, &value, &err), OCT_E_SHAPE);
    assert_non_null(strstr(err.msg, words));
    err = (oct_err){0};
    assert_int_equal(oct_hif8_quantize(&exec, x, groups, &value, false, &byte, &err), OCT_E_SHAPE);
    assert_non_null(strstr(err.msg, words));
    assert_int_equal(byte, CANARY);
    assert_true(value == -1.0f);
}

static void quantize__wrong_source_or_groups__refused(void **state)
{
    (void)state;
    float data[8] = {0};
    oct_tensor x = oct_tensor_2d(data, OCT_DTYPE_F32, 4, 2);
    const int64_t short_ends[] = {1, 3}, falling_ends[] = {3, 1, 4}, long_ends[] = {4, 5};
    check_refused(&x, &(oct_groups){.count = 2, .ends = short_ends},
                  "ends at row 3, 4 is required");
    check_refused(&x, &(oct_groups){.count = 3, .ends = falling_ends}, "group 1 ends at row 1");
    check_refused(&x, &(oct_groups){.count = 2, .ends = long_ends}, "ends at row 5, 4 is required");
    x.ndim = 3;
    check_refused(&x, NULL, "3 dimensions");
    x.ndim = 2;
    x.dtype = OCT_DTYPE_I32;
    check_refused(&x, NULL, "int32");
    x.dtype = OCT_DTYPE_F32;
    const oct_exec exec = exec_of(OCT_ISA_REF, 1);
    uint8_t bytes[16];
    const oct_mx_out halves[2] = {{.row_codes = bytes}, {.col_scales = bytes}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(oct_mx_quantize(&exec, &x, NULL, OCT_MX_RULE_ROUND_UP, &halves[i], NULL),
                         OCT_E_API);
}

static void col_pairs_bound__all_small_splits__is_the_maximum(void **state)
{
    (void)state;
    assert_int_equal(oct_mx_col_pairs(NULL, 0), 0);
    assert_int_equal(oct_mx_col_pairs(NULL, 64), 1);
    assert_int_equal(oct_mx_col_pairs(NULL, 65), 2);
    for (int64_t rows = 0; rows < 200; rows++) {
        int64_t most = 0;
        for (int64_t a = 0; a <= rows; a++) {
            for (int64_t b = a; b <= rows; b++) {
                const int64_t ends[3] = {a, b, rows};
                const oct_groups groups = {.count = 3, .ends = ends};
                most = oct_max_i64(most, oct_mx_col_pairs(&groups, rows));
            }
        }
        assert_int_equal(oct_mx_col_pairs_bound(3, rows), most);
        assert_int_equal(oct_mx_col_pairs_bound(0, rows), oct_ceil_div(rows, 64));
    }
}

static void quantize__second_call__asks_the_heap_for_nothing(void **state)
{
    (void)state;
    float x[64 * 3] = {1.0f};
    uint8_t codes[64 * 3], scales[64 * 3];
    const int64_t ends[] = {1, 40, 64};
    const oct_groups groups = {.count = 3, .ends = ends};
    const oct_tensor tensor = oct_tensor_2d(x, OCT_DTYPE_F32, 64, 3);
    const oct_mx_out out = {.col_codes = codes, .col_scales = scales};
    oct_arena arena;
    oct_arena_init(&arena, "scratch");
    const oct_exec exec = {.kernels = &kernels[0], .threads = 1, .scratch = &arena};
    uint64_t after_first = 0;
    for (int i = 0; i < 3; i++) {
        float amax[3];
        assert_int_equal(oct_mx_quantize(&exec, &tensor, &groups, OCT_MX_RULE_FLOOR, &out, NULL),
                         0);
        assert_int_equal(oct_hif8_amax(&exec, &tensor, &groups, amax, NULL), OCT_OK);
        assert_int_equal(oct_hif8_quantize(&exec, &tensor, &groups, amax, false, codes, NULL), 0);
        assert_int_equal(arena.used_bytes, 0);
        after_first = i ? after_first : arena.heap_calls;
        assert_int_equal(arena.heap_calls, after_first);
    }
    oct_arena_release(&arena);
}

/* What the observer of a test saw. */
typedef struct seen {
    int count;
    oct_quantize_result results[4];
    const void *sources[4];
    uint8_t codes[4][65 * 3], scales[4][16];
    size_t scale_bytes;
} seen;

static void note(void *arg, const oct_quantize_result *result)
{
    seen *log = arg;
    assert_true(log->count < 4);
    log->results[log->count] = *result;
    log->sources[log->count] = result->x->data;
    memcpy(log->codes[log->count], result->codes, 65 * 3);
    memcpy(log->scales[log->count], result->scales, log->scale_bytes);
    log->count++;
}

static void observer__set__sees_each_finished_result_once(void **state)
{
    (void)state;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        seen log = {.scale_bytes = 12};
        const oct_quantize_observer observer = {.observe = note, .arg = &log};
        oct_kernels observed = kernels[isa];
        observed.quantize.observer = &observer;
        const oct_exec exec = {.kernels = &observed, .threads = 2, .scratch = &scratch};
        const oct_exec silent = exec_of(isa, 2);
        float x[65 * 3];
        fill(x, OCT_DTYPE_F32, 65 * 3, DATA_NEAR, 7);
        const oct_tensor tensor = oct_tensor_2d(x, OCT_DTYPE_F32, 65, 3);
        uint8_t row[65 * 3], row_scales[130], col[65 * 3], col_scales[12], hif8[65 * 3];
        const oct_mx_out out = {row, row_scales, col, col_scales};
        assert_int_equal(oct_mx_quantize(&exec, &tensor, NULL, OCT_MX_RULE_ROUND_UP, &out, NULL),
                         0);
        assert_int_equal(log.count, 2);
        assert_int_equal(log.results[0].kind, OCT_QUANTIZE_MX_ROW);
        assert_int_equal(log.results[1].kind, OCT_QUANTIZE_MX_COL);
        assert_ptr_equal(log.sources[0], x);
        assert_ptr_equal(log.results[1].scales, col_scales);
        assert_memory_equal(log.codes[0], row, sizeof row);
        assert_memory_equal(log.codes[1], col, sizeof col);
        assert_memory_equal(log.scales[0], row_scales, 12);
        assert_memory_equal(log.scales[1], col_scales, 12);
        log.scale_bytes = sizeof(float);
        const float scale = 0.5f;
        assert_int_equal(oct_hif8_quantize(&exec, &tensor, NULL, &scale, false, hif8, NULL), 0);
        assert_int_equal(log.count, 3);
        assert_int_equal(log.results[2].kind, OCT_QUANTIZE_HIF8);
        assert_ptr_equal(log.results[2].scales, &scale);
        assert_memory_equal(log.codes[2], hif8, sizeof hif8);
        /* A refused tensor is not observed, and without an observer the bytes are the same. */
        oct_tensor wrong = tensor;
        wrong.ndim = 1;
        assert_int_not_equal(oct_hif8_quantize(&exec, &wrong, NULL, &scale, false, hif8, NULL), 0);
        assert_int_equal(log.count, 3);
        uint8_t again[65 * 3];
        assert_int_equal(oct_hif8_quantize(&silent, &tensor, NULL, &scale, false, again, NULL), 0);
        assert_int_equal(log.count, 3);
        assert_memory_equal(again, hif8, sizeof hif8);
    }
}

/* --- field cases
 * ---------------------------------------------------------------------------------- */

/* One row block by one kernel table; returns the scale byte. */
static uint8_t block(int isa, const float *x, int64_t n, oct_mx_rule rule, uint8_t *codes)
{
    uint8_t scales[2];
    kernels[isa].quantize.mx_rows(x, OCT_DTYPE_F32, n, 1, n, rule, codes, n, scales, 2);
    return scales[0];
}

static float dequantized(uint8_t code, uint8_t byte)
{
    return oct_e4m3_decode(code) * oct_e8m0_decode(byte);
}

static void fr_01__block_maximum__floor_clips_round_up_does_not(void **state)
{
    (void)state;
    const oct_rng rng = oct_rng_stream(1, "fr-01");
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        float x[32] = {959.5632f, 957.0f, -3.0f};
        uint8_t codes[32];
        assert_int_equal(block(isa, x, 32, OCT_MX_RULE_FLOOR, codes), 128);
        assert_true(dequantized(codes[1], 128) == 896.0f);
        assert_int_equal(block(isa, x, 32, OCT_MX_RULE_ROUND_UP, codes), 129);
        assert_true(dequantized(codes[1], 129) == 960.0f);
        double worst[2] = {0.0, 0.0};
        for (uint64_t i = 0; i < 10000; i++) {
            int largest = 0;
            for (int j = 0; j < 32; j++) {
                const double u = oct_rng_uniform(rng, 64 * i + 2 * (uint64_t)j);
                const int e = (int)oct_rng_below(rng, 64 * i + 2 * (uint64_t)j + 1, 5);
                x[j] = (float)ldexp(2.0 * u - 1.0, (int)(i % 200) - 100 + e);
                largest = fabsf(x[j]) > fabsf(x[largest]) ? j : largest;
            }
            for (int rule = 0; rule < 2; rule++) {
                const uint8_t byte = block(isa, x, 32, (oct_mx_rule)rule, codes);
                const double loss =
                    1.0 - (double)dequantized(codes[largest], byte) / (double)x[largest];
                worst[rule] = fmax(worst[rule], loss);
            }
        }
        assert_true(worst[OCT_MX_RULE_ROUND_UP] <= 0.0625);
        assert_true(worst[OCT_MX_RULE_FLOOR] > 0.0625); /* up to 1 - 448/512 */
    }
}

static void fr_02__amax_is_fp32_and_nonfinite_blocks_stand_alone(void **state)
{
    (void)state;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        float x[96];
        uint8_t codes[96], scales[4];
        for (int i = 0; i < 96; i++)
            x[i] = 1.0f;
        x[40] = 511.9f; /* BF16 would make it 512 */
        const oct_quantize_kernels *quantize = &kernels[isa].quantize;
        quantize->mx_rows(x, OCT_DTYPE_F32, 96, 1, 96, OCT_MX_RULE_FLOOR, codes, 96, scales, 4);
        assert_int_equal(scales[1], 127);
        quantize->mx_rows(x, OCT_DTYPE_F32, 96, 1, 96, OCT_MX_RULE_ROUND_UP, codes, 96, scales, 4);
        assert_int_equal(scales[1], 128);
        const float bad[3] = {INFINITY, -INFINITY, NAN};
        uint8_t clean[96], clean_scales[4];
        memcpy(clean, codes, sizeof clean);
        memcpy(clean_scales, scales, sizeof clean_scales);
        for (int i = 0; i < 3; i++) {
            x[40 + i] = bad[i];
            for (int rule = 0; rule < 2; rule++) {
                quantize->mx_rows(x, OCT_DTYPE_F32, 96, 1, 96, (oct_mx_rule)rule, codes, 96, scales,
                                  4);
                assert_int_equal(scales[1], 0xff);
                for (int j = 32; j < 64; j++) {
                    assert_int_equal(codes[j], 0x00);
                    assert_true(isnan(dequantized(codes[j], scales[1])));
                }
            }
            assert_memory_equal(codes, clean, 32);
            assert_memory_equal(codes + 64, clean + 64, 32);
            assert_int_equal(scales[0], clean_scales[0]);
            assert_int_equal(scales[2], clean_scales[2]);
            x[40 + i] = 1.0f;
            /* The same down a column: only that column's block. */
            float column[65 * 3];
            uint8_t col_codes[65 * 3], col_scales[12];
            for (int j = 0; j < 65 * 3; j++)
                column[j] = 2.0f;
            column[40 * 3 + 1] = bad[i];
            quantize->mx_cols(column, OCT_DTYPE_F32, 3, 64, 3, OCT_MX_RULE_ROUND_UP, col_codes, 3,
                              col_scales);
            for (int j = 0; j < 6; j++)
                assert_int_equal(col_scales[j], j == 3 ? 0xff : 120);
            for (int j = 0; j < 64 * 3; j++)
                assert_int_equal(col_codes[j], j >= 96 && j % 3 == 1 ? 0x00 : 0x78);
        }
    }
}

static void fr_04__exponent_field_15__is_no_overflow(void **state)
{
    (void)state;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        const float x[7] = {256.0f, 288.0f, 320.0f, 352.0f, 384.0f, 416.0f, 448.0f};
        uint8_t codes[7];
        for (int rule = 0; rule < 2; rule++) {
            assert_int_equal(block(isa, x, 7, (oct_mx_rule)rule, codes), 127);
            for (int i = 0; i < 7; i++)
                assert_int_equal(codes[i], 0x78 + i);
        }
        const float above[3] = {448.1f, 480.0f, 511.0f}; /* floor keeps scale 1 and saturates */
        assert_int_equal(block(isa, above, 3, OCT_MX_RULE_FLOOR, codes), 127);
        for (int i = 0; i < 3; i++)
            assert_int_equal(codes[i], 0x7e);
    }
    for (int code = 0; code < 256; code++) {
        if ((code & 0x7f) == 0x7f)
            continue;
        for (int saturate = 0; saturate < 2; saturate++)
            assert_int_equal(oct_e4m3_encode(oct_e4m3_decode((uint8_t)code), saturate), code);
    }
    for (float x = 448.1f; x < 1e30f; x *= 1.01f) {
        assert_int_equal(oct_e4m3_encode(x, true), 0x7e);
        assert_int_equal(oct_e4m3_encode(-x, true), 0xfe);
        assert_int_equal(oct_e4m3_encode(x, false), x > 464.0f ? 0x7f : 0x7e);
    }
    assert_int_equal(oct_e4m3_encode(INFINITY, true), 0x7e);
    assert_int_equal(oct_e4m3_encode(INFINITY, false), 0x7f);
}

static void fr_06__zeros__finite_positive_scale_and_zero_codes(void **state)
{
    (void)state;
    static float x[96 * 70];
    static uint8_t row[96 * 70], col[96 * 70], row_scales[96 * 4], col_scales[3 * 70 * 2];
    const int64_t ends[] = {32, 64, 96};
    const oct_groups groups = {.count = 3, .ends = ends};
    const oct_tensor tensor = oct_tensor_2d(x, OCT_DTYPE_F32, 96, 70);
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        const oct_exec exec = exec_of(isa, 2);
        for (int busy = 0; busy < 2;
             busy++) { /* all zero; then only the middle group, "an expert" */
            for (int i = 0; i < 96 * 70; i++)
                x[i] = busy && (i / 70 < 32 || i / 70 >= 64) ? 5.0f : 0.0f;
            const oct_mx_out out = {row, row_scales, col, col_scales};
            assert_int_equal(
                oct_mx_quantize(&exec, &tensor, &groups, OCT_MX_RULE_ROUND_UP, &out, NULL), 0);
            for (int i = 32 * 70; i < 64 * 70; i++)
                assert_true(row[i] == 0 && col[i] == 0);
            for (int i = 32 * 4; i < 64 * 4; i++)
                assert_int_equal(row_scales[i], 0);
            for (int i = 70 * 2; i < 2 * 70 * 2; i++)
                assert_int_equal(col_scales[i], 0);
            float amax[3];
            assert_int_equal(oct_hif8_amax(&exec, &tensor, &groups, amax, NULL), OCT_OK);
            for (int g = 0; g < 3; g++) {
                const float largest = busy && g != 1 ? 5.0f : 0.0f;
                assert_true(amax[g] == largest);
                amax[g] = oct_hif8_scale(amax[g], 224.0f);
                assert_true(amax[g] == (largest > 0.0f ? 5.0f / 224.0f : 1.0f));
            }
            assert_int_equal(oct_hif8_quantize(&exec, &tensor, &groups, amax, false, row, NULL), 0);
            for (int i = 32 * 70; i < 64 * 70; i++)
                assert_int_equal(row[i], 0);
        }
    }
    assert_true(oct_e8m0_decode(0) > 0.0f);
}

static void read_mxcsr(void *arg, int64_t item, int thread)
{
    (void)thread;
    ((unsigned *)arg)[item] = mxcsr();
}

/* The text of a file of the source tree, NULL if it does not exist. */
static char *project_file(const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", OCTET_SOURCE_DIR, name);
    FILE *stream = fopen(path, "re");
    if (!stream)
        return NULL;
    char *text = calloc(1, 1 << 20);
    (void)!fread(text, 1, (1 << 20) - 1, stream);
    (void)fclose(stream);
    return text;
}

static void fr_07__subnormals__are_never_flushed(void **state)
{
    (void)state;
    enum { FTZ_DAZ = 0x8040, WORKERS = 64 };
    assert_int_equal(mxcsr_at_start & FTZ_DAZ, 0);
    assert_int_equal(mxcsr() & FTZ_DAZ, 0);
    unsigned in_workers[WORKERS];
    memset(in_workers, 0xff, sizeof in_workers);
    oct_parallel_for(4, WORKERS, read_mxcsr, in_workers);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(in_workers[i] & FTZ_DAZ, 0);
    volatile float small = 1e-38f, half = 0.5f;
    assert_true(small * half > 0.0f);
    assert_int_equal(oct_f32_bits(small * half), 0x003671f7);
    /* Only the scale's quotient, never the element, may be flushed by rule. */
    const float x = 0x1p-149f;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        const oct_exec exec = exec_of(isa, 2);
        const oct_tensor tensor = oct_tensor_2d((void *)(uintptr_t)&x, OCT_DTYPE_F32, 1, 1);
        float amax = 0.0f;
        assert_int_equal(oct_hif8_amax(&exec, &tensor, NULL, &amax, NULL), OCT_OK);
        assert_true(amax == 0x1p-149f);
        assert_int_equal(mxcsr() & FTZ_DAZ, 0);
    }
    const char *files[] = {"CMakeLists.txt", "tests/CMakeLists.txt", "CMakePresets.json",
                           "Makefile"};
    const char *banned[] = {"-ffast-math", "-Ofast", "-funsafe-math", "-mdaz-ftz"};
    for (int i = 0; i < 4; i++) {
        char *text = project_file(files[i]);
        if (i < 3)
            assert_non_null(text);
        for (int j = 0; j < 4 && text; j++)
            assert_null(strstr(text, banned[j]));
        free(text);
    }
}

static void fr_09__groups_1_31_33_0_64__equal_to_slices_alone(void **state)
{
    (void)state;
    enum { ROWS = 129, COLS = 77 };
    const int64_t ends[] = {1, 32, 65, 65, 129};
    const oct_groups groups = {.count = 5, .ends = ends};
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        for (int d = 0; d < 2; d++) {
            const size_t size = oct_dtype_bytes(dtypes[d]);
            static float storage[ROWS * COLS];
            static uint8_t col[ROWS * COLS], hif8[ROWS * COLS], scales[4 * COLS * 2];
            fill(storage, dtypes[d], ROWS * COLS, DATA_NEAR, 9);
            const oct_tensor x = oct_tensor_2d(storage, dtypes[d], ROWS, COLS);
            const oct_exec exec = exec_of(isa, 2);
            const oct_mx_out out = {.col_codes = col, .col_scales = scales};
            float amax[5], hif8_scales[5];
            assert_int_equal(oct_mx_col_pairs(&groups, ROWS), 4);
            assert_int_equal(oct_mx_quantize(&exec, &x, &groups, OCT_MX_RULE_ROUND_UP, &out, NULL),
                             0);
            assert_int_equal(oct_hif8_amax(&exec, &x, &groups, amax, NULL), OCT_OK);
            for (int g = 0; g < 5; g++)
                hif8_scales[g] = oct_hif8_scale(amax[g], 15.0f);
            assert_int_equal(oct_hif8_quantize(&exec, &x, &groups, hif8_scales, false, hif8, NULL),
                             0);
            int64_t row = 0, pair = 0;
            for (int g = 0; g < 5; g++) {
                const int64_t m = ends[g] - row;
                static uint8_t alone[64 * COLS], alone_scales[COLS * 2];
                const oct_tensor slice = oct_tensor_2d(
                    (char *)storage + (size_t)(row * COLS) * size, dtypes[d], m, COLS);
                const oct_mx_out slice_out = {.col_codes = alone, .col_scales = alone_scales};
                assert_int_equal(
                    oct_mx_quantize(&exec, &slice, NULL, OCT_MX_RULE_ROUND_UP, &slice_out, NULL),
                    0);
                assert_memory_equal(alone, col + row * COLS, (size_t)(m * COLS));
                if (m > 0)
                    assert_memory_equal(alone_scales, scales + pair * COLS * 2, COLS * 2);
                float slice_amax = -1.0f, slice_scale;
                assert_int_equal(oct_hif8_amax(&exec, &slice, NULL, &slice_amax, NULL), OCT_OK);
                slice_scale = oct_hif8_scale(slice_amax, 15.0f);
                assert_int_equal(oct_f32_bits(slice_scale), oct_f32_bits(hif8_scales[g]));
                assert_int_equal(
                    oct_hif8_quantize(&exec, &slice, NULL, &slice_scale, false, alone, NULL), 0);
                assert_memory_equal(alone, hif8 + row * COLS, (size_t)(m * COLS));
                pair += oct_ceil_div(m, 64);
                row = ends[g];
            }
        }
    }
}

/* More elements than one work item: the largest and a NaN count wherever they stand. */
static void hif8_amax__long_tensor__from_every_part(void **state)
{
    (void)state;
    enum { ROWS = 300, COLS = 512 };
    const oct_exec exec = exec_of(OCT_ISA_REF, 2);
    float *x = malloc(ROWS * COLS * sizeof *x);
    assert_non_null(x);
    const oct_tensor tensor = oct_tensor_2d(x, OCT_DTYPE_F32, ROWS, COLS);
    for (int64_t at = 0; at < ROWS * COLS; at += ROWS * COLS / 7) {
        oct_err err = {0};
        float amax = 0.0f;
        for (int64_t i = 0; i < ROWS * COLS; i++)
            x[i] = i % 2 ? 0.5f : -0.25f;
        x[at] = -3.0f;
        assert_int_equal(oct_hif8_amax(&exec, &tensor, NULL, &amax, &err), OCT_OK);
        assert_true(amax == 3.0f);
        x[at] = NAN;
        assert_int_equal(oct_hif8_amax(&exec, &tensor, NULL, &amax, &err), OCT_OK);
        assert_true(isnan(amax));
    }
    free(x);
}

/* --- times (times.h) --------------------------------------------------------------------------
 */

enum { TIMED_M = 64, TIMED_N = 128, TIMED_ELEMENTS = TIMED_M * TIMED_N };
static float timed_f32[TIMED_ELEMENTS];
static uint16_t timed_bf16[TIMED_ELEMENTS];

static void timed_call(const timed_loop *loop, const oct_kernels *at)
{
    static uint8_t codes[TIMED_ELEMENTS], scales[TIMED_ELEMENTS / 32];
    const oct_quantize_kernels *quantize = &at->quantize;
    const oct_dtype dtype = loop->dtype;
    const void *x = dtype == OCT_DTYPE_BF16 ? (const void *)timed_bf16 : (const void *)timed_f32;
    switch (loop->slot) {
    case offsetof(oct_kernels, quantize.mx_rows):
        quantize->mx_rows(x, dtype, TIMED_N, TIMED_M, TIMED_N, OCT_MX_RULE_ROUND_UP, codes, TIMED_N,
                          scales, TIMED_N / 32);
        break;
    case offsetof(oct_kernels, quantize.mx_cols):
        quantize->mx_cols(x, dtype, TIMED_N, TIMED_M, TIMED_N, OCT_MX_RULE_ROUND_UP, codes, TIMED_N,
                          scales);
        break;
    case offsetof(oct_kernels, quantize.amax):
        (void)quantize->amax(x, dtype, TIMED_ELEMENTS);
        break;
    case offsetof(oct_kernels, quantize.hif8_encode):
        quantize->hif8_encode(x, dtype, TIMED_ELEMENTS, 0.3f, true, codes);
        break;
    default:
        fail_msg("%s has no call", loop->name);
    }
}

static const timed_loop timed_loops[] = {
    TIMED(quantize.mx_rows, OCT_DTYPE_F32, false, TIMED_ELEMENTS, "element"),
    TIMED(quantize.mx_rows, OCT_DTYPE_BF16, false, TIMED_ELEMENTS, "element"),
    TIMED(quantize.mx_cols, OCT_DTYPE_F32, false, TIMED_ELEMENTS, "element"),
    TIMED(quantize.mx_cols, OCT_DTYPE_BF16, false, TIMED_ELEMENTS, "element"),
    TIMED(quantize.amax, OCT_DTYPE_F32, false, TIMED_ELEMENTS, "element"),
    TIMED(quantize.amax, OCT_DTYPE_BF16, false, TIMED_ELEMENTS, "element"),
    TIMED(quantize.hif8_encode, OCT_DTYPE_F32, false, TIMED_ELEMENTS, "element"),
    TIMED(quantize.hif8_encode, OCT_DTYPE_BF16, false, TIMED_ELEMENTS, "element"),
};
static const timed_table timed_quantize = {
    .loops = timed_loops,
    .count = sizeof timed_loops / sizeof *timed_loops,
    .first = offsetof(oct_kernels, quantize),
    .end = offsetof(oct_kernels, quantize.observer),
    .call = timed_call,
};
_Static_assert(offsetof(oct_quantize_kernels, observer) + sizeof(void *) ==
                   sizeof(oct_quantize_kernels),
               "the loops of the table end where the observer stands");

static void times__every_loop_of_the_table__listed_and_callable(void **state)
{
    (void)state;
    fill(timed_f32, OCT_DTYPE_F32, TIMED_ELEMENTS, DATA_NEAR, 1);
    fill(timed_bf16, OCT_DTYPE_BF16, TIMED_ELEMENTS, DATA_NEAR, 1);
    times_check(&timed_quantize);
}

int main(int argc, char **argv)
{
    mxcsr_at_start = mxcsr();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hif8_amax__long_tensor__from_every_part),
        cmocka_unit_test(mx_quantize__odd_sizes__same_bytes_as_ref),
        cmocka_unit_test(mx_quantize__every_kind_dtype_and_rule__same_bytes_as_ref),
        cmocka_unit_test(mx_quantize__random_groups__same_bytes_as_ref),
        cmocka_unit_test(mx_quantize__all_bf16_words_under_all_scales__same_bytes_as_ref),
        cmocka_unit_test(mx_cols__amax_at_every_step__same_bytes_as_ref),
        cmocka_unit_test(hif8_quantize__odd_sizes_and_scales__same_bytes_as_ref),
        cmocka_unit_test(hif8_encode__patterns_over_the_whole_range__same_bytes_as_ref),
        cmocka_unit_test(amax__nan_anywhere__is_nan),
        cmocka_unit_test(hif8_encode__tie_after_division__divides_exactly),
        cmocka_unit_test(mx_quantize__zero_dims__succeeds_and_writes_nothing),
        cmocka_unit_test(quantize__wrong_source_or_groups__refused),
        cmocka_unit_test(col_pairs_bound__all_small_splits__is_the_maximum),
        cmocka_unit_test(quantize__second_call__asks_the_heap_for_nothing),
        cmocka_unit_test(observer__set__sees_each_finished_result_once),
        cmocka_unit_test(fr_01__block_maximum__floor_clips_round_up_does_not),
        cmocka_unit_test(fr_02__amax_is_fp32_and_nonfinite_blocks_stand_alone),
        cmocka_unit_test(fr_04__exponent_field_15__is_no_overflow),
        cmocka_unit_test(fr_06__zeros__finite_positive_scale_and_zero_codes),
        cmocka_unit_test(fr_07__subnormals__are_never_flushed),
        cmocka_unit_test(fr_09__groups_1_31_33_0_64__equal_to_slices_alone),
        cmocka_unit_test(times__every_loop_of_the_table__listed_and_callable),
    };
    const int failed = cmocka_run_group_tests(tests, setup, teardown);
    return times_finish(failed, argc, argv, &timed_quantize);
}
