#include "model/deepseek_v3/hf_config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/nearest.h"
#include "numeric/fmath.h"

enum {
    MAX_PATH_BYTES = 4096,
    MAX_SIZE_FIELD = 1 << 30,
    MAX_ROPE_DIM = 1 << 20,
    MAX_LAYERS = 1 << 14
};

typedef enum field_kind { FIELD_INT, FIELD_NULLABLE_INT, FIELD_FLOAT, FIELD_BOOL } field_kind;

/* One field of oct_hf_config. `other` is its second spelling. min and max bound numbers; a null of
 * a nullable one becomes `null_value`. */
typedef struct field {
    const char *name, *other;
    field_kind kind;
    size_t offset;
    double min, max;
    int64_t null_value;
} field;

#define INT(n, lo)                                                                                 \
    {                                                                                              \
#n, NULL, FIELD_INT, offsetof(oct_hf_config, n), lo, MAX_SIZE_FIELD, 0                     \
    }
#define TOKEN(n)                                                                                   \
    {                                                                                              \
#n, NULL, FIELD_NULLABLE_INT, offsetof(oct_hf_config, n), -1, MAX_SIZE_FIELD, -1           \
    }
#define FLOAT(n, lo)                                                                               \
    {                                                                                              \
#n, NULL, FIELD_FLOAT, offsetof(oct_hf_config, n), lo, 1e30, 0                             \
    }
#define BOOL(n)                                                                                    \
    {                                                                                              \
#n, NULL, FIELD_BOOL, offsetof(oct_hf_config, n), 0, 1, 0                                  \
    }

static const field fields[] = {
    INT(vocab_size, 1),
    INT(hidden_size, 1),
    INT(intermediate_size, 1),
    INT(moe_intermediate_size, 1),
    {"num_hidden_layers", NULL, FIELD_INT, offsetof(oct_hf_config, num_hidden_layers), 1,
     MAX_LAYERS, 0},
    INT(first_k_dense_replace, 0),
    INT(num_attention_heads, 1),
    {"num_key_value_heads", NULL, FIELD_NULLABLE_INT, offsetof(oct_hf_config, num_key_value_heads),
     1, MAX_SIZE_FIELD, 0},
    {"n_routed_experts", "num_local_experts", FIELD_INT, offsetof(oct_hf_config, n_routed_experts),
     1, MAX_SIZE_FIELD, 0},
    INT(n_shared_experts, 1),
    INT(num_experts_per_tok, 1),
    INT(n_group, 1),
    INT(topk_group, 1),
    BOOL(norm_topk_prob),
    FLOAT(routed_scaling_factor, 0),
    {"q_lora_rank", NULL, FIELD_NULLABLE_INT, offsetof(oct_hf_config, q_lora_rank), 1,
     MAX_SIZE_FIELD, 0},
    INT(kv_lora_rank, 1),
    INT(qk_nope_head_dim, 1),
    {"qk_rope_head_dim", NULL, FIELD_INT, offsetof(oct_hf_config, qk_rope_head_dim), 2,
     MAX_ROPE_DIM, 0},
    INT(v_head_dim, 1),
    INT(max_position_embeddings, 1),
    FLOAT(initializer_range, 0),
    FLOAT(rms_norm_eps, 0),
    BOOL(rope_interleave),
    BOOL(attention_bias),
    BOOL(tie_word_embeddings),
    BOOL(use_cache),
    TOKEN(pad_token_id),
    TOKEN(bos_token_id),
    TOKEN(eos_token_id),
    {"num_nextn_predict_layers", "num_mtp_layers", FIELD_INT,
     offsetof(oct_hf_config, num_nextn_predict_layers), 0, MAX_SIZE_FIELD, 0},
};

#undef INT
#undef TOKEN
#undef FLOAT
#undef BOOL

enum { FIELD_COUNT = sizeof fields / sizeof *fields };

