/* octet bench step CONFIG...: whole training steps of one configuration in BF16 and in each 8-bit
 * format. The formats take turns; each turn is a process of its own, one alive at a time: a model
 * then has the memory of the machine to itself, in pages that are fresh each time, so that the luck
 * of one placement shows in the spread instead of in the result. */
#include "cli/bench_step.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/median.h"
#include "base/profile.h"
#include "base/size.h"
#include "cli/job.h"
#include "trainer/converters.h"
#include "low_precision/format.h"

enum { FORMATS = 3, MAX_LAYOUTS = 8, MAX_ROWS = FORMATS * MAX_LAYOUTS, MAX_STEPS = 1000 };

/* How many ranks with how many threads each. */
typedef struct layout {
    int ranks, threads;
} layout;

/* One format in one layout. */
typedef struct row {
    char format[16];
    layout layout;
    int turns;
    double rates[OCT_BENCH_MAX_TURNS]; /* tokens per second: median of the steps of a turn */
    double seconds[OCT_BENCH_MAX_TURNS][OCT_PART_COUNT];
    double floors[OCT_BENCH_MAX_TURNS][OCT_PART_COUNT];
    int64_t peak_memory_bytes;
    double loss;
} row;

typedef struct plan {
    const oct_bench *bench;
    int count;
    row rows[MAX_ROWS];
    int64_t tokens, batch, seq;
} plan;

/* --- one process ----------------------------------------------------------------------------- */

/* The words of a child's command line; text [3][32] is memory for numbers. */
static void command_of(const oct_bench_options *options, const row *r, char *self, char text[3][32],
                       const char **words)
{
    int n = 0;
    (void)snprintf(text[0], sizeof text[0], "%d", r->layout.ranks);
    (void)snprintf(text[1], sizeof text[1], "%d", r->layout.threads);
    (void)snprintf(text[2], sizeof text[2], "%d", options->steps);
    words[n++] = self;
    if (r->layout.ranks > 1) {
        words[n++] = "launch";
        words[n++] = "-n";
        words[n++] = text[0];
        words[n++] = "--";
    }
    const char *const fixed[] = {"bench", "step",    "--child", "--json",    "--threads",
                                 text[1], "--steps", text[2],   "--formats", r->format};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        words[n++] = fixed[i];
    for (int i = 0; i < options->file_count; i++)
        words[n++] = options->files[i];
    for (int i = 0; i < options->word_count; i++)
        words[n++] = options->words[i];
    words[n] = NULL;
}

