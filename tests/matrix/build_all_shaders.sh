#!/usr/bin/env bash
# Builds targets with every shader variant, by a glslc that knows all extensions, in build/matrix-cores.
#
#   tests/matrix/build_all_shaders.sh TARGET…
#
# Exit 77 when that glslc cannot be had; the last line says why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/matrix/drivers.sh
. tests/matrix/drivers.sh

tests/matrix/fetch_drivers.sh toolchain || exit 77
[[ -e build/matrix-cores/build.ninja ]] ||
  cmake --preset release -B build/matrix-cores -DPUMICE_REQUIRE_ALL_SHADERS=ON ${CI:+-DPUMICE_WARNINGS_AS_ERRORS=ON} \
    -DVulkan_GLSLC_EXECUTABLE="$(fetched_glslc)"
cmake --build build/matrix-cores -j "$(nproc)" --target "$@"
