#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/profile.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/commit.h"
#include "checkpoint/dcp.h"
#include "checkpoint/layout.h"

enum { DEFAULT_CHUNK_BYTES = 1 << 30, WORLD = 1 };
static const char DATA_FILE[] = "__0_0.distcp";

/* One save. Everything it needs is here, so that the thread shares nothing else with its starter.
 */
typedef struct save_job {
    int64_t step;
    uint32_t tag; /* of its temporary names */
    const oct_item_list *list;
    char *config_hash, *model_json;
    oct_status status;
    oct_err err;
} save_job;

struct oct_checkpoint_writer {
    const oct_file_table *files;
    char *root;
    int64_t keep_latest_k, chunk_bytes;
    oct_checkpoint_warning warn;
    void *warn_arg;
    uint64_t saves; /* started so far: part of the tag */
    bool is_running;
    pthread_t thread;
    save_job job;
};

static void warn(const oct_checkpoint_writer *writer, const char *line)
{
    if (writer->warn)
        writer->warn(writer->warn_arg, line);
}

/* --- one save ------------------------------------------------------------------------------ */

/* Names that one save works with. */
typedef struct save_paths {
    char final[OCT_PATH_BYTES], tmp[OCT_PATH_BYTES], replaced[OCT_PATH_BYTES];
} save_paths;

static oct_status check_free_space(const oct_checkpoint_writer *writer, const save_job *job,
                                   oct_err *err)
{
    uint64_t available = 0;
    const uint64_t bytes = oct_dcp_estimate_bytes(job->list, writer->chunk_bytes);
    const uint64_t required = bytes + bytes / 20;
    OCT_TRY(oct_file_free_space(writer->files, writer->root, &available, err));
    if (available >= required)
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_IO, "cannot save below '%s': %llu bytes are free, %llu are required",
                    writer->root, (unsigned long long)available, (unsigned long long)required);
}

/* A whole small file, synced; its size and CRC go to *record. */
static oct_status write_file(const oct_checkpoint_writer *writer, const char *dir, const char *name,
                             const void *data, size_t bytes, oct_commit_file *record, oct_err *err)
{
    char path[OCT_PATH_BYTES];
    oct_stream stream;
    OCT_TRY(oct_path_join(dir, name, path, sizeof path, err));
    oct_status status = oct_stream_create(writer->files, path, bytes, &stream, err);
    if (status == OCT_OK)
        status = oct_stream_write(&stream, data, bytes, NULL, err);
    if (status == OCT_OK)
        status = oct_stream_finish(&stream, err);
    oct_stream_discard(&stream);
    *record = (oct_commit_file){.name = name, .bytes = stream.bytes, .crc = stream.crc};
    return status;
}

static oct_status write_data(const oct_checkpoint_writer *writer, const save_job *job,
                             const char *dir, oct_dcp_chunk **chunks, int64_t *chunk_count,
                             oct_commit_file *record, oct_err *err)
{
    char path[OCT_PATH_BYTES];
    oct_stream stream;
    OCT_TRY(oct_path_join(dir, DATA_FILE, path, sizeof path, err));
    const uint64_t bytes = oct_dcp_estimate_bytes(job->list, writer->chunk_bytes);
    oct_status status = oct_stream_create(writer->files, path, bytes, &stream, err);
    if (status == OCT_OK)
        status = oct_dcp_write_items(&stream, DATA_FILE, job->list, writer->chunk_bytes, chunks,
                                     chunk_count, err);
    if (status == OCT_OK)
        status = oct_stream_finish(&stream, err);
    oct_stream_discard(&stream);
    *record = (oct_commit_file){.name = DATA_FILE, .bytes = stream.bytes, .crc = stream.crc};
    return status;
}

/* Reads the metadata back as a loader would: a key used twice or rows that nobody wrote must not be
 * found out by the next run. */
static oct_status write_metadata(const oct_checkpoint_writer *writer, const save_job *job,
                                 const char *dir, const oct_dcp_chunk *chunks, int64_t chunk_count,
                                 oct_commit_file *record, oct_err *err)
{
    oct_pickle_writer pickle = {0};
    oct_dcp_metadata check = {0};
    oct_status status = oct_dcp_write_metadata(job->list, chunks, chunk_count, &pickle, err);
    if (status == OCT_OK) {
        status = oct_dcp_read_metadata(pickle.data, pickle.bytes, OCT_METADATA_FILE, &check, err);
        oct_dcp_metadata_release(&check);
    }
    if (status == OCT_OK)
        status = write_file(writer, dir, OCT_METADATA_FILE, pickle.data, pickle.bytes, record, err);
    oct_pickle_writer_release(&pickle);
    return status;
}

