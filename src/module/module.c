#include "module/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FQN_BYTES = 512 };

int64_t oct_param_numel(const oct_param *param)
{
    int64_t n = 1;
    for (int d = 0; d < param->ndim; d++)
        n *= param->shape[d];
    return n;
}

int64_t oct_param_row_numel(const oct_param *param)
{
    int64_t n = 1;
    for (int d = 1; d < param->ndim; d++)
        n *= param->shape[d];
    return n;
}

int64_t oct_param_own_numel(const oct_param *param)
{
    return param->rows * oct_param_row_numel(param);
}

int64_t oct_param_cols(const oct_param *param)
{
    return param->shape[param->ndim - 1];
}

int64_t oct_param_rows(const oct_param *param)
{
    int64_t rows = 1;
    for (int d = 0; d + 1 < param->ndim; d++)
        rows *= param->shape[d];
    return rows;
}

void oct_module_tree_init(oct_module_tree *tree)
{
    *tree = (oct_module_tree){0};
    oct_arena_init(&tree->arena, "module tree");
}

void oct_module_tree_release(oct_module_tree *tree)
{
    for (int64_t p = 0; p < tree->param_count; p++)
        free(tree->params[p]->init);
    oct_arena_release(&tree->arena);
    *tree = (oct_module_tree){.arena = tree->arena};
}

/* "parent.name", or "name" under a root without a name. */
static oct_status join(oct_module_tree *tree, const char *parent, const char *name, char **out,
                       oct_err *err)
{
    const size_t left = strlen(parent), right = strlen(name);
    const size_t bytes = left + right + 2;
    if (bytes > MAX_FQN_BYTES)
        return OCT_FAIL(err, OCT_E_SHAPE, "cannot name '%s' under '%s': %zu bytes, at most %d",
                        name, parent, bytes, MAX_FQN_BYTES);
    void *text = NULL;
    OCT_TRY(oct_arena_alloc(&tree->arena, bytes, &text, err));
    snprintf(text, bytes, "%s%s%s", parent, left ? "." : "", name);
    *out = text;
    return OCT_OK;
}

static oct_status take_slot(oct_module *parent, oct_module *child, oct_err *err)
{
    if (parent->child_count >= parent->child_capacity)
        return OCT_FAIL(err, OCT_E_API, "cannot add '%s' to '%s': all %d slots are taken",
                        child->name, parent->fqn, parent->child_capacity);
    parent->children[parent->child_count++] = child;
    return OCT_OK;
}

oct_status oct_module_add(oct_module_tree *tree, oct_module *parent, const char *name,
                          const oct_module_type *type, int max_children, oct_module **out,
                          oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_zalloc(&tree->arena, sizeof(oct_module), &memory, err));
    oct_module *module = memory;
    module->child_capacity = max_children;
    module->type = type;
    module->training = true;
    OCT_TRY(join(tree, "", name, &module->name, err));
    OCT_TRY(join(tree, parent ? parent->fqn : "", name, &module->fqn, err));
    OCT_TRY(oct_arena_array(&tree->arena, max_children, sizeof *module->children, &memory, err));
    module->children = memory;
    if (parent)
        OCT_TRY(take_slot(parent, module, err));
    else if (tree->root)
        return OCT_FAIL(err, OCT_E_API, "cannot add root '%s': the tree has a root", name);
    else
        tree->root = module;
    *out = module;
    return OCT_OK;
}

oct_status oct_module_alias(oct_module_tree *tree, oct_module *parent, oct_module *module,
                            oct_err *err)
{
    (void)tree;
    return take_slot(parent, module, err);
}

/* Makes room for one more pointer; lists double, old copies stay in the arena. */
static oct_status grow(oct_module_tree *tree, void ***list, int64_t count, oct_err *err)
{
    if (count & (count - 1)) /* room is a power of two, 0 and 1 included */
        return OCT_OK;
    void *bigger = NULL;
    OCT_TRY(oct_arena_array(&tree->arena, count ? 2 * count : 1, sizeof **list, &bigger, err));
    if (count)
        memcpy(bigger, *list, (size_t)count * sizeof **list);
    *list = bigger;
    return OCT_OK;
}

oct_status oct_module_share_param(oct_module_tree *tree, oct_module *module, const char *name,
                                  oct_param *param, oct_err *err)
{
    if (module->param_count >= OCT_MODULE_MAX_PARAMS)
        return OCT_FAIL(err, OCT_E_API, "cannot add parameter '%s' to '%s': it has %d already",
                        name, module->fqn, module->param_count);
    char *copy = NULL;
    OCT_TRY(join(tree, "", name, &copy, err));
    module->param_names[module->param_count] = copy;
    module->params[module->param_count++] = param;
    return OCT_OK;
}

