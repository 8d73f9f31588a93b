/* Packing of 8-bit operands for the block-integer product. */
#include "kernels/panels.h"

#include <stdatomic.h>
#include <string.h>

#include "base/size.h"
#include "base/threads.h"
#include "numeric/bf16.h"
#include "numeric/e8m0.h"

enum {
    MX_BLOCK = 32,
    PAIRS = OCT_GEMM_GROUP / 2,
    HALVES = OCT_GEMM_NR / OCT_GEMM_LANES, /* of 16 rows; a left panel has only the first */
    STRIDED_LEFT = 8,                      /* panels: 112 rows */
    STRIDED_RIGHT = 4,                     /* 128 rows */
    MOST_HALVES = 8                        /* of them */
};

_Static_assert(STRIDED_LEFT <= MOST_HALVES && STRIDED_RIGHT * HALVES <= MOST_HALVES, "room");

/* What packing one panel finds out. A cache line each, so that threads do not share one. */
typedef struct panel_line {
    _Alignas(64) oct_panel_facts facts;
} panel_line;

typedef struct pack_job {
    const oct_gemm_kernels *kernels;
    oct_panels *panels;
    panel_line *lines;
    int64_t capacity; /* of the list; more remainders than this: the route is known, the rest is
                         skipped */
    _Alignas(64) _Atomic int64_t found; /* remainders so far; all write it: a line of its own */
} pack_job;

/* What is known of 16 rows in one chunk until their remainders are listed. That waits for the end
 * of the chunk: a load of what is lost, of another size than its stores and soon after them, would
 * wait until they, and all mantissas stored before, have reached the cache. */
typedef struct half_notes {
    uint8_t scales[OCT_GROUPS_PER_CHUNK][OCT_GEMM_LANES][2]; /* MXFP8 */
    uint32_t lost[OCT_GROUPS_PER_CHUNK][PAIRS];
} half_notes;

static int64_t side_width(oct_side side)
{
    return side == OCT_SIDE_LEFT ? OCT_GEMM_MR : OCT_GEMM_NR;
}

static int64_t halves_of(const oct_panels *p)
{
    return p->side == OCT_SIDE_LEFT ? 1 : HALVES;
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

static int64_t present_words(int64_t k)
{
    return oct_ceil_div(k, OCT_GEMM_GROUP * OCT_PRESENT_STEP) * OCT_PRESENT_STEP;
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
        panels * chunks * (int64_t)sizeof(oct_remainder_range),
        panels * present_words(k) * (int64_t)sizeof(uint64_t),
        panels * present_words(k) * (int64_t)sizeof(uint16_t),
        panels * (int64_t)sizeof(panel_line), /* work memory, if the arena is the scratch of exec */
    };
    return aligned_sum(parts, sizeof parts / sizeof parts[0]);
}

int64_t oct_panels_bytes_bound(int64_t rows, int64_t k, oct_side side)
{
    const int64_t list = oct_remainder_capacity(rows, k, side) * (int64_t)sizeof(oct_remainder);
    return oct_panels_bytes(rows, k, side) + aligned_sum(&list, 1);
}

const uint8_t *oct_scale_pair(const oct_quantized_matrix *q, int64_t row, int64_t group)
{
    const int64_t at = q->k_contiguous ? row * oct_ceil_div(q->k, OCT_GEMM_GROUP) + group
                                       : group * q->scale_ld + row;
    return q->scales + at * 2;
}

static void note_exponents(oct_panel_facts *facts, int lowest, int highest)
{
    if (lowest < facts->min_exponent)
        facts->min_exponent = lowest;
    if (highest > facts->max_exponent)
        facts->max_exponent = highest;
}

/* Both scales of `rows` rows in groups g .. g + groups - 1, 1.0 where there is none; true if one is
 * NaN. */
