/* Multi-head latent attention. Per token and head: q = [nope | rope], k = [nope | rope] with one
 * rotated slice shared by all heads, kv = [nope of k | v]. */
#include "model/deepseek_v3/pass.h"

/* Sizes of one head, in elements. */
typedef struct head_sizes {
    int64_t heads, nope, rope, qk, v, kv;
} head_sizes;

static head_sizes sizes_of(const oct_hf_config *hf)
{
    return (head_sizes){
        .heads = hf->num_attention_heads,
        .nope = hf->qk_nope_head_dim,
        .rope = hf->qk_rope_head_dim,
        .qk = oct_hf_qk_head_dim(hf),
        .v = hf->v_head_dim,
        .kv = hf->qk_nope_head_dim + hf->v_head_dim,
    };
}

/* The address of an element of the first row. */
static void *at(const oct_tensor *tensor, int64_t element)
{
    return (char *)tensor->data + element * (int64_t)oct_dtype_bytes(tensor->dtype);
}

/* A [T, heads] grid of slices: the slice of (token t, head h) starts at element
 * first + t * token_stride + h * head_stride. */
typedef struct slices {
    const oct_tensor *tensor;
    int64_t first, head_stride;
} slices;

static oct_rope_view view_of(slices src, slices dst)
{
    return (oct_rope_view){
        .src = at(src.tensor, src.first),
        .dst = at(dst.tensor, dst.first),
        .src_token_stride = oct_tensor_cols(src.tensor),
        .src_head_stride = src.head_stride,
        .dst_token_stride = oct_tensor_cols(dst.tensor),
        .dst_head_stride = dst.head_stride,
    };
}

static oct_status rotate(const dsv3_pass *pass, slices src, slices dst, int64_t heads, bool inverse,
                         oct_err *err)
{
    const oct_hf_config *hf = &pass->model->hf;
    const oct_rope_view view = view_of(src, dst);
    return oct_rope(pass->run->exec, pass->run->act_dtype, &view, pass->tokens, heads,
                    hf->qk_rope_head_dim, pass->cos, pass->sin, pass->positions_T,
                    hf->rope_interleave, inverse, err);
}

static oct_status copy(const dsv3_pass *pass, slices src, slices dst, int64_t heads, int64_t dim,
                       oct_err *err)
{
    const oct_rope_view view = view_of(src, dst);
    return oct_head_copy(pass->run->exec, pass->run->act_dtype, &view, pass->tokens, heads, dim,
                         err);
}

static oct_attention_view heads_of(const oct_tensor *tensor, int64_t first, int64_t head_stride)
{
    return (oct_attention_view){.data = at(tensor, first),
                                .token_stride = oct_tensor_cols(tensor),
                                .head_stride = head_stride};
}

static oct_attention_shape shape_of(const dsv3_pass *pass, const head_sizes *n)
{
    return (oct_attention_shape){
        .dtype = pass->run->act_dtype,
        .heads = n->heads,
        .qk_dim = n->qk,
        .v_dim = n->v,
        .sequences = pass->sequences,
        .cu_seqlens = pass->cu_seqlens,
        .softmax_scale = pass->model->softmax_scale,
    };
}

/* The latent norms of the HF model keep their constructor's default whatever rms_norm_eps is. */
static const float latent_eps = 1e-6f;

static oct_status allocate_saved(const dsv3_pass *pass, dsv3_attention_saved *s, oct_err *err)
{
    const oct_hf_config *hf = &pass->model->hf;
    const head_sizes n = sizes_of(hf);
    const int64_t tokens = pass->tokens;
    if (hf->q_lora_rank) {
        OCT_TRY(dsv3_keep(pass, tokens, hf->q_lora_rank, &s->q_a, err));
        OCT_TRY(dsv3_keep(pass, tokens, hf->q_lora_rank, &s->q_a_normed, err));
        OCT_TRY(dsv3_keep_floats(pass, tokens, &s->q_a_rstd, err));
    }
    OCT_TRY(dsv3_keep(pass, tokens, n.heads * n.qk, &s->q, err));
    OCT_TRY(dsv3_keep(pass, tokens, hf->kv_lora_rank, &s->latent, err));
    OCT_TRY(dsv3_keep(pass, tokens, hf->kv_lora_rank, &s->latent_normed, err));
    OCT_TRY(dsv3_keep_floats(pass, tokens, &s->latent_rstd, err));
    OCT_TRY(dsv3_keep(pass, tokens, n.heads * n.kv, &s->kv, err));
    OCT_TRY(dsv3_keep(pass, tokens, n.heads * n.qk, &s->k, err));
    OCT_TRY(dsv3_keep(pass, tokens, n.heads * n.v, &s->context, err));
    return dsv3_keep_floats(pass, n.heads * tokens, &s->lse_NT, err);
}

