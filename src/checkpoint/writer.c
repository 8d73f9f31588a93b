#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/fault.h"
#include "base/profile.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/commit.h"
#include "checkpoint/dcp.h"
#include "checkpoint/layout.h"
#include "checkpoint/publish.h"

enum { DEFAULT_CHUNK_BYTES = 1 << 30, DATA_NAME_BYTES = 32 };

/* What each rank is about to save; exchanged before anything is written. */
typedef struct save_plan {
    int64_t step;
    uint64_t bytes;    /* of its part, at most */
    uint32_t list_crc; /* of all keys, kinds, dtypes and shapes */
    uint32_t tag;      /* of the temporary directory: rank 0's counts */
} save_plan;

/* What each rank has written. */
typedef struct data_record {
    int64_t chunk_count;
    uint64_t bytes;
    uint32_t crc;
    uint32_t unused;
} data_record;

/* One save. Its thread reads the writer and this, and writes to the last part of this. */
typedef struct save_job {
    int64_t step;
    uint32_t tag;
    const oct_item_list *list;
    char *config_hash, *model_json;
    char dir[OCT_PATH_BYTES]; /* step-N.tmp-<tag> */

    oct_dcp_chunk *chunks; /* of this rank */
    data_record data;
    int fault_rank; /* that of the thread that saves, for its helper */
    oct_status status;
    oct_err err;
} save_job;

struct oct_checkpoint_writer {
    const oct_file_table *files;
    oct_comm *comm; /* NULL: one rank */
    oct_dcp_part part;
    oct_arena arena; /* of what follows up to `sizes` */
    char *root;
    char (*data_names)[DATA_NAME_BYTES]; /* [ranks] */
    save_plan *plans;                    /* [ranks] */
    data_record *data;                   /* [ranks] */
    oct_commit_file *records;            /* [ranks + 1] */
    size_t *sizes;                       /* [ranks], for the exchanges */
    int64_t keep_latest_k, chunk_bytes;
    oct_checkpoint_warning warn; /* NULL on other ranks than 0 */
    void *warn_arg;
    uint64_t saves; /* started so far: part of the tag */
    bool is_running;
    pthread_t thread;
    pthread_mutex_t lock; /* of is_done */
    pthread_cond_t done;
    bool is_done;
    atomic_ullong flushed; /* bytes that the thread gave to its file */
    save_job job;
};

/* --- all ranks ----------------------------------------------------------------------------- */

static void enter_phase(const oct_checkpoint_writer *writer)
{
    if (writer->comm)
        oct_comm_phase(writer->comm, "saving a checkpoint", NULL);
}

/* What all ranks make of `status`. err is not NULL. */
static oct_status agree(const oct_checkpoint_writer *writer, oct_status status, oct_err *err)
{
    return writer->comm ? oct_comm_agree(writer->comm, status, err) : status;
}

static bool is_broken(const oct_checkpoint_writer *writer)
{
    return writer->comm && oct_comm_is_broken(writer->comm);
}

/* Every rank gives `bytes` bytes; `all` gets those of all ranks. */
static oct_status exchange(const oct_checkpoint_writer *writer, const void *own, size_t bytes,
                           void *all, oct_err *err)
{
    if (!writer->comm) {
        memcpy(all, own, bytes);
        return OCT_OK;
    }
    for (int r = 0; r < writer->part.size; r++)
        writer->sizes[r] = bytes;
    return oct_comm_all_gather(writer->comm, own, writer->sizes, all, err);
}

/* --- the thread ---------------------------------------------------------------------------- */

/* This rank's data file, durable. */
static oct_status write_data(oct_checkpoint_writer *writer, save_job *job, oct_err *err)
{
    char path[OCT_PATH_BYTES];
    oct_stream stream;
    const char *name = writer->data_names[writer->part.rank];
    OCT_TRY(oct_path_join(job->dir, name, path, sizeof path, err));
    const uint64_t bytes = oct_dcp_estimate_bytes(job->list, writer->part, writer->chunk_bytes);
    oct_status status = oct_stream_create(writer->files, path, bytes, &stream, err);
    stream.flushed = &writer->flushed;
    if (status == OCT_OK)
        status = oct_dcp_write_items(&stream, name, job->list, writer->part, writer->chunk_bytes,
                                     &job->chunks, &job->data.chunk_count, err);
    if (status == OCT_OK && oct_fault("checkpoint.data"))
        status = OCT_FAIL(err, OCT_E_IO, "cannot write '%s': fault point", path);
    if (status == OCT_OK)
        status = oct_stream_finish(&stream, err);
    oct_stream_discard(&stream);
    job->data.bytes = stream.bytes;
    job->data.crc = stream.crc;
    return status;
}

