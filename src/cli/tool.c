#include "cli/tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

oct_status oct_tool_open(oct_tool *tool, oct_err *err)
{
    oct_isa isa = OCT_ISA_REF;
    *tool = (oct_tool){0};
    oct_arena_init(&tool->memory, "tensors");
    oct_arena_init(&tool->scratch, "scratch");
    OCT_TRY(oct_isa_choose(&isa, err));
    oct_kernels_init(&tool->kernels, isa);
    tool->exec = (oct_exec){
        .kernels = &tool->kernels, .threads = oct_cpu_count(), .scratch = &tool->scratch};
    return OCT_OK;
}

void oct_tool_close(oct_tool *tool)
{
    oct_arena_release(&tool->memory);
    oct_arena_release(&tool->scratch);
}

int oct_tool_missing(const char *command, const char *what)
{
    return oct_cli_usage(command, "%s is required", what);
}

int oct_tool_arguments(const char *command, int argc, char **argv, const oct_tool_option *options,
                       size_t option_count, const char *flag, bool *flag_value,
                       const char **positional, int count)
{
    int found = 0;
    for (int i = 1; i < argc; i++) {
        int taken = 0;
        for (size_t o = 0; !taken && o < option_count; o++)
            taken = oct_cli_option(command, argc, argv, &i, options[o].option, options[o].value);
        if (taken < 0)
            return -1;
        if (taken)
            continue;
        if (flag && strcmp(argv[i], flag) == 0) {
            *flag_value = true;
            continue;
        }
        const bool is_option = argv[i][0] == '-' && argv[i][1] == '-';
        if (is_option || found == count) {
            (void)oct_cli_usage(command, "unexpected argument '%s'", argv[i]);
            return -1;
        }
        positional[found++] = argv[i];
    }
    if (found < count) {
        (void)oct_cli_usage(command, "found %d of its files, %d are required", found, count);
        return -1;
    }
    return 0;
}

int oct_tool_word(const char *command, const char *option, const char *text,
                  const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    char list[256] = "";
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
    (void)oct_cli_usage(command, "wrong %s: found '%s', one of %s is required", option, text, list);
    return -1;
}

oct_status oct_tool_groups(const char *text, oct_arena *arena, oct_groups *groups, oct_err *err)
{
    *groups = (oct_groups){0};
    if (!text)
        return OCT_OK;
    int64_t count = 1;
    for (const char *c = text; *c; c++)
        count += *c == ',';
    void *memory = NULL;
    OCT_TRY(oct_arena_array(arena, count, sizeof(int64_t), &memory, err));
    int64_t *ends = memory, total = 0;
    const char *at = text;
    for (int64_t g = 0; g < count; g++) {
        char *end = NULL;
        errno = 0;
        const long long rows = strtoll(at, &end, 10);
        const bool digits = *at >= '0' && *at <= '9';
        if (!digits || errno || (*end != ',' && *end != '\0') ||
            __builtin_add_overflow(total, rows, &total))
            return OCT_FAIL(err, OCT_E_CONFIG,
                            "wrong --groups: found '%s', numbers of rows with commas between are "
                            "required (--groups)",
                            text);
        ends[g] = total;
        at = end + 1;
    }
    *groups = (oct_groups){.count = count, .ends = ends};
    return OCT_OK;
}
