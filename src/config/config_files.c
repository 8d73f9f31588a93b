#include "config/config_files.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/text_buffer.h"

enum { MAX_BASE_DEPTH = 16 };

/* The files that wait for their base, outermost first: their real names find a cycle. */
typedef struct base_chain {
    oct_config_parse parse;
    oct_arena *arena;
    oct_config_take take;
    void *arg;
    const char *names[MAX_BASE_DEPTH];
    int depth;
} base_chain;

static oct_status push_file(base_chain *chain, const char *path, const char *where, oct_err *err)
{
    char real[PATH_MAX];
    const char *name = realpath(path, real) ? real : path;
    for (int i = 0; i < chain->depth; i++)
        if (strcmp(chain->names[i], name) == 0)
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "cannot read base file: %s is a base of itself, a chain without a "
                            "cycle is required (%s)",
                            path, where);
    if (chain->depth == MAX_BASE_DEPTH)
        return OCT_FAIL(
            err, OCT_E_CONFIG,
            "cannot read base file: %s is base number %d of a chain, %d are allowed (%s)", path,
            chain->depth, MAX_BASE_DEPTH - 1, where);
    return oct_text_copy(chain->arena, name, strlen(name), &chain->names[chain->depth++], err);
}

static oct_status wrong_base(const oct_value *base, const char *required, oct_err *err)
{
    char found[OCT_VALUE_WORDS], where[OCT_VALUE_WORDS];
    return OCT_FAIL(err, OCT_E_CONFIG, "wrong type of base: %s, %s is required (%s)",
                    oct_value_describe(base, found), required, oct_value_where(base, where));
}

/* `base` as it is written is relative to the folder of the file that names it. */
static oct_status base_path(const oct_value *base, char out[PATH_MAX], oct_err *err)
{
    if (base->kind != OCT_VALUE_STRING || *base->text == '\0')
        return wrong_base(base, "a file name", err);
    const char *slash = strrchr(base->file, '/');
    const int folder = slash && base->text[0] != '/' ? (int)(slash - base->file) + 1 : 0;
    const int length = snprintf(out, PATH_MAX, "%.*s%s", folder, base->file, base->text);
    if (length < 0 || length >= PATH_MAX)
        return wrong_base(base, "a shorter file name", err);
    return OCT_OK;
}

bool oct_config_is_toml(const char *path)
{
    static const char ending[] = ".toml";
    const size_t length = strlen(path), tail = sizeof ending - 1;
    return length > tail && strcasecmp(path + length - tail, ending) == 0;
}

oct_status oct_config_mixed(const char *first, const char *second, const char *where, oct_err *err)
{
    return OCT_FAIL(err, OCT_E_CONFIG,
                    "cannot mix dialects: '%.200s' and '%.200s', files that all or none of them "
                    "end in .toml are required%s%s%s",
                    first, second, *where ? " (" : "", where, *where ? ")" : "");
}

static oct_status read_file(base_chain *chain, const char *path, const char *where, oct_err *err)
{
    OCT_TRY(push_file(chain, path, where, err));
    oct_value *tree = NULL;
    oct_status status = chain->parse(path, chain->arena, &tree, err);
    if (status == OCT_E_IO && *where)
        return OCT_WRAP(err, status, "%s", where);
    OCT_TRY(status);
    oct_value *base = oct_value_find(tree, "base");
    oct_value keys = *tree;
    if (base) {
        char other[PATH_MAX], from[OCT_VALUE_WORDS];
        OCT_TRY(base_path(base, other, err));
        if (oct_config_is_toml(path) != oct_config_is_toml(other))
            return oct_config_mixed(path, other, oct_value_where(base, from), err);
        OCT_TRY(read_file(chain, other, oct_value_where(base, from), err));
        /* The rest of the map, without `base`. */
        keys.first = keys.last = NULL;
        keys.count = 0;
        for (oct_value *member = tree->first, *next; member; member = next) {
            next = member->next;
            if (member != base)
                oct_value_append(&keys, member);
        }
    }
    chain->depth--;
    return chain->take(chain->arg, &keys, err);
}

oct_status oct_config_read_chain(const char *path, oct_config_parse parse, oct_arena *arena,
                                 oct_config_take take, void *arg, oct_err *err)
{
    base_chain chain = {.parse = parse, .arena = arena, .take = take, .arg = arg};
    return read_file(&chain, path, "", err);
}
