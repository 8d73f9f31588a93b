/* The torchtitan dialect: what each key becomes, what is refused and what is warned about. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "config/config.h"
#include "config/schema.h"
#include "config/torchtitan.h"
#include "config/torchtitan_keys.h"
#include "config/torchtitan_text.h"
#include "config/yaml.h"
#include "unit/temp_dir.h"

static oct_arena arena;
static oct_err err;
static oct_config config;
static temp_dir dir;
static char notes[8192];

/* The two keys without a default. */
static const char base_text[] = "[model]\nhf_config = 'm'\n[training]\ndataset_path = 'd'\n";

static int setup(void **state)
{
    (void)state;
    oct_arena_init(&arena, "test");
    err = (oct_err){0};
    dir = temp_dir_create();
    (void)temp_dir_write(&dir, "base.toml", base_text);
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

/* `text` as a file over the base, then up to three words. */
static oct_status load(const char *text, const char *const *words)
{
    const char *files[2] = {temp_dir_name(&dir, "base.toml"), NULL};
    int word_count = 0;
    files[1] = temp_dir_write(&dir, "job.toml", text);
    while (words && word_count < 3 && words[word_count])
        word_count++;
    err = (oct_err){0};
    notes[0] = '\0';
    return oct_config_load(files, 2, words, word_count, &arena, take_note, NULL, &config, &err);
}

static void accepts(const char *text, const char *const *words)
{
    if (load(text, words) != OCT_OK)
        fail_msg("%s\nin: %s", err.msg, text);
}

static void refuses(const char *text, const char *message)
{
    if (load(text, NULL) != OCT_E_CONFIG)
        fail_msg("accepted: %s", text);
    if (!strstr(err.msg, message))
        fail_msg("got:  %s\nwant: %s\nin: %s", err.msg, message, text);
}

static void refuses_word(const char *word, const char *message)
{
    if (load("", (const char *[3]){word}) != OCT_E_CONFIG || !strstr(err.msg, message))
        fail_msg("got:  %s\nwant: %s\nin: %s", err.msg, message, word);
}

/* --- Keys and defaults --- */

static void torchtitan__base_alone__defaults_of_torchtitan(void **state)
{
    (void)state;
    accepts("", NULL);
    assert_string_equal(config.model.config_name_or_path, "m");
    assert_string_equal(config.dataset.path.items[0], "d");
    assert_int_equal(config.training.micro_batch_size, 8);
    assert_false(config.training.global_batch_size_given);
    assert_int_equal(config.gradient_accumulation_steps, 1);
    assert_int_equal(config.training.seq_length, 2048);
    assert_int_equal(config.training.train_iters, 10000);
    assert_int_equal(config.training.stop_at_step, -1);
    assert_true(config.training.max_grad_norm == 1.0);
    assert_string_equal(config.model.torch_dtype, "bfloat16");
    assert_string_equal(config.training.reduce_dtype, "float32");
    assert_true(config.optimizer.lr == 8e-4 && config.optimizer.beta1 == 0.9 &&
                config.optimizer.beta2 == 0.95 && config.optimizer.eps == 1e-8 &&
                config.optimizer.weight_decay == 0.1);
    assert_int_equal(config.lr_scheduler.warmup_steps, 200);
    assert_true(config.lr_scheduler.decay_ratio < 0 && config.lr_scheduler.min_lr_factor == 0);
    assert_int_equal(config.lr_scheduler.decay_type, OCT_DECAY_LINEAR);
    assert_int_equal(config.fsdp.dp_shard_size, -1);
    assert_true(config.fsdp.reshard_after_forward);
    assert_int_equal(config.checkpoint.save_steps, 0);
    assert_int_equal(config.checkpoint.keep_latest_k, 10);
    assert_false(config.checkpoint.async);
    assert_null(config.checkpoint.restore_from);
    assert_false(config.activation_checkpoint.full);
    assert_int_equal(config.logging.every, 10);
    assert_int_equal(config.seed, 2026);
    assert_int_equal(config.dataset.validation.every, 0);
    assert_false(config.low_precision.enabled);
    assert_non_null(config.torchtitan);
    assert_string_equal(notes, "");
    assert_int_equal(oct_config_resolve(&config, 4, &err), OCT_OK);
    assert_int_equal(config.training.global_batch_size, 32);
}

static void torchtitan__every_mapped_key__reaches_its_member(void **state)
{
    (void)state;
    accepts(
        "[training]\nlocal_batch_size = 2\nglobal_batch_size = 16\nseq_len = 0x40\nmax_norm = 2\n"
        "steps = 1_000\nmixed_precision_param = 'float32'\nmixed_precision_reduce = 'bfloat16'\n"
        "dataset_path = ['a', 'b']\n"
        "[optimizer]\nname = 'AdamW'\nlr = 2e-5\nbeta1 = 0.8\nbeta2 = 0.99\neps = 1e-7\n"
        "weight_decay = 0\nimplementation = 'foreach'\n"
        "[lr_scheduler]\nwarmup_steps = 7\ndecay_ratio = 0.5\ndecay_type = 'cosine'\n"
        "min_lr_factor = 0.1\n"
        "[parallelism]\ndata_parallel_shard_degree = 8\nfsdp_reshard_after_forward = 'never'\n"
        "[checkpoint]\nenable = true\ninterval = 50\nkeep_latest_k = 4\nasync_mode = 'async'\n"
        "load_step = 12\n"
        "[activation_checkpoint]\nmode = 'full'\n[metrics]\nlog_freq = 3\n[debug]\nseed = 5\n"
        "deterministic = true\n"
        "[validation]\nenable = true\ndataset_path = 'v'\nfreq = 20\nsteps = 4\nseq_len = 64\n"
        "local_batch_size = 2\n"
        "[octet]\ntrace = true\n[octet.moe]\nbias_update_rate = 0.001\n"
        "[octet.model.config_overrides]\nvocab_size = 300\n[octet.fsdp_config]\nshard = 'even'\n",
        NULL);
    assert_string_equal(notes, "");
    assert_int_equal(config.training.micro_batch_size, 2);
    assert_int_equal(config.training.global_batch_size, 16);
    assert_true(config.training.global_batch_size_given);
    assert_false(config.gradient_accumulation_steps_given);
    assert_int_equal(config.training.seq_length, 64);
    assert_int_equal(config.training.train_iters, 1000);
    assert_true(config.training.max_grad_norm == 2.0);
    assert_string_equal(config.model.torch_dtype, "float32");
    assert_string_equal(config.training.reduce_dtype, "bfloat16");
    assert_int_equal(config.dataset.path.count, 2);
    assert_true(config.optimizer.lr == 2e-5 && config.optimizer.beta1 == 0.8 &&
                config.optimizer.beta2 == 0.99 && config.optimizer.eps == 1e-7 &&
                config.optimizer.weight_decay == 0);
    assert_int_equal(config.lr_scheduler.warmup_steps, 7);
    assert_true(config.lr_scheduler.decay_ratio == 0.5 && config.lr_scheduler.min_lr_factor == 0.1);
    assert_int_equal(config.lr_scheduler.decay_type, OCT_DECAY_COSINE);
    assert_int_equal(config.fsdp.dp_shard_size, 8);
    assert_false(config.fsdp.reshard_after_forward);
    assert_int_equal(config.checkpoint.save_steps, 50);
    assert_int_equal(config.checkpoint.keep_latest_k, 4);
    assert_true(config.checkpoint.async && config.checkpoint.restore_optimizer);
    assert_string_equal(config.checkpoint.restore_from, "step-12");
    assert_true(config.activation_checkpoint.full);
    assert_int_equal(config.logging.every, 3);
    assert_int_equal(config.seed, 5);
    assert_string_equal(config.dataset.validation.path.items[0], "v");
    assert_int_equal(config.dataset.validation.every, 20);
    assert_int_equal(config.dataset.validation.steps, 4);
    assert_true(config.trace && config.moe.bias_update_rate == 0.001);
    assert_string_equal(config.model.config_overrides_json, "{\"vocab_size\": 300}");
    assert_string_equal(config.fsdp.shard, "even");
}

static void torchtitan__keys_that_decide_together(void **state)
{
    (void)state;
    accepts("[training]\nsteps = 10\n[lr_scheduler]\ntotal_steps = 1000\n", NULL);
    assert_int_equal(config.training.train_iters, 1000);
    assert_int_equal(config.training.stop_at_step, 10);
    accepts("[training]\ngradient_accumulation_steps = 3\n", NULL);
    assert_true(config.gradient_accumulation_steps_given &&
                !config.training.global_batch_size_given);
    assert_int_equal(config.gradient_accumulation_steps, 3);
    accepts("[checkpoint]\nenable = true\ninitial_load_path = 'p'\n", NULL);
    assert_string_equal(config.checkpoint.restore_from, "p");
    assert_false(config.checkpoint.restore_optimizer);
    assert_int_equal(config.checkpoint.save_steps, 500);
    accepts(
        "[checkpoint]\nenable = true\ninitial_load_path = 'p'\ninitial_load_model_only = false\n",
        NULL);
    assert_true(config.checkpoint.restore_optimizer);
    accepts("[training]\nseed = 9\n", NULL);
    assert_int_equal(config.seed, 9);
    refuses("[training]\nsteps = 10\n[lr_scheduler]\ntotal_steps = 9\n",
            "unsupported value of lr_scheduler.total_steps: integer 9, at least training.steps");
    refuses("[checkpoint]\nload_step = 3\n", "checkpoint.enable = true is required");
    refuses("[checkpoint]\nenable = true\nload_step = -2\n", "-1 or a step is required");
    accepts("[checkpoint]\nasync_mode = 'async_with_pinned_mem'\n", NULL);
    assert_true(config.checkpoint.async);
    refuses("[checkpoint]\nenable = true\nload_step = 3\ninitial_load_path = 'p'\n",
            "-1 beside checkpoint.initial_load_path is required");
    refuses("[training]\nseed = 1\n[debug]\nseed = 2\n", "debug.seed alone is required");
    refuses("[validation]\nenable = true\n", "unsupported value of validation.steps: integer -1");
    refuses("[validation]\nenable = true\nsteps = 1\nseq_len = 7\n",
            "training.seq_len is required");
    refuses("[validation]\nenable = true\nsteps = 1\nlocal_batch_size = 7\n",
            "training.local_batch_size is required");
}

/* Each key of the table can be written with its default, and each octet key has one place. */
static void torchtitan__table__defaults_are_legal_and_targets_exist(void **state)
{
    (void)state;
    int count = 0;
    const oct_torchtitan_key *keys = oct_torchtitan_keys(&count);
    assert_in_range(count, 150, 400);
    for (int i = 0; i < count; i++) {
        const oct_torchtitan_key *key = &keys[i];
        char word[256];
        assert_ptr_equal(oct_torchtitan_find(key->path), key);
        assert_false(oct_torchtitan_is_section(key->path));
        if (key->octet && !oct_schema_find(oct_schema_config(), key->octet))
            fail_msg("%s: no key %s", key->path, key->octet);
        assert_true(key->fate != OCT_TT_MAPPED || key->octet);
        assert_true(key->fate == OCT_TT_MAPPED || key->note);
        /* Defaults that a job cannot write. */
        if (!key->fallback || strcmp(key->path, "model.name") == 0 ||
            strcmp(key->path, "activation_checkpoint.mode") == 0)
            continue;
        const char *fallback = key->fallback;
        (void)snprintf(word, sizeof word, "%s=%s", key->path,
                       strcmp(fallback, "\"\"") == 0    ? ""
                       : strcmp(fallback, "\"2\"") == 0 ? "2"
                                                        : fallback);
        if (load("", (const char *[3]){word}) != OCT_OK)
            fail_msg("%s: %s", word, err.msg);
        if (key->fate != OCT_TT_READ && strstr(notes, "warning"))
            fail_msg("%s: %s", word, notes);
    }
}

/* The committed page holds the generated text; OCTET_UPDATE=1 writes it. */
static void torchtitan__reference_page__same_bytes(void **state)
{
    (void)state;
    static const char page[] = OCTET_SOURCE_DIR "/docs/config-toml.md";
    char *text = NULL, committed[65536];
    assert_int_equal(oct_torchtitan_reference_markdown(&arena, &text, &err), OCT_OK);
    if (getenv("OCTET_UPDATE")) {
        FILE *out = fopen(page, "wb");
        assert_non_null(out);
        assert_int_equal(fwrite(text, 1, strlen(text), out), strlen(text));
        assert_int_equal(fclose(out), 0);
    }
    FILE *in = fopen(page, "rb");
    assert_non_null(in);
    committed[fread(committed, 1, sizeof committed - 1, in)] = '\0';
    assert_int_equal(fclose(in), 0);
    assert_string_equal(committed, text);
    int count = 0;
    const oct_torchtitan_key *keys = oct_torchtitan_keys(&count);
    for (int i = 0; i < count; i++) {
        char cell[128];
        (void)snprintf(cell, sizeof cell, "| `%s` |", keys[i].path);
        assert_non_null(strstr(text, cell));
    }
    assert_non_null(strstr(text, "\n- `moe.bias_update_rate`: "));
    assert_null(strstr(text, "\n- `training.seq_length`: "));
}

/* --- Refused and warned about --- */

/* Names of the same section first, tables for tables, nothing that is always refused. */
static const struct {
    const char *text, *key;
} meant[] = {
    {"[quantize.linear.mxfp8]\nrecipe_name = 'mxfp8'\n", "quantize.linear.mx"},
    {"[quantize.mx]\nrecipe_name = 'mxfp8'\n", "quantize.linear.mx"},
    {"[quantize.liner.mx]\nrecipe_name = 'mxfp8'\n", "quantize.linear"},
    {"[quantize.linear.mx]\nrecipe = 'mxfp8'\n", "quantize.linear.mx.recipe_name"},
    {"[quantize.linear.mx]\nrecipename = 'mxfp8'\n", "quantize.linear.mx.recipe_name"},
    {"[quantize.linear.mx]\nfqns = []\n", "quantize.linear.mx.filter_fqns"},
    {"[quantize.linear.mx]\nfilter = []\n", "quantize.linear.mx.filter_fqns"},
    {"[quantize.grouped_mm.mx]\nfilter_fqns = []\n", "quantize.grouped_mm.mx.fqns"},
    {"[quantize.linear.float8]\nemulat = true\n", "quantize.linear.mx.recipe_name"},
    {"[model]\nflavour = '16B'\n", "model.name"},
    {"[trainin]\nsteps = 1\n", "training"},
    {"[training]\nwarmup_step = 1\n", "lr_scheduler.warmup_steps"},
    {"[training]\nlr = 1.0\n", "optimizer.lr"},
    {"[validation]\ninterval = 1\n", "checkpoint.interval"},
};

static void torchtitan__unknown_names__all_of_a_section_with_the_nearest(void **state)
{
    (void)state;
    refuses(
        "[training]\nsteps = 1\nseq_length = 5\nbatch = 2\n",
        "Invalid field names in training data: {'seq_length', 'batch'}: the nearest known key is "
        "training.seq_len (");
    refuses("[training]\nsteps = 1\nseq_length = 5\n", "job.toml:3)");
    refuses("[trainin]\nsteps = 1\n", "Invalid field names in JobConfig data: {'trainin'}");
    refuses("x = 1\n", "Invalid field names in JobConfig data: {'x'}");
    refuses("[quantize.linear.mx]\nfqns = []\n",
            "Invalid field names in quantize.linear.mx data: {'fqns'}");
    refuses("[octet]\nmodel.torch_typ = 'x'\n",
            "Invalid field names in octet.model data: {'torch_typ'}: the nearest known key is "
            "training.mixed_precision_param (");
    /* What a YAML job would write is sent to its place. */
    refuses("[dataset]\npath = 'x'\n",
            "data: {'dataset'}: the nearest known key is training.dataset_path (");
    refuses("[dataset]\nshuffle = false\n", "the nearest known key is octet.dataset.shuffle (");
    refuses_word("training.train_iters=4",
                 "data: {'train_iters'}: the nearest known key is training.steps (");
    refuses_word("moe.bias_update_rate=1", "the nearest known key is octet.moe.bias_update_rate (");
    refuses("'training.steps' = 1\n", "Invalid field names in JobConfig data: {'training.steps'}");
    refuses_word("training.stps=4",
                 "Invalid field names in training data: {'stps'}: the nearest known "
                 "key is training.steps (training.stps=4)");
    refuses("training = 3\n", "wrong type of training: integer 3, a table of keys is required");
    for (size_t i = 0; i < sizeof meant / sizeof meant[0]; i++) {
        char message[128];
        (void)snprintf(message, sizeof message, "the nearest known key is %s (", meant[i].key);
        refuses(meant[i].text, message);
    }
    refuses_word("quantize.linear.mxfp8.recipe_name=hif8",
                 "the nearest known key is quantize.linear.mx (");
}

static const struct {
    const char *text, *message;
} refusals[] = {
    {"[training]\nsteps = '4'\n",
     "wrong type of training.steps: string \"4\", an integer is required ("},
    {"[training]\nsteps = 4.0\n", "wrong type of training.steps: float 4.0"},
    {"[training]\nsteps = 1979-05-27\n", "wrong type of training.steps: date 1979-05-27"},
    {"[optimizer]\nlr = '2e-5'\n",
     "wrong type of optimizer.lr: string \"2e-5\", a float is required"},
    {"[optimizer]\nlr = .5e-4\n", "cannot read TOML"},
    {"[optimizer]\nlr = 1e-3\nlr = 2e-3\n", "duplicate key: 'lr' on line 2 and again on line 3"},
    {"[optimizer]\nlr = nan\n", "value of optimizer.lr out of bounds: nan"},
    {"[model]\nconverters = [1]\n", "wrong type of model.converters: list, a list of strings"},
    {"[training]\nseq_len = 0\n", "value of training.seq_length out of bounds: 0, an integer >= 1"},
    {"[training]\nseq_len = 0\n", ":2, training.seq_len)"},
    {"[training]\nsteps = 10\n",
     "value of lr_scheduler.warmup_steps out of bounds: 200, at most training.train_iters = 10"},
    {"[lr_scheduler]\ndecay_type = 'step'\n",
     "unsupported value of lr_scheduler.decay_type: 'step'"},
    {"[model]\nname = 'llama3'\n", "unsupported value of model.name: string \"llama3\", "
                                   "\"deepseek_v3\" is required: DeepSeek-V3 is"},
    {"[model]\nflavor = '16B'\n",
     "unsupported key model.flavor: string \"16B\", no such key is allowed: "
     "torchtitan's flavors are other models; name an HF config in "
     "model.hf_config ("},
    {"[model]\nhf_assets_path = 'a'\n", "tokenizer.json is not supported"},
    {"[job]\ncustom_config_module = 'my.module'\n", "no other module can be loaded"},
    {"[experimental]\ncustom_import = 'my.module'\n", "no module can be loaded"},
    {"[optimizer]\nname = 'Muon'\n", "\"AdamW\" is required: AdamW with FP32 master weights"},
    {"[optimizer]\nname = 'Adam'\n", "unsupported value of optimizer.name"},
    {"[optimizer]\nimplementation = 'triton'\n", "one of \"for-loop\", \"foreach\", \"fused\""},
    {"[optimizer]\nearly_step_in_backward = true\n", "unsupported value of optimizer.early_step"},
    {"[training]\ndtype = 'bfloat16'\n",
     "unsupported value of training.dtype: string \"bfloat16\", "
     "float32 is required: FP32 is the only dtype"},
    {"[training]\nmixed_precision_param = 'float16'\n", "unsupported value of model.torch_dtype"},
    {"[training]\nnum_mtp_modules = 1\n", "multi-token prediction is not supported"},
    {"[parallelism]\ntensor_parallel_degree = 2\n", "tensor parallelism is not supported"},
    {"[parallelism]\ncontext_parallel_degree = 2\n", "context parallelism is not supported"},
    {"[parallelism]\npipeline_parallel_degree = 2\n", "pipeline parallelism is not supported"},
    {"[parallelism]\nexpert_parallel_degree = 2\n", "expert parallelism is not supported"},
    {"[parallelism]\nexpert_tensor_parallel_degree = 2\n", "expert parallelism is not supported"},
    {"[parallelism]\ndata_parallel_replicate_degree = 2\n", "replicated groups of shards"},
    {"[parallelism]\nfsdp_reshard_after_forward = 'often'\n",
     "one of \"default\", \"always\", \"never\""},
    {"[activation_checkpoint]\nmode = 'memory_budget'\n",
     "one of \"none\", \"full\", \"selective\""},
    /* K19: the error of a YAML job. */
    {"[activation_checkpoint]\nmode = 'selective'\n",
     "unsupported value of gradient_checkpointing.activation_checkpoint: 'selective', one of off, "
     "full is "
     "required: selective recompute is not supported ("},
    {"[activation_checkpoint]\nmode = 'selective'\n", ":2, activation_checkpoint.mode)"},
    {"[checkpoint]\nlast_save_in_hf = true\n", "unsupported value of checkpoint.last_save_in_hf"},
    {"[checkpoint]\nexport_dtype = 'bfloat16'\n", "checkpoints hold FP32 master weights"},
    {"[checkpoint]\nasync_mode = 'sync'\n",
     "one of \"disabled\", \"async\", \"async_with_pinned_mem\""},
    {"[checkpoint]\nexclude_from_loading = ['optimizer']\n", "a checkpoint is loaded whole"},
    {"[checkpoint]\nenable = true\ninterval = 0\n",
     "unsupported value of checkpoint.interval: integer 0, a number >= 1 is required: these are "
     "the steps between two checkpoints ("},
    {"[checkpoint]\nenable = true\ninterval = 0\n", "job.toml:3)"},
    {"[validation]\nenable = true\nfreq = 0\nsteps = 2\ndataset_path = 'd'\nlocal_batch_size = "
     "8\nseq_len = 2048\n",
     "unsupported value of validation.freq: integer 0, a number >= 1 is required"},
    {"[validation]\nenable = true\nfreq = -1\nsteps = 2\n", "job.toml:3)"},
    {"[metrics]\nenable_tensorboard = true\n", "TensorBoard files are not supported"},
    {"[debug]\nmoe_force_load_balance = true\n", "the router chooses the experts"},
    {"[fault_tolerance]\nenable = true\n", "replica groups are not supported"},
    {"[comm]\nmode = 'fake_backend'\n", "ranks are processes"},
    {"[quantize.linear.float8]\nemulate = false\n", "the float8 recipes are not supported"},
    {"[octet.training]\nseq_length = 4\n", "unsupported key octet.training.seq_length: it follows "
                                           "from training.seq_len, which is required ("},
    {"[octet.low_precision]\nenabled = true\n", "it follows from model.converters"},
    {"[octet]\nplan_overrides = []\n", "it follows from model.converters"},
    {"[octet]\nseed = 3\n", "it follows from debug.seed"},
    {"[octet.training]\nthreads = 0\n", "value of training.threads out of bounds: 0"},
    {"[octet]\ntrace = 1\n", "wrong type of trace: integer 1"},
    {"base = 3\n", "wrong type of base: integer 3, a file name is required"},
    {"base = 'job.toml'\n", "is a base of itself"},
};

static void torchtitan__what_would_change_results__refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        refuses(refusals[i].text, refusals[i].message);
    const char *only = temp_dir_write(&dir, "only.toml", "[training]\ndataset_path = 'd'\n");
    assert_int_equal(oct_config_load(&only, 1, NULL, 0, &arena, NULL, NULL, &config, &err),
                     OCT_E_CONFIG);
    assert_non_null(
        strstr(err.msg, "missing key model.hf_config: not given, a string is required ("));
    const char *mixed[2] = {only, temp_dir_write(&dir, "a.yaml", "seed: 1\n")};
    assert_int_equal(oct_config_load(mixed, 2, NULL, 0, &arena, NULL, NULL, &config, &err),
                     OCT_E_CONFIG);
    assert_non_null(strstr(err.msg, "cannot mix dialects"));
    /* So through a base, and a name in capitals is no way around it. */
    refuses("base = 'a.yaml'\n", "a.yaml', files that all or none of them end in .toml are "
                                 "required (");
    const char *yaml = temp_dir_write(&dir, "b.yaml", "seed: 1\nbase: only.toml\n");
    assert_int_equal(oct_config_load(&yaml, 1, NULL, 0, &arena, NULL, NULL, &config, &err),
                     OCT_E_CONFIG);
    assert_non_null(strstr(err.msg, "cannot mix dialects: '"));
    assert_non_null(strstr(err.msg, "only.toml', files that all or none"));
    assert_non_null(strstr(err.msg, "b.yaml:2)"));
    (void)temp_dir_write(&dir, "UPPER.TOML", "[training]\nsteps = 321\n");
    accepts("base = 'UPPER.TOML'\n", NULL);
    assert_int_equal(config.training.train_iters, 321);
    const char *upper = temp_dir_write(&dir, "JOB.TOML", base_text);
    assert_int_equal(oct_config_load(&upper, 1, NULL, 0, &arena, NULL, NULL, &config, &err),
                     OCT_OK);
}

