#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "config/config.h"
#include "unit/temp_dir.h"

#define BASE     OCTET_SOURCE_DIR "/configs/base.yaml"
#define FIXTURES OCTET_SOURCE_DIR "/tests/unit/fixtures/"

static oct_arena arena;
static oct_err err;
static oct_config config;
static temp_dir dir;
static char notes[4096];

static int setup(void **state)
{
    (void)state;
    oct_arena_init(&arena, "test");
    err = (oct_err){0};
    dir = temp_dir_create();
    notes[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    oct_arena_release(&arena);
    temp_dir_remove(&dir);
    return 0;
}

static void take_note(void *arg, const char *line)
{
    (void)arg;
    (void)strncat(notes, line, sizeof notes - strlen(notes) - 1);
    (void)strncat(notes, "\n", sizeof notes - strlen(notes) - 1);
}

/* Up to three files, then up to three words. */
static oct_status load(const char *const *files, const char *const *words)
{
    int file_count = 0, word_count = 0;
    while (files && file_count < 3 && files[file_count])
        file_count++;
    while (words && word_count < 3 && words[word_count])
        word_count++;
    err = (oct_err){0};
    return oct_config_load(files, file_count, words, word_count, &arena, take_note, NULL, &config,
                           &err);
}

/* `text` as a file over the base file. */
static oct_status load_over_base(const char *text, const char *word)
{
    return load((const char *[3]){BASE, temp_dir_write(&dir, "run.yaml", text)},
                (const char *[3]){word});
}

static void accepts(oct_status status)
{
    if (status != OCT_OK)
        print_error("%s\n", err.msg);
    assert_int_equal(status, OCT_OK);
}

static void refused_with(oct_status status, const char *message)
{
    if (status != OCT_E_CONFIG || !strstr(err.msg, message))
        print_error("got:  %s\nwant: %s\n", err.msg, message);
    assert_int_equal(status, OCT_E_CONFIG);
    assert_non_null(strstr(err.msg, message));
}

/* --- What the design document says --- */

static void config_load__base_alone__defaults_of_the_reference(void **state)
{
    (void)state;
    accepts(load((const char *[3]){BASE}, NULL));
    assert_string_equal(config.device, "cpu");
    assert_int_equal(config.seed, 2026);
    assert_false(config.trace);
    assert_string_equal(config.model.target,
                        "hyper_models._transformers.HyperAutoModelForCausalLM.from_hf_config");
    assert_string_equal(config.model.config_overrides_json, "{}");
    assert_string_equal(config.model.torch_dtype, "bfloat16");
    assert_true(config.model.force_hf);
    assert_string_equal(config.model.expect, "none");
    assert_false(config.low_precision.enabled);
    assert_string_equal(config.low_precision.format, "mxfp8_e4m3");
    assert_string_equal(config.low_precision.scaling, "mx_block");
    assert_int_equal(config.training.stop_at_step, -1);
    assert_int_equal(config.training.global_batch_size, 8);
    assert_false(config.training.global_batch_size_given);
    assert_int_equal(config.training.micro_batch_size, 1);
    assert_true(config.training.max_grad_norm == 1.0);
    assert_int_equal(config.training.max_consecutive_skips, 5);
    assert_string_equal(config.training.reduce_dtype, "float32");
    assert_int_equal(config.training.threads, 0);
    assert_int_equal(config.gradient_accumulation_steps, 0);
    assert_true(config.optimizer.lr == 3e-4 && config.optimizer.beta1 == 0.9 &&
                config.optimizer.beta2 == 0.95 && config.optimizer.eps == 1e-8 &&
                config.optimizer.weight_decay == 0.1);
    assert_int_equal(config.lr_scheduler.warmup_steps, 0);
    assert_true(config.lr_scheduler.decay_ratio < 0);
    assert_int_equal(config.lr_scheduler.decay_type, OCT_DECAY_LINEAR);
    assert_true(config.lr_scheduler.min_lr_factor == 0 && config.moe.bias_update_rate == 0);
    assert_true(config.dataset.shuffle);
    assert_string_equal(config.dataset.tokenizer, "bytes");
    assert_int_equal(config.dataset.path.count, 1);
    assert_int_equal(config.dataset.validation.path.count, 0);
    assert_int_equal(config.dataset.validation.steps, 8);
    assert_int_equal(config.accelerator.pp_size, 1);
    assert_int_equal(config.fsdp.dp_shard_size, -1);
    assert_true(config.fsdp.reshard_after_forward);
    assert_false(config.fsdp.comm_fusion || config.fsdp.fallback_to_unsharded ||
                 config.fsdp.narrow_backward_gather || config.fsdp.prefetch);
    assert_string_equal(config.fsdp.shard, "tile");
    assert_false(config.activation_checkpoint.full);
    assert_int_equal(config.checkpoint.keep_latest_k, 3);
    assert_null(config.checkpoint.restore_from);
    assert_true(config.checkpoint.restore_optimizer && config.checkpoint.async &&
                config.checkpoint.verify_crc);
    assert_false(config.checkpoint.stop_on_failure);
    assert_int_equal(config.logging.every, 1);
    assert_false(config.logging.json || config.logging.tensorboard);
}

static void check_plan(void)
{
    assert_int_equal(config.plan_override_count, 3);
    const oct_plan_override *rules = config.plan_overrides;
    assert_int_equal(rules[0].match.count, 4);
    assert_string_equal(rules[0].match.items[1], "model.layers.*.self_attn.kv_a_proj_with_mqa");
    assert_int_equal(rules[1].match.count, 2);
    assert_string_equal(rules[1].match.items[1], "model.layers.*.mlp.shared_experts.*_proj");
    assert_string_equal(rules[1].target, "hyper_models.components.training.low_precision.modules."
                                         "linear.replace_low_precision_linear");
    assert_int_equal(rules[2].match.count, 1);
    assert_string_equal(rules[2].match.items[0], "model.layers.*.mlp.experts");
    assert_string_equal(rules[2].module_type,
                        "transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3Experts");
    assert_string_equal(rules[2].target,
                        "hyper_models.components.models.adapters.deepseek_v3.low_precision."
                        "replace_deepseek_v3_low_precision_experts");
    for (int i = 0; i < 3; i++) {
        assert_string_equal(rules[i].when, "low_precision");
        assert_true(rules[i].exact_type);
    }
}

static void config_load__fragments_of_the_design_document__legal_over_base(void **state)
{
    (void)state;
    accepts(load((const char *[3]){BASE}, NULL));
    check_plan();
    accepts(load((const char *[3]){BASE, FIXTURES "model.yaml"}, NULL));
    assert_string_equal(config.model.config_name_or_path, "<hf-deepseek-v3-config-path>");
    assert_string_equal(
        config.model.config_overrides_json,
        "{\"vocab_size\": 102400, \"hidden_size\": 2048, \"intermediate_size\": 10944, "
        "\"moe_intermediate_size\": 1408, \"num_hidden_layers\": 28, \"first_k_dense_replace\": 1, "
        "\"num_attention_heads\": 16, \"num_key_value_heads\": 16, \"n_routed_experts\": 64, "
        "\"n_shared_experts\": 2, \"q_lora_rank\": null, \"kv_lora_rank\": 3072, "
        "\"qk_nope_head_dim\": 64, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128, "
        "\"num_experts_per_tok\": 6, \"n_group\": 1, \"topk_group\": 1, \"norm_topk_prob\": true, "
        "\"routed_scaling_factor\": 2.5, \"max_position_embeddings\": 4096, \"use_cache\": false}");
    accepts(load((const char *[3]){BASE, FIXTURES "low_precision_mxfp8.yaml"}, NULL));
    assert_true(config.low_precision.enabled);
    assert_string_equal(config.low_precision.format, "mxfp8_e4m3");
    accepts(load((const char *[3]){BASE, FIXTURES "low_precision_hif8.yaml"}, NULL));
    assert_true(config.low_precision.enabled);
    assert_string_equal(config.low_precision.format, "hif8");
    assert_string_equal(config.low_precision.scaling, "current");
    accepts(load((const char *[3]){BASE, FIXTURES "fsdp_and_plan.yaml"}, NULL));
    check_plan();
    assert_int_equal(config.fsdp.dp_shard_size, 8);
    accepts(oct_config_resolve(&config, 8, &err));
    refused_with(oct_config_resolve(&config, 1, &err),
                 "cannot shard over 8 ranks: the run has 1, -1 or that number is required "
                 "(fsdp_config.dp_shard_size, " FIXTURES "fsdp_and_plan.yaml:");
}

/* Row 1.12: targets are explicit; no pattern takes every projection of the attention or of the
 * model. */
static void config_load__shipped_files__legal_with_explicit_targets(void **state)
{
    (void)state;
    glob_t found;
    assert_int_equal(glob(OCTET_SOURCE_DIR "/configs/*.yaml", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        accepts(load((const char *[3]){BASE, found.gl_pathv[i]}, NULL));
        for (int64_t r = 0; r < config.plan_override_count; r++) {
            const oct_string_list *match = &config.plan_overrides[r].match;
            for (int64_t m = 0; m < match->count; m++) {
                assert_null(strstr(match->items[m], "self_attn.*"));
                assert_string_not_equal(match->items[m], "*_proj");
                assert_int_equal(strncmp(match->items[m], "model.layers.", 13), 0);
            }
        }
    }
    assert_in_range(found.gl_pathc, 2, 1000);
    globfree(&found);
}

static void config_load__low_precision_null__disabled(void **state)
{
    (void)state;
    const char *hif8 = FIXTURES "low_precision_hif8.yaml";
    accepts(load(
        (const char *[3]){BASE, hif8, temp_dir_write(&dir, "bf16.yaml", "low_precision: null\n")},
        NULL));
    assert_false(config.low_precision.enabled);
    assert_string_equal(config.low_precision.format, "mxfp8_e4m3");
    accepts(load((const char *[3]){BASE, hif8}, (const char *[3]){"low_precision=null"}));
    assert_false(config.low_precision.enabled);
    accepts(load((const char *[3]){BASE},
                 (const char *[3]){"low_precision=null", "low_precision.enabled=true"}));
    assert_true(config.low_precision.enabled);
}

/* One row per value that is refused: the text over the base file and what the message says. */
static const struct {
    const char *text, *message;
} refusals[] = {
    /* unsupported words and values: chapters 4 and 15 */
    {"device: gpu\n", "unsupported value of device: 'gpu', one of cpu, ascend is required ("},
    {"accelerator:\n  tp_size: 2\n", "unsupported value of accelerator.tp_size: '2', 1 is "
                                     "required: tensor parallelism is not supported ("},
    {"accelerator: {cp_size: 2}\n", "accelerator.cp_size: '2', 1 is required: context parallelism"},
    {"accelerator: {ep_size: 8}\n", "accelerator.ep_size: '8', 1 is required: expert parallelism"},
    {"accelerator: {pp_size: 0}\n",
     "accelerator.pp_size: '0', 1 is required: pipeline parallelism"},
    {"fsdp_config:\n  comm_fusion: true\n",
     "unsupported value of fsdp_config.comm_fusion: 'true', false is required"},
    {"checkpoint:\n  format: safetensors\n",
     "unsupported value of checkpoint.format: 'safetensors', dcp is required"},
    {"gradient_checkpointing:\n  activation_checkpoint: selective\n",
     "unsupported value of gradient_checkpointing.activation_checkpoint: 'selective', one of off, "
     "full "
     "is required: selective recompute is not supported"},
    {"gradient_checkpointing:\n  activation_checkpoint: true\n",
     "wrong type of gradient_checkpointing.activation_checkpoint: boolean true"},
    {"optimizer:\n  _target_: muon\n",
     "unsupported value of optimizer._target_: 'muon', adamw is required"},
    {"optimizer:\n  state_dtype: bfloat16\n", "unsupported key optimizer.state_dtype: string "
                                              "\"bfloat16\", no such key is allowed: FP32 is the "
                                              "only dtype of optimizer states"},
    {"optimizer: {exp_avg_dtype: bfloat16}\n", "FP32 is the only dtype of moments"},
    {"model:\n  attn_implementation: flash_attention_2\n",
     "unsupported value of model.attn_implementation: 'flash_attention_2', sdpa is required"},
    {"model:\n  torch_dtype: float16\n", "model.torch_dtype: 'float16', one of bfloat16, float32"},
    {"model:\n  expect: deepseek_v3\n",
     "model.expect: 'deepseek_v3', one of none, deepseek_v3_16b"},
    {"model:\n  _target_: hyper_models._transformers.HyperAutoModelForCausalLM.from_hf_confg\n",
     "one of hyper_models._transformers.HyperAutoModelForCausalLM.from_hf_config, "
     "octet.from_hf_config"},
    {"low_precision:\n  enabled: true\n  format: hif8\n  scaling: delayed\n",
     "unsupported value of low_precision.scaling: 'delayed', one of mx_block, current is required: "
     "delayed scaling is not supported"},
    {"low_precision: {format: fp8_e5m2}\n",
     "low_precision.format: 'fp8_e5m2', one of mxfp8_e4m3, hif8"},
    {"low_precision:\n  margin: 2\n", "unsupported key low_precision.margin"},
    {"low_precision: {amax_history_len: 16}\n", "delayed scaling is not supported"},
    {"compile: true\n",
     "unsupported key compile: boolean true, no such key is allowed: torch.compile"},
    {"training: {compile: true}\n", "unsupported key training.compile"},
    {"dataset:\n  tokenizer: tokenizer.json\n",
     "dataset.tokenizer: 'tokenizer.json', bytes is required"},
    {"logging: {tensorboard: true}\n", "logging.tensorboard: 'true', false is required"},
    {"training: {reduce_dtype: float16}\n", "training.reduce_dtype: 'float16'"},
    {"fsdp_config: {shard: odd}\n", "fsdp_config.shard: 'odd', one of tile, even"},
    {"lr_scheduler: {decay_type: exp}\n", "'exp', one of linear, sqrt, cosine, constant"},
    /* combinations */
    {"low_precision:\n  format: mxfp8_e4m3\n  scaling: current\n",
     "illegal combination of low_precision.format and low_precision.scaling: mxfp8_e4m3 ("},
    {"low_precision: {enabled: true, format: hif8}\n",
     "mx_block (default), mxfp8_e4m3 with mx_block or hif8 with current is required"},
    {"low_precision: {enabled: true}\nplan_overrides: []\n",
     "low_precision.enabled: true without a rule in plan_overrides, at least one rule is required "
     "("},
    {"lr_scheduler: {warmup_steps: 1001}\n",
     "value of lr_scheduler.warmup_steps out of bounds: 1001, at most training.train_iters = 1000"},
    {"dataset: {validation: {every: 10}}\n", "missing key dataset.validation.path: not given, a "
                                             "path is required with dataset.validation.every: 10"},
    {"dataset: {validation: {every: 10, path: x, steps: 0}}\n",
     "value of dataset.validation.steps out of bounds: 0, at least 1"},
    {"fsdp_config: {dp_shard_size: 0}\n", "fsdp_config.dp_shard_size out of bounds: 0, -1 or"},
    /* bounds */
    {"training: {train_iters: 0}\n",
     "value of training.train_iters out of bounds: 0, an integer >= 1"},
    {"training: {seq_length: 2147483648}\n", "2147483648, an integer >= 1 and < 2^31 is required"},
    {"training: {stop_at_step: 0}\n", "0, an integer >= 1 and <= 2^53, or null is required"},
    {"training: {micro_batch_size: -1}\n", "training.micro_batch_size out of bounds: -1"},
    {"training: {global_batch_size: 0}\n", "training.global_batch_size out of bounds: 0"},
    {"training: {max_consecutive_skips: 0}\n", "training.max_consecutive_skips out of bounds: 0"},
    {"training: {threads: 0}\n", "training.threads out of bounds: 0"},
    {"training: {max_grad_norm: -0.5}\n", "-0.5, a finite float >= 0 is required"},
    {"gradient_accumulation_steps: 0\n", "gradient_accumulation_steps out of bounds: 0"},
    {"seed: -1\n", "seed out of bounds: -1"},
    {"seed: 9007199254740993\n", "9007199254740993, an integer >= 0 and <= 2^53"},
    {"optimizer: {lr: -1e-3}\n", "optimizer.lr out of bounds: -1e-3"},
    {"optimizer: {lr: .inf}\n", "optimizer.lr out of bounds: .inf, a finite float >= 0"},
    {"optimizer: {lr: .nan}\n", "optimizer.lr out of bounds: .nan"},
    {"optimizer: {lr: 1e999}\n", "optimizer.lr out of bounds: 1e999"},
    {"optimizer: {eps: 0}\n", "optimizer.eps out of bounds: 0, a finite float >= 1e-37"},
    {"optimizer: {eps: 1e-50}\n", "optimizer.eps out of bounds: 1e-50, a finite float >= 1e-37"},
    {"optimizer: {betas: [0.9, 1.0]}\n", "1.0, a list of two floats >= 0 and < 1 is required"},
    {"optimizer: {weight_decay: -1}\n", "optimizer.weight_decay out of bounds"},
    {"lr_scheduler: {decay_ratio: 1.5}\n",
     "1.5, a finite float >= 0 and <= 1, or null is required"},
    {"lr_scheduler: {min_lr_factor: 2}\n", "lr_scheduler.min_lr_factor out of bounds: 2"},
    {"moe: {bias_update_rate: -1}\n", "moe.bias_update_rate out of bounds"},
    {"logging: {every: 0}\n", "logging.every out of bounds: 0"},
    {"checkpoint: {save_steps: -1}\n", "checkpoint.save_steps out of bounds: -1"},
    {"checkpoint: {keep_latest_k: -1}\n", "checkpoint.keep_latest_k out of bounds: -1"},
    /* types */
    {"optimizer:\n  betas: [0.9]\n", "wrong type of optimizer.betas: list, a list of two floats"},
    {"optimizer: {betas: 0.9}\n", "wrong type of optimizer.betas: float 0.9"},
    {"training: {seq_length: 64.0}\n", "wrong type of training.seq_length: float 64.0, an integer"},
    {"training: {seq_length: null}\n", "wrong type of training.seq_length: null, an integer"},
    {"training: {seq_length: [1]}\n", "wrong type of training.seq_length: list"},
    {"trace: yes\n", "wrong type of trace: string \"yes\", true or false is required"},
    {"trace: 1\n", "wrong type of trace: integer 1, true or false"},
    {"model:\n", "wrong type of model: null, a map of keys is required"},
    {"fsdp_config: tile\n", "wrong type of fsdp_config: string \"tile\", a map of keys"},
    {"model: {config_name_or_path: 16}\n", "model.config_name_or_path: integer 16, a string"},
    {"model: {config_name_or_path: \"\"}\n", "a string that is not empty is required"},
    {"model: {config_overrides: [1]}\n", "model.config_overrides: list, a map is required"},
    {"model: {config_overrides: null}\n", "model.config_overrides: null, a map is required"},
    {"model: {config_overrides: {rope_theta: .inf}}\n",
     "wrong value of rope_theta: .inf, a finite number"},
    {"dataset: {path: []}\n", "dataset.path: list, a list that is not empty is required"},
    {"dataset: {path: [a, 1]}\n", "dataset.path: integer 1, a string or a list of strings"},
    {"dataset: {path: null}\n", "dataset.path: null, a string or a list of strings"},
    {"checkpoint: {restore_from: 5}\n", "checkpoint.restore_from: integer 5, a string, or null"},
    /* keys */
    {"training:\n  seq_len: 64\n",
     "unknown key training.seq_len: the nearest known key is training.seq_length ("},
    {"seq_length: 64\n", "unknown key seq_length: the nearest known key is training.seq_length"},
    {"optimiser: {lr: 1}\n", "unknown key optimiser: the nearest known key is optimizer.lr ("},
    {"trainig: {train_iters: 1}\n",
     "unknown key trainig: the nearest known key is training.train_iters ("},
    {"low_precision: {fmt: hif8}\n", "unknown key low_precision.fmt"},
    {"low_precision: {recipe: x}\n", "unknown key low_precision.recipe"},
    {"<<: {seed: 1}\n", "unknown key <<"},
    {"1: 2\n", "unknown key 1"},
    /* plan_overrides */
    {"plan_overrides: {match: x}\n",
     "wrong type of plan_overrides: map, a list of rules is required"},
    {"plan_overrides: [x]\n", "wrong type of plan_overrides[0]: string \"x\", a rule (a map)"},
    {"plan_overrides:\n  - match: a\n    module_type: b\n    replace_module: {_target_: c}\n"
     "    exact_type: false\n",
     "unsupported value of plan_overrides[0].exact_type: 'false', true is required"},
    {"plan_overrides:\n  - match: a\n    module_type: b\n    replace_module: {_target_: c}\n"
     "    when: always\n",
     "unsupported value of plan_overrides[0].when: 'always', low_precision is required"},
    {"plan_overrides:\n  - match: a\n    module_type: b\n    replace_module: {_target_: c}\n"
     "    format: hif8\n",
     "unknown key plan_overrides[0].format"},
    {"plan_overrides:\n  - match: a\n    module_type: b\n    replace_module: {_target_: c, x: 1}\n",
     "unknown key plan_overrides[0].replace_module.x: the nearest known key is "
     "plan_overrides[0].replace_module._target_"},
    {"plan_overrides:\n  - {match: a, module_type: b, replace_module: {_target_: c}}\n"
     "  - {match: a, replace_module: {_target_: c}}\n",
     "missing key plan_overrides[1].module_type: not given, a string is required ("},
    {"plan_overrides: [{module_type: b, replace_module: {_target_: c}}]\n",
     "missing key plan_overrides[0].match"},
    {"plan_overrides: [{match: [], module_type: b, replace_module: {_target_: c}}]\n",
     "wrong type of plan_overrides[0].match: list, a list that is not empty"},
    {"plan_overrides: [{match: a, module_type: b}]\n",
     "missing key plan_overrides[0].replace_module._target_"},
};

static void config_load__what_is_not_supported__refused_by_key_and_value(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        refused_with(load_over_base(refusals[i].text, NULL), refusals[i].message);
        if (!strstr(refusals[i].message, "(default)"))
            assert_non_null(strstr(err.msg, "run.yaml:"));
    }
    /* The line is the one of the value. */
    refused_with(load_over_base("seed: 1\n\naccelerator:\n  # sizes\n  tp_size: 2\n", NULL),
                 "run.yaml:5)");
    refused_with(load_over_base("seed: 1\ntraining:\n  sed: 1\n", NULL), "run.yaml:3)");
}

static void config_load__activation_checkpoint_off_none_false__off(void **state)
{
    (void)state;
    static const char *const off[] = {"\"off\"", "off", "none", "false"};
    for (int i = 0; i < 4; i++) {
        char word[64];
        (void)snprintf(word, sizeof word, "gradient_checkpointing.activation_checkpoint=%s",
                       off[i]);
        accepts(load_over_base("gradient_checkpointing: {activation_checkpoint: full}\n", NULL));
        assert_true(config.activation_checkpoint.full);
        accepts(load_over_base("gradient_checkpointing: {activation_checkpoint: full}\n", word));
        assert_false(config.activation_checkpoint.full);
    }
}

/* --- FR-38 --- */

static void fr38__numbers_and_duplicates(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double lr;
    } floats[] = {{"2e-5", 2e-5}, {"1E-5", 1e-5}, {".5e-4", .5e-4}};
    for (int i = 0; i < 3; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "optimizer:\n  lr: %s\n", floats[i].text);
        accepts(load_over_base(text, NULL));
        assert_true(config.optimizer.lr == floats[i].lr);
    }
    refused_with(load_over_base("optimizer:\n  lr: \"2e-5\"\n", NULL),
                 "wrong type of optimizer.lr: string \"2e-5\", a finite float >= 0 is required (");
    assert_non_null(strstr(err.msg, "run.yaml:2)"));
    refused_with(load_over_base("optimizer:\n  lr: 1_000\n", NULL),
                 "wrong type of optimizer.lr: string \"1_000\", a finite float >= 0 is required (");
    assert_non_null(strstr(err.msg, "run.yaml:2)"));
    refused_with(load_over_base("training:\n  train_iters: 1_000\n", NULL),
                 "wrong type of training.train_iters: string \"1_000\"");
    refused_with(load_over_base("optimizer:\n  lr: 1\n  eps: 1e-8\n  lr: 2\n", NULL),
                 "duplicate key: 'lr' on line 2 and again on line 4, one is required");
    refused_with(load_over_base("seed: 1\noptimizer: {}\nseed: 1\n", NULL),
                 "duplicate key: 'seed' on line 1 and again on line 3");
    accepts(load_over_base("optimizer:\n  lr: 1e-3\n", "optimizer.lr=2e-5"));
    assert_true(config.optimizer.lr == 2e-5);
    assert_non_null(strstr(notes, "override optimizer.lr=2e-5 replaces float 1e-3 ("));
    assert_non_null(strstr(notes, "run.yaml:2)"));
    refused_with(load_over_base("seed: 1\n", "optimizer.lr=\"2e-5\""),
                 "string \"2e-5\", a finite float >= 0 is required (optimizer.lr=\"2e-5\")");
}

