#include "verify/performance.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "config/yaml.h"

const char *const oct_performance_parts[OCT_PERFORMANCE_PARTS] = {
    "quantize", "matmul", "attention", "all_gather", "reduce_scatter", "optimizer"};

/* --- steps ------------------------------------------------------------------------------------ */

static oct_status add_row(oct_performance *sum, const char *run, const json_t *row, int64_t step,
                          oct_err *err)
{
    const json_t *parts = json_object_get(row, "seconds");
    const int64_t tokens = json_integer_value(json_object_get(row, "tokens"));
    const int64_t found = json_integer_value(json_object_get(row, "step"));
    const int64_t peak = json_integer_value(json_object_get(row, "peak_memory_bytes"));
    const double seconds = json_number_value(json_object_get(row, "step_seconds"));
    if (found != step || json_is_true(json_object_get(row, "skipped")))
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot judge the speed of '%s': found step %lld%s, step %lld is required "
                        "(consecutive steps)",
                        run, (long long)found,
                        json_is_true(json_object_get(row, "skipped")) ? ", skipped" : "",
                        (long long)step);
    if (!(seconds > 0.0) || !isfinite(seconds))
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot judge the speed of '%s': step %lld took %g seconds, more than 0 "
                        "are required",
                        run, (long long)step, seconds);
    if (tokens < 1 || (sum->steps > 0 && tokens != sum->tokens_per_step))
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot judge the speed of '%s': step %lld had %lld tokens, %lld are "
                        "required (as in every step)",
                        run, (long long)step, (long long)tokens, (long long)sum->tokens_per_step);
    sum->steps++;
    sum->tokens += tokens;
    sum->tokens_per_step = tokens;
    sum->seconds += seconds;
    sum->peak_memory_bytes = oct_max_i64(sum->peak_memory_bytes, peak);
    for (int p = 0; p < OCT_PERFORMANCE_PARTS; p++)
        sum->parts[p] += json_number_value(json_object_get(parts, oct_performance_parts[p]));
    return OCT_OK;
}

oct_status oct_performance_add(oct_performance *sum, const char *run, const json_t *rows,
                               int64_t warmup, int64_t steps, oct_err *err)
{
    const int64_t count = (int64_t)json_array_size(rows);
    if (count < warmup + steps)
        return OCT_FAIL(err, OCT_E_DATA,
                        "cannot judge the speed of '%s': found %lld steps, %lld are required (%lld "
                        "of warm-up)",
                        run, (long long)count, (long long)(warmup + steps), (long long)warmup);
    const int64_t first =
        json_integer_value(json_object_get(json_array_get(rows, (size_t)warmup), "step"));
    for (int64_t i = 0; i < steps; i++)
        OCT_TRY(add_row(sum, run, json_array_get(rows, (size_t)(warmup + i)), first + i, err));
    return OCT_OK;
}

double oct_performance_tokens_per_second(const oct_performance *p)
{
    return p->steps > 0 ? (double)p->tokens / p->seconds : (double)NAN;
}

double oct_performance_step_seconds(const oct_performance *p)
{
    return p->steps > 0 ? p->seconds / (double)p->steps : (double)NAN;
}

double oct_performance_throughput_ratio(const oct_performance *low, const oct_performance *bf16)
{
    return oct_performance_tokens_per_second(low) / oct_performance_tokens_per_second(bf16);
}

double oct_performance_step_time_ratio(const oct_performance *low, const oct_performance *bf16)
{
    return oct_performance_step_seconds(low) / oct_performance_step_seconds(bf16);
}

/* Written so that a NaN does not hold. */
bool oct_performance_holds(const oct_performance *low, const oct_performance *bf16)
{
    return low->tokens_per_step == bf16->tokens_per_step &&
           oct_performance_throughput_ratio(low, bf16) >= 1.0 &&
           oct_performance_step_time_ratio(low, bf16) <= 1.0;
}

