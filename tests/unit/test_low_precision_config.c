#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "low_precision/config.h"
#include "low_precision/hif8/hif8.h"
#include "low_precision/mxfp8/mxfp8.h"

static void refuse(const char *format, const char *scaling, oct_status expected)
{
    for (int enabled = 0; enabled < 2; enabled++) {
        oct_err err = {0};
        oct_low_precision_policy policy = {.enabled = true, .format = &oct_hif8_format};
        const oct_low_precision_policy before = policy;
        assert_int_equal(
            oct_low_precision_policy_make(enabled != 0, format, scaling, &policy, &err), expected);
        assert_memory_equal(&policy, &before, sizeof policy);
        assert_non_null(strstr(err.msg, "low_precision.format"));
        assert_non_null(strstr(err.msg, "low_precision.scaling"));
        assert_non_null(strstr(err.msg, format));
        assert_non_null(strstr(err.msg, scaling));
    }
}

static void policy_make__legal_pairs__format_and_recipe(void **state)
{
    (void)state;
    oct_err err = {0};
    oct_low_precision_policy policy;
    assert_int_equal(oct_low_precision_policy_make(true, "mxfp8_e4m3", "mx_block", &policy, &err),
                     OCT_OK);
    assert_true(policy.enabled);
    assert_ptr_equal(policy.format, &oct_mxfp8_format);
    assert_ptr_equal(policy.recipe, oct_mxfp8_recipe(OCT_MX_RULE_ROUND_UP));
    assert_int_equal(oct_low_precision_policy_make(true, "hif8", "current", &policy, &err), OCT_OK);
    assert_ptr_equal(policy.format, &oct_hif8_format);
    assert_ptr_equal(policy.recipe, oct_hif8_format.recipe);
}

static void policy_make__illegal_pairs__refused_naming_both_keys(void **state)
{
    (void)state;
    refuse("mxfp8_e4m3", "current", OCT_E_CONFIG);
    refuse("hif8", "mx_block", OCT_E_CONFIG); /* what `format: hif8` alone amounts to */
    refuse("hif8", "delayed", OCT_E_UNSUPPORTED);
    refuse("mxfp8_e4m3", "delayed", OCT_E_UNSUPPORTED);
    refuse("mxfp8", "mx_block", OCT_E_CONFIG);
    refuse("HIF8", "current", OCT_E_CONFIG);
    refuse("hif8", "Current", OCT_E_CONFIG);
    refuse("mxfp8_e4m3", "mx_blocks", OCT_E_CONFIG);
}

static void policy_make__not_enabled__names_no_format(void **state)
{
    (void)state;
    oct_err err = {0};
    oct_low_precision_policy policy;
    assert_int_equal(oct_low_precision_policy_make(false, "mxfp8_e4m3", "mx_block", &policy, &err),
                     OCT_OK);
    assert_false(policy.enabled);
    assert_null(policy.format);
    assert_null(policy.recipe);
}

static void gate__cpu_with_kernels__open(void **state)
{
    (void)state;
    oct_kernels kernels;
    oct_err err = {0};
    for (int isa = OCT_ISA_REF; isa <= (int)oct_cpu_isa(); isa++) {
        oct_kernels_init(&kernels, (oct_isa)isa);
        for (int f = 0; oct_low_precision_formats[f]; f++) {
            const oct_low_precision_policy policy =
                oct_low_precision_policy_of(oct_low_precision_formats[f]->recipe);
            assert_int_equal(oct_low_precision_gate(&policy, &kernels, "cpu", &err), OCT_OK);
        }
    }
}

static void gate__another_device__the_known_message(void **state)
{
    (void)state;
    oct_kernels kernels;
    oct_err err = {0};
    oct_kernels_init(&kernels, OCT_ISA_REF);
    const oct_low_precision_policy policy = oct_low_precision_policy_of(oct_hif8_format.recipe);
    assert_int_equal(oct_low_precision_gate(&policy, &kernels, "ascend", &err), OCT_E_UNSUPPORTED);
    assert_non_null(
        strstr(err.msg, "[MXFP8/HiF8] is only supported on Ascend950 or higher architecture."));
    assert_non_null(strstr(err.msg, "'ascend'"));
}

