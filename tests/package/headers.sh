#!/bin/sh
# Every public header alone, as C11, C17 and C++, without a warning; none includes anything but
# public and standard headers.
#
#   headers.sh CC CXX SOURCE_DIR
set -eu
cc=$1 cxx=$2 source=$3
scratch=$(mktemp -d "${TMPDIR:-/tmp}/octet-headers-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
count=0
for header in "$source"/include/octet/*.h; do
    name=octet/$(basename "$header")
    # Twice: the guard works. A function after it: the braces of extern "C" are closed.
    printf '#include <%s>\n#include <%s>\nint test_unit(void);\nint test_unit(void) { return 0; }\n' \
        "$name" "$name" >"$scratch/unit.c"
    cp "$scratch/unit.c" "$scratch/unit.cc"
    for standard in c11 c17; do
        "$cc" -std=$standard -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes \
            -Werror -fsyntax-only -I"$source/include" "$scratch/unit.c"
    done
    for standard in c++11 c++20; do
        "$cxx" -std=$standard -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror \
            -fsyntax-only -I"$source/include" "$scratch/unit.cc"
    done
    count=$((count + 1))
done
[ "$count" -ge 8 ] || { echo "found $count headers, at least 8 are required"; exit 1; }
if grep -n '# *include' "$source"/include/octet/*.h |
    grep -vE '<(octet/[a-z]+|stdint|stddef|stdbool)\.h>'; then
    echo "^ public headers include public and standard headers only"
    exit 1
fi

# The initializers, from C++.
cat >"$scratch/use.cc" <<'C'
#include <octet/octet.h>
int main()
{
    octet_operand operand = OCTET_OPERAND_INIT;
    octet_context_settings settings = OCTET_CONTEXT_SETTINGS_INIT;
    octet_features features = OCTET_FEATURES_INIT;
    octet_quantize_settings quantize = OCTET_QUANTIZE_SETTINGS_INIT;
    octet_output output = OCTET_OUTPUT_INIT;
    octet_product_report report = OCTET_PRODUCT_REPORT_INIT;
    return octet_operand_bytes(&operand, nullptr, nullptr, nullptr) +
           int(settings.threads + features.threads + quantize.saturate + output.ld + report.fma);
}
C
"$cxx" -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$source/include" \
    "$scratch/use.cc"
