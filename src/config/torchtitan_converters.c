/* model.converters: which there are, in which order, and what their sections say. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "config/torchtitan_job.h"

static const char converters_key[] = "model.converters";
static const char npu_gmm[] = "npu_gmm";
static const char linear_mx[] = "quantize.linear.mx";
static const char grouped_mx[] = "quantize.grouped_mm.mx";

static const char *const supported[] = {npu_gmm, linear_mx, grouped_mx};
enum { SUPPORTED = sizeof supported / sizeof supported[0] };

static const char *where_of(const oct_torchtitan_job *job, const char *path,
                            char out[OCT_VALUE_WORDS])
{
    return oct_value_where(oct_torchtitan_value(job, path), out);
}

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* The place of a converter in the list, -1 if it is not there. */
static int64_t place_of(const oct_string_list *list, const char *name)
{
    for (int64_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], name) == 0)
            return i;
    return -1;
}

static oct_status check_types(const oct_torchtitan_job *job, const oct_string_list *list,
                              oct_err *err)
{
    static const char quantize[] = "quantize.";
    const char *first = NULL;
    char where[OCT_VALUE_WORDS];
    for (int64_t i = 0; i < list->count; i++) {
        const char *name = list->items[i];
        if (strncmp(name, quantize, sizeof quantize - 1) != 0)
            continue;
        if (first && strcmp(last_part(name), last_part(first)) != 0)
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "Cannot combine model converters with different quantization types: "
                            "'%.100s' and '%.100s' (%s, %s)",
                            last_part(name), last_part(first), converters_key,
                            where_of(job, converters_key, where));
        first = name;
    }
    return OCT_OK;
}

static oct_status unknown_converter(const oct_torchtitan_job *job, const char *name, oct_err *err)
{
    char where[OCT_VALUE_WORDS];
    const char *nearest = supported[0];
    for (int i = 1; i < SUPPORTED; i++)
        if (oct_edit_distance(name, supported[i]) < oct_edit_distance(name, nearest))
            nearest = supported[i];
    return OCT_FAIL(err, OCT_E_CONFIG,
                    "unknown model converter: '%.100s', npu_gmm, quantize.linear.mx or "
                    "quantize.grouped_mm.mx is required; the nearest is %s (%s, %s)",
                    name, nearest, converters_key, where_of(job, converters_key, where));
}

static oct_status check_names(const oct_torchtitan_job *job, const oct_string_list *list,
                              oct_err *err)
{
    char where[OCT_VALUE_WORDS];
    for (int64_t i = 0; i < list->count; i++) {
        bool known = false;
        for (int k = 0; k < SUPPORTED; k++)
            known = known || strcmp(list->items[i], supported[k]) == 0;
        if (!known)
            return unknown_converter(job, list->items[i], err);
        if (place_of(list, list->items[i]) != i)
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "model converter listed twice: '%s', each at most once is required "
                            "(%s, %s)",
                            list->items[i], converters_key, where_of(job, converters_key, where));
    }
    return OCT_OK;
}

static oct_status check_order(const oct_torchtitan_job *job, const oct_string_list *list,
                              oct_err *err)
{
    char where[OCT_VALUE_WORDS];
    const int64_t gmm = place_of(list, npu_gmm), grouped = place_of(list, grouped_mx);
    if (grouped < 0 || (gmm >= 0 && gmm < grouped))
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_CONFIG,
                    "wrong order of model converters: '%s' is %s, a place before '%s' is required "
                    "(%s, %s)",
                    npu_gmm, gmm < 0 ? "not listed" : "after it", grouped_mx, converters_key,
                    where_of(job, converters_key, where));
}

/* torch.compile of the model under tensor parallelism has its own words. */
static oct_status check_compile(const oct_torchtitan_job *job, oct_err *err)
{
    char where[OCT_VALUE_WORDS];
    oct_string_list components;
    OCT_TRY(oct_torchtitan_strings(job, "compile.components", &components, err));
    if (oct_torchtitan_value(job, "compile.enable")->boolean &&
        place_of(&components, "model") >= 0 &&
        oct_torchtitan_value(job, "parallelism.tensor_parallel_degree")->integer > 1)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "TP not yet supported with torch.compile for mxfp8 "
                        "(parallelism.tensor_parallel_degree, %s)",
                        where_of(job, "parallelism.tensor_parallel_degree", where));
    return OCT_OK;
}

