/* How long a step takes, from the sizes of a plan and the rates of a machine: every part is its
 * operations, bytes or elements over one rate. docs/scaling.md says the same in formulas. */
#include "trainer/step_time.h"

#include <string.h>

#include "base/size.h"

/* Of a parameter, for norm (4), AdamW (master and moments both ways, gradient: 28) and the
 * refreshed form (4). */
enum { UPDATE_BYTES = 36 };

/* Work of one rank in one step. */
typedef struct step_work {
    double products[OCT_MACHINE_FORMATS], experts[OCT_MACHINE_FORMATS]; /* operations */
    double head, attention;
    double bytes;    /* read and written by everything between products */
    double packed;   /* elements of 8-bit weights */
    double gathers;  /* all-gathers of units */
    double folds;    /* reductions of gradients */
    double per_rank; /* parameters owned */
} step_work;

/* The index of the rates for 8-bit weights; of BF16 where there are none. */
static int format_of(const oct_build *build)
{
    for (int f = 0; build->policy.enabled && f < OCT_MACHINE_FORMATS; f++)
        if (strcmp(oct_machine_formats[f], build->policy.format->name) == 0)
            return f;
    return 0;
}

/* Of a matrix, for one token: 2 for fprop, dgrad and wgrad each, and 2 for a forward pass again. */
static double operations_per_element(const oct_build *build, bool is_head)
{
    return build->config->activation_checkpoint.full && !is_head ? 8.0 : 6.0;
}

/* Matrices of the model but the embedding, which is read by rows. */
static void add_products(const oct_build *build, const oct_plan_report *report, double tokens,
                         step_work *work)
{
    const int format = format_of(build);
    for (int64_t i = 1; i < report->shard_count; i++) {
        const oct_plan_shard *shard = &report->shards[i];
        const oct_param *param = shard->param;
        if (param->ndim < 2)
            continue;
        const bool is_head = i == report->shard_count - 1;
        const double each = tokens * operations_per_element(build, is_head);
        const double numel = (double)oct_param_numel(param);
        const int f = shard->low_precision ? format : 0;
        if (param->ndim == 3)
            work->experts[f] += each * numel * (double)build->hf.num_experts_per_tok /
                                (double)build->hf.n_routed_experts;
        else if (is_head || param->keep_float32)
            work->head += each * numel;
        else
            work->products[f] += each * numel;
    }
    if (build->hf.tie_word_embeddings)
        work->head += 6.0 * tokens * (double)(build->hf.vocab_size * build->hf.hidden_size);
}

/* Scores and context over the causal half of a sequence; backward takes 2.5 times as much. */
static double attention_operations(const oct_build *build)
{
    const oct_hf_config *hf = &build->hf;
    const double forward =
        (double)(hf->num_attention_heads * (oct_hf_qk_head_dim(hf) + hf->v_head_dim)) *
        (double)build->config->training.seq_length;
    const double passes = build->config->activation_checkpoint.full ? 4.5 : 3.5;
    return passes * forward * (double)hf->num_hidden_layers;
}

/* What the forward pass of a token reads and writes between products, in elements: two norms (2
 * each) and residual sums (3 each) of H; the latent's norm and split; rope and the heads of q, k
 * and v; SwiGLU (3 of its width); rows back from experts (H for each slot). Backward moves twice as
 * much. */
static double elements_per_token(const oct_build *build)
{
    const oct_hf_config *hf = &build->hf;
    const int64_t h = hf->hidden_size, heads = hf->num_attention_heads;
    const int64_t dense = oct_min_i64(hf->first_k_dense_replace, hf->num_hidden_layers);
    const int64_t attention =
        10 * h + 4 * hf->kv_lora_rank + heads * (4 * oct_hf_qk_head_dim(hf) + 2 * hf->v_head_dim);
    const int64_t slots = hf->num_experts_per_tok * (h + 3 * hf->moe_intermediate_size);
    const int64_t moe = slots + 3 * hf->n_shared_experts * hf->moe_intermediate_size + 5 * h;
    const int64_t forward = hf->num_hidden_layers * attention + dense * 3 * hf->intermediate_size +
                            (hf->num_hidden_layers - dense) * moe;
    const int64_t passes = build->config->activation_checkpoint.full ? 4 : 3;
    return (double)(passes * forward + 3 * hf->vocab_size);
}

static step_work work_of(const oct_build *build, const oct_plan_report *report)
{
    const oct_config *config = build->config;
    const double micro = (double)config->gradient_accumulation_steps;
    const double tokens =
        micro * (double)(config->training.micro_batch_size * config->training.seq_length);
    step_work work = {
        .attention = tokens * attention_operations(build),
        .bytes = tokens * elements_per_token(build) * (double)oct_dtype_bytes(build->act_dtype),
        .per_rank = (double)report->bytes.master / sizeof(float),
    };
    add_products(build, report, tokens, &work);
    const bool repeats = report->ranks > 1 || oct_build_packs_at_use(build, report->ranks);
    const double forms = repeats && config->activation_checkpoint.full ? 3.0 : 2.0;
    work.packed = (double)report->parameters_low_precision * forms * (repeats ? micro : 1.0);
    const double layers = (double)build->hf.num_hidden_layers;
    work.gathers = micro * (layers + 2.0 + (config->fsdp.reshard_after_forward ? layers : 0.0));
    work.folds = micro * (double)report->shard_count;
    return work;
}

