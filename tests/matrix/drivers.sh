# Sourced by the scripts beside it: where drivers live and how a program is run on one.
# shellcheck shell=bash

cache=${PUMICE_DRIVER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pumice/drivers}
# shellcheck disable=SC2034  # used where this file is sourced
driver_names=(lavapipe-22 lavapipe-25 lavapipe-26 swiftshader)
# GPUs whose shader compilers run here without them (platforms.sh): nothing can be submitted.
# shellcheck source=tests/matrix/platforms.sh
. "$(dirname "${BASH_SOURCE[0]}")/platforms.sh"

is_platform() { [[ " ${platform_names[*]} " == *" $1 "* ]]; }
is_driver() { [[ " ${driver_names[*]} " == *" $1 "* ]] || is_platform "$1"; }
# The folders, under $cache, of what a driver needs; the first one holds the driver.
driver_folders() { if is_platform "$1"; then echo lavapipe-26 shims; else echo "$1"; fi; }
driver_home() { if is_platform "$1"; then echo lavapipe-26; else echo "$1"; fi; }
driver_present() {
  local folder
  for folder in $(driver_folders "$1"); do [[ -e $cache/$folder/version ]] || return 1; done
}
driver_version() { cat "$cache/$(driver_home "$1")/version"; }

# Fetches the toolchain where it is missing and prints the path of its glslc.
fetched_glslc() {
  "$(dirname "${BASH_SOURCE[0]}")/fetch_drivers.sh" toolchain >&2 && echo "$cache/toolchain/bin/glslc"
}

# Prints the path of the driver's manifest; its library_path is made absolute on first use, where the folder is now.
driver_manifest() { # DRIVER
  local folder source library manifest
  folder=$cache/$(driver_home "$1")
  manifest=$folder/icd.json
  case $1 in
    swiftshader) source=vk_swiftshader_icd.json library=libvk_swiftshader.so ;;
    lavapipe-*) source='lvp_icd*.json' library=libvulkan_lvp.so ;;
    *)
      source="$(platform_driver "$1")_icd*.json"
      library=libvulkan_$(platform_driver "$1").so manifest=$folder/$(platform_driver "$1").json ;;
  esac
  if [[ ! -e $manifest ]]; then
    source=$(find "$folder/tree" -name "$source" | head -n 1)
    library=$(find "$folder/tree" -name "$library" | head -n 1)
    [[ -n $source && -n $library ]] ||
      { echo "SKIPPED $1: its driver is not among the fetched packages" >&2; return 1; }
    sed "s#\"library_path\": *\"[^\"]*\"#\"library_path\": \"$library\"#" "$source" >"$manifest.$$"
    mv "$manifest.$$" "$manifest"
  fi
  echo "$manifest"
}
