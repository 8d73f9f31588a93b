/* The FP32-FMA product: panels of FP32, every output one chain of FMAs. */
#include "kernels/gemm_blocks.h"

#include <math.h>

#include "base/size.h"
#include "base/threads.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/hif8.h"

const char *oct_gemm_store_name(oct_gemm_store store)
{
    static const char *const names[] = {"store", "continue", "fold"};
    return names[store];
}

const char *oct_layout_name(oct_layout layout)
{
    static const char *const names[] = {"NN", "NT", "TN"};
    return names[layout];
}

/* k per chunk: a right panel of 1024 k is 128 KB. Chains continue across chunks, so this number
 * does not show in the results. */
enum { FMA_CHUNK = 1024 };

/* Packed elements of one operand at a time. Left, the smaller one mostly: 32 MB. Right: 2 MB, which
 * the tiles read while they are still in the cache. */
enum { LEFT_ELEMENTS = 1 << 23, RIGHT_ELEMENTS = 1 << 19 };

static void fill_table(oct_code_table *table, float (*decode)(uint8_t code))
{
    for (int code = 0; code < 256; code++) {
        const float x = decode((uint8_t)code);
        table->value[code] = x;
        if (code >= 128)
            continue;
        const uint16_t word = oct_bf16_from_f32(x);
        table->bf16[0][code] = (uint8_t)word;
        table->bf16[1][code] = (uint8_t)(word >> 8);
        table->mantissa[code] = 0;
        table->exponent[code] = 0;
        table->bound[code] = 0;
        if (!isfinite(x) || x == 0.0f)
            continue;
        int exponent;
        const float fraction = frexpf(x, &exponent); /* in [0.5, 1) */
        table->mantissa[code] = (uint8_t)(fraction * 16.0f);
        table->exponent[code] = (int8_t)(exponent - 4);
        table->bound[code] = x <= 1020.0f ? (uint8_t)ceilf(x / 4.0f) : 255;
    }
}

void oct_gemm_kernels_init(oct_gemm_kernels *kernels, oct_isa isa)
{
    oct_gemm_kernels_ref(kernels);
#if defined(__x86_64__)
    if (isa >= OCT_ISA_AVX2) {
        oct_gemm_kernels_avx2(kernels);
        oct_block_integer_kernels_avx2(kernels);
    }
    if (isa >= OCT_ISA_AVX512) {
        oct_gemm_kernels_avx512(kernels);
        oct_block_integer_kernels_avx512(kernels);
    }
#else
    (void)isa;
#endif
    fill_table(&kernels->tables[OCT_FORMAT_MXFP8], oct_e4m3_decode);
    fill_table(&kernels->tables[OCT_FORMAT_HIF8], oct_hif8_decode);
}

oct_matrix oct_matrix_of(const oct_tensor *tensor)
{
    const int64_t cols = oct_tensor_cols(tensor);
    return (oct_matrix){.data = tensor->data,
                        .dtype = tensor->dtype,
                        .rows = oct_tensor_rows(tensor),
                        .cols = cols,
                        .ld = cols};
}

oct_matrix oct_matrix_of_lazy(const oct_lazy *lazy)
{
    return (oct_matrix){.data = lazy->data,
                        .dtype = lazy->dtype,
                        .rows = lazy->rows,
                        .cols = lazy->cols,
                        .ld = lazy->cols,
                        .made = lazy->make ? lazy : NULL};
}

oct_status oct_gemm_out_check(const oct_gemm_out *out, int64_t cols, oct_err *err)
{
    if (out->dtype != OCT_DTYPE_F32 && out->dtype != OCT_DTYPE_BF16)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot write a matrix product: output is %s, float32 or bfloat16 required",
                        oct_dtype_name(out->dtype));
    if (out->dtype == OCT_DTYPE_BF16 && out->store != OCT_GEMM_STORE)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot add to a matrix product: output is bfloat16, float32 required");
    if (out->store == OCT_GEMM_CONTINUE && out->round_bf16)
        return OCT_FAIL(
            err, OCT_E_API,
            "cannot continue a matrix product: round_bf16 is set, an FP32 chain required");
    if (out->ld < cols)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot write a matrix product: leading dimension %lld, at least %lld "
                        "required",
                        (long long)out->ld, (long long)cols);
    return OCT_OK;
}

