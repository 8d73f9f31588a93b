#!/bin/sh
# Runs one case of the command line in a folder of its own.
#
#   run.sh OCTET JSON_CHECK SOURCE_DIR CASE
#
# A case is a POSIX shell script with its expectation in comments at its top:
#   # exit: 2                      exit code of the script (it stops at the first failure)
#   # stderr: octet: *text*        glob of the one error line; without: no error line at all
#   # stdout: *text*               glob that some line of stdout matches; may stand several times
# It finds `octet`, `json_check` (jansson behind a pipe: PATH=VALUE...), `npy_text`, a tiny model in model/,
# text.txt, train.yaml, its torchtitan twin train.toml, and both examples of the guide (guide_*.toml); $SOURCE_DIR is the project. A case that cannot run here says so and exits
# with 77.
set -eu
octet=$1 json_check=$2
SOURCE_DIR=$3
case=$4
export SOURCE_DIR
scratch=$(mktemp -d "${TMPDIR:-/tmp}/octet-cli-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/work" "$scratch/work/model"
ln -s "$octet" "$scratch/bin/octet"
ln -s "$json_check" "$scratch/bin/json_check"
ln -s "$(dirname "$json_check")/npy_text" "$scratch/bin/npy_text"
PATH="$scratch/bin:$PATH"
OMP_WAIT_POLICY=passive
export PATH OMP_WAIT_POLICY
cp "$SOURCE_DIR/tests/cli/files/config.json" "$scratch/work/model/"
cp "$SOURCE_DIR/tests/cli/files/train.yaml" "$SOURCE_DIR/tests/cli/files/train.toml" \
    "$SOURCE_DIR"/tests/unit/fixtures/guide_*.toml "$scratch/work/"
cp "$SOURCE_DIR/configs/base.yaml" "$scratch/work/"
head -c 6000 "$SOURCE_DIR/LICENSE" >"$scratch/work/text.txt"
cp "$case" "$scratch/case"

status=0
(cd "$scratch/work" && sh -eu "$scratch/case") >"$scratch/stdout" 2>"$scratch/stderr" || status=$?

fail() {
    echo "$1"
    echo "--- stdout"
    cat "$scratch/stdout"
    echo "--- stderr"
    cat "$scratch/stderr"
    exit 1
}
expect() { sed -n "s/^# $1: //p" "$case"; }

if [ "$status" = 77 ]; then
    cat "$scratch/stdout"
    exit 77
fi
wanted=$(expect exit)
[ "$status" = "${wanted:-0}" ] || fail "exit code $status, required ${wanted:-0}"

# One failure is one line; besides it only notes of overridden keys and of
# what is launched, warnings and the usage line.
errors=$(grep -v '^octet: warning: ' "$scratch/stderr" | grep -c '^octet: ' || true)
line=$(grep -v '^octet: warning: ' "$scratch/stderr" | grep '^octet: ' || true)
pattern=$(expect stderr)
if [ -n "$pattern" ]; then
    [ "$errors" = 1 ] || fail "$errors error lines, required 1"
    # shellcheck disable=SC2254
    case $line in
    $pattern) ;;
    *) fail "the error line does not match '$pattern'" ;;
    esac
else
    [ "$errors" = 0 ] || fail "found an error line, required none"
fi
if grep -vE '^(octet: |usage: octet |override |launch: )' "$scratch/stderr" >"$scratch/rest"; then
    fail "stderr has other lines"
fi

expect stdout >"$scratch/patterns"
while IFS= read -r pattern; do
    found=no
    while IFS= read -r line || [ -n "$line" ]; do
        # shellcheck disable=SC2254
        case $line in
        $pattern)
            found=yes
            break
            ;;
        esac
    done <"$scratch/stdout"
    [ "$found" = yes ] || fail "no line of stdout matches '$pattern'"
done <"$scratch/patterns"

# For `ctest -V` and the log of CTest.
cat "$scratch/stdout"