/* What rank 0 does with the chunks of all ranks; writer->data is complete. */
static oct_status publish(const oct_checkpoint_writer *writer, oct_dcp_chunk *chunks,
                          int64_t chunk_count, oct_err *err)
{
    const save_job *job = &writer->job;
    for (int r = 0; r < writer->part.size; r++)
        writer->records[r] = (oct_commit_file){.name = writer->data_names[r],
                                               .bytes = writer->data[r].bytes,
                                               .crc = writer->data[r].crc};
    const oct_publication publication = {.files = writer->files,
                                         .root = writer->root,
                                         .step = job->step,
                                         .tag = job->tag,
                                         .list = job->list,
                                         .chunks = chunks,
                                         .chunk_count = chunk_count,
                                         .records = writer->records,
                                         .world = writer->part.size,
                                         .config_hash = job->config_hash,
                                         .model_json = job->model_json,
                                         .keep_latest_k = writer->keep_latest_k,
                                         .warn = writer->warn,
                                         .warn_arg = writer->warn_arg};
    return oct_publish(&publication, err);
}

/* File I/O only: everything that needs no other rank. */
static void *save_thread(void *arg)
{
    oct_checkpoint_writer *writer = arg;
    save_job *job = &writer->job;
    oct_fault_set_rank(job->fault_rank);
    job->status = write_data(writer, job, &job->err);
    if (job->status == OCT_OK && writer->part.size == 1) {
        writer->data[0] = job->data;
        job->status = publish(writer, job->chunks, job->data.chunk_count, &job->err);
    }
    if (job->status != OCT_OK)
        (void)OCT_WRAP(&job->err, job->status, "saving step %lld", (long long)job->step);
    pthread_mutex_lock(&writer->lock);
    writer->is_done = true;
    pthread_cond_signal(&writer->done);
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

/* Signals are for the step loop, and a write past RLIMIT_FSIZE has to come back as EFBIG instead of
 * killing the run: what writes files takes none. */
static void block_signals(sigset_t *before)
{
    sigset_t all;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, before);
}

static oct_status start_thread(oct_checkpoint_writer *writer, oct_err *err)
{
    sigset_t before;
    writer->is_done = false;
    block_signals(&before);
    writer->job.fault_rank = oct_fault_rank();
    const int result = pthread_create(&writer->thread, NULL, save_thread, writer);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result != 0)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot save step %lld: no thread (error %d)",
                        (long long)writer->job.step, result);
    writer->is_running = true;
    return OCT_OK;
}

/* Other ranks wait for this one as long as its file grows. */
static void wait_for_thread(oct_checkpoint_writer *writer)
{
    enum { POLL_NANOSECONDS = 100000000 };
    unsigned long long seen = 0;
    pthread_mutex_lock(&writer->lock);
    while (!writer->is_done) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += POLL_NANOSECONDS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&writer->done, &writer->lock, &until);
        const unsigned long long flushed = atomic_load(&writer->flushed);
        if (writer->comm && flushed != seen)
            oct_comm_progress(writer->comm);
        seen = flushed;
    }
    pthread_mutex_unlock(&writer->lock);
}

static void join_save(oct_checkpoint_writer *writer)
{
    if (!writer->is_running)
        return;
    wait_for_thread(writer);
    (void)pthread_join(writer->thread, NULL);
    writer->is_running = false;
}

static void release_job(save_job *job)
{
    free(job->config_hash);
    free(job->model_json);
    free(job->chunks);
    *job = (save_job){0};
}

/* --- starting ------------------------------------------------------------------------------ */

