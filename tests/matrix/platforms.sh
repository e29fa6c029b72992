# Sourced by drivers.sh: GPUs that are not here and whose shader compilers run all the same. Mesa's
# drm-shim is a kernel driver that does nothing, preloaded under the Vulkan drivers fetched for
# lavapipe-26; the driver then compiles for whichever GPU the shim claims to be. Listings, of every
# pipeline of the program: INTEL_DEBUG=cs, IR3_SHADER_DEBUG=cs, RADV_DEBUG=asm (standard error),
# AGX_MESA_DEBUG=shaders (standard output), NAK_DEBUG=print (every pass).
# shellcheck shell=bash

# shellcheck disable=SC2034  # used where this file is sourced
platform_names=(
  intel-{tgl,rpl,dg2,mtl,arl,lnl,bmg,ptl}
  nvidia-{gm204,gp102,gv100,tu102,tu116,ga100,ga102,gh100,ad102,gb100,gb202}  # Mesa's driver (NVK)
  adreno-{618,630,660,730,740,750,x1-85,x2-85,830,840}                        # Mesa's driver (Turnip)
  apple-{13g,13c,14g,14d}                                                     # Mesa's driver (Honeykrisp)
  amd-{polaris10,vega10,renoir,navi10,navi21,vangogh,navi31,navi32,navi33,gfx1150,gfx1151,gfx1200,gfx1201}
)

# Mesa's name of the driver of a platform.
platform_driver() { # PLATFORM
  case $1 in
    intel-*) echo intel ;;
    nvidia-*) echo nouveau ;;
    adreno-*) echo freedreno ;;
    apple-*) echo asahi ;;
    amd-*) echo radeon ;;
  esac
}

# Sets the environment that the shim and the driver of a platform read.
platform_environment() { # PLATFORM
  local name=${1#*-} chipset
  case $1 in
    intel-*)
      export INTEL_STUB_GPU_PLATFORM=$name
      [[ $name != ptl ]] || export INTEL_FORCE_PROBE='*' ;;
    nvidia-*)
      case $name in
        gm204) chipset=0x124 ;; gp102) chipset=0x132 ;; gv100) chipset=0x140 ;; tu102) chipset=0x162 ;;
        tu116) chipset=0x168 ;; ga100) chipset=0x170 ;; ga102) chipset=0x172 ;; gh100) chipset=0x180 ;;
        ad102) chipset=0x192 ;; gb100) chipset=0x1a0 ;; gb202) chipset=0x1b2 ;;
      esac
      export NOUVEAU_CHIPSET=$chipset NVK_I_WANT_A_BROKEN_VULKAN_DRIVER=1 ;;
    adreno-*)
      case $name in
        x1-85) export FD_CHIP_ID=0x43050c01 ;;
        x2-85) export FD_CHIP_ID=0x44070041 ;;
        830) export FD_CHIP_ID=0x44050001 ;;
        840) export FD_CHIP_ID=0x44050a31 ;;
        *) export FD_GPU_ID=$name ;;
      esac ;;
    apple-*) export ASAHI_CHIP=${name^^} ;;
    amd-*) export AMDGPU_GPU_ID=$name ;;
  esac
}
