#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
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

static const char *write_shard(const char *name, int width, int64_t vocab, const uint32_t *ids,
                               int64_t count)
{
    const char *path = temp_dir_name(&dir, name);
    oct_token_shard_writer *writer = NULL;
    assert_int_equal(oct_token_shard_create(path, width, vocab, "bytes", &writer, &err), OCT_OK);
    assert_int_equal(oct_token_shard_append(writer, ids, count, &err), OCT_OK);
    assert_int_equal(oct_token_shard_finish(writer, &err), OCT_OK);
    return path;
}

static oct_status open_shard(const char *path, int *fd, oct_token_shard *shard)
{
    struct stat about;
    *fd = open(path, O_RDONLY);
    assert_true(*fd >= 0);
    assert_int_equal(fstat(*fd, &about), 0);
    return oct_token_shard_open(*fd, about.st_size, path, shard, &err);
}

static void token_shard__written__reads_back(void **state)
{
    (void)state;
    static const struct {
        int width, stored;
        int64_t vocab;
    } cases[] = {{0, 2, 65536}, {0, 4, 65537}, {2, 2, 300}, {4, 4, 300}, {4, 4, (int64_t)1 << 31}};
    enum { COUNT = 20000 }; /* more than one chunk */
    uint32_t *ids = malloc(COUNT * sizeof *ids), *back = malloc(COUNT * sizeof *back);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int64_t k = 0; k < COUNT; k++)
            ids[k] = (uint32_t)((k * 2654435761) % cases[i].vocab);
        ids[7] = (uint32_t)(cases[i].vocab - 1);
        const char *path = write_shard("a.bin", cases[i].width, cases[i].vocab, ids, COUNT);
        oct_token_shard shard;
        int fd = -1;
        assert_int_equal(open_shard(path, &fd, &shard), OCT_OK);
        assert_int_equal(shard.tokens, COUNT);
        assert_int_equal(shard.vocab_size, cases[i].vocab);
        assert_int_equal(shard.width_bytes, cases[i].stored);
        assert_string_equal(shard.tokenizer, "bytes");
        assert_int_equal(oct_token_shard_read(&shard, fd, path, 0, COUNT, back, &err), OCT_OK);
        assert_memory_equal(back, ids, COUNT * sizeof *ids);
        assert_int_equal(oct_token_shard_read(&shard, fd, path, COUNT - 3, 3, back, &err), OCT_OK);
        assert_memory_equal(back, ids + COUNT - 3, 3 * sizeof *ids);
        assert_int_equal(oct_token_shard_read(&shard, fd, path, COUNT, 0, back, &err), OCT_OK);
        assert_int_equal(oct_token_shard_read(&shard, fd, path, COUNT - 3, 4, back, &err),
                         OCT_E_API);
        assert_int_equal(oct_token_shard_read(&shard, fd, path, -1, 1, back, &err), OCT_E_API);
        assert_int_equal(oct_token_shard_read(&shard, fd, path, INT64_MAX, INT64_MAX, back, &err),
                         OCT_E_API);
        close(fd);
    }
    free(ids);
    free(back);
}

/* The bytes of docs/spec/token-shard.md, written by hand. */
static void token_shard_finish__bytes_as_specified(void **state)
{
    (void)state;
    const uint32_t ids[] = {1, 256, 0};
    const char *path = write_shard("a.bin", 2, 257, ids, 3);
    unsigned char want[134] = "OCTETTOK\1\0\0\0\2\0\0\0\3\0\0\0\0\0\0\0\1\1\0\0\0\0\0\0bytes";
    memcpy(want + 128, "\1\0\0\1\0\0", 6);
    unsigned char found[256];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(found, 1, sizeof found, file), 134);
    assert_int_equal(fclose(file), 0);
    assert_memory_equal(found, want, 134);
}

