/* octet bench pack: 8-bit operands into panels, against memcpy of the codes. The limit is the
 * memory traffic of that memcpy, with the bytes that packing has to read and write. Codes of
 * several matrices go round; the panels take the same place each time, as in training. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "cli/bench_data.h"
#include "cli/bench_harness.h"
#include "kernels/panels.h"
#include "low_precision/config.h"

enum { FORMATS = 2, MATRICES = 16, MEMCPY = 0, SLAB_ROWS = 2 * 7 * 16 /* whole panels of both */ };

/* Equal operands of one format, as they lie in memory: 64 MB of 2048 x 2048. */
typedef struct source {
    oct_bench *bench;
    oct_side side;
    int64_t rows, k;
    oct_quantized_matrix matrices[MATRICES];
    uint8_t *copy;
} source;

static oct_status run_memcpy(void *arg, oct_err *err)
{
    source *s = arg;
    (void)err;
    for (int i = 0; i < MATRICES; i++)
        memcpy(s->copy, s->matrices[i].codes, (size_t)(s->rows * s->k));
    return OCT_OK;
}

static oct_status run_pack(void *arg, oct_err *err)
{
    source *s = arg;
    oct_arena *scratch = &s->bench->scratch;
    for (int i = 0; i < MATRICES; i++) {
        const oct_arena_mark mark = oct_arena_save(scratch);
        oct_panels *panels = NULL;
        OCT_TRY(oct_pack(&s->bench->exec, &s->matrices[i], s->side, scratch, &panels, err));
        oct_arena_rewind(scratch, mark);
    }
    return OCT_OK;
}

/* --- checks: the first panels against those of the ref kernels ----------------------------------
 */

static oct_status check_memcpy(void *arg, int64_t *checked, oct_err *err)
{
    source *s = arg;
    const size_t bytes = (size_t)(s->rows * s->k);
    memset(s->copy, 0xff, bytes);
    OCT_TRY(run_memcpy(s, err));
    if (memcmp(s->copy, s->matrices[0].codes, bytes) != 0)
        return OCT_FAIL(err, OCT_E_KERNEL, "the copy differs from its source, it may not");
    *checked += (int64_t)bytes;
    return OCT_OK;
}

static bool same_list(const oct_panels *found, const oct_panels *required, int64_t i)
{
    const oct_remainder_range *f = &found->ranges[i], *r = &required->ranges[i];
    const int64_t count = required->list ? r->count : 0;
    if ((found->list ? f->count : 0) != count)
        return false;
    for (int64_t e = 0; e < count; e++) {
        const oct_remainder *x = &found->list[f->first + e], *y = &required->list[r->first + e];
        if (x->value != y->value || x->k != y->k || x->row != y->row)
            return false;
    }
    return true;
}

static oct_status compare(const oct_panels *found, const oct_panels *required, int64_t *checked,
                          oct_err *err)
{
    const int64_t units = required->panels * required->groups * required->width;
    const int64_t mantissas = units * OCT_GEMM_GROUP;
    int64_t zeros = 0;
    for (int64_t i = 0; i < mantissas; i++) {
        if (found->mantissas[i] != required->mantissas[i])
            return OCT_FAIL(err, OCT_E_KERNEL, "mantissa %lld is %d, %d is required", (long long)i,
                            found->mantissas[i], required->mantissas[i]);
        zeros += required->mantissas[i] == 0;
    }
    for (int64_t i = 0; i < units; i++)
        if (found->units[i] != required->units[i])
            return OCT_FAIL(err, OCT_E_KERNEL, "unit %lld is %g, %g is required", (long long)i,
                            (double)found->units[i], (double)required->units[i]);
    for (int64_t i = 0; i < required->panels * required->chunks; i++)
        if (!same_list(found, required, i))
            return OCT_FAIL(err, OCT_E_KERNEL,
                            "the remainders of panel and chunk %lld differ, they may not",
                            (long long)i);
    if (zeros == mantissas)
        return OCT_FAIL(err, OCT_E_KERNEL, "mantissas are zero everywhere, others are required");
    *checked += mantissas + units;
    return OCT_OK;
}

