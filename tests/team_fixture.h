/* Training on several ranks, threads of this process: a model with rows for eight ranks, a run on a
 * team, and the state of all ranks put together. Include cmocka.h before. */
#ifndef OCT_TESTS_TEAM_FIXTURE_H
#define OCT_TESTS_TEAM_FIXTURE_H

#include <pthread.h>

#include "train_fixture.h"

enum { MAX_TEAM = 8, MAX_PARTS = 160 };

/* Most weights have several tiles of 64 rows, so that up to eight ranks own something; some have
 * one and a bit, so that some ranks own nothing of them. */
static const char wide_model[] = "{\n"
                                 "  \"model_type\": \"deepseek_v3\",\n"
                                 "  \"vocab_size\": 512,\n"
                                 "  \"hidden_size\": 128,\n"
                                 "  \"intermediate_size\": 384,\n"
                                 "  \"moe_intermediate_size\": 64,\n"
                                 "  \"num_hidden_layers\": 2,\n"
                                 "  \"first_k_dense_replace\": 1,\n"
                                 "  \"num_attention_heads\": 4,\n"
                                 "  \"num_key_value_heads\": 4,\n"
                                 "  \"n_routed_experts\": 8,\n"
                                 "  \"n_shared_experts\": 2,\n"
                                 "  \"num_experts_per_tok\": 2,\n"
                                 "  \"n_group\": 1,\n"
                                 "  \"topk_group\": 1,\n"
                                 "  \"norm_topk_prob\": true,\n"
                                 "  \"routed_scaling_factor\": 1.0,\n"
                                 "  \"q_lora_rank\": null,\n"
                                 "  \"kv_lora_rank\": 96,\n"
                                 "  \"qk_nope_head_dim\": 32,\n"
                                 "  \"qk_rope_head_dim\": 32,\n"
                                 "  \"v_head_dim\": 32,\n"
                                 "  \"max_position_embeddings\": 256,\n"
                                 "  \"rope_theta\": 10000.0,\n"
                                 "  \"rope_interleave\": true,\n"
                                 "  \"tie_word_embeddings\": false\n"
                                 "}\n";

static inline int make_team_files(void **state)
{
    (void)make_train_files(state);
    temp_dir_write(&files, "model/config.json", wide_model);
    return 0;
}

/* --- what the ranks hold -------------------------------------------------------------------- */

/* Bytes of one rank that are a part of something that all hold together. */
typedef struct part {
    void *data;
    size_t bytes;
    bool whole; /* every rank holds the same */
} part;

/* Masters, moments and buffers of one rank, then codes and scales of its low-precision weights. */
typedef struct parts {
    part of[MAX_PARTS];
    int count;
    int state_count; /* without the low-precision ones */
} parts;

static inline void parts_clear(parts *all)
{
    for (int i = 0; i < all->count; i++)
        free(all->of[i].data);
    *all = (parts){0};
}

static inline void parts_add(parts *all, const void *data, size_t bytes, bool whole)
{
    assert_true(all->count < MAX_PARTS);
    part *p = &all->of[all->count++];
    *p = (part){.data = malloc(bytes + 1), .bytes = bytes, .whole = whole};
    if (bytes)
        memcpy(p->data, data, bytes);
}

static inline void parts_take(parts *all, const oct_build *build)
{
    parts_clear(all);
    for (int64_t s = 0; s < build->optimizer->slot_count; s++) {
        const oct_optim_slot *slot = &build->optimizer->slots[s];
        const size_t bytes = (size_t)slot->numel * sizeof(float);
        const bool whole = slot->param->replicated;
        parts_add(all, slot->master, bytes, whole);
        parts_add(all, slot->exp_avg, bytes, whole);
        parts_add(all, slot->exp_avg_sq, bytes, whole);
    }
    for (int64_t b = 0; b < build->tree.buffer_count; b++) {
        const oct_buffer *buffer = build->tree.buffers[b];
        parts_add(all, buffer->data, (size_t)buffer->numel * sizeof(float), true);
    }
    all->state_count = all->count;
    for (int64_t w = 0; w < build->weights.count; w++) {
        const oct_weight_storage *storage = build->weights.shards[w];
        for (int t = 0; t < storage->tensor_count; t++)
            parts_add(all, storage->tensors[t].tensor.data,
                      oct_tensor_bytes(&storage->tensors[t].tensor),
                      build->weights.params[w]->replicated || storage->tensors[t].replicated);
    }
}

/* --- a team --------------------------------------------------------------------------------- */

typedef struct team {
    int ranks;
    int node_ranks; /* at most so many share memory; 0: all */
    record *of[MAX_TEAM];
    parts state[MAX_TEAM];                 /* after the last step */
    const oct_config *config_of[MAX_TEAM]; /* NULL: that of the team */
} team;

static inline team *team_create(int ranks, int node_ranks)
{
    team *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->ranks = ranks;
    t->node_ranks = node_ranks;
    for (int r = 0; r < ranks; r++)
        t->of[r] = record_create();
    return t;
}

static inline void team_free(team *t)
{
    for (int r = 0; r < t->ranks; r++) {
        parts_clear(&t->state[r]);
        free(t->of[r]);
    }
    free(t);
}

typedef struct team_member {
    oct_comm *comm;
    const oct_config *config;
    const char *path, *resume;
    record *r;
} team_member;

static inline void *member_main(void *arg)
{
    team_member *m = arg;
    train_rank(m->comm, m->path, m->config, m->resume, m->r);
    oct_comm_destroy(m->comm);
    oct_fault_set_rank(0);
    return NULL;
}

static inline void keep_state(record *r, oct_build *build)
{
    parts_take(r->arg, build);
}

/* Trains on a team in the folder `path`; records without a hook of their own keep the state for
 * team_hash. */
