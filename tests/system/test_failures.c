/* Every failure rule, through the library: where a run stops, what the error holds, that the model
 * is what it was, and that nothing computes in high precision instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

#include "team_fixture.h"
#include "trainer/converters.h"
#include "trainer/plan_report.h"
#include "verify/failure_run.h"

static const char frozen[] = OCTET_SOURCE_DIR "/configs/deepseek_v3_16b/mxfp8.yaml";

static int make_files(void **state)
{
    assert_int_equal(chdir(OCTET_SOURCE_DIR), 0); /* paths of the 16B are relative to it */
    return make_team_files(state);
}

/* --- a configuration ------------------------------------------------------------------------- */

static bool is_frozen(const oct_failure *f)
{
    return f->base == OCT_FAILURE_16B;
}

static int ranks_of(const oct_failure *f)
{
    return f->ranks ? f->ranks : is_frozen(f) ? 8 : 1;
}

/* The stage that refuses it, NULL if none does. */
static const char *read_config(const oct_failure *f, oct_arena *arena, oct_config *config,
                               oct_err *err)
{
    const char *paths[2] = {frozen, NULL}, *words[MAX_WORDS + OCT_FAILURE_WORDS];
    int files_count = 1, count = 0;
    if (f->toml) {
        char job[4096];
        assert_int_equal(oct_failure_job(f, OCTET_SOURCE_DIR "/configs/base.toml",
                                         word("%s/model", files.path), job, sizeof job, err),
                         OCT_OK);
        temp_dir_write(&files, "row.toml", job);
        paths[0] = word("%s/row.toml", files.path);
        for (int i = 0; oct_failure_toml_words[i]; i++)
            words[count++] = oct_failure_toml_words[i];
    } else if (!is_frozen(f)) {
        paths[0] = word("%s/train.yaml", files.path);
        for (int i = 0; oct_failure_small_words[i]; i++)
            words[count++] = oct_failure_small_words[i];
    }
    if (f->yaml) {
        temp_dir_write(&files, "row.yaml", f->yaml);
        paths[files_count++] = word("%s/row.yaml", files.path);
    }
    for (int i = 0; i < OCT_FAILURE_WORDS && f->words[i]; i++)
        words[count++] = f->words[i];
    if (oct_config_load(paths, files_count, words, count, arena, NULL, NULL, config, err) !=
            OCT_OK ||
        oct_converters_expand(config, arena, NULL, NULL, err) != OCT_OK)
        return oct_failure_parse;
    return oct_config_resolve(config, ranks_of(f), err) == OCT_OK ? NULL : oct_failure_resolve;
}

static void plant(const oct_failure *f)
{
    oct_err err = {0};
    oct_fault_disarm_all();
    if (f->isa)
        (void)setenv("OCTET_ISA", f->isa, 1);
    if (f->fault)
        (void)setenv(OCT_FAULT_ENV, f->fault, 1);
    assert_int_equal(oct_fault_arm_from_environment(&err), OCT_OK);
}

static void clear(void)
{
    (void)unsetenv("OCTET_ISA");
    (void)unsetenv(OCT_FAULT_ENV);
    oct_fault_disarm_all();
}

static void assert_as_required(const oct_failure *f, const char *stage, const oct_err *err)
{
    if (!stage)
        fail_msg("%s: nothing was refused, stage '%s' is required to", f->id, f->stage);
    if (strcmp(stage, f->stage) != 0)
        fail_msg("%s: refused at '%s', required '%s': %s", f->id, stage, f->stage, err->msg);
    for (int i = 0; i < OCT_FAILURE_HOLDS && f->holds[i]; i++)
        if (!strstr(err->msg, f->holds[i]))
            fail_msg("%s: the message has no '%s': %s", f->id, f->holds[i], err->msg);
}

/* --- stages of the build --------------------------------------------------------------------- */

static oct_status hash_module(void *arg, const char *fqn, oct_module **slot, oct_err *err)
{
    uint64_t *hash = arg;
    (void)err;
    *hash = hash_bytes(*hash, fqn, strlen(fqn));
    *hash = hash_bytes(*hash, &(*slot)->type, sizeof(*slot)->type);
    *hash = hash_bytes(*hash, &(*slot)->param_count, sizeof(*slot)->param_count);
    return OCT_OK;
}

