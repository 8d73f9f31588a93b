/* The block-integer product against docs/spec/block-integer.md, written down here a second time
 * from the specification: real numbers in double, no code shared with the packer. */
#include "gemm_fixture.h"
#include "kernels/panels.h"

#include "numeric/e4m3.h"
#include "numeric/e8m0.h"
#include "numeric/hif8.h"

/* --- operands ------------------------------------------------------------------------------ */

typedef struct operand {
    oct_quantized_matrix q;
    uint8_t *codes, *scales; /* buffers */
} operand;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static operand operand_new(oct_format format, int64_t rows, int64_t k)
{
    operand o = {.q = {.format = format, .rows = rows, .k = k, .scale = 1.0f}};
    o.q.k_contiguous = random_below(2) != 0;
    o.q.ld = (o.q.k_contiguous ? k : rows) + random_below(3);
    const int64_t lines = o.q.k_contiguous ? rows : k;
    const int64_t lead = random_below(9);
    o.codes = malloc((size_t)(lead + lines * o.q.ld) + 1);
    assert_non_null(o.codes);
    memset(o.codes, 0x7f, (size_t)(lead + lines * o.q.ld) + 1); /* never read */
    o.q.codes = o.codes + lead;
    if (format == OCT_FORMAT_MXFP8) {
        o.q.scale_ld = rows + random_below(3);
        const int64_t bytes =
            ceil_div(k, 64) * 2 * (o.q.k_contiguous ? rows : o.q.scale_ld) + lead + 1;
        o.scales = malloc((size_t)bytes);
        assert_non_null(o.scales);
        memset(o.scales, 0xff, (size_t)bytes); /* a missing odd block is never read */
        o.q.scales = o.scales + lead;
    } else {
        o.q.scale = (float)exp(random_normal());
    }
    return o;
}

static void operand_free(operand *o)
{
    free(o->codes);
    free(o->scales);
}

static uint8_t *code_at(const operand *o, int64_t r, int64_t i)
{
    const int64_t lead = o->q.codes - o->codes;
    return o->codes + lead + (o->q.k_contiguous ? r * o->q.ld + i : i * o->q.ld + r);
}

static uint8_t *scale_at(const operand *o, int64_t r, int64_t b)
{
    const int64_t lead = o->q.scales - o->scales;
    return o->scales + lead +
           (o->q.k_contiguous ? (r * ceil_div(o->q.k, 64) + b / 2) * 2 + b % 2
                              : (b / 2 * o->q.scale_ld + r) * 2 + b % 2);
}

/* The element as a real number; NaN and Inf as such. Without the scale of HiF8. */
static double element(const operand *o, int64_t r, int64_t i)
{
    if (o->q.format == OCT_FORMAT_HIF8)
        return (double)oct_hif8_decode(*code_at(o, r, i));
    const uint8_t byte = *scale_at(o, r, i / 32);
    if (byte == 0xff)
        return (double)NAN;
    return ldexp((double)oct_e4m3_decode(*code_at(o, r, i)), byte - 127);
}

typedef enum data {
    DATA_NORMAL,
    DATA_SPREAD,    /* block amplitudes over many binades */
    DATA_CODES,     /* any finite code */
    DATA_ONE_LARGE, /* one largest element and tiny odd codes in every block */
    DATA_SPARSE,    /* mostly zero blocks */
    DATA_NONFINITE,
    DATA_EXTREME, /* scales at the ends of E8M0 */
    DATA_KINDS
} data;

static uint8_t any_finite_code(oct_format format)
{
    for (;;) {
        const uint8_t code = (uint8_t)random_bits();
        const float x = format == OCT_FORMAT_MXFP8 ? oct_e4m3_decode(code) : oct_hif8_decode(code);
        if (isfinite(x))
            return code;
    }
}

static uint8_t encode(oct_format format, double x)
{
    return format == OCT_FORMAT_MXFP8 ? oct_e4m3_encode((float)x, true)
                                      : oct_hif8_encode((float)x, true);
}

static void operand_fill(operand *o, data kind)
{
    const oct_format format = o->q.format;
    for (int64_t r = 0; r < o->q.rows; r++)
        for (int64_t b = 0; b * 32 < o->q.k; b++) {
            int shift = kind == DATA_SPREAD ? (int)random_below(25) - 12 : 0;
            int byte = 127 + (int)random_below(3);
            if (kind == DATA_SPREAD || kind == DATA_CODES)
                byte = 100 + (int)random_below(40);
            if (kind == DATA_EXTREME)
                byte = random_below(2) ? (int)random_below(6) : 254 - (int)random_below(40);
            if (kind == DATA_NONFINITE && random_below(200) == 0)
                byte = 0xff;
            const bool zero = kind == DATA_SPARSE && random_below(3) != 0;
            if (zero)
                byte = random_below(2) ? 0 : 254; /* says nothing: the block is zero */
            for (int64_t i = b * 32; i < o->q.k && i < b * 32 + 32; i++) {
                uint8_t code = encode(format, ldexp(random_normal() * 100.0, shift));
                if (format == OCT_FORMAT_HIF8)
                    code = encode(format, ldexp(random_normal() * 5.0, shift));
                if (kind == DATA_CODES || (kind == DATA_NONFINITE && random_below(100) == 0))
                    code = kind == DATA_CODES ? any_finite_code(format) : (uint8_t)random_bits();
                if (kind == DATA_ONE_LARGE) {
                    code = encode(format, (2 * (double)random_below(4) + 1) *
                                              (format == OCT_FORMAT_MXFP8 ? 0x1p-9 : 0x1p-14));
                    if (i % 32 == 7)
                        code = format == OCT_FORMAT_MXFP8 ? 0x7e : 0x6e;
                    if (random_below(2))
                        code |= 0x80;
                }
                if (zero)
                    code = format == OCT_FORMAT_MXFP8 && random_below(4) == 0 ? 0x80 : 0x00;
                *code_at(o, r, i) = code;
            }
            if (o->scales)
                *scale_at(o, r, b) = (uint8_t)byte;
        }
}