/* Fields that are read by hand, below. */
static const char *const special_fields[] = {"model_type", "hidden_act",   "attention_dropout",
                                             "rope_theta", "rope_scaling", "rope_parameters",
                                             "dtype",      "torch_dtype",  "pretraining_tp"};

static const char *const rope_fields[] = {"rope_theta",
                                          "rope_type",
                                          "type",
                                          "factor",
                                          "beta_fast",
                                          "beta_slow",
                                          "mscale",
                                          "mscale_all_dim",
                                          "attention_factor",
                                          "original_max_position_embeddings",
                                          "truncate"};

/* Defaults of transformers' configuration_deepseek_v3.py. */
static const oct_hf_config hf_defaults = {
    .vocab_size = 129280,
    .hidden_size = 7168,
    .intermediate_size = 18432,
    .moe_intermediate_size = 2048,
    .num_hidden_layers = 61,
    .first_k_dense_replace = 3,
    .num_attention_heads = 128,
    .num_key_value_heads = 128,
    .n_routed_experts = 256,
    .n_shared_experts = 1,
    .num_experts_per_tok = 8,
    .n_group = 8,
    .topk_group = 4,
    .norm_topk_prob = true,
    .routed_scaling_factor = 2.5,
    .q_lora_rank = 1536,
    .kv_lora_rank = 512,
    .qk_nope_head_dim = 128,
    .qk_rope_head_dim = 64,
    .v_head_dim = 128,
    .max_position_embeddings = 4096,
    .initializer_range = 0.02,
    .rms_norm_eps = 1e-6,
    .rope = {.theta = 10000.0, .beta_fast = 32.0, .beta_slow = 1.0, .truncate = true},
    .rope_interleave = true,
    .use_cache = true,
    .pad_token_id = -1,
    .bos_token_id = 0,
    .eos_token_id = 1,
    .num_nextn_predict_layers = 1,
};

/* Where a field's value came from, for messages. */
typedef struct source {
    const char *file;
    const json_t *overrides;
} source;

static const char *origin(const source *from, const char *name)
{
    return from->overrides && json_object_get(from->overrides, name) ? "config_overrides"
                                                                     : from->file;
}

/* A short form of a JSON value for messages. */
typedef struct shown {
    char text[64];
} shown;

