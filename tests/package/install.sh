#!/bin/sh
# Installs into a folder of its own, moves it, and builds and runs the installed examples against it:
# with CMake (shared and static), with pkg-config (shared and static), and from NumPy.
#
#   install.sh CMAKE BUILD_DIR CC
set -eu
cmake=$1 build=$2 cc=$3
tests=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/octet-install-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
run() { # what, command...
    what=$1
    shift
    "$@" >log 2>&1 || { echo "$what failed:"; cat log; exit 1; }
}
have() {
    for file in "$@"; do
        [ -e "prefix/$file" ] || { echo "not installed: $file"; exit 1; }
    done
}

run "cmake --install" "$cmake" --install "$build" --prefix "$scratch/first"
mv first prefix # nothing may remember where it was installed
prefix=$scratch/prefix
lib=$(dirname "$(find prefix -name 'liboctet.so.0')")
lib=${lib#prefix/}
have bin/octet "$lib/liboctet.a" "$lib/liboctet.so" "$lib/pkgconfig/octet.pc" \
    "$lib/cmake/octet/octet-config.cmake" include/octet/octet.h share/doc/octet/docs/c-api.md \
    share/octet/configs/base.yaml share/doc/octet/docs/spec/mxfp8.md share/doc/octet/examples/CMakeLists.txt
if grep -rlI "$scratch/first" prefix; then
    echo "^ remembers where it was installed first"
    exit 1
fi
[ "$(prefix/bin/octet --version)" = "octet $(sed -n 's/^Version: //p' "prefix/$lib/pkgconfig/octet.pc")" ] ||
    { echo "the versions of the program and of octet.pc differ"; exit 1; }
cp -r prefix/share/doc/octet/examples examples
OMP_WAIT_POLICY=passive OMP_NUM_THREADS=2
export OMP_WAIT_POLICY OMP_NUM_THREADS

run "cmake with find_package" "$cmake" -S examples -B cmake -G Ninja "-DCMAKE_C_COMPILER=$cc" \
    "-DCMAKE_PREFIX_PATH=$prefix"
run "building with find_package" "$cmake" --build cmake
for program in quantize product product_static; do
    run "$program of the CMake build" "cmake/$program"
    cp log "$program.cmake"
done
readelf -d cmake/product | grep -q 'liboctet.so.0' || { echo "product is not linked to liboctet.so.0"; exit 1; }
if readelf -d cmake/product_static | grep -q 'liboctet'; then
    echo "product_static needs a shared liboctet"
    exit 1
fi
cmp product.cmake product_static.cmake || exit 1

PKG_CONFIG_PATH=$prefix/$lib/pkgconfig
export PKG_CONFIG_PATH
run "make with pkg-config" make -C examples "CC=$cc" MAKEFLAGS=
LD_LIBRARY_PATH=$prefix/$lib run "quantize of the pkg-config build" examples/quantize
cmp log quantize.cmake || exit 1

# Without the shared library, pkg-config --static links the archive and what it needs.
cp -r prefix static
rm "static/$lib"/liboctet.so*
make -C examples clean >/dev/null
PKG_CONFIG_PATH=$scratch/static/$lib/pkgconfig \
    run "make with pkg-config --static" make -C examples STATIC=1 "CC=$cc" MAKEFLAGS=
run "product of the static pkg-config build" examples/product
cmp log product.cmake || exit 1

# The bytes of the example are those of the program.
grep -q '^mxfp8' quantize.cmake && grep -q '^hif8' quantize.cmake ||
    { echo "the quantize example printed no bytes"; cat quantize.cmake; exit 1; }

python=
for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import numpy' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || { echo "no python3 with NumPy, python3-numpy is required"; exit 1; }
OCTET_LIBRARY=$prefix/$lib/liboctet.so.0 run "the NumPy example" "$python" examples/octet_numpy.py
grep -q 'refused: octet_product_workspace_bytes: ' log || { echo "no refusal:"; cat log; exit 1; }
run "the comparison of program and library" env "OCTET_LIBRARY=$prefix/$lib/liboctet.so.0" "$python" \
    "$tests/same_as_program.py" prefix/bin/octet examples
