/* Quantizes a small matrix to MXFP8 and to HiF8 and prints the bytes.
 *
 *   cc quantize.c $(pkg-config --cflags --libs octet) -o quantize && ./quantize */
#include <octet/octet.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 2, COLS = 40 };

static void print_bytes(const char *label, const void *data, size_t bytes)
{
    printf("%-14s", label);
    for (size_t i = 0; i < bytes; i++)
        printf("%02x", ((const unsigned char *)data)[i]);
    putchar('\n');
}

/* Everything that quantizing needs, allocated here: octet itself allocates nothing. */
static octet_status quantize(const octet_context *context, octet_format format, const float *x,
                             octet_error *error)
{
    octet_operand operand = OCTET_OPERAND_INIT;
    operand.format = format;
    operand.orientation = OCTET_ORIENTATION_ROW; /* blocks of 32 along the columns */
    operand.rows = ROWS;
    operand.cols = COLS;
    size_t workspace_bytes = 0;
    octet_status status =
        octet_operand_bytes(&operand, &operand.codes_bytes, &operand.scales_bytes, error);
    if (status == OCTET_OK)
        status = octet_quantize_workspace_bytes(&operand, &workspace_bytes, error);
    if (status != OCTET_OK)
        return status;

    operand.codes = malloc(operand.codes_bytes);
    operand.scales = malloc(operand.scales_bytes);
    void *workspace = malloc(workspace_bytes);
    if (operand.codes && operand.scales && workspace) {
        status = octet_quantize(context, OCTET_DTYPE_F32, x, ROWS * COLS * sizeof *x, NULL,
                                &operand, NULL, workspace, workspace_bytes, error);
        if (status == OCTET_OK) {
            printf("%s\n", octet_format_name(format));
            print_bytes("  codes", operand.codes, operand.codes_bytes);
            print_bytes("  scales", operand.scales, operand.scales_bytes);
        }
    }
    free(workspace);
    free(operand.scales);
    free(operand.codes);
    return status;
}

int main(void)
{
    octet_error error = {0};
    octet_context *context = NULL;
    float x[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = (float)(i - 37) * 0.25f;

    const size_t context_bytes = octet_context_bytes();
    void *memory = malloc(context_bytes);
    octet_status status = octet_context_init(memory, context_bytes, NULL, &context, &error);
    if (status == OCTET_OK)
        status = quantize(context, OCTET_FORMAT_MXFP8, x, &error);
    if (status == OCTET_OK)
        status = quantize(context, OCTET_FORMAT_HIF8, x, &error);
    free(memory);
    if (status != OCTET_OK)
        fprintf(stderr, "%s error: %s\n", octet_status_name(status), error.message);
    return status == OCTET_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
