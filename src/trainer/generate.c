#include "trainer/generate.h"

#include <string.h>

#include "base/rng.h"
#include "trainer/build.h"
#include "trainer/sampling.h"
#include "trainer/state.h"

/* The draw for a position depends on nothing else than the seed: a prompt that is longer by what
 * was generated goes on the same way. */
static int32_t choose(const float *logits, int64_t vocab, const oct_generate_options *options,
                      int64_t position, oct_candidate *work)
{
    if (options->temperature <= 0.0)
        return oct_sample_greedy(logits, vocab);
    const oct_rng stream = oct_rng_stream(options->seed, "generate");
    const double uniform = oct_rng_uniform(stream, (uint64_t)position);
    return oct_sample_nucleus(logits, vocab, options->temperature, options->top_p, uniform, work);
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
    OCT_TRY(oct_arena_array(&build->persist, vocab, sizeof(oct_candidate), &candidates, err));
    int32_t *ids = ids_memory;
    float *logits = logits_memory;
    for (int64_t i = 0; i < prompt; i++)
        ids[i] = (unsigned char)options->prompt[i];

    const oct_run run = oct_build_run(build, false);
    const int64_t end = prompt + options->tokens < limit ? prompt + options->tokens : limit;
    for (int64_t n = prompt; n < end; n++) {
        oct_arena_reset(&build->step);
        OCT_TRY(oct_dsv3_next_logits(build->model, &run, ids, n, logits, err));
        ids[n] = choose(logits, vocab, options, n, candidates);
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
    oct_build_init(&build, config, NULL);
    build.keep_panels = true;
    oct_status status = load(&build, checkpoint, err);
    if (status == OCT_OK)
        status = continue_prompt(&build, options, err);
    oct_build_release(&build);
    return status;
}
