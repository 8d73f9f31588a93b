/* The stages of a build run in their one order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "numeric/bf16.h"
#include "train_fixture.h"
#include "trainer/build.h"

/* Before each stage every other one is refused, with both names, and nothing changes. */
static void build_stage__out_of_turn__is_refused_with_both_names(void **state)
{
    (void)state;
    oct_arena arena;
    oct_arena_init(&arena, "test configuration");
    oct_config config;
    load_config(&files, 1, NULL, &arena, &config);
    oct_build build;
    oct_build_init(&build, &config, NULL);
    for (int next = 0; next < OCT_STAGE_COUNT; next++) {
        oct_err err = {0};
        for (int stage = 0; stage < OCT_STAGE_COUNT; stage++) {
            if (stage == next)
                continue;
            assert_int_equal(oct_build_stage(&build, (oct_stage)stage, &err), OCT_E_API);
            assert_non_null(strstr(err.msg, word("'%s'", oct_stage_name((oct_stage)stage))));
            assert_non_null(strstr(err.msg, word("'%s'", oct_stage_name((oct_stage)next))));
        }
        if (oct_build_stage(&build, (oct_stage)next, &err) != OCT_OK)
            fail_msg("%s", err.msg);
    }
    oct_err err = {0};
    assert_int_equal(oct_build_stage(&build, OCT_STAGE_MASTERS, &err), OCT_E_API);
    assert_int_equal(build.weights.count, 16);
    assert_int_equal(build.trace.count[OCT_TRACE_REPLACE], 15);
    assert_int_equal(build.trace.count[OCT_TRACE_REFRESH], 16);
    oct_build_release(&build);
    oct_arena_release(&arena);
}

/* Whatever stage fails, everything that was made is released (AddressSanitizer watches). */
static void build__released_after_any_stage__leaves_nothing(void **state)
{
    (void)state;
    for (int last = -1; last < OCT_STAGE_COUNT; last++) {
        oct_arena arena;
        oct_arena_init(&arena, "test configuration");
        oct_config config;
        load_config(&files, 2, NULL, &arena, &config);
        oct_build build;
        oct_err err = {0};
        oct_build_init(&build, &config, NULL);
        if (last >= 0)
            assert_int_equal(oct_build_through(&build, (oct_stage)last, &err), OCT_OK);
        oct_build_release(&build);
        oct_arena_release(&arena);
    }
}

/* Whichever piece of what the optimizer needs cannot be had is named; the ledger of the build
 * counts the gradients and what its arenas hold, and in the end all of it is gone. */
static void build__masters_without_memory__named_and_nothing_left(void **state)
{
    (void)state;
    enum { STRIDE = 11 };
    oct_status status = OCT_E_NOMEM;
    bool gradients = false;
    for (int nth = 1; status != OCT_OK; nth += STRIDE) {
        oct_arena arena;
        oct_arena_init(&arena, "test configuration");
        oct_config config;
        load_config(&files, 0, NULL, &arena, &config);
        oct_build build;
        oct_err err = {0};
        oct_build_init(&build, &config, NULL);
        assert_int_equal(oct_build_through(&build, OCT_STAGE_REPLACE, &err), OCT_OK);
        int64_t bytes = 0;
        for (int64_t p = 0; p < build.tree.param_count; p++)
            bytes += 4 * oct_param_numel(build.tree.params[p]);
        assert_int_equal(build.ledger.live_bytes[OCT_LEDGER_GRADIENTS], 0);
        assert_true(build.ledger.live_bytes[OCT_LEDGER_OTHER] > 0);
        assert_int_equal(oct_fault_arm("ledger.alloc", nth, OCT_FAULT_FAIL, &err), OCT_OK);
        status = oct_build_through(&build, OCT_STAGE_MASTERS, &err);
        oct_fault_disarm_all();
        if (status == OCT_OK)
            assert_int_equal(build.ledger.live_bytes[OCT_LEDGER_GRADIENTS], bytes);
        else
            assert_int_equal(status, OCT_E_NOMEM);
        gradients = gradients || strstr(err.msg, "(gradients)");
        oct_build_release(&build);
        assert_int_equal(build.ledger.live_bytes_all, 0);
        assert_true(build.ledger.peak_bytes_all > 0);
        oct_arena_release(&arena);
    }
    assert_true(gradients);
}

/* A weight is quantized from FP32 values that exist, or not at all. */
static void finalize__without_initial_values__names_the_weight(void **state)
{
    (void)state;
    oct_arena arena;
    oct_arena_init(&arena, "test configuration");
    oct_config config;
    load_config(&files, 1, NULL, &arena, &config);
    oct_build build;
    oct_err err = {0};
    oct_build_init(&build, &config, NULL);
    assert_int_equal(oct_build_through(&build, OCT_STAGE_PLAN, &err), OCT_OK);
    build.next_stage = OCT_STAGE_REPLACE; /* as if the weights had been made */
    assert_int_equal(oct_build_stage(&build, OCT_STAGE_REPLACE, &err), OCT_OK);
    assert_int_equal(oct_build_stage(&build, OCT_STAGE_FINALIZE, &err), OCT_E_API);
    assert_non_null(strstr(err.msg, "self_attn.q_proj.weight"));
    oct_build_release(&build);
    oct_arena_release(&arena);
}

