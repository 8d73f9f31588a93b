/* .metadata of a checkpoint: what is in which file. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "checkpoint/dcp.h"
#include "checkpoint/dcp_dtype.h"

bool oct_dcp_is_file_name(const char *name)
{
    const size_t length = strlen(name);
    return length > 0 && length < 256 && name[0] != '.' && !strchr(name, '/') &&
           !strstr(name, "..");
}

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
    const oct_dcp_dtype *known = dtype->kind == OCT_PICKLE_NAME && dtype->global == OCT_PICKLE_DTYPE
                                     ? oct_dcp_dtype_find(dtype->u.text.data)
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
