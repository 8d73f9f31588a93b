#include "config/config.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_files.h"
#include "config/schema.h"
#include "config/text_buffer.h"
#include "config/torchtitan.h"
#include "config/value.h"
#include "config/yaml.h"

enum { MAX_KEYS = 96, MAX_PATH = 256 };

static_assert(offsetof(oct_config, optimizer.beta2) ==
                  offsetof(oct_config, optimizer.beta1) + sizeof(double),
              "a FLOAT_PAIR is two doubles in a row");

/* Reads value trees into one struct, later trees over earlier ones. */
typedef struct reader {
    oct_arena *arena;
    oct_schema schema;
    const char *prefix;               /* of paths in messages: "" or "plan_overrides[1]." */
    char *target;                     /* the oct_config or oct_plan_override */
    const oct_value *given[MAX_KEYS]; /* what was read for each key, NULL while it is the default */
    oct_value *fields;                /* the merged map of the FIELDS key */
} reader;

/* --- Messages --- */

static oct_status wrong_type(const reader *r, const char *path, const oct_value *value,
                             const char *required, oct_err *err)
{
    char found[OCT_VALUE_WORDS], where[OCT_VALUE_WORDS];
    return OCT_FAIL(err, OCT_E_CONFIG, "wrong type of %s%s: %s, %s is required (%s)", r->prefix,
                    path, oct_value_describe(value, found), required,
                    oct_value_where(value, where));
}

static oct_status key_wrong_type(const reader *r, const oct_key *key, const oct_value *value,
                                 oct_err *err)
{
    char required[OCT_KEY_REQUIRES];
    return wrong_type(r, key->path, value, oct_key_requires(key, required), err);
}

static oct_status out_of_bounds(const reader *r, const oct_key *key, const oct_value *value,
                                oct_err *err)
{
    char required[OCT_KEY_REQUIRES], where[OCT_VALUE_WORDS];
    return OCT_FAIL(err, OCT_E_CONFIG, "value of %s%s out of bounds: %s, %s is required (%s)",
                    r->prefix, key->path, value->text, oct_key_requires(key, required),
                    oct_value_where(value, where));
}

static oct_status unsupported(const reader *r, const oct_key *key, const oct_value *value,
                              oct_err *err)
{
    char required[OCT_KEY_REQUIRES], where[OCT_VALUE_WORDS];
    return OCT_FAIL(
        err, OCT_E_CONFIG, "unsupported value of %s%s: '%.100s', %s is required%s%s (%s)",
        r->prefix, key->path, value->text, oct_key_requires(key, required), key->reason ? ": " : "",
        key->reason ? key->reason : "", oct_value_where(value, where));
}

static oct_status unknown_key(const reader *r, const char *path, const oct_value *value,
                              oct_err *err)
{
    char where[OCT_VALUE_WORDS], found[OCT_VALUE_WORDS];
    (void)oct_value_where(value, where);
    if (value->line > 0)
        (void)snprintf(where, sizeof where, "%s:%d", value->file, value->key_line);
    const char *refusal = oct_schema_refusal(path);
    if (refusal)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "unsupported key %s%s: %s, no such key is allowed: %s (%s)", r->prefix,
                        path, oct_value_describe(value, found), refusal, where);
    /* What stands in a misspelt section says which one it is. */
    char whole[256];
    size_t used = (size_t)snprintf(whole, sizeof whole, "%.150s", path);
    for (const oct_value *v = value->first; v && v->key && used < sizeof whole; v = v->first)
        used += (size_t)snprintf(whole + used, sizeof whole - used, ".%s", v->key);
    return OCT_FAIL(err, OCT_E_CONFIG, "unknown key %s%.150s: the nearest known key is %s%s (%s)",
                    r->prefix, path, r->prefix, oct_schema_nearest(r->schema, whole), where);
}

/* --- Keys --- */

static oct_status store_number(reader *r, const oct_key *key, const oct_value *value, double *out,
                               oct_err *err)
{
    if (value->kind != OCT_VALUE_FLOAT && value->kind != OCT_VALUE_INT)
        return key_wrong_type(r, key, value, err);
    const double number = value->real;
    const bool above = key->above_min ? number > key->min : number >= key->min;
    const bool below = key->below_max ? number < key->max : number <= key->max;
    if (!isfinite(number) || !above || !below)
        return out_of_bounds(r, key, value, err);
    *out = number;
    return OCT_OK;
}

