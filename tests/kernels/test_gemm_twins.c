/* Every inner loop of the matrix products against its twin in gemm_ref.c, at each instruction set
 * that this CPU has. Sources end at forbidden pages, results lie between canaries, on bases that
 * are aligned to one element only. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "gemm_random.h"
#include "guarded.h"
#include "times.h"

#include "kernels/exec.h"
#include "numeric/e4m3.h"
#include "numeric/hif8.h"

enum { LANES = OCT_GEMM_LANES, GROUP = OCT_GEMM_GROUP, MR = OCT_GEMM_MR, NR = OCT_GEMM_NR };

static oct_kernels tables[OCT_ISA_AVX512 + 1];

static int setup(void **state)
{
    (void)state;
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++)
        oct_kernels_init(&tables[isa], (oct_isa)isa);
    return 0;
}

static const oct_gemm_kernels *ref(void)
{
    return &tables[OCT_ISA_REF].gemm;
}

/* What a loop writes: the same bytes around it for ref and its twin. */
typedef struct twin {
    guarded wanted, found;
} twin;

static twin twin_new(size_t bytes)
{
    const bool at_end = random_below(2) != 0;
    return (twin){guarded_new(bytes, at_end), guarded_new(bytes, at_end)};
}

static void twin_free(twin *t)
{
    guarded_free(&t->wanted);
    guarded_free(&t->found);
}

/* Fills both with the same bytes. */
static void twin_fill(twin *t, const void *from)
{
    memcpy(t->wanted.data, from, t->wanted.bytes);
    memcpy(t->found.data, from, t->found.bytes);
}

static void check_bytes(const twin *t, const char *what, int isa)
{
    for (size_t i = 0; i < t->wanted.bytes; i++)
        if (t->wanted.data[i] != t->found.data[i])
            fail_msg("%s, %s: byte %zu of %zu is %02x, ref has %02x", what,
                     oct_isa_name((oct_isa)isa), i, t->wanted.bytes, t->found.data[i],
                     t->wanted.data[i]);
}

/* Which NaN an FMA returns depends on the order of its operands; all else is compared bit by bit.
 */
static void check_floats(const twin *t, const char *what, int isa)
{
    for (size_t i = 0; i < t->wanted.bytes / 4; i++) {
        float wanted, found;
        memcpy(&wanted, t->wanted.data + 4 * i, 4);
        memcpy(&found, t->found.data + 4 * i, 4);
        if (oct_f32_bits(one_nan(wanted)) != oct_f32_bits(one_nan(found)))
            fail_msg("%s, %s: float %zu is %08x, ref has %08x", what, oct_isa_name((oct_isa)isa), i,
                     oct_f32_bits(found), oct_f32_bits(wanted));
    }
}

/* Now and then what is not a normal number. */
static float awkward_float(void)
{
    static const uint32_t odd[] = {0x7f800000u, 0xff800000u, 0x7fc12345u, 0xffc00001u,
                                   0x00000000u, 0x80000000u, 0x00000001u, 0x807fffffu,
                                   0x7f7fffffu, 0x00800000u, 0x7f7f8000u, 0x3f808000u};
    if (random_below(6) == 0)
        return oct_f32_from_bits(odd[random_below((int64_t)(sizeof odd / sizeof *odd))]);
    return (float)random_normal();
}

static void fill_floats(float *x, int64_t n, bool awkward)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = awkward ? awkward_float() : (float)random_normal();
}

/* --- packing ---------------------------------------------------------------------------------- */

typedef struct source {
    oct_quantized_matrix q;
    oct_fma_source fma;
    guarded data, scales;
} source;

/* format < 0: FP32 or BF16 numbers. All bytes of codes and scales are random. */
static source source_new(int format, bool k_contiguous, int64_t rows, int64_t k)
{
    const bool at_end = random_below(4) != 0;
    const oct_dtype dtype = random_below(2) ? OCT_DTYPE_F32 : OCT_DTYPE_BF16;
    const int64_t size = format >= 0 ? 1 : dtype == OCT_DTYPE_F32 ? 4 : 2;
    const int64_t line = k_contiguous ? k : rows, lines = k_contiguous ? rows : k;
    const int64_t ld = line + random_below(3), scale_ld = rows + random_below(3);
    /* The last line ends with its last element. */
    source s = {.data = guarded_new((size_t)(size * ((lines - 1) * ld + line)), at_end),
                .scales = guarded_new((size_t)((k + 63) / 64 * 2 * scale_ld), at_end)};
    for (size_t i = 0; i < s.scales.bytes; i++)
        s.scales.data[i] = (uint8_t)random_bits();
    for (size_t i = 0; i < s.data.bytes / (size_t)size; i++) {
        const float x = awkward_float();
        const uint16_t word = (uint16_t)(oct_f32_bits(x) >> 16);
        if (size == 1)
            s.data.data[i] = (uint8_t)random_bits();
        else
            memcpy(s.data.data + i * (size_t)size, size == 4 ? (const void *)&x : &word,
                   (size_t)size);
    }
    s.q = (oct_quantized_matrix){.format = format > 0 ? OCT_FORMAT_HIF8 : OCT_FORMAT_MXFP8,
                                 .codes = s.data.data,
                                 .ld = ld,
                                 .k_contiguous = k_contiguous,
                                 .rows = rows,
                                 .k = k,
                                 .scales = format == OCT_FORMAT_MXFP8 ? s.scales.data : NULL,
                                 .scale_ld = scale_ld};
    s.fma = (oct_fma_source){.data = s.data.data,
                             .dtype = dtype,
                             .ld = ld,
                             .k_contiguous = k_contiguous,
                             .rows = rows,
                             .k = k};
    return s;
}

