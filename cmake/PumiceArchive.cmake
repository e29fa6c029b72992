# Installation of the program, and the release archive: `make archive`, which wants PUMICE_REQUIRE_ALL_SHADERS. The
# archive has the program with a model to try; the library is the component `sdk` (runtime/api).
install(TARGETS pumice RUNTIME DESTINATION bin COMPONENT program)
install(FILES README.md LICENSE DESTINATION . COMPONENT archive EXCLUDE_FROM_ALL)
install(FILES models/pumice-stories.gguf DESTINATION models COMPONENT archive EXCLUDE_FROM_ALL)
set(CPACK_GENERATOR TGZ)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};pumice;program;/;${CMAKE_BINARY_DIR};pumice;archive;/")
if(WIN32)
  # With the library, and with the licences of all that is linked into both (scripts/build_windows.sh puts them there).
  set(CPACK_GENERATOR ZIP)
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};pumice;sdk;/")
  install(DIRECTORY ${CMAKE_BINARY_DIR}/licences DESTINATION . COMPONENT archive EXCLUDE_FROM_ALL)
endif()
set(CPACK_PACKAGE_NAME pumice)
set(CPACK_STRIP_FILES ON)
string(TOLOWER "pumice-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" CPACK_PACKAGE_FILE_NAME)
include(CPack)
