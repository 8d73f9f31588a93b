#include "trainer/generate.h"

#include <string.h>

#include "base/rng.h"
#include "numeric/fmath.h"
#include "trainer/build.h"
#include "trainer/state.h"

/* One candidate token. */
typedef struct candidate {
    float probability;
    int32_t id;
} candidate;

/* Most likely first, then lower id: insertion keeps equal ones in order; V is small for bytes. */
static void sort_candidates(candidate *all, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        const candidate moving = all[i];
        int64_t j = i;
        for (; j > 0 && all[j - 1].probability < moving.probability; j--)
            all[j] = all[j - 1];
        all[j] = moving;
    }
}

static int32_t most_likely(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t v = 1; v < vocab; v++)
        if (logits[v] > logits[best])
            best = v;
    return (int32_t)best;
}

/* Nucleus sampling (Holtzman et al., 2019). `all` is workspace for one candidate per token. */
static int32_t sample(const float *logits, int64_t vocab, const oct_generate_options *options,
                      int64_t position, candidate *all)
{
    if (options->temperature <= 0.0)
        return most_likely(logits, vocab);
    const float peak = logits[most_likely(logits, vocab)];
    double sum = 0.0;
    for (int64_t v = 0; v < vocab; v++) {
        const float weight = oct_expf((float)((double)(logits[v] - peak) / options->temperature));
        all[v] = (candidate){.probability = weight, .id = (int32_t)v};
        sum += (double)weight;
    }
    sort_candidates(all, vocab);
    double kept = 0.0;
    int64_t count = 0;
    while (count < vocab && kept < options->top_p * sum)
        kept += (double)all[count++].probability;
    const oct_rng stream = oct_rng_stream(options->seed, "generate");
    double left = oct_rng_uniform(stream, (uint64_t)position) * kept;
    for (int64_t i = 0; i < count; i++) {
        left -= (double)all[i].probability;
        if (left < 0.0)
            return all[i].id;
    }
    return all[count ? count - 1 : 0].id;
}

static oct_status continue_prompt(oct_build *build, const oct_generate_options *options,
                                  oct_err *err)
{
    const int64_t vocab = build->hf.vocab_size;
    const int64_t limit = build->hf.max_position_embeddings;
    const int64_t prompt = (int64_t)strlen(options->prompt);
    if (prompt < 1 || prompt >= limit)
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot continue the prompt: it has %lld tokens, from 1 to %lld are "
                        "required (--prompt, max_position_embeddings)",
                        (long long)prompt, (long long)limit - 1);
    void *ids_memory = NULL, *logits_memory = NULL, *candidates = NULL;
    OCT_TRY(oct_arena_array(&build->persist, limit, sizeof(int32_t), &ids_memory, err));
    OCT_TRY(oct_arena_array(&build->persist, vocab, sizeof(float), &logits_memory, err));
    OCT_TRY(oct_arena_array(&build->persist, vocab, sizeof(candidate), &candidates, err));
    int32_t *ids = ids_memory;
    float *logits = logits_memory;
    for (int64_t i = 0; i < prompt; i++)
        ids[i] = (unsigned char)options->prompt[i];

    const oct_run run = oct_build_run(build, false);
    const int64_t end = prompt + options->tokens < limit ? prompt + options->tokens : limit;
    for (int64_t n = prompt; n < end; n++) {
        oct_arena_reset(&build->step);
        OCT_TRY(oct_dsv3_next_logits(build->model, &run, ids, n, logits, err));
        ids[n] = sample(logits, vocab, options, n, candidates);
        if (ids[n] >= OCT_BYTES_END_OF_DOCUMENT)
            return OCT_OK;
        const char byte = (char)ids[n];
        options->emit(options->emit_arg, &byte, 1);
    }
    return OCT_OK;
}

static oct_status check_tokenizer(const oct_checkpoint *checkpoint, oct_arena *arena, oct_err *err)
{
    const char *tokenizer = NULL;
    OCT_TRY(
        oct_checkpoint_read_string(checkpoint, "train_state.tokenizer", arena, &tokenizer, err));
    if (strcmp(tokenizer, "bytes") != 0)
        return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                        "cannot generate text: the model was trained on ids of the tokenizer '%s', "
                        "'bytes' is required (train_state.tokenizer)",
                        tokenizer);
    return OCT_OK;
}

static oct_status load(oct_build *build, const oct_checkpoint *checkpoint, oct_err *err)
{
    OCT_TRY(check_tokenizer(checkpoint, &build->persist, err));
    OCT_TRY(oct_build_through(build, OCT_STAGE_MASTERS, err));
    oct_identity identity;
    OCT_TRY(oct_identity_make(build, NULL, &build->persist, &identity, err));
    oct_train_state state;
    OCT_TRY(oct_state_restore(build, checkpoint, &identity, false, &state, err));
    int64_t refreshed = 0;
    return oct_build_refresh(build, &refreshed, err);
}

oct_status oct_generate(const oct_config *config, const oct_checkpoint *checkpoint,
                        const oct_generate_options *options, oct_err *err)
{
    oct_build build;
    oct_build_init(&build, config);
    oct_status status = load(&build, checkpoint, err);
    if (status == OCT_OK)
        status = continue_prompt(&build, options, err);
    oct_build_release(&build);
    return status;
}