static void source_free(source *s)
{
    guarded_free(&s->data);
    guarded_free(&s->scales);
}

static void fma_pack__any_source__same_panel_as_ref(void **state)
{
    (void)state;
    for (int round = 0; round < 400; round++) {
        const int format = round % 3 - 1;
        const int64_t width = round / 3 % 2 ? MR : NR;
        const int64_t rows = 1 + random_below(70), k_all = 1 + random_below(100);
        source s = source_new(format, round / 6 % 2 != 0, rows, k_all);
        if (format >= 0)
            s.fma = (oct_fma_source){.rows = rows, .k = k_all, .codes = &s.q};
        const int64_t row = random_below((rows + width - 1) / width) * width;
        const int64_t k = random_below((k_all + 15) / 16) * 16, kc = 1 + random_below(k_all - k);
        for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++) {
            const oct_gemm_kernels *fast = &tables[isa].gemm;
            twin panel = twin_new((size_t)(width * kc) * sizeof(float));
            ref()->fma_pack(&s.fma, &ref()->tables[s.q.format], row, width, k, kc,
                            (void *)panel.wanted.data);
            fast->fma_pack(&s.fma, &fast->tables[s.q.format], row, width, k, kc,
                           (void *)panel.found.data);
            check_floats(&panel, "fma_pack", isa);
            twin_free(&panel);
        }
        source_free(&s);
    }
}

static void gather_quads__any_place__same_quads_as_ref(void **state)
{
    (void)state;
    for (int round = 0; round < 400; round++) {
        const bool is_left = round % 2 != 0;
        const int64_t width = is_left ? MR : NR, lanes = is_left ? LANES : NR;
        const int64_t rows = 1 + random_below(70), k_all = 1 + random_below(200);
        source s = source_new(OCT_FORMAT_HIF8, round / 2 % 2 != 0, rows, k_all);
        const int64_t row = random_below((rows + width - 1) / width) * width;
        const int64_t k = random_below((k_all + GROUP - 1) / GROUP) * GROUP;
        for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++) {
            twin quads = twin_new((size_t)(lanes * GROUP));
            ref()->gather_quads(&s.q, row, width, lanes, k, quads.wanted.data);
            tables[isa].gemm.gather_quads(&s.q, row, width, lanes, k, quads.found.data);
            check_bytes(&quads, "gather_quads", isa);
            twin_free(&quads);
        }
        source_free(&s);
    }
}

/* --- units and mantissas ------------------------------------------------------------------------
 */

/* Lines of quads of 16 rows; those from `lanes` on are 00. */
typedef struct group {
    guarded quads;
    int64_t stride;
} group;

static uint8_t *group_code(const group *g, int64_t row, int64_t k)
{
    return g->quads.data + k / 4 * g->stride + 4 * row + k % 4;
}

typedef enum group_kind {
    GROUP_ANY,     /* all 256 codes */
    GROUP_FINITE,  /* none of Inf and NaN */
    GROUP_ZERO,    /* both zeros of MXFP8 */
    GROUP_LARGEST, /* full of the largest finite code */
    GROUP_ONE,     /* one code among zeros */
    GROUP_TWO,     /* a code everywhere but for one other in each row */
    GROUP_KINDS
} group_kind;

static bool is_finite(oct_format format, uint8_t code)
{
    return format == OCT_FORMAT_MXFP8 ? isfinite(oct_e4m3_decode(code))
                                      : isfinite(oct_hif8_decode(code));
}

static uint8_t finite_code(oct_format format)
{
    for (;;) {
        const uint8_t code = (uint8_t)random_bits();
        if (is_finite(format, code))
            return code;
    }
}

static group group_new(oct_format format, group_kind kind, int64_t lanes)
{
    group g = {.stride = random_below(2) ? 4 * LANES : 4 * NR};
    g.quads = guarded_new((size_t)(15 * g.stride + 4 * LANES), true);
    for (int64_t row = 0; row < LANES; row++) {
        const int64_t place = random_below(GROUP);
        const uint8_t one = (uint8_t)random_bits(), other = finite_code(format);
        for (int64_t k = 0; k < GROUP; k++) {
            uint8_t code = 0;
            switch (kind) {
            case GROUP_ANY:
                code = (uint8_t)random_bits();
                break;
            case GROUP_FINITE:
                code = finite_code(format);
                break;
            case GROUP_LARGEST:
                code = (uint8_t)((format == OCT_FORMAT_MXFP8 ? 0x7e : 0x6e) | (k % 3 ? 0x80 : 0));
                break;
            case GROUP_ONE:
                code = k == place ? one : 0;
                break;
            case GROUP_TWO:
                code = k == place ? one : other;
                break;
            case GROUP_ZERO:
            case GROUP_KINDS:
                code = format == OCT_FORMAT_MXFP8 && random_below(2) ? 0x80 : 0;
            }
            *group_code(&g, row, k) = row < lanes ? code : 0;
        }
    }
    return g;
}

