/* GPUs that Mesa 25.0's amdgpu shim has no dump of: the nearest one with another identity. What the
   compiler goes by (family, revision, GFX level) is right; clocks, caches and engines are the
   other's. */
#pragma once

#include <stdint.h>
#include <strings.h>

static const struct amdgpu_device* shim_other_gpu(const char* name) {
  static const struct {
    const char *name, *base;
    uint32_t family, revision, pci_id, major, minor, discovery;
  } gpus[] = {
      {"navi32", "navi31", AMDGPU_FAMILY_GC_11_0_0, 0x20, 0x747e, 11, 0, 0xb0003},
      {"navi33", "navi31", AMDGPU_FAMILY_GC_11_0_0, 0x10, 0x7480, 11, 0, 0xb0002},
      {"gfx1151", "gfx1150", AMDGPU_FAMILY_GC_11_5_0, 0xc0, 0x1586, 11, 5, 0xb0501},
      {"gfx1200", "navi31", AMDGPU_FAMILY_GC_12_0_0, 0x40, 0x7590, 12, 0, 0xc0000},
      {"gfx1201", "navi31", AMDGPU_FAMILY_GC_12_0_0, 0x50, 0x7550, 12, 0, 0xc0001},
  };
  static struct amdgpu_device gpu;
  for (unsigned i = 0; name != NULL && i < sizeof(gpus) / sizeof(*gpus); i++) {
    if (strcasecmp(gpus[i].name, name) != 0) continue;
    for (uint32_t j = 0; j < num_amdgpu_devices; j++) {
      if (strcasecmp(amdgpu_devices[j].name, gpus[i].base) == 0) gpu = amdgpu_devices[j];
    }
    gpu.name = gpus[i].name;
    gpu.dev.family = gpus[i].family;
    gpu.dev.external_rev = gpus[i].revision;
    gpu.dev.device_id = gpus[i].pci_id;
    gpu.hw_ip_gfx.hw_ip_version_major = gpus[i].major;
    gpu.hw_ip_gfx.hw_ip_version_minor = gpus[i].minor;
    gpu.hw_ip_gfx.ip_discovery_version = gpus[i].discovery;
    gpu.hw_ip_compute.hw_ip_version_major = gpus[i].major;
    gpu.hw_ip_compute.hw_ip_version_minor = gpus[i].minor;
    gpu.hw_ip_compute.ip_discovery_version = gpus[i].discovery;
    return &gpu;
  }
  return NULL;
}
