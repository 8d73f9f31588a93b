/* The block-integer product, docs/spec/block-integer.md: packing of 8-bit operands and the driver.
 * Section numbers in comments are those of the specification. */
#include "kernels/gemm_blocks.h"

#include <stdatomic.h>
#include <string.h>

#include "base/size.h"
#include "base/threads.h"
#include "numeric/bf16.h"
#include "numeric/e8m0.h"

enum {
    GROUPS_PER_CHUNK = OCT_GEMM_CHUNK / OCT_GEMM_GROUP,
    HALVES = OCT_GEMM_NR / OCT_GEMM_LANES, /* a left panel has only the first */
    MASKS_PER_GROUP = HALVES * OCT_GEMM_GROUP,
    PRESENT_WORDS = OCT_GEMM_CHUNK / OCT_GEMM_GROUP,
    MX_BLOCK = 32
};

/* Section 5: weights of the two remainder counts in the route formula. */
enum { LEFT_COST = 19, RIGHT_COST = 48 };

/* Section 5: sums of unit exponents that the integer route takes. */
enum { MIN_EXPONENT = -149, MAX_EXPONENT = 96 };

struct oct_panels {
    oct_quantized_matrix source;
    oct_side side;
    int64_t width; /* rows of a panel */
    int64_t panels, groups, chunks;
    int16_t *mantissas;  /* [panels][groups * 32][width][2] */
    float *units;        /* [panels][groups][width] */
    int64_t *first;      /* [panels * chunks + 1], into list */
    oct_remainder *list; /* by panel, chunk, k; NULL if there is none or the route is known */
    uint64_t *present;   /* [panels][chunks][PRESENT_WORDS], which k have remainders; with list */
    uint16_t *start;     /* [panels][groups * 64], their first within panel and chunk; with list */
    int64_t remainders;  /* how many, also when list is NULL */
    int min_exponent, max_exponent; /* over units and remainders (section 5) */
    bool nonfinite;
};

static int64_t side_width(oct_side side)
{
    return side == OCT_SIDE_LEFT ? OCT_GEMM_MR : OCT_GEMM_NR;
}

