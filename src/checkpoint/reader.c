#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/size.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/commit.h"
#include "checkpoint/dcp.h"
#include "checkpoint/reader.h"

struct oct_checkpoint {
    const oct_file_table *files;
    oct_comm *comm; /* of the ranks that opened it together, or NULL */
    char *dir;
    oct_arena arena; /* of the commit record */
    bool has_commit;
    oct_commit commit;
    oct_dcp_metadata metadata;
    int64_t bytes;
    uint32_t fingerprint;
    bool check_crc; /* payloads have to be checked as they are read */
    oct_arena *scratch;
};

/* --- opening ------------------------------------------------------------------------------- */

/* Other ranks may wait for what this one reads. */
static void note_progress(const oct_checkpoint *cp)
{
    if (cp->comm)
        oct_comm_progress(cp->comm);
}

/* CRC-32 of a whole file of `bytes` bytes. */
static oct_status file_crc(const oct_checkpoint *cp, const char *path, uint64_t bytes,
                           uint32_t *crc, oct_err *err)
{
    const size_t piece_bytes = bytes < 8u << 20 ? (size_t)bytes + 1 : 8u << 20;
    unsigned char *piece = malloc(piece_bytes);
    oct_file file;
    if (!piece)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot read '%s': no memory for %zu bytes", path,
                        piece_bytes);
    oct_status status = oct_file_open(cp->files, path, &file, err);
    *crc = 0;
    for (uint64_t at = 0; at < bytes && status == OCT_OK;) {
        const size_t n = bytes - at < piece_bytes ? (size_t)(bytes - at) : piece_bytes;
        status = oct_file_read(&file, piece, n, at, err);
        if (status == OCT_OK)
            *crc = (uint32_t)crc32(*crc, piece, (uInt)n);
        at += n;
        note_progress(cp);
    }
    oct_file_discard(&file);
    free(piece);
    return status;
}

/* Size, and with check_crc the CRC-32, of one file of the commit record. */
static oct_status check_file(const oct_checkpoint *cp, const oct_commit_file *file, bool check_crc,
                             oct_err *err)
{
    char path[OCT_PATH_BYTES];
    oct_file_info info;
    OCT_TRY(oct_path_join(cp->dir, file->name, path, sizeof path, err));
    OCT_TRY(oct_file_stat(cp->files, path, &info, err));
    if (info.kind != OCT_FILE_REGULAR)
        return OCT_FAIL(err, OCT_E_CORRUPT, "cannot use '%s': the file is missing, %s lists it",
                        path, OCT_COMMIT_FILE);
    if (info.bytes != file->bytes)
        return OCT_FAIL(err, OCT_E_CORRUPT, "cannot use '%s': %llu bytes, %llu are required", path,
                        (unsigned long long)info.bytes, (unsigned long long)file->bytes);
    uint32_t crc = 0;
    if (!check_crc)
        return OCT_OK;
    OCT_TRY(file_crc(cp, path, file->bytes, &crc, err));
    if (crc != file->crc)
        return OCT_FAIL(err, OCT_E_CORRUPT, "cannot use '%s': CRC-32 %08x, %08x is required", path,
                        crc, file->crc);
    return OCT_OK;
}

static uint32_t text_crc(const char *text, size_t bytes)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const unsigned char *)text, bytes);
}

/* Reads COMMIT.json. Without it, a directory with .metadata is one that PyTorch wrote. */
static oct_status read_commit(oct_checkpoint *cp, oct_checkpoint_warning warn, void *warn_arg,
                              oct_err *err)
{
    char path[OCT_PATH_BYTES];
    oct_file_info info;
    OCT_TRY(oct_path_join(cp->dir, OCT_COMMIT_FILE, path, sizeof path, err));
    OCT_TRY(oct_file_stat(cp->files, path, &info, err));
    if (info.kind != OCT_FILE_NONE) {
        char *text = NULL;
        size_t bytes = 0;
        OCT_TRY(oct_file_read_all(cp->files, path, OCT_COMMIT_MAX_BYTES, &text, &bytes, err));
        const oct_status status = oct_commit_read(text, bytes, path, &cp->arena, &cp->commit, err);
        cp->fingerprint = text_crc(text, bytes);
        free(text);
        cp->has_commit = status == OCT_OK;
        cp->bytes = (int64_t)bytes;
        return status;
    }
    char metadata[OCT_PATH_BYTES], line[OCT_PATH_BYTES + 128];
    OCT_TRY(oct_path_join(cp->dir, OCT_METADATA_FILE, metadata, sizeof metadata, err));
    OCT_TRY(oct_file_stat(cp->files, metadata, &info, err));
    if (info.kind != OCT_FILE_REGULAR)
        return OCT_FAIL(err, OCT_E_CORRUPT, "cannot open checkpoint '%s': no %s, one is required",
                        cp->dir, OCT_COMMIT_FILE);
    (void)snprintf(
        line, sizeof line,
        "'%s' has no %s: a checkpoint of PyTorch, its files cannot be verified as a whole", cp->dir,
        OCT_COMMIT_FILE);
    if (warn)
        warn(warn_arg, line);
    return OCT_OK;
}

