#include "cli/bench_work.h"

#include <stdio.h>
#include <string.h>

#include "low_precision/weight.h"

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static double elements(const oct_trace_event *event, int tensor)
{
    double count = 1.0;
    for (int d = 0; d < event->ndim[tensor]; d++)
        count *= (double)event->shape[tensor][d];
    return count;
}

static bool is_8bit(const oct_trace_event *event)
{
    return event->scale_dtype != NULL;
}

/* A grouped product of which some experts went the other way has an event of each kernel. */
static bool was_counted(const oct_bench_work *work, const oct_trace_event *event)
{
    return is_8bit(event) && work->last_was_integer && strcmp(event->kernel, "fma") == 0 &&
           event->phase == work->last_phase && strcmp(event->fqn, work->last_fqn) == 0;
}

static oct_part part_of(const oct_trace_event *event)
{
    if (strcmp(event->fqn, "lm_head") == 0)
        return OCT_PART_HEAD;
    if (ends_with(event->fqn, ".mlp.gate"))
        return OCT_PART_ROUTING;
    return strcmp(event->phase, "fprop") == 0   ? OCT_PART_FPROP
           : strcmp(event->phase, "dgrad") == 0 ? OCT_PART_DGRAD
                                                : OCT_PART_WGRAD;
}

/* Whatever the layout, a product has 2 operations for each element of the left operand and column
 * of the result. */
static void count_product(oct_bench_work *work, const oct_trace *trace,
                          const oct_trace_event *event)
{
    enum { CODE = 1, MANTISSA = 2 };
    if (was_counted(work, event))
        return;
    oct_bench_part_work *part = &work->parts[part_of(event)];
    const double left = elements(event, 0), right = elements(event, 1);
    const double operations = 2.0 * left * (double)event->shape[2][event->ndim[2] - 1];
    const bool integer = strcmp(event->kernel, "block_integer") == 0;
    if (integer)
        part->integer += operations;
    else
        part->fma += operations;
    const bool packs_right = strcmp(event->phase, "wgrad") == 0 || trace->micro_step == 0;
    if (is_8bit(event))
        work->parts[OCT_PART_PACK].bytes +=
            (CODE + MANTISSA) * (left + (packs_right ? right : 0.0));
    (void)snprintf(work->last_fqn, sizeof work->last_fqn, "%s", event->fqn);
    work->last_phase = event->phase;
    work->last_was_integer = integer && is_8bit(event);
}

typedef enum source_kind { STORED, ROWS_OF_TOKENS, SWIGLU } source_kind;

/* What is quantized: operands of experts are made while they are, but for the gradient of gate and
 * up. */
static source_kind source_of(const oct_trace_event *event)
{
    const bool gradient = strcmp(event->role, "grad_output") == 0;
    const bool down = ends_with(event->fqn, ".down_proj");
    if (!event->grouped || (gradient && !down))
        return STORED;
    return gradient || !down ? ROWS_OF_TOKENS : SWIGLU;
}

/* Values that are read or written for each that is quantized. A row of a token serves top_k rows. A
 * scale of the whole reads twice, and keeps the product of gate and up for that. */
static double values_of(const oct_bench_work *work, const oct_trace_event *event)
{
    const double reads = event->has_scale ? 2.0 : 1.0;
    switch (source_of(event)) {
    case ROWS_OF_TOKENS:
        return reads / (double)work->build->hf.num_experts_per_tok;
    case SWIGLU:
        return event->has_scale ? 4.0 : 2.0;
    case STORED:
        break;
    }
    return reads;
}

/* Both orientations of MX come from one read; a scale of the whole needs a read of its own, and its
 * codes serve both. */
static void count_quantization(oct_bench_work *work, const oct_trace_event *event)
{
    if (strncmp(event->role, "weight", 6) == 0 || event->group > 0)
        return;
    const double count = elements(event, 0), activation = 2.0;
    const bool row = strcmp(event->orientation, "row") == 0;
    const double forms = event->has_scale ? (row ? 1.0 : 0.0) : 1.0 + 1.0 / 32.0;
    const double values = row ? values_of(work, event) : 0.0;
    work->parts[OCT_PART_QUANTIZE].bytes += count * (activation * values + forms);
    if (row && source_of(event) == SWIGLU)
        work->quantized_swiglu += count;
}

void oct_bench_work_sink(void *arg, const oct_trace *trace, const oct_trace_event *event)
{
    oct_bench_work *work = arg;
    if (event->kind == OCT_TRACE_MATMUL)
        count_product(work, trace, event);
    else if (event->kind == OCT_TRACE_QUANTIZE)
        count_quantization(work, event);
}

/* --- formulas -------------------------------------------------------------------------------- */

/* Elements that the elementwise steps of one layer read and write per token, forward and backward,
 * each operand once: norms, SwiGLU, RoPE, assembling k, residuals. */
