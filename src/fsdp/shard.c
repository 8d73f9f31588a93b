#include "fsdp/shard.h"

#include <stdio.h>

#include "base/size.h"

oct_shard oct_shard_of(oct_shard_rule rule, int ndim, const int64_t *shape, int64_t ranks,
                       int64_t rank)
{
    const int64_t rows = shape[0];
    if (rule == OCT_SHARD_EVEN)
        return (oct_shard){.row_begin = rank * (rows / ranks), .rows = rows / ranks};
    const int64_t unit = ndim == 3 ? 1 : OCT_SHARD_TILE_ROWS;
    const int64_t units = oct_ceil_div(rows, unit);
    const int64_t begin = oct_min_i64(rank * units / ranks * unit, rows);
    const int64_t end = oct_min_i64((rank + 1) * units / ranks * unit, rows);
    return (oct_shard){.row_begin = begin, .rows = end - begin};
}

bool oct_shard_divides(oct_shard_rule rule, const int64_t *shape, int64_t ranks)
{
    return rule == OCT_SHARD_TILE || shape[0] % ranks == 0;
}

/* NULL if every cut between two ranks is legal; else what is required. *cut = the first row or
 * expert that begins a shard where none may, -1 where dim 0 does not divide. */
static const char *broken_rule(const oct_sharding *sharding, const oct_param *param,
                               const oct_shard_law *law, int64_t *cut)
{
    *cut = -1;
    if (sharding->ranks == 1)
        return NULL;
    if (!oct_shard_divides(sharding->rule, param->shape, sharding->ranks))
        return "dim 0 divisible by the ranks (fsdp_config.shard: even)";
    for (int64_t r = 1; law && r < sharding->ranks; r++) {
        const int64_t begin = oct_shard_of_param(sharding, param, false, r).row_begin;
        if (begin > 0 && begin < param->shape[0] &&
            !law->rows_legal(param->ndim, param->shape, begin)) {
            *cut = begin;
            return law->required;
        }
    }
    return NULL;
}

enum { SHAPE_BYTES = 96 };

/* "[64, 2816, 2048]" */
static const char *shape_text(const oct_param *param, char text[SHAPE_BYTES])
{
    int used = snprintf(text, SHAPE_BYTES, "[");
    for (int d = 0; d < param->ndim; d++)
        used += snprintf(text + used, (size_t)(SHAPE_BYTES - used), "%s%lld", d ? ", " : "",
                         (long long)param->shape[d]);
    (void)snprintf(text + used, (size_t)(SHAPE_BYTES - used), "]");
    return text;
}

oct_status oct_shard_decide(const oct_sharding *sharding, const oct_param *param,
                            const oct_shard_law *law, bool *replicated, oct_err *err)
{
    int64_t cut = -1;
    const char *required = broken_rule(sharding, param, law, &cut);
    *replicated = required != NULL;
    if (!required || sharding->fallback_to_unsharded)
        return OCT_OK;
    const char *rows = param->ndim == 3 ? "experts" : "rows";
    char shape[SHAPE_BYTES], found[64] = "";
    if (cut >= 0)
        (void)snprintf(found, sizeof found, " with a cut after %lld", (long long)cut);
    return OCT_FAIL(err, OCT_E_SHAPE,
                    "cannot shard '%s' %s: %lld %s over %lld ranks%s, %s is required (or set "
                    "fsdp_config.fallback_to_unsharded)",
                    param->fqn, shape_text(param, shape), (long long)param->shape[0], rows,
                    (long long)sharding->ranks, found, required);
}

oct_shard oct_shard_of_param(const oct_sharding *sharding, const oct_param *param, bool replicated,
                             int64_t rank)
{
    if (replicated)
        return (oct_shard){.rows = param->shape[0]};
    return oct_shard_of(sharding->rule, param->ndim, param->shape, sharding->ranks, rank);
}