static bool chunk_scales(const oct_quantized_matrix *q, int64_t row, int64_t rows, int64_t g,
                         int64_t groups, uint8_t (*scales)[OCT_GEMM_LANES][2])
{
    const size_t bytes = (size_t)groups * sizeof *scales;
    if (rows < OCT_GEMM_LANES)
        memset(scales, 127, bytes);
    if (rows <= 0)
        return false;
    if (q->k_contiguous)
        for (int64_t r = 0; r < rows; r++) {
            const uint8_t *from = oct_scale_pair(q, row + r, g);
            for (int64_t i = 0; i < groups; i++)
                memcpy(scales[i][r], from + 2 * i, sizeof scales[i][r]);
        }
    else
        for (int64_t i = 0; i < groups; i++)
            memcpy(scales[i], oct_scale_pair(q, row, g + i), (size_t)rows * sizeof scales[i][0]);
    if (oct_ceil_div(q->k, MX_BLOCK) < 2 * (g + groups)) /* the last one does not exist */
        for (int64_t r = 0; r < rows; r++)
            scales[groups - 1][r][1] = 127;
    return memchr(scales, 0xff, bytes) != NULL;
}

/* Packs 16 rows (or the 14 of a left panel) of one group. */
static void pack_half(const pack_job *job, int64_t panel, int64_t group, int64_t lane,
                      const uint8_t *quads, int64_t stride, half_notes *notes,
                      oct_panel_facts *facts)
{
    oct_panels *p = job->panels;
    const oct_code_table *table = &job->kernels->tables[p->source.format];
    const int64_t in_chunk = group % OCT_GROUPS_PER_CHUNK;
    const int64_t lanes = oct_min_i64(OCT_GEMM_LANES, p->width - lane);
    oct_group_bounds bounds;
    oct_group_units units;
    if (p->source.format == OCT_FORMAT_MXFP8) {
        job->kernels->bounds_mxfp8(table, quads, stride, &bounds);
        job->kernels->units_mxfp8(&bounds, (const uint8_t(*)[2])notes->scales[in_chunk], &units);
    } else {
        job->kernels->bounds_hif8(table, quads, stride, &bounds);
        job->kernels->units_hif8(&bounds, &units);
    }
    facts->nonfinite |= bounds.nonfinite;
    note_exponents(facts, units.lowest, units.highest);

    const int64_t at = panel * p->groups + group;
    memcpy(p->units + at * p->width + lane, units.unit, (size_t)lanes * sizeof *p->units);
    job->kernels->mantissas(table, quads, stride, (const int16_t(*)[OCT_GEMM_LANES])units.shift,
                            lanes, p->mantissas + (at * PAIRS * p->width + lane) * 2, p->width * 2,
                            notes->lost[in_chunk]);
}

static void pack_group(const pack_job *job, int64_t panel, int64_t group, half_notes *notes,
                       oct_panel_facts *facts)
{
    const oct_panels *p = job->panels;
    const int64_t lanes = halves_of(p) * OCT_GEMM_LANES;
    _Alignas(64) uint8_t quads[OCT_GEMM_GROUP * OCT_GEMM_NR];
    job->kernels->gather_quads(&p->source, panel * p->width, p->width, lanes,
                               group * OCT_GEMM_GROUP, quads);
    for (int64_t half = 0; half < halves_of(p); half++)
        pack_half(job, panel, group, half * OCT_GEMM_LANES, quads + half * OCT_GEMM_LANES * 4,
                  lanes * 4, &notes[half], facts);
}

/* Writes k and row of the remainders of one group to a list, k ascending; returns their number. */
static int64_t list_group(const half_notes *notes, int64_t halves, int64_t in_chunk,
                          uint64_t elements, oct_remainder *list)
{
    int64_t count = 0;
    for (; elements; elements &= elements - 1) {
        const int k = __builtin_ctzll(elements);
        /* Bit 2r + half for row r of a half: one loop for both, mostly of one turn. */
        uint32_t rows = notes[0].lost[in_chunk][k / 2] >> k % 2 & 0x55555555u;
        if (halves > 1)
            rows |= (notes[1].lost[in_chunk][k / 2] >> k % 2 & 0x55555555u) << 1;
        do {
            const unsigned bit = (unsigned)__builtin_ctz(rows);
            list[count].k = (uint16_t)(in_chunk * OCT_GEMM_GROUP + k);
            list[count++].row = (uint16_t)(bit % 2 * OCT_GEMM_LANES + bit / 2);
            rows &= rows - 1;
        } while (rows);
    }
    return count;
}

