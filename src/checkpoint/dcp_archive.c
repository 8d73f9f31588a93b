/* Archives of a checkpoint: tensors and objects within a .distcp file. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/size.h"
#include "checkpoint/dcp.h"
#include "checkpoint/dcp_dtype.h"
#include "checkpoint/zip.h"
#include "numeric/bf16.h"

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
    const oct_dcp_dtype *dtype = oct_dcp_dtype_find(entry->info.dtype);
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
        oct_dcp_dtype_find(entry->info.dtype)->storage[0]) {
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
