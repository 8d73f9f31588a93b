/* One rank fails, hangs or dies; argv: RANKS MODE RANK. Each rank that comes to an end tells its
 * error on stdout and ends with the exit code of the error, as the program does. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"

/* Three phases; the chosen rank fails in the one that `mode` names. */
static oct_status work(oct_comm *comm, const char *mode, bool chosen, oct_err *err)
{
    oct_comm_phase(comm, "build", NULL);
    OCT_TRY(oct_comm_barrier(comm, err));
    oct_status status = OCT_OK;
    if (chosen && strcmp(mode, "agree") == 0)
        status =
            OCT_FAIL(err, OCT_E_DATA, "shard cannot be read: found nothing, a file is required");
    OCT_TRY(oct_comm_agree(comm, status, err));

    oct_comm_phase(comm, "forward", "model.layers.1");
    if (chosen && strcmp(mode, "leave") == 0)
        return OCT_FAIL(err, OCT_E_NOMEM, "no memory: found 0 bytes, 8 are required");
    if (chosen && strcmp(mode, "hang") == 0)
        for (;;)
            (void)pause();
    if (chosen && strcmp(mode, "kill") == 0)
        (void)raise(SIGKILL);
    if (chosen && strcmp(mode, "slow") == 0) {
        const struct timespec moment = {.tv_nsec = 100000000};
        for (int i = 0; i < 30; i++) {
            (void)nanosleep(&moment, NULL);
            oct_comm_progress(comm);
        }
    }
    int64_t value = 1;
    OCT_TRY(oct_comm_max_i64(comm, &value, 1, err));
    oct_comm_phase(comm, "backward", "model.layers.1");
    return oct_comm_barrier(comm, err);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    oct_comm_options options;
    oct_comm *comm = NULL;
    oct_err err = {0};
    if (oct_comm_options_from_environment(&options, &err) != OCT_OK ||
        oct_comm_create(&options, &comm, &err) != OCT_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    const int rank = oct_comm_rank(comm);
    oct_status status = work(comm, argv[2], rank == (int)strtol(argv[3], NULL, 10), &err);
    const bool agreed = strcmp(argv[2], "agree") == 0;
    if (status != OCT_OK && !agreed)
        oct_comm_leave(comm, &err);
    if (status != OCT_OK && err.rank == rank)
        fprintf(stderr, "octet: %s\n", err.msg);
    printf("rank %d: status %d from rank %d\n", rank, (int)status,
           status == OCT_OK ? -1 : err.rank);
    (void)fflush(stdout);
    if (oct_comm_is_broken(comm))
        oct_comm_abort(comm, 10 - (int)err.code);
    oct_comm_destroy(comm);
    return status == OCT_OK ? 0 : 10 - (int)err.code;
}
