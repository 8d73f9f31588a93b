# Cross build for 64-bit Arm with Debian's gcc-aarch64-linux-gnu; tests run under qemu-user. The
# libraries are those that scripts/fetch-aarch64 puts below build/aarch64-libs.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(libs "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-libs" ABSOLUTE)
set(CMAKE_C_FLAGS_INIT "-isystem ${libs}/usr/include/aarch64-linux-gnu")
set(CMAKE_FIND_ROOT_PATH "${libs}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} "${libs}/usr/lib/aarch64-linux-gnu/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${libs}")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu
    -E "LD_LIBRARY_PATH=${libs}/usr/lib/aarch64-linux-gnu:${libs}/lib/aarch64-linux-gnu")
