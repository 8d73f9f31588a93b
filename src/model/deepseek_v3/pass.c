#include "model/deepseek_v3/pass.h"

#include <string.h>

#include "base/threads.h"
#include "numeric/bf16.h"
#include "numeric/fmath.h"

/* --- what a micro-batch needs before the first layer --- */

static oct_status check_ids(const oct_batch *batch, const int32_t *ids, const char *what,
                            int32_t lowest, int64_t vocab, oct_err *err)
{
    const int64_t tokens = batch->batch * batch->seq;
    for (int64_t t = 0; t < tokens; t++)
        if (ids[t] < lowest || ids[t] >= vocab)
            return OCT_FAIL(
                err, OCT_E_DATA,
                "cannot run micro-batch: %s %d at row %lld, position %lld, required less "
                "than vocab_size = %lld",
                what, ids[t], (long long)(t / batch->seq), (long long)(t % batch->seq),
                (long long)vocab);
    return OCT_OK;
}

static oct_status check_sequences(const oct_batch *batch, oct_err *err)
{
    const int64_t tokens = batch->batch * batch->seq;
    const int32_t *cu = batch->cu_seqlens;
    if (batch->sequences < 1 || cu[0] != 0 || cu[batch->sequences] != tokens)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot run micro-batch: cu_seqlens is %d .. %d, required 0 .. %lld", cu[0],
                        cu[batch->sequences], (long long)tokens);
    for (int64_t s = 0; s < batch->sequences; s++)
        if (cu[s] >= cu[s + 1])
            return OCT_FAIL(err, OCT_E_SHAPE,
                            "cannot run micro-batch: cu_seqlens[%lld] is %d, required more than %d",
                            (long long)s + 1, cu[s + 1], cu[s]);
    return OCT_OK;
}

static oct_status check_batch(const oct_dsv3 *model, const oct_batch *batch, oct_err *err)
{
    const int64_t vocab = model->hf.vocab_size;
    if (batch->batch < 1 || batch->seq < 1 || batch->batch > INT32_MAX / batch->seq)
        return OCT_FAIL(err, OCT_E_SHAPE,
                        "cannot run micro-batch: %lld x %lld tokens, required 1 to %d",
                        (long long)batch->batch, (long long)batch->seq, INT32_MAX);
    OCT_TRY(check_ids(batch, batch->ids, "token id", 0, vocab, err));
    if (batch->targets)
        OCT_TRY(check_ids(batch, batch->targets, "target", -1, vocab, err));
    return batch->cu_seqlens ? check_sequences(batch, err) : OCT_OK;
}

static oct_status plan_positions(dsv3_pass *pass, const oct_batch *batch, int64_t *longest,
                                 oct_err *err)
{
    oct_arena *scratch = pass->run->exec->scratch;
    void *memory = NULL;
    pass->sequences = batch->sequences;
    pass->cu_seqlens = batch->cu_seqlens;
    if (!batch->cu_seqlens) {
        OCT_TRY(oct_arena_array(scratch, batch->batch + 1, sizeof(int32_t), &memory, err));
        int32_t *cu = memory;
        for (int64_t s = 0; s <= batch->batch; s++)
            cu[s] = (int32_t)(s * batch->seq);
        pass->sequences = batch->batch;
        pass->cu_seqlens = cu;
    }
    OCT_TRY(oct_arena_array(scratch, pass->tokens, sizeof(int32_t), &memory, err));
    int32_t *positions = memory;
    *longest = 0;
    for (int64_t s = 0; s < pass->sequences; s++) {
        const int32_t first = pass->cu_seqlens[s], end = pass->cu_seqlens[s + 1];
        for (int32_t t = first; t < end; t++)
            positions[t] = t - first;
        if (end - first > *longest)
            *longest = end - first;
    }
    pass->positions_T = positions;
    return OCT_OK;
}

