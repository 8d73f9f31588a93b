/* What decides about the bits of a step, and what does not: instruction set, threads, observation
 * and format (of the first masters). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/threads.h"
#include "train_fixture.h"

static int make_files(void **state)
{
    (void)state;
    files = train_files_create();
    /* The same model with two dense layers. */
    static const char from[] = "\"first_k_dense_replace\": 1";
    char dense[sizeof tiny_model];
    memcpy(dense, tiny_model, sizeof dense);
    char *at = strstr(dense, from);
    if (!at)
        return 1;
    at[sizeof from - 2] = '2';
    temp_dir_make(&files, "dense");
    temp_dir_write(&files, "dense/config.json", dense);
    return 0;
}

static void assert_same_run(const record *a, const record *b)
{
    assert_int_equal(a->row_count, b->row_count);
    for (int i = 0; i < a->row_count; i++) {
        assert_same_row(&a->rows[i], &b->rows[i]);
        assert_int_equal(a->rows[i].fma_matmuls, b->rows[i].fma_matmuls);
        if (a->masters[i] != b->masters[i] || a->moments[i] != b->moments[i])
            fail_msg("weights or moments differ after step %d", i + 1);
    }
}

/* --- twenty steps: instruction sets, recomputation, threads ------------------------------------
 */

typedef struct variant {
    bool is_moe; /* the second layer; the first one is dense */
    int format;
    oct_isa isa;
    bool recompute;
    int threads;
} variant;

static const char *variant_name(const variant *v)
{
    return word("%s-%s-%s-%s-%d", v->is_moe ? "moe" : "dense", format_names[v->format],
                oct_isa_name(v->isa), v->recompute ? "full" : "off", v->threads);
}

/* A dense model has no experts that the rules of base.yaml could find. */
static const char dense_plan[] =
    "plan_overrides=[{match: ['model.layers.*.self_attn.*_proj*', 'model.layers.*.mlp.*_proj'], "
    "when: low_precision, module_type: torch.nn.Linear, exact_type: true, replace_module: "
    "{_target_: "
    "hyper_models.components.training.low_precision.modules.linear.replace_low_precision_linear}}]";

static record *twenty_steps(const variant *v)
{
    record *r = record_create();
    setenv("OCTET_ISA", oct_isa_name(v->isa), 1);
    train(&files, variant_name(v), v->format, NULL,
          WORDS("training.train_iters=20", "training.seq_length=20",
                word("training.threads=%d", v->threads),
                word("gradient_checkpointing.activation_checkpoint=%s",
                     v->recompute ? "full" : "off"),
                word("model.config_name_or_path=%s/%s", files.path, v->is_moe ? "model" : "dense"),
                v->is_moe ? "moe.bias_update_rate=0.01" : dense_plan),
          r);
    unsetenv("OCTET_ISA");
    assert_trained(r);
    assert_int_equal(r->row_count, 20);
    return r;
}

static void assert_twin(const record *ref, const variant *v)
{
    record *r = twenty_steps(v);
    for (int i = 0; i < r->row_count; i++)
        if (ref->masters[i] != r->masters[i] || ref->moments[i] != r->moments[i])
            fail_msg("%s: weights or moments differ after step %d", variant_name(v), i + 1);
    assert_same_run(ref, r);
    free(r);
}

/* Every format and both kinds of layers, on every instruction set of this CPU: one hash. With
 * OCTET_TEST_MATRIX=full always on 1 and 2 threads with and without recomputation; otherwise these
 * four take turns, so that each occurs on each instruction set above ref. */
static void train__20_steps_on_every_instruction_set__same_bits(void **state)
{
    (void)state;
    const char *matrix = getenv("OCTET_TEST_MATRIX");
    const bool is_full = matrix && strcmp(matrix, "full") == 0;
    for (int model = 0; model < 2 * FORMATS; model++) {
        const variant plain = {
            .is_moe = model % 2, .format = model / 2, .isa = OCT_ISA_REF, .threads = 1};
        record *ref = twenty_steps(&plain);
        assert_true(ref->rows[19].loss < ref->rows[0].loss);
        assert_int_equal(ref->rows[0].expert_load_max > 0, plain.is_moe);
        for (int c = 0; c < 4 * ((int)oct_cpu_isa() + 1); c++) {
            const int isa = c / 4, way = c % 4;
            variant v = plain;
            v.isa = (oct_isa)isa;
            v.recompute = way & 1;
            v.threads = 1 + way / 2;
            const bool is_plain = isa == OCT_ISA_REF && way == 0;
            if (!is_plain && (is_full || (isa > OCT_ISA_REF && way == (model + isa) % 4)))
                assert_twin(ref, &v);
        }
        free(ref);
    }
}

static void train__1_2_and_3_threads__same_bits(void **state)
{
    (void)state;
    for (int format = 0; format < FORMATS; format++) {
        record *one = record_create(), *more = record_create();
        train(&files, word("threads-%d-1", format), format, NULL, NULL, one);
        assert_trained(one);
        for (int threads = 2; threads <= 3; threads++) {
            train(&files, word("threads-%d-%d", format, threads), format, NULL,
                  WORDS(word("training.threads=%d", threads)), more);
            assert_trained(more);
            assert_same_run(one, more);
        }
        free(one);
        free(more);
    }
}

