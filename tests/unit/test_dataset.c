#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/token_shard.h"
#include "unit/temp_dir.h"

static temp_dir dir;
static oct_err err;

static int setup(void **state)
{
    (void)state;
    dir = temp_dir_create();
    err = (oct_err){0};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temp_dir_remove(&dir);
    return 0;
}

static const char *write_shard(const char *name, int64_t vocab, const char *tokenizer,
                               const uint32_t *ids, int64_t count)
{
    const char *path = temp_dir_name(&dir, name);
    oct_token_shard_writer *writer = NULL;
    assert_int_equal(oct_token_shard_create(path, 0, vocab, tokenizer, &writer, &err), OCT_OK);
    assert_int_equal(oct_token_shard_append(writer, ids, count, &err), OCT_OK);
    assert_int_equal(oct_token_shard_finish(writer, &err), OCT_OK);
    return path;
}

/* Up to three paths. */
static oct_status open_paths(const char *const paths[3], int64_t seq_length, int64_t vocab_size,
                             bool shuffle, oct_dataset **out)
{
    oct_dataset_spec spec = {.paths = paths,
                             .tokenizer = "bytes",
                             .seq_length = seq_length,
                             .vocab_size = vocab_size,
                             .seed = 2026,
                             .shuffle = shuffle};
    while (spec.path_count < 3 && paths[spec.path_count])
        spec.path_count++;
    err = (oct_err){0};
    return oct_dataset_open(&spec, out, &err);
}

static void refused_with(oct_status status, const char *message)
{
    if (status != OCT_E_DATA || !strstr(err.msg, message))
        print_error("got:  %s\nwant: %s\n", err.msg, message);
    assert_int_equal(status, OCT_E_DATA);
    assert_non_null(strstr(err.msg, message));
}

static void dataset_fill__samples_across_files__the_stream_in_order(void **state)
{
    (void)state;
    const uint32_t one[] = {10, 11, 12, 13, 14}, three[] = {256, 257, 258, 259};
    const char *a = write_shard("a.bin", 300, "t", one, 5);
    const char *b = write_shard("b.bin", 300, "t", one, 0); /* empty: no harm */
    const char *c = write_shard("c.bin", 300, "t", three, 4);
    static const int32_t stream[] = {10, 11, 12, 13, 14, 256, 257, 258, 259};
    for (int64_t seq = 1; seq <= 8; seq++) {
        oct_dataset *dataset = NULL;
        assert_int_equal(open_paths((const char *[3]){a, b, c}, seq, 300, false, &dataset), OCT_OK);
        assert_int_equal(oct_dataset_tokens(dataset), 9);
        assert_int_equal(oct_dataset_samples(dataset), 8 / seq);
        for (int64_t p = 0; p < 2 * (8 / seq); p++) { /* two epochs */
            int32_t ids[8], targets[8];
            const int64_t s = p % (8 / seq);
            assert_int_equal(oct_dataset_fill(dataset, p, ids, targets, &err), OCT_OK);
            assert_memory_equal(ids, stream + s * seq, (size_t)seq * 4);
            assert_memory_equal(targets, stream + s * seq + 1, (size_t)seq * 4);
        }
        oct_dataset_close(dataset);
    }
}

static void dataset_fill__shuffled__each_sample_once_and_repeatable(void **state)
{
    (void)state;
    enum { SAMPLES = 100 };
    uint32_t ids[SAMPLES + 1];
    for (uint32_t i = 0; i <= SAMPLES; i++)
        ids[i] = i;
    const char *path = write_shard("a.bin", 300, "t", ids, SAMPLES + 1);
    oct_dataset *dataset = NULL, *twin = NULL;
    int seen[SAMPLES] = {0}, moved = 0;
    assert_int_equal(open_paths((const char *[3]){path}, 1, 300, true, &dataset), OCT_OK);
    assert_int_equal(open_paths((const char *[3]){path}, 1, 300, true, &twin), OCT_OK);
    for (int64_t p = 2 * SAMPLES - 1; p >= SAMPLES; p--) { /* any order of calls */
        int32_t id, target, other, other_target;
        assert_int_equal(oct_dataset_fill(dataset, p, &id, &target, &err), OCT_OK);
        assert_int_equal(oct_dataset_fill(twin, p, &other, &other_target, &err), OCT_OK);
        assert_int_equal(id, other);
        assert_int_equal(target, id + 1);
        seen[id]++;
        moved += id != p - SAMPLES;
    }
    for (int i = 0; i < SAMPLES; i++)
        assert_int_equal(seen[i], 1);
    assert_true(moved > 80);
    assert_int_equal(oct_dataset_fill(dataset, -1, NULL, NULL, &err), OCT_E_API);
    oct_dataset_close(dataset);
    oct_dataset_close(twin);
}

