#!/usr/bin/env bash
# Build build/windows/pumice-VERSION-windows-x86_64.zip by mingw-w64: pumice.exe, pumice.dll with its import library and
# headers, the bundled model and licences. Needs what `scripts/install_packages.sh windows` installs.
#
#   scripts/build_windows.sh            the archive
#   scripts/build_windows.sh TARGET…    only these, as tests/matrix/run.sh windows does
#
# Both need nothing at run time but Windows 10 or later: what they import is checked. Where this system's glslc lacks a
# GLSL extension, a newer one is fetched (tests/matrix/fetch_drivers.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/configure_archive.sh
. scripts/configure_archive.sh

jobs=${JOBS:-$(nproc)}
command -v x86_64-w64-mingw32-g++-posix >/dev/null ||
  { echo "build_windows: needs mingw-w64: scripts/install_packages.sh windows" >&2; exit 77; }
scripts/windows_libraries.sh

if [[ $# -gt 0 ]]; then
  [[ -e build/windows/build.ninja ]] || cmake --preset windows
  cmake --build build/windows -j "$jobs" --target "$@"
  exit
fi

configure_archive windows --preset windows
cmake --build build/windows -j "$jobs" --target pumice pumice_shared

# What belongs to every Windows.
system_libraries='^(ADVAPI32|KERNEL32|MSWSOCK|SHELL32|WS2_32|msvcrt|ole32|api-ms-win-crt-[a-z]+-l1-1-0)\.dll$'
for file in build/windows/{tools/pumice.exe,runtime/api/pumice.dll}; do
  foreign=$(x86_64-w64-mingw32-objdump -p "$file" | sed -n 's/^\tDLL Name: //p' | grep -Ev "$system_libraries" || true)
  [[ -z $foreign ]] || { echo "build_windows: $file needs libraries that Windows has not: $foreign" >&2; exit 1; }
done

rm -rf build/windows/licences
mkdir build/windows/licences
for package in libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libxxhash-dev libpcre2-dev libmd-dev libvulkan-dev \
  libvulkan-volk-dev libboost-dev libvalijson-dev libjs-chart.js mingw-w64-x86-64-dev g++-mingw-w64-x86-64-posix; do
  [[ -e /usr/share/doc/$package/copyright ]] ||
    { echo "build_windows: no licence of $package; scripts/install_packages.sh windows" >&2; exit 1; }
  cp -L "/usr/share/doc/$package/copyright" "build/windows/licences/$package.txt"
done
cpack --config build/windows/CPackConfig.cmake -B build/windows
