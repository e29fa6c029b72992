# pumice_library(NAME SOURCES … DEPENDS …): one static library per module, included by its path below
# runtime/ or the repository root ("vk/device.hpp", "cache/page_pool.hpp").
# What systems do differently is in a file of each name for each system: file_${PUMICE_SYSTEM}.cpp.
set(PUMICE_SYSTEM posix)
if(WIN32)
  set(PUMICE_SYSTEM windows)
endif()
add_library(pumice_options INTERFACE)
target_compile_options(pumice_options INTERFACE -Wall -Wextra -Wshadow -Wno-missing-field-initializers
  $<$<BOOL:${PUMICE_WARNINGS_AS_ERRORS}>:-Werror>)
target_include_directories(pumice_options INTERFACE ${CMAKE_SOURCE_DIR}/runtime ${CMAKE_SOURCE_DIR})

# pumice_unity(TARGET): where PUMICE_UNITY is on, the target's sources are compiled several at a time, which halves the
# time of a whole build: most of it goes to headers. Names in their unnamed namespaces are then unique in the target.
function(pumice_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${PUMICE_UNITY} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

# pumice_unity_by_folder(TARGET): the same, but those of one folder together, where names are unique in a folder only.
function(pumice_unity_by_folder target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${PUMICE_UNITY} UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE path)
    cmake_path(GET path PARENT_PATH folder)
    if(folder AND NOT folder MATCHES "[.][.]")  # not what is generated
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${folder}")
    endif()
  endforeach()
endfunction()

function(pumice_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS} PRIVATE pumice_options)
  target_compile_options(${name} PRIVATE -Wconversion -Wno-sign-conversion)
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/runtime ${CMAKE_SOURCE_DIR})
endfunction()