/* What is found after the translation names the key that was written, and where. */
static void torchtitan__errors_between_keys__name_what_was_written(void **state)
{
    (void)state;
    refuses("[training]\nsteps = 10\n", "training.train_iters = 10 (");
    refuses("[training]\nsteps = 10\n", "job.toml:2, training.steps) is required (default)");
    accepts("[parallelism]\n\ndata_parallel_shard_degree = 4\n[training]\nglobal_batch_size = 7\n",
            NULL);
    assert_int_equal(oct_config_resolve(&config, 1, &err), OCT_E_CONFIG);
    assert_non_null(strstr(err.msg, "(fsdp_config.dp_shard_size, "));
    assert_non_null(strstr(err.msg, "job.toml:3, parallelism.data_parallel_shard_degree)"));
    assert_int_equal(oct_config_resolve(&config, 4, &err), OCT_E_CONFIG);
    assert_non_null(strstr(err.msg, "(training.global_batch_size, "));
    assert_non_null(strstr(err.msg, "job.toml:5)"));
    accepts("", (const char *[3]){"parallelism.data_parallel_shard_degree=4"});
    assert_int_equal(oct_config_resolve(&config, 1, &err), OCT_E_CONFIG);
    assert_non_null(strstr(err.msg, "(fsdp_config.dp_shard_size, "
                                    "parallelism.data_parallel_shard_degree=4)"));
}

