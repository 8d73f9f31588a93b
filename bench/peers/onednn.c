/* oneDNN as a peer: matmul of FP32 and of BF16 operands. A weight is brought into the form that
 * oneDNN likes best (format any) before it is timed. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <oneapi/dnnl/dnnl.h>

#include "cli/bench_peer.h"

static struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    char description[256], kernel[2][96]; /* FP32, BF16 */
} dnn;

typedef struct product {
    int threads;
    dnnl_primitive_t matmul;
    dnnl_memory_t a, b, c;
    dnnl_memory_t packed; /* B in the form of the library, or NULL */
} product;

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t form;
typedef const_dnnl_memory_desc_t const_form;
#else
typedef dnnl_memory_desc_t form;
typedef const dnnl_memory_desc_t *const_form;
#endif

/* A row-major [rows, cols], or its transpose; strides NULL: any. */
static int make_form(form *out, int64_t rows, int64_t cols, int bf16, int transposed, int any)
{
    const dnnl_dims_t dims = {rows, cols};
    const dnnl_data_type_t type = bf16 ? dnnl_bf16 : dnnl_f32;
    const dnnl_format_tag_t tag = any ? dnnl_format_tag_any : (transposed ? dnnl_ba : dnnl_ab);
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_tag(out, 2, dims, type, tag) == dnnl_success;
#else
    return dnnl_memory_desc_init_by_tag(out, 2, dims, type, tag) == dnnl_success;
#endif
}

static const_form of(const form *f)
{
#if DNNL_VERSION_MAJOR >= 3
    return *f;
#else
    return f;
#endif
}

static dnnl_primitive_desc_t describe_matmul(const form *a, const form *b, const form *c)
{
    dnnl_primitive_desc_t desc = NULL;
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(&desc, dnn.engine, *a, *b, NULL, *c, NULL) ==
                   dnnl_success
               ? desc
               : NULL;
#else
    dnnl_matmul_desc_t operation;
    if (dnnl_matmul_desc_init(&operation, a, b, NULL, c) != dnnl_success)
        return NULL;
    return dnnl_primitive_desc_create(&desc, &operation, NULL, dnn.engine, NULL) == dnnl_success
               ? desc
               : NULL;
#endif
}

static int make_memory(dnnl_memory_t *out, const_form f, const void *data)
{
    void *memory = NULL;
    memcpy(&memory, &data, sizeof memory);
    return dnnl_memory_create(out, f, dnn.engine, memory) == dnnl_success;
}

static int execute(dnnl_primitive_t primitive, int count, const dnnl_exec_arg_t *args)
{
    return dnnl_primitive_execute(primitive, dnn.stream, count, args) == dnnl_success &&
           dnnl_stream_wait(dnn.stream) == dnnl_success;
}

/* B in the form that the product asks for. */
static int pack(product *p, const_form to)
{
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_t reorder = NULL;
    const_form from = NULL;
    if (dnnl_memory_get_memory_desc(p->b, &from) != dnnl_success ||
        !make_memory(&p->packed, to, DNNL_MEMORY_ALLOCATE) ||
        dnnl_reorder_primitive_desc_create(&desc, from, dnn.engine, to, dnn.engine, NULL) !=
            dnnl_success)
        return 0;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, p->b}, {DNNL_ARG_TO, p->packed}};
    const int good =
        dnnl_primitive_create(&reorder, desc) == dnnl_success && execute(reorder, 2, args);
    (void)dnnl_primitive_desc_destroy(desc);
    if (reorder)
        (void)dnnl_primitive_destroy(reorder);
    return good;
}

static void close_product(void *opened)
{
    product *p = opened;
    if (p->matmul)
        (void)dnnl_primitive_destroy(p->matmul);
    dnnl_memory_t memories[] = {p->a, p->b, p->c, p->packed};
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++)
        if (memories[i])
            (void)dnnl_memory_destroy(memories[i]);
    free(p);
}

