#include "config/config_text.h"

#include <inttypes.h>
#include <string.h>

#include "config/config.h"
#include "config/schema.h"
#include "config/text_buffer.h"
#include "config/yaml.h"

/* --- Sections --- */

/* Opens the sections of `path` that the key before it did not open, one line each, and indents the
 * line of the key. Keys of one section stand together in the schema. */
static oct_status open_sections(oct_text_buffer *text, const char *previous, const char *path,
                                oct_err *err)
{
    int depth = 0;
    for (const char *start = path, *dot; (dot = strchr(start, '.')) != NULL; start = dot + 1) {
        const size_t length = (size_t)(dot - path) + 1;
        if (strncmp(previous, path, length) != 0) {
            if (depth == 0)
                OCT_TRY(oct_text_append(text, err, "\n"));
            OCT_TRY(
                oct_text_append(text, err, "%*s%.*s:\n", 2 * depth, "", (int)(dot - start), start));
        }
        depth++;
    }
    if (depth == 0 && strchr(previous, '.'))
        OCT_TRY(oct_text_append(text, err, "\n"));
    return oct_text_append(text, err, "%*s", 2 * depth, "");
}

static const char *last_segment(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* --- The resolved configuration --- */

static oct_status append_string(oct_text_buffer *text, const char *string, oct_err *err)
{
    if (!string)
        return oct_text_append(text, err, "null");
    if (oct_yaml_is_plain_string(string))
        return oct_text_append(text, err, "%s", string);
    return oct_text_append_quoted(text, string, err);
}

static oct_status append_strings(oct_text_buffer *text, const oct_string_list *list, oct_err *err)
{
    if (list->count == 0)
        return oct_text_append(text, err, "null");
    if (list->count == 1)
        return append_string(text, list->items[0], err);
    for (int64_t i = 0; i < list->count; i++) {
        OCT_TRY(oct_text_append(text, err, i ? ", " : "["));
        OCT_TRY(append_string(text, list->items[i], err));
    }
    return oct_text_append(text, err, "]");
}

static oct_status append_value(oct_text_buffer *text, const oct_key *key, const char *target,
                               oct_err *err);

static oct_status append_plan(oct_text_buffer *text, const oct_config *config, oct_err *err)
{
    const oct_schema schema = oct_schema_plan_override();
    if (config->plan_override_count == 0)
        return oct_text_append(text, err, "[]");
    for (int64_t i = 0; i < config->plan_override_count; i++) {
        const char *rule = (const char *)&config->plan_overrides[i];
        for (int k = 0; k < schema.count; k++) {
            const char *path = schema.keys[k].path, *dot = strchr(path, '.');
            OCT_TRY(oct_text_append(text, err, "\n  %s ", k ? " " : "-"));
            if (dot) /* the one key below replace_module */
                OCT_TRY(oct_text_append(text, err, "%.*s:\n      ", (int)(dot - path), path));
            OCT_TRY(oct_text_append(text, err, "%s: ", last_segment(path)));
            OCT_TRY(append_value(text, &schema.keys[k], rule, err));
        }
    }
    return OCT_OK;
}

static oct_status append_value(oct_text_buffer *text, const oct_key *key, const char *target,
                               oct_err *err)
{
    const void *slot = target + key->offset;
    const double *reals = slot;
    switch (key->type) {
    case OCT_KEY_BOOL:
        return oct_text_append(text, err, *(const bool *)slot ? "true" : "false");
    case OCT_KEY_INT:
        if (key->nullable && *(const int64_t *)slot == (int64_t)key->absent)
            return oct_text_append(text, err, "null");
        return oct_text_append(text, err, "%" PRId64, *(const int64_t *)slot);
    case OCT_KEY_FLOAT:
        if (key->nullable && reals[0] < key->min)
            return oct_text_append(text, err, "null");
        return oct_text_append_float(text, reals[0], err);
    case OCT_KEY_FLOAT_PAIR:
        OCT_TRY(oct_text_append(text, err, "["));
        OCT_TRY(oct_text_append_float(text, reals[0], err));
        OCT_TRY(oct_text_append(text, err, ", "));
        OCT_TRY(oct_text_append_float(text, reals[1], err));
        return oct_text_append(text, err, "]");
    case OCT_KEY_STRING:
    case OCT_KEY_WORD:
        return append_string(text, *(const char *const *)slot, err);
    case OCT_KEY_STRINGS:
        return append_strings(text, slot, err);
    case OCT_KEY_WORD_BOOL:
        return append_string(text, key->words[*(const bool *)slot ? 1 : 0], err);
    case OCT_KEY_WORD_ENUM:
        return append_string(text, key->words[*(const unsigned *)slot], err);
    case OCT_KEY_FIELDS:
        return oct_text_append(text, err, "%s", *(const char *const *)slot);
    case OCT_KEY_PLAN:
        return append_plan(text, (const oct_config *)(const void *)target, err);
    }
    return OCT_OK;
}

/* A number that follows from others must not come back as one that was asked for: the accumulation
 * steps follow from the global batch, or the batch from them, for each number of ranks anew. */
static bool is_derived(const oct_config *config, const char *path)
{
    const bool steps_lead =
        config->gradient_accumulation_steps_given && !config->training.global_batch_size_given;
    if (strcmp(path, "training.global_batch_size") == 0)
        return steps_lead;
    return strcmp(path, "gradient_accumulation_steps") == 0 &&
           !config->gradient_accumulation_steps_given;
}

oct_status oct_config_print(const oct_config *config, oct_arena *arena, char **text, oct_err *err)
{
    const oct_schema schema = oct_schema_config();
    oct_text_buffer out = {.arena = arena};
    const char *previous = "";
    for (int i = 0; i < schema.count; i++) {
        const oct_key *key = &schema.keys[i];
        OCT_TRY(open_sections(&out, previous, key->path, err));
        previous = key->path;
        const bool derived = is_derived(config, key->path);
        /* A plan that is not empty begins on the next line. */
        const bool block = key->type == OCT_KEY_PLAN && config->plan_override_count > 0;
        OCT_TRY(oct_text_append(&out, err, "%s%s:%s", derived ? "# derived: " : "",
                                last_segment(key->path), block ? "" : " "));
        OCT_TRY(append_value(&out, key, (const char *)config, err));
        OCT_TRY(oct_text_append(&out, err, "\n"));
    }
    *text = out.data;
    return OCT_OK;
}

/* --- The reference --- */

static oct_status append_meaning(oct_text_buffer *text, const oct_key *key, oct_err *err)
{
    char required[OCT_KEY_REQUIRES];
    OCT_TRY(oct_text_append(text, err, "%s", oct_key_requires(key, required)));
    if (key->unit)
        OCT_TRY(oct_text_append(text, err, " (%s)", key->unit));
    return oct_text_append(text, err, ": %s", key->help);
}

static const char yaml_head[] =
    "# Every key of a YAML configuration with its default; a required key is a comment. Made from\n"
    "# src/config/schema.c by `OCTET_UPDATE=1 ctest --test-dir build/release -R test_schema`; do "
    "not\n"
    "# edit. How files are read and merged: docs/config.md.\n"
    "#\n"
    "# base: FILE reads another file first; FILE is relative to the folder of this one.\n";

oct_status oct_config_reference_yaml(oct_arena *arena, char **text, oct_err *err)
{
    const oct_schema schema = oct_schema_config();
    oct_text_buffer out = {.arena = arena};
    const char *previous = ".";
    OCT_TRY(oct_text_append(&out, err, "%s", yaml_head));
    for (int i = 0; i < schema.count; i++) {
        const oct_key *key = &schema.keys[i];
        const char *name = last_segment(key->path);
        OCT_TRY(open_sections(&out, previous, key->path, err));
        OCT_TRY(oct_text_append(&out, err, "# "));
        OCT_TRY(append_meaning(&out, key, err));
        OCT_TRY(oct_text_append(&out, err, "\n"));
        OCT_TRY(open_sections(&out, key->path, key->path, err));
        if (key->fallback)
            OCT_TRY(oct_text_append(&out, err, "%s: %s\n", name, key->fallback));
        else
            OCT_TRY(oct_text_append(&out, err, "# %s: <%s>\n", name, key->example));
        previous = key->path;
    }
    OCT_TRY(oct_text_append(&out, err, "\n# One rule of plan_overrides:\n"));
    const oct_schema rule = oct_schema_plan_override();
    for (int i = 0; i < rule.count; i++) {
        OCT_TRY(oct_text_append(&out, err, "#   %s: ", rule.keys[i].path));
        OCT_TRY(
            oct_text_append(&out, err, rule.keys[i].fallback ? "%s" : "<%s>",
                            rule.keys[i].fallback ? rule.keys[i].fallback : rule.keys[i].example));
        OCT_TRY(oct_text_append(&out, err, "   # "));
        OCT_TRY(append_meaning(&out, &rule.keys[i], err));
        OCT_TRY(oct_text_append(&out, err, "\n"));
    }
    *text = out.data;
    return OCT_OK;
}

static const char markdown_head[] =
    "# Configuration\n"
    "\n"
    "Made from `src/config/schema.c` by `OCTET_UPDATE=1 ctest --test-dir build/release -R "
    "test_schema`;\n"
    "do not edit. The same keys as a YAML file are in `configs/reference.yaml`.\n"
    "\n"
    "`octet train CONFIG... [key.path=value ...]` reads the files from left to right and then the\n"
    "words. What comes later wins: maps merge key by key, lists and scalars replace. `base: FILE` "
    "at\n"
    "the top of a file reads FILE before it; FILE is relative to the folder of the file that "
    "names\n"
    "it, and no base is implied. A word's value is read as YAML, and each word is reported with "
    "the\n"
    "value that it replaces. A path with a = in it needs a / before that: `./lr=3.yaml`.\n"
    "\n"
    "Files that end in `.toml` are torchtitan jobs, with keys of their own: "
    "`docs/config-toml.md`.\n"
    "\n"
    "All others are YAML 1.2, core schema, one document. Unknown and duplicate keys, wrong types "
    "and\n"
    "values out of bounds are errors that name `file:line`. What to know about scalars:\n"
    "\n"
    "- `2e-5`, `1E-5` and `.5e-4` are floats; a quoted number is a string, and so is `1_000`: "
    "where a\n"
    "  number is required both are errors.\n"
    "- `yes`, `no`, `on` and `off` are strings, not booleans.\n"
    "- Anchors, aliases and tags are refused. Quote text that begins with `*`, `&` or `!`.\n"
    "- A file has at most 1 MiB, 64 nested lists and maps, and 1024 keys in a map.\n"
    "\n"
    "Relations between keys: the legal pairs of `low_precision.format` and `low_precision.scaling` "
    "are\n"
    "`mxfp8_e4m3` with `mx_block` and `hif8` with `current`; `low_precision.enabled: true` needs a "
    "rule\n"
    "in `plan_overrides`; `low_precision: null` puts the section back to its defaults;\n"
    "`lr_scheduler.warmup_steps` is at most `training.train_iters`; `dataset.validation.every` "
    "above 0\n"
    "needs `dataset.validation.path`. `training.global_batch_size` is a multiple of\n"
    "`training.micro_batch_size` times the ranks, and the quotient is the number of accumulation\n"
    "steps; where only `gradient_accumulation_steps` is written, the global batch follows from "
    "it.\n";

static oct_status append_table(oct_text_buffer *text, oct_schema schema, const char *section,
                               oct_err *err)
{
    const size_t length = strlen(section);
    OCT_TRY(oct_text_append(text, err,
                            "\n| key | default | value | meaning |\n| --- | --- | --- | --- |\n"));
    for (int i = 0; i < schema.count; i++) {
        const oct_key *key = &schema.keys[i];
        char required[OCT_KEY_REQUIRES];
        const char *dot = strchr(key->path, '.');
        const size_t own = dot ? (size_t)(dot - key->path) : 0;
        const bool inside = own == length && strncmp(key->path, section, length) == 0;
        if (schema.count == oct_schema_config().count && !inside)
            continue;
        OCT_TRY(oct_text_append(text, err, "| `%s` | ", key->path));
        OCT_TRY(oct_text_append(text, err, key->fallback ? "`%s`" : "%s",
                                key->fallback ? key->fallback : "required"));
        OCT_TRY(oct_text_append(text, err, " | %s", oct_key_requires(key, required)));
        if (key->unit)
            OCT_TRY(oct_text_append(text, err, "; %s", key->unit));
        OCT_TRY(oct_text_append(text, err, " | %s |\n", key->help));
    }
    return OCT_OK;
}

oct_status oct_config_reference_markdown(oct_arena *arena, char **text, oct_err *err)
{
    const oct_schema schema = oct_schema_config();
    oct_text_buffer out = {.arena = arena};
    OCT_TRY(oct_text_append(&out, err, "%s\n## Top level\n", markdown_head));
    OCT_TRY(append_table(&out, schema, "", err));
    const char *previous = "";
    for (int i = 0; i < schema.count; i++) {
        const char *path = schema.keys[i].path, *dot = strchr(path, '.');
        if (!dot || strncmp(previous, path, (size_t)(dot - path) + 1) == 0)
            continue;
        const char *section = NULL;
        previous = path;
        OCT_TRY(oct_text_copy(arena, path, (size_t)(dot - path), &section, err));
        OCT_TRY(oct_text_append(&out, err, "\n## %s\n", section));
        OCT_TRY(append_table(&out, schema, section, err));
    }
    OCT_TRY(oct_text_append(&out, err, "\n## A rule of plan_overrides\n"));
    OCT_TRY(append_table(&out, oct_schema_plan_override(), "", err));
    *text = out.data;
    return OCT_OK;
}
