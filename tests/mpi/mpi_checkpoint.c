/* One save or one load by the ranks of an MPI job; argv: RANKS ROOT save STEP [POINT RANK] | RANKS
 * ROOT load. With a fault point the rank kills itself there. A load makes a writer first, as a
 * start does, checks every element of the rows that its rank owns and tells the step on rank 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "checkpoint/checkpoint.h"

enum { ROWS = 700, COLS = 5 };

static const int64_t shape[2] = {ROWS, COLS};

/* Tiles of 64 rows, the last one short. */
static void own_rows(const oct_comm *comm, int64_t *begin, int64_t *rows)
{
    const int64_t tiles = (ROWS + 63) / 64, rank = oct_comm_rank(comm), size = oct_comm_size(comm);
    const int64_t end = tiles * (rank + 1) / size * 64;
    *begin = tiles * rank / size * 64;
    *rows = (end < ROWS ? end : ROWS) - *begin;
}

static float value_at(int64_t step, int64_t element)
{
    return (float)(step * 100000 + element) * 0.125f;
}

static oct_status make_list(const oct_comm *comm, int64_t step, float *data, oct_item_list *list,
                            oct_err *err)
{
    int64_t begin, rows;
    own_rows(comm, &begin, &rows);
    for (int64_t i = 0; i < rows * COLS; i++)
        data[i] = value_at(step, begin * COLS + i);
    OCT_TRY(
        oct_item_add_shard(list, "model.weight", OCT_DTYPE_F32, 2, shape, begin, rows, data, err));
    return oct_item_add_int(list, "train_state", "step", step, err);
}

static oct_status save(oct_comm *comm, const char *root, int64_t step, oct_err *err)
{
    static float data[ROWS * COLS];
    const oct_checkpoint_options options = {.comm = comm, .root = root, .chunk_bytes = 1000};
    const oct_checkpoint_meta meta = {0};
    oct_checkpoint_writer *writer = NULL;
    oct_item_list list;
    oct_item_list_init(&list);
    oct_status status = oct_checkpoint_writer_create(&options, &writer, err);
    if (status == OCT_OK)
        status = make_list(comm, step, data, &list, err);
    if (status == OCT_OK)
        status = oct_checkpoint_save(writer, step, &list, &meta, err);
    oct_checkpoint_writer_destroy(writer);
    oct_item_list_release(&list);
    return status;
}

static oct_status check_rows(oct_comm *comm, const oct_checkpoint *cp, oct_err *err)
{
    static float data[ROWS * COLS];
    int64_t begin, rows, step = -1;
    own_rows(comm, &begin, &rows);
    OCT_TRY(oct_checkpoint_read_int(cp, "train_state.step", &step, err));
    OCT_TRY(oct_checkpoint_read_rows(cp, "model.weight", 2, shape, begin, rows, data, err));
    for (int64_t i = 0; i < rows * COLS; i++)
        if (data[i] != value_at(step, begin * COLS + i) || step != oct_checkpoint_step(cp))
            return OCT_FAIL(err, OCT_E_CORRUPT, "wrong element %lld of step %lld", (long long)i,
                            (long long)step);
    return OCT_OK;
}

static oct_status load(oct_comm *comm, const char *root, oct_err *err)
{
    const oct_checkpoint_options options = {.comm = comm, .root = root};
    oct_checkpoint_writer *writer = NULL;
    oct_checkpoint *cp = NULL;
    OCT_TRY(oct_checkpoint_writer_create(&options, &writer, err));
    oct_checkpoint_writer_destroy(writer);
    OCT_TRY(oct_checkpoint_open_latest_together(comm, NULL, root, OCT_VERIFY_CRC, NULL, NULL, &cp,
                                                err));
    oct_status status = cp ? check_rows(comm, cp, err)
                           : OCT_FAIL(err, OCT_E_CHECKPOINT, "no checkpoint in '%s'", root);
    status = oct_comm_agree(comm, status, err);
    if (status == OCT_OK && oct_comm_rank(comm) == 0)
        printf("step %lld of %lld ranks\n", (long long)oct_checkpoint_step(cp),
               (long long)oct_checkpoint_world(cp));
    oct_checkpoint_close(cp);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    oct_comm *comm = NULL;
    oct_err err = {0};
    if (oct_comm_create(NULL, &comm, &err) != OCT_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    oct_status status = OCT_OK;
    if (argc > 6 && oct_comm_rank(comm) == (int)strtol(argv[6], NULL, 10))
        status = oct_fault_arm(argv[5], 1, OCT_FAULT_KILL, &err);
    if (status == OCT_OK && strcmp(argv[3], "save") == 0 && argc > 4)
        status = save(comm, argv[2], strtoll(argv[4], NULL, 10), &err);
    else if (status == OCT_OK)
        status = load(comm, argv[2], &err);
    if (status != OCT_OK)
        fprintf(stderr, "rank %d: %s\n", oct_comm_rank(comm), err.msg);
    oct_comm_destroy(comm);
    return status == OCT_OK ? 0 : 1;
}
