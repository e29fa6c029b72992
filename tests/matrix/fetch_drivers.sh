#!/usr/bin/env bash
# Fetch Vulkan drivers into a private folder; installs nothing and needs no root.
#
#   tests/matrix/fetch_drivers.sh [driver…]      default: every driver below
#
#   lavapipe-22  Mesa 22.3 of Debian 12          lavapipe-26  Mesa 26 of trixie-backports, with a newer
#   lavapipe-25  Mesa 25.0 of bookworm-backports              loader and validation layers
#   swiftshader  the one inside Debian 12's chromium-common
#   intel-dg2, nvidia-ad102, amd-navi31, … (platforms.sh): compilers of GPUs that are not here. These are
#                lavapipe-26's packages and the shims, built from Mesa's source (needs gcc and patch)
#   toolchain    glslc and spirv-val that know every GLSL extension used here (not by default):
#                <driver>/bin/glslc for -DVulkan_GLSLC_EXECUTABLE=
#
# Debian packages are unpacked (verified with the archive key of this machine) under
# ${PUMICE_DRIVER_CACHE:-${XDG_CACHE_HOME:-~/.cache}/pumice/drivers}/<driver>/; a driver that is there
# is kept, so delete its folder to fetch it anew. The mirror is the one apt uses here, or
# PUMICE_DEBIAN_MIRROR. What cannot be fetched is printed as SKIPPED with the reason; exit 1 then.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/matrix/drivers.sh
. "$here/drivers.sh"
scripts=$here/../../scripts
# shellcheck source=scripts/private_apt.sh
. "$scripts/private_apt.sh"

# Version of a package among the fetched .debs, or nothing.
fetched_version() { # FOLDER PACKAGE
  local deb
  for deb in "$1/archives/$2"_*.deb; do
    [[ ! -e $deb ]] || dpkg-deb -f "$deb" Version
  done
}

# unpack FOLDER: every .deb into FOLDER/tree. The C and C++ runtime come along only if they are newer
# than this machine's: then programs run under the loader (ld.so) that came with them.
unpack() {
  local folder=$1 deb name host fetched
  host=$(dpkg-query -W -f='${Version}' "libc6:$architecture")
  fetched=$(fetched_version "$folder" libc6)
  for deb in "$folder"/archives/*.deb; do
    name=$(basename "$deb")
    case ${name%%_*} in
      libc6 | libstdc++6 | libgcc-s1 | gcc-*-base)
        dpkg --compare-versions "$host" lt "${fetched:-0}" || continue ;;
    esac
    dpkg-deb -x "$deb" "$folder/tree" || return
  done
  if dpkg --compare-versions "$host" lt "${fetched:-0}"; then
    find "$folder"/tree/usr/lib* "$folder"/tree/lib* -name 'ld-linux*.so.*' 2>/dev/null | head -n 1 |
      sed "s#^$folder/##" >"$folder/loader"
  fi
  dpkg-deb -f "$(ls "$folder/archives/$2"_*.deb)" Version >"$folder/version"
}

# wrap_tools FOLDER NAME…: programs of the tree as FOLDER/bin/NAME, with the libraries that came along.
wrap_tools() {
  local folder=$1 libraries loader='' name
  shift
  libraries=$(cd "$folder" && find tree/usr/lib -maxdepth 1 -type d -name '*-linux-gnu*' | head -n 1)
  [[ ! -s $folder/loader ]] || loader="\$folder/$(cat "$folder/loader")"
  mkdir -p "$folder/bin"
  for name in "$@"; do
    cat >"$folder/bin/$name" <<WRAPPER
#!/bin/sh
folder=\$(cd "\$(dirname "\$0")/.." && pwd)
libraries=\$folder/$libraries
WRAPPER
    if [[ -n $loader ]]; then
      echo "exec \"$loader\" --library-path \"\$libraries\" \"\$folder/tree/usr/bin/$name\" \"\$@\""
    else
      echo "LD_LIBRARY_PATH=\$libraries exec \"\$folder/tree/usr/bin/$name\" \"\$@\""
    fi >>"$folder/bin/$name"
    chmod +x "$folder/bin/$name"
  done
}

# Fetches into a folder beside the final one, which then appears complete or not at all. Errors end the subshell by hand,
# because `set -e` does not hold where a status is tested.
fetch() { # DRIVER MAIN_PACKAGE TARGET_SUITE SUITES PACKAGES
  local driver=$1 main=$2 target=$3 suites=$4 packages=$5 folder
  folder=$cache/$driver.partial
  rm -rf "$folder" "$folder.log"
  mkdir -p "$folder"
  if ! (
    # shellcheck disable=SC2086  # lists of words
    private_apt "$folder" $suites || exit
    if [[ $driver == swiftshader ]]; then  # a browser's dependencies are of no use here
      cd "$folder/archives" || exit
      apt-get -qq download "$packages" || exit
    else
      # shellcheck disable=SC2086
      apt-get -qq -y -t "$target" --download-only install $packages || exit
    fi
    unpack "$folder" "$main" || exit
    rm -rf "$folder"/{archives,lists,status,sources.list,apt.conf}
    if [[ $driver == toolchain ]]; then
      wrap_tools "$folder" glslc spirv-val
    else
      rm -rf "$folder"/tree/usr/bin
    fi
    rm -rf "$folder"/tree/{etc,var,usr/sbin} "$folder"/tree/usr/lib/*/dri
    [[ $driver != swiftshader ]] || find "$folder/tree" -type f ! -name '*vk_swiftshader*' -delete
  ) >"$folder.log" 2>&1 </dev/null; then
    echo "SKIPPED $driver: $(grep -m 1 -E '^(E|W|Err)|error' "$folder.log" || tail -n 1 "$folder.log")"
    rm -rf "$folder"
    return 1
  fi
  rm -rf "$folder.log" "${cache:?}/$driver"
  mv "$folder" "$cache/$driver"
}

