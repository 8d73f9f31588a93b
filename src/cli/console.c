#include "cli/console.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/profile.h"
#include "kernels/gemm.h"

enum { SIDE = 512, MAX_PRODUCTS = 32 };
static const double seconds_of_products = 0.25; /* at most, but for the first two */

/* The best of products [SIDE,SIDE] x [SIDE,SIDE]; the first one warms up. One that has the cores
 * for itself is among them even where other programs run. The scratch of the run stays as it is. */
static oct_status measure_peak(const oct_exec *exec, double *flops, oct_err *err)
{
    oct_arena arena, scratch;
    oct_exec own = *exec;
    oct_tensor t[3];
    double least = 0.0;
    oct_arena_init(&arena, "product");
    oct_arena_init(&scratch, "product scratch");
    own.scratch = &scratch;
    oct_status status = OCT_OK;
    for (int i = 0; i < 3 && status == OCT_OK; i++) {
        status = oct_tensor_new_2d(&arena, OCT_DTYPE_BF16, SIDE, SIDE, &t[i], err);
        if (status == OCT_OK)
            memset(t[i].data, 0, oct_tensor_bytes(&t[i]));
    }
    const double begin = oct_clock_seconds();
    double now = begin;
    for (int i = 0; i < MAX_PRODUCTS && status == OCT_OK; i++) {
        if (i > 1 && now - begin > seconds_of_products)
            break;
        const oct_matrix a = oct_matrix_of(&t[0]), b = oct_matrix_of(&t[1]);
        const oct_gemm_out out = {.data = t[2].data, .dtype = OCT_DTYPE_BF16, .ld = SIDE};
        const double start = oct_clock_seconds();
        status = oct_gemm(&own, &a, &b, OCT_LAYOUT_NT, &out, err);
        now = oct_clock_seconds();
        if (i == 1 || (i > 1 && now - start < least))
            least = now - start;
    }
    oct_arena_release(&scratch);
    oct_arena_release(&arena);
    *flops = least > 0.0 ? 2.0 * SIDE * SIDE * SIDE / least : 0.0;
    return status;
}

oct_status oct_console_open(oct_console *console, const oct_build *build, oct_err *err)
{
    const oct_dsv3_size size = oct_dsv3_size_of(&build->hf, build->config->training.seq_length);
    *console = (oct_console){.ranks = oct_build_ranks(build),
                             .flops_per_token = size.flops_per_token_torchtitan};
    return measure_peak(&build->exec, &console->peak_flops, err);
}

void oct_console_count(oct_console *console, const oct_step_metrics *row)
{
    console->steps++;
    console->tokens += row->tokens;
    console->seconds += row->step_seconds;
}

/* 1234567 as 1,234,567. */
static void format_thousands(long long value, char out[32])
{
    char digits[32];
    const int length = snprintf(digits, sizeof digits, "%lld", value);
    int used = 0;
    for (int i = 0; i < length && used < 30; i++) {
        if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-')
            out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
}

/* No share is above 100 %: then the products of the start were slowed down by other programs. */
static void format_mfu(double flops, double peak, char out[16])
{
    if (peak > 0.0 && flops <= peak)
        (void)snprintf(out, 16, "%.2f%%", 100.0 * flops / peak);
    else
        (void)snprintf(out, 16, "n/a");
}

void oct_console_format(oct_console *console, const oct_step_metrics *row,
                        char out[OCT_CONSOLE_LINE])
{
    const double seconds = console->seconds > 0.0 ? console->seconds : 1e-9;
    const double tokens_per_second = (double)console->tokens / seconds / console->ranks;
    const double flops = console->flops_per_token * tokens_per_second;
    const double memory = (double)row->peak_memory_bytes;
    char tps[32], mfu[16];
    format_mfu(flops, console->peak_flops, mfu);
    format_thousands((long long)(tokens_per_second + 0.5), tps);
    (void)snprintf(out, OCT_CONSOLE_LINE,
                   "step: %2lld  loss: %8.5f  grad_norm: %7.4f  memory: %5.2fGiB(%.2f%%)  tps: %s  "
                   "tflops: %.2f  mfu: %s  elapsed_time_per_step: %.3fs%s",
                   (long long)row->step, row->loss, row->grad_norm, memory * 0x1p-30,
                   100.0 * memory / (double)oct_memory_limit(), tps, 1e-12 * flops, mfu,
                   seconds / (double)(console->steps ? console->steps : 1),
                   row->skipped ? "  SKIPPED" : "");
    console->steps = console->tokens = 0;
    console->seconds = 0.0;
}
