#!/usr/bin/env bash
# Run the README's two commands on a fresh Debian: a minimal chroot with `make` and `git`, a clone of HEAD, `make run`,
# `make test`. Proves that scripts/install_packages.sh names everything. What is not committed is not tested.
#
#   scripts/fresh_machine.sh bookworm|trixie [FOLDER]
#
#   --ccache FOLDER   share a ccache folder with the chroot (nothing is installed or found through it)
#   --archive         an archive of the sources instead of a clone, without git, and a /dev with null, zero and urandom only
#   --packages FOLDER install the Debian packages in it (scripts/make_archive.sh deb) instead of building, run the program
#                     with the model it brings, and build a program with the library
#   --keep            leave the chroot where it is, to look around in
#
# Needs root, debootstrap and unshare. FOLDER, by default a new one under ${TMPDIR:-/var/tmp}, must not exist; it takes
# 4 GB and is removed at the end. The mirror is scripts/debian_mirror.sh's. Every mount is in a mount namespace that ends
# with the command inside it, so there is nothing to unmount and nothing to delete through.
set -euo pipefail

suite='' folder='' ccache='' packages='' keep=0 archive=0
usage() {
  echo "usage: scripts/fresh_machine.sh bookworm|trixie [FOLDER] [--ccache FOLDER] [--archive] [--packages FOLDER] [--keep]" >&2
  exit 2
}
while [[ $# -gt 0 ]]; do
  case $1 in
    --ccache) [[ -d ${2:-} ]] || usage; ccache=$(realpath "$2"); shift ;;
    --packages) [[ -d ${2:-} ]] || usage; packages=$(realpath "$2"); shift ;;
    --keep) keep=1 ;;
    --archive) archive=1 ;;
    bookworm | trixie) [[ -z $suite ]] || usage; suite=$1 ;;
    -*) usage ;;
    *) [[ -n $suite && -z $folder ]] || usage; folder=$1 ;;
  esac
  shift
done
[[ -n $suite ]] || usage

stop() { echo "fresh_machine: $*" >&2; exit 1; }
[[ $EUID == 0 ]] || stop "needs root, for chroot and mounts"
for program in debootstrap unshare chroot git; do
  command -v "$program" >/dev/null || stop "needs $program (apt-get install debootstrap util-linux git)"
done
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mirror=$("$repository/scripts/debian_mirror.sh")
[[ -n $mirror ]] || stop "no Debian mirror in apt's sources; set PUMICE_DEBIAN_MIRROR"
[[ -z $folder || ! -e $folder ]] || stop "$folder exists; name a folder that does not"

if [[ -z $folder ]]; then
  folder=$(mktemp -d "${TMPDIR:-/var/tmp}/pumice-fresh-$suite.XXXXXX")
else
  mkdir -p "$folder"
fi
folder=$(realpath "$folder")
root=$folder/root
clone=/opt/pumice
mkdir "$root"

clean_up() {
  if [[ $keep == 1 ]]; then
    echo "fresh_machine: kept $root" >&2
  elif grep -qF " $folder/" /proc/self/mountinfo; then  # cannot be, and would be deleted through
    echo "fresh_machine: something is mounted below $folder; not removed" >&2
  else
    rm -rf --one-file-system "$folder"
  fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# private COMMAND…: with mounts and processes of its own, which end with it.
private() { unshare --mount --propagation private --pid --fork --kill-child -- "$@"; }

# inside COMMAND…: in the chroot, in the clone where there is one, with nothing of this machine's environment but a proxy.
inside() {
  # shellcheck disable=SC2016  # for the inner shell
  private bash -euc '
    root=$1 ccache=$2 clone=$3; shift 3
    mount -t proc proc "$root/proc"
    mkdir -p "$root/dev/shm"
    mount -t tmpfs shm "$root/dev/shm"
    directory=/; [[ ! -d $root$clone ]] || directory=$clone
    shared=()
    if [[ -n $ccache ]]; then
      mkdir -p "$root/ccache"
      mount --bind "$ccache" "$root/ccache"
      shared=(CCACHE_DIR=/ccache CCACHE_BASEDIR="$clone" CCACHE_NOHASHDIR=1)
    fi
    exec chroot "$root" /usr/bin/env -i -C "$directory" HOME=/root LANG=C.UTF-8 TERM=dumb \
      PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
      ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "${shared[@]}" "$@"
  ' inside "$root" "$ccache" "$clone" "$@" </dev/null
}

# stage NAME COMMAND…: reports how long it took; ends the script when it fails.
stage() {
  local name=$1 start=$SECONDS status=0
  shift
  echo "== $suite: $name"
  "$@" || status=$?
  printf '== %s: %s: %s in %d:%02d\n' "$suite" "$name" "$([[ $status == 0 ]] && echo passed || echo FAILED)" \
    $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60))
  [[ $status == 0 ]] || exit 1
}

stage debootstrap private debootstrap --variant=minbase "$suite" "$root" "$mirror" >&2
if [[ -n $packages ]]; then
  mkdir "$root/packages"
  cp "$packages"/*.deb "$repository/examples/minimal.c" "$repository/scripts/try_packages.sh" "$root/packages"
  stage 'packages' inside bash /packages/try_packages.sh
  echo "== $suite: the packages passed"
  exit 0
fi
commit=$(git -C "$repository" rev-parse --short HEAD)
if [[ $archive == 1 ]]; then
  stage 'make' inside apt-get -qq install -y --no-install-recommends make >&2
  find "$root/dev" -mindepth 1 -xdev ! -name null ! -name zero ! -name urandom -delete
  mkdir -p "$root$clone"
  unpack() { git -C "$repository" archive HEAD | tar -x -C "$root$clone"; }
  stage "archive of $commit" unpack
else
  stage 'make and git' inside apt-get -qq install -y --no-install-recommends make git >&2
  # As a clone leaves it, without what is ignored or new here; a bundle, so that no folder of this machine is visible.
  git -C "$repository" bundle create -q "$root/pumice.bundle" HEAD
  stage "clone of $commit" inside git clone -q /pumice.bundle "$clone"
fi
stage 'make run' inside make run
stage 'make test' inside make test
echo "== $suite: both commands passed"