/* --- the specification ---------------------------------------------------------------------- */

typedef struct spec_operand {
    const operand *o;
    int64_t groups;
    int32_t *m;   /* [rows][groups * 64] */
    int *u;       /* [rows][groups], unit exponent */
    bool *is_rem; /* [rows][groups * 64] */
    int64_t remainders;
    int lo, hi; /* exponents of units and remainders */
    bool nonfinite;
} spec_operand;

static int floor_log2(double x)
{
    int e;
    (void)frexp(x, &e);
    return e - 1;
}

/* Unit exponent of 64 values x (MXFP8: with scales 2^e[0], 2^e[1] of the blocks). */
static int spec_unit_mxfp8(const double x[64], const int e[2])
{
    uint64_t n[2] = {0, 0};
    for (int i = 0; i < 64; i++) {
        const uint64_t c = (uint64_t)ceil(fabs(x[i]) / 4.0);
        n[i / 32] += c * c;
    }
    int top = -1000;
    for (int j = 0; j < 2; j++)
        if (n[j] && e[j] > top)
            top = e[j];
    uint64_t sum = 0;
    for (int j = 0; j < 2; j++)
        if (n[j]) {
            const int s = 2 * (top - e[j]) < 30 ? 2 * (top - e[j]) : 30;
            sum += (n[j] + (UINT64_C(1) << s) - 1) / (UINT64_C(1) << s);
        }
    int up = 6;
    while (16 * sum << (2 * up) >= UINT64_C(1) << 31)
        up--;
    return top - up;
}

static int spec_unit_hif8(const double x[64])
{
    int top = -1000;
    for (int i = 0; i < 64; i++)
        if (x[i] != 0 && floor_log2(fabs(x[i])) > top)
            top = floor_log2(fabs(x[i]));
    uint64_t sum = 0;
    for (int i = 0; i < 64; i++) {
        const uint64_t c = (uint64_t)ceil(ldexp(fabs(x[i]), 6 - top));
        sum += c * c;
    }
    int up = 8;
    while (sum << (2 * up) >= UINT64_C(1) << 31)
        up--;
    return top - 6 - up;
}

static void note(spec_operand *s, int exponent)
{
    s->lo = exponent < s->lo ? exponent : s->lo;
    s->hi = exponent > s->hi ? exponent : s->hi;
}

static spec_operand spec_pack(const operand *o)
{
    spec_operand s = {.o = o, .groups = ceil_div(o->q.k, 64), .lo = 100000, .hi = -100000};
    const size_t count = (size_t)(o->q.rows * s.groups);
    s.m = calloc(count * 64 + 1, sizeof *s.m);
    s.u = calloc(count + 1, sizeof *s.u);
    s.is_rem = calloc(count * 64 + 1, sizeof *s.is_rem);
    assert_true(s.m && s.u && s.is_rem);
    for (int64_t r = 0; r < o->q.rows; r++)
        for (int64_t g = 0; g < s.groups; g++) {
            double v[64] = {0}, x[64] = {0};
            int e[2] = {0, 0};
            bool any = false, bad = false;
            for (int i = 0; i < 64 && g * 64 + i < o->q.k; i++) {
                v[i] = element(o, r, g * 64 + i);
                bad |= !isfinite(v[i]);
                any |= v[i] != 0;
                if (o->q.format == OCT_FORMAT_MXFP8) {
                    e[i / 32] = *scale_at(o, r, (g * 64 + i) / 32) - 127;
                    x[i] = (double)oct_e4m3_decode(*code_at(o, r, g * 64 + i));
                }
            }
            if (bad)
                s.nonfinite = true;
            if (!any || bad)
                continue;
            const int u =
                o->q.format == OCT_FORMAT_MXFP8 ? spec_unit_mxfp8(x, e) : spec_unit_hif8(v);
            s.u[r * s.groups + g] = u;
            note(&s, u);
            double norm = 0;
            for (int i = 0; i < 64; i++) {
                const int64_t at = (r * s.groups + g) * 64 + i;
                const double q = ldexp(v[i], -u);
                if (floor(q) == q) {
                    assert_true(fabs(q) <= 32767);
                    s.m[at] = (int32_t)q;
                    norm += q * q;
                } else {
                    s.is_rem[at] = true;
                    s.remainders++;
                    note(&s, floor_log2(fabs(v[i])) - 3);
                }
            }
            assert_true(norm < 0x1p31);
        }
    return s;
}