static oct_status store_pair(reader *r, const oct_key *key, const oct_value *value, double *out,
                             oct_err *err)
{
    if (value->kind != OCT_VALUE_LIST || value->count != 2)
        return key_wrong_type(r, key, value, err);
    OCT_TRY(store_number(r, key, value->first, &out[0], err));
    return store_number(r, key, value->last, &out[1], err);
}

static oct_status store_integer(reader *r, const oct_key *key, const oct_value *value, int64_t *out,
                                oct_err *err)
{
    if (value->kind != OCT_VALUE_INT)
        return key_wrong_type(r, key, value, err);
    if (key->only && strtoll(key->only, NULL, 10) != value->integer)
        return unsupported(r, key, value, err);
    const int64_t min = (int64_t)key->min, max = (int64_t)key->max; /* exact: at most 2^53 */
    if (!key->only && (value->integer < min || value->integer > max))
        return out_of_bounds(r, key, value, err);
    *out = value->integer;
    return OCT_OK;
}

static oct_status store_boolean(reader *r, const oct_key *key, const oct_value *value, bool *out,
                                oct_err *err)
{
    if (value->kind != OCT_VALUE_BOOL)
        return key_wrong_type(r, key, value, err);
    if (key->only && value->boolean != (strcmp(key->only, "true") == 0))
        return unsupported(r, key, value, err);
    *out = value->boolean;
    return OCT_OK;
}

static oct_status store_string(reader *r, const oct_key *key, const oct_value *value,
                               const char **out, oct_err *err)
{
    char required[OCT_KEY_REQUIRES];
    if (value->kind != OCT_VALUE_STRING)
        return key_wrong_type(r, key, value, err);
    if (*value->text == '\0')
        return wrong_type(r, key->path, value, "a string that is not empty", err);
    if (strlen(value->text) >= PATH_MAX) {
        (void)snprintf(required, sizeof required, "a string of less than %d bytes", PATH_MAX);
        return wrong_type(r, key->path, value, required, err);
    }
    *out = value->text;
    return OCT_OK;
}

static oct_status store_strings(reader *r, const oct_key *key, const oct_value *value,
                                oct_string_list *out, oct_err *err)
{
    const bool is_list = value->kind == OCT_VALUE_LIST;
    const int64_t count = is_list ? value->count : 1;
    if (count == 0)
        return wrong_type(r, key->path, value, "a list that is not empty", err);
    void *items = NULL;
    OCT_TRY(oct_arena_array(r->arena, count, sizeof(const char *), &items, err));
    out->items = items;
    out->count = count;
    if (!is_list)
        return store_string(r, key, value, &out->items[0], err);
    int64_t i = 0;
    for (const oct_value *item = value->first; item; item = item->next)
        OCT_TRY(store_string(r, key, item, &out->items[i++], err));
    return OCT_OK;
}

static oct_status find_word(reader *r, const oct_key *key, const oct_value *value, int *index,
                            oct_err *err)
{
    const bool is_false = value->kind == OCT_VALUE_BOOL && !value->boolean;
    if (key->none_is_first &&
        (is_false || (value->kind == OCT_VALUE_STRING && strcmp(value->text, "none") == 0))) {
        *index = 0;
        return OCT_OK;
    }
    if (value->kind != OCT_VALUE_STRING)
        return key_wrong_type(r, key, value, err);
    for (*index = 0; key->words[*index]; ++*index)
        if (strcmp(key->words[*index], value->text) == 0)
            return OCT_OK;
    return unsupported(r, key, value, err);
}

static oct_status read_plan(reader *r, const oct_key *key, const oct_value *value, oct_err *err);

static oct_status store_null(const oct_key *key, char *member)
{
    switch (key->type) {
    case OCT_KEY_INT:
        *(int64_t *)(void *)member = (int64_t)key->absent;
        break;
    case OCT_KEY_FLOAT:
        *(double *)(void *)member = key->absent;
        break;
    case OCT_KEY_STRING:
        *(const char **)(void *)member = NULL;
        break;
    case OCT_KEY_STRINGS:
        *(oct_string_list *)(void *)member = (oct_string_list){.count = 0};
        break;
    default: /* no key of another type is nullable */
        break;
    }
    return OCT_OK;
}