/* FR-36: ids beyond 16 bits, ids beyond the vocabulary, files that are too short. */
static void fr36__wide_ids_and_short_files(void **state)
{
    (void)state;
    const uint32_t ids[] = {65535, 65536, 102399, 102400, 7};
    const char *path = write_shard("wide.bin", 102401, "t", ids, 5);
    oct_dataset *dataset = NULL;
    int32_t in[2], out[2];
    assert_int_equal(open_paths((const char *[3]){path}, 2, 102400, false, &dataset), OCT_OK);
    assert_int_equal(oct_dataset_fill(dataset, 0, in, out, &err), OCT_OK);
    assert_int_equal(in[0], 65535);
    assert_int_equal(in[1], 65536);
    assert_int_equal(out[1], 102399);
    refused_with(
        oct_dataset_fill(dataset, 1, in, out, &err),
        "token outside the vocabulary: token 3 is id 102400, the vocabulary of the model has "
        "102400 (");
    assert_non_null(strstr(err.msg, "wide.bin)"));
    double nats = 0;
    refused_with(oct_dataset_unigram_entropy(dataset, &nats, &err), "id 102400");
    oct_dataset_close(dataset);

    enum { SEQ = 4 };
    static const char *const texts[] = {"", "abc", "abcd"}; /* 1, 4 and 5 tokens with the end */
    refused_with(
        open_paths((const char *[3]){temp_dir_write(&dir, "0.txt", texts[0])}, SEQ, 512, true,
                   &dataset),
        "not enough data: 1 tokens in 1 files, seq_length + 1 = 5 are required for one sample (");
    refused_with(open_paths((const char *[3]){temp_dir_write(&dir, "1.txt", texts[1])}, SEQ, 512,
                            true, &dataset),
                 "not enough data: 4 tokens in 1 files, seq_length + 1 = 5 are required");
    assert_int_equal(open_paths((const char *[3]){temp_dir_write(&dir, "2.txt", texts[2])}, SEQ,
                                512, true, &dataset),
                     OCT_OK);
    assert_int_equal(oct_dataset_samples(dataset), 1);
    oct_dataset_close(dataset);
    static const int64_t counts[] = {0, 1, SEQ, SEQ + 1};
    for (int i = 0; i < 4; i++) {
        char want[64];
        (void)snprintf(want, sizeof want, "not enough data: %d tokens", (int)counts[i]);
        const char *shard = write_shard("short.bin", 300, "t", (const uint32_t[8]){1}, counts[i]);
        const oct_status status = open_paths((const char *[3]){shard}, SEQ, 512, true, &dataset);
        if (counts[i] <= SEQ) {
            refused_with(status, want);
            continue;
        }
        assert_int_equal(status, OCT_OK);
        oct_dataset_close(dataset);
    }
    const char *odd = write_shard("odd.bin", 300, "t", (const uint32_t[8]){1}, 8);
    assert_int_equal(truncate(odd, 128 + 15), 0);
    refused_with(open_paths((const char *[3]){odd}, SEQ, 512, true, &dataset),
                 "15 bytes of tokens, a multiple of 2 is required (");
}

static void dataset_fill__id_beyond_the_shards_own_vocabulary__refused(void **state)
{
    (void)state;
    const uint32_t ids[] = {1, 2, 290, 4};
    const char *path = write_shard("a.bin", 300, "t", ids, 4);
    FILE *file = fopen(path, "r+b");
    assert_int_equal(fseeko(file, 24, SEEK_SET), 0);
    assert_int_equal(fwrite("\x20\x01", 1, 2, file), 2); /* the header now says 288 */
    assert_int_equal(fclose(file), 0);
    oct_dataset *dataset = NULL;
    int32_t in[3], out[3];
    assert_int_equal(open_paths((const char *[3]){path}, 3, 512, false, &dataset), OCT_OK);
    refused_with(oct_dataset_fill(dataset, 0, in, out, &err),
                 "token 2 is id 290, the vocabulary of the shard has 288 (");
    oct_dataset_close(dataset);
}

