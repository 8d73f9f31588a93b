#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/size.h"
#include "checkpoint/dcp.h"
#include "checkpoint/zip.h"
#include "numeric/bf16.h"

bool oct_dcp_is_file_name(const char *name)
{
    const size_t length = strlen(name);
    return length > 0 && length < 256 && name[0] != '.' && !strchr(name, '/') &&
           !strstr(name, "..");
}

typedef struct known_dtype {
    const char *name, *storage;
    size_t bytes;
} known_dtype;

static const known_dtype known_dtypes[] = {
    {"float32", "FloatStorage", 4},
    {"bfloat16", "BFloat16Storage", 2},
    {"float64", "DoubleStorage", 8},
    {"float16", "HalfStorage", 2},
    {"int64", "LongStorage", 8},
    {"int32", "IntStorage", 4},
    {"int16", "ShortStorage", 2},
    {"int8", "CharStorage", 1},
    {"uint8", "ByteStorage", 1},
    {"bool", "BoolStorage", 1},
    /* listed, never read: their storage has no class of its own or octet has no use for it */
    {"uint16", "", 2},
    {"uint32", "", 4},
    {"uint64", "", 8},
    {"float8_e4m3fn", "", 1},
    {"float8_e4m3fnuz", "", 1},
    {"float8_e5m2", "", 1},
    {"float8_e5m2fnuz", "", 1},
    {"complex64", "", 8},
    {"complex128", "", 16},
};

static const known_dtype *find_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof known_dtypes / sizeof *known_dtypes; i++)
        if (strcmp(known_dtypes[i].name, name) == 0)
            return &known_dtypes[i];
    return NULL;
}

/* --- .metadata ----------------------------------------------------------------------------- */

/* One record of storage_data. */
typedef struct storage_record {
    const char *key;
    int ndim; /* -1: no offset (an object) */
    int64_t offset[OCT_DCP_MAX_NDIM];
    const char *file;
    uint64_t at, length;
} storage_record;

typedef struct metadata_reader {
    const char *where;
    oct_dcp_metadata *out;
    storage_record *records; /* on the heap, sorted */
    int64_t record_count;
    int64_t chunk_capacity;
} metadata_reader;

static oct_status bad(const metadata_reader *r, const char *key, const char *what, oct_err *err)
{
    return OCT_FAIL(err, OCT_E_CORRUPT, "cannot use '%s': %s ('%.200s')", r->where, what, key);
}

static int compare_records(const void *left, const void *right)
{
    const storage_record *a = left, *b = right;
    const int order = strcmp(a->key, b->key);
    if (order != 0 || a->ndim != b->ndim)
        return order != 0 ? order : (a->ndim > b->ndim) - (a->ndim < b->ndim);
    for (int d = 0; d < a->ndim; d++)
        if (a->offset[d] != b->offset[d])
            return a->offset[d] < b->offset[d] ? -1 : 1;
    return 0;
}

static int compare_entries(const void *left, const void *right)
{
    const oct_dcp_entry *a = left, *b = right;
    return strcmp(a->info.key, b->info.key);
}

static int compare_chunks(const void *left, const void *right)
{
    const oct_dcp_chunk *a = left, *b = right;
    return (a->row_begin > b->row_begin) - (a->row_begin < b->row_begin);
}

/* The state dict of an object of this class, or NULL. */
static const oct_pickle_value *state_of(const oct_pickle_value *value, oct_pickle_global class)
{
    if (!value || value->kind != OCT_PICKLE_OBJECT || value->global != class)
        return NULL;
    const oct_pickle_value *state = value->u.object.state;
    return state && state->kind == OCT_PICKLE_DICT ? state : NULL;
}

static bool get_u64(const oct_pickle_value *dict, const char *key, uint64_t *out)
{
    const oct_pickle_value *value = oct_pickle_get(dict, key);
    if (!value || value->kind != OCT_PICKLE_INT || value->u.integer < 0)
        return false;
    *out = (uint64_t)value->u.integer;
    return true;
}