/* Types, names and parameters of all modules, and every value that there is. */
static uint64_t hash_model(oct_build *build)
{
    uint64_t hash = hash_start;
    oct_err err = {0};
    if (!build->tree.root)
        return hash;
    assert_int_equal(oct_module_walk(&build->tree, hash_module, &hash, &err), OCT_OK);
    for (int64_t p = 0; p < build->tree.param_count; p++) {
        const oct_param *param = build->tree.params[p];
        hash = hash_bytes(hash, param->fqn, strlen(param->fqn));
        hash = hash_bytes(hash, param->shape, sizeof param->shape);
        hash = hash_bytes(hash, &param->requires_grad, sizeof param->requires_grad);
        if (param->init)
            hash = hash_bytes(hash, param->init,
                              (size_t)oct_param_own_numel(param) * sizeof *param->init);
    }
    return hash;
}

/* Builds one rank stage by stage: the one that fails leaves the model as it was. */
static const char *build_until_refused(const oct_failure *f, const oct_config *config, oct_err *err)
{
    oct_build build;
    const char *stage = NULL;
    oct_build_init(&build, config, NULL);
    for (int s = 0; s < OCT_STAGE_COUNT && !stage; s++) {
        if (is_frozen(f) && s == OCT_STAGE_CUT) {
            oct_plan_report report;
            if (oct_plan_report_make(&build, ranks_of(f), &report, err) != OCT_OK)
                stage = oct_stage_name(OCT_STAGE_CUT);
            break;
        }
        const uint64_t before = hash_model(&build);
        if (oct_build_stage(&build, (oct_stage)s, err) == OCT_OK)
            continue;
        stage = oct_stage_name((oct_stage)s);
        assert_int_equal(build.next_stage, s);
        if (s > OCT_STAGE_META && hash_model(&build) != before)
            fail_msg("%s: stage '%s' failed and left another model", f->id, stage);
    }
    oct_build_release(&build);
    return stage;
}

/* --- whole runs ------------------------------------------------------------------------------ */

/* Trains until it is refused; the directory has to look as the rule says. */
static const char *train_until_refused(const oct_failure *f, const oct_config *config, oct_err *err)
{
    const char *run = word("run-%s", f->id);
    char path[512], why[OCT_FAILURE_TEXT];
    (void)snprintf(path, sizeof path, "%s/%s", files.path, run);
    const char *stage = NULL;
    if (f->ranks > 1) {
        team *t = team_create(f->ranks, 0);
        train_team_with(config, path, NULL, t);
        for (int r = 0; r < f->ranks; r++) {
            const record *of = t->of[r];
            if (of->status == OCT_OK || strcmp(of->err.msg, t->of[0]->err.msg) != 0)
                fail_msg("%s: rank %d ended with '%s', that of rank 0 is required: '%s'", f->id, r,
                         of->err.msg, t->of[0]->err.msg);
        }
        const int origin = t->of[0]->err.rank;
        *err = t->of[0]->err;
        stage = t->of[origin]->result.failed_at;
        if (f->fault && strstr(f->fault, "rank=1") && origin != 1)
            fail_msg("%s: the failure began on rank %d, required 1: %s", f->id, origin, err->msg);
        team_free(t);
    } else {
        record *r = record_create();
        train_rank(NULL, path, config, NULL, r);
        *err = r->err;
        stage = r->status == OCT_OK ? NULL : r->result.failed_at;
        free(r);
    }
    oct_err lost = {0};
    if (oct_failure_left(f, path, why, &lost) != OCT_OK)
        fail_msg("%s: %s", f->id, lost.msg);
    if (why[0])
        fail_msg("%s: %s", f->id, why);
    return stage;
}

/* --- the rows -------------------------------------------------------------------------------- */

