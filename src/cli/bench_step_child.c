/* One process of octet bench step: some training steps of one format on random ids. Saving and
 * data are left out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/rng.h"
#include "cli/bench_limits.h"
#include "cli/bench_step.h"
#include "cli/bench_work.h"
#include "cli/cli.h"
#include "comm/comm.h"
#include "config/config.h"
#include "low_precision/format.h"
#include "trainer/converters.h"
#include "trainer/build.h"

typedef struct stepper {
    oct_comm *comm;
    oct_config config;
    oct_build build;
    bool is_open;
    int32_t *ids, *targets;
    double loss; /* nats per token of the last step's own micro-batches */
} stepper;

static oct_status run_step(stepper *s, oct_err *err)
{
    oct_build *build = &s->build;
    const oct_config *config = &s->config;
    const int64_t micro = config->training.micro_batch_size, seq = config->training.seq_length;
    const int64_t micro_steps = config->gradient_accumulation_steps;
    const oct_batch batch = {.ids = s->ids, .targets = s->targets, .batch = micro, .seq = seq};
    const oct_run run = oct_build_run(build, true);
    const float scale = (float)(1.0 / (double)(config->training.global_batch_size * seq));
    double sum = 0.0;
    build->profile = (oct_profile){0};
    oct_optimizer_zero_grad(build->optimizer);
    oct_dsv3_counts_reset(build->model);
    for (int64_t m = 0; m < micro_steps; m++) {
        double loss = 0.0;
        build->trace.micro_step = m;
        OCT_TRY(oct_dsv3_forward_backward(build->model, &run, &batch, scale,
                                          config->activation_checkpoint.full, &loss, err));
        oct_build_settle(build);
        sum += loss;
        for (int64_t p = 0; p < build->tree.param_count; p++)
            build->tree.params[p]->grad_started = true;
    }
    s->loss = sum / (double)(micro_steps * micro * seq);
    OCT_TRY(oct_build_finish_gradients(build, err));
    const oct_span span = oct_profile_begin(&build->profile, OCT_PART_OPTIMIZER);
    oct_grad_norm norm;
    bool updated = false;
    int64_t refreshed = 0;
    OCT_TRY(oct_optimizer_grad_norm(build->optimizer, &build->exec, &norm, err));
    OCT_TRY(oct_optimizer_update(build->optimizer, &build->exec, &norm, 1e-3, &updated, err));
    OCT_TRY(oct_build_refresh(build, &refreshed, err));
    oct_profile_end(&build->profile, span);
    if (!updated || !isfinite(s->loss) || !(norm.norm > 0.0))
        return OCT_FAIL(err, OCT_E_KERNEL,
                        "a step is no step: loss %g and gradient norm %g, finite values and a "
                        "norm above 0 are required",
                        s->loss, norm.norm);
    return OCT_OK;
}

/* Formats go by their short names: "mxfp8" of "mxfp8_e4m3". */
static oct_status choose_format(oct_config *config, const char *name, oct_err *err)
{
    config->low_precision.enabled = false;
    if (!name || strcmp(name, "bf16") == 0)
        return OCT_OK;
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        const oct_low_precision_format *format = oct_low_precision_formats[f];
        const size_t length = strcspn(format->name, "_");
        if (strlen(name) != length || strncmp(name, format->name, length) != 0)
            continue;
        config->low_precision.enabled = true;
        config->low_precision.format = format->name;
        config->low_precision.scaling = format->scaling;
        return OCT_OK;
    }
    return OCT_FAIL(err, OCT_E_CONFIG,
                    "unknown format: found '%.64s', bf16, mxfp8 or hif8 is "
                    "required (--formats)",
                    name);
}

static oct_status open_stepper(oct_bench *bench, stepper *s, oct_err *err)
{
    const oct_bench_options *options = bench->options;
    oct_comm_options comm_options;
    OCT_TRY(oct_comm_options_from_environment(&comm_options, err));
    OCT_TRY(oct_comm_create(&comm_options, &s->comm, err));
    OCT_TRY(oct_config_load(options->files, options->file_count, options->words,
                            options->word_count, &bench->memory, NULL, NULL, &s->config, err));
    OCT_TRY(oct_converters_expand(&s->config, &bench->memory, NULL, NULL, err));
    OCT_TRY(oct_config_resolve(&s->config, oct_comm_size(s->comm), err));
    OCT_TRY(choose_format(&s->config, options->formats, err));
    s->config.training.threads = options->threads;
    oct_build_init(&s->build, &s->config, s->comm);
    s->is_open = true;
    OCT_TRY(oct_build_through(&s->build, OCT_STAGE_MASTERS, err));
    OCT_TRY(oct_build_prepare(&s->build, err));
    const int64_t tokens = s->config.training.micro_batch_size * s->config.training.seq_length;
    void *memory = NULL;
    OCT_TRY(oct_arena_array(&bench->memory, tokens + 1, sizeof(int32_t), &memory, err));
    s->ids = memory;
    s->targets = s->ids + 1;
    const oct_rng stream = oct_rng_stream((uint64_t)oct_comm_rank(s->comm), "bench");
    for (int64_t i = 0; i <= tokens; i++)
        s->ids[i] = (int32_t)oct_rng_below(stream, (uint64_t)i, (uint64_t)s->build.hf.vocab_size);
    return OCT_OK;
}

