#include "cli/bench_peers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A symbol as a function: ISO C has no cast for that. */
static octet_peers_fn function_of(void *object)
{
    octet_peers_fn fn = NULL;
    void *symbol = dlsym(object, "octet_peers");
    if (symbol)
        memcpy(&fn, &symbol, sizeof fn);
    return fn;
}

static void load(oct_bench_peers *loaded, const char *folder, const char *name)
{
    char path[4096 + 64];
    (void)snprintf(path, sizeof path, "%s/octet_peer_%s.so", folder, name);
    void *object = access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!object)
        return;
    const octet_peers_fn fn = function_of(object);
    int version = 0;
    const octet_peer *const *peers = fn ? fn(&version) : NULL;
    if (!peers || version != OCTET_PEER_VERSION) {
        (void)dlclose(object);
        return;
    }
    loaded->objects[loaded->object_count++] = object;
    for (; *peers && loaded->count < OCT_BENCH_MAX_PEERS; peers++)
        loaded->peers[loaded->count++] = *peers;
}

void oct_bench_peers_load(oct_bench_peers *peers, bool tell)
{
    static const char *const names[] = {"openblas", "onednn"};
    char folder[4096];
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[length < 0 ? 0 : length] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        load(peers, folder, names[i]);
    if (!tell)
        return;
    if (peers->count == 0)
        printf("peers: none; scripts/install-deps peers and a new build bring oneDNN and "
               "OpenBLAS\n");
    for (int p = 0; p < peers->count; p++)
        printf("peer %s: %s\n", peers->peers[p]->name, peers->peers[p]->describe());
}
