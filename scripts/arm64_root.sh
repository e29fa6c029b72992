#!/usr/bin/env bash
# Make build/arm64-root: Debian's arm64 libraries to build and run with (tree/) and the emulator that runs what was built
# (qemu-aarch64-static). Nothing is installed; this machine's apt and dpkg know nothing of that architecture.
#
# Packages are of this system's Debian release, or of Debian 12 elsewhere, from the mirror that apt uses or
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
packages+=(libc6-dev libvulkan1 mesa-vulkan-drivers)
stamp="of $(sha256sum <"${BASH_SOURCE[0]}") ${packages[*]}"
[[ $(cat "$folder/stamp" 2>/dev/null) != "$stamp" ]] || exit 0

skip() { echo "SKIPPED arm64: $*" >&2; exit 77; }
reason=$(why_no_private_apt) || skip "$reason"
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[[ $(. /etc/os-release && echo "$ID") == debian ]] || suite=bookworm
rm -rf "$folder"
mkdir -p "$folder/tree/usr/lib"
# Where Debian's systems have it, whichever of the two a package names.
ln -s usr/lib "$folder/tree/lib"

echo "arm64_root: fetching arm64 packages of $suite" >&2
fetch() {
  (
    private_apt "$folder/emulator" "$suite"
    cd "$folder/emulator/archives"
    apt-get -qq download qemu-user-static
    dpkg-deb -x qemu-user-static_*.deb "$folder/emulator"
    mv "$folder/emulator/usr/bin/qemu-aarch64-static" "$folder"
  )
  (
    architecture=arm64
    private_apt "$folder/fetched" "$suite"
    apt-get -qq -y --download-only install "${packages[@]}"
  )
  local deb
  for deb in "$folder"/fetched/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --no-same-owner -C "$folder/tree"
  done
  rm -rf "$folder"/tree/{bin,sbin,usr/bin,usr/sbin} "$folder"/tree/usr/lib/*/dri "$folder"/{fetched,emulator}
  # Links from the root of a system to links within this one.
  local link
  find "$folder/tree" -type l -lname '/*' | while read -r link; do
    ln -srfn "$folder/tree$(readlink "$link")" "$link"
  done
}
# In the background, because `set -e` does not hold inside a command whose status is tested.
(fetch) >"$folder/log" 2>&1 </dev/null &
wait $! || skip "$(grep -m 1 -E '^(E|W|Err)' "$folder/log" || tail -n 1 "$folder/log")"
echo "$stamp" >"$folder/stamp"
