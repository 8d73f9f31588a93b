/* octet bench step CONFIG...: whole training steps of one configuration in BF16 and in each 8-bit
 * format, in turns in one process. Token ids are random; saving and data are left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cli/bench_harness.h"
#include "config/config.h"
#include "trainer/build.h"

enum { FORMATS = 3 };

typedef struct stepper {
    oct_config config;
    oct_build build;
    bool open;
    int32_t *ids, *targets;
} stepper;

static oct_status run_step(void *arg, oct_err *err)
{
    stepper *s = arg;
    oct_build *build = &s->build;
    const oct_config *config = &s->config;
    const int64_t micro = config->training.micro_batch_size, seq = config->training.seq_length;
    const oct_batch batch = {.ids = s->ids, .targets = s->targets, .batch = micro, .seq = seq};
    const oct_run run = oct_build_run(build, true);
    const float scale = (float)(1.0 / (double)(config->training.global_batch_size * seq));
    oct_optimizer_zero_grad(build->optimizer);
    for (int64_t m = 0; m < config->gradient_accumulation_steps; m++) {
        double loss = 0.0;
        oct_arena_reset(&build->step);
        OCT_TRY(oct_dsv3_forward_backward(build->model, &run, &batch, scale,
                                          config->activation_checkpoint.full, &loss, err));
        for (int64_t p = 0; p < build->tree.param_count; p++)
            build->tree.params[p]->grad_started = true;
    }
    oct_grad_norm norm;
    OCT_TRY(oct_optimizer_grad_norm(build->optimizer, &build->exec, &norm, err));
    bool updated = false;
    int64_t refreshed = 0;
    OCT_TRY(oct_optimizer_update(build->optimizer, &build->exec, &norm, 1e-3, &updated, err));
    return oct_build_refresh(build, &refreshed, err);
}

static oct_status check_step(void *arg, int64_t *checked, oct_err *err)
{
    *checked = 1;
    return run_step(arg, err);
}

static oct_status open_stepper(oct_bench *bench, const oct_config *config, int format, stepper *s,
                               oct_err *err)
{
    s->config = *config;
    s->config.training.threads = bench->options->threads;
    s->config.low_precision.enabled = format > 0;
    if (format > 0) {
        s->config.low_precision.format = oct_low_precision_formats[format - 1]->name;
        s->config.low_precision.scaling = oct_low_precision_formats[format - 1]->scaling;
    }
    oct_build_init(&s->build, &s->config, NULL);
    s->open = true;
    OCT_TRY(oct_build_through(&s->build, OCT_STAGE_MASTERS, err));
    const int64_t tokens = config->training.micro_batch_size * config->training.seq_length;
    void *memory = NULL;
    OCT_TRY(oct_arena_array(&bench->memory, tokens + 1, sizeof(int32_t), &memory, err));
    s->ids = memory;
    s->targets = s->ids + 1;
    const oct_rng stream = oct_rng_stream(0, "bench");
    for (int64_t i = 0; i <= tokens; i++)
        s->ids[i] = (int32_t)oct_rng_below(stream, (uint64_t)i, (uint64_t)s->build.hf.vocab_size);
    return OCT_OK;
}

static oct_status measure(oct_bench *bench, const oct_config *config, stepper *steppers,
                          oct_err *err)
{
    oct_bench_variant variants[FORMATS];
    for (int f = 0; f < FORMATS; f++) {
        OCT_TRY(open_stepper(bench, config, f, &steppers[f], err));
        variants[f] = (oct_bench_variant){
            .format = f ? oct_low_precision_formats[f - 1]->name : "bf16",
            .work = (double)(config->training.global_batch_size * config->training.seq_length),
            .run = run_step,
            .check = check_step,
            .arg = &steppers[f],
        };
    }
    char name[64];
    (void)snprintf(name, sizeof name, "%lldx%lld tokens",
                   (long long)config->training.global_batch_size,
                   (long long)config->training.seq_length);
    return oct_bench_case(bench, "step", name, variants, FORMATS, 1.0, "tokens/s", err);
}

oct_status oct_bench_step(oct_bench *bench, oct_err *err)
{
    static const char *const fallback[] = {"configs/demo.yaml"};
    const oct_bench_options *options = bench->options;
    oct_config config;
    OCT_TRY(oct_config_load(options->file_count ? options->files : fallback,
                            options->file_count ? options->file_count : 1, options->words,
                            options->word_count, &bench->memory, NULL, NULL, &config, err));
    OCT_TRY(oct_config_resolve(&config, 1, err));
    stepper *steppers = calloc(FORMATS, sizeof *steppers);
    if (!steppers)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot measure steps: out of memory");
    const oct_status status = measure(bench, &config, steppers, err);
    for (int f = 0; f < FORMATS; f++)
        if (steppers[f].open)
            oct_build_release(&steppers[f].build);
    free(steppers);
    return status;
}
