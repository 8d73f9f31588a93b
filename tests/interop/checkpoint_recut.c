/* checkpoint_recut FROM ROOT RANKS CHUNK_BYTES: saves every key of the checkpoint FROM as
 * ROOT/step-N, cut over so many ranks (threads of this process) and chunks of at most so many
 * bytes. Matrices are cut in tiles of 16 rows, experts one by one; scalars and vectors are
 * replicated. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"

enum { MAX_RANKS = 64 };

typedef struct member {
    const char *from, *root;
    int64_t chunk_bytes;
    oct_comm *comm;
    oct_checkpoint *checkpoint;
    oct_arena arena;
    oct_item_list list;
    oct_status status;
    oct_err err;
} member;

/* This rank's rows. */
static oct_status add_tensor(member *m, const oct_checkpoint_entry *entry)
{
    const bool is_bf16 = strcmp(entry->dtype, "bfloat16") == 0;
    const oct_dtype dtype = is_bf16 ? OCT_DTYPE_BF16 : OCT_DTYPE_F32;
    const int64_t all = entry->ndim > 0 ? entry->shape[0] : 1;
    const int64_t unit = entry->ndim == 3 ? 1 : 16, tiles = (all + unit - 1) / unit;
    const int rank = oct_comm_rank(m->comm), ranks = oct_comm_size(m->comm);
    int64_t begin = 0, end = all, width = 1;
    if (entry->ndim > 1) {
        begin = tiles * rank / ranks * unit;
        end = rank == ranks - 1 ? all : tiles * (rank + 1) / ranks * unit;
    }
    for (int d = 1; d < entry->ndim; d++)
        width *= entry->shape[d];
    void *data = NULL;
    OCT_TRY(oct_arena_array(&m->arena, (end - begin) * width, sizeof(float), &data, &m->err));
    OCT_TRY(oct_checkpoint_read_rows(m->checkpoint, entry->key, entry->ndim, entry->shape, begin,
                                     end - begin, data, &m->err));
    if (entry->ndim > 1)
        return oct_item_add_shard(&m->list, entry->key, dtype, entry->ndim, entry->shape, begin,
                                  end - begin, data, &m->err);
    return oct_item_add_tensor(&m->list, entry->key, dtype, entry->ndim, entry->shape, data,
                               &m->err);
}

/* An int or a str of one group, "train_state.step". */
static oct_status add_object(member *m, const char *key)
{
    char group[64];
    int64_t integer = 0;
    const char *text = NULL, *dot = strrchr(key, '.');
    (void)snprintf(group, sizeof group, "%.*s", dot ? (int)(dot - key) : 0, key);
    if (oct_checkpoint_read_int(m->checkpoint, key, &integer, &m->err) == OCT_OK)
        return oct_item_add_int(&m->list, group, dot + 1, integer, &m->err);
    OCT_TRY(oct_checkpoint_read_string(m->checkpoint, key, &m->arena, &text, &m->err));
    return oct_item_add_string(&m->list, group, dot + 1, text, &m->err);
}

static oct_status add_all(member *m)
{
    for (int64_t i = 0; i < oct_checkpoint_entry_count(m->checkpoint); i++) {
        const oct_checkpoint_entry *entry = oct_checkpoint_entry_at(m->checkpoint, i);
        OCT_TRY(entry->is_tensor ? add_tensor(m, entry) : add_object(m, entry->key));
    }
    return OCT_OK;
}

static oct_status save(member *m)
{
    oct_checkpoint_writer *writer = NULL;
    const oct_checkpoint_options options = {
        .comm = m->comm, .root = m->root, .chunk_bytes = m->chunk_bytes};
    const oct_checkpoint_meta meta = {.config_hash = oct_checkpoint_config_hash(m->checkpoint),
                                      .model_json = oct_checkpoint_model_json(m->checkpoint)};
    OCT_TRY(oct_checkpoint_writer_create(&options, &writer, &m->err));
    const oct_status status =
        oct_checkpoint_save(writer, oct_checkpoint_step(m->checkpoint), &m->list, &meta, &m->err);
    oct_checkpoint_writer_destroy(writer);
    return status;
}

static void *run(void *arg)
{
    member *m = arg;
    oct_arena_init(&m->arena, "tensors");
    oct_item_list_init(&m->list);
    m->status =
        oct_checkpoint_open(NULL, m->from, OCT_VERIFY_CRC, NULL, NULL, &m->checkpoint, &m->err);
    if (m->status == OCT_OK)
        m->status = add_all(m);
    if (m->status == OCT_OK)
        m->status = save(m);
    oct_item_list_release(&m->list);
    oct_arena_release(&m->arena);
    oct_checkpoint_close(m->checkpoint);
    oct_comm_destroy(m->comm); /* a rank that failed before the save ends that of the others */
    return NULL;
}

int main(int argc, char **argv)
{
    const int ranks = argc == 5 ? (int)strtol(argv[3], NULL, 10) : 0;
    oct_comm *comms[MAX_RANKS];
    static member members[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    oct_err err = {0};
    if (ranks < 1 || ranks > MAX_RANKS) {
        (void)fprintf(stderr, "usage: checkpoint_recut FROM ROOT RANKS CHUNK_BYTES\n");
        return 2;
    }
    const oct_comm_options options = {0};
    if (oct_comm_create_team(ranks, &options, comms, &err) != OCT_OK) {
        (void)fprintf(stderr, "error: %s\n", err.msg);
        return 4;
    }
    for (int r = 0; r < ranks; r++) {
        members[r] = (member){.from = argv[1],
                              .root = argv[2],
                              .chunk_bytes = strtoll(argv[4], NULL, 10),
                              .comm = comms[r]};
        if (pthread_create(&threads[r], NULL, run, &members[r]) != 0)
            return 4;
    }
    int code = 0;
    for (int r = 0; r < ranks; r++) {
        (void)pthread_join(threads[r], NULL);
        if (members[r].status != OCT_OK) {
            (void)fprintf(stderr, "error of rank %d: %s\n", r, members[r].err.msg);
            code = 4;
        }
    }
    return code;
}