/* Sizes of all files, CRC-32 of .metadata always, of the rest with check_crc: with a comm every
 * rank takes some of the files. */
static oct_status check_files(oct_checkpoint *cp, bool check_crc, oct_err *err)
{
    if (!cp->has_commit)
        return OCT_OK;
    const int rank = cp->comm ? oct_comm_rank(cp->comm) : 0;
    const int ranks = cp->comm ? oct_comm_size(cp->comm) : 1;
    for (int64_t i = 0; i < cp->commit.file_count; i++) {
        const oct_commit_file *file = &cp->commit.files[i];
        const bool is_metadata = strcmp(file->name, OCT_METADATA_FILE) == 0;
        const bool is_own = i % ranks == rank;
        OCT_TRY(check_file(cp, file, is_metadata || (check_crc && is_own), err));
        cp->bytes += (int64_t)file->bytes;
    }
    if (!oct_commit_find(&cp->commit, OCT_METADATA_FILE))
        return OCT_FAIL(err, OCT_E_CORRUPT, "cannot use '%s/%s': it does not list %s", cp->dir,
                        OCT_COMMIT_FILE, OCT_METADATA_FILE);
    return OCT_OK;
}

static oct_status read_metadata(oct_checkpoint *cp, oct_err *err)
{
    char path[OCT_PATH_BYTES];
    char *data = NULL;
    size_t bytes = 0;
    OCT_TRY(oct_path_join(cp->dir, OCT_METADATA_FILE, path, sizeof path, err));
    OCT_TRY(oct_file_read_all(cp->files, path, OCT_PICKLE_MAX_BYTES, &data, &bytes, err));
    const oct_status status =
        oct_dcp_read_metadata((const unsigned char *)data, bytes, path, &cp->metadata, err);
    if (!cp->has_commit) {
        cp->bytes += (int64_t)bytes;
        cp->fingerprint = text_crc(data, bytes);
    }
    free(data);
    return status;
}

static int compare_places(const void *left, const void *right)
{
    const oct_dcp_chunk *const *a = left, *const *b = right;
    const int order = strcmp((*a)->file, (*b)->file);
    return order != 0 ? order : ((*a)->offset > (*b)->offset) - ((*a)->offset < (*b)->offset);
}

static oct_status bad_place(const oct_checkpoint *cp, const oct_dcp_chunk *chunk, const char *what,
                            oct_err *err)
{
    return OCT_FAIL(err, OCT_E_CORRUPT,
                    "cannot use '%s/%s': the archive of '%.200s' %s (byte %llu)", cp->dir,
                    chunk->file, cp->metadata.entries[chunk->item].info.key, what,
                    (unsigned long long)chunk->offset);
}

/* Every archive lies inside its file, which COMMIT.json lists, and no two share a byte. `places` is
 * sorted by file and offset. */
static oct_status check_sorted_places(oct_checkpoint *cp, const oct_dcp_chunk *const *places,
                                      oct_err *err)
{
    uint64_t file_bytes = 0;
    for (int64_t i = 0; i < cp->metadata.chunk_count; i++) {
        const oct_dcp_chunk *chunk = places[i];
        const bool same_file = i > 0 && strcmp(places[i - 1]->file, chunk->file) == 0;
        if (!same_file) {
            char path[OCT_PATH_BYTES];
            oct_file_info info;
            if (cp->has_commit && !oct_commit_find(&cp->commit, chunk->file))
                return bad_place(cp, chunk, "is in a file that COMMIT.json does not list", err);
            OCT_TRY(oct_path_join(cp->dir, chunk->file, path, sizeof path, err));
            OCT_TRY(oct_file_stat(cp->files, path, &info, err));
            if (info.kind != OCT_FILE_REGULAR)
                return bad_place(cp, chunk, "is in a file that is missing", err);
            file_bytes = info.bytes;
            if (!cp->has_commit)
                cp->bytes += (int64_t)info.bytes;
        }
        if (chunk->length > file_bytes || chunk->offset > file_bytes - chunk->length)
            return bad_place(cp, chunk, "ends behind the end of the file", err);
        if (same_file && places[i - 1]->offset + places[i - 1]->length > chunk->offset)
            return bad_place(cp, chunk, "overlaps another one", err);
    }
    return OCT_OK;
}

