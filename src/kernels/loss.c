/* Cross entropy, row by row and in place: no second [tokens, vocab] tensor exists. */
#include <string.h>

#include "kernels/elementwise_drive.h"
#include "kernels/exec.h"

typedef struct loss_job {
    const oct_elementwise_kernels *kernels;
    const oct_tensor *logits;
    const int32_t *targets_T;
    float scale;
    float *loss_T;
} loss_job;

static void loss_rows(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const loss_job *job = arg;
    const oct_dtype dtype = job->logits->dtype;
    const int64_t vocab = oct_tensor_cols(job->logits);
    for (int64_t t = first; t < last; t++) {
        void *row = oct_at_mut(dtype, job->logits->data, t * vocab);
        if (job->targets_T[t] >= 0) {
            job->loss_T[t] =
                job->kernels->cross_entropy(dtype, vocab, row, job->targets_T[t], job->scale);
            continue;
        }
        job->loss_T[t] = 0.0f;
        if (job->scale > 0.0f)
            memset(row, 0, (size_t)vocab * oct_dtype_bytes(dtype));
    }
}

oct_status oct_cross_entropy(const oct_exec *exec, const oct_tensor *logits,
                             const int32_t *targets_T, float scale, float *loss_T, oct_err *err)
{
    const int64_t rows = oct_tensor_rows(logits), vocab = oct_tensor_cols(logits);
    OCT_TRY(oct_check_matrix("cannot compute the loss", "logits", logits, logits->dtype, rows,
                             vocab, err));
    for (int64_t t = 0; t < rows; t++)
        if (targets_T[t] < -1 || targets_T[t] >= vocab)
            return OCT_FAIL(err, OCT_E_DATA,
                            "cannot compute the loss: target %d of token %lld, -1 or an id below "
                            "%lld is required",
                            (int)targets_T[t], (long long)t, (long long)vocab);
    loss_job job = {.kernels = &exec->kernels->elementwise,
                    .logits = logits,
                    .targets_T = targets_T,
                    .scale = scale,
                    .loss_T = loss_T};
    oct_for_ranges(exec, rows, vocab, loss_rows, &job);
    return OCT_OK;
}