oct_status oct_module_add_param(oct_module_tree *tree, oct_module *module, const char *name,
                                int ndim, const int64_t *shape, oct_param **out, oct_err *err)
{
    if (ndim < 1 || ndim > 3)
        return OCT_FAIL(err, OCT_E_SHAPE, "cannot add parameter '%s' to '%s': %d dims, 1 to 3",
                        name, module->fqn, ndim);
    void *memory = NULL;
    OCT_TRY(oct_arena_zalloc(&tree->arena, sizeof(oct_param), &memory, err));
    oct_param *param = memory;
    param->ndim = ndim;
    param->requires_grad = true;
    int64_t numel = 1;
    for (int d = 0; d < ndim; d++) {
        param->shape[d] = shape[d];
        if (shape[d] < 1 || __builtin_mul_overflow(numel, shape[d], &numel))
            return OCT_FAIL(err, OCT_E_SHAPE, "cannot add parameter '%s' to '%s': dim %d is %lld",
                            name, module->fqn, d, (long long)shape[d]);
    }
    param->rows = shape[0];
    OCT_TRY(join(tree, module->fqn, name, &param->fqn, err));
    OCT_TRY(oct_module_share_param(tree, module, name, param, err));
    void **list = (void **)tree->params;
    OCT_TRY(grow(tree, &list, tree->param_count, err));
    tree->params = (oct_param **)list;
    tree->params[tree->param_count++] = param;
    *out = param;
    return OCT_OK;
}

oct_status oct_module_add_buffer(oct_module_tree *tree, oct_module *module, const char *name,
                                 int64_t numel, bool persistent, oct_buffer **out, oct_err *err)
{
    if (module->buffer)
        return OCT_FAIL(err, OCT_E_API, "cannot add buffer '%s' to '%s': it has one", name,
                        module->fqn);
    void *memory = NULL;
    OCT_TRY(oct_arena_zalloc(&tree->arena, sizeof(oct_buffer), &memory, err));
    oct_buffer *buffer = memory;
    buffer->numel = numel;
    buffer->persistent = persistent;
    OCT_TRY(join(tree, module->fqn, name, &buffer->fqn, err));
    void **list = (void **)tree->buffers;
    OCT_TRY(grow(tree, &list, tree->buffer_count, err));
    tree->buffers = (oct_buffer **)list;
    tree->buffers[tree->buffer_count++] = buffer;
    module->buffer = buffer;
    *out = buffer;
    return OCT_OK;
}

oct_status oct_module_materialise_buffers(oct_module_tree *tree, oct_err *err)
{
    for (int64_t b = 0; b < tree->buffer_count; b++) {
        oct_buffer *buffer = tree->buffers[b];
        if (buffer->data)
            continue;
        void *data = NULL;
        OCT_TRY(oct_arena_array(&tree->arena, buffer->numel, sizeof *buffer->data, &data, err));
        memset(data, 0, (size_t)buffer->numel * sizeof *buffer->data);
        buffer->data = data;
    }
    return OCT_OK;
}

/* `path` holds the FQN of *slot and has room for MAX_FQN_BYTES. */
static oct_status walk(oct_module **slot, char *path, oct_module_visitor visit, void *arg,
                       oct_err *err)
{
    OCT_TRY(visit(arg, path, slot, err));
    const oct_module *module = *slot;
    const size_t length = strlen(path);
    for (int c = 0; c < module->child_count; c++) {
        const char *name = module->children[c]->name;
        const int wrote =
            snprintf(path + length, MAX_FQN_BYTES - length, "%s%s", length ? "." : "", name);
        if (wrote < 0 || (size_t)wrote >= MAX_FQN_BYTES - length)
            return OCT_FAIL(err, OCT_E_SHAPE, "cannot visit '%s' under '%s': FQN over %d bytes",
                            name, module->fqn, MAX_FQN_BYTES);
        OCT_TRY(walk(&module->children[c], path, visit, arg, err));
        path[length] = '\0';
    }
    return OCT_OK;
}

oct_status oct_module_walk(oct_module_tree *tree, oct_module_visitor visit, void *arg, oct_err *err)
{
    if (!tree->root)
        return OCT_OK;
    char path[MAX_FQN_BYTES];
    snprintf(path, sizeof path, "%s", tree->root->name);
    return walk(&tree->root, path, visit, arg, err);
}

static int64_t count_slots(const oct_module *module)
{
    int64_t count = 1;
    for (int i = 0; i < module->child_count; i++)
        count += count_slots(module->children[i]);
    return count;
}

int64_t oct_module_slots(oct_module_tree *tree)
{
    return tree->root ? count_slots(tree->root) : 0;
}

typedef struct search {
    const char *fqn;
    oct_module *found;
} search;

static oct_status compare(void *arg, const char *fqn, oct_module **slot, oct_err *err)
{
    (void)err;
    search *wanted = arg;
    if (!wanted->found && !strcmp(fqn, wanted->fqn))
        wanted->found = *slot;
    return OCT_OK;
}

oct_module *oct_module_find(oct_module_tree *tree, const char *fqn)
{
    search wanted = {.fqn = fqn};
    return oct_module_walk(tree, compare, &wanted, NULL) == OCT_OK ? wanted.found : NULL;
}

bool oct_module_type_is(const oct_module_type *type, const oct_module_type *of)
{
    for (; type; type = type->base)
        if (type == of)
            return true;
    return false;
}
