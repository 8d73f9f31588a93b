# liboctet, shared and static: the functions of include/octet/ and what they need of octet_core,
# nothing else. Both export the symbols of src/api/octet.map only (docs/adr/0036-c-api.md).
file(GLOB OCTET_API_SOURCES CONFIGURE_DEPENDS src/api/*.c)
set(OCTET_MAP ${PROJECT_SOURCE_DIR}/src/api/octet.map)

add_library(octet_api OBJECT ${OCTET_API_SOURCES})
target_include_directories(octet_api PRIVATE src include)
target_link_libraries(octet_api PRIVATE octet_flags OpenMP::OpenMP_C)
target_compile_definitions(octet_api PRIVATE
  OCTET_PROJECT_MAJOR=${PROJECT_VERSION_MAJOR} OCTET_PROJECT_MINOR=${PROJECT_VERSION_MINOR}
  OCTET_PROJECT_PATCH=${PROJECT_VERSION_PATCH})

# The archive octet_core gives up only the members that something refers to.
add_library(octet_shared SHARED $<TARGET_OBJECTS:octet_api>)
set_target_properties(octet_shared PROPERTIES OUTPUT_NAME octet EXPORT_NAME octet LINKER_LANGUAGE C
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${OCTET_MAP})
target_link_options(octet_shared PRIVATE LINKER:--version-script=${OCTET_MAP} LINKER:--as-needed)
if(NOT OCTET_SANITIZE AND NOT OCTET_COVERAGE) # their runtimes come with the program
  target_link_options(octet_shared PRIVATE LINKER:-z,defs)
endif()
target_link_libraries(octet_shared PRIVATE octet_flags $<TARGET_FILE:octet_core> OpenMP::OpenMP_C m)
add_dependencies(octet_shared octet_core)
target_include_directories(octet_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)

# One relocatable object, in which hidden symbols become local: they cannot clash with a program's.
set(OCTET_OBJECT ${PROJECT_BINARY_DIR}/octet_static.o)
add_custom_command(OUTPUT ${OCTET_OBJECT}
  COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${OCTET_OBJECT} $<TARGET_OBJECTS:octet_api>
    $<TARGET_FILE:octet_core>
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${OCTET_OBJECT}
  DEPENDS octet_api $<TARGET_OBJECTS:octet_api> octet_core
  COMMAND_EXPAND_LISTS VERBATIM)
add_library(octet_static STATIC ${OCTET_OBJECT})
set_source_files_properties(${OCTET_OBJECT} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
set_target_properties(octet_static PROPERTIES OUTPUT_NAME octet LINKER_LANGUAGE C)
target_link_libraries(octet_static PRIVATE OpenMP::OpenMP_C m)
target_include_directories(octet_static INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)

add_library(octet::octet ALIAS octet_shared)
add_library(octet::octet_static ALIAS octet_static)

# --- installation ----------------------------------------------------------------------------------
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(OCTET_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/octet)

file(RELATIVE_PATH OCTET_PC_TO_PREFIX
  /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" OCTET_PC_TO_PREFIX "${OCTET_PC_TO_PREFIX}")
# By name where the compiler finds the runtime of its own accord, else by path.
foreach(name ${OpenMP_C_LIB_NAMES})
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=lib${name}.so
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(IS_ABSOLUTE "${found}" OR name STREQUAL "pthread")
    list(APPEND OCTET_PC_LIBS_PRIVATE -l${name})
  else()
    list(APPEND OCTET_PC_LIBS_PRIVATE ${OpenMP_${name}_LIBRARY})
  endif()
endforeach()
list(APPEND OCTET_PC_LIBS_PRIVATE -lm)
list(JOIN OCTET_PC_LIBS_PRIVATE " " OCTET_PC_LIBS_PRIVATE)
configure_file(cmake/octet.pc.in octet.pc @ONLY)
configure_package_config_file(cmake/octet-config.cmake.in octet-config.cmake
  INSTALL_DESTINATION ${OCTET_CMAKE_DIR})
write_basic_package_version_file(octet-config-version.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS octet)
install(TARGETS octet_shared EXPORT octet-targets)
install(TARGETS octet_static EXPORT octet-static-targets)
install(EXPORT octet-targets NAMESPACE octet:: DESTINATION ${OCTET_CMAKE_DIR})
install(EXPORT octet-static-targets NAMESPACE octet:: DESTINATION ${OCTET_CMAKE_DIR})
install(FILES ${PROJECT_BINARY_DIR}/octet-config.cmake ${PROJECT_BINARY_DIR}/octet-config-version.cmake
  DESTINATION ${OCTET_CMAKE_DIR})
install(FILES ${PROJECT_BINARY_DIR}/octet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY include/octet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs FILES_MATCHING PATTERN "*.md")
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/octet)