static void spec_free(spec_operand *s)
{
    free(s->m);
    free(s->u);
    free(s->is_rem);
}

static bool spec_route_is_fma(const spec_operand *a, const spec_operand *b)
{
    const int64_t m = a->o->q.rows, n = b->o->q.rows, k = a->o->q.k;
    return a->nonfinite || b->nonfinite || a->lo + b->lo < -149 || a->hi + b->hi > 96 ||
           19 * a->remainders * n + 48 * b->remainders * m > k * m * n;
}

/* c + x with one rounding: x is exact in double, and so is every product below. */
static float fma_exact(double x, double y, float c)
{
    return fmaf((float)x, (float)y, c);
}

static float spec_sum(const spec_operand *a, const spec_operand *b, int64_t i, int64_t j)
{
    const int64_t k = a->groups * 64;
    const int32_t *ma = a->m + i * k, *mb = b->m + j * k;
    const bool *ra = a->is_rem + i * k, *rb = b->is_rem + j * k;
    float c = 0.0f;
    for (int64_t start = 0; start < k; start += 2048) {
        const int64_t end = start + 2048 < k ? start + 2048 : k;
        for (int64_t g = start / 64; g < end / 64; g++) {
            int64_t dot = 0;
            for (int64_t l = g * 64; l < g * 64 + 64; l++)
                dot += (int64_t)ma[l] * mb[l];
            assert_true(dot > INT32_MIN && dot <= INT32_MAX);
            c = fmaf((float)dot, ldexpf(1.0f, a->u[i * a->groups + g] + b->u[j * b->groups + g]),
                     c);
        }
        for (int64_t l = start; l < end; l++)
            if (ra[l])
                c = fma_exact(element(a->o, i, l), ldexp(mb[l], b->u[j * b->groups + l / 64]), c);
        float d = 0.0f;
        for (int64_t l = start; l < end; l++)
            if (rb[l])
                d = fma_exact(ldexp(ma[l], a->u[i * a->groups + l / 64]), element(b->o, j, l), d);
        for (int64_t l = start; l < end; l++)
            if (ra[l] && rb[l])
                d = fma_exact(element(a->o, i, l), element(b->o, j, l), d);
        c = c + d;
    }
    return c;
}

static float spec_chain(const operand *a, const operand *b, int64_t i, int64_t j)
{
    float c = 0.0f;
    for (int64_t l = 0; l < a->q.k; l++)
        c = fmaf((float)element(a, i, l), (float)element(b, j, l), c);
    return c;
}

/* --- checks ---------------------------------------------------------------------------------- */

static int routes[2]; /* products seen: integer, fma */

/* Elements of 2^128 and above are Inf in the FMA route and left out here. */
static void check_values(const operand *a, const operand *b, const float *sums)
{
    for (int64_t i = 0; i < a->q.rows; i++)
        for (int64_t j = 0; j < b->q.rows; j++) {
            double y = 0, abs = 0, largest = 0;
            for (int64_t l = 0; l < a->q.k; l++) {
                const double x = element(a, i, l), z = element(b, j, l);
                y += x * z;
                abs += fabs(x * z);
                largest = fmax(largest, fmax(fabs(x), fabs(z)));
            }
            if (!isfinite(abs) || abs >= 0x1p127 || largest >= 0x1p128)
                continue;
            const double count = (double)a->q.k + 4;
            assert_true(fabs((double)sums[i * b->q.rows + j] - y) <=
                        count * (0x1p-24 * abs + 0x1p-149));
        }
}

/* What packing leaves in an arena of its own: the list is as long as it must be. */
static int64_t panels_bytes(const operand *o, const spec_operand *s, oct_side side)
{
    const int64_t panels = ceil_div(o->q.rows, side == OCT_SIDE_LEFT ? OCT_GEMM_MR : OCT_GEMM_NR);
    const bool listed =
        !s->nonfinite && s->remainders <= oct_remainder_capacity(o->q.rows, o->q.k, side);
    return oct_panels_bytes(o->q.rows, o->q.k, side) - panels * 64 + /* work memory */
           (listed ? ceil_div(s->remainders * (int64_t)sizeof(oct_remainder), 64) * 64 : 0);
}

static int streamed; /* products with an unpacked right operand */

