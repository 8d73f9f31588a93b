#!/bin/sh
# Both libraries export what include/octet/ declares, at the version of src/api/octet.map, and
# nothing else; the shared one needs the C library, libm and the OpenMP runtime only.
#
#   exported_symbols.sh SHARED STATIC SOURCE_DIR
set -eu
shared=$1 static=$2 source=$3
scratch=$(mktemp -d "${TMPDIR:-/tmp}/octet-symbols-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
status=0

same() { # what, found, wanted
    if ! diff "$2" "$3" >"$scratch/diff"; then
        echo "$1: found (<) and wanted (>) differ"
        cat "$scratch/diff"
        status=1
    fi
}

tr '\n' ' ' <"$source/src/api/octet.map" | grep -oE 'octet_[a-z0-9_]+' | sort >"$scratch/map"
cat "$source"/include/octet/*.h | tr '\n' ' ' | sed 's/OCTET_API/\n&/g' | grep '^OCTET_API' |
    sed -n 's/^OCTET_API [^(]*[ *]\(octet_[a-z0-9_]*\)(.*/\1/p' | sort >"$scratch/headers"
[ -s "$scratch/headers" ] || { echo "no declarations found: the test is broken"; exit 1; }
same "octet.map and the headers" "$scratch/map" "$scratch/headers"

sed 's/$/@@OCTET_0.1/' "$scratch/headers" >"$scratch/versioned"
nm -D --defined-only "$shared" | awk '$2 != "A" { print $3 }' | sort >"$scratch/shared"
same "the shared library" "$scratch/shared" "$scratch/versioned"

nm -g --defined-only "$static" | awk 'NF == 3 { print $3 }' | sort >"$scratch/static"
same "the static library" "$scratch/static" "$scratch/headers"

readelf -d "$shared" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -vE '^(libc|libm|libgomp|libomp|libpthread|ld-linux.*)\.' >"$scratch/needed" || true
if [ -s "$scratch/needed" ]; then
    echo "the shared library needs more than the C library, libm and the OpenMP runtime:"
    cat "$scratch/needed"
    status=1
fi
soname=$(readelf -d "$shared" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[ "$soname" = liboctet.so.0 ] || { echo "SONAME is '$soname', liboctet.so.0 is required"; status=1; }
exit $status