/* One operand's rows row_begin .. in packed form: panels of `width` rows, all k each. */
typedef struct packed {
    const oct_gemm_kernels *kernels;
    const oct_fma_source *source;
    const oct_code_table *table;
    int64_t width;
    int64_t first_panel, panels, capacity;
    float *data; /* [capacity][k][width] */
} packed;

/* k of a tile of a matrix that is made: 512 rows of a right panel in BF16 are 32 KB. */
enum { MADE_K = 512 };

/* Packs rows row .. row + width - 1 of a matrix that is made, some k at a time. */
static void pack_made(const packed *p, int64_t row, float *panel)
{
    const oct_fma_source *s = p->source;
    _Alignas(64) float tile[MADE_K * OCT_GEMM_NR]; /* of either dtype */
    const int64_t rows = oct_min_i64(p->width, s->rows - row);
    for (int64_t k = 0; k < s->k; k += MADE_K) {
        const int64_t kc = oct_min_i64(MADE_K, s->k - k);
        oct_fma_source part = {.data = tile,
                               .dtype = s->dtype,
                               .k_contiguous = s->k_contiguous,
                               .rows = rows,
                               .k = kc};
        if (s->k_contiguous) {
            part.ld = kc;
            s->made->make(s->made->arg, s->first_row + row, rows, k, kc, tile, part.ld);
        } else {
            part.ld = rows;
            s->made->make(s->made->arg, s->first_row + k, kc, row, rows, tile, part.ld);
        }
        p->kernels->fma_pack(&part, p->table, 0, p->width, 0, kc, panel + k * p->width);
    }
}

static void pack_panel(void *arg, int64_t item, int thread)
{
    (void)thread;
    const packed *p = arg;
    const int64_t k = p->source->k, row = (p->first_panel + item) * p->width;
    float *panel = p->data + item * k * p->width;
    if (p->source->made)
        pack_made(p, row, panel);
    else
        p->kernels->fma_pack(p->source, p->table, row, p->width, 0, k, panel);
}

static void pack_panels(const oct_exec *exec, packed *p, int64_t first, int64_t total)
{
    if (p->panels > 0 && p->first_panel == first)
        return; /* still there from the round before */
    p->first_panel = first;
    p->panels = oct_min_i64(p->capacity, total - first);
    oct_parallel_for(exec->threads, p->panels, pack_panel, p);
}

/* How many of `total` panels are packed at a time. */
static int64_t packed_capacity(int64_t k, int64_t width, int64_t total)
{
    const int64_t elements = width == OCT_GEMM_MR ? LEFT_ELEMENTS : RIGHT_ELEMENTS;
    return oct_min_i64(total, oct_max_i64(8, elements / (oct_max_i64(1, k) * width)));
}

int64_t oct_gemm_packed_bytes(int64_t rows, int64_t k, oct_side side)
{
    const int64_t width = side == OCT_SIDE_LEFT ? OCT_GEMM_MR : OCT_GEMM_NR;
    const int64_t panels = packed_capacity(k, width, oct_ceil_div(rows, width));
    return panels * oct_max_i64(1, k) * width * (int64_t)sizeof(float);
}

static oct_status packed_init(const oct_exec *exec, const oct_fma_source *source, int64_t width,
                              int64_t total, packed *p, oct_err *err)
{
    const oct_gemm_kernels *kernels = &exec->kernels->gemm;
    const oct_format format = source->codes ? source->codes->format : OCT_FORMAT_MXFP8;
    const int64_t panel = oct_max_i64(1, source->k) * width;
    *p = (packed){.kernels = kernels,
                  .source = source,
                  .table = &kernels->tables[format],
                  .width = width,
                  .capacity = packed_capacity(source->k, width, total)};
    void *data = NULL;
    OCT_TRY(oct_arena_array(exec->scratch, p->capacity * panel, sizeof *p->data, &data, err));
    p->data = data;
    return OCT_OK;
}