static inline void train_team_with(const oct_config *config, const char *path, const char *resume,
                                   team *t)
{
    const oct_comm_options options = {.node_ranks = t->node_ranks, .timeout_seconds = 60.0};
    oct_comm *comms[MAX_TEAM];
    oct_err err = {0};
    if (oct_comm_create_team(t->ranks, &options, comms, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    team_member members[MAX_TEAM];
    pthread_t threads[MAX_TEAM];
    for (int r = 0; r < t->ranks; r++) {
        if (!t->of[r]->stepped) {
            t->of[r]->stepped = keep_state;
            t->of[r]->arg = &t->state[r];
        }
        members[r] = (team_member){.comm = comms[r],
                                   .config = t->config_of[r] ? t->config_of[r] : config,
                                   .path = path,
                                   .resume = resume,
                                   .r = t->of[r]};
        assert_int_equal(pthread_create(&threads[r], NULL, member_main, &members[r]), 0);
    }
    for (int r = 0; r < t->ranks; r++)
        (void)pthread_join(threads[r], NULL);
}

/* The same with a configuration from words, in `run` below the folder. */
static inline void train_team(const temp_dir *dir, const char *run, int format, const char *resume,
                              const char *const *words, team *t)
{
    oct_arena arena;
    oct_arena_init(&arena, "test configuration");
    oct_config config;
    load_config_of(dir, format, words, t->ranks, &arena, &config);
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", dir->path, run);
    train_team_with(&config, path, resume, t);
    oct_arena_release(&arena);
}

static inline void assert_team_trained(const team *t)
{
    for (int r = 0; r < t->ranks; r++)
        if (t->of[r]->status != OCT_OK)
            fail_msg("rank %d: %s", r, t->of[r]->err.msg);
}

/* Every rank ended with this code and the message of `origin` (-1: of any one), which holds `word`.
 */
static inline void assert_team_failed(const team *t, oct_status code, int origin, const char *word)
{
    for (int r = 0; r < t->ranks; r++) {
        const record *of = t->of[r];
        if (of->status != code || !strstr(of->err.msg, word))
            fail_msg("rank %d: found status %s (%s), required %s with '%s'", r,
                     oct_status_name(of->status), of->err.msg, oct_status_name(code), word);
        if (of->err.rank != (origin < 0 ? t->of[0]->err.rank : origin))
            fail_msg("rank %d: the failure began on rank %d, required %d", r, of->err.rank, origin);
        assert_string_equal(of->err.msg, t->of[0]->err.msg);
    }
}

/* Parts `first` up to `last` of all ranks as one, whatever their number; fails if what every rank
 * holds whole is not the same. */
static inline uint64_t team_hash_of(const team *t, int first, int last)
{
    uint64_t hash = hash_start;
    for (int i = first; i < last; i++)
        for (int r = 0; r < t->ranks; r++) {
            const part *own = &t->state[r].of[i], *zero = &t->state[0].of[i];
            if (r == 0 || !own->whole)
                hash = hash_bytes(hash, own->data, own->bytes);
            else if (own->bytes != zero->bytes || memcmp(own->data, zero->data, own->bytes) != 0)
                fail_msg("part %d of rank %d is not that of rank 0", i, r);
        }
    return hash;
}

/* Masters, moments, buffers. */
static inline uint64_t team_state_hash(const team *t)
{
    return team_hash_of(t, 0, t->state[0].state_count);
}

/* Codes and scales. */
static inline uint64_t team_storage_hash(const team *t)
{
    return team_hash_of(t, t->state[0].state_count, t->state[0].count);
}

/* Payload of every tensor of a checkpoint, whoever wrote it. */
static inline uint64_t checkpoint_hash(const char *path)
{
    oct_checkpoint *checkpoint = NULL;
    oct_err err = {0};
    if (oct_checkpoint_open(NULL, path, OCT_VERIFY_CRC, NULL, NULL, &checkpoint, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    uint64_t hash = hash_start;
    int tensors = 0;
    for (int64_t e = 0; e < oct_checkpoint_entry_count(checkpoint); e++) {
        const oct_checkpoint_entry *entry = oct_checkpoint_entry_at(checkpoint, e);
        hash = hash_bytes(hash, entry->key, strlen(entry->key));
        if (!entry->is_tensor)
            continue;
        int64_t numel = 1;
        for (int d = 0; d < entry->ndim; d++)
            numel *= entry->shape[d];
        float *values = malloc((size_t)numel * sizeof *values);
        assert_non_null(values);
        if (oct_checkpoint_read_tensor(checkpoint, entry->key, entry->ndim, entry->shape, values,
                                       &err) != OCT_OK)
            fail_msg("%s", err.msg);
        hash = hash_bytes(hash, values, (size_t)numel * sizeof *values);
        free(values);
        tensors++;
    }
    assert_true(tensors > 10);
    oct_checkpoint_close(checkpoint);
    return hash;
}

/* The same run, whatever carried it: every row, and what the last step left. */
static inline void assert_same_run(const team *a, const team *b)
{
    assert_int_equal(a->of[0]->row_count, b->of[0]->row_count);
    for (int i = 0; i < a->of[0]->row_count; i++) {
        assert_same_row(&a->of[0]->rows[i], &b->of[0]->rows[i]);
        assert_int_equal(a->of[0]->rows[i].fma_matmuls, b->of[0]->rows[i].fma_matmuls);
        assert_int_equal(a->of[0]->rows[i].skipped, b->of[0]->rows[i].skipped);
        assert_int_equal(a->of[0]->rows[i].refreshed_weights, b->of[0]->rows[i].refreshed_weights);
    }
    assert_true(team_state_hash(a) == team_state_hash(b));
    assert_true(team_storage_hash(a) == team_storage_hash(b));
}

#endif
