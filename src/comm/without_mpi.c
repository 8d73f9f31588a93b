/* Compiled instead of mpi_network.c where there is no MPI. */
#include "comm/transport.h"

oct_status oct_comm_create_mpi(const oct_comm_options *options, oct_comm **out, oct_err *err)
{
    (void)options;
    (void)out;
    return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                    "cannot join the other ranks: this octet was built without MPI, a build with "
                    "OCTET_MPI=ON is required");
}
