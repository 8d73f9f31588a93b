/* What a pass needs grows with the tokens and no faster: with the planned figure and with what the
 * arenas of a real pass held at their fullest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train_fixture.h"
#include "trainer/build.h"
#include "trainer/plan_report.h"

/* From twice what the head takes at once on: up to there it may be the head that needs most
 * scratch, and the most of several straight lines is none. */
enum { FIRST = 2 * OCT_DSV3_HEAD_CHUNK, LENGTHS = 3, LARGE = 16000, SMALL = 257 };

typedef struct memory {
    double planned, held, kept, scratch;
} memory;

/* One forward and backward pass over one sequence. */
static memory measure(int format, const char *dtype, const char *recompute, int vocab,
                      int64_t tokens)
{
    oct_arena arena;
    oct_config config;
    oct_build build;
    oct_plan_report report;
    oct_err err = {0};
    oct_arena_init(&arena, "test configuration");
    load_config(
        &files, format,
        WORDS(dtype, recompute, word("training.seq_length=%lld", (long long)tokens),
              "training.micro_batch_size=1", "training.global_batch_size=1",
              word("model.config_overrides.max_position_embeddings=%d", FIRST << (LENGTHS - 1)),
              word("model.config_overrides.vocab_size=%d", vocab)),
        &arena, &config);
    oct_build_init(&build, &config, NULL);
    if (oct_build_through(&build, OCT_STAGE_PLAN, &err) != OCT_OK ||
        oct_plan_report_make(&build, 1, &report, &err) != OCT_OK ||
        oct_build_through(&build, OCT_STAGE_MASTERS, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    int32_t *ids = calloc((size_t)tokens + 1, sizeof *ids);
    assert_non_null(ids);
    for (int64_t t = 0; t <= tokens; t++)
        ids[t] = (int32_t)((t * 7919 + t * t) % vocab);
    const oct_batch batch = {.ids = ids, .targets = ids + 1, .batch = 1, .seq = tokens};
    const oct_run run = oct_build_run(&build, true);
    double loss = 0.0;
    build.scratch.peak_bytes = 0; /* that of the build is not meant */
    if (oct_dsv3_forward_backward(build.model, &run, &batch, 0.01f,
                                  config.activation_checkpoint.full, &loss, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    const memory found = {.planned = (double)report.bytes.activations,
                          .kept = (double)build.step.peak_bytes,
                          .scratch = (double)build.scratch.peak_bytes,
                          .held = (double)(build.step.peak_bytes + build.scratch.peak_bytes)};
    free(ids);
    oct_build_release(&build);
    oct_arena_release(&arena);
    return found;
}

/* a + b*T: from 2T to 4T it grows twice as much as from T to 2T. A square part would make that
 * more. */
static void assert_linear(const char *what, double first, double second, double third)
{
    assert_true(second >= first);
    if (third - second > 2.02 * (second - first) + 4096.0)
        fail_msg("%s: %.0f, %.0f, %.0f bytes for T, 2T, 4T", what, first, second, third);
}

static void assert_growth(int format, const char *dtype, const char *recompute, int vocab)
{
    memory m[LENGTHS];
    for (int i = 0; i < LENGTHS; i++)
        m[i] = measure(format, dtype, recompute, vocab, FIRST << i);
    assert_linear("planned", m[0].planned, m[1].planned, m[2].planned);
    assert_linear("held", m[0].held, m[1].held, m[2].held);
    assert_linear("kept for the backward pass", m[0].kept, m[1].kept, m[2].kept);
    assert_linear("scratch", m[0].scratch, m[1].scratch, m[2].scratch);
    if (vocab == SMALL)
        return;
    /* Between T and 4T, FP32 logits of all tokens would add this much; BF16 ones half of it and the
     * rest of the pass too much to fit in. */
    const double logits = 4.0 * vocab * (double)((FIRST << (LENGTHS - 1)) - FIRST);
    assert_true(m[LENGTHS - 1].held - m[0].held < 0.5 * logits);
    assert_true(m[LENGTHS - 1].planned - m[0].planned < 0.5 * logits);
}

static void pass__longer_sequences__memory_grows_linearly(void **state)
{
    (void)state;
    const char *const bf16 = "model.torch_dtype=bfloat16";
    const char *const off = "gradient_checkpointing.activation_checkpoint=off";
    assert_growth(0, bf16, off, LARGE);
    assert_growth(1, bf16, off, SMALL);
    assert_growth(2, bf16, off, SMALL);
    assert_growth(0, "model.torch_dtype=float32",
                  "gradient_checkpointing.activation_checkpoint=full", LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pass__longer_sequences__memory_grows_linearly),
    };
    return cmocka_run_group_tests(tests, make_train_files, remove_train_files);
}