/* CRC-32 of what all ranks have to list alike. */
static uint32_t list_crc(const oct_item_list *list)
{
    uLong crc = crc32(0, NULL, 0);
    for (int64_t i = 0; i < list->count; i++) {
        const oct_item *item = &list->items[i];
        const int64_t words[4] = {item->kind, item->dtype, item->ndim, item->sharded};
        crc = crc32_z(crc, (const unsigned char *)item->key, strlen(item->key) + 1);
        crc = crc32_z(crc, (const unsigned char *)words, sizeof words);
        crc = crc32_z(crc, (const unsigned char *)item->shape,
                      (size_t)item->ndim * sizeof *item->shape);
    }
    return (uint32_t)crc;
}

static oct_status prepare(oct_checkpoint_writer *writer, int64_t step, const oct_item_list *list,
                          const oct_checkpoint_meta *meta, oct_err *err)
{
    save_job *job = &writer->job;
    *job = (save_job){.step = step,
                      .list = list,
                      .config_hash = strdup(meta->config_hash ? meta->config_hash : ""),
                      .model_json = strdup(meta->model_json ? meta->model_json : "null")};
    if (step < 0)
        return OCT_FAIL(err, OCT_E_API, "cannot save step %lld: 0 or more is required",
                        (long long)step);
    if (!job->config_hash || !job->model_json)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot save step %lld: no memory", (long long)step);
    return OCT_OK;
}

/* The same on every rank, from the plans of all. */
static oct_status check_plans(const oct_checkpoint_writer *writer, oct_err *err)
{
    const save_plan *plans = writer->plans;
    for (int r = 1; r < writer->part.size; r++) {
        if (plans[r].step == plans[0].step && plans[r].list_crc == plans[0].list_crc)
            continue;
        const oct_status status =
            plans[r].step != plans[0].step
                ? OCT_FAIL(err, OCT_E_API,
                           "cannot save step %lld: step %lld on rank %d, the same on all ranks is "
                           "required",
                           (long long)plans[0].step, (long long)plans[r].step, r)
                : OCT_FAIL(err, OCT_E_API,
                           "cannot save step %lld: rank %d lists other keys, dtypes or shapes than "
                           "rank 0, the same are required",
                           (long long)plans[0].step, r);
        err->rank = r;
        return status;
    }
    return OCT_OK;
}

static oct_status exchange_plans(oct_checkpoint_writer *writer, oct_err *err)
{
    save_job *job = &writer->job;
    const uint64_t now = (uint64_t)(oct_clock_seconds() * 1e9);
    const save_plan own = {
        .step = job->step,
        .bytes = oct_dcp_estimate_bytes(job->list, writer->part, writer->chunk_bytes),
        .list_crc = list_crc(job->list),
        .tag = (uint32_t)oct_rng_u64(oct_rng_stream(now, "checkpoint"),
                                     ((uint64_t)getpid() << 32) + writer->saves++)};
    OCT_TRY(exchange(writer, &own, sizeof own, writer->plans, err));
    OCT_TRY(check_plans(writer, err));
    job->tag = writer->plans[0].tag;
    return OCT_OK;
}

static oct_status check_free_space(const oct_checkpoint_writer *writer, oct_err *err)
{
    uint64_t available = 0, bytes = 0;
    for (int r = 0; r < writer->part.size; r++)
        bytes += writer->plans[r].bytes;
    const uint64_t required = bytes + bytes / 20;
    OCT_TRY(oct_file_free_space(writer->files, writer->root, &available, err));
    if (available >= required)
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_IO, "cannot save below '%s': %llu bytes are free, %llu are required",
                    writer->root, (unsigned long long)available, (unsigned long long)required);
}

/* The temporary directory, made by rank 0. */
static oct_status make_directory(oct_checkpoint_writer *writer, oct_err *err)
{
    save_job *job = &writer->job;
    OCT_TRY(oct_layout_path(writer->root, OCT_LAYOUT_TMP, job->step, job->tag, job->dir, err));
    if (writer->part.rank != 0)
        return OCT_OK;
    OCT_TRY(check_free_space(writer, err));
    return oct_file_mkdir(writer->files, job->dir, err);
}

/* Rank 0 removes what a failed save wrote, once no rank has a file open in it. A broken comm cannot
 * tell whether that is so: then the next start does it. */
static void abandon(const oct_checkpoint_writer *writer)
{
    if (writer->part.rank == 0 && !is_broken(writer))
        oct_publish_remove(writer->files, writer->job.dir, writer->warn, writer->warn_arg);
}