json_t *oct_performance_json(const char *format, const oct_performance *p,
                             const oct_performance *bf16, json_t *per_rank)
{
    json_t *parts = json_object();
    for (int i = 0; i < OCT_PERFORMANCE_PARTS; i++)
        (void)json_object_set_new(parts, oct_performance_parts[i],
                                  json_real(p->parts[i] / (double)p->steps));
    return json_pack(
        "{s:s,s:f,s:f,s:f,s:f,s:o,s:o}", "format", format, "tokens_per_second",
        oct_performance_tokens_per_second(p), "step_seconds", oct_performance_step_seconds(p),
        "throughput_ratio", oct_performance_throughput_ratio(p, bf16), "step_time_ratio",
        oct_performance_step_time_ratio(p, bf16), "peak_memory_bytes", per_rank, "seconds", parts);
}

/* --- configurations --------------------------------------------------------------------------- */

enum { KEY_BYTES = 256 };

static bool same_scalar(const oct_value *a, const oct_value *b)
{
    if (!a->text || !b->text)
        return a->text == b->text;
    return strcmp(a->text, b->text) == 0;
}

/* Writes the key of the first difference; false: there is none. *x or *y NULL: missing there. */
static bool differ(const oct_value *a, const oct_value *b, char key[KEY_BYTES], const oct_value **x,
                   const oct_value **y)
{
    const size_t used = strlen(key);
    *x = a;
    *y = b;
    if (!a || !b)
        return a != b;
    if (a->kind != b->kind || !same_scalar(a, b) || a->count != b->count) {
        const bool maps = a->kind == OCT_VALUE_MAP && b->kind == OCT_VALUE_MAP;
        if (!maps)
            return true;
    }
    int64_t index = 0;
    const oct_value *other = b->first;
    for (const oct_value *child = a->first; child; child = child->next, index++) {
        const bool is_map = a->kind == OCT_VALUE_MAP;
        const oct_value *twin = is_map ? oct_value_find(b, child->key) : other;
        other = other ? other->next : NULL;
        if (is_map && used == 0 && strcmp(child->key, "low_precision") == 0)
            continue;
        if (is_map)
            (void)snprintf(key + used, KEY_BYTES - used, "%s%s", used ? "." : "", child->key);
        else
            (void)snprintf(key + used, KEY_BYTES - used, "[%lld]", (long long)index);
        if (differ(child, twin, key, x, y))
            return true;
        key[used] = '\0';
    }
    for (const oct_value *child = b->first; a->kind == OCT_VALUE_MAP && child; child = child->next)
        if (!oct_value_find(a, child->key) &&
            !(used == 0 && strcmp(child->key, "low_precision") == 0)) {
            (void)snprintf(key + used, KEY_BYTES - used, "%s%s", used ? "." : "", child->key);
            *x = NULL;
            *y = child;
            return true;
        }
    return false;
}

static const char *describe(const oct_value *value, char buffer[OCT_VALUE_WORDS])
{
    return value ? oct_value_describe(value, buffer) : "nothing";
}

static oct_status compare(const char *bf16_text, const char *bf16_name, const char *low_text,
                          const char *low_name, oct_arena *arena, oct_err *err)
{
    oct_value *a = NULL, *b = NULL;
    const oct_value *x = NULL, *y = NULL;
    char key[KEY_BYTES] = "", x_words[OCT_VALUE_WORDS], y_words[OCT_VALUE_WORDS];
    OCT_TRY(oct_yaml_parse(bf16_text, strlen(bf16_text), bf16_name, OCT_YAML_FILE, arena, &a, err));
    OCT_TRY(oct_yaml_parse(low_text, strlen(low_text), low_name, OCT_YAML_FILE, arena, &b, err));
    if (!differ(a, b, key, &x, &y))
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_CONFIG,
                    "cannot compare '%s' with '%s': found %s and %s, equal configurations but for "
                    "low_precision are required (%s)",
                    low_name, bf16_name, describe(y, y_words), describe(x, x_words), key);
}

oct_status oct_performance_same_config(const char *bf16_text, const char *bf16_name,
                                       const char *low_text, const char *low_name, oct_err *err)
{
    oct_arena arena;
    oct_arena_init(&arena, "configurations");
    const oct_status status = compare(bf16_text, bf16_name, low_text, low_name, &arena, err);
    oct_arena_release(&arena);
    return status;
}
