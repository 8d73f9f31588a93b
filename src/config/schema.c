#include "config/schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"

#define AT(member)   offsetof(oct_config, member)
#define RULE(member) offsetof(oct_plan_override, member)

/* Counts fit a double exactly up to here; no honest count is larger. */
#define COUNT_MAX       0x1p53
#define INT32_COUNT_MAX (0x1p31 - 1)

static const oct_key config_keys[] = {
    {.path = "device",
     .type = OCT_KEY_WORD,
     .offset = AT(device),
     .fallback = "cpu",
     .words = {"cpu", "ascend"},
     .help = "backend; ascend stops at start, no such backend is built in"},
    {.path = "seed",
     .type = OCT_KEY_INT,
     .offset = AT(seed),
     .fallback = "2026",
     .max = COUNT_MAX,
     .help = "of the initialisation and of the order of samples"},
    {.path = "trace",
     .type = OCT_KEY_BOOL,
     .offset = AT(trace),
     .fallback = "false",
     .help = "writes trace-R.jsonl, one file per rank"},

    {.path = "model._target_",
     .type = OCT_KEY_WORD,
     .offset = AT(model.target),
     .fallback = "hyper_models._transformers.HyperAutoModelForCausalLM.from_hf_config",
     .words = {"hyper_models._transformers.HyperAutoModelForCausalLM.from_hf_config",
               "octet.from_hf_config"},
     .help = "builds the model from an HF config with random weights"},
    {.path = "model.config_name_or_path",
     .type = OCT_KEY_STRING,
     .offset = AT(model.config_name_or_path),
     .example = "path",
     .help = "folder with config.json, or the file; relative to the working directory"},
    {.path = "model.config_overrides",
     .type = OCT_KEY_FIELDS,
     .offset = AT(model.config_overrides_json),
     .fallback = "{}",
     .help = "any field of the HF config"},
    {.path = "model.torch_dtype",
     .type = OCT_KEY_WORD,
     .offset = AT(model.torch_dtype),
     .fallback = "bfloat16",
     .words = {"bfloat16", "float32"},
     .help = "activations, GEMM outputs, high-precision parameters"},
    {.path = "model.attn_implementation",
     .type = OCT_KEY_WORD,
     .offset = AT(model.attn_implementation),
     .fallback = "sdpa",
     .words = {"sdpa"},
     .help = "attention"},
    {.path = "model.force_hf",
     .type = OCT_KEY_BOOL,
     .offset = AT(model.force_hf),
     .fallback = "true",
     .help = "accepted, no effect"},
    {.path = "model.expect",
     .type = OCT_KEY_WORD,
     .offset = AT(model.expect),
     .fallback = "none",
     .words = {"none", "deepseek_v3_16b"},
     .help = "checks the built model against the frozen 16B structure"},

    {.path = "low_precision.enabled",
     .type = OCT_KEY_BOOL,
     .offset = AT(low_precision.enabled),
     .fallback = "false",
     .help = "needs a rule in plan_overrides; `low_precision: null` means false"},
    {.path = "low_precision.format",
     .type = OCT_KEY_WORD,
     .offset = AT(low_precision.format),
     .fallback = "mxfp8_e4m3",
     .words = {"mxfp8_e4m3", "hif8"},
     .help = "8-bit format of the operands"},
    {.path = "low_precision.scaling",
     .type = OCT_KEY_WORD,
     .offset = AT(low_precision.scaling),
     .fallback = "mx_block",
     .words = {"mx_block", "current"},
     .reason = "delayed scaling is not supported",
     .help = "legal pairs: mxfp8_e4m3 with mx_block, hif8 with current"},

    {.path = "plan_overrides",
     .type = OCT_KEY_PLAN,
     .offset = AT(plan_overrides),
     .fallback = "[]",
     .help = "which modules compute in low precision"},

    {.path = "training.train_iters",
     .type = OCT_KEY_INT,
     .offset = AT(training.train_iters),
     .min = 1,
     .max = COUNT_MAX,
     .example = "int",
     .unit = "optimizer steps",
     .help = "length of the schedule"},
    {.path = "training.stop_at_step",
     .type = OCT_KEY_INT,
     .offset = AT(training.stop_at_step),
     .fallback = "null",
     .nullable = true,
     .absent = -1,
     .min = 1,
     .max = COUNT_MAX,
     .unit = "optimizer steps",
     .help = "ends earlier without changing the schedule"},
    {.path = "training.seq_length",
     .type = OCT_KEY_INT,
     .offset = AT(training.seq_length),
     .min = 1,
     .max = INT32_COUNT_MAX,
     .example = "int",
     .unit = "tokens",
     .help = "inputs per sequence; a sample is seq_length + 1 consecutive tokens, across document "
             "ends"},
    {.path = "training.global_batch_size",
     .type = OCT_KEY_INT,
     .offset = AT(training.global_batch_size),
     .fallback = "8",
     .min = 1,
     .max = COUNT_MAX,
     .unit = "sequences per step",
     .help = "if only gradient_accumulation_steps is given: micro_batch_size * ranks * "
             "gradient_accumulation_steps"},
    {.path = "training.micro_batch_size",
     .type = OCT_KEY_INT,
     .offset = AT(training.micro_batch_size),
     .fallback = "1",
     .min = 1,
     .max = INT32_COUNT_MAX,
     .unit = "sequences",
     .help = "per rank and micro-step"},
    {.path = "training.max_grad_norm",
     .type = OCT_KEY_FLOAT,
     .offset = AT(training.max_grad_norm),
     .fallback = "1.0",
     .max = HUGE_VAL,
     .help = "clips gradients by min(1, max_grad_norm / (norm + 1e-6)); 0 = no clipping"},
    {.path = "training.max_consecutive_skips",
     .type = OCT_KEY_INT,
     .offset = AT(training.max_consecutive_skips),
     .fallback = "5",
     .min = 1,
     .max = COUNT_MAX,
     .unit = "steps",
     .help = "non-finite steps in a row before the run stops with exit code 5"},
    {.path = "training.reduce_dtype",
     .type = OCT_KEY_WORD,
     .offset = AT(training.reduce_dtype),
     .fallback = "float32",
     .words = {"float32", "bfloat16"},
     .help = "dtype of a micro-batch's gradient before it is added up"},
    {.path = "training.threads",
     .type = OCT_KEY_INT,
     .offset = AT(training.threads),
     .fallback = "null",
     .nullable = true,
     .absent = 0,
     .min = 1,
     .max = 65536,
     .unit = "threads per rank",
     .help = "null = allowed cores / ranks on the node"},

    {.path = "gradient_accumulation_steps",
     .type = OCT_KEY_INT,
     .offset = AT(gradient_accumulation_steps),
     .fallback = "null",
     .nullable = true,
     .absent = 0,
     .min = 1,
     .max = INT32_COUNT_MAX,
     .unit = "micro-steps",
     .help = "with global_batch_size it must equal global_batch_size / (micro_batch_size * ranks)"},

    {.path = "optimizer._target_",
     .type = OCT_KEY_WORD,
     .offset = AT(optimizer.target),
     .fallback = "adamw",
     .words = {"adamw"},
     .reason = "AdamW with FP32 master weights and moments is the only optimizer",
     .help = "AdamW, decoupled decay on every parameter; FP32 master weights and moments"},
    {.path = "optimizer.lr",
     .type = OCT_KEY_FLOAT,
     .offset = AT(optimizer.lr),
     .fallback = "3.0e-4",
     .max = HUGE_VAL,
     .help = "largest learning rate"},
    {.path = "optimizer.betas",
     .type = OCT_KEY_FLOAT_PAIR,
     .offset = AT(optimizer.beta1),
     .fallback = "[0.9, 0.95]",
     .max = 1,
     .below_max = true,
     .help = "decay of the first and second moment"},
    {.path = "optimizer.eps",
     .type = OCT_KEY_FLOAT,
     .offset = AT(optimizer.eps),
     .fallback = "1.0e-8",
     .min = 1e-37, /* a normal FP32 number: with eps = 0 an element without gradient gives 0/0 */
     .max = HUGE_VAL,
     .help = "added to the root of the second moment"},
    {.path = "optimizer.weight_decay",
     .type = OCT_KEY_FLOAT,
     .offset = AT(optimizer.weight_decay),
     .fallback = "0.1",
     .max = HUGE_VAL,
     .help = "decoupled weight decay"},

    {.path = "lr_scheduler.warmup_steps",
     .type = OCT_KEY_INT,
     .offset = AT(lr_scheduler.warmup_steps),
     .fallback = "0",
     .max = COUNT_MAX,
     .unit = "optimizer steps",
     .help = "linear warmup; at most train_iters"},
    {.path = "lr_scheduler.decay_ratio",
     .type = OCT_KEY_FLOAT,
     .offset = AT(lr_scheduler.decay_ratio),
     .fallback = "null",
     .nullable = true,
     .absent = -1,
     .max = 1,
     .unit = "share of train_iters",
     .help = "length of the decay; null = everything after the warmup"},
    {.path = "lr_scheduler.decay_type",
     .type = OCT_KEY_WORD_ENUM,
     .offset = AT(lr_scheduler.decay_type),
     .fallback = "linear",
     .words = {"linear", "sqrt", "cosine", "constant"},
     .help = "shape of the decay"},
    {.path = "lr_scheduler.min_lr_factor",
     .type = OCT_KEY_FLOAT,
     .offset = AT(lr_scheduler.min_lr_factor),
     .fallback = "0.0",
     .max = 1,
     .unit = "share of lr",
     .help = "where the decay ends"},

    {.path = "moe.bias_update_rate",
     .type = OCT_KEY_FLOAT,
     .offset = AT(moe.bias_update_rate),
     .fallback = "0.0",
     .max = HUGE_VAL,
     .help = "load balancing: bias += rate * sign(mean - count) after each step; 0 = off"},

    {.path = "dataset.path",
     .type = OCT_KEY_STRINGS,
     .offset = AT(dataset.path),
     .example = "path or list of paths",
     .help = "text files, folders, globs, or token shards (*.bin); relative to the working "
             "directory"},
    {.path = "dataset.tokenizer",
     .type = OCT_KEY_WORD,
     .offset = AT(dataset.tokenizer),
     .fallback = "bytes",
     .words = {"bytes"},
     .reason = "tokenizer.json is not supported",
     .help = "of text files: a byte is its own id, 256 ends a document"},
    {.path = "dataset.shuffle",
     .type = OCT_KEY_BOOL,
     .offset = AT(dataset.shuffle),
     .fallback = "true",
     .help = "visits the samples of each epoch in an order of its own"},
    {.path = "dataset.validation.path",
     .type = OCT_KEY_STRINGS,
     .offset = AT(dataset.validation.path),
     .fallback = "null",
     .nullable = true,
     .help = "as dataset.path; read in file order"},
    {.path = "dataset.validation.every",
     .type = OCT_KEY_INT,
     .offset = AT(dataset.validation.every),
     .fallback = "0",
     .max = COUNT_MAX,
     .unit = "optimizer steps",
     .help = "0 = no validation"},
    {.path = "dataset.validation.steps",
     .type = OCT_KEY_INT,
     .offset = AT(dataset.validation.steps),
     .fallback = "8",
     .max = COUNT_MAX,
     .unit = "batches of global_batch_size",
     .help = "length of one validation"},

    {.path = "accelerator.tp_size",
     .type = OCT_KEY_INT,
     .offset = AT(accelerator.tp_size),
     .fallback = "1",
     .only = "1",
     .reason = "tensor parallelism is not supported",
     .help = "tensor parallel size"},
    {.path = "accelerator.cp_size",
     .type = OCT_KEY_INT,
     .offset = AT(accelerator.cp_size),
     .fallback = "1",
     .only = "1",
     .reason = "context parallelism is not supported",
     .help = "context parallel size"},
    {.path = "accelerator.ep_size",
     .type = OCT_KEY_INT,
     .offset = AT(accelerator.ep_size),
     .fallback = "1",
     .only = "1",
     .reason = "expert parallelism is not supported",
     .help = "expert parallel size"},
    {.path = "accelerator.pp_size",
     .type = OCT_KEY_INT,
     .offset = AT(accelerator.pp_size),
     .fallback = "1",
     .only = "1",
     .reason = "pipeline parallelism is not supported",
     .help = "pipeline parallel size"},

    {.path = "fsdp_config.dp_shard_size",
     .type = OCT_KEY_INT,
     .offset = AT(fsdp.dp_shard_size),
     .fallback = "-1",
     .min = -1,
     .max = INT32_COUNT_MAX,
     .unit = "ranks",
     .help = "-1 = all ranks; another number must equal them"},
    {.path = "fsdp_config.reshard_after_forward",
     .type = OCT_KEY_BOOL,
     .offset = AT(fsdp.reshard_after_forward),
     .fallback = "true",
     .help = "frees gathered parameters after the forward pass and gathers again in the backward; "
             "one rank gathers nothing"},
    {.path = "fsdp_config.comm_fusion",
     .type = OCT_KEY_BOOL,
     .offset = AT(fsdp.comm_fusion),
     .fallback = "false",
     .only = "false",
     .reason = "fused communication is not supported",
     .help = "fused communication"},
    {.path = "fsdp_config.fallback_to_unsharded",
     .type = OCT_KEY_BOOL,
     .offset = AT(fsdp.fallback_to_unsharded),
     .fallback = "false",
     .help = "replicates a parameter that cannot be sharded legally; false: such a parameter is an "
             "error"},
    {.path = "fsdp_config.shard",
     .type = OCT_KEY_WORD,
     .offset = AT(fsdp.shard),
     .fallback = "tile",
     .words = {"tile", "even"},
     .help = "whole 64-row tiles, or equal shards"},
    {.path = "fsdp_config.prefetch",
     .type = OCT_KEY_BOOL,
     .offset = AT(fsdp.prefetch),
     .fallback = "false",
     .help = "gathers the next unit before this one computes: memory of one more unit; one rank "
             "gathers nothing"},
    {.path = "fsdp_config.narrow_backward_gather",
     .type = OCT_KEY_BOOL,
     .offset = AT(fsdp.narrow_backward_gather),
     .fallback = "false",
     .help = "gathers in the backward pass only the orientation that it reads, unless it recomputes "
             "the forward pass; one rank gathers nothing"},

    {.path = "gradient_checkpointing.activation_checkpoint",
     .type = OCT_KEY_WORD_BOOL,
     .offset = AT(activation_checkpoint.full),
     .fallback = "\"off\"",
     .words = {"off", "full"},
     .none_is_first = true,
     .reason = "selective recompute is not supported",
     .help = "recomputes activations in the backward pass; none and false mean off"},

    {.path = "checkpoint.format",
     .type = OCT_KEY_WORD,
     .offset = AT(checkpoint.format),
     .fallback = "dcp",
     .words = {"dcp"},
     .help = "torch.distributed.checkpoint"},
    {.path = "checkpoint.save_steps",
     .type = OCT_KEY_INT,
     .offset = AT(checkpoint.save_steps),
     .fallback = "0",
     .max = COUNT_MAX,
     .unit = "optimizer steps",
     .help = "0 = only at the end and on signals"},
    {.path = "checkpoint.keep_latest_k",
     .type = OCT_KEY_INT,
     .offset = AT(checkpoint.keep_latest_k),
     .fallback = "3",
     .max = COUNT_MAX,
     .unit = "checkpoints",
     .help = "0 = all"},
    {.path = "checkpoint.restore_from",
     .type = OCT_KEY_STRING,
     .offset = AT(checkpoint.restore_from),
     .fallback = "null",
     .nullable = true,
     .help = "latest, step-N or a path"},
    {.path = "checkpoint.restore_optimizer",
     .type = OCT_KEY_BOOL,
     .offset = AT(checkpoint.restore_optimizer),
     .fallback = "true",
     .help = "false: weights only"},
    {.path = "checkpoint.async",
     .type = OCT_KEY_BOOL,
     .offset = AT(checkpoint.async),
     .fallback = "true",
     .help = "writes while training goes on"},
    {.path = "checkpoint.verify",
     .type = OCT_KEY_WORD_BOOL,
     .offset = AT(checkpoint.verify_crc),
     .fallback = "crc",
     .words = {"size", "crc"},
     .help = "what is checked when a checkpoint is read"},
    {.path = "checkpoint.on_failure",
     .type = OCT_KEY_WORD_BOOL,
     .offset = AT(checkpoint.stop_on_failure),
     .fallback = "continue",
     .words = {"continue", "stop"},
     .help = "when a checkpoint cannot be written"},

    {.path = "logging.every",
     .type = OCT_KEY_INT,
     .offset = AT(logging.every),
     .fallback = "1",
     .min = 1,
     .max = COUNT_MAX,
     .unit = "optimizer steps",
     .help = "between progress lines"},
    {.path = "logging.format",
     .type = OCT_KEY_WORD_BOOL,
     .offset = AT(logging.json),
     .fallback = "text",
     .words = {"text", "json"},
     .help = "of progress lines"},
    {.path = "logging.tensorboard",
     .type = OCT_KEY_BOOL,
     .offset = AT(logging.tensorboard),
     .fallback = "false",
     .only = "false",
     .reason = "TensorBoard files are not supported",
     .help = "TensorBoard event files"},
};