/* A thread on every rank, or on none. */
static oct_status start_threads(oct_checkpoint_writer *writer, oct_err *err)
{
    const oct_status status = agree(writer, start_thread(writer, err), err);
    if (status == OCT_OK)
        return OCT_OK;
    join_save(writer);
    if (!writer->comm || oct_comm_barrier(writer->comm, NULL) == OCT_OK)
        abandon(writer);
    return status;
}

static oct_status begin(oct_checkpoint_writer *writer, int64_t step, const oct_item_list *list,
                        const oct_checkpoint_meta *meta, oct_err *err)
{
    enter_phase(writer);
    OCT_TRY(agree(writer, prepare(writer, step, list, meta, err), err));
    OCT_TRY(exchange_plans(writer, err));
    oct_status status = make_directory(writer, err);
    if (status != OCT_OK)
        (void)OCT_WRAP(err, status, "saving step %lld", (long long)step);
    OCT_TRY(agree(writer, status, err));
    return start_threads(writer, err);
}

oct_status oct_checkpoint_start(oct_checkpoint_writer *writer, int64_t step,
                                const oct_item_list *list, const oct_checkpoint_meta *meta,
                                oct_err *err)
{
    oct_err unread = {0};
    int64_t saved = -1;
    if (!err)
        err = &unread;
    OCT_TRY(oct_checkpoint_wait(writer, &saved, err));
    const oct_status status = begin(writer, step, list, meta, err);
    if (status != OCT_OK)
        release_job(&writer->job);
    return status;
}

/* --- ending -------------------------------------------------------------------------------- */

/* Room for the chunks of all ranks, on rank 0. */
static oct_status chunk_room(const oct_checkpoint_writer *writer, oct_dcp_chunk **out,
                             int64_t *count, oct_err *err)
{
    *out = NULL;
    *count = 0;
    for (int r = 0; r < writer->part.size; r++) {
        writer->sizes[r] = (size_t)writer->data[r].chunk_count * sizeof **out;
        *count += writer->data[r].chunk_count;
    }
    if (writer->part.rank != 0)
        return OCT_OK;
    *out = calloc((size_t)*count + 1, sizeof **out);
    if (!*out)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot save step %lld: no memory for %lld chunks",
                        (long long)writer->job.step, (long long)*count);
    return OCT_OK;
}