static oct_status store(reader *r, const oct_key *key, const oct_value *value, oct_err *err)
{
    char *member = r->target + key->offset;
    void *slot = member;
    int index = 0;
    if (key->nullable && value->kind == OCT_VALUE_NULL)
        return store_null(key, member);
    switch (key->type) {
    case OCT_KEY_BOOL:
        return store_boolean(r, key, value, slot, err);
    case OCT_KEY_INT:
        return store_integer(r, key, value, slot, err);
    case OCT_KEY_FLOAT:
        return store_number(r, key, value, slot, err);
    case OCT_KEY_FLOAT_PAIR:
        return store_pair(r, key, value, slot, err);
    case OCT_KEY_STRING:
        return store_string(r, key, value, slot, err);
    case OCT_KEY_STRINGS:
        return store_strings(r, key, value, slot, err);
    case OCT_KEY_WORD:
        OCT_TRY(find_word(r, key, value, &index, err));
        *(const char **)slot = key->words[index];
        return OCT_OK;
    case OCT_KEY_WORD_BOOL:
        OCT_TRY(find_word(r, key, value, &index, err));
        *(bool *)slot = index == 1;
        return OCT_OK;
    case OCT_KEY_WORD_ENUM:
        OCT_TRY(find_word(r, key, value, &index, err));
        *(unsigned *)slot = (unsigned)index;
        return OCT_OK;
    case OCT_KEY_FIELDS:
        if (value->kind != OCT_VALUE_MAP)
            return key_wrong_type(r, key, value, err);
        return oct_value_merge(r->fields, value, r->arena, err);
    case OCT_KEY_PLAN:
        return read_plan(r, key, value, err);
    }
    return OCT_OK;
}

/* --- Sections --- */

static oct_status set_default(reader *r, int i, oct_err *err)
{
    const oct_key *key = &r->schema.keys[i];
    r->given[i] = NULL;
    if (!key->fallback)
        return OCT_OK;
    oct_value *value = NULL;
    OCT_TRY(oct_yaml_parse(key->fallback, strlen(key->fallback), "default", OCT_YAML_WORD, r->arena,
                           &value, err));
    return store(r, key, value, err);
}

static oct_status set_defaults(reader *r, oct_err *err)
{
    OCT_TRY(oct_value_create(r->arena, OCT_VALUE_MAP, "default", 0, 0, &r->fields, err));
    for (int i = 0; i < r->schema.count; i++)
        OCT_TRY(set_default(r, i, err));
    return OCT_OK;
}

/* `low_precision: null` puts the section back to its defaults, which is enabled: false. */
static bool is_nullable_section(const char *path)
{
    return strcmp(path, "low_precision") == 0;
}

static oct_status clear_section(reader *r, const char *path, oct_err *err)
{
    const size_t length = strlen(path);
    for (int i = 0; i < r->schema.count; i++)
        if (strncmp(r->schema.keys[i].path, path, length) == 0 &&
            r->schema.keys[i].path[length] == '.')
            OCT_TRY(set_default(r, i, err));
    return OCT_OK;
}

static oct_status read_section(reader *r, const oct_value *map, const char *section, oct_err *err)
{
    for (const oct_value *member = map->first; member; member = member->next) {
        char path[MAX_PATH];
        const int length =
            snprintf(path, sizeof path, "%s%s%s", section, *section ? "." : "", member->key);
        if (length < 0 || (size_t)length >= sizeof path)
            return unknown_key(r, path, member, err);
        const oct_key *key = oct_schema_find(r->schema, path);
        if (key) {
            OCT_TRY(store(r, key, member, err));
            r->given[key - r->schema.keys] = member;
        } else if (!oct_schema_is_section(r->schema, path)) {
            return unknown_key(r, path, member, err);
        } else if (member->kind == OCT_VALUE_MAP) {
            OCT_TRY(read_section(r, member, path, err));
        } else if (member->kind == OCT_VALUE_NULL && is_nullable_section(path)) {
            OCT_TRY(clear_section(r, path, err));
        } else {
            return wrong_type(r, path, member, "a map of keys", err);
        }
    }
    return OCT_OK;
}

