# find_package(Pumice): the targets Pumice::pumice (shared) and Pumice::pumice_static.
include("${CMAKE_CURRENT_LIST_DIR}/PumiceTargets.cmake")
