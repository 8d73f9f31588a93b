/* The files of a distributed checkpoint: metadata rules, and both directions against Python's own
 * pickle and zipfile (left out, with a message, where there is no python3). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "checkpoint/dcp.h"
#include "unit/scratch_dir.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        const oct_status ok_status_ = (call);                                                      \
        if (ok_status_ != OCT_OK)                                                                  \
            fail_msg("%s", err.msg);                                                               \
    } while (0)

static const int64_t shape[2] = {5, 3};
static const float values[15] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 2.5f, 3.0f, 3.5f,
                                 4.0f, 4.5f, 5.0f, 5.5f, 6.0f, 6.5f, 7.0f};

/* --- metadata rules ------------------------------------------------------------------------ */

/* The metadata of one tensor "w" with these chunks. */
static oct_status round_trip(const oct_dcp_chunk *chunks, int64_t count, oct_err *err)
{
    oct_item_list list;
    oct_pickle_writer pickle = {0};
    oct_dcp_metadata metadata = {0};
    oct_item_list_init(&list);
    oct_status status = oct_item_add_tensor(&list, "w", OCT_DTYPE_F32, 2, shape, values, err);
    if (status == OCT_OK)
        status = oct_dcp_write_metadata(&list, chunks, count, &pickle, err);
    if (status == OCT_OK)
        status = oct_dcp_read_metadata(pickle.data, pickle.bytes, ".metadata", &metadata, err);
    oct_dcp_metadata_release(&metadata);
    oct_pickle_writer_release(&pickle);
    oct_item_list_release(&list);
    return status;
}

static void read_metadata__covers__exact_ones_only(void **state)
{
    (void)state;
    static const struct {
        const char *problem; /* NULL: fine */
        int64_t count;
        int64_t rows[3][2];
    } rows[] = {
        {NULL, 1, {{0, 5}}},
        {NULL, 3, {{3, 2}, {0, 1}, {1, 2}}},
        {"rows are missing", 2, {{0, 2}, {3, 2}}},
        {"rows are missing", 1, {{0, 4}}},
        {"rows are missing", 1, {{1, 4}}},
        {"chunks overlap", 2, {{0, 3}, {2, 3}}},
        {"lies outside its tensor", 2, {{0, 3}, {3, 3}}},
        {"lies outside its tensor", 1, {{-1, 6}}},
        {"two records for one chunk", 2, {{0, 5}, {0, 5}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        oct_err err = {0};
        oct_dcp_chunk chunks[3];
        for (int64_t c = 0; c < rows[i].count; c++)
            chunks[c] = (oct_dcp_chunk){.row_begin = rows[i].rows[c][0],
                                        .rows = rows[i].rows[c][1],
                                        .file = "__0_0.distcp",
                                        .offset = (uint64_t)c * 4096,
                                        .length = 100};
        const oct_status status = round_trip(chunks, rows[i].count, &err);
        assert_int_equal(status, rows[i].problem ? OCT_E_CORRUPT : OCT_OK);
        if (rows[i].problem && (!strstr(err.msg, rows[i].problem) || !strstr(err.msg, "('w')")))
            fail_msg("row %zu: '%s' is not in '%s'", i, rows[i].problem, err.msg);
    }
}

static void read_metadata__paths_out_of_the_directory__refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"../x", "a/b",       "/etc/passwd", "..",
                                        "",     ".metadata", "a..b"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        oct_err err = {0};
        const oct_dcp_chunk chunk = {.rows = 5, .file = wrong[i], .length = 10};
        assert_int_equal(round_trip(&chunk, 1, &err), OCT_E_CORRUPT);
        assert_non_null(strstr(err.msg, "leads out of the directory"));
    }
    oct_err err = {0};
    const oct_dcp_chunk chunk = {
        .rows = 5, .file = "x", .offset = (uint64_t)INT64_MAX, .length = 10};
    assert_int_equal(round_trip(&chunk, 1, &err), OCT_E_CORRUPT);
}

/* Chunks near the cap: whole rows, as many as fit, at least one. */
static void write_items__chunk_caps__whole_rows(void **state)
{
    (void)state;
    static const int64_t caps[][2] = {{1, 5}, {12, 5}, {23, 5}, {24, 3}, {36, 2}, {59, 2}, {60, 1}};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        oct_err err = {0};
        oct_item_list list;
        oct_stream stream;
        oct_dcp_chunk *chunks = NULL;
        int64_t count = 0;
        const char *path = scratch_path("chunks");
        (void)unlink(path);
        oct_item_list_init(&list);
        OK(oct_item_add_tensor(&list, "w", OCT_DTYPE_F32, 2, shape, values, &err));
        OK(oct_stream_create(&oct_file_table_real, path, 0, &stream, &err));
        OK(oct_dcp_write_items(&stream, "chunks", &list, (oct_dcp_part){0, 1}, caps[i][0], &chunks,
                               &count, &err));
        OK(oct_stream_finish(&stream, &err));
        assert_int_equal(count, caps[i][1]);
        assert_true(stream.bytes <=
                    oct_dcp_estimate_bytes(&list, (oct_dcp_part){0, 1}, caps[i][0]));
        int64_t next = 0;
        for (int64_t c = 0; c < count; c++) {
            assert_int_equal(chunks[c].row_begin, next);
            assert_int_equal(chunks[c].offset % OCT_DCP_ARCHIVE_ALIGN, 0);
            next += chunks[c].rows;
        }
        assert_int_equal(next, 5);
        free(chunks);
        oct_item_list_release(&list);
    }
}

