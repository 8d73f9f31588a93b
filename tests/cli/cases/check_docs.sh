# exit: 1
# stdout: docs/map.md: `src/plan/missing.c` does not exist
# stdout: docs/map.md: chapter 9.2 stands 0 times*
# stdout: docs/known-limits.md: 15.7 stands 0 times*
# stdout: src/verify/failures.c: no rule shows 15.18
# stdout: docs: 4 problems
command -v python3 >/dev/null || exit 77
mkdir project
for entry in "$SOURCE_DIR"/*; do
    ln -s "$entry" "project/$(basename "$entry")"
done
rm project/docs project/src
cp -r "$SOURCE_DIR/docs" "$SOURCE_DIR/src" project/
sed -i '/^| 9.2 |/d; s|`src/plan/plan.c`, `src/plan/apply.c`|`src/plan/missing.c`|' project/docs/map.md
sed -i '/^| 15.7 |/d' project/docs/known-limits.md
sed -i 's/15\.18/18.15/g' project/src/verify/failures.c
"$SOURCE_DIR/scripts/check-docs" project
