# Sourced by scripts that make packages.
# shellcheck shell=bash
# shellcheck source=tests/matrix/drivers.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tests/matrix/drivers.sh"

# configure_archive NAME cmake-arguments…: with every shader variant, by a fetched glslc where this system's lacks a GLSL
# extension (tests/matrix/fetch_drivers.sh); the log is build/NAME.log.
configure_archive() {
  local -r log=build/$1.log
  shift
  mkdir -p build
  local -ra command=(cmake "$@" -DPUMICE_REQUIRE_ALL_SHADERS=ON)
  "${command[@]}" >"$log" 2>&1 && return
  grep -q 'PUMICE_REQUIRE_ALL_SHADERS' "$log" || { cat "$log" >&2; return 1; }
  "${command[@]}" -DVulkan_GLSLC_EXECUTABLE="$(fetched_glslc)"
}
