# Where a program for other systems than this one (PUMICE_STATIC_LIBRARIES) finds what third_party.cmake gets as shared
# libraries: their static ones, of the same packages, and of those that have none the headers alone.
find_package(nlohmann_json REQUIRED)

# pumice_static_library(NAME archive…): in the order in which they are linked.
function(pumice_static_library name)
  add_library(${name} INTERFACE IMPORTED GLOBAL)
  foreach(archive ${ARGN})
    find_library(PUMICE_ARCHIVE_OF_${archive} NAMES lib${archive}.a REQUIRED)
    target_link_libraries(${name} INTERFACE ${PUMICE_ARCHIVE_OF_${archive}})
  endforeach()
endfunction()

pumice_static_library(fmt::fmt)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
pumice_static_library(PkgConfig::xxhash xxhash)
pumice_static_library(PkgConfig::pcre2 pcre2-8)
if(PUMICE_BUILD_PROGRAM)
  find_package(CLI11 REQUIRED)
  pumice_static_library(spdlog::spdlog)
  target_compile_definitions(spdlog::spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
  target_link_libraries(spdlog::spdlog INTERFACE fmt::fmt)
  pumice_static_library(PkgConfig::libedit edit bsd md tinfo)
  pumice_static_library(PkgConfig::libmd md)
endif()
# The compiler's own too.
add_link_options(-static-libstdc++ -static-libgcc)
