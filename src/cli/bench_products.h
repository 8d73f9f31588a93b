/* Products of peers as variants of a case: the three of a layer, or one of them. */
#ifndef OCT_CLI_BENCH_PRODUCTS_H
#define OCT_CLI_BENCH_PRODUCTS_H

#include "cli/bench_harness.h"

enum { OCT_BENCH_MAX_PRODUCTS = 3 };

/* C = op(A) op(B) of BF16 tensors. */
typedef struct oct_bench_product {
    oct_layout layout;
    const oct_tensor *a, *b;
    bool b_is_weight;
} oct_bench_product;

/* All products of one case by one peer. */
typedef struct oct_bench_peer_run {
    const octet_peer *peer;
    int count;
    oct_bench_product products[OCT_BENCH_MAX_PRODUCTS];
    oct_tensor a[OCT_BENCH_MAX_PRODUCTS], b[OCT_BENCH_MAX_PRODUCTS], c[OCT_BENCH_MAX_PRODUCTS];
    void *opened[OCT_BENCH_MAX_PRODUCTS];
} oct_bench_peer_run;

/* Appends one variant per peer that can do all of them; runs [OCT_BENCH_MAX_PEERS]. floor: of every
 * peer. Close them after the case whatever came out. Errors: OCT_E_NOMEM. */
oct_status oct_bench_peers_open(oct_bench *bench, const oct_bench_product *products, int count,
                                double work, oct_bench_floor floor, oct_bench_peer_run *runs,
                                oct_bench_variant *variants, int *variant_count,
                                oct_err *err) OCT_MUST_CHECK;
void oct_bench_peers_close(oct_bench_peer_run *runs);

/* The work of one of them in operations. */
double oct_bench_product_work(const oct_bench_product *product);

#endif
