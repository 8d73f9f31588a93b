#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void oct_json_init(oct_json *json)
{
    *json = (oct_json){.status = OCT_OK};
}

void oct_json_release(oct_json *json)
{
    free(json->text);
    oct_json_init(json);
}

void oct_json_clear(oct_json *json)
{
    char *const text = json->text;
    const size_t capacity = json->capacity;
    *json = (oct_json){.status = OCT_OK, .text = text, .capacity = capacity};
    if (text)
        text[0] = '\0';
}

static void put(oct_json *json, const char *text, size_t bytes)
{
    if (json->status != OCT_OK)
        return;
    if (json->capacity - json->bytes <= bytes) {
        const size_t capacity = (json->bytes + bytes + 1) * 2 + 256;
        char *grown = realloc(json->text, capacity);
        if (!grown) {
            json->status = OCT_E_NOMEM;
            return;
        }
        json->text = grown;
        json->capacity = capacity;
    }
    memcpy(json->text + json->bytes, text, bytes);
    json->bytes += bytes;
    json->text[json->bytes] = '\0';
}

static void put_text(oct_json *json, const char *text)
{
    put(json, text, strlen(text));
}

static void put_quoted(oct_json *json, const char *value)
{
    put(json, "\"", 1);
    const char *plain = value;
    for (const char *c = value; *c; c++) {
        const unsigned char byte = (unsigned char)*c;
        if (byte >= 0x20 && byte != '"' && byte != '\\')
            continue;
        put(json, plain, (size_t)(c - plain));
        plain = c + 1;
        char escape[8];
        if (byte == '"' || byte == '\\')
            (void)snprintf(escape, sizeof escape, "\\%c", byte);
        else if (byte == '\n')
            (void)snprintf(escape, sizeof escape, "\\n");
        else if (byte == '\t')
            (void)snprintf(escape, sizeof escape, "\\t");
        else
            (void)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)byte);
        put_text(json, escape);
    }
    put_text(json, plain);
    put(json, "\"", 1);
}

/* The comma and the member name in front of a value. */
static void begin_value(oct_json *json, const char *key)
{
    const bool in_object = json->depth > 0 && json->closer[json->depth] == '}';
    if (in_object != (key != NULL) || (json->depth == 0 && json->has_items[0])) {
        if (json->status == OCT_OK)
            json->status = OCT_E_API;
        return;
    }
    if (json->has_items[json->depth])
        put(json, ", ", 2);
    json->has_items[json->depth] = true;
    if (key) {
        put_quoted(json, key);
        put(json, ": ", 2);
    }
}

static void open_level(oct_json *json, const char *key, char opener, char closer)
{
    begin_value(json, key);
    if (json->depth == OCT_JSON_MAX_DEPTH) {
        json->status = OCT_E_API;
        return;
    }
    put(json, &opener, 1);
    json->depth++;
    json->closer[json->depth] = closer;
    json->has_items[json->depth] = false;
}

void oct_json_object(oct_json *json, const char *key)
{
    open_level(json, key, '{', '}');
}

void oct_json_array(oct_json *json, const char *key)
{
    open_level(json, key, '[', ']');
}

void oct_json_end(oct_json *json)
{
    if (json->depth == 0) {
        json->status = OCT_E_API;
        return;
    }
    put(json, &json->closer[json->depth], 1);
    json->depth--;
}

void oct_json_string(oct_json *json, const char *key, const char *value)
{
    begin_value(json, key);
    if (value)
        put_quoted(json, value);
    else
        put_text(json, "null");
}

void oct_json_int(oct_json *json, const char *key, int64_t value)
{
    char text[32];
    begin_value(json, key);
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    put_text(json, text);
}

void oct_json_bool(oct_json *json, const char *key, bool value)
{
    begin_value(json, key);
    put_text(json, value ? "true" : "false");
}

void oct_json_null(oct_json *json, const char *key)
{
    begin_value(json, key);
    put_text(json, "null");
}

void oct_json_double(oct_json *json, const char *key, double value)
{
    begin_value(json, key);
    if (!isfinite(value)) {
        put_text(json, "null");
        return;
    }
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        const double back = strtod(text, NULL);
        if (memcmp(&back, &value, sizeof back) == 0)
            break;
    }
    put_text(json, text);
}

void oct_json_float(oct_json *json, const char *key, float value)
{
    begin_value(json, key);
    if (!isfinite(value)) {
        put_text(json, "null");
        return;
    }
    char text[40];
    for (int digits = 6; digits <= 9; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)value);
        const float back = strtof(text, NULL);
        if (memcmp(&back, &value, sizeof back) == 0)
            break;
    }
    put_text(json, text);
}

void oct_json_raw(oct_json *json, const char *key, const char *text)
{
    begin_value(json, key);
    put_text(json, text);
}

oct_status oct_json_finish(const oct_json *json, oct_err *err)
{
    if (json->status == OCT_E_NOMEM)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot write JSON: out of memory at %zu bytes",
                        json->bytes);
    if (json->status != OCT_OK || json->depth != 0 || !json->has_items[0])
        return OCT_FAIL(err, OCT_E_API,
                        "cannot write JSON: %d levels open after %zu bytes, one complete value is "
                        "required",
                        json->depth, json->bytes);
    return OCT_OK;
}
