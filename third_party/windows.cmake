# Where a Windows build finds what third_party.cmake gets from packages elsewhere: headers and static libraries in the
# folder that scripts/windows_libraries.sh makes.
set(PUMICE_WINDOWS_LIBRARIES ${CMAKE_SOURCE_DIR}/build/windows-libraries CACHE PATH
  "Folder of scripts/windows_libraries.sh")
if(NOT EXISTS ${PUMICE_WINDOWS_LIBRARIES}/stamp)
  message(FATAL_ERROR "${PUMICE_WINDOWS_LIBRARIES}: not built; run scripts/windows_libraries.sh")
endif()

# pumice_windows_library(NAME [ARCHIVE lib.a]): an archive with the headers of all, or those alone.
function(pumice_windows_library name)
  cmake_parse_arguments(arg "" "ARCHIVE" "" ${ARGN})
  if(arg_ARCHIVE)
    add_library(${name} STATIC IMPORTED GLOBAL)
    set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${PUMICE_WINDOWS_LIBRARIES}/lib/${arg_ARCHIVE})
  else()
    add_library(${name} INTERFACE IMPORTED GLOBAL)
  endif()
  set_target_properties(${name} PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES ${PUMICE_WINDOWS_LIBRARIES}/include
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${PUMICE_WINDOWS_LIBRARIES}/include)
endfunction()

pumice_windows_library(fmt::fmt ARCHIVE libfmt.a)
pumice_windows_library(nlohmann_json::nlohmann_json)
pumice_windows_library(CLI11::CLI11)
pumice_windows_library(spdlog::spdlog)
target_compile_definitions(spdlog::spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
target_link_libraries(spdlog::spdlog INTERFACE fmt::fmt)
pumice_windows_library(PkgConfig::xxhash ARCHIVE libxxhash.a)
pumice_windows_library(PkgConfig::pcre2 ARCHIVE libpcre2-8.a)
target_compile_definitions(PkgConfig::pcre2 INTERFACE PCRE2_STATIC)
pumice_windows_library(PkgConfig::libmd ARCHIVE libmd.a)
foreach(folder CURL_HEADERS_DIR ZMQ_HEADERS_DIR BOOST_HEADERS_DIR VALIJSON_DIR VULKAN_HEADERS_DIR VOLK_DIR)
  set(${folder} ${PUMICE_WINDOWS_LIBRARIES}/include CACHE PATH "" FORCE)
endforeach()
if(PUMICE_BUILD_TESTS)
  pumice_windows_library(GTest::gtest ARCHIVE libgtest.a)
  pumice_windows_library(GTest::gmock ARCHIVE libgmock.a)
  pumice_windows_library(GTest::gtest_main ARCHIVE libgtest_main.a)
  target_link_libraries(GTest::gtest_main INTERFACE GTest::gtest)
  target_link_libraries(GTest::gmock INTERFACE GTest::gtest)
endif()