static oct_status check_recipe(const oct_torchtitan_job *job, const char *path, oct_err *err)
{
    char where[OCT_VALUE_WORDS];
    const char *name = oct_torchtitan_value(job, path)->text;
    if (strcmp(name, "mxfp8") == 0 || strcmp(name, "hif8") == 0)
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_CONFIG,
                    "recipe_name %.100s not in valid names ['mxfp8', 'hif8'] (%s, %s)", name, path,
                    where_of(job, path, where));
}

/* One format per job: both converters quantize by it. */
static oct_status read_recipe(oct_torchtitan_job *job, oct_torchtitan *to, oct_err *err)
{
    static const char of_linear[] = "quantize.linear.mx.recipe_name";
    static const char of_grouped[] = "quantize.grouped_mm.mx.recipe_name";
    const char *key = to->linear ? of_linear : of_grouped;
    char first[OCT_VALUE_WORDS], second[OCT_VALUE_WORDS];
    if (to->linear)
        OCT_TRY(check_recipe(job, of_linear, err));
    if (to->grouped)
        OCT_TRY(check_recipe(job, of_grouped, err));
    if (!to->linear && !to->grouped)
        return OCT_OK;
    to->recipe = oct_torchtitan_value(job, key)->text;
    if (to->linear && to->grouped &&
        strcmp(to->recipe, oct_torchtitan_value(job, of_grouped)->text) != 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot use two recipes in one job: %s in %s (%s) and %s in %s (%s), one "
                        "for both is required",
                        to->recipe, of_linear, where_of(job, of_linear, first),
                        oct_torchtitan_value(job, of_grouped)->text, of_grouped,
                        where_of(job, of_grouped, second));
    const bool hif8 = strcmp(to->recipe, "hif8") == 0;
    oct_value *format = NULL, *scaling = NULL;
    OCT_TRY(oct_torchtitan_put(job, key, "low_precision.format", OCT_VALUE_STRING, &format, err));
    format->text = hif8 ? "hif8" : "mxfp8_e4m3";
    OCT_TRY(oct_torchtitan_put(job, key, "low_precision.scaling", OCT_VALUE_STRING, &scaling, err));
    scaling->text = hif8 ? "current" : "mx_block";
    return OCT_OK;
}

/* A section of a converter that is not listed decides about nothing. */
static oct_status warn_of_idle_section(const oct_torchtitan_job *job, const char *section,
                                       bool listed, oct_err *err)
{
    static const char *const names[] = {"recipe_name", "filter_fqns", "fqns"};
    char path[64], where[OCT_VALUE_WORDS];
    for (int i = 0; i < 3 && !listed; i++) {
        (void)snprintf(path, sizeof path, "%s.%s", section, names[i]);
        if (oct_torchtitan_is_given(job, path))
            return oct_torchtitan_warn(job, err, "[%s] has no effect: %s does not list it (%s)",
                                       section, converters_key, where_of(job, path, where));
    }
    return OCT_OK;
}

static oct_status keep_where(const oct_torchtitan_job *job, const char *path, const char **out,
                             oct_err *err)
{
    void *text = NULL;
    OCT_TRY(oct_arena_alloc(job->arena, OCT_VALUE_WORDS, &text, err));
    *out = where_of(job, path, text);
    return OCT_OK;
}

oct_status oct_torchtitan_read_converters(oct_torchtitan_job *job, oct_torchtitan **out,
                                          oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_zalloc(job->arena, sizeof **out, &memory, err));
    oct_torchtitan *to = *out = memory;
    OCT_TRY(oct_torchtitan_strings(job, converters_key, &to->converters, err));
    OCT_TRY(check_types(job, &to->converters, err));
    OCT_TRY(check_names(job, &to->converters, err));
    OCT_TRY(check_order(job, &to->converters, err));
    to->npu_gmm = place_of(&to->converters, npu_gmm) >= 0;
    to->linear = place_of(&to->converters, linear_mx) >= 0;
    to->grouped = place_of(&to->converters, grouped_mx) >= 0;
    if (to->linear)
        OCT_TRY(check_compile(job, err));
    OCT_TRY(read_recipe(job, to, err));
    OCT_TRY(warn_of_idle_section(job, linear_mx, to->linear, err));
    OCT_TRY(warn_of_idle_section(job, grouped_mx, to->grouped, err));
    OCT_TRY(oct_torchtitan_strings(job, "quantize.linear.mx.filter_fqns", &to->filter_fqns, err));
    OCT_TRY(oct_torchtitan_strings(job, "quantize.grouped_mm.mx.fqns", &to->fqns, err));
    OCT_TRY(keep_where(job, "quantize.linear.mx.filter_fqns", &to->linear_where, err));
    return keep_where(job, "quantize.grouped_mm.mx.fqns", &to->grouped_where, err);
}