static void check_product(fixture_exec *execs[EXECS], const operand *a, const operand *b)
{
    const int64_t m = a->q.rows, n = b->q.rows;
    spec_operand sa = spec_pack(a), sb = spec_pack(b);
    const bool fma = spec_route_is_fma(&sa, &sb);
    routes[fma]++;
    float *sums = malloc((size_t)(m * n) * sizeof *sums + 1);
    assert_non_null(sums);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            sums[i * n + j] = fma ? spec_chain(a, b, i, j) : spec_sum(&sa, &sb, i, j);
    check_values(a, b, sums);
    if (a->q.format == OCT_FORMAT_HIF8)
        for (int64_t i = 0; i < m * n; i++)
            sums[i] = (sums[i] * a->q.scale) * b->q.scale;
    fixture_out outs[2];
    out_random(&outs[0], m, n, OUT_PLAIN);
    out_random(&outs[1], m, n, OUT_FINISHED);
    for (int e = 0; e < EXECS; e++) {
        oct_arena arena;
        oct_arena_init(&arena, "panels");
        oct_panels *left = NULL, *right = NULL;
        oct_err err = {0};
        const oct_exec *exec = &execs[e]->exec;
        assert_int_equal(oct_pack(exec, &a->q, OCT_SIDE_LEFT, &arena, &left, &err), OCT_OK);
        assert_true(arena.peak_bytes <= (size_t)oct_panels_bytes_bound(m, a->q.k, OCT_SIDE_LEFT));
        assert_int_equal(arena.used_bytes, panels_bytes(a, &sa, OCT_SIDE_LEFT));
        /* The right one into scratch itself. */
        const oct_arena_mark mark = oct_arena_save(exec->scratch);
        assert_int_equal(oct_pack(exec, &b->q, OCT_SIDE_RIGHT, exec->scratch, &right, &err),
                         OCT_OK);
        assert_true(exec->scratch->used_bytes <=
                    (size_t)oct_panels_bytes_bound(n, b->q.k, OCT_SIDE_RIGHT));
        for (int i = 0; i < 2; i++) {
            out_reset(&outs[i]);
            bool used = !fma;
            assert_int_equal(oct_block_integer_gemm(exec, left, right, &outs[i].out, &used, &err),
                             OCT_OK);
            assert_int_equal(used, fma);
            out_check(&outs[i], sums);
        }
        oct_arena_rewind(exec->scratch, mark);
        for (int i = 0; i < 2; i++) {
            if (outs[i].out.store != OCT_GEMM_STORE)
                continue;
            out_reset(&outs[i]);
            bool used = !fma;
            double seconds = 1e6; /* grows, whatever it is */
            assert_int_equal(
                oct_block_integer_stream(exec, left, &b->q, &outs[i].out, &used, &seconds, &err),
                OCT_OK);
            assert_int_equal(used, fma);
            assert_true(seconds >= 1e6);
            assert_int_equal(exec->scratch->used_bytes, 0);
            out_check(&outs[i], sums);
            streamed++;
        }
        oct_arena_release(&arena);
    }
    out_free(&outs[0]);
    out_free(&outs[1]);
    free(sums);
    spec_free(&sa);
    spec_free(&sb);
}

static void check_sizes(fixture_exec *execs[EXECS], oct_format format, int64_t m, int64_t n,
                        int64_t k, data left, data right)
{
    operand a = operand_new(format, m, k), b = operand_new(format, n, k);
    operand_fill(&a, left);
    operand_fill(&b, right);
    check_product(execs, &a, &b);
    operand_free(&a);
    operand_free(&b);
}

static void block_integer_gemm__random_sizes_and_data__equals_the_spec(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    routes[0] = routes[1] = 0;
    for (int i = 0; i < 2 * DATA_KINDS * DATA_KINDS; i++)
        check_sizes(execs, (oct_format)(i % 2), 1 + random_below(60), 1 + random_below(70),
                    1 + random_below(200), (data)(i / 2 % DATA_KINDS), (data)(i / 2 / DATA_KINDS));
    for (int i = 0; i < 20; i++)
        check_sizes(execs, (oct_format)(i % 2), 1 + random_below(130), 1 + random_below(130),
                    1 + random_below(130), DATA_NORMAL, DATA_NORMAL);
    execs_close(execs);
    assert_true(routes[0] > 30 && routes[1] > 30);
}

static void block_integer_gemm__k_beyond_chunks__equals_the_spec(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    routes[0] = routes[1] = 0;
    static const int64_t ks[] = {2047, 2048, 2049, 4161};
    for (int i = 0; i < 8; i++) {
        check_sizes(execs, (oct_format)(i % 2), 17, 35, ks[i / 2], DATA_NORMAL, DATA_NORMAL);
        if (i == 4) /* columns in an item */
            check_sizes(execs, OCT_FORMAT_MXFP8, 17, 32 * 4 + 1, ks[2], DATA_NORMAL, DATA_NORMAL);
        check_sizes(execs, (oct_format)(i % 2), 1, 1, ks[i / 2], DATA_NORMAL, DATA_NORMAL);
    }
    execs_close(execs);
    assert_true(routes[0] > 8);
}

static void block_integer_gemm__more_panels_than_an_item__equals_the_spec(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    check_sizes(execs, OCT_FORMAT_MXFP8, 14 * 9 + 1, 32 * 9 + 1, 33, DATA_NORMAL, DATA_NORMAL);
    execs_close(execs);
}

/* A right operand of several windows; the route may turn out in the last one. */
static void block_integer_stream__many_windows__equals_the_spec(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    routes[0] = routes[1] = 0;
    streamed = 0;
    for (int i = 0; i < 10; i++) {
        const oct_format format = (oct_format)(i % 2);
        operand a = operand_new(format, 3, 4129), b = operand_new(format, 2 * 256 + 17, 4129);
        operand_fill(&a, DATA_NORMAL);
        operand_fill(&b, DATA_NORMAL);
        if (i / 2 == 1) /* not finite in the last window */
            *code_at(&b, b.q.rows - 1, 4000) = format == OCT_FORMAT_HIF8 ? 0x80 : 0x7f;
        /* Remainders in every window; too many of them in all; many in the first window, more than
         * its share of what an operand may have. */
        static const int64_t steps[] = {0, 0, 900, 40, 25};
        if (i / 2 >= 2)
            for (int64_t r = 0; r < (i / 2 == 4 ? 200 : b.q.rows); r++)
                for (int64_t l = r % 5; l < 4129; l += steps[i / 2])
                    *code_at(&b, r, l) =
                        encode(format, 3 * 0x1p-9 * (format == OCT_FORMAT_HIF8 ? 0.25 : 1.0));
        check_product(execs, &a, &b);
        operand_free(&a);
        operand_free(&b);
    }
    execs_close(execs);
    assert_true(routes[0] == 6 && routes[1] == 4 && streamed >= 10 * EXECS);
}