typedef struct rope_job {
    const oct_dsv3 *model;
    float *cos, *sin;
    bool round_bf16;
} rope_job;

/* Angles are FP32 products; cosine and sine are scaled in FP32 and rounded to the activation dtype.
 */
static void rope_row(void *arg, int64_t position, int thread)
{
    (void)thread;
    const rope_job *job = arg;
    const int64_t half = job->model->hf.qk_rope_head_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        const float angle = (float)position * job->model->inv_freq[i];
        const float c = oct_cosf(angle) * job->model->rope_factor;
        const float s = oct_sinf(angle) * job->model->rope_factor;
        job->cos[position * half + i] = job->round_bf16 ? oct_bf16_round(c) : c;
        job->sin[position * half + i] = job->round_bf16 ? oct_bf16_round(s) : s;
    }
}

/* Tables for `positions` rows; memory for `tokens` rows, whatever the split into sequences is. */
static oct_status plan_rope(dsv3_pass *pass, int64_t positions, oct_err *err)
{
    const oct_run *run = pass->run;
    const int64_t half = pass->model->hf.qk_rope_head_dim / 2;
    void *memory = NULL;
    OCT_TRY(
        oct_arena_array(run->exec->scratch, 2 * pass->tokens * half, sizeof(float), &memory, err));
    rope_job job = {.model = pass->model,
                    .cos = memory,
                    .sin = (float *)memory + pass->tokens * half,
                    .round_bf16 = run->act_dtype == OCT_DTYPE_BF16};
    oct_parallel_for(run->exec->threads, positions, rope_row, &job);
    pass->cos = job.cos;
    pass->sin = job.sin;
    return OCT_OK;
}

static oct_status begin(oct_dsv3 *model, const oct_run *run, const oct_batch *batch,
                        dsv3_pass *pass, oct_err *err)
{
    OCT_TRY(check_batch(model, batch, err));
    *pass = (dsv3_pass){
        .model = model,
        .run = run,
        .keep = run->training ? run->step : run->exec->scratch,
        .count = run->training && !run->recompute,
        .tokens = batch->batch * batch->seq,
    };
    int64_t longest = 0;
    OCT_TRY(plan_positions(pass, batch, &longest, err));
    return plan_rope(pass, longest, err);
}

/* --- forward --- */

static void observe_hidden(const dsv3_pass *pass, int64_t layer, const oct_tensor *h)
{
    const oct_dsv3_observer *observer = pass->model->observer;
    if (observer && observer->hidden)
        observer->hidden(observer->arg, layer, h);
}

static oct_status embed(const dsv3_pass *pass, const int32_t *ids, const oct_tensor *h,
                        oct_err *err)
{
    const oct_dsv3 *model = pass->model;
    OCT_TRY(oct_run_unit(pass->run, 0, OCT_UNIT_PRE_FORWARD, err));
    OCT_TRY(oct_embedding(pass->run->exec, dsv3_weight(model->embedding), ids, h, err));
    return model->hf.tie_word_embeddings ? OCT_OK
                                         : oct_run_unit(pass->run, 0, OCT_UNIT_POST_FORWARD, err);
}

/* One layer without keeping anything: evaluation, or the first pass under recompute. */
static oct_status layer_forward_only(const dsv3_pass *pass, const dsv3_layer *layer,
                                     const oct_tensor *x, const oct_tensor *y, oct_err *err)
{
    oct_arena *scratch = pass->run->exec->scratch;
    const oct_arena_mark mark = oct_arena_save(scratch);
    oct_run run = *pass->run;
    run.training = false;
    dsv3_pass lean = *pass;
    lean.run = &run;
    lean.keep = scratch;
    dsv3_layer_saved unused;
    OCT_TRY(dsv3_layer_forward(&lean, layer, x, y, &unused, err));
    oct_arena_rewind(scratch, mark);
    return OCT_OK;
}

