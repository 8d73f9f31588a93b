/* Reading HF configs: both spellings, defaults, overrides, and every refusal by name. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/deepseek_v3/hf_config.h"

#define MODEL "\"model_type\": \"deepseek_v3\""

static void parse(const char *text, const char *overrides, oct_hf_config *hf)
{
    oct_err err = {0};
    if (oct_hf_config_parse(text, "config.json", overrides, hf, &err) != OCT_OK)
        fail_msg("%s", err.msg);
}

/* The call fails with OCT_E_CONFIG and a message that holds every given part. */
static void refused(const char *text, const char *overrides, const char *a, const char *b,
                    const char *c)
{
    oct_hf_config hf;
    oct_err err = {0};
    assert_int_equal(oct_hf_config_parse(text, "config.json", overrides, &hf, &err), OCT_E_CONFIG);
    const char *parts[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        if (!strstr(err.msg, parts[i]))
            fail_msg("'%s' is not in '%s'", parts[i], err.msg);
}

static void parse__only_a_model_type__defaults_of_hf(void **state)
{
    (void)state;
    oct_hf_config hf;
    parse("{" MODEL "}", NULL, &hf);
    assert_int_equal(hf.vocab_size, 129280);
    assert_int_equal(hf.num_hidden_layers, 61);
    assert_int_equal(hf.num_key_value_heads, 128);
    assert_int_equal(hf.q_lora_rank, 1536);
    assert_int_equal(hf.n_group, 8);
    assert_int_equal(hf.pad_token_id, -1);
    assert_true(hf.routed_scaling_factor == 2.5 && hf.rms_norm_eps == 1e-6);
    assert_true(hf.norm_topk_prob && hf.rope_interleave && !hf.tie_word_embeddings);
    assert_true(hf.rope.theta == 10000.0 && !hf.rope.yarn);
    assert_null(hf.dtype);
}

static void parse__old_and_new_spellings__same_config(void **state)
{
    (void)state;
    static const char *const old_text =
        "{" MODEL ", \"n_routed_experts\": 64, \"num_nextn_predict_layers\": 2, "
        "\"torch_dtype\": \"bfloat16\", \"rope_theta\": 50000, \"rope_scaling\": {\"type\": "
        "\"yarn\", "
        "\"factor\": 40, \"beta_fast\": 32, \"beta_slow\": 1, \"mscale\": 1.0, "
        "\"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 512}}";
    static const char *const new_text =
        "{" MODEL ", \"num_local_experts\": 64, \"num_mtp_layers\": 2, \"dtype\": \"bfloat16\", "
        "\"rope_parameters\": {\"rope_theta\": 50000.0, \"rope_type\": \"yarn\", \"factor\": 40.0, "
        "\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, "
        "\"original_max_position_embeddings\": 512}}";
    oct_hf_config a, b;
    parse(old_text, NULL, &a);
    parse(new_text, NULL, &b);
    assert_int_equal(a.n_routed_experts, 64);
    assert_int_equal(b.n_routed_experts, 64);
    assert_int_equal(a.num_nextn_predict_layers, b.num_nextn_predict_layers);
    assert_string_equal(a.dtype, b.dtype);
    assert_true(a.rope.yarn && b.rope.yarn);
    assert_true(a.rope.theta == 50000.0 && b.rope.theta == 50000.0);
    assert_true(a.rope.factor == b.rope.factor && a.rope.beta_fast == b.rope.beta_fast);
    assert_int_equal(a.rope.original_max_position_embeddings, 512);
    assert_int_equal(b.rope.original_max_position_embeddings, 512);
    assert_true(fabs(oct_hf_softmax_scale(&a) * sqrt(192.0) - 1.873900) < 1e-4);
    assert_true(oct_hf_rope_factor(&a) == 1.0);
}

static void parse__yarn_without_original_length__max_positions(void **state)
{
    (void)state;
    oct_hf_config hf;
    parse("{" MODEL ", \"max_position_embeddings\": 777, \"rope_scaling\": {\"type\": \"yarn\", "
          "\"factor\": 4, \"mscale_all_dim\": null}}",
          NULL, &hf);
    assert_int_equal(hf.rope.original_max_position_embeddings, 777);
    assert_true(fabs(oct_hf_rope_factor(&hf) - (0.1 * log(4.0) + 1.0)) < 1e-12);
}

static void parse__null_rope_and_heads__default_rope_and_as_many_heads(void **state)
{
    (void)state;
    oct_hf_config hf;
    parse("{" MODEL ", \"rope_scaling\": null, \"num_key_value_heads\": null, "
          "\"num_attention_heads\": 16, \"q_lora_rank\": null}",
          NULL, &hf);
    assert_false(hf.rope.yarn);
    assert_int_equal(hf.num_key_value_heads, 16);
    assert_int_equal(hf.q_lora_rank, 0);
}

/* config.json as published with DeepSeek-V3, shortened to what differs from the defaults or is
 * ignored. */
static const char *const published =
    "{\"architectures\": [\"DeepseekV3ForCausalLM\"], " MODEL ", \"attention_bias\": false, "
    "\"attention_dropout\": 0.0, \"auto_map\": {\"AutoConfig\": \"x\"}, \"ep_size\": 1, "
    "\"hidden_act\": \"silu\", \"moe_layer_freq\": 1, \"num_nextn_predict_layers\": 1, "
    "\"quantization_config\": {\"fmt\": \"e4m3\", \"quant_method\": \"fp8\", "
    "\"weight_block_size\": [128, 128]}, \"rope_scaling\": {\"beta_fast\": 32, \"beta_slow\": 1, "
    "\"factor\": 40, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, "
    "\"original_max_position_embeddings\": 4096, \"type\": \"yarn\"}, \"rope_theta\": 10000, "
    "\"scoring_func\": \"sigmoid\", \"topk_method\": \"noaux_tc\", \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"bfloat16\", \"max_position_embeddings\": 163840}";

static const char *const frozen_block =
    "{\"vocab_size\": 102400, \"hidden_size\": 2048, \"intermediate_size\": 10944, "
    "\"moe_intermediate_size\": 1408, \"num_hidden_layers\": 28, \"first_k_dense_replace\": 1, "
    "\"num_attention_heads\": 16, \"num_key_value_heads\": 16, \"n_routed_experts\": 64, "
    "\"n_shared_experts\": 2, \"q_lora_rank\": null, \"kv_lora_rank\": 3072, "
    "\"qk_nope_head_dim\": 64, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128, "
    "\"num_experts_per_tok\": 6, \"n_group\": 1, \"topk_group\": 1, \"norm_topk_prob\": true, "
    "\"routed_scaling_factor\": 2.5, \"max_position_embeddings\": 4096, \"use_cache\": false}";

static void parse__published_file_with_the_16b_block__every_override_wins(void **state)
{
    (void)state;
    oct_hf_config hf;
    parse(published, frozen_block, &hf);
    assert_int_equal(hf.vocab_size, 102400);
    assert_int_equal(hf.hidden_size, 2048);
    assert_int_equal(hf.intermediate_size, 10944);
    assert_int_equal(hf.moe_intermediate_size, 1408);
    assert_int_equal(hf.num_hidden_layers, 28);
    assert_int_equal(hf.first_k_dense_replace, 1);
    assert_int_equal(hf.num_attention_heads, 16);
    assert_int_equal(hf.n_routed_experts, 64);
    assert_int_equal(hf.n_shared_experts, 2);
    assert_int_equal(hf.q_lora_rank, 0);
    assert_int_equal(hf.kv_lora_rank, 3072);
    assert_int_equal(hf.qk_nope_head_dim, 64);
    assert_int_equal(hf.v_head_dim, 128);
    assert_int_equal(hf.num_experts_per_tok, 6);
    assert_int_equal(hf.n_group, 1);
    assert_int_equal(hf.max_position_embeddings, 4096);
    assert_false(hf.use_cache);
    assert_true(hf.rope.yarn); /* the block does not speak of it */
}

static void overrides__other_spelling_than_the_file__still_win(void **state)
{
    (void)state;
    oct_hf_config hf;
    parse("{" MODEL ", \"n_routed_experts\": 256, \"rope_parameters\": {\"rope_theta\": 5.0e5, "
          "\"rope_type\": \"yarn\", \"factor\": 2}, \"dtype\": \"float16\"}",
          "{\"num_local_experts\": 64, \"rope_theta\": 1e6, \"torch_dtype\": \"float32\"}", &hf);
    assert_int_equal(hf.n_routed_experts, 64);
    assert_true(hf.rope.theta == 1e6 && hf.rope.yarn);
    assert_string_equal(hf.dtype, "float32");
    parse(published, "{\"rope_scaling\": null}", &hf);
    assert_false(hf.rope.yarn);
    parse(published, "{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 123.0}}",
          &hf);
    assert_false(hf.rope.yarn);
    assert_true(hf.rope.theta == 123.0);
}

static void overrides__unknown_name__refused_with_the_nearest(void **state)
{
    (void)state;
    refused("{" MODEL "}", "{\"hiden_size\": 64}", "hiden_size", "'hidden_size'",
            "config_overrides");
    refused("{" MODEL "}", "{\"num_local_expert\": 8}", "num_local_expert", "'num_local_experts'",
            "config_overrides");
    refused("{" MODEL "}", "{\"rope_scaling\": {\"type\": \"yarn\", \"factr\": 2}}", "factr",
            "'factor'", "rope_scaling");
    refused("{" MODEL "}", "{\"hidden_size\": \"big\"}", "'hidden_size' is 'big'",
            "required an integer", "config_overrides: hidden_size");
}

static void parse__unknown_field_of_the_file__ignored_as_in_hf(void **state)
{
    (void)state;
    oct_hf_config hf;
    parse("{" MODEL ", \"hiden_size\": 64, \"aux_loss_alpha\": 0.1}", NULL, &hf);
    assert_int_equal(hf.hidden_size, 7168);
}

static void parse__wrong_values__refused_with_field_found_and_required(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"\"hidden_size\": 2048.0", "'hidden_size' is 2048", "an integer"},
        {"\"hidden_size\": \"2048\"", "'hidden_size' is '2048'", "an integer"},
        {"\"hidden_size\": 0", "'hidden_size' is 0", "from 1"},
        {"\"hidden_size\": -5", "'hidden_size' is -5", "from 1"},
        {"\"hidden_size\": 99999999999", "'hidden_size' is 99999999999", "to 1073741824"},
        {"\"hidden_size\": null", "'hidden_size' is null", "an integer"},
        {"\"vocab_size\": [1]", "'vocab_size' is a list", "an integer"},
        {"\"norm_topk_prob\": 1", "'norm_topk_prob' is 1", "true or false"},
        {"\"rms_norm_eps\": \"1e-6\"", "'rms_norm_eps' is '1e-6'", "a finite number"},
        {"\"rms_norm_eps\": 0", "'rms_norm_eps' is 0", "more than 0"},
        {"\"rms_norm_eps\": -1", "'rms_norm_eps' is -1", "at least 0"},
        {"\"hidden_act\": \"gelu\"", "'hidden_act' is 'gelu'", "'silu'"},
        {"\"attention_dropout\": 0.1", "'attention_dropout' is 0.1", "required 0"},
        {"\"num_attention_heads\": 16, \"num_key_value_heads\": 8", "'num_key_value_heads' is 8",
         "16"},
        {"\"topk_group\": 9", "'topk_group' is 9", "n_group = 8"},
        {"\"n_routed_experts\": 100", "'n_routed_experts' is 100", "multiple of n_group = 8"},
        {"\"n_routed_experts\": 8", "'n_routed_experts' is 8", "at least 2 * n_group = 16"},
        {"\"num_experts_per_tok\": 129", "'num_experts_per_tok' is 129", "128"},
        {"\"qk_rope_head_dim\": 63", "'qk_rope_head_dim' is 63", "multiple of 2"},
        {"\"first_k_dense_replace\": 62", "'first_k_dense_replace' is 62", "61"},
        {"\"pad_token_id\": 129280", "'pad_token_id' is 129280", "vocab_size"},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", "rope type is 'linear'",
         "'yarn'"},
        {"\"rope_scaling\": {\"type\": \"yarn\"}", "'factor' is missing", "yarn"},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 0.5}", "'factor' is 0.5",
         "at least 1"},
        {"\"rope_scaling\": 4", "'rope_scaling' is 4", "an object or null"},
        {"\"rope_theta\": 0", "'rope_theta' is 0", "at least 1"},
        {"\"dtype\": \"int8\"", "'dtype' is 'int8'", "'bfloat16'"},
        {"\"n_routed_experts\": 64, \"num_local_experts\": 32", "'n_routed_experts' is 64",
         "'num_local_experts' is 32"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char text[256];
        snprintf(text, sizeof text, "{" MODEL ", %s}", cases[c][0]);
        refused(text, NULL, cases[c][1], cases[c][2], "config.json");
    }
}

