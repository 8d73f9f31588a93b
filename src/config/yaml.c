#include "config/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libfyaml.h>

#include "config/source_text.h"
#include "config/text_buffer.h"

/* --- The types of plain scalars: YAML 1.2.2, 10.3.2 --- */

static bool is_one_of(const char *text, const char *const words[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

static bool is_null(const char *text)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    return is_one_of(text, words, 5);
}

static bool is_true(const char *text)
{
    static const char *const words[] = {"true", "True", "TRUE"};
    return is_one_of(text, words, 3);
}

static bool is_false(const char *text)
{
    static const char *const words[] = {"false", "False", "FALSE"};
    return is_one_of(text, words, 3);
}

static size_t span_digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* [-+]?[0-9]+ | 0o[0-7]+ | 0x[0-9a-fA-F]+; the base to read it in, 0 if it is no integer. */
static int integer_base(const char *text)
{
    if (strncmp(text, "0o", 2) == 0 && text[2])
        return text[2 + strspn(text + 2, "01234567")] ? 0 : 8;
    if (strncmp(text, "0x", 2) == 0 && text[2])
        return text[2 + strspn(text + 2, "0123456789abcdefABCDEF")] ? 0 : 16;
    const char *digits = text + (*text == '-' || *text == '+');
    return *digits && digits[span_digits(digits)] == '\0' ? 10 : 0;
}

/* [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)? | [-+]?\.(inf|Inf|INF) | \.(nan|NaN|NAN) */
static bool is_float(const char *text)
{
    static const char *const infinities[] = {".inf", ".Inf", ".INF"};
    static const char *const nans[] = {".nan", ".NaN", ".NAN"};
    if (is_one_of(text, nans, 3))
        return true;
    const char *c = text + (*text == '-' || *text == '+');
    if (is_one_of(c, infinities, 3))
        return true;
    const size_t whole = span_digits(c);
    c += whole;
    if (*c == '.') {
        const size_t fraction = span_digits(++c);
        c += fraction;
        if (whole + fraction == 0)
            return false;
    } else if (whole == 0) {
        return false;
    }
    if (*c == 'e' || *c == 'E') {
        c++;
        c += *c == '-' || *c == '+';
        const size_t exponent = span_digits(c);
        if (exponent == 0)
            return false;
        c += exponent;
    }
    return *c == '\0';
}

static double float_value(const char *text)
{
    const char *c = text + (*text == '-' || *text == '+');
    if (c[0] == '.' && (c[1] == 'n' || c[1] == 'N'))
        return strtod("nan", NULL);
    if (c[0] == '.' && (c[1] == 'i' || c[1] == 'I'))
        return strtod(*text == '-' ? "-inf" : "inf", NULL);
    return strtod(text, NULL);
}

bool oct_yaml_is_plain_string(const char *text)
{
    static const char safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-";
    /* YAML 1.1 readers take these for booleans: quoted they are strings everywhere. */
    static const char *const old_booleans[] = {"yes", "no", "on", "off", "y", "n"};
    if (text[strspn(text, safe)] != '\0' || *text == '-' || is_one_of(text, old_booleans, 6))
        return false;
    return !is_null(text) && !is_true(text) && !is_false(text) && integer_base(text) == 0 &&
           !is_float(text) && strncmp(text, "...", 3) != 0;
}

static oct_status type_plain(oct_value *value, oct_err *err)
{
    const char *text = value->text;
    const int base = integer_base(text);
    if (is_null(text)) {
        value->kind = OCT_VALUE_NULL;
    } else if (is_true(text) || is_false(text)) {
        value->kind = OCT_VALUE_BOOL;
        value->boolean = is_true(text);
    } else if (base != 0) {
        errno = 0;
        value->kind = OCT_VALUE_INT;
        value->integer = strtoll(base == 10 ? text : text + 2, NULL, base);
        value->real = (double)value->integer;
        if (errno == ERANGE) {
            char where[OCT_VALUE_WORDS];
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "integer out of range: %.100s, at most 64 bits with sign (%s)", text,
                            oct_value_where(value, where));
        }
    } else if (is_float(text)) {
        value->kind = OCT_VALUE_FLOAT;
        value->real = float_value(text);
    }
    return OCT_OK;
}

/* --- From events to the tree --- */

/* A container that is being filled and, in a map, the key that waits for its value. */
typedef struct frame {
    oct_value *container;
    const char *key;
    int key_line;
} frame;

typedef struct builder {
    struct fy_parser *parser;
    struct fy_diag *diag;
    const char *file;
    oct_yaml_source source;
    oct_arena *arena;
    oct_value *root;
    frame stack[OCT_SOURCE_MAX_DEPTH];
    int depth;
    int documents;
    int line, column; /* of the last mark */
} builder;

static void discard_text(struct fy_diag *diag, void *user, const char *text, size_t bytes)
{
    (void)diag;
    (void)user;
    (void)text;
    (void)bytes;
}