static oct_status write_commit(const oct_checkpoint_writer *writer, const save_job *job,
                               const char *dir, const oct_commit_file *files, int64_t file_count,
                               oct_err *err)
{
    const oct_commit commit = {.step = job->step,
                               .world = WORLD,
                               .config_hash = job->config_hash,
                               .model_json = job->model_json,
                               .files = files,
                               .file_count = file_count};
    oct_json json;
    oct_commit_file record;
    oct_json_init(&json);
    oct_status status = oct_commit_write(&commit, &json, err);
    if (status == OCT_OK)
        status = write_file(writer, dir, OCT_COMMIT_FILE, json.text, json.bytes, &record, err);
    oct_json_release(&json);
    return status;
}

/* Everything inside the temporary directory, COMMIT.json last, all of it durable. */
static oct_status write_directory(const oct_checkpoint_writer *writer, const save_job *job,
                                  const char *dir, oct_err *err)
{
    oct_commit_file files[2];
    oct_dcp_chunk *chunks = NULL;
    int64_t chunk_count = 0;
    oct_status status = write_data(writer, job, dir, &chunks, &chunk_count, &files[0], err);
    if (status == OCT_OK)
        status = write_metadata(writer, job, dir, chunks, chunk_count, &files[1], err);
    free(chunks);
    OCT_TRY(status);
    OCT_TRY(write_commit(writer, job, dir, files, 2, err));
    return oct_file_sync_dir(writer->files, dir, err);
}

/* Makes the directory visible under its final name. An older step-N steps aside first and comes
 * back if anything fails (oct_layout_sweep does that after a kill). */
static oct_status publish(const oct_checkpoint_writer *writer, const save_paths *paths,
                          bool *has_replaced, oct_err *err)
{
    const oct_file_table *files = writer->files;
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
        status = oct_file_sync_dir(files, writer->root, err);
        if (status == OCT_OK)
            return OCT_OK;
        /* Not known to be durable: it must not be seen as saved. */
        (void)files->rename_new(files, paths->final, paths->tmp);
    }
    if (*has_replaced)
        (void)files->rename_new(files, paths->replaced, paths->final);
    return status;
}

static oct_status save_paths_init(const oct_checkpoint_writer *writer, const save_job *job,
                                  save_paths *out, oct_err *err)
{
    OCT_TRY(oct_layout_path(writer->root, OCT_LAYOUT_STEP, job->step, 0, out->final, err));
    OCT_TRY(oct_layout_path(writer->root, OCT_LAYOUT_TMP, job->step, job->tag, out->tmp, err));
    return oct_layout_path(writer->root, OCT_LAYOUT_REPLACED, job->step, job->tag, out->replaced,
                           err);
}

/* Removes a directory that nobody looks at any more; the sweep of the next start tries again. */
static void remove_or_warn(const oct_checkpoint_writer *writer, const char *dir)
{
    oct_err err = {0};
    char line[sizeof err.msg + 64];
    if (oct_file_remove_dir(writer->files, dir, &err) == OCT_OK)
        return;
    (void)snprintf(line, sizeof line, "a leftover stays: %s", err.msg);
    warn(writer, line);
}

/* The commit stands whatever happens here. */
static void prune_or_warn(const oct_checkpoint_writer *writer, uint32_t tag)
{
    oct_err err = {0};
    char line[sizeof err.msg + 64];
    if (oct_layout_prune(writer->files, writer->root, writer->keep_latest_k, tag, &err) == OCT_OK)
        return;
    (void)snprintf(line, sizeof line, "old checkpoints stay: %s", err.msg);
    warn(writer, line);
}

static oct_status run_save(const oct_checkpoint_writer *writer, const save_job *job, oct_err *err)
{
    save_paths paths;
    bool has_replaced = false;
    OCT_TRY(save_paths_init(writer, job, &paths, err));
    OCT_TRY(check_free_space(writer, job, err));
    OCT_TRY(oct_file_mkdir(writer->files, paths.tmp, err));
    oct_status status = write_directory(writer, job, paths.tmp, err);
    if (status == OCT_OK)
        status = publish(writer, &paths, &has_replaced, err);
    if (status != OCT_OK) {
        remove_or_warn(writer, paths.tmp);
        return OCT_WRAP(err, status, "saving step %lld", (long long)job->step);
    }
    if (has_replaced)
        remove_or_warn(writer, paths.replaced);
    prune_or_warn(writer, job->tag);
    return OCT_OK;
}

