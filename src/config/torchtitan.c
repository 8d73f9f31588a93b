#include "config/torchtitan.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "config/config_files.h"
#include "config/schema.h"
#include "config/text_buffer.h"
#include "config/toml.h"
#include "config/torchtitan_job.h"
#include "config/yaml.h"

enum { MAX_PATH = 256 };

/* Where octet keys stand that torchtitan has no name for. */
static const char octet_section[] = "octet";

oct_status oct_torchtitan_is_dialect_of(const char *const *files, int count, bool *yes,
                                        oct_err *err)
{
    *yes = count > 0 && oct_config_is_toml(files[0]);
    for (int i = 1; i < count; i++)
        if (oct_config_is_toml(files[i]) != *yes)
            return oct_config_mixed(files[0], files[i], "", err);
    return OCT_OK;
}

/* The octet key of a path in the section [octet], or NULL. */
static const char *octet_path(const char *path)
{
    const size_t length = sizeof octet_section - 1;
    return strncmp(path, octet_section, length) == 0 && path[length] == '.' ? path + length + 1
                                                                            : NULL;
}

bool oct_torchtitan_is_flag(const char *path)
{
    const oct_torchtitan_key *key = oct_torchtitan_find(path);
    const char *own = octet_path(path);
    const oct_key *octet_key = own ? oct_schema_find(oct_schema_config(), own) : NULL;
    return (key && key->type == OCT_TT_BOOL) || (octet_key && octet_key->type == OCT_KEY_BOOL);
}

/* --- What is written ------------------------------------------------------------------------- */

static bool fits(const oct_torchtitan_key *key, const oct_value *value)
{
    if (value->kind == OCT_VALUE_NULL)
        return key->fallback && strcmp(key->fallback, "null") == 0;
    switch (key->type) {
    case OCT_TT_BOOL:
        return value->kind == OCT_VALUE_BOOL;
    case OCT_TT_INT:
        return value->kind == OCT_VALUE_INT;
    case OCT_TT_FLOAT:
        return value->kind == OCT_VALUE_FLOAT || value->kind == OCT_VALUE_INT;
    case OCT_TT_STRING:
        return value->kind == OCT_VALUE_STRING;
    case OCT_TT_STRINGS:
        if (value->kind == OCT_VALUE_STRING)
            return true;
        for (const oct_value *item = value->first; item; item = item->next)
            if (item->kind != OCT_VALUE_STRING)
                return false;
        return value->kind == OCT_VALUE_LIST;
    case OCT_TT_LIST:
        return value->kind == OCT_VALUE_LIST;
    }
    return false;
}

static oct_status wrong_type(const char *path, const oct_value *value, const char *required,
                             oct_err *err)
{
    char found[OCT_VALUE_WORDS], where[OCT_VALUE_WORDS];
    return OCT_FAIL(err, OCT_E_CONFIG, "wrong type of %s: %s, %s is required (%s)", path,
                    oct_value_describe(value, found), required, oct_value_where(value, where));
}

/* What a path of a file or word is. */
typedef enum path_kind { PATH_UNKNOWN, PATH_KEY, PATH_OCTET_KEY, PATH_SECTION } path_kind;

static path_kind kind_of(const char *path)
{
    const oct_schema schema = oct_schema_config();
    const char *own = octet_path(path);
    if (own && oct_schema_find(schema, own))
        return PATH_OCTET_KEY;
    if (oct_torchtitan_find(path))
        return PATH_KEY;
    const bool section = own ? oct_schema_is_section(schema, own)
                             : strcmp(path, octet_section) == 0 || oct_torchtitan_is_section(path);
    return section ? PATH_SECTION : PATH_UNKNOWN;
}

/* Two places for one value would hide which of them counts. */
static oct_status check_octet_place(const char *path, const oct_value *value, oct_err *err)
{
    const char *own = octet_path(path);
    const oct_torchtitan_key *place = oct_torchtitan_place_of(own);
    char where[OCT_VALUE_WORDS];
    if (strncmp(own, "low_precision.", sizeof "low_precision." - 1) == 0)
        place = oct_torchtitan_find("model.converters");
    if (!place)
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_CONFIG,
                    "unsupported key %s: it follows from %s, which is required (%s)", path,
                    place->path, oct_value_where(value, where));
}

/* section.name, or false if it is none: too long, or a name with a dot of its own. */
static bool join_path(const char *section, const char *name, char out[MAX_PATH])
{
    const int length = snprintf(out, MAX_PATH, "%s%s%s", section, *section ? "." : "", name);
    return length >= 0 && length < MAX_PATH && !strchr(name, '.');
}

/* The key that was probably meant by a path without one: the place of an octet key that is written
 * as in YAML, else the nearest name. */