static void token_shard_open__damaged__refused_with_both_values(void **state)
{
    (void)state;
    static const struct {
        int offset; /* of the byte that is changed, -1 for none */
        unsigned char byte;
        off_t size; /* of the file, 0 for unchanged */
        const char *message;
    } cases[] = {
        {-1, 0, 0, NULL},
        {0, 'X', 0, "magic 'XCTETTOK', 'OCTETTOK' is required ("},
        {0, 1, 0, "magic '.CTETTOK'"},
        {8, 2, 0, "version 2, 1 is required ("},
        {12, 3, 0, "3 bytes per token, 2 or 4 are required ("},
        {12, 4, 0, "the file holds 2 tokens, the header says 4 ("},
        {16, 5, 0, "the file holds 4 tokens, the header says 5 ("},
        {23, 0x80, 0, "the file holds 4 tokens, the header says 9223372036854775812 ("},
        {26, 1, 0, "vocabulary of 65793, 1 to 65536 is required with 2 bytes per token ("},
        {25, 0, 0, NULL}, /* vocabulary 1: legal header */
        {32, 0, 0, "tokenizer id of 0 bytes, 1 to 79 are required ("},
        {111, 'x', 0, "byte 79 of the tokenizer id is 0x78 after its end, 0 is required ("},
        {33, 0xff, 0, "the tokenizer id is not valid UTF-8"},
        {127, 9, 0, "reserved byte 127 is 0x09, 0 is required ("},
        {-1, 0, 135, "7 bytes of tokens, a multiple of 2 is required ("},
        {-1, 0, 134, "the file holds 3 tokens, the header says 4 ("},
        {-1, 0, 138, "the file holds 5 tokens, the header says 4 ("},
        {-1, 0, 128, "the file holds 0 tokens, the header says 4 ("},
        {-1, 0, 127, "127 bytes, a header of 128 is required ("},
        {-1, 0, 1, "1 bytes, a header of 128 is required ("},
    };
    const uint32_t ids[] = {1, 2, 3, 4};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = write_shard("damaged.bin", 2, 257, ids, 4);
        int fd = open(path, O_RDWR);
        if (cases[i].offset >= 0)
            assert_int_equal(pwrite(fd, &cases[i].byte, 1, cases[i].offset), 1);
        if (cases[i].size > 0)
            assert_int_equal(ftruncate(fd, cases[i].size), 0);
        close(fd);
        oct_token_shard shard;
        const oct_status status = open_shard(path, &fd, &shard);
        close(fd);
        if (!cases[i].message) {
            assert_int_equal(status, OCT_OK);
            continue;
        }
        if (status == OCT_OK || !strstr(err.msg, cases[i].message))
            print_error("got:  %s\nwant: %s\n", err.msg, cases[i].message);
        assert_int_equal(status, OCT_E_DATA);
        assert_non_null(strstr(err.msg, cases[i].message));
        assert_non_null(strstr(err.msg, "damaged.bin)"));
    }
}

static void token_shard_open__never_finished__refused(void **state)
{
    (void)state;
    const char *path = temp_dir_name(&dir, "cut.bin");
    const uint32_t ids[] = {1, 2};
    oct_token_shard_writer *writer = NULL;
    oct_token_shard shard;
    int fd = -1;
    assert_int_equal(oct_token_shard_create(path, 0, 257, "bytes", &writer, &err), OCT_OK);
    assert_int_equal(oct_token_shard_append(writer, ids, 2, &err), OCT_OK);
    assert_int_equal(open_shard(path, &fd, &shard), OCT_E_DATA);
    assert_non_null(strstr(err.msg, "magic '........'"));
    close(fd);
    oct_token_shard_abandon(writer);
    assert_int_equal(access(path, F_OK), -1);
}

static void token_shard_writer__bad_input__refused(void **state)
{
    (void)state;
    const char *path = temp_dir_name(&dir, "w.bin");
    oct_token_shard_writer *writer = NULL;
    char long_id[81];
    memset(long_id, 'x', 80);
    long_id[80] = '\0';
    assert_int_equal(oct_token_shard_create(path, 3, 257, "bytes", &writer, &err), OCT_E_API);
    assert_int_equal(oct_token_shard_create(path, 2, 65537, "bytes", &writer, &err), OCT_E_API);
    assert_int_equal(oct_token_shard_create(path, 4, 0, "bytes", &writer, &err), OCT_E_API);
    assert_int_equal(oct_token_shard_create(path, 2, 257, "", &writer, &err), OCT_E_API);
    assert_int_equal(oct_token_shard_create(path, 2, 257, long_id, &writer, &err), OCT_E_API);
    assert_int_equal(oct_token_shard_create(path, 2, 257, long_id + 1, &writer, &err), OCT_OK);
    const uint32_t ids[] = {0, 256, 257};
    assert_int_equal(oct_token_shard_append(writer, ids, 3, &err), OCT_E_DATA);
    assert_non_null(strstr(err.msg, "token 2 is 257, below 257 is required ("));
    oct_token_shard_abandon(writer);
    assert_int_equal(oct_token_shard_create(temp_dir_name(&dir, "no/such/folder.bin"), 2, 257, "b",
                                            &writer, &err),
                     OCT_E_IO);
}

