# exit: 0
# A rank bound to one core is told, an unbound one is not.
[ "$(nproc)" -ge 2 ] || exit 0
case $(mpirun --version 2>&1) in *"Open MPI"*) ;; *) exit 0 ;; esac
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HWLOC_COMPONENTS=-gl
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM HWLOC_COMPONENTS
mpirun -n 1 --bind-to core octet train train.yaml --print-config >/dev/null 2>bound
grep -q '^octet: warning: rank 0 may use 1 of [0-9]* cores, and 1 of 1 ranks share them' bound
mpirun -n 1 --bind-to none octet train train.yaml --print-config >/dev/null 2>unbound
! grep -q 'cores' unbound