/* A position in a file, "file:line:column", or the word. */
static const char *position(const builder *b, int line, int column, char buffer[OCT_VALUE_WORDS])
{
    if (b->source == OCT_YAML_WORD)
        (void)snprintf(buffer, OCT_VALUE_WORDS, "%s", b->file);
    else
        (void)snprintf(buffer, OCT_VALUE_WORDS, "%s:%d:%d", b->file, line, column);
    return buffer;
}

/* libfyaml counts from 0. What is left out (`key:`, `- `) has no mark: it stands where the last
 * thing before it stands. */
static void event_position(const builder *b, const struct fy_mark *mark, int *line, int *column)
{
    *line = mark ? mark->line + 1 : b->line;
    *column = mark ? mark->column + 1 : b->column;
}

static oct_status refuse(const builder *b, const struct fy_mark *mark, const char *found,
                         const char *required, oct_err *err)
{
    char where[OCT_VALUE_WORDS];
    int line, column;
    event_position(b, mark, &line, &column);
    return OCT_FAIL(err, OCT_E_CONFIG, "cannot read YAML: %s, %s (%s)", found, required,
                    position(b, line, column, where));
}

/* Hangs a finished scalar or a new container into the innermost container. */
static oct_status attach(builder *b, oct_value *value, oct_err *err)
{
    if (b->depth == 0) {
        b->root = value;
        return OCT_OK;
    }
    frame *top = &b->stack[b->depth - 1];
    value->key = top->key;
    value->key_line = top->key_line;
    if (top->container->kind == OCT_VALUE_MAP && top->container->count >= OCT_SOURCE_MAX_MEMBERS) {
        char where[OCT_VALUE_WORDS];
        return OCT_FAIL(err, OCT_E_CONFIG, "cannot read YAML: more than %d keys in one map (%s)",
                        OCT_SOURCE_MAX_MEMBERS, position(b, value->line, value->column, where));
    }
    oct_value_append(top->container, value);
    top->key = NULL;
    return OCT_OK;
}

static oct_status open_container(builder *b, oct_value_kind kind, const struct fy_mark *mark,
                                 oct_err *err)
{
    frame *top = b->depth ? &b->stack[b->depth - 1] : NULL;
    if (top && top->container->kind == OCT_VALUE_MAP && !top->key)
        return refuse(b, mark, "a list or map as a key", "a scalar is required", err);
    if (b->depth == OCT_SOURCE_MAX_DEPTH)
        return refuse(b, mark, "more than 64 nested lists and maps", "64 are allowed", err);
    oct_value *container = NULL;
    int line, column;
    event_position(b, mark, &line, &column);
    b->line = line;
    b->column = column;
    OCT_TRY(oct_value_create(b->arena, kind, b->file, b->source == OCT_YAML_WORD ? 0 : line, column,
                             &container, err));
    OCT_TRY(attach(b, container, err));
    b->stack[b->depth++] = (frame){.container = container};
    return OCT_OK;
}

static oct_status take_key(builder *b, const char *key, int line, int column, oct_err *err)
{
    frame *top = &b->stack[b->depth - 1];
    const oct_value *earlier = oct_value_find(top->container, key);
    if (earlier) {
        char where[OCT_VALUE_WORDS];
        if (b->source == OCT_YAML_WORD)
            return OCT_FAIL(err, OCT_E_CONFIG, "duplicate key: '%.100s' is given twice (%s)", key,
                            b->file);
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "duplicate key: '%.100s' on line %d and again on line %d, one is required "
                        "(%s)",
                        key, earlier->key_line, line, position(b, line, column, where));
    }
    top->key = key;
    top->key_line = line;
    return OCT_OK;
}

static oct_status take_scalar(builder *b, struct fy_event *event, oct_err *err)
{
    size_t length = 0;
    const char *start = event->scalar.value ? fy_token_get_text(event->scalar.value, &length) : "";
    if (!start)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot read YAML: no memory for a scalar of '%s'",
                        b->file);
    const bool plain =
        !event->scalar.value || fy_token_scalar_style(event->scalar.value) == FYSS_PLAIN;
    const struct fy_mark *mark = plain && length == 0 ? NULL : fy_event_start_mark(event);
    if (memchr(start, '\0', length))
        return refuse(b, mark, "an escaped NUL in a string", "text without NUL is required", err);
    const char *text = NULL;
    int line, column;
    event_position(b, mark, &line, &column);
    b->line = line;
    b->column = column;
    OCT_TRY(oct_text_copy(b->arena, start, length, &text, err));
    const frame *top = b->depth ? &b->stack[b->depth - 1] : NULL;
    if (top && top->container->kind == OCT_VALUE_MAP && !top->key)
        return take_key(b, text, line, column, err);
    oct_value *value = NULL;
    OCT_TRY(oct_value_create(b->arena, OCT_VALUE_STRING, b->file,
                             b->source == OCT_YAML_WORD ? 0 : line, column, &value, err));
    value->text = text;
    if (plain)
        OCT_TRY(type_plain(value, err));
    return attach(b, value, err);
}

