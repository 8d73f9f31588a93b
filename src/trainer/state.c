#include "trainer/state.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static const char group[] = "train_state";

/* Structure and numbers that the weights are only meaningful with. */
static oct_status model_json(const oct_build *build, oct_arena *arena, const char **out,
                             oct_err *err)
{
    const oct_hf_config *hf = &build->hf;
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {
        {"vocab_size", hf->vocab_size},
        {"hidden_size", hf->hidden_size},
        {"intermediate_size", hf->intermediate_size},
        {"moe_intermediate_size", hf->moe_intermediate_size},
        {"num_hidden_layers", hf->num_hidden_layers},
        {"first_k_dense_replace", hf->first_k_dense_replace},
        {"num_attention_heads", hf->num_attention_heads},
        {"n_routed_experts", hf->n_routed_experts},
        {"n_shared_experts", hf->n_shared_experts},
        {"num_experts_per_tok", hf->num_experts_per_tok},
        {"n_group", hf->n_group},
        {"topk_group", hf->topk_group},
        {"norm_topk_prob", hf->norm_topk_prob},
        {"q_lora_rank", hf->q_lora_rank},
        {"kv_lora_rank", hf->kv_lora_rank},
        {"qk_nope_head_dim", hf->qk_nope_head_dim},
        {"qk_rope_head_dim", hf->qk_rope_head_dim},
        {"v_head_dim", hf->v_head_dim},
        {"rope_interleave", hf->rope_interleave},
        {"rope_yarn", hf->rope.yarn},
        {"attention_bias", hf->attention_bias},
        {"tie_word_embeddings", hf->tie_word_embeddings},
        {"pad_token_id", hf->pad_token_id},
    };
    const oct_rope_parameters *rope = &hf->rope;
    const struct {
        const char *name;
        double value;
    } yarn[] = {
        {"rope_factor", rope->factor},
        {"rope_beta_fast", rope->beta_fast},
        {"rope_beta_slow", rope->beta_slow},
        {"rope_mscale", rope->mscale},
        {"rope_mscale_all_dim", rope->mscale_all_dim},
        {"rope_attention_factor", rope->attention_factor},
        {"rope_original_max_position_embeddings", (double)rope->original_max_position_embeddings},
        {"rope_truncate", rope->truncate},
    };
    oct_json json;
    oct_json_init(&json);
    oct_json_object(&json, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        oct_json_int(&json, sizes[i].name, sizes[i].value);
    oct_json_double(&json, "routed_scaling_factor", hf->routed_scaling_factor);
    oct_json_double(&json, "rms_norm_eps", hf->rms_norm_eps);
    oct_json_double(&json, "rope_theta", hf->rope.theta);
    for (size_t i = 0; rope->yarn && i < sizeof yarn / sizeof yarn[0]; i++)
        oct_json_double(&json, yarn[i].name, yarn[i].value);
    oct_json_string(&json, "torch_dtype", oct_dtype_name(build->act_dtype));
    oct_json_end(&json);
    oct_status status = oct_json_finish(&json, err);
    void *copy = NULL;
    if (status == OCT_OK)
        status = oct_arena_alloc(arena, json.bytes + 1, &copy, err);
    if (status == OCT_OK) {
        memcpy(copy, json.text, json.bytes + 1);
        *out = copy;
    }
    oct_json_release(&json);
    return status;
}

oct_status oct_identity_make(const oct_build *build, const oct_dataset *data, oct_arena *arena,
                             oct_identity *out, oct_err *err)
{
    const oct_config *config = build->config;
    *out = (oct_identity){
        .format =
            build->policy.enabled ? build->policy.format->name : oct_dtype_name(build->act_dtype),
        .tokenizer = data ? oct_dataset_tokenizer(data) : NULL,
        .global_batch_size = config->training.global_batch_size,
        .micro_batch_size = config->training.micro_batch_size,
        .seq_length = config->training.seq_length,
        .seed = config->seed,
        .shuffle = config->dataset.shuffle,
        .data_fingerprint = data ? oct_dataset_fingerprint(data) : 0,
    };
    return model_json(build, arena, &out->model_json, err);
}

oct_status oct_state_items(const oct_build *build, const oct_train_state *state,
                           const oct_identity *identity, oct_item_list *list, oct_err *err)
{
    const struct {
        const char *name;
        int64_t value;
    } ints[] = {
        {"step", state->step},
        {"attempt", state->attempt},
        {"samples", state->samples},
        {"ntokens_seen", state->tokens},
        {"consecutive_skips", state->consecutive_skips},
        {"global_batch_size", identity->global_batch_size},
        {"micro_batch_size", identity->micro_batch_size},
        {"seq_length", identity->seq_length},
        {"seed", identity->seed},
        {"shuffle", identity->shuffle},
    };
    char fingerprint[20];
    (void)snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, identity->data_fingerprint);
    oct_item_list_clear(list);
    OCT_TRY(oct_item_add_optimizer(list, build->optimizer, err));
    OCT_TRY(oct_item_add_buffers(list, &build->tree, err));
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++)
        OCT_TRY(oct_item_add_int(list, group, ints[i].name, ints[i].value, err));
    OCT_TRY(oct_item_add_string(list, group, "model", identity->model_json, err));
    OCT_TRY(oct_item_add_string(list, group, "format", identity->format, err));
    OCT_TRY(oct_item_add_string(list, group, "tokenizer", identity->tokenizer, err));
    return oct_item_add_string(list, group, "data", fingerprint, err);
}

