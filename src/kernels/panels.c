/* Packing of 8-bit operands for the block-integer product. */
#include "kernels/panels.h"

#include <stdatomic.h>
#include <string.h>

#include "base/size.h"
#include "base/threads.h"
#include "numeric/bf16.h"
#include "numeric/e8m0.h"

enum {
    HALVES = OCT_GEMM_NR / OCT_GEMM_LANES, /* a left panel has only the first */
    MASKS_PER_GROUP = HALVES * OCT_GEMM_GROUP,
    MX_BLOCK = 32,
    STRIDED_LEFT = 8, /* panels: 112 rows */
    STRIDED_RIGHT = 4 /* 128 rows */
};

static int64_t side_width(oct_side side)
{
    return side == OCT_SIDE_LEFT ? OCT_GEMM_MR : OCT_GEMM_NR;
}

int64_t oct_remainder_capacity(int64_t rows, int64_t k, oct_side side)
{
    return rows * k / (side == OCT_SIDE_LEFT ? OCT_LEFT_COST : OCT_RIGHT_COST);
}

static int64_t aligned_sum(const int64_t *parts, size_t count)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += oct_ceil_div(parts[i], OCT_ARENA_ALIGN) * OCT_ARENA_ALIGN;
    return bytes;
}

int64_t oct_panels_bytes(int64_t rows, int64_t k, oct_side side)
{
    const int64_t width = side_width(side);
    const int64_t panels = oct_ceil_div(rows, width);
    const int64_t groups = oct_ceil_div(k, OCT_GEMM_GROUP);
    const int64_t chunks = oct_ceil_div(k, OCT_GEMM_CHUNK);
    const int64_t parts[] = {
        (int64_t)sizeof(oct_panels),
        panels * groups * OCT_GEMM_GROUP * width * (int64_t)sizeof(int16_t),
        panels * groups * width * (int64_t)sizeof(float),
        (panels * chunks + 1) * (int64_t)sizeof(int64_t),
        /* Work memory, if the arena is the scratch of exec. */
        panels * groups * MASKS_PER_GROUP * (int64_t)sizeof(uint16_t),
        panels * groups * HALVES * (int64_t)sizeof(uint64_t),
        panels * 64,
    };
    return aligned_sum(parts, sizeof parts / sizeof parts[0]);
}

static int64_t present_words(int64_t k)
{
    return oct_ceil_div(k, OCT_GEMM_GROUP * OCT_PRESENT_STEP) * OCT_PRESENT_STEP;
}

int64_t oct_panels_bytes_bound(int64_t rows, int64_t k, oct_side side)
{
    const int64_t panels = oct_ceil_div(rows, side_width(side));
    const int64_t lists[] = {
        oct_remainder_capacity(rows, k, side) * (int64_t)sizeof(oct_remainder),
        panels * present_words(k) * (int64_t)sizeof(uint64_t),
        panels * present_words(k) * (int64_t)sizeof(uint16_t),
    };
    return oct_panels_bytes(rows, k, side) + aligned_sum(lists, sizeof lists / sizeof lists[0]);
}

const uint8_t *oct_scale_pair(const oct_quantized_matrix *q, int64_t row, int64_t group)
{
    const int64_t at = q->k_contiguous ? row * oct_ceil_div(q->k, OCT_GEMM_GROUP) + group
                                       : group * q->scale_ld + row;
    return q->scales + at * 2;
}

/* What packing one panel finds out. A cache line each, so that threads do not share one. */
typedef struct panel_line {
    _Alignas(64) oct_panel_facts facts;
} panel_line;

typedef struct pack_job {
    const oct_gemm_kernels *kernels;
    oct_panels *panels;
    uint64_t *present; /* [panels][groups][2]: k of a half with remainders */
    uint16_t *masks;   /* [panels][groups][64][2]: rows of a half that have one at such a k */
    panel_line *lines;
    int64_t capacity; /* more remainders than this: the route is known, the rest is skipped */
    _Alignas(64) _Atomic int64_t found; /* remainders so far; all write it: a line of its own */
} pack_job;

static void note_exponents(oct_panel_facts *facts, int lowest, int highest)
{
    if (lowest < facts->min_exponent)
        facts->min_exponent = lowest;
    if (highest > facts->max_exponent)
        facts->max_exponent = highest;
}

