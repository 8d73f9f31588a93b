#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

/* A module of the tree under one of its FQNs. */
typedef struct place {
    const char *fqn;
    oct_module *module;
    int64_t rule; /* that hit this FQN, -1: none */
} place;

struct oct_plan {
    const oct_plan_rule *rules;
    int64_t rule_count;
    int64_t **hits; /* [rule][pattern] */
    const oct_plan_target *targets;
    int64_t target_count;
};

/* Everything that compilation looks at. */
typedef struct compiler {
    const oct_plan_rule *rules;
    int64_t rule_count;
    const oct_plan_registry *registry;
    oct_arena *arena;
    place *places;
    int64_t place_count;
} compiler;

static const char *where_of(const oct_plan_rule *rule)
{
    return rule->where ? rule->where : "plan_overrides";
}

/* --- the places of a tree -------------------------------------------------------------------- */

static oct_status list_place(void *arg, const char *fqn, oct_module **slot, oct_err *err)
{
    compiler *c = arg;
    const size_t bytes = strlen(fqn) + 1;
    void *copy = NULL;
    OCT_TRY(oct_arena_alloc(c->arena, bytes, &copy, err));
    memcpy(copy, fqn, bytes);
    c->places[c->place_count++] = (place){.fqn = copy, .module = *slot, .rule = -1};
    return OCT_OK;
}

static oct_status list_places(compiler *c, oct_module_tree *tree, oct_err *err)
{
    void *places = NULL;
    OCT_TRY(oct_arena_array(c->arena, oct_module_slots(tree), sizeof(place), &places, err));
    c->places = places;
    return oct_module_walk(tree, list_place, c, err);
}

/* --- names that were meant ------------------------------------------------------------------- */

enum { NEAREST_COUNT = 3, NEAREST_TEXT = 512 };

/* The names closest to what a rule says, as "'a', 'b', 'c'". */
typedef struct nearest {
    const char *wanted;
    const char *name[NEAREST_COUNT];
    int64_t distance[NEAREST_COUNT];
    int count;
} nearest;

static void nearest_offer(nearest *list, const char *name)
{
    const int64_t distance = oct_pattern_distance(list->wanted, name);
    int at = list->count;
    while (at > 0 && distance < list->distance[at - 1])
        at--;
    if (at == NEAREST_COUNT)
        return;
    if (list->count < NEAREST_COUNT)
        list->count++;
    for (int i = list->count - 1; i > at; i--) {
        list->name[i] = list->name[i - 1];
        list->distance[i] = list->distance[i - 1];
    }
    list->name[at] = name;
    list->distance[at] = distance;
}

static const char *nearest_text(const nearest *list, char text[NEAREST_TEXT])
{
    int used = 0;
    text[0] = '\0';
    for (int i = 0; i < list->count && used >= 0 && used < NEAREST_TEXT; i++)
        used += snprintf(text + used, (size_t)(NEAREST_TEXT - used), "%s'%s'", i ? ", " : "",
                         list->name[i]);
    return text;
}

static oct_status find_factory(const oct_plan_registry *registry, const oct_plan_rule *rule,
                               const oct_plan_factory **factory, oct_err *err)
{
    nearest list = {.wanted = rule->target};
    for (int64_t i = 0; i < registry->factory_count; i++) {
        if (strcmp(registry->factories[i].target, rule->target) == 0) {
            *factory = &registry->factories[i];
            return OCT_OK;
        }
        nearest_offer(&list, registry->factories[i].target);
    }
    if (list.count > 1)
        list.count = 1;
    char text[NEAREST_TEXT];
    return OCT_FAIL(err, OCT_E_PLAN,
                    "cannot compile the replacement plan: no factory is named '%s', the nearest is "
                    "%s (replace_module._target_, %s)",
                    rule->target, nearest_text(&list, text), where_of(rule));
}

static oct_status find_type(const oct_plan_registry *registry, const oct_plan_rule *rule,
                            const oct_module_type **type, oct_err *err)
{
    nearest list = {.wanted = rule->module_type};
    for (int64_t i = 0; i < registry->type_count; i++) {
        if (strcmp(registry->types[i]->name, rule->module_type) == 0) {
            *type = registry->types[i];
            return OCT_OK;
        }
        nearest_offer(&list, registry->types[i]->name);
    }
    if (list.count > 1)
        list.count = 1;
    char text[NEAREST_TEXT];
    return OCT_FAIL(
        err, OCT_E_PLAN,
        "cannot compile the replacement plan: no module type is named '%s', the nearest "
        "is %s (module_type, %s)",
        rule->module_type, nearest_text(&list, text), where_of(rule));
}

