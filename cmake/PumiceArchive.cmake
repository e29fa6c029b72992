# The release archive: `make archive`, which wants PUMICE_REQUIRE_ALL_SHADERS.
install(TARGETS pumice RUNTIME DESTINATION bin)
install(FILES README.md LICENSE DESTINATION .)
install(FILES models/pumice-stories.gguf DESTINATION models)
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME pumice)
set(CPACK_STRIP_FILES ON)
string(TOLOWER "pumice-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" CPACK_PACKAGE_FILE_NAME)
include(CPack)
