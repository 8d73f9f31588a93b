#include "checkpoint/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* APPNOTE.TXT 6.3.x, PKWARE. All numbers little endian. */
enum {
    LOCAL_BYTES = 30,
    DESCRIPTOR_BYTES = 16,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    LOCATOR64_BYTES = 20,
    END64_BYTES = 56,
    FLAG_ENCRYPTED = 0x0001,
    FLAG_DESCRIPTOR = 0x0008,
    FLAG_UTF8 = 0x0800,
    DOS_DATE_1980_01_01 = 0x0021,
    VERSION = 20,
    EXTRA_FB = 0x4246, /* torch's padding field */
    EXTRA_ZIP64 = 0x0001
};
static const uint32_t LOCAL_MAGIC = 0x04034b50, DESCRIPTOR_MAGIC = 0x08074b50,
                      CENTRAL_MAGIC = 0x02014b50, END_MAGIC = 0x06054b50,
                      LOCATOR64_MAGIC = 0x07064b50, END64_MAGIC = 0x06064b50;

/* A central directory of 64 entries with their names fits many times over. */
enum { MAX_DIRECTORY_BYTES = 1 << 20 };

static void put16(unsigned char *to, uint32_t x)
{
    to[0] = (unsigned char)x;
    to[1] = (unsigned char)(x >> 8);
}

static void put32(unsigned char *to, uint32_t x)
{
    put16(to, x);
    put16(to + 2, x >> 16);
}

static uint32_t get16(const unsigned char *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8;
}

static uint32_t get32(const unsigned char *from)
{
    return get16(from) | get16(from + 2) << 16;
}

static uint64_t get64(const unsigned char *from)
{
    return (uint64_t)get32(from) | (uint64_t)get32(from + 4) << 32;
}

/* --- writing ------------------------------------------------------------------------------- */

void oct_zip_begin(oct_zip *zip, const oct_stream *stream)
{
    zip->start = stream->bytes;
    zip->count = 0;
}

oct_status oct_zip_entry_begin(oct_zip *zip, oct_stream *stream, const char *name, oct_err *err)
{
    const size_t name_bytes = strlen(name);
    if (zip->count == OCT_ZIP_MAX_ENTRIES || name_bytes >= OCT_ZIP_NAME_BYTES)
        return OCT_FAIL(err, OCT_E_API, "cannot add '%s' to an archive of %d entries in '%s'", name,
                        zip->count, stream->file.path);
    oct_zip_entry *entry = &zip->entries[zip->count++];
    *entry = (oct_zip_entry){.offset = stream->bytes - zip->start};
    memcpy(entry->name, name, name_bytes);
    /* The FB field pads the payload to its alignment; its own header takes 4 bytes. */
    const uint64_t unpadded = entry->offset + LOCAL_BYTES + name_bytes + 4;
    const uint32_t fill = (uint32_t)((OCT_ZIP_PAYLOAD_ALIGN - unpadded % OCT_ZIP_PAYLOAD_ALIGN) %
                                     OCT_ZIP_PAYLOAD_ALIGN);
    unsigned char header[LOCAL_BYTES] = {0};
    put32(header, LOCAL_MAGIC);
    put16(header + 4, VERSION);
    put16(header + 6, FLAG_UTF8 | FLAG_DESCRIPTOR);
    put16(header + 12, DOS_DATE_1980_01_01);
    put16(header + 26, (uint32_t)name_bytes);
    put16(header + 28, 4 + fill);
    unsigned char extra[4 + OCT_ZIP_PAYLOAD_ALIGN];
    put16(extra, EXTRA_FB);
    put16(extra + 2, fill);
    memset(extra + 4, 'Z', fill);
    OCT_TRY(oct_stream_write(stream, header, sizeof header, NULL, err));
    OCT_TRY(oct_stream_write(stream, name, name_bytes, NULL, err));
    return oct_stream_write(stream, extra, 4 + fill, NULL, err);
}

oct_status oct_zip_entry_write(oct_zip *zip, oct_stream *stream, const void *data, size_t bytes,
                               oct_err *err)
{
    oct_zip_entry *entry = &zip->entries[zip->count - 1];
    if (bytes > OCT_ZIP_MAX_ENTRY_BYTES - entry->bytes)
        return OCT_FAIL(
            err, OCT_E_UNSUPPORTED,
            "cannot write '%s': entry '%s' would pass %u bytes, one row of a tensor has "
            "to be smaller",
            stream->file.path, entry->name, OCT_ZIP_MAX_ENTRY_BYTES);
    entry->bytes += bytes;
    return oct_stream_write(stream, data, bytes, &entry->crc, err);
}

