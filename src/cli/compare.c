/* octet compare A.npy B.npy: how far two tensors are apart, and where. A is the reference. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "cli/tool.h"
#include "data/npy.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/error_sums.h"

static const char name[] = "compare";

enum { CHUNK = 1 << 16, BUCKETS = 66 }; /* distances 0, 1, 2, 3..4, 5..8, ..., up to 2^64 */

/* What uint8 and uint16 elements mean. */
typedef enum meaning { INTEGERS, HIF8, E4M3, E8M0, BF16, MEANING_COUNT } meaning;
static const char *const meanings[MEANING_COUNT] = {"integers", "hif8", "e4m3", "e8m0", "bf16"};

typedef struct limits {
    double error, ulp, nrmse, cosine, different; /* NaN: none given */
} limits;

typedef struct job {
    oct_tool tool;
    oct_npy a, b;
    meaning codes;
    double code_value[256];
    int64_t code_rank[256]; /* place of a code in the order of values */
    int64_t exact, first_different;
    oct_error_sums sums; /* A is the reference */
    uint64_t largest_ulp;
    int64_t histogram[BUCKETS];
} job;

static void index_text(const oct_npy_shape *shape, int64_t at, char text[200])
{
    oct_npy_shape index = {.ndim = shape->ndim};
    for (int d = shape->ndim - 1; d >= 0; d--) {
        index.dims[d] = at % shape->dims[d];
        at /= shape->dims[d];
    }
    (void)oct_npy_shape_text(&index, text);
}

static double value_of(const job *j, const oct_npy *npy, const void *elements, int64_t i)
{
    if (npy->dtype == OCT_NPY_U8 && j->codes != INTEGERS)
        return j->code_value[((const uint8_t *)elements)[i]];
    return oct_npy_value(npy->dtype, j->codes == BF16, elements, i);
}

/* A number that grows by one from each value of the dtype to the next; both zeros are 0. */
static int64_t place_of(const job *j, const oct_npy *npy, const void *elements, int64_t i)
{
    const size_t size = oct_npy_dtype_bytes(npy->dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const unsigned char *)elements + (size_t)i * size, size);
    if (npy->dtype == OCT_NPY_U8)
        return j->codes == INTEGERS ? (int64_t)bits : j->code_rank[bits];
    if (npy->dtype == OCT_NPY_U16 && j->codes != BF16)
        return (int64_t)bits;
    const uint64_t sign = 1ull << (8 * size - 1);
    return bits & sign ? -(int64_t)(bits - sign) : (int64_t)bits;
}

static int bucket_of(uint64_t distance)
{
    return distance == 0 ? 0 : distance == 1 ? 1 : 65 - __builtin_clzll(distance - 1);
}

static void add_pair(job *j, const void *a, const void *b, int64_t i, int64_t at)
{
    const bool same_dtype = j->a.dtype == j->b.dtype;
    const double x = value_of(j, &j->a, a, i), y = value_of(j, &j->b, b, i);
    const size_t size = oct_npy_dtype_bytes(j->a.dtype), offset = (size_t)i * size;
    const bool exact = same_dtype
                           ? memcmp((const char *)a + offset, (const char *)b + offset, size) == 0
                           : x == y || (isnan(x) && isnan(y));
    j->exact += exact;
    if (!exact && j->first_different < 0)
        j->first_different = at;
    oct_error_sums_add(&j->sums, x, y, at);
    if (!same_dtype || !isfinite(x) || !isfinite(y))
        return;
    const int64_t m = place_of(j, &j->a, a, i), n = place_of(j, &j->b, b, i);
    const uint64_t distance = m > n ? (uint64_t)m - (uint64_t)n : (uint64_t)n - (uint64_t)m;
    j->histogram[bucket_of(distance)]++;
    if (distance > j->largest_ulp)
        j->largest_ulp = distance;
}

