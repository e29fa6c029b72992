# How every dependency is found. All come from the distribution (scripts/install_packages.sh names
# the packages); nothing is vendored or downloaded.
find_package(Threads REQUIRED)
if(WIN32)
  include(${CMAKE_CURRENT_LIST_DIR}/windows.cmake)
elseif(PUMICE_STATIC_LIBRARIES)
  include(${CMAKE_CURRENT_LIST_DIR}/static.cmake)
else()
  find_package(fmt REQUIRED)
  find_package(nlohmann_json REQUIRED)

  find_package(PkgConfig REQUIRED)
  pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
  pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
endif()

# Vulkan: headers and volk only. The loader is opened at run time by volk and never linked.
find_path(VULKAN_HEADERS_DIR vulkan/vulkan.h REQUIRED)
find_path(VOLK_DIR volk.c REQUIRED DOC "Folder of volk.h and volk.c (libvulkan-volk-dev)")
add_library(pumice_vulkan_headers INTERFACE)
target_include_directories(pumice_vulkan_headers SYSTEM INTERFACE ${VULKAN_HEADERS_DIR} ${VOLK_DIR})
target_compile_definitions(pumice_vulkan_headers INTERFACE VK_NO_PROTOTYPES)
target_link_libraries(pumice_vulkan_headers INTERFACE ${CMAKE_DL_LIBS})

# glslc: `-DVulkan_GLSLC_EXECUTABLE=…` picks another one.
find_program(Vulkan_GLSLC_EXECUTABLE glslc REQUIRED)

if(NOT PUMICE_BUILD_PROGRAM)
  return()
endif()

# What follows is for the program.
if(NOT WIN32 AND NOT PUMICE_STATIC_LIBRARIES)
  find_package(CLI11 REQUIRED)
  find_package(spdlog REQUIRED)
  pkg_check_modules(libedit REQUIRED IMPORTED_TARGET libedit)
  pkg_check_modules(libmd REQUIRED IMPORTED_TARGET libmd)
endif()

# libcurl: headers only. The library is opened at run time, by the commands that download.
find_path(CURL_HEADERS_DIR curl/curl.h REQUIRED)
add_library(pumice_curl_headers INTERFACE)
target_include_directories(pumice_curl_headers SYSTEM INTERFACE ${CURL_HEADERS_DIR})
target_link_libraries(pumice_curl_headers INTERFACE ${CMAKE_DL_LIBS})

# libzmq: headers only. The library is opened at run time, by a server that publishes KV events.
find_path(ZMQ_HEADERS_DIR zmq.h REQUIRED DOC "Folder of zmq.h (libzmq3-dev)")
add_library(pumice_zmq_headers INTERFACE)
target_include_directories(pumice_zmq_headers SYSTEM INTERFACE ${ZMQ_HEADERS_DIR})
target_link_libraries(pumice_zmq_headers INTERFACE ${CMAKE_DL_LIBS})

# Boost.Asio and Boost.Beast, for `pumice serve`: headers only, of 1.74 or later.
find_path(BOOST_HEADERS_DIR boost/beast/http.hpp REQUIRED DOC "Folder of boost/ (libboost-dev)")
add_library(pumice_boost_headers INTERFACE)
target_include_directories(pumice_boost_headers SYSTEM INTERFACE ${BOOST_HEADERS_DIR})
# What Boost keeps for old code, and says so in every file.
target_compile_definitions(pumice_boost_headers INTERFACE BOOST_ALL_NO_LIB BOOST_ASIO_NO_DEPRECATED)
target_link_libraries(pumice_boost_headers INTERFACE Threads::Threads $<$<PLATFORM_ID:Windows>:ws2_32>
  $<$<PLATFORM_ID:Windows>:mswsock>)

# valijson: headers only; judges answers by their schema (pumice eval).
find_path(VALIJSON_DIR valijson/validator.hpp REQUIRED DOC "Folder of valijson (libvalijson-dev)")
add_library(pumice_valijson INTERFACE)
target_include_directories(pumice_valijson SYSTEM INTERFACE ${VALIJSON_DIR})
target_compile_definitions(pumice_valijson INTERFACE VALIJSON_USE_EXCEPTIONS=1)  # without them it aborts

# Chart.js, which `pumice report` puts into its pages. Without it (or with an empty path) that command
# names what is missing.
find_file(PUMICE_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js NO_CMAKE_FIND_ROOT_PATH
  DOC "Chart.js 3 or later (libjs-chart.js)")
find_file(PUMICE_CHART_JS_LICENCE copyright PATHS /usr/share/doc/libjs-chart.js NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH
  DOC "The licence of Chart.js (libjs-chart.js)")

if(PUMICE_BUILD_TESTS AND NOT WIN32)
  find_package(GTest REQUIRED)
endif()
if(PUMICE_BUILD_BENCHMARKS AND NOT WIN32)
  find_package(benchmark QUIET)
endif()
