#include <string.h>

#include "model/deepseek_v3/layout.h"

int64_t *oct_dsv3_counts(oct_dsv3 *model, int64_t *count)
{
    const int64_t n = model->moe_layers * model->hf.n_routed_experts;
    if (count)
        *count = n;
    return n ? model->counts : NULL;
}

void oct_dsv3_counts_reset(oct_dsv3 *model)
{
    const int64_t n = model->moe_layers * model->hf.n_routed_experts;
    memset(model->counts, 0, (size_t)n * sizeof *model->counts);
}

/* mean - count has the sign of total - count * experts: no rounding decides. */
static void update_layer(const dsv3_moe *moe, int64_t experts, float rate)
{
    int64_t total = 0;
    for (int64_t e = 0; e < experts; e++)
        total += moe->counts[e];
    for (int64_t e = 0; e < experts; e++) {
        const int64_t under = total - moe->counts[e] * experts;
        if (under > 0)
            moe->bias->data[e] += rate;
        else if (under < 0)
            moe->bias->data[e] -= rate;
    }
}

void oct_dsv3_update_bias(oct_dsv3 *model, double rate)
{
    for (int64_t l = 0; l < model->hf.num_hidden_layers; l++)
        if (model->layers[l].has_experts)
            update_layer(&model->layers[l].moe, model->hf.n_routed_experts, (float)rate);
}