static shown show(const json_t *value)
{
    shown out;
    switch (json_typeof(value)) {
    case JSON_INTEGER:
        snprintf(out.text, sizeof out.text, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(out.text, sizeof out.text, "%.17g", json_real_value(value));
        break;
    case JSON_STRING:
        snprintf(out.text, sizeof out.text, "'%.48s'", json_string_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(out.text, sizeof out.text, "%s", json_is_true(value) ? "true" : "false");
        break;
    case JSON_NULL:
        snprintf(out.text, sizeof out.text, "null");
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        snprintf(out.text, sizeof out.text, "%s", json_is_array(value) ? "a list" : "an object");
        break;
    }
    return out;
}

static oct_status wrong(const source *from, const char *name, const json_t *value,
                        const char *required, oct_err *err)
{
    return OCT_FAIL(err, OCT_E_CONFIG, "cannot use HF config: '%s' is %s, required %s (%s: %s)",
                    name, value ? show(value).text : "missing", required, origin(from, name), name);
}

/* --- numbers --- */

static oct_status read_int(const source *from, const char *name, const json_t *value, double min,
                           double max, int64_t *out, oct_err *err)
{
    char required[64];
    snprintf(required, sizeof required, "an integer from %.0f to %.0f", min, max);
    if (!json_is_integer(value))
        return wrong(from, name, value, required, err);
    const int64_t found = json_integer_value(value);
    if ((double)found < min || (double)found > max)
        return wrong(from, name, value, required, err);
    *out = found;
    return OCT_OK;
}

/* Integers are legal where HF annotates a float: published files hold "factor": 40. */
static oct_status read_float(const source *from, const char *name, const json_t *value, double min,
                             double max, double *out, oct_err *err)
{
    char required[64];
    snprintf(required, sizeof required, "a finite number of at least %g", min);
    if (!json_is_number(value))
        return wrong(from, name, value, required, err);
    const double found = json_number_value(value);
    if (!(found >= min && found <= max))
        return wrong(from, name, value, required, err);
    *out = found;
    return OCT_OK;
}

static oct_status read_bool(const source *from, const char *name, const json_t *value, bool *out,
                            oct_err *err)
{
    if (!json_is_boolean(value))
        return wrong(from, name, value, "true or false", err);
    *out = json_is_true(value);
    return OCT_OK;
}

static oct_status read_field(const source *from, const field *f, const char *name,
                             const json_t *value, oct_hf_config *out, oct_err *err)
{
    void *member = (char *)out + f->offset;
    switch (f->kind) {
    case FIELD_NULLABLE_INT:
        if (json_is_null(value)) {
            *(int64_t *)member = f->null_value;
            return OCT_OK;
        }
        return read_int(from, name, value, f->min < 0 ? 0 : f->min, f->max, member, err);
    case FIELD_INT:
        return read_int(from, name, value, f->min, f->max, member, err);
    case FIELD_FLOAT:
        return read_float(from, name, value, f->min, f->max, member, err);
    case FIELD_BOOL:
        return read_bool(from, name, value, member, err);
    }
    return OCT_OK;
}

static oct_status read_fields(const source *from, const json_t *root, oct_hf_config *out,
                              oct_err *err)
{
    for (int i = 0; i < FIELD_COUNT; i++) {
        const field *f = &fields[i];
        const json_t *first = json_object_get(root, f->name);
        const json_t *second = f->other ? json_object_get(root, f->other) : NULL;
        if (first && second && !json_equal(first, second))
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "cannot use HF config: '%s' is %s but '%s' is %s, required one value "
                            "(%s: %s)",
                            f->name, show(first).text, f->other, show(second).text, from->file,
                            f->name);
        if (first)
            OCT_TRY(read_field(from, f, f->name, first, out, err));
        else if (second)
            OCT_TRY(read_field(from, f, f->other, second, out, err));
    }
    return OCT_OK;
}

/* --- rope --- */

/* A number of the rope dictionary; absent and null leave *out alone. */
static oct_status read_rope_float(const source *from, const json_t *rope, const char *name,
                                  double min, double *out, oct_err *err)
{
    const json_t *value = json_object_get(rope, name);
    return value && !json_is_null(value) ? read_float(from, name, value, min, 1e30, out, err)
                                         : OCT_OK;
}

static oct_status read_yarn(const source *from, const json_t *rope, oct_hf_config *out,
                            oct_err *err)
{
    oct_rope_parameters *to = &out->rope;
    if (!json_is_number(json_object_get(rope, "factor")))
        return wrong(from, "factor", json_object_get(rope, "factor"),
                     "a number of at least 1 for yarn", err);
    OCT_TRY(read_rope_float(from, rope, "factor", 1.0, &to->factor, err));
    OCT_TRY(read_rope_float(from, rope, "beta_fast", 1e-9, &to->beta_fast, err));
    OCT_TRY(read_rope_float(from, rope, "beta_slow", 1e-9, &to->beta_slow, err));
    OCT_TRY(read_rope_float(from, rope, "mscale", 0.0, &to->mscale, err));
    OCT_TRY(read_rope_float(from, rope, "mscale_all_dim", 0.0, &to->mscale_all_dim, err));
    OCT_TRY(read_rope_float(from, rope, "attention_factor", 0.0, &to->attention_factor, err));
    const json_t *original = json_object_get(rope, "original_max_position_embeddings");
    to->original_max_position_embeddings = out->max_position_embeddings;
    if (original && !json_is_null(original))
        OCT_TRY(read_int(from, "original_max_position_embeddings", original, 1, MAX_SIZE_FIELD,
                         &to->original_max_position_embeddings, err));
    const json_t *truncate = json_object_get(rope, "truncate");
    if (truncate)
        OCT_TRY(read_bool(from, "truncate", truncate, &to->truncate, err));
    to->yarn = true;
    return OCT_OK;
}

/* rope_scaling (old files) goes before rope_parameters, as in HF; a theta inside goes before the
 * one at the top level. */
static oct_status read_rope(const source *from, const json_t *root, oct_hf_config *out,
                            oct_err *err)
{
    const char *name = "rope_scaling";
    const json_t *rope = json_object_get(root, name);
    if (!rope || json_is_null(rope)) {
        name = "rope_parameters";
        rope = json_object_get(root, name);
    }
    if (rope && !json_is_object(rope) && !json_is_null(rope))
        return wrong(from, name, rope, "an object or null", err);
    const json_t *theta = json_object_get(rope, "rope_theta");
    if (!theta)
        theta = json_object_get(root, "rope_theta");
    if (theta && !json_is_null(theta))
        OCT_TRY(read_float(from, "rope_theta", theta, 1.0, 1e30, &out->rope.theta, err));
    const json_t *type = json_object_get(rope, "rope_type");
    if (!type)
        type = json_object_get(rope, "type");
    if (!type || json_is_null(type))
        return json_object_get(rope, "factor")
                   ? wrong(from, "rope_type", type, "'yarn' or 'default' where a factor is", err)
                   : OCT_OK;
    const char *word = json_is_string(type) ? json_string_value(type) : "";
    if (!strcmp(word, "default"))
        return OCT_OK;
    if (strcmp(word, "yarn") != 0)
        return OCT_FAIL(
            err, OCT_E_CONFIG,
            "cannot use HF config: rope type is %s, required 'default' or 'yarn' (%s: %s)",
            show(type).text, origin(from, name), name);
    return read_yarn(from, rope, out, err);
}

/* --- what octet does not have, and what cannot be --- */

static oct_status check_word(const source *from, const json_t *root, const char *name,
                             const char *required, bool needed, oct_err *err)
{
    const json_t *value = json_object_get(root, name);
    if (!value && !needed)
        return OCT_OK;
    char quoted[64];
    snprintf(quoted, sizeof quoted, "'%s'", required);
    if (!json_is_string(value) || strcmp(json_string_value(value), required) != 0)
        return wrong(from, name, value, quoted, err);
    return OCT_OK;
}

static oct_status read_dtype(const source *from, const json_t *root, oct_hf_config *out,
                             oct_err *err)
{
    const char *name = json_object_get(root, "dtype") ? "dtype" : "torch_dtype";
    const json_t *value = json_object_get(root, name);
    if (!value || json_is_null(value))
        return OCT_OK;
    static const char *const words[] = {"bfloat16", "float32", "float16"};
    for (size_t w = 0; w < sizeof words / sizeof *words; w++)
        if (json_is_string(value) && !strcmp(json_string_value(value), words[w]))
            out->dtype = words[w];
    return out->dtype ? OCT_OK
                      : wrong(from, name, value, "'bfloat16', 'float32' or 'float16'", err);
}

static oct_status check_unsupported(const source *from, const json_t *root, oct_err *err)
{
    OCT_TRY(check_word(from, root, "model_type", "deepseek_v3", true, err));
    OCT_TRY(check_word(from, root, "hidden_act", "silu", false, err));
    const json_t *dropout = json_object_get(root, "attention_dropout");
    if (dropout && (!json_is_number(dropout) || json_number_value(dropout) != 0.0))
        return wrong(from, "attention_dropout", dropout, "0: octet has no attention dropout", err);
    return OCT_OK;
}

typedef struct relation {
    bool holds;
    const char *name;
    int64_t found;
    const char *required;
    int64_t bound;
} relation;

static oct_status check_relations(const source *from, const oct_hf_config *hf, oct_err *err)
{
    const int64_t per_group = hf->n_routed_experts / hf->n_group;
    const relation relations[] = {
        {hf->num_key_value_heads == hf->num_attention_heads, "num_key_value_heads",
         hf->num_key_value_heads, "num_attention_heads =", hf->num_attention_heads},
        {hf->first_k_dense_replace <= hf->num_hidden_layers, "first_k_dense_replace",
         hf->first_k_dense_replace, "at most num_hidden_layers =", hf->num_hidden_layers},
        {hf->qk_rope_head_dim % 2 == 0, "qk_rope_head_dim", hf->qk_rope_head_dim, "a multiple of",
         2},
        {hf->topk_group <= hf->n_group, "topk_group", hf->topk_group,
         "at most n_group =", hf->n_group},
        {hf->n_routed_experts % hf->n_group == 0, "n_routed_experts", hf->n_routed_experts,
         "a multiple of n_group =", hf->n_group},
        /* A group's score is the sum of its two best experts. */
        {per_group >= 2, "n_routed_experts", hf->n_routed_experts,
         "at least 2 * n_group =", 2 * hf->n_group},
        {hf->num_experts_per_tok <= hf->topk_group * per_group, "num_experts_per_tok",
         hf->num_experts_per_tok,
         "at most the experts of topk_group groups =", hf->topk_group * per_group},
        {hf->pad_token_id < hf->vocab_size, "pad_token_id", hf->pad_token_id,
         "less than vocab_size =", hf->vocab_size},
        {!hf->rope.yarn || hf->rope.theta > 1.0, "rope_theta", (int64_t)hf->rope.theta,
         "for yarn more than", 1},
        {hf->rms_norm_eps > 0.0, "rms_norm_eps", 0, "more than", 0},
    };
    for (size_t r = 0; r < sizeof relations / sizeof *relations; r++)
        if (!relations[r].holds)
            return OCT_FAIL(
                err, OCT_E_CONFIG, "cannot use HF config: '%s' is %lld, required %s %lld (%s: %s)",
                relations[r].name, (long long)relations[r].found, relations[r].required,
                (long long)relations[r].bound, origin(from, relations[r].name), relations[r].name);
    return OCT_OK;
}

/* --- overrides --- */

static void consider(const char *candidate, const char *name, size_t *best, const char **nearest)
{
    const size_t distance = oct_edit_distance(candidate, name);
    if (distance < *best) {
        *best = distance;
        *nearest = candidate;
    }
}

static oct_status check_known(const char *where, const char *name, bool in_rope, oct_err *err)
{
    size_t best = SIZE_MAX;
    const char *nearest = "";
    if (in_rope) {
        for (size_t r = 0; r < sizeof rope_fields / sizeof *rope_fields; r++)
            consider(rope_fields[r], name, &best, &nearest);
    } else {
        for (int i = 0; i < FIELD_COUNT; i++) {
            consider(fields[i].name, name, &best, &nearest);
            if (fields[i].other)
                consider(fields[i].other, name, &best, &nearest);
        }
        for (size_t s = 0; s < sizeof special_fields / sizeof *special_fields; s++)
            consider(special_fields[s], name, &best, &nearest);
    }
    if (best == 0)
        return OCT_OK;
    return OCT_FAIL(
        err, OCT_E_CONFIG,
        "cannot apply override: '%s' is no field of the HF config, nearest is '%s' (%s.%s)", name,
        nearest, where, name);
}

/* Removes what the file says under another spelling of `name`, so that the override wins. */
static void drop_other_spellings(json_t *root, const char *name)
{
    for (int i = 0; i < FIELD_COUNT; i++) {
        if (!fields[i].other)
            continue;
        if (!strcmp(name, fields[i].name))
            json_object_del(root, fields[i].other);
        if (!strcmp(name, fields[i].other))
            json_object_del(root, fields[i].name);
    }
    if (!strcmp(name, "rope_theta")) {
        json_object_del(json_object_get(root, "rope_scaling"), "rope_theta");
        json_object_del(json_object_get(root, "rope_parameters"), "rope_theta");
    }
    if (!strcmp(name, "rope_scaling"))
        json_object_del(root, "rope_parameters");
    if (!strcmp(name, "rope_parameters"))
        json_object_del(root, "rope_scaling");
    if (!strcmp(name, "dtype"))
        json_object_del(root, "torch_dtype");
    if (!strcmp(name, "torch_dtype"))
        json_object_del(root, "dtype");
}

static oct_status apply_overrides(json_t *root, json_t *overrides, oct_err *err)
{
    const char *name = NULL;
    json_t *value = NULL;
    /* Both spellings in the overrides themselves are left to read_fields. */
    json_object_foreach(overrides, name, value)
    {
        OCT_TRY(check_known("config_overrides", name, false, err));
        drop_other_spellings(root, name);
        if (json_is_object(value)) {
            const char *inner = NULL;
            json_t *ignored = NULL;
            json_object_foreach(value, inner, ignored) OCT_TRY(check_known(name, inner, true, err));
        }
    }
    if (json_object_update(root, overrides))
        return OCT_FAIL(err, OCT_E_NOMEM, "cannot apply config_overrides: out of memory");
    return OCT_OK;
}

static oct_status parse_object(const char *text, const char *where, json_t **out, oct_err *err)
{
    json_error_t problem;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &problem);
    if (!root)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot read HF config: %s, required valid JSON (%s:%d:%d)", problem.text,
                        where, problem.line, problem.column);
    if (!json_is_object(root)) {
        const shown found = show(root);
        json_decref(root);
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot read HF config: found %s, required an object (%s)", found.text,
                        where);
    }
    *out = root;
    return OCT_OK;
}