static int prepare(product *p, const octet_peer_problem *problem, int bf16)
{
    const int tn = problem->layout == OCTET_PEER_TN, nt = problem->layout == OCTET_PEER_NT;
    form a, b, b_any, c;
    if (!make_form(&a, problem->m, problem->k, bf16, tn, 0) ||
        !make_form(&b, problem->k, problem->n, bf16, nt, 0) ||
        !make_form(&b_any, problem->k, problem->n, bf16, nt, 1) ||
        !make_form(&c, problem->m, problem->n, bf16, 0, 0))
        return 0;
    const dnnl_primitive_desc_t desc = describe_matmul(&a, problem->b_is_weight ? &b_any : &b, &c);
    if (!desc)
        return 0;
    const char *kernel = "";
    (void)dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &kernel);
    (void)snprintf(dnn.kernel[bf16], sizeof dnn.kernel[bf16], "%s", kernel);
    int good = dnnl_primitive_create(&p->matmul, desc) == dnnl_success &&
               make_memory(&p->a, of(&a), problem->a) && make_memory(&p->b, of(&b), problem->b) &&
               make_memory(&p->c, of(&c), problem->c);
    if (good && problem->b_is_weight)
        good = pack(p, dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0));
    (void)dnnl_primitive_desc_destroy(desc);
    return good;
}

static void *open_product(const octet_peer_problem *problem, int bf16)
{
    product *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->threads = problem->threads;
    omp_set_num_threads(problem->threads);
    if (prepare(p, problem, bf16))
        return p;
    close_product(p);
    return NULL;
}

static void *open_f32(const octet_peer_problem *problem)
{
    return open_product(problem, 0);
}

static void *open_bf16(const octet_peer_problem *problem)
{
    return open_product(problem, 1);
}

static int run(void *opened)
{
    const product *p = opened;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->a},
                                    {DNNL_ARG_WEIGHTS, p->packed ? p->packed : p->b},
                                    {DNNL_ARG_DST, p->c}};
    omp_set_num_threads(p->threads);
    return !execute(p->matmul, 3, args);
}

/* Tries a product, so that the kernel can be named. */
static const char *describe(int bf16)
{
    static float zeros[4 * 64 * 64];
    const octet_peer_problem problem = {.layout = OCTET_PEER_NT,
                                        .m = 64,
                                        .n = 64,
                                        .k = 64,
                                        .a = zeros,
                                        .b = zeros + 64 * 64,
                                        .c = zeros + 2 * 64 * 64,
                                        .b_is_weight = 1,
                                        .threads = 1};
    void *opened = open_product(&problem, bf16);
    if (opened)
        close_product(opened);
    const dnnl_version_t *version = dnnl_version();
    (void)snprintf(dnn.description, sizeof dnn.description, "oneDNN %d.%d.%d %s, weights packed",
                   version->major, version->minor, version->patch,
                   opened ? dnn.kernel[bf16] : "cannot do it");
    return dnn.description;
}

static const char *describe_f32(void)
{
    return describe(0);
}

static const char *describe_bf16(void)
{
    return describe(1);
}

static const octet_peer f32 = {.name = "onednn_f32",
                               .describe = describe_f32,
                               .open = open_f32,
                               .run = run,
                               .close = close_product};
static const octet_peer bf16_peer = {.name = "onednn_bf16",
                                     .bf16 = 1,
                                     .describe = describe_bf16,
                                     .open = open_bf16,
                                     .run = run,
                                     .close = close_product};
static const octet_peer *const peers[] = {&f32, &bf16_peer, NULL};

__attribute__((visibility("default"))) const octet_peer *const *octet_peers(int *version);

const octet_peer *const *octet_peers(int *version)
{
    *version = OCTET_PEER_VERSION;
    if (dnnl_engine_create(&dnn.engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&dnn.stream, dnn.engine, dnnl_stream_default_flags) != dnnl_success)
        return NULL;
    return peers;
}
