# exit: 0
mkdir project
cp -r "$SOURCE_DIR/src" "$SOURCE_DIR/scripts" "$SOURCE_DIR/CMakeLists.txt" "$SOURCE_DIR/CMakePresets.json" project/
project/scripts/check-source >/dev/null
plant() { # file, line
    cp "project/$1" kept
    echo "$2" >>"project/$1"
    if project/scripts/check-source >/dev/null; then
        echo "not found: $2"
        exit 1
    fi
    mv kept "project/$1"
}
plant src/trainer/train.c 'void f(char *a, const char *b) { strcpy(a, b); }'
plant src/cli/main.c 'int g(void) { return atoi("1"); }'
plant src/optim/optimizer.c 'void h(void) { exit(1); }'
plant src/data/dataset.c 'void p(void) { printf("x"); }'
plant CMakeLists.txt 'add_compile_options(-ffast-math)'
plant src/base/cpu.c 'void m(void) { _MM_SET_FLUSH_ZERO_MODE(1); }'
