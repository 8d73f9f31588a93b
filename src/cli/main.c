#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const oct_command commands[] = {
    {"train", oct_command_train,
     "CONFIG... [key.path=value ...] [--section.key value ...] [--run-dir DIR] "
     "[--resume latest|step-N|none] [--print-config]",
     "train a model, or go on with a run"},
    {"launch", oct_command_launch, "-n RANKS [--hostfile FILE] [--mpirun PROGRAM] -- COMMAND ...",
     "run a command on several ranks, with what more ranks than cores need"},
    {"plan", oct_command_plan,
     "CONFIG... [key.path=value ...] [--ranks R] [--machine FILE] [--json] [--print-modules]",
     "dry run: what would be replaced, shapes, memory, operations; allocates no weights"},
    {"verify", oct_command_verify,
     "[--ranks R] [--model scaled|slice|16b] [--config FILE --case bf16|mxfp8|hif8_current] "
     "[--dry-run] [--quick] [--case Q3-05] [--out DIR]",
     "the acceptance matrix: trains, judges traces, records and checkpoints, writes a report"},
    {"generate", oct_command_generate,
     "CHECKPOINT --prompt TEXT [--tokens N] [--temperature T] [--top-p P] [--seed S]",
     "continue a text with a trained model"},
    {"quantize", oct_command_quantize,
     "IN.npy --format mxfp8|hif8|e4m3|bf16 --axis -1|-2 [--role input|weight|grad] "
     "[--groups 3,0,5] [--scale-alg 1|0] [--scale-layout plain|pairs] [--saturate] [--dtype bf16] "
     "-o PREFIX",
     "write the codes and scales of a tensor: PREFIX.data.npy, PREFIX.scale.npy, PREFIX.json"},
    {"dequantize", oct_command_dequantize, "PREFIX -o OUT.npy", "codes times scales, as float32"},
    {"matmul", oct_command_matmul,
     "LEFT RIGHT --layout NN|NT|TN [--groups 3,0,5] [--dtype bf16|f32] -o OUT.npy",
     "the product of two quantized tensors, as training computes it"},
    {"explain", oct_command_explain, "--format hif8|e4m3|e8m0|bf16 VALUE|0xCODE|--table",
     "fields, value, neighbours and rounding of a code, or all 256 of them"},
    {"compare", oct_command_compare,
     "A.npy B.npy [--format hif8|e4m3|e8m0|bf16] [--max-error X] [--max-ulp N] [--max-nrmse X] "
     "[--min-cosine X] [--max-different N]",
     "how far two tensors are apart, and where; fails beyond a limit"},
    {"checkpoint", oct_command_checkpoint, "ls|verify|show|hash DIR", "look into checkpoints"},
    {"report", oct_command_report, "[--data] RUN_DIR...", "compare the metrics of runs"},
    {"bench", oct_command_bench,
     "gemm|layer|attention|quantize|pack|step [CONFIG...] [--threads N] [--turns N] [--json] "
     "[--case PART] [--shape TxIxO] [--shrink N] [--no-peers] [--steps N] [--formats F,...] "
     "[--layouts RANKSxTHREADS,...]",
     "measure speed on this machine"},
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void print_help(FILE *stream)
{
    fputs("octet: pretrain DeepSeek-V3-architecture models in 8-bit floats on CPUs\n\n", stream);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(stream, "  octet %s %s\n      %s\n", commands[i].name, commands[i].usage,
                commands[i].help);
    fputs("  octet --version | --help\n", stream);
}

static int print_command_help(const oct_command *command)
{
    printf("octet %s %s\n    %s\n", command->name, command->usage, command->help);
    return OCT_EXIT_OK;
}

