#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "checkpoint/dcp.h"
#include "checkpoint/zip.h"
#include "numeric/bf16.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "payloads are written as they are in memory");

/* Elements of a row of dim 0; 1 for 0-d and 1-d. */
static int64_t row_elements(const oct_item *item)
{
    int64_t n = 1;
    for (int d = 1; d < item->ndim; d++)
        n *= item->shape[d];
    return n;
}

static int64_t rows_per_chunk(const oct_item *item, int64_t chunk_bytes)
{
    const int64_t row_bytes = row_elements(item) * (int64_t)oct_dtype_bytes(item->dtype);
    return oct_max_i64(1, chunk_bytes / oct_max_i64(1, row_bytes));
}

/* What one rank writes of an item: rows of the whole tensor in some chunks; an object is 1 row. */
typedef struct item_part {
    int64_t row_begin, rows;
    int64_t rows_per_chunk, chunks;
} item_part;

static item_part part_of(const oct_item *item, oct_dcp_part part, int64_t chunk_bytes)
{
    enum { SPREAD_BYTES = 1 << 20 };
    const bool is_tensor = item->kind == OCT_ITEM_TENSOR;
    item_part out = {.row_begin = item->row_begin, .rows = item->rows, .rows_per_chunk = 1};
    if (is_tensor)
        out.rows_per_chunk = rows_per_chunk(item, chunk_bytes);
    if (!item->sharded && part.size > 1) {
        const int64_t bytes =
            is_tensor ? item->rows * row_elements(item) * (int64_t)oct_dtype_bytes(item->dtype) : 0;
        const bool is_spread = bytes >= SPREAD_BYTES;
        const int64_t first = is_spread ? item->rows * part.rank / part.size : 0;
        const int64_t end = is_spread        ? item->rows * (part.rank + 1) / part.size
                            : part.rank == 0 ? item->rows
                                             : 0;
        out.row_begin = first;
        out.rows = end - first;
    }
    out.chunks = oct_ceil_div(out.rows, out.rows_per_chunk);
    /* An empty tensor has one chunk without payload; an empty shard of a larger one has none. */
    if (item->ndim > 0 && item->shape[0] == 0)
        out.chunks = part.rank == 0 ? 1 : 0;
    return out;
}

uint64_t oct_dcp_estimate_bytes(const oct_item_list *list, oct_dcp_part part, int64_t chunk_bytes)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < list->count; i++) {
        const oct_item *item = &list->items[i];
        const item_part own = part_of(item, part, chunk_bytes);
        /* Archive structure and alignment fit in two pages, a metadata record in 1 KiB. */
        bytes += (uint64_t)own.chunks * (2 * OCT_DCP_ARCHIVE_ALIGN + 1024);
        if (item->kind == OCT_ITEM_TENSOR)
            bytes += (uint64_t)(own.rows * row_elements(item)) * oct_dtype_bytes(item->dtype);
        else if (own.chunks > 0)
            bytes += (uint64_t)(item->byte_count + 9 * item->int_count);
    }
    return bytes;
}

/* --- archives ------------------------------------------------------------------------------ */

static void put_tuple(oct_pickle_writer *pickle, const int64_t *values, int count)
{
    oct_pickle_put_op(pickle, '(');
    for (int i = 0; i < count; i++)
        oct_pickle_put_int(pickle, values[i]);
    oct_pickle_put_op(pickle, 't');
}

/* torch._utils._rebuild_tensor_v2(storage, 0, size, stride, False, OrderedDict()). */
static void put_tensor(oct_pickle_writer *pickle, const oct_item *item, int64_t rows)
{
    int64_t size[OCT_MAX_NDIM], stride[OCT_MAX_NDIM];
    int64_t numel = 1;
    for (int d = item->ndim; d-- > 0;) {
        size[d] = d == 0 ? rows : item->shape[d];
        stride[d] = numel;
        numel *= size[d];
    }
    oct_pickle_put_global(pickle, "torch._utils\n_rebuild_tensor_v2\n");
    oct_pickle_put_op(pickle, '(');
    oct_pickle_put_op(pickle, '(');
    oct_pickle_put_string(pickle, "storage", 7);
    oct_pickle_put_global(pickle, item->dtype == OCT_DTYPE_BF16 ? "torch\nBFloat16Storage\n"
                                                                : "torch\nFloatStorage\n");
    oct_pickle_put_string(pickle, "0", 1);
    oct_pickle_put_string(pickle, "cpu", 3);
    oct_pickle_put_int(pickle, numel);
    oct_pickle_put_op(pickle, 't');
    oct_pickle_put_op(pickle, 'Q'); /* BINPERSID */
    oct_pickle_put_int(pickle, 0);
    put_tuple(pickle, size, item->ndim);
    put_tuple(pickle, stride, item->ndim);
    oct_pickle_put_op(pickle, '\x89'); /* NEWFALSE */
    oct_pickle_put_global(pickle, "collections\nOrderedDict\n");
    oct_pickle_put_op(pickle, ')');
    oct_pickle_put_op(pickle, 'R');
    oct_pickle_put_op(pickle, 't');
    oct_pickle_put_op(pickle, 'R');
}

