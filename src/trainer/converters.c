#include "trainer/converters.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "config/text_buffer.h"
#include "low_precision/modules/linear.h"
#include "model/deepseek_v3/low_precision_experts.h"
#include "model/deepseek_v3/torchtitan_names.h"
#include "plan/plan.h"

static const char filter_key[] = "quantize.linear.mx.filter_fqns";
static const char fqns_key[] = "quantize.grouped_mm.mx.fqns";

/* A module of the model under both of its names. */
typedef struct place {
    const char *hf, *torchtitan; /* torchtitan NULL: a container without a name there */
    const oct_module_type *type;
    bool selected;
} place;

typedef struct expansion {
    oct_config *config;
    oct_torchtitan *job;
    oct_arena *arena;
    oct_hf_config hf;
    place *places;
    int64_t place_count;
    oct_plan_override *rules;
    int64_t rule_count;
} expansion;

/* --- The modules of the model ---------------------------------------------------------------- */

static oct_status list_place(void *arg, const char *fqn, oct_module **slot, oct_err *err)
{
    expansion *x = arg;
    place *at = &x->places[x->place_count++];
    char name[OCT_DSV3_NAME];
    *at = (place){.type = (*slot)->type};
    OCT_TRY(oct_text_copy(x->arena, fqn, strlen(fqn), &at->hf, err));
    if (oct_dsv3_torchtitan_name(fqn, name))
        OCT_TRY(oct_text_copy(x->arena, name, strlen(name), &at->torchtitan, err));
    return OCT_OK;
}

/* The tree is on meta and there for its names alone. */
static oct_status list_places(expansion *x, oct_err *err)
{
    oct_module_tree tree;
    oct_dsv3 *model = NULL;
    void *memory = NULL;
    OCT_TRY(oct_hf_config_load(x->config->model.config_name_or_path,
                               x->config->model.config_overrides_json, x->arena, &x->hf, err));
    oct_module_tree_init(&tree);
    oct_status status = oct_dsv3_build(&x->hf, &tree, &model, err);
    if (status == OCT_OK)
        status = oct_arena_array(x->arena, oct_module_slots(&tree), sizeof(place), &memory, err);
    x->places = memory;
    if (status == OCT_OK)
        status = oct_module_walk(&tree, list_place, x, err);
    oct_module_tree_release(&tree);
    return status;
}

/* --- Entries --------------------------------------------------------------------------------- */

static bool carries(const place *at, const char *entry)
{
    return strstr(at->hf, entry) || (at->torchtitan && strstr(at->torchtitan, entry));
}

static bool carries_any(const place *at, const oct_string_list *entries)
{
    for (int64_t i = 0; i < entries->count; i++)
        if (carries(at, entries->items[i]))
            return true;
    return false;
}

/* A name of the architecture that this model has not, such as wq_a without q_lora_rank. */
static bool could_be_carried(const expansion *x, const char *entry)
{
    int count = 0;
    const oct_dsv3_alias *aliases = oct_dsv3_aliases(&count);
    for (int i = 0; i < count; i++)
        for (int side = 0; side < 2; side++)
            for (int64_t layer = 0; layer < x->hf.num_hidden_layers; layer++) {
                const char *name = side ? aliases[i].hf : aliases[i].torchtitan;
                const char *star = strchr(name, '*');
                char full[OCT_DSV3_NAME];
                (void)snprintf(full, sizeof full, "%.*s%lld%s", star ? (int)(star - name) : 0, name,
                               (long long)layer, star ? star + 1 : "");
                if (strstr(star ? full : name, entry))
                    return true;
            }
    return false;
}

static int count_dots(const char *text)
{
    int dots = 0;
    for (; *text; text++)
        dots += *text == '.';
    return dots;
}

/* How far an entry is from the part of a name that resembles it most: as many segments as it has.
 */
static size_t entry_distance(const char *entry, const char *name)
{
    const int dots = count_dots(entry);
    size_t least = SIZE_MAX;
    for (const char *start = name; start; start = strchr(start, '.')) {
        char part[OCT_DSV3_NAME];
        start += *start == '.';
        const char *end = start;
        for (int left = dots; *end && (*end != '.' || left > 0); end++)
            left -= *end == '.';
        (void)snprintf(part, sizeof part, "%.*s", (int)(end - start), start);
        const size_t distance = oct_edit_distance(entry, part);
        least = distance < least ? distance : least;
    }
    return least;
}

