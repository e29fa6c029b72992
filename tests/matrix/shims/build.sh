#!/usr/bin/env bash
# Build Mesa's drm-shim libraries: kernel drivers that do nothing, preloaded under Mesa's Vulkan drivers,
# so that their shader compilers run for GPUs that are not here.
#
#   tests/matrix/shims/build.sh SOURCE DRM OUT
#
# SOURCE is an unpacked Mesa 25.0, which this patches; DRM a folder with libdrm's headers; OUT gets
# libshim_{intel,nvidia,adreno,apple,amd}.so. Called by fetch_drivers.sh, which fetches both.
set -euo pipefail

[[ $# == 3 ]] || { sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$1" && pwd)
drm=$2 out=$3 src=$source/src
objects=$out/objects
mkdir -p "$objects"

patch --quiet --forward --strip 1 --directory "$source" <"$here/mesa.patch"

# What Mesa's own build finds out about a Linux with gcc and glibc.
flags=(-O1 -fPIC -fvisibility=hidden -std=gnu11 -w -DNDEBUG -D_GNU_SOURCE
  -DHAVE_MEMFD_CREATE -DHAVE_LINUX_FUTEX_H -DHAVE_PTHREAD -DHAVE_STRUCT_TIMESPEC -DHAVE_ENDIAN_H
  -DHAVE_SECURE_GETENV -DHAVE_STRTOD_L -DHAVE_POSIX_MEMALIGN -DUSE_GCC_ATOMIC_BUILTINS
  -DUTIL_ARCH_LITTLE_ENDIAN=1 -DHAVE_FUNC_ATTRIBUTE_PACKED -DHAVE_FUNC_ATTRIBUTE_VISIBILITY)
for builtin in UNREACHABLE FFS FFSLL CLZ CLZLL POPCOUNT POPCOUNTLL EXPECT; do
  flags+=("-DHAVE___BUILTIN_$builtin=1")
done
for folder in "$here" "$source/include" "$src" "$src"/{util,amd,amd/drm-shim,nouveau,nouveau/headers} \
  "$drm" "$drm/libdrm"; do
  flags+=("-I$folder")
done

compile() { # FILE…: adds their objects to `compiled`
  local file
  for file in "$@"; do
    gcc "${flags[@]}" -c "$file" -o "$objects/$(basename "$file" .c).o"
    compiled+=("$objects/$(basename "$file" .c).o")
  done
}

link() { # NAME FILE…
  local name=$1 compiled=("${common[@]}")
  shift
  compile "$@"
  gcc -shared -o "$out/libshim_$name.so" "${compiled[@]}" -ldl -lpthread -Wl,-z,defs
}

compiled=()
compile "$here/mesa_utilities.c" "$src"/drm-shim/{device,drm_shim}.c \
  "$src"/util/{hash_table,ralloc,set,vma,anon_file,futex}.c
common=("${compiled[@]}")
link intel "$src/intel/tools/intel_noop_drm_shim.c"
link nvidia "$src/nouveau/drm-shim/nouveau_noop.c"
link adreno "$src/freedreno/drm-shim/freedreno_noop.c"
link amd "$src"/amd/drm-shim/{amdgpu_noop_drm_shim,amdgpu_devices}.c
flags+=(-include drm-shim/drm_shim.h)
link apple "$here/apple.c"
rm -r "$objects"
