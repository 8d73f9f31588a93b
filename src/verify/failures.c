#include "verify/failures.h"

#include <stddef.h>
#include <string.h>

const char oct_failure_parse[] = "parse";
const char oct_failure_resolve[] = "resolve";
const char oct_failure_step[] = "step";

#define PARSE   oct_failure_parse
#define RESOLVE oct_failure_resolve
#define STEP    oct_failure_step

/* Exit codes of the program. */
enum { FAILED = 1, USAGE = 2, CHECKPOINT = 4, COMMUNICATION = 6 };

#define LINEAR_TARGET                                                                              \
    "hyper_models.components.training.low_precision.modules.linear.replace_low_precision_linear"
#define EXPERTS_TARGET                                                                             \
    "hyper_models.components.models.adapters.deepseek_v3.low_precision."                           \
    "replace_deepseek_v3_low_precision_experts"
#define EXPERTS_TYPE "transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3Experts"

/* One rule of plan_overrides. */
#define RULE(match, type, target)                                                                  \
    "  - match: \"" match "\"\n"                                                                   \
    "    module_type: " type "\n"                                                                  \
    "    replace_module:\n"                                                                        \
    "      _target_: " target "\n"
#define PLAN "plan_overrides:\n"

/* A value of a key that is refused while the configuration is read. */
#define REFUSED(id_, rows_, wrong_, word, key, found, required)                                    \
    {                                                                                              \
        .id = id_, .rows = rows_, .wrong = wrong_, .words = {word}, .stage = PARSE,                \
        .exit_code = USAGE, .holds = {                                                             \
            key,                                                                                   \
            found,                                                                                 \
            required,                                                                              \
            word                                                                                   \
        }                                                                                          \
    }

/* A key that does not exist, and why. */
#define NO_KEY(id_, rows_, wrong_, word, key, why)                                                 \
    {                                                                                              \
        .id = id_, .rows = rows_, .wrong = wrong_, .words = {word}, .stage = PARSE,                \
        .exit_code = USAGE, .holds = {                                                             \
            "unsupported key " key,                                                                \
            why,                                                                                   \
            word                                                                                   \
        }                                                                                          \
    }

