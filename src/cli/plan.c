/* octet plan CONFIG...: a dry run on meta tensors. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/job.h"
#include "trainer/plan_report.h"
#include "trainer/step_time.h"

static const char name[] = "plan";

static void print_bytes(const char *what, int64_t bytes)
{
    printf("  %-16s %12.1f MB\n", what, 1e-6 * (double)bytes);
}

static void print_text(const oct_build *build, const oct_plan_report *report)
{
    printf("parameters: %lld, %lld active per token, %lld in low precision\n",
           (long long)report->parameters_total, (long long)report->parameters_active,
           (long long)report->parameters_low_precision);
    printf("replaced: %lld Linear, %lld experts\n", (long long)report->replaced_linear,
           (long long)report->replaced_experts);
    for (int64_t r = 0; r < oct_plan_rule_count(build->plan); r++)
        for (int64_t i = 0; i < oct_plan_rule_at(build->plan, r)->pattern_count; i++)
            printf("  %4lld hits  %s\n", (long long)oct_plan_hits(build->plan, r, i),
                   oct_plan_rule_at(build->plan, r)->patterns[i]);
    printf("products in high precision: %lld Linear, %lld experts, %lld router, %lld attention\n",
           (long long)report->high_precision.linear, (long long)report->high_precision.experts,
           (long long)report->high_precision.router, (long long)report->high_precision.attention);
    int64_t replicated = 0;
    for (int64_t i = 0; i < report->shard_count; i++)
        replicated += report->shards[i].replicated;
    printf("shards: %lld parameters over %lld ranks, %lld replicated\n",
           (long long)report->shard_count, (long long)report->ranks, (long long)replicated);
    const oct_plan_bytes *bytes = &report->bytes;
    puts("memory of the largest rank:");
    print_bytes("master", bytes->master);
    print_bytes("moments", bytes->moments);
    print_bytes("low precision", bytes->low_precision);
    print_bytes("high precision", bytes->high_precision);
    print_bytes("gradients", bytes->gradients);
    print_bytes("staging", bytes->staging);
    print_bytes("unsharded", bytes->unsharded);
    print_bytes("panels", bytes->panels);
    print_bytes("activations", bytes->activations);
    print_bytes("peak", bytes->peak);
    printf("communication per step: %.1f MB all-gather, %.1f MB reduce-scatter\n",
           1e-6 * (double)report->all_gather_bytes, 1e-6 * (double)report->reduce_scatter_bytes);
    printf("operations per token, forward and backward: %.6g (megatron), %.6g (torchtitan)\n",
           report->flops_per_token_megatron, report->flops_per_token_torchtitan);
}

static void print_seconds(const char *what, double seconds)
{
    printf("  %-16s %12.4f s\n", what, seconds);
}

static void print_time(const oct_machine *machine, const oct_step_time *time)
{
    printf("a step on %s, %lld threads a rank, %lld ranks a node:\n", machine->cpu,
           (long long)time->threads, (long long)machine->ranks_per_node);
    print_seconds("products", time->products);
    print_seconds("experts", time->experts);
    print_seconds("head", time->head);
    print_seconds("attention", time->attention);
    print_seconds("elementwise", time->elementwise);
    print_seconds("pack", time->pack);
    print_seconds("optimizer", time->optimizer);
    print_seconds("all-gather", time->all_gather);
    print_seconds("reduce-scatter", time->reduce_scatter);
    print_seconds("total", time->total);
    printf("tokens per second: %.6g, communication: %.1f %% of a step\n", time->tokens_per_second,
           100.0 * time->communication_share);
}

static oct_status print_json(const oct_build *build, const oct_plan_report *report,
                             const oct_machine *machine, oct_err *err)
{
    oct_json json;
    oct_json_init(&json);
    const oct_status status = oct_plan_report_json(build, report, machine, &json, err);
    if (status == OCT_OK)
        puts(json.text);
    oct_json_release(&json);
    return status;
}

static oct_status print_module(void *arg, const char *fqn, oct_module **slot, oct_err *err)
{
    (void)arg;
    (void)err;
    printf("%s  %s\n", *fqn ? fqn : "(root)", (*slot)->type->name);
    return OCT_OK;
}

/* Every module under its name, replaced as in training: on meta, nothing has values. */
static oct_status print_modules(oct_build *build, oct_err *err)
{
    OCT_TRY(oct_plan_apply(build->plan, &build->tree, &build->policy, &build->trace, err));
    return oct_module_walk(&build->tree, print_module, NULL, err);
}

/* What is asked for. */
typedef struct request {
    const char *ranks, *machine; /* machine NULL: no times */
    bool as_json, modules;
} request;

static int run(oct_job *job, int64_t ranks, const request *r)
{
    const char *machine_file = r->machine;
    const bool as_json = r->as_json;
    oct_build build;
    oct_plan_report report;
    oct_machine rates;
    const oct_machine *machine = machine_file ? &rates : NULL;
    oct_err err = {0};
    oct_build_init(&build, &job->config, NULL);
    oct_status status =
        machine_file ? oct_machine_read(machine_file, &job->arena, &rates, &err) : OCT_OK;
    const bool began = status == OCT_OK;
    if (status == OCT_OK)
        status = oct_build_through(&build, OCT_STAGE_PLAN, &err);
    if (status == OCT_OK)
        status = oct_plan_report_make(&build, ranks, &report, &err);
    if (status == OCT_OK && r->modules)
        status = print_modules(&build, &err);
    else if (status == OCT_OK && as_json)
        status = print_json(&build, &report, machine, &err);
    else if (status == OCT_OK)
        print_text(&build, &report);
    if (status == OCT_OK && machine && !as_json && !r->modules) {
        const oct_step_time time = oct_step_time_of(machine, &build, &report);
        print_time(machine, &time);
    }
    if (status != OCT_OK && began && !as_json)
        oct_cli_stopped(oct_stage_name((oct_stage)build.next_stage));
    oct_build_release(&build);
    return status == OCT_OK ? OCT_EXIT_OK : oct_cli_fail(status, &err);
}

int oct_command_plan(int argc, char **argv)
{
    static oct_job job;
    request r = {.ranks = "1"};
    for (int i = 1; i < argc; i++) {
        int taken = oct_cli_option(name, argc, argv, &i, "--ranks", &r.ranks);
        if (taken == 0)
            taken = oct_cli_option(name, argc, argv, &i, "--machine", &r.machine);
        if (taken < 0)
            return OCT_EXIT_USAGE;
        if (taken)
            continue;
        if (strcmp(argv[i], "--json") == 0)
            r.as_json = true;
        else if (strcmp(argv[i], "--print-modules") == 0)
            r.modules = true;
        else if (oct_job_argument(&job, name, argc, argv, &i) != 0)
            return OCT_EXIT_USAGE;
    }
    long long ranks = 1;
    if (oct_cli_integer(name, "--ranks", r.ranks, 1, 1 << 16, &ranks) != 0)
        return OCT_EXIT_USAGE;
    int code = oct_job_load(&job, name, (int)ranks);
    if (code != 0 && job.stage && !r.as_json)
        oct_cli_stopped(job.stage);
    if (code == 0)
        code = run(&job, ranks, &r);
    oct_job_release(&job);
    return code;
}