/* One block somewhere decides: its scale is NaN while its codes are zero, or its exponents alone
 * leave the range, as those of a unit or as those of remainders. */
static void block_integer_gemm__one_odd_block_anywhere__same_route_as_the_spec(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    routes[0] = routes[1] = 0;
    for (int i = 0; i < 240; i++) {
        const int64_t m = 1 + random_below(50), n = 1 + random_below(70), k = 1 + random_below(300);
        operand a = operand_new(OCT_FORMAT_MXFP8, m, k), b = operand_new(OCT_FORMAT_MXFP8, n, k);
        operand *both[2] = {&a, &b}, *odd = both[random_below(2)];
        const int kind = i % 3; /* NaN, low, high */
        const int64_t row = random_below(odd->q.rows), block = random_below(ceil_div(k, 32));
        for (int o = 0; o < 2; o++) {
            operand_fill(both[o], DATA_NORMAL);
            for (int64_t r = 0; r < both[o]->q.rows; r++)
                for (int64_t j = 0; j * 32 < k; j++)
                    *scale_at(both[o], r, j) = kind == 1 ? 67 : 127;
        }
        static const uint8_t scales[] = {0xff, 40, 250};
        *scale_at(odd, row, block) = scales[kind];
        for (int64_t l = block * 32; kind == 0 && l < k && l < block * 32 + 32; l++)
            *code_at(odd, row, l) = 0;
        check_product(execs, &a, &b);
        operand_free(&a);
        operand_free(&b);
    }
    execs_close(execs);
    assert_true(routes[1] > 200);
}

/* Few remainders that meet at the same k, so that every list and the products of two remainders
 * take part while the integer route stays. */
static void block_integer_gemm__remainders_on_both_sides__equals_the_spec(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    routes[0] = routes[1] = 0;
    for (int i = 0; i < 12; i++) {
        const oct_format format = (oct_format)(i % 2);
        const int64_t k = i < 8 ? 1 + random_below(500) : 4200;
        operand a = operand_new(format, 1 + random_below(40), k);
        operand b = operand_new(format, 1 + random_below(70), k);
        operand *both[2] = {&a, &b};
        for (int o = 0; o < 2; o++) {
            operand_fill(both[o], DATA_NORMAL);
            for (int64_t r = 0; r < both[o]->q.rows; r++)
                for (int64_t l = 5; l < k; l += 200)
                    if (random_below(4) != 0)
                        *code_at(both[o], r, l) =
                            encode(format, (random_below(2) ? 3 : -7) * 0x1p-9 *
                                               (format == OCT_FORMAT_HIF8 ? 0.25 : 1.0));
        }
        check_product(execs, &a, &b);
        operand_free(&a);
        operand_free(&b);
    }
    execs_close(execs);
    assert_true(routes[0] > 6);
}

/* Every code against every code, alone and beside the largest number of the format. */
static void block_integer_gemm__all_pairs_of_codes__equals_the_spec(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    for (int round = 0; round < 6; round++) {
        const oct_format format = (oct_format)(round % 2);
        const int64_t k = round < 4 ? 1 : 80;
        const bool finite = round >= 2;
        operand a = operand_new(format, 256, k), b = operand_new(format, 256, k);
        operand *both[2] = {&a, &b};
        for (int o = 0; o < 2; o++) {
            for (int64_t r = 0; r < 256; r++) {
                for (int64_t l = 0; l < k; l++)
                    *code_at(both[o], r, l) =
                        l == 0 || l == 79 ? (format == OCT_FORMAT_MXFP8 ? 0x7e : 0x6e) : 0;
                uint8_t code = (uint8_t)r;
                const float x =
                    format == OCT_FORMAT_MXFP8 ? oct_e4m3_decode(code) : oct_hif8_decode(code);
                if (finite && !isfinite(x))
                    code = 0;
                *code_at(both[o], r, k / 2) = code;
                for (int64_t l = 0; both[o]->scales && l < ceil_div(k, 32); l++)
                    *scale_at(both[o], r, l) = 127;
            }
        }
        check_product(execs, &a, &b);
        operand_free(&a);
        operand_free(&b);
    }
    execs_close(execs);
}