typedef struct fma_job {
    const oct_gemm_kernels *kernels;
    int64_t k;
    packed left, right;
} fma_job;

static void fma_add(const void *arg, int64_t i, int64_t j, int64_t chunk, float *c)
{
    const fma_job *job = arg;
    const int64_t k0 = chunk * FMA_CHUNK;
    const int64_t kc = oct_min_i64(job->k - k0, FMA_CHUNK);
    const int64_t left = (i - job->left.first_panel) * job->k + k0;
    const int64_t right = (j - job->right.first_panel) * job->k + k0;
    job->kernels->fma_tile(kc, job->left.data + left * OCT_GEMM_MR,
                           job->right.data + right * OCT_GEMM_NR, c);
}

oct_status oct_fma_product(const oct_exec *exec, const oct_fma_source *left,
                           const oct_fma_source *right, const oct_gemm_finish *finish, oct_err *err)
{
    if (left->rows == 0 || right->rows == 0)
        return OCT_OK;
    const int64_t row_panels = oct_ceil_div(left->rows, OCT_GEMM_MR);
    const int64_t col_panels = oct_ceil_div(right->rows, OCT_GEMM_NR);
    const oct_arena_mark mark = oct_arena_save(exec->scratch);
    fma_job job = {.kernels = &exec->kernels->gemm, .k = left->k};
    oct_status status = packed_init(exec, left, OCT_GEMM_MR, row_panels, &job.left, err);
    if (status == OCT_OK)
        status = packed_init(exec, right, OCT_GEMM_NR, col_panels, &job.right, err);
    /* Windows of the left operand are the larger ones: each is packed once. */
    for (int64_t i = 0; status == OCT_OK && i < row_panels; i += job.left.capacity) {
        pack_panels(exec, &job.left, i, row_panels);
        for (int64_t j = 0; status == OCT_OK && j < col_panels; j += job.right.capacity) {
            pack_panels(exec, &job.right, j, col_panels);
            const oct_gemm_blocks blocks = {.finish = finish,
                                            .rows = left->rows,
                                            .cols = right->rows,
                                            .row_panel = i,
                                            .row_panels = job.left.panels,
                                            .col_panel = j,
                                            .col_panels = job.right.panels,
                                            .chunks = oct_ceil_div(left->k, FMA_CHUNK),
                                            .add = fma_add,
                                            .arg = &job};
            status = oct_gemm_blocks_run(exec, &blocks, err);
        }
    }
    oct_arena_rewind(exec->scratch, mark);
    return status;
}

static oct_status check_operand(const oct_matrix *matrix, const char *name, oct_err *err)
{
    if (matrix->dtype != OCT_DTYPE_F32 && matrix->dtype != OCT_DTYPE_BF16)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot multiply: operand %s is %s, float32 or bfloat16 required", name,
                        oct_dtype_name(matrix->dtype));
    if (matrix->rows < 0 || matrix->cols < 0 || matrix->ld < matrix->cols)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot multiply: operand %s is [%lld, %lld] with leading dimension %lld, "
                        "at least the number of columns required",
                        name, (long long)matrix->rows, (long long)matrix->cols,
                        (long long)matrix->ld);
    return OCT_OK;
}

static oct_fma_source source_of(const oct_matrix *matrix, bool k_contiguous)
{
    return (oct_fma_source){.data = matrix->data,
                            .dtype = matrix->dtype,
                            .ld = matrix->ld,
                            .k_contiguous = k_contiguous,
                            .rows = k_contiguous ? matrix->rows : matrix->cols,
                            .k = k_contiguous ? matrix->cols : matrix->rows,
                            .made = matrix->made,
                            .first_row = matrix->first_row};
}

