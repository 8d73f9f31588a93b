#include "config/torchtitan_keys.h"

#include <stdint.h>
#include <string.h>

#include "base/nearest.h"

#define ROW(path, type, fallback, fate, octet, note, ...)                                          \
    {                                                                                              \
        path, OCT_TT_##type, fallback, OCT_TT_##fate, octet, note,                                 \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define MAPPED(path, type, fallback, octet, note)                                                  \
    ROW(path, type, fallback, MAPPED, octet, note, NULL)
#define READ(path, type, fallback, octet, note, ...)                                               \
    ROW(path, type, fallback, READ, octet, note, __VA_ARGS__)
#define IGNORED(path, type, fallback, note, ...)                                                   \
    ROW(path, type, fallback, IGNORED, NULL, note, __VA_ARGS__)
#define WARNED(path, type, fallback, note)  ROW(path, type, fallback, WARNED, NULL, note, NULL)
#define REFUSED(path, type, fallback, note) ROW(path, type, fallback, REFUSED, NULL, note, NULL)

/* Sections as in torchtitan's JobConfig. */
static const oct_torchtitan_key keys[] = {
    WARNED("job.config_file", STRING, "null", "files are named on the command line"),
    WARNED("job.dump_folder", STRING, "./outputs", "--run-dir chooses the run directory"),
    IGNORED("job.description", STRING, "default job", "a text for readers", NULL),
    WARNED("job.print_config", BOOL, "false", "octet train --print-config prints it"),
    WARNED("job.save_config_file", STRING, "null", "config.yaml in the run directory holds it"),
    IGNORED("job.custom_config_module", STRING, "\"\"",
            "the keys of torchtitan-npu are always known; no other module can be loaded", "",
            "torchtitan_npu.config.custom_config"),
    WARNED("profiling.enable_profiling", BOOL, "false",
           "metrics.jsonl times the parts of each step"),
    WARNED("profiling.save_traces_folder", STRING, "profile_traces",
           "metrics.jsonl times the parts of each step"),
    WARNED("profiling.profile_freq", INT, "10", "metrics.jsonl times the parts of each step"),
    WARNED("profiling.profiler_active", INT, "1", "metrics.jsonl times the parts of each step"),
    WARNED("profiling.profiler_warmup", INT, "3", "metrics.jsonl times the parts of each step"),
    WARNED("profiling.enable_memory_snapshot", BOOL, "false",
           "metrics.jsonl times the parts of each step"),
    WARNED("profiling.save_memory_snapshot_folder", STRING, "memory_snapshot",
           "metrics.jsonl times the parts of each step"),
    WARNED("profiling.profile_step_start", INT, "0", "metrics.jsonl times the parts of each step"),
    WARNED("profiling.profile_step_end", INT, "0", "metrics.jsonl times the parts of each step"),
    WARNED("profiling.profile_ranks", LIST, "[-1]", "metrics.jsonl times the parts of each step"),
    WARNED("profiling.profile_record_shapes", BOOL, "true",
           "metrics.jsonl times the parts of each step"),
    WARNED("profiling.profile_with_memory", BOOL, "false",
           "metrics.jsonl times the parts of each step"),
    WARNED("profiling.profile_with_stack", BOOL, "false",
           "metrics.jsonl times the parts of each step"),
    WARNED("profiling.enable_online_parse", BOOL, "true",
           "metrics.jsonl times the parts of each step"),
    MAPPED("metrics.log_freq", INT, "10", "logging.every", NULL),
    MAPPED("metrics.enable_tensorboard", BOOL, "false", "logging.tensorboard", NULL),
    WARNED("metrics.disable_color_printing", BOOL, "false", "the log has no colors"),
    WARNED("metrics.save_tb_folder", STRING, "tb", "there are no TensorBoard files"),
    WARNED("metrics.save_for_all_ranks", BOOL, "false", "rank 0 writes metrics of all ranks"),
    WARNED("metrics.enable_wandb", BOOL, "false", "metrics.jsonl holds the metrics"),
    IGNORED("model.name", STRING, "llama3", "DeepSeek-V3 is the only architecture", "deepseek_v3"),
    REFUSED("model.flavor", STRING, NULL,
            "torchtitan's flavors are other models; name an HF config in model.hf_config"),
    MAPPED("model.hf_config", STRING, NULL, "model.config_name_or_path",
           "key of octet: folder with config.json, or the file"),
    REFUSED(
        "model.hf_assets_path", STRING, "./tests/assets/tokenizer",
        "tokenizer.json is not supported; text is read byte by byte, and token shards as they are"),
    REFUSED(
        "model.tokenizer_path", STRING, "null",
        "tokenizers are not supported; text is read byte by byte, and token shards as they are"),
    READ("model.converters", STRINGS, "[]", "plan_overrides",
         "the replacement rules and low_precision follow from the converters", NULL),
    WARNED("model.print_after_conversion", BOOL, "false", "octet plan lists what is replaced"),
    READ("optimizer.name", STRING, "AdamW", "optimizer._target_",
         "AdamW with FP32 master weights and moments is the only optimizer", "AdamW"),
    MAPPED("optimizer.lr", FLOAT, "8.0e-4", "optimizer.lr", NULL),
    READ("optimizer.beta1", FLOAT, "0.9", "optimizer.betas", "the first of the pair", NULL),
    READ("optimizer.beta2", FLOAT, "0.95", "optimizer.betas", "the second of the pair", NULL),
    MAPPED("optimizer.eps", FLOAT, "1.0e-8", "optimizer.eps", NULL),
    MAPPED("optimizer.weight_decay", FLOAT, "0.1", "optimizer.weight_decay", NULL),
    IGNORED("optimizer.implementation", STRING, "fused", "there is one implementation", "for-loop",
            "foreach", "fused"),
    REFUSED("optimizer.early_step_in_backward", BOOL, "false",
            "gradients are clipped before any update"),
    WARNED("optimizer.swap_optimizer", BOOL, "false", "moments stay in memory"),
    WARNED("optimizer.swap_optimizer_times", INT, "16", "moments stay in memory"),
    WARNED("optimizer.muon_lr", FLOAT, "null", "AdamW does not read it"),
    WARNED("optimizer.muon_momentum", FLOAT, "0.95", "AdamW does not read it"),
    WARNED("optimizer.muon_enable_nesterov", BOOL, "true", "AdamW does not read it"),
    WARNED("optimizer.muon_ns_steps", INT, "5", "AdamW does not read it"),
    WARNED("optimizer.muon_adjust_lr_fn", STRING, "match_rms_adamw", "AdamW does not read it"),
    MAPPED("lr_scheduler.warmup_steps", INT, "200", "lr_scheduler.warmup_steps", NULL),
    READ("lr_scheduler.total_steps", INT, "null", "training.stop_at_step",
         "train_iters is total_steps where it is given, and stop_at_step is training.steps", NULL),
    MAPPED("lr_scheduler.decay_ratio", FLOAT, "null", "lr_scheduler.decay_ratio", NULL),
    MAPPED("lr_scheduler.decay_type", STRING, "linear", "lr_scheduler.decay_type", NULL),
    MAPPED("lr_scheduler.min_lr_factor", FLOAT, "0.0", "lr_scheduler.min_lr_factor", NULL),
    WARNED("training.dataset", STRING, "c4_test",
           "it names a loader of torchtitan; training.dataset_path names the files"),
    MAPPED("training.dataset_path", STRINGS, NULL, "dataset.path", "a string or a list of strings"),
    MAPPED("training.local_batch_size", INT, "8", "training.micro_batch_size", NULL),
    READ("training.global_batch_size", INT, "-1", "training.global_batch_size",
         "-1 = local_batch_size * ranks * gradient_accumulation_steps", NULL),
    MAPPED("training.seq_len", INT, "2048", "training.seq_length", NULL),
    MAPPED("training.max_norm", FLOAT, "1.0", "training.max_grad_norm", NULL),
    READ("training.steps", INT, "10000", "training.train_iters",
         "length of the schedule, unless lr_scheduler.total_steps is given", NULL),
    READ("training.gradient_accumulation_steps", INT, "null", "gradient_accumulation_steps",
         "key of octet; 1 if neither it nor the global batch size is given", NULL),
    WARNED("training.enable_cpu_offload", BOOL, "false", "the CPU is the device"),
    REFUSED("training.dtype", STRING, "float32",
            "FP32 is the only dtype of master weights and moments"),
    MAPPED("training.mixed_precision_param", STRING, "bfloat16", "model.torch_dtype", NULL),
    MAPPED("training.mixed_precision_reduce", STRING, "float32", "training.reduce_dtype", NULL),
    WARNED("training.gc_freq", INT, "50", "there is no garbage collector"),
    WARNED("training.gc_debug", BOOL, "false", "there is no garbage collector"),
    WARNED("training.dataloader.num_workers", INT, "0", "samples are read from mapped files"),
    WARNED("training.dataloader.persistent_workers", BOOL, "false",
           "samples are read from mapped files"),
    WARNED("training.dataloader.pin_memory", BOOL, "false", "samples are read from mapped files"),
    WARNED("training.dataloader.prefetch_factor", INT, "null",
           "samples are read from mapped files"),
    READ("training.seed", INT, "null", NULL, "older place of debug.seed", NULL),
    IGNORED("training.deterministic", BOOL, "false", "every run is deterministic", NULL),
    WARNED("training.torch_npu_memory_ratio", FLOAT, "1.0", "there is no NPU allocator"),
    REFUSED("training.num_mtp_modules", INT, "0", "multi-token prediction is not supported"),
    WARNED("training.mtp_loss_weight", FLOAT, "0.3", "there is no multi-token prediction"),
    REFUSED("parallelism.data_parallel_replicate_degree", INT, "1",
            "replicated groups of shards are not supported"),
    MAPPED("parallelism.data_parallel_shard_degree", INT, "-1", "fsdp_config.dp_shard_size", NULL),
    READ("parallelism.fsdp_reshard_after_forward", STRING, "default",
         "fsdp_config.reshard_after_forward", "default and always: true, never: false", "default",
         "always", "never"),
    MAPPED("parallelism.tensor_parallel_degree", INT, "1", "accelerator.tp_size", NULL),
    WARNED("parallelism.disable_loss_parallel", BOOL, "false", "there is no tensor parallelism"),
    WARNED("parallelism.enable_async_tensor_parallel", BOOL, "false",
           "there is no tensor parallelism"),
    MAPPED("parallelism.pipeline_parallel_degree", INT, "1", "accelerator.pp_size", NULL),
    WARNED("parallelism.module_fqns_per_model_part", LIST, "null",
           "there is no pipeline parallelism"),
    WARNED("parallelism.pipeline_parallel_first_stage_less_layers", INT, "1",
           "there is no pipeline parallelism"),
    WARNED("parallelism.pipeline_parallel_last_stage_less_layers", INT, "1",
           "there is no pipeline parallelism"),
    WARNED("parallelism.pipeline_parallel_layers_per_stage", INT, "null",
           "there is no pipeline parallelism"),
    WARNED("parallelism.pipeline_parallel_schedule", STRING, "1F1B",
           "there is no pipeline parallelism"),
    WARNED("parallelism.pipeline_parallel_schedule_csv", STRING, "\"\"",
           "there is no pipeline parallelism"),
    WARNED("parallelism.pipeline_parallel_microbatch_size", INT, "1",
           "there is no pipeline parallelism"),
    WARNED("parallelism.pipeline_parallel_expert_parallel_overlap", BOOL, "true",
           "there is no pipeline parallelism"),
    MAPPED("parallelism.context_parallel_degree", INT, "1", "accelerator.cp_size", NULL),
    WARNED("parallelism.context_parallel_load_balancer", STRING, "headtail",
           "there is no context parallelism"),
    WARNED("parallelism.context_parallel_rotate_method", STRING, "allgather",
           "there is no context parallelism"),
    WARNED("parallelism.enable_custom_context_parallel", BOOL, "false",
           "there is no context parallelism"),
    WARNED("parallelism.custom_context_parallel_path", STRING, "\"\"",
           "there is no context parallelism"),
    MAPPED("parallelism.expert_parallel_degree", INT, "1", "accelerator.ep_size", NULL),
    REFUSED("parallelism.expert_tensor_parallel_degree", INT, "1",
            "expert parallelism is not supported"),
    WARNED("parallelism.expert_parallel_comm_backend", STRING, "standard",
           "there is no expert parallelism"),
    READ("checkpoint.enable", BOOL, "false", "checkpoint.save_steps",
         "false: save_steps is 0, and a checkpoint is saved at the end and on signals", NULL),
    WARNED("checkpoint.enable_ft_dataloader_checkpoints", BOOL, "true",
           "the position in the data is in every checkpoint"),
    WARNED("checkpoint.folder", STRING, "checkpoint", "checkpoints are in the run directory"),
    READ("checkpoint.interval", INT, "500", "checkpoint.save_steps",
         "if checkpoint.enable, which needs a number >= 1", NULL),
    READ("checkpoint.initial_load_path", STRING, "null", "checkpoint.restore_from",
         "a path; needs checkpoint.enable", NULL),
    READ("checkpoint.initial_load_model_only", BOOL, "true", "checkpoint.restore_optimizer",
         "restore_optimizer is its opposite where initial_load_path is given", NULL),
    REFUSED("checkpoint.initial_load_in_hf", BOOL, "false",
            "checkpoints are in the format of torch.distributed.checkpoint"),
    REFUSED("checkpoint.initial_load_in_hf_quantized", BOOL, "false",
            "checkpoints are in the format of torch.distributed.checkpoint"),
    IGNORED("checkpoint.last_save_model_only", BOOL, "true", "the last checkpoint is a whole one",
            NULL),
    REFUSED("checkpoint.last_save_in_hf", BOOL, "false",
            "checkpoints are in the format of torch.distributed.checkpoint"),
    REFUSED("checkpoint.export_dtype", STRING, "float32", "checkpoints hold FP32 master weights"),
    READ("checkpoint.async_mode", STRING, "disabled", "checkpoint.async",
         "disabled: false, async and async_with_pinned_mem: true", "disabled", "async",
         "async_with_pinned_mem"),
    MAPPED("checkpoint.keep_latest_k", INT, "10", "checkpoint.keep_latest_k", NULL),
    READ("checkpoint.load_step", INT, "-1", "checkpoint.restore_from",
         "-1 = the latest; N: step-N; needs checkpoint.enable", NULL),
    REFUSED("checkpoint.exclude_from_loading", STRINGS, "[]",
            "a checkpoint is loaded whole, or its weights alone"),
    WARNED("checkpoint.enable_first_step_checkpoint", BOOL, "false",
           "checkpoints follow checkpoint.interval"),
    REFUSED("checkpoint.create_seed_checkpoint", BOOL, "false",
            "initial weights do not depend on the ranks; none need to be saved"),
    REFUSED("checkpoint.load_only", BOOL, "false", "the last step is always saved"),
    READ("activation_checkpoint.mode", STRING, "selective",
         "gradient_checkpointing.activation_checkpoint",
         "unwritten: off; selective recompute is not supported and refused where it is written",
         "none", "full", "selective"),
    WARNED("activation_checkpoint.selective_ac_option", STRING, "\"2\"",
           "recompute is of whole layers, to the same bits"),
    WARNED("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", STRINGS,
           "[moe.router.gate]", "recompute is of whole layers, to the same bits"),
    WARNED("activation_checkpoint.early_stop", BOOL, "false",
           "recompute is of whole layers, to the same bits"),
    WARNED("activation_checkpoint.memory_budget", FLOAT, "0.5",
           "recompute is of whole layers, to the same bits"),
    WARNED("activation_checkpoint.visualize_memory_budget_pareto", BOOL, "false",
           "recompute is of whole layers, to the same bits"),
    WARNED("activation_checkpoint.preserve_rng_state", BOOL, "false",
           "recompute is of whole layers, to the same bits"),
    WARNED("activation_checkpoint.determinism_check", STRING, "default",
           "recompute is of whole layers, to the same bits"),
    WARNED("activation_checkpoint.debug", BOOL, "false",
           "recompute is of whole layers, to the same bits"),
    WARNED("compile.enable", BOOL, "false", "nothing is compiled at run time"),
    WARNED("compile.components", STRINGS, "[model, loss]", "nothing is compiled at run time"),
    WARNED("compile.backend", STRING, "inductor", "nothing is compiled at run time"),
    REFUSED("quantize.linear.float8.enable_fsdp_float8_all_gather", BOOL, NULL,
            "the float8 recipes are not supported, mxfp8 and hif8 are"),
    REFUSED("quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", BOOL, NULL,
            "the float8 recipes are not supported, mxfp8 and hif8 are"),
    REFUSED("quantize.linear.float8.recipe_name", STRING, NULL,
            "the float8 recipes are not supported, mxfp8 and hif8 are"),
    REFUSED("quantize.linear.float8.filter_fqns", STRINGS, NULL,
            "the float8 recipes are not supported, mxfp8 and hif8 are"),
    REFUSED("quantize.linear.float8.emulate", BOOL, NULL,
            "the float8 recipes are not supported, mxfp8 and hif8 are"),
    REFUSED("quantize.grouped_mm.float8.fqns", STRINGS, NULL,
            "the float8 recipes are not supported, mxfp8 and hif8 are"),
    WARNED("quantize.linear.mx.mxfp8_dim1_cast_kernel_choice", STRING, "triton",
           "there is one kernel"),
    READ("quantize.linear.mx.recipe_name", STRING, "mxfp8", "low_precision.format",
         "mxfp8: mxfp8_e4m3 with mx_block scaling, hif8: hif8 with current scaling", NULL),
    READ("quantize.linear.mx.filter_fqns", STRINGS, "[]", "plan_overrides",
         "a linear layer with one of these strings in its name is left alone", NULL),
    READ("quantize.grouped_mm.mx.recipe_name", STRING, "mxfp8", "low_precision.format",
         "the same for all converters of a job", NULL),
    READ("quantize.grouped_mm.mx.fqns", STRINGS, "[]", "plan_overrides",
         "the routed experts with one of these strings in their name are converted", NULL),
    WARNED("comm.init_timeout_seconds", INT, "300", "a failed rank ends the others"),
    WARNED("comm.train_timeout_seconds", INT, "100", "a failed rank ends the others"),
    WARNED("comm.trace_buf_size", INT, "20000", "a failed rank ends the others"),
    WARNED("comm.save_traces_folder", STRING, "comm_traces", "a failed rank ends the others"),
    WARNED("comm.save_traces_file_prefix", STRING, "rank_", "a failed rank ends the others"),
    REFUSED("comm.mode", STRING, "default", "ranks are processes"),
    WARNED("memory_estimation.enable", BOOL, "false", "octet plan tells the memory of a rank"),
    WARNED("memory_estimation.disable_fake_mode", BOOL, "false",
           "octet plan tells the memory of a rank"),
    REFUSED("fault_tolerance.enable", BOOL, "false", "replica groups are not supported"),
    WARNED("fault_tolerance.process_group", STRING, "gloo", "there are no replica groups"),
    WARNED("fault_tolerance.process_group_timeout_ms", INT, "10000", "there are no replica groups"),
    WARNED("fault_tolerance.replica_id", INT, "0", "there are no replica groups"),
    WARNED("fault_tolerance.group_size", INT, "0", "there are no replica groups"),
    WARNED("fault_tolerance.min_replica_size", INT, "1", "there are no replica groups"),
    WARNED("fault_tolerance.semi_sync_method", STRING, "null", "there are no replica groups"),
    REFUSED("experimental.custom_import", STRING, "\"\"", "no module can be loaded"),
    IGNORED("experimental.custom_args_module", STRING, "\"\"",
            "the keys of torchtitan-npu are always known; no other module can be loaded", "",
            "torchtitan_npu.config.custom_config"),
    READ("validation.enable", BOOL, "false", "dataset.validation.every", "false: every is 0", NULL),
    WARNED("validation.dataset", STRING, "c4_validation",
           "it names a loader of torchtitan; validation.dataset_path names the files"),
    MAPPED("validation.dataset_path", STRINGS, "null", "dataset.validation.path",
           "a string or a list of strings"),
    READ("validation.local_batch_size", INT, "8", NULL,
         "must be training.local_batch_size if validation is enabled", NULL),
    READ("validation.seq_len", INT, "2048", NULL,
         "must be training.seq_len if validation is enabled", NULL),
    READ("validation.freq", INT, "10", "dataset.validation.every",
         "after every freq-th step, a number >= 1; not after the first one", NULL),
    READ("validation.steps", INT, "-1", "dataset.validation.steps",
         "batches of the global batch size; -1 is refused if validation is enabled", NULL),
    WARNED("validation.dataloader.num_workers", INT, "0", "samples are read from mapped files"),
    WARNED("validation.dataloader.persistent_workers", BOOL, "false",
           "samples are read from mapped files"),
    WARNED("validation.dataloader.pin_memory", BOOL, "false", "samples are read from mapped files"),
    WARNED("validation.dataloader.prefetch_factor", INT, "null",
           "samples are read from mapped files"),
    MAPPED("debug.seed", INT, "null", "seed", "null = 2026: no run has a random seed"),
    IGNORED("debug.deterministic", BOOL, "false", "every run is deterministic", NULL),
    IGNORED("debug.deterministic_warn_only", BOOL, "false", "every run is deterministic", NULL),
    REFUSED("debug.moe_force_load_balance", BOOL, "false", "the router chooses the experts"),
};

enum { KEY_COUNT = sizeof keys / sizeof keys[0] };

const oct_torchtitan_key *oct_torchtitan_keys(int *count)
{
    *count = KEY_COUNT;
    return keys;
}

const oct_torchtitan_key *oct_torchtitan_find(const char *path)
{
    for (int i = 0; i < KEY_COUNT; i++)
        if (strcmp(keys[i].path, path) == 0)
            return &keys[i];
    return NULL;
}

bool oct_torchtitan_is_section(const char *path)
{
    const size_t length = strlen(path);
    for (int i = 0; i < KEY_COUNT; i++)
        if (strncmp(keys[i].path, path, length) == 0 && keys[i].path[length] == '.')
            return true;
    return false;
}

const oct_torchtitan_key *oct_torchtitan_place_of(const char *octet)
{
    for (int i = 0; i < KEY_COUNT; i++)
        if (keys[i].octet && strcmp(keys[i].octet, octet) == 0)
            return &keys[i];
    return NULL;
}

static const char *last_segment(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

const char *oct_torchtitan_nearest(const char *path)
{
    const char *nearest = keys[0].path;
    size_t least = SIZE_MAX;
    for (int i = 0; i < KEY_COUNT; i++) {
        const char *candidate = keys[i].path;
        const size_t section = (size_t)(last_segment(candidate) - candidate);
        const size_t whole = oct_edit_distance(path, candidate);
        /* As in oct_schema_nearest: the right name elsewhere is one step away, a neighbour in the
         * same section is likelier than another. */
        const size_t name = oct_edit_distance(last_segment(path), last_segment(candidate)) + 1;
        size_t distance = whole < name ? whole : name;
        if (strncmp(path, candidate, section) == 0)
            distance = distance / 2;
        if (distance < least) {
            least = distance;
            nearest = candidate;
        }
    }
    return nearest;
}

const char *oct_torchtitan_type_name(oct_torchtitan_type type)
{
    static const char *const names[] = {[OCT_TT_BOOL] = "true or false",
                                        [OCT_TT_INT] = "an integer",
                                        [OCT_TT_FLOAT] = "a float",
                                        [OCT_TT_STRING] = "a string",
                                        [OCT_TT_STRINGS] = "a list of strings",
                                        [OCT_TT_LIST] = "a list"};
    return names[type];
}