/* Exponents of both scales of `rows` rows in a group, 0 where there is none; true if one is NaN. */
static bool scale_exponents(const oct_quantized_matrix *q, int64_t row, int64_t rows, int64_t group,
                            int32_t exponents[2][OCT_GEMM_LANES])
{
    uint8_t pairs[OCT_GEMM_LANES][2];
    memset(pairs, 127, sizeof pairs);
    if (q->k_contiguous)
        for (int64_t r = 0; r < rows; r++)
            memcpy(pairs[r], oct_scale_pair(q, row + r, group), sizeof pairs[r]);
    else if (rows > 0)
        memcpy(pairs, oct_scale_pair(q, row, group), (size_t)rows * sizeof pairs[0]);
    const bool one = oct_ceil_div(q->k, MX_BLOCK) - group * 2 < 2; /* the second does not exist */
    bool nan = false;
    for (int r = 0; r < OCT_GEMM_LANES; r++) {
        const uint8_t second = one ? 127 : pairs[r][1];
        nan |= pairs[r][0] == 0xff || second == 0xff;
        exponents[0][r] = pairs[r][0] - 127;
        exponents[1][r] = second - 127;
    }
    return nan;
}

/* Packs 16 rows (or the 14 of a left panel) of one group; returns the k that have remainders. */
static uint64_t pack_lanes(const pack_job *job, int64_t panel, int64_t group, int64_t lane,
                           const uint8_t *pairs, int64_t stride, uint16_t *masks,
                           oct_panel_facts *facts)
{
    oct_panels *p = job->panels;
    const oct_quantized_matrix *q = &p->source;
    const oct_code_table *table = &job->kernels->tables[q->format];
    const int64_t row = panel * p->width + lane;
    const int64_t lanes = oct_min_i64(OCT_GEMM_LANES, p->width - lane);
    oct_group_bounds bounds;
    oct_group_units units;
    if (q->format == OCT_FORMAT_MXFP8) {
        int32_t exponents[2][OCT_GEMM_LANES];
        job->kernels->bounds_mxfp8(table, pairs, stride, &bounds);
        bounds.nonfinite |=
            scale_exponents(q, row, oct_min_i64(lanes, q->rows - row), group, exponents);
        job->kernels->units_mxfp8(&bounds, (const int32_t(*)[OCT_GEMM_LANES])exponents, &units);
    } else {
        job->kernels->bounds_hif8(table, pairs, stride, &bounds);
        job->kernels->units_hif8(&bounds, &units);
    }
    facts->nonfinite |= bounds.nonfinite;

    float *unit = p->units + (panel * p->groups + group) * p->width + lane;
    memcpy(unit, units.unit, (size_t)lanes * sizeof *unit);
    note_exponents(facts, units.lowest, units.highest);
    int16_t *out =
        p->mantissas + ((panel * p->groups + group) * (OCT_GEMM_GROUP / 2) * p->width + lane) * 2;
    const uint64_t present =
        job->kernels->mantissas(table, pairs, stride, (const int16_t(*)[OCT_GEMM_LANES])units.shift,
                                lanes, out, p->width * 2, masks);
    for (uint64_t left = present; left; left &= left - 1) {
        const int k = __builtin_ctzll(left);
        for (uint32_t bits = masks[k * 2]; bits; bits &= bits - 1) {
            const int r = __builtin_ctz(bits);
            const uint8_t code = pairs[k / 2 * stride + 2 * r + k % 2];
            facts->remainders++;
            /* element = q * 2^exponent, and m = x * 2^shift in units of 2^unit */
            const int exponent =
                table->exponent[code & 0x7f] + units.shift[k / MX_BLOCK][r] + units.exponent[r];
            note_exponents(facts, exponent, exponent);
        }
    }
    return present;
}

static void pack_group(const pack_job *job, int64_t panel, int64_t g, oct_panel_facts *facts)
{
    const oct_panels *p = job->panels;
    const int64_t lanes = p->side == OCT_SIDE_LEFT ? OCT_GEMM_LANES : OCT_GEMM_NR;
    const int64_t before = facts->remainders;
    _Alignas(64) uint8_t pairs[OCT_GEMM_GROUP * OCT_GEMM_NR];
    job->kernels->gather_pairs(&p->source, panel * p->width, p->width, lanes, g * OCT_GEMM_GROUP,
                               pairs);
    uint16_t *masks = job->masks + (panel * p->groups + g) * MASKS_PER_GROUP;
    uint64_t *present = job->present + (panel * p->groups + g) * HALVES;
    for (int64_t half = 0; half < lanes / OCT_GEMM_LANES; half++)
        present[half] =
            pack_lanes(job, panel, g, half * OCT_GEMM_LANES, pairs + half * OCT_GEMM_LANES * 2,
                       lanes * 2, masks + half, facts);
    p->first[panel * p->chunks + g / OCT_GROUPS_PER_CHUNK] += facts->remainders - before;
}