static void dataset_open__bad_input__refused(void **state)
{
    (void)state;
    const uint32_t ids[] = {1, 2, 3, 4};
    const char *a = write_shard("a.bin", 300, "gpt2", ids, 4);
    const char *b = write_shard("b.bin", 300, "bytes", ids, 4);
    const char *text = temp_dir_write(&dir, "c.txt", "hello");
    oct_dataset *dataset = NULL;
    refused_with(open_paths((const char *[3]){a, b}, 2, 512, true, &dataset),
                 "cannot mix tokenizers: 'bytes' (");
    refused_with(open_paths((const char *[3]){a, text}, 2, 512, true, &dataset),
                 "'gpt2' is required as in the first file (");
    assert_int_equal(open_paths((const char *[3]){b, text}, 2, 512, true, &dataset), OCT_OK);
    assert_int_equal(oct_dataset_tokens(dataset), 10);
    oct_dataset_close(dataset);
    refused_with(open_paths((const char *[3]){temp_dir_write(&dir, "text.bin", "just text")}, 2,
                            512, true, &dataset),
                 "9 bytes, a header of 128 is required (");
    refused_with(open_paths((const char *[3]){temp_dir_name(&dir, "gone")}, 2, 512, true, &dataset),
                 "cannot open data: No such file or directory (");
    const oct_dataset_spec other = {.paths = &text,
                                    .path_count = 1,
                                    .tokenizer = "tokenizer.json",
                                    .seq_length = 2,
                                    .vocab_size = 512};
    assert_int_equal(oct_dataset_open(&other, &dataset, &err), OCT_E_UNSUPPORTED);
    assert_non_null(
        strstr(err.msg, "tokenizer 'tokenizer.json', bytes is required (dataset.tokenizer)"));
    assert_int_equal(open_paths((const char *[3]){text}, 0, 512, true, &dataset), OCT_E_API);
    assert_int_equal(open_paths((const char *[3]){NULL}, 2, 512, true, &dataset), OCT_E_API);
}

static void dataset_fill__file_changed_or_gone__refused(void **state)
{
    (void)state;
    const char *path = temp_dir_write(&dir, "a.txt", "hello world");
    oct_dataset *dataset = NULL;
    int32_t in[4], out[4];
    assert_int_equal(open_paths((const char *[3]){path}, 4, 512, false, &dataset), OCT_OK);
    assert_int_equal(truncate(path, 3), 0);
    refused_with(oct_dataset_fill(dataset, 0, in, out, &err),
                 "data changed while in use: 3 bytes, 11 are required (");
    assert_int_equal(unlink(path), 0);
    refused_with(oct_dataset_fill(dataset, 0, in, out, &err), "cannot open data: No such file");
    oct_dataset_close(dataset);
}

static uint64_t fingerprint_of(const char *path)
{
    oct_dataset *dataset = NULL;
    assert_int_equal(open_paths((const char *[3]){path}, 2, 512, false, &dataset), OCT_OK);
    const uint64_t fingerprint = oct_dataset_fingerprint(dataset);
    oct_dataset_close(dataset);
    return fingerprint;
}

static void dataset_fingerprint__follows_content_not_place(void **state)
{
    (void)state;
    (void)temp_dir_make(&dir, "x");
    (void)temp_dir_make(&dir, "y");
    const uint64_t first = fingerprint_of(temp_dir_write(&dir, "x/a.txt", "hello world"));
    assert_true(first == fingerprint_of(temp_dir_write(&dir, "y/a.txt", "hello world")));
    assert_true(first != fingerprint_of(temp_dir_write(&dir, "x/b.txt", "hello world")));
    assert_true(first != fingerprint_of(temp_dir_write(&dir, "x/a.txt", "hello worlD")));
    assert_true(first != fingerprint_of(temp_dir_write(&dir, "x/a.txt", "hello world!")));
    char text[10001]; /* longer than what is read of either end */
    memset(text, 'a', sizeof text - 1);
    text[10000] = '\0';
    const uint64_t before = fingerprint_of(temp_dir_write(&dir, "x/a.txt", text));
    text[9999] = 'b';
    assert_true(before != fingerprint_of(temp_dir_write(&dir, "x/a.txt", text)));
    assert_true(fingerprint_of(temp_dir_name(&dir, "x")) !=
                fingerprint_of(temp_dir_name(&dir, "y")));
}