oct_status oct_zip_entry_end(oct_zip *zip, oct_stream *stream, oct_err *err)
{
    const oct_zip_entry *entry = &zip->entries[zip->count - 1];
    unsigned char descriptor[DESCRIPTOR_BYTES];
    put32(descriptor, DESCRIPTOR_MAGIC);
    put32(descriptor + 4, entry->crc);
    put32(descriptor + 8, (uint32_t)entry->bytes);
    put32(descriptor + 12, (uint32_t)entry->bytes);
    return oct_stream_write(stream, descriptor, sizeof descriptor, NULL, err);
}

oct_status oct_zip_add(oct_zip *zip, oct_stream *stream, const char *name, const void *data,
                       size_t bytes, oct_err *err)
{
    OCT_TRY(oct_zip_entry_begin(zip, stream, name, err));
    OCT_TRY(oct_zip_entry_write(zip, stream, data, bytes, err));
    return oct_zip_entry_end(zip, stream, err);
}

oct_status oct_zip_end(oct_zip *zip, oct_stream *stream, uint64_t *length, oct_err *err)
{
    const uint64_t directory = stream->bytes - zip->start;
    if (directory > OCT_ZIP_MAX_ENTRY_BYTES)
        return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                        "cannot write '%s': an archive of %llu bytes, at most %u are possible",
                        stream->file.path, (unsigned long long)directory, OCT_ZIP_MAX_ENTRY_BYTES);
    for (int i = 0; i < zip->count; i++) {
        const oct_zip_entry *entry = &zip->entries[i];
        const size_t name_bytes = strlen(entry->name);
        unsigned char central[CENTRAL_BYTES] = {0};
        put32(central, CENTRAL_MAGIC);
        put16(central + 4, VERSION);
        put16(central + 6, VERSION);
        put16(central + 8, FLAG_UTF8 | FLAG_DESCRIPTOR);
        put16(central + 14, DOS_DATE_1980_01_01);
        put32(central + 16, entry->crc);
        put32(central + 20, (uint32_t)entry->bytes);
        put32(central + 24, (uint32_t)entry->bytes);
        put16(central + 28, (uint32_t)name_bytes);
        put32(central + 42, (uint32_t)entry->offset);
        OCT_TRY(oct_stream_write(stream, central, sizeof central, NULL, err));
        OCT_TRY(oct_stream_write(stream, entry->name, name_bytes, NULL, err));
    }
    unsigned char end[END_BYTES] = {0};
    put32(end, END_MAGIC);
    put16(end + 8, (uint32_t)zip->count);
    put16(end + 10, (uint32_t)zip->count);
    put32(end + 12, (uint32_t)(stream->bytes - zip->start - directory));
    put32(end + 16, (uint32_t)directory);
    OCT_TRY(oct_stream_write(stream, end, sizeof end, NULL, err));
    *length = stream->bytes - zip->start;
    return OCT_OK;
}

/* --- reading ------------------------------------------------------------------------------- */

/* Where the central directory lies, relative to the archive. */
typedef struct directory_place {
    uint64_t offset, bytes, entries;
} directory_place;

static oct_status corrupt(const oct_file *file, uint64_t start, const char *what, oct_err *err)
{
    return OCT_FAIL(err, OCT_E_CORRUPT, "cannot read the archive at byte %llu of '%s': %s",
                    (unsigned long long)start, file->path, what);
}