static oct_status read_record(const metadata_reader *r, const oct_pickle_value *index,
                              const oct_pickle_value *info, storage_record *out, oct_err *err)
{
    const oct_pickle_value *where = state_of(index, OCT_PICKLE_METADATA_INDEX);
    const oct_pickle_value *what = state_of(info, OCT_PICKLE_STORAGE_INFO);
    const oct_pickle_value *key = oct_pickle_get(where, "fqn");
    const oct_pickle_value *file = oct_pickle_get(what, "relative_path");
    if (!key || key->kind != OCT_PICKLE_STRING || !file || file->kind != OCT_PICKLE_STRING)
        return bad(r, "storage_data", "a record is damaged", err);
    *out = (storage_record){.key = key->u.text.data, .ndim = -1, .file = file->u.text.data};
    if (!oct_dcp_is_file_name(out->file))
        return bad(r, out->file, "a file name leads out of the directory", err);
    const oct_pickle_value *offset = oct_pickle_get(where, "offset");
    if (offset && offset->kind != OCT_PICKLE_NONE &&
        !oct_pickle_ints(offset, OCT_DCP_MAX_NDIM, out->offset, &out->ndim))
        return bad(r, out->key, "the offset of a chunk is damaged", err);
    const oct_pickle_value *transforms = oct_pickle_get(what, "transform_descriptors");
    if (transforms && transforms->kind != OCT_PICKLE_NONE && transforms->u.list.count > 0)
        return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                        "cannot use '%s': an archive is compressed, plain ones are required "
                        "('%.200s')",
                        r->where, out->key);
    if (!get_u64(what, "offset", &out->at) || !get_u64(what, "length", &out->length) ||
        out->length > INT64_MAX || out->at > INT64_MAX - out->length)
        return bad(r, out->key, "the place of a chunk is damaged", err);
    return OCT_OK;
}

static oct_status read_records(metadata_reader *r, const oct_pickle_value *storage, oct_err *err)
{
    if (!storage || storage->kind != OCT_PICKLE_DICT)
        return bad(r, "storage_data", "it is missing", err);
    r->record_count = storage->u.list.count / 2;
    r->records = calloc((size_t)r->record_count + 1, sizeof *r->records);
    if (!r->records)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot read '%s': no memory for %lld records", r->where,
                        (long long)r->record_count);
    for (int64_t i = 0; i < r->record_count; i++)
        OCT_TRY(read_record(r, storage->u.list.items[2 * i], storage->u.list.items[2 * i + 1],
                            &r->records[i], err));
    qsort(r->records, (size_t)r->record_count, sizeof *r->records, compare_records);
    for (int64_t i = 1; i < r->record_count; i++)
        if (compare_records(&r->records[i - 1], &r->records[i]) == 0)
            return bad(r, r->records[i].key, "two records for one chunk", err);
    return OCT_OK;
}

/* Appends the place of one chunk to the chunk array. */
static oct_status add_chunk(metadata_reader *r, const storage_record *wanted, int64_t row_begin,
                            int64_t rows, oct_err *err)
{
    const storage_record *record =
        bsearch(wanted, r->records, (size_t)r->record_count, sizeof *wanted, compare_records);
    if (!record)
        return bad(r, wanted->key, "no storage for a chunk", err);
    oct_dcp_metadata *out = r->out;
    if (out->chunk_count == r->chunk_capacity) {
        const int64_t capacity = r->chunk_capacity * 2 + 256;
        oct_dcp_chunk *grown = realloc(out->chunks, (size_t)capacity * sizeof *grown);
        if (!grown)
            return OCT_FAIL(err, OCT_E_NOMEM, "cannot read '%s': no memory for %lld chunks",
                            r->where, (long long)capacity);
        out->chunks = grown;
        r->chunk_capacity = capacity;
    }
    out->chunks[out->chunk_count++] = (oct_dcp_chunk){.row_begin = row_begin,
                                                      .rows = rows,
                                                      .file = record->file,
                                                      .offset = record->at,
                                                      .length = record->length};
    return OCT_OK;
}

