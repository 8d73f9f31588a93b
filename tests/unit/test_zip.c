/* Archives inside a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <zlib.h>

#include "checkpoint/zip.h"
#include "unit/scratch_dir.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        const oct_status ok_status_ = (call);                                                      \
        if (ok_status_ != OCT_OK)                                                                  \
            fail_msg("%s", err.msg);                                                               \
    } while (0)

enum { LEAD = 4096, PAYLOAD = 1000 };

static unsigned char payload[PAYLOAD];

/* One archive of three entries behind LEAD bytes; returns its length. */
static uint64_t write_archive(const char *path, uint32_t *file_crc)
{
    oct_err err = {0};
    oct_stream stream;
    oct_zip zip;
    uint64_t length = 0;
    (void)unlink(path);
    for (int i = 0; i < PAYLOAD; i++)
        payload[i] = (unsigned char)(i * 31 + i / 7);
    OK(oct_stream_create(&oct_file_table_real, path, 0, &stream, &err));
    OK(oct_stream_write(&stream, "x", 1, NULL, &err));
    OK(oct_stream_align(&stream, LEAD, &err));
    oct_zip_begin(&zip, &stream);
    OK(oct_zip_add(&zip, &stream, "archive/data.pkl", "pickle", 6, &err));
    OK(oct_zip_entry_begin(&zip, &stream, "archive/data/0", &err));
    for (int i = 0; i < PAYLOAD; i += 100)
        OK(oct_zip_entry_write(&zip, &stream, payload + i, 100, &err));
    OK(oct_zip_entry_end(&zip, &stream, &err));
    OK(oct_zip_add(&zip, &stream, "archive/version", "3\n", 2, &err));
    OK(oct_zip_end(&zip, &stream, &length, &err));
    OK(oct_stream_finish(&stream, &err));
    assert_int_equal(stream.bytes, LEAD + length);
    *file_crc = stream.crc;
    return length;
}

static void write__three_entries__read_back_and_aligned(void **state)
{
    (void)state;
    oct_err err = {0};
    uint32_t file_crc = 0;
    const char *path = scratch_path("zip");
    const uint64_t length = write_archive(path, &file_crc);
    char *whole = NULL;
    size_t bytes = 0;
    OK(oct_file_read_all(&oct_file_table_real, path, 1 << 20, &whole, &bytes, &err));
    assert_int_equal(file_crc, crc32(0, (const unsigned char *)whole, (uInt)bytes));
    oct_file file;
    oct_zip zip;
    OK(oct_file_open(&oct_file_table_real, path, &file, &err));
    OK(oct_zip_read(&file, LEAD, length, &zip, &err));
    assert_int_equal(zip.count, 3);
    for (int i = 0; i < zip.count; i++)
        assert_int_equal((zip.entries[i].offset - LEAD) % OCT_ZIP_PAYLOAD_ALIGN, 0);
    const oct_zip_entry *entry = oct_zip_find(&zip, "data/0");
    assert_int_equal(entry->bytes, PAYLOAD);
    assert_int_equal(entry->crc, crc32(0, payload, PAYLOAD));
    assert_memory_equal(whole + entry->offset, payload, PAYLOAD);
    unsigned char *data = NULL;
    OK(oct_zip_load(&file, oct_zip_find(&zip, "version"), 10, &data, &err));
    assert_memory_equal(data, "3\n", 2);
    free(data);
    assert_int_equal(oct_zip_load(&file, entry, 999, &data, &err), OCT_E_CORRUPT);
    assert_null(oct_zip_find(&zip, "data/1"));
    assert_null(oct_zip_find(&zip, "0"));
    oct_file_discard(&file);
    free(whole);
}

/* Every single-byte change is either seen (structure or CRC) or does not matter: names, sizes and
 * payloads that come out are then those that went in. */
static void read__every_byte_changed__refused_or_harmless(void **state)
{
    (void)state;
    oct_err err = {0};
    uint32_t file_crc = 0;
    char path[512];
    (void)snprintf(path, sizeof path, "%s", scratch_path("zip"));
    const uint64_t length = write_archive(path, &file_crc);
    char *whole = NULL;
    size_t bytes = 0;
    OK(oct_file_read_all(&oct_file_table_real, path, 1 << 20, &whole, &bytes, &err));
    int refused = 0;
    for (size_t at = LEAD; at < bytes; at++) {
        whole[at] ^= 0x21;
        FILE *out = fopen(path, "wb");
        assert_int_equal(fwrite(whole, 1, bytes, out), bytes);
        (void)fclose(out);
        whole[at] ^= 0x21;
        oct_file file;
        oct_zip zip;
        OK(oct_file_open(&oct_file_table_real, path, &file, &err));
        oct_status status = oct_zip_read(&file, LEAD, length, &zip, &err);
        for (int i = 0; i < zip.count && status == OCT_OK; i++) {
            unsigned char *data = NULL;
            status = oct_zip_load(&file, &zip.entries[i], 4096, &data, &err);
            if (status == OCT_OK && strcmp(zip.entries[i].name, "archive/data/0") == 0)
                assert_memory_equal(data, payload, PAYLOAD);
            if (status == OCT_OK)
                free(data);
        }
        refused += status != OCT_OK;
        oct_file_discard(&file);
    }
    assert_true(refused > PAYLOAD + 150);
    free(whole);
}

static void read__every_length__refused(void **state)
{
    (void)state;
    oct_err err = {0};
    uint32_t file_crc = 0;
    const char *path = scratch_path("zip");
    const uint64_t length = write_archive(path, &file_crc);
    oct_file file;
    oct_zip zip;
    OK(oct_file_open(&oct_file_table_real, path, &file, &err));
    for (uint64_t n = 0; n < length; n++)
        assert_int_equal(oct_zip_read(&file, LEAD, n, &zip, &err), OCT_E_CORRUPT);
    assert_int_equal(oct_zip_read(&file, LEAD, length + 1, &zip, &err), OCT_E_CORRUPT);
    assert_int_equal(oct_zip_read(&file, LEAD + 1, length - 1, &zip, &err), OCT_E_CORRUPT);
    oct_file_discard(&file);
}

static void stream__longer_than_buffer__crc_of_whole(void **state)
{
    (void)state;
    oct_err err = {0};
    oct_stream stream;
    const size_t bytes = (size_t)OCT_STREAM_BUFFER_BYTES * 2 + 12345;
    unsigned char *data = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * i >> 7);
    OK(oct_stream_create(&oct_file_table_real, scratch_path("long"), 1u << 30, &stream, &err));
    uint32_t part = 0;
    OK(oct_stream_write(&stream, data, 777, NULL, &err));
    OK(oct_stream_write(&stream, data + 777, bytes - 777, &part, &err));
    OK(oct_stream_finish(&stream, &err));
    assert_int_equal(stream.crc, crc32_z(0, data, bytes));
    assert_int_equal(part, crc32_z(0, data + 777, bytes - 777));
    char *back = NULL;
    size_t read = 0;
    OK(oct_file_read_all(&oct_file_table_real, scratch_path("long"), bytes, &back, &read, &err));
    assert_int_equal(read, bytes);
    assert_memory_equal(back, data, bytes);
    free(back);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write__three_entries__read_back_and_aligned),
        cmocka_unit_test(read__every_byte_changed__refused_or_harmless),
        cmocka_unit_test(read__every_length__refused),
        cmocka_unit_test(stream__longer_than_buffer__crc_of_whole),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