static void torchtitan__what_has_no_effect__told_once_by_name(void **state)
{
    (void)state;
    accepts("[optimizer]\nswap_optimizer = true\nmuon_momentum = 0.9\n[profiling]\nprofile_ranks = "
            "[0, 1]\n"
            "profile_step_end = 0\n[training]\ngc_freq = 50\nenable_cpu_offload = true\ndataset = "
            "'c4'\n"
            "[parallelism]\nenable_custom_context_parallel = true\n[compile]\nenable = true\n"
            "[quantize.linear.mx]\nfilter_fqns = ['output']\n",
            NULL);
    static const char *const told[] = {
        "warning: optimizer.swap_optimizer has no effect: moments stay in memory (",
        "warning: optimizer.muon_momentum has no effect",
        "warning: profiling.profile_ranks has no effect",
        "warning: training.enable_cpu_offload has no effect",
        "warning: training.dataset has no effect: it names a loader of torchtitan",
        "warning: parallelism.enable_custom_context_parallel has no effect",
        "warning: compile.enable has no effect",
        "warning: [quantize.linear.mx] has no effect: model.converters does not list it (",
    };
    int lines = 0;
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++)
        if (!strstr(notes, told[i]))
            fail_msg("not told: %s\nin: %s", told[i], notes);
    for (const char *c = notes; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, sizeof told / sizeof told[0]);
    accepts("[quantize.grouped_mm.mx]\nfqns = ['experts']\n", NULL);
    assert_non_null(strstr(notes, "warning: [quantize.grouped_mm.mx] has no effect: "));
    /* A default written out, or put back by a word, says nothing. */
    accepts("[training]\nmtp_loss_weight = 0.30\ntorch_npu_memory_ratio = 1\n"
            "[optimizer]\nswap_optimizer = true\n",
            (const char *[3]){"optimizer.swap_optimizer=false"});
    assert_null(strstr(notes, "warning"));
}

