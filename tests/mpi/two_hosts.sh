#!/bin/sh
# Two hosts made of network namespaces, two ranks on each, TCP between them: what every comm must
# do, a rank that leaves, and a rank that hangs. two_hosts.sh MPIRUN MPI_COMM MPI_FAILURE.
# 77: needs root, ip, unshare and Open MPI.
set -u
mpirun=$1 comm=$2 failure=$3
skip() {
    echo "SKIPPED: $1"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "not root"
command -v ip >/dev/null && command -v unshare >/dev/null || skip "no ip or unshare"
case $("$mpirun" --version 2>&1) in *"Open MPI"* | *OpenRTE*) ;; *) skip "not Open MPI" ;; esac

id=$$ scratch=$(mktemp -d "${TMPDIR:-/tmp}/octet-hosts-XXXXXX")
clean() {
    ip netns del "octet-$id-a" 2>/dev/null
    ip netns del "octet-$id-b" 2>/dev/null
    rm -rf "$scratch"
}
trap clean EXIT
{
    ip netns add "octet-$id-a" && ip netns add "octet-$id-b" &&
        ip link add octa netns "octet-$id-a" type veth peer name octb netns "octet-$id-b" &&
        ip -n "octet-$id-a" addr add 10.77.0.1/24 dev octa &&
        ip -n "octet-$id-b" addr add 10.77.0.2/24 dev octb
    for host in a b; do
        ip -n "octet-$id-$host" link set lo up && ip -n "octet-$id-$host" link set "oct$host" up
    done
} 2>"$scratch/log" || skip "no network namespaces: $(head -1 "$scratch/log")"

printf '127.0.0.1 localhost\n10.77.0.1 octet-a\n10.77.0.2 octet-b\n' >"$scratch/hosts"
cat >"$scratch/enter" <<END
#!/bin/sh
# HOST COMMAND..., as rsh takes them
while [ "\${1#-}" != "\$1" ]; do shift; done
host=\$1
shift
exec ip netns exec "octet-$id-\${host#octet-}" unshare --uts --mount sh -c \\
    "hostname \$host && mount --bind '$scratch/hosts' /etc/hosts && \$*"
END
chmod +x "$scratch/enter"

OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HWLOC_COMPONENTS=-gl
OCTET_COMM_PIECE=64 OCTET_COMM_TIMEOUT=2
# Open MPI leaves memory behind; only sanitizer builds look at this.
ASAN_OPTIONS=detect_leaks=0 LSAN_OPTIONS=detect_leaks=0
export ASAN_OPTIONS LSAN_OPTIONS
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM HWLOC_COMPONENTS OCTET_COMM_PIECE
export OCTET_COMM_TIMEOUT
failed=0
# OCTET_SHM, exit code, a pattern that one line matches, program and arguments
try() {
    shm=$1 wanted=$2 pattern=$3
    shift 3
    OCTET_SHM=$shm timeout 60 "$scratch/enter" octet-a "'$mpirun' --oversubscribe --bind-to none \
        --mca plm_rsh_agent '$scratch/enter' --mca pml ob1 --mca btl self,vader,tcp \
        --host octet-a:2,octet-b:2 -n 4 -x OCTET_SHM -x OCTET_COMM_PIECE -x OCTET_COMM_TIMEOUT \
        -x HWLOC_COMPONENTS -x ASAN_OPTIONS -x LSAN_OPTIONS $*" >"$scratch/log" 2>&1
    code=$?
    if [ "$code" != "$wanted" ] || [ "$(grep -c "$pattern" "$scratch/log")" != 1 ]; then
        echo "shm $shm, $*: exit code $code, required $wanted and one line '$pattern'"
        cat "$scratch/log"
        failed=1
    fi
}
try 1 0 "4 ranks, Open MPI, shared memory in groups of 2: passed" "$comm" 4
try 0 0 "4 ranks, Open MPI, no shared memory: passed" "$comm" 4
try 1 12 "^octet: no memory" "$failure" 4 leave 3
try 1 20 "^octet: communication hangs .* rank 2 is awaited" "$failure" 4 hang 2
exit $failed