/* FR-35: beyond 2 GiB. The file is sparse, so it costs no disk. */
static void fr35__sparse_3_gib__exact_tokens_at_the_end(void **state)
{
    (void)state;
    enum { TAIL = 1 << 18 }; /* tokens: 1 MiB of 4 bytes */
    const int64_t tokens = ((int64_t)3 << 30) / 4;
    const uint32_t first[] = {17};
    const char *path = write_shard("big.bin", 4, 1 << 20, first, 1);
    int fd = open(path, O_RDWR);
    unsigned char count[8];
    for (int i = 0; i < 8; i++)
        count[i] = (unsigned char)((uint64_t)tokens >> 8 * i);
    assert_int_equal(pwrite(fd, count, 8, 16), 8);
    assert_int_equal(ftruncate(fd, 128 + 4 * tokens), 0);
    uint32_t *tail = malloc(TAIL * sizeof *tail), *back = malloc(TAIL * sizeof *back);
    for (int i = 0; i < TAIL; i++)
        tail[i] = (uint32_t)i * 3 + 1; /* this machine is little endian, as the format */
    assert_int_equal(pwrite(fd, tail, TAIL * sizeof *tail, 128 + 4 * (tokens - TAIL)),
                     TAIL * sizeof *tail);
    close(fd);
    oct_token_shard shard;
    assert_int_equal(open_shard(path, &fd, &shard), OCT_OK);
    assert_int_equal(shard.tokens, tokens);
    assert_int_equal(oct_token_shard_read(&shard, fd, path, tokens - TAIL, TAIL, back, &err),
                     OCT_OK);
    assert_memory_equal(back, tail, TAIL * sizeof *tail);
    assert_int_equal(oct_token_shard_read(&shard, fd, path, 0, 2, back, &err), OCT_OK);
    assert_int_equal(back[0], 17);
    assert_int_equal(back[1], 0);
    close(fd);

    /* A count above 2^31 in the header that the file does not hold: both numbers. */
    const uint64_t claimed = ((uint64_t)1 << 31) + 5;
    for (int i = 0; i < 8; i++)
        count[i] = (unsigned char)(claimed >> 8 * i);
    fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, count, 8, 16), 8);
    close(fd);
    assert_int_equal(open_shard(path, &fd, &shard), OCT_E_DATA);
    assert_non_null(
        strstr(err.msg, "the file holds 805306368 tokens, the header says 2147483653 ("));
    close(fd);
    /* And one that it does hold: 2^31 + 5 tokens of 2 bytes. */
    fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "\2", 1, 12), 1);
    assert_int_equal(pwrite(fd, "\0\1\0", 3, 24), 3); /* vocabulary 256 */
    assert_int_equal(ftruncate(fd, 128 + 2 * (off_t)claimed), 0);
    assert_int_equal(pwrite(fd, "\xfe\0\xff\0", 4, 128 + 2 * (off_t)claimed - 4), 4);
    close(fd);
    assert_int_equal(open_shard(path, &fd, &shard), OCT_OK);
    assert_int_equal(shard.tokens, (int64_t)claimed);
    assert_int_equal(oct_token_shard_read(&shard, fd, path, (int64_t)claimed - 2, 2, back, &err),
                     OCT_OK);
    assert_int_equal(back[0], 254);
    assert_int_equal(back[1], 255);
    close(fd);
    free(tail);
    free(back);
}

/* Whatever the header says: a whole shard, or an error. */
static void token_shard_open__mutated_header__whole_or_refused(void **state)
{
    (void)state;
    const uint32_t ids[] = {1, 2, 3, 4};
    const char *path = write_shard("mutated.bin", 2, 257, ids, 4);
    unsigned char original[OCT_TOKEN_SHARD_HEADER_BYTES], header[OCT_TOKEN_SHARD_HEADER_BYTES];
    const int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, original, sizeof original, 0), sizeof original);
    const oct_rng stream = oct_rng_stream(3, "header");
    uint64_t draw = 0;
    int legal = 0;
    for (int round = 0; round < 5000; round++) {
        memcpy(header, original, sizeof header);
        for (uint64_t edits = 1 + oct_rng_below(stream, draw++, 3); edits > 0; edits--) {
            const uint64_t at = oct_rng_below(stream, draw++, sizeof header);
            header[at] = (unsigned char)oct_rng_below(stream, draw++, 256);
        }
        assert_int_equal(pwrite(fd, header, sizeof header, 0), sizeof header);
        oct_token_shard shard;
        uint32_t back[4];
        err = (oct_err){0};
        if (oct_token_shard_open(fd, 136, path, &shard, &err) != OCT_OK) {
            assert_int_equal(err.code, OCT_E_DATA);
            continue;
        }
        legal++;
        assert_int_equal(shard.tokens * shard.width_bytes, 8);
        assert_int_equal(oct_token_shard_read(&shard, fd, path, 0, shard.tokens, back, &err),
                         OCT_OK);
    }
    assert_in_range(legal, 1, 4999); /* both outcomes were met */
    close(fd);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(token_shard__written__reads_back),
        TEST(token_shard_finish__bytes_as_specified),
        TEST(token_shard_open__damaged__refused_with_both_values),
        TEST(token_shard_open__never_finished__refused),
        TEST(token_shard_writer__bad_input__refused),
        TEST(token_shard_open__mutated_header__whole_or_refused),
        TEST(fr35__sparse_3_gib__exact_tokens_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
