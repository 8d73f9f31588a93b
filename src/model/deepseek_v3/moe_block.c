/* Mixture of experts: router in FP32, rows sorted by expert, the weighted sum over the top_k slots
 * in FP32, one rounding, plus the shared experts. */
#include "model/deepseek_v3/pass.h"

static oct_router_config router_of(const oct_hf_config *hf)
{
    return (oct_router_config){
        .experts = hf->n_routed_experts,
        .top_k = hf->num_experts_per_tok,
        .groups = hf->n_group,
        .top_groups = hf->topk_group,
        .normalise = hf->norm_topk_prob,
        .scaling_factor = (float)hf->routed_scaling_factor,
    };
}

static oct_status allocate_saved(const dsv3_pass *pass, dsv3_moe_saved *s, oct_err *err)
{
    const oct_hf_config *hf = &pass->model->hf;
    const int64_t tokens = pass->tokens, rows = tokens * hf->num_experts_per_tok;
    void *memory = NULL;
    OCT_TRY(dsv3_keep_floats(pass, tokens * hf->n_routed_experts, &s->scores_TE, err));
    OCT_TRY(dsv3_keep_floats(pass, rows, &s->weights_TK, err));
    OCT_TRY(oct_arena_array(pass->keep, 3 * rows, sizeof(int32_t), &memory, err));
    s->experts_TK = memory;
    s->source_S = s->experts_TK + rows;
    s->row_TK = s->source_S + rows;
    OCT_TRY(oct_arena_array(pass->keep, hf->n_routed_experts, sizeof(int64_t), &memory, err));
    s->ends_E = memory;
    return dsv3_keep(pass, rows, hf->hidden_size, &s->y_SH, err);
}

/* x in FP32, for the router. */
static oct_status widen(const dsv3_pass *pass, const oct_tensor *x, oct_tensor *out, oct_err *err)
{
    if (x->dtype == OCT_DTYPE_F32) {
        *out = *x;
        return OCT_OK;
    }
    OCT_TRY(oct_tensor_new_2d(pass->run->exec->scratch, OCT_DTYPE_F32, oct_tensor_rows(x),
                              oct_tensor_cols(x), out, err));
    return oct_convert(pass->run->exec, x, out, err);
}

static oct_status route(const dsv3_pass *pass, const dsv3_moe *block, const oct_tensor *x,
                        dsv3_moe_saved *s, oct_err *err)
{
    const oct_run *run = pass->run;
    const oct_hf_config *hf = &pass->model->hf;
    const oct_router_config config = router_of(hf);
    const oct_arena_mark mark = oct_arena_save(run->exec->scratch);
    oct_tensor wide, logits;
    OCT_TRY(widen(pass, x, &wide, err));
    OCT_TRY(oct_tensor_new_2d(run->exec->scratch, OCT_DTYPE_F32, pass->tokens, config.experts,
                              &logits, err));
    const oct_matrix a = oct_matrix_of(&wide), b = oct_matrix_of(dsv3_weight(block->router));
    const oct_gemm_out out = {
        .data = logits.data, .ld = config.experts, .dtype = OCT_DTYPE_F32, .store = OCT_GEMM_STORE};
    const oct_span span = oct_profile_begin(run->profile, OCT_PART_FPROP);
    OCT_TRY(oct_gemm(run->exec, &a, &b, OCT_LAYOUT_NT, &out, err));
    oct_profile_end(run->profile, span);
    oct_run_trace_gemm(run, block->gate->fqn, "fprop", &a, &b, OCT_LAYOUT_NT, NULL, &out);
    OCT_TRY(oct_router(run->exec, &config, &logits, block->bias->data, s->scores_TE, s->experts_TK,
                       s->weights_TK, err));
    oct_arena_rewind(run->exec->scratch, mark);
    oct_route_sort(s->experts_TK, pass->tokens, config.top_k, config.experts, s->ends_E,
                   s->source_S, s->row_TK);
    if (pass->count)
        for (int64_t e = 0; e < config.experts; e++)
            block->counts[e] += s->ends_E[e] - (e ? s->ends_E[e - 1] : 0);
    return OCT_OK;
}

static void observe(const dsv3_pass *pass, const dsv3_layer *layer, const dsv3_moe_saved *s)
{
    const oct_dsv3_observer *observer = pass->model->observer;
    if (observer && observer->routing && !pass->run->recompute)
        observer->routing(observer->arg, layer->index, pass->tokens, s->experts_TK, s->weights_TK);
}

oct_status dsv3_moe_forward(const dsv3_pass *pass, const dsv3_layer *layer, const oct_tensor *x,
                            const oct_tensor *y, dsv3_moe_saved *saved, oct_err *err)
{
    const oct_run *run = pass->run;
    const oct_hf_config *hf = &pass->model->hf;
    const int64_t top_k = hf->num_experts_per_tok;
    saved->x_TH = *x;
    OCT_TRY(allocate_saved(pass, saved, err));
    oct_span span = oct_profile_begin(run->profile, OCT_PART_ROUTING);
    OCT_TRY(route(pass, &layer->moe, x, saved, err));
    observe(pass, layer, saved);
    const oct_groups groups = {.count = hf->n_routed_experts, .ends = saved->ends_E};
    saved->routed = (oct_routed){.kernels = &run->exec->kernels->elementwise,
                                 .x = *x,
                                 .source_S = saved->source_S,
                                 .top_k = top_k};
    saved->x_SH = oct_route_rows(&saved->routed);
    oct_profile_end(run->profile, span);
    OCT_TRY(oct_experts_forward(*layer->moe.experts, run, &saved->x_SH, &groups, &saved->y_SH,
                                &saved->from_experts, err));
    const oct_arena_mark mark = oct_arena_save(run->exec->scratch);
    oct_tensor shared;
    OCT_TRY(dsv3_scratch(pass, pass->tokens, hf->hidden_size, &shared, err));
    OCT_TRY(dsv3_mlp_forward(pass, &layer->mlp, x, &shared, &saved->shared, err));
    span = oct_profile_begin(run->profile, OCT_PART_ROUTING);
    OCT_TRY(oct_route_combine(run->exec, &saved->y_SH, saved->row_TK, saved->weights_TK, top_k,
                              &shared, y, err));
    oct_profile_end(run->profile, span);
    oct_arena_rewind(run->exec->scratch, mark);
    return OCT_OK;
}

