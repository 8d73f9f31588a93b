#include "verify/low_precision_off.h"

#include <stdio.h>

#include "trainer/build.h"

/* What a finished build holds. */
typedef struct inventory {
    int64_t bytes[OCT_LEDGER_CATEGORIES];
    int64_t modules, derived, storages, weights, targets;
} inventory;

static oct_status count_module(void *arg, const char *fqn, oct_module **slot, oct_err *err)
{
    inventory *all = arg;
    (void)fqn;
    (void)err;
    all->modules++;
    all->derived += (*slot)->type->base != NULL && (*slot)->state != NULL;
    return OCT_OK;
}

static oct_status take_inventory(oct_build *build, inventory *all, oct_err *err)
{
    *all = (inventory){0};
    OCT_TRY(oct_build_through(build, OCT_STAGE_MASTERS, err));
    OCT_TRY(oct_module_walk(&build->tree, count_module, all, err));
    for (int c = 0; c < OCT_LEDGER_CATEGORIES; c++)
        all->bytes[c] = build->ledger.live_bytes[c];
    for (int64_t p = 0; p < build->tree.param_count; p++)
        all->storages += build->tree.params[p]->storage != NULL;
    all->weights = build->weights.count;
    (void)oct_plan_targets(build->plan, &all->targets);
    return OCT_OK;
}

static oct_status build_with(const char *const *words, int count, inventory *all, oct_err *err)
{
    static const char *const file = "configs/verify.yaml";
    oct_arena arena;
    oct_config config;
    oct_build build;
    oct_arena_init(&arena, "configuration");
    oct_status status = oct_config_load(&file, 1, words, count, &arena, NULL, NULL, &config, err);
    if (status == OCT_OK)
        status = oct_config_resolve(&config, 1, err);
    if (status == OCT_OK) {
        oct_build_init(&build, &config, NULL);
        status = take_inventory(&build, all, err);
        oct_build_release(&build);
    }
    oct_arena_release(&arena);
    return status;
}

oct_status oct_low_precision_off_objects(oct_off_objects *out, oct_err *err)
{
    static const char *const off[] = {"low_precision.enabled=false", "low_precision.format=hif8",
                                      "low_precision.scaling=current"};
    inventory bare, with;
    OCT_TRY(build_with(NULL, 0, &bare, err));
    OCT_TRY(build_with(off, 3, &with, err));
    int64_t bytes = 0;
    for (int c = 0; c < OCT_LEDGER_CATEGORIES; c++)
        bytes += with.bytes[c] > bare.bytes[c] ? with.bytes[c] - bare.bytes[c]
                                               : bare.bytes[c] - with.bytes[c];
    const int64_t objects =
        with.derived + with.storages + with.weights + with.targets +
        with.bytes[OCT_LEDGER_LOW_PRECISION] +
        (with.modules > bare.modules ? with.modules - bare.modules : bare.modules - with.modules);
    *out = (oct_off_objects){.extra = objects + bytes};
    (void)snprintf(out->text, sizeof out->text,
                   "%lld modules, %lld replaced; %lld 8-bit weights; %lld bytes of 8-bit storage; "
                   "%lld bytes of other memory differ",
                   (long long)with.modules, (long long)(with.derived + with.targets),
                   (long long)(with.storages + with.weights),
                   (long long)with.bytes[OCT_LEDGER_LOW_PRECISION], (long long)bytes);
    return OCT_OK;
}