static void check_bounds(oct_format format, const group *g)
{
    for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++) {
        const oct_gemm_kernels *fast = &tables[isa].gemm;
        oct_group_bounds wanted, found;
        memset(&found, 0x5a, sizeof found);
        if (format == OCT_FORMAT_MXFP8) {
            ref()->bounds_mxfp8(&ref()->tables[format], g->quads.data, g->stride, &wanted);
            fast->bounds_mxfp8(&fast->tables[format], g->quads.data, g->stride, &found);
            assert_memory_equal(found.norm, wanted.norm, sizeof wanted.norm);
        } else {
            ref()->bounds_hif8(&ref()->tables[format], g->quads.data, g->stride, &wanted);
            fast->bounds_hif8(&fast->tables[format], g->quads.data, g->stride, &found);
            assert_memory_equal(found.norm[0], wanted.norm[0], sizeof wanted.norm[0]);
            assert_memory_equal(found.top, wanted.top, sizeof wanted.top);
        }
        assert_true(found.nonfinite == wanted.nonfinite);
    }
}

static void bounds__any_codes__same_as_ref(void **state)
{
    (void)state;
    for (int round = 0; round < 800; round++) {
        const oct_format format = (oct_format)(round % 2);
        group g =
            group_new(format, (group_kind)(round / 2 % GROUP_KINDS), round / 4 % 2 ? MR : LANES);
        check_bounds(format, &g);
        guarded_free(&g.quads);
    }
}

/* 16 rows at a time: a code and every other one, at places that move. */
static void bounds__all_pairs_of_codes__same_as_ref(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        const oct_format format = (oct_format)f;
        group g = group_new(format, GROUP_ONE, 0);
        for (int pair = 0; pair < 0x10000; pair += LANES) {
            const int64_t k = pair / LANES % GROUP;
            for (int64_t row = 0; row < LANES; row++) {
                *group_code(&g, row, k) = (uint8_t)(pair >> 8);
                *group_code(&g, row, GROUP - 1 - k) = (uint8_t)(pair + row);
            }
            check_bounds(format, &g);
            for (int64_t row = 0; row < LANES; row++)
                *group_code(&g, row, k) = *group_code(&g, row, GROUP - 1 - k) = 0;
        }
        guarded_free(&g.quads);
    }
}

static void check_units(const oct_gemm_kernels *fast, const oct_group_bounds *bounds,
                        const uint8_t scales[LANES][2])
{
    oct_group_units wanted, found;
    memset(&wanted, 0x5a, sizeof wanted);
    memset(&found, 0xa5, sizeof found);
    if (scales) {
        ref()->units_mxfp8(bounds, scales, &wanted);
        fast->units_mxfp8(bounds, scales, &found);
    } else {
        ref()->units_hif8(bounds, &wanted);
        fast->units_hif8(bounds, &found);
    }
    assert_memory_equal(found.shift, wanted.shift, sizeof wanted.shift);
    assert_memory_equal(found.exponent, wanted.exponent, sizeof wanted.exponent);
    assert_memory_equal(found.unit, wanted.unit, sizeof wanted.unit);
    assert_int_equal(found.lowest, wanted.lowest);
    assert_int_equal(found.highest, wanted.highest);
}

/* A sum of up to `terms` squares of numbers below 128, of any size; often 0. */
static uint32_t random_norm(int64_t terms)
{
    const uint32_t largest = (uint32_t)(terms * 120 * 120);
    const uint32_t norm = (uint32_t)random_bits() % (largest + 1) >> random_below(21);
    return random_below(4) ? norm : 0;
}

static void units__any_bounds__same_as_ref(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        oct_group_bounds bounds = {0};
        uint8_t scales[LANES][2];
        const int64_t spread = random_below(2) ? 256 : 20;
        for (int64_t r = 0; r < LANES; r++) {
            for (int block = 0; block < 2; block++) {
                bounds.norm[block][r] = round % 50 ? random_norm(32) : 0;
                scales[r][block] = (uint8_t)random_below(spread);
            }
            bounds.top[r] = (int32_t)random_below(38) - 22;
        }
        for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++)
            check_units(&tables[isa].gemm, &bounds, (const uint8_t(*)[2])scales);
        for (int64_t r = 0; r < LANES; r++) {
            bounds.norm[0][r] = round % 50 ? random_norm(64) : 0;
            bounds.norm[1][r] = 0;
        }
        for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++)
            check_units(&tables[isa].gemm, &bounds, NULL);
    }
}