oct_status oct_gemm(const oct_exec *exec, const oct_matrix *a, const oct_matrix *b,
                    oct_layout layout, const oct_gemm_out *out, oct_err *err)
{
    OCT_TRY(check_operand(a, "A", err));
    OCT_TRY(check_operand(b, "B", err));
    const oct_fma_source left = source_of(a, layout != OCT_LAYOUT_TN);
    const oct_fma_source right = source_of(b, layout == OCT_LAYOUT_NT);
    if (left.k != right.k)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot multiply: inner dims are %lld and %lld, equal ones required",
                        (long long)left.k, (long long)right.k);
    OCT_TRY(oct_gemm_out_check(out, right.rows, err));
    const oct_gemm_finish finish = {.out = out};
    return oct_fma_product(exec, &left, &right, &finish, err);
}

static const void *rows_from(const oct_matrix *matrix, int64_t row)
{
    const size_t bytes = (size_t)(row * matrix->ld) * oct_dtype_bytes(matrix->dtype);
    return (const unsigned char *)matrix->data + bytes;
}

static oct_matrix row_range(const oct_matrix *matrix, int64_t begin, int64_t end)
{
    oct_matrix part = *matrix;
    if (matrix->made)
        part.first_row += begin;
    else
        part.data = begin == end ? matrix->data : rows_from(matrix, begin);
    part.rows = end - begin;
    return part;
}

static oct_gemm_out out_from(const oct_gemm_out *out, int64_t row)
{
    oct_gemm_out part = *out;
    const size_t bytes = (size_t)(row * out->ld) * oct_dtype_bytes(out->dtype);
    part.data = (unsigned char *)out->data + bytes;
    return part;
}

static oct_status check_groups(const oct_groups *groups, int64_t rows, oct_err *err)
{
    int64_t previous = 0;
    for (int64_t g = 0; g < groups->count; g++) {
        if (groups->ends[g] < previous)
            return OCT_FAIL(err, OCT_E_SHAPE,
                            "cannot multiply by groups: group %lld ends at %lld, at least %lld "
                            "required",
                            (long long)g, (long long)groups->ends[g], (long long)previous);
        previous = groups->ends[g];
    }
    if (previous != rows)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot multiply by groups: the last group ends at %lld, %lld required",
                        (long long)previous, (long long)rows);
    return OCT_OK;
}

oct_status oct_gemm_grouped(const oct_exec *exec, const oct_matrix *a, const oct_matrix *b,
                            const oct_groups *groups, oct_layout layout, const oct_gemm_out *out,
                            oct_err *err)
{
    if (groups->count == 0)
        return oct_gemm(exec, a, b, layout, out, err);
    OCT_TRY(check_groups(groups, a->rows, err));
    if (layout == OCT_LAYOUT_TN && b->rows != a->rows)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot multiply by groups: %lld and %lld rows, equal numbers required",
                        (long long)a->rows, (long long)b->rows);
    if (layout != OCT_LAYOUT_TN && b->rows % groups->count != 0)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot multiply by groups: B has %lld rows, a multiple of %lld required",
                        (long long)b->rows, (long long)groups->count);
    const int64_t weight_rows = b->rows / groups->count;
    for (int64_t g = 0; g < groups->count; g++) {
        const int64_t begin = g ? groups->ends[g - 1] : 0;
        const int64_t end = groups->ends[g];
        const oct_matrix left = row_range(a, begin, end);
        oct_matrix right;
        oct_gemm_out part;
        if (layout == OCT_LAYOUT_TN) {
            right = row_range(b, begin, end);
            part = out_from(out, g * a->cols);
        } else {
            right = row_range(b, g * weight_rows, (g + 1) * weight_rows);
            part = out_from(out, begin);
        }
        const oct_status status = oct_gemm(exec, &left, &right, layout, &part, err);
        if (status != OCT_OK)
            return OCT_WRAP(err, status, "group %lld", (long long)g);
    }
    return OCT_OK;
}