static oct_status take_event(builder *b, struct fy_event *event, oct_err *err)
{
    const struct fy_mark *mark = fy_event_start_mark(event);
    switch (event->type) {
    case FYET_NONE:
    case FYET_STREAM_START:
    case FYET_STREAM_END:
    case FYET_DOCUMENT_END:
        return OCT_OK;
    case FYET_DOCUMENT_START:
        if (++b->documents > 1)
            return refuse(b, mark, "a second document", "one document is required", err);
        return OCT_OK;
    case FYET_ALIAS:
        return refuse(b, mark, "an alias (*name)",
                      "a value is required: write it out, or quote text that begins with *", err);
    case FYET_MAPPING_START:
    case FYET_SEQUENCE_START:
    case FYET_SCALAR: {
        struct fy_token *anchor = fy_event_get_anchor_token(event);
        struct fy_token *tag = fy_event_get_tag_token(event);
        if (anchor)
            return refuse(b, fy_token_start_mark(anchor), "an anchor (&name)",
                          "a value without one is required", err);
        if (tag)
            return refuse(b, fy_token_start_mark(tag), "a tag (!name)",
                          "a value without one is required", err);
        if (event->type == FYET_SCALAR)
            return take_scalar(b, event, err);
        return open_container(b, event->type == FYET_MAPPING_START ? OCT_VALUE_MAP : OCT_VALUE_LIST,
                              mark, err);
    }
    case FYET_MAPPING_END:
    case FYET_SEQUENCE_END:
        b->depth--;
        return OCT_OK;
    }
    return OCT_OK;
}

/* The first problem that libfyaml found, with its position; false if it found none. */
static bool has_syntax_error(const builder *b, oct_err *err)
{
    void *iterator = NULL;
    const struct fy_diag_error *found = fy_diag_errors_iterate(b->diag, &iterator);
    if (!found && !fy_parser_get_stream_error(b->parser))
        return false;
    char where[OCT_VALUE_WORDS];
    (void)OCT_FAIL(err, OCT_E_CONFIG, "cannot read YAML: %s, valid YAML is required (%s)",
                   found ? found->msg : "syntax error",
                   found ? position(b, found->line, found->column, where) : b->file);
    return true;
}

static oct_status run_parser(builder *b, oct_err *err)
{
    for (;;) {
        struct fy_event *event = fy_parser_parse(b->parser);
        if (!event)
            break;
        const bool end = event->type == FYET_STREAM_END;
        const oct_status status = take_event(b, event, err);
        fy_parser_event_free(b->parser, event);
        OCT_TRY(status);
        if (end)
            break;
    }
    if (has_syntax_error(b, err))
        return OCT_E_CONFIG;
    if (!b->root && b->source == OCT_YAML_WORD) { /* key= */
        OCT_TRY(oct_value_create(b->arena, OCT_VALUE_NULL, b->file, 0, 0, &b->root, err));
        b->root->text = "";
    }
    if (!b->root || (b->source == OCT_YAML_FILE && b->root->kind != OCT_VALUE_MAP)) {
        char found[OCT_VALUE_WORDS];
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot read YAML: %s at the top, a map of keys is required (%s:1)",
                        b->root ? oct_value_describe(b->root, found) : "nothing", b->file);
    }
    return OCT_OK;
}

oct_status oct_yaml_parse(const char *text, size_t bytes, const char *file, oct_yaml_source source,
                          oct_arena *arena, oct_value **out, oct_err *err)
{
    builder b = {.file = file, .source = source, .arena = arena, .line = 1, .column = 1};
    /* libfyaml ends silently at a NUL and passes other control characters: look before it does. */
    OCT_TRY(oct_source_check("YAML", text, bytes, file, source == OCT_YAML_FILE, err));
    struct fy_diag_cfg diag_config;
    fy_diag_cfg_default(&diag_config);
    diag_config.fp = NULL;
    diag_config.output_fn = discard_text;
    diag_config.colorize = false;
    b.diag = fy_diag_create(&diag_config);
    if (b.diag) {
        fy_diag_set_collect_errors(b.diag, true);
        const struct fy_parse_cfg config = {.flags = FYPCF_JSON_NONE, .diag = b.diag};
        b.parser = fy_parser_create(&config);
    }
    oct_status status;
    if (!b.parser || fy_parser_set_string(b.parser, text, bytes) != 0)
        status = OCT_FAIL(err, OCT_E_NOMEM, "cannot read YAML: no memory for a parser (%s)", file);
    else
        status = run_parser(&b, err);
    if (b.parser)
        fy_parser_destroy(b.parser);
    if (b.diag)
        fy_diag_destroy(b.diag);
    *out = b.root;
    return status;
}

oct_status oct_yaml_read_file(const char *path, oct_arena *arena, oct_value **out, oct_err *err)
{
    const char *text = NULL, *name = NULL;
    size_t bytes = 0;
    OCT_TRY(oct_source_read(path, arena, &text, &bytes, &name, err));
    return oct_yaml_parse(text, bytes, name, OCT_YAML_FILE, arena, out, err);
}