/* "'a', 'b', 'c'": the names nearest to an entry. */
static oct_status nearest_names(const expansion *x, const char *entry, const char **out,
                                oct_err *err)
{
    enum { NEAREST = 3 };
    int count = 0;
    const oct_dsv3_alias *aliases = oct_dsv3_aliases(&count);
    const char *names[NEAREST] = {NULL};
    size_t distances[NEAREST] = {SIZE_MAX, SIZE_MAX, SIZE_MAX};
    for (int i = 0; i < 2 * count; i++) {
        const char *name = i % 2 ? aliases[i / 2].hf : aliases[i / 2].torchtitan;
        const size_t distance = entry_distance(entry, name);
        int at = NEAREST;
        while (at > 0 && distance < distances[at - 1])
            at--;
        for (int k = NEAREST - 1; k > at; k--) {
            names[k] = names[k - 1];
            distances[k] = distances[k - 1];
        }
        if (at < NEAREST) {
            names[at] = name;
            distances[at] = distance;
        }
    }
    oct_text_buffer text = {.arena = x->arena};
    OCT_TRY(oct_text_append(&text, err, "'%s', '%s', '%s'", names[0], names[1], names[2]));
    *out = text.data;
    return OCT_OK;
}

/* The layer that an entry names, -1 if it names none. */
static int64_t layer_of(const char *entry)
{
    static const char mark[] = "layers.";
    const char *at = strstr(entry, mark);
    if (!at || at[sizeof mark - 1] < '0' || at[sizeof mark - 1] > '9')
        return -1;
    return strtoll(at + sizeof mark - 1, NULL, 10);
}

static oct_status check_entries(const expansion *x, const oct_string_list *entries, const char *key,
                                const char *where, oct_err *err)
{
    for (int64_t i = 0; i < entries->count; i++) {
        const char *entry = entries->items[i], *nearest = NULL;
        bool hit = false;
        if (!*entry)
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "wrong entry of %s: '', which is in every name; a part of a name is "
                            "required (%s)",
                            key, where);
        for (int64_t p = 0; p < x->place_count && !hit; p++)
            hit = carries(&x->places[p], entry);
        if (hit || could_be_carried(x, entry))
            continue;
        if (layer_of(entry) >= x->hf.num_hidden_layers)
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "entry '%.100s' of %s matches 0 modules, a layer from 0 to %lld is "
                            "required (%s)",
                            entry, key, (long long)x->hf.num_hidden_layers - 1, where);
        OCT_TRY(nearest_names(x, entry, &nearest, err));
        return OCT_FAIL(
            err, OCT_E_CONFIG,
            "entry '%.100s' of %s matches 0 modules, a part of a name is required, upper "
            "and lower case as they are; the nearest are %s (%s)",
            entry, key, nearest, where);
    }
    return OCT_OK;
}

/* ['a', 'b'], as Python prints it. */
static oct_status append_list(oct_text_buffer *text, const oct_string_list *list, oct_err *err)
{
    OCT_TRY(oct_text_append(text, err, "["));
    for (int64_t i = 0; i < list->count; i++)
        OCT_TRY(oct_text_append(text, err, "%s'%.100s'", i ? ", " : "", list->items[i]));
    return oct_text_append(text, err, "]");
}

/* --- What is converted ----------------------------------------------------------------------- */

static oct_status select_linear(expansion *x, oct_config_note note, void *note_arg, oct_err *err)
{
    const oct_torchtitan *job = x->job;
    OCT_TRY(check_entries(x, &job->filter_fqns, filter_key, job->linear_where, err));
    int64_t count = 0;
    const place *head = NULL;
    for (int64_t i = 0; i < x->place_count; i++) {
        place *at = &x->places[i];
        at->selected = at->type == &oct_linear_type && !carries_any(at, &job->filter_fqns);
        count += at->selected;
        if (at->selected && strcmp(at->hf, "lm_head") == 0)
            head = at;
    }
    if (count == 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "no linear layer is left to convert: %s takes all of them out, at least 1 "
                        "is required (%s)",
                        filter_key, job->linear_where);
    if (head && x->hf.tie_word_embeddings)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot convert the head 'output': its weight is that of tok_embeddings, "
                        "\"output\" in %s is required (%s)",
                        filter_key, job->linear_where);
    if (head && note) {
        oct_text_buffer line = {.arena = x->arena};
        OCT_TRY(
            oct_text_append(&line, err,
                            "warning: quantize.linear.mx converts the head too: 'output' is not "
                            "in %s (%s)",
                            filter_key, job->linear_where));
        note(note_arg, line.data);
    }
    return OCT_OK;
}

