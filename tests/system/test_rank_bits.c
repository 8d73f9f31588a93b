/* Loss, gradient norm, masters, moments, codes, scales and checkpoints are the same bits for every
 * number of ranks and every way to run them. OCTET_TEST_RANKS=full: all combinations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "team_fixture.h"

/* Runs, keeps the state, removes nothing: the caller frees. */
static team *run(const char *dir, int format, int ranks, int node_ranks, const char *const *words)
{
    team *t = team_create(ranks, node_ranks);
    train_team(&files, dir, format, NULL, words, t);
    assert_team_trained(t);
    for (int r = 1; r < ranks; r++)
        assert_int_equal(t->of[r]->row_count + t->of[r]->saves + t->of[r]->messages, 0);
    return t;
}

static uint64_t saved(const char *dir, int step)
{
    return checkpoint_hash(word("%s/%s/checkpoints/step-%d", files.path, dir, step));
}

static void assert_same_on_all_ranks(int format)
{
    static const int ranks[] = {2, 3, 4, 6, 8};
    const char *const *words =
        WORDS("training.stop_at_step=2", "training.seq_length=16", "training.micro_batch_size=1",
              "training.global_batch_size=24", "moe.bias_update_rate=0.01");
    const char *dir = word("one-%d", format);
    team *one = run(dir, format, 1, 0, words);
    const uint64_t payload = saved(dir, 2);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        dir = word("ranks-%d-%d", format, ranks[i]);
        team *several = run(dir, format, ranks[i], 0, words);
        assert_same_run(several, one);
        assert_true(saved(dir, 2) == payload);
        team_free(several);
    }
    team_free(one);
}

static void train__bf16_on_1_to_8_ranks__same_bits(void **state)
{
    (void)state;
    assert_same_on_all_ranks(0);
}

static void train__mxfp8_on_1_to_8_ranks__same_bits(void **state)
{
    (void)state;
    assert_same_on_all_ranks(1);
}

static void train__hif8_on_1_to_8_ranks__same_bits(void **state)
{
    (void)state;
    assert_same_on_all_ranks(2);
}

/* --- ways to run ------------------------------------------------------------------------------ */

enum { WAYS = 8 };
static const int options[WAYS] = {4, FORMATS, 2, 2, 3, 2, 2, 2};

/* One value of each factor. */
typedef union way {
    int of[WAYS];
    struct {
        int ranks, format, reshard, recompute, nodes, threads, async, even;
    };
} way;

/* Every pair of values of two factors is in one of these. */
static const way pairwise[] = {
    {{3, 2, 1, 1, 1, 0, 1, 1}},
    {{0, 1, 0, 0, 2, 1, 0, 0}},
    {{2, 0, 1, 1, 0, 1, 1, 0}},
    {{1, 0, 0, 0, 0, 0, 0, 1}},
    {{2, 2, 0, 0, 1, 1, 0, 0}},
    {{1, 1, 1, 1, 2, 0, 1, 1}},
    {{3, 1, 1, 0, 0, 1, 0, 0}},
    {{0, 0, 0, 1, 1, 1, 1, 1}},
    {{0, 2, 1, 0, 0, 0, 1, 0}},
    {{3, 0, 0, 1, 2, 1, 0, 1}},
    {{1, 1, 0, 0, 1, 1, 1, 0}},
    {{2, 1, 1, 0, 2, 0, 1, 1}},
    {{1, 2, 1, 1, 2, 1, 1, 0}},
    /* 8-bit blocks that an even cut would split: replicated weights on eight and four ranks */
    {{3, 1, 1, 0, 2, 0, 1, 1}},
    {{2, 1, 0, 1, 0, 1, 0, 1}},
};
enum { PAIRWISE = sizeof pairwise / sizeof *pairwise };

/* The words that change no bit, and with one rank say nothing. */
static team *run_way(const way *w, const char *dir)
{
    static const int ranks[] = {1, 2, 4, 8};
    return run(
        dir, w->format, ranks[w->ranks], w->nodes,
        WORDS(
            "training.stop_at_step=2", "training.seq_length=16", "training.micro_batch_size=1",
            "training.global_batch_size=8", "checkpoint.save_steps=1", "dataset.validation.every=2",
            "dataset.validation.steps=1", word("dataset.validation.path=%s/text.txt", files.path),
            word("fsdp_config.reshard_after_forward=%s", w->reshard ? "true" : "false"),
            word("gradient_checkpointing.activation_checkpoint=%s", w->recompute ? "full" : "off"),
            word("training.threads=%d", 1 + w->threads),
            word("checkpoint.async=%s", w->async ? "true" : "false"),
            word("fsdp_config.shard=%s", w->even ? "even" : "tile"),
            word("fsdp_config.fallback_to_unsharded=%s", w->even ? "true" : "false")));
}

static team *reference[FORMATS];
static uint64_t reference_payload[FORMATS];

static void remove_run(const char *name)
{
    (void)nftw(temp_dir_name(&files, name), temp_dir_drop, 16, FTW_DEPTH | FTW_PHYS);
}

static void compare_way(const way *w)
{
    static int count;
    if (!reference[w->format]) {
        const way plain = {.format = w->format};
        static const char *const dirs[FORMATS] = {"plain-0", "plain-1", "plain-2"};
        reference[w->format] = run_way(&plain, dirs[w->format]);
        reference_payload[w->format] = saved(dirs[w->format], 2);
    }
    char name[80];
    (void)snprintf(name, sizeof name, "way-%d", count++);
    team *t = run_way(w, name);
    assert_same_run(t, reference[w->format]);
    assert_true(saved(name, 2) == reference_payload[w->format]);
    team_free(t);
    remove_run(name);
}

static void free_references(void)
{
    for (int f = 0; f < FORMATS; f++)
        if (reference[f])
            team_free(reference[f]);
}

static void ways__table__covers_every_pair(void **state)
{
    (void)state;
    for (int a = 0; a < WAYS; a++)
        for (int b = a + 1; b < WAYS; b++)
            for (int x = 0; x < options[a]; x++)
                for (int y = 0; y < options[b]; y++) {
                    bool found = false;
                    for (int i = 0; i < PAIRWISE; i++)
                        found = found || (pairwise[i].of[a] == x && pairwise[i].of[b] == y);
                    if (!found)
                        fail_msg("factors %d and %d never have values %d and %d", a, b, x, y);
                }
}

static void train__ways_to_run_in_pairs__same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < PAIRWISE; i++)
        compare_way(&pairwise[i]);
}

static void train__all_ways_to_run__same_bits(void **state)
{
    (void)state;
    const char *wanted = getenv("OCTET_TEST_RANKS");
    if (!wanted || strcmp(wanted, "full") != 0)
        skip();
    way w = {0};
    for (int at = 0; at < WAYS;) {
        compare_way(&w);
        for (at = 0; at < WAYS && ++w.of[at] == options[at]; at++)
            w.of[at] = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train__bf16_on_1_to_8_ranks__same_bits),
        cmocka_unit_test(train__mxfp8_on_1_to_8_ranks__same_bits),
        cmocka_unit_test(train__hif8_on_1_to_8_ranks__same_bits),
        cmocka_unit_test(ways__table__covers_every_pair),
        cmocka_unit_test(train__ways_to_run_in_pairs__same_bits),
        cmocka_unit_test(train__all_ways_to_run__same_bits),
    };
    const int failed = cmocka_run_group_tests(tests, make_team_files, remove_train_files);
    free_references();
    return failed;
}
