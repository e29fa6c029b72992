#!/usr/bin/env bash
# Build build/arm64/pumice-VERSION-linux-arm64-glibcX.Y.tar.gz with Debian's cross compiler: the program, its manual, the
# bundled model. Needs what `scripts/install_packages.sh arm64` installs; arm64 libraries are fetched into a folder of
# the build (scripts/arm64_root.sh).
#
#   scripts/build_arm64.sh            the archive
#   scripts/build_arm64.sh TARGET…    only these, as tests/matrix/run.sh arm64 does
#
# The program needs that glibc or a later one, and a Vulkan loader. Where this system's glslc lacks a GLSL extension, a
# newer one is fetched (tests/matrix/fetch_drivers.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/configure_archive.sh
. scripts/configure_archive.sh

jobs=${JOBS:-$(nproc)}
command -v aarch64-linux-gnu-g++ >/dev/null ||
  { echo "build_arm64: needs a compiler for arm64: scripts/install_packages.sh arm64" >&2; exit 77; }
scripts/arm64_root.sh

if [[ $# -gt 0 ]]; then
  [[ -e build/arm64/build.ninja ]] || cmake --preset arm64
  cmake --build build/arm64 -j "$jobs" --target "$@"
  exit
fi

configure_archive arm64 --preset arm64
cmake --build build/arm64 -j "$jobs" --target pumice pumice_manual
rm -rf build/arm64/pumice-*-linux-arm64-*.tar*
cpack --config build/arm64/CPackConfig.cmake -B build/arm64
