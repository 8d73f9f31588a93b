/* Text from a trained model: what is asked for, the same for the same seed, and never past the
 * model's positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/token_shard.h"
#include "train_fixture.h"
#include "trainer/generate.h"

static temp_dir files;
static oct_arena arena;
static oct_config config;
static oct_checkpoint *checkpoint;

/* A model that has seen sixty documents of the same thirty-two bytes long enough to go on with
 * them. */
static int train_once(void **state)
{
    (void)state;
    files = train_files_create();
    temp_dir_make(&files, "repeated");
    for (int i = 0; i < 60; i++)
        temp_dir_write(&files, word("repeated/%d.txt", i), "the same thirty-two bytes again\n");
    const char *data = word("dataset.path=%s/repeated", files.path);
    const char *const *words = WORDS(data, "training.train_iters=60", "optimizer.lr=1.0e-2");
    record *r = record_create();
    train(&files, "run", 1, NULL, words, r);
    assert_trained(r);
    free(r);
    oct_arena_init(&arena, "test configuration");
    load_config(&files, 1, words, &arena, &config);
    oct_err err = {0};
    if (oct_checkpoint_open(NULL, word("%s/run/checkpoints/step-60", files.path), OCT_VERIFY_CRC,
                            NULL, NULL, &checkpoint, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    oct_checkpoint_close(checkpoint);
    oct_arena_release(&arena);
    temp_dir_remove(&files);
    return 0;
}

typedef struct text {
    char bytes[600];
    int64_t count;
} text;

static void emit(void *arg, const char *bytes, int64_t count)
{
    text *t = arg;
    assert_true(t->count + count < (int64_t)sizeof t->bytes);
    memcpy(t->bytes + t->count, bytes, (size_t)count);
    t->count += count;
    t->bytes[t->count] = '\0';
}

static oct_status generate(const char *prompt, int64_t tokens, double temperature, uint64_t seed,
                           text *out, oct_err *err)
{
    *out = (text){.count = 0};
    const oct_generate_options options = {.prompt = prompt,
                                          .tokens = tokens,
                                          .temperature = temperature,
                                          .top_p = 0.9,
                                          .seed = seed,
                                          .emit = emit,
                                          .emit_arg = out};
    return oct_generate(&config, checkpoint, &options, err);
}

static void generate__greedy__continues_what_was_learned(void **state)
{
    (void)state;
    text out;
    oct_err err = {0};
    assert_int_equal(generate("the same thirty-", 8, 0.0, 0, &out, &err), OCT_OK);
    assert_string_equal(out.bytes, "two byte");
}

static void generate__end_of_document__is_the_end_of_the_text(void **state)
{
    (void)state;
    text out;
    oct_err err = {0};
    assert_int_equal(generate("the same thirty-", 60, 0.0, 0, &out, &err), OCT_OK);
    assert_string_equal(out.bytes, "two bytes again\n");
    assert_int_equal(out.count, 16);
}

/* A draw belongs to its position in the text, whatever of the text was the prompt. */
static void generate__prompt_longer_by_what_came__goes_on_the_same(void **state)
{
    (void)state;
    text whole, rest;
    oct_err err = {0};
    char prompt[64] = "zq";
    assert_int_equal(generate(prompt, 24, 2.0, 5, &whole, &err), OCT_OK);
    assert_int_equal(whole.count, 24);
    assert_int_equal(strlen(whole.bytes), 24);
    int changes = 0;
    for (int i = 1; i < 24; i++)
        changes += whole.bytes[i] != whole.bytes[i - 1];
    assert_true(changes > 12);
    memcpy(prompt + 2, whole.bytes, 10);
    assert_int_equal(generate(prompt, 14, 2.0, 5, &rest, &err), OCT_OK);
    assert_string_equal(rest.bytes, whole.bytes + 10);
}

static void generate__sampled__same_for_the_same_seed_only(void **state)
{
    (void)state;
    text first, again, other;
    oct_err err = {0};
    assert_int_equal(generate("zq", 40, 3.0, 5, &first, &err), OCT_OK);
    assert_int_equal(generate("zq", 40, 3.0, 5, &again, &err), OCT_OK);
    assert_int_equal(generate("zq", 40, 3.0, 6, &other, &err), OCT_OK);
    assert_int_equal(first.count, again.count);
    assert_memory_equal(first.bytes, again.bytes, (size_t)first.count);
    assert_true(first.count != other.count ||
                memcmp(first.bytes, other.bytes, (size_t)first.count) != 0);
}

static void generate__more_than_the_positions__stops_at_the_last(void **state)
{
    (void)state;
    text out;
    oct_err err = {0};
    char prompt[254];
    memset(prompt, 't', sizeof prompt - 1);
    prompt[sizeof prompt - 1] = '\0';
    assert_int_equal(generate(prompt, 100, 0.0, 0, &out, &err), OCT_OK);
    assert_true(out.count <= 3); /* 256 positions, 253 are taken */
}

static void generate__empty_or_endless_prompt__is_refused(void **state)
{
    (void)state;
    text out;
    oct_err err = {0};
    char prompt[257];
    memset(prompt, 't', sizeof prompt - 1);
    prompt[sizeof prompt - 1] = '\0';
    assert_int_equal(generate("", 5, 0.0, 0, &out, &err), OCT_E_DATA);
    assert_non_null(strstr(err.msg, "it has 0 tokens"));
    assert_int_equal(generate(prompt, 5, 0.0, 0, &out, &err), OCT_E_DATA);
    assert_non_null(strstr(err.msg, "from 1 to 255"));
}

static void generate__checkpoint_of_another_model__is_refused_by_field(void **state)
{
    (void)state;
    text out;
    oct_err err = {0};
    const oct_config right = config;
    config.model.config_overrides_json = "{\"num_experts_per_tok\": 1}";
    const oct_status status = generate("x", 5, 0.0, 0, &out, &err);
    config = right;
    assert_int_equal(status, OCT_E_CHECKPOINT);
    assert_non_null(strstr(err.msg, "num_experts_per_tok 2"));
    assert_int_equal(out.count, 0);
}

/* Ids of a token shard are no bytes, even where they are below 257. */
static void generate__trained_on_another_tokenizer__is_refused(void **state)
{
    (void)state;
    uint32_t ids[200];
    for (uint32_t i = 0; i < 200; i++)
        ids[i] = i;
    oct_token_shard_writer *writer = NULL;
    oct_err err = {0};
    text out;
    assert_int_equal(oct_token_shard_create(temp_dir_name(&files, "words.bin"), 2, 257, "wordpiece",
                                            &writer, &err),
                     OCT_OK);
    assert_int_equal(oct_token_shard_append(writer, ids, 200, &err), OCT_OK);
    assert_int_equal(oct_token_shard_finish(writer, &err), OCT_OK);
    record *r = record_create();
    const char *shard = word("dataset.path=%s/words.bin", files.path);
    train(&files, "words", 1, NULL, WORDS(shard, "training.stop_at_step=1"), r);
    assert_trained(r);

    oct_checkpoint *of_bytes = checkpoint;
    if (oct_checkpoint_open(NULL, word("%s/words/checkpoints/step-1", files.path), OCT_VERIFY_CRC,
                            NULL, NULL, &checkpoint, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    const oct_status status = generate("x", 5, 0.0, 0, &out, &err);
    oct_checkpoint_close(checkpoint);
    checkpoint = of_bytes;
    assert_int_equal(status, OCT_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "'wordpiece'"));

    /* Nor does such a run go on with text, or validate on it. */
    train(&files, "words", 1, NULL, NULL, r);
    assert_refused(r, OCT_E_CHECKPOINT, "wordpiece", "bytes", "train_state.tokenizer", NULL);
    train(&files, "validated", 1, NULL,
          WORDS(shard, word("dataset.validation.path=%s/text.txt", files.path),
                "dataset.validation.every=1"),
          r);
    assert_refused(r, OCT_E_DATA, "'bytes'", "'wordpiece'", "dataset.validation.path", NULL);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generate__greedy__continues_what_was_learned),
        cmocka_unit_test(generate__end_of_document__is_the_end_of_the_text),
        cmocka_unit_test(generate__prompt_longer_by_what_came__goes_on_the_same),
        cmocka_unit_test(generate__sampled__same_for_the_same_seed_only),
        cmocka_unit_test(generate__more_than_the_positions__stops_at_the_last),
        cmocka_unit_test(generate__empty_or_endless_prompt__is_refused),
        cmocka_unit_test(generate__checkpoint_of_another_model__is_refused_by_field),
        cmocka_unit_test(generate__trained_on_another_tokenizer__is_refused),
    };
    return cmocka_run_group_tests(tests, train_once, clean_up);
}
