/* Which ranks there are: what launchers and users say in the environment. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "comm/transport.h"

static oct_status read_number(const char *name, const char *need, double low, double high,
                              double *out, oct_err *err)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return OCT_OK;
    char *end = NULL;
    errno = 0;
    const double value = strtod(text, &end);
    if (errno || *end != '\0' || !(value >= low && value <= high))
        return OCT_FAIL(err, OCT_E_CONFIG, "cannot set up communication: found '%s', %s (%s)", text,
                        need, name);
    *out = value;
    return OCT_OK;
}

oct_status oct_comm_options_from_environment(oct_comm_options *options, oct_err *err)
{
    *options = (oct_comm_options){0};
    double shm = 1.0, timeout = 0.0, piece = 0.0;
    OCT_TRY(read_number("OCTET_SHM", "0, 1 or the number of ranks that share memory is required",
                        0.0, 65536.0, &shm, err));
    OCT_TRY(read_number("OCTET_COMM_TIMEOUT", "seconds from 0.1 to 1e7 are required", 0.1, 1e7,
                        &timeout, err));
    OCT_TRY(read_number("OCTET_COMM_PIECE",
                        "bytes, a multiple of 64 from 64 to 1073741824, are required", 64.0,
                        1073741824.0, &piece, err));
    if (shm != floor(shm))
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot set up communication: found %g, a whole number is required "
                        "(OCTET_SHM)",
                        shm);
    if (fmod(piece, 64.0) != 0.0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot set up communication: found %g, a multiple of 64 is required "
                        "(OCTET_COMM_PIECE)",
                        piece);
    options->node_ranks = shm == 1.0 ? 0 : shm == 0.0 ? 1 : (int)shm;
    options->timeout_seconds = timeout;
    options->piece_bytes = (size_t)piece;
    return OCT_OK;
}

/* Ranks that a launcher says there are; 0 if it says nothing or there is none. */
static int launched_size(const char **variable)
{
    /* Open MPI's mpirun, MPICH's and Intel's, srun; innermost first. */
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        const long size = text ? strtol(text, NULL, 10) : 0;
        if (size >= 1 && size <= INT_MAX) {
            *variable = names[i];
            return (int)size;
        }
    }
    *variable = "PMIX_RANK";
    return 0;
}

oct_status oct_comm_create(const oct_comm_options *options, oct_comm **out, oct_err *err)
{
    const char *variable = NULL;
    const int size = launched_size(&variable);
    if (size == 0 && !getenv("PMIX_RANK"))
        return oct_comm_create_one(out, err);
    const oct_status status = oct_comm_create_mpi(options, out, err);
    if (status == OCT_E_UNSUPPORTED && size == 1)
        return oct_comm_create_one(out, err);
    if (status != OCT_OK)
        return OCT_WRAP(err, status, "a launcher started %d ranks (%s)", size, variable);
    if (size > 0 && size != oct_comm_size(*out)) {
        const int found = oct_comm_size(*out);
        oct_comm_destroy(*out);
        *out = NULL;
        return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                        "cannot join the other ranks: MPI found %d of the %d that were launched "
                        "(%s), a launcher of the same MPI is required",
                        found, size, variable);
    }
    return OCT_OK;
}
