/* Head and loss. V = vocabulary. The high-precision head works on chunks of tokens, so that logits
 * of all tokens never exist; the chunks continue one FMA chain per element of dW, which is the
 * chain of a single product over all tokens. */
#include "base/size.h"
#include "base/threads.h"
#include "model/deepseek_v3/pass.h"
#include "numeric/bf16.h"

enum { STORE_ITEM = 1 << 15 };

static oct_tensor rows_of(const oct_tensor *tensor, int64_t first, int64_t count)
{
    const int64_t cols = oct_tensor_cols(tensor);
    const int64_t offset = first * cols * (int64_t)oct_dtype_bytes(tensor->dtype);
    return oct_tensor_2d((char *)tensor->data + offset, tensor->dtype, count, cols);
}

typedef struct store_job {
    const oct_elementwise_kernels *kernels;
    const oct_gemm_out *out;
    const float *g;
    int64_t numel;
} store_job;

static void store_item(void *arg, int64_t item, int thread)
{
    (void)thread;
    const store_job *job = arg;
    const int64_t first = item * STORE_ITEM;
    unsigned char *to = job->out->data;
    job->kernels->store_row(job->out, oct_min_i64(STORE_ITEM, job->numel - first), job->g + first,
                            to + (size_t)first * oct_dtype_bytes(job->out->dtype));
}

/* g may lie at its place in `out` already. */
static void store_gradient(const oct_run *run, const oct_param *param, const oct_gemm_out *out,
                           const float *g)
{
    if (g == out->data && !out->round_bf16)
        return;
    store_job job = {
        .kernels = &run->exec->kernels->elementwise,
        .out = out,
        .g = g,
        .numel = oct_param_numel(param),
    };
    oct_parallel_for(run->exec->threads, oct_ceil_div(job.numel, STORE_ITEM), store_item, &job);
}

oct_status dsv3_store_gradient(const oct_run *run, const oct_param *param, const float *g,
                               oct_err *err)
{
    oct_gemm_out out;
    OCT_TRY(oct_param_grad_open(param, run, &out, err));
    store_gradient(run, param, &out, g);
    return oct_param_grad_close(param, run, err);
}

static void observe(const dsv3_pass *pass, int64_t first, const oct_tensor *logits)
{
    const oct_dsv3_observer *observer = pass->model->observer;
    if (observer && observer->logits)
        observer->logits(observer->arg, first, logits);
}

/* Gradients of one chunk: dh = dlogits W, dW (+)= dlogits^T h. */
static oct_status chunk_backward(const dsv3_pass *pass, const oct_tensor *dlogits,
                                 const oct_tensor *h, const oct_param *weight, const oct_tensor *d,
                                 float *dW, bool first, oct_err *err)
{
    const oct_exec *exec = pass->run->exec;
    const char *fqn = (*pass->model->head)->fqn;
    const oct_matrix g = oct_matrix_of(dlogits), x = oct_matrix_of(h);
    const oct_matrix w = oct_matrix_of(dsv3_weight(weight));
    const oct_gemm_out to_x = {
        .data = d->data, .ld = w.cols, .dtype = d->dtype, .store = OCT_GEMM_STORE};
    const oct_gemm_out to_w = {.data = dW,
                               .ld = w.cols,
                               .dtype = OCT_DTYPE_F32,
                               .store = first ? OCT_GEMM_STORE : OCT_GEMM_CONTINUE};
    oct_span span = oct_profile_begin(pass->run->profile, OCT_PART_DGRAD);
    OCT_TRY(oct_gemm(exec, &g, &w, OCT_LAYOUT_NN, &to_x, err));
    oct_profile_end(pass->run->profile, span);
    oct_run_trace_gemm(pass->run, fqn, "dgrad", &g, &w, OCT_LAYOUT_NN, NULL, &to_x);
    span = oct_profile_begin(pass->run->profile, OCT_PART_WGRAD);
    OCT_TRY(oct_gemm(exec, &g, &x, OCT_LAYOUT_TN, &to_w, err));
    oct_profile_end(pass->run->profile, span);
    oct_run_trace_gemm(pass->run, fqn, "wgrad", &g, &x, OCT_LAYOUT_TN, NULL, &to_w);
    return OCT_OK;
}

