#include "config/torchtitan_text.h"

#include <string.h>

#include "config/schema.h"
#include "config/text_buffer.h"
#include "config/torchtitan_keys.h"

static const char head[] =
    "# The torchtitan dialect\n"
    "\n"
    "Made from `src/config/torchtitan_keys.c` by `OCTET_UPDATE=1 ctest --test-dir build/release "
    "-R\n"
    "test_torchtitan`; do not edit.\n"
    "\n"
    "A job in files that end in `.toml` has the keys of torchtitan 0.2.2 and torchtitan-npu. It is "
    "read\n"
    "into the same configuration as a YAML job: `octet train JOB.toml --print-config` prints it as "
    "YAML,\n"
    "and `octet train` on what was printed gives the same bits. Files of both dialects do not "
    "mix,\n"
    "neither on the command line nor through `base`.\n"
    "\n"
    "```toml\n"
    "base = \"configs/base.toml\"   # read first; relative to the folder of this file\n"
    "\n"
    "[model]\n"
    "hf_config = \"configs/models/demo\"\n"
    "converters = [\"npu_gmm\", \"quantize.linear.mx\", \"quantize.grouped_mm.mx\"]\n"
    "\n"
    "[quantize.linear.mx]\n"
    "recipe_name = \"mxfp8\"                     # or \"hif8\"\n"
    "filter_fqns = [\"output\", \"router.gate\"]\n"
    "\n"
    "[quantize.grouped_mm.mx]\n"
    "recipe_name = \"mxfp8\"\n"
    "fqns = [\"experts\"]\n"
    "```\n"
    "\n"
    "Command line over files, later files over earlier ones, files over the defaults below, which "
    "are\n"
    "torchtitan's and not those of YAML. Tables merge key by key, lists and scalars replace. An "
    "override\n"
    "is `--section.key value`, `--section.key=value` or `section.key=value`; lists are `A,B,C`; a "
    "boolean\n"
    "key alone means true (`--checkpoint.enable`), with `no_` before its name false\n"
    "(`--checkpoint.no_initial_load_model_only`). Each override is reported with the value that "
    "it\n"
    "replaces. Files are TOML 1.0 with the limits of `docs/config.md`.\n"
    "\n"
    "An unknown key is an error that names the nearest one. A known key that has no meaning here "
    "is an\n"
    "error if another value than its default would change results, else one warning. Errors that "
    "are "
    "found\n"
    "after the translation name the key of `docs/config.md`, and the key and line that were "
    "written.\n"
    "\n"
    "## Models\n"
    "\n"
    "`model.hf_config` names a folder with `config.json`. A flavor of torchtitan is refused: its "
    "16B, for\n"
    "one, is another model than that of the design document. `[octet.model.config_overrides]` "
    "changes\n"
    "single fields.\n"
    "\n"
    "## Converters\n"
    "\n"
    "| converter | what it does |\n"
    "| --- | --- |\n"
    "| `npu_gmm` | nothing: gate and up are one stacked weight already. It must stand before "
    "`quantize.grouped_mm.mx` |\n"
    "| `quantize.linear.mx` | every Linear computes in low precision, but for those that "
    "`filter_fqns` "
    "names |\n"
    "| `quantize.grouped_mm.mx` | the routed experts that `fqns` names compute in low precision |\n"
    "\n"
    "Strings are searched in the names of modules as they are, upper and lower case, in both "
    "spellings:\n"
    "`output` and `lm_head`, `layers.3.attention.wq` and `model.layers.3.self_attn.q_proj`. A "
    "string that\n"
    "no module of the architecture could carry is an error with the nearest names. The router is "
    "no\n"
    "Linear and stays FP32 with or without `router.gate`. Without `output` in `filter_fqns` the "
    "head is\n"
    "converted too, with a warning; one that shares its weight with the embedding is refused. "
    "Both\n"
    "converters of a job have one recipe.\n"
    "\n"
    "The converters become rules of `plan_overrides`. A group of modules that is converted whole "
    "is one\n"
    "pattern, so the example above gives the three rules of `configs/base.yaml`.\n"
    "\n"
    "What the guide tells to look for in the log:\n"
    "\n"
    "```\n"
    "MX training active with recipe mxfp8\n"
    "mxfp8 MoE training enabled\n"
    "[NPU-CONVERTER] Applied 'npu_gmm' : 27 replacements\n"
    "Swapped to MXLinear_NPU layers\n"
    "[MXFP8/HiF8 GMM] Replaced 27 NPU GMM methods/functions.\n"
    "Converted MoE layers matching FQNs ['experts'] to use dynamic mxfp8 quantization with scaled "
    "grouped GEMMs\n"
    "```\n"
    "\n"
    "N is the number of expert modules that were converted; `octet plan` counts the linear "
    "layers.\n"
    "\n";