/* Gives the entries of a list of one panel, in the chunk that begins at element `begin`, their
 * values. */
static void list_values(const pack_job *job, int64_t panel, int64_t begin, const half_notes *notes,
                        oct_remainder *list, int64_t count, oct_panel_facts *facts)
{
    const oct_panels *p = job->panels;
    const oct_quantized_matrix *q = &p->source;
    const oct_code_table *table = &job->kernels->tables[q->format];
    const int64_t row_step = q->k_contiguous ? q->ld : 1, k_step = q->k_contiguous ? 1 : q->ld;
    const uint8_t *codes = q->codes + panel * p->width * row_step + begin * k_step;
    for (oct_remainder *at = list; at < list + count; at++) {
        const uint8_t code = codes[at->row * row_step + at->k * k_step];
        float value = table->value[code];
        int exponent = table->exponent[code & 0x7f];
        if (q->format == OCT_FORMAT_MXFP8) {
            const half_notes *half = &notes[at->row / OCT_GEMM_LANES];
            const uint8_t scale = half->scales[at->k / OCT_GEMM_GROUP][at->row % OCT_GEMM_LANES]
                                              [at->k / MX_BLOCK % 2];
            value *= oct_e8m0_decode(scale);
            exponent += scale - 127;
        }
        at->value = value;
        note_exponents(facts, exponent, exponent);
    }
}

/* Lists the remainders of groups g .. g + groups - 1 of one panel, a chunk or its beginning. Its
 * codes are still in the cache. */
static void list_chunk(pack_job *job, int64_t panel, int64_t g, int64_t groups,
                       const half_notes *notes, oct_panel_facts *facts)
{
    oct_panels *p = job->panels;
    const int64_t halves = halves_of(p);
    uint64_t elements[OCT_GROUPS_PER_CHUNK] = {0};
    int64_t count = 0;
    for (int64_t i = 0; i < groups; i++)
        for (int64_t half = 0; half < halves; half++)
            elements[i] |= job->kernels->lost_elements(notes[half].lost[i], &count);
    oct_remainder_range *range = &p->ranges[panel * p->chunks + g / OCT_GROUPS_PER_CHUNK];
    *range = (oct_remainder_range){.count = count};
    if (count == 0)
        return;
    facts->remainders += count;
    range->first = atomic_fetch_add_explicit(&job->found, count, memory_order_relaxed);
    if (range->first + count > job->capacity)
        return;

    uint64_t *present = p->present + panel * p->words + g;
    uint16_t *before = p->before + panel * p->words + g;
    oct_remainder *list = p->list + range->first;
    int64_t next = 0;
    for (int64_t i = 0; i < groups; i++) {
        present[i] = elements[i];
        before[i] = (uint16_t)next; /* at most 32 * 1984 precede the last group of a chunk */
        next += list_group(notes, halves, i, elements[i], list + next);
    }
    for (int64_t i = groups; i < OCT_GROUPS_PER_CHUNK && g + i < p->words; i++)
        present[i] = 0;
    list_values(job, panel, g * OCT_GEMM_GROUP, notes, list, count, facts);
}

/* How many panels take their groups in turn. Where rows are contiguous a cache line of codes holds
 * 64 rows of one k, those of some panels: they read it together. */
static int64_t panels_at_a_time(const oct_panels *p)
{
    return p->source.k_contiguous ? 1 : p->side == OCT_SIDE_LEFT ? STRIDED_LEFT : STRIDED_RIGHT;
}