/* Shifts that a unit can ask for: no mantissa beyond 15 * 2^11. */
static int16_t random_shift(oct_format format, const group *g, int64_t row, int64_t block)
{
    int largest = -100;
    for (int64_t k = 32 * block; k < 32 * block + 32; k++) {
        const uint8_t magnitude = *group_code(g, row, k) & 0x7f;
        const oct_code_table *table = &ref()->tables[format];
        if (table->mantissa[magnitude] && table->exponent[magnitude] > largest)
            largest = table->exponent[magnitude];
    }
    if (largest == -100)
        return (int16_t)(random_below(60) - 20);
    const int64_t below = random_below(4) == 0 ? random_below(280) : random_below(18);
    return (int16_t)(11 - largest - below);
}

static void check_mantissas(oct_format format, const group *g, const int16_t shift[2][LANES],
                            int64_t lanes, int64_t out_stride)
{
    const size_t bytes = (size_t)(31 * out_stride + 2 * lanes) * sizeof(int16_t);
    uint8_t before[32 * 2 * NR * sizeof(int16_t)];
    for (size_t i = 0; i < bytes; i++)
        before[i] = (uint8_t)random_bits();
    for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++) {
        const oct_gemm_kernels *fast = &tables[isa].gemm;
        twin out = twin_new(bytes), lost = twin_new(GROUP / 2 * sizeof(uint32_t));
        twin_fill(&out, before); /* what lies between the lines must stay */
        ref()->mantissas(&ref()->tables[format], g->quads.data, g->stride, shift, lanes,
                         (void *)out.wanted.data, out_stride, (void *)lost.wanted.data);
        fast->mantissas(&fast->tables[format], g->quads.data, g->stride, shift, lanes,
                        (void *)out.found.data, out_stride, (void *)lost.found.data);
        check_bytes(&out, "mantissas", isa);
        check_bytes(&lost, "what mantissas lose", isa);
        twin_free(&out);
        twin_free(&lost);
    }
}

static void mantissas__any_codes_and_shifts__same_as_ref(void **state)
{
    (void)state;
    for (int round = 0; round < 800; round++) {
        const oct_format format = (oct_format)(round % 2);
        const int64_t lanes = round / 2 % 2 ? MR : LANES;
        group g = group_new(format, (group_kind)(round / 4 % GROUP_KINDS), lanes);
        int16_t shift[2][LANES];
        for (int64_t block = 0; block < 2; block++)
            for (int64_t row = 0; row < LANES; row++)
                shift[block][row] = random_shift(format, &g, row, block);
        check_mantissas(format, &g, (const int16_t(*)[LANES])shift, lanes,
                        lanes == MR ? 2 * MR : 2 * NR);
        guarded_free(&g.quads);
    }
}

/* Every code under every shift from where it fills 15 bits down to where nothing is left of it. */
static void mantissas__every_code_and_shift__same_as_ref(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        const oct_format format = (oct_format)f;
        const oct_code_table *table = &ref()->tables[format];
        for (int first = 0; first < 128; first += LANES)
            for (int below = 0; below < 20; below++) {
                group g = group_new(format, GROUP_ONE, 0);
                int16_t shift[2][LANES];
                for (int64_t row = 0; row < LANES; row++) {
                    const uint8_t magnitude = (uint8_t)(first + row);
                    shift[0][row] = shift[1][row] =
                        (int16_t)(11 - table->exponent[magnitude] - below);
                    for (int64_t k = 0; k < GROUP; k++)
                        *group_code(&g, row, k) = (uint8_t)(magnitude | (k % 3 ? 0x80 : 0));
                }
                check_mantissas(format, &g, (const int16_t(*)[LANES])shift, LANES, 2 * NR);
                guarded_free(&g.quads);
            }
    }
}

/* Bits as mantissas() leaves them, from none to all. */
static void lost_elements__any_bits__same_as_ref(void **state)
{
    (void)state;
    for (int round = 0; round < 2000; round++) {
        guarded lost = guarded_new(GROUP / 2 * sizeof(uint32_t), true);
        const int64_t rare = round % 5;
        for (size_t p = 0; p < GROUP / 2; p++) {
            uint32_t bits = round % 7 ? (uint32_t)random_bits() : 0;
            for (int64_t i = 0; i < rare; i++)
                bits &= (uint32_t)(random_bits() & random_bits());
            memcpy(lost.data + p * sizeof bits, &bits, sizeof bits);
        }
        for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++) {
            int64_t wanted = 5, found = 5; /* both are added to */
            assert_true(tables[isa].gemm.lost_elements((void *)lost.data, &found) ==
                        ref()->lost_elements((void *)lost.data, &wanted));
            assert_int_equal(found, wanted);
        }
        guarded_free(&lost);
    }
}

/* --- tiles -------------------------------------------------------------------------------------
 */

/* A source of int16 or float at a forbidden page. */
static guarded random_mantissas(int64_t groups, int64_t width)
{
    guarded memory = guarded_new((size_t)(groups * GROUP * width) * sizeof(int16_t), true);
    int16_t *m = (void *)memory.data;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t row = 0; row < width; row++) {
            /* sum m^2 < 2^31: 64 elements of 5792, or one of 30720 and the rest small. */
            const bool full = random_below(3) == 0;
            const int64_t large = random_below(GROUP);
            for (int64_t k = 0; k < GROUP; k++) {
                int64_t x = random_below(8001) - 4000;
                if (full)
                    x = row % 2 ? -5792 : 5792;
                else if (large < 16)
                    x = k == large ? 30720 - random_below(2) * 61440 : random_below(401) - 200;
                m[((g * 32 + k / 2) * width + row) * 2 + k % 2] = (int16_t)x;
            }
        }
    return memory;
}

