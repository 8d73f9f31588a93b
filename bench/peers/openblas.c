/* OpenBLAS as a peer: sgemm. Its core detection does not know every processor and then takes
 * kernels that are several times slower: what it would choose (by itself or by OPENBLAS_CORETYPE)
 * is asked in a child process, and OPENBLAS_CORETYPE is set where the processor can do more. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench_peer.h"

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* of cblas.h */

static const char library[] = "libopenblas.so.0";

static struct {
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*set_num_threads)(int threads);
    char *(*get_corename)(void);
    char *(*get_config)(void);
} blas;

static void *symbol(void *object, const char *name, void *fn, size_t size)
{
    void *found = dlsym(object, name);
    memcpy(fn, &found, size);
    return found;
}

static int bind_all(void)
{
    void *object = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    return object && symbol(object, "cblas_sgemm", &blas.sgemm, sizeof blas.sgemm) &&
           symbol(object, "openblas_set_num_threads", &blas.set_num_threads,
                  sizeof blas.set_num_threads) &&
           symbol(object, "openblas_get_corename", &blas.get_corename, sizeof blas.get_corename) &&
           symbol(object, "openblas_get_config", &blas.get_config, sizeof blas.get_config);
}

/* The core that OpenBLAS detects; empty if it cannot be loaded. */
static void detected_core(char *out, size_t size)
{
    int ends[2];
    out[0] = '\0';
    if (pipe(ends) != 0)
        return;
    const pid_t child = fork();
    if (child == 0) {
        if (bind_all()) {
            const char *core = blas.get_corename();
            _exit(write(ends[1], core, strlen(core)) < 0);
        }
        _exit(1);
    }
    (void)close(ends[1]);
    const ssize_t got = child > 0 ? read(ends[0], out, size - 1) : 0;
    out[got > 0 ? got : 0] = '\0';
    (void)close(ends[0]);
    if (child > 0)
        (void)waitpid(child, NULL, 0);
}

static int is_one_of(const char *core, const char *const *cores)
{
    for (; *cores; cores++)
        if (strcasecmp(core, *cores) == 0)
            return 1;
    return 0;
}

/* The core type to ask for instead, or NULL. */
static const char *better_core(const char *core)
{
    static const char *const avx512[] = {"SkylakeX", "Cooperlake", "SapphireRapids", NULL};
    static const char *const avx2[] = {"Haswell", "Zen", NULL};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
        return is_one_of(core, avx512) ? NULL : avx512[0];
    if (__builtin_cpu_supports("avx2"))
        return is_one_of(core, avx2) || is_one_of(core, avx512) ? NULL : avx2[0];
#endif
    return NULL;
}

static char description[256];

static const char *describe(void)
{
    return description;
}

static void *open_problem(const octet_peer_problem *problem)
{
    octet_peer_problem *copy = malloc(sizeof *copy);
    if (copy)
        *copy = *problem;
    return copy;
}

static int run(void *opened)
{
    const octet_peer_problem *p = opened;
    const int tn = p->layout == OCTET_PEER_TN, nt = p->layout == OCTET_PEER_NT;
    const int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    blas.set_num_threads(p->threads);
    blas.sgemm(ROW_MAJOR, tn ? TRANS : NO_TRANS, nt ? TRANS : NO_TRANS, m, n, k, 1.0f, p->a,
               tn ? m : k, p->b, nt ? k : n, 0.0f, p->c, n);
    return 0;
}

static const octet_peer sgemm_peer = {
    .name = "openblas_f32", .describe = describe, .open = open_problem, .run = run, .close = free};
static const octet_peer *const peers[] = {&sgemm_peer, NULL};

__attribute__((visibility("default"))) const octet_peer *const *octet_peers(int *version);

const octet_peer *const *octet_peers(int *version)
{
    char core[64];
    *version = OCTET_PEER_VERSION;
    detected_core(core, sizeof core);
    const char *better = better_core(core);
    if (core[0] == '\0')
        return NULL;
    if (better)
        (void)setenv("OPENBLAS_CORETYPE", better, 1);
    if (!bind_all())
        return NULL;
    char version_text[32] = "";
    (void)sscanf(blas.get_config(), "OpenBLAS %31s", version_text);
    (void)snprintf(description, sizeof description, "OpenBLAS %s sgemm, core %s%s%s%s",
                   version_text, blas.get_corename(), better ? " instead of " : "",
                   better ? core : "", better ? " that it would take" : "");
    return peers;
}
