#include "checkpoint/commit.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "checkpoint/dcp.h"

static const char FORMAT[] = "octet-dcp";
enum { SCHEMA = 1 };

/* `, "self_crc32": "01234567"}` */
enum { SUFFIX_BYTES = 27 };

static uint32_t crc_of(const char *text, size_t bytes)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const unsigned char *)text, bytes);
}

oct_status oct_commit_write(const oct_commit *commit, oct_json *out, oct_err *err)
{
    json_t *model = json_loads(commit->model_json, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!model)
        return OCT_FAIL(err, OCT_E_API, "cannot write %s: the model's fingerprint is no JSON value",
                        OCT_COMMIT_FILE);
    json_decref(model);
    oct_json_object(out, NULL);
    oct_json_string(out, "format", FORMAT);
    oct_json_int(out, "schema", SCHEMA);
    oct_json_int(out, "step", commit->step);
    oct_json_int(out, "world", commit->world);
    oct_json_string(out, "config_hash", commit->config_hash);
    oct_json_raw(out, "model", commit->model_json);
    oct_json_object(out, "files");
    for (int64_t i = 0; i < commit->file_count; i++) {
        const oct_commit_file *file = &commit->files[i];
        oct_json_array(out, file->name);
        oct_json_int(out, NULL, (int64_t)file->bytes);
        oct_json_int(out, NULL, file->crc);
        oct_json_end(out);
    }
    oct_json_end(out);
    char self[16];
    (void)snprintf(self, sizeof self, "%08x", out->text ? crc_of(out->text, out->bytes) : 0);
    oct_json_string(out, "self_crc32", self);
    oct_json_end(out);
    return oct_json_finish(out, err);
}

static oct_status bad(const char *where, const char *what, oct_err *err)
{
    return OCT_FAIL(err, OCT_E_CORRUPT, "cannot use '%s': %s", where, what);
}

static oct_status copy_text(oct_arena *arena, const char *text, const char **out, oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_alloc(arena, strlen(text) + 1, &memory, err));
    memcpy(memory, text, strlen(text) + 1);
    *out = memory;
    return OCT_OK;
}

static oct_status read_files(json_t *files, const char *where, oct_arena *arena, oct_commit *out,
                             oct_err *err)
{
    void *memory = NULL;
    OCT_TRY(oct_arena_array(arena, (int64_t)json_object_size(files) + 1, sizeof(oct_commit_file),
                            &memory, err));
    oct_commit_file *list = memory;
    const char *name;
    json_t *value;
    json_object_foreach(files, name, value)
    {
        json_t *bytes = json_array_get(value, 0), *crc = json_array_get(value, 1);
        if (json_array_size(value) != 2 || !json_is_integer(bytes) || !json_is_integer(crc) ||
            json_integer_value(bytes) < 0 || json_integer_value(crc) < 0 ||
            json_integer_value(crc) > UINT32_MAX ||
            !(oct_dcp_is_file_name(name) || strcmp(name, OCT_METADATA_FILE) == 0))
            return bad(where, "an entry of files is not \"name\": [bytes, crc32]", err);
        oct_commit_file *file = &list[out->file_count++];
        OCT_TRY(copy_text(arena, name, &file->name, err));
        file->bytes = (uint64_t)json_integer_value(bytes);
        file->crc = (uint32_t)json_integer_value(crc);
    }
    out->files = list;
    return OCT_OK;
}

static oct_status read_members(json_t *root, const char *where, oct_arena *arena, oct_commit *out,
                               oct_err *err)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    json_t *schema = json_object_get(root, "schema"), *step = json_object_get(root, "step"),
           *world = json_object_get(root, "world"), *files = json_object_get(root, "files"),
           *model = json_object_get(root, "model");
    const char *hash = json_string_value(json_object_get(root, "config_hash"));
    if (!format || strcmp(format, FORMAT) != 0)
        return bad(where, "its format is not \"octet-dcp\"", err);
    if (!json_is_integer(schema) || json_integer_value(schema) != SCHEMA)
        return bad(where, "its schema is not 1", err);
    if (!json_is_integer(step) || json_integer_value(step) < 0 || !json_is_integer(world) ||
        json_integer_value(world) < 1 || !hash || !model || !json_is_object(files))
        return bad(where, "step, world, config_hash, model or files is missing", err);
    out->step = json_integer_value(step);
    out->world = json_integer_value(world);
    OCT_TRY(copy_text(arena, hash, &out->config_hash, err));
    char *text = json_dumps(model, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text)
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot read '%s': no memory", where);
    const oct_status status = copy_text(arena, text, &out->model_json, err);
    free(text);
    OCT_TRY(status);
    return read_files(files, where, arena, out, err);
}

oct_status oct_commit_read(const char *text, size_t bytes, const char *where, oct_arena *arena,
                           oct_commit *out, oct_err *err)
{
    *out = (oct_commit){0};
    if (bytes < SUFFIX_BYTES)
        return bad(where, "too short for a commit record", err);
    char suffix[SUFFIX_BYTES + 1];
    const size_t body = bytes - SUFFIX_BYTES;
    (void)snprintf(suffix, sizeof suffix, ", \"self_crc32\": \"%08x\"}", crc_of(text, body));
    if (memcmp(text + body, suffix, SUFFIX_BYTES) != 0)
        return bad(where, "its own CRC-32 does not match", err);
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return OCT_FAIL(err, OCT_E_CORRUPT, "cannot use '%s': %s (line %d)", where, error.text,
                        error.line);
    const oct_status status = read_members(root, where, arena, out, err);
    json_decref(root);
    return status;
}

const oct_commit_file *oct_commit_find(const oct_commit *commit, const char *name)
{
    for (int64_t i = 0; i < commit->file_count; i++)
        if (strcmp(commit->files[i].name, name) == 0)
            return &commit->files[i];
    return NULL;
}
