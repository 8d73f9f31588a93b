#include "cli/quantized.h"

#include <jansson.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/size.h"
#include "kernels/mx_scales.h"

const char *const oct_tool_formats[OCT_TOOL_FORMAT_COUNT] = {"mxfp8", "hif8", "e4m3", "bf16"};
const char *const oct_tool_roles[OCT_TOOL_ROLE_COUNT] = {"input", "weight", "grad"};

/* --- what follows from format, shape, axis and groups ----------------------------------------- */

int64_t oct_quantized_segment_start(const oct_quantized *quantized, int64_t segment)
{
    return segment ? quantized->segments.ends[segment - 1] : 0;
}

oct_npy_dtype oct_quantized_data_dtype(const oct_quantized *quantized)
{
    return quantized->format == OCT_TOOL_BF16 ? OCT_NPY_U16 : OCT_NPY_U8;
}

static oct_status check_groups(const oct_quantized *q, const char *where, oct_err *err)
{
    char text[200];
    if (q->groups.count == 0)
        return OCT_OK;
    if (q->shape.ndim != 2)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot group the rows of a tensor: found shape %s, 2 dims are required "
                        "(%s)",
                        oct_npy_shape_text(&q->shape, text), where);
    const int64_t sum = q->groups.ends[q->groups.count - 1];
    if (sum != q->rows)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot group the rows of a tensor: the groups have %lld rows together, "
                        "%lld are required by shape %s (%s)",
                        (long long)sum, (long long)q->rows, oct_npy_shape_text(&q->shape, text),
                        where);
    return OCT_OK;
}

/* Rows of the last two dims; all dims before them multiply to *lead. */
static oct_status view(oct_quantized *q, const char *where, int64_t *lead, int64_t *matrix_rows,
                       oct_err *err)
{
    const oct_npy_shape *shape = &q->shape;
    char text[200];
    const int needed = q->axis == -2 ? 2 : 1;
    if (shape->ndim < needed || shape->ndim >= OCT_NPY_MAX_NDIM)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot quantize along axis %d: found shape %s, %d to %d dims are required "
                        "(%s)",
                        q->axis, oct_npy_shape_text(shape, text), needed, OCT_NPY_MAX_NDIM - 1,
                        where);
    q->cols = shape->dims[shape->ndim - 1];
    *matrix_rows = shape->ndim >= 2 ? shape->dims[shape->ndim - 2] : 1;
    *lead = 1;
    bool fits = true;
    for (int d = 0; d < shape->ndim - 2; d++)
        fits = fits && !__builtin_mul_overflow(*lead, shape->dims[d], lead);
    if (!fits || __builtin_mul_overflow(*lead, *matrix_rows, &q->rows) ||
        q->rows > INT64_MAX / 64 || q->cols > INT64_MAX / 64)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot quantize: shape %s is too large, fewer than 2^57 rows and columns "
                        "are required (%s)",
                        oct_npy_shape_text(shape, text), where);
    return OCT_OK;
}

static oct_status cut(oct_quantized *q, int64_t lead, int64_t matrix_rows, oct_arena *arena,
                      oct_err *err)
{
    const bool own_blocks = q->format == OCT_TOOL_MXFP8 && q->axis == -2;
    const bool own_scales = q->format == OCT_TOOL_HIF8;
    if (q->groups.count > 0 && (own_blocks || own_scales)) {
        q->segments = q->groups;
        return OCT_OK;
    }
    const bool stack =
        own_blocks || (own_scales && q->role == OCT_TOOL_WEIGHT && q->shape.ndim == 3);
    const int64_t count = stack ? lead : 1;
    void *memory = NULL;
    OCT_TRY(oct_arena_array(arena, count, sizeof(int64_t), &memory, err));
    int64_t *ends = memory;
    for (int64_t s = 0; s < count; s++)
        ends[s] = stack ? (s + 1) * matrix_rows : q->rows;
    q->segments = (oct_groups){.count = count, .ends = ends};
    return OCT_OK;
}

