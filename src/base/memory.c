#include "base/memory.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/size.h"

static int64_t physical_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (int64_t)pages * page : INT64_MAX;
}

/* "max", which is no number, means none. */
static int64_t control_group_bytes(void)
{
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "re");
    long long bytes = 0;
    const int read = file ? fscanf(file, "%lld", &bytes) : 0;
    if (file)
        fclose(file);
    return read == 1 && bytes > 0 ? bytes : INT64_MAX;
}

static int64_t address_space_bytes(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur >= (rlim_t)INT64_MAX)
        return INT64_MAX;
    return (int64_t)limit.rlim_cur;
}

int64_t oct_memory_limit(void)
{
    const int64_t system = oct_min_i64(physical_bytes(), control_group_bytes());
    return oct_min_i64(system, address_space_bytes());
}