/* How many panels take their groups in turn. Where rows are contiguous a cache line of codes holds
 * 64 rows of one k, those of some panels: they read it together. */
static int64_t panels_at_a_time(const oct_panels *p)
{
    return p->source.k_contiguous ? 1 : p->side == OCT_SIDE_LEFT ? STRIDED_LEFT : STRIDED_RIGHT;
}

static void pack_some(void *arg, int64_t item, int thread)
{
    (void)thread;
    pack_job *job = arg;
    const oct_panels *p = job->panels;
    const int64_t begin = item * panels_at_a_time(p);
    const int64_t count = oct_min_i64(panels_at_a_time(p), p->panels - begin);
    oct_panel_facts facts[STRIDED_LEFT]; /* the most */
    for (int64_t i = 0; i < count; i++)
        facts[i] = oct_panel_facts_none();
    if (atomic_load_explicit(&job->found, memory_order_relaxed) <= job->capacity) {
        int64_t *counts = p->first + begin * p->chunks; /* made offsets by index_remainders */
        memset(counts, 0, (size_t)(count * p->chunks) * sizeof *counts);
        for (int64_t g = 0; g < p->groups; g++)
            for (int64_t i = 0; i < count; i++)
                pack_group(job, begin + i, g, &facts[i]);
    }
    int64_t remainders = 0;
    for (int64_t i = 0; i < count; i++) {
        job->lines[begin + i].facts = facts[i];
        remainders += facts[i].remainders;
    }
    atomic_fetch_add_explicit(&job->found, remainders, memory_order_relaxed);
}

static float element_value(const oct_panels *p, const oct_code_table *table, int64_t row, int64_t k)
{
    const oct_quantized_matrix *q = &p->source;
    const float x = table->value[q->codes[q->k_contiguous ? row * q->ld + k : k * q->ld + row]];
    if (q->format == OCT_FORMAT_HIF8)
        return x;
    return x * oct_e8m0_decode(oct_scale_pair(q, row, k / OCT_GEMM_GROUP)[k / MX_BLOCK % 2]);
}

/* Writes the remainders of groups g .. end-1 of one panel, a chunk or its beginning, k ascending.
 */
static void list_chunk(const pack_job *job, int64_t panel, int64_t g, int64_t end)
{
    oct_panels *p = job->panels;
    const oct_code_table *table = &job->kernels->tables[p->source.format];
    const int halves = p->side == OCT_SIDE_LEFT ? 1 : 2;
    const uint16_t *masks = job->masks + panel * p->groups * MASKS_PER_GROUP;
    const int64_t at = panel * p->chunks + g / OCT_GROUPS_PER_CHUNK;
    uint64_t *present = p->present + panel * p->words + g;
    uint16_t *before = p->before + panel * p->words + g;
    oct_remainder *list = p->list + p->first[at];
    uint32_t next = 0;
    for (; g < end; g++, present++, before++) {
        const uint64_t *in = job->present + (panel * p->groups + g) * HALVES;
        *present = in[0] | (halves > 1 ? in[1] : 0);
        *before = (uint16_t)next; /* at most 32 * 1984 precede the last group of a chunk */
        for (uint64_t left = *present; left; left &= left - 1) {
            const int64_t k = g * OCT_GEMM_GROUP + __builtin_ctzll(left);
            for (int half = 0; half < halves; half++) {
                const bool any = in[half] >> (k % OCT_GEMM_GROUP) & 1;
                for (uint32_t bits = any ? masks[k * 2 + half] : 0; bits; bits &= bits - 1) {
                    const int r = half * OCT_GEMM_LANES + __builtin_ctz(bits);
                    list[next++] =
                        (oct_remainder){.value = element_value(p, table, panel * p->width + r, k),
                                        .k = (uint16_t)(k % OCT_GEMM_CHUNK),
                                        .row = (uint16_t)r};
                }
            }
        }
    }
}

