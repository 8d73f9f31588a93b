#!/bin/sh
# Runs a program under mpirun as `octet launch` does: run.sh MPIRUN RANKS PROGRAM [ARGUMENT...]
# The program gets the number of ranks as its first argument.
set -eu
mpirun=$1 ranks=$2
shift 2
program=$1
shift
case $("$mpirun" --version 2>&1) in
*"Open MPI"* | *OpenRTE*)
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    HWLOC_COMPONENTS=${HWLOC_COMPONENTS--gl}
    export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM HWLOC_COMPONENTS
    # Only this machine: no search for networks, which takes seconds in some containers.
    set -- --oversubscribe --bind-to none --mca pml ob1 --mca btl self,vader "$program" "$ranks" "$@"
    ;;
*)
    set -- "$program" "$ranks" "$@"
    ;;
esac
# MPI libraries leak.
LSAN_OPTIONS=detect_leaks=0 ASAN_OPTIONS=detect_leaks=0 exec "$mpirun" -n "$ranks" "$@"
