/* Products of operands. */
#include <string.h>

#include "api/api_check.h"
#include "base/size.h"
#include "low_precision/operand_matmul.h"

_Static_assert((int)OCTET_LAYOUT_NN == (int)OCT_LAYOUT_NN &&
                   (int)OCTET_LAYOUT_NT == (int)OCT_LAYOUT_NT &&
                   (int)OCTET_LAYOUT_TN == (int)OCT_LAYOUT_TN &&
                   (int)OCTET_ORIENTATION_ROW == (int)OCT_ORIENTATION_ROW &&
                   (int)OCTET_ORIENTATION_COL == (int)OCT_ORIENTATION_COL,
               "layouts and orientations are passed on");

/* The route formula multiplies M N K by 67 (docs/spec/block-integer.md 5). */
#define MAX_PRODUCT (INT64_C(1) << 56)

const char *octet_layout_name(octet_layout layout)
{
    switch (layout) {
    case OCTET_LAYOUT_NN:
        return "NN";
    case OCTET_LAYOUT_NT:
        return "NT";
    case OCTET_LAYOUT_TN:
        return "TN";
    }
    return "unknown";
}

/* --- what is multiplied ----------------------------------------------------------------------- */

typedef struct job {
    const char *function;
    octet_layout layout;
    bool grouped;
    oct_api_operand left, right;
    octet_groups groups; /* count 0: a plain product */
    int64_t m, n, k;     /* of one product; the largest m or k over groups */
    int64_t out_rows;    /* of C as it is stored */
    size_t needed;       /* bytes of workspace */
} job;

static octet_status check_side(job *j, oct_api_operand *side, const char *name, bool stack,
                               octet_orientation orientation, octet_error *error)
{
    octet_operand *about = &side->about;
    if (about->orientation != orientation)
        return oct_api_fail(error, OCTET_E_SHAPE, j->function,
                            "%s->orientation is %s, %s is required for layout %s", name,
                            about->orientation == OCTET_ORIENTATION_ROW ? "row" : "col",
                            orientation == OCTET_ORIENTATION_ROW ? "row" : "col",
                            octet_layout_name(j->layout));
    if (stack && !side->stacked)
        return oct_api_fail(error, OCTET_E_SHAPE, j->function,
                            "%s->matrices is 0, a stack of %lld, one for each group, is required",
                            name, (long long)j->groups.count);
    if (!stack && side->stacked)
        return oct_api_fail(error, OCTET_E_SHAPE, j->function,
                            "%s->matrices is %lld, 0 (one matrix) is required", name,
                            (long long)about->matrices);
    if (stack && about->matrices != j->groups.count)
        return oct_api_fail(error, OCTET_E_SHAPE, j->function,
                            "%s->matrices is %lld, one for each of %lld groups is required", name,
                            (long long)about->matrices, (long long)j->groups.count);
    if (stack)
        return OCTET_OK;
    if (about->format == OCTET_FORMAT_MXFP8 && orientation == OCTET_ORIENTATION_ROW) {
        about->groups = j->groups; /* they do not show in its bytes */
        return OCTET_OK;
    }
    if (about->groups.count != j->groups.count)
        return oct_api_fail(error, OCTET_E_SHAPE, j->function,
                            "%s->groups.count is %lld, %lld, that of the product, is required",
                            name, (long long)about->groups.count, (long long)j->groups.count);
    for (int64_t g = 0; g < j->groups.count; g++)
        if (about->groups.ends[g] != j->groups.ends[g])
            return oct_api_fail(
                error, OCTET_E_SHAPE, j->function,
                "%s->groups.ends[%lld] is %lld, %lld, that of the product, is required", name,
                (long long)g, (long long)about->groups.ends[g], (long long)j->groups.ends[g]);
    return OCTET_OK;
}

/* The largest number of rows of a group. */
static int64_t largest_group(const octet_groups *groups, int64_t rows)
{
    int64_t largest = groups->count > 0 ? 0 : rows, start = 0;
    for (int64_t g = 0; g < groups->count; g++) {
        largest = oct_max_i64(largest, groups->ends[g] - start);
        start = groups->ends[g];
    }
    return largest;
}

