/* Under mpirun, any number of ranks: comm_cases over MPI. argv: the number of ranks and the end of
 * the description required. */
#include "base/fault.h"
#include "comm_cases.h"

int main(int argc, char **argv)
{
    oct_comm_options options;
    oct_comm *comm = NULL;
    oct_err err = {0};
    if (oct_fault_arm_from_environment(&err) != OCT_OK ||
        oct_comm_options_from_environment(&options, &err) != OCT_OK ||
        oct_comm_create(&options, &comm, &err) != OCT_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    int failures = argc > 1 && oct_comm_size(comm) != (int)strtol(argv[1], NULL, 10);
    const char *wanted = argc > 2 ? argv[2] : "";
    const size_t length = strlen(oct_comm_describe(comm)), end = strlen(wanted);
    EXPECT(comm, end <= length && strcmp(oct_comm_describe(comm) + length - end, wanted) == 0);
    failures += comm_cases(comm);
    int64_t all = failures;
    if (oct_comm_max_i64(comm, &all, 1, &err) != OCT_OK)
        all = 1;
    if (oct_comm_rank(comm) == 0)
        printf("%s: %s\n", oct_comm_describe(comm), all ? "FAILED" : "passed");
    oct_comm_destroy(comm);
    return all ? 1 : 0;
}