/* One ChunkStorageMetadata of the entry: whole rows of dim 0, or the entry is cut elsewhere. */
static oct_status read_chunk_place(metadata_reader *r, oct_dcp_entry *entry,
                                   const oct_pickle_value *chunk, oct_err *err)
{
    const oct_checkpoint_entry *info = &entry->info;
    const oct_pickle_value *state = state_of(chunk, OCT_PICKLE_CHUNK_STORAGE_METADATA);
    storage_record wanted = {.key = info->key};
    int64_t sizes[OCT_DCP_MAX_NDIM];
    int size_count = 0;
    if (!oct_pickle_ints(oct_pickle_get(state, "offsets"), OCT_DCP_MAX_NDIM, wanted.offset,
                         &wanted.ndim) ||
        !oct_pickle_ints(oct_pickle_get(state, "sizes"), OCT_DCP_MAX_NDIM, sizes, &size_count) ||
        wanted.ndim != info->ndim || size_count != info->ndim)
        return bad(r, info->key, "a chunk is damaged", err);
    bool is_empty = false, is_dim0_cut = true;
    for (int d = 0; d < info->ndim; d++) {
        if (wanted.offset[d] < 0 || sizes[d] < 0 || wanted.offset[d] > info->shape[d] ||
            sizes[d] > info->shape[d] - wanted.offset[d])
            return bad(r, info->key, "a chunk lies outside its tensor", err);
        is_empty = is_empty || sizes[d] == 0;
        is_dim0_cut = is_dim0_cut && (d == 0 || sizes[d] == info->shape[d]);
    }
    if (is_empty) /* torch writes the empty shards of surplus ranks */
        return OCT_OK;
    if (!is_dim0_cut)
        entry->is_cut_elsewhere = true;
    const bool has_dims = info->ndim > 0;
    return add_chunk(r, &wanted, has_dims ? wanted.offset[0] : 0, has_dims ? sizes[0] : 1, err);
}

/* The chunks, sorted by row, have to cover [0, rows) one after the other. */
static oct_status check_cover(const metadata_reader *r, const oct_dcp_entry *entry, oct_err *err)
{
    const oct_checkpoint_entry *info = &entry->info;
    const oct_dcp_chunk *chunks = r->out->chunks + entry->first_chunk;
    int64_t next = 0;
    for (int64_t c = 0; c < info->chunks; c++) {
        if (chunks[c].row_begin != next)
            return bad(r, info->key,
                       chunks[c].row_begin < next ? "chunks overlap" : "rows are missing", err);
        next += chunks[c].rows;
    }
    const int64_t rows = info->bytes == 0 ? 0 : info->ndim > 0 ? info->shape[0] : 1;
    return next == rows ? OCT_OK : bad(r, info->key, "rows are missing", err);
}

static oct_status read_shape(const metadata_reader *r, const oct_pickle_value *state,
                             oct_dcp_entry *entry, oct_err *err)
{
    oct_checkpoint_entry *info = &entry->info;
    const oct_pickle_value *properties = oct_pickle_get(state, "properties");
    if (!properties || properties->kind != OCT_PICKLE_OBJECT ||
        properties->global != OCT_PICKLE_TENSOR_PROPERTIES || !properties->u.object.state ||
        properties->u.object.state->kind != OCT_PICKLE_TUPLE ||
        properties->u.object.state->u.list.count == 0)
        return bad(r, info->key, "its properties are damaged", err);
    const oct_pickle_value *dtype = properties->u.object.state->u.list.items[0];
    const known_dtype *known = dtype->kind == OCT_PICKLE_NAME && dtype->global == OCT_PICKLE_DTYPE
                                   ? find_dtype(dtype->u.text.data)
                                   : NULL;
    if (!known)
        return bad(r, info->key, "its dtype is damaged", err);
    info->dtype = known->name;
    entry->element_bytes = known->bytes;
    if (!oct_pickle_ints(oct_pickle_get(state, "size"), OCT_DCP_MAX_NDIM, info->shape, &info->ndim))
        return bad(r, info->key, "its size is damaged or has more than 8 dims", err);
    size_t bytes = known->bytes;
    for (int d = 0; d < info->ndim; d++)
        if (info->shape[d] < 0 || !oct_size_mul(bytes, (size_t)info->shape[d], &bytes) ||
            bytes > INT64_MAX)
            return bad(r, info->key, "its size is damaged", err);
    info->bytes = (int64_t)bytes;
    return OCT_OK;
}