static oct_status project_q(const dsv3_pass *pass, const dsv3_attention *block, const oct_tensor *x,
                            dsv3_attention_saved *s, oct_err *err)
{
    const oct_run *run = pass->run;
    if (block->q)
        return oct_linear_forward(*block->q, run, x, &s->q, &s->from_q, err);
    OCT_TRY(oct_linear_forward(*block->q_a, run, x, &s->q_a, &s->from_q_a, err));
    OCT_TRY(oct_rmsnorm(run->exec, &s->q_a, dsv3_weight(block->q_a_norm), latent_eps,
                        &s->q_a_normed, s->q_a_rstd, err));
    return oct_linear_forward(*block->q_b, run, &s->q_a_normed, &s->q, &s->from_q_b, err);
}

/* Latent, kv and k; the one rotated slice of k is copied to every head. */
static oct_status project_kv(const dsv3_pass *pass, const dsv3_attention *block,
                             const oct_tensor *x, dsv3_attention_saved *s, oct_err *err)
{
    const oct_run *run = pass->run;
    const oct_hf_config *hf = &pass->model->hf;
    const head_sizes n = sizes_of(hf);
    const int64_t rank = hf->kv_lora_rank;
    const oct_arena_mark mark = oct_arena_save(run->exec->scratch);
    oct_tensor kv_a;
    OCT_TRY(dsv3_scratch(pass, pass->tokens, rank + n.rope, &kv_a, err));
    OCT_TRY(oct_linear_forward(*block->kv_a, run, x, &kv_a, &s->from_kv_a, err));
    OCT_TRY(copy(pass, (slices){&kv_a, 0, 0}, (slices){&s->latent, 0, 0}, 1, rank, err));
    const slices shared = {&kv_a, rank, 0};
    OCT_TRY(rotate(pass, shared, shared, 1, false, err));
    OCT_TRY(copy(pass, shared, (slices){&s->k, n.nope, n.qk}, n.heads, n.rope, err));
    oct_arena_rewind(run->exec->scratch, mark);

    OCT_TRY(oct_rmsnorm(run->exec, &s->latent, dsv3_weight(block->kv_a_norm), latent_eps,
                        &s->latent_normed, s->latent_rstd, err));
    OCT_TRY(oct_linear_forward(*block->kv_b, run, &s->latent_normed, &s->kv, &s->from_kv_b, err));
    return copy(pass, (slices){&s->kv, 0, n.kv}, (slices){&s->k, 0, n.qk}, n.heads, n.nope, err);
}

oct_status dsv3_attention_forward(const dsv3_pass *pass, const dsv3_attention *block,
                                  const oct_tensor *x, const oct_tensor *y,
                                  dsv3_attention_saved *saved, oct_err *err)
{
    const oct_run *run = pass->run;
    const head_sizes n = sizes_of(&pass->model->hf);
    OCT_TRY(allocate_saved(pass, saved, err));
    OCT_TRY(project_q(pass, block, x, saved, err));
    const slices rotated = {&saved->q, n.nope, n.qk};
    OCT_TRY(rotate(pass, rotated, rotated, n.heads, false, err));
    OCT_TRY(project_kv(pass, block, x, saved, err));

    const oct_attention_shape shape = shape_of(pass, &n);
    const oct_attention_view q = heads_of(&saved->q, 0, n.qk), k = heads_of(&saved->k, 0, n.qk);
    const oct_attention_view v = heads_of(&saved->kv, n.nope, n.kv);
    const oct_attention_view context = heads_of(&saved->context, 0, n.v);
    const oct_span span = oct_profile_begin(run->profile, OCT_PART_ATTENTION);
    OCT_TRY(oct_attention(run->exec, &shape, &q, &k, &v, &context, saved->lse_NT, err));
    oct_profile_end(run->profile, span);
    return oct_linear_forward(*block->o, run, &saved->context, y, &saved->from_o, err);
}

/* dq to the gradient of x. */
static oct_status project_q_backward(const dsv3_pass *pass, const dsv3_attention *block,
                                     const dsv3_attention_saved *s, const oct_tensor *dq,
                                     const oct_tensor *dx, oct_err *err)
{
    const oct_run *run = pass->run;
    if (block->q)
        return oct_linear_backward(*block->q, run, s->from_q, dq, dx, err);
    oct_tensor dq_a;
    OCT_TRY(dsv3_scratch(pass, pass->tokens, oct_tensor_cols(&s->q_a), &dq_a, err));
    OCT_TRY(oct_linear_backward(*block->q_b, run, s->from_q_b, dq, &dq_a, err));
    OCT_TRY(
        dsv3_norm_backward(run, &dq_a, &s->q_a, block->q_a_norm, s->q_a_rstd, NULL, &dq_a, err));
    return oct_linear_backward(*block->q_a, run, s->from_q_a, &dq_a, dx, err);
}