static octet_status measure(job *j, int32_t threads, octet_error *error)
{
    const octet_operand *l = &j->left.about, *r = &j->right.about;
    const bool tn = j->layout == OCTET_LAYOUT_TN, nt = j->layout == OCTET_LAYOUT_NT;
    const int64_t k_left = tn ? l->rows : l->cols, k_right = nt ? r->cols : r->rows;
    const int64_t longest = largest_group(&j->groups, l->rows);
    int64_t operations = 0;
    if (k_left != k_right)
        return oct_api_fail(error, OCTET_E_SHAPE, j->function,
                            "right->%s is %lld, left->%s, %lld, is required: layout %s contracts "
                            "them",
                            nt ? "cols" : "rows", (long long)k_right, tn ? "rows" : "cols",
                            (long long)k_left, octet_layout_name(j->layout));
    j->k = tn ? longest : k_left;
    j->m = tn ? l->cols : longest;
    j->n = nt ? r->rows : r->cols;
    const int64_t stack = tn && j->grouped ? j->groups.count : 1;
    if (__builtin_mul_overflow(oct_max_i64(j->m, 1), oct_max_i64(j->n, 1), &operations) ||
        __builtin_mul_overflow(operations, oct_max_i64(j->k, 1), &operations) ||
        operations > MAX_PRODUCT ||
        __builtin_mul_overflow(tn ? l->cols : l->rows, stack, &j->out_rows))
        return oct_api_fail(error, OCTET_E_SHAPE, j->function,
                            "left and right give a product of M %lld, N %lld, K %lld, M * N * K of "
                            "at most 2^56 is required",
                            (long long)j->m, (long long)j->n, (long long)j->k);
    j->needed = (size_t)oct_operand_matmul_bytes(j->m, j->n, j->k, threads) + OCT_ARENA_FIXED_BYTES;
    return OCTET_OK;
}

static octet_status read_product(const octet_context *context, const octet_operand *left,
                                 const octet_operand *right, octet_layout layout,
                                 const octet_groups *groups, job *j, octet_error *error)
{
    OCT_API_TRY(oct_api_check_range((int32_t)layout, OCTET_LAYOUT_NN, OCTET_LAYOUT_TN, j->function,
                                    "layout", error));
    j->layout = layout;
    OCT_API_TRY(oct_api_read_operand(left, j->function, "left", &j->left, error));
    OCT_API_TRY(oct_api_read_operand(right, j->function, "right", &j->right, error));
    if (j->right.about.format != j->left.about.format)
        return oct_api_fail(
            error, OCTET_E_SHAPE, j->function, "right->format is %s, that of left, %s, is required",
            octet_format_name(j->right.about.format), octet_format_name(j->left.about.format));
    if (j->grouped) {
        j->groups = *groups;
        OCT_API_TRY(
            oct_api_check_groups(groups, j->left.about.rows, j->function, "groups->", error));
        OCT_API_TRY(
            oct_api_check_range(groups->count, 1, INT32_MAX, j->function, "groups->count", error));
    }
    const bool tn = layout == OCTET_LAYOUT_TN, nt = layout == OCTET_LAYOUT_NT;
    OCT_API_TRY(check_side(j, &j->left, "left", false,
                           tn ? OCTET_ORIENTATION_COL : OCTET_ORIENTATION_ROW, error));
    OCT_API_TRY(check_side(j, &j->right, "right", j->grouped && !tn,
                           nt ? OCTET_ORIENTATION_ROW : OCTET_ORIENTATION_COL, error));
    return measure(j, context->threads, error);
}

octet_status octet_product_workspace_bytes(const octet_context *context, const octet_operand *left,
                                           const octet_operand *right, octet_layout layout,
                                           const octet_groups *groups, size_t *bytes,
                                           octet_error *error)
{
    job j = {.function = "octet_product_workspace_bytes", .grouped = groups != NULL};
    OCT_API_TRY(oct_api_check_context(context, j.function, error));
    OCT_API_TRY(oct_api_check_pointer(bytes, j.function, "bytes", error));
    OCT_API_TRY(read_product(context, left, right, layout, groups, &j, error));
    *bytes = j.needed;
    return OCTET_OK;
}

/* --- the product ------------------------------------------------------------------------------ */

/* The bytes of C from its first element to its last. */
static octet_status output_bytes(const job *j, const octet_output *output, size_t size,
                                 size_t *bytes, octet_error *error)
{
    int64_t elements = 0;
    *bytes = 0;
    if (output->ld < j->n)
        return oct_api_fail(error, OCTET_E_ARGUMENT, j->function,
                            "output->ld is %lld, at least N, %lld, is required",
                            (long long)output->ld, (long long)j->n);
    if (j->out_rows == 0 || j->n == 0)
        return OCTET_OK;
    if (__builtin_mul_overflow(j->out_rows - 1, output->ld, &elements) ||
        __builtin_add_overflow(elements, j->n, &elements) ||
        __builtin_mul_overflow((size_t)elements, size, bytes) || *bytes > INT64_MAX)
        return oct_api_fail(error, OCTET_E_ARGUMENT, j->function,
                            "output->ld is %lld, fewer than 2^63 bytes in %lld rows are required",
                            (long long)output->ld, (long long)j->out_rows);
    return OCTET_OK;
}