/* Elements of one magnitude: the largest sums that a group can have, where int32 is nearly full. */
static void block_integer_gemm__full_groups__never_overflow(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    for (int round = 0; round < 2; round++) {
        const oct_format format = (oct_format)round;
        operand a = operand_new(format, 127, 128), b = operand_new(format, 127, 128);
        for (int64_t r = 0; r < 127; r++) {
            for (int64_t l = 0; l < 128; l++) {
                *code_at(&a, r, l) = (uint8_t)r;
                *code_at(&b, r, l) = (uint8_t)(r | (r % 2 ? 0x80 : 0));
                if (format == OCT_FORMAT_HIF8 && r == 0x6f)
                    *code_at(&a, r, l) = *code_at(&b, r, l) = 0x6e;
            }
            if (format == OCT_FORMAT_MXFP8)
                for (int64_t l = 0; l < 4; l++)
                    *scale_at(&a, r, l) = *scale_at(&b, r, l) = 127;
        }
        check_product(execs, &a, &b);
        operand_free(&a);
        operand_free(&b);
    }
    execs_close(execs);
}

/* One operand's exponents at the limits of the integer route: sums -149, -150, 96, 97. */
static void block_integer_gemm__exponents_at_the_limits__choose_the_route(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    for (int i = 0; i < 6; i++) {
        const bool low = i < 2, beyond = i % 2 != 0;
        operand a = operand_new(OCT_FORMAT_MXFP8, 3, 32);
        operand b = operand_new(OCT_FORMAT_MXFP8, 3, 32);
        for (int64_t r = 0; r < 3; r++) {
            for (int64_t l = 0; l < 32; l++)
                *code_at(&a, r, l) = *code_at(&b, r, l) = 0x38; /* 1.0: N = 32, unit 2^-6 */
            *scale_at(&a, r, 0) = (uint8_t)(low ? 127 - 100 : 127 + 100);
            *scale_at(&b, r, 0) = (uint8_t)(low ? 127 - 37 - beyond : 127 + 8 + beyond);
        }
        if (i >= 4) /* and with a remainder, which must not hide the unit */
            *code_at(&a, 1, 5) = *code_at(&b, 2, 9) = 0x01;
        routes[0] = routes[1] = 0;
        check_product(execs, &a, &b);
        assert_int_equal(routes[1], beyond);
        operand_free(&a);
        operand_free(&b);
    }
    execs_close(execs);
}

/* A vector of 448s (left) or 1s (right) with a given number of remainders, against one without. */
static bool route_of(fixture_exec *execs[EXECS], int64_t k, int64_t left, int64_t right)
{
    operand a = operand_new(OCT_FORMAT_MXFP8, 1, k), b = operand_new(OCT_FORMAT_MXFP8, 1, k);
    for (int64_t l = 0; l < k; l++) {
        *scale_at(&a, 0, l / 32) = *scale_at(&b, 0, l / 32) = 127;
        const int64_t place = l * 13 % k; /* 13 and k have no common divisor */
        *code_at(&a, 0, place) = l < left ? 0x01 : 0x7e;
        *code_at(&b, 0, place) = l < right ? 0x01 : 0x7e;
    }
    routes[0] = routes[1] = 0;
    check_product(execs, &a, &b);
    operand_free(&a);
    operand_free(&b);
    return routes[1] != 0;
}

static void block_integer_gemm__remainders_at_the_limits__choose_the_route(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    assert_false(route_of(execs, 19 * 20 + 1, 20, 0));
    assert_true(route_of(execs, 19 * 20 - 1, 20, 0));
    assert_false(route_of(execs, 48 * 20 + 1, 0, 20));
    assert_true(route_of(execs, 48 * 20 - 1, 0, 20));
    assert_false(route_of(execs, 67 * 10 + 1, 10, 10));
    assert_true(route_of(execs, 67 * 10 - 1, 10, 10));
    execs_close(execs);
}

/* Rows of 64 with up to 40 remainders each, as many rows as `count` takes, and 448s. */
static void fill_first_rows(operand *x, int64_t count)
{
    enum { PER_ROW = 40 };
    for (int64_t r = 0; r < x->q.rows; r++)
        for (int64_t l = 0; l < x->q.k; l++) {
            *scale_at(x, r, l / 32) = 127;
            *code_at(x, r, l * 13 % x->q.k) = l < PER_ROW && r * PER_ROW + l < count ? 0x01 : 0x7e;
        }
}

/* Several panels on either side, all remainders in the first of one of them. */
static bool route_of_panels(fixture_exec *execs[EXECS], int64_t left, int64_t right)
{
    operand a = operand_new(OCT_FORMAT_MXFP8, 42, 64), b = operand_new(OCT_FORMAT_MXFP8, 96, 64);
    fill_first_rows(&a, left);
    fill_first_rows(&b, right);
    routes[0] = routes[1] = 0;
    check_product(execs, &a, &b);
    operand_free(&a);
    operand_free(&b);
    return routes[1] != 0;
}

/* A panel that holds more than its share must not end the packing before the limit of the whole. */
static void block_integer_gemm__remainders_in_the_first_panel__all_are_packed(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    assert_false(route_of_panels(execs, 42 * 64 / 19, 0));
    assert_true(route_of_panels(execs, 42 * 64 / 19 + 1, 0));
    assert_false(route_of_panels(execs, 0, 96 * 64 / 48));
    assert_true(route_of_panels(execs, 0, 96 * 64 / 48 + 1));
    execs_close(execs);
}

