/* Multiplies two MXFP8 operands, x [4, 96] and w [3, 96], as the forward pass of a linear layer
 * does (layout NT), and compares with the product of the dequantized operands in double precision.
 */
#include <octet/octet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { M = 4, N = 3, K = 96 };

static octet_error error;

static void check(octet_status status)
{
    if (status == OCTET_OK)
        return;
    fprintf(stderr, "%s error: %s\n", octet_status_name(status), error.message);
    exit(EXIT_FAILURE);
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(EXIT_FAILURE);
    }
    return memory;
}

/* An operand with blocks along the columns, and its values once more as FP32. */
static octet_operand quantize(const octet_context *context, const float *x, int64_t rows,
                              float *back)
{
    octet_operand operand = OCTET_OPERAND_INIT; /* MXFP8, row orientation */
    size_t bytes = 0;
    const size_t x_bytes = (size_t)rows * K * sizeof *x;
    operand.rows = rows;
    operand.cols = K;
    check(octet_operand_bytes(&operand, &operand.codes_bytes, &operand.scales_bytes, &error));
    check(octet_quantize_workspace_bytes(&operand, &bytes, &error));
    operand.codes = allocate(operand.codes_bytes);
    operand.scales = allocate(operand.scales_bytes);
    void *workspace = allocate(bytes);
    check(octet_quantize(context, OCTET_DTYPE_F32, x, x_bytes, NULL, &operand, NULL, workspace,
                         bytes, &error));
    free(workspace);
    check(octet_dequantize(context, &operand, back, x_bytes, &error));
    return operand;
}

int main(void)
{
    float x[M * K], w[N * K], x_back[M * K], w_back[N * K], y[M * N];
    for (int i = 0; i < M * K; i++)
        x[i] = sinf((float)i);
    for (int i = 0; i < N * K; i++)
        w[i] = cosf(0.7f * (float)i);

    octet_context *context = NULL;
    octet_features features = OCTET_FEATURES_INIT;
    void *memory = allocate(octet_context_bytes());
    check(octet_context_init(memory, octet_context_bytes(), NULL, &context, &error));
    check(octet_context_features(context, &features, &error));
    printf("octet %s, kernels %s, %d threads\n", octet_version(), octet_isa_name(features.isa),
           (int)features.threads);

    octet_operand left = quantize(context, x, M, x_back);
    octet_operand right = quantize(context, w, N, w_back);
    octet_output output = OCTET_OUTPUT_INIT; /* FP32 */
    output.data = y;
    output.data_bytes = sizeof y;
    output.ld = N;
    size_t bytes = 0;
    check(octet_product_workspace_bytes(context, &left, &right, OCTET_LAYOUT_NT, NULL, &bytes,
                                        &error));
    void *workspace = allocate(bytes);
    check(octet_product(context, &left, &right, OCTET_LAYOUT_NT, &output, NULL, workspace, bytes,
                        &error));

    double worst = 0.0;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0.0;
            for (int k = 0; k < K; k++)
                sum += (double)x_back[i * K + k] * (double)w_back[j * K + k];
            worst = fmax(worst, fabs(sum - (double)y[i * N + j]));
            printf("%12.6f%c", (double)y[i * N + j], j == N - 1 ? '\n' : ' ');
        }
    printf("largest distance from the product of the dequantized operands: %.2g\n", worst);

    free(workspace);
    free(left.codes);
    free(left.scales);
    free(right.codes);
    free(right.scales);
    free(memory);
    return worst < 1e-4 ? EXIT_SUCCESS : EXIT_FAILURE;
}
