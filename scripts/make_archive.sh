#!/usr/bin/env bash
# Build packages of the program with every shader variant, in build/archive/.
#
#   scripts/make_archive.sh        pumice-VERSION-SYSTEM-MACHINE-glibcX.Y.tar.gz: the program, its manual, a model to try;
#                                  for any distribution with that glibc or a later one, and a Vulkan loader
#   scripts/make_archive.sh deb    Debian packages: pumice, libpumiceX.Y, libpumice-dev, for the release they are built on
#
# Where this system's glslc lacks a GLSL extension, a newer one is fetched (tests/matrix/fetch_drivers.sh).
# DEBFULLNAME and DEBEMAIL name who answers for Debian packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/configure_archive.sh
. scripts/configure_archive.sh

case ${1:-tgz} in
  tgz) generator=TGZ static=ON targets=(pumice pumice_manual) ;;
  deb) generator=DEB static=OFF targets=(pumice pumice_manual pumice_debian pumice_shared pumice_static) ;;
  *) echo "usage: scripts/make_archive.sh [tgz|deb]" >&2; exit 2 ;;
esac
# The prefix tells GNUInstallDirs where Debian has its libraries.
configure_archive archive --preset release -B build/archive -DCMAKE_INSTALL_PREFIX=/usr -DPUMICE_BUILD_TESTS=OFF \
  -DPUMICE_STATIC_LIBRARIES="$static"
cmake --build build/archive -j "${JOBS:-$(nproc)}" --target "${targets[@]}"
cpack --config build/archive/CPackConfig.cmake -G "$generator" -B build/archive