static const char before_keys[] =
    "In the progress line, `mfu` is a share of what BF16 products reach on the threads of the "
    "rank, "
    "measured\n"
    "for about a quarter of a second at the start. It is `n/a` where the result is above 100 %: "
    "other\n"
    "programs slowed the measurement down.\n"
    "\n"
    "`lr_scheduler.warmup_steps` above the steps of the schedule is refused; torchtitan lowers "
    "it.\n"
    "\n"
    "## From one dialect to the other\n"
    "\n"
    "- TOML to YAML: `octet train JOB.toml --print-config > job.yaml`.\n"
    "- YAML to TOML: find each key in the column \"here\" below; keys that stand there under no "
    "name go\n"
    "  into `[octet]` by their YAML path, such as `trace`, `moe.bias_update_rate` or "
    "`fsdp_config.shard`.\n"
    "  `plan_overrides` and `low_precision` become `model.converters`.\n"
    "- `configs/demo.toml` and `configs/deepseek_v3_16b/*.toml` are twins of the YAML files beside "
    "them.\n"
    "\n"
    "## Keys\n"
    "\n"
    "\"here\" is the key of `docs/config.md` that the value fills. *read*: it decides about that "
    "key as the\n"
    "last column says. *no effect*: any value is accepted. *warned*: so is any other value than "
    "the\n"
    "default, with a warning. *refused*: any other value is an error.\n";

static const char *fate_name(oct_torchtitan_fate fate)
{
    static const char *const names[] = {[OCT_TT_MAPPED] = "",
                                        [OCT_TT_READ] = "read",
                                        [OCT_TT_IGNORED] = "no effect",
                                        [OCT_TT_WARNED] = "warned",
                                        [OCT_TT_REFUSED] = "refused"};
    return names[fate];
}

static oct_status append_row(oct_text_buffer *text, const oct_torchtitan_key *key, oct_err *err)
{
    const char *fate = fate_name(key->fate);
    OCT_TRY(oct_text_append(text, err, "| `%s` | ", key->path));
    if (key->fallback)
        OCT_TRY(oct_text_append(text, err, "`%s`", key->fallback));
    else
        OCT_TRY(oct_text_append(text, err, key->fate == OCT_TT_MAPPED ? "required" : "none"));
    OCT_TRY(oct_text_append(text, err, " | "));
    if (*fate)
        OCT_TRY(oct_text_append(text, err, "*%s*%s", fate, key->octet ? " " : ""));
    if (key->octet)
        OCT_TRY(oct_text_append(text, err, "`%s`", key->octet));
    OCT_TRY(oct_text_append(text, err, " | %s", key->note ? key->note : ""));
    for (int i = 0; key->words[i]; i++)
        OCT_TRY(oct_text_append(text, err, "%s`\"%s\"`",
                                i           ? ", "
                                : key->note ? "; one of "
                                            : "",
                                key->words[i]));
    return oct_text_append(text, err, " |\n");
}

/* The keys that [octet] takes. */
static oct_status append_octet(oct_text_buffer *text, oct_err *err)
{
    const oct_schema schema = oct_schema_config();
    OCT_TRY(oct_text_append(text, err,
                            "\n## octet\n\nBy their path, such as `[octet.moe]` with "
                            "`bias_update_rate = 0.001`:\n\n"));
    for (int i = 0; i < schema.count; i++) {
        const char *path = schema.keys[i].path;
        if (oct_torchtitan_place_of(path) || strncmp(path, "low_precision.", 14) == 0)
            continue;
        OCT_TRY(oct_text_append(text, err, "- `%s`: %s\n", path, schema.keys[i].help));
    }
    return OCT_OK;
}

oct_status oct_torchtitan_reference_markdown(oct_arena *arena, char **out, oct_err *err)
{
    oct_text_buffer text = {.arena = arena};
    int count = 0;
    const oct_torchtitan_key *keys = oct_torchtitan_keys(&count);
    OCT_TRY(oct_text_append(&text, err, "%s%s", head, before_keys));
    size_t section = 0; /* bytes of the last key's section */
    for (int i = 0; i < count; i++) {
        const size_t own = strcspn(keys[i].path, ".");
        if (i == 0 || own != section || strncmp(keys[i].path, keys[i - 1].path, own) != 0)
            OCT_TRY(
                oct_text_append(&text, err,
                                "\n### %.*s\n\n| key | default | here | note |\n| --- | --- | --- "
                                "| --- |\n",
                                (int)own, keys[i].path));
        section = own;
        OCT_TRY(append_row(&text, &keys[i], err));
    }
    OCT_TRY(append_octet(&text, err));
    *out = text.data;
    return OCT_OK;
}