/* The router's part of the gradient of x, and the gradient of its weight. */
static oct_status route_backward(const dsv3_pass *pass, const dsv3_moe *block,
                                 const dsv3_moe_saved *s, const float *dweights_TK,
                                 const oct_tensor *dx, oct_err *err)
{
    const oct_run *run = pass->run;
    const oct_router_config config = router_of(&pass->model->hf);
    oct_tensor wide, dlogits;
    OCT_TRY(oct_tensor_new_2d(run->exec->scratch, OCT_DTYPE_F32, pass->tokens, config.experts,
                              &dlogits, err));
    OCT_TRY(oct_router_backward(run->exec, &config, s->scores_TE, s->experts_TK, s->weights_TK,
                                dweights_TK, &dlogits, err));
    OCT_TRY(widen(pass, &s->x_TH, &wide, err));
    const oct_matrix g = oct_matrix_of(&dlogits), x = oct_matrix_of(&wide);
    const oct_matrix w = oct_matrix_of(dsv3_weight(block->router));
    oct_gemm_out to_w;
    OCT_TRY(oct_param_grad_open(block->router, run, &to_w, err));
    const oct_gemm_out to_x = {
        .data = dx->data, .ld = oct_tensor_cols(dx), .dtype = dx->dtype, .store = OCT_GEMM_STORE};
    oct_span span = oct_profile_begin(run->profile, OCT_PART_WGRAD);
    OCT_TRY(oct_gemm(run->exec, &g, &x, OCT_LAYOUT_TN, &to_w, err));
    oct_profile_end(run->profile, span);
    oct_run_trace_gemm(run, block->gate->fqn, "wgrad", &g, &x, OCT_LAYOUT_TN, NULL, &to_w);
    OCT_TRY(oct_param_grad_close(block->router, run, err));
    span = oct_profile_begin(run->profile, OCT_PART_DGRAD);
    OCT_TRY(oct_gemm(run->exec, &g, &w, OCT_LAYOUT_NN, &to_x, err));
    oct_profile_end(run->profile, span);
    oct_run_trace_gemm(run, block->gate->fqn, "dgrad", &g, &w, OCT_LAYOUT_NN, NULL, &to_x);
    return OCT_OK;
}

/* The parts of dx are added in the order in which autograd meets them: shared experts, routed
 * experts, router. */
oct_status dsv3_moe_backward(const dsv3_pass *pass, const dsv3_layer *layer,
                             const dsv3_moe_saved *saved, const oct_tensor *dy,
                             const oct_tensor *dx, oct_err *err)
{
    const oct_run *run = pass->run;
    const oct_hf_config *hf = &pass->model->hf;
    const int64_t hidden = hf->hidden_size, top_k = hf->num_experts_per_tok;
    const int64_t rows = pass->tokens * top_k;
    const oct_groups groups = {.count = hf->n_routed_experts, .ends = saved->ends_E};
    const oct_arena_mark mark = oct_arena_save(run->exec->scratch);
    oct_tensor part;
    void *dweights_TK = NULL;
    OCT_TRY(dsv3_scratch(pass, pass->tokens, hidden, &part, err));
    OCT_TRY(oct_arena_array(run->exec->scratch, rows, sizeof(float), &dweights_TK, err));
    OCT_TRY(dsv3_mlp_backward(pass, &layer->mlp, &saved->shared, dy, dx, err));

    oct_span span = oct_profile_begin(run->profile, OCT_PART_ROUTING);
    OCT_TRY(oct_route_combine_backward(run->exec, dy, &saved->y_SH, saved->row_TK, top_k,
                                       dweights_TK, err));
    oct_profile_end(run->profile, span);
    oct_routed weighted = saved->routed;
    weighted.x = *dy;
    weighted.weights_TK = saved->weights_TK;
    const oct_lazy dy_SH = oct_route_rows(&weighted);
    oct_tensor dx_SH;
    OCT_TRY(dsv3_scratch(pass, rows, hidden, &dx_SH, err));
    OCT_TRY(oct_experts_backward(*layer->moe.experts, run, saved->from_experts, &groups, &dy_SH,
                                 &dx_SH, err));
    span = oct_profile_begin(run->profile, OCT_PART_ROUTING);
    OCT_TRY(oct_route_gather_backward(run->exec, &dx_SH, saved->row_TK, top_k, &part, err));
    OCT_TRY(oct_add(run->exec, dx, &part, dx, err));

    OCT_TRY(route_backward(pass, &layer->moe, saved, dweights_TK, &part, err));
    OCT_TRY(oct_add(run->exec, dx, &part, dx, err));
    oct_profile_end(run->profile, span);
    oct_arena_rewind(run->exec->scratch, mark);
    return OCT_OK;
}