/* dkv (its v half is set) and dk to the gradient of x. */
static oct_status project_kv_backward(const dsv3_pass *pass, const dsv3_attention *block,
                                      const dsv3_attention_saved *s, const oct_tensor *dk,
                                      const oct_tensor *dkv, const oct_tensor *dx, oct_err *err)
{
    const oct_run *run = pass->run;
    const oct_hf_config *hf = &pass->model->hf;
    const head_sizes n = sizes_of(hf);
    const int64_t rank = hf->kv_lora_rank;
    oct_tensor dlatent, dkv_a;
    OCT_TRY(dsv3_scratch(pass, pass->tokens, rank, &dlatent, err));
    OCT_TRY(dsv3_scratch(pass, pass->tokens, rank + n.rope, &dkv_a, err));

    OCT_TRY(copy(pass, (slices){dk, 0, n.qk}, (slices){dkv, 0, n.kv}, n.heads, n.nope, err));
    OCT_TRY(oct_linear_backward(*block->kv_b, run, s->from_kv_b, dkv, &dlatent, err));
    OCT_TRY(dsv3_norm_backward(run, &dlatent, &s->latent, block->kv_a_norm, s->latent_rstd, NULL,
                               &dlatent, err));
    OCT_TRY(copy(pass, (slices){&dlatent, 0, 0}, (slices){&dkv_a, 0, 0}, 1, rank, err));

    const slices shared = {&dkv_a, rank, 0};
    const oct_rope_view sum = view_of((slices){dk, n.nope, n.qk}, shared);
    OCT_TRY(oct_head_sum(run->exec, run->act_dtype, &sum, pass->tokens, n.heads, n.rope, err));
    OCT_TRY(rotate(pass, shared, shared, 1, true, err));
    return oct_linear_backward(*block->kv_a, run, s->from_kv_a, &dkv_a, dx, err);
}

static oct_status core_backward(const dsv3_pass *pass, const dsv3_attention_saved *s,
                                const oct_tensor *dcontext, const oct_tensor *dq,
                                const oct_tensor *dk, const oct_tensor *dkv, oct_err *err)
{
    const head_sizes n = sizes_of(&pass->model->hf);
    const oct_attention_shape shape = shape_of(pass, &n);
    const oct_attention_view q = heads_of(&s->q, 0, n.qk), k = heads_of(&s->k, 0, n.qk);
    const oct_attention_view v = heads_of(&s->kv, n.nope, n.kv);
    const oct_attention_view context = heads_of(&s->context, 0, n.v);
    const oct_attention_view to_context = heads_of(dcontext, 0, n.v);
    const oct_attention_view to_q = heads_of(dq, 0, n.qk), to_k = heads_of(dk, 0, n.qk);
    const oct_attention_view to_v = heads_of(dkv, n.nope, n.kv);
    const oct_span span = oct_profile_begin(pass->run->profile, OCT_PART_ATTENTION);
    OCT_TRY(oct_attention_backward(pass->run->exec, &shape, &q, &k, &v, &context, s->lse_NT,
                                   &to_context, &to_q, &to_k, &to_v, err));
    oct_profile_end(pass->run->profile, span);
    return OCT_OK;
}

oct_status dsv3_attention_backward(const dsv3_pass *pass, const dsv3_attention *block,
                                   const dsv3_attention_saved *saved, const oct_tensor *dy,
                                   const oct_tensor *dx, oct_err *err)
{
    const oct_run *run = pass->run;
    const head_sizes n = sizes_of(&pass->model->hf);
    const int64_t tokens = pass->tokens;
    const oct_arena_mark mark = oct_arena_save(run->exec->scratch);
    oct_tensor dcontext, dq, dk, dkv, dx_kv;
    OCT_TRY(dsv3_scratch(pass, tokens, n.heads * n.v, &dcontext, err));
    OCT_TRY(dsv3_scratch(pass, tokens, n.heads * n.qk, &dq, err));
    OCT_TRY(dsv3_scratch(pass, tokens, n.heads * n.qk, &dk, err));
    OCT_TRY(dsv3_scratch(pass, tokens, n.heads * n.kv, &dkv, err));
    OCT_TRY(dsv3_scratch(pass, tokens, oct_tensor_cols(dx), &dx_kv, err));

    OCT_TRY(oct_linear_backward(*block->o, run, saved->from_o, dy, &dcontext, err));
    OCT_TRY(core_backward(pass, saved, &dcontext, &dq, &dk, &dkv, err));
    OCT_TRY(project_kv_backward(pass, block, saved, &dk, &dkv, &dx_kv, err));
    const slices rotated = {&dq, n.nope, n.qk};
    OCT_TRY(rotate(pass, rotated, rotated, n.heads, true, err));
    OCT_TRY(project_q_backward(pass, block, saved, &dq, dx, err));
    OCT_TRY(oct_add(run->exec, &dx_kv, dx, dx, err));
    oct_arena_rewind(run->exec->scratch, mark);
    return OCT_OK;
}