static oct_status select_experts(expansion *x, oct_err *err)
{
    const oct_torchtitan *job = x->job;
    OCT_TRY(check_entries(x, &job->fqns, fqns_key, job->grouped_where, err));
    int64_t count = 0, all = 0;
    for (int64_t i = 0; i < x->place_count; i++) {
        place *at = &x->places[i];
        if (at->type != &oct_dsv3_experts_type)
            continue;
        at->selected = carries_any(at, &job->fqns);
        count += at->selected;
        all++;
    }
    if (count)
        return OCT_OK;
    oct_text_buffer list = {.arena = x->arena};
    OCT_TRY(append_list(&list, &job->fqns, err));
    return OCT_FAIL(
        err, OCT_E_CONFIG,
        "no MoE expert module matches fqns %.300s: 0 of %lld, at least 1 is required; "
        "their names are layers.*.moe.experts and model.layers.*.mlp.experts, upper and "
        "lower case as they are (%s, %s)",
        list.data, (long long)all, fqns_key, job->grouped_where);
}

/* --- Rules ----------------------------------------------------------------------------------- */

/* Adds the pattern if all that it hits is converted, else the modules that are. */
static oct_status add_group(expansion *x, oct_plan_override *rule, const char *pattern,
                            oct_err *err)
{
    int64_t hits = 0, selected = 0;
    for (int64_t i = 0; i < x->place_count; i++)
        if (oct_pattern_match(pattern, x->places[i].hf)) {
            hits++;
            selected += x->places[i].selected;
        }
    if (selected == 0)
        return OCT_OK;
    if (selected == hits)
        return oct_text_copy(x->arena, pattern, strlen(pattern),
                             &rule->match.items[rule->match.count++], err);
    for (int64_t i = 0; i < x->place_count; i++)
        if (x->places[i].selected && oct_pattern_match(pattern, x->places[i].hf))
            rule->match.items[rule->match.count++] = x->places[i].hf;
    return OCT_OK;
}

static oct_status open_rule(expansion *x, const char *module_type, const char *target,
                            const char *where, oct_plan_override **rule, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_array(x->arena, x->place_count, sizeof(const char *), &memory, err));
    *rule = &x->rules[x->rule_count];
    **rule = (oct_plan_override){.match = {.items = memory},
                                 .module_type = module_type,
                                 .when = "low_precision",
                                 .exact_type = true,
                                 .target = target,
                                 .where = where};
    return OCT_OK;
}

static void close_rule(expansion *x)
{
    x->rule_count += x->rules[x->rule_count].match.count > 0;
}

static oct_status add_projections(expansion *x, oct_err *err)
{
    static const char *const patterns[] = {
        "model.layers.*.self_attn.q_proj",    "model.layers.*.self_attn.q_a_proj",
        "model.layers.*.self_attn.q_b_proj",  "model.layers.*.self_attn.kv_a_proj_with_mqa",
        "model.layers.*.self_attn.kv_b_proj", "model.layers.*.self_attn.o_proj"};
    oct_plan_override *rule = NULL;
    OCT_TRY(open_rule(x, oct_linear_type.name, OCT_REPLACE_LOW_PRECISION_LINEAR,
                      x->job->linear_where, &rule, err));
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        OCT_TRY(add_group(x, rule, patterns[i], err));
    close_rule(x);
    return OCT_OK;
}

/* Dense layers, shared experts, head. */
static oct_status add_ffn(expansion *x, oct_err *err)
{
    oct_plan_override *rule = NULL;
    OCT_TRY(open_rule(x, oct_linear_type.name, OCT_REPLACE_LOW_PRECISION_LINEAR,
                      x->job->linear_where, &rule, err));
    for (int64_t layer = 0; layer < x->hf.num_hidden_layers; layer++) {
        char pattern[64];
        (void)snprintf(pattern, sizeof pattern, "model.layers.%lld.mlp.*_proj", (long long)layer);
        if (layer < x->hf.first_k_dense_replace)
            OCT_TRY(add_group(x, rule, pattern, err));
    }
    OCT_TRY(add_group(x, rule, "model.layers.*.mlp.shared_experts.*_proj", err));
    OCT_TRY(add_group(x, rule, "lm_head", err));
    close_rule(x);
    return OCT_OK;
}

static oct_status add_experts(expansion *x, oct_err *err)
{
    oct_plan_override *rule = NULL;
    OCT_TRY(open_rule(x, oct_dsv3_experts_type.name, OCT_REPLACE_DSV3_LOW_PRECISION_EXPERTS,
                      x->job->grouped_where, &rule, err));
    OCT_TRY(add_group(x, rule, "model.layers.*.mlp.experts", err));
    close_rule(x);
    return OCT_OK;
}