/* The NPU's grouped form starts a group at pair row floor(start / 64) + g (docs/spec/mxfp8.md). */
static oct_status place_scales(oct_quantized *q, oct_arena *arena, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_array(arena, q->segments.count + 1, sizeof(int64_t), &memory, err));
    int64_t *at = memory, sum = 0;
    for (int64_t s = 0; s < q->segments.count; s++) {
        const int64_t start = oct_quantized_segment_start(q, s);
        const bool npu = q->pairs && q->groups.count > 0;
        at[s] = npu ? start / 64 + s : sum;
        sum += oct_ceil_div(q->segments.ends[s] - start, q->pairs ? 64 : 32);
    }
    at[q->segments.count] = q->pairs && q->groups.count > 0 ? q->rows / 64 + q->groups.count : sum;
    q->scale_rows = at;
    return OCT_OK;
}

static void shape_scales(oct_quantized *q)
{
    oct_npy_shape *scales = &q->scale_shape;
    *scales = (oct_npy_shape){0};
    q->has_scales = q->format == OCT_TOOL_MXFP8 || q->format == OCT_TOOL_HIF8;
    if (q->format == OCT_TOOL_HIF8) {
        const bool many = q->groups.count > 0 || (q->role == OCT_TOOL_WEIGHT && q->shape.ndim == 3);
        scales->ndim = many;
        scales->dims[0] = many ? q->segments.count : 0;
    }
    if (q->format != OCT_TOOL_MXFP8)
        return;
    *scales = q->shape;
    int64_t *dim = &scales->dims[scales->ndim + q->axis];
    *dim = oct_ceil_div(*dim, q->pairs ? 64 : 32);
    if (q->axis == -2 && q->groups.count > 0)
        *dim = q->scale_rows[q->segments.count];
    if (q->pairs)
        scales->dims[scales->ndim++] = 2;
}

oct_status oct_quantized_derive(oct_quantized *q, const char *where, oct_arena *arena, oct_err *err)
{
    int64_t lead = 0, matrix_rows = 0;
    OCT_TRY(view(q, where, &lead, &matrix_rows, err));
    OCT_TRY(check_groups(q, where, err));
    OCT_TRY(cut(q, lead, matrix_rows, arena, err));
    if (q->format == OCT_TOOL_MXFP8 && q->axis == -2)
        OCT_TRY(place_scales(q, arena, err));
    shape_scales(q);
    return OCT_OK;
}

/* --- PREFIX.json ------------------------------------------------------------------------------ */

oct_status oct_quantized_path(const char *prefix, const char *suffix, char out[OCT_NPY_PATH_BYTES],
                              oct_err *err)
{
    if (!prefix[0] || strcmp(prefix, "-") == 0 || strlen(prefix) > OCT_PREFIX_BYTES)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "wrong prefix of files: found '%.100s', a name of 1 to %d bytes is "
                        "required, not the standard input or output (PREFIX)",
                        prefix, OCT_PREFIX_BYTES);
    (void)snprintf(out, OCT_NPY_PATH_BYTES, "%s.%s", prefix, suffix);
    return OCT_OK;
}

oct_status oct_quantized_write_about(const oct_quantized *q, const char *path, oct_err *err)
{
    oct_json json;
    oct_json_init(&json);
    oct_json_object(&json, NULL);
    oct_json_int(&json, "schema", 1);
    oct_json_string(&json, "format", oct_tool_formats[q->format]);
    oct_json_int(&json, "axis", q->axis);
    oct_json_string(&json, "role", oct_tool_roles[q->role]);
    if (q->groups.count > 0) {
        oct_json_array(&json, "groups");
        for (int64_t g = 0; g < q->groups.count; g++)
            oct_json_int(&json, NULL, q->groups.ends[g] - (g ? q->groups.ends[g - 1] : 0));
        oct_json_end(&json);
    } else {
        oct_json_null(&json, "groups");
    }
    oct_json_array(&json, "shape");
    for (int d = 0; d < q->shape.ndim; d++)
        oct_json_int(&json, NULL, q->shape.dims[d]);
    oct_json_end(&json);
    if (q->format == OCT_TOOL_MXFP8) {
        oct_json_int(&json, "scale_alg", q->scale_alg);
        oct_json_string(&json, "scale_layout", q->pairs ? "pairs" : "plain");
    }
    if (q->format == OCT_TOOL_HIF8)
        oct_json_bool(&json, "saturate", q->saturate);
    oct_json_end(&json);
    oct_status status = oct_json_finish(&json, err);
    if (status == OCT_OK)
        status = oct_file_replace(&oct_file_table_real, path, json.text, json.bytes, err);
    oct_json_release(&json);
    return status;
}

static oct_status wrong(const char *path, const char *key, const char *required, oct_err *err)
{
    return OCT_FAIL(err, OCT_E_DATA,
                    "wrong description of a quantized tensor: member '%s' is not %s, which is "
                    "required (%s)",
                    key, required, path);
}

