# Read by cpack for each generator.
if(CPACK_PUMICE_MISSING_LICENCES)
  list(JOIN CPACK_PUMICE_MISSING_LICENCES " " files)
  message(FATAL_ERROR "A package carries the licences of what is compiled in. Not found: ${files} (-DPUMICE_LICENCES=FOLDER)")
endif()
if(CPACK_GENERATOR STREQUAL "DEB")
  # Other components than the archive's (cmake/PumiceDebian.cmake).
  set(CPACK_INSTALL_CMAKE_PROJECTS "${CPACK_PUMICE_BUILD};pumice;ALL;/")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # else it stands before each package's own
  # Without it cpack makes packages that depend on nothing, and does not say so.
  find_program(shlibdeps dpkg-shlibdeps)
  if(NOT shlibdeps)
    message(FATAL_ERROR "Debian packages need dpkg-shlibdeps: install dpkg-dev")
  endif()
elseif(CPACK_PUMICE_READELF)
  # An archive's name says the oldest glibc that has all that the program calls.
  execute_process(COMMAND ${CPACK_PUMICE_READELF} --dyn-syms --wide ${CPACK_PUMICE_PROGRAM}
    OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "GLIBC_[0-9]+[.][0-9]+" versions "${symbols}")
  list(SORT versions COMPARE NATURAL ORDER DESCENDING)
  list(GET versions 0 newest)
  string(REPLACE GLIBC_ glibc newest ${newest})
  string(APPEND CPACK_PACKAGE_FILE_NAME -${newest})
endif()