/* --- Python -------------------------------------------------------------------------------- */

static bool has_python(void)
{
    if (system("python3 -c 'import zipfile' 2>/dev/null") == 0)
        return true;
    print_message("python3 is not here: the comparison is left out\n");
    return false;
}

/* Runs dcp_python.py and returns what it prints, or NULL if it fails. */
static char *run_python(const char *mode, const char *dir)
{
    static char out[8192];
    char command[1024];
    (void)snprintf(command, sizeof command, "python3 %s/tests/unit/dcp_python.py %s %s",
                   OCTET_SOURCE_DIR, mode, dir);
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return NULL;
    const size_t n = fread(out, 1, sizeof out - 1, pipe);
    out[n] = '\0';
    return pclose(pipe) == 0 ? out : NULL;
}

static void save__python_reads__same_values(void **state)
{
    (void)state;
    oct_err err = {0};
    if (!has_python())
        return;
    oct_item_list list;
    oct_checkpoint_writer *writer = NULL;
    const oct_checkpoint_options options = {.root = scratch_dir, .chunk_bytes = 30};
    const oct_checkpoint_meta meta = {0};
    const int64_t ints[3] = {-1, 70000, (int64_t)1 << 40};
    const int64_t empty[2] = {0, 3};
    oct_item_list_init(&list);
    OK(oct_item_add_tensor(&list, "f", OCT_DTYPE_F32, 2, shape, values, &err));
    OK(oct_item_add_tensor(&list, "b", OCT_DTYPE_BF16, 2, shape, values, &err));
    OK(oct_item_add_tensor(&list, "e", OCT_DTYPE_F32, 2, empty, values, &err));
    OK(oct_item_add_tensor(&list, "s", OCT_DTYPE_F32, 0, NULL, values + 3, &err));
    OK(oct_item_add_int(&list, "train_state", "i", INT64_MIN, &err));
    OK(oct_item_add_float(&list, "train_state", "x", 0.1, &err));
    OK(oct_item_add_bool(&list, "train_state", "t", true, &err));
    OK(oct_item_add_string(&list, "train_state", "u", "\xc3\xa9", &err));
    OK(oct_item_add_bytes(&list, "train_state", "y", "\0\xff", 2, &err));
    OK(oct_item_add_ints(&list, "train_state", "z", ints, 3, &err));
    OK(oct_checkpoint_writer_create(&options, &writer, &err));
    OK(oct_checkpoint_save(writer, 3, &list, &meta, &err));
    oct_checkpoint_writer_destroy(writer);
    oct_item_list_release(&list);
    const char *out = run_python("read", scratch_path("step-3"));
    assert_non_null(out);
    assert_string_equal(
        out, "b ('bfloat16', (5, 3), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, "
             "6.0, 6.5, 7.0])\n"
             "e ('float32', (0, 3), [])\n"
             "f ('float32', (5, 3), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, "
             "6.0, 6.5, 7.0])\n"
             "s ('float32', (), [1.5])\n"
             "train_state.i -9223372036854775808\n"
             "train_state.t True\n"
             "train_state.u \xc3\xa9\n"
             "train_state.x 0.1\n"
             "train_state.y b'\\x00\\xff'\n"
             "train_state.z [-1, 70000, 1099511627776]\n");
    oct_checkpoint *cp = NULL;
    OK(oct_checkpoint_open_step(NULL, scratch_dir, 3, OCT_VERIFY_CRC, &cp, &err));
    OK(oct_checkpoint_read_tensor(cp, "e", 2, empty, NULL, &err));
    oct_checkpoint_close(cp);
    OK(oct_checkpoint_verify(NULL, scratch_path("step-3"), NULL, NULL, &err));
}

static void open__python_wrote_as_torch_does__same_values(void **state)
{
    (void)state;
    oct_err err = {0};
    if (!has_python())
        return;
    assert_int_equal(mkdir(scratch_path("torch"), 0777), 0);
    assert_non_null(run_python("write", scratch_path("torch")));
    oct_checkpoint *cp = NULL;
    OK(oct_checkpoint_open(NULL, scratch_path("torch"), OCT_VERIFY_CRC, NULL, NULL, &cp, &err));
    float out[15] = {0};
    OK(oct_checkpoint_read_tensor(cp, "w", 2, shape, out, &err));
    assert_memory_equal(out, values, sizeof out);
    OK(oct_checkpoint_read_rows(cp, "w", 2, shape, 2, 2, out, &err));
    assert_memory_equal(out, values + 6, 6 * sizeof *out);
    oct_arena arena;
    oct_arena_init(&arena, "test");
    const int64_t *ints = NULL;
    int64_t count = 0;
    OK(oct_checkpoint_read_ints(cp, "ints", &arena, &ints, &count, &err));
    assert_true(count == 3 && ints[0] == 1 && ints[2] == 3);
    oct_arena_release(&arena);
    oct_checkpoint_close(cp);
    OK(oct_checkpoint_verify(NULL, scratch_path("torch"), NULL, NULL, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_metadata__covers__exact_ones_only),
        cmocka_unit_test(read_metadata__paths_out_of_the_directory__refused),
        cmocka_unit_test(write_items__chunk_caps__whole_rows),
        cmocka_unit_test(save__python_reads__same_values),
        cmocka_unit_test(open__python_wrote_as_torch_does__same_values),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
