/* The block-integer product, docs/spec/block-integer.md: the choice of the route and the driver.
 * Section numbers in comments are those of the specification. */
#include "base/profile.h"
#include "base/size.h"
#include "kernels/gemm_blocks.h"
#include "kernels/panels.h"

/* Section 5: sums of unit exponents that the integer route takes. */
enum { MIN_EXPONENT = -149, MAX_EXPONENT = 96 };

/* Elements of the right operand that oct_block_integer_stream packs at a time: 2 MB of mantissas.
 */
enum { WINDOW_ELEMENTS = 1 << 20 };

/* Section 5: whether the product goes through the FP32-FMA kernel. Facts of a part of the right
 * operand: if they say so, those of the whole say so too. */
static bool takes_fma(const oct_panels *left, const oct_panel_facts *right, int64_t n)
{
    const int64_t m = left->source.rows, k = left->source.k;
    const oct_panel_facts *l = &left->facts;
    return l->nonfinite || right->nonfinite ||
           l->min_exponent + right->min_exponent < MIN_EXPONENT ||
           l->max_exponent + right->max_exponent > MAX_EXPONENT ||
           OCT_LEFT_COST * l->remainders * n + OCT_RIGHT_COST * right->remainders * m > k * m * n;
}

typedef struct integer_job {
    const oct_gemm_kernels *kernels;
    const oct_panels *left, *right;
    int64_t col_panel; /* where `right` begins in C */
} integer_job;

/* The remainders of one panel in one chunk. */
static oct_remainder_list remainders_of(const oct_panels *p, int64_t panel, int64_t chunk)
{
    if (!p->list)
        return (oct_remainder_list){.count = 0};
    const int64_t g = chunk * OCT_GROUPS_PER_CHUNK;
    const oct_remainder_range *range = &p->ranges[panel * p->chunks + chunk];
    return (oct_remainder_list){.entries = p->list + range->first,
                                .count = range->count,
                                .words = oct_min_i64(p->words - g, OCT_GROUPS_PER_CHUNK),
                                .present = p->present + panel * p->words + g,
                                .before = p->before + panel * p->words + g};
}

/* Mantissas and units of one panel from the beginning of a chunk on. */
static const int16_t *mantissas_of(const oct_panels *p, int64_t panel, int64_t chunk)
{
    const int64_t group = panel * p->groups + chunk * OCT_GROUPS_PER_CHUNK;
    return p->mantissas + group * OCT_GEMM_GROUP * p->width;
}

static const float *units_of(const oct_panels *p, int64_t panel, int64_t chunk)
{
    return p->units + (panel * p->groups + chunk * OCT_GROUPS_PER_CHUNK) * p->width;
}

/* Section 4: one chunk of one tile, but for the remainders of the right operand. */
static void integer_add(const void *arg, int64_t i, int64_t j, int64_t chunk, float *c)
{
    const integer_job *job = arg;
    const oct_panels *left = job->left, *right = job->right;
    j -= job->col_panel;
    const int64_t groups =
        oct_min_i64(left->groups - chunk * OCT_GROUPS_PER_CHUNK, OCT_GROUPS_PER_CHUNK);
    const int16_t *b = mantissas_of(right, j, chunk);
    const float *b_unit = units_of(right, j, chunk);
    job->kernels->integer_tile(groups, mantissas_of(left, i, chunk), b, units_of(left, i, chunk),
                               b_unit, c);
    const oct_remainder_list list = remainders_of(left, i, chunk);
    if (list.count > 0)
        job->kernels->left_remainders(&list, b, b_unit, c);
}

/* The remainders of the right operand, for some tiles at once. */
static void integer_add_column(const void *arg, int64_t i, int64_t count, int64_t j, int64_t chunk,
                               float *c)
{
    const integer_job *job = arg;
    const oct_panels *left = job->left;
    const oct_remainder_list list = remainders_of(job->right, j - job->col_panel, chunk);
    if (list.count == 0)
        return;
    oct_remainder_list lists[OCT_GEMM_STRIP];
    for (int64_t t = 0; t < count; t++)
        lists[t] = remainders_of(left, i + t, chunk);
    const oct_tile_column column = {.tiles = count,
                                    .a = mantissas_of(left, i, chunk),
                                    .a_unit = units_of(left, i, chunk),
                                    .a_stride = left->groups * OCT_GEMM_GROUP * OCT_GEMM_MR,
                                    .unit_stride = left->groups * OCT_GEMM_MR,
                                    .left = lists,
                                    .c = c};
    job->kernels->right_remainders(&list, &column);
}

static oct_status check(const oct_panels *left, oct_side right_side,
                        const oct_quantized_matrix *right, const oct_gemm_out *out, oct_err *err)
{
    if (left->side != OCT_SIDE_LEFT || right_side != OCT_SIDE_RIGHT)
        return OCT_FAIL(
            err, OCT_E_API,
            "cannot multiply packed operands: sides are swapped, left and right required");
    if (out->store == OCT_GEMM_CONTINUE)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot continue a block-integer product: STORE or FOLD required");
    if (left->source.k != right->k || left->source.format != right->format)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot multiply packed operands: k %lld and %lld, formats %d and %d, "
                        "equal ones required",
                        (long long)left->source.k, (long long)right->k, (int)left->source.format,
                        (int)right->format);
    return oct_gemm_out_check(out, right->rows, err);
}

