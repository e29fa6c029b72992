#!/usr/bin/env bash
# Build for Linux on arm64 with Debian's cross compiler, in build/arm64. Needs what `scripts/install_packages.sh arm64`
# installs; arm64 libraries are fetched into a folder of the build (scripts/arm64_root.sh).
#
#   scripts/build_arm64.sh TARGET…
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# -ge 1 ]] || { sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
command -v aarch64-linux-gnu-g++ >/dev/null ||
  { echo "build_arm64: needs a compiler for arm64: scripts/install_packages.sh arm64" >&2; exit 77; }
scripts/arm64_root.sh
[[ -e build/arm64/build.ninja ]] || cmake --preset arm64
cmake --build build/arm64 -j "${JOBS:-$(nproc)}" --target "$@"