static const oct_key plan_override_keys[] = {
    {.path = "match",
     .type = OCT_KEY_STRINGS,
     .offset = RULE(match),
     .example = "pattern or list of patterns",
     .help = "full FQNs; * matches within one segment"},
    {.path = "when",
     .type = OCT_KEY_WORD,
     .offset = RULE(when),
     .fallback = "low_precision",
     .words = {"low_precision"},
     .help = "active only while low_precision.enabled"},
    {.path = "module_type",
     .type = OCT_KEY_STRING,
     .offset = RULE(module_type),
     .example = "type",
     .help = "type that every hit must have"},
    {.path = "exact_type",
     .type = OCT_KEY_BOOL,
     .offset = RULE(exact_type),
     .fallback = "true",
     .only = "true",
     .reason = "subclasses are never replaced",
     .help = "the type itself, no subclass"},
    {.path = "replace_module._target_",
     .type = OCT_KEY_STRING,
     .offset = RULE(target),
     .example = "factory",
     .help = "builds the replacement"},
};

/* Keys that people bring from other trainers or that the design document excludes. A path that ends
 * in one of these says why it is refused, instead of naming a neighbour. */
static const struct {
    const char *name, *reason;
} refusals[] = {
    {"compile", "torch.compile is not supported"},
    {"torch_compile", "torch.compile is not supported"},
    {"fused_ops", "fused low-precision operators are not supported"},
    {"state_dtype", "FP32 is the only dtype of optimizer states"},
    {"master_dtype", "FP32 is the only dtype of master weights"},
    {"moments_dtype", "FP32 is the only dtype of moments"},
    {"exp_avg_dtype", "FP32 is the only dtype of moments"},
    {"exp_avg_sq_dtype", "FP32 is the only dtype of moments"},
    {"margin", "current scaling has nothing to tune"},
    {"amax_history_len", "delayed scaling is not supported"},
    {"amax_compute_algo", "delayed scaling is not supported"},
    {"scale_update_interval", "delayed scaling is not supported"},
    {"scale_alg", "the rule of MX scales is fixed by the recipe"},
    {"format_max", "the maxima of HiF8 are fixed by the recipe"},
    {"block_size", "the block of 32 is fixed by the recipe"},
    {"fused", "fused low-precision operators are not supported"},
    {"rms_norm", "normalization stays in high precision"},
    {"swiglu", "SwiGLU stays in high precision"},
    {"attention", "QK, softmax and PV stay in high precision"},
    {"fp8_dot_product_attention", "QK, softmax and PV stay in high precision"},
    {"fp8_multi_head_attention", "QK, softmax and PV stay in high precision"},
    {"low_precision_reduce", "gradients travel in float32 or bfloat16"},
    {"fp8_gradient_reduce", "gradients travel in float32 or bfloat16"},
    {"all_to_all", "experts are not exchanged between ranks, there is no all-to-all"},
    {"low_precision_all_to_all", "experts are not exchanged between ranks, there is no all-to-all"},
    {"fp8_dispatch", "experts are not exchanged between ranks, there is no all-to-all"},
    {"precision_observer", "the Precision Observer is not connected"},
    {"observer", "the Precision Observer is not connected"},
    {"peft", "PEFT modules are not supported"},
    {"lora", "PEFT modules are not supported"},
};

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