static oct_status read_tensor_entry(metadata_reader *r, const oct_pickle_value *value,
                                    oct_dcp_entry *entry, oct_err *err)
{
    oct_checkpoint_entry *info = &entry->info;
    const oct_pickle_value *state = state_of(value, OCT_PICKLE_TENSOR_STORAGE_METADATA);
    const oct_pickle_value *chunks = oct_pickle_get(state, "chunks");
    if (!chunks || chunks->kind != OCT_PICKLE_LIST)
        return bad(r, info->key, "its entry is damaged", err);
    info->is_tensor = true;
    OCT_TRY(read_shape(r, state, entry, err));
    for (int64_t c = 0; c < chunks->u.list.count; c++)
        OCT_TRY(read_chunk_place(r, entry, chunks->u.list.items[c], err));
    info->chunks = r->out->chunk_count - entry->first_chunk;
    if (info->chunks > 1)
        qsort(r->out->chunks + entry->first_chunk, (size_t)info->chunks, sizeof *r->out->chunks,
              compare_chunks);
    return entry->is_cut_elsewhere ? OCT_OK : check_cover(r, entry, err);
}

static oct_status read_entry(metadata_reader *r, const oct_pickle_value *key,
                             const oct_pickle_value *value, oct_dcp_entry *entry, oct_err *err)
{
    if (key->kind != OCT_PICKLE_STRING || value->kind != OCT_PICKLE_OBJECT)
        return bad(r, "state_dict_metadata", "an entry is damaged", err);
    *entry = (oct_dcp_entry){.info = {.key = key->u.text.data, .dtype = "object"},
                             .first_chunk = r->out->chunk_count};
    if (value->global == OCT_PICKLE_TENSOR_STORAGE_METADATA)
        return read_tensor_entry(r, value, entry, err);
    if (value->global != OCT_PICKLE_BYTES_STORAGE_METADATA)
        return bad(r, entry->info.key, "its entry is damaged", err);
    const storage_record wanted = {.key = entry->info.key, .ndim = -1};
    OCT_TRY(add_chunk(r, &wanted, 0, 1, err));
    entry->info.chunks = 1;
    entry->info.bytes = (int64_t)r->out->chunks[entry->first_chunk].length;
    return OCT_OK;
}

static oct_status read_entries(metadata_reader *r, const oct_pickle_value *dict, oct_err *err)
{
    oct_dcp_metadata *out = r->out;
    if (!dict || dict->kind != OCT_PICKLE_DICT)
        return bad(r, "state_dict_metadata", "it is missing", err);
    const int64_t count = dict->u.list.count / 2;
    void *memory = NULL;
    OCT_TRY(oct_arena_array(&out->arena, count + 1, sizeof *out->entries, &memory, err));
    out->entries = memory;
    for (int64_t i = 0; i < count; i++)
        OCT_TRY(read_entry(r, dict->u.list.items[2 * i], dict->u.list.items[2 * i + 1],
                           &out->entries[i], err));
    out->entry_count = count;
    qsort(out->entries, (size_t)count, sizeof *out->entries, compare_entries);
    for (int64_t i = 0; i < count; i++) {
        const oct_dcp_entry *entry = &out->entries[i];
        if (i > 0 && compare_entries(entry - 1, entry) == 0)
            return bad(r, entry->info.key, "the key appears twice", err);
        for (int64_t c = 0; c < entry->info.chunks; c++)
            out->chunks[entry->first_chunk + c].item = i;
    }
    return OCT_OK;
}

static oct_status read_root(metadata_reader *r, const oct_pickle_value *root, oct_err *err)
{
    const oct_pickle_value *state = state_of(root, OCT_PICKLE_METADATA);
    if (!state)
        return bad(r, "Metadata", "no checkpoint metadata", err);
    const oct_pickle_value *planner = oct_pickle_get(state, "planner_data");
    if (!planner || (planner->kind != OCT_PICKLE_DICT && planner->kind != OCT_PICKLE_NONE))
        return bad(r, "planner_data", "it is missing", err);
    OCT_TRY(read_records(r, oct_pickle_get(state, "storage_data"), err));
    return read_entries(r, oct_pickle_get(state, "state_dict_metadata"), err);
}