/* --- Order of files and words --- */

static void torchtitan__words__over_files_over_defaults(void **state)
{
    (void)state;
    (void)temp_dir_write(&dir, "low.toml",
                         "base = 'lower.toml'\n[training]\nsteps = 300\nseq_len = 30\n");
    (void)temp_dir_write(&dir, "lower.toml",
                         "[training]\nsteps = 301\nseq_len = 31\nmax_norm = 3\n");
    accepts("base = 'low.toml'\n[training]\nsteps = 400\n",
            (const char *[3]){"training.steps=500", "model.converters=a,b",
                              "model.converters=npu_gmm"});
    assert_int_equal(config.training.train_iters, 500);
    assert_int_equal(config.training.seq_length, 30);
    assert_true(config.training.max_grad_norm == 3.0);
    assert_int_equal(config.torchtitan->converters.count, 1);
    assert_non_null(strstr(notes, "override training.steps=500 replaces integer 400 ("));
    assert_non_null(strstr(notes, "override model.converters=a,b replaces the default []"));
    accepts("",
            (const char *[3]){"quantize.linear.mx.filter_fqns=output,router.gate",
                              "model.converters=[\"quantize.linear.mx\"]", "optimizer.lr=1E-5"});
    assert_int_equal(config.torchtitan->filter_fqns.count, 2);
    assert_string_equal(config.torchtitan->filter_fqns.items[1], "router.gate");
    assert_true(config.torchtitan->linear && config.optimizer.lr == 1e-5);
    accepts("[lr_scheduler]\ndecay_ratio = 0.2\n",
            (const char *[3]){"lr_scheduler.decay_ratio=None", "octet.training.threads=3",
                              "octet.model.config_overrides.vocab_size=300"});
    assert_true(config.lr_scheduler.decay_ratio < 0);
    assert_int_equal(config.training.threads, 3);
    assert_string_equal(config.model.config_overrides_json, "{\"vocab_size\": 300}");
    accepts("", (const char *[3]){"model.hf_config=4", "checkpoint.enable=True"});
    assert_string_equal(config.model.config_name_or_path, "4");
    assert_int_equal(config.checkpoint.save_steps, 500);
    accepts("", (const char *[3]){"profiling.profile_ranks=0,1",
                                  "parallelism.module_fqns_per_model_part=a,b"});
    assert_non_null(strstr(notes, "warning: profiling.profile_ranks has no effect"));
    assert_non_null(strstr(notes, "warning: parallelism.module_fqns_per_model_part has no effect"));
    accepts("", (const char *[3]){"profiling.profile_ranks=-1",
                                  "validation.dataset_path=a,b"}); /* the default; a null one */
    assert_null(strstr(notes, "warning"));
    assert_int_equal(config.dataset.validation.path.count, 2);
    refuses_word("training.steps=1.5",
                 "wrong type of training.steps: float 1.5, an integer is required "
                 "(training.steps=1.5)");
    refuses_word("training=3", "wrong type of training: integer 3");
    refuses_word("=3", "section.key=value is required");
    refuses_word("octet.seed=3", "it follows from debug.seed");
    refuses_word("training.global_batch_size=0", "(training.global_batch_size=0)");
    accepts("", (const char *[3]){"validation.dataset_path=a,b,"}); /* a comma at the end */
    assert_int_equal(config.dataset.validation.path.count, 2);
    assert_true(oct_torchtitan_is_flag("octet.trace"));
    assert_false(oct_torchtitan_is_flag("octet.fsdp_config.shard"));
}