/* --- Files and words --- */

static void config_load__base_chain__relative_and_later_wins(void **state)
{
    (void)state;
    (void)temp_dir_make(&dir, "sub");
    (void)temp_dir_write(&dir, "root.yaml",
                         "model: {config_name_or_path: a, config_overrides: {x: 1, y: {z: 1}}}\n"
                         "training: {train_iters: 5, seq_length: 6}\ndataset: {path: [p, q]}\n");
    (void)temp_dir_write(&dir, "sub/middle.yaml",
                         "base: ../root.yaml\ntraining: {train_iters: 7}\ndataset: {path: r}\n"
                         "model: {config_overrides: {y: {w: 2}, x: 3}}\n");
    const char *top = temp_dir_write(&dir, "top.yaml", "seed: 3\nbase: sub/middle.yaml\n");
    const char *last = temp_dir_write(&dir, "last.yaml", "training: {seq_length: 9}\n");
    accepts(load((const char *[3]){top, last}, NULL));
    assert_int_equal(config.seed, 3);
    assert_int_equal(config.training.train_iters, 7);
    assert_int_equal(config.training.seq_length, 9);
    assert_int_equal(config.dataset.path.count, 1);
    assert_string_equal(config.dataset.path.items[0], "r");
    assert_string_equal(config.model.config_overrides_json,
                        "{\"x\": 3, \"y\": {\"z\": 1, \"w\": 2}}");
}