static guarded random_units(int64_t count)
{
    guarded memory = guarded_new((size_t)count * sizeof(float), true);
    float *unit = (void *)memory.data;
    for (int64_t i = 0; i < count; i++)
        unit[i] = ldexpf(1.0f, (int)random_below(30) - 20);
    return memory;
}

static void fma_tile__any_length__same_sums_as_ref(void **state)
{
    (void)state;
    for (int round = 0; round < 120; round++) {
        static const int64_t lengths[] = {0, 1, 2, 127, 128, 129, 255, 257};
        const int64_t kc = round < 8 ? lengths[round] : random_below(300);
        guarded a = guarded_new((size_t)(kc * MR) * sizeof(float), true);
        guarded b = guarded_new((size_t)(kc * NR) * sizeof(float), true);
        float before[MR * NR];
        fill_floats((void *)a.data, kc * MR, round % 3 == 0 && kc < 20);
        fill_floats((void *)b.data, kc * NR, round % 3 == 0 && kc < 20);
        fill_floats(before, MR * NR, round % 2 == 0);
        for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++) {
            twin c = twin_new(sizeof before);
            twin_fill(&c, before);
            ref()->fma_tile(kc, (void *)a.data, (void *)b.data, (void *)c.wanted.data);
            tables[isa].gemm.fma_tile(kc, (void *)a.data, (void *)b.data, (void *)c.found.data);
            check_floats(&c, "fma_tile", isa);
            twin_free(&c);
        }
        guarded_free(&a);
        guarded_free(&b);
    }
}

static void integer_tile__full_and_mixed_groups__same_sums_as_ref(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        const int64_t groups = round % 8;
        guarded a = random_mantissas(groups, MR), b = random_mantissas(groups, NR);
        guarded a_unit = random_units(groups * MR), b_unit = random_units(groups * NR);
        float before[MR * NR];
        fill_floats(before, MR * NR, false);
        for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++) {
            twin c = twin_new(sizeof before);
            twin_fill(&c, before);
            ref()->integer_tile(groups, (void *)a.data, (void *)b.data, (void *)a_unit.data,
                                (void *)b_unit.data, (void *)c.wanted.data);
            tables[isa].gemm.integer_tile(groups, (void *)a.data, (void *)b.data,
                                          (void *)a_unit.data, (void *)b_unit.data,
                                          (void *)c.found.data);
            check_floats(&c, "integer_tile", isa);
            twin_free(&c);
        }
        guarded_free(&a);
        guarded_free(&b);
        guarded_free(&a_unit);
        guarded_free(&b_unit);
    }
}

/* Remainders of a panel in a chunk of `groups`. */
typedef struct list {
    oct_remainder entries[OCT_GEMM_CHUNK * 4];
    uint64_t present[OCT_GEMM_CHUNK / 64];
    uint16_t before[OCT_GEMM_CHUNK / 64];
    oct_remainder_list list;
} list;

static list *list_new(int64_t groups, int64_t width, int64_t per_mille)
{
    list *l = calloc(1, sizeof *l);
    assert_non_null(l);
    int64_t count = 0;
    for (int64_t k = 0; k < groups * GROUP; k++) {
        if (k % 64 == 0)
            l->before[k / 64] = (uint16_t)count;
        for (int64_t row = 0; row < width && count < (int64_t)(OCT_GEMM_CHUNK * 4); row++)
            if (random_below(1000) < per_mille || (k % 50 == 7 && row == width - 1)) {
                const float value =
                    ldexpf((float)(8 + random_below(8)), (int)random_below(40) - 30);
                l->entries[count++] = (oct_remainder){.value = random_below(2) ? value : -value,
                                                      .k = (uint16_t)k,
                                                      .row = (uint16_t)row};
                l->present[k / 64] |= UINT64_C(1) << k % 64;
            }
    }
    const int64_t words = (groups + OCT_PRESENT_STEP - 1) / OCT_PRESENT_STEP * OCT_PRESENT_STEP;
    l->list = (oct_remainder_list){l->entries, count, words, l->present, l->before};
    return l;
}

static void left_remainders__any_list__same_sums_as_ref(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        const int64_t groups = round % 4 ? 1 + random_below(6) : OCT_GEMM_CHUNK / GROUP;
        guarded b = random_mantissas(groups, NR), b_unit = random_units(groups * NR);
        list *left = list_new(groups, MR, random_below(60));
        float before[MR * NR];
        fill_floats(before, MR * NR, false);
        for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++) {
            twin c = twin_new(sizeof before);
            twin_fill(&c, before);
            ref()->left_remainders(&left->list, (void *)b.data, (void *)b_unit.data,
                                   (void *)c.wanted.data);
            tables[isa].gemm.left_remainders(&left->list, (void *)b.data, (void *)b_unit.data,
                                             (void *)c.found.data);
            check_floats(&c, "left_remainders", isa);
            twin_free(&c);
        }
        free(left);
        guarded_free(&b);
        guarded_free(&b_unit);
    }
}