/* The end record stands at the very end: torch and octet write no archive comment. */
static oct_status find_directory(const oct_file *file, uint64_t start, uint64_t length,
                                 directory_place *out, oct_err *err)
{
    unsigned char end[END_BYTES];
    if (length < END_BYTES)
        return corrupt(file, start, "too short for an end record", err);
    OCT_TRY(oct_file_read(file, end, sizeof end, start + length - END_BYTES, err));
    if (get32(end) != END_MAGIC || get16(end + 4) != 0 || get16(end + 6) != 0 ||
        get16(end + 20) != 0)
        return corrupt(file, start, "no end record at its end", err);
    *out = (directory_place){
        .offset = get32(end + 16), .bytes = get32(end + 12), .entries = get16(end + 10)};
    uint64_t limit = length - END_BYTES;
    const bool needs64 =
        out->offset == 0xffffffffu || out->bytes == 0xffffffffu || out->entries == 0xffff;
    unsigned char locator[LOCATOR64_BYTES] = {0};
    if (limit >= LOCATOR64_BYTES)
        OCT_TRY(oct_file_read(file, locator, sizeof locator, start + limit - LOCATOR64_BYTES, err));
    if (get32(locator) == LOCATOR64_MAGIC) {
        const uint64_t at = get64(locator + 8);
        unsigned char end64[END64_BYTES];
        limit -= LOCATOR64_BYTES;
        if (limit < END64_BYTES || at != limit - END64_BYTES)
            return corrupt(file, start, "the zip64 end record is not where its locator says", err);
        OCT_TRY(oct_file_read(file, end64, sizeof end64, start + at, err));
        if (get32(end64) != END64_MAGIC || get64(end64 + 4) != END64_BYTES - 12)
            return corrupt(file, start, "no zip64 end record", err);
        limit = at;
        *out = (directory_place){
            .offset = get64(end64 + 48), .bytes = get64(end64 + 40), .entries = get64(end64 + 32)};
    } else if (needs64) {
        return corrupt(file, start, "no zip64 locator", err);
    }
    if (out->entries == 0 || out->entries > OCT_ZIP_MAX_ENTRIES)
        return corrupt(file, start, "1 to 64 entries are required", err);
    if (out->bytes > MAX_DIRECTORY_BYTES || out->bytes > limit || out->offset != limit - out->bytes)
        return corrupt(file, start, "the directory does not end at the end record", err);
    return OCT_OK;
}

/* Sizes and offset of a central record that overflow into its zip64 field, in this order. */
static bool read_zip64(const unsigned char *extra, size_t bytes, uint64_t values[3],
                       const bool wanted[3])
{
    while (bytes >= 4) {
        const size_t field = get16(extra + 2);
        if (field > bytes - 4)
            return false;
        if (get16(extra) == EXTRA_ZIP64) {
            size_t at = 0;
            for (int i = 0; i < 3; i++) {
                if (!wanted[i])
                    continue;
                if (field - at < 8)
                    return false;
                values[i] = get64(extra + 4 + at);
                at += 8;
            }
            return true;
        }
        extra += 4 + field;
        bytes -= 4 + field;
    }
    return false;
}

/* Parses one central record of at most `left` bytes; its length goes to *used. The entry's offset
 * is that of the local header for now. */
static oct_status read_central(const oct_file *file, uint64_t start, const unsigned char *record,
                               size_t left, oct_zip_entry *entry, size_t *used, oct_err *err)
{
    if (left < CENTRAL_BYTES || get32(record) != CENTRAL_MAGIC)
        return corrupt(file, start, "a directory record is damaged", err);
    const size_t name_bytes = get16(record + 28), extra_bytes = get16(record + 30),
                 comment_bytes = get16(record + 32);
    *used = CENTRAL_BYTES + name_bytes + extra_bytes + comment_bytes;
    if (*used > left || name_bytes == 0 || name_bytes >= OCT_ZIP_NAME_BYTES)
        return corrupt(file, start, "a directory record is damaged", err);
    *entry = (oct_zip_entry){.crc = get32(record + 16)};
    memcpy(entry->name, record + CENTRAL_BYTES, name_bytes);
    if (strlen(entry->name) != name_bytes)
        return corrupt(file, start, "an entry's name is damaged", err);
    if (get16(record + 10) != 0 || (get16(record + 8) & FLAG_ENCRYPTED))
        return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                        "cannot read entry '%s' at byte %llu of '%s': compressed or encrypted, a "
                        "stored entry is required",
                        entry->name, (unsigned long long)start, file->path);
    uint64_t values[3] = {get32(record + 24), get32(record + 20), get32(record + 42)};
    const bool wanted[3] = {values[0] == 0xffffffffu, values[1] == 0xffffffffu,
                            values[2] == 0xffffffffu};
    if ((wanted[0] || wanted[1] || wanted[2]) &&
        !read_zip64(record + CENTRAL_BYTES + name_bytes, extra_bytes, values, wanted))
        return corrupt(file, start, "a zip64 field is damaged", err);
    if (values[0] != values[1])
        return corrupt(file, start, "a stored entry has two sizes", err);
    entry->bytes = values[0];
    entry->offset = values[2];
    return OCT_OK;
}

