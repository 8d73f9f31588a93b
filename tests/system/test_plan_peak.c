/* The peak that `octet plan` predicts against what the system saw of a process that trained: a
 * relative of configs/slice.yaml, one dense layer and one of experts, everything a quarter as wide.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/wait.h>
#include <unistd.h>

#include "train_fixture.h"
#include "trainer/plan_report.h"

/* The shadow memory of a sanitizer is not planned. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(OCTET_POISON)
enum { CAN_MEASURE = 0 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
enum { CAN_MEASURE = 0 };
#else
enum { CAN_MEASURE = 1 };
#endif
#else
enum { CAN_MEASURE = 1 };
#endif

static const char *const *slice_words(bool full)
{
    static const char *words[] = {"model.config_overrides.hidden_size=512",
                                  "model.config_overrides.intermediate_size=2736",
                                  "model.config_overrides.moe_intermediate_size=352",
                                  "model.config_overrides.n_routed_experts=8",
                                  "model.config_overrides.n_shared_experts=2",
                                  "model.config_overrides.num_experts_per_tok=3",
                                  "model.config_overrides.num_attention_heads=4",
                                  "model.config_overrides.num_key_value_heads=4",
                                  "model.config_overrides.kv_lora_rank=768",
                                  "model.config_overrides.qk_nope_head_dim=64",
                                  "model.config_overrides.qk_rope_head_dim=64",
                                  "model.config_overrides.v_head_dim=128",
                                  "model.config_overrides.vocab_size=1024",
                                  "model.config_overrides.max_position_embeddings=1024",
                                  "training.seq_length=1024",
                                  "training.global_batch_size=1",
                                  "training.micro_batch_size=1",
                                  NULL,
                                  NULL};
    words[17] = full ? "gradient_checkpointing.activation_checkpoint=full"
                     : "gradient_accumulation_steps=1";
    return words;
}

static int64_t planned_peak(int format, const char *const *words)
{
    oct_arena arena;
    oct_config config;
    oct_build build;
    oct_plan_report report;
    oct_err err = {0};
    oct_arena_init(&arena, "test configuration");
    load_config(&files, format, words, &arena, &config);
    oct_build_init(&build, &config, NULL);
    if (oct_build_through(&build, OCT_STAGE_PLAN, &err) != OCT_OK ||
        oct_plan_report_make(&build, 1, &report, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    oct_build_release(&build);
    oct_arena_release(&arena);
    return report.bytes.peak;
}

/* Tells the peak after the first step and ends before the checkpoint. */
static void tell_peak(record *r, oct_build *build)
{
    (void)build;
    const int *pipe_end = r->arg;
    const int64_t peak = r->rows[0].peak_memory_bytes;
    _exit(write(*pipe_end, &peak, sizeof peak) == (ssize_t)sizeof peak ? 0 : 1);
}

static int64_t measured_peak(int format, const char *const *words)
{
    int ends[2], status = 0;
    int64_t peak = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        record r = {.stepped = tell_peak, .arg = &ends[1]};
        train(&files, word("run-%d-%s", format, words[17]), format, NULL, words, &r);
        _exit(2);
    }
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(read(ends[0], &peak, sizeof peak), sizeof peak);
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return peak;
}

static int64_t assert_peak(int format, bool full)
{
    const char *const *words = slice_words(full);
    const double planned = (double)planned_peak(format, words);
    const double measured = (double)measured_peak(format, words);
    if (fabs(measured - planned) > 0.1 * planned)
        fail_msg("%s, recompute %d: %.0f bytes were planned, the process had %.0f",
                 format_names[format], full, planned, measured);
    return (int64_t)measured;
}

static void plan__relative_of_the_slice__peak_within_10_percent(void **state)
{
    (void)state;
    if (!CAN_MEASURE)
        skip();
    int64_t kept = 0;
    for (int format = 0; format < FORMATS; format++)
        kept = assert_peak(format, false);
    assert_true(assert_peak(FORMATS - 1, true) < kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan__relative_of_the_slice__peak_within_10_percent),
    };
    return cmocka_run_group_tests(tests, make_train_files, remove_train_files);
}
