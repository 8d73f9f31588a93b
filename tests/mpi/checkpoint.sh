#!/bin/sh
# Saves on some ranks, kills one of them in the middle of the next save, and loads on others:
# checkpoint.sh MPIRUN PROGRAM
set -u
mpirun=$1 program=$2
here=$(dirname "$0")
dir=$(mktemp -d "${TMPDIR:-/tmp}/octet-mpi-XXXXXX")
trap 'rm -rf "$dir"' EXIT
failed=0
run() { # ranks, arguments
    ranks=$1
    shift
    timeout 40 sh "$here/run.sh" "$mpirun" "$ranks" "$program" "$dir/root" "$@" >"$dir/log" 2>&1
}
complain() {
    echo "$1"
    cat "$dir/log"
    failed=1
}
# ranks, the step and the ranks that wrote it: nothing but whole checkpoints may be left
expect() {
    run "$1" load || complain "load on $1 ranks: exit code $?"
    grep -q "^step $2 of $3 ranks" "$dir/log" || complain "load on $1 ranks: not step $2 of $3 ranks"
    [ -z "$(ls "$dir/root" | grep -v '^step-[0-9]*$')" ] || complain "left: $(ls "$dir/root")"
}
# fault point, rank: the rank is killed there while 4 ranks save step 2
kill_at() {
    run 4 save 2 "$1" "$2" && complain "kill of rank $2 at $1: exit code 0"
    ls "$dir/root" | grep -q '^step-2.tmp-' || complain "kill of rank $2 at $1: too late or too early"
}
run 4 save 1 || complain "save on 4 ranks"
expect 3 1 4
kill_at checkpoint.data 3
kill_at checkpoint.commit 0
expect 2 1 4
kill_at checkpoint.publish 0
run 3 save 3 || complain "save on 3 ranks"
expect 4 3 3
expect 1 3 3
exit $failed