static oct_status fail_without_hit(const compiler *c, const oct_plan_rule *rule,
                                   const char *pattern, oct_err *err)
{
    nearest list = {.wanted = pattern};
    for (int64_t i = 0; i < c->place_count; i++)
        nearest_offer(&list, c->places[i].fqn);
    char text[NEAREST_TEXT];
    return OCT_FAIL(
        err, OCT_E_PLAN,
        "cannot compile the replacement plan: pattern '%s' matches 0 modules, at least 1 "
        "is required; the nearest are %s (match, %s)",
        pattern, nearest_text(&list, text), where_of(rule));
}

/* --- the checks ------------------------------------------------------------------------------ */

/* The root has no name. */
static const char *shown(const place *hit)
{
    return hit->fqn[0] ? hit->fqn : "(the root)";
}

static oct_status check_type(const place *hit, const oct_plan_rule *rule,
                             const oct_module_type *type, oct_err *err)
{
    const oct_module_type *found = hit->module->type;
    if (found == type || (!rule->exact_type && oct_module_type_is(found, type)))
        return OCT_OK;
    if (oct_module_type_is(found, type))
        return OCT_FAIL(err, OCT_E_PLAN,
                        "cannot replace '%s': it is a '%s', derived from '%s', but exactly '%s' is "
                        "required (exact_type, %s)",
                        shown(hit), found->name, type->name, type->name, where_of(rule));
    return OCT_FAIL(err, OCT_E_PLAN, "cannot replace '%s': it is a '%s', '%s' is required (%s)",
                    shown(hit), found->name, type->name, where_of(rule));
}

/* What a build would refuse is refused before anything is built. */
static oct_status check_source(const place *hit, const oct_plan_rule *rule,
                               const oct_plan_factory *factory, oct_err *err)
{
    const oct_module_type *found = hit->module->type;
    if (!factory->source || oct_module_type_is(found, factory->source))
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_PLAN,
                    "cannot replace '%s': it is a '%s', the factory '%s' builds from a '%s', "
                    "which is required (replace_module._target_, %s)",
                    shown(hit), found->name, factory->target, factory->source->name,
                    where_of(rule));
}

/* The rule that selected a module under any of its FQNs, or -1. */
static int64_t rule_of(const compiler *c, const oct_module *module)
{
    for (int64_t i = 0; i < c->place_count; i++)
        if (c->places[i].module == module && c->places[i].rule >= 0)
            return c->places[i].rule;
    return -1;
}

static oct_status match_pattern(compiler *c, int64_t r, const char *pattern,
                                const oct_module_type *type, const oct_plan_factory *factory,
                                int64_t *hits, oct_err *err)
{
    const oct_plan_rule *rule = &c->rules[r];
    *hits = 0;
    for (int64_t i = 0; i < c->place_count; i++) {
        place *at = &c->places[i];
        if (!oct_pattern_match(pattern, at->fqn))
            continue;
        OCT_TRY(check_type(at, rule, type, err));
        OCT_TRY(check_source(at, rule, factory, err));
        const int64_t earlier = rule_of(c, at->module);
        if (earlier >= 0 && earlier != r)
            return OCT_FAIL(
                err, OCT_E_PLAN,
                "cannot replace '%s': two rules hit it, '%s' (%s) and '%s' (%s), one is "
                "required",
                at->fqn, c->rules[earlier].target, where_of(&c->rules[earlier]), rule->target,
                where_of(rule));
        at->rule = r;
        ++*hits;
    }
    return *hits ? OCT_OK : fail_without_hit(c, rule, pattern, err);
}

static oct_status check_nesting(const compiler *c, oct_err *err)
{
    for (int64_t i = 0; i < c->place_count; i++) {
        const place *outer = &c->places[i];
        const size_t length = strlen(outer->fqn);
        if (outer->rule < 0)
            continue;
        for (int64_t j = 0; j < c->place_count; j++) {
            const place *inner = &c->places[j];
            const bool below =
                j != i && (length == 0 || (strncmp(inner->fqn, outer->fqn, length) == 0 &&
                                           inner->fqn[length] == '.'));
            if (inner->rule >= 0 && below)
                return OCT_FAIL(
                    err, OCT_E_PLAN,
                    "cannot replace '%s' (%s): '%s' inside it is selected too (%s), one "
                    "of them is required",
                    outer->fqn, where_of(&c->rules[outer->rule]), inner->fqn,
                    where_of(&c->rules[inner->rule]));
        }
    }
    return OCT_OK;
}