static oct_status suggest(const oct_torchtitan_job *job, const char *path, const oct_value *value,
                          const char **out, oct_err *err)
{
    const oct_schema schema = oct_schema_config();
    const char *own = octet_path(path);
    oct_text_buffer text = {.arena = job->arena};
    OCT_TRY(oct_text_append(&text, err, "%s", path));
    for (const oct_value *v = value->first; v && v->key; v = v->first)
        OCT_TRY(oct_text_append(&text, err, ".%s", v->key));
    const char *octet_key = NULL;
    if (own)
        octet_key = oct_schema_nearest(schema, own);
    else if (oct_schema_find(schema, text.data))
        octet_key = text.data;
    if (!octet_key) {
        char nearest[OCT_TT_PATH];
        oct_torchtitan_nearest(path, value->kind == OCT_VALUE_MAP, nearest);
        return oct_text_copy(job->arena, nearest, strlen(nearest), out, err);
    }
    const oct_torchtitan_key *place = oct_torchtitan_place_of(octet_key);
    oct_text_buffer name = {.arena = job->arena};
    OCT_TRY(oct_text_append(&name, err, "%s.%s", octet_section, octet_key));
    *out = place ? place->path : name.data;
    return OCT_OK;
}

/* All unknown names of a section at once, as torchtitan tells them. */
static oct_status check_names(const oct_torchtitan_job *job, const oct_value *map,
                              const char *section, oct_err *err)
{
    oct_text_buffer names = {.arena = job->arena};
    const oct_value *first = NULL;
    for (const oct_value *member = map->first; member; member = member->next) {
        char path[MAX_PATH];
        if (join_path(section, member->key, path) && kind_of(path) != PATH_UNKNOWN)
            continue;
        OCT_TRY(oct_text_append(&names, err, "%s'%.100s'", first ? ", " : "", member->key));
        first = first ? first : member;
    }
    if (!first)
        return OCT_OK;
    char where[OCT_VALUE_WORDS], path[MAX_PATH];
    const char *nearest = NULL;
    (void)oct_value_where(first, where);
    if (first->line > 0)
        (void)snprintf(where, sizeof where, "%s:%d", first->file, first->key_line);
    (void)join_path(section, first->key, path);
    OCT_TRY(suggest(job, path, first, &nearest, err));
    return OCT_FAIL(err, OCT_E_CONFIG,
                    "Invalid field names in %s data: {%.400s}: the nearest known key is %s (%s)",
                    *section ? section : "JobConfig", names.data, nearest, where);
}

static oct_status check_section(const oct_torchtitan_job *job, const oct_value *map,
                                const char *section, oct_err *err)
{
    OCT_TRY(check_names(job, map, section, err));
    for (const oct_value *member = map->first; member; member = member->next) {
        char path[MAX_PATH];
        (void)join_path(section, member->key, path);
        const oct_torchtitan_key *key = oct_torchtitan_find(path);
        switch (kind_of(path)) {
        case PATH_UNKNOWN: /* told above */
            break;
        case PATH_KEY:
            if (!fits(key, member))
                return wrong_type(path, member, oct_torchtitan_type_name(key->type), err);
            break;
        case PATH_OCTET_KEY:
            OCT_TRY(check_octet_place(path, member, err));
            break;
        case PATH_SECTION:
            if (member->kind != OCT_VALUE_MAP)
                return wrong_type(path, member, "a table of keys", err);
            OCT_TRY(check_section(job, member, path, err));
            break;
        }
    }
    return OCT_OK;
}

static oct_status take_keys(void *arg, const oct_value *keys, oct_err *err)
{
    oct_torchtitan_job *job = arg;
    OCT_TRY(check_section(job, keys, "", err));
    return oct_value_merge(job->keys, keys, job->arena, err);
}

/* --- Words of the command line --------------------------------------------------------------- */

/* A,B,C: strings, or for a list of anything the values that they are as YAML. */
static oct_status split_list(oct_torchtitan_job *job, bool strings, const char *text,
                             const char *word, oct_value **out, oct_err *err)
{
    OCT_TRY(oct_value_create(job->arena, OCT_VALUE_LIST, word, 0, 0, out, err));
    while (*text) {
        const size_t length = strcspn(text, ",");
        oct_value *item = NULL;
        if (strings) {
            OCT_TRY(oct_value_create(job->arena, OCT_VALUE_STRING, word, 0, 0, &item, err));
            OCT_TRY(oct_text_copy(job->arena, text, length, &item->text, err));
        } else {
            OCT_TRY(oct_yaml_parse(text, length, word, OCT_YAML_WORD, job->arena, &item, err));
        }
        oct_value_append(*out, item);
        text += length + (text[length] == ',');
    }
    return OCT_OK;
}

/* The text of a word as its key reads it: strings as they are, other values as YAML. */
static oct_status word_value(oct_torchtitan_job *job, const oct_torchtitan_key *key,
                             const char *text, const char *word, oct_value **out, oct_err *err)
{
    const bool nullable = key && key->fallback && strcmp(key->fallback, "null") == 0;
    const bool none = strcmp(text, "None") == 0 || strcmp(text, "null") == 0;
    if (nullable && none) {
        OCT_TRY(oct_value_create(job->arena, OCT_VALUE_NULL, word, 0, 0, out, err));
        (*out)->text = text;
        return OCT_OK;
    }
    if (key && key->type == OCT_TT_STRING) {
        OCT_TRY(oct_value_create(job->arena, OCT_VALUE_STRING, word, 0, 0, out, err));
        (*out)->text = text;
        return OCT_OK;
    }
    if (key && (key->type == OCT_TT_STRINGS || key->type == OCT_TT_LIST) && *text != '[')
        return split_list(job, key->type == OCT_TT_STRINGS, text, word, out, err);
    return oct_yaml_parse(text, strlen(text), word, OCT_YAML_WORD, job->arena, out, err);
}

