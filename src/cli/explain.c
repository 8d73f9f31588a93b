/* octet explain --format F VALUE|0xCODE: fields, value, neighbours and rounding of one code. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/tool.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"

static const char name[] = "explain";

typedef struct element_format {
    const char *name;
    int code_bits;
    float (*decode)(uint32_t code);
    uint32_t (*encode)(float x);
    int (*fields)(uint32_t code, int widths[4]); /* bits of each field, highest first; how many */
    const char *field_names, *rounding;
    bool ties; /* a mid-point is a case of its own */
} element_format;

static float decode_e4m3(uint32_t code)
{
    return oct_e4m3_decode((uint8_t)code);
}

static float decode_e8m0(uint32_t code)
{
    return oct_e8m0_decode((uint8_t)code);
}

static float decode_hif8(uint32_t code)
{
    return oct_hif8_decode((uint8_t)code);
}

static float decode_bf16(uint32_t code)
{
    return oct_bf16_to_f32((uint16_t)code);
}

static uint32_t encode_e4m3(float x)
{
    return oct_e4m3_encode(x, true);
}

static uint32_t encode_e8m0(float x)
{
    return oct_e8m0_encode(x);
}

static uint32_t encode_hif8(float x)
{
    return oct_hif8_encode(x, false);
}

static uint32_t encode_bf16(float x)
{
    return oct_bf16_from_f32(x);
}

static int fields_of(const int *from, int count, int widths[4])
{
    memcpy(widths, from, (size_t)count * sizeof *from);
    return count;
}

static int fields_e4m3(uint32_t code, int widths[4])
{
    (void)code;
    return fields_of((const int[]){1, 4, 3}, 3, widths);
}

static int fields_e8m0(uint32_t code, int widths[4])
{
    (void)code;
    return fields_of((const int[]){8}, 1, widths);
}

/* The dot is a prefix code: 11, 10, 01 for 4, 3, 2 bits of exponent, 001 for 1, 000x for none. */
static int fields_hif8(uint32_t code, int widths[4])
{
    const int top = (int)(code >> 3 & 15);
    const int dot = top >= 4 ? 2 : top >= 2 ? 3 : 4;
    const int exponent = top >= 4 ? top / 4 + 1 : top >= 2;
    return fields_of((const int[]){1, dot, exponent, 7 - dot - exponent}, 4, widths);
}

static int fields_bf16(uint32_t code, int widths[4])
{
    (void)code;
    return fields_of((const int[]){1, 8, 7}, 3, widths);
}

static const element_format formats[] = {
    {"hif8", 8, decode_hif8, encode_hif8, fields_hif8, "sign, dot, exponent, mantissa",
     "nearest, ties away from zero; 40960 and more give Inf", true},
    {"e4m3", 8, decode_e4m3, encode_e4m3, fields_e4m3, "sign, exponent, mantissa",
     "nearest, ties to even; what exceeds 448 gives 448", true},
    {"e8m0", 8, decode_e8m0, encode_e8m0, fields_e8m0, "exponent + 127",
     "up to the next power of two; a magnitude is required", false},
    {"bf16", 16, decode_bf16, encode_bf16, fields_bf16, "sign, exponent, mantissa",
     "nearest, ties to even", true},
};
enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

/* "0 01 0 0 011"; a field of no bits is "-". */
static const char *bits_text(const element_format *format, uint32_t code, char text[40])
{
    int widths[4], used = 0, bit = format->code_bits;
    const int count = format->fields(code, widths);
    for (int f = 0; f < count; f++) {
        if (f > 0)
            text[used++] = ' ';
        if (widths[f] == 0)
            text[used++] = '-';
        for (int i = 0; i < widths[f]; i++)
            text[used++] = (char)('0' + (code >> --bit & 1));
    }
    text[used] = '\0';
    return text;
}

static const char *class_of(const element_format *format, uint32_t code)
{
    const float x = format->decode(code);
    if (isnan(x))
        return "NaN";
    if (isinf(x))
        return "infinity";
    if (x == 0.0f)
        return "zero";
    int widths[4], bit = format->code_bits;
    const int count = format->fields(code, widths);
    if (count == 1)
        return "power of two";
    /* The dot 0000 (HiF8) or an exponent field of zeros. */
    bit -= widths[0] + widths[1];
    return (code >> bit & ((1u << widths[1]) - 1)) == 0 ? "subnormal" : "normal";
}

static void print_code(const char *label, const element_format *format, uint32_t code)
{
    const float x = format->decode(code);
    printf("%-10s%.9g (%a), code 0x%0*x\n", label, (double)x, (double)x, format->code_bits / 4,
           code);
}

/* The code of the largest finite value < x (or <= x if `with`), and the smallest > x (>= x); -1 if
 * there is none. Of +0 and -0 the positive one. */