/* 1 to 8 left panels, which begin somewhat apart, some of them without remainders. */
static void right_remainders__any_lists_and_tiles__same_sums_as_ref(void **state)
{
    (void)state;
    for (int round = 0; round < 48; round++) {
        const int64_t tiles = 1 + round % OCT_GEMM_STRIP;
        const int64_t groups = round % 4 ? 1 + random_below(6) : OCT_GEMM_CHUNK / GROUP;
        const int64_t stride = groups + random_below(3); /* groups of a panel */
        guarded a = random_mantissas((tiles - 1) * stride + groups, MR);
        guarded a_unit = random_units(((tiles - 1) * stride + groups) * MR);
        list *right = list_new(groups, NR, random_below(60)), *left[OCT_GEMM_STRIP];
        oct_remainder_list lists[OCT_GEMM_STRIP];
        for (int64_t t = 0; t < tiles; t++) {
            left[t] = list_new(groups, MR, random_below(60));
            lists[t] = left[t]->list;
            if (random_below(3) == 0)
                lists[t] = (oct_remainder_list){.count = 0};
        }
        float before[OCT_GEMM_STRIP * MR * NR];
        fill_floats(before, tiles * MR * NR, false);
        for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++) {
            twin c = twin_new((size_t)(tiles * MR * NR) * sizeof(float));
            twin_fill(&c, before);
            oct_tile_column column = {.tiles = tiles,
                                      .a = (void *)a.data,
                                      .a_unit = (void *)a_unit.data,
                                      .a_stride = stride * GROUP * MR,
                                      .unit_stride = stride * MR,
                                      .left = lists,
                                      .c = (void *)c.wanted.data};
            ref()->right_remainders(&right->list, &column);
            column.c = (void *)c.found.data;
            tables[isa].gemm.right_remainders(&right->list, &column);
            check_floats(&c, "right_remainders", isa);
            twin_free(&c);
        }
        for (int64_t t = 0; t < tiles; t++)
            free(left[t]);
        free(right);
        guarded_free(&a);
        guarded_free(&a_unit);
    }
}

/* Every form of output and every edge of a tile; C ends with its last element. */
static void finish_tile__every_edge_and_output__same_bytes_as_ref(void **state)
{
    (void)state;
    for (int round = 0; round < 14 * 32 * 2; round++) {
        const int64_t rows = 1 + round % MR, cols = 1 + round / MR % NR;
        const int64_t row = random_below(3), col = random_below(5);
        oct_gemm_out out = {.ld = col + cols + random_below(3),
                            .dtype = random_below(2) ? OCT_DTYPE_BF16 : OCT_DTYPE_F32};
        if (out.dtype == OCT_DTYPE_F32) {
            out.store = (oct_gemm_store)random_below(3);
            out.round_bf16 = out.store != OCT_GEMM_CONTINUE && random_below(2);
        }
        const size_t size = out.dtype == OCT_DTYPE_BF16 ? 2 : 4;
        const size_t bytes = size * (size_t)((row + rows - 1) * out.ld + col + cols);
        guarded bias = guarded_new((size_t)(col + cols) * sizeof(float), true);
        fill_floats((void *)bias.data, col + cols, round % 3 == 0);
        if (random_below(2))
            out.bias = (void *)bias.data;
        guarded sums = guarded_new(MR * NR * sizeof(float), true);
        fill_floats((void *)sums.data, MR * NR, true);
        float before[6 * MR * NR];
        fill_floats(before, (int64_t)(sizeof before / sizeof *before), true);
        assert_true(bytes <= sizeof before);
        oct_gemm_finish finish = {.out = &out,
                                  .scaled = random_below(2) != 0,
                                  .left_scale = (float)exp(random_normal()),
                                  .right_scale = (float)exp(random_normal() * 40.0)};
        for (int isa = OCT_ISA_AVX2; isa <= (int)oct_cpu_isa(); isa++) {
            twin c = twin_new(bytes);
            twin_fill(&c, before);
            out.data = c.wanted.data;
            ref()->finish_tile(&finish, (void *)sums.data, row, rows, col, cols);
            out.data = c.found.data;
            tables[isa].gemm.finish_tile(&finish, (void *)sums.data, row, rows, col, cols);
            check_bytes(&c, "finish_tile", isa);
            twin_free(&c);
        }
        guarded_free(&bias);
        guarded_free(&sums);
    }
}

/* --- times (times.h) --------------------------------------------------------------------------
 */

enum { TIMED_K = 128, TIMED_GROUPS = TIMED_K / GROUP };

