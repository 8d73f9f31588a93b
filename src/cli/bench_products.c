#include "cli/bench_products.h"

#include "cli/bench_data.h"

/* m, n, k of a product. */
static void sizes(const oct_bench_product *p, int64_t *m, int64_t *n, int64_t *k)
{
    const bool tn = p->layout == OCT_LAYOUT_TN, nt = p->layout == OCT_LAYOUT_NT;
    *m = p->a->shape[tn ? 1 : 0];
    *k = p->a->shape[tn ? 0 : 1];
    *n = p->b->shape[nt ? 0 : 1];
}

double oct_bench_product_work(const oct_bench_product *product)
{
    int64_t m = 0, n = 0, k = 0;
    sizes(product, &m, &n, &k);
    return 2.0 * (double)m * (double)n * (double)k;
}

static oct_status run_peer(void *arg, oct_err *err)
{
    oct_bench_peer_run *run = arg;
    for (int p = 0; p < run->count; p++)
        if (run->peer->run(run->opened[p]) != 0)
            return OCT_FAIL(err, OCT_E_KERNEL, "a product of %s failed, none may", run->peer->name);
    return OCT_OK;
}

static oct_status check_peer(void *arg, int64_t *checked, oct_err *err)
{
    oct_bench_peer_run *run = arg;
    for (int p = 0; p < run->count; p++)
        oct_bench_poison(&run->c[p]);
    OCT_TRY(run_peer(run, err));
    for (int p = 0; p < run->count; p++) {
        const oct_layout layout = run->products[p].layout;
        const oct_fma_source left = oct_bench_plain(&run->a[p], layout != OCT_LAYOUT_TN);
        const oct_fma_source right = oct_bench_plain(&run->b[p], layout == OCT_LAYOUT_NT);
        OCT_TRY(oct_bench_check_product(&left, &right, &run->c[p], oct_layout_name(layout), checked,
                                        err));
    }
    return OCT_OK;
}

/* The tensor in the element type of the peer. */
static oct_status convert(oct_bench *bench, const oct_tensor *x, bool bf16, oct_tensor *out,
                          oct_err *err)
{
    *out = *x;
    if (bf16)
        return OCT_OK;
    OCT_TRY(oct_tensor_new_2d(&bench->memory, OCT_DTYPE_F32, x->shape[0], x->shape[1], out, err));
    return oct_convert(&bench->exec, x, out, err);
}

static oct_status open_product(oct_bench *bench, oct_bench_peer_run *run, int p, oct_err *err)
{
    static const int layouts[] = {[OCT_LAYOUT_NN] = OCTET_PEER_NN,
                                  [OCT_LAYOUT_NT] = OCTET_PEER_NT,
                                  [OCT_LAYOUT_TN] = OCTET_PEER_TN};
    const oct_bench_product *product = &run->products[p];
    octet_peer_problem problem = {.layout = layouts[product->layout],
                                  .b_is_weight = product->b_is_weight,
                                  .threads = bench->exec.threads};
    sizes(product, &problem.m, &problem.n, &problem.k);
    OCT_TRY(convert(bench, product->a, run->peer->bf16, &run->a[p], err));
    OCT_TRY(convert(bench, product->b, run->peer->bf16, &run->b[p], err));
    OCT_TRY(oct_tensor_new_2d(&bench->memory, run->peer->bf16 ? OCT_DTYPE_BF16 : OCT_DTYPE_F32,
                              problem.m, problem.n, &run->c[p], err));
    problem.a = run->a[p].data;
    problem.b = run->b[p].data;
    problem.c = run->c[p].data;
    run->opened[p] = run->peer->open(&problem);
    return OCT_OK;
}

oct_status oct_bench_peers_open(oct_bench *bench, const oct_bench_product *products, int count,
                                double work, oct_bench_floor floor, oct_bench_peer_run *runs,
                                oct_bench_variant *variants, int *variant_count, oct_err *err)
{
    for (int i = 0; i < OCT_BENCH_MAX_PEERS; i++)
        runs[i] = (oct_bench_peer_run){0};
    for (int i = 0; i < bench->peers.count; i++) {
        oct_bench_peer_run *run = &runs[i];
        run->peer = bench->peers.peers[i];
        run->count = count;
        bool all = true;
        for (int p = 0; p < count; p++) {
            run->products[p] = products[p];
            OCT_TRY(open_product(bench, run, p, err));
            all = all && run->opened[p];
        }
        if (all)
            variants[(*variant_count)++] = (oct_bench_variant){.peer = run->peer->name,
                                                               .work = work,
                                                               .floor = {floor},
                                                               .run = run_peer,
                                                               .check = check_peer,
                                                               .arg = run};
    }
    return OCT_OK;
}

void oct_bench_peers_close(oct_bench_peer_run *runs)
{
    for (int i = 0; i < OCT_BENCH_MAX_PEERS; i++)
        for (int p = 0; p < runs[i].count; p++)
            if (runs[i].opened[p])
                runs[i].peer->close(runs[i].opened[p]);
}