static bool names_param(const oct_module *module, const oct_param *param)
{
    for (int i = 0; i < module->param_count; i++)
        if (module->params[i] == param)
            return true;
    return false;
}

/* A replacement may change how a parameter is stored: whoever else reads it must change along. */
static oct_status check_sharing(const compiler *c, oct_err *err)
{
    for (int64_t i = 0; i < c->place_count; i++) {
        const place *hit = &c->places[i];
        if (hit->rule < 0)
            continue;
        for (int p = 0; p < hit->module->param_count; p++)
            for (int64_t j = 0; j < c->place_count; j++)
                if (names_param(c->places[j].module, hit->module->params[p]) &&
                    rule_of(c, c->places[j].module) < 0)
                    return OCT_FAIL(err, OCT_E_PLAN,
                                    "cannot replace '%s': it shares '%s' with '%s', which no rule "
                                    "selects; both or none are required (%s)",
                                    hit->fqn, hit->module->params[p]->fqn, c->places[j].fqn,
                                    where_of(&c->rules[hit->rule]));
    }
    return OCT_OK;
}

/* One target per module, in tree order. */
static oct_status list_targets(const compiler *c, const oct_plan_factory *const *factories,
                               oct_plan *plan, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_array(c->arena, c->place_count, sizeof(oct_plan_target), &memory, err));
    oct_plan_target *targets = memory;
    for (int64_t i = 0; i < c->place_count; i++) {
        const place *at = &c->places[i];
        const int64_t rule = rule_of(c, at->module);
        bool listed = rule < 0;
        for (int64_t t = 0; t < plan->target_count && !listed; t++)
            listed = targets[t].module == at->module;
        if (!listed)
            targets[plan->target_count++] = (oct_plan_target){
                .fqn = at->fqn, .module = at->module, .rule = rule, .factory = factories[rule]};
    }
    plan->targets = targets;
    return OCT_OK;
}

oct_status oct_plan_compile(oct_module_tree *tree, const oct_plan_rule *rules, int64_t rule_count,
                            const oct_plan_registry *registry, oct_arena *arena, oct_plan **plan,
                            oct_err *err)
{
    compiler c = {.rules = rules, .rule_count = rule_count, .registry = registry, .arena = arena};
    OCT_TRY(list_places(&c, tree, err));
    void *hits = NULL, *memory = NULL, *slots = NULL;
    OCT_TRY(oct_arena_array(arena, rule_count, sizeof(int64_t *), &hits, err));
    OCT_TRY(oct_arena_array(arena, rule_count, sizeof(oct_plan_factory *), &slots, err));
    const oct_plan_factory **factories = slots;
    OCT_TRY(oct_arena_zalloc(arena, sizeof(oct_plan), &memory, err));
    oct_plan *made = memory;
    *made = (oct_plan){.rules = rules, .rule_count = rule_count, .hits = hits};
    for (int64_t r = 0; r < rule_count; r++) {
        const oct_module_type *type = NULL;
        if (rules[r].pattern_count <= 0)
            return OCT_FAIL(
                err, OCT_E_PLAN,
                "cannot compile the replacement plan: a rule has 0 patterns, at least 1 "
                "is required (match, %s)",
                where_of(&rules[r]));
        OCT_TRY(find_factory(registry, &rules[r], &factories[r], err));
        OCT_TRY(find_type(registry, &rules[r], &type, err));
        void *counts = NULL;
        OCT_TRY(oct_arena_array(arena, rules[r].pattern_count, sizeof(int64_t), &counts, err));
        made->hits[r] = counts;
        for (int64_t p = 0; p < rules[r].pattern_count; p++)
            OCT_TRY(match_pattern(&c, r, rules[r].patterns[p], type, factories[r],
                                  &made->hits[r][p], err));
    }
    OCT_TRY(check_nesting(&c, err));
    OCT_TRY(check_sharing(&c, err));
    OCT_TRY(list_targets(&c, factories, made, err));
    *plan = made;
    return OCT_OK;
}

int64_t oct_plan_rule_count(const oct_plan *plan)
{
    return plan->rule_count;
}

const oct_plan_rule *oct_plan_rule_at(const oct_plan *plan, int64_t rule)
{
    return &plan->rules[rule];
}

int64_t oct_plan_hits(const oct_plan *plan, int64_t rule, int64_t pattern)
{
    return plan->hits[rule][pattern];
}

const oct_plan_target *oct_plan_targets(const oct_plan *plan, int64_t *count)
{
    *count = plan->target_count;
    return plan->targets;
}