static oct_status require_keys(const reader *r, const char *where, oct_err *err)
{
    for (int i = 0; i < r->schema.count; i++) {
        const oct_key *key = &r->schema.keys[i];
        char required[OCT_KEY_REQUIRES];
        if (!key->fallback && !r->given[i])
            return OCT_FAIL(err, OCT_E_CONFIG, "missing key %s%s: not given, %s is required (%s)",
                            r->prefix, key->path, oct_key_requires(key, required), where);
    }
    return OCT_OK;
}

static oct_status read_rule(reader *r, const oct_value *entry, int64_t index,
                            oct_plan_override *rule, oct_err *err)
{
    char prefix[64], where[OCT_VALUE_WORDS];
    (void)snprintf(prefix, sizeof prefix, "plan_overrides[%lld].", (long long)index);
    reader rules = {.arena = r->arena,
                    .schema = oct_schema_plan_override(),
                    .prefix = prefix,
                    .target = (char *)rule};
    if (entry->kind != OCT_VALUE_MAP) {
        prefix[strlen(prefix) - 1] = '\0';
        return wrong_type(&rules, "", entry, "a rule (a map)", err);
    }
    (void)oct_value_where(entry, where);
    OCT_TRY(oct_text_copy(r->arena, where, strlen(where), &rule->where, err));
    OCT_TRY(set_defaults(&rules, err));
    OCT_TRY(read_section(&rules, entry, "", err));
    return require_keys(&rules, where, err);
}

static oct_status read_plan(reader *r, const oct_key *key, const oct_value *value, oct_err *err)
{
    if (value->kind != OCT_VALUE_LIST)
        return key_wrong_type(r, key, value, err);
    oct_config *config = (oct_config *)(void *)r->target;
    void *memory = NULL;
    OCT_TRY(oct_arena_array(r->arena, value->count, sizeof(oct_plan_override), &memory, err));
    oct_plan_override *rules = memory;
    int64_t index = 0;
    for (const oct_value *entry = value->first; entry; entry = entry->next, index++) {
        rules[index] = (oct_plan_override){0};
        OCT_TRY(read_rule(r, entry, index, &rules[index], err));
    }
    config->plan_overrides = rules;
    config->plan_override_count = value->count;
    return OCT_OK;
}

/* --- Files --- */

static oct_status take_keys(void *arg, const oct_value *keys, oct_err *err)
{
    return read_section(arg, keys, "", err);
}

/* --- key.path=value --- */

/* What `path` holds now, for the note. */
static oct_status old_value(const reader *r, const char *path, oct_text_buffer *line, oct_err *err)
{
    char where[OCT_VALUE_WORDS], found[OCT_VALUE_WORDS];
    const oct_key *key = oct_schema_find(r->schema, path);
    const oct_value *old = key ? r->given[key - r->schema.keys] : NULL;
    static const char fields[] = "model.config_overrides.";
    if (strncmp(path, fields, sizeof fields - 1) == 0)
        old = oct_value_find(r->fields, path + sizeof fields - 1);
    if (old)
        return oct_text_append(line, err, " replaces %s (%s)", oct_value_describe(old, found),
                               oct_value_where(old, where));
    if (key && key->fallback)
        return oct_text_append(line, err, " replaces the default %s", key->fallback);
    return OCT_OK;
}

static oct_status read_word(reader *r, const char *word, oct_config_note note, void *note_arg,
                            oct_err *err)
{
    const char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot read override: '%s', key.path=value is required (%s)", word, word);
    const char *name = NULL, *path = NULL;
    OCT_TRY(oct_text_copy(r->arena, word, strlen(word), &name, err));
    OCT_TRY(oct_text_copy(r->arena, word, (size_t)(equals - word), &path, err));
    oct_text_buffer line = {.arena = r->arena};
    OCT_TRY(oct_text_append(&line, err, "override %s", name));
    OCT_TRY(old_value(r, path, &line, err));

    oct_value *value = NULL, *keys = NULL;
    OCT_TRY(
        oct_yaml_parse(equals + 1, strlen(equals + 1), name, OCT_YAML_WORD, r->arena, &value, err));
    OCT_TRY(oct_value_create(r->arena, OCT_VALUE_MAP, name, 0, 0, &keys, err));
    OCT_TRY(oct_value_put(keys, path, value, r->arena, err));
    OCT_TRY(read_section(r, keys, "", err));
    if (note)
        note(note_arg, line.data);
    return OCT_OK;
}