static void put_object(oct_pickle_writer *pickle, const oct_item *item)
{
    switch (item->kind) {
    case OCT_ITEM_TENSOR:
        break;
    case OCT_ITEM_INT:
        oct_pickle_put_int(pickle, item->int_value);
        break;
    case OCT_ITEM_FLOAT:
        oct_pickle_put_float(pickle, item->float_value);
        break;
    case OCT_ITEM_BOOL:
        oct_pickle_put_op(pickle, item->int_value ? '\x88' : '\x89');
        break;
    case OCT_ITEM_STRING:
        oct_pickle_put_string(pickle, item->bytes, (size_t)item->byte_count);
        break;
    case OCT_ITEM_BYTES:
        oct_pickle_put_bytes(pickle, item->bytes, (size_t)item->byte_count);
        break;
    case OCT_ITEM_INT_LIST:
        oct_pickle_put_op(pickle, ']');
        oct_pickle_put_op(pickle, '(');
        for (int64_t i = 0; i < item->int_count; i++)
            oct_pickle_put_int(pickle, item->ints[i]);
        oct_pickle_put_op(pickle, 'e');
        break;
    }
}

/* FP32 as it is, or BF16 rounded block by block. */
static oct_status write_payload(oct_zip *zip, oct_stream *stream, oct_dtype dtype,
                                const float *data, int64_t numel, oct_err *err)
{
    enum { BLOCK = 8192 };
    if (dtype == OCT_DTYPE_F32)
        return oct_zip_entry_write(zip, stream, data, (size_t)numel * sizeof *data, err);
    uint16_t block[BLOCK];
    for (int64_t at = 0; at < numel; at += BLOCK) {
        const int64_t n = oct_min_i64(BLOCK, numel - at);
        for (int64_t i = 0; i < n; i++)
            block[i] = oct_bf16_from_f32(data[at + i]);
        OCT_TRY(oct_zip_entry_write(zip, stream, block, (size_t)n * sizeof *block, err));
    }
    return OCT_OK;
}

/* `rows` rows of the item from its local row `local_row` on (objects: ignored), as one archive. */
static oct_status write_archive(oct_stream *stream, const oct_item *item, int64_t local_row,
                                int64_t rows, oct_pickle_writer *pickle, oct_dcp_chunk *chunk,
                                oct_err *err)
{
    static const char byteorder[] = "little", version[] = "3\n";
    oct_zip zip;
    OCT_TRY(oct_stream_align(stream, OCT_DCP_ARCHIVE_ALIGN, err));
    oct_pickle_writer_init(pickle);
    if (item->kind == OCT_ITEM_TENSOR)
        put_tensor(pickle, item, rows);
    else
        put_object(pickle, item);
    OCT_TRY(oct_pickle_finish(pickle, err));
    oct_zip_begin(&zip, stream);
    OCT_TRY(oct_zip_add(&zip, stream, "archive/data.pkl", pickle->data, pickle->bytes, err));
    OCT_TRY(oct_zip_add(&zip, stream, "archive/byteorder", byteorder, sizeof byteorder - 1, err));
    const int64_t width = row_elements(item);
    if (item->kind == OCT_ITEM_TENSOR && rows * width > 0) {
        OCT_TRY(oct_zip_entry_begin(&zip, stream, "archive/data/0", err));
        OCT_TRY(write_payload(&zip, stream, item->dtype, item->data + local_row * width,
                              rows * width, err));
        OCT_TRY(oct_zip_entry_end(&zip, stream, err));
    }
    OCT_TRY(oct_zip_add(&zip, stream, "archive/version", version, sizeof version - 1, err));
    chunk->offset = zip.start;
    return oct_zip_end(&zip, stream, &chunk->length, err);
}

