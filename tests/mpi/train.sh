#!/bin/sh
# octet train under mpirun: train.sh OCTET SOURCE_DIR MPIRUN PYTHON. The numbers and checkpoints of one rank on 2
# and 4, a signal to one rank, and failures of one.
set -u
octet=$1 source=$2 mpirun=$3 python=$4
scratch=$(mktemp -d "${TMPDIR:-/tmp}/octet-mpi-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
OMP_WAIT_POLICY=passive OCTET_COMM_TIMEOUT=60
# MPI libraries leak.
ASAN_OPTIONS=detect_leaks=0 LSAN_OPTIONS=detect_leaks=0
export OMP_WAIT_POLICY OCTET_COMM_TIMEOUT ASAN_OPTIONS LSAN_OPTIONS
mkdir "$scratch/model"
cp "$source/tests/cli/files/config.json" "$scratch/model/"
cp "$source/tests/cli/files/train.yaml" "$scratch/"
cp "$source/configs/base.yaml" "$scratch/"
head -c 6000 "$source/LICENSE" >"$scratch/text.txt"
cd "$scratch" || exit 1
failed=0
complain() {
    echo "$1"
    cat err
    failed=1
}
train() { # ranks, run directory, words; the exit code
    ranks=$1 dir=$2
    shift 2
    timeout 100 "$octet" launch -n "$ranks" -- train train.yaml --run-dir "$dir" "$@" >out 2>err
}
numbers() { sed 's/"tokens_per_second".*"skipped"/"skipped"/; s/, "seconds".*//' "$1/metrics.jsonl"; }
# What a checkpoint holds, whoever wrote it, read by other eyes than octet's.
payload() {
    "$python" -B - "$source/tests/second" "$1" <<'END'
import os, sys, zlib
sys.path.insert(0, sys.argv[1])
import dcp
folder = sys.argv[2]
with open(os.path.join(folder, ".metadata"), "rb") as f:
    metadata = dcp._Unpickler(f).load()
chunks = {}
for index, info in metadata.storage_data.items():
    if "TensorStorageMetadata" not in type(metadata.state_dict_metadata[index.fqn]).__name__:
        continue
    with open(os.path.join(folder, info.relative_path), "rb") as f:
        f.seek(info.offset)
        bits, storage, shape = dcp._tensor(f.read(info.length))
    offset = list(index.offset.args[0]) if hasattr(index.offset, "args") else list(index.offset)
    chunks.setdefault(index.fqn, []).append((offset, storage, list(bits)))
for key, parts in sorted(chunks.items()):
    parts.sort()
    print(key, parts[0][1], zlib.crc32(repr([b for part in parts for b in part[2]]).encode()))
END
}
lines() { # pattern: one error line of octet, which has it
    [ "$(grep -a -v '^octet: warning: ' err | grep -c '^octet: ')" = 1 ] && grep -a -q "^octet: .*$1" err
}

# --- the same numbers, and checkpoints that go on on another number of ranks
set -- training.global_batch_size=8 low_precision.enabled=true \
    fsdp_config.fallback_to_unsharded=true
train 1 one "$@" || complain "1 rank: exit code $?"
train 2 two "$@" || complain "2 ranks: exit code $?"
train 4 four "$@" training.stop_at_step=2 || complain "4 ranks: exit code $?"
numbers one >one.txt
numbers two | cmp - one.txt || complain "2 ranks have other numbers"
[ "$(numbers four)" = "$(head -2 one.txt)" ] || complain "4 ranks have other numbers"
train 1 four "$@" || complain "4 ranks, then 1: exit code $?"
numbers four | cmp - one.txt || complain "4 ranks, then 1: other numbers"
for dir in two four; do
    "$octet" checkpoint verify "$dir/checkpoints/step-4" >out 2>err || complain "verify $dir"
done
payload one/checkpoints/step-4 >one.txt
grep -q 'optimizer.state.*exp_avg_sq' one.txt || complain "payload is not read"
for dir in two four; do
    payload "$dir/checkpoints/step-4" | cmp - one.txt || complain "other payload"
done
rm -rf one two four

# --- SIGTERM that reaches one rank only
signalled() { # fault, rows required
    OCTET_FAULT=$1 train 4 stopped training.global_batch_size=8 checkpoint.save_steps=2
    code=$?
    [ "$code" = 143 ] || complain "$1: exit code $code, required 143"
    rows=$(grep -c . stopped/metrics.jsonl)
    [ "$rows" = "$2" ] || complain "$1: $rows rows, required $2"
    newest=none
    for step in 1 2 3 4; do
        [ -e "stopped/checkpoints/step-$step" ] && newest=$step
    done
    [ "$newest" = "${3:-$2}" ] || complain "$1: newest checkpoint $newest, required ${3:-$2}"
    [ "$(grep -a -c '^octet: ' err)" = 0 ] || complain "$1: an error was told"
    rm -rf stopped
}
signalled trainer.pass:3:rank=1:term 3
signalled trainer.saving:1:rank=2:term 2
signalled trainer.build:5:rank=1:term 0 none
signalled trainer.data:1:rank=3:term 0 none

# --- failures of one rank
fails() { # fault, exit code, message
    OCTET_FAULT=$1 train 4 broken training.global_batch_size=8
    code=$?
    [ "$code" = "$2" ] || complain "$1: exit code $code, required $2"
    lines "$3" || complain "$1: not one line '$3'"
    [ ! -e broken/checkpoints ] || [ -z "$(ls broken/checkpoints)" ] || complain "$1: a checkpoint"
    rm -rf broken
}
fails trainer.data:1:rank=1 3 "cannot read training data"
fails trainer.pass:1:rank=3 7 "cannot get memory"

# --- every rank its own folder: data that only one misses, and data that differs
cat >elsewhere <<END
#!/bin/sh
shift # the number of ranks
[ "\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-0}}" != 1 ] || cd other
exec "$octet" "\$@"
END
chmod +x elsewhere
mkdir other
cp -r model base.yaml train.yaml other/
apart() { # exit code, message
    timeout 100 sh "$source/tests/mpi/run.sh" "$mpirun" 2 ./elsewhere train train.yaml \
        --run-dir "$scratch/broken" >out 2>err
    code=$?
    [ "$code" = "$1" ] || complain "apart: exit code $code, required $1"
    lines "$2" || complain "apart: not one line '$2'"
}
apart 3 "text.txt"
head -c 5999 text.txt >other/text.txt
apart 2 "ranks have different training data"
cp text.txt other/text.txt
timeout 100 sh "$source/tests/mpi/run.sh" "$mpirun" 2 ./elsewhere train train.yaml --run-dir here \
    >out 2>err
code=$?
[ "$code" = 2 ] || complain "two run directories: exit code $code, required 2"
lines "there is none on rank 1, one held by pid" || complain "two run directories: not told once"
exit $failed