static oct_status interpret(json_t *root, json_t *overrides, const char *where, oct_hf_config *out,
                            oct_err *err)
{
    const source from = {.file = where, .overrides = overrides};
    if (overrides)
        OCT_TRY(apply_overrides(root, overrides, err));
    OCT_TRY(check_unsupported(&from, root, err));
    *out = hf_defaults;
    OCT_TRY(read_fields(&from, root, out, err));
    if (out->num_key_value_heads == 0)
        out->num_key_value_heads = out->num_attention_heads;
    OCT_TRY(read_rope(&from, root, out, err));
    OCT_TRY(read_dtype(&from, root, out, err));
    return check_relations(&from, out, err);
}

oct_status oct_hf_config_parse(const char *text, const char *where, const char *overrides_json,
                               oct_hf_config *out, oct_err *err)
{
    json_t *root = NULL, *overrides = NULL;
    oct_status status = parse_object(text, where, &root, err);
    if (status == OCT_OK && overrides_json)
        status = parse_object(overrides_json, "config_overrides", &overrides, err);
    if (status == OCT_OK)
        status = interpret(root, overrides, where, out, err);
    json_decref(overrides);
    json_decref(root);
    return status;
}

static oct_status read_text(const char *path, oct_arena *arena, char **text, oct_err *err)
{
    enum { LIMIT_BYTES = 16 << 20 }; /* a config.json has a few kilobytes */
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (!file || fstat(fileno(file), &info)) {
        const int cause = errno;
        if (file)
            fclose(file);
        return OCT_FAIL(err, OCT_E_IO, "cannot read HF config: %s (%s)", strerror(cause), path);
    }
    oct_status status = OCT_OK;
    void *memory = NULL;
    if (info.st_size > LIMIT_BYTES)
        status = OCT_FAIL(err, OCT_E_CONFIG, "cannot read HF config: %lld bytes, at most %d (%s)",
                          (long long)info.st_size, LIMIT_BYTES, path);
    else
        status = oct_arena_alloc(arena, (size_t)info.st_size + 1, &memory, err);
    if (status == OCT_OK) {
        const size_t got = fread(memory, 1, (size_t)info.st_size, file);
        ((char *)memory)[got] = '\0';
        *text = memory;
        if (ferror(file) || memchr(memory, '\0', got))
            status = OCT_FAIL(err, ferror(file) ? OCT_E_IO : OCT_E_CONFIG,
                              "cannot read HF config: unreadable or not text (%s)", path);
    }
    fclose(file);
    return status;
}