oct_status oct_dcp_read_metadata(const unsigned char *data, size_t bytes, const char *where,
                                 oct_dcp_metadata *out, oct_err *err)
{
    *out = (oct_dcp_metadata){0};
    oct_arena_init(&out->arena, "checkpoint metadata");
    oct_pickle_value *root = NULL;
    OCT_TRY(oct_pickle_parse(data, bytes, where, &out->arena, &root, err));
    metadata_reader reader = {.where = where, .out = out};
    const oct_status status = read_root(&reader, root, err);
    free(reader.records);
    return status;
}

void oct_dcp_metadata_release(oct_dcp_metadata *metadata)
{
    free(metadata->chunks);
    oct_arena_release(&metadata->arena);
    *metadata = (oct_dcp_metadata){0};
}

/* --- archives ------------------------------------------------------------------------------ */

enum { MAX_OBJECT_BYTES = 64 << 20, MAX_TENSOR_PICKLE_BYTES = 1 << 20 };

/* data.pkl of an archive, parsed into `arena`. */
static oct_status load_pickle(const oct_file *file, const oct_zip *zip, size_t limit_bytes,
                              oct_arena *arena, oct_pickle_value **out, oct_err *err)
{
    const oct_zip_entry *pickle = oct_zip_find(zip, "data.pkl");
    unsigned char *data = NULL;
    if (!pickle)
        return OCT_FAIL(err, OCT_E_CORRUPT,
                        "cannot read the archive at byte %llu of '%s': no data.pkl",
                        (unsigned long long)zip->start, file->path);
    OCT_TRY(oct_zip_load(file, pickle, limit_bytes, &data, err));
    const oct_status status =
        oct_pickle_parse(data, (size_t)pickle->bytes, file->path, arena, out, err);
    free(data);
    return status;
}

static oct_status check_byteorder(const oct_file *file, const oct_zip *zip, oct_err *err)
{
    const oct_zip_entry *entry = oct_zip_find(zip, "byteorder");
    if (!entry) /* before torch 2.1: little endian */
        return OCT_OK;
    unsigned char *data = NULL;
    OCT_TRY(oct_zip_load(file, entry, 16, &data, err));
    const bool is_little = entry->bytes == 6 && memcmp(data, "little", 6) == 0;
    free(data);
    return is_little
               ? OCT_OK
               : OCT_FAIL(err, OCT_E_UNSUPPORTED,
                          "cannot read '%s': its byte order is not little endian", file->path);
}

static oct_status bad_tensor(const oct_file *file, const oct_dcp_entry *entry, const char *what,
                             oct_err *err)
{
    return OCT_FAIL(err, OCT_E_CORRUPT, "cannot read '%.200s' from '%s': %s", entry->info.key,
                    file->path, what);
}

/* What _rebuild_tensor_v2 would build: where in which storage entry the chunk's elements lie. */
typedef struct tensor_place {
    char storage_entry[64]; /* "data/0" */
    int64_t storage_numel;
    int64_t storage_offset;
    bool is_strided; /* not row-major: torch.save keeps the strides of a transposed tensor */
    int64_t stride[OCT_DCP_MAX_NDIM];
} tensor_place;

static oct_status read_storage(const oct_file *file, const oct_dcp_entry *entry,
                               const oct_pickle_value *persid, tensor_place *out, oct_err *err)
{
    const oct_pickle_value *id = persid->kind == OCT_PICKLE_PERSID ? persid->u.object.args : NULL;
    if (!id || id->kind != OCT_PICKLE_TUPLE || id->u.list.count != 5)
        return bad_tensor(file, entry, "its storage is damaged", err);
    oct_pickle_value *const *part = id->u.list.items;
    if (part[0]->kind != OCT_PICKLE_STRING || strcmp(part[0]->u.text.data, "storage") != 0 ||
        part[1]->kind != OCT_PICKLE_NAME || part[1]->global != OCT_PICKLE_STORAGE ||
        part[2]->kind != OCT_PICKLE_STRING || part[2]->u.text.bytes > 16 ||
        part[4]->kind != OCT_PICKLE_INT || part[4]->u.integer < 0)
        return bad_tensor(file, entry, "its storage is damaged", err);
    const known_dtype *dtype = find_dtype(entry->info.dtype);
    if (strcmp(part[1]->u.text.data, dtype->storage) != 0)
        return bad_tensor(file, entry, "the storage has another dtype than .metadata says", err);
    memcpy(out->storage_entry, "data/", 5);
    memcpy(out->storage_entry + 5, part[2]->u.text.data, (size_t)part[2]->u.text.bytes + 1);
    out->storage_numel = part[4]->u.integer;
    return OCT_OK;
}