/* Panels of a right (and left) operand of 32 rows, as large as the first cache. */
static struct {
    _Alignas(64) float f32[NR * TIMED_K];
    _Alignas(64) float a[MR * TIMED_K], b[NR * TIMED_K], c[MR * NR];
    _Alignas(64) uint16_t bf16[NR * TIMED_K];
    _Alignas(64) uint8_t codes[NR * TIMED_K], scales[NR * TIMED_K / 32], quads[GROUP * NR];
    _Alignas(64) int16_t a_mantissas[MR * TIMED_K], b_mantissas[NR * TIMED_K], out[GROUP * NR];
    float a_unit[TIMED_GROUPS * MR], b_unit[TIMED_GROUPS * NR];
    int16_t shift[2][LANES];
    uint32_t lost[GROUP / 2];
    list remainders; /* one of every k */
} timed;

static void timed_fill(void)
{
    fill_floats(timed.f32, NR * TIMED_K, false);
    fill_floats(timed.a, MR * TIMED_K, false);
    for (int i = 0; i < NR * TIMED_K; i++) {
        timed.bf16[i] = oct_bf16_from_f32(timed.f32[i]);
        timed.codes[i] = (uint8_t)(0x30 + random_below(16) + 128 * random_below(2));
        timed.b_mantissas[i] = (int16_t)(random_below(8001) - 4000);
        timed.a_mantissas[i % (MR * TIMED_K)] = timed.b_mantissas[i];
    }
    memset(timed.scales, 127, sizeof timed.scales);
    for (int i = 0; i < 2 * LANES; i++)
        timed.shift[i / LANES][i % LANES] = 4; /* 8 * 2^-4 is the least of the codes */
    for (int i = 0; i < GROUP * NR; i++)
        timed.quads[i] = timed.codes[i];
    for (int i = 0; i < TIMED_GROUPS * NR; i++)
        timed.b_unit[i] = timed.a_unit[i % (TIMED_GROUPS * MR)] = 0x1p-12f;
    list *one = &timed.remainders;
    for (uint16_t k = 0; k < TIMED_K; k++) {
        one->entries[k] = (oct_remainder){.value = 0x1p-20f, .k = k, .row = k % MR};
        one->present[k / 64] |= UINT64_C(1) << k % 64;
        one->before[k / 64] = (uint16_t)(k / 64 * 64);
    }
    one->list = (oct_remainder_list){.entries = one->entries,
                                     .count = TIMED_K,
                                     .words = OCT_GEMM_CHUNK / 64,
                                     .present = one->present,
                                     .before = one->before};
}

static void timed_call(const timed_loop *loop, const oct_kernels *at)
{
    const oct_gemm_kernels *gemm = &at->gemm;
    const bool is_codes = loop->dtype == OCT_DTYPE_E4M3;
    const oct_code_table *table = &gemm->tables[is_codes ? OCT_FORMAT_MXFP8 : OCT_FORMAT_HIF8];
    const oct_quantized_matrix codes = {.format = OCT_FORMAT_MXFP8,
                                        .codes = timed.codes,
                                        .ld = loop->transposed ? NR : TIMED_K,
                                        .k_contiguous = !loop->transposed,
                                        .rows = NR,
                                        .k = TIMED_K,
                                        .scales = timed.scales,
                                        .scale_ld = NR};
    const oct_fma_source numbers = {.data = loop->dtype == OCT_DTYPE_BF16 ? (const void *)timed.bf16
                                                                          : (const void *)timed.f32,
                                    .dtype = loop->dtype,
                                    .ld = codes.ld,
                                    .k_contiguous = codes.k_contiguous,
                                    .rows = NR,
                                    .k = TIMED_K,
                                    .codes = is_codes ? &codes : NULL};
    const oct_gemm_out out = {.data = timed.b, .ld = NR, .dtype = loop->dtype};
    const oct_gemm_finish finish = {&out, true, 0.5f, 0.25f};
    static const oct_remainder_list none;
    const oct_tile_column column = {1, timed.a_mantissas, timed.a_unit, 0, 0, &none, timed.c};
    oct_group_bounds bounds = {0};
    oct_group_units units;
    switch (loop->slot) {
    case offsetof(oct_kernels, gemm.fma_pack):
        gemm->fma_pack(&numbers, table, 0, NR, 0, TIMED_K, timed.b);
        break;
    case offsetof(oct_kernels, gemm.fma_tile):
        gemm->fma_tile(TIMED_K, timed.a, timed.f32, timed.c);
        break;
    case offsetof(oct_kernels, gemm.gather_quads):
        gemm->gather_quads(&codes, 0, NR, NR, 0, timed.quads);
        break;
    case offsetof(oct_kernels, gemm.bounds_mxfp8):
        gemm->bounds_mxfp8(table, timed.quads, 4 * NR, &bounds);
        break;
    case offsetof(oct_kernels, gemm.bounds_hif8):
        gemm->bounds_hif8(table, timed.quads, 4 * NR, &bounds);
        break;
    case offsetof(oct_kernels, gemm.units_mxfp8):
        gemm->units_mxfp8(&bounds, (const uint8_t(*)[2])timed.scales, &units);
        break;
    case offsetof(oct_kernels, gemm.units_hif8):
        gemm->units_hif8(&bounds, &units);
        break;
    case offsetof(oct_kernels, gemm.mantissas):
        gemm->mantissas(table, timed.quads, 4 * NR, (const int16_t(*)[LANES])timed.shift, LANES,
                        timed.out, 2 * NR, timed.lost);
        break;
    case offsetof(oct_kernels, gemm.lost_elements): {
        int64_t count = 0;
        (void)gemm->lost_elements(timed.lost, &count);
        break;
    }
    case offsetof(oct_kernels, gemm.integer_tile):
        gemm->integer_tile(TIMED_GROUPS, timed.a_mantissas, timed.b_mantissas, timed.a_unit,
                           timed.b_unit, timed.c);
        break;
    case offsetof(oct_kernels, gemm.left_remainders):
        gemm->left_remainders(&timed.remainders.list, timed.b_mantissas, timed.b_unit, timed.c);
        break;
    case offsetof(oct_kernels, gemm.right_remainders):
        gemm->right_remainders(&timed.remainders.list, &column);
        break;
    case offsetof(oct_kernels, gemm.finish_tile):
        gemm->finish_tile(&finish, timed.f32, 0, MR, 0, NR);
        break;
    default:
        fail_msg("%s has no call", loop->name);
    }
}

