/* Intel GPUs for Mesa's Intel shim, in place of Mesa's device table, whose build needs Python and
   Mako: the few fields that the shim reads. */
#pragma once

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INTEL_ENGINE_CLASS_RENDER I915_ENGINE_CLASS_RENDER
#define INTEL_ENGINE_CLASS_COPY I915_ENGINE_CLASS_COPY

enum { INTEL_PLATFORM_OTHER, INTEL_PLATFORM_CHV };

struct intel_device_info {
  const char* name;
  uint32_t pci_device_id;
  int ver;
  int platform;
  bool has_local_mem;
  uint32_t num_slices;
  uint32_t num_subslices[8];
  uint32_t max_eus_per_subslice;
  uint32_t
      eus_present; /* of max_eus_per_subslice, which the driver wants to be 16 from Gfx12.5 on */
  uint64_t timestamp_frequency;
};

struct drm_intel_stub_devinfo {
  uint64_t addr;
  uint32_t size;
};

/* From Gfx12.5 on the driver wants one slice that holds every subslice. */
static const struct intel_device_info shim_gpus[] = {
    {"tgl", 0x9a49, 12, 0, false, 1, {6}, 16, 16, 19200000}, /* Iris Xe */
    {"rpl", 0xa7a0, 12, 0, false, 1, {6}, 16, 16, 19200000}, /* Iris Xe of Raptor Lake */
    {"dg2", 0x56a0, 12, 0, true, 1, {32}, 16, 16, 19200000}, /* Arc A770 */
    {"mtl", 0x7d55, 12, 0, false, 1, {8}, 16, 16, 19200000}, /* Meteor Lake-H: no matrix units */
    {"arl", 0x7d51, 12, 0, false, 1, {8}, 16, 16, 19200000}, /* Arrow Lake-H: has them */
    {"lnl", 0x64a0, 20, 0, false, 1, {8}, 16, 8, 19200000},  /* Arc 140V */
    {"bmg", 0xe20b, 20, 0, true, 1, {20}, 16, 8, 19200000},  /* Arc B580 */
    {"ptl", 0xb080, 30, 0, false, 1, {12}, 16, 8, 19200000}, /* Panther Lake */
};

static inline int intel_device_name_to_pci_device_id(const char* name) {
  for (unsigned i = 0; i < sizeof(shim_gpus) / sizeof(*shim_gpus); i++) {
    if (strcmp(shim_gpus[i].name, name) == 0) return (int)shim_gpus[i].pci_device_id;
  }
  return -1;
}

static inline bool intel_get_device_info_from_pci_id(int id, struct intel_device_info* out) {
  for (unsigned i = 0; i < sizeof(shim_gpus) / sizeof(*shim_gpus); i++) {
    if ((int)shim_gpus[i].pci_device_id != id) continue;
    *out = shim_gpus[i];
    return true;
  }
  return false;
}

static inline bool intel_device_info_from_json(const char* path, struct intel_device_info* out) {
  (void)path, (void)out;
  return false;
}