/* The index of a string member in words; -1 if it is none of them. */
static int word_of(const json_t *root, const char *key, const char *const *words, int count)
{
    const char *text = json_string_value(json_object_get(root, key));
    for (int i = 0; text && i < count; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    return -1;
}

static oct_status read_groups(const json_t *list, const char *path, oct_arena *arena,
                              oct_groups *groups, oct_err *err)
{
    static const char required[] = "null or a list of numbers of rows";
    *groups = (oct_groups){0};
    if (!list || json_is_null(list))
        return OCT_OK;
    const size_t count = json_array_size(list);
    if (count == 0)
        return wrong(path, "groups", required, err);
    void *memory = NULL;
    OCT_TRY(oct_arena_array(arena, (int64_t)count, sizeof(int64_t), &memory, err));
    int64_t *ends = memory, total = 0;
    for (size_t g = 0; g < count; g++) {
        const json_t *rows = json_array_get(list, g);
        if (!json_is_integer(rows) || json_integer_value(rows) < 0 ||
            __builtin_add_overflow(total, json_integer_value(rows), &total))
            return wrong(path, "groups", required, err);
        ends[g] = total;
    }
    *groups = (oct_groups){.count = (int64_t)count, .ends = ends};
    return OCT_OK;
}

static oct_status read_members(const json_t *root, const char *path, oct_arena *arena,
                               oct_quantized *q, oct_err *err)
{
    static const char *const layouts[] = {"plain", "pairs"};
    if (json_integer_value(json_object_get(root, "schema")) != 1)
        return wrong(path, "schema", "1", err);
    const int format = word_of(root, "format", oct_tool_formats, OCT_TOOL_FORMAT_COUNT);
    if (format < 0)
        return wrong(path, "format", "mxfp8, hif8, e4m3 or bf16", err);
    const int role = word_of(root, "role", oct_tool_roles, OCT_TOOL_ROLE_COUNT);
    if (role < 0)
        return wrong(path, "role", "input, weight or grad", err);
    q->format = (oct_tool_format)format;
    q->role = (oct_tool_role)role;
    const json_int_t axis = json_integer_value(json_object_get(root, "axis"));
    if (axis != -1 && axis != -2)
        return wrong(path, "axis", "-1 or -2", err);
    q->axis = (int)axis;
    if (q->format == OCT_TOOL_MXFP8) {
        const int layout = word_of(root, "scale_layout", layouts, 2);
        if (layout < 0)
            return wrong(path, "scale_layout", "plain or pairs", err);
        q->pairs = layout == 1;
    }
    const json_t *shape = json_object_get(root, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > OCT_NPY_MAX_NDIM)
        return wrong(path, "shape", "a list of at most 8 dims", err);
    q->shape.ndim = (int)json_array_size(shape);
    for (int d = 0; d < q->shape.ndim; d++) {
        const json_t *dim = json_array_get(shape, (size_t)d);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return wrong(path, "shape", "a list of at most 8 dims", err);
        q->shape.dims[d] = json_integer_value(dim);
    }
    return read_groups(json_object_get(root, "groups"), path, arena, &q->groups, err);
}

static oct_status read_about(const char *path, oct_arena *arena, oct_quantized *q, oct_err *err)
{
    enum { LIMIT = 1 << 24 };
    char *text = NULL;
    size_t bytes = 0;
    oct_err cause = {0};
    const oct_status opened =
        oct_file_read_all(&oct_file_table_real, path, LIMIT, &text, &bytes, &cause);
    if (opened != OCT_OK)
        return OCT_FAIL(err, opened == OCT_E_NOMEM ? OCT_E_NOMEM : OCT_E_DATA, "%s", cause.msg);
    json_error_t where;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    free(text);
    if (!root)
        return OCT_FAIL(err, OCT_E_DATA,
                        "wrong description of a quantized tensor: %s, a JSON object is required "
                        "(%s:%d)",
                        where.text, path, where.line);
    const oct_status status = read_members(root, path, arena, q, err);
    json_decref(root);
    if (status != OCT_OK)
        return status;
    cause = (oct_err){0};
    if (oct_quantized_derive(q, path, arena, &cause) != OCT_OK)
        return OCT_FAIL(err, OCT_E_DATA, "%s", cause.msg);
    return OCT_OK;
}

/* --- the three files -------------------------------------------------------------------------- */

static oct_status open_one(const char *path, oct_npy_dtype dtype, const oct_npy_shape *shape,
                           oct_npy *npy, oct_err *err)
{
    char found[200], wanted[200];
    OCT_TRY(oct_npy_open(path, npy, err));
    if (npy->dtype != dtype || !oct_npy_shape_equal(&npy->shape, shape))
        return OCT_FAIL(
            err, OCT_E_DATA,
            "the files of a quantized tensor do not fit together: found %s %s, %s %s is "
            "required by the .json (%s)",
            oct_npy_dtype_name(npy->dtype), oct_npy_shape_text(&npy->shape, found),
            oct_npy_dtype_name(dtype), oct_npy_shape_text(shape, wanted), path);
    return OCT_OK;
}

oct_status oct_quantized_open(const char *prefix, oct_arena *arena, oct_quantized_files *out,
                              oct_err *err)
{
    char about[OCT_NPY_PATH_BYTES];
    *out = (oct_quantized_files){0};
    OCT_TRY(oct_quantized_path(prefix, "json", about, err));
    OCT_TRY(oct_quantized_path(prefix, "data.npy", out->data_path, err));
    OCT_TRY(oct_quantized_path(prefix, "scale.npy", out->scale_path, err));
    OCT_TRY(read_about(about, arena, &out->about, err));
    oct_status status = open_one(out->data_path, oct_quantized_data_dtype(&out->about),
                                 &out->about.shape, &out->data, err);
    if (status == OCT_OK && out->about.has_scales)
        status =
            open_one(out->scale_path, out->about.format == OCT_TOOL_HIF8 ? OCT_NPY_F32 : OCT_NPY_U8,
                     &out->about.scale_shape, &out->scale, err);
    if (status != OCT_OK)
        oct_quantized_close(out);
    return status;
}

void oct_quantized_close(oct_quantized_files *files)
{
    oct_npy_close(&files->data);
    oct_npy_close(&files->scale);
}

static oct_status read_row_pairs(const oct_quantized_files *files, int64_t first, int64_t rows,
                                 uint8_t *plain, uint8_t *pairs, oct_err *err)
{
    const int64_t blocks = oct_ceil_div(files->about.cols, 32);
    const int64_t padded = 2 * oct_ceil_div(files->about.cols, 64);
    if (files->about.pairs)
        return oct_npy_read(&files->scale, first * padded, rows * padded, pairs, err);
    OCT_TRY(oct_npy_read(&files->scale, first * blocks, rows * blocks, plain, err));
    oct_mx_row_scales_to_pairs(plain, rows, blocks, pairs);
    return OCT_OK;
}

static oct_status read_col_pairs(const oct_quantized_files *files, int64_t segment, int64_t first,
                                 int64_t rows, uint8_t *plain, uint8_t *pairs, oct_err *err)
{
    const oct_quantized *q = &files->about;
    const int64_t cols = q->cols, inside = first - oct_quantized_segment_start(q, segment);
    const int64_t at = q->scale_rows[segment];
    if (q->pairs)
        return oct_npy_read(&files->scale, (at + inside / 64) * cols * 2,
                            oct_ceil_div(rows, 64) * cols * 2, pairs, err);
    const int64_t blocks = oct_ceil_div(rows, 32);
    OCT_TRY(oct_npy_read(&files->scale, (at + inside / 32) * cols, blocks * cols, plain, err));
    oct_mx_col_scales_to_pairs(plain, blocks, cols, pairs);
    return OCT_OK;
}

oct_status oct_quantized_read_pairs(const oct_quantized_files *files, int64_t segment,
                                    int64_t first, int64_t rows, oct_arena *scratch, uint8_t *pairs,
                                    oct_err *err)
{
    void *plain = NULL;
    const oct_arena_mark mark = oct_arena_save(scratch);
    const int64_t cols = files->about.cols;
    const int64_t bytes =
        files->about.axis == -1 ? rows * oct_ceil_div(cols, 32) : oct_ceil_div(rows, 32) * cols;
    OCT_TRY(oct_arena_array(scratch, bytes, 1, &plain, err));
    const oct_status status = files->about.axis == -1
                                  ? read_row_pairs(files, first, rows, plain, pairs, err)
                                  : read_col_pairs(files, segment, first, rows, plain, pairs, err);
    oct_arena_rewind(scratch, mark);
    return status;
}