/* --- Checks between keys --- */

static const char *where_given(const reader *r, const char *path, char buffer[OCT_VALUE_WORDS])
{
    const oct_key *key = oct_schema_find(r->schema, path);
    const oct_value *value = key ? r->given[key - r->schema.keys] : NULL;
    if (!value)
        return "default";
    return oct_value_where(value, buffer);
}

static bool is_given(const reader *r, const char *path)
{
    const oct_key *key = oct_schema_find(r->schema, path);
    const oct_value *value = key ? r->given[key - r->schema.keys] : NULL;
    return value && value->kind != OCT_VALUE_NULL;
}

static oct_status check_low_precision(const reader *r, const oct_config *config, oct_err *err)
{
    static const char *const pairs[][2] = {{"mxfp8_e4m3", "mx_block"}, {"hif8", "current"}};
    const char *format = config->low_precision.format, *scaling = config->low_precision.scaling;
    char first[OCT_VALUE_WORDS], second[OCT_VALUE_WORDS];
    bool legal = false;
    for (int i = 0; i < 2; i++)
        legal |= strcmp(format, pairs[i][0]) == 0 && strcmp(scaling, pairs[i][1]) == 0;
    if (!legal)
        return OCT_FAIL(
            err, OCT_E_CONFIG,
            "illegal combination of low_precision.format and low_precision.scaling: %s "
            "(%s) with %s (%s), mxfp8_e4m3 with mx_block or hif8 with current is required",
            format, where_given(r, "low_precision.format", first), scaling,
            where_given(r, "low_precision.scaling", second));
    if (config->low_precision.enabled && config->plan_override_count == 0)
        return OCT_FAIL(
            err, OCT_E_CONFIG,
            "low_precision.enabled: true without a rule in plan_overrides, at least one "
            "rule is required (%s)",
            where_given(r, "low_precision.enabled", first));
    return OCT_OK;
}

static oct_status check_between_keys(const reader *r, const oct_config *config, oct_err *err)
{
    char where[OCT_VALUE_WORDS], steps[OCT_VALUE_WORDS];
    OCT_TRY(check_low_precision(r, config, err));
    if (config->lr_scheduler.warmup_steps > config->training.train_iters)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "value of lr_scheduler.warmup_steps out of bounds: %lld, at most "
                        "training.train_iters = %lld (%s) is required (%s)",
                        (long long)config->lr_scheduler.warmup_steps,
                        (long long)config->training.train_iters,
                        where_given(r, "training.train_iters", steps),
                        where_given(r, "lr_scheduler.warmup_steps", where));
    if (config->fsdp.dp_shard_size == 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "value of fsdp_config.dp_shard_size out of bounds: 0, -1 or the number of "
                        "ranks is required (%s)",
                        where_given(r, "fsdp_config.dp_shard_size", where));
    if (config->dataset.validation.every > 0 && config->dataset.validation.path.count == 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "missing key dataset.validation.path: not given, a path is required with "
                        "dataset.validation.every: %lld (%s)",
                        (long long)config->dataset.validation.every,
                        where_given(r, "dataset.validation.every", where));
    if (config->dataset.validation.every > 0 && config->dataset.validation.steps == 0)
        return OCT_FAIL(
            err, OCT_E_CONFIG,
            "value of dataset.validation.steps out of bounds: 0, at least 1 is required "
            "with dataset.validation.every: %lld (%s)",
            (long long)config->dataset.validation.every,
            where_given(r, "dataset.validation.steps", where));
    return OCT_OK;
}

/* "KEY, file:line", with the key of another dialect. */
static oct_status keep_place(const reader *r, const char *path, const char **out, oct_err *err)
{
    char where[OCT_VALUE_WORDS];
    oct_text_buffer text = {.arena = r->arena};
    OCT_TRY(oct_text_append(&text, err, "%s, %s", path, where_given(r, path, where)));
    *out = text.data;
    return OCT_OK;
}