oct_status oct_converters_expand(oct_config *config, oct_arena *arena, oct_config_note note,
                                 void *note_arg, oct_err *err)
{
    enum { MOST_RULES = 3 };
    oct_torchtitan *job = config->torchtitan;
    if (!job || job->expanded)
        return OCT_OK;
    if (job->linear || job->grouped) {
        expansion x = {.config = config, .job = job, .arena = arena};
        void *memory = NULL;
        OCT_TRY(oct_arena_array(arena, MOST_RULES, sizeof(oct_plan_override), &memory, err));
        x.rules = memory;
        OCT_TRY(list_places(&x, err));
        if (job->linear)
            OCT_TRY(select_linear(&x, note, note_arg, err));
        if (job->grouped)
            OCT_TRY(select_experts(&x, err));
        OCT_TRY(add_projections(&x, err));
        OCT_TRY(add_ffn(&x, err));
        OCT_TRY(add_experts(&x, err));
        config->plan_overrides = x.rules;
        config->plan_override_count = x.rule_count;
        config->low_precision.enabled = true;
    }
    job->expanded = true;
    return OCT_OK;
}

/* --- The log --------------------------------------------------------------------------------- */

/* Modules of the built tree. */
typedef struct counts {
    const oct_torchtitan *job;
    int64_t routers;         /* that filter_fqns does not name */
    int64_t linear, experts; /* converted */
    int64_t containers;      /* of experts, converted or not */
} counts;

static oct_status count_module(void *arg, const char *fqn, oct_module **slot, oct_err *err)
{
    (void)err;
    counts *c = arg;
    char name[OCT_DSV3_NAME];
    const bool named = oct_dsv3_torchtitan_name(fqn, name);
    const place at = {.hf = fqn, .torchtitan = named ? name : NULL};
    c->routers +=
        named && strstr(name, ".moe.router.gate") && !carries_any(&at, &c->job->filter_fqns);
    const oct_module_type *type = (*slot)->type;
    c->linear += type == &oct_low_precision_linear_type;
    c->experts += type == &oct_dsv3_low_precision_experts_type;
    c->containers += oct_module_type_is(type, &oct_dsv3_experts_type);
    return OCT_OK;
}

static oct_status tell_made(const oct_torchtitan *job, const char *name,
                            void (*tell)(void *arg, const char *line), void *arg, oct_arena *arena,
                            oct_err *err)
{
    oct_text_buffer line = {.arena = arena};
    if (strcmp(name, "quantize.linear.mx") == 0)
        OCT_TRY(oct_text_append(&line, err, "MX training active with recipe %s", job->recipe));
    else if (strcmp(name, "quantize.grouped_mm.mx") == 0)
        OCT_TRY(oct_text_append(&line, err, "%s MoE training enabled", job->recipe));
    else
        return OCT_OK;
    tell(arg, line.data);
    return OCT_OK;
}

static oct_status tell_run(const oct_torchtitan *job, const char *name, const counts *c,
                           void (*tell)(void *arg, const char *line), void *arg, oct_arena *arena,
                           oct_err *err)
{
    oct_text_buffer line = {.arena = arena}, second = {.arena = arena};
    if (strcmp(name, "quantize.linear.mx") == 0) {
        OCT_TRY(oct_text_append(&line, err, "Swapped to MXLinear_NPU layers"));
        if (c->routers)
            OCT_TRY(
                oct_text_append(&second, err,
                                "router.gate is no Linear here and stays in FP32, with or without "
                                "an entry of filter_fqns"));
    } else if (strcmp(name, "quantize.grouped_mm.mx") == 0) {
        OCT_TRY(oct_text_append(&line, err,
                                "[MXFP8/HiF8 GMM] Replaced %lld NPU GMM methods/functions.",
                                (long long)c->experts));
        OCT_TRY(oct_text_append(&second, err, "Converted MoE layers matching FQNs "));
        OCT_TRY(append_list(&second, &job->fqns, err));
        OCT_TRY(oct_text_append(&second, err,
                                " to use dynamic %s quantization with scaled grouped GEMMs",
                                job->recipe));
    } else if (c->containers) {
        OCT_TRY(oct_text_append(&line, err, "[NPU-CONVERTER] Applied '%s' : %lld replacements",
                                name, (long long)c->containers));
    } else {
        OCT_TRY(oct_text_append(&line, err, "[NPU-CONVERTER] Applied no '%s' replacements", name));
    }
    tell(arg, line.data);
    if (second.data)
        tell(arg, second.data);
    return OCT_OK;
}

oct_status oct_converters_tell(const oct_config *config, oct_build *build,
                               void (*tell)(void *arg, const char *line), void *arg, oct_err *err)
{
    const oct_torchtitan *job = config->torchtitan;
    counts c = {.job = job};
    if (!job)
        return OCT_OK;
    OCT_TRY(oct_module_walk(&build->tree, count_module, &c, err));
    for (int64_t i = 0; i < job->converters.count; i++)
        OCT_TRY(tell_made(job, job->converters.items[i], tell, arg, &build->persist, err));
    for (int64_t i = 0; i < job->converters.count; i++)
        OCT_TRY(tell_run(job, job->converters.items[i], &c, tell, arg, &build->persist, err));
    return OCT_OK;
}