static void neighbours(const element_format *format, float x, bool with, int32_t *below,
                       int32_t *above)
{
    *below = *above = -1;
    for (int32_t code = 0; code < 1 << format->code_bits; code++) {
        const float v = format->decode((uint32_t)code);
        if (!isfinite(v))
            continue;
        if ((v < x || (with && v == x)) && (*below < 0 || v > format->decode((uint32_t)*below)))
            *below = code;
        if ((v > x || (with && v == x)) && (*above < 0 || v < format->decode((uint32_t)*above)))
            *above = code;
    }
}

static void print_fields(const element_format *format, uint32_t code)
{
    char text[40];
    const float x = format->decode(code);
    printf("%-10s0x%0*x = %s (%s)\n", "code", format->code_bits / 4, code,
           bits_text(format, code, text), format->field_names);
    printf("%-10s%.9g (%a), %s\n", "value", (double)x, (double)x, class_of(format, code));
    int32_t below = -1, above = -1;
    if (isfinite(x))
        neighbours(format, x, false, &below, &above);
    if (below >= 0)
        print_code("below", format, (uint32_t)below);
    if (above >= 0)
        print_code("above", format, (uint32_t)above);
}

static void print_rounding(const element_format *format, float x)
{
    int32_t low = -1, high = -1;
    const float y = format->decode(format->encode(x));
    printf("%-10s%s\n", "rounding", format->rounding);
    if (!isfinite(x))
        return;
    neighbours(format, x, true, &low, &high);
    if (low < 0 || high < 0) {
        puts("between   outside of the finite values");
    } else {
        const double a = (double)format->decode((uint32_t)low);
        const double b = (double)format->decode((uint32_t)high), middle = 0.5 * (a + b);
        if (a == b)
            puts("between   exact");
        else
            printf("%-10s%.9g and %.9g, mid-point %.9g%s\n", "between", a, b, middle,
                   format->ties && (double)x == middle ? ": a tie" : "");
    }
    if (isfinite(y))
        printf("%-10s%.9g\n", "error", (double)y - (double)x);
}

static void print_table(const element_format *format)
{
    for (uint32_t code = 0; code < 1u << format->code_bits; code++) {
        char text[40];
        const float x = format->decode(code);
        printf("0x%02x  %-12s %-18.9g %-12a %s\n", code, bits_text(format, code, text), (double)x,
               (double)x, class_of(format, code));
    }
}

/* 0x2b is a code; 0x1.8p+1 is a number, as it has an exponent. Nothing may stand before either:
 * strtoull and strtof would pass over blanks, a sign or a second 0x. */
static int explain(const element_format *format, const char *text)
{
    char *end = NULL;
    errno = 0;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X') && !strpbrk(text, "pP.")) {
        const bool digits = text[2] && !text[2 + strspn(text + 2, "0123456789abcdefABCDEF")];
        const unsigned long long code = strtoull(text + 2, NULL, 16);
        if (!digits || errno || code >> format->code_bits)
            return oct_cli_usage(name, "wrong code: found '%s', 0x0 to 0x%x is required for %s",
                                 text, (1u << format->code_bits) - 1, format->name);
        print_fields(format, (uint32_t)code);
        return OCT_EXIT_OK;
    }
    const float x = strtof(text, &end);
    if (end == text || *end || isspace((unsigned char)*text))
        return oct_cli_usage(name, "wrong value: found '%s', a number or a code 0x.. is required",
                             text);
    if (strcmp(format->name, "e8m0") == 0 && signbit(x))
        return oct_cli_usage(name,
                             "wrong value: found '%s', a number without sign is required for "
                             "e8m0",
                             text);
    printf("%-10s%s = %.9g (%a), FP32 %08x\n", "input", text, (double)x, (double)x,
           oct_f32_bits(x));
    print_rounding(format, x);
    print_fields(format, format->encode(x));
    return OCT_EXIT_OK;
}

int oct_command_explain(int argc, char **argv)
{
    const char *format = NULL, *text = NULL;
    const oct_tool_option options[] = {{"--format", &format}};
    bool table = false;
    for (int i = 1; i < argc; i++)
        table |= strcmp(argv[i], "--table") == 0;
    if (oct_tool_arguments(name, argc, argv, options, 1, "--table", &table, &text, !table) != 0)
        return OCT_EXIT_USAGE;
    if (!format)
        return oct_tool_missing(name, "--format");
    const char *words[FORMAT_COUNT];
    for (int f = 0; f < FORMAT_COUNT; f++)
        words[f] = formats[f].name;
    const int f = oct_tool_word(name, "--format", format, words, FORMAT_COUNT);
    if (f < 0)
        return OCT_EXIT_USAGE;
    if (!table)
        return explain(&formats[f], text);
    if (formats[f].code_bits > 8)
        return oct_cli_usage(
            name, "no table of %s: it has 65536 codes, a format of 256 is required", format);
    print_table(&formats[f]);
    return OCT_EXIT_OK;
}