/* Groups g .. g + groups - 1 of panels begin .. begin + count - 1. */
static void pack_chunk(pack_job *job, int64_t begin, int64_t count, int64_t g, int64_t groups,
                       oct_panel_facts *facts)
{
    const oct_panels *p = job->panels;
    const oct_quantized_matrix *q = &p->source;
    const int64_t halves = halves_of(p);
    half_notes notes[MOST_HALVES];
    for (int64_t i = 0; q->format == OCT_FORMAT_MXFP8 && i < count; i++)
        for (int64_t half = 0; half < halves; half++) {
            const int64_t lane = half * OCT_GEMM_LANES, row = (begin + i) * p->width + lane;
            const int64_t rows = oct_min_i64(OCT_GEMM_LANES, p->width - lane);
            facts[i].nonfinite |= chunk_scales(q, row, oct_min_i64(rows, q->rows - row), g, groups,
                                               notes[i * halves + half].scales);
        }
    for (int64_t j = g; j < g + groups; j++)
        for (int64_t i = 0; i < count; i++)
            pack_group(job, begin + i, j, &notes[i * halves], &facts[i]);
    for (int64_t i = 0; i < count; i++)
        list_chunk(job, begin + i, g, groups, &notes[i * halves], &facts[i]);
}

static void pack_some(void *arg, int64_t item, int thread)
{
    (void)thread;
    pack_job *job = arg;
    const oct_panels *p = job->panels;
    const int64_t begin = item * panels_at_a_time(p);
    const int64_t count = oct_min_i64(panels_at_a_time(p), p->panels - begin);
    oct_panel_facts facts[MOST_HALVES]; /* of panels */
    for (int64_t i = 0; i < count; i++)
        facts[i] = oct_panel_facts_none();
    for (int64_t g = 0; g < p->groups; g += OCT_GROUPS_PER_CHUNK) {
        if (atomic_load_explicit(&job->found, memory_order_relaxed) > job->capacity)
            break;
        pack_chunk(job, begin, count, g, oct_min_i64(OCT_GROUPS_PER_CHUNK, p->groups - g), facts);
    }
    for (int64_t i = 0; i < count; i++)
        job->lines[begin + i].facts = facts[i];
}

static oct_status pack_into(const oct_exec *exec, oct_panels *p, int64_t capacity, oct_arena *arena,
                            oct_err *err)
{
    pack_job job = {.kernels = &exec->kernels->gemm, .panels = p};
    void *memory = NULL;
    OCT_TRY(oct_arena_array(exec->scratch, p->panels, sizeof *job.lines, &memory, err));
    job.lines = memory;
    /* The last allocation, to be cut to what is used. */
    job.capacity = oct_min_i64(capacity, p->source.rows * p->source.k);
    OCT_TRY(oct_arena_array(arena, job.capacity, sizeof *p->list, &memory, err));
    p->list = memory;
    oct_parallel_for(exec->threads, oct_ceil_div(p->panels, panels_at_a_time(p)), pack_some, &job);

    p->facts = oct_panel_facts_none();
    for (int64_t i = 0; i < p->panels; i++)
        oct_panel_facts_add(&p->facts, &job.lines[i].facts);
    const int64_t remainders = p->facts.remainders;
    const bool none = remainders == 0 || p->facts.nonfinite || remainders > job.capacity;
    oct_arena_trim(arena, p->list, none ? 0 : (size_t)remainders * sizeof *p->list);
    if (none)
        p->list = NULL;
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
    OCT_TRY(oct_arena_array(arena, p->panels * p->chunks, sizeof *p->ranges, &memory, err));
    p->ranges = memory;
    const int64_t words = p->panels * p->words;
    OCT_TRY(oct_arena_array(arena, words, sizeof *p->present, &memory, err));
    p->present = memory;
    OCT_TRY(oct_arena_array(arena, words, sizeof *p->before, &memory, err));
    p->before = memory;

    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    const oct_status status = pack_into(exec, p, capacity, arena, err);
    if (arena != exec->scratch)
        oct_arena_rewind(exec->scratch, mark);
    *out = p;
    return status;
}
