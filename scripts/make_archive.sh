#!/usr/bin/env bash
# Build build/archive/pumice-VERSION-SYSTEM-MACHINE.tar.gz: the program with every shader variant. Where
# this system's glslc lacks a GLSL extension, a newer one is fetched (tests/matrix/fetch_drivers.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tests/matrix/drivers.sh
. tests/matrix/drivers.sh

mkdir -p build
configure() { cmake --preset release -B build/archive -DPUMICE_REQUIRE_ALL_SHADERS=ON -DPUMICE_BUILD_TESTS=OFF "$@"; }
if ! configure >build/archive.log 2>&1; then
  grep -q 'PUMICE_REQUIRE_ALL_SHADERS' build/archive.log || { cat build/archive.log >&2; exit 1; }
  configure -DVulkan_GLSLC_EXECUTABLE="$(fetched_glslc)"
fi
cmake --build build/archive -j "${JOBS:-$(nproc)}" --target pumice
cpack --config build/archive/CPackConfig.cmake -B build/archive
