# The commit that the program is built from, as a source file that changes only with it:
#   cmake -DSOURCE=DIR -DOUT=FILE -DVERSION=V -P cmake/commit.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed OR commit STREQUAL "")
  set(commit "version ${VERSION}")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "extern const char octet_commit[];
const char octet_commit[] = \"${commit}\";
" @ONLY)