oct_status oct_config_load(const char *const *files, int file_count, const char *const *words,
                           int word_count, oct_arena *arena, oct_config_note note, void *note_arg,
                           oct_config *out, oct_err *err)
{
    reader r = {.arena = arena, .schema = oct_schema_config(), .prefix = "", .target = (char *)out};
    if (r.schema.count > MAX_KEYS)
        return OCT_FAIL(err, OCT_E_API, "cannot read configuration: %d keys in the schema, %d fit",
                        r.schema.count, MAX_KEYS);
    memset(out, 0, sizeof *out);
    OCT_TRY(set_defaults(&r, err));
    bool torchtitan = false;
    OCT_TRY(oct_torchtitan_is_dialect_of(files, file_count, &torchtitan, err));
    if (torchtitan) {
        const oct_value *keys = NULL;
        OCT_TRY(oct_torchtitan_read(files, file_count, words, word_count, arena, note, note_arg,
                                    &keys, &out->torchtitan, err));
        OCT_TRY(read_section(&r, keys, "", err));
    } else {
        for (int i = 0; i < file_count; i++)
            OCT_TRY(oct_config_read_chain(files[i], oct_yaml_read_file, arena, take_keys, &r, err));
        for (int i = 0; i < word_count; i++)
            OCT_TRY(read_word(&r, words[i], note, note_arg, err));
    }
    OCT_TRY(require_keys(&r, file_count ? files[file_count - 1] : "no file", err));
    OCT_TRY(oct_value_to_json(r.fields, arena, &out->model.config_overrides_json, err));
    out->training.global_batch_size_given = is_given(&r, "training.global_batch_size");
    out->gradient_accumulation_steps_given = is_given(&r, "gradient_accumulation_steps");
    OCT_TRY(keep_place(&r, "fsdp_config.dp_shard_size", &out->places.dp_shard_size, err));
    OCT_TRY(keep_place(&r, "training.global_batch_size", &out->places.global_batch_size, err));
    OCT_TRY(keep_place(&r, "gradient_accumulation_steps", &out->places.gradient_accumulation_steps,
                       err));
    return check_between_keys(&r, out, err);
}

/* --- With the number of ranks --- */

oct_status oct_config_resolve(oct_config *config, int ranks, oct_err *err)
{
    if (ranks < 1)
        return OCT_FAIL(err, OCT_E_API, "cannot resolve configuration: %d ranks, 1 is the least",
                        ranks);
    if (strcmp(config->device, "cpu") != 0)
        return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                        "[MXFP8/HiF8] is only supported on Ascend950 or higher architecture: this "
                        "build has no backend for '%s', cpu is required (device)",
                        config->device);
    if (config->fsdp.dp_shard_size != -1 && config->fsdp.dp_shard_size != ranks)
        return OCT_FAIL(
            err, OCT_E_CONFIG,
            "cannot shard over %lld ranks: the run has %d, -1 or that number is required "
            "(%s)",
            (long long)config->fsdp.dp_shard_size, ranks, config->places.dp_shard_size);
    const int64_t per_micro_step = config->training.micro_batch_size * ranks; /* both below 2^31 */
    const bool steps_given = config->gradient_accumulation_steps_given;
    int64_t *steps = &config->gradient_accumulation_steps;
    int64_t *global = &config->training.global_batch_size;
    if (steps_given && !config->training.global_batch_size_given) {
        if (__builtin_mul_overflow(per_micro_step, *steps, global))
            return OCT_FAIL(
                err, OCT_E_CONFIG,
                "cannot build a global batch: %lld sequences per micro-step times %lld, "
                "a product of 64 bits is required (%s)",
                (long long)per_micro_step, (long long)*steps,
                config->places.gradient_accumulation_steps);
        return OCT_OK;
    }
    if (*global % per_micro_step != 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot split the global batch: %lld sequences, a multiple of "
                        "micro_batch_size * ranks = %lld * %d = %lld is required "
                        "(%s)",
                        (long long)*global, (long long)config->training.micro_batch_size, ranks,
                        (long long)per_micro_step, config->places.global_batch_size);
    if (steps_given && *steps != *global / per_micro_step)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot accumulate over %lld micro-steps: global_batch_size / "
                        "(micro_batch_size * ranks) = %lld / (%lld * %d) = %lld is required "
                        "(%s)",
                        (long long)*steps, (long long)*global,
                        (long long)config->training.micro_batch_size, ranks,
                        (long long)(*global / per_micro_step),
                        config->places.gradient_accumulation_steps);
    *steps = *global / per_micro_step;
    return OCT_OK;
}