/* Runs it and reads all that it prints. */
static oct_status run_child(const char *const *words, char **output, oct_err *err)
{
    int ends[2];
    size_t length = 0, room = 1 << 16;
    char *text = malloc(room);
    if (!text || pipe(ends) != 0) {
        free(text);
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot start a process of bench step: %s",
                        strerror(errno));
    }
    (void)fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        execv(words[0], (char *const *)(const void *)words);
        _exit(127);
    }
    (void)close(ends[1]);
    ssize_t got = 0;
    while (child > 0 && length + 1 < room &&
           (got = read(ends[0], text + length, room - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    (void)close(ends[0]);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status) ||
        WEXITSTATUS(status) != 0) {
        free(text);
        return OCT_FAIL(err, OCT_E_KERNEL,
                        "a process of bench step failed: status %d, 0 is required (its message "
                        "stands above)",
                        WIFEXITED(status) ? WEXITSTATUS(status) : status);
    }
    *output = text;
    return OCT_OK;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static oct_status read_turn(plan *p, row *r, const json_t *result, oct_err *err)
{
    const json_t *steps = json_object_get(result, "step_seconds");
    const json_t *parts = json_object_get(result, "parts");
    const int count = (int)json_array_size(steps);
    double seconds[MAX_STEPS];
    for (int i = 0; i < count && i < MAX_STEPS; i++)
        seconds[i] = json_number_value(json_array_get(steps, (size_t)i));
    p->tokens = (int64_t)number_of(result, "tokens");
    const double step = count > 0 ? oct_median(seconds, oct_min_i64(count, MAX_STEPS)) : 0.0;
    if (p->tokens < 1 || !(step > 0.0))
        return OCT_FAIL(err, OCT_E_KERNEL,
                        "a process of bench step measured nothing: %d steps of %lld tokens, at "
                        "least 1 of each is required",
                        count, (long long)p->tokens);
    r->rates[r->turns] = (double)p->tokens / step;
    for (int part = 0; part < OCT_PART_COUNT; part++) {
        const json_t *of_part = json_object_get(parts, oct_part_name((oct_part)part));
        r->seconds[r->turns][part] = number_of(of_part, "seconds");
        r->floors[r->turns][part] = number_of(of_part, "floor");
    }
    r->peak_memory_bytes =
        oct_max_i64(r->peak_memory_bytes, (int64_t)number_of(result, "peak_memory_bytes"));
    r->loss = number_of(result, "loss");
    r->turns++;
    return OCT_OK;
}

static oct_status run_turn(plan *p, row *r, oct_err *err)
{
    const oct_bench_options *options = p->bench->options;
    char self[4096], text[3][32], *output = NULL;
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return OCT_FAIL(err, OCT_E_IO, "cannot find this program: %s", strerror(errno));
    self[length] = '\0';
    static const char *words[2 * OCT_JOB_MAX_WORDS + 32];
    command_of(options, r, self, text, words);
    OCT_TRY(run_child(words, &output, err));
    const char *line = strchr(output, '{');
    json_t *result = line ? json_loads(line, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const oct_status status = read_turn(p, r, result, err);
    json_decref(result);
    free(output);
    return status;
}

/* --- results --------------------------------------------------------------------------------- */

static double rate_of(const row *r)
{
    double work[OCT_BENCH_MAX_TURNS];
    memcpy(work, r->rates, sizeof work);
    return oct_median(work, r->turns);
}

static double spread_of(const row *r)
{
    double low = r->rates[0], high = r->rates[0];
    for (int t = 1; t < r->turns; t++) {
        low = r->rates[t] < low ? r->rates[t] : low;
        high = r->rates[t] > high ? r->rates[t] : high;
    }
    return (high - low) / rate_of(r);
}

static double part_of(const row *r, const double values[][OCT_PART_COUNT], int part)
{
    double of_turns[OCT_BENCH_MAX_TURNS];
    for (int t = 0; t < r->turns; t++)
        of_turns[t] = values[t][part];
    return oct_median(of_turns, r->turns);
}

/* Floor of the step over its time. */
static double share_of_limit(const plan *p, const row *r)
{
    double floor = 0.0;
    for (int part = 0; part < OCT_PART_COUNT; part++)
        floor += part_of(r, r->floors, part);
    return floor * rate_of(r) / (double)p->tokens;
}

/* Median over the turns of the ratio of two rows, which ran in each turn one after the other. */
static double median_ratio(const row *r, const row *base)
{
    double work[OCT_BENCH_MAX_TURNS];
    return oct_median_ratio(r->rates, base->rates, r->turns, work);
}

/* The rate over that of another row: the same layout in BF16, or the first layout in this format.
 */
static double ratio(const plan *p, const row *r, bool to_bf16)
{
    for (int i = 0; i < p->count; i++) {
        const row *base = &p->rows[i];
        const bool same_layout =
            base->layout.ranks == r->layout.ranks && base->layout.threads == r->layout.threads;
        if (to_bf16 ? same_layout && strcmp(base->format, "bf16") == 0
                    : strcmp(base->format, r->format) == 0)
            return median_ratio(r, base);
    }
    return 0.0;
}

/* PyTorch 2.6 with Hugging Face on configs/mid.yaml, 2 cores of an Emerald Rapids machine: measured
 * once, elsewhere, tokens per second. */
static const struct {
    const char *name;
    double rate;
} torch[] = {{"torch_autocast_constant", 139.0},
             {"torch_bf16_constant", 128.0},
             {"torch_fp32_constant", 286.0}};

static bool has_torch(const plan *p, const row *r)
{
    const oct_bench_options *options = p->bench->options;
    const char *file = options->file_count == 1 ? options->files[0] : "";
    const char *slash = strrchr(file, '/');
    return strcmp(slash ? slash + 1 : file, "mid.yaml") == 0 && options->word_count == 0 &&
           r->layout.ranks * r->layout.threads == 2;
}

static void put_json_parts(oct_json *json, const row *r)
{
    oct_json_object(json, "parts");
    for (int part = 0; part < OCT_PART_COUNT; part++) {
        if (part == OCT_PART_FORWARD || part == OCT_PART_BACKWARD || part == OCT_PART_CHECKPOINT)
            continue;
        oct_json_object(json, oct_part_name((oct_part)part));
        oct_json_double(json, "seconds", part_of(r, r->seconds, part));
        oct_json_double(json, "floor", part_of(r, r->floors, part));
        oct_json_end(json);
    }
    oct_json_end(json);
}

static oct_status print_json(const plan *p, const row *r, const char *case_name, oct_err *err)
{
    oct_json json;
    oct_json_init(&json);
    oct_json_object(&json, NULL);
    oct_json_int(&json, "schema", 1);
    oct_json_string(&json, "bench", "step");
    oct_json_string(&json, "case", case_name);
    oct_json_string(&json, "format", r->format);
    oct_json_int(&json, "ranks", r->layout.ranks);
    oct_json_int(&json, "threads", r->layout.threads);
    oct_json_double(&json, "value", rate_of(r));
    oct_json_string(&json, "unit", "tokens/s");
    if (ratio(p, r, true) > 0.0)
        oct_json_double(&json, "ratio_to_bf16", ratio(p, r, true));
    else
        oct_json_null(&json, "ratio_to_bf16");
    oct_json_double(&json, "ratio_to_first_layout", ratio(p, r, false));
    oct_json_object(&json, "ratio_to_peer");
    for (size_t t = 0; has_torch(p, r) && t < sizeof torch / sizeof torch[0]; t++)
        oct_json_double(&json, torch[t].name, rate_of(r) / torch[t].rate);
    oct_json_end(&json);
    oct_json_double(&json, "share_of_limit", share_of_limit(p, r));
    oct_json_double(&json, "spread", spread_of(r));
    oct_json_int(&json, "checked", r->turns);
    oct_json_double(&json, "loss", r->loss);
    oct_json_int(&json, "peak_memory_bytes", r->peak_memory_bytes);
    put_json_parts(&json, r);
    oct_json_end(&json);
    const oct_status status = oct_json_finish(&json, err);
    if (status == OCT_OK)
        puts(json.text);
    oct_json_release(&json);
    return status;
}

static void print_row(const plan *p, const row *r, const char *case_name)
{
    printf("step  %-18s %-6s %d rank%s x %d thread%s %9.1f tokens/s  spread %2.0f %%", case_name,
           r->format, r->layout.ranks, r->layout.ranks == 1 ? "" : "s", r->layout.threads,
           r->layout.threads == 1 ? "" : "s", rate_of(r), 100.0 * spread_of(r));
    if (ratio(p, r, true) > 0.0)
        printf("  %5.2f x bf16", ratio(p, r, true));
    if (ratio(p, r, false) != 1.0)
        printf("  %5.2f x the first layout", ratio(p, r, false));
    printf("  %3.0f %% of the limit  %.2f GiB\n", 100.0 * share_of_limit(p, r),
           (double)r->peak_memory_bytes * 0x1p-30);
    for (size_t t = 0; has_torch(p, r) && t < sizeof torch / sizeof torch[0]; t++)
        printf("      %5.2f x %s (%.0f tokens/s, measured elsewhere)\n", rate_of(r) / torch[t].rate,
               torch[t].name, torch[t].rate);
}

static void print_parts(const plan *p, const row *r)
{
    const double total = (double)p->tokens / rate_of(r);
    printf("\n%s, %d x %d: %-6s seconds  share     floor  x floor\n", r->format, r->layout.ranks,
           r->layout.threads, "");
    for (int part = 0; part < OCT_PART_COUNT; part++) {
        const double seconds = part_of(r, r->seconds, part), floor = part_of(r, r->floors, part);
        if (part == OCT_PART_FORWARD || part == OCT_PART_BACKWARD || part == OCT_PART_CHECKPOINT ||
            (seconds == 0.0 && floor == 0.0))
            continue;
        printf("  %-16s %9.4f  %4.1f %%", oct_part_name((oct_part)part), seconds,
               100.0 * seconds / total);
        if (floor > 0.0)
            printf("  %9.4f  %6.2f", floor, seconds / floor);
        putchar('\n');
    }
    printf("  %-16s %9.4f\n", "all", total);
}

static oct_status print(const plan *p, oct_err *err)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%lldx%lld tokens", (long long)p->batch, (long long)p->seq);
    for (int i = 0; i < p->count; i++) {
        if (p->bench->options->json)
            OCT_TRY(print_json(p, &p->rows[i], name, err));
        else
            print_row(p, &p->rows[i], name);
    }
    for (int i = 0; i < p->count && !p->bench->options->json; i++)
        print_parts(p, &p->rows[i]);
    (void)fflush(stdout);
    for (int i = 0; i < p->count; i++)
        if (p->rows[i].turns >= 3 && share_of_limit(p, &p->rows[i]) > OCT_BENCH_MOST_SHARE)
            return OCT_FAIL(err, OCT_E_API,
                            "a defect of bench step, %s: %.2f of its limit, at most %.1f is "
                            "possible",
                            p->rows[i].format, share_of_limit(p, &p->rows[i]),
                            OCT_BENCH_MOST_SHARE);
    return OCT_OK;
}

/* --- what to run ----------------------------------------------------------------------------- */

static oct_status read_layouts(const oct_bench_options *options, layout *layouts, int *count,
                               oct_err *err)
{
    *count = 1;
    layouts[0] = (layout){.ranks = 1, .threads = options->threads};
    const char *text = options->layouts;
    if (!text)
        return OCT_OK;
    for (*count = 0; *text && *count < MAX_LAYOUTS; (*count)++) {
        layout *l = &layouts[*count];
        int end = 0;
        if (sscanf(text, "%dx%d%n", &l->ranks, &l->threads, &end) != 2 || l->ranks < 1 ||
            l->threads < 1 || (text[end] != ',' && text[end] != '\0'))
            break;
        text += end + (text[end] == ',');
    }
    if (*text || *count == 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "wrong layouts: found '%.64s', RANKSxTHREADS,... of at most %d is "
                        "required (--layouts)",
                        options->layouts, MAX_LAYOUTS);
    return OCT_OK;
}

/* Is this one of the words with commas between? */
static bool is_named(const char *list, const char *name, size_t length)
{
    for (const char *word = list; word; word = strchr(word, ',')) {
        word += *word == ',';
        if (strcspn(word, ",") == length && strncmp(word, name, length) == 0)
            return true;
    }
    return false;
}

static oct_status plan_rows(plan *p, oct_err *err)
{
    const oct_bench_options *options = p->bench->options;
    layout layouts[MAX_LAYOUTS];
    int layout_count = 0;
    OCT_TRY(read_layouts(options, layouts, &layout_count, err));
    for (int l = 0; l < layout_count; l++)
        for (int f = 0; f < FORMATS && (f == 0 || oct_low_precision_formats[f - 1]); f++) {
            const char *name = f ? oct_low_precision_formats[f - 1]->name : "bf16";
            const size_t length = strcspn(name, "_");
            if (options->formats && !is_named(options->formats, name, length))
                continue;
            row *r = &p->rows[p->count++];
            r->layout = layouts[l];
            (void)snprintf(r->format, sizeof r->format, "%.*s", (int)length, name);
        }
    if (p->count == 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "unknown formats: found '%.64s', bf16, mxfp8 or hif8 is required "
                        "(--formats)",
                        options->formats);
    return OCT_OK;
}

static oct_status measure(oct_bench *bench, plan *p, oct_err *err)
{
    const oct_bench_options *options = bench->options;
    oct_config config;
    OCT_TRY(oct_config_load(options->files, options->file_count, options->words,
                            options->word_count, &bench->memory, NULL, NULL, &config, err));
    OCT_TRY(oct_converters_expand(&config, &bench->memory, NULL, NULL, err));
    p->batch = config.training.global_batch_size;
    p->seq = config.training.seq_length;
    OCT_TRY(plan_rows(p, err));
    for (int turn = 0; turn < options->turns; turn++)
        for (int i = 0; i < p->count; i++)
            OCT_TRY(run_turn(p, &p->rows[i], err));
    bench->cases++;
    return print(p, err);
}

oct_status oct_bench_step(oct_bench *bench, oct_err *err)
{
    static const char *const fallback[] = {"configs/demo.yaml"};
    oct_bench_options options = *bench->options;
    if (options.file_count == 0) {
        options.file_count = 1;
        options.files = fallback;
    }
    const oct_bench_options *given = bench->options;
    bench->options = &options;
    plan *p = calloc(1, sizeof *p);
    oct_status status = OCT_OK;
    if (!p)
        status = OCT_FAIL(err, OCT_E_NOMEM, "cannot measure steps: out of memory");
    else if (options.child)
        status = oct_bench_step_child(bench, err);
    else {
        p->bench = bench;
        status = measure(bench, p, err);
    }
    free(p);
    bench->options = given;
    return status;
}