static oct_status gather_and_publish(oct_checkpoint_writer *writer, oct_dcp_chunk *chunks,
                                     int64_t chunk_count, oct_err *err)
{
    OCT_TRY(oct_comm_gather(writer->comm, writer->job.chunks, writer->sizes, chunks, err));
    oct_status status = OCT_OK;
    if (writer->part.rank == 0) {
        sigset_t before;
        oct_dcp_chunk *chunk = chunks;
        for (int r = 0; r < writer->part.size; r++) /* their pointers are another rank's */
            for (int64_t i = 0; i < writer->data[r].chunk_count; i++)
                (chunk++)->file = writer->data_names[r];
        block_signals(&before);
        status = publish(writer, chunks, chunk_count, err);
        if (status != OCT_OK) {
            (void)OCT_WRAP(err, status, "saving step %lld", (long long)writer->job.step);
            abandon(writer);
        }
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return agree(writer, status, err);
}

/* The data files of all ranks are complete: rank 0 makes a checkpoint of them. */
static oct_status publish_together(oct_checkpoint_writer *writer, oct_err *err)
{
    oct_dcp_chunk *chunks = NULL;
    int64_t chunk_count = 0;
    OCT_TRY(exchange(writer, &writer->job.data, sizeof writer->job.data, writer->data, err));
    oct_status status = agree(writer, chunk_room(writer, &chunks, &chunk_count, err), err);
    if (status == OCT_OK)
        status = gather_and_publish(writer, chunks, chunk_count, err);
    else
        abandon(writer);
    free(chunks);
    return status;
}

oct_status oct_checkpoint_wait(oct_checkpoint_writer *writer, int64_t *saved_step, oct_err *err)
{
    oct_err unread = {0};
    if (!err)
        err = &unread;
    *saved_step = -1;
    if (!writer->is_running) /* on all ranks */
        return is_broken(writer) ? oct_comm_agree(writer->comm, OCT_OK, err) : OCT_OK;
    enter_phase(writer);
    join_save(writer);
    save_job *job = &writer->job;
    if (job->status != OCT_OK)
        *err = job->err;
    oct_status status = agree(writer, job->status, err);
    if (status != OCT_OK)
        abandon(writer);
    else if (writer->part.size > 1)
        status = publish_together(writer, err);
    if (status == OCT_OK)
        *saved_step = job->step;
    release_job(job);
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

/* --- life ---------------------------------------------------------------------------------- */

static oct_status allocate(oct_checkpoint_writer *writer, const char *root, oct_err *err)
{
    const int ranks = writer->part.size;
    const size_t sizes[] = {sizeof *writer->data_names, sizeof *writer->plans, sizeof *writer->data,
                            sizeof *writer->records, sizeof *writer->sizes};
    void *memory[5], *copy = NULL;
    for (int i = 0; i < 5; i++)
        OCT_TRY(oct_arena_array(&writer->arena, ranks + 1, sizes[i], &memory[i], err));
    OCT_TRY(oct_arena_alloc(&writer->arena, strlen(root) + 1, &copy, err));
    writer->data_names = memory[0];
    writer->plans = memory[1];
    writer->data = memory[2];
    writer->records = memory[3];
    writer->sizes = memory[4];
    writer->root = memcpy(copy, root, strlen(root) + 1);
    for (int r = 0; r < ranks; r++)
        (void)snprintf(writer->data_names[r], DATA_NAME_BYTES, "__%d_0.distcp", r);
    return OCT_OK;
}

/* Everything but the agreement. */
static oct_status create(const oct_checkpoint_options *options, oct_checkpoint_writer **out,
                         oct_err *err)
{
    oct_comm *comm = options->comm;
    const oct_dcp_part part = {comm ? oct_comm_rank(comm) : 0, comm ? oct_comm_size(comm) : 1};
    oct_checkpoint_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot write checkpoints to '%s': no memory",
                        options->root);
    *writer = (oct_checkpoint_writer){
        .files = options->files ? options->files : &oct_file_table_real,
        .comm = comm,
        .part = part,
        .keep_latest_k = options->keep_latest_k,
        .chunk_bytes = options->chunk_bytes > 0 ? options->chunk_bytes : DEFAULT_CHUNK_BYTES,
        .warn = part.rank == 0 ? options->warn : NULL,
        .warn_arg = options->warn_arg};
    (void)pthread_mutex_init(&writer->lock, NULL);
    (void)pthread_cond_init(&writer->done, NULL);
    oct_arena_init(&writer->arena, "checkpoint writer");
    *out = writer;
    OCT_TRY(allocate(writer, options->root, err));
    if (part.rank != 0)
        return OCT_OK;
    OCT_TRY(oct_file_make_dirs(writer->files, writer->root, err));
    return oct_layout_sweep(writer->files, writer->root, writer->warn, writer->warn_arg, err);
}

static void release(oct_checkpoint_writer *writer)
{
    if (!writer)
        return;
    release_job(&writer->job);
    oct_arena_release(&writer->arena);
    (void)pthread_cond_destroy(&writer->done);
    (void)pthread_mutex_destroy(&writer->lock);
    free(writer);
}

oct_status oct_checkpoint_writer_create(const oct_checkpoint_options *options,
                                        oct_checkpoint_writer **out, oct_err *err)
{
    oct_err unread = {0};
    if (!err)
        err = &unread;
    oct_checkpoint_writer *writer = NULL;
    oct_status status = create(options, &writer, err);
    if (options->comm) {
        oct_comm_phase(options->comm, "preparing checkpoints", NULL);
        status = oct_comm_agree(options->comm, status, err);
    }
    if (status != OCT_OK)
        release(writer);
    else
        *out = writer;
    return status;
}

void oct_checkpoint_writer_destroy(oct_checkpoint_writer *writer)
{
    if (!writer)
        return;
    if (writer->part.size == 1) {
        int64_t saved = -1;
        const oct_status status = oct_checkpoint_wait(writer, &saved, NULL);
        (void)status; /* its place to be told was a wait before */
    }
    join_save(writer);
    release(writer);
}