int oct_exit_code(oct_status status)
{
    switch (status) {
    case OCT_OK:
        return OCT_EXIT_OK;
    case OCT_E_CONFIG:
    case OCT_E_PLAN:
    case OCT_E_SHAPE:
    case OCT_E_API:
    case OCT_E_IO:
        return OCT_EXIT_USAGE;
    case OCT_E_DATA:
        return OCT_EXIT_DATA;
    case OCT_E_CORRUPT:
    case OCT_E_CHECKPOINT:
        return OCT_EXIT_CHECKPOINT;
    case OCT_E_NONFINITE:
        return OCT_EXIT_NONFINITE;
    case OCT_E_COMM:
        return OCT_EXIT_COMM;
    case OCT_E_NOMEM:
        return OCT_EXIT_NOMEM;
    case OCT_E_UNSUPPORTED:
    case OCT_E_KERNEL:
    case OCT_E_INTERRUPTED:
        break;
    }
    return OCT_EXIT_FAILED;
}

static bool muted;

void oct_cli_mute(bool mute)
{
    muted = mute;
}

void oct_cli_line(const char *start, const char *text)
{
    if (muted)
        return;
    fputs(start, stderr);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '\n')
            fputs("\\n", stderr);
        else if (*c < 0x20 || *c == 0x7f)
            fprintf(stderr, "\\x%02x", (unsigned)*c);
        else
            fputc(*c, stderr);
    }
    fputc('\n', stderr);
}

void oct_cli_stopped(const char *stage)
{
    if (!muted)
        printf("stopped at: %s\n", stage);
}

int oct_cli_fail(oct_status status, const oct_err *err)
{
    oct_cli_line("octet: ", err->msg[0] ? err->msg : oct_status_name(status));
    return oct_exit_code(status);
}

int oct_cli_usage(const char *command, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    oct_cli_line("octet: ", text);
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (!muted && command && strcmp(command, commands[i].name) == 0)
            fprintf(stderr, "usage: octet %s %s\n", command, commands[i].usage);
    return OCT_EXIT_USAGE;
}

int oct_cli_option(const char *command, int argc, char **argv, int *i, const char *name,
                   const char **value)
{
    const size_t length = strlen(name);
    if (strncmp(argv[*i], name, length) != 0)
        return 0;
    if (argv[*i][length] == '=') {
        *value = argv[*i] + length + 1;
        return 1;
    }
    if (argv[*i][length] != '\0')
        return 0;
    if (*i + 1 >= argc) {
        (void)oct_cli_usage(command, "no value after %s, one is required", name);
        return -1;
    }
    *value = argv[++*i];
    return 1;
}

int oct_cli_integer(const char *command, const char *name, const char *text, long long low,
                    long long high, long long *out)
{
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high) {
        (void)oct_cli_usage(command,
                            "wrong %s: found '%s', a whole number from %lld to %lld is required",
                            name, text, low, high);
        return -1;
    }
    *out = value;
    return 0;
}

/* What could not be written was not done. */
static int close_output(int code)
{
    errno = 0; /* stays so if an earlier write failed */
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    if (code != OCT_EXIT_OK)
        return code; /* told already */
    fprintf(stderr, "octet: cannot write to the standard output: %s\n",
            errno ? strerror(errno) : "an earlier write failed");
    return OCT_EXIT_FAILED;
}

/* A closed standard stream would be the number of the next file opened, and what is printed would
 * land in a checkpoint. These stand-ins fail when they are used. */
static void fill_standard_streams(void)
{
    while (true) {
        const int fd = open("/dev/null", O_RDONLY);
        if (fd > STDERR_FILENO)
            (void)close(fd);
        if (fd < 0 || fd > STDERR_FILENO)
            return;
    }
}

int main(int argc, char **argv)
{
    fill_standard_streams();
    (void)signal(SIGXFSZ, SIG_IGN); /* a file too large is an error that is told, not the end */
    if (argc < 2) {
        print_help(stderr);
        return OCT_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return OCT_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("octet " OCTET_VERSION);
        return OCT_EXIT_OK;
    }
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        if (argc == 3 && strcmp(argv[2], "--help") == 0)
            return close_output(print_command_help(&commands[i]));
        return close_output(commands[i].run(argc - 1, argv + 1));
    }
    char names[128] = "";
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const size_t used = strlen(names);
        (void)snprintf(names + used, sizeof names - used, "%s %s", i ? "," : "", commands[i].name);
    }
    return oct_cli_usage(NULL, "unknown command '%.256s', one of%s is required", argv[1], names);
}