static oct_status tell_override(oct_torchtitan_job *job, const char *word, const char *path,
                                oct_err *err)
{
    char where[OCT_VALUE_WORDS], found[OCT_VALUE_WORDS];
    oct_text_buffer line = {.arena = job->arena};
    const oct_torchtitan_key *key = oct_torchtitan_find(path);
    const oct_value *old = oct_value_at(job->keys, path);
    OCT_TRY(oct_text_append(&line, err, "override %s", word));
    if (old && oct_torchtitan_is_given(job, path))
        OCT_TRY(oct_text_append(&line, err, " replaces %s (%s)", oct_value_describe(old, found),
                                oct_value_where(old, where)));
    else if (key && key->fallback)
        OCT_TRY(oct_text_append(&line, err, " replaces the default %s", key->fallback));
    if (job->note)
        job->note(job->note_arg, line.data);
    return OCT_OK;
}

static oct_status read_word(oct_torchtitan_job *job, const char *word, oct_err *err)
{
    const char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot read override: '%s', section.key=value is required (%s)", word,
                        word);
    const char *name = NULL, *path = NULL;
    OCT_TRY(oct_text_copy(job->arena, word, strlen(word), &name, err));
    OCT_TRY(oct_text_copy(job->arena, word, (size_t)(equals - word), &path, err));
    oct_value *value = NULL, *map = NULL;
    OCT_TRY(
        word_value(job, oct_torchtitan_find(path), name + (equals + 1 - word), name, &value, err));
    OCT_TRY(oct_value_create(job->arena, OCT_VALUE_MAP, name, 0, 0, &map, err));
    OCT_TRY(oct_value_put(map, path, value, job->arena, err));
    OCT_TRY(check_section(job, map, "", err));
    OCT_TRY(tell_override(job, name, path, err));
    return oct_value_merge(job->keys, map, job->arena, err);
}

/* --- All of it ------------------------------------------------------------------------------- */

static const char default_file[] = "default";

oct_status oct_torchtitan_default(const oct_torchtitan_job *job, const oct_torchtitan_key *key,
                                  oct_value **out, oct_err *err)
{
    return oct_yaml_parse(key->fallback, strlen(key->fallback), default_file, OCT_YAML_WORD,
                          job->arena, out, err);
}

static oct_status set_defaults(oct_torchtitan_job *job, oct_err *err)
{
    int count = 0;
    const oct_torchtitan_key *keys = oct_torchtitan_keys(&count);
    for (int i = 0; i < count; i++) {
        oct_value *value = NULL;
        if (!keys[i].fallback)
            continue;
        OCT_TRY(oct_torchtitan_default(job, &keys[i], &value, err));
        OCT_TRY(oct_value_put(job->keys, keys[i].path, value, job->arena, err));
    }
    return OCT_OK;
}

const oct_value *oct_torchtitan_value(const oct_torchtitan_job *job, const char *path)
{
    return oct_value_at(job->keys, path);
}

bool oct_torchtitan_is_given(const oct_torchtitan_job *job, const char *path)
{
    const oct_value *value = oct_value_at(job->keys, path);
    return value && value->file != default_file;
}

oct_status oct_torchtitan_read(const char *const *files, int file_count, const char *const *words,
                               int word_count, oct_arena *arena, oct_config_note note,
                               void *note_arg, const oct_value **keys, oct_torchtitan **out,
                               oct_err *err)
{
    oct_torchtitan_job job = {
        .arena = arena, .note = note, .note_arg = note_arg, .last_file = files[file_count - 1]};
    OCT_TRY(oct_value_create(arena, OCT_VALUE_MAP, default_file, 0, 0, &job.keys, err));
    OCT_TRY(oct_value_create(arena, OCT_VALUE_MAP, default_file, 0, 0, &job.octet, err));
    OCT_TRY(set_defaults(&job, err));
    for (int i = 0; i < file_count; i++)
        OCT_TRY(oct_config_read_chain(files[i], oct_toml_read_file, arena, take_keys, &job, err));
    for (int i = 0; i < word_count; i++)
        OCT_TRY(read_word(&job, words[i], err));
    OCT_TRY(oct_torchtitan_read_converters(&job, out, err));
    OCT_TRY(oct_torchtitan_translate(&job, err));
    const oct_value *own = oct_value_find(job.keys, octet_section);
    if (own)
        OCT_TRY(oct_value_merge(job.octet, own, arena, err));
    *keys = job.octet;
    return OCT_OK;
}
