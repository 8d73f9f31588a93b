#include "config/toml_scalar.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/text_buffer.h"

bool oct_toml_newline(oct_toml_cursor *c)
{
    const char *next = c->at;
    if (next < c->end && *next == '\r')
        next++;
    if (next >= c->end || *next != '\n')
        return false;
    c->at = c->mark = next + 1;
    c->mark_column = 1;
    c->line++;
    return true;
}

int oct_toml_column(oct_toml_cursor *c)
{
    for (; c->mark < c->at; c->mark++)
        c->mark_column += ((unsigned char)*c->mark & 0xc0) != 0x80;
    return c->mark_column;
}

oct_status oct_toml_refuse(const oct_toml_cursor *c, const char *found, const char *required,
                           oct_err *err)
{
    oct_toml_cursor here = *c;
    return OCT_FAIL(err, OCT_E_CONFIG, "cannot read TOML: %s, %s (%s:%d:%d)", found, required,
                    c->file, c->line, oct_toml_column(&here));
}

/* --- Strings --- */

/* A string never gets longer by its escapes: it is written into room for the rest of the text. */
typedef struct string_out {
    char *data;
    size_t length;
} string_out;

static void put_utf8(string_out *out, uint32_t code)
{
    char *to = out->data + out->length;
    if (code < 0x80) {
        to[0] = (char)code;
        out->length += 1;
    } else if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3f));
        out->length += 2;
    } else if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3f));
        to[2] = (char)(0x80 | (code & 0x3f));
        out->length += 3;
    } else {
        to[0] = (char)(0xf0 | code >> 18);
        to[1] = (char)(0x80 | (code >> 12 & 0x3f));
        to[2] = (char)(0x80 | (code >> 6 & 0x3f));
        to[3] = (char)(0x80 | (code & 0x3f));
        out->length += 4;
    }
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

