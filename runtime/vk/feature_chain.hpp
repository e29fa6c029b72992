// The pNext chain of feature structures, for asking what a device has and for enabling it: one
// mapping between DeviceFeatures and Vulkan's structures serves both.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "vk/snapshot.hpp"

namespace pumice::vk {

class FeatureChain {
 public:
  /// Links the structures that the API version and the extensions allow. `has_extension` says
  /// whether the device advertises (to ask) or the plan enables (to create) an extension.
  FeatureChain(uint32_t api_version, const std::function<bool(std::string_view)>& has_extension);
  ~FeatureChain();
  FeatureChain(FeatureChain&&) noexcept;
  FeatureChain& operator=(FeatureChain&&) noexcept;

  /// For vkGetPhysicalDeviceFeatures2, and for VkDeviceCreateInfo::pNext (with pEnabledFeatures
  /// null). Valid as long as the chain, moves included.
  VkPhysicalDeviceFeatures2* head();

  DeviceFeatures read() const;                 ///< false where no structure is linked
  void write(const DeviceFeatures& features);  ///< exactly these bits, all others off

 private:
  struct Structures;
  std::unique_ptr<Structures> structures_;
};

}  // namespace pumice::vk
