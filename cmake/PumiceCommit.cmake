# Run by every build (cmake -P): writes what is being built to OUTPUT, a C++ header that is touched
# only when that changed. SOURCE is the repository, GIT the program or empty.
set(commit unknown)
set(dirty false)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0)
    set(commit ${head})
    execute_process(COMMAND ${GIT} -C ${SOURCE} diff-index --quiet HEAD --
      OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      set(dirty true)
    endif()
  endif()
endif()
set(text "#define PUMICE_COMMIT \"${commit}\"\n#define PUMICE_COMMIT_IS_DIRTY ${dirty}\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUTPUT} "${text}")
endif()