/* The final norm of h [rows,H]. */
static oct_status final_norm(const dsv3_pass *pass, const oct_tensor *h, const oct_tensor *normed,
                             float *rstd, oct_err *err)
{
    const oct_dsv3 *model = pass->model;
    return oct_rmsnorm(pass->run->exec, h, dsv3_weight(model->norm), (float)model->hf.rms_norm_eps,
                       normed, rstd, err);
}

/* The head's unit is done forward; with a tied head so is the embedding's. */
static oct_status close_head(const dsv3_pass *pass, oct_err *err)
{
    const oct_hf_config *hf = &pass->model->hf;
    OCT_TRY(oct_run_unit(pass->run, hf->num_hidden_layers + 1, OCT_UNIT_POST_FORWARD, err));
    return hf->tie_word_embeddings ? oct_run_unit(pass->run, 0, OCT_UNIT_POST_FORWARD, err)
                                   : OCT_OK;
}

/* All layers with two buffers in scratch; *last is one of them. */
static oct_status forward_only(const dsv3_pass *pass, const oct_batch *batch, oct_tensor *last,
                               oct_err *err)
{
    const oct_hf_config *hf = &pass->model->hf;
    oct_tensor h[2];
    for (int i = 0; i < 2; i++)
        OCT_TRY(dsv3_scratch(pass, pass->tokens, hf->hidden_size, &h[i], err));
    OCT_TRY(embed(pass, batch->ids, &h[0], err));
    for (int64_t l = 0; l < hf->num_hidden_layers; l++) {
        OCT_TRY(oct_run_unit(pass->run, l + 1, OCT_UNIT_PRE_FORWARD, err));
        OCT_TRY(layer_forward_only(pass, &pass->model->layers[l], &h[l % 2], &h[(l + 1) % 2], err));
        OCT_TRY(oct_run_unit(pass->run, l + 1, OCT_UNIT_POST_FORWARD, err));
        observe_hidden(pass, l, &h[(l + 1) % 2]);
    }
    *last = h[hf->num_hidden_layers % 2];
    return oct_run_unit(pass->run, hf->num_hidden_layers + 1, OCT_UNIT_PRE_FORWARD, err);
}

/* --- training: what one pass keeps --- */

typedef struct tape {
    bool recompute;           /* only the layer inputs are kept */
    oct_tensor *h;            /* [layers + 1] inputs of the layers, then of the final norm */
    dsv3_layer_saved *layers; /* [layers], or one that every replay uses */
    oct_tensor normed;        /* output of the final norm */
    float *rstd;
} tape;

static oct_status plan_tape(const dsv3_pass *pass, bool recompute, tape *kept, oct_err *err)
{
    const oct_hf_config *hf = &pass->model->hf;
    const int64_t layers = hf->num_hidden_layers;
    void *memory = NULL;
    kept->recompute = recompute;
    OCT_TRY(oct_arena_array(pass->keep, layers + 1, sizeof *kept->h, &memory, err));
    kept->h = memory;
    OCT_TRY(
        oct_arena_array(pass->keep, recompute ? 1 : layers, sizeof *kept->layers, &memory, err));
    kept->layers = memory;
    for (int64_t l = 0; l <= layers; l++)
        OCT_TRY(dsv3_keep(pass, pass->tokens, hf->hidden_size, &kept->h[l], err));
    OCT_TRY(dsv3_keep(pass, pass->tokens, hf->hidden_size, &kept->normed, err));
    return dsv3_keep_floats(pass, pass->tokens, &kept->rstd, err);
}