/* The first step is counted, not timed: it grows the arenas and packs for the first time. */
static oct_status first_step(stepper *s, oct_bench_work *work, oct_err *err)
{
    const double started_loss = log((double)s->build.hf.vocab_size);
    *work = (oct_bench_work){.build = &s->build};
    s->build.trace.sink = oct_bench_work_sink;
    s->build.trace.sink_arg = work;
    OCT_TRY(run_step(s, err));
    s->build.trace.sink = NULL;
    oct_bench_work_finish(work);
    if (!(fabs(s->loss - started_loss) < 2.0))
        return OCT_FAIL(err, OCT_E_KERNEL,
                        "the first loss is %.3f, about %.3f is required of random ids", s->loss,
                        started_loss);
    return oct_build_reserve(
        &s->build, s->config.training.micro_batch_size * s->config.training.seq_length, err);
}

static void put_parts(oct_json *json, const oct_bench_work *work, const double *own, double seconds,
                      const double *rates)
{
    double rest = seconds;
    oct_json_object(json, "parts");
    for (int p = OCT_PART_QUANTIZE; p < OCT_PART_CHECKPOINT; p++) {
        oct_json_object(json, oct_part_name((oct_part)p));
        oct_json_double(json, "seconds", own[p]);
        oct_json_double(json, "floor",
                        oct_bench_work_seconds(&work->parts[p], rates[OCT_BENCH_LIMIT_FMA],
                                               rates[OCT_BENCH_LIMIT_INTEGER],
                                               rates[OCT_BENCH_LIMIT_COPY]));
        oct_json_end(json);
        rest -= own[p];
    }
    oct_json_object(json, oct_part_name(OCT_PART_REST));
    oct_json_double(json, "seconds", rest > 0.0 ? rest : 0.0);
    oct_json_double(json, "floor", 0.0);
    oct_json_end(json);
    oct_json_end(json);
}

static oct_status print(const stepper *s, const oct_bench_work *work, const double *seconds,
                        int steps, const double *own, const double *rates, oct_err *err)
{
    oct_json json;
    struct rusage usage;
    double sum = 0.0;
    const bool known = getrusage(RUSAGE_SELF, &usage) == 0;
    oct_json_init(&json);
    oct_json_object(&json, NULL);
    oct_json_int(&json, "schema", 1);
    oct_json_int(&json, "tokens",
                 s->config.training.global_batch_size * s->config.training.seq_length);
    oct_json_double(&json, "loss", s->loss);
    oct_json_int(&json, "peak_memory_bytes", known ? (int64_t)usage.ru_maxrss * 1024 : 0);
    oct_json_array(&json, "step_seconds");
    for (int i = 0; i < steps; i++) {
        oct_json_double(&json, NULL, seconds[i]);
        sum += seconds[i];
    }
    oct_json_end(&json);
    put_parts(&json, work, own, sum / steps, rates);
    oct_json_end(&json);
    const oct_status status = oct_json_finish(&json, err);
    if (status == OCT_OK)
        puts(json.text);
    oct_json_release(&json);
    return status;
}

static oct_status measure(oct_bench *bench, stepper *s, oct_err *err)
{
    enum { MAX_STEPS = 1000 };
    static double seconds[MAX_STEPS];
    const int steps = bench->options->steps;
    double own[OCT_PART_COUNT] = {0}, rates[OCT_BENCH_LIMIT_COUNT];
    oct_bench_limit limits[OCT_BENCH_LIMIT_COUNT];
    oct_bench_work work;
    OCT_TRY(first_step(s, &work, err));
    for (int i = 0; i < steps; i++) {
        const double started = oct_clock_seconds();
        OCT_TRY(run_step(s, err));
        seconds[i] = oct_clock_seconds() - started;
        for (int p = 0; p < OCT_PART_COUNT; p++)
            own[p] += s->build.profile.own[p] / steps;
    }
    OCT_TRY(oct_bench_limits_open(bench, limits, err));
    for (int l = 0; l < OCT_BENCH_LIMIT_COUNT; l++)
        OCT_TRY(oct_bench_limit_rate(&limits[l], &rates[l], err));
    bench->cases++;
    return oct_comm_rank(s->comm) == 0 ? print(s, &work, seconds, steps, own, rates, err) : OCT_OK;
}

oct_status oct_bench_step_child(oct_bench *bench, oct_err *err)
{
    stepper *s = calloc(1, sizeof *s);
    if (!s)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot measure steps: out of memory");
    oct_status status = open_stepper(bench, s, err);
    if (status == OCT_OK)
        status = measure(bench, s, err);
    if (s->is_open)
        oct_build_release(&s->build);
    if (s->comm && status != OCT_OK && oct_comm_size(s->comm) > 1) {
        oct_comm_abort(s->comm, oct_cli_fail(status, err)); /* the others wait for this rank */
    }
    oct_comm_destroy(s->comm);
    free(s);
    return status;
}