static void config_load__bad_base__refused(void **state)
{
    (void)state;
    const char *one = temp_dir_write(&dir, "one.yaml", "base: two.yaml\n");
    (void)temp_dir_write(&dir, "two.yaml", "seed: 1\nbase: ./one.yaml\n");
    refused_with(load((const char *[3]){one}, NULL), "is a base of itself");
    assert_non_null(strstr(err.msg, "two.yaml:2)"));
    const char *self = temp_dir_write(&dir, "self.yaml", "base: self.yaml\n");
    refused_with(load((const char *[3]){self}, NULL), "is a base of itself");
    const char *typed = temp_dir_write(&dir, "typed.yaml", "base: [a]\n");
    refused_with(load((const char *[3]){typed}, NULL), "wrong type of base: list, a file name");
    const char *lost = temp_dir_write(&dir, "lost.yaml", "\nbase: missing.yaml\n");
    assert_int_equal(load((const char *[3]){lost}, NULL), OCT_E_IO);
    assert_non_null(strstr(err.msg, "lost.yaml:2: cannot open configuration: No such file"));
    assert_non_null(strstr(err.msg, "missing.yaml)"));
    /* A long chain, each link another file. */
    for (int i = 0; i < 20; i++) {
        char name[32], text[64];
        (void)snprintf(name, sizeof name, "link%d.yaml", i);
        (void)snprintf(text, sizeof text, "base: link%d.yaml\n", i + 1);
        (void)temp_dir_write(&dir, name, text);
    }
    refused_with(load((const char *[3]){temp_dir_name(&dir, "link0.yaml")}, NULL),
                 "is base number 16 of a chain, 15 are allowed");
    /* The same base twice on different branches is no cycle. */
    const char *a = temp_dir_write(&dir, "a.yaml", "base: c.yaml\n");
    const char *b = temp_dir_write(&dir, "b.yaml", "base: c.yaml\n");
    (void)temp_dir_write(&dir, "c.yaml", "seed: 4\n");
    accepts(load((const char *[3]){BASE, a, b}, NULL));
    assert_int_equal(config.seed, 4);
}

