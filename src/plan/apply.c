/* Building, checking and installing the replacements of a plan. */
#include <string.h>

#include "plan/plan.h"

/* What a replacement must keep, read before its factory runs. */
typedef struct contract {
    oct_module module; /* the fields by value */
    oct_param params[OCT_MODULE_MAX_PARAMS];
} contract;

static contract contract_of(const oct_module *module)
{
    contract kept = {.module = *module};
    for (int i = 0; i < module->param_count; i++)
        kept.params[i] = *module->params[i];
    return kept;
}

/* The first thing that differs, or NULL. */
static const char *broken_param(const contract *kept, const oct_module *now, int i)
{
    if (now->params[i] != kept->module.params[i])
        return "parameter identity";
    if (strcmp(now->param_names[i], kept->module.param_names[i]) != 0)
        return "parameter name";
    const oct_param *before = &kept->params[i], *after = now->params[i];
    if (strcmp(before->fqn, after->fqn) != 0)
        return "checkpoint key";
    if (before->ndim != after->ndim ||
        memcmp(before->shape, after->shape, (size_t)before->ndim * sizeof before->shape[0]) != 0)
        return "parameter shape";
    if (before->requires_grad != after->requires_grad)
        return "requires_grad";
    return NULL;
}

static const char *broken(const contract *kept, const oct_module *now)
{
    const oct_module *before = &kept->module;
    if (strcmp(before->fqn, now->fqn) != 0 || strcmp(before->name, now->name) != 0)
        return "FQN";
    if (before->training != now->training)
        return "training flag";
    if (before->buffer != now->buffer)
        return "buffer identity";
    if (before->child_count != now->child_count || before->children != now->children)
        return "children";
    if (before->param_count != now->param_count)
        return "number of parameters";
    for (int i = 0; i < now->param_count; i++) {
        const char *what = broken_param(kept, now, i);
        if (what)
            return what;
    }
    return NULL;
}

static oct_status build_one(const oct_plan_target *target, const char *where, oct_module_tree *tree,
                            const void *context, oct_module **out, oct_err *err)
{
    const contract kept = contract_of(target->module);
    const oct_status status =
        target->factory->build(tree, target->module, target->fqn, context, out, err);
    if (status != OCT_OK)
        return OCT_WRAP(err, status, "building the replacement of '%s' (%s)", target->fqn, where);
    const char *what = broken(&kept, *out);
    if (what || broken(&kept, target->module))
        return OCT_FAIL(err, OCT_E_PLAN,
                        "cannot replace '%s': '%s' changed its %s, the same is required (%s)",
                        target->fqn, target->factory->target,
                        what ? what : broken(&kept, target->module), where);
    return OCT_OK;
}

/* Old and new modules, for the walk that swaps slots. */
typedef struct installation {
    const oct_plan_target *targets;
    oct_module **built;
    int64_t count;
} installation;

static oct_status install_slot(void *arg, const char *fqn, oct_module **slot, oct_err *err)
{
    (void)fqn;
    (void)err;
    const installation *all = arg;
    for (int64_t i = 0; i < all->count; i++)
        if (*slot == all->targets[i].module) {
            *slot = all->built[i];
            break;
        }
    return OCT_OK;
}

oct_status oct_plan_apply(const oct_plan *plan, oct_module_tree *tree, const void *context,
                          oct_trace *trace, oct_err *err)
{
    installation all = {0};
    all.targets = oct_plan_targets(plan, &all.count);
    const oct_arena_mark mark = oct_arena_save(&tree->arena);
    void *memory = NULL;
    OCT_TRY(oct_arena_array(&tree->arena, all.count, sizeof(oct_module *), &memory, err));
    all.built = memory;
    for (int64_t i = 0; i < all.count; i++) {
        const oct_plan_rule *rule = oct_plan_rule_at(plan, all.targets[i].rule);
        const oct_status status = build_one(&all.targets[i], rule->where ? rule->where : "plan",
                                            tree, context, &all.built[i], err);
        if (status != OCT_OK) {
            oct_arena_rewind(&tree->arena, mark);
            return status;
        }
    }
    OCT_TRY(oct_module_walk(tree, install_slot, &all, err));
    for (int64_t i = 0; i < all.count; i++)
        oct_trace_emit(trace, &(oct_trace_event){.kind = OCT_TRACE_REPLACE,
                                                 .fqn = all.targets[i].fqn,
                                                 .from = all.targets[i].module->type->name,
                                                 .to = all.built[i]->type->name});
    return OCT_OK;
}