static double elementwise_elements(const oct_hf_config *hf, bool has_experts)
{
    const double h = (double)hf->hidden_size, heads = (double)hf->num_attention_heads;
    const double nope = (double)hf->qk_nope_head_dim, rope = (double)hf->qk_rope_head_dim;
    const double latent = (double)hf->kv_lora_rank, q_latent = (double)hf->q_lora_rank;
    const double experts = (double)(hf->num_experts_per_tok + hf->n_shared_experts);
    const double width =
        has_experts ? experts * (double)hf->moe_intermediate_size : (double)hf->intermediate_size;
    const double k = heads * (2.0 * nope + rope); /* nope read and written, rope written */
    const double forward = 2.0 * 2.0 * h + 2.0 * 3.0 * h + 2.0 * heads * rope + k +
                           2.0 * (latent + q_latent) + 3.0 * width;
    const double backward =
        2.0 * 4.0 * h + 2.0 * heads * rope + k + 3.0 * (latent + q_latent) + 5.0 * width;
    return forward + backward;
}

/* Rows of hidden_size per token: combine, the gradient of its weights, that of the gather. What
 * experts read of tokens belongs to the quantization or packing that reads it. */
static double permutation_rows(const oct_hf_config *hf)
{
    const double k = (double)hf->num_experts_per_tok;
    return 3.0 * (k + 1.0);
}

/* Forward and backward: 2 and 5 products of the causal half. */
static double attention_operations(const oct_hf_config *hf, double tokens, double seq,
                                   bool recompute)
{
    const double qk = (double)(hf->qk_nope_head_dim + hf->qk_rope_head_dim);
    const double v = (double)hf->v_head_dim, heads = (double)hf->num_attention_heads;
    const double products = (recompute ? 2.0 : 1.0) * (qk + v) + 3.0 * qk + 2.0 * v;
    return tokens * (seq + 1.0) * heads * products;
}

/* One update: weight, gradient, moments read, all but the gradient written; the norm reads the
 * gradient, the refresh the weight, and writes the form that products read. */
static double optimizer_bytes(const oct_build *build)
{
    double bytes = 0.0;
    for (int64_t p = 0; p < build->tree.param_count; p++) {
        const oct_param *param = build->tree.params[p];
        const double own = (double)oct_param_own_numel(param);
        const double share = own / (double)oct_param_numel(param);
        const oct_low_precision_format *format = build->policy.format;
        const double form =
            param->storage ? share * (double)oct_weight_bytes(format, param->ndim, param->shape)
                           : 2.0 * own;
        bytes += 4.0 * own * (4.0 + 3.0 + 1.0 + 1.0) + form;
    }
    return bytes;
}

/* What comes from other ranks, read there and written here: the forms of both passes, the
 * gradients. */
static void count_communication(oct_bench_work *work, double micro_steps)
{
    const oct_build *build = work->build;
    const double ranks = (double)oct_build_ranks(build);
    if (ranks < 2.0)
        return;
    const double grad = build->reduce_dtype == OCT_DTYPE_BF16 ? 2.0 : 4.0;
    for (int64_t p = 0; p < build->tree.param_count; p++) {
        const oct_param *param = build->tree.params[p];
        const double numel = (double)oct_param_numel(param), foreign = (ranks - 1.0) / ranks;
        if (param->replicated)
            continue;
        const double form = param->storage ? (double)oct_weight_bytes(build->policy.format,
                                                                      param->ndim, param->shape)
                                           : 2.0 * 2.0 * numel;
        work->parts[OCT_PART_ALL_GATHER].bytes += 2.0 * micro_steps * foreign * form;
        work->parts[OCT_PART_REDUCE_SCATTER].bytes += 2.0 * micro_steps * foreign * grad * numel;
    }
}

void oct_bench_work_finish(oct_bench_work *work)
{
    const oct_build *build = work->build;
    const oct_hf_config *hf = &build->hf;
    const oct_config *config = build->config;
    const double micro_steps = (double)config->gradient_accumulation_steps;
    const double seq = (double)config->training.seq_length;
    const double tokens = micro_steps * seq * (double)config->training.micro_batch_size;
    const double activation = build->act_dtype == OCT_DTYPE_BF16 ? 2.0 : 4.0;
    const double layers = (double)hf->num_hidden_layers;
    const double dense =
        (double)hf->first_k_dense_replace < layers ? (double)hf->first_k_dense_replace : layers;
    work->parts[OCT_PART_ATTENTION].fma +=
        layers * attention_operations(hf, tokens, seq, config->activation_checkpoint.full);
    work->parts[OCT_PART_ELEMENTWISE].bytes += activation * tokens *
                                               (dense * elementwise_elements(hf, false) +
                                                (layers - dense) * elementwise_elements(hf, true));
    /* SwiGLU of experts is part of its quantization; recomputation shows it twice. */
    const double passes = config->activation_checkpoint.full ? 2.0 : 1.0;
    work->parts[OCT_PART_ELEMENTWISE].bytes -= activation * 3.0 * work->quantized_swiglu / passes;
    work->parts[OCT_PART_ROUTING].bytes +=
        activation * tokens * (layers - dense) * (double)hf->hidden_size * permutation_rows(hf);
    work->parts[OCT_PART_OPTIMIZER].bytes += optimizer_bytes(build);
    count_communication(work, micro_steps);
}

double oct_bench_work_seconds(const oct_bench_part_work *work, double fma, double integer,
                              double copy)
{
    return work->fma / fma + work->integer / integer + work->bytes / copy;
}