/* The bound of a magnitude in the norm; HiF8 beside elements of [1, 2). 0 if it may not be used. */
static int64_t norm_term(oct_format format, uint8_t code)
{
    const double x =
        format == OCT_FORMAT_MXFP8 ? (double)oct_e4m3_decode(code) : (double)oct_hif8_decode(code);
    if (format == OCT_FORMAT_MXFP8)
        return isfinite(x) ? (int64_t)ceil(x / 4.0) : 0;
    return x < 2.0 ? (int64_t)ceil(x * 64.0) : 0;
}

/* Sums of squares one below, at and one above the steps of the unit (N = 2^15 and 2^17), which an
 * element rounded up to 1 decides. What shows in the result are the small elements 20..31:
 * multiples of the unit below the step, remainders from there on. */
static void block_integer_gemm__norms_at_the_steps__equals_the_spec(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    for (int f = 0; f < 2; f++) {
        const oct_format format = (oct_format)f;
        const int64_t k = 20 * 64; /* zeros from 64 on: few remainders keep the integer route */
        operand a = operand_new(format, 18, k), b = operand_new(format, 18, k);
        operand *both[2] = {&a, &b};
        for (int64_t i = 0; i < 36; i++) {
            const operand *o = both[i / 18];
            const int64_t r = i % 18;
            const bool low = r % 2 != 0;
            const uint8_t small = format == OCT_FORMAT_MXFP8
                                      ? (low ? 0x21 : 0x29)  /* lsb 2^-6, -5 */
                                      : (low ? 0x7c : 0x7a); /* 2^-14, -13 */
            int64_t rest =
                (INT64_C(1) << (low ? 15 : 17)) - 14 + r / 2 % 3; /* 13 terms of 1 follow */
            for (int64_t l = 0; l < k; l++) {
                uint8_t code = 0;
                if (l < 20)
                    for (uint8_t next = 1; next < 128; next++) {
                        const int64_t n = norm_term(format, next);
                        if (n * n <= rest && n > norm_term(format, code))
                            code = next;
                    }
                else if (l < 32)
                    code = (uint8_t)(format == OCT_FORMAT_MXFP8 ? small + 2 * random_below(4)
                                                                : small - random_below(2));
                else if (l == 40)
                    code = format == OCT_FORMAT_MXFP8 ? 0x48 : small;
                if (l < 20)
                    rest -= norm_term(format, code) * norm_term(format, code);
                *code_at(o, r, l) = code && random_below(2) ? code | 0x80 : code;
            }
            assert_int_equal(rest, 0);
            if (format == OCT_FORMAT_MXFP8) {
                for (int64_t l = 0; l < k / 32; l++)
                    *scale_at(o, r, l) = (uint8_t)(l == 1 ? 127 - r / 6 * 9 : 127);
            }
        }
        routes[0] = 0;
        check_product(execs, &a, &b);
        assert_int_equal(routes[0], 1);
        operand_free(&a);
        operand_free(&b);
    }
    execs_close(execs);
}

static void block_integer_gemm__zero_k_or_zero_operands__gives_zero(void **state)
{
    (void)state;
    fixture_exec *execs[EXECS];
    execs_open(execs);
    for (int i = 0; i < 10; i++) {
        check_sizes(execs, (oct_format)(i % 2), 1 + random_below(20), 1 + random_below(40), 0,
                    DATA_NORMAL, DATA_NORMAL);
        operand a = operand_new((oct_format)(i % 2), 5, 70),
                b = operand_new((oct_format)(i % 2), 9, 70);
        operand_fill(&a, DATA_NORMAL);
        operand_fill(&b, DATA_EXTREME);
        for (int64_t l = 0; l < 70; l++)
            for (int64_t r = 0; r < 5; r++)
                *code_at(&a, r, l) = 0;
        check_product(execs, &a, &b);
        operand_free(&a);
        operand_free(&b);
    }
    check_sizes(execs, OCT_FORMAT_MXFP8, 0, 3, 40, DATA_NORMAL, DATA_NORMAL);
    check_sizes(execs, OCT_FORMAT_HIF8, 3, 0, 40, DATA_NORMAL, DATA_NORMAL);
    execs_close(execs);
}

