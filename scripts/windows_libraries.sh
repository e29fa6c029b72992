#!/usr/bin/env bash
# Build the libraries of a Windows build by mingw-w64 in build/windows-libraries: include/ and lib/.
#
# Headers are those of this machine's packages (scripts/install_packages.sh windows), since no header of a library that
# is used here asks where it was installed. What is compiled comes from the distribution's source packages, verified
# with its key; nothing is installed. What is there is kept: delete the folder to build it anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/private_apt.sh
. scripts/private_apt.sh

folder=$PWD/build/windows-libraries
toolchain=$PWD/cmake/windows.cmake
# What is compiled: a change here builds anew.
sources=(pcre2 fmtlib libmd)
stamp="of $(sha256sum <"${BASH_SOURCE[0]}") $(x86_64-w64-mingw32-g++-posix -dumpfullversion)"
[[ $(cat "$folder/stamp" 2>/dev/null) != "$stamp" ]] || exit 0

why_no_private_apt || exit 1
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[[ $(. /etc/os-release && echo "$ID") == debian ]] || suite=bookworm
rm -rf "$folder"
mkdir -p "$folder"/{include,lib,fetched}

echo "windows_libraries: fetching the sources of ${sources[*]}" >&2
(
  private_apt "$folder/fetched" "source:$suite"
  cd "$folder/fetched"
  apt-get -qq source --download-only "${sources[@]}"
)
for source in "${sources[@]}"; do
  mkdir "$folder/fetched/$source"
  tar -C "$folder/fetched/$source" --strip-components 1 -xf "$(ls "$folder/fetched/$source"_*.orig.tar.?z)"
done

# Libraries that are headers only, and the headers of those that are opened at run time.
for name in boost CLI nlohmann spdlog valijson vulkan vk_video volk.h volk.c xxhash.h xxh3.h zmq.h; do
  ln -s "/usr/include/$name" "$folder/include/$name"
done
curl=$(find /usr/include -path '*/curl/curl.h' | head -n 1)
ln -s "$(dirname "$curl")" "$folder/include/curl"

build() { # NAME SOURCE cmake-arguments…
  local name=$1 source=$2
  shift 2
  cmake -S "$source" -B "$folder/build/$name" -G Ninja --toolchain "$toolchain" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$folder" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF "$@"
  cmake --build "$folder/build/$name" --target install
}
build_all() {
  build pcre2 "$folder/fetched/pcre2" -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_BUILD_TESTS=OFF -DPCRE2_SUPPORT_JIT=ON
  build fmt "$folder/fetched/fmtlib" -DFMT_TEST=OFF -DFMT_DOC=OFF
  build googletest /usr/src/googletest -DGTEST_HAS_ABSL=OFF
  (
    mkdir "$folder/build/libmd"
    cd "$folder/build/libmd"
    "$folder/fetched/libmd/configure" --host=x86_64-w64-mingw32 CC=x86_64-w64-mingw32-gcc-posix CFLAGS=-O2 \
      --prefix="$folder" --disable-shared
    make -C src install
    make -C include install
  )
  # xxHash is headers that make the library where they are asked to.
  printf '%s\n' '#define XXH_STATIC_LINKING_ONLY' '#define XXH_IMPLEMENTATION' '#include <xxhash.h>' \
    >"$folder/build/xxhash.c"
  x86_64-w64-mingw32-gcc-posix -O2 -I "$folder/include" -c "$folder/build/xxhash.c" -o "$folder/build/xxhash.o"
  x86_64-w64-mingw32-ar rcs "$folder/lib/libxxhash.a" "$folder/build/xxhash.o"
}
# In the background, because `set -e` does not hold inside a command whose status is tested.
(build_all) >"$folder/log" 2>&1 &
wait $! || { tail -n 40 "$folder/log" >&2; exit 1; }
rm -rf "$folder"/{fetched,build}
echo "$stamp" >"$folder/stamp"
