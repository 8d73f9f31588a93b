/* octet generate CHECKPOINT --prompt TEXT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/checkpoint_dir.h"
#include "cli/cli.h"
#include "trainer/generate.h"

static const char name[] = "generate";

static void print_warning(void *arg, const char *line)
{
    (void)arg;
    oct_cli_line("octet: warning: ", line);
}

static void print_text(void *arg, const char *bytes, int64_t count)
{
    (void)arg;
    fwrite(bytes, 1, (size_t)count, stdout);
    fflush(stdout);
}

/* The run's config.yaml stands beside the folder of checkpoints. */
static oct_status load_config(const oct_checkpoint_dir *dir, oct_arena *arena, oct_config *config,
                              oct_err *err)
{
    char path[OCT_CHECKPOINT_DIR_MAX + 32];
    if (dir->single[0])
        (void)snprintf(path, sizeof path, "%s/../../config.yaml", dir->single);
    else
        (void)snprintf(path, sizeof path, "%s/../config.yaml", dir->root);
    if (access(path, R_OK) != 0)
        return OCT_FAIL(err, OCT_E_CHECKPOINT,
                        "cannot find the configuration of the checkpoint: the config.yaml of its "
                        "run directory is required (%s)",
                        path);
    const char *const files[] = {path};
    OCT_TRY(oct_config_load(files, 1, NULL, 0, arena, NULL, NULL, config, err));
    return oct_config_resolve(config, 1, err);
}

static oct_status open_checkpoint(const oct_checkpoint_dir *dir, oct_checkpoint **out, oct_err *err)
{
    if (dir->single[0])
        return oct_checkpoint_open(NULL, dir->single, OCT_VERIFY_CRC, print_warning, NULL, out,
                                   err);
    return oct_checkpoint_open_latest(NULL, dir->root, OCT_VERIFY_CRC, print_warning, NULL, out,
                                      err);
}

static oct_status run(const char *where, const oct_generate_options *options, oct_arena *arena,
                      oct_err *err)
{
    static oct_checkpoint_dir dir;
    static oct_config config;
    OCT_TRY(oct_checkpoint_dir_find(where, arena, &dir, err));
    OCT_TRY(load_config(&dir, arena, &config, err));
    oct_checkpoint *checkpoint = NULL;
    OCT_TRY(open_checkpoint(&dir, &checkpoint, err));
    fputs(options->prompt, stdout);
    const oct_status status = oct_generate(&config, checkpoint, options, err);
    putchar('\n');
    oct_checkpoint_close(checkpoint);
    return status;
}

static int read_real(const char *option, const char *text, double low, double high, double *out)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high)) {
        (void)oct_cli_usage(name, "wrong %s: found '%s', a number from %g to %g is required",
                            option, text, low, high);
        return -1;
    }
    *out = value;
    return 0;
}

int oct_command_generate(int argc, char **argv)
{
    const char *where = NULL, *prompt = NULL, *tokens = "200", *temperature = "0.8",
               *top_p = "0.95", *seed = "0";
    const struct {
        const char *option;
        const char **value;
    } options[] = {{"--prompt", &prompt},
                   {"--tokens", &tokens},
                   {"--temperature", &temperature},
                   {"--top-p", &top_p},
                   {"--seed", &seed}};
    for (int i = 1; i < argc; i++) {
        int taken = 0;
        for (size_t o = 0; !taken && o < sizeof options / sizeof options[0]; o++)
            taken = oct_cli_option(name, argc, argv, &i, options[o].option, options[o].value);
        if (taken < 0)
            return OCT_EXIT_USAGE;
        if (taken)
            continue;
        if (where || argv[i][0] == '-')
            return oct_cli_usage(name, "unexpected argument '%s'", argv[i]);
        where = argv[i];
    }
    if (!where || !prompt)
        return oct_cli_usage(name, "%s is required", where ? "--prompt TEXT" : "CHECKPOINT");
    long long token_count = 0, seed_value = 0;
    oct_generate_options generate = {.prompt = prompt, .emit = print_text};
    if (oct_cli_integer(name, "--tokens", tokens, 1, 1 << 20, &token_count) != 0 ||
        oct_cli_integer(name, "--seed", seed, 0, (1LL << 62), &seed_value) != 0 ||
        read_real("--temperature", temperature, 0.0, 100.0, &generate.temperature) != 0 ||
        read_real("--top-p", top_p, 1e-6, 1.0, &generate.top_p) != 0)
        return OCT_EXIT_USAGE;
    generate.tokens = token_count;
    generate.seed = (uint64_t)seed_value;

    oct_arena arena;
    oct_err err = {0};
    oct_arena_init(&arena, "generate");
    const oct_status status = run(where, &generate, &arena, &err);
    oct_arena_release(&arena);
    return status == OCT_OK ? OCT_EXIT_OK : oct_cli_fail(status, &err);
}
