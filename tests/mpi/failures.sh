#!/bin/sh
# What becomes of the other ranks when one fails, leaves, hangs, is slow or is killed:
# failures.sh MPIRUN PROGRAM OCTET_SHM. Every run ends by itself.
set -u
mpirun=$1 program=$2 shm=$3
here=$(dirname "$0")
log=$(mktemp "${TMPDIR:-/tmp}/octet-mpi-XXXXXX")
trap 'rm -f "$log" "$log.err"' EXIT
failed=0
complain() {
    echo "$1"
    cat "$log" "$log.err"
    failed=1
}
# mode, rank, ranks, exit codes (Open MPI's, MPICH's), pattern of lines of stdout and how many at least, pattern of the one
# error line
try() {
    OCTET_SHM=$shm OCTET_COMM_TIMEOUT=${timeout:-1} timeout 40 \
        sh "$here/run.sh" "$mpirun" "$3" "$program" "$1" "$2" >"$log" 2>"$log.err"
    code=$?
    what="shm $shm, $1 on rank $2 of $3"
    case "|$4|" in *"|$code|"*) ;; *) complain "$what: exit code $code, required $4" ;; esac
    [ "$(grep -c "$5" "$log")" -ge "$6" ] || complain "$what: fewer than $6 lines '$5'"
    [ -z "$7" ] || [ "$(grep -c "^octet: .*$7" "$log.err")" = 1 ] ||
        complain "$what: not one line '$7'"
}
case $shm in
1)
    try agree 2 4 21 "status -11 from rank 2" 4 "shard cannot be read"
    try leave 0 4 12 "status -2 from rank 0" 1 "no memory"
    timeout=30 try kill 1 4 "137|9" "" 0 ""
    last="forward model.layers.1"
    ;;
0)
    try leave 2 4 12 "status -2 from rank 2" 1 "no memory"
    last=".*" # what a rank of another node does is told now and then only
    ;;
*)
    try agree 0 4 21 "status -11 from rank 0" 4 "shard cannot be read"
    try leave 3 4 12 "status -2 from rank 3" 1 "no memory"
    last=".*"
    ;;
esac
try hang 1 3 20 "status -10" 1 \
    "hangs in phase 'forward model.layers.1' on rank [02]: no progress of any rank for 1 s, rank 1 is awaited, last seen in phase '$last'"
try slow 1 3 0 "status 0 from rank -1" 3 ""
exit $failed