/* --- Converters --- */

static const struct {
    const char *text, *message;
} converter_refusals[] = {
    {"converters = ['npu_gm']", "unknown model converter: 'npu_gm'"},
    {"converters = ['npu_gm']", "the nearest is npu_gmm (model.converters, "},
    {"converters = ['quantize.linear.float8']",
     "unknown model converter: 'quantize.linear.float8'"},
    {"converters = ['npu_rms_norm']", "unknown model converter: 'npu_rms_norm'"},
    {"converters = ['npu_gmm', 'npu_gmm']", "model converter listed twice: 'npu_gmm'"},
    {"converters = ['quantize.grouped_mm.mx', 'npu_gmm']",
     "wrong order of model converters: 'npu_gmm' is after it, a place before "
     "'quantize.grouped_mm.mx'"},
    {"converters = ['quantize.grouped_mm.mx']",
     "wrong order of model converters: 'npu_gmm' is not listed"},
    {"converters = ['quantize.linear.mx', 'quantize.grouped_mm.float8']",
     "Cannot combine model converters with different quantization types: 'float8' and 'mx' ("},
    {"converters = ['quantize.linear.mx']\n[quantize.linear.mx]\nrecipe_name = 'mxfp8_cublas'",
     "recipe_name mxfp8_cublas not in valid names ['mxfp8', 'hif8']"},
    {"converters = ['npu_gmm', 'quantize.grouped_mm.mx']\n[quantize.grouped_mm.mx]\nrecipe_name = "
     "'MXFP8'",
     "recipe_name MXFP8 not in valid names ['mxfp8', 'hif8'] "
     "(quantize.grouped_mm.mx.recipe_name, "},
    {"converters = ['npu_gmm', 'quantize.linear.mx', "
     "'quantize.grouped_mm.mx']\n[quantize.linear.mx]\n"
     "recipe_name = 'hif8'",
     "cannot use two recipes in one job: hif8 in quantize.linear.mx.recipe_name ("},
    {"converters = ['quantize.linear.mx']\n[compile]\nenable = true\n[parallelism]\n"
     "tensor_parallel_degree = 2",
     "TP not yet supported with torch.compile for mxfp8 ("},
    {"converters = ['quantize.linear.mx']\n[compile]\nenable = true\ncomponents = ['loss']\n"
     "[parallelism]\ntensor_parallel_degree = 2",
     "tensor parallelism is not supported"},
    {"converters = ['npu_gmm']\n[compile]\nenable = true\n[parallelism]\ntensor_parallel_degree = "
     "2",
     "tensor parallelism is not supported"},
};