static oct_status check_pack(void *arg, int64_t *checked, oct_err *err)
{
    source *s = arg;
    oct_arena *scratch = &s->bench->scratch;
    const oct_arena_mark mark = oct_arena_save(scratch);
    const int64_t bytes = oct_panels_bytes_bound(s->rows, s->k, s->side);
    void *memory = NULL;
    OCT_TRY(oct_arena_alloc(scratch, (size_t)bytes, &memory, err));
    memset(memory, 0x5a, (size_t)bytes); /* what packing leaves out shows */
    oct_arena_rewind(scratch, mark);
    oct_panels *found = NULL, *required = NULL;
    OCT_TRY(oct_pack(&s->bench->exec, &s->matrices[0], s->side, scratch, &found, err));
    oct_kernels ref;
    oct_kernels_init(&ref, OCT_ISA_REF);
    const oct_exec exec = {.kernels = &ref, .threads = 1, .scratch = scratch};
    oct_quantized_matrix slab = s->matrices[0];
    slab.rows = oct_min_i64(s->rows, SLAB_ROWS);
    OCT_TRY(oct_pack(&exec, &slab, s->side, scratch, &required, err));
    OCT_TRY(compare(found, required, checked, err));
    oct_arena_rewind(scratch, mark);
    return OCT_OK;
}

/* --- cases ------------------------------------------------------------------------------------ */

/* Operands of x along its rows, or along its columns. */
static oct_status open_source(oct_bench *bench, const oct_low_precision_format *format,
                              const oct_tensor *x, bool rows, source *s, oct_err *err)
{
    oct_operand operand;
    const oct_quantize_want want = {.operand = &operand, .arena = &bench->memory}, no = {0};
    const oct_lazy whole = oct_lazy_of(x);
    OCT_TRY(format->quantize(&bench->exec, oct_recipe_quantizer(format->recipe, OCT_ROLE_INPUT_FWD),
                             &whole, NULL, rows ? &want : &no, rows ? &no : &want, err));
    const oct_operand_slice all = {.rows = x->shape[0]};
    const oct_quantized_matrix first = format->matrix(&operand, &all);
    *s = (source){.bench = bench, .rows = first.rows, .k = first.k};
    const size_t bytes = (size_t)(first.rows * first.k);
    void *memory = NULL;
    for (int i = 0; i < MATRICES; i++) {
        OCT_TRY(oct_arena_alloc(&bench->memory, bytes, &memory, err));
        memcpy(memory, first.codes, bytes);
        s->matrices[i] = first;
        s->matrices[i].codes = memory;
    }
    OCT_TRY(oct_arena_alloc(&bench->memory, bytes, &memory, err));
    s->copy = memory;
    return OCT_OK;
}

static oct_status measure_case(oct_bench *bench, const oct_tensor *x, bool rows, oct_side side,
                               const char *name, oct_err *err)
{
    const double elements = (double)MATRICES * (double)x->shape[0] * (double)x->shape[1];
    static source sources[FORMATS];
    oct_bench_variant variants[1 + FORMATS] = {{.peer = "memcpy",
                                                .work = elements,
                                                .run = run_memcpy,
                                                .check = check_memcpy,
                                                .arg = &sources[0]}};
    for (int f = 0; f < FORMATS; f++) {
        const oct_low_precision_format *format = oct_low_precision_formats[f];
        OCT_TRY(open_source(bench, format, x, rows, &sources[f], err));
        sources[f].side = side;
        variants[1 + f] = (oct_bench_variant){
            .format = format->name,
            .work = elements,
            /* A code is read, a mantissa of two bytes written; memcpy reads one and writes one. */
            .floor = {{1 + MEMCPY, elements * 3.0 / 2.0}},
            .run = run_pack,
            .check = check_pack,
            .arg = &sources[f],
        };
    }
    return oct_bench_case(bench, "pack", name, variants, 1 + FORMATS, 1e9, "Gelem/s", err);
}

oct_status oct_bench_pack(oct_bench *bench, oct_err *err)
{
    static const struct {
        const char *name;
        bool rows;
        oct_side side;
    } cases[] = {
        {"rows left", true, OCT_SIDE_LEFT},
        {"rows right", true, OCT_SIDE_RIGHT},
        {"columns left", false, OCT_SIDE_LEFT},
        {"columns right", false, OCT_SIDE_RIGHT},
    };
    const int64_t n = oct_bench_dim(bench, 2048);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char name[80];
        (void)snprintf(name, sizeof name, "%lldx%lld %s", (long long)n, (long long)n,
                       cases[c].name);
        if (!oct_bench_wanted(bench, name))
            continue;
        const oct_arena_mark mark = oct_arena_save(&bench->memory);
        oct_tensor x;
        OCT_TRY(oct_bench_fill(&bench->memory, OCT_BENCH_GAUSSIAN, "x", n, n, 1.0f, &x, err));
        OCT_TRY(measure_case(bench, &x, cases[c].rows, cases[c].side, name, err));
        oct_arena_rewind(&bench->memory, mark);
    }
    return OCT_OK;
}
