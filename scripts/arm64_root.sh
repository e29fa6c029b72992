#!/usr/bin/env bash
# Make build/arm64-root: Debian's arm64 libraries to build with (tree/), those to run on (system/, and libraries/ of what
# programs need besides) and the emulator that runs what was built (qemu-aarch64-static). Nothing is installed; this
# machine's apt and dpkg know nothing of that architecture.
#
# Those to run on are of Debian 13: with Debian 12's LLVM lavapipe ends in the compiler on some kernels ("Cannot select").
# The others are of this system's Debian release, or of Debian 12 elsewhere. All are from the mirror that apt uses or
# PUMICE_DEBIAN_MIRROR, verified with Debian's key. What is there is kept: delete the folder to fetch it anew. What cannot
# be had is SKIPPED with the reason, exit code 77.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/private_apt.sh
. scripts/private_apt.sh

folder=$PWD/build/arm64-root
# Libraries that the build links or whose headers it reads, without what only examples and benchmarks have.
mapfile -t packages < <(scripts/install_packages.sh list | grep -E '^(lib.*|nlohmann-json3)-dev$' |
  grep -vE '^lib(glm|sdl2|benchmark)-dev$')
packages+=(libc6-dev)
run_packages=(libc6 libstdc++6 libvulkan1 mesa-vulkan-drivers)
stamp="of $(sha256sum <"${BASH_SOURCE[0]}") ${packages[*]} ${run_packages[*]}"
[[ $(cat "$folder/stamp" 2>/dev/null) != "$stamp" ]] || exit 0

skip() { echo "SKIPPED arm64: $*" >&2; exit 77; }
reason=$(why_no_private_apt) || skip "$reason"
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[[ $(. /etc/os-release && echo "$ID") == debian ]] || suite=bookworm
rm -rf "$folder"
mkdir -p "$folder/libraries"

# unpack FOLDER SUITE package…, with what they depend on
unpack() {
  local -r to=$1
  local deb link
  mkdir -p "$to/usr/lib"
  # Where Debian's systems have it, whichever of the two a package names.
  ln -s usr/lib "$to/lib"
  (
    architecture=arm64
    private_apt "$folder/fetched" "$2"
    apt-get -qq -y --download-only install "${@:3}"
  )
  for deb in "$folder"/fetched/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --no-same-owner -C "$to"
  done
  rm -rf "${to:?}"/{bin,sbin,usr/bin,usr/sbin} "$to"/usr/lib/*/dri "$folder/fetched"
  # Links from the root of a system to links within this one.
  find "$to" -type l -lname '/*' | while read -r link; do
    ln -srfn "$to$(readlink "$link")" "$link"
  done
}

echo "arm64_root: fetching arm64 packages of $suite" >&2
fetch() {
  (
    private_apt "$folder/emulator" "$suite"
    cd "$folder/emulator/archives"
    apt-get -qq download qemu-user-static
    dpkg-deb -x qemu-user-static_*.deb "$folder/emulator"
    mv "$folder/emulator/usr/bin/qemu-aarch64-static" "$folder"
    rm -rf "$folder/emulator"
  )
  unpack "$folder/tree" "$suite" "${packages[@]}"
  unpack "$folder/system" trixie "${run_packages[@]}"
  local name
  for name in spdlog fmt xxhash pcre2-8 md edit bsd tinfo; do
    cp -d "$folder"/tree/usr/lib/aarch64-linux-gnu/lib"$name".so.* "$folder/libraries"
  done
}
# In the background, because `set -e` does not hold inside a command whose status is tested.
(fetch) >"$folder/log" 2>&1 </dev/null &
wait $! || skip "$(grep -m 1 -E '^(E|W|Err)' "$folder/log" || tail -n 1 "$folder/log")"
echo "$stamp" >"$folder/stamp"