/* Recomputation, the trace and when checkpoints are written change no bit. */
static void train__recompute_trace_and_saves__same_bits(void **state)
{
    (void)state;
    for (int format = 0; format < FORMATS; format++) {
        record *plain = record_create(), *other = record_create();
        train(&files, word("plain-%d", format), format, NULL, NULL, plain);
        train(&files, word("other-%d", format), format, NULL,
              WORDS("gradient_checkpointing.activation_checkpoint=full", "trace=true",
                    "checkpoint.save_steps=1"),
              other);
        assert_trained(plain);
        assert_trained(other);
        assert_same_run(plain, other);
        assert_int_equal(other->saves, 6);
        free(plain);
        free(other);
    }
}

/* --- FR-16, FR-17: what a checkpoint of step 0 holds ------------------------------------------ */

static void remember_first_masters(record *r, oct_build *build)
{
    if (r->attempts == 0)
        *(uint64_t *)r->arg = hash_masters(build);
}

/* The first master is the FP32 initial value, not what became of it in 8 bits. */
static void train__formats__start_from_the_same_masters(void **state)
{
    (void)state;
    uint64_t first[FORMATS + 1] = {0};
    for (int format = 0; format <= FORMATS; format++) {
        record *r = record_create();
        r->gradients = remember_first_masters;
        r->arg = &first[format];
        const char *dtype = format == FORMATS ? "float32" : "bfloat16";
        train(&files, word("start-%d", format), format % FORMATS, NULL,
              WORDS("training.stop_at_step=1", word("model.torch_dtype=%s", dtype)), r);
        assert_trained(r);
        assert_true(first[format] == first[0]);
        free(r);
    }
}

static void train__checkpoint_of_every_format__holds_fp32_state(void **state)
{
    (void)state;
    for (int format = 0; format < FORMATS; format++) {
        record *r = record_create();
        const char *dir = word("dtypes-%d", format);
        train(&files, dir, format, NULL, WORDS("training.stop_at_step=1"), r);
        assert_trained(r);
        oct_checkpoint *checkpoint = NULL;
        oct_err err = {0};
        if (oct_checkpoint_open(NULL, word("%s/%s/checkpoints/step-1", files.path, dir),
                                OCT_VERIFY_CRC, NULL, NULL, &checkpoint, &err) != OCT_OK)
            fail_msg("%s", err.msg);
        int states = 0, weights = 0;
        for (int64_t i = 0; i < oct_checkpoint_entry_count(checkpoint); i++) {
            const oct_checkpoint_entry *entry = oct_checkpoint_entry_at(checkpoint, i);
            if (!entry->is_tensor)
                continue;
            const bool of_optimizer = strncmp(entry->key, "optimizer.state.", 16) == 0;
            const bool buffer = strstr(entry->key, "e_score_correction_bias") != NULL;
            assert_string_equal(entry->dtype, of_optimizer || buffer ? "float32" : "bfloat16");
            states += of_optimizer;
            weights += !of_optimizer && !buffer;
            assert_null(strstr(entry->key, "row_data"));
            assert_null(strstr(entry->key, "scale"));
        }
        assert_true(weights > 20);
        assert_int_equal(states, 4 * weights); /* master, exp_avg, exp_avg_sq, step */
        oct_checkpoint_close(checkpoint);
        free(r);
    }
}

/* --- FR-07 ------------------------------------------------------------------------------------ */

#if defined(__x86_64__)
/* Flush-to-zero and denormals-are-zero: never set, on no thread, before or after a step. */
static void read_control_word(void *arg, int64_t index, int thread)
{
    (void)thread;
    ((unsigned *)arg)[index] = _mm_getcsr();
}

static void train__after_steps__subnormals_are_still_there(void **state)
{
    (void)state;
    enum { FLUSH_BITS = 0x8040, THREADS = 3 };
    record *r = record_create();
    train(&files, "subnormal", 2, NULL, WORDS("training.threads=3", "training.stop_at_step=2"), r);
    assert_trained(r);
    unsigned words[THREADS] = {0};
    oct_parallel_for(THREADS, THREADS, read_control_word, words);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(words[i] & FLUSH_BITS, 0);
    assert_int_equal(_mm_getcsr() & FLUSH_BITS, 0);
    volatile float small = 1e-38f;
    assert_true(small * 0.5f > 0.0f);
    free(r);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train__20_steps_on_every_instruction_set__same_bits),
        cmocka_unit_test(train__1_2_and_3_threads__same_bits),
        cmocka_unit_test(train__recompute_trace_and_saves__same_bits),
        cmocka_unit_test(train__formats__start_from_the_same_masters),
        cmocka_unit_test(train__checkpoint_of_every_format__holds_fp32_state),
#if defined(__x86_64__)
        cmocka_unit_test(train__after_steps__subnormals_are_still_there),
#endif
    };
    return cmocka_run_group_tests(tests, make_files, remove_train_files);
}