static oct_status train_forward(const dsv3_pass *pass, const oct_batch *batch, tape *kept,
                                oct_err *err)
{
    const int64_t layers = pass->model->hf.num_hidden_layers;
    OCT_TRY(embed(pass, batch->ids, &kept->h[0], err));
    for (int64_t l = 0; l < layers; l++) {
        const dsv3_layer *layer = &pass->model->layers[l];
        OCT_TRY(oct_run_unit(pass->run, l + 1, OCT_UNIT_PRE_FORWARD, err));
        if (kept->recompute)
            OCT_TRY(layer_forward_only(pass, layer, &kept->h[l], &kept->h[l + 1], err));
        else
            OCT_TRY(dsv3_layer_forward(pass, layer, &kept->h[l], &kept->h[l + 1], &kept->layers[l],
                                       err));
        OCT_TRY(oct_run_unit(pass->run, l + 1, OCT_UNIT_POST_FORWARD, err));
        observe_hidden(pass, l, &kept->h[l + 1]);
    }
    OCT_TRY(oct_run_unit(pass->run, layers + 1, OCT_UNIT_PRE_FORWARD, err));
    OCT_TRY(final_norm(pass, &kept->h[layers], &kept->normed, kept->rstd, err));
    return close_head(pass, err);
}

/* Loss, and d = gradient of the last layer's output. */
static oct_status head_backward(const dsv3_pass *pass, const oct_batch *batch, const tape *kept,
                                float scale, float *tied_dW, const oct_tensor *d, double *loss_sum,
                                oct_err *err)
{
    const oct_dsv3 *model = pass->model;
    const int64_t layers = model->hf.num_hidden_layers;
    if (model->hf.tie_word_embeddings)
        OCT_TRY(oct_run_unit(pass->run, 0, OCT_UNIT_PRE_BACKWARD, err));
    OCT_TRY(oct_run_unit(pass->run, layers + 1, OCT_UNIT_PRE_BACKWARD, err));
    OCT_TRY(dsv3_head(pass, &kept->normed, batch->targets, scale, d, tied_dW, loss_sum, err));
    OCT_TRY(
        dsv3_norm_backward(pass->run, d, &kept->h[layers], model->norm, kept->rstd, NULL, d, err));
    return oct_run_unit(pass->run, layers + 1, OCT_UNIT_POST_BACKWARD, err);
}

/* Runs the layer again from its input, then backward. */
static oct_status replay_backward(const dsv3_pass *pass, const dsv3_layer *layer, tape *kept,
                                  const oct_tensor *d, oct_err *err)
{
    oct_arena *scratch = pass->run->exec->scratch;
    const oct_arena_mark step_mark = oct_arena_save(pass->keep);
    const oct_arena_mark scratch_mark = oct_arena_save(scratch);
    oct_run run = *pass->run;
    run.recompute = true;
    dsv3_pass replay = *pass;
    replay.run = &run;
    replay.count = false;
    oct_tensor y;
    OCT_TRY(dsv3_scratch(&replay, pass->tokens, pass->model->hf.hidden_size, &y, err));
    OCT_TRY(dsv3_layer_forward(&replay, layer, &kept->h[layer->index], &y, kept->layers, err));
    oct_arena_rewind(scratch, scratch_mark);
    OCT_TRY(dsv3_layer_backward(&replay, layer, kept->layers, d, err));
    oct_arena_rewind(pass->keep, step_mark);
    return OCT_OK;
}

static oct_status layers_backward(const dsv3_pass *pass, tape *kept, const oct_tensor *d,
                                  oct_err *err)
{
    for (int64_t l = pass->model->hf.num_hidden_layers - 1; l >= 0; l--) {
        const dsv3_layer *layer = &pass->model->layers[l];
        OCT_TRY(oct_run_unit(pass->run, l + 1, OCT_UNIT_PRE_BACKWARD, err));
        if (kept->recompute)
            OCT_TRY(replay_backward(pass, layer, kept, d, err));
        else
            OCT_TRY(dsv3_layer_backward(pass, layer, &kept->layers[l], d, err));
        OCT_TRY(oct_run_unit(pass->run, l + 1, OCT_UNIT_POST_BACKWARD, err));
    }
    return OCT_OK;
}