# Fetches parts of Mesa's source and libdrm's headers, and builds the shims from them.
fetch_shims() {
  local folder=$cache/shims.partial source reason='' tool
  for tool in gcc patch xz; do
    command -v "$tool" >/dev/null || reason="needs $tool to build Mesa's drm-shim"
  done
  [[ -z $reason ]] || { echo "SKIPPED shims: $reason"; return 1; }
  rm -rf "$folder" "$folder.log"
  mkdir -p "$folder"
  # Errors end this subshell by hand, as in fetch.
  if ! (
    private_apt "$folder" trixie source:trixie || exit
    cd "$folder/archives" || exit
    apt-get -qq download libdrm-dev && dpkg-deb -x libdrm-dev_*.deb "$folder/drm" || exit
    # The source of one release whatever suite the drivers come from: its shims are what is patched.
    apt-get -qq source --download-only mesa || exit
    source=$(echo mesa_*.orig.tar.xz)
    mkdir "$folder/mesa"
    tar -C "$folder/mesa" --strip-components 1 -xJf "$source" --wildcards '*/include/*' '*/src/util/*' \
      '*/src/c11/*' '*/src/drm-shim/*' '*/src/nouveau/*' '*/src/gallium/drivers/nouveau/*.h' \
      '*/src/intel/tools/intel_noop*' '*/src/freedreno/drm-shim/*' \
      '*/src/amd/drm-shim/*' '*/src/amd/common/amd_family.h' || exit
    "$here/shims/build.sh" "$folder/mesa" "$folder/drm/usr/include" "$folder" || exit
    source=${source#mesa_}
    echo "${source%.orig.tar.xz}" >"$folder/version"
    rm -rf "$folder"/{archives,lists,status,sources.list,apt.conf,mesa,drm}
  ) >"$folder.log" 2>&1 </dev/null; then
    echo "SKIPPED shims: $(grep -m 1 -E "^(E|Err)|error|FAILED|not found" "$folder.log" || tail -n 1 "$folder.log")"
    rm -rf "$folder"
    return 1
  fi
  rm -rf "$folder.log" "${cache:?}/shims"
  mv "$folder" "$cache/shims"
}

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
status=0
[[ $# -gt 0 ]] || set -- "${driver_names[@]}"
folders=()
for driver in "$@"; do
  [[ $driver == toolchain ]] || is_driver "$driver" ||
    { echo "fetch_drivers: unknown driver '$driver' (${driver_names[*]} ${platform_names[*]} toolchain)" >&2; exit 2; }
  for folder in $(driver_folders "$driver"); do
    [[ " ${folders[*]} " == *" $folder "* ]] || folders+=("$folder")
  done
done
for driver in "${folders[@]}"; do
  if driver_present "$driver"; then
    echo "present $driver $(driver_version "$driver")"
    continue
  fi
  if ! reason=$(why_no_private_apt); then
    echo "SKIPPED $driver: $reason"
    status=1
    continue
  fi
  mesa="mesa-vulkan-drivers"
  case $driver in
    lavapipe-22) fetch "$driver" $mesa bookworm bookworm $mesa ;;
    lavapipe-25) fetch "$driver" $mesa bookworm-backports "bookworm bookworm-backports" $mesa ;;
    lavapipe-26) fetch "$driver" $mesa trixie-backports "trixie trixie-backports" \
      "$mesa libvulkan1 vulkan-validationlayers" ;;
    swiftshader) fetch "$driver" chromium-common bookworm bookworm chromium-common ;;
    shims) fetch_shims ;;
    toolchain) fetch "$driver" glslc sid sid "glslc spirv-tools" ;;
  esac || { status=1; continue; }
  echo "fetched $driver $(driver_version "$driver")"
done
exit "$status"
