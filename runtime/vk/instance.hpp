// A Vulkan instance: our own, or one that a host lends. Several may live in one process and share
// nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "vk/functions.hpp"
#include "vk/snapshot.hpp"

namespace pumice::vk {

struct InstanceOptions {
  bool validation = false;       ///< core validation; kNoDevice if the layer is not installed
  bool sync_validation = false;  ///< also synchronisation validation; implies `validation`
  Logger logger = {};            ///< receives what the validation layer says
  std::string application_name = "pumice";
};

/// Move-only. Const members may be called from any thread; destroy after every device made from it.
class Instance {
 public:
  /// Opens the loader, creates an instance and lists its devices (there may be none).
  /// kNoDevice: no loader, no driver, or no validation layer, each named.
  static Result<Instance> create(const InstanceOptions& options = {});

  /// A host's, which must outlive this, with that one device. Not destroyed. kInvalidArgument for
  /// a null handle, kNoDevice for an entry point that lacks a function of Vulkan 1.1.
  static Result<Instance> adopt(PFN_vkGetInstanceProcAddr get_proc, VkInstance instance,
                                VkPhysicalDevice device);

  Instance(Instance&&) noexcept;
  Instance& operator=(Instance&&) noexcept;
  ~Instance();

  VkInstance handle() const;
  const InstanceFunctions& functions() const;
  /// VK_EXT_debug_utils is enabled (only with validation), so objects may be named.
  bool has_debug_utils() const;

  /// The devices present at creation; the order is that of `snapshots` and of `--device N`.
  const std::vector<VkPhysicalDevice>& physical_devices() const;
  Result<std::vector<DeviceSnapshot>> snapshots() const;

  /// It is not destroyed: a device of it hangs, and its driver is still at work. Any thread.
  void leave_to_driver();

  /// Messages of severity error from the validation layers so far; 0 without validation.
  uint64_t validation_error_count() const;

 private:
  struct State;
  explicit Instance(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pumice::vk
