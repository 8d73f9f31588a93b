#include "config/toml.h"

#include <stdio.h>
#include <string.h>

#include "config/source_text.h"
#include "config/text_buffer.h"
#include "config/toml_scalar.h"

/* How a table or array came to be, and so what may still be added to it. */
typedef enum origin {
    BY_SUBTABLE, /* named on the way to another table: may get a header of its own, once */
    BY_HEADER,   /* [a] */
    BY_DOTS,     /* a.b = 1: more dotted keys and sub-tables may follow, no header of its own */
    BY_VALUE,    /* an inline table or a static array: complete */
    BY_ITEMS     /* [[a]]: an array of tables */
} origin;

/* A map or list of the tree with what the reader knows about it. */
typedef struct node {
    oct_value value; /* first: a node is its value */
    origin origin;
} node;

typedef struct parser {
    oct_toml_cursor c;
    node *root;
    node *table; /* that key = value lines go into */
    int table_depth;
} parser;

/* The parts of a.b.c, each with its place. */
typedef struct key_part {
    const char *name;
    int line, column;
} key_part;

typedef struct dotted_key {
    key_part parts[OCT_SOURCE_MAX_DEPTH];
    int count;
} dotted_key;

static node *node_of(oct_value *value)
{
    return (node *)(void *)value;
}

static bool is_container(const oct_value *value)
{
    return value->kind == OCT_VALUE_MAP || value->kind == OCT_VALUE_LIST;
}

/* --- Blanks --- */

static void skip_blanks(parser *p)
{
    while (oct_toml_peek(&p->c) == ' ' || oct_toml_peek(&p->c) == '\t')
        p->c.at++;
}

static void skip_comment(parser *p)
{
    if (oct_toml_peek(&p->c) != '#')
        return;
    while (p->c.at < p->c.end && *p->c.at != '\n' && *p->c.at != '\r')
        p->c.at++;
}

/* Blanks, comments and newlines. */
static void skip_lines(parser *p)
{
    do {
        skip_blanks(p);
        skip_comment(p);
    } while (oct_toml_newline(&p->c));
}

/* What may follow a key = value or a header: a comment, and the end of the line. */
static oct_status end_line(parser *p, oct_err *err)
{
    skip_blanks(p);
    skip_comment(p);
    if (p->c.at == p->c.end || oct_toml_newline(&p->c))
        return OCT_OK;
    return oct_toml_refuse(&p->c, "something after the end of a value or header",
                           "a new line is required", err);
}

/* --- Nodes --- */

static oct_status create(parser *p, oct_value_kind kind, const key_part *at, origin from,
                         node **out, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_alloc(p->c.arena, sizeof(node), &memory, err));
    *out = memory;
    **out = (node){.value = {.kind = kind,
                             .file = p->c.file,
                             .line = at->line,
                             .column = at->column,
                             .key = at->name,
                             .key_line = at->line},
                   .origin = from};
    return OCT_OK;
}

static oct_status add_member(node *map, oct_value *member, const key_part *at, oct_err *err)
{
    if (map->value.count >= OCT_SOURCE_MAX_MEMBERS)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot read TOML: more than %d keys in one table (%s:%d:%d)",
                        OCT_SOURCE_MAX_MEMBERS, member->file, at->line, at->column);
    oct_value_append(&map->value, member);
    return OCT_OK;
}

static oct_status too_deep(const parser *p, const key_part *at, oct_err *err)
{
    return OCT_FAIL(err, OCT_E_CONFIG,
                    "cannot read TOML: more than %d nested tables and arrays, %d are allowed "
                    "(%s:%d:%d)",
                    OCT_SOURCE_MAX_DEPTH, OCT_SOURCE_MAX_DEPTH, p->c.file, at->line, at->column);
}

static oct_status given_twice(const parser *p, const char *what, const key_part *at,
                              const oct_value *earlier, oct_err *err)
{
    return OCT_FAIL(err, OCT_E_CONFIG,
                    "duplicate %s: '%.100s' on line %d and again on line %d, one is required "
                    "(%s:%d:%d)",
                    what, at->name, earlier->key_line, at->line, p->c.file, at->line, at->column);
}