/* \uXXXX and \UXXXXXXXX, the cursor on the u. */
static oct_status take_unicode(oct_toml_cursor *c, string_out *out, oct_err *err)
{
    const int digits = *c->at == 'u' ? 4 : 8;
    uint32_t code = 0;
    for (int i = 1; i <= digits; i++) {
        const int digit = c->at + i < c->end ? hex_value(c->at[i]) : -1;
        if (digit < 0)
            return oct_toml_refuse(c, "a Unicode escape with too few digits",
                                   digits == 4 ? "4 hexadecimal digits are required"
                                               : "8 hexadecimal digits are required",
                                   err);
        code = code << 4 | (uint32_t)digit;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return oct_toml_refuse(c, "an escape that is no Unicode character",
                               "at most U+10FFFF and no surrogate is required", err);
    if (code == 0)
        return oct_toml_refuse(c, "an escaped NUL in a string", "text without NUL is required",
                               err);
    put_utf8(out, code);
    c->at += 1 + digits;
    return OCT_OK;
}

static oct_status take_escape(oct_toml_cursor *c, string_out *out, oct_err *err)
{
    static const char names[] = "btnfr\"\\", meanings[] = "\b\t\n\f\r\"\\";
    const char name = oct_toml_peek(c);
    if (name == 'u' || name == 'U')
        return take_unicode(c, out, err);
    const char *found = name ? strchr(names, name) : NULL;
    if (!found)
        return oct_toml_refuse(
            c, "an unknown escape in a string",
            "one of \\b \\t \\n \\f \\r \\\" \\\\ \\uXXXX \\UXXXXXXXX is required", err);
    out->data[out->length++] = meanings[found - names];
    c->at++;
    return OCT_OK;
}

/* A backslash that ends its line takes all white space up to the next character with it. Returns
 * whether the cursor, behind a backslash, was at one. */
static bool take_line_end(oct_toml_cursor *c)
{
    oct_toml_cursor look = *c;
    while (oct_toml_peek(&look) == ' ' || oct_toml_peek(&look) == '\t')
        look.at++;
    if (!oct_toml_newline(&look))
        return false;
    do
        while (oct_toml_peek(&look) == ' ' || oct_toml_peek(&look) == '\t')
            look.at++;
    while (oct_toml_newline(&look));
    *c = look;
    return true;
}

/* Quotes at the cursor, at most `most`. */
static int count_quotes(const oct_toml_cursor *c, char quote, int most)
{
    int count = 0;
    while (count < most && c->at + count < c->end && c->at[count] == quote)
        count++;
    return count;
}

/* The closing quotes of a multi-line string, with up to two quotes that belong to it before them.
 */
static bool take_closing(oct_toml_cursor *c, char quote, string_out *out)
{
    enum { CLOSING = 3, MOST = 5 };
    const int quotes = count_quotes(c, quote, MOST);
    const int own = quotes >= CLOSING ? quotes - CLOSING : quotes;
    for (int i = 0; i < own; i++)
        out->data[out->length++] = quote;
    c->at += quotes;
    return quotes >= CLOSING;
}

static oct_status take_string(oct_toml_cursor *c, char quote, bool multi_line, string_out *out,
                              oct_err *err)
{
    if (multi_line)
        (void)oct_toml_newline(c); /* the first one does not count */
    for (;;) {
        const char byte = oct_toml_peek(c);
        if (!byte || (!multi_line && (byte == '\n' || byte == '\r')))
            return oct_toml_refuse(
                c, byte ? "a string that does not end on its line" : "an open string",
                "a closing quote is required", err);
        if (byte == quote && !multi_line) {
            c->at++;
            return OCT_OK;
        }
        if (byte == quote) {
            if (take_closing(c, quote, out))
                return OCT_OK;
        } else if (byte == '\\' && quote == '"') {
            c->at++;
            if (!multi_line || !take_line_end(c))
                OCT_TRY(take_escape(c, out, err));
        } else if (oct_toml_newline(c)) {
            out->data[out->length++] = '\n';
        } else {
            out->data[out->length++] = byte;
            c->at++;
        }
    }
}

/* Room for the string that begins here, closing quotes included. */
static size_t string_room(const oct_toml_cursor *c, char quote, bool multi_line)
{
    const char *p = c->at;
    int run = 0;
    for (; p < c->end && run < (multi_line ? 3 : 1); p++) {
        run = *p == quote ? run + 1 : 0;
        if (*p == '\\' && quote == '"')
            p++;
        if (!multi_line && p < c->end && *p == '\n')
            break;
    }
    return (size_t)(p < c->end ? p - c->at : c->end - c->at) + 3;
}

oct_status oct_toml_string(oct_toml_cursor *c, bool is_key, const char **out, oct_err *err)
{
    const char quote = *c->at;
    const int quotes = count_quotes(c, quote, 3);
    const bool multi_line = quotes == 3;
    if (multi_line && is_key)
        return oct_toml_refuse(c, "a multi-line string as a key",
                               "a string on one line is required", err);
    c->at += quotes == 3 ? 3 : 1;
    void *memory = NULL;
    OCT_TRY(oct_arena_alloc(c->arena, string_room(c, quote, multi_line), &memory, err));
    string_out text = {.data = memory};
    OCT_TRY(take_string(c, quote, multi_line, &text, err));
    text.data[text.length] = '\0';
    *out = text.data;
    return OCT_OK;
}

/* --- Numbers --- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits of `set` with single underscores between them; NULL if there are none or an underscore
 * stands elsewhere, else what follows them. */
static const char *skip_digits(const char *text, const char *set)
{
    if (!*text || !strchr(set, *text))
        return NULL;
    while (*text && strchr(set, *text)) {
        text++;
        if (*text == '_') {
            text++;
            if (!*text || !strchr(set, *text))
                return NULL;
        }
    }
    return text;
}

static const char decimal[] = "0123456789";

/* A decimal integer without leading zeros: what follows it, or NULL. */
static const char *skip_decimal(const char *text)
{
    text += *text == '-' || *text == '+';
    if (text[0] == '0' && (is_digit(text[1]) || text[1] == '_'))
        return NULL;
    return skip_digits(text, decimal);
}

/* The base an integer is written in, 0 if it is none. */
static int integer_base(const char *text)
{
    static const struct {
        const char *prefix, *digits;
        int base;
    } forms[] = {{"0x", "0123456789abcdefABCDEF", 16}, {"0o", "01234567", 8}, {"0b", "01", 2}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (strncmp(text, forms[i].prefix, 2) == 0) {
            const char *rest = skip_digits(text + 2, forms[i].digits);
            return rest && !*rest ? forms[i].base : 0;
        }
    const char *rest = skip_decimal(text);
    return rest && !*rest ? 10 : 0;
}

static bool is_float(const char *text)
{
    const char *c = skip_decimal(text);
    if (!c || !*c)
        return false;
    if (*c == '.')
        c = skip_digits(c + 1, decimal);
    if (c && (*c == 'e' || *c == 'E')) {
        c++;
        c = skip_digits(c + (*c == '-' || *c == '+'), decimal);
    }
    return c && !*c;
}

static bool is_special_float(const char *text)
{
    const char *name = text + (*text == '-' || *text == '+');
    return strcmp(name, "inf") == 0 || strcmp(name, "nan") == 0;
}

/* --- Dates: RFC 3339 --- */

/* `count` digits within [low, high], followed by `after` (0: anything). */
static bool take_field(const char **text, int count, int low, int high, int *out)
{
    int value = 0;
    for (int i = 0; i < count; i++) {
        if (!is_digit((*text)[i]))
            return false;
        value = 10 * value + ((*text)[i] - '0');
    }
    *text += count;
    *out = value;
    return value >= low && value <= high;
}

static bool take_char(const char **text, char wanted)
{
    if (**text != wanted)
        return false;
    ++*text;
    return true;
}

static bool take_date(const char **text)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day;
    if (!take_field(text, 4, 0, 9999, &year) || !take_char(text, '-') ||
        !take_field(text, 2, 1, 12, &month) || !take_char(text, '-') ||
        !take_field(text, 2, 1, 31, &day))
        return false;
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return day <= days[month - 1] + (month == 2 && leap);
}

static bool take_time(const char **text)
{
    int field;
    if (!take_field(text, 2, 0, 23, &field) || !take_char(text, ':') ||
        !take_field(text, 2, 0, 59, &field) || !take_char(text, ':') ||
        !take_field(text, 2, 0, 60, &field)) /* a leap second is legal */
        return false;
    if (!take_char(text, '.'))
        return true;
    const size_t digits = strspn(*text, decimal);
    *text += digits;
    return digits > 0;
}

static bool take_offset(const char **text)
{
    int field;
    if (take_char(text, 'Z') || take_char(text, 'z'))
        return true;
    if (!take_char(text, '+') && !take_char(text, '-'))
        return false;
    return take_field(text, 2, 0, 23, &field) && take_char(text, ':') &&
           take_field(text, 2, 0, 59, &field);
}

static bool looks_like_date(const char *text)
{
    return strspn(text, decimal) == 4 && text[4] == '-';
}

static bool is_date_or_time(const char *text)
{
    if (!looks_like_date(text))
        return take_time(&text) && !*text;
    if (!take_date(&text))
        return false;
    if (!*text)
        return true;
    if (!take_char(&text, 'T') && !take_char(&text, 't') && !take_char(&text, ' '))
        return false;
    return take_time(&text) && (!*text || (take_offset(&text) && !*text));
}

/* --- What a plain scalar is --- */

/* The bytes of the scalar at the cursor. A date may hold one space before its time. */
static size_t plain_length(const oct_toml_cursor *c)
{
    enum { DATE = 10 };
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-.:";
    const size_t room = (size_t)(c->end - c->at);
    size_t length = 0;
    while (length < room && strchr(set, c->at[length]))
        length++;
    if (length == DATE && c->at[4] == '-' && c->at[7] == '-' && length + 1 < room &&
        c->at[length] == ' ' && is_digit(c->at[length + 1]))
        for (length++; length < room && strchr(set, c->at[length]);)
            length++;
    return length;
}

static oct_status out_of_range(oct_toml_cursor *c, const char *what, const char *text,
                               const char *required, oct_err *err)
{
    return OCT_FAIL(err, OCT_E_CONFIG, "%s out of range: %.100s, %s (%s:%d:%d)", what, text,
                    required, c->file, c->line, oct_toml_column(c));
}

/* The text without underscores, for the C library. */
static oct_status without_underscores(oct_toml_cursor *c, const char *text, const char **out,
                                      oct_err *err)
{
    void *memory = NULL;
    *out = text;
    if (!strchr(text, '_'))
        return OCT_OK;
    OCT_TRY(oct_arena_alloc(c->arena, strlen(text) + 1, &memory, err));
    char *to = memory;
    *out = memory;
    for (; *text; text++)
        if (*text != '_')
            *to++ = *text;
    *to = '\0';
    return OCT_OK;
}

oct_status oct_toml_plain(oct_toml_cursor *c, oct_value *value, oct_err *err)
{
    const size_t length = plain_length(c);
    if (length == 0)
        return oct_toml_refuse(c, oct_toml_peek(c) ? "no value" : "the end of the text",
                               "a value is required: a string needs quotes", err);
    OCT_TRY(oct_text_copy(c->arena, c->at, length, &value->text, err));
    const char *text = value->text;
    const char *digits = NULL;
    OCT_TRY(without_underscores(c, text, &digits, err));
    const int base = integer_base(text);
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        value->kind = OCT_VALUE_BOOL;
        value->boolean = *text == 't';
    } else if (base != 0) {
        errno = 0;
        value->kind = OCT_VALUE_INT;
        value->integer = strtoll(base == 10 ? digits : digits + 2, NULL, base);
        value->real = (double)value->integer;
        if (errno == ERANGE)
            return out_of_range(c, "integer", text, "at most 64 bits with sign", err);
    } else if (is_float(text) || is_special_float(text)) {
        value->kind = OCT_VALUE_FLOAT;
        value->real = strtod(digits, NULL);
        if (isinf(value->real) && !is_special_float(text))
            return out_of_range(c, "float", text, "at most 64 bits", err);
    } else if (is_date_or_time(text)) {
        value->kind = OCT_VALUE_DATE;
    } else {
        char found[160];
        (void)snprintf(found, sizeof found, "'%.100s'", text);
        return oct_toml_refuse(c, found,
                               "a number, true, false, a date or a quoted string is required", err);
    }
    c->at += length;
    return OCT_OK;
}
