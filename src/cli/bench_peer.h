/* What a peer of octet bench is: a shared object octet_peer_NAME.so beside the program that exports
 * octet_peers(). C[M,N] = op(A) op(B), row-major, A and B in the peer's element type. */
#ifndef OCTET_BENCH_PEER_H
#define OCTET_BENCH_PEER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { OCTET_PEER_VERSION = 1 };

/* NN A[M,K] B[K,N]; NT A[M,K] B[N,K]; TN A[K,M] B[K,N]. */
enum { OCTET_PEER_NN, OCTET_PEER_NT, OCTET_PEER_TN };

typedef struct octet_peer_problem {
    int layout;
    int64_t m, n, k;
    const void *a, *b; /* borrowed until close */
    void *c;
    int b_is_weight; /* B may be brought into the library's own form in open, which is not timed */
    int threads;
} octet_peer_problem;

typedef struct octet_peer {
    const char *name;                                 /* "onednn_f32", ... */
    int bf16;                                         /* A, B and C are BF16, otherwise FP32 */
    const char *(*describe)(void);                    /* version and kernels, one line */
    void *(*open)(const octet_peer_problem *problem); /* NULL: it cannot */
    int (*run)(void *opened);                         /* 0: good */
    void (*close)(void *opened);
} octet_peer;

/* *version = OCTET_PEER_VERSION of the object; returns a list that ends with NULL, or NULL if the
 * library cannot be used here. */
typedef const octet_peer *const *(*octet_peers_fn)(int *version);

#ifdef __cplusplus
}
#endif

#endif
