#include "fsdp/shard.h"

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
