/* The file of a machine: what it must hold, and what is said of one that is wrong; the time of a
 * step of a small model, computed by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "trainer/step_time.h"
#include "unit/small_config.h"
#include "unit/temp_dir.h"

/* Every rate is another number. */
static const char machine[] = "cpu: one of the test\n"
                              "threads_per_rank: 3\n"
                              "ranks_per_node: 1\n"
                              "thread_efficiency: 0.5\n"
                              "products: {bf16: 2, mxfp8_e4m3: 4, hif8: 8}\n"
                              "experts: {bf16: 16, mxfp8_e4m3: 32, hif8: 64}\n"
                              "optimizer: {bf16: 5.0, mxfp8_e4m3: 10.0, hif8: 20.0}\n"
                              "attention: 128\n"
                              "pack: 0.25\n"
                              "copy: 256.0\n"
                              "node_copy: 512\n"
                              "local: {gbytes: 3, microseconds: 7}\n"
                              "remote: {gbytes: 0.75, microseconds: 11}\n";

static temp_dir files;

static int make_files(void **state)
{
    (void)state;
    files = temp_dir_create();
    char yaml[1024];
    temp_dir_write(&files, "machine.yaml", machine);
    temp_dir_make(&files, "small");
    temp_dir_write(&files, "small/config.json", small_config);
    (void)snprintf(yaml, sizeof yaml,
                   "base: %s/configs/base.yaml\n"
                   "model:\n  config_name_or_path: %s/small\n"
                   "low_precision:\n  enabled: true\n"
                   "training:\n  seq_length: 64\n  micro_batch_size: 1\n  global_batch_size: 6\n",
                   OCTET_SOURCE_DIR, files.path);
    temp_dir_write(&files, "small.yaml", yaml);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    temp_dir_remove(&files);
    return 0;
}

/* --- the file --------------------------------------------------------------------------------- */

