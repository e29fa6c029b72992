#!/usr/bin/env bash
# The packages Pumice needs on Debian 12, Debian 13 and Ubuntu 24.04, and their installation.
#
#   scripts/install_packages.sh         what `make run` and `make test` need
#   scripts/install_packages.sh lint    that and what `make lint` and `make test-matrix` need
#   scripts/install_packages.sh windows that of `make run`, and what scripts/build_windows.sh needs
#   scripts/install_packages.sh arm64   that of `make run`, and what scripts/build_arm64.sh needs
#   scripts/install_packages.sh list    print the names only (add `lint`, `windows` or `arm64` for those too)
#
# Installs what is missing and nothing else; silent and instant when nothing is.
# PUMICE_NO_INSTALL=1 installs nothing and names what is missing.
set -euo pipefail

packages=(
  # build
  make g++ cmake ninja-build ccache pkg-config glslc spirv-headers
  # libraries
  libvulkan-dev libvulkan-volk-dev libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev
  libxxhash-dev libpcre2-dev libedit-dev libvalijson-dev
  # downloads of models
  libcurl4-openssl-dev ca-certificates libmd-dev
  # HTTP of `pumice serve`: headers only
  libboost-dev
  # KV events of `pumice serve`, and what the tests read them with
  libzmq3-dev python3-zmq python3-msgpack
  # charts of `pumice report`
  libjs-chart.js
  # run: the loader, and drivers that include a software one
  libvulkan1 mesa-vulkan-drivers
  # examples/npc
  libglm-dev libsdl2-dev
  # test
  libgtest-dev libgmock-dev libbenchmark-dev python3 spirv-tools vulkan-validationlayers
)
lint_packages=(clang-format clang-tidy shellcheck clang libclang-rt-dev patch xz-utils abigail-tools
  # the C# binding's tests
  mono-mcs
  # the tests of man pages and completions
  groff-base man-db mandoc zsh fish
  # the tests of packages
  dpkg-dev file lintian)
# The compiler for Windows, GoogleTest as source, and what makes the root that Windows programs are tested in
# (tests/matrix/wine.sh).
windows_packages=(g++-mingw-w64-x86-64-posix googletest mmdebstrap)
# The compiler for arm64; libraries are fetched by scripts/arm64_root.sh.
arm64_packages=(g++-aarch64-linux-gnu)
# A browser for the tests of `pumice report`; Ubuntu has it as a snap only.
if grep -qs '^ID=debian' /etc/os-release; then lint_packages+=(chromium); fi

list_only=0
for argument in "$@"; do
  case $argument in
    lint) packages+=("${lint_packages[@]}") ;;
    windows) packages+=("${windows_packages[@]}") ;;
    arm64) packages+=("${arm64_packages[@]}") ;;
    list) list_only=1 ;;
    *) echo "install_packages: unknown argument '$argument' (lint, windows, arm64, list)" >&2; exit 2 ;;
  esac
done
if [[ $list_only == 1 ]]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  [[ ${PUMICE_NO_INSTALL:-0} == 1 ]] ||
    echo "install_packages: no apt on this system; install the equivalents of: ${packages[*]}" >&2
  exit 0
fi

# Sets `missing` to the packages that dpkg does not have configured.
missing=()
find_missing() {
  local installed name
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
  missing=()
  for name in "${packages[@]}"; do
    [[ $'\n'"$installed"$'\n' == *$'\n'"$name installed"$'\n'* ]] || missing+=("$name")
  done
}

find_missing
[[ ${#missing[@]} -gt 0 ]] || exit 0

as_root=()
[[ $EUID == 0 ]] || as_root=(sudo)
command_line="${as_root[*]:+${as_root[*]} }apt-get install --no-install-recommends ${missing[*]}"
if [[ ${PUMICE_NO_INSTALL:-0} == 1 ]]; then
  printf 'install_packages: not installed: %s\n  to install: %s\n' "${missing[*]}" "$command_line" >&2
  exit 0
fi
if [[ $EUID != 0 ]]; then
  if ! command -v sudo >/dev/null; then
    printf 'install_packages: neither root nor sudo; run as root:\n  %s\n' \
      "${command_line#sudo }" >&2
    exit 1
  fi
  [[ -t 0 ]] || as_root+=(-n)  # nobody is there to type a password
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o DPkg::Lock::Timeout=900 -o Acquire::Retries=3 "$@" </dev/null
}

echo "install_packages: installing ${missing[*]}" >&2
# The lock of the package lists is not covered by DPkg::Lock::Timeout, so wait for it here. Without
# fresh lists the installation may still succeed.
for _ in $(seq 60); do
  output=$(LC_ALL=C apt update 2>&1) && break
  if [[ $output != *"ould not get lock"* ]]; then
    printf '%s\n' "$output" >&2
    break
  fi
  sleep 10
done
find_missing  # somebody else may have installed them meanwhile
[[ ${#missing[@]} == 0 ]] || apt install -y --no-install-recommends "${missing[@]}" >&2
