#!/usr/bin/env bash
# Run a program on one Vulkan driver.
#
#   tests/matrix/run_on.sh lavapipe-22|lavapipe-25|lavapipe-26|swiftshader|system program args…
#   tests/matrix/run_on.sh intel-dg2|nvidia-ad102|amd-navi31|… program args…   compiles only: platforms.sh
#   tests/matrix/run_on.sh --from-env program args…      the driver named by PUMICE_TEST_DRIVER
#
# `system` (also an empty PUMICE_TEST_DRIVER) is whatever the machine offers. Given `ctest`, the driver
# applies to the tests that ctest starts, not to ctest. Fetches a driver that is not there yet.
# A driver newer than this machine's C library runs the program under the loader (ld.so) that came
# with it; a child process does not inherit that, so PUMICE_TEST_LAUNCHER then holds the words to put
# in front of a command that must run on the driver too.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/matrix/drivers.sh
. "$here/drivers.sh"

[[ $# -ge 2 ]] || { sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
driver=$1
shift
[[ $driver != --from-env ]] || driver=${PUMICE_TEST_DRIVER:-system}
[[ $driver != system ]] || exec "$@"
is_driver "$driver" ||
  { echo "run_on: unknown driver '$driver' (system ${driver_names[*]} ${platform_names[*]})" >&2; exit 2; }
driver_present "$driver" || "$here/fetch_drivers.sh" "$driver" >&2

export PUMICE_TEST_DRIVER=$driver
if [[ $(basename "$1") == ctest ]]; then exec "$@"; fi

folder=$cache/$(driver_home "$driver")
manifest=$(driver_manifest "$driver") || exit 77
export VK_DRIVER_FILES=$manifest VK_ICD_FILENAMES=$manifest  # new and old name
# Compiled shaders stay per driver: lavapipe compiles at the first dispatch, every time without this.
export MESA_SHADER_CACHE_DIR=${MESA_SHADER_CACHE_DIR:-$folder/shader-cache}
mkdir -p "$MESA_SHADER_CACHE_DIR"
# The driver's own layers replace this machine's only where validation is among them; layers that this
# machine puts into every program were made for other drivers.
layers=$folder/tree/usr/share/vulkan/explicit_layer.d
[[ ! -e $layers/VkLayer_khronos_validation.json ]] || export VK_LAYER_PATH=$layers${VK_LAYER_PATH:+:$VK_LAYER_PATH}
export VK_LOADER_LAYERS_DISABLE='~implicit~'

preload=()
if is_platform "$driver"; then
  platform_environment "$driver"
  preload=(--preload "$cache/shims/libshim_${driver%%-*}.so")
  # Code that comes from a cache has no statistics.
  export MESA_SHADER_CACHE_DISABLE=${MESA_SHADER_CACHE_DISABLE:-true}
fi
libraries=$(find "$folder/tree/usr/lib" -maxdepth 1 -type d -name '*-linux-gnu*' 2>/dev/null | head -n 1)
if [[ -s $folder/loader ]]; then
  program=$(command -v "$1") || { echo "run_on: no program '$1'" >&2; exit 127; }
  shift
  export PUMICE_TEST_LAUNCHER="$here/run_on.sh $driver"
  # A script starts its interpreter, which ld.so does not: what it runs takes the launcher.
  [[ $(head -c 4 "$program") == $'\x7fELF' ]] || exec "$program" "$@"
  exec "$folder/$(cat "$folder/loader")" \
    --library-path "$libraries:/usr/lib/$(basename "$libraries")" "${preload[@]}" "$program" "$@"
fi
[[ ${#preload[@]} == 0 ]] || export LD_PRELOAD=${preload[1]}
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$@"