static oct_status chunked_head(const dsv3_pass *pass, const oct_tensor *h, const int32_t *targets_T,
                               float scale, const oct_tensor *d, float *dW, float *loss_T,
                               oct_err *err)
{
    const oct_run *run = pass->run;
    const int64_t tokens = oct_tensor_rows(h), chunk = oct_min_i64(tokens, OCT_DSV3_HEAD_CHUNK);
    const oct_param *weight = (*pass->model->head)->params[0];
    oct_run plain = *run; /* this function is the backward pass: nothing to keep */
    plain.training = false;
    oct_tensor buffer;
    OCT_TRY(dsv3_scratch(pass, chunk, pass->model->hf.vocab_size, &buffer, err));
    for (int64_t t = 0; t < tokens; t += chunk) {
        const int64_t n = oct_min_i64(chunk, tokens - t);
        const oct_tensor part = rows_of(h, t, n), logits = rows_of(&buffer, 0, n);
        OCT_TRY(oct_linear_forward(*pass->model->head, &plain, &part, &logits, NULL, err));
        observe(pass, t, &logits);
        OCT_TRY(oct_cross_entropy(run->exec, &logits, targets_T + t, d ? scale : 0.0f, loss_T + t,
                                  err));
        if (!d)
            continue;
        const oct_tensor dpart = rows_of(d, t, n);
        OCT_TRY(chunk_backward(pass, &logits, &part, weight, &dpart, dW, t == 0, err));
    }
    return OCT_OK;
}

static oct_status high_precision_head(const dsv3_pass *pass, const oct_tensor *h,
                                      const int32_t *targets_T, float scale, const oct_tensor *d,
                                      float *tied_dW, float *loss_T, oct_err *err)
{
    const oct_param *weight = (*pass->model->head)->params[0];
    if (!d || tied_dW)
        return chunked_head(pass, h, targets_T, scale, d, tied_dW, loss_T, err);
    oct_gemm_out out;
    OCT_TRY(oct_param_grad_open(weight, pass->run, &out, err));
    void *dW = out.data;
    if (out.store == OCT_GEMM_FOLD || out.dtype != OCT_DTYPE_F32)
        OCT_TRY(oct_arena_array(pass->run->exec->scratch, oct_param_numel(weight), sizeof(float),
                                &dW, err));
    OCT_TRY(chunked_head(pass, h, targets_T, scale, d, dW, loss_T, err));
    store_gradient(pass->run, weight, &out, dW);
    return oct_param_grad_close(weight, pass->run, err);
}

/* A replaced head sees all tokens at once: its quantization is that of whole tensors. Its logits
 * are BF16 in every model, so that they never take FP32 of all tokens; the loss reads them in FP32.
 */
static oct_status replaced_head(const dsv3_pass *pass, const oct_tensor *h,
                                const int32_t *targets_T, float scale, const oct_tensor *d,
                                float *loss_T, oct_err *err)
{
    oct_module *head = *pass->model->head;
    if (pass->model->hf.tie_word_embeddings)
        return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                        "cannot run '%s': tied to '%s', required torch.nn.Linear", head->fqn,
                        pass->model->embedding->fqn);
    oct_run run = *pass->run;
    run.training = d != NULL;
    oct_linear_saved *saved = NULL;
    oct_tensor logits;
    OCT_TRY(oct_tensor_new_2d(run.exec->scratch, OCT_DTYPE_BF16, oct_tensor_rows(h),
                              pass->model->hf.vocab_size, &logits, err));
    OCT_TRY(oct_linear_forward(head, &run, h, &logits, &saved, err));
    observe(pass, 0, &logits);
    OCT_TRY(oct_cross_entropy(run.exec, &logits, targets_T, d ? scale : 0.0f, loss_T, err));
    return d ? oct_linear_backward(head, &run, saved, &logits, d, err) : OCT_OK;
}

oct_status dsv3_head(const dsv3_pass *pass, const oct_tensor *h, const int32_t *targets_T,
                     float scale, const oct_tensor *d, float *tied_dW, double *loss_sum,
                     oct_err *err)
{
    oct_arena *scratch = pass->run->exec->scratch;
    const oct_arena_mark mark = oct_arena_save(scratch);
    const oct_span span = oct_profile_begin(pass->run->profile, OCT_PART_HEAD);
    const int64_t tokens = oct_tensor_rows(h);
    void *memory = NULL;
    OCT_TRY(oct_arena_array(scratch, tokens, sizeof(float), &memory, err));
    float *loss_T = memory;
    if ((*pass->model->head)->type == &oct_linear_type)
        OCT_TRY(high_precision_head(pass, h, targets_T, scale, d, tied_dW, loss_T, err));
    else
        OCT_TRY(replaced_head(pass, h, targets_T, scale, d, loss_T, err));
    double sum = 0.0;
    for (int64_t t = 0; t < tokens; t++)
        sum += (double)loss_T[t];
    *loss_sum = sum;
    oct_arena_rewind(scratch, mark);
    oct_profile_end(pass->run->profile, span);
    return OCT_OK;
}