static oct_status read_tensor_place(const oct_file *file, const oct_dcp_entry *entry,
                                    const oct_dcp_chunk *chunk, const oct_pickle_value *root,
                                    tensor_place *out, oct_err *err)
{
    const oct_checkpoint_entry *info = &entry->info;
    const oct_pickle_value *args =
        root->kind == OCT_PICKLE_CALL && root->global == OCT_PICKLE_REBUILD_TENSOR
            ? root->u.object.args
            : NULL;
    if (!args || args->u.list.count < 4)
        return bad_tensor(file, entry, "no tensor in its archive", err);
    oct_pickle_value *const *part = args->u.list.items;
    OCT_TRY(read_storage(file, entry, part[0], out, err));
    int64_t size[OCT_DCP_MAX_NDIM];
    int size_count = 0, stride_count = 0;
    if (part[1]->kind != OCT_PICKLE_INT || part[1]->u.integer < 0 ||
        !oct_pickle_ints(part[2], OCT_DCP_MAX_NDIM, size, &size_count) ||
        !oct_pickle_ints(part[3], OCT_DCP_MAX_NDIM, out->stride, &stride_count) ||
        size_count != info->ndim || stride_count != info->ndim)
        return bad_tensor(file, entry, "the tensor in its archive is damaged", err);
    out->storage_offset = part[1]->u.integer;
    /* numel cannot overflow: it is bounded by the entry's bytes as soon as sizes agree. */
    int64_t numel = 1;
    size_t end = 1; /* elements from the first one to the last one in memory */
    bool is_inside = true;
    for (int d = info->ndim; d-- > 0;) {
        if (size[d] != (d == 0 ? chunk->rows : info->shape[d]))
            return bad_tensor(file, entry, "its archive holds another shape than .metadata says",
                              err);
        size_t reach = 0;
        is_inside = is_inside && out->stride[d] >= 0 && size[d] > 0 &&
                    oct_size_mul((size_t)out->stride[d], (size_t)size[d] - 1, &reach) &&
                    oct_size_add(end, reach, &end);
        out->is_strided = out->is_strided || (size[d] != 1 && out->stride[d] != numel);
        numel *= size[d];
    }
    if (!is_inside || out->storage_offset > out->storage_numel ||
        end > (size_t)(out->storage_numel - out->storage_offset))
        return bad_tensor(file, entry, "the tensor is longer than its storage", err);
    return OCT_OK;
}

/* Finds the payload of a chunk: *payload is the storage entry, *place where the tensor lies in it.
 */
static oct_status locate(const oct_file *file, const oct_dcp_entry *entry,
                         const oct_dcp_chunk *chunk, oct_zip *zip, const oct_zip_entry **payload,
                         tensor_place *place, oct_arena *scratch, oct_err *err)
{
    OCT_TRY(oct_zip_read(file, chunk->offset, chunk->length, zip, err));
    OCT_TRY(check_byteorder(file, zip, err));
    const oct_arena_mark mark = oct_arena_save(scratch);
    oct_pickle_value *root = NULL;
    *place = (tensor_place){0};
    oct_status status = load_pickle(file, zip, MAX_TENSOR_PICKLE_BYTES, scratch, &root, err);
    if (status == OCT_OK)
        status = read_tensor_place(file, entry, chunk, root, place, err);
    oct_arena_rewind(scratch, mark);
    OCT_TRY(status);
    *payload = oct_zip_find(zip, place->storage_entry);
    size_t bytes = 0;
    if (!*payload || !oct_size_mul((size_t)place->storage_numel, entry->element_bytes, &bytes) ||
        (*payload)->bytes != bytes)
        return bad_tensor(file, entry, "its storage is missing or has another size", err);
    return OCT_OK;
}

enum { PIECE_BYTES = 1 << 20 };

/* Room for one piece of an entry of `bytes` bytes. */
static size_t piece_bytes(uint64_t bytes)
{
    return bytes < PIECE_BYTES ? (size_t)bytes + 1 : PIECE_BYTES;
}