static oct_gemm_finish finish_of(const oct_panels *left, const oct_quantized_matrix *right,
                                 const oct_gemm_out *out)
{
    return (oct_gemm_finish){.out = out,
                             .scaled = right->format == OCT_FORMAT_HIF8,
                             .left_scale = left->source.scale,
                             .right_scale = right->scale};
}

static oct_status multiply_fma(const oct_exec *exec, const oct_quantized_matrix *left,
                               const oct_quantized_matrix *right, const oct_gemm_finish *finish,
                               oct_err *err)
{
    const oct_fma_source a = {.rows = left->rows, .k = left->k, .codes = left};
    const oct_fma_source b = {.rows = right->rows, .k = right->k, .codes = right};
    return oct_fma_product(exec, &a, &b, finish, err);
}

/* The columns of C from panel `col_panel` on that `right` makes; C has `cols` in all. */
static oct_status multiply_integer(const oct_exec *exec, const oct_panels *left,
                                   const oct_panels *right, int64_t col_panel, int64_t cols,
                                   const oct_gemm_finish *finish, oct_err *err)
{
    const integer_job job = {
        .kernels = &exec->kernels->gemm, .left = left, .right = right, .col_panel = col_panel};
    const oct_gemm_blocks blocks = {.finish = finish,
                                    .rows = left->source.rows,
                                    .cols = cols,
                                    .row_panels = left->panels,
                                    .col_panel = col_panel,
                                    .col_panels = right->panels,
                                    .chunks = left->chunks,
                                    .add = integer_add,
                                    .add_column = integer_add_column,
                                    .arg = &job};
    return oct_gemm_blocks_run(exec, &blocks, err);
}

oct_status oct_block_integer_gemm(const oct_exec *exec, const oct_panels *left,
                                  const oct_panels *right, const oct_gemm_out *out, bool *used_fma,
                                  oct_err *err)
{
    OCT_TRY(check(left, right->side, &right->source, out, err));
    const oct_gemm_finish finish = finish_of(left, &right->source, out);
    const int64_t cols = right->source.rows;
    const bool fma = takes_fma(left, &right->facts, cols);
    if (used_fma)
        *used_fma = fma;
    return fma ? multiply_fma(exec, &left->source, &right->source, &finish, err)
               : multiply_integer(exec, left, right, 0, cols, &finish, err);
}

/* Rows row .. row + rows - 1 of an operand. */
static oct_quantized_matrix rows_of(const oct_quantized_matrix *q, int64_t row, int64_t rows)
{
    oct_quantized_matrix part = *q;
    part.rows = rows;
    part.codes = q->codes + (q->k_contiguous ? row * q->ld : row);
    if (q->scales)
        part.scales = oct_scale_pair(q, row, 0);
    return part;
}

oct_status oct_block_integer_stream(const oct_exec *exec, const oct_panels *left,
                                    const oct_quantized_matrix *right, const oct_gemm_out *out,
                                    bool *used_fma, double *pack_seconds, oct_err *err)
{
    OCT_TRY(check(left, OCT_SIDE_RIGHT, right, out, err));
    if (out->store != OCT_GEMM_STORE)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot add to a product of unpacked operands: STORE required");
    const oct_gemm_finish finish = finish_of(left, right, out);
    const int64_t capacity = oct_remainder_capacity(right->rows, right->k, OCT_SIDE_RIGHT);
    const int64_t panels =
        oct_max_i64(WINDOW_ELEMENTS / (OCT_GEMM_NR * oct_max_i64(1, right->k)),
                    oct_max_i64(8, 2 * (int64_t)exec->threads)); /* work for every thread */
    oct_panel_facts facts = oct_panel_facts_none();
    bool fma = takes_fma(left, &facts, right->rows);
    for (int64_t row = 0; !fma && row < right->rows; row += panels * OCT_GEMM_NR) {
        const oct_quantized_matrix part =
            rows_of(right, row, oct_min_i64(right->rows - row, panels * OCT_GEMM_NR));
        const oct_arena_mark mark = oct_arena_save(exec->scratch);
        const double started = oct_clock_seconds();
        oct_panels *packed = NULL;
        OCT_TRY(oct_pack_part(exec, &part, OCT_SIDE_RIGHT, capacity, exec->scratch, &packed, err));
        *pack_seconds += oct_clock_seconds() - started;
        oct_panel_facts_add(&facts, &packed->facts);
        fma = takes_fma(left, &facts, right->rows);
        if (!fma)
            OCT_TRY(
                multiply_integer(exec, left, packed, row / OCT_GEMM_NR, right->rows, &finish, err));
        oct_arena_rewind(exec->scratch, mark);
    }
    if (used_fma)
        *used_fma = fma;
    /* What the integer route wrote until here is written again. */
    return fma ? multiply_fma(exec, &left->source, right, &finish, err) : OCT_OK;
}
