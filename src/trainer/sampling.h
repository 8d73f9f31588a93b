/* Choosing the next token from its logits. */
#ifndef OCT_TRAINER_SAMPLING_H
#define OCT_TRAINER_SAMPLING_H

#include <stdint.h>

/* One token that may come next. */
typedef struct oct_candidate {
    float weight; /* probability times a constant of all candidates: exp((logit - peak) / T) */
    int32_t id;
} oct_candidate;

/* The id of the largest of `vocab` >= 1 logits, the lowest one on a tie. */
int32_t oct_sample_greedy(const float *logits, int64_t vocab);

/* Nucleus sampling (Holtzman et al., 2019): of the softmax of logits / temperature, the smallest
 * set of most likely tokens whose probability reaches top_p (lower ids first among equals), and of
 * that set the token at `uniform` in [0, 1) of its cumulative probability. temperature > 0, top_p
 * in (0, 1], vocab >= 1; `work` holds one candidate per token. */
int32_t oct_sample_nucleus(const float *logits, int64_t vocab, double temperature, double top_p,
                           double uniform, oct_candidate *work);

#endif