oct_status oct_hf_config_load(const char *path_or_dir, const char *overrides_json, oct_arena *arena,
                              oct_hf_config *out, oct_err *err)
{
    struct stat info;
    if (stat(path_or_dir, &info))
        return OCT_FAIL(err, OCT_E_IO,
                        "cannot read HF config: %s, required a config.json or its folder (%s)",
                        strerror(errno), path_or_dir);
    const char *tail = S_ISDIR(info.st_mode) ? "/config.json" : "";
    const size_t bytes = strlen(path_or_dir) + strlen(tail) + 1;
    void *path = NULL;
    char *text = NULL;
    OCT_TRY(oct_arena_alloc(arena, bytes, &path, err));
    snprintf(path, bytes, "%s%s", path_or_dir, tail);
    OCT_TRY(read_text(path, arena, &text, err));
    return oct_hf_config_parse(text, path, overrides_json, out, err);
}

/* --- derived numbers --- */

int64_t oct_hf_qk_head_dim(const oct_hf_config *hf)
{
    return hf->qk_nope_head_dim + hf->qk_rope_head_dim;
}

/* yarn's attention temperature; 1 for a factor of at most 1. */
static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * oct_log(factor) + 1.0;
}

double oct_hf_softmax_scale(const oct_hf_config *hf)
{
    const double scale = 1.0 / sqrt((double)oct_hf_qk_head_dim(hf));
    if (!hf->rope.yarn || hf->rope.mscale_all_dim == 0.0)
        return scale;
    const double m = yarn_mscale(hf->rope.factor, hf->rope.mscale_all_dim);
    return scale * m * m;
}