static void config_load__words__typed_as_yaml_and_noted(void **state)
{
    (void)state;
    accepts(load((const char *[3]){BASE},
                 (const char *[3]){"dataset.path=[a.txt, '*.c']",
                                   "model.config_overrides.vocab_size=512", "training.threads=2"}));
    assert_int_equal(config.dataset.path.count, 2);
    assert_string_equal(config.dataset.path.items[1], "*.c");
    assert_string_equal(config.model.config_overrides_json, "{\"vocab_size\": 512}");
    assert_int_equal(config.training.threads, 2);
    assert_non_null(strstr(notes, "override training.threads=2 replaces the default null\n"));
    notes[0] = '\0';
    accepts(load((const char *[3]){BASE},
                 (const char *[3]){"seed=1", "seed=2", "fsdp_config={shard: even}"}));
    assert_int_equal(config.seed, 2);
    assert_string_equal(config.fsdp.shard, "even");
    assert_non_null(strstr(notes, "override seed=2 replaces integer 1 (seed=1)\n"));
    accepts(load((const char *[3]){BASE},
                 (const char *[3]){"checkpoint.restore_from=/a=b", "training.stop_at_step="}));
    assert_string_equal(config.checkpoint.restore_from, "/a=b");
    assert_int_equal(config.training.stop_at_step, -1);
}