static const timed_loop timed_loops[] = {
    TIMED(gemm.fma_pack, OCT_DTYPE_F32, false, NR *TIMED_K, "element"),
    TIMED(gemm.fma_pack, OCT_DTYPE_BF16, false, NR *TIMED_K, "element"),
    TIMED(gemm.fma_pack, OCT_DTYPE_BF16, true, NR *TIMED_K, "element"),
    TIMED(gemm.fma_pack, OCT_DTYPE_E4M3, false, NR *TIMED_K, "element"),
    TIMED(gemm.fma_tile, OCT_DTYPE_F32, false, MR *NR *TIMED_K, "FMA"),
    TIMED(gemm.gather_quads, OCT_DTYPE_E4M3, false, NR *GROUP, "element"),
    TIMED(gemm.gather_quads, OCT_DTYPE_E4M3, true, NR *GROUP, "element"),
    TIMED(gemm.bounds_mxfp8, OCT_DTYPE_E4M3, false, LANES *GROUP, "element"),
    TIMED(gemm.bounds_hif8, OCT_DTYPE_HIF8, false, LANES *GROUP, "element"),
    TIMED(gemm.units_mxfp8, OCT_DTYPE_E4M3, false, LANES *GROUP, "element"),
    TIMED(gemm.units_hif8, OCT_DTYPE_HIF8, false, LANES *GROUP, "element"),
    TIMED(gemm.mantissas, OCT_DTYPE_E4M3, false, LANES *GROUP, "element"),
    TIMED(gemm.lost_elements, OCT_DTYPE_E4M3, false, LANES *GROUP, "element"),
    TIMED(gemm.integer_tile, OCT_DTYPE_E4M3, false, MR *NR *TIMED_K, "FMA"),
    TIMED(gemm.left_remainders, OCT_DTYPE_E4M3, false, NR *TIMED_K, "FMA"),
    TIMED(gemm.right_remainders, OCT_DTYPE_E4M3, false, MR *TIMED_K, "FMA"),
    TIMED(gemm.finish_tile, OCT_DTYPE_F32, false, MR *NR, "element"),
    TIMED(gemm.finish_tile, OCT_DTYPE_BF16, false, MR *NR, "element"),
};
static const timed_table timed_gemm = {
    .loops = timed_loops,
    .count = sizeof timed_loops / sizeof *timed_loops,
    .first = offsetof(oct_kernels, gemm),
    .end = offsetof(oct_kernels, gemm.tables),
    .call = timed_call,
};
_Static_assert(offsetof(oct_gemm_kernels, tables) + sizeof(oct_code_table[2]) ==
                   sizeof(oct_gemm_kernels),
               "the loops of the table end where its constants start");

static void times__every_loop_of_the_table__listed_and_callable(void **state)
{
    (void)state;
    timed_fill();
    times_check(&timed_gemm);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fma_pack__any_source__same_panel_as_ref),
        cmocka_unit_test(gather_quads__any_place__same_quads_as_ref),
        cmocka_unit_test(bounds__any_codes__same_as_ref),
        cmocka_unit_test(bounds__all_pairs_of_codes__same_as_ref),
        cmocka_unit_test(units__any_bounds__same_as_ref),
        cmocka_unit_test(mantissas__any_codes_and_shifts__same_as_ref),
        cmocka_unit_test(mantissas__every_code_and_shift__same_as_ref),
        cmocka_unit_test(lost_elements__any_bits__same_as_ref),
        cmocka_unit_test(fma_tile__any_length__same_sums_as_ref),
        cmocka_unit_test(integer_tile__full_and_mixed_groups__same_sums_as_ref),
        cmocka_unit_test(left_remainders__any_list__same_sums_as_ref),
        cmocka_unit_test(right_remainders__any_lists_and_tiles__same_sums_as_ref),
        cmocka_unit_test(finish_tile__every_edge_and_output__same_bytes_as_ref),
        cmocka_unit_test(times__every_loop_of_the_table__listed_and_callable),
    };
    const int failed = cmocka_run_group_tests(tests, setup, NULL);
    return times_finish(failed, argc, argv, &timed_gemm);
}