/* The padding row of the embedding gets no gradient (torch.nn.Embedding padding_idx). */
static void drop_padding(const dsv3_pass *pass, const int32_t *ids, const oct_tensor *d)
{
    const int64_t pad = pass->model->hf.pad_token_id;
    const size_t bytes = (size_t)oct_tensor_cols(d) * oct_dtype_bytes(d->dtype);
    for (int64_t t = 0; t < pass->tokens && pad >= 0; t++)
        if (ids[t] == pad)
            memset((char *)d->data + (size_t)t * bytes, 0, bytes);
}

static oct_status embedding_backward(const dsv3_pass *pass, const oct_batch *batch,
                                     const oct_tensor *d, float *tied_dW, oct_err *err)
{
    const oct_run *run = pass->run;
    const oct_param *table = pass->model->embedding;
    const int64_t vocab = pass->model->hf.vocab_size;
    drop_padding(pass, batch->ids, d);
    if (tied_dW) {
        /* The head's and the embedding's parts are one gradient: summed, then rounded once. */
        const oct_gemm_out sum = {.data = tied_dW,
                                  .ld = oct_param_cols(table),
                                  .dtype = OCT_DTYPE_F32,
                                  .store = OCT_GEMM_FOLD};
        OCT_TRY(oct_embedding_backward(run->exec, d, batch->ids, vocab, &sum, err));
        OCT_TRY(dsv3_store_gradient(run, table, tied_dW, err));
    } else {
        oct_gemm_out out;
        OCT_TRY(oct_run_unit(run, 0, OCT_UNIT_PRE_BACKWARD, err));
        OCT_TRY(oct_param_grad_open(table, run, &out, err));
        OCT_TRY(oct_embedding_backward(run->exec, d, batch->ids, vocab, &out, err));
        OCT_TRY(oct_param_grad_close(table, run, err));
    }
    return oct_run_unit(run, 0, OCT_UNIT_POST_BACKWARD, err);
}

static oct_status train(const dsv3_pass *pass, const oct_batch *batch, float scale, bool recompute,
                        double *loss_sum, oct_err *err)
{
    const oct_dsv3 *model = pass->model;
    const oct_run *run = pass->run;
    oct_span span = oct_profile_begin(run->profile, OCT_PART_FORWARD);
    tape kept;
    oct_tensor d;
    float *tied_dW = NULL;
    OCT_TRY(plan_tape(pass, recompute, &kept, err));
    if (model->hf.tie_word_embeddings)
        OCT_TRY(dsv3_keep_floats(pass, oct_param_numel(model->embedding), &tied_dW, err));
    OCT_TRY(dsv3_scratch(pass, pass->tokens, model->hf.hidden_size, &d, err));
    OCT_TRY(train_forward(pass, batch, &kept, err));
    oct_profile_end(run->profile, span);

    span = oct_profile_begin(
        run->profile, OCT_PART_BACKWARD); /* the head runs forward and backward chunk by chunk */
    OCT_TRY(head_backward(pass, batch, &kept, scale, tied_dW, &d, loss_sum, err));
    OCT_TRY(layers_backward(pass, &kept, &d, err));
    OCT_TRY(embedding_backward(pass, batch, &d, tied_dW, err));
    oct_profile_end(run->profile, span);
    return OCT_OK;
}

/* --- entry points: scratch is always given back, whatever happened --- */

oct_status oct_dsv3_forward_backward(oct_dsv3 *model, const oct_run *run, const oct_batch *batch,
                                     float loss_scale, bool recompute_full, double *loss_sum,
                                     oct_err *err)
{
    if (!run->training || !batch->targets)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot run a training pass: %s, required training and targets",
                        run->training ? "no targets" : "run->training is false");
    const oct_arena_mark mark = oct_arena_save(run->exec->scratch);
    dsv3_pass pass;
    oct_status status = begin(model, run, batch, &pass, err);
    if (status == OCT_OK)
        status = train(&pass, batch, loss_scale, recompute_full, loss_sum, err);
    oct_arena_rewind(run->exec->scratch, mark);
    return status;
}