static void config_load__bad_words__refused(void **state)
{
    (void)state;
    static const char *const words[][2] = {
        {"seed", "cannot read override: 'seed', key.path=value is required (seed)"},
        {"=1", "cannot read override: '=1'"},
        {"training..seq_length=1", "unknown key training."},
        {".seed=1", "unknown key "},
        {"seed.x=1", "wrong type of seed: map"},
        {"base=x.yaml", "unknown key base"},
        {"sead=1", "unknown key sead: the nearest known key is seed (sead=1)"},
        {"training.seq_length=x",
         "string \"x\", an integer >= 1 and < 2^31 is required (training.seq_length=x)"},
        {"dataset.path=*.txt", "an alias (*name)"},
        {"optimizer={lr: 1, lr: 2}",
         "duplicate key: 'lr' is given twice (optimizer={lr: 1, lr: 2})"},
        {"training=null", "wrong type of training: null"},
        {"plan_overrides.0.when=x", "wrong type of plan_overrides: map, a list of rules"},
        {"dataset.path=[", "valid YAML is required (dataset.path=[)"},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        refused_with(load_over_base("trace: false\n", words[i][0]), words[i][1]);
}

static void config_load__missing_keys__named(void **state)
{
    (void)state;
    const char *file = temp_dir_write(&dir, "few.yaml", "seed: 1\n");
    refused_with(load((const char *[3]){file}, NULL),
                 "missing key model.config_name_or_path: not given, a string is required (");
    refused_with(
        load((const char *[3]){file},
             (const char *[3]){"model.config_name_or_path=a", "training.train_iters=1",
                               "dataset.path=x"}),
        "missing key training.seq_length: not given, an integer >= 1 and < 2^31 is required");
    refused_with(load(NULL, NULL), "(no file)");
    assert_int_equal(load((const char *[3]){temp_dir_name(&dir, "nowhere.yaml")}, NULL), OCT_E_IO);
}

/* --- With ranks --- */

static void config_resolve__batches(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int ranks;
        int64_t global, steps; /* expected */
        const char *message;   /* or the error */
    } cases[] = {
        {"seed: 1\n", 1, 8, 8, NULL},
        {"seed: 1\n", 8, 8, 1, NULL},
        {"gradient_accumulation_steps: 3\n", 4, 12, 3, NULL},
        {"gradient_accumulation_steps: 3\ntraining: {micro_batch_size: 2}\n", 4, 24, 3, NULL},
        {"gradient_accumulation_steps: 4\ntraining: {global_batch_size: 8}\n", 2, 8, 4, NULL},
        {"gradient_accumulation_steps: null\ntraining: {global_batch_size: 16}\n", 2, 16, 8, NULL},
        {"gradient_accumulation_steps: 3\ntraining: {global_batch_size: 8}\n", 2, 0, 0,
         "cannot accumulate over 3 micro-steps: global_batch_size / (micro_batch_size * ranks) = 8 "
         "/ "
         "(1 * 2) = 4 is required (gradient_accumulation_steps, "},
        {"training: {global_batch_size: 9, micro_batch_size: 2}\n", 1, 0, 0,
         "cannot split the global batch: 9 sequences, a multiple of micro_batch_size * ranks = 2 * "
         "1 = "
         "2 is required (training.global_batch_size, "},
        {"seed: 1\n", 3, 0, 0, "8 sequences, a multiple of micro_batch_size * ranks = 1 * 3 = 3"},
        {"gradient_accumulation_steps: 3\ntraining: {global_batch_size: 7}\n", 2, 0, 0,
         "cannot split the global batch: 7 sequences"},
        {"gradient_accumulation_steps: 2147483647\ntraining: {micro_batch_size: 2147483647}\n", 64,
         0, 0, "a product of 64 bits is required (gradient_accumulation_steps, "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        accepts(load_over_base(cases[i].text, NULL));
        const oct_status status = oct_config_resolve(&config, cases[i].ranks, &err);
        if (cases[i].message) {
            refused_with(status, cases[i].message);
            continue;
        }
        accepts(status);
        assert_int_equal(config.training.global_batch_size, cases[i].global);
        assert_int_equal(config.gradient_accumulation_steps, cases[i].steps);
        accepts(oct_config_resolve(&config, cases[i].ranks, &err)); /* once more changes nothing */
        assert_int_equal(config.training.global_batch_size, cases[i].global);
        assert_int_equal(config.gradient_accumulation_steps, cases[i].steps);
    }
    assert_int_equal(oct_config_resolve(&config, 0, &err), OCT_E_API);
}

static void config_resolve__ascend__guides_message(void **state)
{
    (void)state;
    accepts(load_over_base("device: ascend\n", NULL));
    assert_int_equal(oct_config_resolve(&config, 1, &err), OCT_E_UNSUPPORTED);
    assert_non_null(
        strstr(err.msg, "[MXFP8/HiF8] is only supported on Ascend950 or higher architecture"));
}

/* --- Printing --- */

static void config_print__any_configuration__reads_back_the_same(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "seed: 1\n",
        "gradient_accumulation_steps: 3\n",
        "gradient_accumulation_steps: 4\ntraining: {global_batch_size: 8}\n",
        "low_precision: {enabled: true, format: hif8, scaling: current}\n"
        "gradient_checkpointing: {activation_checkpoint: full}\n"
        "checkpoint: {verify: size, on_failure: stop, restore_from: \"a: b # c\\n\\\"\"}\n"
        "logging: {format: json}\nlr_scheduler: {decay_type: cosine, decay_ratio: 0.1}\n"
        "optimizer: {lr: 0.1234567890123456, betas: [0, 0.999]}\n"
        "dataset: {path: [\"yes\", '12', \"-x\", \"*\", é], validation: {path: v, every: 1}}\n"
        "model: {config_overrides: {a: 1.0, b: [1e20, 'x'], c: {d: null}, e: true, f: \"\\t\"}}\n"
        "training: {stop_at_step: 3, threads: 1, max_grad_norm: 1e-300}\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *first = NULL, *second = NULL;
        accepts(load_over_base(texts[i], NULL));
        accepts(oct_config_resolve(&config, 2, &err));
        const oct_config before = config;
        accepts(oct_config_print(&config, &arena, &first, &err));
        accepts(load((const char *[3]){temp_dir_write(&dir, "printed.yaml", first)}, NULL));
        accepts(oct_config_resolve(&config, 2, &err));
        accepts(oct_config_print(&config, &arena, &second, &err));
        assert_string_equal(first, second);
        assert_true(before.optimizer.lr == config.optimizer.lr);
        assert_true(before.training.global_batch_size == config.training.global_batch_size);
        assert_true(before.gradient_accumulation_steps == config.gradient_accumulation_steps);
        assert_true(before.gradient_accumulation_steps_given ==
                    config.gradient_accumulation_steps_given);
        assert_string_equal(before.model.config_overrides_json, config.model.config_overrides_json);
        assert_int_equal(before.dataset.path.count, config.dataset.path.count);
        for (int64_t p = 0; p < config.dataset.path.count; p++)
            assert_string_equal(before.dataset.path.items[p], config.dataset.path.items[p]);
        check_plan();
    }
    assert_string_equal(config.checkpoint.restore_from, "a: b # c\n\"");
    assert_string_equal(config.dataset.path.items[4], "é");
    assert_true(config.logging.json && config.checkpoint.stop_on_failure);
    assert_false(config.checkpoint.verify_crc);
}