static void machine_read__all_keys__values(void **state)
{
    (void)state;
    oct_arena arena;
    oct_machine m;
    oct_err err = {0};
    oct_arena_init(&arena, "test machine");
    if (oct_machine_read(temp_dir_name(&files, "machine.yaml"), &arena, &m, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    assert_string_equal(m.cpu, "one of the test");
    assert_int_equal(m.threads_per_rank, 3);
    assert_int_equal(m.ranks_per_node, 1);
    assert_true(m.thread_efficiency == 0.5);
    for (int f = 0; f < OCT_MACHINE_FORMATS; f++) {
        assert_true(m.products.of[f] == 2.0 * (1 << f));
        assert_true(m.experts.of[f] == 16.0 * (1 << f));
        assert_true(m.optimizer.of[f] == 5.0 * (1 << f));
    }
    assert_true(m.attention == 128.0 && m.pack == 0.25 && m.copy == 256.0 && m.node_copy == 512.0);
    assert_true(m.local.gbytes == 3.0 && m.local.microseconds == 7.0);
    assert_true(m.remote.gbytes == 0.75 && m.remote.microseconds == 11.0);
    oct_arena_release(&arena);
}

/* The good file with `from` replaced by `to` is refused with a message that holds both words. */
static void assert_refused(const char *from, const char *to, const char *word, const char *where)
{
    char text[sizeof machine + 100];
    const char *at = strstr(machine, from);
    assert_non_null(at);
    (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - machine), machine, to,
                   at + strlen(from));
    temp_dir_write(&files, "wrong.yaml", text);
    oct_arena arena;
    oct_machine m;
    oct_err err = {0};
    oct_arena_init(&arena, "test machine");
    assert_int_equal(oct_machine_read(temp_dir_name(&files, "wrong.yaml"), &arena, &m, &err),
                     OCT_E_CONFIG);
    if (!strstr(err.msg, word) || !strstr(err.msg, where))
        fail_msg("'%s' lacks '%s' or '%s'", err.msg, word, where);
    oct_arena_release(&arena);
}

static void machine_read__wrong_file__told_by_key_and_line(void **state)
{
    (void)state;
    assert_refused(
        "pack:", "pak:", "unknown key 'pak' of a machine: the nearest known key is 'pack'",
        "wrong.yaml:9");
    assert_refused("hif8: 8}", "hif9: 8}", "unknown key 'products.hif9'", "wrong.yaml:5");
    assert_refused("local: {gbytes: 3, microseconds: 7}", "local: 3", "unknown key 'local'",
                   "wrong.yaml:12");
    assert_refused("copy: 256.0\n", "", "'copy' is not there, a finite number > 0 is required",
                   "wrong.yaml");
    assert_refused("gbytes: 3, ", "", "'local.gbytes' is not there", "wrong.yaml");
    assert_refused("attention: 128", "attention: -128",
                   "cannot use 'attention' of a machine: integer -128, a finite number > 0",
                   "wrong.yaml:8");
    assert_refused("attention: 128", "attention: 0", "integer 0, a finite number > 0",
                   "wrong.yaml:8");
}

static void machine_read__values_out_of_range__told(void **state)
{
    (void)state;
    assert_refused("attention: 128", "attention: .nan", "a finite number > 0 is required",
                   "wrong.yaml:8");
    assert_refused("attention: 128", "attention: fast", "string \"fast\"", "wrong.yaml:8");
    assert_refused("thread_efficiency: 0.5", "thread_efficiency: 1.5",
                   "a number > 0 and <= 1 is required", "wrong.yaml:4");
    assert_refused("threads_per_rank: 3", "threads_per_rank: 0", "an integer >= 1", "wrong.yaml:2");
    assert_refused("threads_per_rank: 3", "threads_per_rank: 2.5", "an integer >= 1",
                   "wrong.yaml:2");
    assert_refused("cpu: one of the test", "cpu: 7", "a string is required", "wrong.yaml:1");
    assert_refused("pack: 0.25", "copy: 1\npack: 0.25", "copy", "wrong.yaml");
}

static void machine_read__no_file__told(void **state)
{
    (void)state;
    oct_arena arena;
    oct_machine m;
    oct_err err = {0};
    oct_arena_init(&arena, "test machine");
    assert_int_equal(oct_machine_read(temp_dir_name(&files, "nowhere.yaml"), &arena, &m, &err),
                     OCT_E_IO);
    assert_non_null(strstr(err.msg, "nowhere.yaml"));
    oct_arena_release(&arena);
}

/* --- the time of a step ----------------------------------------------------------------------- */

typedef struct timed {
    oct_plan_report report;
    oct_step_time time;
    char json[4096];
} timed;

static timed time_of(int ranks, const char *const *words, int word_count,
                     void (*change)(oct_machine *machine))
{
    timed t;
    oct_arena arena;
    oct_config config;
    oct_build build;
    oct_machine m;
    oct_json json;
    oct_err err = {0};
    oct_arena_init(&arena, "test configuration");
    const char *const file = temp_dir_name(&files, "small.yaml");
    if (oct_config_load(&file, 1, words, word_count, &arena, NULL, NULL, &config, &err) != OCT_OK ||
        oct_config_resolve(&config, ranks, &err) != OCT_OK ||
        oct_machine_read(temp_dir_name(&files, "machine.yaml"), &arena, &m, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    if (change)
        change(&m);
    oct_build_init(&build, &config, NULL);
    if (oct_build_through(&build, OCT_STAGE_PLAN, &err) != OCT_OK ||
        oct_plan_report_make(&build, ranks, &t.report, &err) != OCT_OK)
        fail_msg("%s", err.msg);
    t.time = oct_step_time_of(&m, &build, &t.report);
    oct_json_init(&json);
    oct_json_object(&json, NULL);
    oct_step_time_json(&m, &t.time, &json);
    oct_json_end(&json);
    assert_int_equal(oct_json_finish(&json, &err), OCT_OK);
    (void)snprintf(t.json, sizeof t.json, "%s", json.text);
    oct_json_release(&json);
    oct_build_release(&build);
    oct_arena_release(&arena);
    return t;
}

static void assert_near(double found, double required)
{
    if (fabs(found - required) > 1e-12 * fabs(required))
        fail_msg("found %.17g, %.17g is required", found, required);
}

/* Matrices of 8 bits: q [128,64], kv_a [96,64], kv_b [128,64], o [64,64] twice; dense 3 x [128,64],
 * shared 3 x [64,64]; experts [4,128,64] and [4,64,64], two of four a token. Head [256,64] and
 * router [4,64] are not. */
enum {
    PRODUCTS = 2 * (8192 + 6144 + 8192 + 4096) + 3 * 8192 + 3 * 4096,
    EXPERTS = 32768 + 16384,
    HEAD = 16384,
    ROUTER = 256,
    SEQ = 64,
    SAMPLES = 6
};

/* 2 heads of 64 (scores) and 32 (context), 3.5 times the causal half, two layers. */
static const double attention_of_token = 3.5 * 2 * (64 + 32) * SEQ * 2;

/* Elements: two norms and two sums of 64, the latent of 64, heads; SwiGLU of 128; two slots (a row,
 * SwiGLU) and the shared expert; three times that, and the logits three times. */
static const double bytes_of_token = 2.0 * (3 * (2 * (10 * 64 + 4 * 64 + 2 * (4 * 64 + 2 * 32)) +
                                                 3 * 128 + 2 * (64 + 3 * 64) + 3 * 64 + 5 * 64) +
                                            3 * 256);

static void step_time__one_rank__operations_over_rates(void **state)
{
    (void)state;
    static const char *const words[] = {"training.threads=1"};
    const timed t = time_of(1, words, 1, NULL);
    const double tokens = SEQ * SAMPLES;
    const double total = PRODUCTS + EXPERTS + HEAD + ROUTER + 256 * 64 + 5 * 64 + 2 * 64;
    assert_int_equal(t.time.threads, 1);
    assert_near(t.time.products, 6e-9 * tokens * PRODUCTS / 4);
    assert_near(t.time.experts, 6e-9 * tokens * EXPERTS / 2 / 32);
    assert_near(t.time.head, 6e-9 * tokens * (HEAD + ROUTER) / 2);
    assert_near(t.time.attention, 1e-9 * tokens * attention_of_token / 128);
    assert_near(t.time.elementwise, 1e-9 * tokens * bytes_of_token / 256);
    assert_near(t.time.pack, 1e-6 * 2 * (PRODUCTS + EXPERTS) / 0.25); /* once a step */
    assert_near(t.time.optimizer, 1e-6 * total / 10);
    assert_near(t.time.all_gather, 0.0);
    assert_near(t.time.reduce_scatter, 0.0);
    assert_near(t.time.total, t.time.products + t.time.experts + t.time.head + t.time.attention +
                                  t.time.elementwise + t.time.pack + t.time.optimizer);
    assert_near(t.time.tokens_per_second, tokens / t.time.total);
    assert_near(t.time.communication_share, 0.0);
}

static void step_time__other_format_and_threads__other_rates(void **state)
{
    (void)state;
    static const char *const plain[] = {"low_precision.enabled=false"};
    static const char *const hif8[] = {"low_precision.format=hif8",
                                       "low_precision.scaling=current"};
    const double tokens = SEQ * SAMPLES;
    timed t = time_of(1, plain, 1, NULL);
    assert_int_equal(t.time.threads, 3); /* the machine's, each at half its rate */
    assert_near(t.time.products, 6e-9 * tokens * PRODUCTS / 2 / 1.5);
    assert_near(t.time.experts, 6e-9 * tokens * EXPERTS / 2 / 16 / 1.5);
    assert_near(t.time.attention, 1e-9 * tokens * attention_of_token / 128 / 1.5);
    assert_near(t.time.pack, 0.0);
    t = time_of(1, hif8, 2, NULL);
    assert_near(t.time.products, 6e-9 * tokens * PRODUCTS / 8 / 1.5);
    assert_near(t.time.experts, 6e-9 * tokens * EXPERTS / 2 / 64 / 1.5);
}

static void step_time__recompute__one_pass_more(void **state)
{
    (void)state;
    static const char *const words[] = {"training.threads=1", "training.global_batch_size=1",
                                        "gradient_checkpointing.activation_checkpoint=full"};
    const timed t = time_of(1, words, 3, NULL);
    assert_near(t.time.products, 8e-9 * SEQ * PRODUCTS / 4);
    assert_near(t.time.head, (6e-9 * HEAD + 8e-9 * ROUTER) * SEQ / 2);
    assert_near(t.time.attention, 1e-9 * SEQ * attention_of_token * 4.5 / 3.5 / 128);
    assert_near(t.time.pack, 1e-6 * 3 * (PRODUCTS + EXPERTS) / 0.25);
}

static void two_to_a_node(oct_machine *m)
{
    m->ranks_per_node = 2;
}

static void step_time__two_ranks__bytes_and_messages_over_links(void **state)
{
    (void)state;
    static const char *const words[] = {"training.threads=1"};
    timed t = time_of(2, words, 1, NULL);
    const double gathered = (double)t.report.all_gather_bytes;
    const double reduced = (double)t.report.reduce_scatter_bytes;
    /* Three micro-batches; each gathers four units forward and two backward, and reduces all
     * parameters, over one other node. */
    const double folds = 3.0 * (double)t.report.shard_count;
    assert_near(t.time.pack, 1e-6 * 3 * 2 * (PRODUCTS + EXPERTS) / 0.25);
    assert_near(t.time.products, 6e-9 * SEQ * 3 * PRODUCTS / 4);
    assert_near(t.time.all_gather,
                1e-9 * gathered / 3 + 1e-9 * gathered / 0.75 + 1e-6 * 3 * 6 * (7 + 11));
    assert_near(t.time.reduce_scatter,
                1e-9 * reduced / 3 + 1e-9 * reduced / 0.75 + 1e-6 * folds * (7 + 11));
    const double communication = t.time.all_gather + t.time.reduce_scatter;
    assert_near(t.time.total, t.time.products + t.time.experts + t.time.head + t.time.attention +
                                  t.time.elementwise + t.time.pack + t.time.optimizer +
                                  communication);
    assert_near(t.time.communication_share, communication / t.time.total);
    assert_near(t.time.tokens_per_second, SEQ * SAMPLES / t.time.total);
    t = time_of(2, words, 1, two_to_a_node);
    assert_near(t.time.all_gather, 1e-9 * gathered / 3 + 1e-6 * 3 * 6 * 7);
    assert_near(t.time.reduce_scatter, 1e-9 * reduced / 3 + 1e-6 * folds * 7);
    assert_near(t.time.products, 6e-9 * SEQ * 3 * PRODUCTS / 4 / 0.5); /* two busy threads */
}

/* Two of three others are on the other node: weights cross once for both ranks of a node, their
 * gradients twice. */
static void step_time__two_nodes_of_two__gradients_share_the_link(void **state)
{
    (void)state;
    static const char *const words[] = {"training.global_batch_size=4"};
    const timed t = time_of(4, words, 1, two_to_a_node);
    const double gathered = (double)t.report.all_gather_bytes;
    const double reduced = (double)t.report.reduce_scatter_bytes;
    const double folds = (double)t.report.shard_count;
    assert_near(t.time.all_gather,
                1e-9 * gathered / 3 + 1e-9 * gathered * 2 / 3 / 0.75 + 1e-6 * 6 * (7 + 11));
    assert_near(t.time.reduce_scatter, 1e-9 * reduced / 3 + 1e-9 * 2 * reduced * 2 / 3 / 0.75 +
                                           1e-6 * folds * (7 + 2 * 11));
}

static void slow_memory(oct_machine *m)
{
    m->ranks_per_node = 2;
    m->node_copy = 0.002;
}

static void step_time__two_ranks_on_slow_memory__share_it(void **state)
{
    (void)state;
    static const char *const words[] = {"training.threads=1"};
    const timed t = time_of(2, words, 1, slow_memory);
    assert_near(t.time.elementwise, 1e-9 * SEQ * 3 * bytes_of_token / 0.001);
    assert_near(t.time.optimizer, 1e-9 * 36 * (double)t.report.bytes.master / 4 / 0.001);
}

static void step_time_json__members(void **state)
{
    (void)state;
    const timed t = time_of(2, NULL, 0, NULL);
    static const char *const members[] = {"\"machine\": {\"cpu\": \"one of the test\"",
                                          "\"threads_per_rank\": 3",
                                          "\"step_seconds\": {\"products\": ",
                                          "\"experts\": ",
                                          "\"head\": ",
                                          "\"attention\": ",
                                          "\"elementwise\": ",
                                          "\"pack\": ",
                                          "\"optimizer\": ",
                                          "\"all_gather\": ",
                                          "\"reduce_scatter\": ",
                                          "\"total\": ",
                                          "\"tokens_per_second\": ",
                                          "\"communication_share\": 0."};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (!strstr(t.json, members[i]))
            fail_msg("%s lacks %s", t.json, members[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machine_read__all_keys__values),
        cmocka_unit_test(machine_read__wrong_file__told_by_key_and_line),
        cmocka_unit_test(machine_read__values_out_of_range__told),
        cmocka_unit_test(machine_read__no_file__told),
        cmocka_unit_test(step_time__one_rank__operations_over_rates),
        cmocka_unit_test(step_time__other_format_and_threads__other_rates),
        cmocka_unit_test(step_time__recompute__one_pass_more),
        cmocka_unit_test(step_time__two_ranks__bytes_and_messages_over_links),
        cmocka_unit_test(step_time__two_nodes_of_two__gradients_share_the_link),
        cmocka_unit_test(step_time__two_ranks_on_slow_memory__share_it),
        cmocka_unit_test(step_time_json__members),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