/* Nodes receive what others own once and share it; each rank sends its gradients to their owners.
 * A message to every other node, or to every rank of another node, and one rendezvous on the node
 * for each operation. */
static void add_communication(const oct_machine *machine, const oct_plan_report *report,
                              const step_work *work, oct_step_time *time)
{
    const double ranks = (double)report->ranks;
    if (report->ranks == 1)
        return;
    const double here = (double)oct_min_i64(report->ranks, machine->ranks_per_node);
    const double nodes = (double)oct_ceil_div(report->ranks, machine->ranks_per_node);
    const double share = (ranks - here) / (ranks - 1.0); /* that other nodes own */
    const double gathered = 1e-9 * (double)report->all_gather_bytes;
    const double reduced = 1e-9 * (double)report->reduce_scatter_bytes;
    const oct_link_rates *local = &machine->local, *remote = &machine->remote;
    time->all_gather =
        gathered / local->gbytes + share * gathered / remote->gbytes +
        1e-6 * work->gathers * (local->microseconds + (nodes - 1.0) * remote->microseconds);
    time->reduce_scatter =
        reduced / local->gbytes + here * share * reduced / remote->gbytes +
        1e-6 * work->folds * (local->microseconds + (ranks - here) * remote->microseconds);
}

static double over_rates(const double work[OCT_MACHINE_FORMATS], const oct_format_rates *rates)
{
    double seconds = 0.0;
    for (int f = 0; f < OCT_MACHINE_FORMATS; f++)
        seconds += work[f] / rates->of[f];
    return seconds;
}

/* Seconds of the larger: `seconds` of the threads of a rank, or `bytes` through this rank's share
 * of the memory of its node. */
static double at_least(double seconds, double bytes, const oct_machine *machine, int64_t ranks_here)
{
    const double shared = 1e-9 * bytes * (double)ranks_here / machine->node_copy;
    return seconds > shared ? seconds : shared;
}

oct_step_time oct_step_time_of(const oct_machine *machine, const oct_build *build,
                               const oct_plan_report *report)
{
    const oct_config *config = build->config;
    const step_work work = work_of(build, report);
    const int64_t threads =
        config->training.threads ? config->training.threads : machine->threads_per_rank;
    const int64_t here = oct_min_i64(report->ranks, machine->ranks_per_node);
    const double team = (double)threads * (threads * here > 1 ? machine->thread_efficiency : 1.0);
    const double updated = 1e-6 * work.per_rank / machine->optimizer.of[format_of(build)] / team;
    oct_step_time time = {
        .threads = threads,
        .products = 1e-9 * over_rates(work.products, &machine->products) / team,
        .experts = 1e-9 * over_rates(work.experts, &machine->experts) / team,
        .head = 1e-9 * work.head / machine->products.of[0] / team,
        .attention = 1e-9 * work.attention / machine->attention / team,
        .elementwise =
            at_least(1e-9 * work.bytes / machine->copy / team, work.bytes, machine, here),
        .pack = 1e-6 * work.packed / machine->pack / team,
        .optimizer = at_least(updated, UPDATE_BYTES * work.per_rank, machine, here),
    };
    add_communication(machine, report, &work, &time);
    const double communication = time.all_gather + time.reduce_scatter;
    time.total = time.products + time.experts + time.head + time.attention + time.elementwise +
                 time.pack + time.optimizer + communication;
    const double tokens =
        (double)config->training.global_batch_size * (double)config->training.seq_length;
    time.tokens_per_second = tokens / time.total;
    time.communication_share = communication / time.total;
    return time;
}

void oct_step_time_json(const oct_machine *machine, const oct_step_time *time, oct_json *json)
{
    oct_json_object(json, "machine");
    oct_json_string(json, "cpu", machine->cpu);
    oct_json_int(json, "threads_per_rank", time->threads);
    oct_json_int(json, "ranks_per_node", machine->ranks_per_node);
    oct_json_end(json);
    oct_json_object(json, "step_seconds");
    oct_json_double(json, "products", time->products);
    oct_json_double(json, "experts", time->experts);
    oct_json_double(json, "head", time->head);
    oct_json_double(json, "attention", time->attention);
    oct_json_double(json, "elementwise", time->elementwise);
    oct_json_double(json, "pack", time->pack);
    oct_json_double(json, "optimizer", time->optimizer);
    oct_json_double(json, "all_gather", time->all_gather);
    oct_json_double(json, "reduce_scatter", time->reduce_scatter);
    oct_json_double(json, "total", time->total);
    oct_json_end(json);
    oct_json_double(json, "tokens_per_second", time->tokens_per_second);
    oct_json_double(json, "communication_share", time->communication_share);
}
