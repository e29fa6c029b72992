#!/usr/bin/env bash
# Run a Windows program under wine 10 on lavapipe, both in a Debian 13 of their own.
#
#   tests/matrix/wine.sh program.exe args…      in the current folder, which is below this checkout
#   tests/matrix/wine.sh --fetch                only fetch what that needs
#
# Debian 12's wine has no Vulkan without a display. The root is made with mmdebstrap, by Debian's key, beside the other
# drivers (tests/matrix/fetch_drivers.sh): ${PUMICE_DRIVER_CACHE:-${XDG_CACHE_HOME:-~/.cache}/pumice/drivers}/wine-10. It
# is kept; delete it to fetch it anew. The program sees the checkout where it is, by a /proc of its own, and
# ends with all that it started. That needs root. What cannot be had is SKIPPED with the reason, exit code 77.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
checkout=$(cd "$here/../.." && pwd)
# shellcheck source=tests/matrix/drivers.sh
. "$here/drivers.sh"
# shellcheck source=scripts/private_apt.sh
. "$checkout/scripts/private_apt.sh"

skip() { echo "SKIPPED wine: $*" >&2; exit 77; }

root=$cache/wine-10
fetch_root() {
  local reason
  [[ ! -e $root/complete ]] || return 0
  reason=$(why_no_private_apt) || skip "$reason"
  [[ $architecture == amd64 ]] || skip "this machine is $architecture, not amd64"
  command -v mmdebstrap >/dev/null || skip "needs mmdebstrap (scripts/install_packages.sh windows)"
  mkdir -p "$cache"
  exec 9>"$cache/.lock"
  flock 9
  [[ ! -e $root/complete ]] || return 0
  rm -rf "${root:?}" "$root.log"
  if ! mmdebstrap --mode=root --variant=essential --keyring="$keyring" --aptopt='APT::Install-Recommends "false"' \
    --include=wine64,mesa-vulkan-drivers,libvulkan1 trixie "$root" "deb [signed-by=$keyring] $mirror trixie main" \
    >"$root.log" 2>&1 </dev/null; then
    rm -rf "${root:?}"
    skip "$(grep -m 1 '^E:' "$root.log" || tail -n 1 "$root.log")"
  fi
  rm -f "$root.log"
  # Wine makes its folder of settings at its first start.
  (enter / /usr/lib/wine/wine64 wineboot --init) >"$root.log" 2>&1 </dev/null || skip "wineboot failed: $root.log"
  touch "$root/complete"
}

# enter FOLDER program args…: in the root, with the checkout at its own path. Does not return; who kills this process ends
# all that runs there.
enter() {
  local -r folder=$1
  shift
  mkdir -p "$root$checkout" "$root/var/wine"
  # shellcheck disable=SC2016  # of the inner shell
  exec unshare --mount --pid --fork --kill-child sh -c '
    root=$1 checkout=$2 folder=$3
    shift 3
    mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount --rbind /sys "$root/sys" &&
      mount --bind "$checkout" "$root$checkout" && exec chroot "$root" sh -c '\''cd "$0" && exec "$@"'\'' "$folder" "$@"' \
    sh "$root" "$checkout" "$folder" env -u TMPDIR LC_ALL=C.UTF-8 HOME=/var/wine XDG_RUNTIME_DIR=/tmp WINEPREFIX=/var/wine/prefix \
    WINEDEBUG="${WINEDEBUG:--all}" VK_DRIVER_FILES=/usr/share/vulkan/icd.d/lvp_icd.json VK_LOADER_LAYERS_DISABLE='~implicit~' \
    "$@"
}

[[ $# -ge 1 ]] || { sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[[ $EUID == 0 ]] || skip "needs root to make and enter a root of its own"
fetch_root
[[ $1 != --fetch ]] || exit 0
program=$(realpath "$1")
shift
# One at a time: wine's server knows programs by numbers that are of one start of this root.
exec 8>"$cache/.wine-lock"
flock 8
enter "$PWD" /usr/lib/wine/wine64 "$program" "$@"