static oct_status same_string(const oct_checkpoint *checkpoint, const char *key, const char *what,
                              const char *now, oct_arena *arena, oct_err *err)
{
    const char *saved = NULL;
    OCT_TRY(oct_checkpoint_read_string(checkpoint, key, arena, &saved, err));
    if (strcmp(saved, now) != 0)
        return OCT_FAIL(
            err, OCT_E_CHECKPOINT,
            "cannot go on from the checkpoint: it was saved with %s %s, this run has %s "
            "(%s)",
            what, saved, now, key);
    return OCT_OK;
}

static oct_status same_int(const oct_checkpoint *checkpoint, const char *key, const char *what,
                           int64_t now, oct_err *err)
{
    int64_t saved = 0;
    OCT_TRY(oct_checkpoint_read_int(checkpoint, key, &saved, err));
    if (saved != now)
        return OCT_FAIL(err, OCT_E_CHECKPOINT,
                        "cannot go on from the checkpoint: it was saved with %s %" PRId64
                        ", this run has %" PRId64 " (%s)",
                        what, saved, now, key);
    return OCT_OK;
}

/* The first field of the model of this run that the saved one has not or has with another value. */
static oct_status same_fields(json_t *saved, json_t *now, oct_err *err)
{
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(now, name, value)
    {
        const json_t *before = json_object_get(saved, name);
        if (json_equal(before, value))
            continue;
        char *was = before ? json_dumps(before, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
        char *is = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        (void)OCT_FAIL(err, OCT_E_CHECKPOINT,
                       "cannot go on from the checkpoint: it was saved with a model of %s %s, the "
                       "model of this run has %s (train_state.model)",
                       name, was ? was : "unknown", is ? is : "another");
        free(was);
        free(is);
        return OCT_E_CHECKPOINT;
    }
    return OCT_OK;
}

static oct_status same_model(const oct_checkpoint *checkpoint, const char *model, oct_arena *arena,
                             oct_err *err)
{
    const char *text = NULL;
    OCT_TRY(oct_checkpoint_read_string(checkpoint, "train_state.model", arena, &text, err));
    json_t *saved = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    json_t *now = json_loads(model, JSON_REJECT_DUPLICATES, NULL);
    const oct_status status =
        saved && now ? same_fields(saved, now, err)
                     : OCT_FAIL(err, OCT_E_CORRUPT,
                                "cannot compare models: the checkpoint holds no JSON object "
                                "(train_state.model)");
    json_decref(saved);
    json_decref(now);
    return status;
}

/* PyTorch wrote it and no run of octet stands behind it: weights, maybe AdamW, and nothing else. */
static bool is_foreign(const oct_checkpoint *checkpoint)
{
    return oct_checkpoint_step(checkpoint) < 0 &&
           !oct_checkpoint_find(checkpoint, "train_state.model");
}

/* Going on needs everything the same; new training from old weights needs the same model. */
static oct_status compare(const oct_checkpoint *checkpoint, const oct_identity *identity,
                          bool going_on, oct_arena *arena, oct_err *err)
{
    OCT_TRY(same_model(checkpoint, identity->model_json, arena, err));
    if (!going_on)
        return OCT_OK;
    char fingerprint[20];
    (void)snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, identity->data_fingerprint);
    OCT_TRY(same_string(checkpoint, "train_state.format", "format", identity->format, arena, err));
    OCT_TRY(same_string(checkpoint, "train_state.tokenizer", "tokenizer", identity->tokenizer,
                        arena, err));
    OCT_TRY(same_string(checkpoint, "train_state.data", "training data of fingerprint", fingerprint,
                        arena, err));
    OCT_TRY(same_int(checkpoint, "train_state.global_batch_size", "training.global_batch_size",
                     identity->global_batch_size, err));
    OCT_TRY(same_int(checkpoint, "train_state.micro_batch_size", "training.micro_batch_size",
                     identity->micro_batch_size, err));
    OCT_TRY(same_int(checkpoint, "train_state.seq_length", "training.seq_length",
                     identity->seq_length, err));
    OCT_TRY(same_int(checkpoint, "train_state.shuffle", "dataset.shuffle", identity->shuffle, err));
    return same_int(checkpoint, "train_state.seed", "seed", identity->seed, err);
}

oct_status oct_state_restore(oct_build *build, const oct_checkpoint *checkpoint,
                             const oct_identity *identity, bool with_moments,
                             oct_train_state *state, oct_err *err)
{
    const oct_arena_mark mark = oct_arena_save(&build->scratch);
    const oct_status same = is_foreign(checkpoint)
                                ? OCT_OK
                                : compare(checkpoint, identity, with_moments, &build->scratch, err);
    oct_arena_rewind(&build->scratch, mark);
    OCT_TRY(same);
    OCT_TRY(oct_checkpoint_restore_optimizer(checkpoint, build->optimizer, with_moments, err));
    OCT_TRY(oct_checkpoint_restore_buffers(checkpoint, &build->tree, err));
    if (!with_moments || is_foreign(checkpoint)) { /* the updates so far; the data from its start */
        *state =
            (oct_train_state){.step = build->optimizer->step, .attempt = build->optimizer->step};
        return OCT_OK;
    }
    OCT_TRY(oct_checkpoint_read_int(checkpoint, "train_state.step", &state->step, err));
    OCT_TRY(oct_checkpoint_read_int(checkpoint, "train_state.attempt", &state->attempt, err));
    OCT_TRY(oct_checkpoint_read_int(checkpoint, "train_state.samples", &state->samples, err));
    OCT_TRY(oct_checkpoint_read_int(checkpoint, "train_state.ntokens_seen", &state->tokens, err));
    return oct_checkpoint_read_int(checkpoint, "train_state.consecutive_skips",
                                   &state->consecutive_skips, err);
}