static void list_panel(void *arg, int64_t panel, int thread)
{
    (void)thread;
    const pack_job *job = arg;
    const int64_t groups = job->panels->groups;
    if (job->lines[panel].facts.remainders == 0)
        return;
    for (int64_t g = 0; g < groups; g += OCT_GROUPS_PER_CHUNK)
        list_chunk(job, panel, g, oct_min_i64(g + OCT_GROUPS_PER_CHUNK, groups));
}

/* Turns the counts per panel and chunk into offsets into the list. */
static void index_remainders(oct_panels *p)
{
    int64_t total = 0;
    for (int64_t i = 0; i < p->panels * p->chunks; i++) {
        const int64_t count = p->first[i];
        p->first[i] = total;
        total += count;
    }
    p->first[p->panels * p->chunks] = total;
}

static oct_status pack_into(const oct_exec *exec, oct_panels *p, int64_t capacity, oct_arena *arena,
                            oct_err *err)
{
    pack_job job = {.kernels = &exec->kernels->gemm, .panels = p, .capacity = capacity};
    void *memory = NULL;
    OCT_TRY(oct_arena_array(exec->scratch, p->panels * p->groups * MASKS_PER_GROUP,
                            sizeof *job.masks, &memory, err));
    job.masks = memory;
    OCT_TRY(oct_arena_array(exec->scratch, p->panels * p->groups * HALVES, sizeof *job.present,
                            &memory, err));
    job.present = memory;
    OCT_TRY(oct_arena_array(exec->scratch, p->panels, sizeof *job.lines, &memory, err));
    job.lines = memory;
    oct_parallel_for(exec->threads, oct_ceil_div(p->panels, panels_at_a_time(p)), pack_some, &job);

    p->facts = oct_panel_facts_none();
    for (int64_t i = 0; i < p->panels; i++)
        oct_panel_facts_add(&p->facts, &job.lines[i].facts);
    const int64_t remainders = p->facts.remainders;
    if (remainders == 0 || p->facts.nonfinite || remainders > capacity)
        return OCT_OK;

    index_remainders(p);
    OCT_TRY(oct_arena_array(arena, remainders, sizeof *p->list, &memory, err));
    p->list = memory;
    const int64_t words = p->panels * p->words;
    OCT_TRY(oct_arena_zalloc(arena, (size_t)words * sizeof *p->present, &memory, err));
    p->present = memory;
    OCT_TRY(oct_arena_array(arena, words, sizeof *p->before, &memory, err));
    p->before = memory;
    oct_parallel_for(exec->threads, p->panels, list_panel, &job);
    return OCT_OK;
}

oct_status oct_pack(const oct_exec *exec, const oct_quantized_matrix *source, oct_side side,
                    oct_arena *arena, oct_panels **out, oct_err *err)
{
    if (source->rows < 0 || source->k < 0)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot pack an operand of %lld x %lld, sizes >= 0 required",
                        (long long)source->rows, (long long)source->k);
    const int64_t capacity = oct_remainder_capacity(source->rows, source->k, side);
    return oct_pack_part(exec, source, side, capacity, arena, out, err);
}

oct_status oct_pack_part(const oct_exec *exec, const oct_quantized_matrix *source, oct_side side,
                         int64_t capacity, oct_arena *arena, oct_panels **out, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_alloc(arena, sizeof(oct_panels), &memory, err));
    oct_panels *p = memory;
    *p = (oct_panels){.source = *source, .side = side, .width = side_width(side)};
    p->panels = oct_ceil_div(source->rows, p->width);
    p->groups = oct_ceil_div(source->k, OCT_GEMM_GROUP);
    p->chunks = oct_ceil_div(source->k, OCT_GEMM_CHUNK);
    p->words = present_words(source->k);
    OCT_TRY(oct_arena_array(arena, p->panels * p->groups * OCT_GEMM_GROUP * p->width,
                            sizeof *p->mantissas, &memory, err));
    p->mantissas = memory;
    OCT_TRY(
        oct_arena_array(arena, p->panels * p->groups * p->width, sizeof *p->units, &memory, err));
    p->units = memory;
    OCT_TRY(oct_arena_array(arena, p->panels * p->chunks + 1, sizeof *p->first, &memory, err));
    p->first = memory;

    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    const oct_status status = pack_into(exec, p, capacity, arena, err);
    if (arena != exec->scratch)
        oct_arena_rewind(exec->scratch, mark);
    *out = p;
    return status;
}