oct_status oct_dcp_write_items(oct_stream *stream, const char *file_name, const oct_item_list *list,
                               oct_dcp_part part, int64_t chunk_bytes, oct_dcp_chunk **chunks,
                               int64_t *chunk_count, oct_err *err)
{
    int64_t total = 0;
    for (int64_t i = 0; i < list->count; i++)
        total += part_of(&list->items[i], part, chunk_bytes).chunks;
    oct_dcp_chunk *array = calloc((size_t)total + 1, sizeof *array);
    if (!array)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot save: no memory for %lld chunks",
                        (long long)total);
    oct_status status = OCT_OK;
    int64_t at = 0;
    for (int64_t i = 0; i < list->count && status == OCT_OK; i++) {
        const oct_item *item = &list->items[i];
        const item_part own = part_of(item, part, chunk_bytes);
        for (int64_t c = 0; c < own.chunks && status == OCT_OK; c++) {
            oct_dcp_chunk *chunk = &array[at++];
            const int64_t done = c * own.rows_per_chunk;
            *chunk = (oct_dcp_chunk){.item = i,
                                     .row_begin = own.row_begin + done,
                                     .rows = oct_min_i64(own.rows_per_chunk, own.rows - done),
                                     .file = file_name};
            oct_pickle_writer pickle = {0};
            status = write_archive(stream, item, chunk->row_begin - item->row_begin, chunk->rows,
                                   &pickle, chunk, err);
            oct_pickle_writer_release(&pickle);
        }
        if (status != OCT_OK)
            (void)OCT_WRAP(err, status, "saving '%s'", item->key);
    }
    if (status != OCT_OK) {
        free(array);
        return status;
    }
    *chunks = array;
    *chunk_count = total;
    return OCT_OK;
}

/* --- .metadata ----------------------------------------------------------------------------- */

#define DCP_CLASS(name) "torch.distributed.checkpoint.metadata\n" name "\n"

static void put_new_object(oct_pickle_writer *pickle, const char *class_path)
{
    oct_pickle_put_global(pickle, class_path);
    oct_pickle_put_op(pickle, ')');
    oct_pickle_put_op(pickle, '\x81'); /* NEWOBJ */
}

/* Opens the state dict of an object; close_state sets and builds it. */
static void open_state(oct_pickle_writer *pickle)
{
    oct_pickle_put_op(pickle, '}');
    oct_pickle_put_op(pickle, '(');
}

static void close_state(oct_pickle_writer *pickle)
{
    oct_pickle_put_op(pickle, 'u'); /* SETITEMS */
    oct_pickle_put_op(pickle, 'b'); /* BUILD */
}

static void put_size(oct_pickle_writer *pickle, const int64_t *values, int count)
{
    oct_pickle_put_global(pickle, "torch\nSize\n");
    oct_pickle_put_op(pickle, '(');
    put_tuple(pickle, values, count);
    oct_pickle_put_op(pickle, 't');
    oct_pickle_put_op(pickle, 'R');
}

/* The place of a chunk: zeros but for dim 0. */
static void put_offsets(oct_pickle_writer *pickle, const oct_item *item, int64_t row_begin)
{
    int64_t offsets[OCT_MAX_NDIM] = {0};
    if (item->ndim > 0)
        offsets[0] = row_begin;
    put_size(pickle, offsets, item->ndim);
}

/* TensorProperties builds from a 5-tuple: dtype, layout, requires_grad, memory format, pin_memory.
 */
static void put_properties(oct_pickle_writer *pickle, const oct_item *item)
{
    put_new_object(pickle, DCP_CLASS("TensorProperties"));
    oct_pickle_put_op(pickle, '(');
    oct_pickle_put_global(pickle,
                          item->dtype == OCT_DTYPE_BF16 ? "torch\nbfloat16\n" : "torch\nfloat32\n");
    oct_pickle_put_global(pickle, "torch.serialization\n_get_layout\n");
    oct_pickle_put_op(pickle, '(');
    oct_pickle_put_name(pickle, "torch.strided");
    oct_pickle_put_op(pickle, 't');
    oct_pickle_put_op(pickle, 'R');
    oct_pickle_put_op(pickle, '\x89');
    oct_pickle_put_global(pickle, DCP_CLASS("_MEM_FORMAT_ENCODING"));
    oct_pickle_put_op(pickle, '(');
    oct_pickle_put_int(pickle, 0);
    oct_pickle_put_op(pickle, 't');
    oct_pickle_put_op(pickle, 'R');
    oct_pickle_put_op(pickle, '\x89');
    oct_pickle_put_op(pickle, 't');
    oct_pickle_put_op(pickle, 'b');
}

static void put_tensor_metadata(oct_pickle_writer *pickle, const oct_item *item,
                                const oct_dcp_chunk *chunks, int64_t count)
{
    put_new_object(pickle, DCP_CLASS("TensorStorageMetadata"));
    open_state(pickle);
    oct_pickle_put_name(pickle, "properties");
    put_properties(pickle, item);
    oct_pickle_put_name(pickle, "size");
    put_size(pickle, item->shape, item->ndim);
    oct_pickle_put_name(pickle, "chunks");
    oct_pickle_put_op(pickle, ']');
    oct_pickle_put_op(pickle, '(');
    for (int64_t i = 0; i < count; i++) {
        int64_t sizes[OCT_MAX_NDIM];
        memcpy(sizes, item->shape, sizeof sizes);
        sizes[0] = chunks[i].rows;
        put_new_object(pickle, DCP_CLASS("ChunkStorageMetadata"));
        open_state(pickle);
        oct_pickle_put_name(pickle, "offsets");
        put_offsets(pickle, item, chunks[i].row_begin);
        oct_pickle_put_name(pickle, "sizes");
        put_size(pickle, sizes, item->ndim);
        close_state(pickle);
    }
    oct_pickle_put_op(pickle, 'e');
    close_state(pickle);
}