static void dataset_unigram_entropy__known_frequencies(void **state)
{
    (void)state;
    /* aabc and the end of the document: 2/5, 1/5, 1/5, 1/5. */
    oct_dataset *dataset = NULL;
    double nats = 0;
    assert_int_equal(open_paths((const char *[3]){temp_dir_write(&dir, "a.txt", "aabc")}, 2, 257,
                                true, &dataset),
                     OCT_OK);
    assert_int_equal(oct_dataset_unigram_entropy(dataset, &nats, &err), OCT_OK);
    assert_true(fabs(nats - (0.4 * log(2.5) + 0.6 * log(5))) < 1e-12);
    oct_dataset_close(dataset);
    const uint32_t same[] = {299, 299, 299};
    assert_int_equal(open_paths((const char *[3]){write_shard("b.bin", 300, "t", same, 3)}, 2, 300,
                                true, &dataset),
                     OCT_OK);
    assert_int_equal(oct_dataset_unigram_entropy(dataset, &nats, &err), OCT_OK);
    assert_true(nats == 0);
    oct_dataset_close(dataset);
}

/* FR-35 through the dataset: a sample that begins beyond 2 GiB. */
static void fr35__dataset__sample_beyond_2_gib(void **state)
{
    (void)state;
    enum { SEQ = 1024, PATTERN = 4 * SEQ };
    const int64_t tokens = ((int64_t)3 << 30) / 2;
    const char *path = write_shard("big.bin", 300, "t", (const uint32_t[1]){5}, 1);
    FILE *file = fopen(path, "r+b");
    unsigned char count[8];
    for (int i = 0; i < 8; i++)
        count[i] = (unsigned char)((uint64_t)tokens >> 8 * i);
    assert_int_equal(fseeko(file, 16, SEEK_SET), 0);
    assert_int_equal(fwrite(count, 1, 8, file), 8);
    assert_int_equal(fseeko(file, 128 + 2 * (tokens - PATTERN), SEEK_SET), 0);
    for (int i = 0; i < PATTERN; i++) {
        const unsigned char token[2] = {(unsigned char)(i % 251), 0};
        assert_int_equal(fwrite(token, 1, 2, file), 2);
    }
    assert_int_equal(fclose(file), 0);
    oct_dataset *dataset = NULL;
    int32_t in[SEQ], out[SEQ];
    assert_int_equal(open_paths((const char *[3]){path}, SEQ, 300, false, &dataset), OCT_OK);
    assert_int_equal(oct_dataset_tokens(dataset), tokens);
    const int64_t last = oct_dataset_samples(dataset) - 1;
    assert_int_equal(last, (tokens - 1) / SEQ - 1);
    assert_int_equal(oct_dataset_fill(dataset, last, in, out, &err), OCT_OK);
    const int64_t into_pattern = last * SEQ - (tokens - PATTERN);
    assert_int_equal(into_pattern, 2 * SEQ);
    for (int i = 0; i < SEQ; i++) {
        assert_int_equal(in[i], (into_pattern + i) % 251);
        assert_int_equal(out[i], (into_pattern + i + 1) % 251);
    }
    oct_dataset_close(dataset);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(dataset_fill__samples_across_files__the_stream_in_order),
        TEST(dataset_fill__shuffled__each_sample_once_and_repeatable),
        TEST(fr36__wide_ids_and_short_files),
        TEST(dataset_fill__id_beyond_the_shards_own_vocabulary__refused),
        TEST(dataset_open__bad_input__refused),
        TEST(dataset_fill__file_changed_or_gone__refused),
        TEST(dataset_fingerprint__follows_content_not_place),
        TEST(dataset_unigram_entropy__known_frequencies),
        TEST(fr35__dataset__sample_beyond_2_gib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
