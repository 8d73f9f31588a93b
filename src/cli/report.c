/* octet report RUN_DIR...: the curves of several runs side by side; the first one is the baseline.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "trainer/report.h"

static const char name[] = "report";

enum { MAX_RUNS = 8, PLOT_ROWS = 14, PLOT_COLUMNS = 64, TABLE_ROWS = 12, GAP_WINDOW = 20 };
static const char marks[MAX_RUNS] = {'*', 'o', '+', 'x', '#', '@', '%', '&'};

/* Loss over steps; where curves fall on one cell they take turns from column to column. */
static void plot(const oct_curve *curves, int count)
{
    char cells[PLOT_ROWS][PLOT_COLUMNS];
    memset(cells, ' ', sizeof cells);
    double low = (double)INFINITY, high = -(double)INFINITY;
    int64_t last = 1;
    for (int r = 0; r < count; r++)
        for (int64_t i = 0; i < curves[r].count; i++) {
            const oct_curve_point *point = &curves[r].points[i];
            if (!isfinite(point->loss))
                continue;
            low = fmin(low, point->loss);
            high = fmax(high, point->loss);
            last = point->step > last ? point->step : last;
        }
    if (!(high > low))
        return;
    for (int r = 0; r < count; r++)
        for (int64_t i = 0; i < curves[r].count; i++) {
            const oct_curve_point *point = &curves[r].points[i];
            if (!isfinite(point->loss))
                continue;
            const int row =
                (int)lround((high - point->loss) / (high - low) * (double)(PLOT_ROWS - 1));
            const int column =
                (int)((double)point->step / (double)last * (double)(PLOT_COLUMNS - 1));
            if (cells[row][column] == ' ' || column % count == r)
                cells[row][column] = marks[r];
        }
    for (int row = 0; row < PLOT_ROWS; row++) {
        const double value = high - (high - low) * (double)row / (double)(PLOT_ROWS - 1);
        printf("%8.3f |%.*s\n", value, PLOT_COLUMNS, cells[row]);
    }
    printf("         +%.*s step %lld\n", PLOT_COLUMNS - 12,
           "----------------------------------------------------------------", (long long)last);
}

/* Losses of all runs at about TABLE_ROWS steps of the baseline. */
static void print_table(const oct_curve *curves, int count)
{
    printf("    step");
    for (int r = 0; r < count; r++)
        printf("  %c %-11s", marks[r], curves[r].format);
    putchar('\n');
    const int64_t stride = curves[0].count > TABLE_ROWS ? curves[0].count / TABLE_ROWS : 1;
    for (int64_t i = 0; i < curves[0].count; i++) {
        if (i % stride != 0 && i != curves[0].count - 1)
            continue;
        printf("%8lld", (long long)curves[0].points[i].step);
        for (int r = 0; r < count; r++) {
            const oct_curve_point *point = oct_curve_at(&curves[r], curves[0].points[i].step);
            if (point)
                printf("  %13.4f", point->loss);
            else
                printf("  %13s", "-");
        }
        putchar('\n');
    }
}

static void print_gap(const oct_curve *curve, const oct_curve *baseline)
{
    int64_t step = -1;
    const double gap = oct_curve_largest_gap(curve, baseline, 1, &step);
    if (step < 0) {
        printf("  no step in common");
        return;
    }
    printf("  %.2f %% at step %lld", 100.0 * gap, (long long)step);
    const double smooth = oct_curve_largest_gap(curve, baseline, GAP_WINDOW, &step);
    if (step >= 0)
        printf(", %.2f %% over %d steps", 100.0 * smooth, GAP_WINDOW);
}

static void print_summary(const oct_curve *curves, int count, oct_arena *arena)
{
    oct_err err = {0};
    const double base = oct_curve_tokens_per_second(&curves[0], arena, &err);
    printf("\n%-14s %8s %12s %12s %10s %10s  %s\n", "format", "steps", "final loss", "tokens/s",
           "speed", "memory", "largest gap to the first run");
    for (int r = 0; r < count; r++) {
        const double rate = oct_curve_tokens_per_second(&curves[r], arena, &err);
        printf("%-14s %8lld %12.4f %12.0f %9.2fx %7.0f MB", curves[r].format,
               (long long)curves[r].count, oct_curve_final_loss(&curves[r]), rate,
               base > 0.0 ? rate / base : 0.0, 1e-6 * (double)curves[r].peak_memory_bytes);
        if (r > 0)
            print_gap(&curves[r], &curves[0]);
        if (curves[r].skipped)
            printf("  (%lld skipped)", (long long)curves[r].skipped);
        putchar('\n');
    }
    printf("(losses in nats per token; final loss: mean of the last tenth of the steps; tokens/s: "
           "median)\n");
}

/* The loss of the best model without context, to read the final losses against. */
static oct_status print_entropy(const char *run_dir, oct_arena *arena, oct_err *err)
{
    double nats = 0.0;
    OCT_TRY(oct_curve_unigram_entropy(run_dir, arena, &nats, err));
    printf("\nentropy of the token frequencies of the text: %.4f nats per token, the loss of a "
           "model that ignores context\n",
           nats);
    return OCT_OK;
}

int oct_command_report(int argc, char **argv)
{
    const bool data = argc > 1 && strcmp(argv[1], "--data") == 0;
    char **run_dirs = argv + 1 + data;
    const int count = argc - 1 - data;
    if (count < 1 || count > MAX_RUNS)
        return oct_cli_usage(name, "found %d run directories, from 1 to %d are required", count,
                             MAX_RUNS);
    oct_curve curves[MAX_RUNS];
    oct_arena arena;
    oct_err err = {0};
    oct_arena_init(&arena, "report");
    oct_status status = OCT_OK;
    for (int r = 0; r < count && status == OCT_OK; r++)
        status = oct_curve_read(run_dirs[r], &arena, &curves[r], &err);
    if (status == OCT_OK) {
        plot(curves, count);
        putchar('\n');
        print_table(curves, count);
        print_summary(curves, count, &arena);
        if (data)
            status = print_entropy(run_dirs[0], &arena, &err);
    }
    oct_arena_release(&arena);
    return status == OCT_OK ? OCT_EXIT_OK : oct_cli_fail(status, &err);
}