static void refresh__every_weight__once(void **state)
{
    (void)state;
    for (int format = 0; format < FORMATS; format++) {
        oct_arena arena;
        oct_arena_init(&arena, "test configuration");
        oct_config config;
        load_config(&files, format, NULL, &arena, &config);
        oct_build build;
        oct_err err = {0};
        int64_t refreshed = -1;
        oct_build_init(&build, &config, NULL);
        assert_int_equal(oct_build_through(&build, OCT_STAGE_MASTERS, &err), OCT_OK);
        const uint64_t before = hash_storage(&build);
        assert_int_equal(oct_build_refresh(&build, &refreshed, &err), OCT_OK);
        assert_int_equal(refreshed, format ? 16 : 0);
        assert_true(hash_storage(&build) == before); /* same masters, same bytes */
        for (int64_t w = 0; w < build.weights.count; w++)
            assert_int_equal(build.weights.shards[w]->refresh_count, 2);
        assert_true(oct_quantized_weights_bytes(&build.weights) > 0 || format == 0);
        oct_build_release(&build);
        oct_arena_release(&arena);
    }
}

/* Initial weights are those of the seed. */
static void build__another_seed__other_weights(void **state)
{
    (void)state;
    uint64_t hashes[3];
    for (int i = 0; i < 3; i++) {
        oct_arena arena;
        oct_arena_init(&arena, "test configuration");
        oct_config config;
        load_config(&files, 0, WORDS(word("seed=%d", 7 + i / 2)), &arena, &config);
        oct_build build;
        oct_err err = {0};
        oct_build_init(&build, &config, NULL);
        assert_int_equal(oct_build_through(&build, OCT_STAGE_MASTERS, &err), OCT_OK);
        hashes[i] = hash_masters(&build);
        oct_build_release(&build);
        oct_arena_release(&arena);
    }
    assert_true(hashes[0] == hashes[1]);
    assert_true(hashes[0] != hashes[2]);
}

/* Both dtypes come from their own keys. */
static void build__dtypes__are_those_of_their_keys(void **state)
{
    (void)state;
    static const char *const names[] = {"bfloat16", "float32"};
    static const oct_dtype dtypes[] = {OCT_DTYPE_BF16, OCT_DTYPE_F32};
    for (int i = 0; i < 4; i++) {
        oct_arena arena;
        oct_arena_init(&arena, "test configuration");
        oct_config config;
        load_config(&files, 0,
                    WORDS(word("model.torch_dtype=%s", names[i % 2]),
                          word("training.reduce_dtype=%s", names[i / 2])),
                    &arena, &config);
        oct_build build;
        oct_err err = {0};
        oct_build_init(&build, &config, NULL);
        assert_int_equal(oct_build_stage(&build, OCT_STAGE_POLICY, &err), OCT_OK);
        assert_int_equal(build.act_dtype, dtypes[i % 2]);
        assert_int_equal(build.reduce_dtype, dtypes[i / 2]);
        assert_int_equal(oct_build_run(&build, true).reduce_dtype, dtypes[i / 2]);
        oct_build_release(&build);
        oct_arena_release(&arena);
    }
}

/* Gradient accumulators do not touch; a refresh carries changed masters to the values computed
 * with. */
static void build__masters__gradients_apart_and_values_follow(void **state)
{
    (void)state;
    oct_arena arena;
    oct_arena_init(&arena, "test configuration");
    oct_config config;
    load_config(&files, 2, NULL, &arena, &config);
    oct_build build;
    oct_err err = {0};
    int64_t refreshed = 0;
    oct_build_init(&build, &config, NULL);
    assert_int_equal(oct_build_through(&build, OCT_STAGE_MASTERS, &err), OCT_OK);
    const uint64_t storage = hash_storage(&build);
    int values = 0;
    for (int64_t p = 0; p < build.tree.param_count; p++) {
        const oct_param *param = build.tree.params[p];
        assert_int_equal((uintptr_t)param->grad % 64, 0);
        for (int64_t q = 0; q < p; q++) {
            const oct_param *other = build.tree.params[q];
            assert_true(param->grad >= other->grad + oct_param_numel(other) ||
                        other->grad >= param->grad + oct_param_numel(param));
        }
        float *master = build.optimizer->slots[p].master;
        for (int64_t i = 0; i < oct_param_numel(param); i++)
            master[i] = 1.5f * master[i] + 0.25f;
    }
    assert_int_equal(oct_build_refresh(&build, &refreshed, &err), OCT_OK);
    for (int64_t p = 0; p < build.tree.param_count; p++) {
        const oct_param *param = build.tree.params[p];
        if (param->storage || param->value.dtype != OCT_DTYPE_BF16)
            continue;
        const uint16_t *value = param->value.data;
        for (int64_t i = 0; i < oct_param_numel(param); i++)
            assert_int_equal(value[i], oct_bf16_from_f32(build.optimizer->slots[p].master[i]));
        values++;
    }
    assert_true(values > 5);
    assert_true(hash_storage(&build) != storage);
    oct_build_release(&build);
    oct_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(build_stage__out_of_turn__is_refused_with_both_names),
        cmocka_unit_test(build__released_after_any_stage__leaves_nothing),
        cmocka_unit_test(build__masters_without_memory__named_and_nothing_left),
        cmocka_unit_test(finalize__without_initial_values__names_the_weight),
        cmocka_unit_test(refresh__every_weight__once),
        cmocka_unit_test(build__another_seed__other_weights),
        cmocka_unit_test(build__dtypes__are_those_of_their_keys),
        cmocka_unit_test(build__masters__gradients_apart_and_values_follow),
    };
    return cmocka_run_group_tests(tests, make_train_files, remove_train_files);
}
