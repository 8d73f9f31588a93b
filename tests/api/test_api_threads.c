/* Two threads that share a context and the sources of a computation get the same bytes, and no call
 * asks the heap. */
#include "api_fixture.h"

#include <pthread.h>

enum { M = 70, K = 130, N = 50, ROUNDS = 4 };

/* Stands before that of the C library for the shared library too: its arenas would come here. */
static int heap_calls;
void *aligned_alloc(size_t alignment, size_t bytes)
{
    (void)alignment;
    (void)bytes;
    heap_calls++;
    return NULL;
}

typedef struct job {
    const octet_context *context;
    octet_format format;
    const float *x, *w;
    float y[M * N], back[M * K];
    octet_status status;
    octet_error error;
} job;

static octet_status work(job *j)
{
    static const octet_groups none = {0, NULL};
    octet_operand left = new_operand(j->format, OCTET_ORIENTATION_ROW, 0, M, K, none);
    octet_operand right = new_operand(j->format, OCTET_ORIENTATION_ROW, 0, N, K, none);
    size_t bytes = 0;
    octet_status status = octet_product_workspace_bytes(j->context, &left, &right, OCTET_LAYOUT_NT,
                                                        NULL, &bytes, &j->error);
    if (status != OCTET_OK)
        return status;
    void *workspace = take(bytes);
    octet_output output = OCTET_OUTPUT_INIT;
    output.data = j->y;
    output.data_bytes = sizeof j->y;
    output.ld = N;
    for (int round = 0; round < ROUNDS && status == OCTET_OK; round++) {
        status = octet_quantize(j->context, OCTET_DTYPE_F32, j->x, M * K * 4, NULL, &left, NULL,
                                workspace, bytes, &j->error);
        if (status == OCTET_OK)
            status = octet_quantize(j->context, OCTET_DTYPE_F32, j->w, N * K * 4, NULL, &right,
                                    NULL, workspace, bytes, &j->error);
        if (status == OCTET_OK)
            status = octet_product(j->context, &left, &right, OCTET_LAYOUT_NT, &output, NULL,
                                   workspace, bytes, &j->error);
        if (status == OCTET_OK)
            status = octet_dequantize(j->context, &left, j->back, sizeof j->back, &j->error);
    }
    free(workspace);
    free_operand(&left);
    free_operand(&right);
    return status;
}

static void *thread(void *arg)
{
    job *j = arg;
    j->status = work(j);
    return NULL;
}

static void calls__two_threads_at_once__same_bytes(void **state)
{
    (void)state;
    static float x[M * K], w[N * K];
    static job jobs[3];
    fill_numbers(x, M * K, 1);
    fill_numbers(w, N * K, 2);
    for (int f = OCTET_FORMAT_MXFP8; f <= OCTET_FORMAT_HIF8; f++)
        for (int32_t threads = 1; threads <= 2; threads++) {
            test_context test;
            pthread_t ids[2];
            assert_true(open_context(&test, OCTET_ISA_AUTO, threads));
            for (int i = 0; i < 3; i++) {
                jobs[i].context = test.context;
                jobs[i].format = (octet_format)f;
                jobs[i].x = x;
                jobs[i].w = w;
            }
            for (int i = 0; i < 2; i++)
                assert_int_equal(pthread_create(&ids[i], NULL, thread, &jobs[i]), 0);
            for (int i = 0; i < 2; i++)
                assert_int_equal(pthread_join(ids[i], NULL), 0);
            (void)thread(&jobs[2]);
            for (int i = 0; i < 3; i++) {
                if (jobs[i].status != OCTET_OK)
                    fail_msg("%s", jobs[i].error.message);
                assert_memory_equal(jobs[i].y, jobs[2].y, sizeof jobs[i].y);
                assert_memory_equal(jobs[i].back, jobs[2].back, sizeof jobs[i].back);
            }
        }
    assert_int_equal(heap_calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls__two_threads_at_once__same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
