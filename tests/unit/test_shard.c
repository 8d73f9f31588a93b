/* Which rows a rank owns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fsdp/shard.h"

/* Every row has one owner, in rank order, and inner cuts are whole tiles. */
static void assert_cut(int ndim, int64_t rows, int64_t ranks, int64_t unit)
{
    const int64_t shape[3] = {rows, 10, 10};
    int64_t next = 0;
    for (int64_t r = 0; r < ranks; r++) {
        const oct_shard shard = oct_shard_of(OCT_SHARD_TILE, ndim, shape, ranks, r);
        assert_int_equal(shard.row_begin, next);
        assert_true(shard.rows >= 0);
        next += shard.rows;
        assert_true(next % unit == 0 || next == rows);
    }
    assert_int_equal(next, rows);
}

static void shard_of__tile__covers_every_row_once_in_whole_tiles(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 63, 64, 65, 257, 2048, 2816, 3072, 3136, 10944, 102400};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int64_t ranks = 1; ranks <= 9; ranks++) {
            assert_cut(1, rows[i], ranks, OCT_SHARD_TILE_ROWS);
            assert_cut(2, rows[i], ranks, OCT_SHARD_TILE_ROWS);
            assert_cut(3, rows[i], ranks, 1);
        }
}

/* Tiles per rank of the frozen 16B, counted by hand: r*T/R rounded down. */
static void shard_of__frozen_16b__is_the_table(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, ranks, tiles[8];
    } table[] = {
        {2048, 2, {16, 16}},
        {2048, 8, {4, 4, 4, 4, 4, 4, 4, 4}},
        {3072, 4, {12, 12, 12, 12}},
        {3136, 2, {24, 25}},
        {3136, 4, {12, 12, 12, 13}},
        {3136, 8, {6, 6, 6, 6, 6, 6, 6, 7}},
        {10944, 2, {85, 86}},
        {10944, 4, {42, 43, 43, 43}},
        {10944, 8, {21, 21, 22, 21, 21, 22, 21, 22}},
        {2816, 8, {5, 6, 5, 6, 5, 6, 5, 6}},
        {102400, 8, {200, 200, 200, 200, 200, 200, 200, 200}},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        for (int64_t r = 0; r < table[i].ranks; r++) {
            const int64_t shape[3] = {table[i].rows, 2048, 0};
            const oct_shard shard = oct_shard_of(OCT_SHARD_TILE, 2, shape, table[i].ranks, r);
            assert_int_equal(shard.rows, 64 * table[i].tiles[r]);
        }
}

static void shard_of__experts__are_never_split(void **state)
{
    (void)state;
    const int64_t shape[3] = {10, 2816, 2048};
    static const int64_t experts[4] = {2, 3, 2, 3};
    for (int64_t r = 0; r < 4; r++)
        assert_int_equal(oct_shard_of(OCT_SHARD_TILE, 3, shape, 4, r).rows, experts[r]);
}

static void shard_of__fewer_tiles_than_ranks__some_own_nothing(void **state)
{
    (void)state;
    const int64_t shape[3] = {100, 8, 0}; /* two tiles, the last one short */
    static const int64_t rows[4] = {0, 64, 0, 36};
    for (int64_t r = 0; r < 4; r++)
        assert_int_equal(oct_shard_of(OCT_SHARD_TILE, 2, shape, 4, r).rows, rows[r]);
}

static void shard_of__even__same_rows_and_only_if_they_divide(void **state)
{
    (void)state;
    const int64_t shape[3] = {10944, 2048, 0};
    assert_true(oct_shard_divides(OCT_SHARD_EVEN, shape, 8));
    assert_false(oct_shard_divides(OCT_SHARD_EVEN, shape, 7));
    assert_true(oct_shard_divides(OCT_SHARD_TILE, shape, 7));
    for (int64_t r = 0; r < 8; r++) {
        const oct_shard shard = oct_shard_of(OCT_SHARD_EVEN, 2, shape, 8, r);
        assert_int_equal(shard.row_begin, 1368 * r);
        assert_int_equal(shard.rows, 1368);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shard_of__tile__covers_every_row_once_in_whole_tiles),
        cmocka_unit_test(shard_of__frozen_16b__is_the_table),
        cmocka_unit_test(shard_of__experts__are_never_split),
        cmocka_unit_test(shard_of__fewer_tiles_than_ranks__some_own_nothing),
        cmocka_unit_test(shard_of__even__same_rows_and_only_if_they_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
