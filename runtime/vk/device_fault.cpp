#include "vk/device_fault.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/printable.hpp"

namespace pumice::vk {
namespace {

// Of each kind. Drivers may know hundreds; a reader of the message wants the first.
constexpr uint32_t kMostInfos = 4;
constexpr size_t kDescriptionBytes = 120;

std::string_view address_name(VkDeviceFaultAddressTypeEXT type) {
  switch (type) {
    case VK_DEVICE_FAULT_ADDRESS_TYPE_READ_INVALID_EXT:
      return "invalid read at";
    case VK_DEVICE_FAULT_ADDRESS_TYPE_WRITE_INVALID_EXT:
      return "invalid write at";
    case VK_DEVICE_FAULT_ADDRESS_TYPE_EXECUTE_INVALID_EXT:
      return "invalid code at";
    case VK_DEVICE_FAULT_ADDRESS_TYPE_INSTRUCTION_POINTER_UNKNOWN_EXT:
    case VK_DEVICE_FAULT_ADDRESS_TYPE_INSTRUCTION_POINTER_INVALID_EXT:
    case VK_DEVICE_FAULT_ADDRESS_TYPE_INSTRUCTION_POINTER_FAULT_EXT:
      return "instruction at";
    default:
      return "address";
  }
}

/// Drivers have forgotten the zero at the end of such arrays before.
template <size_t kSize>
std::string text_of(const char (&text)[kSize]) {
  const std::string_view all(text, kSize);
  return printable(all.substr(0, all.find('\0')), kDescriptionBytes);
}

}  // namespace

std::string describe_fault(const DeviceFunctions& fn, VkDevice device) {
  if (fn.vkGetDeviceFaultInfoEXT == nullptr) return "";
  VkDeviceFaultCountsEXT counts{.sType = VK_STRUCTURE_TYPE_DEVICE_FAULT_COUNTS_EXT};
  if (fn.vkGetDeviceFaultInfoEXT(device, &counts, nullptr) != VK_SUCCESS) return "";
  counts.addressInfoCount = std::min(counts.addressInfoCount, kMostInfos);
  counts.vendorInfoCount = std::min(counts.vendorInfoCount, kMostInfos);
  counts.vendorBinarySize = 0;  // of a feature that is not enabled
  std::array<VkDeviceFaultAddressInfoEXT, kMostInfos> addresses{};
  std::array<VkDeviceFaultVendorInfoEXT, kMostInfos> vendor{};
  VkDeviceFaultInfoEXT info{.sType = VK_STRUCTURE_TYPE_DEVICE_FAULT_INFO_EXT,
                            .pAddressInfos = addresses.data(),
                            .pVendorInfos = vendor.data()};
  const VkResult result = fn.vkGetDeviceFaultInfoEXT(device, &counts, &info);
  if (result != VK_SUCCESS && result != VK_INCOMPLETE) return "";

  std::vector<std::string> parts;
  if (std::string text = text_of(info.description); !text.empty()) parts.push_back(std::move(text));
  for (uint32_t i = 0; i < std::min(counts.addressInfoCount, kMostInfos); ++i) {
    parts.push_back(fmt::format("{} {:#x} (to {} bytes)", address_name(addresses[i].addressType),
                                addresses[i].reportedAddress, addresses[i].addressPrecision));
  }
  for (uint32_t i = 0; i < std::min(counts.vendorInfoCount, kMostInfos); ++i) {
    parts.push_back(fmt::format("{} (code {:#x}, data {:#x})", text_of(vendor[i].description),
                                vendor[i].vendorFaultCode, vendor[i].vendorFaultData));
  }
  if (parts.empty()) return "";
  return fmt::format(" (what the driver says: {})", fmt::join(parts, "; "));
}

}  // namespace pumice::vk