/* --- the thread ---------------------------------------------------------------------------- */

static void *save_thread(void *arg)
{
    oct_checkpoint_writer *writer = arg;
    save_job *job = &writer->job;
    job->status = run_save(writer, job, &job->err);
    return NULL;
}

static void release_job(save_job *job)
{
    free(job->config_hash);
    free(job->model_json);
    *job = (save_job){0};
}

/* The thread takes no signal: they are for the step loop, and a write past RLIMIT_FSIZE has to come
 * back as EFBIG instead of killing the run. */
static int start_thread(oct_checkpoint_writer *writer)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int result = pthread_create(&writer->thread, NULL, save_thread, writer);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

oct_status oct_checkpoint_start(oct_checkpoint_writer *writer, int64_t step,
                                const oct_item_list *list, const oct_checkpoint_meta *meta,
                                oct_err *err)
{
    int64_t saved = -1;
    OCT_TRY(oct_checkpoint_wait(writer, &saved, err));
    if (step < 0)
        return OCT_FAIL(err, OCT_E_API, "cannot save step %lld: 0 or more is required",
                        (long long)step);
    save_job *job = &writer->job;
    *job = (save_job){.step = step,
                      .list = list,
                      .config_hash = strdup(meta->config_hash ? meta->config_hash : ""),
                      .model_json = strdup(meta->model_json ? meta->model_json : "null")};
    const uint64_t now = (uint64_t)(oct_clock_seconds() * 1e9);
    job->tag = (uint32_t)oct_rng_u64(oct_rng_stream(now, "checkpoint"),
                                     ((uint64_t)getpid() << 32) + writer->saves++);
    if (!job->config_hash || !job->model_json) {
        release_job(job);
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot save step %lld: no memory", (long long)step);
    }
    const int result = start_thread(writer);
    if (result != 0) {
        release_job(job);
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot save step %lld: no thread (error %d)",
                        (long long)step, result);
    }
    writer->is_running = true;
    return OCT_OK;
}

static void join_save(oct_checkpoint_writer *writer)
{
    if (writer->is_running)
        (void)pthread_join(writer->thread, NULL);
    writer->is_running = false;
}

oct_status oct_checkpoint_wait(oct_checkpoint_writer *writer, int64_t *saved_step, oct_err *err)
{
    *saved_step = -1;
    if (!writer->is_running)
        return OCT_OK;
    join_save(writer);
    const oct_status status = writer->job.status;
    if (status == OCT_OK)
        *saved_step = writer->job.step;
    else if (err)
        *err = writer->job.err;
    release_job(&writer->job);
    return status;
}

oct_status oct_checkpoint_save(oct_checkpoint_writer *writer, int64_t step,
                               const oct_item_list *list, const oct_checkpoint_meta *meta,
                               oct_err *err)
{
    int64_t saved = -1;
    OCT_TRY(oct_checkpoint_start(writer, step, list, meta, err));
    return oct_checkpoint_wait(writer, &saved, err);
}

oct_status oct_checkpoint_writer_create(const oct_checkpoint_options *options,
                                        oct_checkpoint_writer **out, oct_err *err)
{
    const oct_file_table *files = options->files ? options->files : &oct_file_table_real;
    OCT_TRY(oct_file_make_dirs(files, options->root, err));
    OCT_TRY(oct_layout_sweep(files, options->root, options->warn, options->warn_arg, err));
    oct_checkpoint_writer *writer = calloc(1, sizeof *writer);
    char *root = strdup(options->root);
    if (!writer || !root) {
        free(writer);
        free(root);
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot write checkpoints to '%s': no memory",
                        options->root);
    }
    *writer = (oct_checkpoint_writer){.files = files,
                                      .root = root,
                                      .keep_latest_k = options->keep_latest_k,
                                      .chunk_bytes = options->chunk_bytes > 0 ? options->chunk_bytes
                                                                              : DEFAULT_CHUNK_BYTES,
                                      .warn = options->warn,
                                      .warn_arg = options->warn_arg};
    *out = writer;
    return OCT_OK;
}

void oct_checkpoint_writer_destroy(oct_checkpoint_writer *writer)
{
    if (!writer)
        return;
    join_save(writer);
    release_job(&writer->job);
    free(writer->root);
    free(writer);
}
