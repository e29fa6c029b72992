// What a driver with VK_EXT_device_fault says of a device that was lost.
#pragma once

#include <string>

#include "vk/functions.hpp"

namespace pumice::vk {

/// " (what the driver says: …)" for the message of an error, at most a few hundred bytes: its
/// description, then the first addresses and the first of the vendor's codes. Empty if it has
/// nothing to say. The device was created with the feature deviceFault and is lost, as a call of
/// the driver has returned. Any thread.
std::string describe_fault(const DeviceFunctions& fn, VkDevice device);

}  // namespace pumice::vk
