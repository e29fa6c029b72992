# Sourced by the scripts beside it: where drivers live and how a program is run on one.
# shellcheck shell=bash

cache=${PUMICE_DRIVER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pumice/drivers}
# shellcheck disable=SC2034  # used where this file is sourced
driver_names=(lavapipe-22 lavapipe-25 lavapipe-26 swiftshader)

is_driver() { [[ " ${driver_names[*]} " == *" $1 "* ]]; }
driver_present() { [[ -e $cache/$1/version ]]; }
driver_version() { cat "$cache/$1/version"; }

# Prints the driver's manifest; its library_path is made absolute on first use, where the folder is now.
driver_manifest() { # DRIVER
  local folder=$cache/$1 source library
  source=$(find "$folder/tree" -name 'lvp_icd*.json' -o -name 'vk_swiftshader_icd.json' | head -n 1)
  library=$(find "$folder/tree" -name 'libvulkan_lvp.so' -o -name 'libvk_swiftshader.so' | head -n 1)
  local manifest=$folder/icd.json
  sed "s#\"library_path\": *\"[^\"]*\"#\"library_path\": \"$library\"#" "$source" >"$manifest.$$"
  mv "$manifest.$$" "$manifest"
  echo "$manifest"
}
