/* Text from a trained model. */
#ifndef OCT_TRAINER_GENERATE_H
#define OCT_TRAINER_GENERATE_H

#include <stdint.h>

#include "checkpoint/checkpoint.h"
#include "config/config.h"

typedef struct oct_generate_options {
    const char *prompt; /* UTF-8; at least one byte */
    int64_t tokens;     /* at most this many new ones */
    double temperature; /* 0 = always the most likely token, lowest id on a tie */
    double top_p;       /* (0, 1]: smallest set of most likely tokens with this probability */
    uint64_t seed;
    void (*emit)(void *arg, const char *bytes, int64_t count); /* each new piece of text */
    void *emit_arg;
} oct_generate_options;

/* Builds the model of `config`, loads the weights of `checkpoint` and continues the prompt until
 * options->tokens, the end of a document, or max_position_embeddings. Errors: OCT_E_CHECKPOINT if
 * the checkpoint is of another model; OCT_E_UNSUPPORTED for a tokenizer other than bytes;
 * OCT_E_DATA for a prompt that is empty or too long. */
oct_status oct_generate(const oct_config *config, const oct_checkpoint *checkpoint,
                        const oct_generate_options *options, oct_err *err) OCT_MUST_CHECK;

#endif