/* What followed from other keys follows anew where the printed file is used on more ranks. */
static void config_print__derived_numbers__not_fixed_for_other_ranks(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t global, steps; /* on 4 ranks, printed on 2 */
    } cases[] = {{"gradient_accumulation_steps: 3\n", 12, 3},
                 {"training: {global_batch_size: 16}\n", 16, 4},
                 {"seed: 1\n", 8, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = NULL;
        accepts(load_over_base(cases[i].text, NULL));
        accepts(oct_config_resolve(&config, 2, &err));
        accepts(oct_config_print(&config, &arena, &text, &err));
        accepts(load((const char *[3]){temp_dir_write(&dir, "printed.yaml", text)}, NULL));
        accepts(oct_config_resolve(&config, 4, &err));
        assert_int_equal(config.training.global_batch_size, cases[i].global);
        assert_int_equal(config.gradient_accumulation_steps, cases[i].steps);
    }
}

/* A configuration of its own cannot be made to crash the reader, whatever is done to its text. */
static void config_load__mutated_text__no_crash(void **state)
{
    (void)state;
    char *seed = NULL;
    accepts(load((const char *[3]){BASE}, NULL));
    accepts(oct_config_print(&config, &arena, &seed, &err));
    const size_t size = strlen(seed);
    char *original = malloc(size + 1), *text = malloc(size + 1);
    memcpy(original, seed, size + 1);
    static const char alphabet[] = ":-#&*[]{},\"' \n0.eE~!|>\xff";
    const oct_rng stream = oct_rng_stream(11, "config");
    uint64_t draw = 0;
    int legal = 0;
    for (int round = 0; round < 300; round++) {
        memcpy(text, original, size + 1);
        const uint64_t edits = 1 + oct_rng_below(stream, draw++, 3);
        for (uint64_t i = 0; i < edits; i++) {
            const size_t at = oct_rng_below(stream, draw++, size);
            text[at] = alphabet[oct_rng_below(stream, draw++, sizeof alphabet - 1)];
        }
        oct_arena_reset(&arena);
        const oct_status status =
            load((const char *[3]){temp_dir_write(&dir, "mutated.yaml", text)}, NULL);
        legal += status == OCT_OK;
        if (status != OCT_OK) {
            assert_int_equal(status, OCT_E_CONFIG);
            assert_non_null(strstr(err.msg, "mutated.yaml"));
        }
    }
    assert_in_range(legal, 1, 299); /* both outcomes were met */
    free(original);
    free(text);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(config_load__base_alone__defaults_of_the_reference),
        TEST(config_load__fragments_of_the_design_document__legal_over_base),
        TEST(config_load__shipped_files__legal_with_explicit_targets),
        TEST(config_load__low_precision_null__disabled),
        TEST(config_load__what_is_not_supported__refused_by_key_and_value),
        TEST(config_load__activation_checkpoint_off_none_false__off),
        TEST(fr38__numbers_and_duplicates),
        TEST(config_load__base_chain__relative_and_later_wins),
        TEST(config_load__bad_base__refused),
        TEST(config_load__words__typed_as_yaml_and_noted),
        TEST(config_load__bad_words__refused),
        TEST(config_load__missing_keys__named),
        TEST(config_resolve__batches),
        TEST(config_resolve__ascend__guides_message),
        TEST(config_print__any_configuration__reads_back_the_same),
        TEST(config_print__derived_numbers__not_fixed_for_other_ranks),
        TEST(config_load__mutated_text__no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
