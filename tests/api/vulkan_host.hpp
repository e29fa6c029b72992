// A host's device as pumice_vulkan.h describes it. Include it after Vulkan's header as this tree
// does (vk/…).
#pragma once

#include <string>
#include <vector>

#include "pumice/pumice_vulkan.h"
#include "vk/host_device.hpp"

namespace pumice::test {

/// A host's struct, whose names stay until this is called again.
inline pumice_vulkan_device c_struct(const vk::HostDevice& lent) {
  static vk::HostDevice kept;
  static std::vector<const char*> extensions, features;
  kept = lent;
  extensions.clear();
  features.clear();
  for (const std::string& name : kept.extensions) extensions.push_back(name.c_str());
  for (const std::string& name : kept.features) features.push_back(name.c_str());
  pumice_vulkan_device host{sizeof host};
  host.get_instance_proc_addr = lent.get_instance_proc_addr;
  host.instance = lent.instance;
  host.physical_device = lent.physical_device;
  host.device = lent.device;
  host.queue = lent.queue;
  host.queue_family = lent.queue_family;
  host.extensions = extensions.data();
  host.n_extensions = extensions.size();
  host.features = features.data();
  host.n_features = features.size();
  return host;
}

}  // namespace pumice::test