static oct_status check_places(oct_checkpoint *cp, oct_err *err)
{
    const int64_t count = cp->metadata.chunk_count;
    const oct_dcp_chunk **places = calloc((size_t)count + 1, sizeof *places);
    if (!places)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot open '%s': no memory for %lld chunks", cp->dir,
                        (long long)count);
    for (int64_t i = 0; i < count; i++)
        places[i] = &cp->metadata.chunks[i];
    qsort(places, (size_t)count, sizeof *places, compare_places);
    const oct_status status = check_sorted_places(cp, places, err);
    free(places);
    return status;
}

static oct_status open_all(oct_checkpoint *cp, oct_checkpoint_verify_level level,
                           oct_checkpoint_warning warn, void *warn_arg, oct_err *err)
{
    oct_file_info info;
    OCT_TRY(oct_file_stat(cp->files, cp->dir, &info, err));
    if (info.kind != OCT_FILE_DIRECTORY)
        return OCT_FAIL(err, OCT_E_IO, "cannot open checkpoint '%s': no such directory", cp->dir);
    OCT_TRY(read_commit(cp, warn, warn_arg, err));
    OCT_TRY(check_files(cp, level == OCT_VERIFY_CRC, err));
    OCT_TRY(read_metadata(cp, err));
    OCT_TRY(check_places(cp, err));
    cp->check_crc = level == OCT_VERIFY_CRC && !cp->has_commit;
    return OCT_OK;
}

/* A checkpoint that nothing was read of yet. */
static oct_status new_checkpoint(const oct_file_table *files, const char *dir, oct_checkpoint **out,
                                 oct_err *err)
{
    oct_checkpoint *cp = calloc(1, sizeof *cp);
    char *copy = strdup(dir);
    oct_arena *scratch = malloc(sizeof *scratch);
    if (!cp || !copy || !scratch) {
        free(cp);
        free(copy);
        free(scratch);
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot open checkpoint '%s': no memory", dir);
    }
    *cp = (oct_checkpoint){
        .files = files ? files : &oct_file_table_real, .dir = copy, .scratch = scratch};
    oct_arena_init(&cp->arena, "commit record");
    oct_arena_init(scratch, "checkpoint scratch");
    *out = cp;
    return OCT_OK;
}

/* The directory's name says a step: COMMIT.json has to say the same one. */
static oct_status check_step(const oct_checkpoint *cp, int64_t step, oct_err *err)
{
    if (!cp->has_commit)
        return OCT_FAIL(err, OCT_E_CORRUPT, "cannot open checkpoint '%s': no %s, one is required",
                        cp->dir, OCT_COMMIT_FILE);
    if (cp->commit.step == step)
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_CORRUPT, "cannot use '%s/%s': it is of step %lld, %lld is required",
                    cp->dir, OCT_COMMIT_FILE, (long long)cp->commit.step, (long long)step);
}

uint32_t oct_checkpoint_fingerprint(const oct_checkpoint *checkpoint)
{
    return checkpoint->fingerprint;
}

oct_status oct_checkpoint_open_part(const oct_checkpoint_source *source, oct_checkpoint **out,
                                    oct_err *err)
{
    oct_checkpoint *cp = NULL;
    OCT_TRY(new_checkpoint(source->files, source->dir, &cp, err));
    cp->comm = source->comm;
    oct_status status = open_all(cp, source->level, source->warn, source->warn_arg, err);
    if (status == OCT_OK && source->step >= 0)
        status = check_step(cp, source->step, err);
    if (status != OCT_OK) {
        oct_checkpoint_close(cp);
        return status;
    }
    *out = cp;
    return OCT_OK;
}

void oct_checkpoint_close(oct_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    oct_dcp_metadata_release(&checkpoint->metadata);
    oct_arena_release(&checkpoint->arena);
    oct_arena_release(checkpoint->scratch);
    free(checkpoint->scratch);
    free(checkpoint->dir);
    free(checkpoint);
}

/* --- describing ---------------------------------------------------------------------------- */