static void torchtitan__converters__names_order_types_recipes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof converter_refusals / sizeof converter_refusals[0]; i++) {
        char text[512];
        (void)snprintf(text, sizeof text, "[model]\n%s\n", converter_refusals[i].text);
        refuses(text, converter_refusals[i].message);
    }
    accepts("[model]\nconverters = ['quantize.linear.mx', 'npu_gmm', 'quantize.grouped_mm.mx']\n"
            "[quantize.linear.mx]\nrecipe_name = 'hif8'\n[quantize.grouped_mm.mx]\n"
            "recipe_name = 'hif8'\nfqns = ['experts']\n",
            NULL);
    assert_string_equal(config.low_precision.format, "hif8");
    assert_string_equal(config.low_precision.scaling, "current");
    assert_string_equal(config.torchtitan->recipe, "hif8");
    assert_false(config.torchtitan->expanded);
    /* Empty sections: the guide's defaults, not those of torchtitan 0.2.2. */
    accepts("[model]\nconverters = ['quantize.linear.mx']\n[quantize.linear.mx]\n", NULL);
    assert_string_equal(config.torchtitan->recipe, "mxfp8");
    assert_string_equal(config.low_precision.format, "mxfp8_e4m3");
    assert_int_equal(config.torchtitan->filter_fqns.count, 0);
    assert_int_equal(config.torchtitan->fqns.count, 0);
    /* An unlisted converter's recipe is not looked at. */
    accepts("[model]\nconverters = ['npu_gmm']\n[quantize.linear.mx]\nrecipe_name = 'x'\n", NULL);
}