/* CRC-32 of the payload's bytes [from, to). */
static oct_status crc_range(const oct_file *file, const oct_zip_entry *payload, uint64_t from,
                            uint64_t to, unsigned char *piece, uint32_t *crc, oct_err *err)
{
    for (uint64_t at = from; at < to;) {
        const size_t n = to - at < PIECE_BYTES ? (size_t)(to - at) : PIECE_BYTES;
        OCT_TRY(oct_file_read(file, piece, n, payload->offset + at, err));
        *crc = (uint32_t)crc32(*crc, piece, (uInt)n);
        at += n;
    }
    return OCT_OK;
}

/* Reads the payload's bytes [from, from + bytes) into `out`, widened, and runs them through *crc.
 */
static oct_status copy_range(const oct_file *file, const oct_zip_entry *payload, bool is_bf16,
                             uint64_t from, uint64_t bytes, unsigned char *piece, float *out,
                             uint32_t *crc, oct_err *err)
{
    for (uint64_t at = 0; at < bytes;) {
        const size_t n = bytes - at < PIECE_BYTES ? (size_t)(bytes - at) : PIECE_BYTES;
        OCT_TRY(oct_file_read(file, piece, n, payload->offset + from + at, err));
        if (crc)
            *crc = (uint32_t)crc32(*crc, piece, (uInt)n);
        if (is_bf16) {
            for (size_t i = 0; i < n / 2; i++)
                out[i] = oct_bf16_to_f32((uint16_t)(piece[2 * i] | piece[2 * i + 1] << 8));
            out += n / 2;
        } else {
            memcpy(out, piece, n);
            out += n / 4;
        }
        at += n;
    }
    return OCT_OK;
}

/* Reads [from, from + bytes) of the payload; with check_crc all the rest of it too. */
static oct_status read_payload(const oct_file *file, const oct_zip_entry *payload, bool is_bf16,
                               uint64_t from, uint64_t bytes, float *out, bool check_crc,
                               oct_err *err)
{
    unsigned char *piece = malloc(piece_bytes(payload->bytes));
    if (!piece)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot read '%s': no memory for %zu bytes", file->path,
                        piece_bytes(payload->bytes));
    uint32_t crc = 0;
    oct_status status = OCT_OK;
    if (check_crc)
        status = crc_range(file, payload, 0, from, piece, &crc, err);
    if (status == OCT_OK)
        status = copy_range(file, payload, is_bf16, from, bytes, piece, out,
                            check_crc ? &crc : NULL, err);
    if (status == OCT_OK && check_crc)
        status = crc_range(file, payload, from + bytes, payload->bytes, piece, &crc, err);
    if (status == OCT_OK && check_crc)
        status = oct_zip_check_crc(file, payload, crc, err);
    free(piece);
    return status;
}

/* Copies rows of dim 0 out of the whole storage, in row-major order. */
static void gather_rows(const oct_checkpoint_entry *info, const tensor_place *place,
                        const float *storage, int64_t row_begin, int64_t rows, float *out)
{
    int64_t width = 1;
    for (int d = 1; d < info->ndim; d++)
        width *= info->shape[d];
    for (int64_t i = 0; i < rows * width; i++) {
        int64_t from = place->storage_offset, rest = i;
        for (int d = info->ndim; d-- > 1;) {
            from += rest % info->shape[d] * place->stride[d];
            rest /= info->shape[d];
        }
        out[i] = storage[from + (row_begin + rest) * place->stride[0]];
    }
}

static oct_status read_strided(const oct_file *file, const oct_dcp_entry *entry,
                               const oct_zip_entry *payload, const tensor_place *place,
                               bool is_bf16, int64_t row_begin, int64_t rows, float *out,
                               bool check_crc, oct_err *err)
{
    size_t bytes = 0;
    float *storage =
        oct_size_mul((size_t)place->storage_numel, sizeof *storage, &bytes) ? malloc(bytes) : NULL;
    if (!storage)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot read '%s': no memory for %lld elements",
                        file->path, (long long)place->storage_numel);
    const oct_status status =
        read_payload(file, payload, is_bf16, 0, payload->bytes, storage, check_crc, err);
    if (status == OCT_OK)
        gather_rows(&entry->info, place, storage, row_begin, rows, out);
    free(storage);
    return status;
}