static oct_status cannot_extend(const parser *p, const key_part *at, const oct_value *found,
                                oct_err *err)
{
    static const char *const tables[] = {[BY_SUBTABLE] = "a table",
                                         [BY_HEADER] = "a table with a header of its own",
                                         [BY_DOTS] = "a table of dotted keys",
                                         [BY_VALUE] = "an inline table, which is complete",
                                         [BY_ITEMS] = "an array of tables"};
    const char *made = "a plain value";
    if (is_container(found)) {
        const origin from = ((const node *)(const void *)found)->origin;
        const bool is_array = found->kind == OCT_VALUE_LIST && from == BY_VALUE;
        made = is_array ? "an array, which is complete" : tables[from];
    }
    return OCT_FAIL(err, OCT_E_CONFIG,
                    "cannot read TOML: '%.100s' is extended on line %d, but line %d made it %s; "
                    "another name is required (%s:%d:%d)",
                    at->name, at->line, found->key_line, made, p->c.file, at->line, at->column);
}

/* --- Keys --- */

static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static oct_status take_part(parser *p, key_part *part, oct_err *err)
{
    *part = (key_part){.line = p->c.line, .column = oct_toml_column(&p->c)};
    const char first = oct_toml_peek(&p->c);
    if (first == '"' || first == '\'')
        return oct_toml_string(&p->c, true, &part->name, err);
    const char *start = p->c.at;
    while (is_bare(oct_toml_peek(&p->c)))
        p->c.at++;
    if (p->c.at == start)
        return oct_toml_refuse(&p->c, first ? "no key" : "the end of the text",
                               "a key of A-Z a-z 0-9 _ - or a quoted key is required", err);
    return oct_text_copy(p->c.arena, start, (size_t)(p->c.at - start), &part->name, err);
}

/* a.b."c"; blanks may stand around the dots and after the key. */
static oct_status take_key(parser *p, dotted_key *key, oct_err *err)
{
    key->count = 0;
    for (;;) {
        key_part part;
        OCT_TRY(take_part(p, &part, err));
        if (key->count == OCT_SOURCE_MAX_DEPTH)
            return too_deep(p, &part, err);
        key->parts[key->count++] = part;
        skip_blanks(p);
        if (oct_toml_peek(&p->c) != '.')
            return OCT_OK;
        p->c.at++;
        skip_blanks(p);
    }
}

/* --- Values --- */

static oct_status take_pair(parser *p, node *table, int depth, oct_err *err);
static oct_status take_value(parser *p, const char *name, int name_line, int depth, oct_value **out,
                             oct_err *err);

static oct_status take_array(parser *p, node *list, int depth, oct_err *err)
{
    p->c.at++;
    for (;;) {
        skip_lines(p);
        if (oct_toml_peek(&p->c) == ']')
            break;
        oct_value *item = NULL;
        OCT_TRY(take_value(p, NULL, 0, depth, &item, err));
        oct_value_append(&list->value, item);
        skip_lines(p);
        if (oct_toml_peek(&p->c) == ',')
            p->c.at++;
        else if (oct_toml_peek(&p->c) != ']')
            return oct_toml_refuse(&p->c, "an array that goes on without a comma",
                                   "a comma or ] is required", err);
    }
    p->c.at++;
    return OCT_OK;
}

static oct_status take_inline_table(parser *p, node *map, int depth, oct_err *err)
{
    p->c.at++;
    skip_blanks(p);
    if (oct_toml_peek(&p->c) == '}') {
        p->c.at++;
        return OCT_OK;
    }
    for (;;) {
        OCT_TRY(take_pair(p, map, depth, err));
        skip_blanks(p);
        const char next = oct_toml_peek(&p->c);
        if (next == '}')
            break;
        if (next != ',')
            return oct_toml_refuse(&p->c,
                                   next == '\n' || next == '\r' || next == '#'
                                       ? "an inline table that goes on after its line"
                                       : "an inline table that goes on without a comma",
                                   "a comma or } is required", err);
        p->c.at++;
        skip_blanks(p);
    }
    p->c.at++;
    return OCT_OK;
}

