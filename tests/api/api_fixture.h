/* What the tests of the public interface share. They include octet/ headers only and link the
 * shared library, so that what is not exported, or not public, is found out. */
#ifndef OCTET_TESTS_API_FIXTURE_H
#define OCTET_TESTS_API_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <octet/octet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FIELDS = 16, CONTEXT_BYTES = 16384, GUARD_BYTES = 64, GUARD = 0x5a };

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void *take(size_t bytes)
{
    void *memory = malloc(bytes + 1);
    assert_non_null(memory);
    memset(memory, GUARD, bytes + 1);
    return memory;
}

/* --- contexts --------------------------------------------------------------------------------- */

typedef struct test_context {
    _Alignas(64) unsigned char memory[CONTEXT_BYTES];
    octet_context *context;
} test_context;

/* false where this CPU lacks the instruction set. */
static inline bool open_context(test_context *test, octet_isa isa, int32_t threads)
{
    octet_error error = {0};
    const octet_context_settings settings = {sizeof settings, isa, threads};
    assert_true(octet_context_bytes() <= sizeof test->memory);
    const octet_status status =
        octet_context_init(test->memory, sizeof test->memory, &settings, &test->context, &error);
    if (status == OCTET_E_UNSUPPORTED)
        return false;
    if (status != OCTET_OK)
        fail_msg("%s", error.message);
    return true;
}

/* --- operands --------------------------------------------------------------------------------- */

/* Gives an operand buffers of the sizes it needs. */
static inline void fill_operand(octet_operand *operand)
{
    octet_error error = {0};
    size_t codes = 0, scales = 0;
    if (octet_operand_bytes(operand, &codes, &scales, &error) != OCTET_OK)
        fail_msg("%s", error.message);
    operand->codes = take(codes);
    operand->codes_bytes = codes;
    operand->scales = take(scales);
    operand->scales_bytes = scales;
}

static inline octet_operand new_operand(octet_format format, octet_orientation orientation,
                                        int64_t matrices, int64_t rows, int64_t cols,
                                        octet_groups groups)
{
    octet_operand operand = OCTET_OPERAND_INIT;
    operand.format = format;
    operand.orientation = orientation;
    operand.matrices = matrices;
    operand.rows = rows;
    operand.cols = cols;
    operand.groups = groups;
    fill_operand(&operand);
    return operand;
}

static inline void free_operand(octet_operand *operand)
{
    free(operand->codes);
    free(operand->scales);
}

/* Quantizes with a workspace of just the size that is asked for. */
static inline void quantize(const octet_context *context, octet_dtype dtype, const void *x,
                            const octet_quantize_settings *settings, const octet_operand *row,
                            const octet_operand *col)
{
    octet_error error = {0};
    size_t bytes = 0;
    const octet_operand *any = row ? row : col;
    const int64_t matrices = any->matrices > 0 ? any->matrices : 1;
    const size_t x_bytes =
        (size_t)(matrices * any->rows * any->cols) * (dtype == OCTET_DTYPE_F32 ? 4 : 2);
    assert_int_equal(octet_quantize_workspace_bytes(any, &bytes, NULL), OCTET_OK);
    unsigned char *workspace = take(bytes + GUARD_BYTES);
    if (octet_quantize(context, dtype, x, x_bytes, settings, row, col, workspace, bytes, &error) !=
        OCTET_OK)
        fail_msg("%s", error.message);
    for (size_t i = 0; i < GUARD_BYTES; i++)
        assert_int_equal(workspace[bytes + i], GUARD);
    free(workspace);
}

static inline octet_quantize_settings settings_of(octet_mx_rule rule, octet_role role,
                                                  int32_t saturate)
{
    octet_quantize_settings settings = OCTET_QUANTIZE_SETTINGS_INIT;
    settings.mx_rule = rule;
    settings.role = role;
    settings.saturate = saturate;
    return settings;
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* FP32 numbers of both signs over some 40 powers of two, by a counter. */
static inline void fill_numbers(float *x, int64_t count, uint32_t seed)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t h = (uint32_t)i * 2654435761u + seed * 40503u + 1u;
        h ^= h >> 15;
        h *= 2246822519u;
        h ^= h >> 13;
        h *= 3266489917u;
        h ^= h >> 16;
        x[i] = from_bits((h & 0x807fffffu) | (107u + (h >> 23) % 40u) << 23);
    }
}

/* --- golden files ----------------------------------------------------------------------------- */

typedef struct golden {
    FILE *stream;
    char *line;
    size_t capacity;
    int64_t number;
    char *fields[MAX_FIELDS];
    int count;
} golden;

/* false if the directory does not hold the file: it may hold any part of the set. */
static inline bool golden_open(golden *file, const char *name)
{
    const char *directory = getenv("OCTET_GOLDEN");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/formats/%s",
                   directory && *directory ? directory : "tests/golden", name);
    *file = (golden){.stream = fopen(path, "re")};
    if (!file->stream)
        print_message("absent: %s\n", path);
    return file->stream != NULL;
}

static inline bool golden_line(golden *file)
{
    if (getline(&file->line, &file->capacity, file->stream) < 0)
        return false;
    file->number++;
    file->line[strcspn(file->line, "\r\n")] = '\0';
    return true;
}

/* The next line, cut at commas; empty fields count. */
static inline bool golden_row(golden *file)
{
    if (!golden_line(file))
        return false;
    file->count = 0;
    char *rest = file->line;
    while (rest && file->count < MAX_FIELDS) {
        file->fields[file->count++] = rest;
        rest = strchr(rest, ',');
        if (rest)
            *rest++ = '\0';
    }
    return true;
}

static inline void golden_close(golden *file)
{
    assert_true(file->number > 1);
    free(file->line);
    (void)fclose(file->stream);
}

static inline uint32_t hex_word(const char *text, int digits)
{
    char word[9] = "";
    memcpy(word, text, (size_t)digits);
    return (uint32_t)strtoul(word, NULL, 16);
}

static inline void hex_floats(const char *text, int64_t count, float *out)
{
    assert_int_equal(strlen(text), 8 * count);
    for (int64_t i = 0; i < count; i++)
        out[i] = from_bits(hex_word(text + 8 * i, 8));
}

static inline void hex_bytes(const char *text, int64_t count, uint8_t *out)
{
    assert_int_equal(strlen(text), 2 * count);
    for (int64_t i = 0; i < count; i++)
        out[i] = (uint8_t)hex_word(text + 2 * i, 2);
}

/* --- refusals --------------------------------------------------------------------------------- */

/* `status` was returned with a message that holds every word of the list (NULL ends it). */
static inline void check_refused(octet_status status, octet_status wanted, const octet_error *error,
                                 const char *function, const char *argument)
{
    if (status != wanted || error->status != (int32_t)wanted)
        fail_msg("status %d (%s), wanted %d for %s", (int)status, error->message, (int)wanted,
                 argument);
    if (strncmp(error->message, function, strlen(function)) != 0 ||
        !strstr(error->message, argument) || !strstr(error->message, "required"))
        fail_msg("'%s' does not name %s, %s and what is required", error->message, function,
                 argument);
}

#endif