static octet_status read_output(const job *j, const octet_output *output, oct_gemm_out *out,
                                octet_output *about, size_t *bytes, octet_error *error)
{
    static const oct_dtype dtypes[] = {
        [OCTET_DTYPE_F32] = OCT_DTYPE_F32, [OCTET_DTYPE_BF16] = OCT_DTYPE_BF16};
    OCT_API_TRY(oct_api_read_struct(output, about, sizeof *about, sizeof *about, j->function,
                                    "output", error));
    OCT_API_TRY(oct_api_check_range((int32_t)about->dtype, OCTET_DTYPE_F32, OCTET_DTYPE_BF16,
                                    j->function, "output->dtype", error));
    *out = (oct_gemm_out){
        .data = about->data, .ld = about->ld, .dtype = dtypes[about->dtype], .bias = about->bias};
    return output_bytes(j, about, oct_dtype_bytes(out->dtype), bytes, error);
}

static octet_status check_memory(const job *j, const octet_output *output, size_t bytes,
                                 size_t element, void *workspace, octet_error *error)
{
    const size_t bias = output->bias ? (size_t)j->n * sizeof(float) : 0;
    const size_t ends = (size_t)j->groups.count * sizeof *j->groups.ends;
    oct_api_region regions[8] = {
        {"output->data", output->data, bytes, output->data_bytes, element, true},
        {"workspace", workspace, j->needed, j->needed, 1, true},
        {"output->bias", output->bias, bias, bias, _Alignof(float), false},
        {"groups->ends", j->groups.ends, ends, ends, 1, false}};
    oct_api_operand_regions(&j->left, "left->codes", "left->scales", false, regions + 4);
    oct_api_operand_regions(&j->right, "right->codes", "right->scales", false, regions + 6);
    return oct_api_check_regions(regions, 8, j->function, error);
}

static octet_status multiply(const octet_context *context, const octet_operand *left,
                             const octet_operand *right, octet_layout layout,
                             const octet_groups *groups, const octet_output *output,
                             octet_product_report *report, void *workspace, size_t workspace_bytes,
                             job *j, octet_error *error)
{
    octet_product_report counts = {0};
    octet_output about;
    oct_gemm_out out;
    size_t bytes = 0;
    OCT_API_TRY(oct_api_check_compute(context, j->function, error));
    OCT_API_TRY(read_product(context, left, right, layout, groups, j, error));
    OCT_API_TRY(read_output(j, output, &out, &about, &bytes, error));
    if (report)
        OCT_API_TRY(oct_api_read_struct(report, &counts, sizeof counts, sizeof counts, j->function,
                                        "report", error));
    OCT_API_TRY(oct_api_check_workspace(workspace, workspace_bytes, j->needed, j->function, error));
    OCT_API_TRY(check_memory(j, &about, bytes, oct_dtype_bytes(out.dtype), workspace, error));

    oct_arena scratch;
    oct_err err = {0};
    oct_matmul_routes routes = {0};
    oct_arena_init_fixed(&scratch, "workspace", workspace, j->needed);
    const oct_exec exec = oct_api_exec(context, &scratch);
    const oct_operand l = oct_api_view(&j->left), r = oct_api_view(&j->right);
    const oct_groups rows = {.count = j->groups.count, .ends = j->groups.ends};
    if (bytes > 0) {
        const oct_status status = oct_operand_matmul(
            &exec, &l, &r, (oct_layout)layout, j->grouped ? &rows : NULL, &out, &routes, &err);
        if (status != OCT_OK)
            return oct_api_wrap(error, j->function, status, &err);
    }
    if (report) {
        counts.block_integer = routes.block_integer;
        counts.fma = routes.fma;
        memcpy(report, &counts, sizeof counts);
    }
    return OCTET_OK;
}

octet_status octet_product(const octet_context *context, const octet_operand *left,
                           const octet_operand *right, octet_layout layout,
                           const octet_output *output, octet_product_report *report,
                           void *workspace, size_t workspace_bytes, octet_error *error)
{
    job j = {.function = "octet_product"};
    return multiply(context, left, right, layout, NULL, output, report, workspace, workspace_bytes,
                    &j, error);
}

octet_status octet_grouped_product(const octet_context *context, const octet_operand *left,
                                   const octet_operand *right, octet_layout layout,
                                   const octet_groups *groups, const octet_output *output,
                                   octet_product_report *report, void *workspace,
                                   size_t workspace_bytes, octet_error *error)
{
    job j = {.function = "octet_grouped_product", .grouped = true};
    OCT_API_TRY(oct_api_check_pointer(groups, j.function, "groups", error));
    return multiply(context, left, right, layout, groups, output, report, workspace,
                    workspace_bytes, &j, error);
}