/* Turns the offset of a local header into that of the payload. */
static oct_status locate_payload(const oct_file *file, uint64_t start, uint64_t limit,
                                 oct_zip_entry *entry, oct_err *err)
{
    unsigned char header[LOCAL_BYTES + OCT_ZIP_NAME_BYTES];
    const size_t name_bytes = strlen(entry->name);
    if (entry->offset > limit || limit - entry->offset < LOCAL_BYTES + name_bytes)
        return corrupt(file, start, "a local header lies outside", err);
    OCT_TRY(oct_file_read(file, header, LOCAL_BYTES + name_bytes, start + entry->offset, err));
    if (get32(header) != LOCAL_MAGIC || get16(header + 26) != name_bytes ||
        memcmp(header + LOCAL_BYTES, entry->name, name_bytes) != 0)
        return corrupt(file, start, "a local header does not match the directory", err);
    const uint64_t payload = entry->offset + LOCAL_BYTES + name_bytes + get16(header + 28);
    if (payload > limit || limit - payload < entry->bytes)
        return corrupt(file, start, "a payload lies outside", err);
    entry->offset = start + payload;
    return OCT_OK;
}

static oct_status read_directory(const oct_file *file, const directory_place *place,
                                 const unsigned char *directory, oct_zip *out, oct_err *err)
{
    size_t at = 0;
    for (uint64_t i = 0; i < place->entries; i++) {
        size_t used = 0;
        oct_zip_entry *entry = &out->entries[i];
        OCT_TRY(read_central(file, out->start, directory + at, (size_t)place->bytes - at, entry,
                             &used, err));
        OCT_TRY(locate_payload(file, out->start, place->offset, entry, err));
        at += used;
    }
    if (at != place->bytes)
        return corrupt(file, out->start, "bytes follow the last directory record", err);
    out->count = (int)place->entries;
    return OCT_OK;
}

oct_status oct_zip_read(const oct_file *file, uint64_t start, uint64_t length, oct_zip *out,
                        oct_err *err)
{
    directory_place place = {0};
    out->start = start;
    out->count = 0;
    OCT_TRY(find_directory(file, start, length, &place, err));
    unsigned char *directory = malloc((size_t)place.bytes + 1);
    if (!directory)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot read '%s': no memory for %llu bytes", file->path,
                        (unsigned long long)place.bytes);
    oct_status status =
        oct_file_read(file, directory, (size_t)place.bytes, start + place.offset, err);
    if (status == OCT_OK)
        status = read_directory(file, &place, directory, out, err);
    free(directory);
    return status;
}

const oct_zip_entry *oct_zip_find(const oct_zip *zip, const char *suffix)
{
    for (int i = 0; i < zip->count; i++) {
        const char *slash = strchr(zip->entries[i].name, '/');
        if (slash && strcmp(slash + 1, suffix) == 0)
            return &zip->entries[i];
    }
    return NULL;
}

oct_status oct_zip_check_crc(const oct_file *file, const oct_zip_entry *entry, uint32_t crc,
                             oct_err *err)
{
    if (crc == entry->crc)
        return OCT_OK;
    return OCT_FAIL(err, OCT_E_CORRUPT,
                    "cannot read entry '%s' of '%s': CRC-32 %08x, %08x is required (byte %llu)",
                    entry->name, file->path, crc, entry->crc, (unsigned long long)entry->offset);
}

oct_status oct_zip_load(const oct_file *file, const oct_zip_entry *entry, size_t limit_bytes,
                        unsigned char **data, oct_err *err)
{
    if (entry->bytes > limit_bytes)
        return OCT_FAIL(err, OCT_E_CORRUPT,
                        "cannot read entry '%s' of '%s': %llu bytes, at most %zu are allowed",
                        entry->name, file->path, (unsigned long long)entry->bytes, limit_bytes);
    const size_t bytes = (size_t)entry->bytes;
    unsigned char *copy = malloc(bytes + 1);
    if (!copy)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot read '%s': no memory for %zu bytes", file->path,
                        bytes);
    oct_status status = oct_file_read(file, copy, bytes, entry->offset, err);
    if (status == OCT_OK)
        status =
            oct_zip_check_crc(file, entry, (uint32_t)crc32_z(crc32(0, NULL, 0), copy, bytes), err);
    if (status != OCT_OK) {
        free(copy);
        return status;
    }
    *data = copy;
    return OCT_OK;
}