static void parse__other_model_type__refused(void **state)
{
    (void)state;
    refused("{\"model_type\": \"llama\"}", NULL, "'model_type' is 'llama'", "'deepseek_v3'",
            "config.json");
    refused("{}", NULL, "'model_type' is missing", "'deepseek_v3'", "config.json");
}

static void parse__no_valid_json__refused_with_line_and_column(void **state)
{
    (void)state;
    refused("{" MODEL ",\n \"hidden_size\": }", NULL, "valid JSON", "config.json:2:", "near '}'");
    refused("[1]", NULL, "found a list", "an object", "config.json");
    refused("{" MODEL ", \"hidden_size\": 64, \"hidden_size\": 32}", NULL, "duplicate",
            "hidden_size", "config.json:1");
    refused("{" MODEL "}", "{\"hidden_size\": 1, \"hidden_size\": 2}", "duplicate", "hidden_size",
            "config_overrides");
    refused("", NULL, "valid JSON", "config.json", "");
}

static void load__folder_and_file__same_config_and_missing_ones_named(void **state)
{
    (void)state;
    char directory[] = "/tmp/hf-config-XXXXXX", path[64];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/config.json", directory);
    oct_arena arena;
    oct_arena_init(&arena, "test");
    oct_hf_config hf;
    oct_err err = {0};
    assert_int_equal(oct_hf_config_load(directory, NULL, &arena, &hf, &err), OCT_E_IO);
    assert_non_null(strstr(err.msg, path));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{" MODEL ", \"hidden_size\": 96}", file);
    fclose(file);
    assert_int_equal(oct_hf_config_load(directory, "{}", &arena, &hf, &err), OCT_OK);
    assert_int_equal(hf.hidden_size, 96);
    assert_int_equal(oct_hf_config_load(path, "{\"hidden_size\": 32}", &arena, &hf, &err), OCT_OK);
    assert_int_equal(hf.hidden_size, 32);
    unlink(path);
    rmdir(directory);
    assert_int_equal(oct_hf_config_load(directory, NULL, &arena, &hf, &err), OCT_E_IO);
    assert_non_null(strstr(err.msg, directory));
    oct_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse__only_a_model_type__defaults_of_hf),
        cmocka_unit_test(parse__old_and_new_spellings__same_config),
        cmocka_unit_test(parse__yarn_without_original_length__max_positions),
        cmocka_unit_test(parse__null_rope_and_heads__default_rope_and_as_many_heads),
        cmocka_unit_test(parse__published_file_with_the_16b_block__every_override_wins),
        cmocka_unit_test(overrides__other_spelling_than_the_file__still_win),
        cmocka_unit_test(overrides__unknown_name__refused_with_the_nearest),
        cmocka_unit_test(parse__unknown_field_of_the_file__ignored_as_in_hf),
        cmocka_unit_test(parse__wrong_values__refused_with_field_found_and_required),
        cmocka_unit_test(parse__other_model_type__refused),
        cmocka_unit_test(parse__no_valid_json__refused_with_line_and_column),
        cmocka_unit_test(load__folder_and_file__same_config_and_missing_ones_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