oct_schema oct_schema_config(void)
{
    return (oct_schema){.keys = config_keys, .count = COUNT(config_keys)};
}

oct_schema oct_schema_plan_override(void)
{
    return (oct_schema){.keys = plan_override_keys, .count = COUNT(plan_override_keys)};
}

const oct_key *oct_schema_find(oct_schema schema, const char *path)
{
    for (int i = 0; i < schema.count; i++)
        if (strcmp(schema.keys[i].path, path) == 0)
            return &schema.keys[i];
    return NULL;
}

bool oct_schema_is_section(oct_schema schema, const char *path)
{
    const size_t length = strlen(path);
    for (int i = 0; i < schema.count; i++)
        if (strncmp(schema.keys[i].path, path, length) == 0 && schema.keys[i].path[length] == '.')
            return true;
    return false;
}

static const char *last_segment(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

const char *oct_schema_nearest(oct_schema schema, const char *path)
{
    const char *nearest = schema.keys[0].path;
    size_t least = SIZE_MAX;
    for (int i = 0; i < schema.count; i++) {
        const char *candidate = schema.keys[i].path;
        const char *dot = strrchr(candidate, '.');
        const size_t whole = oct_edit_distance(path, candidate);
        /* The right name in the wrong section is one step away; a neighbour in the same section is
         * likelier than one elsewhere. */
        const size_t name = oct_edit_distance(last_segment(path), last_segment(candidate)) + 1;
        size_t distance = whole < name ? whole : name;
        if (dot && strncmp(path, candidate, (size_t)(dot - candidate) + 1) == 0)
            distance = distance / 2;
        if (distance < least) {
            least = distance;
            nearest = candidate;
        }
    }
    return nearest;
}

const char *oct_schema_refusal(const char *path)
{
    for (int i = 0; i < COUNT(refusals); i++)
        if (strcmp(last_segment(path), refusals[i].name) == 0)
            return refusals[i].reason;
    return NULL;
}

static void describe_bounds(const oct_key *key, const char *what, char *buffer, size_t room)
{
    const int used =
        snprintf(buffer, room, "%s %s %.15g", what, key->above_min ? ">" : ">=", key->min);
    if (used < 0 || (size_t)used >= room || isinf(key->max))
        return;
    buffer += used;
    room -= (size_t)used;
    if (key->max == COUNT_MAX)
        (void)snprintf(buffer, room, " and <= 2^53");
    else if (key->max == INT32_COUNT_MAX)
        (void)snprintf(buffer, room, " and < 2^31");
    else
        (void)snprintf(buffer, room, " and %s %.15g", key->below_max ? "<" : "<=", key->max);
}

static void describe_words(const oct_key *key, char *buffer, size_t room)
{
    size_t used = 0;
    for (int i = 0; key->words[i]; i++) {
        const char *lead = i ? ", " : key->words[1] ? "one of " : "";
        const int more = snprintf(buffer + used, room - used, "%s%s", lead, key->words[i]);
        if (more < 0 || (size_t)more >= room - used)
            return;
        used += (size_t)more;
    }
}

const char *oct_key_requires(const oct_key *key, char buffer[OCT_KEY_REQUIRES])
{
    const char *fixed = NULL;
    buffer[0] = '\0';
    switch (key->type) {
    case OCT_KEY_BOOL:
        fixed = key->only ? key->only : "true or false";
        break;
    case OCT_KEY_INT:
        if (key->only)
            fixed = key->only;
        else
            describe_bounds(key, "an integer", buffer, OCT_KEY_REQUIRES);
        break;
    case OCT_KEY_FLOAT:
        describe_bounds(key, "a finite float", buffer, OCT_KEY_REQUIRES);
        break;
    case OCT_KEY_FLOAT_PAIR:
        describe_bounds(key, "a list of two floats", buffer, OCT_KEY_REQUIRES);
        break;
    case OCT_KEY_STRING:
        fixed = "a string";
        break;
    case OCT_KEY_STRINGS:
        fixed = "a string or a list of strings";
        break;
    case OCT_KEY_WORD:
    case OCT_KEY_WORD_BOOL:
    case OCT_KEY_WORD_ENUM:
        describe_words(key, buffer, OCT_KEY_REQUIRES);
        break;
    case OCT_KEY_FIELDS:
        fixed = "a map";
        break;
    case OCT_KEY_PLAN:
        fixed = "a list of rules";
        break;
    }
    if (fixed)
        (void)snprintf(buffer, OCT_KEY_REQUIRES, "%s", fixed);
    const size_t used = strlen(buffer);
    if (key->nullable)
        (void)snprintf(buffer + used, OCT_KEY_REQUIRES - used, ", or null");
    return buffer;
}
