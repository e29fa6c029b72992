#!/usr/bin/env bash
# Run a program of build/arm64 under qemu on arm64 lavapipe (scripts/arm64_root.sh), as on a machine with pages of
# PUMICE_TEST_PAGE_BYTES, by default 4096.
#
#   tests/matrix/arm64.sh program args…
#
# What it and the driver compile is kept in build/arm64-cache: a first run takes minutes, the next seconds.
set -euo pipefail

[[ $# -ge 1 ]] || { sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
root=$checkout/build/arm64-root
"$checkout/scripts/arm64_root.sh"
export XDG_CACHE_HOME=$checkout/build/arm64-cache
VK_DRIVER_FILES=$(echo "$root"/system/usr/share/vulkan/icd.d/lvp_icd*.json)
export VK_DRIVER_FILES VK_ICD_FILENAMES=$VK_DRIVER_FILES VK_LOADER_LAYERS_DISABLE='~implicit~'
# Of a processor of its own choice (`max`) lavapipe never finishes a shader.
exec "$root/qemu-aarch64-static" -cpu cortex-a72 -p "${PUMICE_TEST_PAGE_BYTES:-4096}" -L "$root/system" \
  -E LD_LIBRARY_PATH="$root/libraries" "$@"