/* Each kernel that a format needs is named when it alone is missing, and no other one is needed. */
static void gate__missing_kernel__closed_and_says_which(void **state)
{
    (void)state;
    static const char *const needed[][5] = {
        {"mx_rows", "mx_cols", "bounds_mxfp8", "integer_tile"},
        {"amax", "hif8_encode", "bounds_hif8", "integer_tile"},
    };
    for (int f = 0; oct_low_precision_formats[f]; f++)
        for (int k = 0; needed[f][k]; k++) {
            oct_kernels kernels;
            oct_kernels_init(&kernels, OCT_ISA_REF);
            const struct {
                const char *name;
                void *entry;
                size_t bytes;
            } entries[] = {
                {"mx_rows", &kernels.quantize.mx_rows, sizeof kernels.quantize.mx_rows},
                {"mx_cols", &kernels.quantize.mx_cols, sizeof kernels.quantize.mx_cols},
                {"amax", &kernels.quantize.amax, sizeof kernels.quantize.amax},
                {"hif8_encode", &kernels.quantize.hif8_encode, sizeof kernels.quantize.hif8_encode},
                {"bounds_mxfp8", &kernels.gemm.bounds_mxfp8, sizeof kernels.gemm.bounds_mxfp8},
                {"bounds_hif8", &kernels.gemm.bounds_hif8, sizeof kernels.gemm.bounds_hif8},
                {"integer_tile", &kernels.gemm.integer_tile, sizeof kernels.gemm.integer_tile},
            };
            for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++)
                if (strcmp(entries[e].name, needed[f][k]) == 0)
                    memset(entries[e].entry, 0, entries[e].bytes);
            oct_err err = {0};
            const oct_low_precision_policy policy =
                oct_low_precision_policy_of(oct_low_precision_formats[f]->recipe);
            assert_int_equal(oct_low_precision_gate(&policy, &kernels, "cpu", &err),
                             OCT_E_UNSUPPORTED);
            assert_non_null(strstr(err.msg, oct_low_precision_formats[f]->name));
            assert_non_null(strstr(err.msg, needed[f][k]));
            assert_non_null(strstr(err.msg, "'ref'"));
        }
}

static void gate__not_enabled__asks_nobody(void **state)
{
    (void)state;
    const oct_kernels none = {0};
    const oct_low_precision_policy off = {0};
    oct_err err = {0};
    assert_int_equal(oct_low_precision_gate(&off, &none, "ascend", &err), OCT_OK);
    assert_int_equal(oct_low_precision_gate(&off, NULL, "cpu", &err), OCT_OK);
}

static void formats__registry__names_are_distinct_and_tables_full(void **state)
{
    (void)state;
    for (int f = 0; oct_low_precision_formats[f]; f++) {
        const oct_low_precision_format *format = oct_low_precision_formats[f];
        for (int g = 0; g < f; g++)
            assert_string_not_equal(format->name, oct_low_precision_formats[g]->name);
        assert_true(format->gate && format->quantize && format->weight_tensors &&
                    format->weight_scales && format->refresh && format->select &&
                    format->scale_layout && format->matrix && format->matmul &&
                    format->shard_rows_legal && format->shard_rule);
    }
}

static void shard_rows_legal__cuts__as_the_format_says(void **state)
{
    (void)state;
    const int64_t dense[] = {10944, 2048}, odd[] = {30, 64}, stacked[] = {64, 2816, 2048};
    const int64_t thin[] = {8, 24, 16};
    assert_true(oct_mxfp8_format.shard_rows_legal(2, dense, 1408));
    assert_false(oct_mxfp8_format.shard_rows_legal(2, dense, 1368)); /* 10944 over 8 ranks */
    assert_false(oct_mxfp8_format.shard_rows_legal(2, odd, 15));
    assert_true(oct_mxfp8_format.shard_rows_legal(3, stacked, 8));
    assert_false(oct_mxfp8_format.shard_rows_legal(3, thin, 2));
    assert_true(oct_mxfp8_format.shard_rows_legal(3, thin, 8));
    assert_true(oct_hif8_format.shard_rows_legal(2, odd, 15));
    assert_true(oct_hif8_format.shard_rows_legal(3, thin, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policy_make__legal_pairs__format_and_recipe),
        cmocka_unit_test(policy_make__illegal_pairs__refused_naming_both_keys),
        cmocka_unit_test(policy_make__not_enabled__names_no_format),
        cmocka_unit_test(gate__cpu_with_kernels__open),
        cmocka_unit_test(gate__another_device__the_known_message),
        cmocka_unit_test(gate__missing_kernel__closed_and_says_which),
        cmocka_unit_test(gate__not_enabled__asks_nobody),
        cmocka_unit_test(formats__registry__names_are_distinct_and_tables_full),
        cmocka_unit_test(shard_rows_legal__cuts__as_the_format_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