static oct_run evaluation_of(const oct_run *run)
{
    oct_run plain = *run;
    plain.training = false;
    plain.recompute = false;
    return plain;
}

static oct_status evaluate(const dsv3_pass *pass, const oct_batch *batch, double *loss_sum,
                           oct_err *err)
{
    const oct_span span = oct_profile_begin(pass->run->profile, OCT_PART_FORWARD);
    oct_tensor last, normed;
    float *rstd = NULL;
    OCT_TRY(forward_only(pass, batch, &last, err));
    OCT_TRY(dsv3_scratch(pass, pass->tokens, oct_tensor_cols(&last), &normed, err));
    OCT_TRY(dsv3_keep_floats(pass, pass->tokens, &rstd, err));
    OCT_TRY(final_norm(pass, &last, &normed, rstd, err));
    OCT_TRY(dsv3_head(pass, &normed, batch->targets, 0.0f, NULL, NULL, loss_sum, err));
    OCT_TRY(close_head(pass, err));
    oct_profile_end(pass->run->profile, span);
    return OCT_OK;
}

oct_status oct_dsv3_loss(oct_dsv3 *model, const oct_run *run, const oct_batch *batch,
                         double *loss_sum, oct_err *err)
{
    if (!batch->targets)
        return OCT_FAIL(err, OCT_E_API,
                        "cannot compute a loss: no targets, required one per token");
    const oct_run plain = evaluation_of(run);
    const oct_arena_mark mark = oct_arena_save(run->exec->scratch);
    dsv3_pass pass;
    oct_status status = begin(model, &plain, batch, &pass, err);
    if (status == OCT_OK)
        status = evaluate(&pass, batch, loss_sum, err);
    oct_arena_rewind(run->exec->scratch, mark);
    return status;
}

static oct_status last_logits(const dsv3_pass *pass, const oct_batch *batch, float *logits_V,
                              oct_err *err)
{
    const oct_hf_config *hf = &pass->model->hf;
    oct_tensor last, normed, logits;
    float rstd = 0.0f;
    OCT_TRY(forward_only(pass, batch, &last, err));
    const size_t row_bytes = (size_t)hf->hidden_size * oct_dtype_bytes(last.dtype);
    const oct_tensor row = oct_tensor_2d((char *)last.data + (size_t)(pass->tokens - 1) * row_bytes,
                                         last.dtype, 1, hf->hidden_size);
    OCT_TRY(dsv3_scratch(pass, 1, hf->hidden_size, &normed, err));
    OCT_TRY(dsv3_scratch(pass, 1, hf->vocab_size, &logits, err));
    OCT_TRY(final_norm(pass, &row, &normed, &rstd, err));
    OCT_TRY(oct_linear_forward(*pass->model->head, pass->run, &normed, &logits, NULL, err));
    OCT_TRY(close_head(pass, err));
    if (logits.dtype == OCT_DTYPE_F32) {
        memcpy(logits_V, logits.data, oct_tensor_bytes(&logits));
        return OCT_OK;
    }
    const oct_tensor out = oct_tensor_2d(logits_V, OCT_DTYPE_F32, 1, hf->vocab_size);
    return oct_convert(pass->run->exec, &logits, &out, err);
}

oct_status oct_dsv3_next_logits(oct_dsv3 *model, const oct_run *run, const int32_t *ids, int64_t n,
                                float *logits_V, oct_err *err)
{
    const oct_run plain = evaluation_of(run);
    const oct_batch batch = {.ids = ids, .batch = 1, .seq = n};
    const oct_arena_mark mark = oct_arena_save(run->exec->scratch);
    dsv3_pass pass;
    oct_status status = begin(model, &plain, &batch, &pass, err);
    if (status == OCT_OK)
        status = last_logits(&pass, &batch, logits_V, err);
    oct_arena_rewind(run->exec->scratch, mark);
    return status;
}
