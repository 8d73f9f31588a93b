#include "config/value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/text_buffer.h"

oct_status oct_value_create(oct_arena *arena, oct_value_kind kind, const char *file, int line,
                            int column, oct_value **out, oct_err *err)
{
    void *node = NULL;
    OCT_TRY(oct_arena_alloc(arena, sizeof(oct_value), &node, err));
    *out = node;
    **out = (oct_value){.kind = kind, .file = file, .line = line, .column = column};
    return OCT_OK;
}

void oct_value_append(oct_value *parent, oct_value *child)
{
    child->next = NULL;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
    parent->count++;
}

oct_value *oct_value_find(const oct_value *map, const char *key)
{
    for (oct_value *member = map->first; member; member = member->next)
        if (strcmp(member->key, key) == 0)
            return member;
    return NULL;
}

oct_value *oct_value_at(const oct_value *map, const char *path)
{
    for (oct_value *member = map->first; member; member = member->next) {
        const size_t length = strlen(member->key);
        if (strncmp(path, member->key, length) != 0)
            continue;
        if (path[length] == '\0')
            return member;
        if (path[length] == '.' && member->kind == OCT_VALUE_MAP) {
            oct_value *found = oct_value_at(member, path + length + 1);
            if (found)
                return found;
        }
    }
    return NULL;
}

oct_status oct_value_put(oct_value *map, const char *path, oct_value *value, oct_arena *arena,
                         oct_err *err)
{
    const char *key = NULL, *dot = strchr(path, '.');
    OCT_TRY(oct_text_copy(arena, path, dot ? (size_t)(dot - path) : strlen(path), &key, err));
    oct_value *found = oct_value_find(map, key);
    if (dot) {
        if (!found || found->kind != OCT_VALUE_MAP) {
            oct_value *made = NULL;
            OCT_TRY(oct_value_create(arena, OCT_VALUE_MAP, value->file, value->line, value->column,
                                     &made, err));
            OCT_TRY(oct_value_put(map, key, made, arena, err));
            found = oct_value_find(map, key);
        }
        return oct_value_put(found, dot + 1, value, arena, err);
    }
    value->key = key;
    if (found) {
        value->next = found->next;
        *found = *value;
    } else {
        oct_value_append(map, value);
    }
    return OCT_OK;
}

const char *oct_value_where(const oct_value *value, char buffer[OCT_VALUE_WORDS])
{
    const char *origin = value->origin ? value->origin : "";
    const char *comma = *origin ? ", " : "";
    if (value->line > 0)
        (void)snprintf(buffer, OCT_VALUE_WORDS, "%s:%d%s%s", value->file, value->line, comma,
                       origin);
    else if (strncmp(value->file, origin, strlen(origin)) != 0) /* no word names its own key */
        (void)snprintf(buffer, OCT_VALUE_WORDS, "%s%s%s", value->file, comma, origin);
    else
        (void)snprintf(buffer, OCT_VALUE_WORDS, "%s", value->file);
    return buffer;
}

const char *oct_value_describe(const oct_value *value, char buffer[OCT_VALUE_WORDS])
{
    static const char *const names[] = {"null",   "boolean", "integer", "float",
                                        "string", "date",    "list",    "map"};
    const char *name = names[value->kind];
    /* A long value tells no more than its start. */
    if (value->kind == OCT_VALUE_STRING)
        (void)snprintf(buffer, OCT_VALUE_WORDS, "%s \"%.100s\"", name, value->text);
    else if (value->text && value->kind != OCT_VALUE_NULL)
        (void)snprintf(buffer, OCT_VALUE_WORDS, "%s %.100s", name, value->text);
    else
        (void)snprintf(buffer, OCT_VALUE_WORDS, "%s", name);
    return buffer;
}

/* Trees are at most as deep as the readers allow. */
oct_status oct_value_copy(const oct_value *from, oct_arena *arena, oct_value **out, oct_err *err)
{
    oct_value *to = NULL;
    OCT_TRY(oct_value_create(arena, from->kind, from->file, from->line, from->column, &to, err));
    *to = *from;
    to->first = to->last = to->next = NULL;
    to->count = 0;
    for (const oct_value *child = from->first; child; child = child->next) {
        oct_value *twin = NULL;
        OCT_TRY(oct_value_copy(child, arena, &twin, err));
        oct_value_append(to, twin);
    }
    *out = to;
    return OCT_OK;
}

oct_status oct_value_merge(oct_value *under, const oct_value *over, oct_arena *arena, oct_err *err)
{
    for (const oct_value *member = over->first; member; member = member->next) {
        oct_value *old = oct_value_find(under, member->key);
        if (old && old->kind == OCT_VALUE_MAP && member->kind == OCT_VALUE_MAP) {
            OCT_TRY(oct_value_merge(old, member, arena, err));
            continue;
        }
        oct_value *twin = NULL;
        OCT_TRY(oct_value_copy(member, arena, &twin, err));
        if (old) {
            twin->next = old->next;
            *old = *twin;
        } else {
            oct_value_append(under, twin);
        }
    }
    return OCT_OK;
}

static const char *key_of(const oct_value *value)
{
    return value->key ? value->key : "an item";
}

static oct_status write_json(const oct_value *value, oct_text_buffer *json, oct_err *err)
{
    switch (value->kind) {
    case OCT_VALUE_NULL:
        return oct_text_append(json, err, "null");
    case OCT_VALUE_BOOL:
        return oct_text_append(json, err, value->boolean ? "true" : "false");
    case OCT_VALUE_INT:
        return oct_text_append(json, err, "%lld", (long long)value->integer);
    case OCT_VALUE_STRING:
        return oct_text_append_quoted(json, value->text, err);
    case OCT_VALUE_FLOAT:
        if (!isfinite(value->real)) {
            char where[OCT_VALUE_WORDS];
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "wrong value of %s: %s, a finite number is required (%s)",
                            key_of(value), value->text, oct_value_where(value, where));
        }
        return oct_text_append_float(json, value->real, err);
    case OCT_VALUE_DATE: {
        char where[OCT_VALUE_WORDS];
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "wrong value of %s: date %s, a value of JSON is required (%s)",
                        key_of(value), value->text, oct_value_where(value, where));
    }
    case OCT_VALUE_LIST:
    case OCT_VALUE_MAP:
        break;
    }
    const bool is_map = value->kind == OCT_VALUE_MAP;
    OCT_TRY(oct_text_append(json, err, is_map ? "{" : "["));
    for (const oct_value *child = value->first; child; child = child->next) {
        if (is_map) {
            OCT_TRY(oct_text_append_quoted(json, child->key, err));
            OCT_TRY(oct_text_append(json, err, ": "));
        }
        OCT_TRY(write_json(child, json, err));
        if (child->next)
            OCT_TRY(oct_text_append(json, err, ", "));
    }
    return oct_text_append(json, err, is_map ? "}" : "]");
}

oct_status oct_value_to_json(const oct_value *value, oct_arena *arena, const char **out,
                             oct_err *err)
{
    oct_text_buffer json = {.arena = arena};
    OCT_TRY(write_json(value, &json, err));
    *out = json.data;
    return OCT_OK;
}