/* From this many remainders on, the FP32-FMA route is taken whatever the other side holds. */
static int64_t list_capacity(int64_t rows, int64_t k, oct_side side)
{
    return rows * k / (side == OCT_SIDE_LEFT ? LEFT_COST : RIGHT_COST);
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

int64_t oct_panels_bytes_bound(int64_t rows, int64_t k, oct_side side)
{
    const int64_t panels = oct_ceil_div(rows, side_width(side));
    const int64_t groups = oct_ceil_div(k, OCT_GEMM_GROUP);
    const int64_t chunks = oct_ceil_div(k, OCT_GEMM_CHUNK);
    const int64_t lists[] = {
        list_capacity(rows, k, side) * (int64_t)sizeof(oct_remainder),
        panels * chunks * PRESENT_WORDS * (int64_t)sizeof(uint64_t),
        panels * groups * OCT_GEMM_GROUP * (int64_t)sizeof(uint16_t),
    };
    return oct_panels_bytes(rows, k, side) + aligned_sum(lists, sizeof lists / sizeof lists[0]);
}

/* The two scale bytes of vector `row` in group `group`; the second is undefined past the end. */
static const uint8_t *scale_pair(const oct_quantized_matrix *q, int64_t row, int64_t group)
{
    const int64_t at = q->k_contiguous ? row * oct_ceil_div(q->k, OCT_GEMM_GROUP) + group
                                       : group * q->scale_ld + row;
    return q->scales + at * 2;
}

/* What packing one panel finds out. A cache line each, so that threads do not share one. */
typedef struct panel_facts {
    _Alignas(64) int64_t remainders;
    int min_exponent, max_exponent;
    bool nonfinite;
} panel_facts;

typedef struct pack_job {
    const oct_gemm_kernels *kernels;
    oct_panels *panels;
    uint64_t *present; /* [panels][groups][2]: k of a half with remainders */
    uint16_t *masks;   /* [panels][groups][64][2]: rows of a half that have one at such a k */
    panel_facts *facts;
    int64_t capacity;      /* more remainders than this: the route is known, the rest is skipped */
    _Atomic int64_t found; /* remainders so far */
} pack_job;

static void note_exponents(panel_facts *facts, int lowest, int highest)
{
    if (lowest < facts->min_exponent)
        facts->min_exponent = lowest;
    if (highest > facts->max_exponent)
        facts->max_exponent = highest;
}

/* Packs 16 rows (or the 14 of a left panel) of one group; returns the k that have remainders. */
static uint64_t pack_lanes(const pack_job *job, int64_t panel, int64_t group, int64_t lane,
                           const uint8_t *pairs, int64_t stride, uint16_t *masks,
                           panel_facts *facts)
{
    oct_panels *p = job->panels;
    const oct_quantized_matrix *q = &p->source;
    const oct_code_table *table = &job->kernels->tables[q->format];
    const int64_t row = panel * p->width + lane;
    const int64_t lanes = oct_min_i64(OCT_GEMM_LANES, p->width - lane);
    oct_group_bounds bounds;
    oct_group_units units;
    if (q->format == OCT_FORMAT_MXFP8) {
        int32_t exponents[2][OCT_GEMM_LANES] = {{0}};
        job->kernels->bounds_mxfp8(table, pairs, stride, &bounds);
        const int64_t blocks = oct_ceil_div(q->k, MX_BLOCK);
        const int64_t rows = oct_min_i64(lanes, q->rows - row);
        const int count = blocks - group * 2 > 1 ? 2 : 1;
        for (int64_t r = 0; r < rows; r++) {
            const uint8_t *bytes = scale_pair(q, row + r, group);
            for (int j = 0; j < count; j++) {
                bounds.nonfinite |= bytes[j] == 0xff;
                exponents[j][r] = bytes[j] - 127;
            }
        }
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

static void pack_panel(void *arg, int64_t panel, int thread)
{
    (void)thread;
    pack_job *job = arg;
    const oct_panels *p = job->panels;
    panel_facts facts = {.min_exponent = INT16_MAX, .max_exponent = INT16_MIN};
    if (atomic_load_explicit(&job->found, memory_order_relaxed) > job->capacity) {
        job->facts[panel] = facts;
        return;
    }
    const int64_t lanes = p->side == OCT_SIDE_LEFT ? OCT_GEMM_LANES : OCT_GEMM_NR;
    int64_t *count = p->first + panel * p->chunks; /* made offsets by index_remainders */
    memset(count, 0, (size_t)p->chunks * sizeof *count);
    for (int64_t g = 0; g < p->groups; g++) {
        const int64_t before = facts.remainders;
        _Alignas(64) uint8_t pairs[OCT_GEMM_GROUP * OCT_GEMM_NR];
        job->kernels->gather_pairs(&p->source, panel * p->width, p->width, lanes,
                                   g * OCT_GEMM_GROUP, pairs);
        uint16_t *masks = job->masks + (panel * p->groups + g) * MASKS_PER_GROUP;
        uint64_t *present = job->present + (panel * p->groups + g) * HALVES;
        for (int64_t half = 0; half < lanes / OCT_GEMM_LANES; half++)
            present[half] =
                pack_lanes(job, panel, g, half * OCT_GEMM_LANES, pairs + half * OCT_GEMM_LANES * 2,
                           lanes * 2, masks + half, &facts);
        count[g / GROUPS_PER_CHUNK] += facts.remainders - before;
    }
    job->facts[panel] = facts;
    atomic_fetch_add_explicit(&job->found, facts.remainders, memory_order_relaxed);
}

static float element_value(const oct_panels *p, const oct_code_table *table, int64_t row, int64_t k)
{
    const oct_quantized_matrix *q = &p->source;
    const float x = table->value[q->codes[q->k_contiguous ? row * q->ld + k : k * q->ld + row]];
    if (q->format == OCT_FORMAT_HIF8)
        return x;
    return x * oct_e8m0_decode(scale_pair(q, row, k / OCT_GEMM_GROUP)[k / MX_BLOCK % 2]);
}

/* Writes the remainders of one panel, k ascending. */
static void list_panel(void *arg, int64_t panel, int thread)
{
    (void)thread;
    const pack_job *job = arg;
    oct_panels *p = job->panels;
    if (job->facts[panel].remainders == 0)
        return;
    const oct_code_table *table = &job->kernels->tables[p->source.format];
    const int halves = p->side == OCT_SIDE_LEFT ? 1 : 2;
    const uint16_t *masks = job->masks + panel * p->groups * MASKS_PER_GROUP;
    uint64_t *present = p->present + panel * p->chunks * PRESENT_WORDS;
    uint16_t *start = p->start + panel * p->groups * OCT_GEMM_GROUP;
    const int64_t *first = p->first + panel * p->chunks;
    int64_t next = first[0];
    for (int64_t g = 0; g < p->groups; g++) {
        const uint64_t *in = job->present + (panel * p->groups + g) * HALVES;
        present[g] = in[0] | (halves > 1 ? in[1] : 0);
        for (uint64_t left = present[g]; left; left &= left - 1) {
            const int64_t k = g * OCT_GEMM_GROUP + __builtin_ctzll(left);
            /* At most 32 * 2047 remainders precede one k of a chunk. */
            start[k] = (uint16_t)(next - first[k / OCT_GEMM_CHUNK]);
            for (int half = 0; half < halves; half++) {
                const bool any = in[half] >> (k % OCT_GEMM_GROUP) & 1;
                for (uint32_t bits = any ? masks[k * 2 + half] : 0; bits; bits &= bits - 1) {
                    const int r = half * OCT_GEMM_LANES + __builtin_ctz(bits);
                    p->list[next++] =
                        (oct_remainder){.value = element_value(p, table, panel * p->width + r, k),
                                        .k = (uint16_t)(k % OCT_GEMM_CHUNK),
                                        .row = (uint16_t)r};
                }
            }
        }
    }
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

static oct_status pack_into(const oct_exec *exec, oct_panels *p, oct_arena *arena, oct_err *err)
{
    pack_job job = {.kernels = &exec->kernels->gemm,
                    .panels = p,
                    .capacity = list_capacity(p->source.rows, p->source.k, p->side)};
    void *memory = NULL;
    OCT_TRY(oct_arena_array(exec->scratch, p->panels * p->groups * MASKS_PER_GROUP,
                            sizeof *job.masks, &memory, err));
    job.masks = memory;
    OCT_TRY(oct_arena_array(exec->scratch, p->panels * p->groups * HALVES, sizeof *job.present,
                            &memory, err));
    job.present = memory;
    OCT_TRY(oct_arena_array(exec->scratch, p->panels, sizeof *job.facts, &memory, err));
    job.facts = memory;
    oct_parallel_runs(exec->threads, p->panels, pack_panel, &job);

    p->min_exponent = INT16_MAX;
    p->max_exponent = INT16_MIN;
    for (int64_t i = 0; i < p->panels; i++) {
        p->remainders += job.facts[i].remainders;
        p->nonfinite |= job.facts[i].nonfinite;
        p->min_exponent = job.facts[i].min_exponent < p->min_exponent ? job.facts[i].min_exponent
                                                                      : p->min_exponent;
        p->max_exponent = job.facts[i].max_exponent > p->max_exponent ? job.facts[i].max_exponent
                                                                      : p->max_exponent;
    }
    if (p->remainders == 0 || p->nonfinite || p->remainders > job.capacity)
        return OCT_OK;

    index_remainders(p);
    OCT_TRY(oct_arena_array(arena, p->remainders, sizeof *p->list, &memory, err));
    p->list = memory;
    OCT_TRY(oct_arena_zalloc(
        arena, (size_t)(p->panels * p->chunks * PRESENT_WORDS) * sizeof *p->present, &memory, err));
    p->present = memory;
    OCT_TRY(oct_arena_array(arena, p->panels * p->groups * OCT_GEMM_GROUP, sizeof *p->start,
                            &memory, err));
    p->start = memory;
    oct_parallel_runs(exec->threads, p->panels, list_panel, &job);
    return OCT_OK;
}

oct_status oct_pack(const oct_exec *exec, const oct_quantized_matrix *source, oct_side side,
                    oct_arena *arena, oct_panels **out, oct_err *err)
{
    if (source->rows < 0 || source->k < 0)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot pack an operand of %lld x %lld, sizes >= 0 required",
                        (long long)source->rows, (long long)source->k);
    void *memory = NULL;
    OCT_TRY(oct_arena_alloc(arena, sizeof(oct_panels), &memory, err));
    oct_panels *p = memory;
    *p = (oct_panels){.source = *source, .side = side, .width = side_width(side)};
    p->panels = oct_ceil_div(source->rows, p->width);
    p->groups = oct_ceil_div(source->k, OCT_GEMM_GROUP);
    p->chunks = oct_ceil_div(source->k, OCT_GEMM_CHUNK);
    OCT_TRY(oct_arena_array(arena, p->panels * p->groups * OCT_GEMM_GROUP * p->width,
                            sizeof *p->mantissas, &memory, err));
    p->mantissas = memory;
    OCT_TRY(
        oct_arena_array(arena, p->panels * p->groups * p->width, sizeof *p->units, &memory, err));
    p->units = memory;
    OCT_TRY(oct_arena_array(arena, p->panels * p->chunks + 1, sizeof *p->first, &memory, err));
    p->first = memory;

    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    const oct_status status = pack_into(exec, p, arena, err);
    if (arena != exec->scratch)
        oct_arena_rewind(exec->scratch, mark);
    *out = p;
    return status;
}

/* Section 5: whether the product goes through the FP32-FMA kernel. */
static bool takes_fma(const oct_panels *left, const oct_panels *right)
{
    const int64_t m = left->source.rows, n = right->source.rows, k = left->source.k;
    return left->nonfinite || right->nonfinite ||
           left->min_exponent + right->min_exponent < MIN_EXPONENT ||
           left->max_exponent + right->max_exponent > MAX_EXPONENT ||
           LEFT_COST * left->remainders * n + RIGHT_COST * right->remainders * m > k * m * n;
}

typedef struct integer_job {
    const oct_gemm_kernels *kernels;
    const oct_panels *left, *right;
} integer_job;

/* The remainders of one panel in one chunk; false if there are none. */
static bool remainders_of(const oct_panels *p, int64_t panel, int64_t chunk,
                          oct_remainder_list *list)
{
    if (!p->list)
        return false;
    const int64_t at = panel * p->chunks + chunk;
    *list = (oct_remainder_list){.entries = p->list + p->first[at],
                                 .count = p->first[at + 1] - p->first[at],
                                 .present = p->present + at * PRESENT_WORDS,
                                 .start = p->start + panel * p->groups * OCT_GEMM_GROUP +
                                          chunk * OCT_GEMM_CHUNK};
    return list->count > 0;
}

/* Section 4: one chunk of one tile. */
static void integer_add(const void *arg, int64_t i, int64_t j, int64_t chunk, float *c)
{
    const integer_job *job = arg;
    const oct_panels *left = job->left, *right = job->right;
    const int64_t g = chunk * GROUPS_PER_CHUNK;
    const int64_t groups = oct_min_i64(left->groups - g, GROUPS_PER_CHUNK);
    const int64_t at_left = i * left->groups + g, at_right = j * right->groups + g;
    const int16_t *a = left->mantissas + at_left * OCT_GEMM_GROUP * OCT_GEMM_MR;
    const int16_t *b = right->mantissas + at_right * OCT_GEMM_GROUP * OCT_GEMM_NR;
    const float *a_unit = left->units + at_left * OCT_GEMM_MR;
    const float *b_unit = right->units + at_right * OCT_GEMM_NR;
    job->kernels->integer_tile(groups, a, b, a_unit, b_unit, c);

    oct_remainder_list x, y;
    const bool any_left = remainders_of(left, i, chunk, &x);
    if (any_left)
        job->kernels->left_remainders(&x, b, b_unit, c);
    if (remainders_of(right, j, chunk, &y))
        job->kernels->right_remainders(&y, any_left ? &x : NULL, a, a_unit, c);
}

static oct_fma_source fma_source(const oct_panels *p)
{
    return (oct_fma_source){.rows = p->source.rows, .k = p->source.k, .codes = &p->source};
}

oct_status oct_block_integer_gemm(const oct_exec *exec, const oct_panels *left,
                                  const oct_panels *right, const oct_gemm_out *out, bool *used_fma,
                                  oct_err *err)
{
    if (left->side != OCT_SIDE_LEFT || right->side != OCT_SIDE_RIGHT)
        return OCT_FAIL(
            err, OCT_E_API,
            "cannot multiply packed operands: sides are swapped, left and right required");
    if (out->store == OCT_GEMM_CONTINUE)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot continue a block-integer product: STORE or FOLD required");
    if (left->source.k != right->source.k || left->source.format != right->source.format)
        return OCT_FAIL(
            err, OCT_E_SHAPE,
            "cannot multiply packed operands: k %lld and %lld, formats %d and %d, equal "
            "ones required",
            (long long)left->source.k, (long long)right->source.k, (int)left->source.format,
            (int)right->source.format);
    OCT_TRY(oct_gemm_out_check(out, right->source.rows, err));
    const oct_gemm_finish finish = {.out = out,
                                    .scaled = left->source.format == OCT_FORMAT_HIF8,
                                    .left_scale = left->source.scale,
                                    .right_scale = right->source.scale};
    const bool fma = takes_fma(left, right);
    if (used_fma)
        *used_fma = fma;
    if (fma) {
        const oct_fma_source a = fma_source(left), b = fma_source(right);
        return oct_fma_product(exec, &a, &b, &finish, err);
    }
    const integer_job job = {.kernels = &exec->kernels->gemm, .left = left, .right = right};
    const oct_gemm_blocks blocks = {.finish = &finish,
                                    .rows = left->source.rows,
                                    .cols = right->source.rows,
                                    .row_panels = left->panels,
                                    .col_panels = right->panels,
                                    .chunks = left->chunks,
                                    .add = integer_add,
                                    .arg = &job};
    return oct_gemm_blocks_run(exec, &blocks, err);
}