int64_t oct_checkpoint_step(const oct_checkpoint *checkpoint)
{
    return checkpoint->has_commit ? checkpoint->commit.step : -1;
}

int64_t oct_checkpoint_world(const oct_checkpoint *checkpoint)
{
    return checkpoint->has_commit ? checkpoint->commit.world : -1;
}

int64_t oct_checkpoint_bytes(const oct_checkpoint *checkpoint)
{
    return checkpoint->bytes;
}

const char *oct_checkpoint_config_hash(const oct_checkpoint *checkpoint)
{
    return checkpoint->has_commit ? checkpoint->commit.config_hash : "";
}

const char *oct_checkpoint_model_json(const oct_checkpoint *checkpoint)
{
    return checkpoint->has_commit ? checkpoint->commit.model_json : "null";
}

int64_t oct_checkpoint_entry_count(const oct_checkpoint *checkpoint)
{
    return checkpoint->metadata.entry_count;
}

const oct_checkpoint_entry *oct_checkpoint_entry_at(const oct_checkpoint *checkpoint, int64_t index)
{
    return &checkpoint->metadata.entries[index].info;
}

static int compare_key(const void *key, const void *entry)
{
    return strcmp(key, ((const oct_dcp_entry *)entry)->info.key);
}

static const oct_dcp_entry *find_entry(const oct_checkpoint *cp, const char *key)
{
    return bsearch(key, cp->metadata.entries, (size_t)cp->metadata.entry_count,
                   sizeof *cp->metadata.entries, compare_key);
}

const oct_checkpoint_entry *oct_checkpoint_find(const oct_checkpoint *checkpoint, const char *key)
{
    const oct_dcp_entry *entry = find_entry(checkpoint, key);
    return entry ? &entry->info : NULL;
}

/* --- reading ------------------------------------------------------------------------------- */

static oct_status require_entry(const oct_checkpoint *cp, const char *key, bool is_tensor,
                                const oct_dcp_entry **out, oct_err *err)
{
    *out = find_entry(cp, key);
    if (!*out)
        return OCT_FAIL(err, OCT_E_CORRUPT, "cannot load '%s': checkpoint '%s' has no such key",
                        key, cp->dir);
    if ((*out)->info.is_tensor != is_tensor)
        return OCT_FAIL(err, OCT_E_CORRUPT, "cannot load '%s': %s in checkpoint '%s', %s required",
                        key, (*out)->info.is_tensor ? "a tensor" : "an object", cp->dir,
                        is_tensor ? "a tensor is" : "an object is");
    return OCT_OK;
}

/* "[2048, 5632]" */
static void print_shape(char *out, size_t bytes, int ndim, const int64_t *shape)
{
    size_t at = 0;
    for (int d = 0; d < ndim && at < bytes; d++) {
        const int n =
            snprintf(out + at, bytes - at, "%s%lld", d > 0 ? ", " : "", (long long)shape[d]);
        at += n > 0 ? (size_t)n : 0;
    }
    if (ndim == 0)
        out[0] = '\0';
}

static oct_status check_shape(const oct_checkpoint *cp, const oct_checkpoint_entry *info, int ndim,
                              const int64_t *shape, oct_err *err)
{
    bool equal = info->ndim == ndim;
    for (int d = 0; d < ndim && equal; d++)
        equal = info->shape[d] == shape[d];
    if (equal)
        return OCT_OK;
    char found[128], wanted[128];
    print_shape(found, sizeof found, info->ndim, info->shape);
    print_shape(wanted, sizeof wanted, ndim, shape);
    return OCT_FAIL(err, OCT_E_SHAPE,
                    "cannot load '%s': shape [%s] in checkpoint '%s', [%s] is required", info->key,
                    found, cp->dir, wanted);
}

static oct_status open_chunk(const oct_checkpoint *cp, const oct_dcp_chunk *chunk,
                             char path[OCT_PATH_BYTES], oct_file *file, oct_err *err)
{
    OCT_TRY(oct_path_join(cp->dir, chunk->file, path, OCT_PATH_BYTES, err));
    return oct_file_open(cp->files, path, file, err);
}