/* A rule that cannot be compiled. */
#define BAD_RULE(id_, rows_, wrong_, yaml_, ...)                                                   \
    {                                                                                              \
        .id = id_, .rows = rows_, .wrong = wrong_, .yaml = yaml_, .stage = "plan",                 \
        .exit_code = USAGE, .holds = {                                                             \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* A torchtitan job that cannot be read. */
#define BAD_JOB(id_, rows_, wrong_, toml_, ...)                                                    \
    {                                                                                              \
        .id = id_, .rows = rows_, .wrong = wrong_, .toml = toml_, .stage = PARSE,                  \
        .exit_code = USAGE, .holds = {                                                             \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* A kernel that the chosen format needs and that is not there. */
#define NO_KERNEL(id_, rows_, kernel, format_, scaling_)                                           \
    {                                                                                              \
        .id = id_, .rows = rows_, .wrong = "no kernel " kernel,                                    \
        .words = {"low_precision.format=" format_, "low_precision.scaling=" scaling_},             \
        .fault = "gate." kernel ":1", .stage = "policy", .exit_code = FAILED, .holds = {           \
            "capability gate",                                                                     \
            format_,                                                                               \
            "'" kernel "'",                                                                        \
            "required",                                                                            \
            "low_precision.format"                                                                 \
        }                                                                                          \
    }

/* A field of the HF config that is not that of the frozen 16B. */
#define NOT_16B(field, value, stage_, required)                                                    \
    {                                                                                              \
        .id = "15.10-" field, .rows = "1.2 4.4 15.10", .wrong = "the 16B with another " field,     \
        .base = OCT_FAILURE_16B, .words = {"model.config_overrides." field "=" value},             \
        .stage = stage_, .exit_code = USAGE, .holds = {                                            \
            "'" field "'",                                                                         \
            value,                                                                                 \
            "required",                                                                            \
            required                                                                               \
        }                                                                                          \
    }

/* A kernel that fails in step 3, in both formats. */
#define FAILS_AT_3(point, wrong_, ...)                                                             \
    {.id = "15.8-mxfp8-" point,                                                                    \
     .rows = "1.10 15.8 16.16",                                                                    \
     .wrong = wrong_ " in MXFP8",                                                                  \
     .fault = point ":1:step=3",                                                                   \
     .stage = STEP,                                                                                \
     .step = 3,                                                                                    \
     .exit_code = FAILED,                                                                          \
     .holds = {"a fault is planted", "mxfp8_e4m3", __VA_ARGS__}},                                  \
    {                                                                                              \
        .id = "15.8-hif8-" point, .rows = "1.10 15.8 16.16", .wrong = wrong_ " in HiF8",           \
        .words = {"low_precision.format=hif8", "low_precision.scaling=current"},                   \
        .fault = point ":1:step=3", .stage = STEP, .step = 3, .exit_code = FAILED, .holds = {      \
            "a fault is planted",                                                                  \
            "hif8",                                                                                \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

const oct_failure oct_failures[] = {
    /* --- 15.1, 15.9: device and instruction set --- */
    {.id = "15.1-device-ascend",
     .rows = "15.1 15.9",
     .wrong = "a device without a backend",
     .words = {"device=ascend"},
     .stage = RESOLVE,
     .exit_code = FAILED,
     .holds = {"[MXFP8/HiF8] is only supported on Ascend950 or higher architecture", "'ascend'",
               "cpu is required", "(device)"}},
    REFUSED("15.1-device-unknown", "15.1 15.9", "a device that does not exist", "device=cuda",
            "device", "'cuda'", "one of cpu, ascend"),
    {.id = "15.1-isa-unknown",
     .rows = "15.1 15.9",
     .wrong = "an instruction set that does not exist",
     .isa = "sse9",
     .stage = "policy",
     .exit_code = USAGE,
     .holds = {"'sse9'", "one of ref, avx2, avx512 is required", "OCTET_ISA"}},
    {.id = "15.1-isa-missing",
     .rows = "15.1 15.9",
     .wrong = "an instruction set that the CPU does not have",
     .isa = "avx2",
     .fault = "cpu.features:1",
     .stage = "policy",
     .exit_code = FAILED,
     .holds = {"'avx2'", "'ref' at most", "required", "OCTET_ISA"}},

    /* --- 15.2, 15.3: capability of a format --- */
    NO_KERNEL("15.2-mx_rows", "14.8 15.2", "mx_rows", "mxfp8_e4m3", "mx_block"),
    NO_KERNEL("15.2-mx_cols", "14.8 15.2", "mx_cols", "mxfp8_e4m3", "mx_block"),
    NO_KERNEL("15.2-bounds_mxfp8", "14.8 15.2", "bounds_mxfp8", "mxfp8_e4m3", "mx_block"),
    NO_KERNEL("15.2-integer_tile", "14.8 15.2", "integer_tile", "mxfp8_e4m3", "mx_block"),
    NO_KERNEL("15.3-amax", "14.8 15.3", "amax", "hif8", "current"),
    NO_KERNEL("15.3-hif8_encode", "14.8 15.3", "hif8_encode", "hif8", "current"),
    NO_KERNEL("15.3-bounds_hif8", "14.8 15.3", "bounds_hif8", "hif8", "current"),
    NO_KERNEL("15.3-integer_tile", "14.8 15.3", "integer_tile", "hif8", "current"),

    /* --- 15.4, 15.11: format, scaling, and keys beside them --- */
    {.id = "15.4-mxfp8-current",
     .rows = "4.6 15.4 15.11 16.2",
     .wrong = "MXFP8 with current scaling",
     .words = {"low_precision.scaling=current"},
     .stage = PARSE,
     .exit_code = USAGE,
     .holds = {"low_precision.format", "low_precision.scaling", "mxfp8_e4m3", "current",
               "mxfp8_e4m3 with mx_block or hif8 with current is required"}},
    {.id = "15.4-hif8-alone",
     .rows = "4.6 15.4 15.11 16.2",
     .wrong = "HiF8 with block scaling, the default",
     .words = {"low_precision.format=hif8"},
     .stage = PARSE,
     .exit_code = USAGE,
     .holds = {"low_precision.format", "low_precision.scaling", "hif8", "mx_block",
               "mxfp8_e4m3 with mx_block or hif8 with current is required"}},
    {.id = "15.4-pair-while-off",
     .rows = "4.6 15.4 16.2",
     .wrong = "an illegal pair while low precision is off",
     .words = {"low_precision.enabled=false", "low_precision.format=hif8"},
     .stage = PARSE,
     .exit_code = USAGE,
     .holds = {"low_precision.format", "low_precision.scaling", "hif8", "mx_block"}},
    REFUSED("15.4-hif8-delayed", "1.9 15.4 15.11 16.2 17.3.1h", "delayed scaling",
            "low_precision.scaling=delayed", "low_precision.scaling", "'delayed'",
            "delayed scaling is not supported"),
    REFUSED("15.11-mxfp4", "1.9 15.11", "MXFP4", "low_precision.format=mxfp4",
            "low_precision.format", "'mxfp4'", "one of mxfp8_e4m3, hif8"),
    REFUSED("15.11-e5m2", "1.9 15.11", "MXFP8 with E5M2", "low_precision.format=mxfp8_e5m2",
            "low_precision.format", "'mxfp8_e5m2'", "one of mxfp8_e4m3, hif8"),
    REFUSED("15.11-nvfp4", "1.9 15.11", "NVFP4", "low_precision.format=nvfp4",
            "low_precision.format", "'nvfp4'", "one of mxfp8_e4m3, hif8"),
    NO_KEY("15.4-margin", "4.7 15.4", "a margin of current scaling", "low_precision.margin=1",
           "low_precision.margin", "current scaling has nothing to tune"),
    NO_KEY("15.4-amax-history", "15.4 17.3.1h 18.1", "a key of delayed scaling",
           "low_precision.amax_history_len=16", "low_precision.amax_history_len",
           "delayed scaling is not supported"),
    NO_KEY("15.4-scale-interval", "15.4 17.3.1h 18.1", "a key of delayed scaling",
           "low_precision.scale_update_interval=4", "low_precision.scale_update_interval",
           "delayed scaling is not supported"),
    NO_KEY("15.4-format-max", "3.15 15.4", "another format maximum", "low_precision.format_max=240",
           "low_precision.format_max", "fixed by the recipe"),
    NO_KEY("15.4-block-size", "3.15 15.4", "another block size", "low_precision.block_size=16",
           "low_precision.block_size", "fixed by the recipe"),
    NO_KEY("15.4-scale-alg", "3.15 15.4", "another rule of MX scales", "low_precision.scale_alg=0",
           "low_precision.scale_alg", "fixed by the recipe"),
    {.id = "15.4-format-in-rule",
     .rows = "4.12 15.4",
     .wrong = "a rule of plan_overrides with a format",
     .yaml = PLAN "  - match: \"model.layers.*.self_attn.o_proj\"\n"
                  "    module_type: torch.nn.Linear\n"
                  "    format: hif8\n"
                  "    replace_module:\n"
                  "      _target_: " LINEAR_TARGET "\n",
     .stage = PARSE,
     .exit_code = USAGE,
     .holds = {"unknown key plan_overrides[0].format", "nearest known key", "yaml:4"}},

    /* --- 15.5, 15.12, 15.19: rules --- */
    {.id = "15.5-no-rule",
     .rows = "15.5 15.12",
     .wrong = "low precision without a rule",
     .words = {"plan_overrides=[]"},
     .stage = PARSE,
     .exit_code = USAGE,
     .holds = {"low_precision.enabled", "plan_overrides", "at least one rule is required"}},
    BAD_RULE("15.5-no-hit", "4.14 15.5 15.12 16.6", "a pattern without a hit",
             PLAN RULE("model.layers.*.self_attn.q_projj", "torch.nn.Linear", LINEAR_TARGET),
             "'model.layers.*.self_attn.q_projj' matches 0 modules", "at least 1 is required",
             "nearest", "self_attn.", "yaml:2"),
    BAD_RULE("15.5-one-pattern-no-hit", "4.14 15.5 15.12 16.6",
             "a second pattern of a rule without a hit",
             PLAN "  - match: [\"model.layers.*.self_attn.o_proj\", \"model.layers.*.mlp.w2\"]\n"
                  "    module_type: torch.nn.Linear\n"
                  "    replace_module:\n"
                  "      _target_: " LINEAR_TARGET "\n",
             "'model.layers.*.mlp.w2' matches 0 modules", "at least 1 is required", "yaml:2"),
    BAD_RULE("15.5-router", "1.9 1.13 15.5 15.12 15.19",
             "a rule on the router, which multiplies in its forward function",
             PLAN RULE("model.layers.1.mlp.gate", "torch.nn.Linear", LINEAR_TARGET),
             "'model.layers.1.mlp.gate'", "DeepseekV3TopkRouter", "'torch.nn.Linear' is required",
             "yaml:2"),
    BAD_RULE("15.5-two-rules", "4.15 15.5 16.6", "two factories for one module",
             PLAN RULE("model.layers.*.self_attn.o_proj", "torch.nn.Linear", LINEAR_TARGET)
                 RULE("model.layers.1.self_attn.*_proj", "torch.nn.Linear", LINEAR_TARGET),
             "'model.layers.1.self_attn.o_proj'", "two rules hit it", "one is required", "yaml:2",
             "yaml:6"),
    BAD_RULE("15.5-factory-unknown", "4.20 15.5", "a factory that does not exist",
             PLAN RULE("model.layers.*.self_attn.o_proj", "torch.nn.Linear", LINEAR_TARGET "s"),
             "'" LINEAR_TARGET "s'", "nearest", "'" LINEAR_TARGET "'", "_target_", "yaml:2"),
    BAD_RULE("15.5-wrong-factory", "15.5 15.12", "a factory for another type",
             PLAN RULE("model.layers.*.self_attn.o_proj", EXPERTS_TYPE, EXPERTS_TARGET),
             "self_attn.o_proj'", "torch.nn.Linear", "DeepseekV3Experts' is required", "yaml:2"),
    {.id = "15.5-subclasses",
     .rows = "1.9 4.16 15.5 16.5",
     .wrong = "a rule that takes subclasses",
     .yaml = PLAN "  - match: \"model.layers.*.self_attn.o_proj\"\n"
                  "    module_type: torch.nn.Linear\n"
                  "    exact_type: false\n"
                  "    replace_module:\n"
                  "      _target_: " LINEAR_TARGET "\n",
     .stage = PARSE,
     .exit_code = USAGE,
     .holds = {"plan_overrides[0].exact_type", "'false'", "true is required",
               "subclasses are never replaced", "yaml:4"}},
    {.id = "15.5-when",
     .rows = "4.20 15.5",
     .wrong = "a rule for another occasion",
     .yaml = PLAN "  - match: \"model.layers.*.self_attn.o_proj\"\n"
                  "    when: cp\n"
                  "    module_type: torch.nn.Linear\n"
                  "    replace_module:\n"
                  "      _target_: " LINEAR_TARGET "\n",
     .stage = PARSE,
     .exit_code = USAGE,
     .holds = {"plan_overrides[0].when", "'cp'", "low_precision is required", "yaml:3"}},
    BAD_RULE("15.19-linear-subclass", "1.9 15.19 16.5", "a subclass of Linear as the type",
             PLAN RULE("model.layers.*.self_attn.o_proj",
                       "torch.nn.modules.linear.NonDynamicallyQuantizableLinear", LINEAR_TARGET),
             "no module type is named", "NonDynamicallyQuantizableLinear", "'torch.nn.Linear'",
             "module_type", "yaml:2"),
    BAD_RULE("15.19-peft-type", "1.9 15.19 16.5", "a PEFT wrapper as the type",
             PLAN RULE("model.layers.*.self_attn.o_proj", "peft.tuners.lora.layer.Linear",
                       LINEAR_TARGET),
             "no module type is named", "'peft.tuners.lora.layer.Linear'", "nearest", "module_type",
             "yaml:2"),
    BAD_RULE(
        "15.19-peft-fqn", "1.9 15.19 16.5", "a module inside a PEFT wrapper",
        PLAN RULE("model.layers.*.self_attn.o_proj.base_layer", "torch.nn.Linear", LINEAR_TARGET),
        "self_attn.o_proj.base_layer' matches 0 modules", "at least 1 is required", "yaml:2"),
    BAD_RULE("15.19-fused-type", "1.9 15.19 15.20", "a fused module as the type",
             PLAN RULE("model.layers.0.mlp", "flash_attn.ops.fused_dense.FusedMLP", LINEAR_TARGET),
             "no module type is named", "'flash_attn.ops.fused_dense.FusedMLP'", "nearest",
             "module_type", "yaml:2"),
    BAD_RULE("15.19-custom-module", "1.9 15.19 16.5", "a rule on a whole MLP",
             PLAN RULE("model.layers.0.mlp", "torch.nn.Linear", LINEAR_TARGET),
             "'model.layers.0.mlp'", "DeepseekV3MLP", "'torch.nn.Linear' is required", "yaml:2"),
    {.id = "15.5-shared-parameter",
     .rows = "15.5 16.7",
     .wrong = "a rule on a head whose weight is the embedding's",
     .words = {"model.config_overrides.tie_word_embeddings=true"},
     .yaml = PLAN RULE("lm_head", "torch.nn.Linear", LINEAR_TARGET),
     .stage = "plan",
     .exit_code = USAGE,
     .holds = {"'lm_head'", "'model.embed_tokens.weight'", "'model.embed_tokens'",
               "both or none are required", "yaml:2"}},
    {.id = "15.5-schema",
     .rows = "5.2 15.5 16.8",
     .wrong = "a factory that loses a parameter",
     .fault = "replacement.schema:3",
     .stage = "replace",
     .exit_code = USAGE,
     .holds = {"cannot replace 'model.layers.0.self_attn.kv_b_proj'", LINEAR_TARGET,
               "number of parameters", "the same is required"}},
    {.id = "15.5-factory-fails",
     .rows = "13.2 15.5 16.6",
     .wrong = "the fourth factory call fails",
     .fault = "replacement.build:4",
     .stage = "replace",
     .exit_code = USAGE,
     .holds = {"building the replacement of 'model.layers.0.self_attn.o_proj'",
               "a fault is planted", "required"}},

    /* --- 15.6, 15.13, 15.14: parallelism and communication --- */
    REFUSED("15.13-tp", "1.3 1.9 15.6 15.13", "tensor parallelism", "accelerator.tp_size=2",
            "accelerator.tp_size", "'2'", "tensor parallelism is not supported"),
    REFUSED("15.13-cp", "1.3 1.9 15.6 15.13", "context parallelism", "accelerator.cp_size=2",
            "accelerator.cp_size", "'2'", "context parallelism is not supported"),
    REFUSED("15.13-ep", "1.3 1.9 15.6 15.13", "expert parallelism", "accelerator.ep_size=8",
            "accelerator.ep_size", "'8'", "expert parallelism is not supported"),
    REFUSED("15.13-pp", "1.3 1.9 15.6 15.13", "pipeline parallelism", "accelerator.pp_size=2",
            "accelerator.pp_size", "'2'", "pipeline parallelism is not supported"),
    {.id = "15.13-dp-shard-size",
     .rows = "15.13",
     .wrong = "shards for another number of ranks",
     .words = {"fsdp_config.dp_shard_size=3"},
     .stage = RESOLVE,
     .exit_code = USAGE,
     .holds = {"cannot shard over 3 ranks", "the run has 1", "required",
               "fsdp_config.dp_shard_size"}},
    REFUSED("15.14-comm-fusion", "1.9 15.6 15.14 16.32", "fused communication",
            "fsdp_config.comm_fusion=true", "fsdp_config.comm_fusion", "'true'",
            "fused communication is not supported"),
    REFUSED("1.9-gradient-dtype", "1.9", "gradients that travel in 8 bits",
            "training.reduce_dtype=float8_e4m3fn", "training.reduce_dtype", "'float8_e4m3fn'",
            "one of float32, bfloat16"),
    NO_KEY("1.9-gradient-reduce", "1.9", "gradients that travel in 8 bits",
           "fsdp_config.low_precision_reduce=true", "fsdp_config.low_precision_reduce",
           "gradients travel in float32 or bfloat16"),
    NO_KEY("1.9-all-to-all", "1.9", "an all-to-all in 8 bits", "moe.low_precision_all_to_all=true",
           "moe.low_precision_all_to_all", "there is no all-to-all"),
    NO_KEY("1.9-fp8-dispatch", "1.9", "a dispatch of tokens in 8 bits", "moe.fp8_dispatch=true",
           "moe.fp8_dispatch", "there is no all-to-all"),

    /* --- 15.6, 15.17: checkpoints --- */
    REFUSED("15.17-format", "1.9 15.6 15.17", "a checkpoint of another format",
            "checkpoint.format=safetensors", "checkpoint.format", "'safetensors'",
            "dcp is required"),
    {.id = "15.17-restore",
     .rows = "1.9 15.17",
     .wrong = "a restore from a file that is no DCP checkpoint",
     .words = {"checkpoint.restore_from=configs/base.yaml"},
     .stage = "choosing a checkpoint",
     .exit_code = CHECKPOINT,
     .holds = {"configs/base.yaml", "required"}},

    /* --- 15.7, 15.15: shards --- */
    {.id = "15.7-16b-even",
     .rows = "15.7 15.15 9.5 9.6 K1",
     .wrong = "the frozen 16B in equal shards on 8 ranks, in MXFP8",
     .base = OCT_FAILURE_16B,
     .words = {"fsdp_config.shard=even"},
     .ranks = 8,
     .stage = "cut",
     .exit_code = USAGE,
     .holds = {"'model.layers.0.self_attn.kv_a_proj_with_mqa.weight' [3136, 2048]",
               "3136 rows over 8 ranks", "a cut after 392", "a multiple of 64 rows",
               "fsdp_config.fallback_to_unsharded"}},
    {.id = "15.7-experts-even",
     .rows = "9.10 15.7 15.15",
     .wrong = "experts that do not divide by the ranks, in equal shards",
     .words = {"fsdp_config.shard=even", "low_precision.format=hif8",
               "low_precision.scaling=current", "model.config_overrides.vocab_size=320",
               "model.config_overrides.n_routed_experts=5"},
     .ranks = 2,
     .stage = "cut",
     .exit_code = USAGE,
     .holds = {"'model.layers.1.mlp.experts.gate_up_proj' [5,", "5 experts over 2 ranks",
               "divisible by the ranks", "fsdp_config.shard: even",
               "fsdp_config.fallback_to_unsharded"}},
    {.id = "15.7-experts-short",
     .rows = "9.5 15.7 15.15",
     .wrong = "a cut between MXFP8 experts that is no multiple of 64 rows",
     .words = {"model.config_overrides.n_routed_experts=2",
               "model.config_overrides.num_experts_per_tok=1",
               "model.config_overrides.moe_intermediate_size=24"},
     .ranks = 2,
     .stage = "cut",
     .exit_code = USAGE,
     .holds = {"'model.layers.1.mlp.experts.gate_up_proj' [2, 48,", "2 experts over 2 ranks",
               "a cut after 1", "a multiple of 64 rows", "fsdp_config.fallback_to_unsharded"}},

    /* --- 15.8: kernels that fail while training --- */
    FAILS_AT_3("quantize.dense.input", "the quantization of a dense input", "input_fwd",
               "model.layers.0.self_attn.q_proj"),
    FAILS_AT_3("quantize.dense.grad_output", "the quantization of a dense gradient", "grad_output",
               "mlp.shared_experts.down_proj"),
    FAILS_AT_3("quantize.grouped.input", "the quantization of an input of the experts", "input_fwd",
               "mlp.experts.gate_up_proj"),
    FAILS_AT_3("quantize.grouped.grad_output", "the quantization of a gradient of the experts",
               "grad_output", "mlp.experts.down_proj"),
    FAILS_AT_3("matmul.dense.fprop", "a dense product of the forward pass", "fprop product",
               "model.layers.0.self_attn.q_proj"),
    FAILS_AT_3("matmul.dense.dgrad", "a dense product for an input gradient", "dgrad product",
               "mlp.shared_experts.down_proj"),
    FAILS_AT_3("matmul.dense.wgrad", "a dense product for a weight gradient", "wgrad product",
               "mlp.shared_experts.down_proj"),
    FAILS_AT_3("matmul.grouped.fprop", "a grouped product of the forward pass", "fprop product",
               "mlp.experts.gate_up_proj"),
    FAILS_AT_3("matmul.grouped.dgrad", "a grouped product for an input gradient", "dgrad product",
               "mlp.experts.down_proj"),
    FAILS_AT_3("matmul.grouped.wgrad", "a grouped product for a weight gradient", "wgrad product",
               "mlp.experts.down_proj"),
    FAILS_AT_3("weight.refresh", "the refresh of a weight", "refreshing",
               "model.layers.0.self_attn.q_proj.weight"),
    {.id = "15.8-update",
     .rows = "10.5 15.8",
     .wrong = "the optimizer",
     .fault = "optimizer.update:1:step=3",
     .stage = STEP,
     .step = 3,
     .exit_code = FAILED,
     .holds = {"cannot update weights", "optimizer.update"}},
    {.id = "15.8-gather",
     .rows = "1.10 15.8",
     .wrong = "an all-gather on rank 1",
     .fault = "fsdp.gather:1:rank=1:step=3",
     .ranks = 2,
     .stage = STEP,
     .step = 3,
     .exit_code = COMMUNICATION,
     .holds = {"gathering 'model.embed_tokens'", "forward pass", "a fault is planted"}},
    {.id = "15.8-reduce",
     .rows = "1.10 15.8",
     .wrong = "a reduce-scatter on rank 1",
     .fault = "fsdp.reduce:1:rank=1:step=3",
     .ranks = 2,
     .stage = STEP,
     .step = 3,
     .exit_code = COMMUNICATION,
     .holds = {"reducing the gradient of 'lm_head.weight'", "a fault is planted"}},
    {.id = "15.8-replicated",
     .rows = "1.10 15.8 15.15",
     .wrong = "a product of a replicated weight on rank 1",
     .words = {"fsdp_config.shard=even", "fsdp_config.fallback_to_unsharded=true",
               "model.config_overrides.n_routed_experts=5"},
     .fault = "matmul.grouped.fprop:1:rank=1:step=3",
     .ranks = 2,
     .stage = STEP,
     .step = 3,
     .exit_code = FAILED,
     .holds = {"fprop product", "mlp.experts.gate_up_proj", "a fault is planted"}},

    /* --- 15.10: the frozen 16B --- */
    NOT_16B("vocab_size", "102401", "meta", "102400"),
    NOT_16B("hidden_size", "1984", "meta", "2048"),
    NOT_16B("intermediate_size", "10880", "meta", "10944"),
    NOT_16B("moe_intermediate_size", "1344", "meta", "1408"),
    NOT_16B("num_hidden_layers", "27", "meta", "28"),
    NOT_16B("first_k_dense_replace", "2", "meta", "1"),
    {.id = "15.10-num_attention_heads",
     .rows = "1.2 4.4 15.10",
     .wrong = "the 16B with another number of heads",
     .base = OCT_FAILURE_16B,
     .words = {"model.config_overrides.num_attention_heads=8",
               "model.config_overrides.num_key_value_heads=8"},
     .stage = "meta",
     .exit_code = USAGE,
     .holds = {"'num_attention_heads' is 8", "required 16", "model.expect"}},
    NOT_16B("num_key_value_heads", "8", "hf_config", "16"),
    NOT_16B("n_routed_experts", "63", "meta", "64"),
    NOT_16B("n_shared_experts", "1", "meta", "2"),
    NOT_16B("q_lora_rank", "1536", "meta", "null"),
    NOT_16B("kv_lora_rank", "512", "meta", "3072"),
    NOT_16B("qk_nope_head_dim", "128", "meta", "64"),
    NOT_16B("qk_rope_head_dim", "32", "meta", "64"),
    NOT_16B("v_head_dim", "64", "meta", "128"),
    NOT_16B("num_experts_per_tok", "8", "meta", "6"),
    NOT_16B("n_group", "8", "meta", "1"),
    NOT_16B("topk_group", "2", "hf_config", "n_group"),
    NOT_16B("max_position_embeddings", "8192", "meta", "4096"),
    NOT_16B("norm_topk_prob", "false", "meta", "true"),
    NOT_16B("use_cache", "true", "meta", "false"),
    NOT_16B("attention_bias", "true", "meta", "false"),
    NOT_16B("tie_word_embeddings", "true", "meta", "false"),
    NOT_16B("routed_scaling_factor", "1.0", "meta", "2.5"),
    {.id = "15.10-other-model",
     .rows = "15.10",
     .wrong = "another architecture",
     .words = {"model.config_overrides.model_type=llama"},
     .stage = "hf_config",
     .exit_code = USAGE,
     .holds = {"model_type", "llama", "'deepseek_v3'"}},
    {.id = "15.10-small-as-16b",
     .rows = "15.10",
     .wrong = "a small model under the name of the 16B",
     .words = {"model.expect=deepseek_v3_16b"},
     .stage = "meta",
     .exit_code = USAGE,
     .holds = {"model is not deepseek_v3_16b", "'vocab_size'", "required 102400", "model.expect"}},

    /* --- 15.16: optimizer --- */
    REFUSED("15.16-optimizer", "15.16", "another optimizer", "optimizer._target_=muon",
            "optimizer._target_", "'muon'", "AdamW with FP32 master weights and moments"),
    NO_KEY("15.16-state", "15.16", "states in BF16", "optimizer.state_dtype=bfloat16",
           "optimizer.state_dtype", "FP32 is the only dtype"),
    NO_KEY("15.16-master", "15.16", "masters in BF16", "optimizer.master_dtype=bfloat16",
           "optimizer.master_dtype", "FP32 is the only dtype"),
    NO_KEY("15.16-exp_avg", "15.16", "moments in BF16", "optimizer.exp_avg_dtype=bfloat16",
           "optimizer.exp_avg_dtype", "FP32 is the only dtype"),

    /* --- 15.18: recompute --- */
    REFUSED("15.18-selective", "15.18 K19", "selective recompute",
            "gradient_checkpointing.activation_checkpoint=selective",
            "gradient_checkpointing.activation_checkpoint", "'selective'",
            "selective recompute is not supported"),

    /* --- 15.20: graph compilation, fused operators, and what else is left out --- */
    NO_KEY("15.20-compile", "15.20", "graph compilation", "training.compile=true",
           "training.compile", "torch.compile is not supported"),
    NO_KEY("15.20-compile-section", "15.20", "graph compilation", "compile.enable=true", "compile",
           "torch.compile is not supported"),
    NO_KEY("15.20-fused", "15.20", "fused operators in 8 bits", "low_precision.fused_ops=true",
           "low_precision.fused_ops", "fused low-precision operators are not supported"),
    NO_KEY("1.9-observer", "1.9 14.9", "the Precision Observer", "precision_observer.enabled=true",
           "precision_observer", "the Precision Observer is not connected"),
    NO_KEY("1.9-rms-norm", "1.9", "RMSNorm in 8 bits", "low_precision.rms_norm=true",
           "low_precision.rms_norm", "stays in high precision"),
    NO_KEY("1.9-swiglu", "1.9", "SwiGLU in 8 bits", "low_precision.swiglu=true",
           "low_precision.swiglu", "stays in high precision"),
    NO_KEY("1.9-attention", "1.9 1.14", "core attention in 8 bits", "low_precision.attention=true",
           "low_precision.attention", "stay in high precision"),
    NO_KEY("1.14-fp8-dot-product", "1.9 1.14", "core attention in 8 bits",
           "low_precision.fp8_dot_product_attention=true",
           "low_precision.fp8_dot_product_attention", "stay in high precision"),
    NO_KEY("1.14-fp8-multi-head", "1.9 1.14", "core attention in 8 bits",
           "low_precision.fp8_multi_head_attention=true", "low_precision.fp8_multi_head_attention",
           "stay in high precision"),
    REFUSED("1.9-fused-attention", "1.9 15.20", "a fused attention operator",
            "model.attn_implementation=flash_attention_2", "model.attn_implementation",
            "'flash_attention_2'", "sdpa is required"),
    NO_KEY("1.9-peft", "1.9 15.19", "PEFT", "peft.r=8", "peft", "PEFT modules are not supported"),
    NO_KEY("1.9-lora", "1.9 15.19", "LoRA", "model.lora=true", "model.lora",
           "PEFT modules are not supported"),

    /* --- the same limits in a torchtitan job --- */
    BAD_JOB("15.5-toml-order", "15.5 B8 B23", "converters in the wrong order",
            "converters = [\"quantize.grouped_mm.mx\", \"npu_gmm\"]\n",
            "wrong order of model converters", "'npu_gmm'", "before 'quantize.grouped_mm.mx'",
            "model.converters", "toml:4"),
    BAD_JOB("15.5-toml-no-expert", "4.14 15.5 B6 B23", "an entry of fqns that hits nothing",
            "converters = [\"npu_gmm\", \"quantize.grouped_mm.mx\"]\n"
            "[quantize.grouped_mm.mx]\n"
            "fqns = [\"expertz\"]\n",
            "'expertz' of quantize.grouped_mm.mx.fqns matches 0 modules", "nearest",
            "model.layers.*.mlp.experts", "toml:6"),
    BAD_JOB("15.5-toml-filter-case", "15.5 B4 B23", "a filter in another case",
            "converters = [\"quantize.linear.mx\"]\n"
            "[quantize.linear.mx]\n"
            "filter_fqns = [\"Output\"]\n",
            "'Output' of quantize.linear.mx.filter_fqns matches 0 modules",
            "upper and lower case as they are", "nearest", "'output'", "toml:6"),
    BAD_JOB("15.11-toml-recipe", "15.11 B3", "a recipe that does not exist",
            "converters = [\"quantize.linear.mx\"]\n"
            "[quantize.linear.mx]\n"
            "recipe_name = \"mxfp4\"\n",
            "recipe_name mxfp4 not in valid names ['mxfp8', 'hif8']",
            "quantize.linear.mx.recipe_name", "toml:6"),
    BAD_JOB("15.11-toml-mixed", "15.11 B9", "converters of two kinds of quantization",
            "converters = [\"quantize.linear.mx\", \"quantize.linear.float8\"]\n",
            "Cannot combine model converters with different quantization types", "'float8'", "'mx'",
            "toml:4"),
    BAD_JOB("15.13-toml-tp", "15.6 15.13", "tensor parallelism",
            "[parallelism]\n"
            "tensor_parallel_degree = 2\n",
            "'2'", "1 is required", "tensor parallelism is not supported",
            "parallelism.tensor_parallel_degree", "toml:5"),
    BAD_JOB("15.16-toml-optimizer", "15.16", "another optimizer",
            "[optimizer]\n"
            "name = \"Adam\"\n",
            "optimizer.name", "\"Adam\"", "\"AdamW\" is required", "toml:5"),
    BAD_JOB("15.18-toml-selective", "15.18 K19", "selective recompute",
            "[activation_checkpoint]\n"
            "mode = \"selective\"\n",
            "activation_checkpoint.mode", "'selective'", "one of off, full is required",
            "selective recompute is not supported", "toml:5"),
    BAD_JOB("15.5-toml-unknown-key", "15.5 B2", "a key that does not exist",
            "[quantize.linear.mx]\n"
            "recipe = \"mxfp8\"\n",
            "Invalid field names in quantize.linear.mx data: {'recipe'}", "nearest known key",
            "toml:5"),

    /* --- 14.11: parts put together wrongly --- */
    {.id = "14.11-kernel-on-meta",
     .rows = "12.3 14.11",
     .wrong = "a kernel call while the model is on meta",
     .fault = "meta.kernel:1",
     .stage = "meta",
     .exit_code = USAGE,
     .holds = {"build stage 'meta' left the meta device", "'model.embed_tokens.weight'",
               "none before stage 'materialise' is required"}},
    {.id = "14.11-unseen-weight",
     .rows = "14.11",
     .wrong = "an 8-bit weight that sharding does not see, on rank 1",
     .fault = "shard.unseen:2:rank=1",
     .ranks = 2,
     .stage = "masters",
     .exit_code = USAGE,
     .holds = {"cannot shard 'model.layers.0.self_attn.kv_a_proj_with_mqa.weight'",
               "neither a value nor an extension", "one of them is required"}},
    {.id = "14.11-hook-twice",
     .rows = "14.11",
     .wrong = "an extension that is registered twice, on rank 1",
     .fault = "shard.twice:1:rank=1",
     .ranks = 2,
     .stage = "shard",
     .exit_code = USAGE,
     .holds = {"cannot extend the sharding of 'model.layers.0.self_attn.q_proj.weight'",
               "extended already", "required"}},
    {.id = "14.11-no-master",
     .rows = "10.2 14.11",
     .wrong = "an optimizer without a high-precision master",
     .fault = "optimizer.master:3",
     .stage = "masters",
     .exit_code = USAGE,
     .holds = {"cannot build the optimizer", "model.layers.0.self_attn.kv_a_proj_with_mqa.weight",
               "no FP32 values to be its master", "required"}},
    {.id = NULL},
};

bool oct_failure_shows(const oct_failure *failure, const char *row)
{
    const size_t length = strlen(row);
    for (const char *at = failure->rows; (at = strstr(at, row)); at++) {
        const bool begins = at == failure->rows || at[-1] == ' ';
        if (begins && (at[length] == ' ' || at[length] == '\0'))
            return true;
    }
    return false;
}
