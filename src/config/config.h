/* The configuration of a run: one immutable struct, read from YAML (or TOML) files and key=value
 * words, checked against one schema table (config/schema.c). Nothing after the reader knows which
 * file a value came from. Keys, defaults and meaning: configs/reference.yaml. */
#ifndef OCT_CONFIG_CONFIG_H
#define OCT_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef enum oct_decay_type {
    OCT_DECAY_LINEAR,
    OCT_DECAY_SQRT,
    OCT_DECAY_COSINE,
    OCT_DECAY_CONSTANT
} oct_decay_type;

/* A list of strings; count 0 for null. */
typedef struct oct_string_list {
    int64_t count;
    const char **items;
} oct_string_list;

/* One entry of plan_overrides. `where` is file:line for messages. */
typedef struct oct_plan_override {
    oct_string_list match;
    const char *module_type;
    const char *when;
    bool exact_type;
    const char *target; /* replace_module._target_ */
    const char *where;
} oct_plan_override;

/* The converters of a torchtitan job, checked but for what the model decides: which modules they
 * reach (oct_converters_expand). What they say in the log is not in the other members. */
typedef struct oct_torchtitan {
    oct_string_list converters; /* model.converters, in order */
    bool linear, grouped;       /* quantize.linear.mx, quantize.grouped_mm.mx are listed */
    bool npu_gmm;
    const char *recipe;                       /* mxfp8 | hif8, of both; NULL without either */
    oct_string_list filter_fqns;              /* quantize.linear.mx.filter_fqns */
    oct_string_list fqns;                     /* quantize.grouped_mm.mx.fqns */
    const char *linear_where, *grouped_where; /* file:line of these, for messages */
    bool expanded; /* the rules of the converters are in plan_overrides */
} oct_torchtitan;

typedef struct oct_config {
    oct_torchtitan *torchtitan; /* of a TOML job, else NULL: for its log lines */
    struct {
        const char *dp_shard_size, *global_batch_size, *gradient_accumulation_steps;
    } places; /* "KEY, file:line" of what oct_config_resolve checks, for messages */
    const char *device;
    int64_t seed;
    bool trace;
    struct {
        const char *target;
        const char *config_name_or_path;
        const char *config_overrides_json; /* {"vocab_size": 102400, ...}, "{}" if none */
        const char *torch_dtype;           /* bfloat16 | float32 */
        const char *attn_implementation;
        bool force_hf;
        const char *expect; /* none | deepseek_v3_16b */
    } model;
    struct {
        bool enabled;
        const char *format;
        const char *scaling;
    } low_precision;
    int64_t plan_override_count;
    const oct_plan_override *plan_overrides;
    struct {
        int64_t train_iters;
        int64_t stop_at_step; /* -1 = none */
        int64_t seq_length;
        int64_t global_batch_size;
        bool global_batch_size_given;
        int64_t micro_batch_size;
        double max_grad_norm;
        int64_t max_consecutive_skips;
        const char *reduce_dtype;
        int64_t threads; /* 0 = automatic */
    } training;
    int64_t gradient_accumulation_steps; /* 0 = not given and not resolved */
    bool gradient_accumulation_steps_given;
    struct {
        const char *target;
        double lr;
        double beta1, beta2;
        double eps;
        double weight_decay;
    } optimizer;
    struct {
        int64_t warmup_steps;
        double decay_ratio; /* < 0 = null */
        oct_decay_type decay_type;
        double min_lr_factor;
    } lr_scheduler;
    struct {
        double bias_update_rate;
    } moe;
    struct {
        oct_string_list path;
        const char *tokenizer;
        bool shuffle;
        struct {
            oct_string_list path;
            int64_t every;
            int64_t steps;
        } validation;
    } dataset;
    struct {
        int64_t tp_size, cp_size, ep_size, pp_size;
    } accelerator;
    struct {
        int64_t dp_shard_size; /* -1 = ranks */
        bool reshard_after_forward;
        bool comm_fusion;
        bool fallback_to_unsharded;
        const char *shard; /* tile | even */
        bool prefetch;
        bool narrow_backward_gather;
    } fsdp;
    struct {
        bool full;
    } activation_checkpoint;
    struct {
        const char *format;
        int64_t save_steps;
        int64_t keep_latest_k;
        const char *restore_from; /* NULL = null */
        bool restore_optimizer;
        bool async;
        bool verify_crc;
        bool stop_on_failure;
    } checkpoint;
    struct {
        int64_t every;
        bool json;
        bool tensorboard;
    } logging;
} oct_config;

/* Reads YAML files left to right, then `key.path=value` words; later wins, maps merge key by key,
 * lists and scalars replace; `base: FILE` at the top of a file is read before it. Strings live in
 * `arena`. Overrides by a word are reported through `note` (may be NULL) as one line each. Files
 * that all end in .toml are torchtitan jobs (config/torchtitan.h): their warnings come through
 * `note` too, and oct_converters_expand turns their converters into rules. Errors: OCT_E_CONFIG
 * with file:line, the value found and what is required; OCT_E_IO for a file. */
typedef void (*oct_config_note)(void *arg, const char *line);
oct_status oct_config_load(const char *const *files, int file_count, const char *const *words,
                           int word_count, oct_arena *arena, oct_config_note note, void *note_arg,
                           oct_config *out, oct_err *err) OCT_MUST_CHECK;

/* The resolved configuration as YAML text that oct_config_load reads back to the same values. */
oct_status oct_config_print(const oct_config *config, oct_arena *arena, char **text,
                            oct_err *err) OCT_MUST_CHECK;

/* Checks that need the number of ranks: batch divisibility, dp_shard_size; fills in
 * gradient_accumulation_steps and global_batch_size. */
oct_status oct_config_resolve(oct_config *config, int ranks, oct_err *err) OCT_MUST_CHECK;

#endif