oct_status oct_dcp_read_chunk(const oct_file *file, const oct_dcp_entry *entry,
                              const oct_dcp_chunk *chunk, int64_t row_begin, int64_t rows,
                              float *out, bool check_crc, oct_arena *scratch, oct_err *err)
{
    const bool is_bf16 = strcmp(entry->info.dtype, "bfloat16") == 0;
    if (!is_bf16 && strcmp(entry->info.dtype, "float32") != 0)
        return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                        "cannot read '%.200s': %s, float32 or bfloat16 is required",
                        entry->info.key, entry->info.dtype);
    if (entry->is_cut_elsewhere)
        return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                        "cannot read '%.200s': it is cut along another dim, chunks of whole rows "
                        "of dim 0 are required",
                        entry->info.key);
    uint64_t row_bytes = entry->element_bytes;
    for (int d = 1; d < entry->info.ndim; d++)
        row_bytes *= (uint64_t)entry->info.shape[d];
    oct_zip zip;
    const oct_zip_entry *payload = NULL;
    tensor_place place;
    oct_status status = locate(file, entry, chunk, &zip, &payload, &place, scratch, err);
    if (status == OCT_OK && place.is_strided)
        status = read_strided(file, entry, payload, &place, is_bf16, row_begin, rows, out,
                              check_crc, err);
    else if (status == OCT_OK)
        status = read_payload(file, payload, is_bf16,
                              (uint64_t)place.storage_offset * entry->element_bytes +
                                  (uint64_t)row_begin * row_bytes,
                              (uint64_t)rows * row_bytes, out, check_crc, err);
    if (status != OCT_OK)
        return OCT_WRAP(err, status, "loading '%.200s'", entry->info.key);
    return OCT_OK;
}

oct_status oct_dcp_read_object(const oct_file *file, const oct_dcp_entry *entry,
                               const oct_dcp_chunk *chunk, oct_arena *arena, oct_pickle_value **out,
                               oct_err *err)
{
    oct_zip zip;
    oct_status status = oct_zip_read(file, chunk->offset, chunk->length, &zip, err);
    if (status == OCT_OK)
        status = load_pickle(file, &zip, MAX_OBJECT_BYTES, arena, out, err);
    if (status != OCT_OK)
        return OCT_WRAP(err, status, "loading '%.200s'", entry->info.key);
    return OCT_OK;
}

/* CRC-32 of every entry of the archive. */
static oct_status check_entries(const oct_file *file, const oct_zip *zip, oct_err *err)
{
    uint64_t longest = 0;
    for (int i = 0; i < zip->count; i++)
        longest = zip->entries[i].bytes > longest ? zip->entries[i].bytes : longest;
    unsigned char *piece = malloc(piece_bytes(longest));
    if (!piece)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot read '%s': no memory for %zu bytes", file->path,
                        piece_bytes(longest));
    oct_status status = OCT_OK;
    for (int i = 0; i < zip->count && status == OCT_OK; i++) {
        uint32_t crc = 0;
        const oct_zip_entry *entry = &zip->entries[i];
        status = crc_range(file, entry, 0, entry->bytes, piece, &crc, err);
        if (status == OCT_OK)
            status = oct_zip_check_crc(file, entry, crc, err);
    }
    free(piece);
    return status;
}

oct_status oct_dcp_check_chunk(const oct_file *file, const oct_dcp_entry *entry,
                               const oct_dcp_chunk *chunk, oct_arena *scratch, oct_err *err)
{
    oct_zip zip;
    oct_status status;
    if (entry->info.is_tensor && entry->info.bytes > 0 && !entry->is_cut_elsewhere &&
        find_dtype(entry->info.dtype)->storage[0]) {
        const oct_zip_entry *payload = NULL;
        tensor_place place;
        status = locate(file, entry, chunk, &zip, &payload, &place, scratch, err);
    } else {
        status = oct_zip_read(file, chunk->offset, chunk->length, &zip, err);
    }
    if (status == OCT_OK)
        status = check_entries(file, &zip, err);
    if (status != OCT_OK)
        return OCT_WRAP(err, status, "checking '%.200s'", entry->info.key);
    return OCT_OK;
}
