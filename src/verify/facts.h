/* What a run is expected to do, from its resolved configuration and the HF config alone. The names
 * and shapes of the targets follow from the structure of DeepSeek-V3, not from the replacement
 * plan: that is judged by them. */
#ifndef OCT_VERIFY_FACTS_H
#define OCT_VERIFY_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "verify/verify.h"

enum { OCT_VERIFY_FQN_BYTES = 96 };

/* A product that low precision takes over. */
typedef struct oct_verify_target {
    char fqn[OCT_VERIFY_FQN_BYTES];    /* of its products */
    char module[OCT_VERIFY_FQN_BYTES]; /* of the module that is replaced */
    char weight[OCT_VERIFY_FQN_BYTES];
    bool grouped;
    int64_t experts;    /* E of a grouped weight; else 1 */
    int64_t rows, cols; /* of the weight, of one expert's */
} oct_verify_target;

typedef struct oct_verify_facts {
    char name[OCT_VERIFY_NAME_BYTES]; /* of the run, for checks */
    oct_verify_format format;
    int ranks;
    bool reshard, recompute;
    bool even; /* fsdp_config.shard */
    bool fallback;
    bool resumed; /* began from a checkpoint */
    int64_t accumulation;
    int64_t first_step, steps; /* steps: of this run, the first one has the index first_step */
    oct_verify_target *targets;
    int64_t target_count;
    int64_t dense_targets, expert_modules; /* modules that are replaced */
} oct_verify_facts;

/* Of a run that has written its config.yaml; arrays live in `arena`. Errors: those of the readers
 * of config.yaml and config.json. */
oct_status oct_verify_facts_of(const oct_verify_run *run, oct_arena *arena, oct_verify_facts *out,
                               oct_err *err) OCT_MUST_CHECK;

/* The targets of a configuration that nothing has run: name, ranks and format are left to the
 * caller. */
oct_status oct_verify_facts_of_config(const char *file, oct_arena *arena, oct_verify_facts *out,
                                      oct_err *err) OCT_MUST_CHECK;

/* The index of the target whose products have this FQN, or whose weight has; -1: none. */
int64_t oct_verify_target_of(const oct_verify_facts *facts, const char *fqn);
int64_t oct_verify_weight_of(const oct_verify_facts *facts, const char *fqn);

/* A weight that cannot be cut legally over the ranks, so that every rank keeps all of it (chapters
 * 9.1 and 15; only with fallback_to_unsharded). */
bool oct_verify_is_replicated(const oct_verify_facts *facts, const oct_verify_target *target);

#endif
