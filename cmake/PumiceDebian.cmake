# Debian packages: pumice (the program, its manual, the model to try), libpumiceX.Y and libpumice-dev. Each is a group of
# two components: what `cmake --install` installs too, and what only Debian wants or wants elsewhere.
find_program(PUMICE_GZIP gzip)
if(NOT TARGET pumice_manual OR NOT TARGET pumice_shared OR NOT PUMICE_GZIP)
  return()
endif()
set(library libpumice${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(email packages@pumice.example)
set(full_name "The Pumice authors")
if(NOT "$ENV{DEBEMAIL}" STREQUAL "")
  set(email $ENV{DEBEMAIL})
endif()
if(NOT "$ENV{DEBFULLNAME}" STREQUAL "")
  set(full_name $ENV{DEBFULLNAME})
endif()
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${full_name} <${email}>")

# The manual compressed, and where Debian's zsh looks for completions.
set(debian ${CMAKE_CURRENT_BINARY_DIR}/debian)
configure_file(packaging/debian/changelog.in ${debian}/changelog @ONLY)
add_custom_command(OUTPUT ${debian}/share/man/man1/pumice.1.gz
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${debian}/share
  COMMAND ${CMAKE_COMMAND} -E copy_directory ${PUMICE_MANUAL} ${debian}/share
  COMMAND ${CMAKE_COMMAND} -E rename ${debian}/share/zsh/site-functions ${debian}/share/zsh/vendor-completions
  COMMAND sh -c "${PUMICE_GZIP} -9n ${debian}/share/man/man1/*.1"
  COMMAND sh -c "${PUMICE_GZIP} -9nc ${debian}/changelog > ${debian}/changelog.gz"
  COMMAND sh -c "for part in library program; do ${PUMICE_GZIP} -9nc ${CMAKE_BINARY_DIR}/notices/NOTICE.$part > ${debian}/NOTICE.$part.gz; done"
  DEPENDS ${CMAKE_BINARY_DIR}/notices/NOTICE.library ${CMAKE_BINARY_DIR}/notices/NOTICE.program pumice_manual ${PUMICE_MANUAL}/man/man1/pumice.1 ${debian}/changelog COMMENT "files of Debian packages" VERBATIM)
add_custom_target(pumice_debian ALL DEPENDS ${debian}/share/man/man1/pumice.1.gz)
install(DIRECTORY ${debian}/share/ DESTINATION share COMPONENT debian_program EXCLUDE_FROM_ALL)
install(FILES models/pumice-stories.gguf DESTINATION share/pumice COMPONENT debian_program EXCLUDE_FROM_ALL)
foreach(part "program;pumice;program" "library;${library};library" "sdk;libpumice-dev;library")
  list(GET part 0 component)
  list(GET part 1 package)
  list(GET part 2 notice)
  install(FILES ${debian}/NOTICE.${notice}.gz DESTINATION share/doc/${package} RENAME NOTICE.gz
    COMPONENT debian_${component} EXCLUDE_FROM_ALL)
  install(FILES packaging/debian/copyright ${debian}/changelog.gz DESTINATION share/doc/${package}
    COMPONENT debian_${component} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_COMPONENTS_ALL program debian_program library debian_library sdk debian_sdk)
foreach(component program library sdk)
  string(TOUPPER ${component} name)
  foreach(part ${name} DEBIAN_${name})
    set(CPACK_COMPONENT_${part}_GROUP ${component})
  endforeach()
endforeach()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY =)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME pumice)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION utils)
# Both are opened at run time.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS libvulkan1)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "mesa-vulkan-drivers | vulkan-icd, libcurl4 | libcurl4t64, ca-certificates")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS libzmq5)
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "language models on any GPU, by Vulkan
Pumice runs language models from GGUF files on any device with Vulkan 1.3,
the processor's software driver among them: at a prompt, as a chat, and as a
server with OpenAI's interface. This package has the program and a small
model to try it with.")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS libvulkan1)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "mesa-vulkan-drivers | vulkan-icd")
# CPack writes scripts that call ldconfig, Debian wants the trigger.
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/packaging/debian/triggers)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "language models on any GPU, by Vulkan - library
Pumice runs language models from GGUF files on any device with Vulkan 1.3.
This package has the shared library for programs that do it themselves.")

set(CPACK_DEBIAN_SDK_PACKAGE_NAME libpumice-dev)
set(CPACK_DEBIAN_SDK_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_SDK_PACKAGE_DEPENDS "${library} (= ${PROJECT_VERSION})")
# What the static library needs (runtime/api).
set(CPACK_DEBIAN_SDK_PACKAGE_RECOMMENDS "libfmt-dev, libxxhash-dev, libpcre2-dev")
set(CPACK_DEBIAN_SDK_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_SDK_DESCRIPTION "language models on any GPU, by Vulkan - development files
Pumice runs language models from GGUF files on any device with Vulkan 1.3.
This package has the headers, the static library and what pkg-config and
CMake need to build programs with it.")