/* Every mutation of a job loads or is refused with a message. */
static void torchtitan__mutated_job__no_crash(void **state)
{
    (void)state;
    static const char seed[] =
        "base = 'base.toml'\n[model]\nconverters = ['npu_gmm', 'quantize.linear.mx']\n"
        "[quantize.linear.mx]\nrecipe_name = 'hif8'\nfilter_fqns = ['output']\n"
        "[training]\nsteps = 300\nglobal_batch_size = -1\n[checkpoint]\nenable = true\n"
        "load_step = -1\n[debug]\nseed = 3\n[octet]\nmoe.bias_update_rate = 0.1\n"
        "[validation]\nenable = false\nsteps = 3\n[compile]\ncomponents = []\n";
    static const char alphabet[] = "=.[]{}'#,\n 0a_-ets";
    const oct_rng stream = oct_rng_stream(7, "torchtitan");
    uint64_t draw = 0;
    int accepted = 0;
    for (int round = 0; round < 800; round++) {
        char text[sizeof seed + 8];
        size_t length = sizeof seed - 1;
        memcpy(text, seed, sizeof seed);
        const uint64_t edits = 1 + oct_rng_below(stream, draw++, 2);
        for (uint64_t i = 0; i < edits; i++) {
            const size_t at = oct_rng_below(stream, draw++, length);
            const size_t cut = 1 + oct_rng_below(stream, draw++, 8);
            switch (oct_rng_below(stream, draw++, 3)) {
            case 0:
                text[at] = alphabet[oct_rng_below(stream, draw++, sizeof alphabet - 1)];
                break;
            case 1:
                if (at + cut < length) {
                    memmove(text + at, text + at + cut, length - at - cut);
                    length -= cut;
                }
                break;
            default:
                if (length + 1 < sizeof text) {
                    memmove(text + at + 1, text + at, length - at);
                    text[at] = alphabet[oct_rng_below(stream, draw++, sizeof alphabet - 1)];
                    length++;
                }
                break;
            }
        }
        text[length] = '\0';
        const oct_status status = load(text, NULL);
        accepted += status == OCT_OK;
        if (status != OCT_OK && status != OCT_E_IO) {
            assert_int_equal(status, OCT_E_CONFIG);
            assert_non_null(strchr(err.msg, '('));
        }
        oct_arena_reset(&arena);
    }
    assert_in_range(accepted, 20, 780);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(torchtitan__base_alone__defaults_of_torchtitan),
        TEST(torchtitan__every_mapped_key__reaches_its_member),
        TEST(torchtitan__keys_that_decide_together),
        TEST(torchtitan__table__defaults_are_legal_and_targets_exist),
        TEST(torchtitan__reference_page__same_bytes),
        TEST(torchtitan__unknown_names__all_of_a_section_with_the_nearest),
        TEST(torchtitan__what_would_change_results__refused_by_name),
        TEST(torchtitan__errors_between_keys__name_what_was_written),
        TEST(torchtitan__what_has_no_effect__told_once_by_name),
        TEST(torchtitan__words__over_files_over_defaults),
        TEST(torchtitan__converters__names_order_types_recipes),
        TEST(torchtitan__mutated_job__no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
