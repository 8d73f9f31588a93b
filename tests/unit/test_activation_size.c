/* The planned memory of a pass against what the arenas really held. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train_fixture.h"
#include "trainer/build.h"

static void pass(oct_build *build, const oct_batch *batch, bool full)
{
    const oct_run run = oct_build_run(build, true);
    oct_err err = {0};
    double loss = 0.0;
    oct_arena_reset(&build->step);
    if (oct_dsv3_forward_backward(build->model, &run, batch, 0.01f, full, &loss, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    for (int64_t p = 0; p < build->tree.param_count; p++)
        build->tree.params[p]->grad_started = true;
}

static void assert_planned_in(const temp_dir *dir, int format, bool full, int micro_batches,
                              const oct_dsv3_observer *observer, const char *const *words)
{
    oct_arena arena;
    oct_arena_init(&arena, "test configuration");
    oct_config config;
    load_config(dir, format, words, &arena, &config);
    oct_build build;
    oct_err err = {0};
    oct_build_init(&build, &config, NULL);
    if (oct_build_through(&build, OCT_STAGE_MASTERS, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    oct_dsv3_observe(build.model, observer);
    const int64_t batch_size = config.training.micro_batch_size, seq = config.training.seq_length;
    int32_t *ids = calloc((size_t)(batch_size * seq) + 1, sizeof *ids);
    assert_non_null(ids);
    for (int64_t t = 0; t <= batch_size * seq; t++)
        ids[t] = (int32_t)((t * 7919 + t * t) % build.hf.vocab_size);
    const oct_batch batch = {.ids = ids, .targets = ids + 1, .batch = batch_size, .seq = seq};
    build.scratch.peak_bytes = 0; /* that of the build is not meant */
    for (int m = 0; m < micro_batches; m++)
        pass(&build, &batch, full);

    const oct_dsv3_pass_shape shape = {
        .batch = batch_size,
        .seq = seq,
        .act_dtype = build.act_dtype,
        .low_precision = build.policy.enabled,
        .low_precision_head = observer != NULL,
        .orientations_share = build.policy.enabled && build.policy.format->orientations_share,
        .packs_weights = oct_build_packs_at_use(&build, 1),
        .recompute_full = full,
        .accumulates = micro_batches > 1,
        .threads = build.exec.threads};
    const double planned = (double)oct_dsv3_activation_bytes(&build.hf, &shape);
    const double held = (double)(build.step.peak_bytes + build.scratch.peak_bytes);
    if (fabs(planned - held) > 0.1 * held)
        fail_msg("%s, recompute %d, %s: planned %.0f bytes, %.0f were held (%.0f kept)",
                 format_names[format], full, words[0], planned, held,
                 (double)build.step.peak_bytes);
    oct_build_release(&build);
    free(ids);
    oct_arena_release(&arena);
}

static void assert_planned(int format, bool full, int micro_batches, const char *const *words)
{
    assert_planned_in(&files, format, full, micro_batches, NULL, words);
}

static void activation_bytes__formats_and_recompute__within_10_percent(void **state)
{
    (void)state;
    for (int format = 0; format < FORMATS; format++)
        for (int full = 0; full < 2; full++) {
            assert_planned(format, full, 1, WORDS("training.seq_length=32"));
            assert_planned(format, full, 1,
                           WORDS("training.global_batch_size=2", "training.micro_batch_size=2",
                                 "model.config_overrides.moe_intermediate_size=256",
                                 "model.config_overrides.intermediate_size=640"));
            assert_planned(format, full, 2,
                           WORDS("training.seq_length=128", "training.micro_batch_size=4",
                                 "training.threads=2"));
            assert_planned(format, full, 1,
                           WORDS("model.torch_dtype=float32", "training.seq_length=256",
                                 "training.micro_batch_size=4", "training.threads=3"));
            assert_planned(format, full, 1,
                           WORDS("model.config_overrides.num_hidden_layers=4",
                                 "model.config_overrides.hidden_size=192",
                                 "model.config_overrides.moe_intermediate_size=96",
                                 "training.seq_length=160", "training.micro_batch_size=4"));
            assert_planned(format, full, 1,
                           WORDS("model.config_overrides.tie_word_embeddings=true",
                                 "model.config_overrides.vocab_size=3000",
                                 "training.seq_length=100"));
        }
}

/* A vocabulary so large that the head needs the most. */
static void activation_bytes__large_vocabulary__within_10_percent(void **state)
{
    (void)state;
    for (int micro_batches = 1; micro_batches <= 2; micro_batches++)
        assert_planned(1, true, micro_batches,
                       WORDS("model.config_overrides.vocab_size=20000", "training.seq_length=150",
                             "training.micro_batch_size=2"));
}

static void activation_bytes__q_lora__within_10_percent(void **state)
{
    (void)state;
    for (int full = 0; full < 2; full++)
        assert_planned(0, full, 1,
                       WORDS("model.config_overrides.q_lora_rank=48", "training.seq_length=192",
                             "training.micro_batch_size=2"));
}

static void see_logits(void *arg, int64_t first, const oct_tensor *logits)
{
    (void)first;
    int64_t *rows = arg;
    *rows = oct_tensor_rows(logits);
    assert_int_equal(logits->dtype, OCT_DTYPE_BF16);
}

/* FP32 logits of all tokens exist in no model: those of a replaced head are BF16. */
static void replaced_head__float32_model__bf16_logits_and_planned_bytes(void **state)
{
    (void)state;
    const temp_dir dir = temp_dir_create();
    char yaml[1024];
    (void)snprintf(yaml, sizeof yaml,
                   "base: %s/train.yaml\n"
                   "plan_overrides:\n"
                   "  - match: lm_head\n"
                   "    when: low_precision\n"
                   "    module_type: torch.nn.Linear\n"
                   "    exact_type: true\n"
                   "    replace_module: {_target_: hyper_models.components.training.low_precision."
                   "modules.linear.replace_low_precision_linear}\n",
                   files.path);
    temp_dir_write(&dir, "train.yaml", yaml);
    for (int format = 1; format < FORMATS; format++) {
        int64_t rows = 0;
        const oct_dsv3_observer observer = {.arg = &rows, .logits = see_logits};
        assert_planned_in(&dir, format, true, 1, &observer,
                          WORDS("model.torch_dtype=float32", "training.seq_length=256",
                                "training.micro_batch_size=2",
                                "model.config_overrides.vocab_size=4000"));
        assert_int_equal(rows, 512);
    }
    temp_dir_remove(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activation_bytes__formats_and_recompute__within_10_percent),
        cmocka_unit_test(activation_bytes__large_vocabulary__within_10_percent),
        cmocka_unit_test(activation_bytes__q_lora__within_10_percent),
        cmocka_unit_test(replaced_head__float32_model__bf16_logits_and_planned_bytes),
    };
    return cmocka_run_group_tests(tests, make_train_files, remove_train_files);
}