double oct_hf_rope_factor(const oct_hf_config *hf)
{
    const oct_rope_parameters *rope = &hf->rope;
    if (!rope->yarn)
        return 1.0;
    if (rope->attention_factor != 0.0)
        return rope->attention_factor;
    if (rope->mscale != 0.0 && rope->mscale_all_dim != 0.0)
        return yarn_mscale(rope->factor, rope->mscale) /
               yarn_mscale(rope->factor, rope->mscale_all_dim);
    return yarn_mscale(rope->factor, 1.0);
}

/* The dimension that turns `rotations` times within the original context. */
static double yarn_dimension(const oct_hf_config *hf, double rotations)
{
    static const double two_pi = 0x1.921fb54442d18p+2;
    const double turns = (double)hf->rope.original_max_position_embeddings / (rotations * two_pi);
    return (double)hf->qk_rope_head_dim * oct_log(turns) / (2.0 * oct_log(hf->rope.theta));
}

void oct_hf_inv_freq(const oct_hf_config *hf, float *inv_freq)
{
    const oct_rope_parameters *rope = &hf->rope;
    const int64_t dim = hf->qk_rope_head_dim;
    double low = 0.0, high = 0.0;
    if (rope->yarn) {
        low = yarn_dimension(hf, rope->beta_fast);
        high = yarn_dimension(hf, rope->beta_slow);
        if (rope->truncate) {
            low = floor(low);
            high = ceil(high);
        }
        low = low > 0.0 ? low : 0.0;
        high = high < (double)(dim - 1) ? high : (double)(dim - 1);
        if (low == high)
            high += 0.001; /* HF: no division by zero */
    }
    for (int64_t i = 0; i < dim / 2; i++) {
        const double f = oct_pow(rope->theta, -2.0 * (double)i / (double)dim);
        double ramp = 0.0;
        if (rope->yarn) {
            ramp = ((double)i - low) / (high - low);
            ramp = ramp < 0.0 ? 0.0 : ramp > 1.0 ? 1.0 : ramp;
        }
        const double interpolated = rope->yarn ? f / rope->factor : f;
        inv_freq[i] = (float)(ramp * interpolated + (1.0 - ramp) * f);
    }
}