static void fill_codes(job *j)
{
    for (int code = 0; code < 256; code++) {
        const uint8_t c = (uint8_t)code;
        j->code_value[code] = (double)(j->codes == HIF8   ? oct_hif8_decode(c)
                                       : j->codes == E8M0 ? oct_e8m0_decode(c)
                                                          : oct_e4m3_decode(c));
    }
    for (int code = 0; code < 256; code++) { /* how many different values lie below */
        j->code_rank[code] = 0;
        for (int k = 0; k < 256; k++)
            if (j->code_value[k] < j->code_value[code] && (j->code_value[k] != 0.0 || k == 0))
                j->code_rank[code]++;
    }
}

static void print_report(const job *j)
{
    const oct_error_sums *sums = &j->sums;
    char text[200];
    printf("elements            %lld, shape %s, %s and %s\n", (long long)j->a.count,
           oct_npy_shape_text(&j->a.shape, text), oct_npy_dtype_name(j->a.dtype),
           oct_npy_dtype_name(j->b.dtype));
    printf("exact matches       %lld\n", (long long)j->exact);
    printf("different           %lld\n", (long long)(j->a.count - j->exact));
    if (j->first_different >= 0) {
        index_text(&j->a.shape, j->first_different, text);
        printf("first difference    at %s\n", text);
    }
    printf("largest error       %.9g", sums->largest);
    if (sums->largest > 0.0) {
        index_text(&j->a.shape, sums->largest_at, text);
        printf(" at %s", text);
    }
    printf("\nNRMSE               %.9g\ncosine              %.17g\n", oct_error_sums_nrmse(sums),
           oct_error_sums_cosine(sums));
    printf("NaN                 %lld and %lld\nInf                 %lld and %lld\n",
           (long long)sums->nan[0], (long long)sums->nan[1], (long long)sums->inf[0],
           (long long)sums->inf[1]);
    printf("non-finite, unlike  %lld\n", (long long)sums->nonfinite_different);
    for (int b = 0; b < BUCKETS; b++) {
        if (j->histogram[b] == 0)
            continue;
        if (b < 3)
            printf("ULP %-15d %lld\n", b, (long long)j->histogram[b]);
        else
            printf("ULP 2^%d+1 to 2^%-5d %lld\n", b - 2, b - 1, (long long)j->histogram[b]);
    }
}

static oct_status beyond(const job *j, const char *what, double found, const char *word,
                         double wanted, const char *option, oct_err *err)
{
    return OCT_FAIL(err, OCT_E_KERNEL,
                    "the tensors are too far apart: %s is %.9g, %s %.9g is required (%s; %s, %s)",
                    what, found, word, wanted, option, j->a.path, j->b.path);
}

static oct_status check_limits(const job *j, const limits *most, oct_err *err)
{
    const oct_error_sums *sums = &j->sums;
    const double error = sums->nonfinite_different ? (double)INFINITY : sums->largest;
    const double different = (double)(j->a.count - j->exact);
    const double ulp = sums->nonfinite_different ? (double)INFINITY : (double)j->largest_ulp;
    const double nrmse = sums->nonfinite_different ? (double)INFINITY : oct_error_sums_nrmse(sums);
    const double cosine =
        sums->nonfinite_different ? -(double)INFINITY : oct_error_sums_cosine(sums);
    if (different > most->different)
        return beyond(j, "the number of different elements", different, "at most", most->different,
                      "--max-different", err);
    if (error > most->error)
        return beyond(j, "the largest error", error, "at most", most->error, "--max-error", err);
    if (ulp > most->ulp)
        return beyond(j, "the largest distance in ULP", ulp, "at most", most->ulp, "--max-ulp",
                      err);
    if (nrmse > most->nrmse)
        return beyond(j, "the NRMSE", nrmse, "at most", most->nrmse, "--max-nrmse", err);
    if (cosine < most->cosine)
        return beyond(j, "the cosine", cosine, "at least", most->cosine, "--min-cosine", err);
    return OCT_OK;
}

static oct_status check_dtype(const job *j, const oct_npy *npy, oct_err *err)
{
    const bool bytes = npy->dtype == OCT_NPY_U8, words = npy->dtype == OCT_NPY_U16;
    if (j->codes == INTEGERS || (j->codes == BF16 ? words : bytes))
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_SHAPE, "cannot compare codes of %s: found %s, %s is required (%s)",
                    meanings[j->codes], oct_npy_dtype_name(npy->dtype),
                    j->codes == BF16 ? "uint16" : "uint8", npy->path);
}

