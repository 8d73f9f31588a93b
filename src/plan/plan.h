/* Generic module replacement: rules select modules by FQN pattern and type, factories build their
 * replacements, and all of them are installed together or none is. Knows no format and no model.
 *
 * Pattern: `*` matches any run of characters within one dot-separated segment (at least none),
 * every other character is itself, and the whole FQN must match. */
#ifndef OCT_PLAN_PLAN_H
#define OCT_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/trace.h"
#include "module/module.h"

/* One active entry of plan_overrides. Strings are borrowed for the life of the plan. */
typedef struct oct_plan_rule {
    int64_t pattern_count;
    const char *const *patterns;
    const char *module_type; /* registered type name, "torch.nn.Linear" */
    bool exact_type;         /* the type itself; false also takes types derived from it */
    const char *target;      /* the `_target_` string of a registered factory */
    const char *where;       /* file:line for messages; may be NULL */
} oct_plan_rule;

/* Builds a replacement of `source` in tree->arena without touching source or tree: same name, FQN,
 * parameters, buffer, children and training flag; another type and state. `context` is handed
 * through from oct_plan_apply (the policy of the run). */
typedef oct_status (*oct_plan_build)(oct_module_tree *tree, const oct_module *source,
                                     const char *fqn, const void *context, oct_module **replacement,
                                     oct_err *err);

typedef struct oct_plan_factory {
    const char *target;
    oct_plan_build build;
    const oct_module_type *source; /* it builds from this type and those derived from it; NULL: any
                                    */
} oct_plan_factory;

/* What rules may name. The caller owns the arrays; they outlive the plan. */
typedef struct oct_plan_registry {
    int64_t factory_count;
    const oct_plan_factory *factories;
    int64_t type_count;
    const oct_module_type *const *types;
} oct_plan_registry;

/* One module to replace; a module under several FQNs stands here once, under its first. */
typedef struct oct_plan_target {
    const char *fqn;
    oct_module *module;
    int64_t rule;
    const oct_plan_factory *factory;
} oct_plan_target;

/* Immutable after compilation. */
typedef struct oct_plan oct_plan;

/* Matches the rules against the tree; reads names, types and parameter identities only, so the tree
 * may be on meta. Every pattern must hit; every hit must have the type of its rule, and one that
 * its factory builds from; no module may be hit by two rules or lie below another hit; a parameter
 * shared with a module that is not selected is refused. Several patterns of one rule may hit the
 * same module. No rules make an empty plan. The plan lives in `arena`. Errors: OCT_E_PLAN naming
 * the pattern, FQN or name, what was found, the nearest real names and `where`. */
oct_status oct_plan_compile(oct_module_tree *tree, const oct_plan_rule *rules, int64_t rule_count,
                            const oct_plan_registry *registry, oct_arena *arena, oct_plan **plan,
                            oct_err *err) OCT_MUST_CHECK;

int64_t oct_plan_rule_count(const oct_plan *plan);
const oct_plan_rule *oct_plan_rule_at(const oct_plan *plan, int64_t rule);

/* How many FQNs a pattern of a rule hit. */
int64_t oct_plan_hits(const oct_plan *plan, int64_t rule, int64_t pattern);

/* All targets in tree order. */
const oct_plan_target *oct_plan_targets(const oct_plan *plan, int64_t *count);

/* Builds every replacement, checks that each keeps the contract of its source (name, FQN,
 * parameters by identity with shape and requires_grad, buffer, children, training flag), then
 * swaps all slots. On any failure the tree is as before. One `replace` event per module.
 * Pointers to replaced modules that a caller kept are stale afterwards: look them up again. */
oct_status oct_plan_apply(const oct_plan *plan, oct_module_tree *tree, const void *context,
                          oct_trace *trace, oct_err *err) OCT_MUST_CHECK;

/* true if the whole of `name` matches `pattern`. */
bool oct_pattern_match(const char *pattern, const char *name);

/* The edits that turn `name` into something `pattern` matches; `*` costs nothing within a segment.
 */
int64_t oct_pattern_distance(const char *pattern, const char *name);

#endif
