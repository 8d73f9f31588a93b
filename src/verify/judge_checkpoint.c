/* What a checkpoint holds: the weights of the HF model, FP32 masters and moments, nothing derived.
 */
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "verify/judge.h"

static bool same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* A parameter of the plan: {"fqn", "shape"}. */
static const json_t *parameter(const json_t *shards, const char *fqn, size_t length)
{
    for (size_t i = 0; i < json_array_size(shards); i++) {
        const json_t *shard = json_array_get(shards, i);
        const char *name = json_string_value(json_object_get(shard, "fqn"));
        if (name && strlen(name) == length && strncmp(name, fqn, length) == 0)
            return shard;
    }
    return NULL;
}

static bool has_shape(const oct_checkpoint_entry *entry, const json_t *shard)
{
    const json_t *shape = json_object_get(shard, "shape");
    bool equal = entry->ndim == (int)json_array_size(shape);
    for (int d = 0; equal && d < entry->ndim; d++)
        equal = entry->shape[d] == json_integer_value(json_array_get(shape, (size_t)d));
    return equal;
}

static void judge_state(const oct_checkpoint_entry *entry, const json_t *shards,
                        oct_finding *finding, int64_t counts[4])
{
    static const char *const names[4] = {".master", ".exp_avg", ".exp_avg_sq", ".step"};
    const char *fqn = entry->key + strlen("optimizer.state.");
    const char *dot = strrchr(fqn, '.');
    for (int i = 0; dot && i < 4; i++) {
        if (!same(dot, names[i]))
            continue;
        const json_t *shard = parameter(shards, fqn, (size_t)(dot - fqn));
        counts[i]++;
        if (!shard || !same(entry->dtype, "float32") || (i < 3 && !has_shape(entry, shard)))
            oct_finding_wrong(finding, "'%s' is %s, FP32 of the parameter's shape is required",
                              entry->key, entry->dtype);
        return;
    }
    oct_finding_wrong(finding, "'%s' is no state of AdamW", entry->key);
}

static void judge_entry(const oct_checkpoint_entry *entry, const json_t *shards,
                        const char *weight_dtype, oct_finding *finding, int64_t *weights,
                        int64_t counts[4])
{
    finding->seen++;
    if (starts(entry->key, "optimizer.state.")) {
        judge_state(entry, shards, finding, counts);
        return;
    }
    if (starts(entry->key, "train_state.") && !entry->is_tensor)
        return;
    const json_t *shard = parameter(shards, entry->key, strlen(entry->key));
    const char *bias = strstr(entry->key, ".mlp.gate.e_score_correction_bias");
    *weights += shard != NULL;
    if (!shard && !bias)
        oct_finding_wrong(finding, "'%s' (%s) is no key of the HF model", entry->key, entry->dtype);
    else if (!same(entry->dtype, bias ? "float32" : weight_dtype) ||
             (shard && !has_shape(entry, shard)))
        oct_finding_wrong(finding, "'%s' is %s, %s of the model's shape is required", entry->key,
                          entry->dtype, bias ? "float32" : weight_dtype);
}

oct_status oct_judge_checkpoint(const oct_verify_run *run, int64_t step, const json_t *plan,
                                json_t *result, oct_err *err)
{
    char path[OCT_PATH_BYTES], what[OCT_VERIFY_NAME_BYTES + 64];
    oct_checkpoint *checkpoint = NULL;
    oct_finding finding = {0};
    int64_t weights = 0, counts[4] = {0};
    const json_t *shards = json_object_get(plan, "shards");
    const int64_t due = (int64_t)json_array_size(shards);
    OCT_TRY(oct_path_join(run->dir, "checkpoints", path, sizeof path, err));
    const oct_status status = oct_checkpoint_open_step(&oct_file_table_real, path, step,
                                                       OCT_VERIFY_CRC, &checkpoint, err);
    (void)snprintf(what, sizeof what, "%s: checkpoint of step %lld", run->name, (long long)step);
    if (status != OCT_OK) {
        (void)oct_verify_check(result, false, what, "it is there and whole", "%s", err->msg);
        return OCT_OK;
    }
    for (int64_t i = 0; i < oct_checkpoint_entry_count(checkpoint); i++)
        judge_entry(oct_checkpoint_entry_at(checkpoint, i), shards, "bfloat16", &finding, &weights,
                    counts);
    const bool all = weights == due && counts[0] == due && counts[1] == due && counts[2] == due &&
                     counts[3] == due;
    int64_t saved_step = -1;
    const bool has_step =
        oct_checkpoint_read_int(checkpoint, "train_state.step", &saved_step, err) == OCT_OK;
    oct_checkpoint_close(checkpoint);
    (void)oct_verify_check(
        result, all && finding.wrong == 0, what,
        "BF16 weights under the keys of the HF model; FP32 master, exp_avg, exp_avg_sq and step of "
        "every parameter; no 8-bit data or scale",
        "%lld keys: %lld weights, %lld masters, %lld and %lld moments, %lld steps of %lld "
        "parameters, "
        "%lld wrong%s%s",
        (long long)finding.seen, (long long)weights, (long long)counts[0], (long long)counts[1],
        (long long)counts[2], (long long)counts[3], (long long)due, (long long)finding.wrong,
        finding.wrong ? ", first: " : "", finding.first);
    (void)oct_verify_check(result, has_step && saved_step == step, "its step",
                           "the step it is named for", "%lld, named step-%lld",
                           (long long)saved_step, (long long)step);
    return OCT_OK;
}
