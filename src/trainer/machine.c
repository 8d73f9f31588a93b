#include "trainer/machine.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "config/yaml.h"

const char *const oct_machine_formats[OCT_MACHINE_FORMATS] = {"bf16", "mxfp8_e4m3", "hif8"};

typedef enum machine_kind { TEXT, COUNT, RATE, SHARE } machine_kind;

typedef struct machine_key {
    const char *path; /* "section.key", or "key" */
    machine_kind kind;
    size_t offset; /* of a const char *, int64_t or double in oct_machine */
} machine_key;

#define AT(member) offsetof(oct_machine, member)

static const machine_key keys[] = {
    {"cpu", TEXT, AT(cpu)},
    {"threads_per_rank", COUNT, AT(threads_per_rank)},
    {"ranks_per_node", COUNT, AT(ranks_per_node)},
    {"thread_efficiency", SHARE, AT(thread_efficiency)},
    {"products.bf16", RATE, AT(products.of[0])},
    {"products.mxfp8_e4m3", RATE, AT(products.of[1])},
    {"products.hif8", RATE, AT(products.of[2])},
    {"experts.bf16", RATE, AT(experts.of[0])},
    {"experts.mxfp8_e4m3", RATE, AT(experts.of[1])},
    {"experts.hif8", RATE, AT(experts.of[2])},
    {"optimizer.bf16", RATE, AT(optimizer.of[0])},
    {"optimizer.mxfp8_e4m3", RATE, AT(optimizer.of[1])},
    {"optimizer.hif8", RATE, AT(optimizer.of[2])},
    {"attention", RATE, AT(attention)},
    {"pack", RATE, AT(pack)},
    {"copy", RATE, AT(copy)},
    {"node_copy", RATE, AT(node_copy)},
    {"local.gbytes", RATE, AT(local.gbytes)},
    {"local.microseconds", RATE, AT(local.microseconds)},
    {"remote.gbytes", RATE, AT(remote.gbytes)},
    {"remote.microseconds", RATE, AT(remote.microseconds)},
};

#undef AT

enum { KEYS = sizeof keys / sizeof keys[0], PATH_BYTES = 64, MAX_COUNT = 1 << 16 };

static const char *const required[] = {
    [TEXT] = "a string",
    [COUNT] = "an integer >= 1 and <= 65536",
    [RATE] = "a finite number > 0",
    [SHARE] = "a number > 0 and <= 1",
};

static oct_status wrong(const machine_key *key, const oct_value *value, oct_err *err)
{
    char where[OCT_VALUE_WORDS], found[OCT_VALUE_WORDS];
    return OCT_FAIL(err, OCT_E_CONFIG, "cannot use '%s' of a machine: %.200s, %s is required (%s)",
                    key->path, oct_value_describe(value, found), required[key->kind],
                    oct_value_where(value, where));
}

static oct_status read_value(const machine_key *key, const oct_value *value, oct_machine *out,
                             oct_err *err)
{
    void *to = (char *)out + key->offset;
    const bool number = value->kind == OCT_VALUE_INT || value->kind == OCT_VALUE_FLOAT;
    switch (key->kind) {
    case TEXT:
        if (value->kind != OCT_VALUE_STRING)
            return wrong(key, value, err);
        *(const char **)to = value->text;
        return OCT_OK;
    case COUNT:
        if (value->kind != OCT_VALUE_INT || value->integer < 1 || value->integer > MAX_COUNT)
            return wrong(key, value, err);
        *(int64_t *)to = value->integer;
        return OCT_OK;
    default:
        if (!number || !isfinite(value->real) || value->real <= 0.0 ||
            (key->kind == SHARE && value->real > 1.0))
            return wrong(key, value, err);
        *(double *)to = value->real;
        return OCT_OK;
    }
}

static int find_key(const char *path)
{
    for (int i = 0; i < KEYS; i++)
        if (strcmp(keys[i].path, path) == 0)
            return i;
    return -1;
}

static bool is_section(const char *path)
{
    const size_t length = strlen(path);
    for (int i = 0; i < KEYS; i++)
        if (strncmp(keys[i].path, path, length) == 0 && keys[i].path[length] == '.')
            return true;
    return false;
}

static oct_status unknown(const char *path, const oct_value *value, oct_err *err)
{
    char where[OCT_VALUE_WORDS];
    int nearest = 0;
    for (int i = 1; i < KEYS; i++)
        if (oct_edit_distance(path, keys[i].path) < oct_edit_distance(path, keys[nearest].path))
            nearest = i;
    return OCT_FAIL(err, OCT_E_CONFIG,
                    "unknown key '%.64s' of a machine: the nearest known key is '%s' (%s)", path,
                    keys[nearest].path, oct_value_where(value, where));
}

/* The members of the file, or of one section. */
static oct_status read_members(const oct_value *map, const char *section, bool *given,
                               oct_machine *out, oct_err *err)
{
    for (const oct_value *value = map->first; value; value = value->next) {
        char path[PATH_BYTES];
        const int length = snprintf(path, sizeof path, "%s%s%s", section ? section : "",
                                    section ? "." : "", value->key);
        if (length < 0 || length >= PATH_BYTES)
            return unknown(value->key, value, err);
        const int i = find_key(path);
        if (i >= 0) {
            OCT_TRY(read_value(&keys[i], value, out, err));
            given[i] = true;
        } else if (!section && is_section(path) && value->kind == OCT_VALUE_MAP) {
            OCT_TRY(read_members(value, path, given, out, err));
        } else {
            return unknown(path, value, err);
        }
    }
    return OCT_OK;
}

oct_status oct_machine_read(const char *path, oct_arena *arena, oct_machine *out, oct_err *err)
{
    bool given[KEYS] = {false};
    oct_value *top = NULL;
    *out = (oct_machine){0};
    OCT_TRY(oct_yaml_read_file(path, arena, &top, err));
    OCT_TRY(read_members(top, NULL, given, out, err));
    for (int i = 0; i < KEYS; i++)
        if (!given[i])
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "cannot use machine '%s': '%s' is not there, %s is required", path,
                            keys[i].path, required[keys[i].kind]);
    return OCT_OK;
}