oct_status oct_checkpoint_read_rows(const oct_checkpoint *checkpoint, const char *key, int ndim,
                                    const int64_t *shape, int64_t row_begin, int64_t rows,
                                    float *out, oct_err *err)
{
    const oct_dcp_entry *entry = NULL;
    OCT_TRY(require_entry(checkpoint, key, true, &entry, err));
    OCT_TRY(check_shape(checkpoint, &entry->info, ndim, shape, err));
    const int64_t total = ndim > 0 ? shape[0] : 1;
    if (row_begin < 0 || rows < 0 || rows > total || row_begin > total - rows)
        return OCT_FAIL(err, OCT_E_API, "cannot load '%s': rows %lld to %lld of %lld", key,
                        (long long)row_begin, (long long)(row_begin + rows), (long long)total);
    int64_t width = 1;
    for (int d = 1; d < ndim; d++)
        width *= shape[d];
    for (int64_t c = 0; c < entry->info.chunks; c++) {
        const oct_dcp_chunk *chunk = &checkpoint->metadata.chunks[entry->first_chunk + c];
        const int64_t from = oct_max_i64(row_begin, chunk->row_begin);
        const int64_t to = oct_min_i64(row_begin + rows, chunk->row_begin + chunk->rows);
        if (from >= to)
            continue;
        char path[OCT_PATH_BYTES];
        oct_file file;
        OCT_TRY(open_chunk(checkpoint, chunk, path, &file, err));
        const oct_status status = oct_dcp_read_chunk(
            &file, entry, chunk, from - chunk->row_begin, to - from,
            out + (from - row_begin) * width, checkpoint->check_crc, checkpoint->scratch, err);
        oct_file_discard(&file);
        OCT_TRY(status);
        note_progress(checkpoint);
    }
    return OCT_OK;
}

oct_status oct_checkpoint_read_tensor(const oct_checkpoint *checkpoint, const char *key, int ndim,
                                      const int64_t *shape, float *out, oct_err *err)
{
    return oct_checkpoint_read_rows(checkpoint, key, ndim, shape, 0, ndim > 0 ? shape[0] : 1, out,
                                    err);
}

/* An object of this kind, its value in `arena`. */
static oct_status read_object(const oct_checkpoint *cp, const char *key, oct_pickle_kind kind,
                              const char *kind_name, oct_arena *arena, oct_pickle_value **out,
                              oct_err *err)
{
    const oct_dcp_entry *entry = NULL;
    OCT_TRY(require_entry(cp, key, false, &entry, err));
    const oct_dcp_chunk *chunk = &cp->metadata.chunks[entry->first_chunk];
    char path[OCT_PATH_BYTES];
    oct_file file;
    OCT_TRY(open_chunk(cp, chunk, path, &file, err));
    const oct_status status = oct_dcp_read_object(&file, entry, chunk, arena, out, err);
    oct_file_discard(&file);
    OCT_TRY(status);
    if ((*out)->kind != kind)
        return OCT_FAIL(err, OCT_E_CORRUPT,
                        "cannot load '%s': another type in checkpoint '%s', %s is required", key,
                        cp->dir, kind_name);
    return OCT_OK;
}

/* An INT, BOOL or FLOAT. */
static oct_status read_scalar(const oct_checkpoint *cp, const char *key, oct_pickle_kind kind,
                              const char *kind_name, oct_pickle_value *out, oct_err *err)
{
    const oct_arena_mark mark = oct_arena_save(cp->scratch);
    oct_pickle_value *value = NULL;
    const oct_status status = read_object(cp, key, kind, kind_name, cp->scratch, &value, err);
    if (status == OCT_OK)
        *out = *value;
    oct_arena_rewind(cp->scratch, mark);
    return status;
}

oct_status oct_checkpoint_read_int(const oct_checkpoint *checkpoint, const char *key,
                                   int64_t *value, oct_err *err)
{
    oct_pickle_value object;
    OCT_TRY(read_scalar(checkpoint, key, OCT_PICKLE_INT, "an int", &object, err));
    *value = object.u.integer;
    return OCT_OK;
}

oct_status oct_checkpoint_read_float(const oct_checkpoint *checkpoint, const char *key,
                                     double *value, oct_err *err)
{
    oct_pickle_value object;
    OCT_TRY(read_scalar(checkpoint, key, OCT_PICKLE_FLOAT, "a float", &object, err));
    *value = object.u.real;
    return OCT_OK;
}

oct_status oct_checkpoint_read_bool(const oct_checkpoint *checkpoint, const char *key, bool *value,
                                    oct_err *err)
{
    oct_pickle_value object;
    OCT_TRY(read_scalar(checkpoint, key, OCT_PICKLE_BOOL, "a bool", &object, err));
    *value = object.u.integer != 0;
    return OCT_OK;
}