static void block_integer_gemm__misuse__is_refused(void **state)
{
    (void)state;
    fixture_exec *f = exec_new(OCT_ISA_REF, 1);
    operand a = operand_new(OCT_FORMAT_MXFP8, 4, 40), b = operand_new(OCT_FORMAT_MXFP8, 4, 41);
    operand h = operand_new(OCT_FORMAT_HIF8, 4, 40);
    operand_fill(&a, DATA_NORMAL);
    operand_fill(&b, DATA_NORMAL);
    operand_fill(&h, DATA_NORMAL);
    oct_arena arena;
    oct_arena_init(&arena, "panels");
    oct_panels *left = NULL, *right = NULL, *longer = NULL, *other = NULL;
    oct_err err = {0};
    assert_int_equal(oct_pack(&f->exec, &a.q, OCT_SIDE_LEFT, &arena, &left, &err), OCT_OK);
    assert_int_equal(oct_pack(&f->exec, &a.q, OCT_SIDE_RIGHT, &arena, &right, &err), OCT_OK);
    assert_int_equal(oct_pack(&f->exec, &b.q, OCT_SIDE_RIGHT, &arena, &longer, &err), OCT_OK);
    assert_int_equal(oct_pack(&f->exec, &h.q, OCT_SIDE_RIGHT, &arena, &other, &err), OCT_OK);
    float c[16];
    oct_gemm_out out = {.data = c, .ld = 4, .dtype = OCT_DTYPE_F32};
    assert_int_equal(oct_block_integer_gemm(&f->exec, right, left, &out, NULL, &err), OCT_E_API);
    assert_int_equal(oct_block_integer_gemm(&f->exec, left, longer, &out, NULL, &err), OCT_E_SHAPE);
    assert_int_equal(oct_block_integer_gemm(&f->exec, left, other, &out, NULL, &err), OCT_E_SHAPE);
    out.store = OCT_GEMM_CONTINUE;
    assert_int_equal(oct_block_integer_gemm(&f->exec, left, right, &out, NULL, &err), OCT_E_API);
    double seconds = 0.0;
    out.store = OCT_GEMM_FOLD;
    assert_int_equal(oct_block_integer_stream(&f->exec, left, &a.q, &out, NULL, &seconds, &err),
                     OCT_E_API);
    out.store = OCT_GEMM_STORE;
    assert_int_equal(oct_block_integer_stream(&f->exec, right, &a.q, &out, NULL, &seconds, &err),
                     OCT_E_API);
    assert_int_equal(oct_block_integer_stream(&f->exec, left, &b.q, &out, NULL, &seconds, &err),
                     OCT_E_SHAPE);
    oct_quantized_matrix bad = a.q;
    bad.rows = -1;
    assert_int_equal(oct_pack(&f->exec, &bad, OCT_SIDE_LEFT, &arena, &left, &err), OCT_E_SHAPE);
    bad = a.q;
    bad.k = -1;
    assert_int_equal(oct_pack(&f->exec, &bad, OCT_SIDE_LEFT, &arena, &left, &err), OCT_E_SHAPE);
    oct_arena_release(&arena);
    operand_free(&a);
    operand_free(&b);
    operand_free(&h);
    exec_free(f);
}

/* Packing that finds no room gives back what it took from scratch; with scratch too small it fails
 * as well. */
static void pack__no_room__leaves_scratch_as_it_was(void **state)
{
    (void)state;
    fixture_exec *f = exec_new(oct_cpu_isa(), 2);
    operand a = operand_new(OCT_FORMAT_MXFP8, 100, 300);
    operand_fill(&a, DATA_NORMAL);
    const size_t enough = (size_t)oct_panels_bytes_bound(100, 300, OCT_SIDE_LEFT);
    unsigned char *memory = malloc(enough + OCT_ARENA_FIXED_BYTES);
    assert_non_null(memory);
    int failed[2] = {0}, packed[2] = {0};
    for (size_t bytes = 0; bytes <= enough; bytes += 64)
        for (int which = 0; which < 2; which++) { /* the arena, or scratch, is the small one */
            oct_arena small, large;
            oct_arena_init_fixed(&small, "small", memory, bytes + OCT_ARENA_FIXED_BYTES);
            oct_arena_init(&large, "large");
            oct_arena *arena = which ? &large : &small;
            const oct_exec exec = {
                .kernels = &f->kernels, .threads = 2, .scratch = which ? &small : &large};
            const size_t before = exec.scratch->used_bytes;
            oct_panels *panels = NULL;
            oct_err err = {0};
            const oct_status status = oct_pack(&exec, &a.q, OCT_SIDE_LEFT, arena, &panels, &err);
            assert_true(status == OCT_OK || status == OCT_E_NOMEM);
            (status == OCT_OK ? packed : failed)[which]++;
            assert_int_equal(exec.scratch->used_bytes, before);
            oct_arena_release(&large);
        }
    for (int which = 0; which < 2; which++)
        assert_true(failed[which] > 0 && packed[which] > 0);
    free(memory);
    operand_free(&a);
    exec_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pack__no_room__leaves_scratch_as_it_was),
        cmocka_unit_test(block_integer_gemm__random_sizes_and_data__equals_the_spec),
        cmocka_unit_test(block_integer_gemm__k_beyond_chunks__equals_the_spec),
        cmocka_unit_test(block_integer_gemm__more_panels_than_an_item__equals_the_spec),
        cmocka_unit_test(block_integer_stream__many_windows__equals_the_spec),
        cmocka_unit_test(block_integer_gemm__one_odd_block_anywhere__same_route_as_the_spec),
        cmocka_unit_test(block_integer_gemm__remainders_on_both_sides__equals_the_spec),
        cmocka_unit_test(block_integer_gemm__all_pairs_of_codes__equals_the_spec),
        cmocka_unit_test(block_integer_gemm__full_groups__never_overflow),
        cmocka_unit_test(block_integer_gemm__exponents_at_the_limits__choose_the_route),
        cmocka_unit_test(block_integer_gemm__remainders_at_the_limits__choose_the_route),
        cmocka_unit_test(block_integer_gemm__remainders_in_the_first_panel__all_are_packed),
        cmocka_unit_test(block_integer_gemm__norms_at_the_steps__equals_the_spec),
        cmocka_unit_test(block_integer_gemm__zero_k_or_zero_operands__gives_zero),
        cmocka_unit_test(block_integer_gemm__misuse__is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