static void failure__one_rule__at_its_stage_with_its_message(void **state)
{
    const oct_failure *f = *state;
    oct_arena arena;
    oct_config config;
    oct_err err = {0};
    oct_arena_init(&arena, "test configuration");
    const char *stage = read_config(f, &arena, &config, &err);
    if (!stage && (is_frozen(f) || f->ranks <= 1)) {
        plant(f);
        const bool steps = f->stage == oct_failure_step || strchr(f->stage, ' ');
        const char *refused = steps ? NULL : build_until_refused(f, &config, &err);
        if (refused)
            assert_as_required(f, refused, &err);
        stage = refused;
    }
    if (!is_frozen(f) && (!stage || (stage != oct_failure_parse && stage != oct_failure_resolve))) {
        err = (oct_err){0};
        plant(f);
        stage = train_until_refused(f, &config, &err);
    }
    clear();
    assert_as_required(f, stage, &err);
    oct_arena_release(&arena);
}

/* Each item of the requirements has a row, each row an id of its own and a message to look for. */
static void failures__table__covers_every_row_once(void **state)
{
    (void)state;
    static const char *const required[] = {
        "1.9",   "1.10",  "1.14",  "4.6",   "4.7",   "4.12",  "4.14",  "4.15",  "4.16",  "4.20",
        "15.1",  "15.2",  "15.3",  "15.4",  "15.5",  "15.6",  "15.7",  "15.8",  "15.9",  "15.10",
        "15.11", "15.12", "15.13", "15.14", "15.15", "15.16", "15.17", "15.18", "15.19", "15.20",
        "14.11", "16.2",  "16.5",  "16.6",  "16.7",  "16.8",  "16.16", "K1",    "K19",   "17.3.1h"};
    for (size_t r = 0; r < sizeof required / sizeof required[0]; r++) {
        int shown = 0;
        for (const oct_failure *f = oct_failures; f->id; f++)
            shown += oct_failure_shows(f, required[r]);
        if (shown == 0)
            fail_msg("no failure rule shows %s", required[r]);
    }
    for (const oct_failure *f = oct_failures; f->id; f++) {
        assert_true(f->rows && f->wrong && f->stage && f->exit_code > 0);
        assert_non_null(f->holds[1]);
        for (const oct_failure *g = oct_failures; g != f; g++)
            assert_string_not_equal(f->id, g->id);
    }
}

/* A refresh that failed in step 3 has left new masters and old codes: nothing of that is kept. */
static int end_row(void **state)
{
    (void)state;
    clear();
    return 0;
}

static void failures__after_the_fault__the_run_goes_on_to_the_same_bits(void **state)
{
    (void)state;
    static const char *const points[] = {"weight.refresh", "matmul.grouped.wgrad"};
    record *whole = record_create(), *r = record_create();
    const char *const *words = WORDS("training.train_iters=4", "checkpoint.save_steps=1");
    train(&files, "whole", 1, NULL, words, whole);
    assert_trained(whole);
    for (int i = 0; i < 2; i++) {
        const char *run = word("again-%d", i);
        const oct_failure planted = {.fault = word("%s:1:step=3", points[i])};
        plant(&planted);
        train(&files, run, 1, NULL, words, r);
        clear();
        assert_refused(r, OCT_E_KERNEL, "a fault is planted", NULL);
        train(&files, run, 1, NULL, words, r);
        assert_trained(r);
        assert_true(r->masters[r->attempts - 1] == whole->masters[3]);
        assert_true(r->moments[r->attempts - 1] == whole->moments[3]);
    }
    free(whole);
    free(r);
}

int main(void)
{
    enum { MOST = 256 };
    static struct CMUnitTest tests[MOST] = {
        cmocka_unit_test(failures__table__covers_every_row_once),
        cmocka_unit_test(failures__after_the_fault__the_run_goes_on_to_the_same_bits),
    };
    size_t count = 2;
    for (const oct_failure *f = oct_failures; f->id && count < MOST; f++)
        tests[count++] = (struct CMUnitTest){
            .name = f->id,
            .test_func = failure__one_rule__at_its_stage_with_its_message,
            .teardown_func = end_row,
            .initial_state = (void *)(uintptr_t)f,
        };
    return _cmocka_run_group_tests("failures", tests, count, make_files, remove_train_files);
}
