# Sourced by the scripts beside it: where drivers live and how a program is run on one.
# shellcheck shell=bash

cache=${PUMICE_DRIVER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pumice/drivers}
# shellcheck disable=SC2034  # used where this file is sourced
driver_names=(lavapipe-22 lavapipe-25 lavapipe-26 swiftshader)
# AMD's compiler on a device that does not exist: pipelines can be created, nothing can be submitted.
# Mesa 25.0 only, hence the driver beside lavapipe-25's; newer Mesa has removed RADV_FORCE_FAMILY.
# shellcheck disable=SC2034
compiler_names=(radv-vega10 radv-navi21 radv-navi31 radv-gfx1201)

is_driver() { [[ " ${driver_names[*]} ${compiler_names[*]} " == *" $1 "* ]]; }
# The folder whose packages hold a driver, under $cache.
driver_home() { case $1 in radv-*) echo lavapipe-25 ;; *) echo "$1" ;; esac; }
driver_present() { [[ -e $cache/$(driver_home "$1")/version ]]; }
driver_version() { cat "$cache/$(driver_home "$1")/version"; }

# Fetches the toolchain where it is missing and prints the path of its glslc.
fetched_glslc() {
  "$(dirname "${BASH_SOURCE[0]}")/fetch_drivers.sh" toolchain >&2 && echo "$cache/toolchain/bin/glslc"
}

# Prints the path of the driver's manifest; its library_path is made absolute on first use, where the folder is now.
driver_manifest() { # DRIVER
  local folder source library manifest
  folder=$cache/$(driver_home "$1")
  case $1 in
    swiftshader) source=vk_swiftshader_icd.json library=libvk_swiftshader.so manifest=$folder/icd.json ;;
    radv-*) source='radeon_icd*.json' library=libvulkan_radeon.so manifest=$folder/radeon.json ;;
    *) source='lvp_icd*.json' library=libvulkan_lvp.so manifest=$folder/icd.json ;;
  esac
  if [[ ! -e $manifest ]]; then
    source=$(find "$folder/tree" -name "$source" | head -n 1)
    library=$(find "$folder/tree" -name "$library" | head -n 1)
    sed "s#\"library_path\": *\"[^\"]*\"#\"library_path\": \"$library\"#" "$source" >"$manifest.$$"
    mv "$manifest.$$" "$manifest"
  fi
  echo "$manifest"
}