/* depth: containers around the value. */
static oct_status take_value(parser *p, const char *name, int name_line, int depth, oct_value **out,
                             oct_err *err)
{
    const key_part at = {.name = name, .line = p->c.line, .column = oct_toml_column(&p->c)};
    const char first = oct_toml_peek(&p->c);
    if (first == '[' || first == '{') {
        node *made = NULL;
        if (depth == OCT_SOURCE_MAX_DEPTH)
            return too_deep(p, &at, err);
        OCT_TRY(
            create(p, first == '[' ? OCT_VALUE_LIST : OCT_VALUE_MAP, &at, BY_VALUE, &made, err));
        *out = &made->value;
        (*out)->key_line = name_line;
        return first == '[' ? take_array(p, made, depth + 1, err)
                            : take_inline_table(p, made, depth + 1, err);
    }
    OCT_TRY(
        oct_value_create(p->c.arena, OCT_VALUE_STRING, p->c.file, at.line, at.column, out, err));
    (*out)->key = name;
    (*out)->key_line = name_line;
    if (first == '"' || first == '\'')
        return oct_toml_string(&p->c, false, &(*out)->text, err);
    return oct_toml_plain(&p->c, *out, err);
}

/* The table that a.b of `a.b.c = 1` names, made where it is missing. */
static oct_status walk_dots(parser *p, node **table, const dotted_key *key, oct_err *err)
{
    for (int i = 0; i < key->count - 1; i++) {
        const key_part *at = &key->parts[i];
        oct_value *found = oct_value_find(&(*table)->value, at->name);
        if (!found) {
            node *made = NULL;
            OCT_TRY(create(p, OCT_VALUE_MAP, at, BY_DOTS, &made, err));
            OCT_TRY(add_member(*table, &made->value, at, err));
            found = &made->value;
        }
        if (found->kind != OCT_VALUE_MAP || node_of(found)->origin == BY_HEADER ||
            node_of(found)->origin == BY_VALUE)
            return cannot_extend(p, at, found, err);
        *table = node_of(found);
        (*table)->origin = BY_DOTS; /* a sub-table as well: no header of its own any more */
    }
    return OCT_OK;
}

/* key = value into `table`, which lies `depth` containers deep. */
static oct_status take_pair(parser *p, node *table, int depth, oct_err *err)
{
    dotted_key key;
    OCT_TRY(take_key(p, &key, err));
    const key_part *last = &key.parts[key.count - 1];
    if (oct_toml_peek(&p->c) != '=')
        return oct_toml_refuse(&p->c, "a key without a value", "= is required", err);
    p->c.at++;
    skip_blanks(p);
    if (depth + key.count - 1 > OCT_SOURCE_MAX_DEPTH)
        return too_deep(p, last, err);
    OCT_TRY(walk_dots(p, &table, &key, err));
    const oct_value *earlier = oct_value_find(&table->value, last->name);
    if (earlier)
        return given_twice(p, "key", last, earlier, err);
    oct_value *value = NULL;
    OCT_TRY(take_value(p, last->name, last->line, depth + key.count - 1, &value, err));
    return add_member(table, value, last, err);
}

/* --- Headers --- */

/* One step of a header's path, through the last item of an array of tables. */
static oct_status walk_header(parser *p, node **table, int *depth, const key_part *at, oct_err *err)
{
    oct_value *found = oct_value_find(&(*table)->value, at->name);
    ++*depth;
    if (!found) {
        node *made = NULL;
        OCT_TRY(create(p, OCT_VALUE_MAP, at, BY_SUBTABLE, &made, err));
        OCT_TRY(add_member(*table, &made->value, at, err));
        found = &made->value;
    }
    if (!is_container(found) || node_of(found)->origin == BY_VALUE)
        return cannot_extend(p, at, found, err);
    if (found->kind == OCT_VALUE_LIST) {
        found = found->last;
        ++*depth;
    }
    *table = node_of(found);
    return *depth > OCT_SOURCE_MAX_DEPTH ? too_deep(p, at, err) : OCT_OK;
}

/* [a.b]: the table itself. */
static oct_status open_table(parser *p, node *parent, const key_part *at, oct_err *err)
{
    oct_value *found = oct_value_find(&parent->value, at->name);
    if (!found) {
        OCT_TRY(create(p, OCT_VALUE_MAP, at, BY_HEADER, &p->table, err));
        return add_member(parent, &p->table->value, at, err);
    }
    if (found->kind == OCT_VALUE_MAP && node_of(found)->origin == BY_HEADER)
        return given_twice(p, "table", at, found, err);
    if (found->kind != OCT_VALUE_MAP || node_of(found)->origin != BY_SUBTABLE)
        return cannot_extend(p, at, found, err);
    p->table = node_of(found);
    p->table->origin = BY_HEADER;
    found->line = found->key_line = at->line;
    found->column = at->column;
    return OCT_OK;
}