static oct_status run(job *j, const char *const *paths, const limits *most, oct_err *err)
{
    char a_text[200], b_text[200];
    void *a = NULL, *b = NULL;
    OCT_TRY(oct_tool_open(&j->tool, err));
    OCT_TRY(oct_npy_open(paths[0], &j->a, err));
    OCT_TRY(oct_npy_open(paths[1], &j->b, err));
    OCT_TRY(check_dtype(j, &j->a, err));
    OCT_TRY(check_dtype(j, &j->b, err));
    if (!oct_npy_shape_equal(&j->a.shape, &j->b.shape))
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot compare tensors: found shapes %s and %s, equal ones are required "
                        "(%s, %s)",
                        oct_npy_shape_text(&j->a.shape, a_text),
                        oct_npy_shape_text(&j->b.shape, b_text), paths[0], paths[1]);
    if (!isnan(most->ulp) && j->a.dtype != j->b.dtype)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot count ULP: found %s and %s, one dtype is required (--max-ulp; %s, "
                        "%s)",
                        oct_npy_dtype_name(j->a.dtype), oct_npy_dtype_name(j->b.dtype), paths[0],
                        paths[1]);
    OCT_TRY(oct_arena_array(&j->tool.memory, CHUNK, 8, &a, err));
    OCT_TRY(oct_arena_array(&j->tool.memory, CHUNK, 8, &b, err));
    fill_codes(j);
    j->first_different = -1;
    for (int64_t first = 0; first < j->a.count; first += CHUNK) {
        const int64_t count = oct_min_i64(CHUNK, j->a.count - first);
        OCT_TRY(oct_npy_read(&j->a, first, count, a, err));
        OCT_TRY(oct_npy_read(&j->b, first, count, b, err));
        for (int64_t i = 0; i < count; i++)
            add_pair(j, a, b, i, first + i);
    }
    print_report(j);
    return check_limits(j, most, err);
}

static int read_limit(const char *option, const char *text, double *out)
{
    char *end = NULL;
    *out = (double)NAN;
    if (!text)
        return 0;
    *out = strtod(text, &end);
    if (end != text && !*end && !isnan(*out))
        return 0;
    (void)oct_cli_usage(name, "wrong %s: found '%s', a number is required", option, text);
    return -1;
}

int oct_command_compare(int argc, char **argv)
{
    const char *paths[2] = {NULL, NULL}, *format = NULL, *error = NULL, *ulp = NULL, *nrmse = NULL,
               *cosine = NULL, *different = NULL;
    const oct_tool_option options[] = {{"--format", &format},     {"--max-error", &error},
                                       {"--max-ulp", &ulp},       {"--max-nrmse", &nrmse},
                                       {"--min-cosine", &cosine}, {"--max-different", &different}};
    if (oct_tool_arguments(name, argc, argv, options, sizeof options / sizeof options[0], NULL,
                           NULL, paths, 2) != 0)
        return OCT_EXIT_USAGE;
    limits most;
    const int codes =
        format ? oct_tool_word(name, "--format", format, meanings, MEANING_COUNT) : INTEGERS;
    if (codes < 0 || read_limit("--max-error", error, &most.error) != 0 ||
        read_limit("--max-ulp", ulp, &most.ulp) != 0 ||
        read_limit("--max-nrmse", nrmse, &most.nrmse) != 0 ||
        read_limit("--min-cosine", cosine, &most.cosine) != 0 ||
        read_limit("--max-different", different, &most.different) != 0)
        return OCT_EXIT_USAGE;
    static job j;
    oct_err err = {0};
    j.codes = (meaning)codes;
    const oct_status status = run(&j, paths, &most, &err);
    oct_npy_close(&j.a);
    oct_npy_close(&j.b);
    oct_tool_close(&j.tool);
    return status == OCT_OK ? OCT_EXIT_OK : oct_cli_fail(status, &err);
}
