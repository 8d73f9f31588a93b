#include "checkpoint/publish.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fault.h"
#include "checkpoint/layout.h"

/* The names that one save works with. */
typedef struct save_paths {
    char final[OCT_PATH_BYTES], tmp[OCT_PATH_BYTES], replaced[OCT_PATH_BYTES];
} save_paths;

static oct_status save_paths_init(const oct_publication *p, save_paths *out, oct_err *err)
{
    OCT_TRY(oct_layout_path(p->root, OCT_LAYOUT_STEP, p->step, 0, out->final, err));
    OCT_TRY(oct_layout_path(p->root, OCT_LAYOUT_TMP, p->step, p->tag, out->tmp, err));
    return oct_layout_path(p->root, OCT_LAYOUT_REPLACED, p->step, p->tag, out->replaced, err);
}

/* --- inside the temporary directory -------------------------------------------------------- */

/* What the other ranks wrote has to be what this rank sees: a root that is not on a shared file
 * system would give a checkpoint without their parts. */
static oct_status check_data_files(const oct_publication *p, const char *dir, oct_err *err)
{
    for (int64_t r = 0; r < p->world; r++) {
        char path[OCT_PATH_BYTES];
        oct_file_info info;
        OCT_TRY(oct_path_join(dir, p->records[r].name, path, sizeof path, err));
        OCT_TRY(oct_file_stat(p->files, path, &info, err));
        if (info.kind != OCT_FILE_REGULAR || info.bytes != p->records[r].bytes)
            return OCT_FAIL(err, OCT_E_IO,
                            "cannot find '%s' as rank %lld wrote it: %llu bytes here, %llu are "
                            "required (a file system that all ranks share)",
                            path, (long long)r, (unsigned long long)info.bytes,
                            (unsigned long long)p->records[r].bytes);
    }
    return OCT_OK;
}

/* A whole small file, synced; its size and CRC go to *record. */
static oct_status write_file(const oct_publication *p, const char *dir, const char *name,
                             const void *data, size_t bytes, oct_commit_file *record, oct_err *err)
{
    char path[OCT_PATH_BYTES];
    oct_stream stream;
    OCT_TRY(oct_path_join(dir, name, path, sizeof path, err));
    oct_status status = oct_stream_create(p->files, path, bytes, &stream, err);
    if (status == OCT_OK)
        status = oct_stream_write(&stream, data, bytes, NULL, err);
    if (status == OCT_OK)
        status = oct_stream_finish(&stream, err);
    oct_stream_discard(&stream);
    *record = (oct_commit_file){.name = name, .bytes = stream.bytes, .crc = stream.crc};
    return status;
}

static int compare_chunks(const void *left, const void *right)
{
    const oct_dcp_chunk *a = left, *b = right;
    if (a->item != b->item)
        return a->item < b->item ? -1 : 1;
    return (a->row_begin > b->row_begin) - (a->row_begin < b->row_begin);
}

/* Reads the metadata back as a loader would: a key used twice or rows that nobody wrote must not be
 * found out by the next run. */
static oct_status write_metadata(const oct_publication *p, const char *dir, oct_err *err)
{
    oct_pickle_writer pickle = {0};
    oct_dcp_metadata check = {0};
    if (p->chunk_count > 1)
        qsort(p->chunks, (size_t)p->chunk_count, sizeof *p->chunks, compare_chunks);
    oct_status status = oct_dcp_write_metadata(p->list, p->chunks, p->chunk_count, &pickle, err);
    if (status == OCT_OK) {
        status = oct_dcp_read_metadata(pickle.data, pickle.bytes, OCT_METADATA_FILE, &check, err);
        oct_dcp_metadata_release(&check);
    }
    if (status == OCT_OK)
        status = write_file(p, dir, OCT_METADATA_FILE, pickle.data, pickle.bytes,
                            &p->records[p->world], err);
    oct_pickle_writer_release(&pickle);
    return status;
}

static oct_status write_commit(const oct_publication *p, const char *dir, oct_err *err)
{
    const oct_commit commit = {.step = p->step,
                               .world = p->world,
                               .config_hash = p->config_hash,
                               .model_json = p->model_json,
                               .files = p->records,
                               .file_count = p->world + 1};
    oct_json json;
    oct_commit_file record;
    oct_json_init(&json);
    oct_status status = oct_commit_write(&commit, &json, err);
    if (status == OCT_OK)
        status = write_file(p, dir, OCT_COMMIT_FILE, json.text, json.bytes, &record, err);
    oct_json_release(&json);
    return status;
}

/* --- below the root ------------------------------------------------------------------------ */

/* Makes the directory visible under its final name. An older step-N steps aside first and comes
 * back if anything fails (oct_layout_sweep does that after a kill). */
static oct_status show(const oct_publication *p, const save_paths *paths, bool *has_replaced,
                       oct_err *err)
{
    const oct_file_table *files = p->files;
    oct_file_info info;
    OCT_TRY(oct_file_stat(files, paths->final, &info, err));
    *has_replaced = info.kind != OCT_FILE_NONE;
    oct_status status = OCT_OK;
    if (*has_replaced)
        status = oct_file_rename_new(files, paths->final, paths->replaced, err);
    if (status == OCT_OK)
        status = oct_fault("checkpoint.publish")
                     ? OCT_FAIL(err, OCT_E_IO, "cannot rename '%s': fault point", paths->tmp)
                     : oct_file_rename_new(files, paths->tmp, paths->final, err);
    if (status == OCT_OK) {
        status = oct_file_sync_dir(files, p->root, err);
        if (status == OCT_OK)
            return OCT_OK;
        /* Not known to be durable: it must not be seen as saved. */
        (void)files->rename_new(files, paths->final, paths->tmp);
    }
    if (*has_replaced)
        (void)files->rename_new(files, paths->replaced, paths->final);
    return status;
}

void oct_publish_remove(const oct_file_table *files, const char *dir, oct_checkpoint_warning warn,
                        void *warn_arg)
{
    oct_err err = {0};
    char line[sizeof err.msg + 64];
    if (oct_file_remove_dir(files, dir, &err) == OCT_OK || !warn)
        return;
    (void)snprintf(line, sizeof line, "a leftover stays: %s", err.msg);
    warn(warn_arg, line);
}

/* The commit stands whatever happens here. */
static void prune_or_warn(const oct_publication *p)
{
    oct_err err = {0};
    char line[sizeof err.msg + 64];
    if (oct_layout_prune(p->files, p->root, p->keep_latest_k, p->tag, &err) == OCT_OK || !p->warn)
        return;
    (void)snprintf(line, sizeof line, "old checkpoints stay: %s", err.msg);
    p->warn(p->warn_arg, line);
}

oct_status oct_publish(const oct_publication *publication, oct_err *err)
{
    const oct_publication *p = publication;
    save_paths paths;
    bool has_replaced = false;
    OCT_TRY(save_paths_init(p, &paths, err));
    OCT_TRY(check_data_files(p, paths.tmp, err));
    OCT_TRY(write_metadata(p, paths.tmp, err));
    if (oct_fault("checkpoint.commit"))
        return OCT_FAIL(err, OCT_E_IO, "cannot write in '%s': fault point", paths.tmp);
    OCT_TRY(write_commit(p, paths.tmp, err));
    OCT_TRY(oct_file_sync_dir(p->files, paths.tmp, err));
    OCT_TRY(show(p, &paths, &has_replaced, err));
    if (has_replaced)
        oct_publish_remove(p->files, paths.replaced, p->warn, p->warn_arg);
    prune_or_warn(p);
    return OCT_OK;
}