/* [[a.b]]: one more item. */
static oct_status open_item(parser *p, node *parent, const key_part *at, oct_err *err)
{
    oct_value *found = oct_value_find(&parent->value, at->name);
    node *list = found ? node_of(found) : NULL;
    if (found && (!is_container(found) || list->origin != BY_ITEMS))
        return cannot_extend(p, at, found, err);
    if (!found) {
        OCT_TRY(create(p, OCT_VALUE_LIST, at, BY_ITEMS, &list, err));
        OCT_TRY(add_member(parent, &list->value, at, err));
    }
    const key_part nameless = {.line = at->line, .column = at->column};
    OCT_TRY(create(p, OCT_VALUE_MAP, &nameless, BY_HEADER, &p->table, err));
    oct_value_append(&list->value, &p->table->value);
    return OCT_OK;
}

static oct_status take_header(parser *p, oct_err *err)
{
    p->c.at++;
    const bool is_item = oct_toml_peek(&p->c) == '[';
    p->c.at += is_item;
    skip_blanks(p);
    dotted_key key;
    OCT_TRY(take_key(p, &key, err));
    const size_t left = (size_t)(p->c.end - p->c.at);
    if (left < 1 || p->c.at[0] != ']' || (is_item && (left < 2 || p->c.at[1] != ']')))
        return oct_toml_refuse(&p->c, "a header that does not end",
                               is_item ? "]] is required" : "] is required", err);
    p->c.at += is_item ? 2 : 1;
    node *parent = p->root;
    int depth = 1;
    for (int i = 0; i < key.count - 1; i++)
        OCT_TRY(walk_header(p, &parent, &depth, &key.parts[i], err));
    const key_part *last = &key.parts[key.count - 1];
    p->table_depth = depth + (is_item ? 2 : 1);
    if (p->table_depth > OCT_SOURCE_MAX_DEPTH)
        return too_deep(p, last, err);
    OCT_TRY(is_item ? open_item(p, parent, last, err) : open_table(p, parent, last, err));
    return end_line(p, err);
}

/* --- The text --- */

/* CR stands only before LF. */
static oct_status check_newlines(const oct_toml_cursor *start, oct_err *err)
{
    oct_toml_cursor look = *start;
    while (look.at < look.end) {
        if (oct_toml_newline(&look))
            continue;
        if (*look.at == '\r')
            return oct_toml_refuse(&look, "a carriage return alone", "LF or CRLF ends a line", err);
        look.at++;
    }
    return OCT_OK;
}

oct_status oct_toml_parse(const char *text, size_t bytes, const char *file, oct_arena *arena,
                          oct_value **out, oct_err *err)
{
    OCT_TRY(oct_source_check("TOML", text, bytes, file, true, err));
    const size_t bom = bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    parser p = {.c = {.at = text + bom,
                      .end = text + bytes,
                      .line = 1,
                      .mark = text + bom,
                      .mark_column = 1,
                      .file = file,
                      .arena = arena},
                .table_depth = 1};
    OCT_TRY(check_newlines(&p.c, err));
    OCT_TRY(
        create(&p, OCT_VALUE_MAP, &(key_part){.line = 1, .column = 1}, BY_HEADER, &p.root, err));
    p.table = p.root;
    for (skip_lines(&p); p.c.at < p.c.end; skip_lines(&p)) {
        if (*p.c.at == '[') {
            OCT_TRY(take_header(&p, err));
            continue;
        }
        OCT_TRY(take_pair(&p, p.table, p.table_depth, err));
        OCT_TRY(end_line(&p, err));
    }
    *out = &p.root->value;
    return OCT_OK;
}

oct_status oct_toml_read_file(const char *path, oct_arena *arena, oct_value **out, oct_err *err)
{
    const char *text = NULL, *name = NULL;
    size_t bytes = 0;
    OCT_TRY(oct_source_read(path, arena, &text, &bytes, &name, err));
    return oct_toml_parse(text, bytes, name, arena, out, err);
}