oct_status oct_checkpoint_read_string(const oct_checkpoint *checkpoint, const char *key,
                                      oct_arena *arena, const char **value, oct_err *err)
{
    oct_pickle_value *object = NULL;
    OCT_TRY(read_object(checkpoint, key, OCT_PICKLE_STRING, "a str", arena, &object, err));
    *value = object->u.text.data;
    return OCT_OK;
}

oct_status oct_checkpoint_read_bytes(const oct_checkpoint *checkpoint, const char *key,
                                     oct_arena *arena, const void **value, int64_t *bytes,
                                     oct_err *err)
{
    oct_pickle_value *object = NULL;
    OCT_TRY(read_object(checkpoint, key, OCT_PICKLE_BYTES, "bytes", arena, &object, err));
    *value = object->u.text.data;
    *bytes = object->u.text.bytes;
    return OCT_OK;
}

oct_status oct_checkpoint_read_ints(const oct_checkpoint *checkpoint, const char *key,
                                    oct_arena *arena, const int64_t **values, int64_t *count,
                                    oct_err *err)
{
    oct_pickle_value *object = NULL;
    void *memory = NULL;
    OCT_TRY(read_object(checkpoint, key, OCT_PICKLE_LIST, "a list", arena, &object, err));
    OCT_TRY(oct_arena_array(arena, object->u.list.count, sizeof **values, &memory, err));
    int64_t *copy = memory;
    for (int64_t i = 0; i < object->u.list.count; i++) {
        if (object->u.list.items[i]->kind != OCT_PICKLE_INT)
            return OCT_FAIL(err, OCT_E_CORRUPT,
                            "cannot load '%s': item %lld is no int in checkpoint '%s'", key,
                            (long long)i, checkpoint->dir);
        copy[i] = object->u.list.items[i]->u.integer;
    }
    *values = copy;
    *count = object->u.list.count;
    return OCT_OK;
}

/* --- verifying ----------------------------------------------------------------------------- */

typedef struct verify_job {
    oct_checkpoint_report report;
    void *arg;
    oct_status status; /* of the first failure */
    oct_err *err;
} verify_job;

/* Passes one result on and keeps the first failure. */
static void note_result(verify_job *job, const char *file, int64_t bytes, oct_status status,
                        const oct_err *err)
{
    if (job->report)
        job->report(job->arg, file, bytes, status == OCT_OK ? NULL : err->msg);
    if (status != OCT_OK && job->status == OCT_OK) {
        job->status = status;
        if (job->err)
            *job->err = *err;
    }
}

static oct_status check_archives(const oct_checkpoint *cp, oct_err *err)
{
    for (int64_t i = 0; i < cp->metadata.chunk_count; i++) {
        const oct_dcp_chunk *chunk = &cp->metadata.chunks[i];
        char path[OCT_PATH_BYTES];
        oct_file file;
        OCT_TRY(open_chunk(cp, chunk, path, &file, err));
        const oct_status status =
            oct_dcp_check_chunk(&file, &cp->metadata.entries[chunk->item], chunk, cp->scratch, err);
        oct_file_discard(&file);
        OCT_TRY(status);
    }
    return OCT_OK;
}

oct_status oct_checkpoint_verify(const oct_file_table *files, const char *dir,
                                 oct_checkpoint_report report, void *arg, oct_err *err)
{
    verify_job job = {.report = report, .arg = arg, .err = err};
    oct_checkpoint *cp = NULL;
    oct_err problem = {0};
    OCT_TRY(new_checkpoint(files, dir, &cp, err));
    oct_status status = read_commit(cp, NULL, NULL, &problem);
    if (status != OCT_OK || cp->has_commit)
        note_result(&job, OCT_COMMIT_FILE, cp->bytes, status, &problem);
    for (int64_t i = 0; i < cp->commit.file_count; i++) {
        const oct_commit_file *file = &cp->commit.files[i];
        status = check_file(cp, file, true, &problem);
        note_result(&job, file->name, (int64_t)file->bytes, status, &problem);
    }
    /* What the files mean is worth looking at only if they are the files that were written. */
    if (job.status == OCT_OK) {
        status = read_metadata(cp, &problem);
        if (status == OCT_OK)
            status = check_places(cp, &problem);
        if (status == OCT_OK)
            status = check_archives(cp, &problem);
        if (status != OCT_OK || !cp->has_commit)
            note_result(&job, OCT_METADATA_FILE, cp->has_commit ? 0 : cp->bytes, status, &problem);
    }
    oct_checkpoint_close(cp);
    return job.status;
}