static void put_storage(oct_pickle_writer *pickle, const oct_item *item, const oct_dcp_chunk *chunk,
                        int64_t index)
{
    put_new_object(pickle, DCP_CLASS("MetadataIndex"));
    open_state(pickle);
    oct_pickle_put_name(pickle, "fqn");
    oct_pickle_put_string(pickle, item->key, strlen(item->key));
    oct_pickle_put_name(pickle, "index");
    if (item->kind == OCT_ITEM_TENSOR) {
        oct_pickle_put_int(pickle, index);
        oct_pickle_put_name(pickle, "offset");
        put_offsets(pickle, item, chunk->row_begin);
    } else {
        oct_pickle_put_op(pickle, 'N');
    }
    close_state(pickle);
    put_new_object(pickle, "torch.distributed.checkpoint.filesystem\n_StorageInfo\n");
    open_state(pickle);
    oct_pickle_put_name(pickle, "relative_path");
    oct_pickle_put_string(pickle, chunk->file, strlen(chunk->file));
    oct_pickle_put_name(pickle, "offset");
    oct_pickle_put_int(pickle, (int64_t)chunk->offset);
    oct_pickle_put_name(pickle, "length");
    oct_pickle_put_int(pickle, (int64_t)chunk->length);
    close_state(pickle);
}

static void put_planner_path(oct_pickle_writer *pickle, const oct_item *item)
{
    oct_pickle_put_string(pickle, item->key, strlen(item->key));
    oct_pickle_put_op(pickle, '(');
    for (int i = 0; i < item->path_count; i++)
        oct_pickle_put_string(pickle, item->path[i], strlen(item->path[i]));
    oct_pickle_put_op(pickle, 't');
}

static void put_storage_meta(oct_pickle_writer *pickle)
{
    static const char *const names[] = {"checkpoint_id", "save_id", "load_id"};
    put_new_object(pickle, DCP_CLASS("StorageMeta"));
    open_state(pickle);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        oct_pickle_put_name(pickle, names[i]);
        oct_pickle_put_op(pickle, 'N');
    }
    oct_pickle_put_name(pickle, "modules");
    oct_pickle_put_op(pickle, ']');
    close_state(pickle);
}

/* First chunk at or after `at` that is not of item i. */
static int64_t end_of_item(const oct_dcp_chunk *chunks, int64_t chunk_count, int64_t at, int64_t i)
{
    while (at < chunk_count && chunks[at].item == i)
        at++;
    return at;
}

oct_status oct_dcp_write_metadata(const oct_item_list *list, const oct_dcp_chunk *chunks,
                                  int64_t chunk_count, oct_pickle_writer *out, oct_err *err)
{
    oct_pickle_writer_init(out);
    put_new_object(out, DCP_CLASS("Metadata"));
    open_state(out);
    oct_pickle_put_name(out, "state_dict_metadata");
    oct_pickle_put_op(out, '}');
    oct_pickle_put_op(out, '(');
    int64_t at = 0;
    for (int64_t i = 0; i < list->count; i++) {
        const oct_item *item = &list->items[i];
        const int64_t end = end_of_item(chunks, chunk_count, at, i);
        oct_pickle_put_string(out, item->key, strlen(item->key));
        if (item->kind == OCT_ITEM_TENSOR)
            put_tensor_metadata(out, item, chunks + at, end - at);
        else
            put_new_object(out, DCP_CLASS("BytesStorageMetadata"));
        at = end;
    }
    oct_pickle_put_op(out, 'u');
    oct_pickle_put_name(out, "planner_data");
    oct_pickle_put_op(out, '}');
    oct_pickle_put_op(out, '(');
    for (int64_t i = 0; i < list->count; i++)
        put_planner_path(out, &list->items[i]);
    oct_pickle_put_op(out, 'u');
    oct_pickle_put_name(out, "storage_data");
    oct_pickle_put_op(out, '}');
    oct_pickle_put_op(out, '(');
    int64_t index = 0;
    for (int64_t c = 0; c < chunk_count; c++) {
        index = c > 0 && chunks[c].item == chunks[c - 1].item ? index + 1 : 0;
        put_storage(out, &list->items[chunks[c].item], &chunks[c], index);
    }
    oct_pickle_put_op(out, 'u');
    oct_pickle_put_name(out, "storage_meta");
    put_storage_meta(out);
    oct_pickle_put_name(out, "version");
    oct_pickle_put_name(out, "1.0.0");
    close_state(out);
    return oct_pickle_finish(out, err);
}
